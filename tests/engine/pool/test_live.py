"""The pool of a live engine over days: memory, critical jobs, new configurations, idle times, user actions, killed processes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace
from pool_harness import Harness, command_builder, python_builder
from waiting import until

from aptui.core.orders import HashOrder, Outcome
from aptui.engine.pool import process, slots
from aptui.engine.pool.admission import MemoryBudget
from aptui.engine.pool.pool import PoolSettings
from aptui.engine.pool.spawning import mark_prefix
from aptui.worker import processes

pytestmark = pytest.mark.real

MIB = 1 << 20
GOOD, GATED = python_builder("Good", "good"), python_builder("Gated", "gated")


class Clock:
    """The real clock, plus an offset of the test."""

    def __init__(self):
        self.added_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.added_s


def budget(megabytes: int, **learned: int) -> MemoryBudget:
    return MemoryBudget(megabytes * MIB, time.monotonic, {name: count * MIB for name, count in learned.items()})


def begin(pool: Harness, *rels: str, builder: str = "gated", **more) -> list:
    """Send one message per job and return the orders. The run of a `gated` job lasts until `let_go` creates its file."""
    orders = [pool.process_order(builder, rel, **more) for rel in rels]
    for order in orders:
        pool.pool.send([order])
    return orders


def has_begun(pool: Harness, rel: str) -> bool:
    return (pool.root / f"{rel}.at").exists()


def until_seen(pool: Harness, condition: Callable[[], bool]) -> None:
    """Check a condition repeatedly, because its change does not wake the loop."""
    until(condition, step=lambda _left_s: pool.turn(0.005))


def until_begun(pool: Harness, *rels: str) -> None:
    until_seen(pool, lambda: all(has_begun(pool, rel) for rel in rels))


def let_go(pool: Harness, *rels: str) -> None:
    for rel in rels:
        (pool.root / f"{rel}.go").touch()


def outcomes(pool: Harness, orders) -> list[Outcome]:
    pool.until(lambda: all(order.run_key in pool.results for order in orders))
    return [pool.results[order.run_key].outcome for order in orders]


# ----------------------------------------------------------------------------------------------------------- memory budget


def test_job_that_does_not_fit_into_memory_waits_while_smaller_jobs_run(harness):
    pool = harness(GOOD, GATED, memory=budget(100, gated=60, good=10))
    first, second = begin(pool, "a.txt", "b.txt")
    until_begun(pool, "a.txt")

    (small,) = pool.run(pool.process_order("good"))

    assert small.outcome == Outcome.SUCCEEDED
    assert not has_begun(pool, "b.txt")
    assert pool.pool.free == 1
    assert pool.pool.next_deadline() is not None
    let_go(pool, "a.txt", "b.txt")
    assert outcomes(pool, [first, second]) == [Outcome.SUCCEEDED] * 2


def test_waiting_message_is_overtaken_only_a_limited_number_of_times(harness, monkeypatch):
    monkeypatch.setattr(slots, "PATIENT_PASSES", 2)
    pool = harness(GOOD, GATED, memory=budget(100, gated=60, good=10))
    first, second = begin(pool, "a.txt", "b.txt")
    goods = [pool.process_order("good", f"g{number}.txt") for number in range(4)]
    for order in goods:
        pool.pool.send([order])
    pool.until(lambda: len(pool.results) == 2)

    assert len(pool.pool._waiting) == 3
    until_begun(pool, "a.txt")
    assert [order.run_key in pool.results for order in goods] == [True, True, False, False]
    let_go(pool, "a.txt", "b.txt")
    assert outcomes(pool, [first, second, *goods]) == [Outcome.SUCCEEDED] * 6


def test_files_are_copied_and_hashed_while_jobs_use_all_memory(harness):
    pool = harness(GATED, memory=budget(1, gated=60))
    begin(pool, "a.txt", "b.txt")

    pool.pool.send_hash(HashOrder(1, (str(pool.root / "a.txt"),)))
    (copy,) = pool.run(pool.copy_order("a.txt"))

    assert copy.outcome == Outcome.SUCCEEDED
    let_go(pool, "a.txt", "b.txt")
    pool.until(lambda: pool.pool.is_idle)
    assert len(pool.hashes) == 1


def test_job_that_needs_more_than_all_memory_runs_without_other_jobs(harness):
    pool = harness(GOOD, memory=budget(1, good=60))

    results = pool.run(*(pool.process_order("good", f"{number}.txt") for number in range(3)))

    assert [result.outcome for result in results] == [Outcome.SUCCEEDED] * 3


def test_pool_requests_no_jobs_while_other_jobs_wait_for_memory(harness):
    pool = harness(GATED, memory=budget(100, gated=60))
    begin(pool, *(f"{number}.txt" for number in range(9)))

    assert pool.pool.free == 0


def test_pool_records_the_peak_memory_of_each_builder(harness):
    pool = harness(GOOD, python_builder("Hungry", "hungry"), python_builder("HungryChild", "child"), size=1)

    hungry, good, child = pool.run(*(pool.process_order(name) for name in ("hungry", "good", "child")))

    assert hungry.peak_rss_bytes > 120 * MIB
    assert good.peak_rss_bytes < hungry.peak_rss_bytes - 60 * MIB
    assert child.peak_rss_bytes > 120 * MIB
    learned = pool.pool.list_learned_memory()
    assert learned == {"hungry": hungry.peak_rss_bytes, "good": good.peak_rss_bytes, "child": child.peak_rss_bytes}
    pool.close()
    assert harness(learned_memory=learned).pool.list_learned_memory() == learned


# ------------------------------------------------------------------------------------------- jobs that run out of memory


def test_retry_of_a_killed_job_runs_alone(harness):
    pool = harness(GOOD, GATED, python_builder("KilledOnce", "killed"), size=3)
    (first,) = pool.run(pool.process_order("killed", "k.txt"))
    assert (first.outcome, first.error) == (Outcome.LOST, "killed by SIGKILL: likely out of memory")
    before, beside, after = (pool.process_order("gated", f"{name}.txt") for name in ("before", "beside", "after"))

    pool.pool.send([before])
    until_begun(pool, "before.txt")
    again = pool.process_order("killed", "k.txt")
    pool.pool.send([pool.process_order("good"), again])
    pool.pool.send([beside])
    until_begun(pool, "beside.txt")
    assert pool.pool._waiting.held_count == 1
    let_go(pool, "before.txt", "beside.txt")
    assert outcomes(pool, [before, beside, again]) == [Outcome.SUCCEEDED] * 3

    pool.pool.send([after])  # the job `k.txt` has now succeeded, so other jobs may run beside it again
    until_begun(pool, "after.txt")
    (third,) = pool.run(pool.process_order("killed", "k.txt"))
    assert third.outcome == Outcome.SUCCEEDED
    let_go(pool, "after.txt")
    assert outcomes(pool, [after]) == [Outcome.SUCCEEDED]


def test_pool_starts_no_job_while_a_job_that_must_run_alone_is_running(harness):
    pool = harness(GOOD, GATED, size=3)
    pool.pool._admission.lonely["gated", str(pool.root), "alone.txt", "linux", "gated"] = None
    (alone,) = begin(pool, "alone.txt")
    good = pool.process_order("good")
    pool.pool.send([good])
    until_begun(pool, "alone.txt")

    assert (pool.pool._waiting.held_count, len(pool.worker_pids)) == (1, 1)
    let_go(pool, "alone.txt")
    assert outcomes(pool, [alone, good]) == [Outcome.SUCCEEDED] * 2


def test_job_fails_only_after_the_second_kill_of_its_command(harness):
    pool = harness(command_builder("c", "kill -9 $$"))

    results = [pool.run(pool.process_order("c", "k.txt"))[0] for _ in range(2)]

    assert [result.outcome for result in results] == [Outcome.LOST, Outcome.FAILED]
    assert {result.error for result in results} == {"command killed by SIGKILL: likely out of memory"}


def test_builder_is_broken_if_its_jobs_kill_workers_even_when_run_alone(harness):
    pool = harness(python_builder("KillsGroup", "kills"), size=1)
    rels = [f"{number}.txt" for number in range(3)]

    for rel in rels:
        pool.run(pool.process_order("kills", rel))
    assert pool.pool.list_broken_builders() == {}
    for rel in rels:
        pool.run(pool.process_order("kills", rel))
    assert list(pool.pool.list_broken_builders()) == ["kills"]


# ---------------------------------------------------------------------------------------------------------- critical jobs


def test_critical_job_starts_while_a_long_job_uses_the_only_worker(harness):
    pool = harness(GOOD, GATED, size=1)
    (long,) = begin(pool, "long.txt")
    until_begun(pool, "long.txt")
    assert (pool.pool.free, pool.pool.free_for_critical) == (0, 1)
    small = pool.process_order("good", "small.txt")
    pool.pool.send([small])

    (critical,) = pool.run(pool.process_order("good", is_critical=True))

    assert critical.outcome == Outcome.SUCCEEDED
    assert not {long.run_key, small.run_key} & pool.results.keys()
    let_go(pool, "long.txt")
    assert outcomes(pool, [long, small]) == [Outcome.SUCCEEDED] * 2
    assert pool.pool.free == 1


def test_files_are_hashed_and_analysed_while_long_jobs_use_all_workers(harness):
    clock = Clock()
    pool = harness(GOOD, GATED, size=1, clock=clock)
    (long,) = begin(pool, "long.txt")
    until_begun(pool, "long.txt")

    order = pool.analyse_order("good")
    pool.pool.send([order])
    assert len(pool.worker_pids) == 1  # the long job may end soon, so no second worker starts yet
    assert pool.pool.next_deadline() <= clock() + 1.0
    clock.added_s += 1.0
    pool.pool.poll(clock())
    second = pool.analyse_order("good", "second.txt")
    pool.pool.send([second])
    pool.pool.send_hash(HashOrder(1, (str(pool.source("new.txt")),)))
    pool.until(lambda: {order.run_key, second.run_key} <= pool.results.keys() and pool.hashes)

    assert long.run_key not in pool.results
    assert len(pool.worker_pids) == 2
    let_go(pool, "long.txt")
    assert outcomes(pool, [long]) == [Outcome.SUCCEEDED]


def test_critical_job_overtakes_other_orders_of_the_same_call(harness):
    pool = harness(GOOD, GATED, size=1)
    blockers = [*begin(pool, "a.txt"), *begin(pool, "b.txt", is_critical=True)]
    orders = [pool.process_order("good", f"{number}.txt", is_critical=number == 5) for number in range(6)]
    pool.pool.send(orders)

    let_go(pool, "a.txt", "b.txt")

    assert outcomes(pool, [*blockers, *orders]) == [Outcome.SUCCEEDED] * 8
    done = [key for key in pool.results if key in {order.run_key for order in orders}]
    assert done[0] == orders[5].run_key


# ----------------------------------------------------------------------------------------------------- requests of users


def test_state_and_job_of_each_worker_are_listed(harness):
    pool = harness(GOOD, GATED)
    for _ in range(2):
        pool.pool.send([pool.process_order("good")])
    assert [(info.number, info.state, info.job) for info in pool.pool.workers()] == [(1, "starting", ""), (2, "starting", "")]
    pool.until(lambda: len(pool.results) == 2 and all(info.state == "idle" for info in pool.pool.workers()))

    (order,) = begin(pool, "dir/a.txt")
    until_begun(pool, "dir/a.txt")

    idle, working = sorted(pool.pool.workers(), key=lambda info: info.state)
    assert (idle.job, idle.age_ms) == ("", 0)
    assert (working.state, working.job) == ("working", "gated: dir/a.txt (linux, gated)")
    assert working.age_ms >= 0
    assert (idle.runs, working.runs) == (1, 1)
    assert {idle.pid, working.pid} == set(pool.worker_pids)
    assert working.rss_bytes > MIB
    pool.pool.restart_worker(working.number)
    assert {info.state for info in pool.pool.workers() if info.number == working.number} == {"ending"}
    let_go(pool, "dir/a.txt")
    assert outcomes(pool, [order]) == [Outcome.SUCCEEDED]


def test_restarted_worker_finishes_its_run(harness):
    pool = harness(GOOD, GATED, size=1)
    (order,) = begin(pool, "a.txt")
    until_begun(pool, "a.txt")
    pids = pool.worker_pids

    assert pool.pool.restart_worker(1)
    let_go(pool, "a.txt")

    assert outcomes(pool, [order]) == [Outcome.SUCCEEDED]
    pool.until(lambda: not set(pids) & set(pool.worker_pids))
    assert not pool.pool.restart_worker(1)


def test_second_restart_of_a_worker_loses_the_run_of_the_worker(harness):
    pool = harness(GOOD, GATED, size=1)
    for number in (1, 2, 3):
        (order,) = begin(pool, f"{number}.txt")
        until_begun(pool, f"{number}.txt")
        assert pool.pool.restart_worker(number)
        assert pool.pool.restart_worker(number)
        assert outcomes(pool, [order]) == [Outcome.LOST]
        assert pool.results[order.run_key].error == "a user restarted its worker"

    assert pool.pool.list_broken_builders() == {}


@pytest.mark.starts
def test_worker_can_be_restarted_before_it_is_ready(harness):
    pool = harness(GOOD, size=1)
    order = pool.process_order("good")
    pool.pool.send([order])

    assert pool.pool.restart_worker(1)

    assert outcomes(pool, [order]) == [Outcome.SUCCEEDED]
    assert pool.pool.workers()[0].number == 2
    assert pool.pool.fault == ""


@pytest.mark.starts
def test_run_cancelled_while_its_worker_starts_is_not_a_failed_start(harness):
    pool = harness(GOOD, size=1)
    for _ in range(3):
        order = pool.process_order("good")
        pool.pool.send([order])
        pool.pool.kill([order.run_key])
        assert outcomes(pool, [order]) == [Outcome.CANCELLED]

    assert pool.pool.fault == ""
    assert pool.run(pool.process_order("good"))[0].outcome == Outcome.SUCCEEDED


# ---------------------------------------------------------------------------------------------------- workers do not start


def refuse_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "spawn", mock.Mock(side_effect=OSError(errno.EAGAIN, "no more processes")))


@pytest.mark.starts
def test_orders_are_refused_only_until_a_worker_can_be_started_again(harness, monkeypatch):
    clock = Clock()
    pool = harness(GOOD, size=1, clock=clock)
    files = str(pool.source("b.txt"))
    with monkeypatch.context() as patch:
        refuse_starts(patch)
        orders = [pool.process_order("good") for _ in range(2)]
        pool.pool.send(orders[:1])
        pool.pool.send_hash(HashOrder(7, (files,)))
        pool.until(lambda: pool.pool.is_idle)
    pool.pool.send(orders[1:])
    pool.pool.send_hash(HashOrder(8, (files,)))
    pool.until(lambda: pool.pool.is_idle)

    assert outcomes(pool, orders) == [Outcome.FAILED, Outcome.FAILED]
    assert [bool(result.errors) for result in pool.hashes] == [True, True]
    assert "cannot be started" in pool.pool.fault

    clock.added_s = 11.0
    pool.pool.send_hash(HashOrder(9, (files,)))
    (last,) = pool.run(pool.process_order("good"))
    pool.until(lambda: pool.pool.is_idle)

    assert (last.outcome, pool.pool.fault) == (Outcome.SUCCEEDED, "")
    assert not pool.hashes[-1].errors


def test_running_worker_does_all_jobs_if_no_further_worker_can_be_started(harness, monkeypatch):
    pool = harness(GOOD, size=3)
    pool.run(pool.process_order("good"))
    refuse_starts(monkeypatch)

    orders = [pool.process_order("good") for _ in range(8)]
    for order in orders:
        pool.pool.send([order])

    assert outcomes(pool, orders) == [Outcome.SUCCEEDED] * 8
    assert pool.pool.fault == ""


def test_worker_that_dies_while_no_descriptor_is_free_leaves_no_order_and_no_descriptor(harness, monkeypatch):
    pool = harness(GATED, size=1)
    before = set(pool.selector.get_map())
    (order,) = begin(pool, "a.txt")
    until_begun(pool, "a.txt")
    monkeypatch.setattr(os, "listdir", mock.Mock(side_effect=OSError(errno.EMFILE, "too many open files")))

    os.kill(pool.worker_pids[0], signal.SIGKILL)

    assert outcomes(pool, [order]) == [Outcome.LOST]
    assert set(pool.selector.get_map()) == before


def test_error_during_the_exit_of_a_worker_leaves_no_descriptor_in_the_selector(harness, monkeypatch):
    pool = harness(GATED, size=1)
    begin(pool, "a.txt")
    until_begun(pool, "a.txt")
    monkeypatch.setattr(pool.pool._answers, "account_for_the_dead", mock.Mock(side_effect=KeyError("a bug")))

    os.kill(pool.worker_pids[0], signal.SIGKILL)

    with pytest.raises(KeyError):
        pool.until(lambda: False)
    assert not pool.selector.get_map()


def test_start_of_a_worker_without_a_free_descriptor_leaves_no_process_and_no_descriptor(harness, monkeypatch):
    pool = harness(GOOD, size=1)
    before = set(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", mock.Mock(side_effect=OSError(errno.EMFILE, "too many open files")))
        (result,) = pool.run(pool.process_order("good"))

    assert result.error == "worker processes cannot be started: no process can be started: too many open files"
    assert set(os.listdir("/proc/self/fd")) == before
    assert not pool.selector.get_map()


# ------------------------------------------------------------------------------------------------------ new configuration


def test_only_waiting_orders_return_to_the_engine_after_reconfiguration(harness):
    pool = harness(GATED, size=1)
    first, second = begin(pool, "a.txt", "b.txt")
    until_begun(pool, "a.txt")

    pool.pool.reconfigure([GOOD], ())
    pool.pool.send_hash(HashOrder(1, (str(pool.root / "a.txt"),)))
    let_go(pool, "a.txt")

    assert outcomes(pool, [first, second]) == [Outcome.SUCCEEDED, Outcome.RETURNED]
    assert pool.results[second.run_key].error == "the configuration changed"
    (third,) = pool.run(pool.process_order("good"))
    assert third.outcome == Outcome.SUCCEEDED


@pytest.mark.starts
def test_reconfiguration_during_worker_startup_returns_jobs_but_hashes_files(harness):
    pool = harness(GATED)
    (order,) = begin(pool, "a.txt")
    pool.pool.send_hash(HashOrder(7, (str(pool.root / "a.txt"),)))

    pool.pool.reconfigure([GOOD], ())

    assert outcomes(pool, [order]) == [Outcome.RETURNED]
    pool.until(lambda: pool.pool.is_idle)
    assert [result.order for result in pool.hashes] == [7]
    assert pool.pool.fault == ""


def test_new_configuration_returns_jobs_that_wait_behind_the_current_run(harness):
    pool = harness(GOOD, size=1, settings=PoolSettings(recycle_runs=1, recycle_cpu_s=0))
    pool.run(pool.process_order("good"))
    orders = [pool.process_order("good", f"{number}.txt") for number in range(3)]
    pool.until(lambda: not pool.worker_pids)
    pool.pool.send(orders)
    pool.until(lambda: pool.pool.workers()[0].state == "working")

    pool.pool.reconfigure([GOOD], ())

    assert outcomes(pool, orders) == [Outcome.SUCCEEDED, Outcome.RETURNED, Outcome.RETURNED]


@pytest.mark.starts
def test_changed_builder_file_is_imported_again(harness, tmp_path):
    file = tmp_path / "project_builder.py"

    def write(word: str) -> None:
        file.write_text(
            "from aptui.sdk import *\n"
            "class Own:\n"
            "    def process_job(self, request):\n"
            f"        return ProcessJobResponse(Result.FAILED, error={word!r})\n"
        )

    write("former")
    own = replace(python_builder("Own", "own"), origin=f"file:{file}:Own")
    pool = harness(own, size=1)
    results = pool.run(pool.process_order("own"))
    write("the later one")
    pool.pool.reconfigure([own], ())
    results += pool.run(pool.process_order("own"))

    assert [result.error for result in results] == ["former", "the later one"]


# ----------------------------------------------------------------------------------------------------------- idle workers


def test_last_idle_worker_is_ended_later_than_the_other_idle_workers(harness):
    clock = Clock()
    pool = harness(GOOD, size=3, clock=clock)
    for _ in range(3):
        pool.pool.send([pool.process_order("good")])
    pool.until(lambda: len(pool.results) == 3)
    # All workers must be idle, because a worker that becomes ready later has a shorter idle time.
    pool.until(lambda: all(info.state == "idle" for info in pool.pool.workers()))
    pool.run(pool.process_order("good"))
    pool.until(lambda: all(info.state == "idle" for info in pool.pool.workers()))
    last = next(info.pid for info in pool.pool.workers() if info.runs == 2)

    due_s = pool.pool.next_deadline()
    assert 290.0 < due_s - clock() <= 300.0
    clock.added_s += 301.0
    pool.until(lambda: len(pool.worker_pids) == 1)
    assert pool.worker_pids == (last,)
    assert 1400.0 < pool.pool.next_deadline() - clock() <= 1500.0
    clock.added_s += 1500.0
    pool.until(lambda: not pool.worker_pids)

    assert pool.pool.next_deadline() is None
    assert pool.run(pool.process_order("good"))[0].outcome == Outcome.SUCCEEDED


@pytest.mark.starts
def test_idle_worker_sleeps_with_low_priority(harness):
    pool = harness(GOOD, size=1)
    pool.run(pool.process_order("good"))
    (pid,) = pool.worker_pids

    def states() -> list[str]:
        return [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]

    # the first thread waits for orders, the second thread waits for questions about a run
    until_seen(pool, lambda: states() == ["S", "S"])
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)


# ---------------------------------------------------------------------------------------------------- death of the engine

ENGINE = """
import sys
from pathlib import Path
from pool_harness import Harness, command_builder, python_builder
builders = [command_builder("c", "setsid sleep 3600 & sleep 3600"), python_builder("Gated", "gated")]
pool = Harness(Path(sys.argv[1]), builders, size=2)
pool.pool.send([pool.process_order("c")])
pool.pool.send([pool.process_order("gated", "g.txt")])
print("at work", flush=True)
while True:
    pool.turn(60.0)
"""


@pytest.mark.starts
def test_workers_and_their_commands_end_after_the_engine_was_killed(tmp_path):
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    prefix = f"APTUI_WORKER={engine.pid}-".encode()
    assert engine.stdout.readline() == b"at work\n"
    await_that(lambda: len(commands := [name for _, name in marked(prefix)]) >= 5 and commands.count("sleep") == 2, prefix)

    engine.send_signal(signal.SIGKILL)
    engine.wait()
    engine.stdout.close()

    await_that(lambda: not marked(prefix), prefix)
    with contextlib.suppress(ChildProcessError):  # other tests may have made this process adopt orphans, which it has to reap
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@pytest.mark.starts
def test_reaper_ends_when_the_engine_ends_normally(harness):
    pool = harness(GOOD, size=1)
    pool.run(pool.process_order("good"))
    reaper = pool.pool._manager._reaper.pid
    assert processes._is_alive(reaper)

    pool.pool.close(1.0)

    assert not processes._is_alive(reaper)
    assert not marked(mark_prefix().encode())


def marked(prefix: bytes) -> list[tuple[int, str]]:
    """Return the living processes with this text in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and prefix in processes._read(f"/proc/{entry}/environ") and processes._is_alive(int(entry)):
            found.append((int(entry), processes.command_name(int(entry))))
    return found


def await_that(condition, prefix: bytes) -> None:
    until(condition, lambda: str(marked(prefix)))

"""The pool of workers: when workers start, end and are replaced, their messages and logs, killed runs, and hostile builders."""

from __future__ import annotations

import hashlib
import os
import selectors
from pathlib import Path

import pytest
import xxhash
from msgspec.structs import replace
from pool_harness import command_builder, python_builder
from waiting import until

from aptui.core.notices import LogLevel
from aptui.core.orders import HashOrder, Outcome
from aptui.engine.pool.pool import PoolSettings
from aptui.engine.pool.worker_processes import WorkerManager
from aptui.worker import processes

pytestmark = pytest.mark.real


GOOD = python_builder("Good", "good")
TOOL = command_builder("tool", "cp {source} {products_dir}/x")


@pytest.mark.starts
def test_workers_start_on_demand_up_to_the_size_of_the_pool(harness):
    pool = harness(GOOD, size=2)

    assert pool.worker_pids == ()
    assert pool.pool.free == 2
    pool.run(pool.process_order("good"))
    assert len(pool.worker_pids) == 1
    for _ in range(5):
        pool.pool.send([pool.process_order("good")])
    pool.until(lambda: len(pool.results) == 6)
    assert len(pool.worker_pids) == 2


def test_worker_answers_all_orders_of_a_message_in_sequence(harness):
    pool = harness(GOOD)
    orders = [pool.process_order("good", f"d/F{number}.TXT") for number in range(20)]

    results = pool.run(*orders)

    assert [result.outcome for result in results] == [Outcome.SUCCEEDED] * 20
    assert [result.run_key for result in results] == list(pool.results)
    product = results[3].products[0]
    assert product.name == "d/f3.out"
    data = Path(product.staged).read_bytes()
    assert (data, product.digest, product.hash64, product.size) == (
        b"HELLO",
        hashlib.sha256(data).digest(),
        xxhash.xxh64_intdigest(data),
        5,
    )
    assert results[3].source_digest == hashlib.sha256(b"hello").digest()
    assert results[3].log == ()


def test_analysis_returns_plans_and_edges(harness):
    pool = harness(GOOD)

    (result,) = pool.run(pool.analyse_order("good"))

    assert result.outcome == Outcome.SUCCEEDED
    assert [(plan.key, plan.platform, plan.params) for plan in result.plans] == [("good", "linux", '{"p":"1"}')]
    assert [edge.target for edge in result.edges] == ["other.txt"]


def test_printed_output_of_each_run_is_in_the_log_of_that_run(harness):
    pool = harness(GOOD, python_builder("Talkative", "talkative"))

    quiet, loud, quiet_again = pool.run(*(pool.process_order(name) for name in ("good", "talkative", "good")))

    assert [(record.level, record.text) for record in loud.log] == [
        (LogLevel.INFO, "hello from print"),
        (LogLevel.WARNING, "mind the gap"),
        (LogLevel.ERROR, "stubbed a toe"),
        (LogLevel.INFO, "from a child"),
        (LogLevel.WARNING, "said properly"),
    ]
    assert (loud.warnings, loud.errors, loud.log[0].window, loud.log[4].context) == (2, 1, "talkative", (("where", "here"),))
    assert quiet.log == quiet_again.log == ()


def test_copies_are_returned_in_one_batch_with_digests(harness):
    pool = harness()
    big = os.urandom(3 << 20)
    pool.source("big.bin", big)
    pool.source("small.txt", b"small")
    pool.source("same.txt", b"same")
    orders = [
        pool.copy_order("big.bin"),
        pool.copy_order("small.txt"),
        pool.copy_order("same.txt", hashlib.sha256(b"same").digest()),
    ]

    results = pool.run(*orders, pool.copy_order("gone.txt"))

    assert [result.outcome for result in results] == [Outcome.SUCCEEDED] * 3 + [Outcome.STALE]
    assert [Path(result.products[0].staged).read_bytes() for result in results[:2]] == [big, b"small"]
    assert results[0].source_digest == hashlib.sha256(big).digest()
    assert (results[0].products[0].hash64, results[0].products[0].size) == (xxhash.xxh64_intdigest(big), len(big))
    assert results[2].products[0].staged == ""
    assert results[2].products[0].digest == hashlib.sha256(b"same").digest()


def test_worker_accepts_two_messages_with_copies_but_only_one_with_jobs(harness):
    pool = harness(python_builder("Hang", "hang"), size=1)
    pool.source("a.txt")

    frees = [pool.pool.free]
    for _ in range(2):
        pool.pool.send([pool.copy_order("a.txt")])
        frees.append(pool.pool.free)
    assert frees == [1, 1, 0]
    pool.until(lambda: pool.pool.is_idle)
    pool.pool.send([pool.process_order("hang", limit_s=0.2)])
    assert pool.pool.free == 0
    pool.until(lambda: pool.pool.is_idle)


def test_worker_accepts_a_second_message_of_a_few_jobs_of_the_same_builder(harness):
    pool = harness(TOOL, GOOD, size=1)
    short = [pool.process_order("tool", rel) for rel in ("a.txt", "b.txt")]
    behind = [pool.process_order("tool", rel) for rel in ("c.txt", "d.txt")]
    others = [pool.process_order("good", rel) for rel in ("e.txt", "f.txt")]

    frees = []
    for orders in (short, behind, others):
        pool.pool.send(orders)
        frees.append((pool.pool.free, [len(slot.messages) for slot in pool.pool._manager.slots]))
    pool.until(lambda: pool.pool.is_idle)

    assert frees == [(1, [1]), (0, [2]), (-1, [2])]
    assert {result.outcome for result in pool.results.values()} == {Outcome.SUCCEEDED}


def test_files_are_hashed_and_unreadable_files_are_reported(harness, tmp_path):
    pool = harness()
    path = pool.source("a.txt", b"abc")
    os.mkfifo(tmp_path / "fifo")
    odd = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    open(odd, "wb").close()

    pool.pool.send_hash(HashOrder(5, (str(path), str(tmp_path / "gone"), str(tmp_path / "fifo"), f"{tmp_path}/caf\U0010ffe9")))
    pool.until(lambda: bool(pool.hashes))

    (result,) = pool.hashes
    found = path.stat()
    assert result.order == 5
    assert result.files[0] == (
        hashlib.sha256(b"abc").digest(),
        xxhash.xxh64_intdigest(b"abc"),
        3,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_ino,
    )
    assert result.files[1:3] == (None, None)
    assert result.files[3][2] == 0


def test_kill_of_a_run_returns_the_later_orders_of_the_same_message(harness):
    pool = harness(GOOD, python_builder("Hang", "hang"), size=1)
    orders = [pool.process_order("good"), pool.process_order("hang"), pool.process_order("good")]
    pool.pool.send(orders)
    pool.until(lambda: len(pool.results) == 1)

    pool.pool.kill([orders[1].run_key])
    pool.until(lambda: len(pool.results) == 3)

    assert [pool.results[order.run_key].outcome for order in orders] == [Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.RETURNED]
    (again,) = pool.run(pool.process_order("good"))
    assert again.outcome == Outcome.SUCCEEDED


def test_kill_of_runs_that_have_not_started_affects_no_other_run(harness):
    pool = harness(GOOD, size=1)
    first, second = pool.process_order("good"), pool.process_order("good")
    pool.pool.send([first])
    pool.pool.send([second])

    pool.pool.kill([second.run_key])
    pool.until(lambda: len(pool.results) == 2)

    assert [pool.results[order.run_key].outcome for order in (first, second)] == [Outcome.SUCCEEDED, Outcome.CANCELLED]


@pytest.mark.starts
def test_worker_is_replaced_after_a_number_of_runs_and_no_run_is_lost(harness):
    pool = harness(GOOD, size=1, settings=PoolSettings(recycle_runs=4, recycle_cpu_s=0))
    orders = [pool.process_order("good") for _ in range(10)]

    pids = set()
    pool.pool.send(orders)
    while len(pool.results) < 10:
        pids.update(pool.worker_pids)
        pool.turn(5.0)

    assert {result.outcome for result in pool.results.values()} == {Outcome.SUCCEEDED}
    assert len(pids) == 3


def test_worker_with_short_runs_is_not_replaced(harness):
    pool = harness(GOOD, size=1, settings=PoolSettings(recycle_runs=1, recycle_cpu_s=600))

    pids = set()
    for _ in range(3):
        pool.run(pool.process_order("good"))
        pids.update(pool.worker_pids)

    assert len(pids) == 1


def test_worker_that_runs_only_commands_is_not_replaced(harness):
    pool = harness(TOOL, size=1, settings=PoolSettings(recycle_runs=2, recycle_cpu_s=0))

    pids = set()
    for _ in range(3):
        pool.run(*[pool.process_order("tool") for _ in range(3)])
        pids.update(pool.worker_pids)

    assert len(pids) == 1


def test_each_command_of_a_message_reports_its_own_output(harness):
    pool = harness(command_builder("tool", "echo {stem}; cp {source} {products_dir}/x"), size=1)

    results = pool.run(*[pool.process_order("tool", f"{name}.txt") for name in "abcdefgh"])

    assert [[record.text for record in result.log] for result in results] == [[name] for name in "abcdefgh"]
    assert all(Path(result.products[0].staged).read_bytes() == b"hello" for result in results)
    assert not [path for path in pool.staging.iterdir() if path.is_dir() and any((path / "temp").iterdir())]


def test_finished_orders_are_reported_during_a_long_command(harness):
    pool = harness(command_builder("tool", "test {stem} != c || sleep 3600; cp {source} {products_dir}/x"), size=1)
    orders = [pool.process_order("tool", f"{name}.txt", limit_s=5.0) for name in "abcd"]

    pool.pool.send(orders)
    pool.until(lambda: len(pool.results) == 2)

    assert [pool.results[order.run_key].outcome for order in orders[:2]] == [Outcome.SUCCEEDED] * 2
    pool.pool.kill([orders[2].run_key])
    pool.until(lambda: len(pool.results) == 4)
    assert [pool.results[order.run_key].outcome for order in orders[2:]] == [Outcome.CANCELLED, Outcome.RETURNED]


def test_files_of_a_killed_command_are_removed_with_its_worker(harness, tmp_path):
    pool = harness(
        command_builder("tool", "touch {products_dir}/x; sleep 3600"),
        size=1,
        settings=PoolSettings(staging=str(tmp_path / "staging")),
    )
    order = pool.process_order("tool")
    pool.pool.send([order])
    pool.until(lambda: bool(pool.worker_pids))
    until(lambda: [*pool.staging.glob("worker-*/*/x")])

    pool.pool.kill([order.run_key])
    pool.until(lambda: order.run_key in pool.results)
    pool.until(lambda: not [*pool.staging.iterdir()])


def test_command_over_its_time_limit_fails_and_earlier_commands_succeed(harness):
    pool = harness(command_builder("tool", "test {stem} != c || sleep 3600; cp {source} {products_dir}/x"), size=1)

    results = pool.run(*[pool.process_order("tool", f"{name}.txt", limit_s=0.5) for name in "abcd"])

    assert [result.outcome for result in results] == [Outcome.SUCCEEDED] * 2 + [Outcome.FAILED, Outcome.RETURNED]
    assert results[2].error == "time limit of 0.5 s exceeded"


@pytest.mark.starts
def test_killed_worker_loses_only_unreported_results(harness):
    command = "cp {source} {products_dir}/x; test {stem} != h || kill -9 $PPID"
    pool = harness(command_builder("tool", command), size=1)

    results = pool.run(*[pool.process_order("tool", f"{name}.txt") for name in "abcdefghij"])

    outcomes = [result.outcome for result in results]
    lost = outcomes.index(Outcome.LOST)
    assert lost <= 7
    assert outcomes == [Outcome.SUCCEEDED] * lost + [Outcome.LOST] + [Outcome.RETURNED] * (9 - lost)
    assert all(Path(result.products[0].staged).read_bytes() == b"hello" for result in results[:lost])


def test_only_the_order_of_an_unknown_builder_fails(harness):
    pool = harness(GOOD)

    unknown, good = pool.run(pool.process_order("nobody"), pool.process_order("good"))

    assert (unknown.outcome, unknown.error) == (Outcome.FAILED, "'nobody' is not a builder")
    assert good.outcome == Outcome.SUCCEEDED


def test_new_workers_use_the_new_configuration(harness):
    pool = harness(GOOD, size=1)
    pool.run(pool.process_order("good"))

    pool.pool.reconfigure([python_builder("Good", "better")], ())
    (result,) = pool.run(pool.process_order("better"))

    assert result.outcome == Outcome.SUCCEEDED


@pytest.mark.starts
def test_closed_pool_ends_workers_that_run_jobs(harness):
    pool = harness(python_builder("Stubborn", "stubborn"), size=1)
    pool.pool.send([pool.process_order("stubborn")])
    pool.until(lambda: bool(pool.worker_pids))
    pids = pool.worker_pids

    pool.pool.close(0.3)

    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.mark.starts
def test_builders_run_in_a_separate_folder_without_secret_variables(harness, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    pool = harness(python_builder("Environment", "environment"))

    (result,) = pool.run(pool.process_order("environment"))

    assert result.error.startswith("RuntimeError: None True (hostile_builders.py:")


def test_worker_returns_an_undecodable_name_in_its_text_form(harness, tmp_path):
    pool = harness(GOOD)
    rel = os.fsdecode(b"d/caf\xe9.txt")
    pool.source(rel)
    order = pool.process_order("good", rel)
    fields = {name: getattr(order, name) for name in order.__slots__}

    (result,) = pool.run(type(order)(**{**fields, "rel": "d/caf\U0010ffe9.txt"}))

    assert result.outcome == Outcome.SUCCEEDED
    assert result.products[0].name == "d/caf\U0010ffe9.out"


# ------------------------------------------------------------------------------------------------------- hostile builders


def test_hostile_builder_output_is_limited_and_readable(harness):
    pool = harness(*(python_builder(name, name) for name in ("OneLine", "ManyLines", "InvalidUtf8")), size=1)

    one, many, invalid = pool.run(*(pool.process_order(name) for name in ("OneLine", "ManyLines", "InvalidUtf8")))

    assert sum(len(record.text) for record in (*one.log, *many.log)) < 1 << 20
    assert one.log[-1].text == "the end of the flood"
    assert many.log[-1].text == "line 9999"
    assert [record.text for record in invalid.log] == ["caf\\xe9 \\xff\\xfe\x00\x01 end"]


def test_last_output_of_a_crashing_builder_is_in_the_job_log(harness):
    pool = harness(python_builder("Segv", "segv"))

    (result,) = pool.run(pool.process_order("segv"))

    assert result.log[0].text == "about to crash"
    assert result.log[-1].text == "killed by SIGSEGV"


@pytest.mark.parametrize("filters", ["", "default", "error"])
def test_builder_may_fork_although_its_worker_has_a_second_thread(harness, monkeypatch, filters):
    """From Python 3.12 on, `fork` warns about threads if PYTHONWARNINGS enables the warning.

    The test ignores this warning in the log.
    """
    monkeypatch.setenv("PYTHONWARNINGS", filters)
    pool = harness(python_builder("Forks", "forks"))

    for _ in range(2):  # two runs, because the worker starts its second thread in the first run
        (result,) = pool.run(pool.process_order("forks"))

        assert (result.outcome, result.warnings, result.errors) == (Outcome.SUCCEEDED, 0, 0), result
        assert not [record for record in result.log if "Traceback" in record.text or (not filters and "fork" in record.text)]


def test_a_run_fails_if_its_answer_is_too_large_for_a_frame(harness, tmp_path):
    (tmp_path / "odd.py").write_text(
        "from aptui.sdk import *\n"
        "class Odd:\n"
        "    def create_jobs(self, request):\n"
        "        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor('k', 'linux', 1 << 70)])\n"
    )
    odd = replace(python_builder("Odd", "odd"), origin=f"file:{tmp_path}/odd.py:Odd")
    pool = harness(odd, GOOD, size=1)

    (bad,) = pool.run(pool.analyse_order("odd"))
    pids = pool.worker_pids
    (good,) = pool.run(pool.process_order("good"))

    assert bad.outcome == Outcome.FAILED
    assert bad.error.startswith("the answer cannot be sent: ")
    assert (good.outcome, pool.worker_pids) == (Outcome.SUCCEEDED, pids)


def test_late_files_of_a_dead_worker_are_removed(tmp_path, monkeypatch):
    alive = iter([{7}, {7}, set()])
    monkeypatch.setattr(processes, "reap", lambda _pids: next(alive))
    selector = selectors.DefaultSelector()
    manager = WorkerManager(selector, None, lambda: 0.0, PoolSettings(staging=str(tmp_path)))
    manager._orphans = {7}
    late = tmp_path / f"worker-{1 << 30}-0" / "products"
    late.mkdir(parents=True)

    found = []
    for _turn in range(3):
        manager.enforce(0.0)
        found.append(late.exists())
    selector.close()

    assert found == [True, True, False]

"""Drills B1 to B3: builders that crash, hang, flood, leave processes behind, lie about products, or die when they are imported."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from msgspec import Struct, field

sys.path.append(str(Path(__file__).parent.parent.parent / "engine"))

from disk_project import Project, violations_of_rest
from pool_harness import PLATFORMS, Harness, python_builder

from aptui.core.orders import Outcome, ProcessOrder, RunResult
from aptui.engine.pool.admission import resident_bytes
from aptui.engine.pool.pool import PoolSettings
from aptui.worker import processes
from tests.waiting import TIMEOUT_S

from ..worlds.report import Report, Say

GOODS_PER_HOSTILE = 6
RSS_GROWTH_BYTES = 20 << 20
_MISSED_S = 3.0
"""Seconds that a run may exceed its time limit if the pool is broken on purpose; short, so that the drill finds it soon."""


class Hostile(Struct, frozen=True):
    """The expected end of a builder's runs.

    A run must end with `outcome`, with an error that begins with `error`, and within `limit_s` seconds. `kind` is the kind of its
    failure, as in rules of `retry`.
    """

    name: str
    outcome: Outcome
    error: str
    kind: str = ""
    limit_s: float = 20.0
    limits: dict[str, int] = field(default_factory=dict)


BRIEF_S = 0.6
HOSTILES = (
    Hostile("Segv", Outcome.LOST, "killed by SIGSEGV", "crash"),
    Hostile("Abort", Outcome.LOST, "killed by SIGABRT", "crash"),
    Hostile("Exit3", Outcome.LOST, "exited with status 3", "crash"),
    Hostile("Hang", Outcome.FAILED, "time limit of 0.6 s exceeded", "timeout", BRIEF_S),
    Hostile("Stubborn", Outcome.FAILED, "time limit of 0.6 s exceeded", "timeout", BRIEF_S),
    Hostile("Spin", Outcome.FAILED, "time limit of 0.6 s exceeded", "timeout", BRIEF_S),
    Hostile("Greedy", Outcome.FAILED, "out of memory (limit 512 MiB)", "memory", limits={"memory_limit_bytes": 512 << 20}),
    Hostile("NativeGreedy", Outcome.LOST, "killed by SIGSEGV", "crash", limits={"memory_limit_bytes": 512 << 20}),
    Hostile("OneLine", Outcome.SUCCEEDED, ""),
    Hostile("ManyLines", Outcome.SUCCEEDED, ""),
    Hostile("InvalidUtf8", Outcome.SUCCEEDED, ""),
    Hostile("Grandchild", Outcome.FAILED, "builder left a process running, which was killed: sleep"),
    Hostile("Daemon", Outcome.FAILED, "builder left a process running, which was killed: sleep"),
    Hostile("HugeFile", Outcome.SUCCEEDED, ""),
    Hostile("ForkMany", Outcome.FAILED, "builder left a process running, which was killed: "),
    Hostile("LeaksFiles", Outcome.SUCCEEDED, ""),
    Hostile("Stopped", Outcome.FAILED, "time limit of 0.6 s exceeded", "timeout", BRIEF_S),
    Hostile("KillsGroup", Outcome.LOST, "killed by SIGKILL: likely out of memory", "memory"),
    Hostile("ReadsStdin", Outcome.FAILED, "RuntimeError: stdin is empty", "error"),
    Hostile("ForkReturns", Outcome.SUCCEEDED, ""),
)
LIES = {
    "Missing": "product 'never-made.out' does not exist",
    "Truncates": "product 't.out' is still open for writing",
    "Link": "product 'l.out' is a link, or in a folder behind a link",
    "BehindLink": "product 'd/hostname' is a link, or in a folder behind a link",
    "Outside": "product '../escaped.out' is outside the folder for products",
    "Absolute": "product '/nowhere/at/all.out' does not exist",
    "DuplicateName": "products 'a.out' and 'x/A.OUT' have the same name",
    "DuplicateSubId": "products 'a.out' and 'b.out' have the same sub id 7",
    "Folder": "product 'f.out' is not a regular file",
    "ChangesSource": "the source changed ",
}
"""{builder: expected message}. A run of "ChangesSource" ends as STALE; runs of all other builders fail."""


# ----------------------------------------------------------------------------------------------------------------- mutants


@contextlib.contextmanager
def without_reaping() -> Iterator[None]:
    """Break the pool on purpose: when it kills a worker, the child processes of the worker continue to run."""
    with mock.patch.object(processes, "kill_family", return_value=set()):
        yield


@contextlib.contextmanager
def without_limits() -> Iterator[None]:
    """Break the pool on purpose: workers that run jobs have no time limit."""
    from aptui.engine.pool.worker_processes import WorkerManager

    due = WorkerManager._due
    with mock.patch.object(
        WorkerManager, "_due", lambda self, slot: None if (at := due(self, slot)) is None or slot.messages else at
    ):
        yield


@contextlib.contextmanager
def credulous() -> Iterator[None]:
    """Break the workers on purpose: they do not check products. `hostile_builders` reads the variable."""
    with mock.patch.dict(os.environ, {"PYTHON_CREDULOUS": "1"}):
        yield


@contextlib.contextmanager
def without_breaker() -> Iterator[None]:
    """Break the pool on purpose: a builder that kills workers is never disabled."""
    with mock.patch("aptui.engine.pool.admission.MAX_FAILURES", 1 << 30):
        yield


MUTANTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "": contextlib.nullcontext,
    "without-reaping": without_reaping,
    "without-limits": without_limits,
    "credulous": credulous,
    "without-breaker": without_breaker,
}


# ------------------------------------------------------------------------------------------------------------------ drills


def hostile_mix(folder: Path, rounds: int, seed: int, *, mutant: str = "", names: tuple[str, ...] = (), say: Say = print) -> Report:
    """Drill B1: run every hostile builder `rounds` times, in random order among good jobs, on two workers.

    No process or file may remain.
    """
    say(f"seed {seed}")
    report = Report("B1")
    dice = random.Random(seed)
    chosen = [hostile for hostile in HOSTILES if not names or hostile.name in names]
    builders = [python_builder("Good", "good"), *(python_builder(hostile.name, hostile.name) for hostile in chosen)]
    with MUTANTS[mutant](), _pool(folder, builders) as pool:
        pool.run(pool.process_order("good"))  # the first run starts the pool; the memory for that is not counted as growth
        rss_bytes = resident_bytes(os.getpid())
        for number in range(rounds):
            # A new configuration enables all builders again. Without it, builders that kill their workers would be disabled after
            # three rounds.
            pool.pool.reconfigure(builders, PLATFORMS)
            _one_round(pool, chosen, dice, number, report, _MISSED_S if mutant else TIMEOUT_S)
            growth_bytes = resident_bytes(os.getpid()) - rss_bytes
            if growth_bytes > RSS_GROWTH_BYTES:
                report.violations.append(f"round {number}: the engine grew by {growth_bytes >> 20} MiB")
                break
    report.violations += _left_over()
    return report


def _one_round(pool: Harness, hostiles: list[Hostile], dice: random.Random, number: int, report: Report, start_s: float) -> None:
    todo: list[tuple[ProcessOrder, Hostile | None]] = [
        (pool.process_order(hostile.name, f"h{number}/{hostile.name}.txt", hostile.limit_s, **hostile.limits), hostile)
        for hostile in hostiles
    ]
    todo += [(pool.process_order("good", f"g{number}/{index}.txt"), None) for index in range(GOODS_PER_HOSTILE * len(hostiles))]
    dice.shuffle(todo)
    began: dict[int, float] = {}
    queue, deadline_s, answered = list(todo), 0.0, -1
    while queue or not all(order.run_key in pool.results for order, _ in todo):
        while queue and pool.pool.free > 0:
            count = dice.choice((1, 1, 4))
            orders = _message(queue, count)
            began.update((order.run_key, time.monotonic()) for order in orders)
            pool.pool.send(orders)
        pool.turn(0.2)
        _send_again(pool, todo, queue)
        if len(pool.results) != answered:
            deadline_s, answered = time.monotonic() + TIMEOUT_S, len(pool.results)
        late = [hostile.name for order, hostile in todo if hostile and _is_late(pool, order, hostile, began, start_s)]
        if late or time.monotonic() > deadline_s:
            report.violations.append(f"round {number}: no answer in time: {', '.join(late) or 'good jobs'}")
            return
    for order, hostile in todo:
        report.faults += hostile is not None
        report.runs += hostile is None
        _verify(pool.results[order.run_key], hostile or Hostile("good", Outcome.SUCCEEDED, ""), f"round {number}", report)
    pool.results.clear()


def _message(queue: list[tuple[ProcessOrder, Hostile | None]], count: int) -> list[ProcessOrder]:
    """Pop the orders of one message. An order of a hostile builder has its own message, so that its time is measured alone."""
    orders = [queue.pop()]
    while orders[0][1] is None and len(orders) < count and queue and queue[-1][1] is None:
        orders.append(queue.pop())
    return [order for order, _ in orders]


def _send_again(
    pool: Harness, todo: list[tuple[ProcessOrder, Hostile | None]], queue: list[tuple[ProcessOrder, Hostile | None]]
) -> None:
    """Put the orders that the pool returned unprocessed back into the queue, as the engine's core does."""
    for item in todo:
        result = pool.results.get(item[0].run_key)
        if isinstance(result, RunResult) and result.outcome == Outcome.RETURNED:
            del pool.results[item[0].run_key]
            queue.append(item)


def _is_late(pool: Harness, order: ProcessOrder, hostile: Hostile, began: dict[int, float], start_s: float) -> bool:
    """Return whether a run exceeded its limit plus the time in which a worker starts on a busy machine."""
    if order.run_key not in began:
        return False
    until_s = pool.times.get(order.run_key, time.monotonic())
    return until_s - began[order.run_key] > hostile.limit_s + start_s


def _verify(result: object, expected: Hostile, where: str, report: Report) -> None:
    assert isinstance(result, RunResult)
    if (result.outcome, result.kind) != (expected.outcome, expected.kind) or not result.error.startswith(expected.error):
        found = f"{Outcome(result.outcome).name} ({result.kind}): {result.error}"
        report.violations.append(f"{where}: {expected.name} ended as {found}")


def _left_over() -> list[str]:
    """Kill the remaining child processes, which include orphans of workers, and return a message for each."""
    left = [pid for pid in processes._living_children() if processes._is_alive(pid)]
    names = [f"left over: {processes.command_name(pid)} (pid {pid})" for pid in left]
    for pid in left:
        processes._kill(pid, 9)
        processes._wait(pid)
    return names


COMMANDS = {
    "crash": ("kill -SEGV $$", "command killed by SIGSEGV"),
    "killed": ("kill -KILL $$", "command killed by SIGKILL: likely out of memory"),
    "status": ("exit 3", "command exited with status 3"),
    "hang": ("sleep 3600", "time limit of 1 s exceeded"),
    "stubborn": ("trap '' TERM; setsid sleep 3600 & while :; do sleep 1; done", "time limit of 1 s exceeded"),
    "leftover": ("sleep 3600 & cp {source} {products_dir}/x", "builder left a process running, which was killed: sleep"),
    "flood": ("yes 12345678901234567890 | head -c 60000000", "the command made no product"),
    "nothing": ("true", "the command made no product"),
}


def hostile_batch(folder: Path, goods: int = 60) -> Report:
    """Drill B1 through a whole engine: commands that misbehave fail by name, the good jobs of the project succeed."""
    report = Report("B1 engine")
    lines = [
        f"  - {{name: {name}, patterns: ['*.{name}'], command: {command!r}, time_limit: {1 if 'time' in error else 60}s}}"
        for name, (command, error) in COMMANDS.items()
    ]
    lines += ["  - {name: good, patterns: ['*.up'], command: 'tr a-z A-Z < {source} > {products_dir}/{stem}.out'}"]
    project = Project(folder / "batch", "\n".join(["scan_folders: [{name: game, path: assets}]", "builders:", *lines]), workers=2)
    for name in COMMANDS:
        project.write(f"assets/bad.{name}", name)
    for number in range(goods):
        project.write(f"assets/f{number % 5}/good{number}.up", f"good {number}")
    ran = project.engine_run()
    report.faults, report.runs = len(COMMANDS), sum(ran.runs.values())
    errors = {name.partition("@")[0].partition(":")[0]: text for name, text in project.errors().items() if text}
    for name, (_, error) in COMMANDS.items():
        if not errors.pop(f"bad.{name}", "").startswith(error):
            report.violations.append(f"{name}: not {error!r}, but {project.errors()}")
    report.violations += [f"{name}: {text}" for name, text in errors.items()]
    made = sorted(data for data in project.products().values())
    if made != sorted(f"GOOD {number}".encode() for number in range(goods)):
        report.violations.append(f"{len(made)} products of {goods}")
    report.violations += violations_of_rest(project.cache)
    report.violations += _left_over()
    return report


def lies(folder: Path, *, many: int = 2000, mutant: str = "") -> Report:
    """Drill B2: builders with false product claims are refused by name; a builder with very many products is accepted."""
    report = Report("B2")
    builders = [python_builder(name, name) for name in (*LIES, "ManyProducts", "Good")]
    with MUTANTS[mutant](), mock.patch.dict(os.environ, {"PYTHON_MANY": str(many)}), _pool(folder, builders) as pool:
        for name, error in LIES.items():
            outcome, kind = (Outcome.STALE, "") if name == "ChangesSource" else (Outcome.FAILED, "error")
            (result,) = pool.run(pool.process_order(name, f"{name}.txt"))
            report.faults += 1
            _verify(result, Hostile(name, outcome, error, kind), "lies", report)
            if outcome is Outcome.FAILED and not any(error in record.text for record in result.log):
                report.violations.append(f"{name}: the log does not say why it failed")
        (result,) = pool.run(pool.process_order("ManyProducts", "many.txt", limit_s=TIMEOUT_S), timeout_s=TIMEOUT_S)
        _verify(result, Hostile("ManyProducts", Outcome.SUCCEEDED, ""), "lies", report)
        if len(result.products) != many:
            report.violations.append(f"{len(result.products)} products of {many} arrived")
        (good,) = pool.run(pool.process_order("Good", "good.txt"))
        _verify(good, Hostile("Good", Outcome.SUCCEEDED, ""), "after the lies", report)
    return report


def crash_loop(folder: Path, jobs: int = 8, *, mutant: str = "") -> Report:
    """Drill B3: a builder that dies at its start ends three workers. Then its jobs fail at once until the configuration changes."""
    report = Report("B3")
    builders = [python_builder("DiesAtStart", "bad"), python_builder("Good", "good")]
    with MUTANTS[mutant](), _pool(folder, builders) as pool:
        results = [pool.run(pool.process_order("bad", f"{number}.txt"))[0] for number in range(jobs)]
        report.faults = sum(result.outcome == Outcome.LOST for result in results)
        if report.faults != 3:
            report.violations.append(f"{report.faults} workers died, not 3")
        reason = "the worker of builder 'bad' died three times before it gave a result: killed by SIGABRT"
        for result in results[3:]:
            _verify(result, Hostile("bad", Outcome.FAILED, reason, "obstacle"), "broken", report)
        if pool.pool.list_broken_builders() != {"bad": "killed by SIGABRT"}:
            report.violations.append(f"broken builders: {pool.pool.list_broken_builders()}")
        _verify(pool.run(pool.process_order("good"))[0], Hostile("good", Outcome.SUCCEEDED, ""), "beside it", report)
        pool.pool.reconfigure([python_builder("Good", "bad")], ())
        _verify(pool.run(pool.process_order("bad"))[0], Hostile("bad", Outcome.SUCCEEDED, ""), "mended", report)
    return report


@contextlib.contextmanager
def _pool(folder: Path, builders: list) -> Iterator[Harness]:
    (folder / "project").mkdir(exist_ok=True)
    pool = Harness(folder / "project", builders, size=2, settings=PoolSettings(term_grace_s=0.3))
    try:
        yield pool
    finally:
        pool.close()

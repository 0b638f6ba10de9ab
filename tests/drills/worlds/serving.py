"""A real `aptui serve` whose project changes while it runs.

Drills read its notices over its socket, and compare its products on the disk. The command `python -m tests.drills.worlds.serving
MUTANT VERB …` runs an aptui that is broken on purpose: the name MUTANT selects the rule that it lacks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aptui.core.notices import EngineMessage, HealthChanged, JobChanged, Progress
from aptui.engine.live.changes import ChangeTracker
from aptui.link import places, port
from aptui.link.engine_client import EngineClient
from aptui.shared.errors import KnownError
from aptui.shared.health import Health
from tests.waiting import TIMEOUT_S, wait_for

from ..worlds.mutants import replace_members
from ..worlds.report import Report
from ..worlds.world import World

TEXTS = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
workers: 2
"""
_CHECK_S = 0.02
_LONGEST = 4
"""Multiple of the timeout after which an engine counts as broken even if it still reports progress."""
_REST_S = 5.0
_ROOT = Path(__file__).parent.parent.parent.parent


# ------------------------------------------------------------------------------------------------------------------- mutants


def without_trees() -> None:
    """Break the engine on purpose: it does not walk new folders."""
    replace_members(ChangeTracker, _note_tree=lambda _self, _tree: None)


def without_second_checks() -> None:
    """Break the engine on purpose: it trusts the times of files that changed too recently."""
    replace_members(ChangeTracker, _check_again=lambda self, _engine, _now: self._second_checks.clear())


def without_losses() -> None:
    """Break the engine on purpose: it treats possibly lost notifications as received."""
    from msgspec.structs import replace

    receive = ChangeTracker.receive
    replace_members(ChangeTracker, receive=lambda self, hint: receive(self, replace(hint, is_lost=False)))


def without_leases() -> None:
    """Break the engine on purpose: it does not check whether a file is being written."""
    from aptui.core.orders import HashOrder
    from aptui.engine.live import writing
    from aptui.engine.loop import hashing

    replace_members(writing, is_open_for_writing=lambda _path: False)
    replace_members(hashing, HashOrder=lambda *words, **_asks_writers: HashOrder(*words))


def without_holds() -> None:
    """Break the engine on purpose: it does not hold changes back."""
    replace_members(ChangeTracker, _is_held=lambda _self, _now: False)


def without_product_checks() -> None:
    """Break the engine on purpose: it does not notice deleted products."""
    replace_members(ChangeTracker, _products_gone=lambda *_: None)


def without_start_scan() -> None:
    """Break the engine on purpose: it assumes at its start that nothing changed before."""
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.engine.loop.engine import Engine

    begin = EngineSupervisor._begin

    def begin_without(self: EngineSupervisor, engine: Engine, *, is_first: bool = False, retries: bool = True) -> None:
        self._skips_start_scan = True
        begin(self, engine, is_first=is_first, retries=retries)

    replace_members(EngineSupervisor, _begin=begin_without)


def without_polling() -> None:
    """Break the engine on purpose: it does not poll the folders for which the kernel sends no notifications."""
    from aptui.engine.watch import polling

    replace_members(polling.Poller, _run=lambda _self: None)


def without_memory() -> None:
    """Break the engine on purpose: every notification runs jobs, even if no file changed."""
    from aptui.engine.loop.engine import Engine

    open_session = Engine._open

    def open_forgetful(self: Engine, opening: object) -> None:
        open_session(self, opening)
        check = self.scans.check_folder

        def check_and_run_again(folder: str, again: frozenset = frozenset()) -> None:
            check(folder, again)
            for delay_s in (0.03, 0.07, 0.11) if again else ():
                threading.Timer(delay_s, lambda: (self.ask("reprocess", keys=again), self.wake())).start()

        self.scans.check_folder = check_and_run_again

    replace_members(Engine, _open=open_forgetful)


def without_recovery() -> None:
    """Break the engine on purpose: after an error it waits until the user restarts it."""
    from aptui.engine.live.supervisor import EngineSupervisor

    replace_members(EngineSupervisor, _try_again=lambda _self: None)


def without_case() -> None:
    """Break the engine on purpose: it treats a name in another letter case as a different name."""
    from aptui.engine.live import changes

    replace_members(changes, key_of=lambda rel: rel)


MUTANTS: dict[str, Callable[[], None]] = {
    "without-trees": without_trees,
    "without-second-looks": without_second_checks,
    "without-losses": without_losses,
    "without-leases": without_leases,
    "without-holds": without_holds,
    "without-product-looks": without_product_checks,
    "without-start-scan": without_start_scan,
    "without-polling": without_polling,
    "without-memory": without_memory,
    "without-recovery": without_recovery,
    "without-case": without_case,
}


# --------------------------------------------------------------------------------------------------------------------- world


class LiveWorld(World):
    """A world whose expected state is read from the disk, so that changes need not be recorded."""

    def __init__(self, root: Path, settings: str = TEXTS, *, sources: int = 0, commands: int = 0, seed: int = 0) -> None:
        self.whole: set[bytes] = set()
        super().__init__(root, sources=sources, commands=commands, seed=seed)
        self.config(settings)

    def note(self, data: bytes) -> bytes:
        """Record `data` as a complete version of a source, and return it."""
        self.whole.update((hashlib.sha256(data).digest(), hashlib.sha256(data.upper()).digest()))
        return data

    def write(self, rel: str | bytes, data: str | bytes) -> Path:
        """Write a file below the project, and record its bytes as a complete version of a source."""
        self.note(data.encode() if isinstance(data, str) else data)
        return super().write(rel, data)

    def expected(self) -> dict[str, bytes]:
        """Return the products of a clean build of the existing files."""
        made: dict[str, bytes] = {}
        tops = ("shared", "assets") if "path: shared" in (self.root / "aptui.yaml").read_text() else ("assets",)
        for top in tops:
            for folder, _below, names in os.walk(self.root / top):
                for name in names:
                    path = Path(folder, name)
                    rel = os.path.relpath(path, self.root)
                    if name.endswith((".txt", ".up")) and path.is_file():
                        made.update(self._made(rel, path.read_bytes()))
        return made

    def half_products(self) -> list[str]:
        """Return files in the cache whose bytes no completely written source would produce."""
        found = []
        for top in self.cache.glob("*/"):
            for folder, _below, names in os.walk(top) if top.name not in (".aptui", ".cookies") else ():
                for path in (Path(folder, name) for name in names):
                    with contextlib.suppress(FileNotFoundError):
                        data = path.read_bytes()
                        if hashlib.sha256(data).digest() not in self.whole:
                            found.append(f"{path.name}: no version of it was ever like this ({len(data)} bytes)")
        return found


# ------------------------------------------------------------------------------------------------------------------- engine


class Serving:
    """An engine in a separate process, and its reports since `forget`: `runs`, `messages` and `healths`.

    `runs` counts the runs of each job by a name, for example `a.txt:data`. The name of a failed run ends in `!`.
    """

    def __init__(self, world: LiveWorld, *options: str, mutant: str = "") -> None:
        self.world, self.started_s = world, time.monotonic()
        start = ["-m", "tests.drills.worlds.serving", mutant] if mutant else ["-m", "aptui"]
        self._log = world.root.with_name(f"{world.root.name}.log")
        self._output = self._log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, *start, "serve", "--detached", "--project", str(world.root), *options],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )
        self._socket = places.socket_path(world.cache)
        self.client = self._connect()
        self._ear = self._connect()
        self.forget()
        self.news_s = 0.0
        self._ear.ask(port.Subscribe(wants_all=False))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _connect(self) -> EngineClient:
        deadline = time.monotonic() + 3 * TIMEOUT_S
        while True:
            try:
                client = EngineClient.connect(self._socket)
            except KnownError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.process.kill()
                    raise AssertionError(f"the engine does not come up: {self.output()}") from None
                time.sleep(_CHECK_S)
                continue
            if client.hello.pid == self.process.pid:
                return client
            client.close()

    def _listen(self) -> None:
        with contextlib.suppress(KnownError):
            while True:
                news = self._ear.next_news()
                if news is None:
                    continue
                notice, self.news_s = news.notice, time.monotonic()
                if isinstance(notice, JobChanged) and notice.run_key and not notice.job_key.startswith("CreateJobs_"):
                    self.runs[f"{notice.source}:{notice.job_key}{'!' * (notice.status == 'failed')}"] += 1
                elif isinstance(notice, EngineMessage):
                    self.messages.append(notice.text)
                elif isinstance(notice, HealthChanged):
                    self.healths.append(notice.health)
                elif isinstance(notice, Progress):
                    self.scans += notice.is_scanning

    def forget(self) -> None:
        """Restart counting."""
        self.runs: Counter[str] = Counter()
        self.messages: list[str] = []
        self.healths: list[Health] = []
        self.scans = 0

    def output(self) -> str:
        """Return the end of the engine's output."""
        return self._log.read_text(errors="replace")[-2000:]

    # ------------------------------------------------------------------------------------------------------------- asking

    def status(self) -> dict:
        """Return the answer to `status`."""
        return self.client.ask(port.ReadStatus(), TIMEOUT_S)

    @property
    def is_idle(self) -> bool:
        """Return whether the engine reports that no job is pending."""
        return self.status()["state"] == "idle"

    def cli(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command line beside the engine."""
        command = [sys.executable, "-m", "aptui", words[0], "--project", str(self.world.root), *words[1:]]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        return subprocess.run(command, cwd=self.world.root, env=environment, capture_output=True, timeout=60, check=False)

    def until(self, is_true: Callable[[], object], timeout_s: float = TIMEOUT_S) -> bool:
        """Wait until a condition is true; return whether it became true."""
        return bool(wait_for(lambda: is_true() or self.process.poll() is not None, timeout_s) and is_true())

    def verify(self, report: Report, where: str, timeout_s: float = TIMEOUT_S) -> float:
        """Wait until the engine is idle and the cache equals a clean build; record violations.

        A busy machine may delay the engine. Violations: no report for `patience_s` seconds, or an engine that never becomes idle.

        Returns the seconds until the engine was idle.
        """
        began = time.monotonic()
        expected = self.world.expected()

        def is_over() -> bool:
            return self._has_ended() or time.monotonic() - max(began, self.news_s) > timeout_s

        def is_right() -> bool:
            return self._is_right(expected) and self.is_idle

        # `is_right` is not called again after the wait: a second call could return False while the engine sweeps a folder.
        if wait_for(lambda: (is_right() and "right") or (is_over() and "over"), _LONGEST * timeout_s) == "right":
            found = self._lasting_violations()
        else:
            found = [f"not right {timeout_s:g} s after the last news", *self._wrong(), self._standing(expected)]
        report.violations += [f"{where}: {text}" for text in found]
        return time.monotonic() - began

    def _lasting_violations(self) -> list[str]:
        """Return the violations that remain for `_REST_S` seconds.

        After a late event the engine reads a file again and briefly has a staged copy, which is not a violation.
        """
        found: list[str] = []

        def is_settled() -> bool:
            found[:] = self.world.violations()
            return not found

        wait_for(is_settled, _REST_S)
        return found

    def _wrong(self) -> list[str]:
        try:
            return self.world.violations()
        except (sqlite3.Error, OSError) as error:
            return [f"there is no cache to judge: {error}"]

    def _is_right(self, expected: dict[str, bytes]) -> bool:
        try:
            return self.world.products() == expected
        except FileNotFoundError:  # a file disappeared during the check
            return False

    def _has_ended(self) -> bool:
        return self.process.poll() is not None

    def _standing(self, expected: dict[str, bytes]) -> str:
        """Return the state and the last messages of the engine, and the products that differ from `expected`."""
        if self._has_ended():
            return f"the engine is dead ({self.process.returncode}): {self.output()}"
        try:
            there = self.world.products()
        except FileNotFoundError:
            there = {}
        other = sorted(name for name in expected.keys() | there.keys() if expected.get(name) != there.get(name))
        try:
            state = self.status()["state"]
        except KnownError as error:
            state = f"silent ({error})"
        return f"it is {state}, said {self.messages[-3:]}; {len(other)} products differ: {other[:8]}"

    # -------------------------------------------------------------------------------------------------------------- ending

    def processor_s(self) -> float:
        """Return the processor time that the engine took so far, without its workers."""
        fields = Path("/proc", str(self.process.pid), "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        """Return the memory of the engine."""
        return int(Path("/proc", str(self.process.pid), "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the engine does not end: {self.output()}") from None
        finally:
            self._ear.hang_up()
            self._listener.join(TIMEOUT_S)
            self._ear.close()
            self.client.close()
            self._output.close()
        return self.process.returncode


@contextlib.contextmanager
def serving(world: LiveWorld, report: Report, *options: str, mutant: str = "", is_settled: bool = True) -> Iterator[Serving]:
    """Yield an idle engine; record a violation if it does not end as expected, or leaves processes."""
    engine = Serving(world, *options, mutant=mutant)
    try:
        if is_settled and not engine.until(lambda: engine.is_idle, 3 * TIMEOUT_S):
            report.violations.append(f"it never comes to rest: {engine.output()}")
        engine.forget()
        yield engine
    finally:
        code = engine.end()
        if code != 0:
            report.violations.append(f"ended with {code}: {engine.output()}")
        left = workers_left(engine.process.pid)
        report.violations += [f"workers {left} outlive their engine"] if left else []


def workers_left(pid: int) -> list[int]:
    """Return the workers that are still alive shortly after the death of their engine."""
    from ..worlds.children import workers_of

    deadline = time.monotonic() + 5
    while (left := workers_of(pid)) and time.monotonic() < deadline:
        time.sleep(_CHECK_S)
    return left


def rows(answer: subprocess.CompletedProcess[bytes]) -> Any:
    """Return the JSON that a command printed, {} when it printed none."""
    try:
        return json.loads(answer.stdout)
    except ValueError:
        return {}


if __name__ == "__main__":
    from aptui.cli.main import main

    MUTANTS[sys.argv.pop(1)]()
    sys.exit(main(sys.argv[1:]))

"""An engine in a forked process that can be killed, interrupted, given errors, or made to break the commit contract.

The program has no code for this: the fail-points are put around functions of `os` and of the database writer after the fork.
Every call of a fail-point is counted; at the n-th call the process kills itself, or the call fails with an error.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from disk_project import Project
from msgspec import Struct

from tests.waiting import TIMEOUT_S

from .mutants import replace_members

CALLS = ("replace", "rename", "fsync", "unlink", "rmdir", "mkdir", "makedirs", "ftruncate", "pwrite")
FINE, KNOWN, UNKNOWN = 0, 2, 70
"""Exit codes of a child: its engine became idle; a `KnownError` ended it; any other error ended it, which is a bug."""


class Fault(Struct, frozen=True):
    """The fault at the `at`-th point: a kill (or another `signal`), or `error` (an errno), once or at all later points."""

    at: int
    error: int = 0
    is_lasting: bool = False
    signal: int = signal.SIGKILL


class _Points:
    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault
        self.count = 0

    def count_point(self, can_fail: bool) -> None:
        self.count += 1
        fault = self._fault
        if fault is None:
            return
        if not fault.error and self.count == fault.at:
            os.kill(os.getpid(), fault.signal)
        is_due = self.count >= fault.at if fault.is_lasting else self.count == fault.at
        if fault.error and can_fail and is_due:
            raise OSError(fault.error, os.strerror(fault.error))


def _put_points(points: _Points) -> None:
    def around(call: Callable) -> Callable:
        def guarded(*args: object, **kwargs: object) -> object:
            points.count_point(can_fail=True)
            return call(*args, **kwargs)

        return guarded

    for name in CALLS:
        setattr(os, name, around(getattr(os, name)))
    from aptui.store.db.writer import Writer

    transact = Writer._try_transact

    def transact_between_points(self: Writer, *args: object, **kwargs: object) -> None:
        points.count_point(can_fail=True)
        transact(self, *args, **kwargs)
        points.count_point(can_fail=False)

    replace_members(Writer, _try_transact=transact_between_points)


# ----------------------------------------------------------------------------------------------------------------- mutants


def without_intents() -> None:
    """Break the engine on purpose: it does not write intent rows."""
    from aptui.store.db.writer import Writer

    replace_members(Writer, record_intents=lambda _self, _intents: lambda: None)


def rows_before_renames() -> None:
    """Break the engine on purpose: it writes rows before it renames products."""
    from aptui.engine.cache.cache import Cache

    commit, place = Cache.commit, Cache._place
    pending: list = []

    def commit_late(self: Cache, *given: object) -> object:
        answer = commit(self, *given)
        for placing in pending:
            place(self, *placing)
        pending.clear()
        return answer

    def place_later(_self: Cache, *given: object) -> tuple[str, int]:
        pending.append(given)
        return "", 0

    replace_members(Cache, commit=commit_late, _place=place_later)


def in_place() -> None:
    """Break the engine on purpose: it overwrites old products in steps of 512 bytes, instead of renaming new products."""
    from aptui.shared.files import confinement

    def overwrite(source: str, target: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        with open(os.open(source, os.O_RDONLY, dir_fd=src_dir_fd), "rb") as staged:
            data = staged.read()
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=dst_dir_fd)
        with open(descriptor, "wb", buffering=0) as file:
            for at in range(0, len(data), 512):
                file.write(data[at : at + 512])
                os.fsync(file.fileno())

    class Patched:
        def __getattr__(self, name: str) -> object:
            return overwrite if name == "replace" else getattr(os, name)

    replace_members(confinement, os=Patched())


MUTANTS: dict[str, Callable[[], None]] = {
    "without-intents": without_intents,
    "rows-before-renames": rows_before_renames,
    "in-place": in_place,
}


# ---------------------------------------------------------------------------------------------------------------- children


class Child:
    """An engine in a separate process."""

    def __init__(
        self, project: Project, *, fault: Fault | None = None, mutant: str = "", action: Callable[[], None] | None = None
    ) -> None:
        self._pipe, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._pipe)
            _live(project, fault, mutant, write, action)
        os.close(write)
        self._descriptor = os.pidfd_open(self.pid)
        self.points = 0
        self.text = ""
        self.runs: dict[str, int] = {}

    def is_running_after(self, seconds: float) -> bool:
        """Wait for the end of the child until the timeout; return whether the child is still running."""
        return not select.select([self._descriptor], [], [], seconds)[0]

    def await_word(self) -> None:
        """Wait until the child has sent its first run to a worker and has then called `action`.

        The constructor must have received an `action`.
        """
        assert select.select([self._pipe], [], [], TIMEOUT_S)[0], "the child process did not start a run in time"
        os.read(self._pipe, 1)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the engine, but not to its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill_family(self) -> None:
        """Kill the engine and its workers together."""
        os.kill(self.pid, signal.SIGSTOP)
        for pid in [self.pid, *workers_of(self.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self, timeout_s: float = TIMEOUT_S) -> int:
        """Wait for the end of the child; return its exit status, or minus the number of the signal that killed it."""
        if self.is_running_after(timeout_s):
            self.kill()
            raise AssertionError(f"the engine hangs: not ended within {timeout_s} s")
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._descriptor)
        with open(self._pipe, "rb") as channel:
            data = channel.read().lstrip(b".")
        if data:
            message = json.loads(data)
            self.points, self.text, self.runs = message["points"], message["text"], message["runs"]
        return status

    def await_no_workers(self) -> None:
        """Wait until no worker of this engine is alive; workers die with their engine."""
        deadline = time.monotonic() + TIMEOUT_S
        while left := workers_of(self.pid):
            assert time.monotonic() < deadline, f"workers {left} outlive their engine"
            select.select([], [], [], 0.005)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # an earlier engine made this process adopt orphans, so dead workers are now zombies of this process


def _live(project: Project, fault: Fault | None, mutant: str, channel: int, action: Callable[[], None] | None) -> None:
    status, text, runs = UNKNOWN, "", {}
    points = _Points(fault)
    try:
        os.setsid()
        from aptui.shared.errors import KnownError

        if mutant:
            MUTANTS[mutant]()
        _put_points(points)
        if action is not None:
            _report_before(action, channel)
        try:
            with _interruptible():
                runs = dict(project.engine_run().runs)
            status = FINE
        except KnownError as error:
            status, text = KNOWN, f"{type(error).__name__}: {error}"
    except BaseException as error:
        import traceback

        text = f"{error!r}\n{traceback.format_exc()}"
    finally:
        fault_off(points)
        with contextlib.suppress(OSError):
            os.write(channel, json.dumps({"points": points.count, "text": text[-4000:], "runs": runs}).encode())
        os._exit(status)


def fault_off(points: _Points) -> None:
    """Inject no fault into later calls."""
    points._fault = None


def _report_before(action: Callable[[], None], channel: int) -> None:
    """When the first run has been sent to a worker, call `action` and notify the parent process."""
    from aptui.engine.loop.commands import CommandExecutor

    perform = CommandExecutor._perform
    state = {"is_told": False}

    def watched(self: CommandExecutor, command: object) -> None:
        perform(self, command)
        if type(command).__name__ == "StartRuns" and not state["is_told"]:
            state["is_told"] = True
            action()
            os.write(channel, b".")

    CommandExecutor._perform = watched


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGINT and SIGTERM stop the engine, as in `aptui batch`."""
    from aptui.engine.loop.engine import Engine

    opened = Engine.open

    def open_and_listen(self: Engine) -> None:
        opened(self)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self.stop())

    Engine.open = open_and_listen
    yield


def workers_of(pid: int) -> list[int]:
    """Return the living worker processes that the engine `pid` started."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            state = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if b"aptui.worker.worker_main" in words and str(pid).encode() in words and state != "Z":
            found.append(int(entry))
    return found


ERRNOS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EDQUOT": errno.EDQUOT, "EROFS": errno.EROFS, "EACCES": errno.EACCES}

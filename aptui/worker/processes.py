"""Processes on Linux: sets kernel settings of the worker itself, and finds and ends process trees.

Tests: `tests/worker/test_reads.py`.
"""

from __future__ import annotations

import os
import signal
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
KILLED = "command killed by SIGKILL: likely out of memory"
"""The pool retries a run whose error text begins with this text."""
_SETTLE_S = 0.5
"""Time (seconds) in which children, such as the last program of a shell's pipeline, have to end after a run.

Children that still run after this time are killed, and reported as left running. On a machine under load, a process that only ends
takes a large part of this time.
"""
_lasting: dict[int, int | None] = {}
"""Children that outlive a run on purpose (`worker.commands.persistent`), {pid: wait status, None while the child runs}."""
_TOLERATED = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")
"""Words in the command lines of Python's own helper processes, which outlive a builder's call and end with the worker."""


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the parent of its descendants whose parents die, so that a daemon cannot escape by forking twice."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent process dies; exit now if the parent is no longer `parent`.

    `parent` is a process id; 0 skips the check.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        os._exit(1)


def signal_name(number: int) -> str:
    """Return the name of a signal, `SIGSEGV` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# --------------------------------------------------------------------------------------------- processes that a worker left running


def end_children() -> list[str]:
    """End every child of this process that still runs; return their names for messages: `sleep (pid 4711)`.

    Children that have already ended are only reaped: it is harmless if a builder did not wait for them.
    """
    deadline = time.monotonic() + _SETTLE_S
    pause_s = 0.0005
    named: dict[int, str] = {}
    while _reap() and (alive := _living_children()):
        if time.monotonic() < deadline:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.02)
            continue
        for pid in alive:
            named.setdefault(pid, f"{command_name(pid)} (pid {pid})")
            _kill(pid, signal.SIGKILL)
        for pid in alive:
            _wait(pid)
    return list(named.values())


def await_child(name: str, timeout_s: float) -> None:
    """Wait until the children called `name` have done their work and ended; kill them after `timeout_s`.

    If other children are running, they may give the named children work without end. Therefore the timeout is then `_SETTLE_S`.
    """
    started = time.monotonic()
    pause_s = 0.0005
    while _reap():
        alive = _living_children()
        named = [pid for pid in alive if command_name(pid) == name]
        if not named:
            return
        if time.monotonic() - started > (timeout_s if len(named) == len(alive) else _SETTLE_S):
            for pid in named:
                _kill(pid, signal.SIGKILL)
                _wait(pid)
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.01)


def add_lasting(pid: int) -> None:
    """Keep a child process alive after the end of a run, until `end_lasting` is called for it."""
    _lasting[pid] = None


def find_lasting_status(pid: int) -> int | None:
    """Return the wait status of a child process that was passed to `add_lasting`, None while it runs."""
    _reap()
    return _lasting[pid]


def end_lasting(pid: int) -> None:
    """Kill a child process that was passed to `add_lasting`, and all processes of its group."""
    kill_group(pid, signal.SIGKILL)
    if _lasting.pop(pid) is None:
        _wait(pid)


def _reap() -> bool:
    """Reap children that ended; return whether other children are left."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] in _lasting:
                _lasting[ended[0]] = ended[1]
    except ChildProcessError:
        return False
    return True


def _wait(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass


def _living_children() -> list[int]:
    pids: list[int] = []
    for task in os.listdir("/proc/self/task"):
        pids += map(int, _read(f"/proc/self/task/{task}/children").split())
    pids = [pid for pid in pids if pid not in _lasting]
    return [pid for pid in pids if not any(name in _read(f"/proc/{pid}/cmdline") for name in _TOLERATED)]


def command_name(pid: int) -> str:
    """Return the short name of a process, or `process`."""
    return _read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip() or "process"


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


# ------------------------------------------------------------------------------- how the engine ends a worker's processes


def family(session: int, mark: str) -> set[int]:
    """Return the processes of a worker: its session, processes with `mark` in their environment, and the descendants of both.

    A child can leave the process group by setpgid, the session by setsid, and its parent by forking twice. A child hardly ever does
    all of this and also empties its environment.

    If the processes cannot be listed, because no descriptor is free, none is found: the caller must go on without them.
    """
    wanted = mark.encode("utf-8")
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in _list_proc():
        fields = _read(f"/proc/{entry}/stat").rpartition(b")")[2].split()
        if len(fields) < 4:
            continue
        pid = int(entry)
        parents[pid] = int(fields[1])
        if int(fields[3]) == session or wanted in _read(f"/proc/{entry}/environ"):
            found.add(pid)
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return found - {os.getpid()}


def _list_proc() -> list[str]:
    try:
        return [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []


def kill_family(session: int, mark: str) -> set[int]:
    """Kill every process of a worker, including processes that start during the call; return the pids."""
    killed: set[int] = set()
    for _ in range(20):
        pids = {pid for pid in family(session, mark) if _is_alive(pid)}
        if not pids - killed:
            break
        for pid in pids:
            _kill(pid, signal.SIGKILL)
        killed |= pids
    return killed


def _is_alive(pid: int) -> bool:
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"], [b"X"])


def reap(pids: set[int]) -> set[int]:
    """Reap the dead processes of `pids` that this process adopted; return the remaining ones."""
    left = set()
    for pid in pids:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                left.add(pid)
        except ChildProcessError:
            pass  # the process is not a child of this process, or was reaped already
    return left


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_group(group: int, number: int) -> None:
    """Send a signal to a process group that may be gone."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass

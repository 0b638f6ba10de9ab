"""Processes of tests that are forked from one that has loaded what they need, where they would load it anew: a fifth of the time.

What is spared is the start of the interpreter and its imports; everything else is as it was: a process of its own, a child of the
test's process, with the descriptors, the environment, the folder, the session and the words that `subprocess.Popen` was told.
Whatever this cannot give is started as always: other interpreters and switches, another `PYTHON…` of the environment, programs
that are wrapped in others. Rooms and tests whose subject are starts say so (`conftest`), and have none of this.

It runs itself as that process: `python … forks.py DESCRIPTOR PROGRAM …`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

_CLONE3 = 435
_CLONE_PARENT = 0x8000
_FLOOR = 900
"""Own descriptors stand above this one, out of the way of those that a child has to get."""
_FRAME_BYTES = 1 << 20
_TOLERATED = "multiprocessing.forkserver"
"""What `aptui.worker.processes` calls a helper that outlives a run: runs within a test's process end all of its other children."""
_COMMAND_BYTES = 1 << 10
_ENVIRONMENT_BYTES = 1 << 15
"""Room for what the children's command lines and environments say in /proc."""
_PROGRAMS = {
    "aptui.worker.main": (
        "aptui.worker.commands.command_job", "aptui.worker.describing.describe",
        "aptui.worker.links", "aptui.worker.load", "aptui.worker.main",
        "aptui.worker.run", "aptui.worker.commands.workspace", "traceback",
    ),
}  # fmt: skip
"""{program: what it needs}; nothing of builders, whose code a worker digests when it loads it."""


class Forks:
    """Takes the place of `subprocess.Popen._execute_child` while `on` is the case."""

    def __init__(self) -> None:
        self._start = subprocess.Popen._execute_child  # type: ignore[attr-defined]
        self._pid = os.getpid()
        self._is_prepared = False
        self._nurseries: dict[tuple[str, ...], _Nursery] = {}

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Fork what can be forked."""
        if not self._is_prepared:
            self.prepare()
        real = self._start

        def start(process: Any, *words: Any) -> None:
            if not self._has_forked(process, *words):
                real(process, *words)

        subprocess.Popen._execute_child = start  # type: ignore[attr-defined]
        try:
            yield
        finally:
            subprocess.Popen._execute_child = real  # type: ignore[attr-defined]

    def close(self) -> None:
        """End all."""
        for nursery in self._nurseries.values():
            if nursery:
                nursery.close()

    def _has_forked(self, process: Any, *words: Any) -> bool:
        (args, executable, preexec_fn, close_fds, pass_fds, cwd, env, _info, _flags, shell, *pipes) = words[:16]
        _signals, gid, gids, uid, umask, is_session, group = words[16:]
        odd = (
            executable,
            preexec_fn,
            not close_fds,
            shell,
            gid is not None,
            gids is not None,
            uid is not None,
            umask != -1,
            group != -1,
        )
        if any(odd) or isinstance(args, (str, bytes, os.PathLike)):
            return False
        command = list(map(os.fsdecode, args))
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in (os.environ if env is None else env).items()}
        nursery = self._nursery(command, environment)
        if nursery is None:
            return False
        folder = os.fsdecode(cwd) if cwd is not None else os.getcwd()
        if not os.path.isdir(folder):
            return False
        sys.audit("subprocess.Popen", command[0], command, cwd, env)
        standard = (pipes[0], pipes[3], pipes[5])  # the child's end of each
        theirs = {number: fd if fd != -1 else number for number, fd in enumerate(standard)}
        theirs.update({fd: fd for fd in pass_fds})
        pid = nursery.fork(command, environment, folder, is_session, theirs)
        if pid is None:
            self._nurseries.clear()  # it was ended, as a child of the test's process may be
            return False
        process.pid, process._child_created = pid, True
        process._close_pipe_fds(*pipes)
        return True

    def _nursery(self, command: list[str], environment: dict[str, str]) -> _Nursery | None:
        """Return the process to fork from, None when there is none."""
        if command[0] != sys.executable or "-m" not in command or os.getpid() != self._pid:
            return None
        return self._nurseries.get(_key(command, environment))

    def prepare(self) -> None:
        """Start what is forked from: in this thread, because children die with the thread that is their parent."""
        from aptui.engine.pool.process import python_environment

        self._is_prepared = True
        for program in _PROGRAMS:
            command, environment = [sys.executable, "-P", "-X", "utf8", "-m", program], python_environment()
            self._nurseries.setdefault(_key(command, environment), _Nursery(command, environment))


def _key(command: list[str], environment: dict[str, str]) -> tuple[str, ...]:
    """Return what two processes have in common that can be forked from one."""
    python = (f"{name}={value}" for name, value in sorted(environment.items()) if name.startswith("PYTHON"))
    return (*command[: command.index("-m") + 2], *python)


class _Nursery:
    """A process that forks children of this one."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        at = command.index("-m")
        words = [*command[:at], __file__, str(theirs.fileno()), command[at + 1], _TOLERATED, " " * _COMMAND_BYTES]
        environment = {**environment, "ROOM": " " * _ENVIRONMENT_BYTES}
        with theirs:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), env=environment, cwd="/", start_new_session=True
            )

    def fork(
        self, words: list[str], environment: dict[str, str], folder: str, is_session: bool, theirs: dict[int, int]
    ) -> int | None:
        """Return the pid of a new child of this process, None when there is nothing left to fork from."""
        order = json.dumps([words, environment, folder, is_session, list(theirs)]).encode()
        with self._lock:
            try:
                socket.send_fds(self._mine, [order], list(theirs.values()))
                answer = self._mine.recv(8)
            except ConnectionError:
                return None
        return int(struct.unpack("q", answer)[0]) if answer else None

    def close(self) -> None:
        self._mine.close()
        self._process.wait()


# ------------------------------------------------------------------------------------------------------ the process to fork from


def _serve(channel: socket.socket) -> list[str]:
    """Fork for every order; return in each child, with its words."""
    while True:
        order, theirs, _flags, _address = socket.recv_fds(channel, _FRAME_BYTES, 64, socket.MSG_CMSG_CLOEXEC)
        if not order:
            os._exit(0)
        pid = _fork_for_parent()
        if pid == 0:
            channel.close()
            return _become(*[*json.loads(order), theirs])
        for fd in theirs:
            os.close(fd)
        channel.send(struct.pack("q", pid))


def _fork_for_parent() -> int:
    """Fork a child of this process's parent: who ordered it is who waits for it, and with whom it dies."""
    arguments = (ctypes.c_uint64 * 8)(_CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0)  # `exit_signal` has to be 0: it is this process's own
    library = ctypes.PyDLL(None, use_errno=True)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(library.syscall(_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments)))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pid


def _become(
    words: list[str], environment: dict[str, str], folder: str, is_session: bool, numbers: list[int], theirs: list[int]
) -> list[str]:
    """Be the process that was ordered, up to its first line."""
    high = {number: _lift(fd) for number, fd in zip(numbers, theirs, strict=True)}
    for fd in theirs:
        os.close(fd)
    for number, fd in high.items():
        os.dup2(fd, number, inheritable=True)
        os.close(fd)
    if is_session:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    _say(words, environment)
    time.tzset()
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        _open_stream(name, number, mode)
    return words[words.index("-m") + 2 :]


def _say(words: list[str], environment: dict[str, str]) -> None:
    """Have /proc say of this process what it would of one that was started so; its mark comes first."""
    with open("/proc/self/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    said = sorted((f"{name}={value}" for name, value in environment.items()), key=lambda each: not each.startswith("APTUI_"))
    for start, end, parts in ((int(fields[45]), int(fields[46]), words), (int(fields[47]), int(fields[48]), said)):
        data = b"".join(os.fsencode(part) + b"\0" for part in parts)[: end - start]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, data, len(data))


def _lift(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FLOOR)


def _open_stream(name: str, number: int, mode: str) -> None:
    """Open a standard stream as the interpreter does: by what stands behind it."""
    old = getattr(sys, name)
    is_line = name == "stderr" or os.isatty(number)
    raw = open(number, f"{mode}b", buffering=0 if mode == "w" and _is_unbuffered() else -1, closefd=False)  # noqa: SIM115
    stream = io.TextIOWrapper(
        raw, encoding=old.encoding, errors=old.errors, line_buffering=is_line and mode == "w", write_through=_is_unbuffered()
    )
    stream.mode = mode
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _is_unbuffered() -> bool:
    return bool(os.environ.get("PYTHONUNBUFFERED"))


def main() -> None:
    """Load, wait for orders, and be the program in every child."""
    descriptor, program = int(sys.argv[1]), sys.argv[2]
    channel = socket.socket(fileno=_lift(descriptor))
    os.close(descriptor)
    for name in _PROGRAMS[program]:
        importlib.import_module(name)
    module = importlib.import_module(program)
    gc.collect()
    gc.freeze()
    words = _serve(channel)
    gc.unfreeze()
    sys.argv = [module.__file__ or "", *words]
    sys.modules["__main__"] = module
    module.main()


if __name__ == "__main__":
    main()

"""Forks the Python processes of tests from a process that has already imported their modules. A fork takes 1/5 of a start.

Only the start of the interpreter and its imports are saved. Everything else equals `subprocess.Popen`: a separate process, a
child of the test's process, with the given descriptors, environment, folder, session and arguments. At the end, modules are not
torn down and the collector does not run, because both would copy the shared memory. All other processes are started as usual: other
interpreters and switches, another `PYTHON…` variable, programs that are wrapped in others. Tests whose subject is a start opt out
(`conftest`).

A forked `aptui` process first forks a waiting child. Engines and workers that the `aptui` process starts are forked from this
child, but their parent is the `aptui` process, as after a real start. A forked worker has loaded only the modules that a worker
loads when it starts normally.

The process to fork from runs this module: `python … forks.py DESCRIPTOR PROGRAM …`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import importlib.util
import io
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_CLONE3 = 435
_CLONE_PARENT = 0x8000
_FLOOR = 900
"""Descriptors of this module are above this number, so that they do not collide with the descriptors of a child."""
_FRAME_BYTES = 1 << 20
_TOLERATED = "multiprocessing.forkserver"
"""Word in the command lines of the processes from which others are forked.

After a run, the process that ran the builder ends its remaining child processes, but not those with this word in the command line
(`aptui.worker.processes`).
"""
_COMMAND_BYTES = 1 << 10
_ENVIRONMENT_BYTES = 1 << 15
"""Space in /proc (bytes) that a forked process overwrites with its command line and its environment."""
_WORKER, _APTUI = "aptui.worker.worker_main", "aptui"


def _can_import(*modules: str) -> bool:
    return all(map(importlib.util.find_spec, modules))


_PROGRAMS = {
    _WORKER: (
        "aptui.worker.commands.command_job", "aptui.worker.describing.describe",
        "aptui.worker.outputs.declared_dependencies", "aptui.worker.builder_import", "aptui.worker.worker_main",
        "aptui.worker.builder_run", "aptui.worker.outputs.products", "traceback",
    ),
    _APTUI: (
        "aptui.__main__", "aptui.batch.run", "aptui.config.compiler", "aptui.config.load", "aptui.config.yaml.config_schema",
        "aptui.daemon.daemon_process",
        "aptui.engine.live.supervisor", "aptui.engine.loop.engine", "aptui.engine.loop.dispatch", "aptui.engine.pool.pool",
        "aptui.engine.registry", "aptui.engine.live.requests", "aptui.link.engine_client", "aptui.link.server",
        *(["aptui.features.sharing.service"] if _can_import("aptui.features.sharing") else []),
        "aptui.store.db.table_models", "aptui.store.db.writer", "aptui.cli.read_verbs", "aptui.cli.engine_verbs", "jsonschema",
        *(["aptui.features.gateway.client", "aptui.features.gateway.gateway"]
          if _can_import("aptui.features.gateway", "aiohttp") else []),
    ),
}  # fmt: skip
"""{program: modules to import before a fork}. Modules of builders are left out: a worker digests their code at the import."""
_SWITCHES = {
    _WORKER: ({"-P", "-X utf8"},),
    _APTUI: (set(), {"-P"}, {"-P", "-X faulthandler"}),
}
_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE")
"""Variables, besides `PYTHON…`, that an interpreter reads only when it starts; PYTHONPATH can also be set in a forked child."""


class Forks:
    """Replaces `subprocess.Popen._execute_child` while the context manager `on` is active, or after `stay_on`."""

    def __init__(self, nurseries: dict[tuple[str, ...], _Nursery] | None = None) -> None:
        self._start = subprocess.Popen._execute_child  # type: ignore[attr-defined]
        self._pid = os.getpid()
        self._is_prepared = nurseries is not None
        self._nurseries = nurseries or {}

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Fork processes where possible, during the block."""
        if not self._is_prepared:
            self.prepare()
        self.stay_on()
        try:
            yield
        finally:
            subprocess.Popen._execute_child = self._start  # type: ignore[attr-defined]

    def stay_on(self) -> None:
        """Fork processes where possible, from now on."""

        def start(process: Any, *words: Any) -> None:
            if not self._has_forked(process, *words):
                self._start(process, *words)

        subprocess.Popen._execute_child = start  # type: ignore[attr-defined]

    def close(self) -> None:
        """End all processes from which others are forked."""
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
        standard = (pipes[0], pipes[3], pipes[5])  # the child's end of each pipe
        theirs = {number: fd if fd != -1 else number for number, fd in enumerate(standard)}
        theirs.update({fd: fd for fd in pass_fds})
        pid = nursery.fork(command, environment, folder, is_session, theirs)
        if pid is None:
            self._nurseries.clear()  # the test may have ended the processes from which others are forked
            return False
        process.pid, process._child_created = pid, True
        process._close_pipe_fds(*pipes)
        return True

    def _nursery(self, command: list[str], environment: dict[str, str]) -> _Nursery | None:
        """Return the process to fork from, None if it is not running."""
        if command[0] != sys.executable or "-m" not in command or os.getpid() != self._pid:
            return None
        program, switches = _program(command)
        if switches not in _SWITCHES.get(program, ()):
            return None
        return self._nurseries.get(_key(program, environment))

    def prepare(self) -> None:
        """Start the processes to fork from, in this thread, because they end with the thread that started them."""
        from aptui.engine.pool.spawning import python_environment

        self._is_prepared = True
        for program, switches, environment in (
            (_WORKER, ("-P", "-X", "utf8"), python_environment()),
            (_APTUI, ("-P",), dict(os.environ)),
        ):
            self._nurseries[_key(program, environment)] = _started(program, switches, environment)


def _program(command: list[str]) -> tuple[str, set[str]]:
    """Return the module that a command runs, and the interpreter's switches."""
    at = command.index("-m")
    return "".join(command[at + 1 : at + 2]), set(" ".join(command[1:at]).replace(" -", "\n-").splitlines())


def _key(program: str, environment: dict[str, str]) -> tuple[str, ...]:
    """Return a key; processes with equal keys can be forked from the same process."""
    variables = () if program == _WORKER else _VARIABLES  # workers always use UTF-8, so the locale does not matter
    entries = (f"{name}={environment[name]}" for name in sorted(environment) if name.startswith("PYTHON") or name in variables)
    return (program, *(each for each in entries if not each.startswith("PYTHONPATH=")))


def _started(program: str, switches: tuple[str, ...], environment: dict[str, str]) -> _Nursery:
    """Start a process to fork from, in a group of its own, so that it does not receive Ctrl+C."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, *switches, __file__, str(theirs.fileno()), program, _TOLERATED, " " * _COMMAND_BYTES]
    padded = {**environment, "ROOM": " " * _ENVIRONMENT_BYTES}
    with theirs:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), env=padded, cwd="/", process_group=0
        )
    return _Nursery(mine, process)


class _Nursery:
    """A process that forks itself on request; the forked processes are children of the process that made this object."""

    def __init__(self, channel: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._lock = threading.Lock()
        self._mine, self._process = channel, process

    def fork(
        self, words: list[str], environment: dict[str, str], folder: str, is_session: bool, theirs: dict[int, int]
    ) -> int | None:
        """Return the pid of a new child of this process, None if the process to fork from has ended."""
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
        if self._process is not None:
            self._process.wait()


# ------------------------------------------------------------------------------------------------------ the process to fork from


def _serve(channel: socket.socket) -> list[str]:
    """Fork a child for each request on `channel`; return only in the children. Each child returns its command line."""
    while True:
        try:
            order, theirs, _flags, _address = socket.recv_fds(channel, _FRAME_BYTES, 64, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:  # the other end was closed with unread data
            os._exit(0)
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
    """Fork a child whose parent is the parent of this process.

    So the process that ordered the child can wait for the child, and the death of that process ends the child.
    """
    # With CLONE_PARENT, `exit_signal` has to be 0: the child then sends the exit signal of this process (clone(2)).
    arguments = (ctypes.c_uint64 * 8)(_CLONE_PARENT, 0, 0, 0, 0, 0, 0, 0)
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
    """Apply a session, descriptors, folder and environment to this forked process; return its command line.

    An `aptui` process also forks a waiting child (`_nest`). Each process that is later forked from the waiting child returns its
    own command line.
    """
    if is_session:
        os.setsid()
    else:
        os.setpgid(0, os.getpgid(os.getppid()))
    if words[words.index("-m") + 1] == _APTUI and (inner := _nest(theirs)):
        return inner
    high = {number: _lift(fd) for number, fd in zip(numbers, theirs, strict=True)}
    for fd in theirs:
        os.close(fd)
    for number, fd in high.items():
        os.dup2(fd, number, inheritable=True)
        os.close(fd)
    os.chdir(folder)
    _find_modules(words, environment)
    os.environ.clear()
    os.environ.update(environment)
    _say(words, environment)
    time.tzset()
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        _open_stream(name, number, mode, "surrogateescape" if "utf8" in words and number < 2 else "")
    if "faulthandler" in words:
        faulthandler.enable()
    return words


def _nest(theirs: list[int]) -> list[str]:
    """Fork a waiting child. From the waiting child, children of this process are forked later.

    In this process, the call returns []. In each process that is forked from the waiting child, the call returns the command line
    of that process.
    """
    mine, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    entries = dict(os.environ)
    if os.fork():
        channel.close()
        nursery = _Nursery(socket.socket(fileno=_lift(mine.fileno())))
        mine.close()
        Forks({_key(program, entries): nursery for program in _PROGRAMS}).stay_on()
        return []
    mine.close()
    for fd in theirs:
        os.close(fd)
    os.setpgid(0, 0)
    _say([_TOLERATED], {})
    return _serve(channel)


def _find_modules(words: list[str], environment: dict[str, str]) -> None:
    """Set `sys.path` to that of an interpreter with the command line `words` and this environment."""
    mine = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    given = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    own = [] if "-P" in words else [os.getcwd()]
    sys.path[:] = [*own, *given, *(each for each in sys.path if each not in mine)]


def _say(words: list[str], environment: dict[str, str]) -> None:
    """Make /proc show the command line and environment of a started process; the variables `APTUI_…` come first."""
    with open("/proc/self/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    entries = sorted((f"{name}={value}" for name, value in environment.items()), key=lambda each: not each.startswith("APTUI_"))
    for start, end, parts in ((int(fields[45]), int(fields[46]), words), (int(fields[47]), int(fields[48]), entries)):
        data = b"".join(os.fsencode(part) + b"\0" for part in parts)[: end - start]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, data, len(data))


def _lift(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FLOOR)


def _open_stream(name: str, number: int, mode: str, errors: str) -> None:
    """Open a standard stream as the interpreter does, depending on the kind of its file."""
    old = getattr(sys, name)
    is_line = name == "stderr" or os.isatty(number)
    raw = open(number, f"{mode}b", buffering=0 if mode == "w" and _is_unbuffered() else -1, closefd=False)  # noqa: SIM115
    stream = io.TextIOWrapper(
        raw,
        encoding=old.encoding,
        errors=errors or old.errors,
        line_buffering=is_line and mode == "w",
        write_through=_is_unbuffered(),
    )
    stream.mode = mode
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def _is_unbuffered() -> bool:
    return bool(os.environ.get("PYTHONUNBUFFERED"))


def main() -> None:
    """Load modules, wait for orders, and run the program in every child."""
    descriptor, program = int(sys.argv[1]), sys.argv[2]
    channel = socket.socket(fileno=_lift(descriptor))
    os.close(descriptor)
    for name in _PROGRAMS[_WORKER]:
        importlib.import_module(name)
    of_workers = set(sys.modules)
    for name in _PROGRAMS[program]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    words = _serve(channel)
    wanted = _program(words)[0]
    if wanted == _WORKER:
        for name in set(sys.modules) - of_workers:
            del sys.modules[name]
    module = importlib.import_module(f"{_APTUI}.__main__" if wanted == _APTUI else wanted)
    sys.argv = [module.__file__ or "", *words[words.index("-m") + 2 :]]
    sys.modules["__main__"] = module
    _run(module.main)


def _run(program: Callable[[], object]) -> None:
    """Run a program as the interpreter does, but without clean-up at the end, which would copy all shared memory."""
    try:
        code = program()
    except SystemExit as ending:
        code = ending.code
    # If a flush fails, `sys.exit` below lets the interpreter report the error and choose the exit code.
    with contextlib.suppress(OSError):
        if code is None or isinstance(code, int):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit((code or 0) & 0xFF)
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()

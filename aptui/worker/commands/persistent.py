"""Programs of persistent commands: programs that keep running between jobs.

A worker starts each program once, sends it one line of JSON per job, and reads one line as the answer.

If a program dies, gives an invalid answer, or is stopped in the middle of a job, only that job fails; the next job starts the
program again. A change of its command line, environment variables, memory limit or files also restarts it. The program may write to
stderr at any time. To stdout it may write only answers. It has to end when its stdin is closed. `BUILDERS.md` describes the
protocol for authors.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import select
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from aptui.core.project import Builder, CommandRule
from aptui.core.retry import FailureKind
from aptui.shared.forms import json_decoder
from aptui.worker import processes
from aptui.worker.answers import MOST_CHARS
from aptui.worker.commands import command as commands
from aptui.worker.commands.command import CommandError, CommandWatch, Execution, Invocation
from aptui.worker.file_access import stat_key
from aptui.worker.output import BoundedText

_READ_BYTES = 1 << 16
_GRACE_MS = 500
"""Time (milliseconds) in which a program has to end after its stdin was closed."""
_SHOWN = 80
"""Maximum bytes of an invalid answer that a message shows."""
_RELATIVE = re.compile(r"(?<![^\s'\"=])[^\s'\"=/][^\s'\"/]*/[^\s'\"]+")
"""Pattern of a word of a command line that is a relative path."""


class FileAnswer(Struct, frozen=True, kw_only=True):
    """Answer of a program about one file.

    `products` are file names in `products_dir`, by default all that match `products:`.
    `dependencies` are files that the program read, as in a depfile; `log` has lines for the log; `facts` has names
    and values by product. If `ok` is false, `error` gives the reason in one line.
    """

    ok: bool = True
    error: str = ""
    products: list[str] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def failure(self) -> str:
        """Why the program failed for this file, "" if it succeeded."""
        return "" if self.ok else self.error.strip() or "the program reported a failure without a reason"


class _JobAnswer(FileAnswer, frozen=True, kw_only=True):
    """Answer of a persistent program to the job `id`. The answer must say whether the job succeeded."""

    id: int
    ok: bool


class _ProgressLine(Struct, frozen=True, forbid_unknown_fields=True):
    """Line that a program may send before its answer: `progress` (0 … 1) of job `id`."""

    id: int
    progress: float


_NO_ANSWER = _JobAnswer(id=0, ok=False)


class PersistentPrograms:
    """The persistent programs of one worker, one for each builder."""

    def __init__(self) -> None:
        self._running: dict[str, _Program] = {}

    def run_job(
        self,
        builder: Builder,
        command: Invocation,
        request: Mapping[str, Any],
        environment: Mapping[str, str],
        output: BoundedText,
        watch: CommandWatch | None,
        note_progress: Callable[[float], None],
    ) -> tuple[Execution, FileAnswer]:
        """Have the program of a builder do one job; start the program first if it is not running or has changed.

        Args:
            request: the job; `id` is its number.
            output: receives the program's stderr.
            watch: called after the job is sent, and again when the job takes long.
            note_progress: called with the progress that the program reports, 0 … 1.

        Raises:
            CommandError: the program cannot be started.
        """
        identity = _identify(builder, command, environment)
        program = self._running.get(builder.name)
        if program is not None and not (program.identity == identity and program.is_ready()):
            self._running.pop(builder.name).end(is_patient=True)
            program = None
        if program is None:
            program = self._running[builder.name] = _Program(command, environment, identity)
        is_done = False
        try:
            line, error, kind = program.exchange(json.dumps(request).encode() + b"\n", output, watch, note_progress)
            answer, error = (_NO_ANSWER, error) if error else _read_answer(line, request["id"])
            is_done = not error
        finally:
            peak_bytes = program.measure_memory()
            if not is_done:
                self._running.pop(builder.name).end(is_patient=False)
        if error and answer.id and answer.id == program.last_job:
            # The line was a second answer to the previous job. The program was ended above, and a new process gets the current job.
            return self.run_job(builder, command, request, environment, output, watch, note_progress)
        program.last_job = request["id"]
        if is_done and not answer.ok:
            error, kind = answer.failure, FailureKind.ERROR
        return Execution(error, output, peak_bytes, kind if error else ""), answer

    def end(self) -> None:
        """End all programs."""
        while self._running:
            self._running.popitem()[1].end(is_patient=True)


class _Program:
    """A running program; its three pipes do not block."""

    def __init__(self, command: Invocation, environment: Mapping[str, str], identity: tuple[Any, ...]) -> None:
        self.identity, self.last_job = identity, 0
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        self._input, self._output, self._errors = pipes[0][1], pipes[1][0], pipes[2][0]
        theirs = (pipes[0][0], pipes[1][1], pipes[2][1])
        here = os.getcwd()
        try:
            os.chdir("/")  # the program outlives this run, and must not stay in the run's folder
            self._pid = os.posix_spawn(
                command.program,
                command.arguments,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs[at], at) for at in range(3)],
                setpgroup=0,
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
        except OSError as error:
            for descriptor in (self._input, self._output, self._errors):
                os.close(descriptor)
            raise CommandError(f"{command.program!r} cannot be started: {error.strerror}") from error
        finally:
            os.chdir(here)
            for descriptor in theirs:
                os.close(descriptor)
        for descriptor in (self._input, self._output, self._errors):
            os.set_blocking(descriptor, False)
        processes.add_lasting(self._pid)
        self._exit = os.pidfd_open(self._pid)

    def is_ready(self) -> bool:
        """Whether the program is running and has written nothing since its last answer, so that it can get a request."""
        poll = select.poll()
        for descriptor in (self._output, self._exit):
            poll.register(descriptor, select.POLLIN)
        return not poll.poll(0)

    def exchange(
        self, request: bytes, output: BoundedText, watch: CommandWatch | None, note_progress: Callable[[float], None]
    ) -> tuple[bytes, str, str]:
        """Send a request and return the line of the answer, or (b"", the error, the kind of the failure).

        Lines of progress before the answer are passed to `note_progress`.
        """
        poll = select.poll()
        for descriptor in (self._output, self._errors, self._exit):
            poll.register(descriptor, select.POLLIN)
        rest, answer = memoryview(request), bytearray()
        rest = rest[self._send(rest) :]
        if rest:
            poll.register(self._input, select.POLLOUT)
        if watch:
            watch()
        long_from_s = time.monotonic() + commands.LONG_MS / 1000
        while b"\n" not in answer[-_READ_BYTES:] and len(answer) <= MOST_CHARS:
            ready = {descriptor for descriptor, _ in poll.poll(commands.LONG_MS if watch else None)}
            if watch and time.monotonic() >= long_from_s:
                watch(takes_long=True)
                watch = None
            if self._input in ready and not (rest := rest[self._send(rest) :]):
                poll.unregister(self._input)
            if self._errors in ready and not self._log(output):
                poll.unregister(self._errors)
            data = os.read(self._output, _READ_BYTES) if self._output in ready else b""
            if not data and (self._output in ready or self._exit in ready):
                return b"", *self._describe_end(output)
            answer += data
            while (end := answer.find(b"\n") + 1) and (progress := _read_progress(answer[:end])) is not None:
                note_progress(progress.progress)
                del answer[:end]
        self._drain(output)
        if len(answer) > MOST_CHARS:
            return b"", f"the answer of the program is longer than {MOST_CHARS >> 20} MiB", FailureKind.ERROR
        return bytes(answer), "", ""

    def _send(self, data: memoryview) -> int:
        try:
            return os.write(self._input, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)  # the program has ended, and the caller notices the end when it reads the answer

    def _log(self, output: BoundedText) -> bool:
        """Read stderr once; return whether more data may follow."""
        try:
            data = os.read(self._errors, _READ_BYTES)
        except BlockingIOError:
            return False
        output.add(data, time.time_ns() // 1_000_000)
        return bool(data)

    def _drain(self, output: BoundedText) -> None:
        """Read the available stderr; a program that writes without a pause must not keep its job from ending."""
        for _ in range(fcntl.fcntl(self._errors, fcntl.F_GETPIPE_SZ) // _READ_BYTES + 1):
            if not self._log(output):
                return

    def _describe_end(self, output: BoundedText) -> tuple[str, str]:
        """Return (why the program gave no answer, kind of the failure) for a program that closed its stdout and is about to end."""
        self._await_end()
        self._drain(output)
        status = processes.find_lasting_status(self._pid)
        if not status:
            return f"the program {'closed its output' if status is None else 'ended'} before it answered", FailureKind.CRASH
        error = commands.describe_status(status)
        return error if error.startswith(processes.KILLED) else f"{error} before it answered", commands.kind_of(status)

    def _await_end(self) -> None:
        poll = select.poll()
        poll.register(self._exit, select.POLLIN)
        poll.poll(_GRACE_MS)

    def measure_memory(self) -> int:
        """Return the program's memory in bytes, 0 if it has ended."""
        try:
            with open(f"/proc/{self._pid}/statm", "rb", buffering=0) as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def end(self, *, is_patient: bool) -> None:
        """Close the program's stdin, wait a moment for its end if `is_patient`, then kill all processes of its group."""
        os.close(self._input)
        if is_patient:
            self._await_end()
        processes.end_lasting(self._pid)
        for descriptor in (self._output, self._errors, self._exit):
            os.close(descriptor)


def place_tools(builder: Builder) -> str:
    """Return the command line of a builder, with the relative paths of its `tools` made absolute."""
    rule, tools = builder.command or CommandRule(""), [path for path, _digest in builder.code_files]
    return _RELATIVE.sub(lambda found: _place_word(found[0], tools), rule.command) if tools else rule.command


def _place_word(word: str, tools: list[str]) -> str:
    path = next((path for path in tools if path.endswith(f"/{os.path.normpath(word)}")), "")
    return shlex.quote(path) if path else word


def _identify(builder: Builder, command: Invocation, environment: Mapping[str, str]) -> tuple[Any, ...]:
    """Return all data on which a program depends when it starts. If the result changes, the program is restarted."""
    files = (command.program, *(path for path, _digest in builder.code_files))
    return command, environment, resource.getrlimit(resource.RLIMIT_AS)[0], [_stamp(path) for path in files]


def _stamp(path: str) -> tuple[int, ...]:
    try:
        return stat_key(os.stat(path))
    except OSError:
        return ()


def _read_progress(line: bytearray) -> _ProgressLine | None:
    try:
        progress: _ProgressLine = json_decoder(_ProgressLine).decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return progress


def _read_answer(data: bytes, job: int) -> tuple[_JobAnswer, str]:
    """Return the parsed answer, and the reason if it is not valid ("" = valid)."""
    line, _, rest = data.partition(b"\n")
    try:
        answer: _JobAnswer = json_decoder(_JobAnswer).decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _NO_ANSWER, f"the program answered {_shorten(line)}, which is not a valid answer in JSON: {error}"
    if answer.id != job:
        return answer, f"the program answered job {answer.id} instead of job {job}"
    return (
        answer,
        f"the program wrote {_shorten(rest)} to stdout after its answer; it must write log lines to stderr" if rest else "",
    )


def _shorten(data: bytes) -> str:
    return repr(data[:_SHOWN].decode("utf-8", "replace").strip())

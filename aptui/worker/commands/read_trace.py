r"""Starts a command under `strace`, and reads in strace's record which files the command opened.

With the option `-D`, strace is a grandchild and the command stays a child of the worker. So exit status, memory, time limits and
process group are the same as without strace. With `-ff`, strace writes one file per process, so that lines of processes do not mix.
An example of a line is `openat(AT_FDCWD</tmp>, "a\303\244.h", O_RDONLY) = 3</tmp/aä.h>`.

Tests: `tests/worker/test_reads.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache

from msgspec.structs import replace

from aptui.worker import processes
from aptui.worker.commands.command import Invocation
from aptui.worker.reads import Reads

_NAME = "strace"
_OPTIONS = ("-D", "-ff", "-qq", "-y", "-s", "0", "-e", "trace=open,openat,openat2,execve", "-e", "signal=none")
_FASTER = ("--seccomp-bpf",)
"""Option of strace 5.3 or later, with which the kernel stops the command only at traced calls."""
_TRY_S = 10.0
_ATTACH_TIMEOUT_S = 10.0
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_OPENED = re.compile(rf"open(?:at2?)?\((?:[^<\"]*<([^>]*)>[^\"]*)?{_TEXT}, (.*)\) = (?:-\d+ ([A-Z]+)|\d+(?:<([^>]*)>)?)")
_EXECUTED = re.compile(rf"execve\({_TEXT}, .*\) = 0")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f"}
_FLAGS = {name: getattr(os, name) for name in ("O_WRONLY", "O_RDWR", "O_TRUNC", "O_DIRECTORY", "O_PATH")}
_WORD = re.compile(r"O_[A-Z]+")


# ------------------------------------------------------------------------------------------------------- the traced command


@cache
def fault() -> str:
    """Return why commands cannot be traced on this machine, "" when they can."""
    return _find_tracer()[1]


@cache
def _find_tracer() -> tuple[tuple[str, ...], str]:
    """Return (the first words of a command under strace, the reason if strace cannot be used)."""
    program = shutil.which(_NAME)
    if program is None:
        return (), "strace is not installed"
    output = ""
    for more in (_FASTER, ()):
        command = (program, *_OPTIONS, *more)
        try:
            tried = subprocess.run(
                [*command, "-o", "/dev/null", "true"], capture_output=True, text=True, errors="replace", timeout=_TRY_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            output = str(error)
            continue
        if tried.returncode == 0:
            return command, ""
        output = tried.stderr.strip().partition("\n")[0]
    return (), f"strace does not work on this machine: {output}"


def trace_command(command: Invocation, folder: str) -> Invocation:
    """Return `command` under strace, which writes its record into the new folder `folder`."""
    os.mkdir(folder)
    tracer, _ = _find_tracer()
    return replace(
        command, program=tracer[0], arguments=(*tracer, "-o", f"{folder}/t", "--", command.program, *command.arguments[1:])
    )


# ----------------------------------------------------------------------------------------------------- the record of strace


def note_reads(folder: str, program: str, reads: Reads) -> None:
    """Add the files that an ended command opened to `reads`; `program` is the command's name."""
    processes.await_child(_NAME, _ATTACH_TIMEOUT_S)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        with open(entry.path, encoding="ascii", errors="surrogateescape") as file:
            _note(file, os.path.basename(program), reads)


def _note(lines: Iterator[str], program: str, reads: Reads) -> None:
    for line in lines:
        opened = _OPENED.match(line)
        if opened:
            path = _path(opened[1], opened[2], opened[5])
            if path:
                reads.note(path, lambda: program, _flags(opened[3]))  # noqa: B023  # `note` calls the function before it returns
            continue
        executed = _EXECUTED.match(line)
        if executed:
            path = _unescape(executed[1])
            program = os.path.basename(path)
            if path.startswith("/"):
                reads.note(path, lambda: program)  # noqa: B023  # `note` calls the function before it returns


def _path(folder: str | None, name: str, reached: str | None) -> str:
    """Return the absolute path of a recorded call, "" if it is unknown: a failed `open` is recorded without its folder."""
    path = _unescape(name)
    if path.startswith("/"):
        return path
    if folder is not None:
        return os.path.join(_unescape(folder), path)
    return _unescape(reached) if reached else ""


def _flags(text: str) -> int:
    flags = 0
    for word in _WORD.findall(text):
        flags |= _FLAGS.get(word, 0)
    return flags


def _unescape(text: str) -> str:
    return os.fsdecode(_ESCAPE.sub(_character, text.encode("ascii", "surrogateescape")))


def _character(match: re.Match[bytes]) -> bytes:
    escaped = match[1]
    return bytes([int(escaped, 8) & 0xFF]) if escaped.isdigit() else _ESCAPES.get(escaped, escaped)

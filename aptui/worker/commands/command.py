"""Command builders: fills the template, and runs the command.

This module also finds the products by globs, and reads the dependency files that commands write.

A command without shell syntax is started directly, because starting a shell takes as long as many tools run. If a shell is needed,
values are passed to it in variables, never in its text (`core.command_template`).
"""

from __future__ import annotations

import fcntl
import glob
import os
import re
import select
import shlex
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Protocol

from msgspec import Struct

from aptui.core.command_template import PLACEHOLDER, SOURCES, Template, TemplateError, examine_template
from aptui.core.retry import EXIT, FailureKind
from aptui.worker.output import BoundedText
from aptui.worker.processes import KILLED, kill_group, signal_name

_SHELL_ONLY = re.compile(r"[|&;<>()$`*?\[\]#~!{}\n]|^\s*[A-Za-z_][A-Za-z0-9_]*=")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
"""Pattern of a value without characters that a shell treats specially."""
_NAMES_OF_FILES = ("name", "stem", "ext", "rel")
_READ_BYTES = 1 << 16
DEPENDENCY_OUTPUT_BYTES = 16 << 20
"""Limit of the bytes that are kept at each end of output that contains dependencies.

If output has to be dropped, the run fails, because dependencies could be missing.
"""


LONG_MS = 5
"""Time (ms) after the start of a command, or of a persistent program's job, at which `CommandWatch` is called a second time.

Most asset tools take longer. Quick tools, which may run thousands of times, end before the second call.
"""


class CommandWatch(Protocol):
    """A function that does the worker's other work while a command runs, such as sending the results of earlier runs."""

    def __call__(self, *, takes_long: bool = False) -> None:
        """Do some work of the worker, such as sending results.

        Called when a command has started or a persistent program got a job. If the command or job still runs after `LONG_MS`,
        called again with `takes_long`.
        """


class CommandError(Exception):
    """The command line cannot be made, or the command cannot be started; the text is the reason."""


class Invocation(Struct, frozen=True):
    """A command that is ready to run: program, arguments, displayed line, and the environment variables that the line uses."""

    program: str
    arguments: tuple[str, ...]
    line: str
    environment: tuple[tuple[str, str], ...] = ()


class Execution(Struct, frozen=True):
    """How a command ended: `error` is "" for exit status 0, `kind` the kind of failure (`core.retry`)."""

    error: str
    output: BoundedText
    peak_rss_bytes: int
    kind: str = ""


# ----------------------------------------------------------------------------------------------------------------- template


def invocation(template: str, values: Mapping[str, str], sources: tuple[str, ...] = ()) -> Invocation:
    """Fill in a template. `sources` replaces {sources}: as words of a program's command line, or as arguments of a shell.

    Raises:
        CommandError: a parameter is missing, a placeholder is in an unsafe place, or a program would read a file name as an option.
    """
    try:
        found = examine_template(template)
    except TemplateError as error:
        raise CommandError(f"{error}; {error.hint}") from None
    values = {**values, SOURCES: shlex.join(sources)}
    environment = {variable: _value(values, name) for name, variable in found.variables.items() if name != SOURCES}
    _refuse_options(found, values)
    direct = _direct_words(template)
    if direct:
        words = tuple(text for word in direct for text in (sources if word == f"{{{SOURCES}}}" else (fill(word, values),)))
        program = find_program(words[0])
        if program:
            return Invocation(program, words, shlex.join(words))
    return Invocation(
        "/bin/sh", ("/bin/sh", "-c", found.line(), "sh", *sources), _format_line(found, values), tuple(environment.items())
    )


@lru_cache(maxsize=256)
def _direct_words(template: str) -> tuple[str, ...]:
    """Return the words of a command template that needs no shell, () if the template needs a shell."""
    bare = PLACEHOLDER.sub("x", template)
    if _SHELL_ONLY.search(bare):
        return ()
    try:
        return tuple(shlex.split(template))
    except ValueError:
        return ()  # the template has unbalanced quotes: let a shell report the mistake


def find_program(word: str) -> str:
    """Return the path of a program, "" if no program has the name. The path is cached as long as the program is there.

    A name without a program is a built-in command of the shell, or a mistake that the shell reports.
    """
    path = _search_path(word)
    if path and not os.access(path, os.X_OK):
        _search_path.cache_clear()
        path = _search_path(word)
    return path


@lru_cache(maxsize=256)
def _search_path(word: str) -> str:
    return shutil.which(word) or ""


def _value(values: Mapping[str, str], name: str) -> str:
    try:
        return values[name]
    except KeyError:
        raise CommandError(
            f"the command uses {{{name}}}, but the builder has no parameter {name.removeprefix('params.')!r}"
        ) from None


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace placeholders in `text` by values without escaping; for globs, the caller escapes the values first.

    Raises:
        CommandError: a placeholder has no value.
    """
    return PLACEHOLDER.sub(lambda match: _value(values, match[1]), text)


def _format_line(template: Template, values: Mapping[str, str]) -> str:
    """Return a line that users can paste into a shell.

    Values without special characters are part of the line; other values are assigned to variables before it.
    """
    plain = {name for name in template.variables if name == SOURCES or _PLAIN_VALUE.fullmatch(values[name])}
    text, position = "", 0
    for slot in template.slots:
        text += template.text[position : slot.start]
        position = slot.start
        if slot.name in plain:
            text += values[slot.name]
            position = slot.end
    text += template.text[position:]
    assignments = [
        f"{variable}={shlex.quote(values[name])}; " for name, variable in template.variables.items() if name not in plain
    ]
    return "".join(assignments) + examine_template.__wrapped__(text).line() if assignments else text


def _refuse_options(template: Template, values: Mapping[str, str]) -> None:
    """Refuse a file whose name a program would take for an option."""
    for slot in template.slots:
        if slot.begins_word and slot.name in _NAMES_OF_FILES and values.get(slot.name, "").startswith("-"):
            raise CommandError(
                f"{{{slot.name}}} is {values[slot.name]!r}, which a program would read as an option; write "
                f"{{source}}, or put ./ before it"
            )


# ---------------------------------------------------------------------------------------------------------------- execution


def execute(
    command: Invocation,
    environment: Mapping[str, str],
    output: BoundedText | None = None,
    watch: CommandWatch | None = None,
    limit_s: float = 0.0,
) -> Execution:
    """Run a command in the current folder, in a new process group. Wait for its exit, but not for the end of its output.

    Its output is added to `output` as it arrives. `watch` is called after the start, and again when the command takes long.

    Args:
        limit_s: seconds after which the command's process group is killed; 0 = this function sets no limit (the engine ends slow
            workers itself).

    Raises:
        CommandError: the command cannot be started.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    output = BoundedText() if output is None else output
    pid = 0
    try:
        try:
            pid = _spawn(command, environment, writer)
        except OSError as error:
            raise CommandError(f"{command.program!r} cannot be started: {error.strerror}") from error
        finally:
            os.close(writer)
        if watch is not None:
            watch()
        status, peak, is_late = _wait(pid, reader, output, watch, limit_s)
    except BaseException:
        # This worker is being stopped: write the output so far to the stream that the engine reads.
        if pid:
            kill_group(pid, signal.SIGKILL)
            _print_ends(output)
        raise
    finally:
        os.close(reader)
    if is_late:
        return Execution(f"command took longer than {limit_s:g} s", output, peak, FailureKind.TIMEOUT)
    return Execution(describe_status(status), output, peak, kind_of(status))


def _spawn(command: Invocation, environment: Mapping[str, str], writer: int) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_DUP2, writer, 2),
    ]
    return os.posix_spawn(
        command.program,
        command.arguments,
        {**environment, **dict(command.environment)} if command.environment else environment,
        file_actions=actions,
        setpgroup=0,
        # Python ignores these two signals, and the command would inherit this. So their default actions are restored here.
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
    )


def _wait(pid: int, reader: int, output: BoundedText, watch: CommandWatch | None, limit_s: float) -> tuple[int, int, bool]:
    """Return the wait status, the peak of memory in bytes, and whether the time limit was exceeded."""
    begin_s, is_late = time.monotonic(), False
    long_from_s = begin_s + LONG_MS / 1000
    os.set_blocking(reader, False)
    exit_descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(exit_descriptor, select.POLLIN)
        poll.register(reader, select.POLLIN)
        while True:
            left_ms = max(0.0, begin_s + limit_s - time.monotonic()) * 1000 if limit_s and not is_late else None
            ready = dict(poll.poll(LONG_MS if watch else left_ms))
            if left_ms == 0.0:
                is_late = True
                kill_group(pid, signal.SIGKILL)
            if watch and time.monotonic() >= long_from_s:
                watch(takes_long=True)
                watch = None
            if reader in ready and not _read(reader, output):
                poll.unregister(reader)
            if exit_descriptor in ready:
                break
    finally:
        os.close(exit_descriptor)
    _, status, usage = os.wait4(pid, 0)
    # The pipe has the rest of the command's own output. Later output could only come from a process that the command left running.
    for _ in range(fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ) // _READ_BYTES + 1):
        if not _read(reader, output):
            break
    return status, usage.ru_maxrss * 1024, is_late


def _read(reader: int, output: BoundedText) -> bool:
    """Read the output once; return whether more may follow."""
    try:
        data = os.read(reader, _READ_BYTES)
    except BlockingIOError:
        return True
    output.add(data, time.time_ns() // 1_000_000)
    return bool(data)


def _print_ends(output: BoundedText) -> None:
    """Write the head and the last 4 KiB of `output` to stdout."""
    try:
        os.write(1, bytes(output.head) + b"\n" + output.tail[-4096:])
    except OSError:
        pass


def describe_status(status: int) -> str:
    """Return the error of a command that ended with a wait status, "" if it succeeded."""
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return ""
    if code < 0:
        return KILLED if -code == signal.SIGKILL else f"command killed by {signal_name(-code)}"
    return f"command exited with status {code}"


def kind_of(status: int) -> str:
    """Return the kind of failure of a command, "" if it succeeded."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return FailureKind.MEMORY if -code == signal.SIGKILL else FailureKind.CRASH
    return f"{EXIT}{code}" if code else FailureKind.NONE


# ----------------------------------------------------------------------------------------------- products and dependencies


def find_products(patterns: tuple[str, ...], products_dir: str, values: Mapping[str, str]) -> list[str]:
    """Return the files in `products_dir` that match any of the globs, sorted; all files when there are no globs.

    Raises:
        CommandError: no file matches.
    """
    safe = {name: glob.escape(value) for name, value in values.items()} if any("{" in pattern for pattern in patterns) else {}
    globs = [fill(pattern, safe) for pattern in patterns] or ["**"]
    if any("**" in text for text in globs):
        _refuse_linked_folders(products_dir)
    found: set[str] = set()
    for text in globs:
        names = glob.glob(text, root_dir=products_dir, recursive=True, include_hidden=True)
        found.update(name for name in names if not os.path.isdir(os.path.join(products_dir, name)))
    if not found:
        raise CommandError(
            f"the command made no product that matches {', '.join(map(repr, globs))}" if patterns else "the command made no product"
        )
    return sorted(found)


def _refuse_linked_folders(products_dir: str) -> None:
    """Refuse links to folders: `**` follows links, and a link to `/` would make it search the whole disk."""
    for folder, names, _ in os.walk(products_dir):
        for name in names:
            if os.path.islink(path := os.path.join(folder, name)):
                where = os.path.relpath(path, products_dir)
                raise CommandError(f"the command made a link to a folder: '{where}'; products must be files")


_DEPFILE_WORD = re.compile(r"(?:\\[ #:\\](?=\S|\s|$)|\$\$|[^\s])+", re.ASCII)
_DEPFILE_ESCAPE = re.compile(r"\\([ #:])|\$\$")
_DEPFILE_CONTINUED = re.compile(r"\\\r?(?:\n|\Z)")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")


def parse_depfile(text: str) -> Iterator[str]:
    r"""Yield the prerequisites of all rules in a Makefile-style dependency file, as gcc, glslc, dxc and others write them.

    Lines continue after a backslash; `\ `, `\#` and `\:` stand for the second character, `$$` for a dollar sign. As in make, no
    blank is needed after the colon.
    """
    for _, files in _rules(text):
        yield from files or ()


def find_lines_without_colon(text: str) -> list[str]:
    """Return the lines of a dependency file that are not rules, because they have no colon."""
    return [line.strip() for line, files in _rules(text) if files is None]


def _rules(text: str) -> Iterator[tuple[str, list[str] | None]]:
    """Yield (line, its prerequisites) of a dependency file; None instead of prerequisites for a line without a colon."""
    for line in _DEPFILE_CONTINUED.sub(" ", text).split("\n"):
        words = list(takewhile(lambda word: not word.startswith("#"), _DEPFILE_WORD.findall(line)))
        if words:
            prerequisites = _prerequisites(words)
            names = [_DEPFILE_ESCAPE.sub(lambda match: match[1] or "$", word) for word in prerequisites or ()]
            yield line, None if prerequisites is None else [name for name in names if name.strip() not in ("", "\\")]


def _prerequisites(words: list[str]) -> list[str] | None:
    """Return the words after the colon of a rule in a dependency file, None if the rule has no colon.

    This is the first colon that ends a word. If no word ends with a colon, it is the first colon inside a word.

    The colon of a drive letter (`C:`) is skipped.
    """
    for at, word in enumerate(words):
        if word.endswith(":") and not word.endswith("\\:"):
            return words[at + 1 :]
    for at, word in enumerate(words):
        for colon in re.finditer(r"(?<!\\):", word):
            if not (_DRIVE.match(word) and colon.start() == 1):
                return [*filter(None, [word[colon.end() :]]), *words[at + 1 :]]
    return None

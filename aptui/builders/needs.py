"""What some builders need beyond the base installation: Python packages of the extra `builders`, and programs.

Both are looked for when a job runs, never at import, so that a worker that meets no such source pays nothing, and a missing one
fails its jobs with the way to get it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from aptui.builders.params import one_line

MOST_OUTPUT_CHARACTERS = 1_000_000


MOST_CPU_S = 120
"""Processor time of a compiler: large shaders take seconds."""

MOST_DATA_BYTES = 2 << 30
"""Memory of a compiler: large shaders take less than a tenth."""


class TooLongError(Exception):
    """A program took all of its time or memory; the text is one line."""


class MissingError(Exception):
    """A package or program is not there; the text is one line that says how to get it."""


class Ended(Struct, frozen=True):
    """How a program ended: its status (negative: the signal) and what it printed, both streams together."""

    status: int
    output: str


class MissingNeed(Struct, frozen=True):
    """A line of a compiler's output."""

    is_error: bool
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


def library(module: str, distribution: str = "") -> Any:
    """Return the imported `module` of an optional package.

    Raises:
        MissingError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = distribution or module
        if isinstance(error, ModuleNotFoundError) and error.name in (None, module, module.partition(".")[0]):
            raise MissingError(f"needs the Python package '{name}', which is not installed: pip install {name}") from None
        raise MissingError(
            f"needs the Python package '{name}', which cannot be imported ({one_line(error)}): pip install {name}"
        ) from None


def has_library(module: str) -> bool:
    """Return whether the package of `module` seems to be installed, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def find_program(requested: str | None, names: Iterable[str]) -> str:
    """Return the absolute path of `requested` (a program in PATH or an absolute path), else of the first of `names`, else "".

    Nothing is looked for from the current folder: what lies there may have come with the assets.
    """
    places = os.pathsep.join(place for place in os.get_exec_path() if os.path.isabs(place))
    for name in map(os.path.expanduser, [requested] if requested else names):
        if "/" in name and not os.path.isabs(name):
            continue
        if path := shutil.which(name, path=places):
            return path
    return ""


def program_digest(path: str) -> str:
    """Return `name digest` of a program, to stand in fingerprints; "none" for no path."""
    if not path:
        return "none"
    try:
        found = os.stat(path)
        key = path, found.st_size, found.st_mtime_ns
        if key not in _digests:
            with open(path, "rb") as file:
                _digests[key] = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError:
        return f"{os.path.basename(path)} unreadable"
    return f"{os.path.basename(path)} {_digests[key]}"


_digests: dict[tuple[str, int, int], str] = {}


def run(arguments: Sequence[str], folder: str) -> Ended:
    """Run a program in `folder` until it ends; its messages are in English.

    It may take `MOST_CPU_S` of processor time and `MOST_DATA_BYTES` of memory: a few macros of a shader can stand for gigabytes.

    Raises:
        MissingError: it cannot be started.
        TooLongError: it took all of its time or memory.
    """
    try:
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise MissingError(f"cannot start '{os.path.basename(arguments[0])}': {error.strerror}") from None
    with process:
        assert process.stdout is not None
        for limit, most in ((resource.RLIMIT_CPU, MOST_CPU_S), (resource.RLIMIT_DATA, MOST_DATA_BYTES)):
            with suppress(OSError, ValueError):  # it has ended, or may have less already
                resource.prlimit(process.pid, limit, (most, most))
        output = process.stdout.read(MOST_OUTPUT_CHARACTERS)
        while process.stdout.read(MOST_OUTPUT_CHARACTERS):
            pass
    taken = ""
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        taken = f"{MOST_CPU_S} s of processor time"
    elif process.returncode and b"bad_alloc" in output:  # how programs in C++ say that there is no more
        taken = f"{MOST_DATA_BYTES >> 20:,} MiB of memory"
    if taken:
        raise TooLongError(f"{os.path.basename(arguments[0])} took more than {taken}; a macro or an include may grow without end")
    return Ended(process.returncode, output.decode("utf-8", "replace"))


def messages(output: str, pattern: re.Pattern[str]) -> list[MissingNeed]:
    """Return each line of `output` once that matches `pattern`, which has the groups `kind`, `text` and maybe `file` and `line`."""
    found = []
    for match in map(pattern.match, output.splitlines()):
        if match:
            groups = match.groupdict()
            place = [part for part in (groups.get("file"), groups.get("line")) if part]
            found.append(MissingNeed("error" in (groups.get("kind") or "error").lower(), ":".join(place), one_line(groups["text"])))
    return list(dict.fromkeys(found))


def summarize_errors(errors: Sequence[str]) -> str:
    """Return the first of `errors` in one line, and how many more there are."""
    return f"{errors[0]} (and {len(errors) - 1} more)" if len(errors) > 1 else errors[0]

"""Optional Python packages and programs that builders need.

A job looks up its packages and programs when the job runs, so workers without such jobs do not load them. If a package or program
is missing, only the jobs that need it fail, and the error says how to install it.

Tests: `tests/sdk/test_programs.py`, `tests/sdk/test_kit.py`.
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

from aptui.sdk import JobError, JobLog

MOST_OUTPUT_BYTES = 1_000_000
"""Maximum size (bytes) of a program's output that is kept; the rest is read and dropped."""
MOST_CPU_S = 120
"""Default limit of a program's processor time (seconds): compilers take seconds for large shaders."""

MOST_DATA_BYTES = 2 << 30
"""Default limit of a program's memory (bytes): compilers need less than a tenth of this for large shaders."""


class TooLongError(JobError):
    """A program reached its limit of time or memory; the text is one line."""


class MissingError(JobError):
    """A package or a program is missing; the text is one line that says how to get it."""


class ProgramResult(Struct, frozen=True):
    """Result of a program: its exit status (negative = number of the signal) and its output, with both streams together."""

    status: int
    output: str


def library(module: str, distribution: str = "") -> Any:
    """Return the imported `module` of an optional package.

    Raises:
        MissingError: the package is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = distribution or module
        if isinstance(error, ModuleNotFoundError) and error.name in (None, module, module.partition(".")[0]):
            raise missing_package(name) from None
        raise MissingError(
            f"the job needs the Python package '{name}', which cannot be imported ({error}); run pip install {name}"
        ) from None


def missing_package(name: str) -> MissingError:
    """Return the error for a Python package that is not installed."""
    return MissingError(f"the job needs the Python package '{name}', which is not installed; run pip install {name}")


def has_library(module: str) -> bool:
    """Return whether the package of `module` seems to be installed, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def find_program(requested: str | None, names: Iterable[str]) -> str:
    """Return the absolute path of `requested`, or of the first of `names` that exists if `requested` is "" or None.

    The result is "" if no program is found. A program is given as an absolute path (`~` is expanded), or as a name in PATH.
    The current folder is not searched: its files may have come with the assets.
    """
    places = os.pathsep.join(place for place in os.get_exec_path() if os.path.isabs(place))
    for name in map(os.path.expanduser, [requested] if requested else names):
        if "/" in name and not os.path.isabs(name):
            continue
        if path := shutil.which(name, path=places):
            return path
    return ""


def program_digest(path: str) -> str:
    """Return `name digest` of a program, for fingerprints; "none" if `path` is ""."""
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


def run_program(
    arguments: Sequence[str], folder: str, *, cpu_s: int | None = None, memory_bytes: int | None = None
) -> ProgramResult:
    """Run a program in `folder` until it ends, in an environment in which its messages are in English.

    Args:
        arguments: the program, by name (found in PATH) or absolute path, and its arguments.
        folder: the folder in which the program runs.
        cpu_s: limit of processor time in seconds, `MOST_CPU_S` by default. It is needed because a few macros of a shader can take
            hours.
        memory_bytes: limit of memory, `MOST_DATA_BYTES` by default.

    Raises:
        MissingError: the program cannot be started.
        TooLongError: the program reached a limit.
    """
    cpu_s = MOST_CPU_S if cpu_s is None else cpu_s
    memory_bytes = MOST_DATA_BYTES if memory_bytes is None else memory_bytes
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
        for limit, most in ((resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_DATA, memory_bytes)):
            with suppress(OSError, ValueError):  # the program may have ended, or may have a lower limit
                resource.prlimit(process.pid, limit, (most, most))
        output = process.stdout.read(MOST_OUTPUT_BYTES)
        while process.stdout.read(MOST_OUTPUT_BYTES):
            pass
    reached = ""
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        reached = f"{cpu_s} s of processor time"
    elif process.returncode and b"bad_alloc" in output:  # programs in C++ report exhausted memory with this text
        reached = f"{memory_bytes >> 20:,} MiB of memory"
    if reached:
        raise TooLongError(
            f"{os.path.basename(arguments[0])} used more than {reached}, which is the limit; perhaps a macro or an include "
            "of the source never ends"
        )
    return ProgramResult(process.returncode, output.decode("utf-8", "replace"))


def run_logged(arguments: Sequence[str], folder: str, log: JobLog, **limits: int) -> ProgramResult:
    """Run a program as `run_program` does, write its output into `log`, and fail the job if its status is not 0.

    Raises:
        JobError: the program is missing, reached a limit, or ended with another status than 0.
    """
    name = os.path.basename(arguments[0])
    program = find_program(arguments[0], ())
    if not program:
        raise MissingError(f"the program '{name}' was not found in the PATH that aptui was started with; install it")
    result = run_program([program, *arguments[1:]], folder, **limits)
    lines = [line for line in result.output.splitlines() if line.strip()]
    for line in lines:
        log.info(line)
    if result.status:
        how = f"status {result.status}" if result.status > 0 else _describe_signal(-result.status)
        raise JobError(f"{name} ended with {how}" + (f": {lines[-1].strip()}" if lines else ""))
    return result


def _describe_signal(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*((?:(?:>=|<=|==|!=|~=|<|>)\s*[0-9][^\s,]*\s*,?\s*)*)")
_BOUND = re.compile(r"(>=|<=|==|!=|~=|<|>)\s*([0-9.]+)")


def names_of(builder: object, attribute: str) -> tuple[str, ...]:
    """Return the texts of a class attribute (`requires`, `tools`), which may be a single text."""
    found = getattr(builder, attribute, ())
    return (found,) if isinstance(found, str) else tuple(map(str, found))


def find_missing_need(builder: object) -> str:
    """Return the error for the first missing package or program of a builder (class or instance); "" = nothing is missing."""
    for requirement in names_of(builder, "requires"):
        if fault := _fault_of_package(requirement):
            return fault
    for tool in names_of(builder, "tools"):
        if not find_program(tool, ()):
            return f"the program '{tool}' was not found in the PATH that aptui was started with; install it"
    return ""


def list_package_versions(builder: object) -> list[str]:
    """Return `name version` of each package that a builder class requires."""
    matches = [match for text in names_of(builder, "requires") if (match := _REQUIREMENT.fullmatch(text))]
    return [f"{match[1]} {_find_version(match[1]) or 'missing'}" for match in matches]


def _fault_of_package(requirement: str) -> str:
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None:
        return f"'{requirement}' in 'requires' is not the name of a package with versions, such as 'etcpak>=0.9'"
    version = _find_version(match[1])
    hint = f"run pip install '{requirement}' in the Python environment of aptui"
    if not version:
        return f"the Python package '{requirement}' is not installed; {hint}"
    if not all(_is_within(version, sign, bound) for sign, bound in _BOUND.findall(match[2])):
        return f"the Python package '{requirement}' is required, but {match[1]} {version} is installed; {hint}"
    return ""


def _find_version(name: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _is_within(version: str, sign: str, bound: str) -> bool:
    """Whether a version satisfies a bound. Releases are compared number by number; suffixes of pre-releases are ignored."""
    found, wanted = _numbers(version), _numbers(bound)
    size, equal = max(len(found), len(wanted)), len(wanted) - 1
    found, wanted = found + [0] * (size - len(found)), wanted + [0] * (size - len(wanted))
    if sign == "~=":
        return found >= wanted and found[:equal] == wanted[:equal]
    return {
        ">=": found >= wanted, "<=": found <= wanted, "==": found == wanted,
        "!=": found != wanted, "<": found < wanted, ">": found > wanted,
    }[sign]  # fmt: skip


def _numbers(version: str) -> list[int]:
    release = re.match(r"\d+(?:\.\d+)*", version)
    return [int(part) for part in release[0].split(".")] if release else []

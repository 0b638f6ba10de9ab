"""Reader processes of the search for missing dependencies, seen from the searcher: `read` takes a path and returns a future.

Each process has a thread that talks to it and waits for it. If a process dies, the file that it was reading is reported as broken,
and the next file gets a new process.

Tests: `tests/features/shipping/test_name_scanner.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self
from xml.parsers import expat

from msgspec import Struct, field

from aptui.core.patterns import wildcard
from aptui.engine.pool.spawning import python_environment
from aptui.features.shipping.missing_records import Names
from aptui.shared.globs import PATTERN_LIMIT


class Reading(Struct, frozen=True):
    """The result of reading a file: `names`, or `error`. `is_broken` = the process died."""

    digest: bytes = b""
    names: Names | None = None
    error: str = ""
    is_broken: bool = False


class Readers:
    """The processes; they are started on demand.

    Args:
        count: maximum number of processes.
        extensions, line_limit: see `missing_records.MissingScanResult`.
    """

    def __init__(self, count: int, extensions: Collection[str], line_limit: int) -> None:
        self._first_line = json.dumps([sorted(extensions), line_limit]).encode() + b"\n"
        self._threads = ThreadPoolExecutor(max(1, count), thread_name_prefix="aptui-missing")
        self._resting: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def read(self, path: str) -> Future[Reading]:
        """Start reading a file; `path` is in the form of Python's file functions."""
        return self._threads.submit(self._read, path)

    def close(self) -> None:
        """Kill the processes; the files that they are reading are reported as broken."""
        with self._lock:
            self._is_closed = True
            processes = list(self._processes)
        for process in processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in processes:
            _bury(process)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # ------------------------------------------------------------------------------------------------------- a thread each

    def _read(self, path: str) -> Reading:
        try:
            process = self._process()
        except OSError as error:
            return Reading(error=f"no process can be started: {error.strerror}", is_broken=True)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(path).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = b""
        if not answer.endswith(b"\n"):
            self._drop(process)
            return Reading(error="the process that read it died", is_broken=True)
        self._resting.put(process)
        return _reading(json.loads(answer))

    def _process(self) -> subprocess.Popen[bytes]:
        with contextlib.suppress(queue.Empty):
            return self._resting.get_nowait()
        with self._lock:
            if self._is_closed:
                raise OSError(0, "the search was given up")
            process = subprocess.Popen(
                [sys.executable, "-P", "-X", "utf8", "-m", "aptui.features.shipping.missing_records"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=python_environment(),
                start_new_session=True,  # this program handles the interrupt of a terminal
            )
            self._processes.add(process)
        assert process.stdin is not None
        process.stdin.write(self._first_line)
        return process

    def _drop(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._processes.discard(process)
        process.kill()
        _bury(process)


def _bury(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # closing flushes, which fails if the process has ended
                stream.close()
    process.wait()


def _reading(answer: dict[str, Any]) -> Reading:
    if "error" in answer:
        return Reading(error=answer["error"])
    return Reading(bytes.fromhex(answer["digest"]), Names.from_json(answer["names"]))


# Files in scan folders with rules about undeclared dependencies: `*_Dependencies.xml` names products that are always shipped,
# `*.filetag` products that are not scanned.
#
# Both are at the top of a scan folder. A file that cannot be read has no rules, and is reported.

_SIZE_MAX = 16 << 20
_EXACT, _WILDCARD = 0, 1
"""Forms of a pattern in a `.filetag` file; 2 is a regular expression."""
_SKIPPED_PRODUCTS = (frozenset({"editoronly"}), frozenset({"shader"}))
_SKIPPED_FILES = (frozenset({"ignore", "productdependency"}),)


class ScanRules(Struct):
    """The rules of all scan folders; `complaints` are errors of files that could not be read."""

    shipped: list[re.Pattern[str]] = field(default_factory=list)
    excluded: list[tuple[Callable[[str], object], frozenset[str]]] = field(default_factory=list)
    included: list[tuple[Callable[[str], object], frozenset[str]]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def is_shipped(self, *paths: str) -> bool:
        """Whether one of these paths (lower case, without a platform) is always shipped."""
        return any(pattern.fullmatch(path) for pattern in self.shipped for path in paths)

    def tags_of(self, path: str, *, is_product: bool) -> tuple[str, ...]:
        """Return the tags that exclude a file (lower case, without a platform) from the scan, () = it is scanned."""
        for wanted in _SKIPPED_PRODUCTS if is_product else _SKIPPED_FILES:
            if _has(self.excluded, path, wanted) and not _has(self.included, path, wanted):
                return tuple(sorted(wanted))
        return ()


def _has(rules: Iterable[tuple[Callable[[str], object], frozenset[str]]], path: str, wanted: frozenset[str]) -> bool:
    return any(wanted <= tags and matches(path) for matches, tags in rules)


def read_rules(roots: Iterable[str]) -> ScanRules:
    """Read the rules of these scan folders."""
    rules = ScanRules()
    for path in _files(roots):
        name = path.name.lower()
        try:
            data = path.read_bytes() if path.stat().st_size <= _SIZE_MAX else b""
            if name.endswith(".filetag"):
                target = rules.included if name.startswith("include") else rules.excluded
                target += _tags(data)
            else:
                rules.shipped += [wildcard(pattern.replace("\\", "/").lower()) for pattern in _read_shipped(data)]
        except (OSError, expat.ExpatError, re.error, ValueError) as error:
            rules.complaints.append(f"'{path}' is not followed: {error}")
    return rules


def _files(roots: Iterable[str]) -> Iterator[Path]:
    for root in roots:
        try:
            with os.scandir(root) as entries:
                names = sorted(entry.name for entry in entries if entry.is_file())
        except OSError:
            continue
        yield from (Path(root, name) for name in names if name.lower().endswith(("_dependencies.xml", ".filetag")))


def _elements(data: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """Return names and attributes of all elements, in order."""
    found: list[tuple[str, dict[str, str]]] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: found.append((name, attributes))
    parser.Parse(data, True)
    return iter(found)


def _read_shipped(data: bytes) -> Iterator[str]:
    for name, attributes in _elements(data):
        if name == "Dependency" and attributes.get("path"):
            yield attributes["path"]


def _tags(data: bytes) -> Iterator[tuple[Callable[[str], object], frozenset[str]]]:
    """Yield (matcher, tags) of each pair of an ObjectStream: `value1` has the pattern; its form and its tags follow."""
    pattern, form, tags = "", _WILDCARD, set[str]()
    for _, attributes in (*_elements(data), ("", {"field": "value1", "value": ""})):
        value = attributes.get("value", "")
        match attributes.get("field"):
            case "value1":
                if pattern:
                    yield _matcher(pattern, form), frozenset(tags)
                pattern, form, tags = value, _WILDCARD, set()
            case "FilePatternType":
                form = int(value)
            case "element" if value:
                tags.add(value.lower())


def _matcher(pattern: str, form: int) -> Callable[[str], object]:
    if form == _EXACT:
        return lambda path: path == pattern.lower()
    if form == _WILDCARD:
        return wildcard(pattern).fullmatch
    return _linear(pattern)


def _linear(regex: str) -> Callable[[str], object]:
    """Return a matcher of whole paths for a regex from an asset file; its engine runs in linear time.

    Raises:
        ValueError: it is not a valid regex.
    """
    from aptui.store.jobs.regex import PatternError, compile_pattern

    whole = rf"(?is)\A(?:{regex})\z"
    if len(regex) > PATTERN_LIMIT:
        raise ValueError(f"a regex of more than {PATTERN_LIMIT} characters")
    try:
        pattern = compile_pattern(whole)
    except PatternError as error:
        raise ValueError(f"'{regex}' is not a supported regex: {error}") from None

    def match(path: str) -> bool:
        data = path.encode("utf-8", "replace")
        return pattern.span(data, 0, len(data)) is not None

    return match

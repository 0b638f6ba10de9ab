"""The search for missing product dependencies (assets that files name but builders did not declare), and its reader processes.

A product's bytes are read once. The names in it are stored with the SHA-256 of the bytes; later scans only look the names up
again, because the assets may have changed. The file is read again if its bytes, the limit, or the extensions of assets have
changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.core.messages import Rows
from aptui.core.paths import as_text, cache_path, os_path
from aptui.core.patterns import wildcard
from aptui.engine.pool.spawning import python_environment
from aptui.features.shipping import missing_rows as store
from aptui.features.shipping.missing_rows import DeclaredReference, KnownAssets, MissingHit, MissingTarget, Scanned
from aptui.features.shipping.name_scanner import LINE_LIMIT, VERSION, Names, join_path
from aptui.shared.globs import PATTERN_LIMIT
from aptui.store.queries.reader import Reader, open_reader

# The search for missing dependencies reads files in separate processes. `Readers.read` starts to read a file and returns a future.
#
# For each reader process, a thread of this process sends the requests and waits for the answers. If a reader process dies while it
# reads a file, the file is reported as broken, and a new process reads the next file.


class Reading(Struct, frozen=True):
    """The result of reading a file: `names`, or `error`. `is_broken` = the process died."""

    digest: bytes = b""
    names: Names | None = None
    error: str = ""
    is_broken: bool = False


class Readers:
    """The reader processes, which are started on demand.

    Args:
        extensions, line_limit: see `name_scanner.NameScan`.
    """

    def __init__(self, count: int, extensions: Collection[str], line_limit: int) -> None:
        self._first_line = json.dumps([sorted(extensions), line_limit]).encode() + b"\n"
        self._threads = ThreadPoolExecutor(max(1, count), thread_name_prefix="aptui-missing")
        self._resting: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def read(self, path: str) -> Future[Reading]:
        """Start reading a file; `path` is in the form that Python's `open` needs."""
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

    # ------------------------------------------------------------------------------------------------------- a thread each

    def _read(self, path: str) -> Reading:
        try:
            process = self._process()
        except OSError as error:
            return Reading(error=f"the search process cannot be started: {error.strerror}", is_broken=True)
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
            return Reading(error="the process that read the file has died", is_broken=True)
        self._resting.put(process)
        return _reading(json.loads(answer))

    def _process(self) -> subprocess.Popen[bytes]:
        with contextlib.suppress(queue.Empty):
            return self._resting.get_nowait()
        with self._lock:
            if self._is_closed:
                raise OSError(0, "the search was cancelled")
            process = subprocess.Popen(
                [sys.executable, "-P", "-X", "utf8", "-m", "aptui.features.shipping.name_scanner"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=python_environment(),
                start_new_session=True,  # because Ctrl-C in the terminal must not interrupt the reader
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
            with contextlib.suppress(OSError):  # `close` flushes the stream and fails if the process has ended
                stream.close()
    process.wait()


def _reading(answer: dict[str, Any]) -> Reading:
    if "error" in answer:
        return Reading(error=answer["error"])
    return Reading(bytes.fromhex(answer["digest"]), Names.from_json(answer["names"]))


# Two kinds of files at the top of a scan folder have rules for the search. The products that a `*_Dependencies.xml` file names are
# always shipped, so a builder need not declare references to these products. The products that a `*.filetag` file names are not
# scanned. If a file with rules cannot be read, the search reports the file and ignores its rules.

_SIZE_MAX = 16 << 20
_EXACT, _WILDCARD = 0, 1
"""Numbers that a `.filetag` file uses for exact patterns and wildcards; 2 is a regular expression."""
_SKIPPED_PRODUCTS = (frozenset({"editoronly"}), frozenset({"shader"}))
_SKIPPED_FILES = (frozenset({"ignore", "productdependency"}),)


class ScanRules(Struct):
    """The rules of all scan folders about undeclared dependencies; `complaints` are errors of rule files that cannot be read."""

    shipped: list[re.Pattern[str]] = field(default_factory=list)
    excluded: list[tuple[Callable[[str], object], frozenset[str]]] = field(default_factory=list)
    included: list[tuple[Callable[[str], object], frozenset[str]]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def is_shipped(self, *paths: str) -> bool:
        """Whether one of these paths (lower case, without a platform) is always shipped."""
        return any(pattern.fullmatch(path) for pattern in self.shipped for path in paths)

    def tags_of(self, path: str, *, is_product: bool) -> tuple[str, ...]:
        """Return the tags that exclude a file from the scan, or () if the file is scanned.

        `path` is in lower case and without a platform.
        """
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
            rules.complaints.append(f"the rules in '{path}' are ignored: {error}")
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
    """Yield (matcher, tags) for each pair in an ObjectStream.

    The element `value1` has the pattern; the next elements have the pattern's kind and its tags.
    """
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
    """Return a matcher of whole paths for a regex from an asset file. The regex engine runs in linear time."""
    from aptui.store.jobs.regex import PatternError, compile_pattern

    whole = rf"(?is)\A(?:{regex})\z"
    if len(regex) > PATTERN_LIMIT:
        raise ValueError(f"the regular expression is longer than {PATTERN_LIMIT} characters")
    try:
        pattern = compile_pattern(whole)
    except PatternError as error:
        raise ValueError(f"'{regex}' is not a supported regular expression: {error}") from None

    def match(path: str) -> bool:
        data = path.encode("utf-8", "replace")
        return pattern.span(data, 0, len(data)) is not None

    return match


# The functions below find the assets that the names in a file refer to, and the references that the file's builder did not declare.
# They query the database through `missing_rows.KnownAssets`.


class ScannedFile(NamedTuple):
    """A scanned file. If the file is a product, `uuid` is the UUID of the product's source, otherwise b"".

    `inner` is its path in lower case, to which relative names are resolved. `platforms` are the platforms whose products the file
    may name.
    """

    uuid: bytes
    sub_id: int
    inner: str
    platforms: tuple[str, ...]


def find_assets(known: KnownAssets, named: Sequence[tuple[ScannedFile, Names]]) -> None:
    """Find the assets that the names in these files refer to, and store them in `known`; drop results of earlier calls."""
    known.forget()
    uuids = {uuid for _, names in named for uuid in (*names.uuids, *(uuid for uuid, _ in names.assets))}
    paths = {subject.inner for subject, _ in named}
    of_platforms: dict[str, set[str]] = {}
    for subject, names in named:
        meant = {path for name in names.paths for path in _meanings(subject, name)}
        paths |= meant
        for platform in subject.platforms:
            of_platforms.setdefault(platform, set()).update(meant)
    known.look_up(uuids, paths, of_platforms)


def _meanings(subject: ScannedFile, name: str) -> list[str]:
    """Return the paths that a name can mean: the name as a whole path, and as a path relative to the file that contains it."""
    relative = join_path(subject.inner.rpartition("/")[0], name)
    return [path for path in dict.fromkeys(("" if name.startswith("..") else name, relative)) if path]


def hits_of(
    known: KnownAssets, subject: ScannedFile, names: Names, declared: DeclaredReference, rules: ScanRules
) -> Iterator[MissingHit]:
    """Yield the undeclared references in a file: for each referenced product, only the first reference."""
    seen = {(subject.uuid, subject.sub_id)}
    for text, targets in _targets(known, subject, names, declared):
        for target in targets:
            asset = target.uuid, target.sub_id
            if asset in seen or asset in declared.assets or not _is_made_for(subject, target):
                continue
            if not declared.has_path(target.inner) and not rules.is_shipped(target.inner):
                seen.add(asset)
                yield MissingHit(text, *asset, target.inner)


def _is_made_for(subject: ScannedFile, target: MissingTarget) -> bool:
    """Whether a product is made for any platform of the file; a product of other platforms is not a missing dependency."""
    wanted = {platform.lower() for platform in subject.platforms}
    return not wanted or not target.platforms or any(platform.lower() in wanted for platform in target.platforms)


def _targets(
    known: KnownAssets, subject: ScannedFile, names: Names, declared: DeclaredReference
) -> Iterator[tuple[str, tuple[MissingTarget, ...]]]:
    """Yield (text of the name, products that it may mean) for each undeclared name.

    The name of a source may mean each product of the source; the name counts as declared if one of these products is declared.
    """
    for (uuid, sub_id), text in names.assets.items():
        yield text, tuple(target for target in known.of_uuid(uuid) if target.sub_id == sub_id)
    for uuid, text in names.uuids.items():
        targets = known.of_uuid(uuid)
        if not _is_settled(targets, subject, declared):
            yield text, targets
    for name, text in names.paths.items():
        if not declared.has_path(name):
            yield text, _find_by_name(known, subject, name, declared)


def _find_by_name(known: KnownAssets, subject: ScannedFile, name: str, declared: DeclaredReference) -> tuple[MissingTarget, ...]:
    for path in _meanings(subject, name):
        targets = known.of_source(path)
        if targets:
            return () if _is_settled(targets, subject, declared) else targets
        for platform in subject.platforms:
            target = known.of_product(platform, path)
            if target is not None:
                return (target,)
    return ()


def _is_settled(targets: tuple[MissingTarget, ...], subject: ScannedFile, declared: DeclaredReference) -> bool:
    """Whether a name counts as declared: it refers to the file's own source, or to a source with a declared product."""
    return bool(targets) and (targets[0].uuid == subject.uuid or targets[0].uuid in declared.sources)


READERS = 2
"""Number of reader processes. More would take processor time from the engine."""
_PAGE = 128
_REPORT_EVERY_S = 0.2


class SearchedProject(Struct, frozen=True):
    """The project in which to search: its database, its cache, and its scan folders in order."""

    database: Path
    cache_dir: Path
    roots: tuple[str, ...] = ()


class Tally(Struct):
    """Progress of a search: `read` is the number of files that were read in this search.

    `flawed` is the number of files with missing dependencies, `hits` is the number of missing dependencies.
    """

    files: int = 0
    done: int = 0
    read: int = 0
    flawed: int = 0
    hits: int = 0
    failed: int = 0
    partial: int = 0
    ignored: int = 0
    seconds: float = 0.0
    began_s: float = field(default_factory=time.monotonic)
    is_given_up: bool = False
    complaints: list[str] = field(default_factory=list)


class FileFound(NamedTuple):
    """A file that is not a product, and its undeclared references; `says` is the outcome of its scan, "" = success."""

    path: str
    hits: tuple[MissingHit, ...]
    says: str


OnProgress = Callable[[Tally], object]
_Begun = dict[int, Names | Future[Reading]]
"""{product id: its remembered names, or the future of reading them}."""


class MissingSearch:
    """A search in one thread.

    Args:
        line_limit: maximum number of names in one line, 0 = no limit.
        is_given_up: called between pages of files; true ends the search.
    """

    def __init__(
        self, place: SearchedProject, line_limit: int = LINE_LIMIT, is_given_up: Callable[[], bool] = lambda: False
    ) -> None:
        self._place, self._line_limit, self._is_given_up = place, line_limit, is_given_up

    def products(
        self, wanted: Sequence[Scanned], save: Callable[[Rows], object], on_progress: OnProgress = lambda _: None
    ) -> Tally:
        """Scan products; `save` receives their rows page by page.

        Raises:
            KnownError: the database cannot be read, or `save` failed.
        """
        tally = Tally(files=len(wanted))
        with self._work(tally) as work:
            pages = [wanted[at : at + _PAGE] for at in range(0, len(wanted), _PAGE)]
            begun = work.begin(pages[0]) if pages else {}
            for at, page in enumerate(pages):
                # The reader processes read the next page while this process looks up the names in the current page (`rows_of`).
                following = work.begin(pages[at + 1]) if at + 1 < len(pages) else {}
                save(work.rows_of(page, begun))
                begun = following
                self._report(tally, on_progress)
                if tally.is_given_up:
                    break
        return tally

    def files(self, paths: Sequence[str]) -> tuple[list[FileFound], Tally]:
        """Scan files that are not products; return the files with findings.

        The paths are absolute, in the form that Python's `open` needs.
        """
        tally, found = Tally(files=len(paths)), []
        with self._work(tally) as work:
            for at in range(0, len(paths), _PAGE):
                found += work.find_in(paths[at : at + _PAGE])
                self._report(tally)
                if tally.is_given_up:
                    break
        return found, tally

    def _report(self, tally: Tally, on_progress: OnProgress = lambda _: None) -> None:
        tally.seconds = time.monotonic() - tally.began_s
        tally.is_given_up = self._is_given_up()
        on_progress(tally)

    @contextmanager
    def _work(self, tally: Tally) -> Iterator[_Work]:
        rules = read_rules(self._place.roots)
        tally.complaints += rules.complaints
        with closing(open_reader(self._place.database)) as reader:
            known = KnownAssets(reader)
            with closing(Readers(READERS, known.extensions, self._line_limit)) as readers:
                yield _Work(self._place, reader, known, readers, rules, self._terms(known), tally, self._is_given_up)
        tally.seconds = time.monotonic() - tally.began_s

    def _terms(self, known: KnownAssets) -> str:
        """Return the settings that affect which names are found in a file: scanner version, line limit and extensions."""
        extensions = hashlib.sha256("\n".join(sorted(known.extensions)).encode()).hexdigest()[:16]
        return f"{VERSION} {self._line_limit} {extensions}"


class _Work(Struct):
    """The objects that one search uses: the project, the database, the reader processes, the rules, and the progress.

    `terms` lists the scanner version and settings (`MissingSearch._terms`). Remembered names of a file are used only if they were
    found with equal `terms`.
    """

    place: SearchedProject
    reader: Reader
    known: KnownAssets
    readers: Readers
    rules: ScanRules
    terms: str
    tally: Tally
    is_given_up: Callable[[], bool]

    # ----------------------------------------------------------------------------------------------------------- products

    def begin(self, page: Sequence[Scanned]) -> _Begun:
        """Return the remembered names of some products, or start reading them; skipped products are omitted."""
        remembered = store.read_remembered(self.reader, [each.product_id for each in page], self.terms)
        begun: _Begun = {}
        for each in page:
            if self.rules.tags_of(each.inner, is_product=True):
                continue
            digest, names = remembered.get(each.product_id, (b"", None))
            if names is not None and digest == each.digest:
                begun[each.product_id] = names
            else:
                path = os.path.join(self.place.cache_dir, os_path(cache_path(each.name)))
                begun[each.product_id] = self.readers.read(path)
        return begun

    def rows_of(self, page: Sequence[Scanned], begun: _Begun) -> Rows:
        """Return the rows of some products: the missing dependencies of each product, or the reason why it was not scanned."""
        moment = int(time.time())
        stamp = moment, f"{datetime.fromtimestamp(moment):%Y-%m-%d %H:%M:%S}"  # noqa: DTZ006  # local time, as in O3DE
        rows: Rows = {"drop_missing": [(each.product_id,) for each in page], "put_missing": [], "put_missing_scan": []}
        named: list[tuple[Scanned, ScannedFile, Names]] = []
        for each in page:
            reading = self._reading(begun.get(each.product_id))
            if reading.names is None:
                says = reading.error or f"Ignored by its file tags: {', '.join(self.rules.tags_of(each.inner, is_product=True))}"
                rows["put_missing"] += store.result_rows(each, (), says, stamp)
                continue
            named.append((each, ScannedFile(each.uuid, each.sub_id, each.inner, (each.platform,)), reading.names))
            if reading.digest:
                rows["put_missing_scan"].append(
                    (each.product_id, reading.digest, self.terms, store.pack_names(reading.names), each.name)
                )
        find_assets(self.known, [(subject, names) for _, subject, names in named])
        declared = store.read_declared(self.reader, [each.product_id for each, _, _ in named])
        for each, subject, names in named:
            hits = list(hits_of(self.known, subject, names, declared[each.product_id], self.rules))
            self._count(hits, names)
            says = store.PARTIAL if names.is_partial else "" if hits else store.NOTHING
            rows["put_missing"] += store.result_rows(each, hits, says, stamp)
        self.tally.done += len(page)
        return rows

    def _reading(self, begun: Names | Future[Reading] | None) -> Reading:
        """Return the names in a file, and count the file in the tally.

        The result has a digest only if this scan read the file. A skipped file has a result without names and without an error.
        """
        if begun is None:
            self.tally.ignored += 1
            return Reading()
        if isinstance(begun, Names):
            return Reading(names=begun)
        reading = self._await(begun)
        if reading.names is None:
            self.tally.failed += 1
            self.tally.complaints += [reading.error] if reading.is_broken else []
            return replace(reading, error=store.BROKEN if reading.is_broken else store.UNREADABLE)
        self.tally.read += 1
        return reading

    def _await(self, begun: Future[Reading]) -> Reading:
        """Wait for the result of reading a file.

        If the search is cancelled, stop waiting: the disk may never answer.
        """
        while True:
            try:
                return begun.result(_REPORT_EVERY_S)
            except TimeoutError:
                if self.is_given_up():
                    return Reading(error="the search was cancelled", is_broken=True)

    # -------------------------------------------------------------------------------------------------------------- files

    def find_in(self, paths: Sequence[str]) -> list[FileFound]:
        """Return the files that have undeclared references or cannot be read."""
        begun: dict[str, Future[Reading] | None] = {}
        for path in paths:
            is_skipped = bool(self.rules.tags_of(self._inner(path), is_product=False))
            begun[path] = None if is_skipped else self.readers.read(path)
        named: list[tuple[str, ScannedFile, Names]] = []
        found: list[FileFound] = []
        for path, future in begun.items():
            reading = self._reading(future)
            if reading.names is not None:
                named.append((path, ScannedFile(b"", 0, self._inner(path), self.known.platforms), reading.names))
            elif reading.error:
                found.append(FileFound(path, (), reading.error))
        find_assets(self.known, [(subject, names) for _, subject, names in named])
        declared = store.read_declared_by_sources(self.reader, [subject.inner for _, subject, _ in named])
        for path, subject, names in named:
            own = {target.uuid for target in self.known.of_source(subject.inner)}
            hits = tuple(
                hit for hit in hits_of(self.known, subject, names, declared[subject.inner], self.rules) if hit.uuid not in own
            )
            self._count(hits, names)
            if hits or names.is_partial:
                found.append(FileFound(path, hits, store.PARTIAL if names.is_partial else ""))
        self.tally.done += len(paths)
        return found

    def _inner(self, path: str) -> str:
        """Return the path of a file below its scan folder in lower case; for a file outside all scan folders, the whole path."""
        roots = [root for root in self.place.roots if path.startswith(f"{root}/")]
        return as_text(path[len(max(roots, key=len)) + 1 :] if roots else path.lstrip("/")).lower()

    def _count(self, hits: Sequence[MissingHit], names: Names) -> None:
        self.tally.hits += len(hits)
        self.tally.flawed += bool(hits)
        self.tally.partial += names.is_partial

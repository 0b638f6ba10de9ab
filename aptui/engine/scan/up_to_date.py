"""The up-to-date check: whether any work is pending in a project, answered without an engine for an unchanged tree.

It compares the configuration's signature, the jobs' states, the cache folders' times, and every folder of the sources with the
records of the last run. Two processes walk a tree with many folders, because most of the time goes into one `stat` for each file.
If bytes have to be compared as well, one process per core reads them: a file whose bytes have the stored SHA-256 is unchanged, even
if its times differ.

Runs that find nothing to do import this module too, so its import must be fast.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.core.fingerprint import short
from aptui.core.model import Digest, FileFact, RelPath
from aptui.core.paths import key_of, os_path
from aptui.core.project import Builder, Project
from aptui.core.run_report import OUTSIDE_STATE, OutsideFile, Stamp, outside_file
from aptui.engine.scan.walk import Below, Digests, Entry, FolderPart, Walk, digests_of, stamp_of, text_of

if TYPE_CHECKING:
    from aptui.core.messages import Rows
    from aptui.store.db.last_run import FolderArchive, LastRun

# Checks of outside files: files outside the scan folders that runs read. A check is one `stat` for each file, and a hash if the
# `stat` differs.


def are_unchanged(known: Mapping[str, OutsideFile]) -> bool:
    """Return whether size and time of all these files outside the scan folders are as recorded."""
    return all(_stamp(path) == file.stamp for path, file in known.items())


def find_changed_files(known: Mapping[str, OutsideFile], *, trusts_times: bool = True) -> tuple[tuple[str, OutsideFile], ...]:
    """Return the new state of each of these files that changed.

    With `trusts_times`, a file with an equal stamp counts as unchanged.
    """
    from aptui.worker.file_access import FileChanged, hash_file

    changed = []
    for path, before in known.items():
        stamp, read_ns = _stamp(path), time.time_ns()
        if trusts_times and stamp == before.stamp:
            continue
        try:
            digest = hash_file(os_path(path), sees_through=True)[0][0].hex() if stamp else ""
        except (OSError, FileChanged):
            continue  # leave the file out, because another process is writing it: the next check finds the change
        now = outside_file(digest, stamp, read_ns)
        if _stamp(path) == stamp and now != before:
            changed.append((path, now))
    return tuple(changed)


def _stamp(path: str) -> Stamp:
    return stamp_of(os_path(path))


_FOLDERS_FOR_TWO, _FILES_FOR_TWO = 300, 3_000
"""Minimum number of folders and of files of a tree that two processes walk.

For a smaller tree, one process is done before a second process has started.
"""
_FOLDERS_FOR_READERS = 16
_MOST_READERS = 16
"""Maximum number of processes that read files. More processes would only wait for the disk and for each other."""
_CHUNK_BYTES = 1 << 20
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_MOST_DIFFERING = 256
"""Maximum number of differing folders that the check passes to the scan.

If more folders differ, the scan walks the whole tree again, because the walk takes little time compared with the other work.
"""


class UpToDateCheck(Struct):
    """Result of the check.

    `differing`: (relative path, its real folders in all scan folders) of each changed folder. `vanished`: the stored folders that
    no longer exist. `is_of_bytes`: the bytes of the files in the unchanged folders were also compared.
    """

    unchanged: list[str] = field(default_factory=list)
    differing: list[tuple[str, list[FolderPart]]] = field(default_factory=list)
    vanished: frozenset[str] = frozenset()
    is_of_bytes: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether every folder equals its stored state."""
        return not self.differing and not self.vanished


Met = tuple[str, list[tuple[FolderPart, list[Entry]]]]
"""(relative folder, [(the folder in one scan folder, its files), ...])."""


Opens = Callable[[], AbstractContextManager["LastRun | None"]]
"""Opens the database with the stored digests of files; `nullcontext` if bytes are not compared.

The process that uses the connection opens it, because a connection must not be used across a fork.
"""


class _Comparison(Struct, frozen=True):
    """The stored state that sources are compared with."""

    digests: Digests
    opens: Opens
    files: int

    @property
    def reads(self) -> bool:
        return self.opens is not nullcontext

    @property
    def process_count(self) -> int:
        """Number of processes that compare sources with the stored state."""
        folders = len(self.digests)
        is_small = folders < _FOLDERS_FOR_READERS if self.reads else folders < _FOLDERS_FOR_TWO and self.files < _FILES_FOR_TWO
        if is_small:
            return 1
        return min(os.cpu_count() or 1, _MOST_READERS if self.reads else 2)


def signature(project: Project, builders: Sequence[Builder]) -> str:
    """Return one digest over everything in the configuration that affects jobs, including code."""
    sentences = [
        (
            item.uuid.hex(),
            item.name,
            item.version,
            item.analysis_fingerprint,
            item.code_digest.hex(),
            [pattern.text for pattern in item.patterns],
        )
        for item in builders
    ]
    is_read = project.debug_output and any(item.reads_debug_output for item in builders)
    # The names of disabled platforms are part of the signature, so that the removal of a disabled platform deletes its products.
    left_alone = [("left alone", sorted(project.resting_platforms))] if project.resting_platforms else []
    return short(repr((project.signature, project.scan_signature, sentences, is_read, *left_alone)).encode())


def check(walk: Walk, digests: Digests, opens: Opens = nullcontext, files: int = 0) -> UpToDateCheck | None:
    """Walk the sources and compare each folder with its stored digest; return None if too many folders differ (`_MOST_DIFFERING`).

    Args:
        opens: opens the database, if the bytes of files in unchanged folders also have to be compared with stored digests.
        files: approximate number of stored files.
    """
    frontier = [("", walk.roots())]
    known = _Comparison(digests, opens, files)
    check = UpToDateCheck(is_of_bytes=known.reads)
    count = known.process_count
    if count == 1:
        _compare(walk, walk.folders(frontier), known, check)
    else:
        _walk_by_many(walk, frontier, known, check, count)
    if len(check.differing) > _MOST_DIFFERING:
        return None
    check.vanished = frozenset(digests.keys() - set(check.unchanged) - {folder for folder, _parts in check.differing})
    return check


def _compare(walk: Walk, met: Iterable[Met], known: _Comparison, check: UpToDateCheck) -> None:
    with known.opens() as archive:
        for folder, entries in met:
            is_unknown = any((part.scan_folder.id, key_of(RelPath(part.rel))) in walk.unknown for part, _files in entries)
            is_same = not is_unknown and dict(known.digests.get(folder, ())) == digests_of(entries)
            if is_same and (archive is None or are_bytes_same(archive.folders, folder, entries)):
                check.unchanged.append(folder)
            else:
                check.differing.append((folder, [part for part, _files in entries]))


def are_bytes_same(archive: FolderArchive, folder: str, entries: list[tuple[FolderPart, list[Entry]]]) -> bool:
    """Return whether every file of a relative folder still has its stored digest; files without a stored digest are ignored."""
    digests: dict[tuple[int, str], Digest] = {
        (scan_folder, fact.rel): fact.digest
        for scan_folder, (_digest, facts) in archive.folder_parts(folder).items()
        for fact in facts
        if fact.digest
    }
    for part, files in entries:
        prefix, scan_folder = (f"{part.rel}/" if part.rel else ""), part.scan_folder.id
        for name, size, *_stat in files:
            digest = digests.get((scan_folder, prefix + text_of(name)))
            if digest and not has_digest(f"{part.path}/{name}", size, digest):
                return False
    return True


def has_digest(path: str, size: int, digest: Digest) -> bool:
    """Return whether the file at `path`, of `size` bytes, has this SHA-256, or is a Git LFS pointer that names it."""
    from aptui.shared.files import lfs  # imported here, because most runs compare no bytes

    try:
        with open(os.open(path, _READ_FLAGS), "rb", buffering=0) as file:
            if size >= _CHUNK_BYTES:
                return hashlib.file_digest(file, "sha256").digest() == digest
            data = file.read(size + 1)
            return len(data) == size and (hashlib.sha256(data).digest() == digest or lfs.read_pointed(data) == digest)
    except OSError:
        return False


def _walk_by_many(
    walk: Walk, frontier: list[tuple[str, list[FolderPart]]], known: _Comparison, check: UpToDateCheck, count: int
) -> None:
    """Check the top of the tree in this process, and divide the folders below among this process and child processes."""
    top: list[Met] = []
    while frontier and len(frontier) < 4 * count:
        folder, parts = frontier.pop(0)
        entries, below = walk.read_folders(parts)
        top.append((folder, entries))
        frontier.extend(sorted(below.items()))
    mine, *others = _shares(dict(frontier), known.digests, count)
    others = [share for share in others if share]
    children = [_Child(partial(_answer_share, walk, share, known)) for share in others]
    _compare(walk, chain(top, walk.folders(mine)), known, check)
    for child, share in zip(children, others, strict=True):
        _add(check, walk, child.answer(), share, known)


def _shares(below: Below, digests: Digests, count: int) -> list[list[tuple[str, list[FolderPart]]]]:
    """Split subtrees into `count` lists with about the same number of stored folders."""
    weights = dict.fromkeys(below, 1)
    for folder in digests:
        top = folder
        while top and top not in weights:
            top = top.rpartition("/")[0]
        if top:
            weights[top] += 1
    shares: list[list[tuple[str, list[FolderPart]]]] = [[] for _ in range(count)]
    sizes = [0] * count
    for folder in sorted(below, key=lambda name: (-weights[name], name)):
        lightest = sizes.index(min(sizes))
        shares[lightest].append((folder, below[folder]))
        sizes[lightest] += weights[folder]
    return shares


def _answer_share(walk: Walk, share: Sequence[tuple[str, list[FolderPart]]], known: _Comparison, parent: int) -> bytes:
    if known.reads:  # reading all files may take long, so this process ends if its parent dies
        from aptui.worker.processes import die_with_parent

        die_with_parent(parent)
    before, sentence_count = walk.files_seen, len(walk.sentences)
    check = UpToDateCheck()
    _compare(walk, walk.folders(share), known, check)
    differing = [
        (folder, [(part.scan_folder.id, part.rel, part.path, part.is_bare) for part in parts]) for folder, parts in check.differing
    ]
    return marshal.dumps(
        (check.unchanged, differing, walk.files_seen - before, walk.sentences[sentence_count:], walk.links.ways, walk.links.shared)
    )


def _add(
    check: UpToDateCheck, walk: Walk, answer: bytes, share: Sequence[tuple[str, list[FolderPart]]], known: _Comparison
) -> None:
    if not answer:  # the child process died, so this process checks the child's share of the folders
        _compare(walk, walk.folders(share), known, check)
        return
    unchanged, differing, files_seen, sentences, ways, shared = marshal.loads(answer)  # noqa: S302 - written by our child process
    check.unchanged.extend(unchanged)
    folders = {folder.id: folder for folder in walk.scan_folders}
    for folder, parts in differing:
        check.differing.append(
            (folder, [FolderPart(folders[scan_folder], rel, path, is_bare) for scan_folder, rel, path, is_bare in parts])
        )
    walk.files_seen += files_seen
    walk.sentences.extend(sentences)
    for folder_path in ways.keys() | shared.keys():
        walk.links.note(folder_path, ways.get(folder_path, {}), shared.get(folder_path, []))


class _Child:
    """A forked process that computes one answer. It is forked before any thread is started, and only reads files."""

    def __init__(self, work: Callable[[int], bytes]) -> None:
        self._read, write = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.close(self._read)
                with os.fdopen(write, "wb") as pipe:
                    pipe.write(work(parent))
                status = 0
            finally:
                os._exit(status)
        os.close(write)

    def answer(self) -> bytes:
        """Return the answer of the child, b"" if it did not finish."""
        with os.fdopen(self._read, "rb") as pipe:
            data = pipe.read()
        _pid, status = os.waitpid(self._pid, 0)
        return data if status == 0 else b""


# Which platforms are up to date with the stored sources, so that a platform can be checked without the other platforms.
#
# The signature of the last run covers all platforms of that run. If platforms are processed one by one, the database also stores
# the configuration of the last run of each platform. This stored configuration is deleted when a run of other platforms finds a
# changed input.

PLATFORMS_STATE = "platforms"
"""Key in `aptui_state` of the platforms that are up to date, as JSON: {platform: result of `platform_signature`}."""


def platform_signature(project: Project, project_dir: Path, builders: Sequence[Builder], platform: str) -> str:
    """Return one digest over everything in the configuration that affects the jobs of a platform, including code."""
    only = tuple(
        replace(item, platforms=(platform,), platform_params=tuple(each for each in item.platform_params if each[0] == platform))
        for item in builders
        if platform in item.platforms
    )
    folders = tuple(replace(folder, platforms=(platform,)) for folder in project.scan_folders if platform in folder.platforms)
    platforms = tuple(item for item in project.platforms if item.id == platform)
    from aptui.config.packing import sign_project  # imported here, because few runs need signatures of platforms

    alone = replace(project, platforms=platforms, scan_folders=folders, builders=only, resting_platforms=())
    return signature(sign_project(alone, project_dir), only)


class SettledPlatforms:
    """Tracks, while an engine runs, which platforms are up to date. A project with one platform stores nothing.

    Args:
        project: the project of this run, which processes `project.platforms` and does not process `project.resting_platforms`.
        builders: all builders, with the digests of their code.
        stored: the value of `PLATFORMS_STATE`.
    """

    def __init__(self, project: Project, project_dir: Path, builders: Sequence[Builder], stored: str | None) -> None:
        self._project, self._project_dir, self._builders = project, project_dir, builders
        self._resting = project.resting_platforms
        self._stored: dict[str, str] = json.loads(stored or "{}")

    @cached_property
    def _now(self) -> dict[str, str]:
        """Signatures of the platforms of this run, computed at the first use, which is usually after all jobs are settled."""
        ids = [platform.id for platform in self._project.platforms]
        if len(ids) + len(self._resting) < 2:
            return {}
        return {name: platform_signature(self._project, self._project_dir, self._builders, name) for name in ids}

    def include(self, platforms: Iterable[str]) -> bool:
        """Whether the products of all `platforms` are up to date with the stored sources and this configuration."""
        return all(name in self._now and self._now[name] == self._stored.get(name) for name in platforms)

    def begin(self) -> list[tuple[str, str]]:
        """Return the rows to save before a run that changes the configuration of some platforms."""
        return self._keep({name: mark for name, mark in self._stored.items() if self._now.get(name, mark) == mark})

    def end(self) -> list[tuple[str, str]]:
        """Return the rows to save when all jobs of the processed platforms are settled."""
        return self._keep({**{name: self._stored[name] for name in self._resting if name in self._stored}, **self._now})

    def note(self, rows: Rows, archive: LastRun) -> list[tuple[str, str]]:
        """Return the rows to save with `rows` so that platforms count as out of date, [] if no platform is affected.

        If `rows` change settings of a folder, all platforms become out of date, otherwise only the unprocessed platforms.
        """
        states: Iterable[tuple[str, str]] = rows.get("put_state", ())  # type: ignore[assignment]  # rows of one operation have one form
        if self._stored and ("signature", "") in states:  # the settings of a folder changed
            return self._keep({})
        if not any(name in self._stored for name in self._resting):
            return []
        is_changed = any(key.startswith(OUTSIDE_STATE) and archive.state(key) not in (None, value) for key, value in states)
        if is_changed or any(
            _is_changed(row, archive.folders) for row in (*rows.get("put_folder", ()), *rows.get("drop_folder", ()))
        ):
            return self._keep({name: mark for name, mark in self._stored.items() if name not in self._resting})
        return []

    def _keep(self, platforms: dict[str, str]) -> list[tuple[str, str]]:
        if platforms == self._stored:
            return []
        self._stored = platforms
        return [(PLATFORMS_STATE, json.dumps(platforms))]


def _is_changed(row: Sequence[object], folders: FolderArchive) -> bool:
    """Whether a row of a folder adds, removes or changes a file. A file whose bytes were never needed is not compared."""
    scan_folder, folder, *rest = row
    facts: Iterable[FileFact] = rest[1] if rest else ()  # type: ignore[assignment]  # rows of one operation have one form
    _digest, stored = folders.folder_parts(str(folder)).get(int(str(scan_folder)), (b"", ()))
    before, now = ({fact.rel: fact for fact in each} for each in (stored, facts))
    return before.keys() != now.keys() or any(
        fact.digest and (fact.digest, fact.size) != (now[name].digest, now[name].size) for name, fact in before.items()
    )

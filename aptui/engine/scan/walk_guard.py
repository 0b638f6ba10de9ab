"""The guard of the walk: a scan folder that is suddenly empty, or on another device, is unknown, not gone.

A share that is not mounted leaves an empty folder, and to call its files deleted would throw all their products away. So an
engine refuses to scan at its start, and when another folder takes the place of a scan folder: if that one is empty, if it is on
another device and lacks most entries, or if it lacks more than half of many files. If it is the very folder that it was (device
and inode, on a disk of this machine), its files were deleted: a checkout of another branch asks nothing. `accept` is how a person
says that a folder is meant as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from aptui.config.dirs import OWN_FOLDER
from aptui.core.model import FileFact
from aptui.core.paths import from_text, key_of, parent, to_text
from aptui.core.project import ScanFolder
from aptui.shared.errors import HostError
from aptui.shared.files.confinement import ConfinedTree

ROOTS_STATE = "roots"
"""The key in aptui_state: {name of a scan folder: [device, inode]} as they were when all was settled."""
MANY_FILES = 1_000
"""A folder with as many remembered files is compared file by file with the folder that took its place."""
_ACCEPTED = "accepted-folders.json"
_ACCEPTED_FILE = f"{OWN_FOLDER}/{_ACCEPTED}".encode()
_OF_FILE_SYSTEMS = frozenset((b"lost+found", b".snapshot"))
Identity = tuple[int, int]
"""(device, inode) of a folder."""


class RememberedRoots(Protocol):
    """What is asked of the folder table."""

    def folder_digests(self) -> Mapping[str, Iterable[tuple[int, bytes]]]:
        """Return {relative folder in lower case: ((scan folder id, digest), ...)}."""
        ...

    def folder_parts(self, folder: str) -> Mapping[int, tuple[bytes, Collection[FileFact]]]:
        """Return {scan folder id: (digest, its files)} of a relative folder."""
        ...


class RootGuard:
    """Asked of each scan folder before it is walked.

    Args:
        own: the folder `.aptui` of the cache, where acceptances lie.
        known: the value of `ROOTS_STATE`.
    """

    def __init__(self, own: str, known: str = "") -> None:
        self._own = own
        self._known: dict[str, Identity] = {name: (pair[0], pair[1]) for name, pair in json.loads(known or "{}").items()}
        self._trusted: dict[str, Identity] = {}

    def check(self, folder: ScanFolder, remembered: Callable[[], RememberedRoots]) -> None:
        """Return when the folder may be trusted.

        Raises:
            HostError: its files are unknown now.
        """
        now = _identity(folder.path)
        if self._trusted.get(folder.name) == now:
            return
        problem = self._problem(folder, now, remembered)
        if problem and tuple(_read_accepted(self._own).get(folder.name, ())) != now:
            hint = f"mount it again; if it is meant, 'aptui batch --accept-empty {folder.name}' says so"
            raise HostError(f"scan folder '{folder.path}' {problem}: nothing is removed", hint=hint)
        self._trusted[folder.name] = now

    def _problem(self, folder: ScanFolder, now: Identity, remembered: Callable[[], RememberedRoots]) -> str:
        names = _names(folder.path)
        known = self._trusted.get(folder.name) or self._known.get(folder.name)
        if names is None or (names and known in {None, now}):
            return ""  # where it cannot be read `walk` says so, folder by folder
        if not names and known == now and _is_local(folder.path):
            return ""
        before = _top_names(remembered(), folder.id)
        if not names:
            return f"is empty, and had {len(before)} {'entry' if len(before) == 1 else 'entries'}" if before else ""
        there = before.intersection(names)
        if known is not None and known[0] != now[0] and 2 * len(there) < len(before):
            return f"is on another device, and most of its entries are missing ({len(there)} of {len(before)})"
        count, missing = _count_missing(remembered(), folder)
        if count >= MANY_FILES and 2 * missing > count:
            return f"is another folder than before, and more than half of its files are missing ({missing} of {count})"
        return ""

    def state(self) -> str:
        """Return the value of `ROOTS_STATE` for the next engine."""
        return json.dumps(self._known | self._trusted, sort_keys=True)


def accept(own: str, folder: ScanFolder) -> None:
    """Note that a scan folder is meant as it lies there now; also an engine that runs already finds the note.

    Raises:
        HostError: the folder is not there, or the note cannot be written.
    """
    if not os.path.isdir(own):
        return  # there is no cache yet, and nothing that could be lost
    try:
        noted = _read_accepted(own) | {folder.name: _identity(folder.path)}
        with contextlib.closing(_tree_of(own)) as tree:
            tree.write(_ACCEPTED_FILE, json.dumps(noted).encode())
    except OSError as error:
        raise HostError(f"'{error.filename}' cannot be accepted: {error.strerror}", hint="check its permissions") from error


def forget_accepted(own: str) -> None:
    """What was accepted is processed: the same folder empty another day is a question again."""
    with contextlib.suppress(OSError), contextlib.closing(_tree_of(own)) as tree:
        tree.unlink(_ACCEPTED_FILE)


def _tree_of(own: str) -> ConfinedTree:
    """Return the cache of a folder `.aptui`, which may be a link in a cache that others made."""
    return ConfinedTree(os.fsencode(os.path.dirname(own)))


def _read_accepted(own: str) -> dict[str, Identity]:
    try:
        with open(os.path.join(own, _ACCEPTED), encoding="utf-8") as file:
            return {name: (pair[0], pair[1]) for name, pair in json.load(file).items()}
    except (OSError, ValueError):
        return {}


def _identity(path: str) -> Identity:
    try:
        seen = os.stat(path)
    except OSError:
        return (0, 0)
    return seen.st_dev, seen.st_ino


def _is_local(path: str) -> bool:
    """Whether a folder lies on a file system where an inode is one folder for good; servers and FUSE give numbers as they like."""
    from aptui.engine.watch import limits

    kind = limits.kind_of(os.fsencode(os.path.realpath(path)), limits.mounts(limits.mountinfo()))
    return kind in limits.NATIVE_KINDS | limits.OVERLAY_KINDS


def _names(path: str) -> frozenset[str] | None:
    """Return the keys of what lies directly in a folder, None when it cannot be read."""
    try:
        found = os.listdir(os.fsencode(path))
    except OSError:
        return None
    return frozenset(str(key_of(to_text(name))) for name in found if name not in _OF_FILE_SYSTEMS)


def _count_missing(remembered: RememberedRoots, folder: ScanFolder) -> tuple[int, int]:
    """Return how many files are remembered of a scan folder, and how many of them are not there."""
    count = missing = 0
    present: dict[str, frozenset[str]] = {}
    for below, parts in remembered.folder_digests().items():
        if not any(part == folder.id for part, _digest in parts):
            continue
        _digest, files = remembered.folder_parts(below).get(folder.id, (b"", ()))
        for fact in files:
            place = parent(fact.rel)
            if place not in present:
                present[place] = _names(f"{folder.path}/{os.fsdecode(from_text(place))}") or frozenset()
            count += 1
            missing += str(key_of(fact.rel)).rpartition("/")[2] not in present[place]
    return count, missing


def _top_names(remembered: RememberedRoots, scan_folder: int) -> frozenset[str]:
    """Return the keys of what was remembered directly in a scan folder."""
    folders = {
        folder.partition("/")[0]
        for folder, parts in remembered.folder_digests().items()
        if folder and any(part == scan_folder for part, _digest in parts)
    }
    _digest, files = remembered.folder_parts("").get(scan_folder, (b"", ()))
    return frozenset(folders | {str(key_of(fact.rel)) for fact in files})

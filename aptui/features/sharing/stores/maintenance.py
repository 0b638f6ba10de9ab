"""Maintenance of this machine's store: removes the results that were not used for the longest time, checks all bytes, counts.

The access time of a record is the last use of its result. A blob's access time is less reliable: a product may be a hard link to
it, and reading the product reads the blob. So a blob is as old as the newest record that names it, and both are removed together.

Tests: `tests/features/sharing/stores/test_maintenance.py`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from aptui.features.sharing.record import is_name
from aptui.features.sharing.seal import part_sealed
from aptui.features.sharing.stores import placing
from aptui.features.sharing.stores.folder_store import sweep
from aptui.features.sharing.stores.placing import digest_of, open_noatime
from aptui.shared.forms import prepare_form
from aptui.shared.result_store import Mismatch

GRACE_S = 600.0
"""While an engine uses the store, results used within this time (seconds) are kept: the engine may be about to place them."""
_TARGET_SHARE = 0.9
"""Share of the size limit that a cleanup leaves; without this margin every cleanup would have something to remove."""
_BATCH = 200


class StoreMaintenance(Struct):
    """Result of an action; `is_busy`: another process is cleaning up, so nothing was done."""

    records: int = 0
    blobs: int = 0
    size_bytes: int = 0
    removed: int = 0
    freed_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    is_busy: bool = False


class _Entry(Struct, frozen=True, order=True):
    """A file: `used` is the last use of its result, `touched` its last read access."""

    used: float
    is_blob: bool
    path: str
    size: int
    touched: float


class _BlobEntry(msgspec.Struct):
    digest: bytes


class _Naming(msgspec.Struct):
    """The part of a record that names blobs; lists of variants and files of other programs name none."""

    products: list[_BlobEntry] = []


def count(root: str) -> StoreMaintenance:
    """Return the amounts in the store at `root`."""
    found = StoreMaintenance()
    for entry in _entries(root):
        _add(found, entry)
    return found


def gc(root: str, limit_bytes: int, *, clock: Callable[[], float] = time.time) -> StoreMaintenance:
    """Remove the results that were not used for the longest time until the store is below `limit_bytes` (0 = no limit).

    A record is removed before its blobs: a record without its blobs is a miss.
    """
    with placing.cleaning(root) as is_ours:
        if not is_ours:
            return StoreMaintenance(is_busy=True)
        sweep(root, clock())
        entries, result = list(_entries(root)), StoreMaintenance()
        for entry in entries:
            _add(result, entry)
        if limit_bytes and result.size_bytes > limit_bytes:
            newest = clock() - (GRACE_S if placing.living(root) else 0.0)
            old = [entry for entry in _by_result(entries) if entry.used < newest]
            _shrink(root, old, int(limit_bytes * _TARGET_SHARE), result)
        return result


def verify(root: str) -> StoreMaintenance:
    """Read all files; damaged ones are removed and listed."""
    result = StoreMaintenance()
    for entry in _entries(root):
        if _is_whole(entry):
            _add(result, entry)
            continue
        result.damaged.append(os.path.relpath(entry.path, root))
        with contextlib.suppress(OSError):
            os.unlink(entry.path)
    return result


def _by_result(entries: list[_Entry]) -> list[_Entry]:
    """Return all files, those of the least recently used results first."""
    used: dict[tuple[str, str], float] = {}
    for record in sorted(entry for entry in entries if not entry.is_blob):
        used |= {(_top(record), digest): record.used for digest in _read_digests(record)}  # the newest record of a blob comes last
    return sorted(replace(entry, used=used.get((_top(entry), os.path.basename(entry.path)), entry.used)) for entry in entries)


def _top(entry: _Entry) -> str:
    """Return the folder of a file's namespace: `<top>/ac/<2 hex>/<name>`."""
    return entry.path.rsplit("/", 3)[0]


def _read_digests(record: _Entry) -> list[str]:
    """Return the digests of the blobs that a record names; a damaged record, or a file of another program, names none."""
    try:
        with open(record.path, "rb", opener=open_noatime) as file:
            return [
                blob.digest.hex() for blob in msgspec.json.decode(part_sealed(file.read())[2], type=prepare_form(_Naming)).products
            ]
    except (OSError, Mismatch, msgspec.DecodeError, RecursionError):
        return []


def _shrink(root: str, entries: list[_Entry], goal_bytes: int, result: StoreMaintenance) -> None:
    for start in range(0, len(entries), _BATCH):
        if result.size_bytes <= goal_bytes:
            return
        with placing.alone(root):
            for entry in entries[start : start + _BATCH]:
                if result.size_bytes > goal_bytes and _remove(entry):
                    _add(result, entry, -1)
                    result.removed += 1
                    result.freed_bytes += entry.size


def _remove(entry: _Entry) -> bool:
    """Remove a file unless it was used since it was listed."""
    try:
        if os.stat(entry.path, follow_symlinks=False).st_atime > entry.touched:
            return False
        os.unlink(entry.path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _is_whole(entry: _Entry) -> bool:
    try:
        if entry.is_blob:
            return digest_of(entry.path) == os.path.basename(entry.path)
        with open(entry.path, "rb", opener=open_noatime) as file:
            part_sealed(file.read())
    except FileNotFoundError:
        return True
    except (OSError, Mismatch):
        return False
    return True


def _add(total: StoreMaintenance, entry: _Entry, sign: int = 1) -> None:
    total.size_bytes += sign * entry.size
    total.blobs += sign * entry.is_blob
    total.records += sign * (not entry.is_blob)


def _entries(root: str) -> Iterator[_Entry]:
    for top in (root, *_folders(os.path.join(root, "ns"))):
        for kind in ("ac", "cas"):
            for folder in _folders(os.path.join(top, kind)):
                yield from _files(folder, is_blob=kind == "cas")


def _files(folder: str, *, is_blob: bool) -> Iterator[_Entry]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if is_name(entry.name) and entry.is_file(follow_symlinks=False):
                    state = entry.stat(follow_symlinks=False)
                    yield _Entry(state.st_atime, is_blob, entry.path, state.st_size, state.st_atime)


def _folders(path: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []

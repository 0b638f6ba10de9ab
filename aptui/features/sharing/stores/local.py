"""The store of this machine and its maintenance: results of all checkouts, placed into a cache by reflink, link or copy.

The store has the layout of `folder_store`, so `cache_server` can serve it. Blobs are read-only. If the file system cannot share
bytes (reflink), a placed product is a copy, or with `links: hard` a hard link to the blob. A blob is used without a check while its
size and times, including the inode's change time, equal the values at the last check. Otherwise the blob's bytes are checked, and a
changed blob is removed.

Records have a seal of this machine (`here`), made with a secret in the store. Records that other machines have uploaded need a
trusted seal of the team.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from aptui.features.sharing import record
from aptui.features.sharing.record import Seal, is_name, part_sealed
from aptui.features.sharing.stores import placing
from aptui.features.sharing.stores.folder_store import FolderStore, sweep
from aptui.features.sharing.stores.placing import digest_of, name_errors, open_noatime, read_verified, share_with_gc, write_verified
from aptui.shared.errors import HostError
from aptui.shared.forms import prepare_form
from aptui.shared.result_store import Mismatch

# Maintenance of this machine's store removes the least recently used results, checks the bytes of all files, and counts files.
#
# The access time of a record is the last use of its result. The access time of a blob is less reliable, because a product may be a
# hard link to the blob, and reading this product changes the access time. So the last use of a blob is that of the most recently
# used record that names the blob, and both files are removed together.

GRACE_S = 600.0
"""While an engine uses the store, a cleanup removes only results that were not used for this time (seconds).

The engine may still be placing results that were used more recently.
"""
_TARGET_SHARE = 0.9
"""Target of a cleanup, as a share of the size limit. Without this margin, the store would be full again at once."""
_GROWTH_SHARE = 0.1
"""Growth after which a cleanup is due, as a share of the size limit."""
_BATCH = 200
"""Number of files that a cleanup removes each time that it holds the exclusive lock."""


class StoreMaintenance(Struct):
    """Result of a maintenance action: numbers and size of the files in the store, and of the removed files.

    `damaged` are paths below the store. `is_busy`: another process is cleaning up, so nothing was done.
    """

    records: int = 0
    blobs: int = 0
    size_bytes: int = 0
    removed: int = 0
    freed_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    is_busy: bool = False


class _Entry(Struct, frozen=True, order=True):
    """A file of the store: `used` is the last use of its result, `touched` the last read access, `size` the bytes on the disk."""

    used: float
    is_blob: bool
    path: str
    size: int
    touched: float


class _BlobEntry(msgspec.Struct):
    digest: bytes


class _NamedBlobs(msgspec.Struct):
    """The part of a record that lists the digests of its blobs. Other files, for example lists of variants, do not name blobs."""

    products: list[_BlobEntry] = []


def count(root: str) -> StoreMaintenance:
    """Count the files and bytes in the store at `root`."""
    found = StoreMaintenance()
    for entry in _entries(root):
        _add(found, entry)
    return found


def gc(root: str, limit_bytes: int, *, clock: Callable[[], float] = time.time) -> StoreMaintenance:
    """Remove the results that were not used for the longest time until the store is below `limit_bytes` (0 = no limit).

    A record is removed before its blobs. If the cleanup is interrupted, a record without blobs counts as a miss.
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
        with open(os.path.join(root, _GROWN), "wb") as file:
            file.write(b"0")
        return result


_BLOCK_BYTES = 4096
"""Size of a block of most file systems. Counting a block is faster than reading the space that each added file occupies."""
_GROWN = "grown"
"""Name of the file with the number of bytes that were added since the last cleanup."""


def needs_cleanup(root: str, added: Iterable[int], limit_bytes: int) -> bool:
    """Count files that were added to the store at `root`; return whether a cleanup (`gc`) is due. Errors are ignored.

    Args:
        added: sizes of the added files. As in a cleanup, a file occupies whole blocks.
    """
    if not limit_bytes:
        return False
    added_bytes = sum(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES for size in added)
    with contextlib.suppress(OSError), open(os.path.join(root, _GROWN), "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read(20)
        grown_bytes = (int(text) if text.isdigit() else limit_bytes) + added_bytes  # no number: the store was never cleaned
        if added_bytes:
            file.truncate(0)
            file.write(b"%d" % grown_bytes)
        return grown_bytes > limit_bytes * _GROWTH_SHARE
    return False


def verify(root: str) -> StoreMaintenance:
    """Read all files; remove and list the damaged files."""
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
    """Return all files, sorted by the last use of their results, the least recently used first."""
    used: dict[tuple[str, str], float] = {}
    for newer in sorted(entry for entry in entries if not entry.is_blob):
        # Records that were used later come later in the loop, so the last record that names a blob determines the blob's last use.
        used |= {(_top(newer), digest): newer.used for digest in _read_digests(newer)}
    return sorted(replace(entry, used=used.get((_top(entry), os.path.basename(entry.path)), entry.used)) for entry in entries)


def _top(entry: _Entry) -> str:
    """Return the folder of a file's namespace: `<top>` in the path `<top>/ac/<2 hex>/<name>`."""
    return entry.path.rsplit("/", 3)[0]


def _read_digests(record: _Entry) -> list[str]:
    """Return the digests of the blobs that a record names; a damaged record or a file of another program names no blobs."""
    try:
        with open(record.path, "rb", opener=open_noatime) as file:
            return [
                blob.digest.hex()
                for blob in msgspec.json.decode(part_sealed(file.read())[2], type=prepare_form(_NamedBlobs)).products
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
    """Remove a file unless it was read after it was listed."""
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
                    size = max(state.st_size, 512 * state.st_blocks)  # a file of a few bytes occupies a whole block
                    yield _Entry(state.st_atime, is_blob, entry.path, size, state.st_atime)


def _folders(path: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


_SECRET_BYTES = 32
"""Length of the secret with which this machine seals records."""
_HERE = "here"
"""Name of the field of a sealed record that has the seal of this machine."""


class LocalStore(FolderStore):
    """One namespace of this machine's store; it links blobs if possible.

    Args:
        root: folder of the store; it is created with access for this user only.
        trust: namespace and keys; records of other writers need a seal with these keys.
        links: allow products that are hard links to blobs; writing into one of them changes all products of that blob.
        origins: addresses of other stores; results that were fetched from them are trusted like results that were made here.
        origin: address of the store from which the written results were fetched, "" = they were made here. This machine's seal of
            a record covers this address. A project without keys uses only results that were made here or fetched from `origins`.

    Raises:
        HostError: the folder cannot be made or used.
    """

    def __init__(
        self,
        root: str,
        trust: Seal,
        *,
        links: bool = False,
        origins: Iterable[str] = (),
        origin: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trust = trust
        self._links = links
        self._origin, self._origins = origin, {"", *origins}
        self._clock = clock
        self._secret = _read_secret(root)
        super().__init__(root, trust.namespace, syncs=False)

    def get_record(self, key: str) -> bytes | None:
        """Return a record that this machine wrote or that has a trusted seal, or None if no trusted record exists."""
        data = super().get_record(key)
        if data is None or not self._is_trusted(data):
            return None
        self._note_use(self.record_path(key))
        return data

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """Publish a record. An untrusted record at `key` counts as absent and is replaced."""
        _, _, body = record.part_sealed(data)
        ours = record.with_field(data, _HERE, self._seal_here(data, body, self._origin))
        with name_errors(self.address), share_with_gc(self.address):
            if super().put_record(key, ours, if_absent=if_absent):
                return True
            return self.get_record(key) is None and super().put_record(key, ours, if_absent=False)

    def drop_record(self, key: str) -> None:
        """Remove a record whose result cannot be used."""
        with contextlib.suppress(OSError):
            os.unlink(self.record_path(key))

    def get_blob(self, digest: str, target: str, size: int, *, is_executable: bool = False) -> bool:
        """Place a blob at the new file `target` by reflink, link or copy. The bytes of `target` match the digest.

        Hard links share a mode. So if only one of blob and product is executable, the product is a copy.

        Raises:
            Mismatch: the blob was changed; it is removed from the store.
        """
        path = self.blob_path(digest)
        with name_errors(self.address):
            try:
                checked = os.stat(path, follow_symlinks=False)
                if not self._is_sound(path, digest):
                    self._remove_damaged(path, digest)
                if checked.st_size != size:
                    raise Mismatch(f"stored file {digest} does not have {size} bytes", where=self.address)
                self._put_at(path, target, is_executable=is_executable)
                self._note_use_of_blob(path, checked)
            except FileNotFoundError:
                return False
            return True

    def put_blob(self, digest: str, source: str, *, replaces: bool = False) -> None:
        """Store a file by reflink, link or copy. After a hard link, `source` and the blob are the same read-only file.

        Raises:
            Mismatch: the file has another digest now.
        """
        path = self.blob_path(digest)
        with name_errors(self.address), share_with_gc(self.address):
            with contextlib.suppress(FileNotFoundError):
                if not replaces and self._is_sound(path, digest):
                    self._note_use(path)
                    return
            self._adopt(source, path, digest)

    def _adopt(self, source: str, path: str, digest: str) -> None:
        written = self.temporary()
        try:
            if placing.reflink(source, written) or (self._links and _is_ours(source) and placing.link(source, written)):
                if digest_of(written) != digest:
                    raise Mismatch(f"'{source}' changed after it was made, so it is not shared")
            else:
                write_verified(read_verified(source, digest), written, digest, os.stat(source).st_size)
            placing.remember(written)
            placing.make_read_only(written)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(written, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(written)  # rename(2) does not remove `written` if the blob is already a hard link to it

    def _put_at(self, path: str, target: str, *, is_executable: bool) -> None:
        if not placing.reflink(path, target):
            may_link = self._links and placing.is_executable(os.stat(path)) == is_executable
            if may_link and placing.link(path, target):
                return
            placing.copy(path, target)
        if is_executable:
            placing.make_executable(target)

    def _is_sound(self, path: str, digest: str) -> bool:
        if placing.is_remembered(path, os.stat(path, follow_symlinks=False)):
            return True
        if digest_of(path) != digest:
            return False
        _remember_again(path)
        return True

    def _remove_damaged(self, path: str, digest: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)
        what = f"stored file {digest} was changed, perhaps through a product that is a link to it; it was deleted"
        raise Mismatch(what, where=self.address)

    def _note_use(self, path: str) -> None:
        """Set the access time of a file, which records the file's last use.

        Keep its modification time, which `placing.is_remembered` compares.
        """
        with contextlib.suppress(OSError):
            state = os.stat(path)
            os.utime(path, ns=(int(self._clock() * 1e9), state.st_mtime_ns))

    def _note_use_of_blob(self, path: str, checked: os.stat_result) -> None:
        """Record the use of a blob.

        This changes the inode's change time, which would make the stored note "the blob was checked" invalid. So the note is
        written again, unless the blob has changed since `checked`, its status at the last check.
        """
        state = os.stat(path)
        is_same = (state.st_size, state.st_mtime_ns) == (checked.st_size, checked.st_mtime_ns)
        is_ours = (
            state.st_ctime_ns == checked.st_ctime_ns or placing.is_remembered(path, state) or state.st_nlink > checked.st_nlink
        )
        self._note_use(path)
        if is_same and is_ours:
            _remember_again(path)

    def _is_trusted(self, data: bytes) -> bool:
        try:
            _, fields, body = record.part_sealed(data)
            here = fields.get(_HERE, "")
            if any(hmac.compare_digest(here, self._seal_here(data, body, origin)) for origin in self._origins):
                return True
            if self._trust.is_open:
                return False
            self._trust.open_sealed(data)
        except Mismatch:
            return False
        return True

    def _seal_here(self, data: bytes, body: bytes, origin: str) -> str:
        kind = data[:64].split(b" ")[1]
        return hmac.new(self._secret, b"\0".join((self._trust.policy, origin.encode(), kind, body)), hashlib.sha256).hexdigest()


def _read_secret(root: str) -> bytes:
    """Return the secret of the store at `root`; create the store and the secret if they do not exist."""
    path = os.path.join(root, "secret")
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        if os.stat(root).st_uid != os.geteuid():
            raise HostError("the store of this machine belongs to another user", where=root)
        _make_secret(root, path)
        with open(path, "rb") as file:
            secret = file.read()
    except OSError as error:
        raise HostError(f"the store of this machine cannot be used: {error.strerror}", where=root) from None
    if len(secret) != _SECRET_BYTES:
        raise HostError(
            "the file with the secret of the store is damaged",
            where=path,
            hint="remove the file; results in the store are then made again",
        )
    return secret


def _make_secret(root: str, path: str) -> None:
    """Write the secret if it does not exist; other processes see it only when it is complete."""
    if os.path.exists(path):
        return
    written = os.path.join(root, f".secret-{secrets.token_hex(8)}")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(_SECRET_BYTES))
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(written, path)
    finally:
        os.close(descriptor)
        os.unlink(written)


def _is_ours(path: str) -> bool:
    """Whether the file may become a blob: it must be a regular file of this user."""
    state = os.stat(path, follow_symlinks=False)
    return state.st_uid == os.geteuid() and state.st_mode & 0o170000 == 0o100000


def _remember_again(path: str) -> None:
    """Write the note "the file was checked" for a read-only file.

    The note is an extended attribute, so the file is made writable for a moment.
    """
    mode = os.stat(path).st_mode & 0o7777
    with contextlib.suppress(OSError):
        os.chmod(path, mode | 0o200)
        placing.remember(path)
        os.chmod(path, mode)

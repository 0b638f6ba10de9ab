"""Packs the facts about the files of one folder (sizes, times, digests) into one blob.

Layout, in this order:

* head: format, number of files, number of bytes of the names;
* names in UTF-8, joined by NUL: first the folder in its real case, then the files;
* columns of 64 bits: sizes, mtimes, ctimes, inodes, XXH64;
* one byte for each file: whether its digest is known;
* the known digests.

Numbers are little-endian, so that a cache can be copied to any machine. All values of one field are stored together, because one
call of `struct` then packs them all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from aptui.core.model import NO_DIGEST, Digest, FileFact, RelPath
from aptui.shared.errors import InternalError

_FORMAT = 1
_HEAD = struct.Struct("<BII")
_SIGNED, _UNSIGNED = struct.Struct("<q"), struct.Struct("<Q")
_DIGEST_BYTES = 32


def pack_files(files: Sequence[FileFact]) -> bytes:
    """Return the blob of files of one relative folder of one scan folder."""
    folder = files[0].rel.rpartition("/")[0] if files else ""
    names = [folder, *(_name_in(fact.rel, folder) for fact in files)]
    text = "\0".join(names).encode()
    count = len(files)
    columns = struct.pack(
        f"<{3 * count}q{2 * count}Q",
        *[fact.size for fact in files],
        *[fact.mtime_ns for fact in files],
        *[fact.ctime_ns for fact in files],
        *[fact.inode for fact in files],
        *[fact.hash64 for fact in files],
    )
    mask = bytes([len(fact.digest) == _DIGEST_BYTES for fact in files])
    digests = b"".join([fact.digest for fact in files])
    if len(digests) != _DIGEST_BYTES * sum(mask):
        raise InternalError(f"a digest of a file in '{folder}' is neither empty nor {_DIGEST_BYTES} bytes long")
    return b"".join((_HEAD.pack(_FORMAT, count, len(text)), text, columns, mask, digests))


def unpack_files(data: bytes, scan_folder_id: int) -> list[FileFact]:
    """Return the files that `pack_files` packed, in their order."""
    count, at, text = _read_names(data)
    folder, *names = text.split("\0")
    columns = struct.unpack_from(f"<{3 * count}q{2 * count}Q", data, at)
    mask_at = at + 40 * count
    digests = _digests(data, mask_at, count)
    prefix = f"{folder}/" if folder else ""
    rels = [RelPath(name[1:] if name[0] == "/" else prefix + name) for name in names]
    sizes, mtimes, ctimes, inodes, hashes = (columns[part * count : (part + 1) * count] for part in range(5))
    return list(map(FileFact, (scan_folder_id,) * count, rels, sizes, mtimes, ctimes, inodes, digests, hashes))


def find_files(data: bytes, scan_folder_id: int, key: str) -> list[FileFact]:
    """Return the files of a packed folder whose path in lower case is `key`; other files are not unpacked."""
    count, at, text = _read_names(data)
    lower = f"{text.lower()}\0"
    places = sorted(place for name in (key.rpartition("/")[2], f"/{key}") for place in _places(lower, f"\0{name}\0"))
    if not places:
        return []
    folder, *names = text.split("\0")
    prefix = f"{folder}/" if folder else ""
    return [_file_at(data, at, count, place, scan_folder_id, prefix, names[place]) for place in places]


def _read_names(data: bytes) -> tuple[int, int, str]:
    """Return (number of files, index of the first column, the names joined by NUL) of a packed folder."""
    form, count, text_size = _HEAD.unpack_from(data)
    if form != _FORMAT:
        raise InternalError(f"a folder in the asset database has the unknown format {form}")
    at = _HEAD.size + text_size
    return count, at, data[_HEAD.size : at].decode()


def _places(names: str, wanted: str) -> Iterator[int]:
    """Yield the index of each file name in `names` that equals the name in `wanted`.

    `names` has the folder and then the file names, with a NUL after each of them; `wanted` is one name, enclosed in NULs.
    """
    at = names.find(wanted)
    while at >= 0:
        yield names.count("\0", 0, at)
        at = names.find(wanted, at + 1)


def _file_at(data: bytes, at: int, count: int, place: int, scan_folder_id: int, prefix: str, name: str) -> FileFact:
    size, mtime_ns, ctime_ns = (_SIGNED.unpack_from(data, at + 8 * (part * count + place))[0] for part in range(3))
    inode, hash64 = (_UNSIGNED.unpack_from(data, at + 8 * (part * count + place))[0] for part in (3, 4))
    mask_at = at + 40 * count
    digest_at = mask_at + count + _DIGEST_BYTES * sum(data[mask_at : mask_at + place])
    digest = Digest(data[digest_at : digest_at + _DIGEST_BYTES]) if data[mask_at + place] else NO_DIGEST
    rel = RelPath(name[1:] if name[0] == "/" else prefix + name)
    return FileFact(scan_folder_id, rel, size, mtime_ns, ctime_ns, inode, digest, hash64)


def _name_in(rel: str, folder: str) -> str:
    """Return the file's name; if its folder has another case than the first file's folder, return "/" and the whole path."""
    parent, _, name = rel.rpartition("/")
    return name if parent == folder else f"/{rel}"


def _digests(data: bytes, mask_at: int, count: int) -> list[Digest]:
    digests: list[Digest] = []
    at = mask_at + count
    for is_known in data[mask_at:at]:
        digests.append(Digest(data[at : at + _DIGEST_BYTES]) if is_known else NO_DIGEST)
        at += _DIGEST_BYTES if is_known else 0
    return digests

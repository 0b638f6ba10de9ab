"""Identities of sources: each has a UUID from its `.meta` file, or else from its path. No file is read here."""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from uuid import UUID

from aptui.core.model import Digest, PathKey, RelPath, Source, SourceIdentity, SourceUuid
from aptui.core.paths import from_text, name_uuid, path_uuid
from aptui.core.project import COMMON_PREFIX

META_SUFFIX = ".meta"
"""Suffix of identity files. The name of an identity file is the name of its source with this suffix."""
FILE_VERSION = 1
"""Version of the format of identity files, as O3DE writes it."""

_NOT_IN_PREFIXES = re.compile(r"[^a-z0-9._-]")

REMOVED_SOURCE_STATE = "departed:"
"""Prefix of keys in `aptui_state` of sources that were removed without their identity file.

The UUID (hex) follows; the value is "SHA-256 (hex) relative path", or "" after the source has come back.
"""


def owner_of(key: PathKey) -> PathKey | None:
    """Return the key of the source that the identity file `key` belongs to, None if `key` is not an identity file."""
    return PathKey(key[: -len(META_SUFFIX)]) if key.endswith(META_SUFFIX) else None


@lru_cache(maxsize=256)
def path_uuids(rel: RelPath) -> tuple[SourceUuid, ...]:
    """Return the UUIDs of a path: the UUID of the path in lower case, and a second UUID if the path has capital letters.

    The result is cached, because the creation of a source needs these UUIDs several times.
    """
    plain = path_uuid(rel)
    return (plain,) if rel == rel.lower() else (plain, SourceUuid(name_uuid(from_text(rel))))


def legacy_of(source: Source) -> tuple[SourceUuid, ...]:
    """Return the additional UUIDs by which other sources may name a source.

    These are its earlier UUIDs, the UUIDs of its path, and a UUID that it claims but cannot have.
    """
    named = source.identity
    claimed = () if named is None or named.problem else (named.uuid, *named.legacy)
    others = (*claimed, *(() if source.is_duplicate else path_uuids(source.rel)))
    return tuple(dict.fromkeys(uuid for uuid in others if uuid != source.uuid))


def names_of(source: Source) -> tuple[str, ...]:
    """Return the texts by which dependencies may name a source: its key, and each of its UUIDs as 32 hex digits."""
    return (source.key, *(uuid.hex() for uuid in (source.uuid, *legacy_of(source))))


def intermediate_uuid(source: Source, builder: bytes, sub_id: int, rel: RelPath) -> SourceUuid:
    """Return the UUID of the intermediate `rel` that `builder` makes from `source`.

    If `source` has the UUID of its path, the intermediate gets the UUID of its own path. Otherwise its UUID is derived from the
    UUID of `source`, the builder and `sub_id`.
    """
    if source.uuid == path_uuids(source.rel)[0]:
        return path_uuids(rel)[0]
    return SourceUuid(name_uuid(f"{format_braced(source.uuid)}:{format_braced(builder)}:{sub_id}".encode()))


def find_identified(name: str) -> str:
    """Return the name of the intermediate product that the identity file `name` describes, "" if `name` is not an identity file."""
    return name.removesuffix(META_SUFFIX) if name.startswith(COMMON_PREFIX) and name.endswith(META_SUFFIX) else ""


def render_new(identity: SourceIdentity) -> bytes:
    """Return a new identity file in O3DE's format, b"" if JSON cannot hold the source's name."""
    uuid = {
        "__version": 0,
        "uuid": format_braced(identity.uuid),
        "legacyUuids": [format_braced(legacy) for legacy in identity.legacy],
        "originalPath": identity.original,
        "creationUnixEpochMS": identity.created_ms,
    }
    try:
        return json.dumps({"FileVersion": FILE_VERSION, "UUID": uuid}, indent=4, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return b""


def duplicate_uuid(scan_folder: str, rel: RelPath) -> SourceUuid:
    """Return the UUID of a source with a duplicate path and no identity file; it depends on the path and the scan folder."""
    return SourceUuid(name_uuid(from_text(f"{scan_folder}:{rel}".lower())))


def duplicate_prefix(scan_folder: str) -> str:
    """Return the prefix of product names of a source with a duplicate path.

    The prefix does not depend on the id of the scan folder.
    """
    plain = _NOT_IN_PREFIXES.sub("_", scan_folder.lower())
    changed = f"-{hashlib.sha256(scan_folder.lower().encode()).hexdigest()[:6]}" if plain != scan_folder.lower() else ""
    return f"({plain}{changed})"


def make_contested_uuid(key: PathKey) -> SourceUuid:
    """Return a substitute UUID for a source whose own UUID is invalid, or belongs to another source."""
    return SourceUuid(name_uuid(from_text(f"contested:{key}")))


def pack(identity: SourceIdentity | None) -> str:
    """Return an identity as the text that the database stores, "" for None."""
    if identity is None:
        return ""
    legacy = [uuid.hex() for uuid in identity.legacy]
    return json.dumps(
        [identity.uuid.hex(), legacy, identity.original, identity.created_ms, identity.digest.hex(), identity.problem],
        separators=(",", ":"),
    )


def unpack(text: str) -> SourceIdentity | None:
    """Return the identity that `pack` packed, None for ""."""
    if not text:
        return None
    uuid, legacy, original, created_ms, digest, problem = json.loads(text)
    return SourceIdentity(
        SourceUuid(bytes.fromhex(uuid)),
        tuple(SourceUuid(bytes.fromhex(item)) for item in legacy),
        original,
        created_ms,
        Digest(bytes.fromhex(digest)),
        problem,
    )


def format_braced(uuid: bytes) -> str:
    """Return 16 big-endian bytes as `{UPPER-CASE}` with braces."""
    return f"{{{str(UUID(bytes=uuid)).upper()}}}"

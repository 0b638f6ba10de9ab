"""Seals of records: a checksum, the team's key and a writer's signature; readers open only what they trust.

A sealed record is one line of text and the record's bytes:

    aptui-shared/1 <kind> sha256=<hex> [mac=<hex>] [by=<public key> sig=<hex>] [here=<hex>]

Every seal covers kind and namespace, so that a record written to one namespace does not open in another. It is checked before
the record is parsed. `here` is the seal of one machine's own store (`local`).

Tests: `tests/features/sharing/test_record.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets

from msgspec import Struct

from aptui.shared.errors import UserError
from aptui.shared.result_store import Mismatch

TRUSTED = "trusted"
"""The namespace that all machines read; results in other namespaces are read only by their writers."""
MAX_RECORD_BYTES = 16 * 1024 * 1024
"""Maximum length of a record."""
_MAGIC = b"aptui-shared/1"
_MAX_LINE_BYTES = 1024
_FIELD = re.compile("(?:[0-9a-f]{64}){1,2}")
_SHORTEST_KEY_BYTES = 16
_LONGEST_KEY_BYTES = 4096


class Seal(Struct, frozen=True):
    """How this machine seals records, and which seals it requires of others' records.

    Args:
        namespace: namespace of the results.
        team_key: secret of the team; if set, records need its MAC.
        signing_key: private ed25519 key (32 bytes) of a writer.
        writers: public ed25519 keys (32 bytes); if set, records need a signature of one of them.
    """

    namespace: str = TRUSTED
    team_key: bytes = b""
    signing_key: bytes = b""
    writers: tuple[bytes, ...] = ()

    def seal_body(self, kind: str, body: bytes) -> bytes:
        """Return a record in sealed form."""
        fields = [f"sha256={hashlib.sha256(body).hexdigest()}"]
        if self.team_key:
            fields.append(f"mac={self._mac(kind, body)}")
        if self.signing_key:
            public, signature = _sign(self.signing_key, self._list_covered(kind, body))
            fields.append(f"by={public.hex()} sig={signature.hex()}")
        return b"%s %s %s\n%s" % (_MAGIC, kind.encode(), " ".join(fields).encode(), body)

    def open_sealed(self, data: bytes) -> tuple[str, bytes]:
        """Return a record's kind and bytes.

        Raises:
            Mismatch: it is damaged, or has no trusted seal.
        """
        kind, fields, body = part_sealed(data)
        if self.team_key and not hmac.compare_digest(fields.get("mac", ""), self._mac(kind, body)):
            raise Mismatch("the record is not sealed with the team's key")
        if self.writers and not self._is_signed(kind, fields, body):
            raise Mismatch("the record is not signed by a configured writer")
        return kind, body

    @property
    def is_open(self) -> bool:
        """Whether all records are trusted: neither a team key nor writers are set."""
        return not self.team_key and not self.writers

    @property
    def policy(self) -> bytes:
        """Digest of the namespace and the keys; projects with equal digests may share their local results."""
        parts = (self.namespace.encode(), hashlib.sha256(self.team_key).digest() if self.team_key else b"", *sorted(self.writers))
        return hashlib.sha256(b"\0".join(parts)).digest()

    def _list_covered(self, kind: str, body: bytes) -> bytes:
        return b"\0".join((_MAGIC, self.namespace.encode(), kind.encode(), body))

    def _mac(self, kind: str, body: bytes) -> str:
        return hmac.new(self.team_key, self._list_covered(kind, body), hashlib.sha256).hexdigest()

    def _is_signed(self, kind: str, fields: dict[str, str], body: bytes) -> bool:
        public = bytes.fromhex(fields.get("by", ""))
        return public in self.writers and _is_signature(
            public, bytes.fromhex(fields.get("sig", "")), self._list_covered(kind, body)
        )


def part_sealed(data: bytes) -> tuple[str, dict[str, str], bytes]:
    """Return kind, fields and bytes of a sealed record with the right checksum; its writer is not checked.

    Raises:
        Mismatch: it is not a record, too long, or damaged.
    """
    if len(data) > MAX_RECORD_BYTES:
        raise Mismatch(f"the record is longer than {MAX_RECORD_BYTES} bytes")
    end = data.find(b"\n", 0, _MAX_LINE_BYTES)
    words = data[: max(end, 0)].decode("ascii", "replace").split(" ")
    fields = dict(word.partition("=")[::2] for word in words[2:])
    if words[0] != _MAGIC.decode() or len(words) < 3 or not all(_FIELD.fullmatch(value) for value in fields.values()):
        raise Mismatch("this is not a record of a result")
    body = data[end + 1 :]
    if fields.get("sha256") != hashlib.sha256(body).hexdigest():
        raise Mismatch("the record is damaged")
    return words[1], fields, body


def with_field(data: bytes, name: str, value: str) -> bytes:
    """Return a sealed record with this field added or replaced."""
    line, _, body = data.partition(b"\n")
    remaining = [word for word in line.decode("ascii").split(" ") if not word.startswith(f"{name}=")]
    return " ".join([*remaining, f"{name}={value}"] if value else remaining).encode() + b"\n" + body


def read_key(path: str) -> bytes:
    """Return the secret in a file without surrounding white space.

    Raises:
        UserError: it cannot be read, has a wrong length, or other users can read it.
    """
    try:
        with open(path, "rb") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(_LONGEST_KEY_BYTES + 1).strip()
    except OSError as error:
        raise UserError(f"the key cannot be read: {error.strerror}", where=path) from None
    if not _SHORTEST_KEY_BYTES <= len(text) <= _LONGEST_KEY_BYTES:
        raise UserError(f"a key has {_SHORTEST_KEY_BYTES} to {_LONGEST_KEY_BYTES} bytes, this one {len(text)}", where=path)
    if mode & 0o077:
        raise UserError("other users can read the key", where=path, hint=f"chmod 600 '{path}'")
    return text


def make_key(path: str) -> bool:
    """Make a secret file at `path` that only this user can read; return False if the file exists.

    Raises:
        UserError: it cannot be written.
    """
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise UserError(f"the key cannot be written: {error.strerror}", where=path) from None
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{secrets.token_hex(32)}\n")
        file.flush()
        os.fsync(file.fileno())
    return True


def _sign(private: bytes, data: bytes) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(private)
    return key.public_key().public_bytes_raw(), key.sign(data)


def _is_signature(public: bytes, signature: bytes, data: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True

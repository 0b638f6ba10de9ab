"""Tokens of clients: a file of the user's that holds their digests, names and scopes.

A token itself is shown once, when it is made.

Tests: `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from aptui.features.gateway.protocol.wire_codec import Scope
from aptui.link import places
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.shared.files.replacing import PRIVATE, replace_bytes

FILE = "tokens.json"
LOCAL = "local"
"""Name of the token that a gateway makes for the user who started it."""
_BYTES = 32


class Token(Struct, frozen=True):
    """A token as it is kept; `digest` is SHA-256 in hex: 256 random bits need no slow one. `expires_ms` is 0 for one that lasts."""

    name: str
    digest: str
    scopes: frozenset[Scope]
    created_ms: int = 0
    expires_ms: int = 0

    @property
    def is_over(self) -> bool:
        """Whether its time is up."""
        return 0 < self.expires_ms <= now_ms()


def now_ms() -> int:
    """Return the time of day, in ms since 1970."""
    return time.time_ns() // 1_000_000


def fresh() -> str:
    """Return a new token: 256 bits, in letters that fit into a URL, a header and a command line, where `-` begins an option."""
    while (token := secrets.token_urlsafe(_BYTES)).startswith("-"):
        pass
    return token


def digest_of(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def path() -> Path:
    """Return where the tokens of this user are kept."""
    return places.state_dir() / FILE


class Tokens:
    """Who has which token, as the file and the clock say now: one that is revoked, or over, opens nothing from that moment.

    Args:
        file: what `path` returns.
        local: a token that is in no file, with every scope; "" = none.
    """

    def __init__(self, file: Path, local: str = "") -> None:
        self._file = file
        self._own = [Token(LOCAL, digest_of(local), frozenset(Scope))] if local else []
        self._tokens: tuple[Token, ...] = ()
        self._stamp: tuple[int, int, int] | None = None

    def owner_of(self, token: str) -> Token | None:
        """Return whose token this is; how long that takes says nothing about how much of it is right."""
        digest, found = digest_of(token), None
        for each in (*self._own, *self.read_current()):
            if hmac.compare_digest(each.digest, digest) and not each.is_over:
                found = each
        return found

    def knows(self, digest: str, scopes: Collection[Scope]) -> bool:
        """Whether that very token is still there and not over, with all those scopes; another one of its name is another."""
        there = (*self._own, *self.read_current())
        return any(each.digest == digest and each.scopes >= set(scopes) and not each.is_over for each in there)

    def read_current(self) -> tuple[Token, ...]:
        """Return the tokens in the file; one that others may read counts as none."""
        stamp = _stamp(self._file)
        if stamp != self._stamp:
            self._stamp, self._tokens = stamp, ()
            with suppress(KnownError):
                self._tokens = tuple(read(self._file))
        return self._tokens


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read(file: Path) -> list[Token]:
    """Return the tokens that a file keeps.

    Raises:
        HostError: it is not readable, or open to others. UserError: it is no such file.
    """
    try:
        with open(file, "rb") as stream:
            found = os.fstat(stream.fileno())
            data = stream.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HostError(f"'{file}' cannot be read: {error.strerror}", hint="check its permissions") from error
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise HostError(f"'{file}' is open to others", hint=f"chmod 600 '{file}', and revoke what may have been read")
    try:
        return [
            Token(
                each["name"],
                each["digest"],
                frozenset(map(Scope, each["scopes"])),
                int(each.get("created_ms", 0)),
                int(each.get("expires_ms", 0)),
            )
            for each in json.loads(data)["tokens"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"'{file}' is no list of tokens", hint="remove it, and make the tokens again") from error


def add(file: Path, name: str, scopes: Collection[Scope], *, lasts_ms: int = 0) -> str:
    """Make a token, keep its digest, and return it.

    Args:
        lasts_ms: how long it opens anything; 0 = until it is revoked.

    Raises:
        UserError: there is one of that name. HostError: the file cannot be written.
    """
    if not name or name == LOCAL or not name.isprintable():
        raise UserError(f"'{name}' cannot be the name of a token", hint="take letters, digits, '-' and '_'")
    token = fresh()
    with _changing(file) as tokens:
        if any(each.name == name for each in tokens):
            raise UserError(f"there is a token '{name}' already", hint=f"'aptui token revoke {name}' ends it")
        now = now_ms()
        tokens.append(Token(name, digest_of(token), frozenset(scopes), now, now + lasts_ms if lasts_ms else 0))
    return token


def revoke(file: Path, name: str) -> None:
    """Forget a token.

    Raises:
        UserError: there is none of that name. HostError: the file cannot be written.
    """
    with _changing(file) as tokens:
        left = [each for each in tokens if each.name != name]
        if len(left) == len(tokens):
            names = ", ".join(f"'{each.name}'" for each in tokens)
            raise UserError(f"there is no token '{name}'", hint=f"there are {names}" if names else "there are none")
        tokens[:] = left


@contextmanager
def _changing(file: Path) -> Iterator[list[Token]]:
    """Give the tokens out to be changed and write them back, one process at a time, whole or not at all."""
    places.make_private(file.parent)
    try:
        with open(file.with_name(f"{file.name}.lock"), "ab", opener=_private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = read(file)
            yield tokens
            rows = [
                {
                    "name": each.name,
                    "digest": each.digest,
                    "scopes": sorted(each.scopes),
                    "created_ms": each.created_ms,
                    "expires_ms": each.expires_ms,
                }
                for each in tokens
            ]
            replace_bytes(file, json.dumps({"tokens": rows}, indent=2).encode(), mode=PRIVATE)
    except OSError as error:
        raise HostError(
            f"'{file}' cannot be written: {error.strerror}", hint="check its permissions and the free space on its disk"
        ) from error


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC, 0o600)

"""Tokens of clients: a private file with their digests, names and scopes.

A token itself is not stored; it is printed once, when it is made.

Tests: `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from aptui.features.gateway.wire_codec import Scope
from aptui.link import places
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.shared.files.replacing import PRIVATE, file_stamp, lock_file, not_written, replace_bytes
from aptui.shared.forms import prepare_form

FILE = "tokens.json"
LOCAL = "local"
"""Name of the token that a gateway makes for the user who started it."""
_BYTES = 32
"""Number of random bytes in a token."""


class Token(Struct, frozen=True):
    """A stored token.

    Args:
        digest: SHA-256 in hexadecimal; a token has 256 random bits, so a slow hash is not needed.
        expires_ms: when the token expires, in ms since 1970; 0 = never.
    """

    name: str
    digest: str
    scopes: frozenset[Scope]
    created_ms: int = 0
    expires_ms: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the token has expired."""
        return 0 < self.expires_ms <= now_ms()


class _Form(Struct):
    tokens: list[Token]


def now_ms() -> int:
    """Return the current time in ms since 1970."""
    return time.time_ns() // 1_000_000


def fresh() -> str:
    """Return a new token: 256 random bits as text for URLs and headers.

    A token never begins with `-`, because the command line would read it as an option.
    """
    while (token := secrets.token_urlsafe(_BYTES)).startswith("-"):
        pass
    return token


def digest_of(token: str) -> str:
    """Return the digest of a token, which is stored instead of the token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def path() -> Path:
    """Return the path of this user's token file."""
    return places.state_dir() / FILE


class Tokens:
    """The accepted tokens. The file is read again when it changes, so revoking a token has effect at once.

    Args:
        file: the token file of this user; see `path`.
        local: an additional token, which is accepted with every scope although it is not in the file; "" = none.
    """

    def __init__(self, file: Path, local: str = "") -> None:
        self._file = file
        self._own = [Token(LOCAL, digest_of(local), frozenset(Scope))] if local else []
        self._tokens: tuple[Token, ...] = ()
        self._stamp: tuple[int, int, int] | None = None

    def owner_of(self, token: str) -> Token | None:
        """Return the stored record of `token`.

        The duration of the comparison does not depend on the number of correct characters, so it does not help to guess a token.
        """
        digest, found = digest_of(token), None
        for each in (*self._own, *self.read_current()):
            if hmac.compare_digest(each.digest, digest) and not each.is_over:
                found = each
        return found

    def knows(self, digest: str, scopes: Collection[Scope]) -> bool:
        """Whether the token with this digest still exists, has not expired, and has all these scopes."""
        current = (*self._own, *self.read_current())
        return any(each.digest == digest and each.scopes >= set(scopes) and not each.is_over for each in current)

    def read_current(self) -> tuple[Token, ...]:
        """Return the tokens in the file; the result is empty if the file is invalid or other users can read it."""
        stamp = file_stamp(self._file)
        if stamp != self._stamp:
            self._stamp, self._tokens = stamp, ()
            with suppress(KnownError):
                self._tokens = tuple(read(self._file))
        return self._tokens


def read(file: Path) -> list[Token]:
    """Return the tokens in a file.

    Raises:
        HostError: the file is not readable, or other users can read it. UserError: it is not a token file.
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
        raise HostError(f"other users can read '{file}'", hint=f"run chmod 600 '{file}', and revoke all tokens in the file")
    try:
        return msgspec.json.decode(data, type=prepare_form(_Form)).tokens
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"'{file}' is not a list of tokens", hint="remove the file, and make the tokens again") from error


def add(file: Path, name: str, scopes: Collection[Scope], *, lasts_ms: int = 0) -> str:
    """Make a token, store its digest, and return the token.

    Args:
        lasts_ms: lifetime in ms; 0 = the token is valid until it is revoked.

    Raises:
        UserError: a token with this name exists. HostError: the file cannot be written.
    """
    if not name or name == LOCAL or not name.isprintable():
        raise UserError(f"'{name}' cannot be the name of a token", hint="use letters, digits, '-' and '_'")
    token = fresh()
    with _changing(file) as tokens:
        if any(each.name == name for each in tokens):
            raise UserError(
                f"the token '{name}' exists already", hint=f"choose another name, or run 'aptui token revoke {name}' first"
            )
        now = now_ms()
        tokens.append(Token(name, digest_of(token), frozenset(scopes), now, now + lasts_ms if lasts_ms else 0))
    return token


def revoke(file: Path, name: str) -> None:
    """Remove a token.

    Raises:
        UserError: no token has this name. HostError: the file cannot be written.
    """
    with _changing(file) as tokens:
        left = [each for each in tokens if each.name != name]
        if len(left) == len(tokens):
            names = ", ".join(f"'{each.name}'" for each in tokens)
            raise UserError(f"'{name}' is not a token", hint=f"the tokens are {names}" if names else "no token exists")
        tokens[:] = left


@contextmanager
def _changing(file: Path) -> Iterator[list[Token]]:
    """Yield the list of tokens for the caller to change; write the list to the file at the end.

    Other processes wait until the block ends.
    """
    places.make_private(file.parent)
    try:
        with lock_file(file):
            tokens = read(file)
            yield tokens
            replace_bytes(file, msgspec.json.format(msgspec.json.encode(_Form(tokens)), indent=2), mode=PRIVATE)
    except OSError as error:
        raise not_written(f"'{file}'", error) from error

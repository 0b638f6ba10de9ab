"""How SQLite is told of a file together with how to open it (sqlite.org/uri.html).

`Path.as_uri` says the same; but it needs `urllib`, with it `ipaddress`, and those take a short command 2 ms.

Tests: `tests/store/db/test_uris.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


def uri_of(path: Path) -> str:
    """Return the URI of a file."""
    return "file://" + "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in os.fsencode(path.absolute()))


def read_only_uri(path: Path, *, is_immutable: bool = False) -> str:
    """Return the URI of a file to be read; `is_immutable`: nobody writes meanwhile, so that nothing lies beside it."""
    return f"{uri_of(path)}?mode=ro{'&immutable=1' if is_immutable else ''}"

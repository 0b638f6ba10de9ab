"""A lean start of the screen: importing this imports hashlib without OpenSSL; nothing else is here.

What the screen digests is small, and OpenSSL takes 4 MB of memory for as long as it is open: it is left to what needs it later
(`ssl`, and with it `http.client`, work as ever). Some systems build Python without digests of its own; there OpenSSL's are taken.

Tests: `tests/tui/test_start.py`.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from aptui.shared.lean.imports import without

_OWN_DIGESTS = ("_sha2" if sys.version_info >= (3, 12) else "_sha256", "_md5", "_sha1", "_sha3", "_blake2")

with without(*(("_hashlib",) if all(find_spec(name) for name in _OWN_DIGESTS) else ())):
    import hashlib  # noqa: F401

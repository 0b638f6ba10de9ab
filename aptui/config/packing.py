"""Records of the configuration as plain JSON, and digests over that.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from msgspec import Struct

FORM = 14
"""Rises when the compiled form changes."""


def digest_of(value: object) -> str:
    """Return the SHA-256 of plain data, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def canonical(value: object) -> str:
    """Return `value` as canonical JSON: equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def pack(value: Any) -> Any:
    """Return a record as plain JSON data."""
    if isinstance(value, Struct):
        return {name: pack(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [pack(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Path) else value


def frozen(value: Any) -> Any:
    """Return plain JSON data with its lists as tuples."""
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value

"""`azlmbr.math`: the UUIDs and checksums that asset builders use.

Tests: `tests/features/o3de/scripts/test_azlmbr_answers.py`.
"""

from __future__ import annotations

import uuid
import zlib

from aptui.core.paths import name_uuid
from aptui.features.o3de.scripts.azlmbr.reflected import refusing


class Uuid:
    """A UUID in O3DE's form: `{UPPER-CASE}` with braces. Other text gives the null UUID, as in O3DE."""

    __slots__ = ("_value",)

    def __init__(self, value: object = None) -> None:
        self._value = _parse(value)

    @property
    def bytes(self) -> bytes:
        """The 16 bytes of the UUID, big-endian."""
        return self._value.bytes

    def to_string(self) -> str:
        """Return the UUID with braces and dashes."""
        return f"{{{str(self._value).upper()}}}"

    def is_null(self) -> bool:
        """Whether all bytes of the UUID are zero."""
        return self._value.int == 0

    ToString, IsNull = to_string, is_null

    def __str__(self) -> str:
        return self.to_string()

    def __repr__(self) -> str:
        return f"Uuid({self.to_string()!r})"

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Uuid) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)


def uuid_of(value: object) -> Uuid:
    """Return `value` (this class, Python's `UUID`, or text) as a UUID."""
    return value if isinstance(value, Uuid) else Uuid(value)


def _parse(value: object) -> uuid.UUID:
    match value:
        case uuid.UUID():
            return value
        case bytes() if len(value) == 16:
            return uuid.UUID(bytes=value)
        case str():
            try:
                return uuid.UUID(value.strip())
            except ValueError:
                return uuid.UUID(int=0)
    return uuid.UUID(int=0)


def _from_string(text: str, _length: int = 0) -> Uuid:
    return Uuid(text)


def _from_name(name: str) -> Uuid:
    return Uuid(name_uuid(name.encode()))


Uuid_CreateString = _from_string
Uuid_CreateName = _from_name
Uuid_CreateNull = Uuid


def _random() -> Uuid:
    return Uuid(uuid.uuid4())


Uuid_Create = Uuid_CreateRandom = _random


class Crc32:
    """The checksum of a name in O3DE: CRC-32 of the text in lower case."""

    __slots__ = ("value",)

    def __init__(self, value: object = 0) -> None:
        self.value = crc_of(value)

    def __eq__(self, other: object) -> bool:
        return self.value == crc_of(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Crc32(0x{self.value:08x})"


def crc_of(value: object) -> int:
    """Return `value` as a checksum (a number or a `Crc32`), or the checksum of a text."""
    match value:
        case Crc32():
            return value.value
        case int():
            return value & 0xFFFFFFFF
        case str():
            return zlib.crc32(value.lower().encode())
    raise TypeError(f"{value!r} is neither a string nor a checksum")


__getattr__ = refusing("azlmbr.math")

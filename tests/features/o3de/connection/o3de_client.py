"""A client of O3DE's protocol that shares no code with the server. It follows the documentation of `features.o3de.connection`."""

from __future__ import annotations

import socket
import struct
import uuid
import zlib
from dataclasses import dataclass, field
from typing import Any, Self

BASE = "366A7093-C57B-4514-A1BD-A6437AEF2098"
BOOL, INT, U32 = (
    "A0CA880C-AFE4-43CB-926C-59AC48496112",
    "72039442-EB38-4D42-A1AD-CB68F7E0EEF6",
    "43DA906B-7DEF-4CA8-9790-854106D3F983",
)
U64, S64 = "D6597933-47CD-4FC8-B911-63F3E2B0993A", "70D8A282-A1EA-462D-9D04-51EDE81FAC2F"
UUID, OS_STRING = "E152C105-A133-4D03-BBF8-3D4B2FBA3E2A", "189CC2ED-FDDE-5680-91D4-9F630A79187F"
ASSET_ID = "652ED536-3402-439B-AEBE-4A5DBC554085"
LIMIT_S = 60.0


def crc(name: str) -> int:
    return zlib.crc32(name.lower().encode())


def element(type_id: str, name: str = "", value: bytes | None = None, children: tuple[bytes, ...] = (), version: int = 0) -> bytes:
    """Return an element of a stream."""
    flags, size = 8, b""
    if value is not None and len(value) < 8:
        flags |= 16 | len(value)
    elif value is not None:
        flags |= 16 | 32 | 4
        size = struct.pack(">I", len(value))
    flags |= (64 if name else 0) | (128 if version else 0)
    head = bytes([flags]) + (struct.pack(">I", crc(name)) if name else b"") + (bytes([version]) if version else b"")
    return head + uuid.UUID(type_id).bytes + size + (value or b"") + b"".join(children) + b"\0"


def text(name: str, value: str) -> bytes:
    return element(OS_STRING, name, value.encode())


def flag(name: str, value: bool) -> bytes:
    return element(BOOL, name, bytes([value]))


def number(name: str, value: int, type_id: str = U32) -> bytes:
    return element(type_id, name, struct.pack({U32: ">I", INT: ">i", U64: ">Q", S64: ">q"}[type_id], value))


def asset(name: str, guid: bytes, sub_id: int) -> bytes:
    parts = (element(UUID, "guid", guid), number("subId", sub_id))
    return element(ASSET_ID, name, children=parts, version=1)


def message(type_id: str, *fields: bytes, version: int = 1, has_base: bool = True, fence: bool = False) -> bytes:
    """Return the payload of a message."""
    base = (element(BASE, "BaseClass1", children=(flag("RequireFencing", fence),), version=1),) if has_base else ()
    return b"\0" + struct.pack(">I", 3) + element(type_id, "", None, (*base, *fields), version) + b"\0"


@dataclass
class Node:
    """An element that was read."""

    name: int
    version: int
    type_id: uuid.UUID
    value: bytes = b""
    children: list[Node] = field(default_factory=list)

    def __getitem__(self, name: str) -> Node:
        return next(child for child in self.children if child.name == crc(name))

    @property
    def number(self) -> int:
        return int.from_bytes(self.value, "big")

    @property
    def text(self) -> str:
        return self.value.decode("utf-8", "surrogateescape")

    @property
    def texts(self) -> list[str]:
        return [child.text for child in self.children]


NOTHING = Node(0, 0, uuid.UUID(int=0))


def read(payload: bytes) -> Node:
    """Return the object in a payload."""
    assert payload[:5] == b"\0\0\0\0\3"
    at = 5

    def take(count: int) -> bytes:
        nonlocal at
        at += count
        return payload[at - count : at]

    def next_node() -> Node | None:
        flags = take(1)[0]
        if flags == 0:
            return None
        name = struct.unpack(">I", take(4))[0] if flags & 64 else 0
        version = take(1)[0] if flags & 128 else 0
        node = Node(name, version, uuid.UUID(bytes=take(16)))
        if flags & 16:
            size = int.from_bytes(take(flags & 7), "big") if flags & 32 else flags & 7
            node.value = take(size)
        while (child := next_node()) is not None:
            node.children.append(child)
        return node

    found = next_node()
    assert found is not None
    assert payload[at:] == b"\0"
    return found


class O3deClient:
    """A connection."""

    def __init__(self, port: int) -> None:
        self.channel = socket.create_connection(("127.0.0.1", port), LIMIT_S)
        self.bulk = NOTHING
        self.notifications: list[tuple[int, Node]] = []
        self._serial = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.channel.close()

    def send(self, name: str, payload: bytes, serial: int = 0) -> None:
        self.channel.sendall(struct.pack("<III", crc(name), len(payload), serial) + payload)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.channel.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def receive(self) -> tuple[int, int, Node]:
        """Return type, serial and object of the next frame; the object of an empty frame is `NOTHING`."""
        kind, size, serial = struct.unpack("<III", self._exactly(12))
        return kind, serial, read(self._exactly(size)) if size else NOTHING

    def ask(self, name: str, payload: bytes) -> Node:
        """Return the answer to a request; notifications that arrive before it are stored."""
        self._serial += 1
        self.send(name, payload, self._serial)
        while True:
            kind, serial, node = self.receive()
            if serial == self._serial | 1 << 31:
                assert kind == crc(name)
                return node
            self.notifications.append((kind, node))

    def wait_for(self, name: str, wanted: Any = lambda _node: True) -> Node:
        """Return the first notification of one of the wanted kinds, and drop the notifications before it."""
        while True:
            kind, node = self.notifications.pop(0) if self.notifications else self.receive()[::2]
            if kind == crc(name) and wanted(node):
                return node

    def negotiate(self, project: str, platforms: str = "linux", token: str = "", name: str = "EDITOR", version: int = 7) -> Node:
        """Return the server's negotiation."""
        facts = {0: "12", 1: platforms, 2: token, 3: project}
        pairs = tuple(
            element("A84F78DE-B271-5217-86DE-E69A15EE48C6", "element", None, (number("value1", key), text("value2", value)))
            for key, value in facts.items()
        )
        negotiation = message(
            "BA6336E4-4DF5-49EF-A184-FE8F5BC73731",
            number("ApiVersion", version, INT), text("Identifier", name),
            element("FB96FC4A-665D-530A-A80E-2032526E232B", "NegotiationInfo", None, pairs), has_base=False,
        )  # fmt: skip
        self.send("AssetSystem::Negotiation", negotiation, 0x0FFFFFFF)
        kind, serial, node = self.receive()
        assert (kind, serial) == (crc("AssetSystem::Negotiation"), 0x0FFFFFFF)
        return node

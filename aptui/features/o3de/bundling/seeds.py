"""Seed lists (`.seed`): assets that a bundle contains together with their dependencies. Each seed has its platforms as bits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.yaml.nodes import Node
from aptui.features.o3de.bundling import object_stream
from aptui.features.o3de.bundling.object_stream import Element, ObjectStream
from aptui.features.o3de.registry.json_reader import read_json
from aptui.shared.errors import UserError

SUFFIX = ".seed"
PLATFORMS = {
    name: 1 << at for at, name in enumerate(("pc", "linux", "android", "ios", "mac", "provo", "salem", "jasper", "server"))
}
"""{platform: its bit in the flags of a seed}, as O3DE defines them."""
_ALL, _ALL_CLIENTS = 1 << 30, 1 << 31
_JSON_TYPE, _NAME, _NO_GUID = "JsonSerialization", "AZStd::vector<SeedInfo, allocator>", f"{{{UUID(int=0)}}}"
_VECTOR, _SEED = "{82FC5264-88D0-57CD-9307-FC52E4DAD550}", "{FACC3682-2ACA-4AA4-B85A-07AD276D18A0}"


def flag_of(platform: str) -> int:
    """Return the bit of a platform.

    Raises:
        UserError: O3DE does not define a bit for this platform.
    """
    flag = PLATFORMS.get(platform)
    if flag is None:
        raise UserError(
            f"O3DE's seed lists do not support platform '{platform}'", hint=f"the supported platforms are {', '.join(PLATFORMS)}"
        )
    return flag


def platforms_in(flags: int) -> tuple[str, ...]:
    """Return the platforms that `flags` includes (see `is_for`)."""
    return tuple(name for name in PLATFORMS if is_for(flags, name))


def is_for(flags: int, platform: str) -> bool:
    """Return whether `flags` includes a platform: by the platform's bit, or by the bit of all platforms or all clients."""
    everyone = flags & _ALL or (flags & _ALL_CLIENTS and platform != "server")
    return bool(everyone or flags & PLATFORMS.get(platform, 0))


class Seed(Struct, frozen=True):
    """A seed. `guid` is in braces and upper case; `hint` is the asset's last known path, relative to the platform's folder."""

    guid: str
    sub_id: int
    flags: int
    hint: str


class SeedList:
    """The seeds of one file, in their order.

    An existing file keeps its format, JSON or XML (ObjectStream). A new file is JSON in the form that the engine writes.

    Args:
        text: the text of the file, "" = the file is new.
        stream: the parsed XML of the file, None = the file is JSON.
    """

    def __init__(self, text: str = "", seeds: Iterable[Seed] = (), stream: ObjectStream | None = None) -> None:
        self.seeds = list(seeds)
        self._text, self._stream, self._read = text, stream, tuple(self.seeds)

    @classmethod
    def load(cls, path: Path) -> SeedList:
        """Return the list in a file.

        Raises:
            UserError: the file is not a seed list. HostError: the file cannot be read.
        """
        text = object_stream.read(path)
        if text.startswith("<"):
            stream = object_stream.load_text(text, path, _VECTOR)
            return cls(text, map(_read_element, stream.object.children), stream)
        return cls(text, _read_json(text, path))

    def text(self) -> str:
        """Return the text of the file; without changes it is the text that was read."""
        if self._text and tuple(self.seeds) == self._read:
            return self._text
        return _json_text(self.seeds, self._text) if self._stream is None else self._xml_text(self._stream)

    def add(self, guid: str, sub_id: int, flags: int, hint: str) -> None:
        """Add an asset for some platforms, or add the platforms to a listed asset."""
        at = self._find(guid, sub_id)
        if at is None:
            self.seeds.append(Seed(guid, sub_id, flags, hint))
        else:
            self.seeds[at] = replace(self.seeds[at], flags=self.seeds[at].flags | flags)

    def remove(self, guid: str, sub_id: int, flags: int) -> bool:
        """Remove some platforms of an asset, or the asset if no platform remains; return whether the asset was listed."""
        at = self._find(guid, sub_id)
        if at is None:
            return False
        left = self.seeds[at].flags & ~flags
        if left & ~(_ALL | _ALL_CLIENTS):
            self.seeds[at] = replace(self.seeds[at], flags=left)
        else:
            del self.seeds[at]
        return True

    def set(self, seed: Seed, *, flags: int | None = None, hint: str | None = None) -> None:
        """Change the platforms or the hint of a seed."""
        at = self._find(seed.guid, seed.sub_id)
        if at is not None:
            now = self.seeds[at]
            self.seeds[at] = replace(now, flags=now.flags if flags is None else flags, hint=now.hint if hint is None else hint)

    def _find(self, guid: str, sub_id: int) -> int | None:
        wanted = guid.upper(), sub_id
        return next((at for at, seed in enumerate(self.seeds) if (seed.guid, seed.sub_id) == wanted), None)

    def _xml_text(self, stream: ObjectStream) -> str:
        known: dict[tuple[str, int], list[Element]] = {}
        for element in stream.object.children:
            known.setdefault(_id_of(element), []).append(element)
        children = []
        for seed in self.seeds:
            elements = known.get((seed.guid, seed.sub_id))
            element = elements.pop(0) if elements else _make_element(seed)
            element.set("platformFlags", str(seed.flags))
            element.set("pathHint", seed.hint)
            children.append(element)
        stream.object.children[:] = children
        return object_stream.dump(stream)


def merge_seeds(lists: Iterable[SeedList]) -> list[Seed]:
    """Return the seeds of several lists, each asset once, with the platforms of all of its entries."""
    found: dict[tuple[str, int], Seed] = {}
    for seed in (seed for each in lists for seed in each.seeds):
        known = found.get((seed.guid, seed.sub_id))
        flags = seed.flags | (known.flags if known else 0)
        found[seed.guid, seed.sub_id] = Seed(seed.guid, seed.sub_id, flags, known.hint if known else seed.hint)
    return list(found.values())


# ----------------------------------------------------------------------------------------------------------------- XML, JSON


def _read_element(element: Element) -> Seed:
    return Seed(*_id_of(element), element.number("platformFlags"), element.text("pathHint"))


def _id_of(element: Element) -> tuple[str, int]:
    found = element.get("assetId")
    if found is None:
        raise UserError("a seed has no asset id", hint=object_stream.DAMAGED)
    return found.text("guid").upper(), found.number("subId")


def _make_element(seed: Seed) -> Element:
    fields = [
        object_stream.asset_id("assetId", seed.guid, seed.sub_id),
        object_stream.number("platformFlags", seed.flags),
        object_stream.string("pathHint", seed.hint),
    ]
    return Element("SeedInfo", _SEED, "element", version=2, children=fields)


def _read_json(text: str, path: Path) -> Iterator[Seed]:
    """Yield the seeds of a file in O3DE's JSON serialization; omitted values get their defaults."""
    root = read_json(text.encode("utf-8", "surrogateescape"), str(path))
    kind, name, data = (root.get(key) for key in ("Type", "ClassName", "ClassData"))
    is_list = (
        kind is not None and str(kind.value).lower() == _JSON_TYPE.lower() and name is not None and "SeedInfo" in str(name.value)
    )
    entries = data.value or [] if data is not None else []
    if not is_list or not isinstance(entries, list):
        raise UserError(f"'{path}' is not a seed list", hint=object_stream.DAMAGED)
    for node in entries:
        owner = node.get("assetId")
        if owner is None:
            raise UserError("a seed has no asset id", where=node.where, hint=object_stream.DAMAGED)
        guid, hint = owner.get("guid"), node.get("pathHint")
        yield Seed(
            _guid(guid) if guid is not None else _NO_GUID,
            _number(owner.get("subId")),
            _number(node.get("platformFlags")),
            str(hint.value) if hint is not None else "",
        )


def _guid(node: Node) -> str:
    try:
        return f"{{{str(UUID(str(node.value))).upper()}}}"
    except ValueError:
        raise UserError(f"'{str(node.value)[:60]}' is not a UUID", where=node.where, hint=object_stream.DAMAGED) from None


def _number(node: Node | None) -> int:
    value = 0 if node is None else node.value
    if not isinstance(value, int) or not 0 <= value < 1 << 32:
        where = "" if node is None else node.where
        raise UserError(f"'{str(value)[:60]}' is not a 32-bit number", where=where, hint=object_stream.DAMAGED)
    return int(value)


def _json_text(seeds: Iterable[Seed], before: str) -> str:
    """Return a file in the engine's JSON serialization, with the line ends of the replaced text `before`."""
    listed = []
    for seed in seeds:
        owner = {"guid": seed.guid, **({"subId": seed.sub_id} if seed.sub_id else {})}
        listed.append({"assetId": owner, "platformFlags": seed.flags, **({"pathHint": seed.hint} if seed.hint else {})})
    root = {"Type": _JSON_TYPE, "Version": 1, "ClassName": _NAME, "ClassData": listed}
    text = json.dumps(root, indent=4, ensure_ascii=False)
    end = before[len(before.rstrip()) :]
    return (text.replace("\n", "\r\n") if "\r\n" in before else text) + end

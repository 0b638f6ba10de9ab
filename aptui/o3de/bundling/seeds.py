"""Seed lists (`.seed`): assets that a bundle begins with, each with its platforms; and the bits that platforms are there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from aptui.o3de.bundling import object_stream
from aptui.o3de.bundling.object_stream import Element, ObjectStream
from aptui.shared.errors import UserError

SUFFIX = ".seed"
PLATFORMS = {
    name: 1 << at for at, name in enumerate(("pc", "linux", "android", "ios", "mac", "provo", "salem", "jasper", "server"))
}
"""The bit of each platform that the engine knows by name."""
_ALL, _ALL_CLIENTS = 1 << 30, 1 << 31
_VECTOR, _SEED = "{82FC5264-88D0-57CD-9307-FC52E4DAD550}", "{FACC3682-2ACA-4AA4-B85A-07AD276D18A0}"


def flag_of(platform: str) -> int:
    """Return the bit of a platform.

    Raises:
        UserError: the engine has none for it.
    """
    flag = PLATFORMS.get(platform)
    if flag is None:
        raise UserError(f"platform '{platform}' has no bit in O3DE's files", hint=f"those have {', '.join(PLATFORMS)}")
    return flag


def platforms_in(flags: int) -> tuple[str, ...]:
    """Return the platforms that bits stand for."""
    return tuple(name for name in PLATFORMS if is_for(flags, name))


def is_for(flags: int, platform: str) -> bool:
    """Whether bits name a platform, or stand for all of its kind."""
    everyone = flags & _ALL or (flags & _ALL_CLIENTS and platform != "server")
    return bool(everyone or flags & PLATFORMS.get(platform, 0))


class Seed(Struct, frozen=True):
    """One asset: `guid` in braces and upper case; `hint` is the path that it had, relative to its platform's folder."""

    guid: str
    sub_id: int
    flags: int
    hint: str


class SeedList:
    """The seeds of one file, in their order."""

    def __init__(self, stream: ObjectStream | None = None) -> None:
        self.stream = stream or object_stream.stream_of(Element("AZStd::vector<SeedInfo, allocator>", _VECTOR))

    @classmethod
    def load(cls, path: Path) -> SeedList:
        """Return the list in a file.

        Raises:
            UserError: it is none. HostError: it cannot be read.
        """
        return cls(object_stream.load(path, _VECTOR))

    def text(self) -> str:
        """Return the file."""
        return object_stream.dump(self.stream)

    @property
    def seeds(self) -> list[Seed]:
        """The seeds as they are now."""
        return [_seed(element) for element in self.stream.object.children]

    def add(self, guid: str, sub_id: int, flags: int, hint: str) -> None:
        """Add an asset for some platforms; one that is there gets these platforms too."""
        element = self._find(guid, sub_id)
        if element is None:
            fields = [
                object_stream.asset_id("assetId", guid, sub_id),
                object_stream.make_unsigned("platformFlags", flags),
                object_stream.string("pathHint", hint),
            ]
            self.stream.object.children.append(Element("SeedInfo", _SEED, "element", version=2, children=fields))
        else:
            element.set("platformFlags", str(element.number("platformFlags") | flags))

    def remove(self, guid: str, sub_id: int, flags: int) -> bool:
        """Take some platforms from an asset, and the asset away when none is left; return whether it was there."""
        element = self._find(guid, sub_id)
        if element is None:
            return False
        left = element.number("platformFlags") & ~flags
        if left & ~(_ALL | _ALL_CLIENTS):
            element.set("platformFlags", str(left))
        else:
            self.stream.object.children.remove(element)
        return True

    def set(self, seed: Seed, *, flags: int | None = None, hint: str | None = None) -> None:
        """Give a seed other platforms or another hint."""
        element = self._find(seed.guid, seed.sub_id)
        if element is None:
            return
        if flags is not None:
            element.set("platformFlags", str(flags))
        if hint is not None:
            element.set("pathHint", hint)

    def _find(self, guid: str, sub_id: int) -> Element | None:
        wanted = guid.upper(), sub_id
        return next((each for each in self.stream.object.children if _id_of(each) == wanted), None)


def merge_seeds(lists: Iterable[SeedList]) -> list[Seed]:
    """Return the seeds of several lists, each asset once, for all platforms that any of them names."""
    found: dict[tuple[str, int], Seed] = {}
    for seed in (seed for each in lists for seed in each.seeds):
        known = found.get((seed.guid, seed.sub_id))
        flags = seed.flags | (known.flags if known else 0)
        found[seed.guid, seed.sub_id] = Seed(seed.guid, seed.sub_id, flags, known.hint if known else seed.hint)
    return list(found.values())


def _seed(element: Element) -> Seed:
    return Seed(*_id_of(element), element.number("platformFlags"), element.text("pathHint"))


def _id_of(element: Element) -> tuple[str, int]:
    found = element.get("assetId")
    if found is None:
        raise UserError("a seed has no asset id", hint=object_stream.DAMAGED)
    return found.text("guid").upper(), found.number("subId")

"""Files of the bundler: asset lists (`.assetlist`) and their comparison, bundle settings and bundles (`.pak`).

An asset list names the products of a bundle with their times and SHA-1 digests. A bundle is a zip that O3DE's runtime mounts. It
also contains a manifest and a catalog. Products that exceed the maximum size of a bundle are split into a set of bundles; the
manifest of the first bundle names the other bundles. Names in a zip are relative to the platform's folder. All entries have the
same fixed time, so equal products give equal bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path

from msgspec import Struct, field

from aptui.core.patterns import wildcard
from aptui.features.o3de.binary_stream import RegistryAsset, stream_of, type_text, uuid_bytes, vector_of
from aptui.features.o3de.bundling import object_stream
from aptui.features.o3de.bundling.object_stream import Element
from aptui.shared.errors import HostError, UserError

LIST_SUFFIX = ".assetlist"
_LIST, _VECTOR, _FILE, _HASH = (
    "{61F16042-E381-47E4-8AAA-91BC532F4101}",
    "{4F6B07E0-7EB7-5CE4-AABE-8717224FC1DB}",
    "{F1616D53-9A20-4C04-854E-D458A334B86B}",
    "{B6423B78-0722-5AD2-9CB4-100E6DA85824}",
)
_WORDS = 5


class ListedAsset(Struct, frozen=True):
    """A product in an asset list; `path` is relative to the platform's folder.

    `modified` is the time of the last change, as O3DE's file system returns it. `digest` is SHA-1.
    """

    guid: str
    sub_id: int
    path: str
    modified: int
    digest: bytes


def load_list(path: Path) -> list[ListedAsset]:
    """Return the products in a list file.

    Raises:
        UserError: the file is not an asset list. HostError: the file cannot be read.
    """
    listed = object_stream.load(path, _LIST).object.get("fileInfoList")
    return [_asset(each) for each in listed.children] if listed is not None else []


def list_text(assets: Iterable[ListedAsset]) -> str:
    """Return the content of a list file with these products, in this order."""
    vector = Element(
        "AZStd::vector<AssetFileInfo, allocator>", _VECTOR, "fileInfoList", children=[_element(each) for each in assets]
    )
    return object_stream.dump(object_stream.stream_of(Element("AssetFileInfoList", _LIST, version=1, children=[vector])))


def _asset(element: Element) -> ListedAsset:
    owner, hashed = element.get("assetId"), element.get("hash")
    if owner is None or hashed is None or len(hashed.children) != _WORDS:
        raise UserError("an asset of the list has no id or no hash", hint=object_stream.DAMAGED)
    words = [int(word.value or "0") & 0xFFFF_FFFF for word in hashed.children]
    digest = struct.pack(">5I", *words)
    path = element.text("assetRelativePath")
    return ListedAsset(owner.text("guid").upper(), owner.number("subId"), path, element.number("modificationTime"), digest)


def _element(asset: ListedAsset) -> Element:
    words = [object_stream.number("element", word) for word in struct.unpack(">5I", asset.digest)]
    fields = [
        object_stream.asset_id("assetId", asset.guid, asset.sub_id),
        object_stream.string("assetRelativePath", asset.path),
        object_stream.number("modificationTime", asset.modified, "AZ::u64"),
        Element("AZStd::array<unsigned int, 5>", _HASH, "hash", children=words),
    ]
    return Element("AssetFileInfo", _FILE, "element", version=1, children=fields)


def unreadable_product(path: Path, error: OSError) -> HostError:
    """Return the error for a product that cannot be read."""
    return HostError(f"product '{path}' cannot be read: {error.strerror}", hint="run 'AssetProcessorBatch' to restore the product")


# --------------------------------------------------------------------------------------------------------------- comparing


class ComparisonKind(IntEnum):
    """Types of comparison of two asset lists. The command line and rules files use these numbers."""

    DELTA = 0
    """Assets of the second list that the first list does not contain, or contains with other bytes."""
    UNION = 1
    INTERSECTION = 2
    COMPLEMENT = 3
    """Assets of the second list that are not in the first list."""
    FILE_PATTERN = 4
    INTERSECTION_COUNT = 5

    @property
    def word(self) -> str:
        """The name of the comparison on the command line."""
        return "".join(part if at == 0 else part.capitalize() for at, part in enumerate(self.name.lower().split("_")))


def kind_of(text: str) -> ComparisonKind:
    """Return the type of comparison with this name or number.

    Raises:
        UserError: the type does not exist.
    """
    for kind in ComparisonKind:
        if text.lower() in (str(int(kind)), kind.word.lower()):
            return kind
    raise UserError(
        f"'{text}' is not a comparison", hint="write " + ", ".join(f"{int(kind)} or {kind.word}" for kind in ComparisonKind)
    )


def compare_lists(kind: ComparisonKind, first: Sequence[ListedAsset], second: Sequence[ListedAsset]) -> list[ListedAsset]:
    """Return the result of comparing two lists; an asset that is in both lists is taken from the second."""
    before = {(item.guid, item.sub_id): item for item in first}
    if kind is ComparisonKind.DELTA:
        return [item for item in second if (was := before.get((item.guid, item.sub_id))) is None or was.digest != item.digest]
    if kind is ComparisonKind.UNION:
        after = {(item.guid, item.sub_id) for item in second}
        return [*(item for item in first if (item.guid, item.sub_id) not in after), *second]
    wanted = kind is ComparisonKind.INTERSECTION
    return [item for item in second if ((item.guid, item.sub_id) in before) == wanted]


def matching(assets: Sequence[ListedAsset], pattern: str, *, is_regex: bool) -> list[ListedAsset]:
    """Return the assets whose whole path matches the pattern, ignoring case.

    Raises:
        UserError: the pattern is not a regular expression.
    """
    try:
        match = re.compile(pattern, re.IGNORECASE).fullmatch if is_regex else wildcard(pattern).fullmatch
    except re.error as error:
        raise UserError(
            f"'{pattern}' is not a regular expression: {error}",
            hint="correct the pattern, or use --filePatternType=0 for wildcards",
        ) from None
    return [item for item in assets if match(item.path)]


def appearing(lists: Sequence[Sequence[ListedAsset]], count: int) -> list[ListedAsset]:
    """Return the assets that are in at least `count` of the lists."""
    often = Counter(key for each in lists for key in {(item.guid, item.sub_id) for item in each})
    found = {(item.guid, item.sub_id): item for each in lists for item in each}
    return [item for key, item in found.items() if often[key] >= count]


# This part reads and writes comparison rules (`.rules`), bundle settings (`.bundlesettings`) and the manifest of a bundle
# (`manifest.xml`).
#
# The formats were not compared with files that O3DE wrote, because none were available. Fields and type ids follow O3DE's
# documentation and serialization code; an enumeration value is written as a number of 8 bits.

RULES_SUFFIX, SETTINGS_SUFFIX, BUNDLE_SUFFIX = ".rules", ".bundlesettings", ".pak"
MANIFEST, CATALOG = "manifest.xml", "DeltaCatalog.xml"
MOST_MIB = 2048
"""Maximum size of a bundle in MiB; a larger zip would need the extension for large files."""
BUNDLE_VERSIONS = (1, 2)
"""Versions of bundles that every version of O3DE reads. Version 3 stores level folders differently."""
_RULES, _STEP, _SETTINGS, _MANIFEST = (
    "{AC003572-3A33-476C-9B2B-ADDA4F7BB870}",
    "{B39A7148-AC9D-4038-A85E-2C86A0B2DEF6}",
    "{B9597C91-540E-41A9-9572-80A629061914}",
    "{8628A669-7B19-4C48-A7CB-F670CC9586FD}",
)
_NO_PATTERN = 255


class ComparisonStep(Struct, frozen=True):
    """One comparison of asset lists.

    `first`, `second` and `output` are each a file or an intermediate result (`$name`); "" = the command line names it.
    """

    kind: ComparisonKind
    first: str = ""
    second: str = ""
    output: str = ""
    pattern: str = ""
    is_regex: bool = False
    count: int = 0


def load_rules(path: Path) -> list[ComparisonStep]:
    """Return the comparisons of a rules file, in their order.

    Raises:
        UserError: the file is not a rules file.
        HostError: the file cannot be read.
    """
    listed = object_stream.load(path, _RULES).object.get("ComparisonDataListType")
    return [_step(each, path) for each in listed.children] if listed is not None else []


def _step(element: Element, path: Path) -> ComparisonStep:
    number = element.number("comparisonType", _NO_PATTERN)
    if number not in list(ComparisonKind):
        raise UserError(
            f"'{path}' has a comparison of unknown type {number}",
            hint=f"use a type from 0 to {max(ComparisonKind)}; 'AssetBundlerBatch compare --help' lists the types",
        )
    return ComparisonStep(
        ComparisonKind(number),
        element.text("firstInput"),
        element.text("secondInput"),
        element.text("destinationPath"),
        element.text("filePattern"),
        element.number("filePatternType", _NO_PATTERN) == 1,
        element.number("intersectionCount"),
    )


def rules_text(steps: Iterable[ComparisonStep]) -> str:
    """Return the text of a rules file (`.rules`) of the asset bundler, which lists the comparisons `steps`."""
    children = [
        Element("ComparisonData", _STEP, "element", version=3, children=[
            object_stream.number("comparisonType", int(step.kind), "unsigned char"),
            object_stream.string("firstInput", step.first),
            object_stream.string("secondInput", step.second),
            object_stream.string("filePattern", step.pattern),
            object_stream.number("filePatternType", _pattern_type(step), "unsigned char"),
            object_stream.string("destinationPath", step.output),
            object_stream.number("intersectionCount", step.count),
        ])
        for step in steps
    ]  # fmt: skip
    vector = type_text(vector_of(uuid_bytes(_STEP)))
    listed = Element("AZStd::vector<ComparisonData, allocator>", vector, "ComparisonDataListType", children=children)
    return object_stream.dump(object_stream.stream_of(Element("AssetFileInfoListComparison", _RULES, version=1, children=[listed])))


def _pattern_type(step: ComparisonStep) -> int:
    return int(step.is_regex) if step.kind is ComparisonKind.FILE_PATTERN else _NO_PATTERN


# ---------------------------------------------------------------------------------------------------------- bundle settings


class BundleSettings:
    """A file with the settings of one bundle (`.bundlesettings`): asset list, bundle path, version and maximum size."""

    def __init__(self, path: Path | None = None) -> None:
        if path is None:
            fields = [
                object_stream.string("AssetFileInfoListPath", ""),
                object_stream.string("BundleFilePath", ""),
                object_stream.number("BundleVersion", BUNDLE_VERSIONS[-1], "int"),
                object_stream.number("maxBundleSize", MOST_MIB, "AZ::u64"),
                object_stream.string("comment", ""),
            ]
            self.stream = object_stream.stream_of(Element("AssetBundleSettings", _SETTINGS, version=3, children=fields))
        else:
            self.stream = object_stream.load(path, _SETTINGS)

    @property
    def asset_list(self) -> str:
        """Path of the asset list to pack."""
        return self.stream.object.text("AssetFileInfoListPath")

    @property
    def bundle(self) -> str:
        """Path of the bundle to write."""
        return self.stream.object.text("BundleFilePath")

    @property
    def version(self) -> int:
        """Version of the bundle's format."""
        return self.stream.object.number("BundleVersion", BUNDLE_VERSIONS[-1])

    @property
    def max_mib(self) -> int:
        """Maximum size of a bundle in MiB."""
        return self.stream.object.number("maxBundleSize", MOST_MIB)

    def set(self, *, asset_list: str = "", bundle: str = "", version: int = 0, max_mib: int = 0) -> None:
        """Change the given settings; settings with the value "" or 0 stay as they are."""
        given = {"AssetFileInfoListPath": asset_list, "BundleFilePath": bundle}
        given |= {"BundleVersion": str(version or ""), "maxBundleSize": str(max_mib or "")}
        for name, value in given.items():
            if value:
                self.stream.object.set(name, value)

    def text(self) -> str:
        """Return the settings as the text of a file."""
        return object_stream.dump(self.stream)


def manifest_text(version: int, others: Iterable[str], levels: Iterable[str]) -> str:
    """Return a bundle's manifest, which names the bundle's catalog, the other bundles of the set, and the folders of levels."""
    fields = [
        object_stream.number("BundleVersion", version, "int"),
        object_stream.string("CatalogName", CATALOG),
        object_stream.strings("DependentBundleNames", others),
        object_stream.strings("LevelNames", levels),
    ]
    return object_stream.dump(object_stream.stream_of(Element("AssetBundleManifest", _MANIFEST, version=2, children=fields)))


_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
_ENTRY_BYTES = 256
"""Bytes reserved in the zip for each entry, in addition to its content and the two copies of its name."""
_OWN_BYTES = 16 << 10
"""Bytes reserved for the manifest."""
_CHUNK = 1 << 20


class PackedAsset(Struct, frozen=True):
    """A product of a bundle: its catalog entry, its file, and its SHA-1 in the asset list (b"" without a list)."""

    known: RegistryAsset
    file: Path
    digest: bytes = b""


class _Bundle(Struct):
    """A bundle in progress: its content is written to the file `draft`, which is renamed to `path` at the end."""

    path: Path
    draft: Path
    zip: zipfile.ZipFile
    assets: list[RegistryAsset] = field(default_factory=list)
    catalog_bytes: int = 0

    def size_with(self, known: RegistryAsset, size: int) -> int:
        """Return an upper estimate of the bundle's size in bytes after one more asset of `size` bytes."""
        names = _ENTRY_BYTES + 2 * len(os.fsencode(known.path))
        directory = sum(_ENTRY_BYTES + len(os.fsencode(each.path)) for each in self.assets)
        at = self.zip.fp.tell() if self.zip.fp is not None else 0
        return at + directory + size + size // 1000 + names + self.catalog_bytes + _catalog_bytes(known) + _OWN_BYTES


def write_bundles(assets: Sequence[PackedAsset], target: Path, *, version: int, max_mib: int) -> list[Path]:
    """Write these assets into bundles and return their paths: `target`, then the same name with `__1`, `__2`, ….

    Raises:
        UserError: a single asset exceeds `max_mib`.
        HostError: a file cannot be read or written, or differs from its entry in the asset list.
    """
    most = max_mib << 20
    done: list[_Bundle] = []
    try:
        with ExitStack() as opened:
            bundle = _begin(target, 0, opened)
            done.append(bundle)
            for asset in sorted(assets, key=lambda item: os.fsencode(item.known.path)):
                size = _size_of(asset.file)
                if bundle.size_with(asset.known, size) > most:
                    if not bundle.assets or _OWN_BYTES + size + size // 1000 + _catalog_bytes(asset.known) > most:
                        raise UserError(
                            f"'{asset.known.path}' has {size >> 20} MiB; a bundle has at most {max_mib} MiB", hint="raise --maxSize"
                        )
                    bundle = _begin(target, len(done), opened)
                    done.append(bundle)
                _add_file(bundle, asset)
            for at, each in enumerate(done):
                others = [other.path.name for other in done[1:]] if at == 0 else []
                _finish(each, version, others)
        for each in done:
            with each.draft.open("rb") as file:
                os.fsync(file.fileno())
            each.draft.replace(each.path)
    except OSError as error:
        raise HostError(
            f"bundle '{target}' cannot be written: {error.strerror or error}",
            hint="check its permissions and the free space on its disk",
        ) from error
    finally:
        for each in done:
            each.draft.unlink(missing_ok=True)
    return [each.path for each in done]


def _begin(target: Path, at: int, opened: ExitStack) -> _Bundle:
    path = target.with_name(f"{target.stem}__{at}{target.suffix}") if at else target
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    return _Bundle(path, draft, opened.enter_context(zipfile.ZipFile(draft, "w", allowZip64=False)))


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise unreadable_product(file, error) from error


def _add_file(bundle: _Bundle, asset: PackedAsset) -> None:
    digest = hashlib.sha1(usedforsecurity=False)
    with asset.file.open("rb") as source, bundle.zip.open(_entry(asset.known.path, asset.file.stat().st_size), "w") as target:
        while data := source.read(_CHUNK):
            digest.update(data)
            target.write(data)
    if asset.digest and digest.digest() != asset.digest:
        raise HostError(f"'{asset.known.path}' differs from the asset list", hint="run 'assetLists' again to make a new list")
    bundle.assets.append(asset.known)
    bundle.catalog_bytes += _catalog_bytes(asset.known)


def _finish(bundle: _Bundle, version: int, others: Sequence[str]) -> None:
    levels = sorted({folder for item in bundle.assets if (folder := _level_of(item.path))})
    for name, data in (
        (CATALOG, stream_of(bundle.assets)),
        (MANIFEST, manifest_text(version, others, levels).encode("utf-8", "surrogateescape")),
    ):
        bundle.zip.writestr(_entry(name, len(data)), data)


def _level_of(path: str) -> str:
    """Return the folder of the level if a product is a level's main file, otherwise "".

    The main file is below `levels`: `level.pak`, or a `.spawnable` file with the name of its folder.
    """
    folder, _, name = path.rpartition("/")
    is_spawnable = name.endswith(".spawnable") and name.rpartition(".")[0] == folder.rpartition("/")[2]
    is_level = is_spawnable or name == "level.pak"
    return folder if folder.startswith("levels/") and is_level else ""


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type, entry.create_system, entry.external_attr, entry.file_size = zipfile.ZIP_DEFLATED, 3, _MODE, size
    return entry


def _catalog_bytes(known: RegistryAsset) -> int:
    return 700 + len(os.fsencode(known.path)) + 150 * len(known.needs) + 400 * len(known.former)


def existing_bundles(target: Path) -> list[Path]:
    """Return the existing bundles of the set that begins with `target`; a new set would replace them."""
    is_member = re.compile(rf"{re.escape(target.stem)}(__[0-9]+)?{re.escape(target.suffix)}").fullmatch
    return sorted(path for path in target.parent.iterdir() if is_member(path.name)) if target.parent.is_dir() else []


def delete_rollovers(target: Path, written: Sequence[Path]) -> None:
    """Delete the bundles `<target>__1`, `<target>__2`, … of an earlier set. Keep `target` and the new bundles (`written`)."""
    for path in existing_bundles(target):
        if path not in written and path != target:
            path.unlink(missing_ok=True)

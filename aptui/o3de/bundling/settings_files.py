"""Comparison rules (`.rules`), bundle settings (`.bundlesettings`) and the manifest in a bundle (`manifest.xml`).

Of these no file of the reference was at hand: their fields and type ids are those of its documentation and its serialisation, and
what is an enumeration there is written as the number of 8 bits that it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from aptui.o3de.bundling import object_stream
from aptui.o3de.bundling.asset_lists import ComparisonKind
from aptui.o3de.bundling.object_stream import Element
from aptui.shared.asset_registry import type_text, vector_of
from aptui.shared.errors import UserError

RULES_SUFFIX, SETTINGS_SUFFIX, BUNDLE_SUFFIX = ".rules", ".bundlesettings", ".pak"
MANIFEST, CATALOG = "manifest.xml", "DeltaCatalog.xml"
MOST_MIB = 2048
"""The largest bundle there may be: a zip without the extension for larger ones."""
BUNDLE_VERSIONS = (1, 2)
"""Those whose manifest every version of the engine reads; version 3 writes folders of levels in another form."""
_RULES, _STEP, _SETTINGS, _MANIFEST = (
    "{AC003572-3A33-476C-9B2B-ADDA4F7BB870}",
    "{B39A7148-AC9D-4038-A85E-2C86A0B2DEF6}",
    "{B9597C91-540E-41A9-9572-80A629061914}",
    "{8628A669-7B19-4C48-A7CB-F670CC9586FD}",
)
_NO_PATTERN = 255


class ComparisonStep(Struct, frozen=True):
    """One comparison: inputs and output are files, or names of intermediate results that begin with `$`; "" = said elsewhere."""

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
        UserError: it is none. HostError: it cannot be read.
    """
    listed = object_stream.load(path, _RULES).object.get("ComparisonDataListType")
    return [_step(each, path) for each in listed.children] if listed is not None else []


def _step(element: Element, path: Path) -> ComparisonStep:
    number = element.number("comparisonType", _NO_PATTERN)
    if number not in list(ComparisonKind):
        raise UserError(
            f"'{path}' has a comparison of unknown type {number}",
            hint=f"types go from 0 to {max(ComparisonKind)}; 'compare --help' names them",
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
    """Return a rules file."""
    children = [
        Element("ComparisonData", _STEP, "element", version=3, children=[
            object_stream.byte("comparisonType", int(step.kind)),
            object_stream.string("firstInput", step.first),
            object_stream.string("secondInput", step.second),
            object_stream.string("filePattern", step.pattern),
            object_stream.byte("filePatternType", _pattern_type(step)),
            object_stream.string("destinationPath", step.output),
            object_stream.make_unsigned("intersectionCount", step.count),
        ])
        for step in steps
    ]  # fmt: skip
    vector = type_text(vector_of(_STEP))
    listed = Element("AZStd::vector<ComparisonData, allocator>", vector, "ComparisonDataListType", children=children)
    return object_stream.dump(object_stream.stream_of(Element("AssetFileInfoListComparison", _RULES, version=1, children=[listed])))


def _pattern_type(step: ComparisonStep) -> int:
    return int(step.is_regex) if step.kind is ComparisonKind.FILE_PATTERN else _NO_PATTERN


# ---------------------------------------------------------------------------------------------------------- bundle settings


class BundleSettings:
    """What a bundle is made of, as one file says it; a field that is not set keeps what the file says."""

    def __init__(self, path: Path | None = None) -> None:
        if path is None:
            fields = [
                object_stream.string("AssetFileInfoListPath", ""),
                object_stream.string("BundleFilePath", ""),
                object_stream.integer("BundleVersion", BUNDLE_VERSIONS[-1]),
                object_stream.long_unsigned("maxBundleSize", MOST_MIB),
                object_stream.string("comment", ""),
            ]
            self.stream = object_stream.stream_of(Element("AssetBundleSettings", _SETTINGS, version=3, children=fields))
        else:
            self.stream = object_stream.load(path, _SETTINGS)

    @property
    def asset_list(self) -> str:
        """The asset list."""
        return self.stream.object.text("AssetFileInfoListPath")

    @property
    def bundle(self) -> str:
        """The bundle that is to be made."""
        return self.stream.object.text("BundleFilePath")

    @property
    def version(self) -> int:
        """The version of the bundle."""
        return self.stream.object.number("BundleVersion", BUNDLE_VERSIONS[-1])

    @property
    def max_mib(self) -> int:
        """How large a bundle may be, in MiB."""
        return self.stream.object.number("maxBundleSize", MOST_MIB)

    def set(self, *, asset_list: str = "", bundle: str = "", version: int = 0, max_mib: int = 0) -> None:
        """Change what is said; "" and 0 change nothing."""
        given = {"AssetFileInfoListPath": asset_list, "BundleFilePath": bundle}
        given |= {"BundleVersion": str(version or ""), "maxBundleSize": str(max_mib or "")}
        for name, value in given.items():
            if value:
                self.stream.object.set(name, value)

    def text(self) -> str:
        """Return the file."""
        return object_stream.dump(self.stream)


def manifest_text(version: int, others: Iterable[str], levels: Iterable[str]) -> str:
    """Return a bundle's manifest: its catalog, the bundles that go with it, and the folders of levels in it."""
    fields = [
        object_stream.integer("BundleVersion", version),
        object_stream.string("CatalogName", CATALOG),
        object_stream.strings("DependentBundleNames", others),
        object_stream.strings("LevelNames", levels),
    ]
    return object_stream.dump(object_stream.stream_of(Element("AssetBundleManifest", _MANIFEST, version=2, children=fields)))

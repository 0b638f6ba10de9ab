"""A project for tests of relocations (moves of files).

The project has a database without an engine, files in two scan folders, and dependencies.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from aptui.config import load
from aptui.core.model import EdgeKind
from aptui.core.paths import path_uuid, to_text
from aptui.features.relocation.relocate import relocate
from aptui.features.relocation.relocation_records import Dependant, Relocate, RelocationItem, RelocationReport
from aptui.store.db import schema
from aptui.store.db.writer import Writer
from tests.store.conftest import Store, edge_row, job_row, source_row, uuid_of

SETTINGS = """
platforms: {linux: {tags: [tools]}}
scan_folders: [{name: game, path: assets}, {name: shared, path: shared}]
ignore: ["*.tmp", "raw/"]
builders: [{name: data, copy: ["*.png", "*.scene", "*.txt"]}]
companions: {"*.png": ["info", {suffix: settings, replaces: png}]}
cache: Cache
"""


class RelocationHarness:
    """A project whose sources are numbered in the order of creation; `uuid_of` gives the UUID of a number."""

    def __init__(self, root: Path, settings: str = SETTINGS) -> None:
        self.root = root
        (root / "Cache").mkdir(parents=True)
        for folder in ("assets", "shared"):
            (root / folder).mkdir()
        (root / "aptui.yaml").write_text(settings)
        path = root / "Cache" / "assetdb.sqlite"
        schema.prepare(path)
        saved: list[int] = []
        self.store = Store(path, Writer(path, saved.append), saved, 0)
        folders = [("game", str(root / "assets"), 0), ("shared", str(root / "shared"), 1)]
        self.ids, _ = self.store.writer.sync_scan_folders(folders)
        self.numbers: dict[str, int] = {}

    # ----------------------------------------------------------------------------------------------- creating files and rows

    def source(self, path: str, data: str | bytes = "x", *, product: str = "") -> Path:
        """Write a file and its source row, and a product row if `product` is given."""
        file = self.write(path, data)
        number = len(self.numbers) + 1
        folder, _, rel = path.partition("/")
        self.numbers[path] = number
        self.store.put(put_source=[source_row(number, rel, self.ids["game" if folder == "assets" else "shared"])])
        if product:
            self.store.put(put_job=[job_row(number, number)])
            self.store.put(put_product=[(number, number, product, number, b"T" * 16, 0, 1, b"D" * 32, 10)])
        return file

    def write(self, path: str, data: str | bytes = "x") -> Path:
        """Write a file that is not a source."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        return file

    def depend(self, source: str, target: str, kind: EdgeKind = EdgeKind.PATH) -> None:
        """Add a dependency of a source on a path or a UUID."""
        number = self.numbers[source]
        self.store.put(put_edge=[edge_row(kind, target, source_id=number, bits=2 if kind is EdgeKind.JOB else 1)])

    def need(self, source: str, target: str, *, by_uuid: bool = True, path: str = "") -> None:
        """Declare that the product of `source` needs the product of `target` at run time, or the unresolved `path` if it is set."""
        number, wanted = self.numbers[source], self.numbers[target]
        with closing(sqlite3.connect(self.store.path)) as database:
            database.execute(
                "INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags,"
                " UnresolvedPath, FromAssetId) VALUES (?, ?, ?, 'linux', 0, ?, ?)",
                (number, bytes(16) if path else uuid_of(wanted), wanted, path, int(by_uuid)),
            )
            database.commit()

    def with_path_uuid(self, path: str) -> str:
        """Give a source the UUID of its path, and return the UUID as hex."""
        uuid = path_uuid(path.partition("/")[2])
        with closing(sqlite3.connect(self.store.path)) as database:
            database.execute("UPDATE Sources SET SourceGuid = ? WHERE SourceID = ?", (uuid, self.numbers[path]))
            database.commit()
        return uuid.hex()

    # ----------------------------------------------------------------------------------------- relocations and their results

    def ask(self, source: str, destination: str = "", **options: bool) -> RelocationReport:
        """Plan a relocation, and perform the plan if it is confirmed."""
        order = Relocate(source, destination, is_delete=not destination, **options)  # type: ignore[arg-type]  # they are all flags
        return relocate(order, load.load(self.root))

    def do(self, source: str, destination: str = "", **options: bool) -> RelocationReport:
        """Perform a relocation."""
        return self.ask(source, destination, is_confirmed=True, **options)

    def files(self, folder: str = "assets") -> list[str]:
        """Return all files of a scan folder."""
        top = self.root / folder
        return sorted(to_text(bytes(path.relative_to(top))) for path in top.rglob("*") if not path.is_dir() or path.is_symlink())

    def text(self, path: str) -> str:
        """Return the text of a file."""
        return (self.root / path).read_bytes().decode()


def uuid_hex(number: int) -> str:
    """Return the UUID of the source with this number, in the spelling that texts use."""
    return uuid_of(number).hex()


def pairs(report: RelocationReport) -> list[tuple[str, str]]:
    """Return (old, new) of all files."""
    return [(item.old, item.new) for item in report.items]


def item_of(report: RelocationReport, old: str) -> RelocationItem:
    """Return one file of a report."""
    return next(item for item in report.items if item.old == old)


def fates(report: RelocationReport) -> dict[str, str]:
    """Return {path of a dependant: effect of the relocation on its dependency (`Fate`)}."""
    return {edge.path: edge.fate.value for item in report.items for edge in item.dependants}


def edges(report: RelocationReport) -> Sequence[Dependant]:
    """Return all dependencies."""
    return [edge for item in report.items for edge in item.dependants]


@contextmanager
def relocation_harness(folder: Path, settings: str = SETTINGS) -> Iterator[RelocationHarness]:
    """Make a project; leave the block to close its database."""
    harness = RelocationHarness(folder / "project", settings)
    try:
        yield harness
    finally:
        harness.store.close()

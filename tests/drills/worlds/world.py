"""A project with predictable products, random edits, and checks of the result after a fault."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from disk_project import HOST, Project, database, violations_of_rest

SETTINGS = """
scan_folders: [{name: game, path: assets}, {name: shared, path: shared, order: 10}]
builders:
  - {name: data, copy: ["*.txt"]}
  - name: upper
    patterns: ["*.up"]
    command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out; cp {source} {products_dir}/{stem}.raw"
"""


class World(Project):
    """Sources with versions: `<name>.txt` is copied, `<name>.up` becomes `<name>.out` and `<name>.raw`.

    `good` has the products of all complete versions, so that a half-written product or one of mixed versions is always detected.
    """

    settings = SETTINGS
    endings: tuple[str, ...] = (".txt", ".up")

    def __init__(self, root: Path, *, sources: int = 60, commands: int = 10, seed: int = 0) -> None:
        super().__init__(root, self.settings, workers=2)
        (root / "shared").mkdir(exist_ok=True)
        self.random = random.Random(seed)
        self.sources: dict[str, bytes] = {}
        self.good: set[tuple[str, bytes]] = set()
        self._version = 0
        for number in range(sources - commands):
            self.put(f"assets/f{number % 7}/s{number}.txt")
        for number in range(commands):
            self.put(f"assets/g{number % 3}/c{number}.up")

    def put(self, rel: str, data: bytes | None = None) -> None:
        """Write `data` to a source, or new content that contains the number of its version."""
        self._version += 1
        if data is None:
            head = f"{rel} version {self._version} ".encode()
            data = head * self.random.randrange(1, 200) + b"end"
        self.write(rel, data)
        self.sources[rel] = data
        self.good.update((name, hashlib.sha256(made).digest()) for name, made in self._made(rel, data).items())

    def delete_source(self, rel: str) -> None:
        """Delete a source."""
        self.delete(rel)
        del self.sources[rel]

    def rename(self, rel: str) -> None:
        """Rename a source; its bytes and times stay."""
        folder, _, name = rel.rpartition("/")
        self._version += 1
        new = f"{folder}/r{self._version}{name[name.index('.') :]}"
        self.move(rel, new)
        data = self.sources[new] = self.sources.pop(rel)
        self.good.update((name, hashlib.sha256(made).digest()) for name, made in self._made(new, data).items())

    def change(self, count: int) -> None:
        """Make `count` changes at random: edits, renames, deletions, new sources, overrides."""
        for _ in range(count):
            rel = self.random.choice(sorted(self.sources))
            kind = self.random.choices(("edit", "rename", "delete", "new", "override"), (6, 2, 2, 2, 1))[0]
            if kind == "edit":
                self.put(rel)
            elif kind == "rename":
                self.rename(rel)
            elif kind == "delete" and len(self.sources) > 10:
                self.delete_source(rel)
            elif kind == "override":
                self.put("shared/" + rel.partition("/")[2])
            else:
                self._version += 1
                self.put(f"assets/n{self._version % 4}/n{self._version}{self.random.choice(self.endings)}")

    def remember(self) -> dict[str, bytes]:
        """Return a copy of the current sources, which `go_back` can restore."""
        return dict(self.sources)

    def go_back(self, before: dict[str, bytes]) -> None:
        """Restore the sources that `remember` returned. Call this before a scan has noticed the edits."""
        for rel in sorted(self.sources.keys() - before.keys()):
            self.delete_source(rel)
        for rel, data in before.items():
            if self.sources.get(rel) != data:
                self.put(rel, data)

    @staticmethod
    def _made(rel: str, data: bytes) -> dict[str, bytes]:
        path = f"{HOST}/{rel.partition('/')[2]}".lower()
        if path.endswith(".txt"):
            return {path: data}
        return {path.removesuffix("up") + "out": data.upper(), path.removesuffix("up") + "raw": data}

    def expected(self) -> dict[str, bytes]:
        """Return the products of a clean build, computed without a build."""
        made: dict[str, bytes] = {}
        for rel in sorted(self.sources, reverse=True):  # in reverse order, so that a file in assets/ replaces one in shared/
            made.update(self._made(rel, self.sources[rel]))
        return made

    # --------------------------------------------------------------------------------------------------------------- oracle

    def half_products(self) -> list[str]:
        """Return products that no version of a source would produce: they are half written or mixed."""
        return [
            f"{name}: no version of it was ever like this ({len(data)} bytes)"
            for name, data in self.products().items()
            if (name, hashlib.sha256(data).digest()) not in self.good
        ]

    def database(self) -> AbstractContextManager[sqlite3.Connection]:
        """Open the asset database of a dead engine for reading."""
        return database(self.cache)

    def wrong_rows(self) -> list[str]:
        """Return products whose database row does not match the file, without products of interrupted commits (`aptui_intents`).

        After a kill, the engine would never notice this difference.
        """
        if not (self.cache / "assetdb.sqlite").exists():
            return []
        with self.database() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'aptui_intents'").fetchone():
                return []
            sql = "SELECT p.ProductName, o.digest FROM Products p JOIN aptui_products o ON o.product_id = p.ProductID"
            rows = dict(connection.execute(sql))
            promised = {name for (name,) in connection.execute("SELECT name FROM aptui_intents")}
        files = {name: hashlib.sha256(data).digest() for name, data in self.products().items()}
        return [
            f"{name}: its row names other bytes"
            for name, digest in rows.items()
            if name in files and name not in promised and files[name] != digest
        ]

    def violations(self) -> list[str]:
        """Return the violations of an idle engine after a restart: the cache must equal that of a clean build."""
        found = violations_of_rest(self.cache)
        made, expected = self.products(), self.expected()
        for name in sorted(made.keys() | expected.keys()):
            if made.get(name) != expected.get(name):
                state = "missing" if name not in made else "left over" if name not in expected else "of another version"
                found.append(f"{name}: {state}")
        found += [f"{name}: {status}" for name, status in self.statuses().items() if status != "completed"]
        return found

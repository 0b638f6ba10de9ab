"""A world with chains of three stages, and `.meta` files that are moved, changed and deleted with their sources."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

from disk_project import HOST, database

from aptui.core.identity import find_identified
from aptui.core.paths import path_uuid

from ..worlds.world import SETTINGS, World

CHAIN = """
  - {name: first, patterns: ["*.top"], intermediate: true, command: "tr a-z A-Z < {source} > {products_dir}/{stem}.mid"}
  - {name: second, patterns: ["*.mid"], intermediate: true, command: "head -c 40 {source} > {products_dir}/{stem}.low"}
  - {name: third, copy: ["*.low"]}
"""
_STAGES = (("common", ".mid"), ("common", ".low"), (HOST, ".low"))


class ChainedWorld(World):
    """In three stages, `<name>.top` becomes the intermediate `.mid`, then the intermediate `.low`, then the product `.low`.

    The second stage reads only the first 40 bytes of `.mid`, so that an edit of `.top` often changes no `.low`. Each `.mid` has a
    `.meta` file, which is made and deleted with it. Some `.top` files have a `.meta` file, too.
    """

    settings = f"metadata_types: [.mid]{SETTINGS}{CHAIN}"
    endings = (".txt", ".up", ".top", ".top")

    def __init__(self, root: Path, *, seed: int = 0) -> None:
        self.uuids: dict[str, UUID] = {}
        super().__init__(root, sources=20, commands=4, seed=seed)
        for number in range(16):
            rel = f"assets/h{number % 4}/t{number}.top"
            self.put(rel)
            if number % 2:
                self.identify(rel)

    def identify(self, rel: str) -> None:
        """Write or change the identity file of a source."""
        uuid = self.uuids[rel] = UUID(int=self.random.getrandbits(128), version=4)
        document = {"uuid": f"{{{uuid}}}", "legacyUuids": [], "originalPath": rel.partition("/")[2], "creationUnixEpochMS": 1}
        self.write(f"{rel}.meta", json.dumps({"FileVersion": 1, "UUID": document}))

    def anonymize(self, rel: str) -> None:
        """Delete the identity file of a source, if it has one."""
        if self.uuids.pop(rel, None) is not None:
            self.delete(f"{rel}.meta")

    def delete_source(self, rel: str) -> None:
        """Delete a source and its identity file."""
        super().delete_source(rel)
        self.anonymize(rel)

    def rename(self, rel: str) -> None:
        """Rename a source. Its identity file is renamed with it in 70 % of the cases, else deleted."""
        before = self.sources.keys() - {rel}
        super().rename(rel)
        (new,) = self.sources.keys() - before
        if rel in self.uuids and self.random.random() < 0.7:
            self.move(f"{rel}.meta", f"{new}.meta")
            self.uuids[new] = self.uuids.pop(rel)
        self.anonymize(rel)

    def change(self, count: int) -> None:
        """Make random changes of sources, then of identities."""
        super().change(count)
        for _ in range(count // 4):
            rel = self.random.choice(sorted(rel for rel in self.sources if rel.startswith("assets/")))
            self.random.choice((self.identify, self.anonymize))(rel)

    @staticmethod
    def _made(rel: str, data: bytes) -> dict[str, bytes]:
        path = rel.partition("/")[2].lower()
        if not path.endswith(".top"):
            return World._made(rel, data)
        contents = (data.upper(), data.upper()[:40], data.upper()[:40])
        return {f"{at}/{path[:-4]}{ending}": made for (at, ending), made in zip(_STAGES, contents, strict=True)}

    def products(self, cache: Path | None = None) -> dict[str, bytes]:
        """Return the products, without the identity files of intermediates."""
        return {name: data for name, data in super().products(cache).items() if not find_identified(name)}

    def half_products(self) -> list[str]:
        """Return products that no version of a source would produce (half written or mixed), and incomplete identity files."""
        metas = {name: data for name, data in super().products().items() if find_identified(name)}
        return [*super().half_products(), *(f"{name}: half an identity file" for name, data in metas.items() if data[-1:] != b"}")]

    def violations(self) -> list[str]:
        """Return all mistakes after a restart: mistakes that `World` finds, wrong UUIDs of sources, and missing identity files."""
        wanted: dict[str, bytes] = {}
        for rel in sorted(self.sources, reverse=True):  # the order of `expected`: a source in assets/ replaces one in shared/
            wanted[rel.partition("/")[2]] = self.uuids[rel].bytes if rel in self.uuids else bytes(path_uuid(rel.partition("/")[2]))
        with database(self.cache) as connection:
            found = dict(connection.execute("SELECT SourceName, SourceGuid FROM Sources"))
        wrong = [f"{rel}: it has the UUID {found.get(rel, b'').hex()}" for rel, uuid in wanted.items() if found.get(rel) != uuid]
        made = super().products()
        bare = [f"{name}: it has no identity file" for name in made if name.endswith(".mid") and f"{name}.meta" not in made]
        return [*super().violations(), *wrong, *bare]

"""Assets as people name them on the command line (sources, products, asset ids, globs), and the database that they mean.

Tests: `tests/verbs/shipping/test_shipping.py`.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from aptui.batch.options import load_config
from aptui.config.dirs import DATABASE, asset_database
from aptui.config.model import Config
from aptui.core.paths import from_text, normalize
from aptui.core.patterns import wildcard
from aptui.shared.errors import UserError
from aptui.shared.printing import line
from aptui.store.graph.asset_graph import AssetGraph, Node, is_product
from aptui.store.queries.assets import parse_asset_id, source_ids
from aptui.store.queries.reader import Reader, open_reader
from aptui.verbs.naming import as_text, find_source, meanings, nearest_sources

_GLOB = re.compile(r"[*?]")


class AskedAssets(Struct, frozen=True):
    """A database open for reading; `config` None = it is nobody's project. `cache_dir` has the products."""

    config: Config | None
    database: Reader
    cache_dir: Path

    def graph(self, platform: str = "") -> AssetGraph:
        """Return its graph, of one platform or ("") of all.

        Raises:
            UserError: nothing was ever made for that platform.
        """
        if platform:
            known = {name.lower(): name for name in AssetGraph(self.database).platforms()}
            if self.config is not None:
                known.update({item.id.lower(): item.id for item in self.config.project.platforms})
            if platform.lower() not in known:
                raise UserError(
                    f"there is no platform '{line(platform)}'", hint=f"there are {', '.join(map(line, known.values()))}"
                )
            platform = known[platform.lower()]
        return AssetGraph(self.database, platform)


def database_argument(parser: ArgumentParser) -> None:
    """Declare `--database`."""
    parser.add_argument(
        "--database", metavar="PATH", help="an assetdb.sqlite, of aptui or of O3DE, or its folder, instead of a project"
    )


@contextmanager
def open_asked(arguments: Namespace) -> Iterator[AskedAssets]:
    """Open what the command line means, for one consistent look at it."""
    if arguments.database:
        config, path = None, Path(os.path.abspath(arguments.database))
        path = path / DATABASE if path.is_dir() else path
    else:
        config = load_config(arguments)
        path = asset_database(config.cache_dir)
        if not path.is_file():
            raise UserError(f"nothing was processed yet: there is no '{path}'", hint="'aptui batch' processes the project")
    database = open_reader(path)
    try:
        with database.snapshot():
            yield AskedAssets(config, database, path.parent)
    finally:
        database.close()


class AssetNames:
    """What words mean in one graph."""

    def __init__(self, place: AskedAssets, graph: AssetGraph) -> None:
        self._place = place
        self._graph = graph

    def nodes(self, word: str) -> list[Node]:
        """Return what a word names: a source and its products, a product, an asset id, a dependency's file, a glob's matches.

        Raises:
            UserError: nothing has that name.
        """
        found = self._source(word) or self._product(word) or self._asset(word) or self._file(word) or self._matching(word)
        if not found:
            raise self._unknown(word)
        return found

    def products(self, word: str) -> list[Node]:
        """Return the products that a word names, those of its sources among them.

        Raises:
            UserError: nothing has that name.
        """
        return list(filter(is_product, self.nodes(word)))

    def _source(self, word: str) -> list[Node]:
        place = self._place
        if place.config is not None:
            source = find_source(word, place.config, place.database)
        else:
            source = place.database.source(normalize(as_text(word)))
        return self._with_products([source.source_id]) if source else []

    def _with_products(self, sources: list[int]) -> list[Node]:
        return [*(Node(-number) for number in sources), *self._graph.products_of(sources)]

    def _product(self, word: str) -> list[Node]:
        text = normalize(as_text(word)).lower()
        names = [text]
        cache = os.fsencode(self._place.cache_dir) + b"/"
        path = os.path.abspath(os.fsencode(word))
        if path.startswith(cache):
            names.append(as_text(os.fsdecode(path[len(cache) :])).lower())
        found = self._graph.products_named(names)
        return found or self._graph.products_named([f"{platform.lower()}/{text}" for platform in self._graph.platforms()])

    def _asset(self, word: str) -> list[Node]:
        parsed = parse_asset_id(word)
        if parsed is None:
            return []
        uuid, sub_id = parsed
        found = self._graph.assets(uuid, sub_id)
        return found if sub_id is not None else [*(Node(-number) for number in source_ids(self._place.database, uuid)), *found]

    def _file(self, word: str) -> list[Node]:
        config = self._place.config
        paths = [normalize(as_text(word)).lower()] if config is None else [item.rel.lower() for item in meanings(word, config)]
        for path in dict.fromkeys(paths):
            node = self._graph.file(path)
            if path and self._graph.needing([node]):
                return [node]
        return []

    def _matching(self, word: str) -> list[Node]:
        if not _GLOB.search(word):
            return []
        text = as_text(word).lower()
        matches = wildcard(text).fullmatch
        sources = self._with_products(self._graph.edges.matching(text))
        products = [Node(fact.product_id) for fact in self._graph.products(intermediates=True) if matches(fact.name.lower())]
        return list(dict.fromkeys([*sources, *products]))

    def _unknown(self, word: str) -> UserError:
        shown = line(as_text(word))
        if _GLOB.search(word):
            return UserError(f"'{shown}' matches no source and no product", hint="'aptui jobs' lists what there is")
        near = nearest_sources(word, self._place.database)
        hint = f"did you mean {' or '.join(repr(line(path)) for path in near)}?" if near else "'aptui jobs' lists what there is"
        return UserError(f"'{shown}' is no source, no product and no asset id here", hint=hint)


def product_path(cache_dir: Path, name: str) -> Path:
    """Return where a product lies.

    Raises:
        UserError: its name leads out of the cache, which a name that we wrote never does.
    """
    if name.startswith(("/", "..")) or "/" not in name or normalize(name) != name:
        raise UserError(f"'{line(name)}' cannot be the name of a product", hint="'aptui verify' looks at the database")
    return cache_dir / os.fsdecode(from_text(name))

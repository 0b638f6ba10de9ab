"""Assets named on the command line (sources, products, asset ids, globs), the database to search, and the spelling of references.

Tests: `tests/features/shipping/test_findings.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.batch.options import load_config
from aptui.cli.naming import find_source, meanings, suggest_sources
from aptui.cli.read_access import open_snapshot
from aptui.config.configuration import Config
from aptui.config.dirs import DATABASE, asset_database
from aptui.core.paths import as_text, from_text, normalize, os_path
from aptui.core.patterns import wildcard
from aptui.shared.errors import UserError
from aptui.shared.files.replacing import open_regular
from aptui.shared.printing import line
from aptui.store.queries.asset_graph import AssetGraph, Node, is_product
from aptui.store.queries.assets import parse_asset_id, source_ids
from aptui.store.queries.dependencies import NamedSource
from aptui.store.queries.reader import Reader

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

# A reference may differ from the name of its file only in letter case. Such a reference works on Windows, but not on Linux, so
# `lint` and `deps` report it.

_LARGEST_TEXT = 16 << 20
"""Number of bytes of a text that are searched for references; the rest of a longer text is not read."""
_BINARY_SAMPLE = 8192
"""Number of bytes at the beginning of a file that are searched for a zero byte, which only binary files have."""


class Misspelling(Struct, frozen=True):
    """A reference to the file `needed` in wrong letter case, found in the file `named_by`. `what` describes the difference."""

    named_by: str
    needed: str
    what: str


def find_misspelt(item: NamedSource) -> Iterator[Misspelling]:
    """Yield misspelt references in the text of a source, or of a file that it needs (such as an .mtl that names pictures)."""
    from aptui.config.folder import find_spelling  # imported here, because importing it is slow: it imports ruamel.yaml

    places = [(item.root, item.source), *((each.root, each.path) for each in item.needs)]
    places += ((item.root, find_spelling(item.root, file).removeprefix(f"{item.root}/")) for file in item.files)
    for needed in item.needs:
        wanted = os.fsencode(from_text(needed.path))
        texts = (place for place in places if place != (needed.root, needed.path))
        found = ((path, spelling(_text_of(root, path), wanted)) for root, path in texts)
        named_by, written = next((each for each in found if each[1] is not None), ("", None))
        if written is not None and written != wanted[-len(written) :]:
            what = f"contains the name '{written.decode('utf-8', 'backslashreplace')}', but the file is '{needed.path}'"
            yield Misspelling(named_by, needed.path, what)


def _text_of(root: str, path: str) -> bytes:
    """Return the bytes of a text file; return b"" if the file is binary or cannot be read."""
    try:
        with open_regular(os.path.join(os_path(root), os_path(path))) as stream:
            data = stream.read(_BINARY_SAMPLE)
            return b"" if b"\0" in data else data + stream.read(_LARGEST_TEXT)
    except OSError:
        return b""


def spelling(data: bytes, path: bytes) -> bytes | None:
    """Search a text for a path, or else for the longest end of the path; return the found spelling, None if no end occurs.

    The search ignores case.
    """
    lowered = _fold(data)
    steps = path.split(b"/")
    for first in range(len(steps)):
        wanted = b"/".join(steps[first:])
        if wanted in data:
            return wanted
        at = _find_word(lowered, _fold(wanted))
        if at >= 0:
            return data[at : at + len(wanted)]
    return None


_QUOTES = re.compile(rb"\xe2\x80[\x98-\x9f]|\xc2[\xab\xbb]")
"""Matches typographic quotes in UTF-8, whose bytes would otherwise count as letters of a name."""


def _fold(text: bytes) -> bytes:
    """Return a text of the same length in lower case and with blanks in place of typographic quotes."""
    return _QUOTES.sub(lambda quote: b" " * len(quote[0]), text.lower())


_NAME_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-." + bytes(range(128, 256)))
"""Bytes that continue a name: `A.PNG` in `DATA.PNG` is not a spelling of `a.png`."""


def _find_word(text: bytes, wanted: bytes) -> int:
    """Return the index of the first occurrence of `wanted` that is not a part of a longer name, -1 if it does not occur."""
    at = text.find(wanted)
    while at >= 0:
        after = text[at + len(wanted) : at + len(wanted) + 1]
        is_longer = after and after[0] in _NAME_BYTES and after not in b"-."
        if not is_longer and not (at and text[at - 1] in _NAME_BYTES):
            return at
        at = text.find(wanted, at + 1)
    return -1


_GLOB = re.compile(r"[*?]")


class AskedAssets(Struct, frozen=True):
    """A database open for reading. `config` is None if the database's project is unknown. `cache_dir` contains the products."""

    config: Config | None
    database: Reader
    cache_dir: Path

    def graph(self, platform: str = "") -> AssetGraph:
        """Return the asset graph of one platform, "" for all platforms.

        Raises:
            UserError: the database has no products for that platform.
        """
        if platform:
            known = {name.lower(): name for name in AssetGraph(self.database).platforms()}
            if self.config is not None:
                known.update({item.id.lower(): item.id for item in self.config.project.platforms})
            if platform.lower() not in known:
                raise UserError(
                    f"'{line(platform)}' is not a platform", hint=f"the platforms are: {', '.join(map(line, known.values()))}"
                )
            platform = known[platform.lower()]
        return AssetGraph(self.database, platform)


def database_argument(parser: ArgumentParser) -> None:
    """Declare `--database`."""
    parser.add_argument(
        "--database",
        metavar="PATH",
        help="read this assetdb.sqlite (of aptui or O3DE), or the one in this folder, instead of a project",
    )


@contextmanager
def open_asked(arguments: Namespace) -> Iterator[AskedAssets]:
    """Open the database that the command line names, in one read transaction."""
    if arguments.database:
        config, path = None, Path(os.path.abspath(arguments.database))
        path = path / DATABASE if path.is_dir() else path
    else:
        config = load_config(arguments)
        path = asset_database(config.cache_dir)
    with open_snapshot(path, config) as database:
        yield AskedAssets(config, database, path.parent)


class AssetNames:
    """Finds the assets that words of the command line name, in one asset graph."""

    def __init__(self, place: AskedAssets, graph: AssetGraph) -> None:
        self._place = place
        self._graph = graph

    def nodes(self, word: str) -> list[Node]:
        """Return the graph's nodes for a word: a source and its products, a product, an asset id, a dependency, or a glob.

        Raises:
            UserError: nothing has that name.
        """
        found = self._source(word) or self._product(word) or self._asset(word) or self._file(word) or self._matching(word)
        if not found:
            raise self._unknown(word)
        return found

    def products(self, word: str) -> list[Node]:
        """Return the products that a word names; for a source, all its products.

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
            return UserError(f"'{shown}' matches no source and no product", hint="'aptui jobs' lists the sources with jobs")
        hint = suggest_sources(word, self._place.database)
        return UserError(f"'{shown}' is not a source, a product or an asset id of this project", hint=hint)


def product_path(cache_dir: Path, name: str) -> Path:
    """Return the absolute path of a product.

    Raises:
        UserError: the name leads out of the cache; aptui never writes such a name.
    """
    if name.startswith(("/", "..")) or "/" not in name or normalize(name) != name:
        raise UserError(f"'{line(name)}' cannot be the name of a product", hint="'aptui verify' checks the database")
    return cache_dir / os_path(name)

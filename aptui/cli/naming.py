"""Names of sources, jobs and assets: parsed from the command line, and compared with the spelling of files.

A path may have any form. A job is `#<JobID>` or `PATH[@PLATFORM][:JOB KEY]`. A part of a name may match several assets.

Tests: `tests/test_linear_patterns.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.batch.options import load_config
from aptui.cli.read_access import open_snapshot
from aptui.config.configuration import Config
from aptui.config.dirs import DATABASE, asset_database
from aptui.core.model import describe_key
from aptui.core.paths import builder_uuid, from_text, normalize, to_text
from aptui.core.patterns import wildcard
from aptui.shared.errors import UserError
from aptui.shared.printing import line
from aptui.store.queries.asset_graph import AssetGraph, Node, is_product
from aptui.store.queries.assets import parse_asset_id, source_ids
from aptui.store.queries.reader import JobRow, Reader, SourceRow
from aptui.store.queries.source_edges import NamedSource

# References that differ from the name of the file only in letter case. They may work on Windows, but not on Linux.
#
# `lint` and `deps` report them.

_LARGEST_TEXT = 16 << 20
_BINARY_SAMPLE = 8192


class Misspelling(Struct, frozen=True):
    """A file whose text spells the name of the file `needed` differently; `what` describes the difference."""

    named_by: str
    needed: str
    what: str


def find_misspelt(item: NamedSource) -> Iterator[Misspelling]:
    """Yield misspelt references in the text of a source, or of a file that it needs (such as an .mtl that names pictures)."""
    from aptui.config.folder import find_spelling  # imported here, because the module imports the readers of YAML

    places = [(item.root, item.source), *((each.root, each.path) for each in item.needs)]
    places += ((item.root, find_spelling(item.root, file).removeprefix(f"{item.root}/")) for file in item.files)
    for needed in item.needs:
        wanted = os.fsencode(from_text(needed.path))
        texts = (place for place in places if place != (needed.root, needed.path))
        found = ((path, spelling(_text_of(root, path), wanted)) for root, path in texts)
        named_by, written = next((each for each in found if each[1] is not None), ("", None))
        if written is not None and written != wanted[-len(written) :]:
            what = f"names '{written.decode('utf-8', 'backslashreplace')}', the file is '{needed.path}'"
            yield Misspelling(named_by, needed.path, what)


def _text_of(root: str, path: str) -> bytes:
    """Return the bytes of a text file; return b"" if the file is binary or cannot be read."""
    try:
        with open(os.path.join(os.fsdecode(from_text(root)), os.fsdecode(from_text(path))), "rb") as stream:
            data = stream.read(_BINARY_SAMPLE)
            return b"" if b"\0" in data else data + stream.read(_LARGEST_TEXT)
    except OSError:
        return b""


def spelling(data: bytes, path: bytes) -> bytes | None:
    """Return a path, or the longest end of it that occurs in a text, in the text's spelling; None if no end occurs.

    The search ignores case.
    """
    lowered = data.lower()
    steps = path.split(b"/")
    for first in range(len(steps)):
        wanted = b"/".join(steps[first:])
        if wanted in data:
            return wanted
        at = lowered.find(wanted.lower())
        if at >= 0:
            return data[at : at + len(wanted)]
    return None


if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_LISTED = 20


class NamedPath(Struct, frozen=True):
    """A path that was found: relative path, path of the scan folder ("" = only the relative path was given), absolute path."""

    rel: str
    root: str
    path: str


# ------------------------------------------------------------------------------------------------------------------- paths


def as_text(word: str) -> str:
    """Return a word of the command line as a path in text form (`core.paths`)."""
    return to_text(os.fsencode(word))


def meanings(word: str, config: Config) -> list[NamedPath]:
    """Return the possible meanings of a path, the likeliest first.

    An existing file below the working folder comes first, then the scan folders.
    """
    text = as_text(word)
    here = to_text(os.fsencode(os.path.abspath(os.fsencode(word))))
    seen_from_here = [
        NamedPath(here[len(folder.path) + 1 :] if here != folder.path else "", folder.path, here)
        for folder in config.project.scan_folders
        if here == folder.path or here.startswith(folder.path + "/")
    ]
    seen_from_here.sort(key=lambda named: -len(named.root))
    if os.path.isabs(word):
        return seen_from_here
    # A word has three readings: as it is, with backslashes as on Windows, and as `--json` prints names that are not UTF-8.
    rels = dict.fromkeys(
        (text, normalize(text), *([normalize(word)] if any(character >= "\U0010ff00" for character in word) else []))
    )
    below = [
        NamedPath(rel, folder.path, f"{folder.path}/{rel}")
        for rel in rels
        if not rel.startswith("..")
        for folder in config.project.scan_folders
    ]
    exists_here = os.path.lexists(word)
    return [*seen_from_here, *below] if exists_here else [*below, *seen_from_here]


def find_source(word: str, config: Config, database: Reader) -> SourceRow | None:
    """Return the source that a path names, None if the source has no jobs."""
    for named in meanings(word, config):
        found = database.source(named.rel)
        if found is not None:
            return found
    return None


def nearest_sources(word: str, database: Reader) -> list[str]:
    """Return at most three paths of sources that are similar to `word`."""
    from difflib import get_close_matches

    wanted = as_text(word).lower()
    name = wanted.rpartition("/")[2]
    by_name: dict[str, list[str]] = {}
    for row in database.sources():
        by_name.setdefault(row.source.lower().rpartition("/")[2], []).append(row.source)
    close = get_close_matches(name, by_name, cutoff=0.6)
    paths = [path for each in close for path in by_name[each]]
    return get_close_matches(wanted, paths, cutoff=0.0)


def suggest_sources(word: str, database: Reader) -> str:
    """Return a hint with the paths of sources that are similar to `word`."""
    near = nearest_sources(word, database)
    return f"did you mean {' or '.join(repr(line(path)) for path in near)}?" if near else "'aptui jobs' lists the sources with jobs"


def unknown(word: str, database: Reader) -> UserError:
    """Return the error for a path that is not a source, with similar paths as suggestions."""
    return UserError(f"'{line(as_text(word))}' is not a source of this project", hint=suggest_sources(word, database))


def refuse_unknown_run(number: int, count: int) -> None:
    """Refuse the number of a run if the job, which has `count` stored runs, does not have that run.

    Raises:
        UserError: with the number of runs.
    """
    if not 1 <= number <= count:
        known = f"there are {count}" if count else "none is recorded"
        raise UserError(f"there is no run {number} of this job", hint=f"{known}; 1 is the last one")


def refuse_failed_analysis(row: JobRow, purpose: str, hint: str) -> None:
    """Refuse a failed analysis, because it has no job; `purpose` says what the job is needed for.

    Raises:
        UserError: the row is one of an analysis.
    """
    if not row.job_id:
        raise UserError(f"'{line(row.source)}' failed at its analysis: there is no job to {purpose}", hint=hint)


# -------------------------------------------------------------------------------------------------------------------- jobs


def find_job(word: str, config: Config, database: Reader) -> JobRow:
    """Return the one job that `word` names.

    Raises:
        UserError: no job matches, or several do; the message lists them.
    """
    if re.fullmatch(r"#\d+", word):
        found = database.job(int(word[1:]))
        if found is None:
            raise UserError(f"there is no job {word}", hint="'aptui jobs --json' has their numbers")
        return found
    rows = jobs_named(word, config, database)
    if rows is None:
        raise unknown(word, database)
    if len(rows) != 1:
        raise _ambiguous(word, rows)
    return rows[0]


def jobs_named(word: str, config: Config, database: Reader) -> list[JobRow] | None:
    """Return the jobs that `PATH[@PLATFORM][:JOB KEY]` names, None if the source does not exist.

    The longest path that exists wins.
    """
    for path, platform, key in _readings(word):
        source = find_source(path, config, database)
        if source is not None:
            rows = database.jobs_of(source.source_id)
            return [
                row
                for row in rows
                if (platform is None or row.platform.lower() == platform.lower()) and (key is None or _is_key(key, row))
            ]
    return None


def _is_key(word: str, row: JobRow) -> bool:
    """Return whether `word` is the key of a job.

    The key of an analysis is `analysis` or `analysis:BUILDER`.
    """
    name, _, builder = word.partition(":")
    is_builder = not builder or builder_uuid(builder) == row.builder
    return row.job_key.lower() == word.lower() or (describe_key(row.job_key) == name.lower() and is_builder and not row.job_id)


def _readings(word: str) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield every (path, platform, key) that `word` can mean, the longest paths first, because names may contain `@` and `:`."""
    readings: list[tuple[str, str | None, str | None]] = [(word, None, None)]
    marks = [at for at, char in enumerate(word) if char in "@:" and at > 0]
    for at in marks:
        path, rest = word[:at], word[at + 1 :]
        if word[at] == ":":
            readings.append((path, None, rest))
        else:
            platform, colon, key = rest.partition(":")
            readings.append((path, platform, key if colon else None))
    yield from sorted(readings, key=lambda reading: -len(reading[0]))


def _ambiguous(word: str, rows: Sequence[JobRow]) -> UserError:
    if not rows:
        return UserError(f"'{line(as_text(word))}' does not have this job", hint="'aptui why PATH' lists those it has")
    names = [
        f"  {line(f'{row.source}@{row.platform}:{describe_key(row.job_key)}')}{f'  #{row.job_id}' if row.job_id else ''}"
        for row in rows
    ]
    if len(names) > _LISTED:
        names[_LISTED:] = [f"  and {len(names) - _LISTED} more"]
    return UserError(f"'{line(as_text(word))}' names {len(rows)} jobs:\n" + "\n".join(names), hint="name one of them")


# ---------------------------------------------------------------------------------------------------------------- patterns


def path_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that reports whether a path matches a pattern with `*` or `?`.

    If `pattern` has no `/`, the last part of the path is matched.
    """
    match = wildcard(pattern).fullmatch
    if "/" not in pattern:
        return lambda text: match(text) is not None or match(text.rpartition("/")[2]) is not None
    return lambda text: match(text) is not None


# Assets named on the command line (sources, products, asset ids, globs), and the database to search.

_GLOB = re.compile(r"[*?]")


class AskedAssets(Struct, frozen=True):
    """A database open for reading. `config` None = the database's project is unknown. `cache_dir` contains the products."""

    config: Config | None
    database: Reader
    cache_dir: Path

    def graph(self, platform: str = "") -> AssetGraph:
        """Return the asset graph of one platform, "" = of all.

        Raises:
            UserError: the database has no products for that platform.
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
        return UserError(f"'{shown}' is not a source, a product or an asset id here", hint=hint)


def product_path(cache_dir: Path, name: str) -> Path:
    """Return the absolute path of a product.

    Raises:
        UserError: its name leads out of the cache, which a name that aptui wrote never does.
    """
    if name.startswith(("/", "..")) or "/" not in name or normalize(name) != name:
        raise UserError(f"'{line(name)}' cannot be the name of a product", hint="'aptui verify' checks the database")
    return cache_dir / os.fsdecode(from_text(name))

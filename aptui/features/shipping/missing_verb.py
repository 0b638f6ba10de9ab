"""`scan-missing`: search products and other files for references to assets that are not declared.

The database stores only findings in products. Other files are searched in this process, and the findings in them are printed at
once.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from aptui.batch.options import load_config, refuse_ignored
from aptui.cli.read_access import open_for_reading
from aptui.config import trust
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database
from aptui.core.notices import MissingScan, Notice
from aptui.core.paths import os_path
from aptui.core.patterns import wildcard
from aptui.engine.loop.opening import PreparedSession
from aptui.features.shipping.cache_check import is_settled
from aptui.features.shipping.missing_rows import NO_UUID, NOTHING, ClearMissing, FoundName, ScanMissing, choose_scanned, results
from aptui.features.shipping.missing_search import FileFound, MissingSearch, SearchedProject, Tally
from aptui.features.shipping.name_scanner import LINE_LIMIT
from aptui.link import port
from aptui.link.engine_client import EngineClient, NoEngine
from aptui.shared import printing
from aptui.shared.errors import KnownError, UserError
from aptui.shared.files.replacing import read_regular
from aptui.shared.forms import prepare_form
from aptui.store.queries.asset_graph import AssetGraph
from aptui.store.queries.assets import asset_id_text
from aptui.store.queries.reader import SourceRow, open_reader

if TYPE_CHECKING:
    from aptui.store.db.writer import Writer


FOUND = 1
_HEAD_BYTES = 4096
_INCOMPLETE = 2


def scan_missing_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `scan-missing`."""
    parser.add_argument(
        "patterns",
        nargs="*",
        metavar="PATTERN",
        help="products to search: a path, a folder, a wildcard ('*.lua'), LIKE ('%%.lua'), UUID, asset id",
    )
    parser.add_argument("--sources", action="store_true", help="also search text files of the sources")
    parser.add_argument(
        "--folders", nargs="+", action="extend", default=[], metavar="DIR", help="also search all files in these folders"
    )
    parser.add_argument(
        "--max-matches",
        type=int,
        metavar="N",
        help=f"maximum number of names per line; 0 = no limit (default: {LINE_LIMIT})",
    )
    parser.add_argument("--clear", action="store_true", help="delete the findings of these products instead of searching")
    parser.add_argument("--fail", action="store_true", help="exit with code 1 if dependencies are missing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def scan_missing(arguments: Namespace) -> int:
    """Search; with `--fail`, return 1 if dependencies are missing."""
    if arguments.clear:
        refuse_ignored(arguments, ["sources", "folders", "max-matches", "fail"], "has no effect with '--clear'")
    arguments.max_matches = LINE_LIMIT if arguments.max_matches is None else arguments.max_matches
    config = load_config(arguments)
    _refuse_no_folders(arguments.folders)
    with _engine(config) as client:
        if client is not None:
            client.ask(port.Settle())
        with open_for_reading(arguments, config) as project:
            product_ids = [each.product_id for each in choose_scanned(project.database, arguments.patterns)]
            sources = list(_sources(project.database.sources(), arguments.patterns)) if arguments.sources else []
        if arguments.patterns and not product_ids and not sources and not arguments.folders:
            raise UserError(
                f"no product matches '{printing.line(' '.join(arguments.patterns))}'",
                hint="write a path, or a wildcard such as '*.lua'",
            )
        if arguments.clear:
            return _clear(arguments, config, client)
        tally = Tally()
        if product_ids:
            tally = _alone(config, arguments) if client is None else _search_in_engine(client, arguments)
    files = [*filter(_is_text, sources), *_files_in(arguments.folders)]
    found, more = _search(config, arguments).files(files) if files else ([], Tally())
    with open_for_reading(arguments, config) as project:
        rows = results(project.database, product_ids) if product_ids else []
    _print(arguments, tally, rows, found, more)
    if tally.is_given_up:
        return _INCOMPLETE
    return FOUND if arguments.fail and tally.flawed + more.flawed else 0


@contextmanager
def _engine(config: Config) -> Iterator[EngineClient | None]:
    """Connect to the running engine and yield the connection; yield None if no engine is running."""
    try:
        client = EngineClient.of(config.cache_dir, kind="scan-missing")
    except NoEngine:
        yield None
        return
    with client:
        yield client


def _search(config: Config, arguments: Namespace) -> MissingSearch:
    roots = tuple(folder.path for folder in config.project.scan_folders)
    return MissingSearch(SearchedProject(asset_database(config.cache_dir), config.cache_dir, roots), arguments.max_matches)


# ---------------------------------------------------------------------------------------------------------------- products


@contextmanager
def _hold_database(config: Config) -> Iterator[Writer]:
    """Lock the cache as an engine does, and open its database for writing."""
    from aptui.store.db.writer import Writer

    trust.require_for_start(config, "scan-missing")
    with closing(open_reader(asset_database(config.cache_dir))) as reader:
        processed = AssetGraph(reader).platforms()
    opening = PreparedSession(config, platforms=[item.id for item in config.project.platforms if item.id in processed])
    opening.acquire()
    with closing(opening):
        if not is_settled(opening):
            printing.complain("aptui: warning: jobs are pending, so findings may be out of date; run 'aptui batch' first", "yellow")
        with closing(Writer(opening.database, lambda _ticket: None)) as writer:
            yield writer


def _alone(config: Config, arguments: Namespace) -> Tally:
    with _hold_database(config) as writer:
        with closing(open_reader(asset_database(config.cache_dir))) as reader:
            wanted = choose_scanned(reader, arguments.patterns)
        with closing(_MissingReporter(len(wanted))) as reporter:
            save = partial(writer.run, durable=False)
            return _search(config, arguments).products(wanted, save, lambda tally: reporter(tally.done, tally.hits))


def _search_in_engine(client: EngineClient, arguments: Namespace) -> Tally:
    """Ask the running engine to search for missing dependencies, and show the progress of the search."""
    answers: list[port.Answer | KnownError] = []
    client.ask(port.Subscribe(wants_all=False))
    client.post(ScanMissing(tuple(arguments.patterns), max_matches=arguments.max_matches), answers.append)
    with closing(_MissingReporter(0)) as reporter:

        def take_notice(notice: Notice) -> None:
            if isinstance(notice, MissingScan) and not notice.is_over:
                reporter(notice.done_count, notice.hit_count, notice.file_count)

        client.listen_while_alive(lambda: answers, on_news=lambda news: take_notice(news.notice))
    answer = answers[0]
    if isinstance(answer, KnownError):
        raise answer
    return msgspec.convert(answer, prepare_form(Tally))


class _MissingReporter:
    """Prints the progress of a search on a terminal."""

    def __init__(self, count: int) -> None:
        self._count, self._is_shown = count, False
        self._can_show = printing.is_terminal(sys.stderr)

    def __call__(self, done: int, hits: int, count: int = 0) -> None:
        self._count = count or self._count
        if self._can_show:
            self._is_shown = True
            print(f"\r{done:,} of {self._count:,} products, {hits:,} missing", end="\033[K", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._is_shown = False


def _clear(arguments: Namespace, config: Config, client: EngineClient | None) -> int:
    if client is not None:
        count = int(str(client.ask(ClearMissing(tuple(arguments.patterns)))["count"]))
    else:
        with _hold_database(config) as writer, closing(open_reader(asset_database(config.cache_dir))) as reader:
            products = choose_scanned(reader, arguments.patterns)
            writer.run({"drop_missing": [(each.product_id,) for each in products]}, durable=False)
            count = len(products)
    return printing.say_answer(arguments.json, {"cleared": count}, f"{printing.count(count, 'product')} cleared")


# ------------------------------------------------------------------------------------------------------------- other files


def _refuse_no_folders(folders: Sequence[str]) -> None:
    for folder in folders:
        if not os.path.isdir(folder):
            raise UserError(
                f"the folder '{printing.line(folder)}' does not exist",
                hint="all words after --folders are folders, so write patterns of products before --folders",
            )


def _sources(rows: Iterator[object], patterns: Sequence[str]) -> Iterator[str]:
    names = [pattern.lower().replace("%", "*").removesuffix("/") for pattern in patterns]
    wanted = [(wildcard(name).fullmatch, f"{name}/") for name in names]
    for row in rows:
        assert isinstance(row, SourceRow)
        path = row.source.lower()
        if not wanted or any(matches(path) or path.startswith(folder) for matches, folder in wanted):
            yield os_path(f"{row.root}/{row.source}")


def _is_text(path: str) -> bool:
    try:
        head = read_regular(path, _HEAD_BYTES)
    except OSError:
        return True  # treat the file as text, so that the search reports the error
    return b"\0" not in head or head.startswith((b"\xff\xfe", b"\xfe\xff"))


def _files_in(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        for parent, _, names in os.walk(os.path.abspath(folder)):
            yield from (os.path.join(parent, name) for name in sorted(names) if os.path.isfile(os.path.join(parent, name)))


# ------------------------------------------------------------------------------------------------------------- printing


def _print(arguments: Namespace, tally: Tally, rows: Sequence[FoundName], files: Sequence[FileFound], more: Tally) -> None:
    if arguments.json:
        printing.say_json(_json(tally, rows, files, more))
        return
    for complaint in dict.fromkeys([*tally.complaints, *more.complaints]):
        printing.complain(f"aptui: warning: {printing.line(complaint)}", "yellow")
    before = ""
    for row in rows:
        if row.text == NOTHING and row.uuid == NO_UUID:
            continue
        if row.name != before:
            printing.say(printing.line(row.name), "bold")
            before = row.name
        _print_one(row.text, row.uuid, row.sub_id, row.meant)
    for file in files:
        printing.say(printing.line(file.path), "bold")
        for hit in file.hits:
            _print_one(hit.text, hit.uuid, hit.sub_id, hit.product)
        if file.says:
            printing.say(f"  {file.says}", "yellow")
    printing.say(_verdict(tally, more))


def _print_one(text: str, uuid: bytes, sub_id: int, meant: str) -> None:
    if uuid == NO_UUID:
        printing.say(f"  {printing.line(text)}", "yellow")
    else:
        printing.say(f"  '{printing.line(text)}' is {printing.line(meant)}  {asset_id_text(uuid, sub_id)}", "red")


def _verdict(tally: Tally, more: Tally) -> str:
    parts = [printing.count(tally.done, "product")] + ([printing.count(more.done, "other file")] if more.done else [])
    hits, flawed = tally.hits + more.hits, tally.flawed + more.flawed
    dependencies = f"{hits:,} missing {'dependency' if hits == 1 else 'dependencies'}"
    missing = f"{dependencies} in {printing.count(flawed, 'file')}" if hits else "no missing dependencies"
    others = {
        "partially": tally.partial + more.partial, "ignored by file tags": tally.ignored + more.ignored,
        "unreadable": tally.failed + more.failed,
    }  # fmt: skip
    rest = [f"{number:,} {word}" for word, number in others.items() if number]
    took = printing.duration(tally.seconds + more.seconds)
    return f"{' and '.join(parts)} searched, {tally.read + more.read:,} of them read: {', '.join((missing, *rest))}; {took}"


def _json(tally: Tally, rows: Sequence[FoundName], files: Sequence[FileFound], more: Tally) -> dict[str, object]:
    counts = ("done", "read", "flawed", "hits", "failed", "partial", "ignored")
    return {
        **{name: getattr(tally, name) + getattr(more, name) for name in counts},
        "seconds": round(tally.seconds + more.seconds, 3),
        "products": [
            {"product": row.name, "text": row.text, "asset_id": asset_id_text(row.uuid, row.sub_id), "means": row.meant}
            for row in rows
            if row.uuid != NO_UUID
        ],
        "remarks": [{"product": row.name, "text": row.text} for row in rows if row.uuid == NO_UUID and row.text != NOTHING],
        "files": [
            {
                "path": file.path,
                "says": file.says,
                "missing": [
                    {"text": hit.text, "asset_id": asset_id_text(hit.uuid, hit.sub_id), "means": hit.product} for hit in file.hits
                ],
            }
            for file in files
        ],
        "complaints": list(dict.fromkeys([*tally.complaints, *more.complaints])),
    }

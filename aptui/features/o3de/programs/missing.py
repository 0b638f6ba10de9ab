"""The search for missing dependencies that an asset processor makes at the end of its work (`--dsp` and what goes with it).

Tests: `tests/features/o3de/programs/test_asset_processor.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby

from aptui.core.paths import from_text
from aptui.core.patterns import wildcard
from aptui.features.o3de.programs.output import lines
from aptui.features.o3de.programs.run_request import RunRequest, ask_holder
from aptui.features.relocation import relocate
from aptui.features.shipping import missing_rows as store
from aptui.features.shipping.missing_records import LINE_LIMIT
from aptui.features.shipping.missing_rows import NO_UUID, Scanned
from aptui.features.shipping.name_scanner import FileFound, MissingSearch, NamePlace
from aptui.features.shipping.scan_requests import ScanMissing
from aptui.shared.errors import BusyError
from aptui.store.db.schema import uuid_text
from aptui.store.db.writer import Writer
from aptui.store.queries.reader import open_reader


def scan(start: RunRequest, pattern: str) -> None:
    """Search products like `pattern` (SQL LIKE), and files of the additional folders, for what they name and do not declare.

    Raises:
        KnownError: a number is none, or the database cannot be used.
    """
    limit = start.given.number("dependencyScanMaxIteration")
    limit = LINE_LIMIT if limit is None else limit
    names = wildcard(start.given.first("fileDependencyScanPattern") or "*")
    roots = tuple(folder.path for folder in start.config.project.scan_folders)
    search = MissingSearch(NamePlace(start.database, start.config.cache_dir, roots), limit)
    with closing(open_reader(start.database)) as reader:
        wanted = [
            each
            for each in store.choose_scanned(reader, [pattern])
            if names.fullmatch(each.name) or names.fullmatch(_base(each.name))
        ]
    if wanted:
        _scan_products(start, search, wanted, limit)
    _print_products(start, wanted)
    paths = [path for path in _files(start) if names.fullmatch(path) or names.fullmatch(os.path.basename(path))]
    if paths:
        found, _tally = search.files(paths)
        _print_files(start, paths, found)


def _scan_products(start: RunRequest, search: MissingSearch, wanted: Sequence[Scanned], limit: int) -> None:
    try:
        with relocate.hold_engines_off(start.config), closing(Writer(start.database, lambda _ticket: None)) as writer:
            search.products(wanted, lambda rows: writer.run(rows, durable=False))
    except BusyError as busy:
        ask_holder(start.config, busy, ScanMissing(product_ids=tuple(each.product_id for each in wanted), max_matches=limit))


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _files(start: RunRequest) -> Iterator[str]:
    """Yield the files below the additional folders; relative ones lie in the project."""
    for folder in start.given.all("additionalScanFolders"):
        for parent, below, names in os.walk(os.path.join(start.config.project_dir, folder)):
            below.sort()
            yield from (os.path.join(parent, name) for name in sorted(names))


def _print_products(start: RunRequest, wanted: Sequence[Scanned]) -> None:
    with closing(open_reader(start.database)) as reader:
        rows = store.results(reader, [each.product_id for each in wanted])
    hits = {number: list(group) for number, group in groupby(rows, key=lambda row: row.product_id)}
    for product in wanted:
        start.console.say(lines.missing_scan(os.path.join(start.config.cache_dir, os.fsdecode(from_text(product.name)))))
        for hit in hits.get(product.product_id, ()):
            if hit.uuid != NO_UUID:
                start.console.say(lines.missing_dependency(hit.text, uuid_text(hit.uuid), hit.sub_id))


def _print_files(start: RunRequest, paths: Sequence[str], found: Sequence[FileFound]) -> None:
    by_path = {each.path: each for each in found}
    for path in paths:
        start.console.say(lines.missing_scan(path))
        if path in by_path:
            for hit in by_path[path].hits:
                start.console.say(lines.missing_dependency(hit.text, uuid_text(hit.uuid), hit.sub_id))

"""`move`, `delete` and `identities`: move and delete sources with their metadata; a preview unless `--confirm` is given.

If an engine is running, the engine performs the move or deletion as one batch.
"""

from __future__ import annotations

import json
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, to_builtins

from aptui.batch.options import load_config
from aptui.cli.read_access import open_for_reading
from aptui.config.configuration import Config
from aptui.core.identity import META_SUFFIX, REMOVED_SOURCE_STATE, format_braced, unpack
from aptui.core.paths import as_text, from_text, is_below, os_path
from aptui.features.relocation.relocation_records import Relocate, RelocationReport, describe_report
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.shared.files.replacing import replace_bytes
from aptui.shared.forms import prepare_form
from aptui.store.queries.reader import Reader

NOT_DONE = 1
_REFUSED = UserError.exit_code
_SOURCE_HELP = (
    "path of a source, relative to its scan folder or absolute; put wildcards in quotes: 'images/*' matches all files below images"
)


def move_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `move`."""
    parser.add_argument("source", metavar="SRC", help=_SOURCE_HELP)
    parser.add_argument(
        "destination",
        metavar="DST",
        help="the new path, relative to the scan folder of SRC or absolute; it has as many '*' as SRC; '/' at "
        "its end keeps the name of the file",
    )
    _arguments(parser)
    parser.add_argument("--update-references", action="store_true", help="rewrite paths and UUIDs in the files that depend on SRC")


def delete_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `delete`."""
    parser.add_argument("source", metavar="SRC", help=_SOURCE_HELP)
    _arguments(parser)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--confirm", action="store_true", help="change the files; without this option only a preview is printed")
    parser.add_argument(
        "--allow-broken-dependencies", action="store_true", help="change the files even if other files depend on them"
    )
    parser.add_argument("--leave-empty-folders", action="store_true", help="keep folders that become empty")
    parser.add_argument(
        "--exclude-metadata-files", action="store_true", help="do not move or delete .meta files and other companions"
    )
    parser.add_argument("--scm", action="store_true", help="use 'git mv' and 'git rm' for tracked files")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def move(arguments: Namespace) -> int:
    """Move sources, or print a preview."""
    return _relocate(arguments, arguments.destination)


def delete(arguments: Namespace) -> int:
    """Delete sources, or print a preview."""
    return _relocate(arguments, None)


def _relocate(arguments: Namespace, destination: str | None) -> int:
    """Move or delete (`destination` None) sources, or print a preview."""
    config = load_config(arguments)
    source, target = _as_seen_from_here(arguments.source, destination or "", config)
    order = Relocate(
        source=source,
        destination=target,
        is_delete=destination is None,
        is_confirmed=arguments.confirm,
        updates_references=getattr(arguments, "update_references", False),
        allows_broken=arguments.allow_broken_dependencies,
        leaves_empty_folders=arguments.leave_empty_folders,
        excludes_metadata=arguments.exclude_metadata_files,
        uses_scm=arguments.scm,
    )
    report = _perform(config, order)
    if arguments.json:
        printing.say_json(to_builtins(report))
    else:
        _print(report)
    if report.refusals and order.is_confirmed:
        return _REFUSED
    return NOT_DONE if report.is_performed and not report.is_whole else 0


def _perform(config: Config, order: Relocate) -> RelocationReport:
    """Perform the request and return its report. A running engine performs it, unless the request is only for a preview."""
    from aptui.features.relocation.relocate import hold_engines_off, relocate
    from aptui.link.engine_client import EngineClient, NoEngine

    if not order.is_confirmed:
        return relocate(order, config)
    try:
        client = EngineClient.of(config.cache_dir)
    except NoEngine:
        with hold_engines_off(config):
            return relocate(order, config)
    with client:
        return convert(client.ask(order), prepare_form(RelocationReport))


def _print(report: RelocationReport) -> None:
    for text, role in describe_report(report):
        printing.say(text, role)
    if report.is_performed or report.refusals:
        return
    printing.say("nothing was changed; add --confirm to change the files", "dim")


# ------------------------------------------------------------------------------------------------------------------- paths


def _as_seen_from_here(source: str, destination: str, config: Config) -> tuple[str, str]:
    """Return source and destination with absolute paths instead of paths relative to the current folder.

    Paths relative to a scan folder are not changed.
    """
    text, target = as_text(source), as_text(destination)
    if os.path.isabs(source):
        return _absolute(text), target
    here = as_text(os.getcwd())
    path = _absolute(f"{here}/{text}")
    roots = [folder.path for folder in config.project.scan_folders]
    if not any(is_below(path, root) for root in roots) or not _exists(path):
        return text, target
    below = [
        f"{root}/{text}" for root in roots if _exists(f"{root}/{text}") and f"{root}/{text}" != path and not text.startswith("./")
    ]
    if below:
        raise UserError(
            f"'{printing.line(text)}' can mean '{printing.line(path)}' or '{printing.line(below[0])}'",
            hint="give the absolute path, or begin it with './' if it is relative to the current folder",
        )
    is_as_it_is = not target or os.path.isabs(destination) or ".." in target
    return path, target if is_as_it_is else _absolute(f"{here}/{target}")


def _absolute(path: str) -> str:
    """Return an absolute path without `.` and `..`; a final slash stays."""
    return os.path.normpath(path) + ("/" if path.endswith("/") else "")


def _exists(path: str) -> bool:
    """Whether a path exists; for a pattern, whether the folder before its first wildcard exists."""
    head, *rest = re.split(r"[*?]", path, maxsplit=1)
    return os.path.lexists(os_path(head.rpartition("/")[0] if rest else path))


# `aptui identities` lists sources whose UUID is in a `.meta` file, `.meta` files that cannot be used, and sources that were moved
# without their `.meta` file.

_SOURCES_SQL = """
SELECT f.ScanFolder, s.SourceName, s.SourceGuid, o.identity, COALESCE(
    (SELECT a.error FROM aptui_analyses a WHERE a.source_id = s.SourceID AND a.state = 'failed' LIMIT 1), '')
FROM aptui_sources o JOIN Sources s ON s.SourceID = o.source_id JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
WHERE o.identity <> '' ORDER BY s.SourceName, f.ScanFolder"""
_SAME_CONTENT_SQL = """
SELECT f.ScanFolder, s.SourceName FROM aptui_sources o JOIN Sources s ON s.SourceID = o.source_id
JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK WHERE o.digest = ? ORDER BY s.SourceName"""


class Move(Struct, frozen=True):
    """A source that was moved without its identity file (`.meta`).

    `left` is the absolute path of the `.meta` file, `belongs` is the path to which this file must be moved.
    """

    source: str
    was: str
    left: str
    belongs: str


def identities_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `aptui identities`."""
    parser.add_argument("--repair", action="store_true", help="move each '.meta' file that was left behind to its moved source")
    parser.add_argument("--json", action="store_true", help="as JSON")


def identities(arguments: Namespace) -> int:
    """Print identities, problems and probable moves; with `--repair`, fix the moves. Return 1 if problems remain."""
    with open_for_reading(arguments) as project:
        known = [_row(*row) for row in project.database.ask(_SOURCES_SQL)]
        moves = list(_find_moved(project.database))
    if arguments.repair:
        for move in moves:
            _repair(move)
        return 0
    if arguments.json:
        printing.say_json({"identities": known, "moves": [to_builtins(move) for move in moves]})
    else:
        _print_identities(known, moves)
    return 1 if moves or any(row["problem"] for row in known) else 0


def _row(scan_folder: str, rel: str, guid: bytes, packed: str, error: str) -> dict[str, Any]:
    identity = unpack(packed)
    legacy = [format_braced(uuid) for uuid in identity.legacy] if identity else []
    return {"source": rel, "scan_folder": scan_folder, "uuid": format_braced(guid), "legacy": legacy, "problem": error}


def _find_moved(reader: Reader) -> Iterator[Move]:
    """Yield the probable moves: a source was deleted without its identity file, and exactly one other source has the same bytes."""
    sql = "SELECT key, value FROM aptui_state WHERE key >= ? AND key < ? AND value <> '' ORDER BY key"
    for _key, value in reader.ask(sql, (REMOVED_SOURCE_STATE, f"{REMOVED_SOURCE_STATE[:-1]};")).fetchall():
        digest, rel = value.split(" ", 1)
        same_content = [row for row in reader.ask(_SAME_CONTENT_SQL, (bytes.fromhex(digest),)) if row[1] != rel]
        folders = [row[0] for row in reader.ask("SELECT ScanFolder FROM ScanFolders ORDER BY ScanFolderID")]
        left = next((path for folder in folders if _is_left_behind(path := f"{folder}/{rel}{META_SUFFIX}")), "")
        if len(same_content) == 1 and left:
            scan_folder, source = same_content[0]
            yield Move(source, rel, left, f"{scan_folder}/{source}{META_SUFFIX}")


def _is_left_behind(path: str) -> bool:
    """Return whether an identity file exists without its source."""
    name = from_text(path)
    return os.path.isfile(name) and not os.path.lexists(name.removesuffix(META_SUFFIX.encode()))


def _repair(move: Move) -> None:
    """Move an identity file beside its source, which was moved without it.

    If a new identity file was made there, its UUID is added to the earlier UUIDs of the source, so that both UUIDs find the source.
    """
    left, belongs = from_text(move.left), from_text(move.belongs)
    try:
        if os.path.exists(belongs):
            _merge_uuid(left, belongs)
        os.replace(left, belongs)
    except OSError as error:
        raise UserError(
            f"'{move.left}' cannot be moved: {error.strerror}", hint="no data was lost; check the permissions of its folder"
        ) from error
    printing.say(f"{printing.line(move.left)} -> {printing.line(move.belongs)}")


def _merge_uuid(left: bytes, belongs: bytes) -> None:
    """Copy the UUIDs in the new identity file `belongs` into the list of earlier UUIDs in the old identity file `left`."""
    with open(left, "rb") as old, open(belongs, "rb") as new:
        try:
            document, made = json.loads(old.read()), json.loads(new.read())
            legacy = document["UUID"].setdefault("legacyUuids", [])
            known = (document["UUID"].get("uuid"), *legacy)
            legacy += [uuid for uuid in (made["UUID"]["uuid"], *made["UUID"].get("legacyUuids", ())) if uuid not in known]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"'{os.fsdecode(left)}' or '{os.fsdecode(belongs)}' is not an identity file",
                hint="compare both files, and delete the wrong file",
            ) from error
    replace_bytes(Path(os.fsdecode(left)), json.dumps(document, indent=4, ensure_ascii=False).encode())


def _print_identities(known: list[dict[str, Any]], moves: list[Move]) -> None:
    printing.table(("source", "uuid", "problem"), [(row["source"], row["uuid"], row["problem"]) for row in known])
    for move in moves:
        source, was = printing.line(move.source), printing.line(move.was)
        printing.say(f"'{source}' was probably moved from '{was}'; run 'aptui identities --repair' to move its '.meta' file also")

"""`aptui identities`: sources with a UUID from a `.meta` file, unusable files, and which files look moved without theirs.

Tests: `tests/verbs/steering/test_identities.py`.
"""

from __future__ import annotations

import json
import os
import secrets
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, to_builtins

from aptui.core.identity import META_SUFFIX, REMOVED_SOURCE_STATE, format_braced, unpack
from aptui.core.paths import from_text
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.reader import Reader
from aptui.verbs.opening import open_for_reading

_SOURCES_SQL = """
SELECT f.ScanFolder, s.SourceName, s.SourceGuid, o.identity, COALESCE(
    (SELECT a.error FROM aptui_analyses a WHERE a.source_id = s.SourceID AND a.state = 'failed' LIMIT 1), '')
FROM aptui_sources o JOIN Sources s ON s.SourceID = o.source_id JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
WHERE o.identity <> '' ORDER BY s.SourceName, f.ScanFolder"""
_SAME_CONTENT_SQL = """
SELECT f.ScanFolder, s.SourceName FROM aptui_sources o JOIN Sources s ON s.SourceID = o.source_id
JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK WHERE o.digest = ? ORDER BY s.SourceName"""


class Move(Struct, frozen=True):
    """A source that looks moved without its identity file: absolute paths of the file left behind, and of where it belongs."""

    source: str
    was: str
    left: str
    belongs: str


def identities_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `aptui identities`."""
    parser.add_argument("--repair", action="store_true", help="put identity files that were left behind beside their sources")
    parser.add_argument("--json", action="store_true", help="as JSON")


def identities(arguments: Namespace) -> int:
    """Show identities, troubles and likely moves; with --repair, mend the moves. Exit code 1 when something is left to mend."""
    with open_for_reading(arguments) as project:
        known = [_row(*row) for row in project.database.ask(_SOURCES_SQL)]
        moved_files = list(_find_moved(project.database))
    if arguments.repair:
        for move in moved_files:
            _repair(move)
        return 0
    if arguments.json:
        printing.say_json({"identities": known, "moves": [to_builtins(move) for move in moved_files]})
    else:
        _print(known, moved_files)
    return 1 if moved_files or any(row["problem"] for row in known) else 0


def _row(scan_folder: str, rel: str, guid: bytes, packed: str, error: str) -> dict[str, Any]:
    identity = unpack(packed)
    legacy = [format_braced(uuid) for uuid in identity.legacy] if identity else []
    return {"source": rel, "scan_folder": scan_folder, "uuid": format_braced(guid), "legacy": legacy, "problem": error}


def _find_moved(reader: Reader) -> Iterator[Move]:
    """Yield each source that has the bytes of one that went and left its identity file, where that file still lies alone."""
    sql = "SELECT key, value FROM aptui_state WHERE key >= ? AND key < ? AND value <> '' ORDER BY key"
    for _key, value in reader.ask(sql, (REMOVED_SOURCE_STATE, f"{REMOVED_SOURCE_STATE[:-1]};")).fetchall():
        digest, rel = value.split(" ", 1)
        same_content = [row for row in reader.ask(_SAME_CONTENT_SQL, (bytes.fromhex(digest),)) if row[1] != rel]
        folders = [row[0] for row in reader.ask("SELECT ScanFolder FROM ScanFolders ORDER BY ScanFolderID")]
        left = next((path for folder in folders if _lies_alone(path := f"{folder}/{rel}{META_SUFFIX}")), "")
        if len(same_content) == 1 and left:
            scan_folder, source = same_content[0]
            yield Move(source, rel, left, f"{scan_folder}/{source}{META_SUFFIX}")


def _lies_alone(path: str) -> bool:
    name = from_text(path)
    return os.path.isfile(name) and not os.path.lexists(name.removesuffix(META_SUFFIX.encode()))


def _repair(move: Move) -> None:
    """Put the identity file where it belongs; one that was made there meanwhile becomes one of its earlier UUIDs."""
    left, belongs = from_text(move.left), from_text(move.belongs)
    try:
        if os.path.exists(belongs):
            _take_over(left, belongs)
        os.replace(left, belongs)
    except OSError as error:
        raise UserError(
            f"'{move.left}' cannot be moved: {error.strerror}", hint="nothing was lost; check the permissions of its folder"
        ) from error
    printing.say(f"{printing.line(move.left)} -> {printing.line(move.belongs)}")


def _take_over(left: bytes, belongs: bytes) -> None:
    """Note the UUID in `belongs` as one that `left` answers to as well."""
    with open(left, "rb") as old, open(belongs, "rb") as new:
        try:
            document, made = json.loads(old.read()), json.loads(new.read())
            legacy = document["UUID"].setdefault("legacyUuids", [])
            if made["UUID"]["uuid"] not in legacy:
                legacy.append(made["UUID"]["uuid"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"'{os.fsdecode(left)}' or '{os.fsdecode(belongs)}' is no identity file",
                hint="look at both, and keep the right one",
            ) from error
    temporary = left + b".%s.tmp" % secrets.token_hex(6).encode()
    with open(temporary, "x", encoding="utf-8") as file:  # "x" follows no link that lies there
        json.dump(document, file, indent=4, ensure_ascii=False)
    os.replace(temporary, left)


def _print(known: list[dict[str, Any]], moved_files: list[Move]) -> None:
    printing.table(("source", "uuid", "problem"), [(row["source"], row["uuid"], row["problem"]) for row in known])
    for move in moved_files:
        source, was = printing.line(move.source), printing.line(move.was)
        printing.say(f"'{source}' looks like a move of '{was}': 'aptui identities --repair' moves its identity file too")

"""`move` and `delete`: sources with their metadata; a preview unless `--confirm` is said.

A running engine does it itself, as one batch.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from msgspec import convert, to_builtins

from aptui.batch.options import load_config
from aptui.config.model import Config
from aptui.core.paths import is_below, to_text
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.shared.forms import prepare_form
from aptui.shared.relocation.records import Relocate, RelocationReport
from aptui.shared.relocation.report import lines
from aptui.verbs.naming import as_text
from aptui.verbs.opening import os_path

if TYPE_CHECKING:
    from aptui.link.client import EngineClient

NOT_DONE = 1
_REFUSED = UserError.exit_code
_SOURCE_HELP = "a source, relative to its scan folder or absolute; quote wildcards: 'images/*' takes all below"


def move_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `move`."""
    parser.add_argument("source", metavar="SRC", help=_SOURCE_HELP)
    parser.add_argument(
        "destination",
        metavar="DST",
        help="where to; as many '*' as in SRC, and '/' at its end keeps the name; relative: in SRC's scan folder",
    )
    _arguments(parser)
    parser.add_argument("--update-references", action="store_true", help="rewrite paths and UUIDs in the files that depend on SRC")


def delete_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `delete`."""
    parser.add_argument("source", metavar="SRC", help=_SOURCE_HELP)
    _arguments(parser)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--confirm", action="store_true", help="do it; otherwise only what would happen is shown")
    parser.add_argument("--allow-broken-dependencies", action="store_true", help="do it although something depends on the files")
    parser.add_argument("--leave-empty-folders", action="store_true", help="keep folders that are empty afterwards")
    parser.add_argument(
        "--exclude-metadata-files", action="store_true", help="leave .meta files and other companions where they are"
    )
    parser.add_argument("--scm", action="store_true", help="have Git do it ('git mv', 'git rm') where it tracks the file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def move(arguments: Namespace) -> int:
    """Move sources, or show what would happen."""
    config = load_config(arguments)
    source, destination = _as_seen_from_here(arguments.source, arguments.destination, config)
    return _relocate(arguments, config, _order(arguments, source, destination))


def delete(arguments: Namespace) -> int:
    """Delete sources, or show what would happen."""
    config = load_config(arguments)
    source, _ = _as_seen_from_here(arguments.source, "", config)
    return _relocate(arguments, config, _order(arguments, source, None))


def _order(arguments: Namespace, source: str, destination: str | None) -> Relocate:
    return Relocate(
        source=source,
        destination=destination or "",
        is_delete=destination is None,
        is_confirmed=arguments.confirm,
        updates_references=getattr(arguments, "update_references", False),
        allows_broken=arguments.allow_broken_dependencies,
        leaves_empty_folders=arguments.leave_empty_folders,
        excludes_metadata=arguments.exclude_metadata_files,
        uses_scm=arguments.scm,
    )


def _relocate(arguments: Namespace, config: Config, order: Relocate) -> int:
    report = _perform(config, order) if order.is_confirmed else _preview(config, order)
    if arguments.json:
        printing.say_json(to_builtins(report))
    else:
        _print(report)
    if report.refusals and order.is_confirmed:
        return _REFUSED
    return NOT_DONE if report.is_performed and not report.is_whole else 0


def _preview(config: Config, order: Relocate) -> RelocationReport:
    from aptui.engine.relocate.relocate import preview

    return preview(order, config)


def _perform(config: Config, order: Relocate) -> RelocationReport:
    from aptui.link.client import EngineClient, NoEngine

    try:
        client = EngineClient.of(config.cache_dir)
    except NoEngine:
        from aptui.engine.relocate.relocate import hold_engines_off, relocate

        with hold_engines_off(config):
            return relocate(order, config)
    with client:
        return _ask(client, order)


def _ask(client: EngineClient, order: Relocate) -> RelocationReport:
    return convert(client.ask(order), prepare_form(RelocationReport))


def _print(report: RelocationReport) -> None:
    for text, role in lines(report):
        printing.say(text, role)
    if report.is_performed or report.refusals:
        return
    printing.say("nothing was changed: '--confirm' does it", "dim")


# ------------------------------------------------------------------------------------------------------------------- paths


def _as_seen_from_here(source: str, destination: str, config: Config) -> tuple[str, str]:
    """Return source and destination relative to a scan folder, or absolute if they were given relative to the current folder.

    Raises:
        UserError: it may mean two files.
    """
    text, target = as_text(source), as_text(destination)
    if os.path.isabs(source):
        return _absolute(text), target
    here = to_text(os.fsencode(os.getcwd()))
    path = _absolute(f"{here}/{text}")
    roots = [folder.path for folder in config.project.scan_folders]
    if not any(is_below(path, root) for root in roots) or not _exists(path):
        return text, target
    below = [
        f"{root}/{text}" for root in roots if _exists(f"{root}/{text}") and f"{root}/{text}" != path and not text.startswith("./")
    ]
    if below:
        raise UserError(
            f"'{printing.line(text)}' may be '{printing.line(path)}' or '{printing.line(below[0])}'",
            hint="'./' in front means the one that is seen from here; an absolute path is always clear",
        )
    is_as_it_is = not target or os.path.isabs(destination) or ".." in target
    return path, target if is_as_it_is else _absolute(f"{here}/{target}")


def _absolute(path: str) -> str:
    """Return an absolute path without `.` and `..`; the slash at its end stays."""
    return os.path.normpath(path) + ("/" if path.endswith("/") else "")


def _exists(path: str) -> bool:
    """Whether a path, or the folder in front of its first wildcard, is there."""
    head = path
    if "*" in path or "?" in path:
        first = min(at for at in (path.find("*"), path.find("?")) if at >= 0)
        head = path[:first].rpartition("/")[0]
    return os.path.lexists(os_path(head))

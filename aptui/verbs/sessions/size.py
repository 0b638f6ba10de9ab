"""`aptui size`: which products are large, by folder, type, builder or platform, and what grew since a session."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.history.sessions import session_at
from aptui.store.history.sizes import SizeBy, SizeRow, add_growth, sizes
from aptui.verbs.opening import open_for_reading
from aptui.verbs.sessions.size_page import format_growth, size_page, write_page

_LISTED = 40
_BAR = 24
_DEEPEST = 64


def size_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `size`."""
    parser.add_argument("--by", choices=[by.value for by in SizeBy], default=SizeBy.FOLDER.value, help="what stands together")
    parser.add_argument(
        "--depth", type=int, default=1, metavar="N", help="by folder: so many folders of a source's path; 1 by default"
    )
    diff = "what grew since that session ended ('aptui history'), or the last one at that commit"
    parser.add_argument("--diff", metavar="SESSION|COMMIT", help=diff)
    parser.add_argument("--html", metavar="FILE", help="write it as one page with bars, for a browser")
    parser.add_argument("--limit", type=int, default=0, metavar="COUNT", help=f"list so many; {_LISTED} by default, JSON all")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.epilog = """\
  aptui size                           products by the first folder of their source
  aptui size --by folder --depth 2     by the first two
  aptui size --by builder --diff 12    what grew since session 12, by who makes it
  aptui size --diff 4f2a91c --html size.html   since a commit, as a page"""


def size(arguments: Namespace) -> int:
    """List how large products are."""
    by, depth = SizeBy(arguments.by), arguments.depth
    if not 1 <= depth <= _DEEPEST:
        raise UserError(f"--depth: {depth} is not between 1 and {_DEEPEST}", hint="take a number between them")
    if arguments.limit < 0:
        raise UserError(f"--limit: {arguments.limit} is no count", hint="take a number above 0")
    if arguments.diff is not None and by is SizeBy.TYPE:
        raise UserError("what grew is not known by type", hint="say --by folder, builder or platform")
    with open_for_reading(arguments) as project:
        since = session_at(project.database, arguments.diff) if arguments.diff is not None else None
        rows = sizes(project.database, by, project.builder_of, depth)
        total = SizeRow("total", sum(row.count for row in rows), sum(row.size for row in rows))
        if since is not None:
            rows = add_growth(project.database, rows, by, project.builder_of, depth, since)
            total.grew = sum(row.grew or 0 for row in rows)
    if arguments.html:
        write_page(arguments.html, size_page(rows, total, by, project.config.project_dir.name, since))
    if arguments.json:
        shown = rows[: arguments.limit] if arguments.limit else rows
        printing.say_json_list(_json(row) for row in shown)
        return 0
    if arguments.html:
        printing.say(f"written: {printing.line(arguments.html)}")
        return 0
    _print(rows, total, by, arguments.limit or _LISTED)
    return 0


def _json(row: SizeRow) -> dict[str, str | int]:
    grew = {} if row.grew is None else {"grew_bytes": row.grew}
    return {"name": row.name, "products": row.count, "bytes": row.size, **grew}


def _print(rows: list[SizeRow], total: SizeRow, by: SizeBy, limit: int) -> None:
    is_diff = total.grew is not None
    shown = rows[:limit]
    most = max((abs(row.grew or 0) if is_diff else row.size for row in shown), default=0)
    header = (by.value, "products", "size", *(("grew",) if is_diff else ()), "")
    cells = [[*_cells(row), _bar(abs(row.grew or 0) if is_diff else row.size, most)] for row in shown]
    printing.table(header, [*cells, [*_cells(total), ""]], right=(1, 2, 3) if is_diff else (1, 2), spare=(len(header) - 1, 1))
    if len(rows) > limit:
        printing.say(f"and {len(rows) - limit:,} more: --limit {len(rows)}")


def _cells(row: SizeRow) -> list[str]:
    cells = [row.name, f"{row.count:,}", printing.size(row.size)]
    return cells if row.grew is None else [*cells, format_growth(row.grew)]


def _bar(value: int, most: int) -> str:
    return "█" * max(1, round(_BAR * value / most)) if most and value else ""

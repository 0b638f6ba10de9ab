"""`aptui size`: list the largest products by folder, type, builder or platform, and their growth since a session."""

from __future__ import annotations

import html
import posixpath
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from aptui.batch.options import check_list_options, depth_argument, limit_argument, refuse_ignored
from aptui.cli.read_access import open_for_reading
from aptui.config.own_files import note_written
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.shared.files.replacing import replace_bytes
from aptui.store.queries.reader import Reader
from aptui.store.queries.session_history import WorkSession, runs_until, session_at

# Products are grouped by folder, type, builder or platform. A group has a size, and its growth since the end of a session.

_PRODUCTS_SQL = """SELECT s.SourceName, p.ProductName, j.BuilderGuid, j.Platform, COALESCE(o.size, 0)
FROM Products p JOIN Jobs j ON j.JobID = p.JobPK JOIN Sources s ON s.SourceID = j.SourcePK
LEFT JOIN aptui_products o ON o.product_id = p.ProductID"""


class SizeBy(StrEnum):
    """How products are grouped: by the folder of their source, their file extension, their builder, or their platform."""

    FOLDER = "folder"
    TYPE = "type"
    BUILDER = "builder"
    PLATFORM = "platform"


class SizeRow(Struct):
    """One group of products, for example all products of a builder.

    `grew` is the growth in bytes since an earlier session, None if no session is compared.
    """

    name: str
    count: int = 0
    size: int = 0
    grew: int | None = None

    @property
    def weight(self) -> int:
        """The length of the group's bar in bytes: the absolute growth, or the size if no earlier session is compared."""
        return self.size if self.grew is None else abs(self.grew)


def sizes(reader: Reader, by: SizeBy, name_of: Callable[[bytes], str], depth: int = 1) -> list[SizeRow]:
    """Return the groups of products, the largest first. This takes two seconds for a million products.

    Args:
        name_of: returns a builder's name for its UUID.
        depth: number of leading folders of a source's path that form the name of its group.
    """
    found: dict[str, SizeRow] = {}
    for source, product, builder, platform, size in reader.ask(_PRODUCTS_SQL):
        if by is SizeBy.TYPE:
            name = posixpath.splitext(product)[1].lower() or "(none)"
        else:
            name = _name_group(by, source, builder, platform, name_of, depth)
        row = found.setdefault(name, SizeRow(name))
        row.count += 1
        row.size += size
    return sorted(found.values(), key=lambda row: (-row.size, row.name))


def add_growth(
    reader: Reader, rows: Iterable[SizeRow], by: SizeBy, name_of: Callable[[bytes], str], depth: int, since: WorkSession
) -> list[SizeRow]:
    """Return the groups with their growth since the end of a session, the largest change first.

    The result includes groups whose products were all deleted. `by` must not be the type, because a session stores only the total
    size of a job's products.
    """
    gone = {job_id for (job_id,) in reader.ask("SELECT job_id FROM aptui_gone_jobs WHERE gone_ms <= ?", (since.ended_ms,))}
    before: dict[str, int] = {}
    for run in runs_until(reader, since.number):
        if run.job_id not in gone:
            name = _name_group(by, run.source, run.builder, run.platform, name_of, depth)
            before[name] = before.get(name, 0) + run.size
    found = {row.name: row for row in rows}
    for name in before.keys() - found.keys():
        found[name] = SizeRow(name)
    for row in found.values():
        row.grew = row.size - before.get(row.name, 0)
    return sorted(found.values(), key=lambda row: (-abs(row.grew or 0), -row.size, row.name))


def _name_group(by: SizeBy, source: str, builder: bytes, platform: str, name_of: Callable[[bytes], str], depth: int) -> str:
    """Return the name of a job's group; all products of the job belong to this group."""
    match by:
        case SizeBy.FOLDER:
            return folder_of(source, depth)
        case SizeBy.PLATFORM:
            return platform
        case _:
            return name_of(builder)


def folder_of(source: str, depth: int) -> str:
    """Return the first `depth` folders of a path, "." for a path without folders."""
    return "/".join(source.split("/")[:-1][:depth]) or "."


# `aptui size --html` writes the sizes as bars into an HTML page that loads no other file.

_MOST = 5_000
"""Maximum number of rows on a page; browsers display longer pages too slowly."""
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin: 0; } p { margin: 0 0 1rem; opacity: .7; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .15rem .75rem .15rem 0; vertical-align: middle; overflow-wrap: anywhere; }
th { font-weight: 600; border-bottom: 1px solid #8886; } .n { text-align: right; white-space: nowrap; }
.b { width: 40%; } .b div { height: .7rem; min-width: 1px; border-radius: 2px; background: #4a86c8; }
.b .grew { background: #c8783c; } .b .shrank { background: #4c9c6a; } tfoot td { border-top: 1px solid #8886; font-weight: 600; }
"""


def size_page(rows: Sequence[SizeRow], total: SizeRow, by: SizeBy, project: str, since: WorkSession | None) -> str:
    """Return the HTML page; names of products are untrusted text and are escaped."""
    is_diff = total.grew is not None
    most = max((row.weight for row in rows), default=0)
    head = ("", "products", "size", *(("grew",) if is_diff else ()))
    what = f"products by {by.value}" + (f", and their growth since session {since.number}" if since is not None else "")
    at = f" (commit {since.commit[:12]})" if since is not None and since.commit else ""
    more = f"<p>and {len(rows) - _MOST:,} more</p>" if len(rows) > _MOST else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{_safe(project)}: sizes</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>{_STYLE}</style></head><body>
<h1>{_safe(project)}</h1><p>{_safe(what + at)}</p>
<table><thead><tr>{"".join(f'<th class="n">{word}</th>' if word else f"<th>{by.value}</th>" for word in head)}<th></th></tr></thead>
<tbody>
{"".join(_row(row, most) for row in rows[:_MOST])}</tbody>
<tfoot>{_row(total, 0)}</tfoot></table>{more}
</body></html>
"""


def format_growth(grew: int) -> str:
    """Return a growth in bytes as text with a plus or minus sign, "" for no growth."""
    return f"{'+' if grew > 0 else '-'}{printing.size(abs(grew))}" if grew else ""


def _row(row: SizeRow, most: int) -> str:
    cells = [f"{row.count:,}", printing.size(row.size), *([] if row.grew is None else [format_growth(row.grew)])]
    kind = "" if row.grew is None else "grew" if row.grew > 0 else "shrank"
    share = 100 * row.weight / most if most else 0
    bar = f'<div class="{kind}" style="width:{share:.1f}%"></div>' if share else ""
    numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
    return f'<tr><td>{_safe(row.name)}</td>{numbers}<td class="b">{bar}</td></tr>\n'


def _safe(text: str) -> str:
    return html.escape(printing.line(text).encode("utf-8", "replace").decode())


_LISTED = 40
"""Number of printed groups by default."""
_BAR = 24
"""Length of the longest bar, in columns."""


def size_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `size`."""
    parser.add_argument(
        "--by",
        choices=[by.value for by in SizeBy],
        default=SizeBy.FOLDER.value,
        help="group products by the first folders, the builder, the platform or the type",
    )
    depth_argument(parser)
    diff = "show the growth since a session, given by its number ('aptui history') or its commit"
    parser.add_argument("--diff", metavar="SESSION|COMMIT", help=diff)
    parser.add_argument("--html", metavar="FILE", help="write the list to FILE as a web page with bars")
    limit_argument(parser, _LISTED)
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.epilog = """\
  aptui size                           products by the first folder of their source.
  aptui size --by folder --depth 2     by the first two folders.
  aptui size --by builder --diff 12    growth since session 12, by builder.
  aptui size --diff 4f2a91c --html size.html   growth since a commit, as a page"""


def size(arguments: Namespace) -> int:
    """List the sizes of products by group."""
    check_list_options(arguments)
    by, depth = SizeBy(arguments.by), arguments.depth
    if arguments.html and not arguments.json:
        refuse_ignored(arguments, ["limit"], "has no effect with '--html'", "remove it, because the page lists all groups")
    if arguments.diff is not None and by is SizeBy.TYPE:
        raise UserError("--diff cannot be used with --by type", hint="use --by folder, builder or platform")
    with open_for_reading(arguments) as project:
        since = session_at(project.database, arguments.diff) if arguments.diff is not None else None
        rows = sizes(project.database, by, project.builder_of, depth)
        total = SizeRow("total", sum(row.count for row in rows), sum(row.size for row in rows))
        if since is not None:
            rows = add_growth(project.database, rows, by, project.builder_of, depth, since)
            total.grew = sum(row.grew or 0 for row in rows)
    if arguments.html:
        file, page = Path(arguments.html).expanduser(), size_page(rows, total, by, project.config.project_dir.name, since)
        replace_bytes(file, page.encode(), what=f"'{arguments.html}'")
        note_written(str(file))
    if arguments.json:
        shown = rows[: arguments.limit] if arguments.limit else rows
        printing.say_json_list(_json(row) for row in shown)
        return 0
    if arguments.html:
        printing.say(f"wrote {printing.line(arguments.html)}")
        return 0
    _print(rows, total, by, arguments.limit or _LISTED)
    return 0


def _json(row: SizeRow) -> dict[str, str | int]:
    grew = {} if row.grew is None else {"grew_bytes": row.grew}
    return {"name": row.name, "products": row.count, "bytes": row.size, **grew}


def _print(rows: list[SizeRow], total: SizeRow, by: SizeBy, limit: int) -> None:
    is_diff = total.grew is not None
    shown = rows[:limit]
    most = max((row.weight for row in shown), default=0)
    header = (by.value, "products", "size", *(("grew",) if is_diff else ()), "")
    cells = [[*_cells(row), _bar(row.weight, most)] for row in shown]
    printing.table(header, [*cells, [*_cells(total), ""]], right=(1, 2, 3) if is_diff else (1, 2), spare=(len(header) - 1, 1))
    if len(rows) > limit:
        printing.say(f"and {len(rows) - limit:,} more; --limit {len(rows)} lists all")


def _cells(row: SizeRow) -> list[str]:
    cells = [row.name, f"{row.count:,}", printing.size(row.size)]
    return cells if row.grew is None else [*cells, format_growth(row.grew)]


def _bar(value: int, most: int) -> str:
    return "█" * max(1, round(_BAR * value / most)) if most and value else ""

"""`aptui size --html`: the sizes as one page that needs nothing else, with bars.

Tests: `tests/verbs/sessions/test_size.py`.
"""

from __future__ import annotations

import html
import os
from collections.abc import Sequence

from aptui.config.own_files import note_written
from aptui.shared import printing
from aptui.shared.files.replacing import not_written
from aptui.store.history.sessions import WorkSession
from aptui.store.history.sizes import SizeBy, SizeRow

_MOST = 5_000
"""So many rows are on a page: browsers show more slowly than anybody reads."""
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
    """Return the page; names are foreign text."""
    is_diff = total.grew is not None
    most = max((_weight(row) for row in rows), default=0)
    head = ("", "products", "size", *(("grew",) if is_diff else ()))
    what = f"products by {by.value}" + (f", and what they grew by since session {since.number}" if since is not None else "")
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


def write_page(file: str, page: str) -> None:
    """Write the page.

    Raises:
        UserError: its folder is not there. HostError: it cannot be written.
    """
    try:
        with open(os.path.expanduser(file), "w", encoding="utf-8") as out:
            out.write(page)
        note_written(os.path.expanduser(file))
    except OSError as error:
        raise not_written(f"'{file}'", error) from error


def format_growth(grew: int) -> str:
    """Return a growth with its sign, "" for none."""
    return f"{'+' if grew > 0 else '-'}{printing.size(abs(grew))}" if grew else ""


def _weight(row: SizeRow) -> int:
    return row.size if row.grew is None else abs(row.grew)


def _row(row: SizeRow, most: int) -> str:
    cells = [f"{row.count:,}", printing.size(row.size), *([] if row.grew is None else [format_growth(row.grew)])]
    kind = "" if row.grew is None else "grew" if row.grew > 0 else "shrank"
    share = 100 * _weight(row) / most if most else 0
    bar = f'<div class="{kind}" style="width:{share:.1f}%"></div>' if share else ""
    numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
    return f'<tr><td>{_safe(row.name)}</td>{numbers}<td class="b">{bar}</td></tr>\n'


def _safe(text: str) -> str:
    return html.escape(printing.line(text).encode("utf-8", "replace").decode())

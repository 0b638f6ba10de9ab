"""The Assets screen's search for missing dependencies: requests to the engine, and the line that shows the progress."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aptui.core.notices import MissingScan
from aptui.features.shipping.missing_rows import ClearMissing, ScanMissing
from aptui.shared import printing
from aptui.shared.printing import sanitize
from aptui.tui.data.assets_store import Kind
from aptui.tui.data.session import SessionState
from aptui.tui.frame.commandline import Choice, Command
from aptui.tui.frame.line import Line, Part, Parts
from aptui.tui.screens.assets.asset_actions import AssetExtension, AssetParts
from aptui.tui.screens.assets.asset_panel import Panel
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import fit
from aptui.tui.widgets.menu import MenuItem
from aptui.tui.words import shorten

if TYPE_CHECKING:
    from aptui.link.port import Answer
    from aptui.store.queries.reader import Reader
    from aptui.tui.data.feed import Batch

_NAME_CELLS = 48
"""Maximum width of a path in a question."""
_BUSY = "the engine is busy: products can be searched when it is idle"


class ScanLine(Line):
    """The line about the newest search: its start, its products, its progress and its result."""

    DEFAULT_CSS = """
    ScanLine { dock: bottom; height: 1; display: none; }
    ScanLine.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(id="assets-scan")
        self._began = ""
        self._news: MissingScan | None = None

    def show(self, news: MissingScan) -> None:
        """Show the progress of a search."""
        is_new = self._news is None or self._news.is_over or self._news.name != news.name
        if is_new:
            self._began = time.strftime("%H:%M:%S")
        self._news = news
        self.add_class("-shown")
        self.refresh_if_changed()

    def leave(self) -> None:
        """Hide the line about the search unless a search is running."""
        if self._news is not None and self._news.is_over:
            self.remove_class("-shown")

    def forget_running(self) -> None:
        """Hide the line about a running search, because its engine may have ended."""
        if self._news is not None and not self._news.is_over:
            self._news = None
            self.remove_class("-shown")

    def parts(self, width: int) -> Parts:
        """Return the line about the search. The name of the searched products is untrusted text, and is shortened to fit."""
        news = self._news
        if news is None:
            return ()
        if news.error:
            head, tail, role = f"{self._began} Search of ", f" ended: {news.error}", "failed"
        elif news.is_over:
            head, tail = f"{self._began} Completed scanning ", f" in {news.seconds:.1f} s: {_missing(news.hit_count)}"
            role = "failed" if news.hit_count else "completed"
        else:
            head, role = f"{self._began} Scanning {news.file_count:,} files for ", "processing"
            tail = f": {news.done_count:,} done, {_missing(news.hit_count)}"
        sign = {"failed": "error", "completed": "completed", "processing": "processing"}[role]
        free_width = max(8, width - len(head) - len(tail) - 4)
        name = fit(news.name, free_width).text.rstrip()
        return (
            Part(f" {glyph(sign)} ", role),
            Part(head),
            Part(name, "path"),
            Part(fit(tail, max(1, width - len(head) - len(name) - 3)).text),
        )


def _missing(count: int) -> str:
    return f"{count:,} missing" if count else "nothing missing"


class MissingScans(AssetExtension):
    """Starts searches, deletes findings of earlier searches, and shows the progress of the newest search in a line."""

    command_names = ("missing",)

    def __init__(self, parts: AssetParts) -> None:
        super().__init__(parts)
        self._shell, self._trees, self._queries = parts.shell, parts.trees, parts.readers.queries
        self.line = self._line = ScanLine()

    def actions(self) -> Mapping[str, Callable[[], object]]:
        """Return the actions of the Assets screen that search products and clear results."""
        return {"scan_missing": self.scan, "clear_missing": self.clear}

    def commands(self) -> Sequence[Command]:
        """Return the command that searches the products that match a pattern."""
        does = "scan for missing dependencies in a folder, '*.lua' or a product; default: all"
        return [Command("missing", does, self.scan_matching, needs_engine=True)]

    def leave_row(self) -> None:
        """Hide the line about the search unless a search is running."""
        self._line.leave()

    def menu_items(self, panel: Panel) -> list[MenuItem | None]:
        """Return the menu entries. While work is pending, the entries are disabled and show the reason."""
        count, can_ask = len(self._trees.view.marks), self._shell.can_ask
        what = f"{count:,} marked" if count else "the folder" if panel.is_folder else "it"
        why = "" if self._is_engine_idle() or not can_ask else " (when the engine is idle)"
        clear = "Clear the result of this scan…" if not count else "Clear the results of the selected scans…"
        return [
            None,
            MenuItem("scan_missing", f"Scan {what} for missing dependencies{why}", "s", can_ask and not why),
            MenuItem("clear_missing", clear, "S", can_ask),
        ]

    def _is_engine_idle(self) -> bool:
        progress = self._shell.session.latest_progress
        if progress is None or self._shell.session.state is not SessionState.ATTACHED:
            return True  # without an engine, the command stays enabled, so that its error message shows the reason
        return not progress.is_working

    def scan(self) -> None:
        """Search the products of the marked entries, or of the entry under the cursor: a product, a source or a folder."""
        if self._is_engine_idle():
            self._with_products(self._ask_to_scan)
        else:
            self._shell.show_toast(_BUSY, "warning")

    def scan_matching(self, pattern: str) -> None:
        """Search the products that match a pattern (`missing_rows.choose_scanned`), or all."""
        if self._is_engine_idle():
            self._shell.ask(ScanMissing((pattern,) if pattern else (), name=pattern or "all products"))
        else:
            self._shell.show_toast(_BUSY, "warning")

    def clear(self) -> None:
        """Delete the stored missing dependencies of the marked entries' products, after a confirmation by the user.

        If no entry is marked, the entry under the cursor is used.
        """
        self._with_products(self._ask_to_clear)

    def _with_products(self, do: Callable[[str, int, Sequence[str], Sequence[int]], object]) -> None:
        """Call `do` with the entries that the user chose.

        The arguments are a name for all entries, the number of entries, patterns of folders, and ids of products.
        """
        model, kind = self._trees.model, self._trees.kind
        keys = self._trees.view.marks.list_selected()
        if not keys or model.tree is None:
            return
        nodes = [node for key in keys if (node := model.node_of(key)) is not None]
        paths = [model.tree.path(node) for node in nodes]
        name = paths[0] if len(paths) == 1 else f"{len(paths):,} files and folders"
        folders = tuple(path for path, node in zip(paths, nodes, strict=True) if model.tree.is_folder(node))
        files = [key for key in keys if key >= 0]
        self._queries.request("missing", lambda reader: _products_of(reader, kind, files), partial(do, name, len(paths), folders))

    def _ask_to_scan(self, name: str, _count: int, folders: Sequence[str], product_ids: Sequence[int]) -> None:
        if self._is_something(name, folders, product_ids):
            self._shell.ask(ScanMissing(tuple(folders), tuple(product_ids), name=name))

    def _ask_to_clear(self, name: str, count: int, folders: Sequence[str], product_ids: Sequence[int]) -> None:
        order = ClearMissing(tuple(folders), tuple(product_ids))

        def clear() -> None:
            self._line.leave()
            self._shell.ask(order, then=self._report_cleared)

        if self._is_something(name, folders, product_ids):
            path = f"{'all of ' if folders else ''}'{shorten(sanitize(name), _NAME_CELLS)}'"
            text = f"clear the scan results of {path if count == 1 else name}?"
            self._shell.question(text, [Choice("y", "clear them", clear), Choice("n", "leave them")])

    def _report_cleared(self, answer: Answer) -> None:
        count = answer.get("count", 0)
        self._shell.show_toast(f"scan results of {printing.count(count, 'product')} cleared" if isinstance(count, int) else "")

    def _is_something(self, name: str, folders: Sequence[str], product_ids: Sequence[int]) -> bool:
        """Whether the user chose any products; if not, show a warning, because the engine would search all products."""
        if not (folders or product_ids):
            self._shell.show_toast(f"'{name}' has no products", "warning")
        return bool(folders or product_ids)

    def note(self, batch: Batch) -> None:
        """Show the progress of a search. Hide a running search if the connection to the engine was lost or made."""
        if batch.running is not None:
            self._line.forget_running()
        for scan in batch.missing_scans[-1:]:
            self._line.show(scan)


def _products_of(reader: Reader, kind: Kind, keys: Sequence[int]) -> list[int]:
    """Return `keys` if they are ids of products, or the ids of all products of the sources with the ids `keys`."""
    if kind is Kind.PRODUCTS:
        return list(keys)
    sql = (
        "SELECT p.ProductID FROM json_each(?) k JOIN Jobs j ON j.SourcePK = k.value JOIN Products p ON p.JobPK = j.JobID"
        " ORDER BY p.ProductID"
    )
    return [number for (number,) in reader.ask(sql, (json.dumps(list(keys)),))]

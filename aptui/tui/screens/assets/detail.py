"""The details of one asset: title, facts, references and preview.

What is in them was read elsewhere, but for what is asked for lazily.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from aptui.tui.screens.assets.lines import TitleLine
from aptui.tui.screens.assets.panel import Panel, Ref, read_links
from aptui.tui.screens.assets.preview import Preview, preview_of
from aptui.tui.screens.assets.query_worker import PREVIEW
from aptui.tui.screens.assets.references import COLUMNS, References, branches
from aptui.tui.widgets.keyvalue import KeyValue
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.textview import TextPreview, TextView
from aptui.tui.widgets.tree import Branch, VTree

if TYPE_CHECKING:
    from rich.segment import Segment

    from aptui.tui.pictures.decoding import Decoder
    from aptui.tui.pictures.pixels import Pixels
    from aptui.tui.screens.assets.query_worker import QueryWorker
    from aptui.tui.widgets.cells import Painter

_CHANGING_FACTS = frozenset({"Digest", "Size", "Changed", "Last processed"})
"""Facts that are others when the file is another one."""


class _Quiet(Rows):
    """Rows that show their cursor only while the keys come here: beside a tree it would be one too many."""

    def edge(self, *, is_cursor: bool, is_mark: bool, painter: Painter) -> Segment:
        """Return the cell at the left edge."""
        return super().edge(is_cursor=is_cursor and self.has_focus, is_mark=is_mark, painter=painter)


class AssetFacts(_Quiet, KeyValue, can_focus=False):
    """Keys and values without a header, for the title stands above; what can be done with them is in the menu of copies."""

    HEADER_LINES: ClassVar[int] = 0


class FilePreview(_Quiet, TextView):
    """The preview."""


class ReferenceTree(_Quiet, VTree):
    """References: enter follows one, also where it can be opened; right and left open and close."""

    HEADER_LINES: ClassVar[int] = 0
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "go there", id="rows.open")]

    def __init__(self, ask: Callable[[Branch], None]) -> None:
        super().__init__(COLUMNS, id="assets-references", classes="for-references")
        self._ask = ask
        self.references: References | None = None

    def show_panel(self, panel: Panel, *, is_same: bool) -> None:
        """Show the references of a panel; of another asset, with the groups that are not too long open."""
        if is_same and self.references is not None:
            self.references.show(panel)
            self.refresh_model()
            return
        references = self.references = References(self._ask)
        references.show(panel)
        self.cursor, self.cursor_key = 0, None
        self.set_tree(references)
        for node in references.list_opened_at_first():
            self.set_open(node, is_open=True)

    def clear(self) -> None:
        """Show none."""
        self.references = None
        self.cursor, self.cursor_key = 0, None
        self.set_tree(References(self._ask))

    def reference(self, key: int | None = None) -> Ref | None:
        """Return the reference of a row, or under the cursor."""
        wanted = self.cursor_key if key is None else key
        branch = self.references.branch(wanted) if self.references is not None and wanted is not None else None
        return branch.data if branch is not None and isinstance(branch.data, Ref) else None

    @dataclass
    class DeadEnd(Message):
        """Somebody wants to follow a reference that leads nowhere."""

        ref: Ref

    def action_open(self) -> None:
        """Follow what leads somewhere, open and close what does not."""
        reference = self.reference()
        if reference is not None and reference.leads and self.cursor_key is not None:
            self.post_message(Rows.Opened(self, self.cursor_key))
        elif reference is not None and not reference.ask:
            self.post_message(self.DeadEnd(reference))
        else:
            super().action_open()


class AssetDetail(Vertical):
    """The details; `show` draws what differs from before."""

    def __init__(self) -> None:
        super().__init__(id="assets-detail", classes="-without-preview")
        self._panel: Panel | None = None
        self._queries: QueryWorker | None = None
        self._previewed: tuple[object, ...] = ()
        self._without_picture: Preview | None = None

    def compose(self) -> ComposeResult:
        """Make the parts."""
        yield TitleLine("assets-title")
        yield AssetFacts(id="assets-facts", classes="for-references")
        yield ReferenceTree(self._ask_below)
        yield TitleLine("assets-preview-title", classes="for-preview", is_rule=True)
        yield FilePreview(id="assets-preview", classes="for-preview")

    @property
    def references(self) -> ReferenceTree:
        """The references."""
        return self.query_one(ReferenceTree)

    @property
    def parts(self) -> list[Rows]:
        """The parts that keys can go to."""
        return [self.references, *([] if self.has_class("-without-preview") else [self.query_one(FilePreview)])]

    def show(self, panel: Panel, queries: QueryWorker, decoder: Decoder) -> None:
        """Show an asset, or what is new of it: then cursor and branches stay."""
        before, self._panel, self._queries = self._panel, panel, queries
        is_same = before is not None and (before.kind, before.key) == (panel.kind, panel.key)
        self._title.show(panel.path)
        if not is_same or before is None or before.facts != panel.facts:
            self.query_one(AssetFacts).show(panel.facts)
        self.references.show_panel(panel, is_same=is_same)
        self._show_preview(panel, queries, decoder)

    @property
    def _title(self) -> TitleLine:
        return self.query_one("#assets-title", TitleLine)

    def clear(self) -> None:
        """Show nothing: the tree in front has no row to tell of."""
        if self._panel is None:
            return
        self._panel, self._previewed, self._without_picture = None, (), None
        self._title.show("")
        self.query_one(AssetFacts).show(())
        self.references.clear()
        self._draw_preview("", TextPreview("", ()))

    def say_gone(self) -> None:
        """Say that what is shown is not there any more."""
        if self._panel is not None:
            self._title.show(self._panel.path, "gone")

    def show_why(self, preview: TextPreview) -> None:
        """Show reasons in the place of the preview."""
        self._without_picture = None
        self.remove_class("-without-preview")
        self.query_one(FilePreview).show_preview(preview)
        self.query_one("#assets-preview-title", TitleLine).show("Why", preview.kind)

    def _ask_below(self, branch: Branch) -> None:
        """Have the children of a reference read."""
        references, ref = self.references.references, branch.data
        if references is None or self._queries is None or self._panel is None or not isinstance(ref, Ref):
            return
        above = references.above(branch) | {self._panel.key}
        self._queries.request(
            f"below {branch.key}", lambda reader: read_links(reader, ref, above), partial(self._grow, references, branch)
        )

    def _grow(self, references: References, branch: Branch, refs: tuple[Ref, ...]) -> None:
        if self.references.references is references:
            references.grow(branch, branches(refs))
            self.references.refresh_model()

    def _show_preview(self, panel: Panel, queries: QueryWorker, decoder: Decoder) -> None:
        """Read the file, unless it is as it was."""
        state = (panel.file, panel.is_folder, *(pair for pair in panel.facts if pair[0] in _CHANGING_FACTS))
        if state == self._previewed:
            return
        self._previewed, self._without_picture = state, None
        decoder.want_none()
        if panel.is_folder or not panel.file:
            self._draw_preview("", TextPreview("", ()))
            return

        def take(preview: Preview) -> None:
            if state != self._previewed:
                return
            self.set_class(bool(preview.form), "-picture")
            self._draw_preview("Preview", preview.at_first, preview.text.kind)
            if preview.form:
                self._without_picture = preview
                decoder.want(panel.file, preview.form, partial(self._take_picture, preview))

        queries.request(PREVIEW, lambda _reader: preview_of(panel.file), take)

    def _take_picture(self, preview: Preview, picture: Pixels | str) -> None:
        """Show a picture where it is still wanted."""
        if preview is self._without_picture:
            self._draw_preview("Preview", preview.with_picture(picture))

    def _draw_preview(self, title: str, preview: TextPreview, kind: str = "") -> None:
        self.set_class(not title, "-without-preview")
        view = self.query_one(FilePreview)
        view.show_preview(preview)
        more = view.title() if preview.is_numbered else kind or preview.kind
        self.query_one("#assets-preview-title", TitleLine).show(title, more)

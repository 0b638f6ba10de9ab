"""The details of one asset: title, facts, references and preview.

The caller reads all of these from the database; only the children of references are read on demand.

Tests: `tests/tui/screens/assets/test_assets_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from aptui.tui.data.assets_store import Kind
from aptui.tui.frame.line import Line, Part, Parts, width_of
from aptui.tui.screens.assets.asset_panel import Panel, Ref, ReferenceGroup, read_links
from aptui.tui.screens.assets.asset_readers import PREVIEW, QueryWorker
from aptui.tui.screens.assets.file_previews import FIRST, Preview, TexturePlace, VersionPair, preview_of
from aptui.tui.terminal.output.display import DiffRenderingApp
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, fit
from aptui.tui.widgets.cells import width_of as text_width
from aptui.tui.widgets.picture_drawing import pixel_cell
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import Column, KeyValue
from aptui.tui.widgets.textview import TextPreview, TextView
from aptui.tui.widgets.tree import Branch, LazyTree, VTree

if TYPE_CHECKING:
    from textual import events

    from aptui.tui.pictures.decoder import PictureView, Pixels
    from aptui.tui.pictures.decoding import Decoder


COLUMNS = (
    Column("text", "Reference", 0, 16),
    Column("note", "", 20, drop_rank=1),
    Column("size", "Size", 8, align="right", drop_rank=2),
)
_OPEN_UP_TO = 24
"""When an asset is first shown, groups with at most this number of references are open, and larger groups are closed."""


class References(LazyTree):
    """The references of one asset as a tree.

    Branches keep their keys, so that open branches stay open when the asset is read again.

    Args:
        ask: called with a branch whose children are needed; `grow` supplies them.
    """

    def __init__(self, ask: Callable[[Branch], None]) -> None:
        self._keys: dict[tuple[int, object], int] = {}
        self._before: dict[int, Branch] = {}
        super().__init__(ask)

    def show(self, panel: Panel) -> None:
        """Show the references of a panel."""
        self._before = dict(self._by_key)
        self.set_roots([branch for group in panel.groups for branch in _branches(group)])
        self._before = {}

    def list_opened_at_first(self) -> list[int]:
        """Return the nodes of the groups with few references, which are open when an asset is first shown."""
        return [self._place[branch.key] for branch in self._roots if branch.children and len(branch.children) <= _OPEN_UP_TO]

    def above(self, branch: Branch) -> set[int]:
        """Return the ids of a branch and of the branches above it."""
        found: set[int] = set()
        at: Branch | None = branch
        while at is not None:
            if isinstance(at.data, Ref):
                found.add(at.data.key)
            at = at.parent
        return found

    def _adopt_key(self, branch: Branch, parent: Branch | None) -> Branch:
        """Set the key of a branch. An equal branch gets its earlier key, and children that were read in the previous panel."""
        identity = branch.data[:3] if isinstance(branch.data, Ref) else branch.data
        place = (-1 if parent is None else parent.key, identity)
        branch.key = self._keys.setdefault(place, len(self._keys))
        while branch.key in self._by_key:  # the parent has the same reference twice
            place = (*place, 0)  # type: ignore[assignment]  # the tuple gets longer
            branch.key = self._keys.setdefault(place, len(self._keys))
        branch.parent = parent
        self._by_key[branch.key] = branch
        before = self._before.get(branch.key)
        if branch.children is None and branch.has_children and before is not None:
            branch.children = before.children
        if branch.children is not None:
            branch.children = [self._adopt_key(child, branch) for child in branch.children]
        return branch


def _branches(group: ReferenceGroup) -> Iterable[Branch]:
    if not group.title:
        return branches(group.refs)
    says = group.says or f"{len(group.refs):,}"
    role = "title" if group.refs else "muted"
    children = branches(group.refs) if group.refs else None
    return [Branch({"text": Cell(f"{group.title} ({says})", role)}, group.title, bool(group.refs), children=children)]


def branches(refs: Iterable[Ref]) -> list[Branch]:
    """Return the references as branches of a tree."""
    return [Branch(_cells(ref), ref, bool(ref.ask)) for ref in refs]


def _cells(ref: Ref) -> dict[str, Cell]:
    sign = glyph("to") if ref.leads else " "
    text_role = "muted" if ref.role == "muted" else "path"
    note_role = ref.role or "muted"
    return {"text": Cell(f"{sign} {ref.text}", text_role), "note": Cell(ref.note, note_role), "size": Cell(ref.size, "muted")}


TITLES = {Kind.SOURCES: "Sources", Kind.INTERMEDIATES: "Intermediates", Kind.PRODUCTS: "Products"}
_BRIEF = {**TITLES, Kind.INTERMEDIATES: "Interm."}
"""Shorter titles of the tabs, for screens on which the search needs the room."""


class TreeTabs(Line):
    """The tabs of the trees; a tab shows the number of files in its tree as soon as the number is known."""

    @dataclass
    class TreeChosen(Message):
        """Posted when the user clicked a tab."""

        kind: Kind

    def __init__(self) -> None:
        super().__init__(id="assets-tabs")
        self._kind, self._counts = Kind.SOURCES, dict.fromkeys(Kind, -1)
        self._is_roomy = self._is_brief = False
        self._width = 0

    def show(self, kind: Kind, counts: dict[Kind, int], *, is_roomy: bool, is_brief: bool) -> None:
        """Mark the visible tree's tab and show numbers of files (-1 = unknown). With `is_brief`, titles are short (`_BRIEF`)."""
        self._kind, self._counts, self._is_roomy, self._is_brief = kind, counts, is_roomy, is_brief
        width = width_of(self.parts(0))
        if width != self._width:
            self._width = self.styles.width = width
        self.refresh_if_changed()

    def parts(self, width: int) -> Parts:  # noqa: ARG002  # it is as wide as its parts
        """Return the tabs; a sign marks the tab of the visible tree, for terminals without colours."""
        parts: list[Part] = []
        for kind, title in (_BRIEF if self._is_brief else TITLES).items():
            is_here = kind is self._kind
            parts.append(Part(f" {title}", "title" if is_here else "muted"))
            parts.append(Part(glyph("open") if is_here else " ", "accent"))
            count = self._counts[kind]
            is_counted = self._is_roomy or (is_here and not self._is_brief)
            parts.append(Part(f" {count:,}" if count >= 0 and is_counted else "", "muted"))
            parts.append(Part(" "))
        return tuple(parts)

    async def on_click(self, event: events.Click) -> None:
        """Post a message for the clicked tab."""
        ends, end = [], 0
        for at, part in enumerate(self.parts(0)):
            end += part.width
            if at % 4 == 3:
                ends.append(end)
        kinds = [kind for kind, past in zip(TITLES, ends, strict=True) if event.x < past]
        if kinds:
            self.post_message(self.TreeChosen(kinds[0]))


class TitleLine(Line):
    """The line above a widget: a title and more text; if the line divides two widgets, a rule fills the remaining width."""

    def __init__(self, id: str, *, classes: str = "", is_rule: bool = False) -> None:  # noqa: A002  # Textual's name
        super().__init__(id=id, classes=classes)
        self._title, self._more, self._is_rule = "", "", is_rule

    def show(self, title: str, more: str = "") -> None:
        """Replace the title and the text beside it."""
        self._title, self._more = title, more
        self.refresh_if_changed()

    def parts(self, width: int) -> Parts:
        """Return the title and the text, cut to the width."""
        line = glyph("rule")
        before = Part(f" {line * 2} " if self._is_rule else " ", "rule")
        free_width = max(0, width - before.width - 1)
        title = fit(self._title, min(free_width, text_width(fit(self._title, 400).text.rstrip()))).text
        more = fit(f"  {self._more}", max(0, free_width - text_width(title)), is_prose=True).text.rstrip() if self._more else ""
        rest = max(0, free_width - text_width(title) - text_width(more) - 1)
        return before, Part(title, "title"), Part(more, "muted"), Part(f" {line * rest}" if self._is_rule else "", "rule")


_CHANGING_FACTS = frozenset({"Digest", "Size", "Changed", "Last processed"})
"""Names of facts that change when the file changes."""


class AssetFacts(KeyValue, can_focus=False):
    """Facts as keys and values without a header; the menu of copies offers them."""

    HEADER_LINES: ClassVar[int] = 0

    def _rows_of(self, key: str, value: str) -> list[str]:
        """Return the lines of a value. A digest is cut at the end, because its first characters are enough to compare it."""
        return [value] if key == "Digest" else super()._rows_of(key, value)


class FilePreview(TextView):
    """The preview of the file."""

    leads: ClassVar[bool] = False

    class Resized(Message):
        """Posted when a picture may have to be decoded again for another size."""

    def on_mount(self) -> None:
        """Report the size again when the terminal starts or stops showing pictures as pixels."""
        if isinstance(self.app, DiffRenderingApp):
            self.app.pixels_changed.subscribe(self, lambda _: self.on_resize())

    def on_resize(self) -> None:
        """Report the new size."""
        self.refresh()
        self.post_message(self.Resized())


class ReferenceTree(VTree):
    """The references as a tree. Enter follows a reference, even if it has children; right and left open and close it."""

    HEADER_LINES: ClassVar[int] = 0
    leads: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "go there", id="rows.open")]

    def __init__(self, ask: Callable[[Branch], None]) -> None:
        super().__init__(COLUMNS, id="assets-references", classes="for-references")
        self._ask = ask
        self.references = References(ask)

    def show_panel(self, panel: Panel, *, is_same: bool) -> None:
        """Show the references of a panel; for another asset, open only the short groups."""
        if is_same:
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
        """Show no references."""
        self.references = References(self._ask)
        self.cursor, self.cursor_key = 0, None
        self.set_tree(self.references)

    def reference(self, key: int | None = None) -> Ref | None:
        """Return the reference of a row, by default of the row under the cursor."""
        wanted = self.cursor_key if key is None else key
        branch = self.references.branch(wanted) if wanted is not None else None
        return branch.data if branch is not None and isinstance(branch.data, Ref) else None

    @dataclass
    class NoTarget(Message):
        """Posted when the user tried to follow a reference that has no target."""

        ref: Ref

    def action_open(self) -> None:
        """Follow a reference that has a target. Otherwise open or close it, or report that it has neither target nor children."""
        reference = self.reference()
        if reference is not None and reference.leads and self.cursor_key is not None:
            self.post_message(Rows.Opened(self, self.cursor_key))
        elif reference is not None and not reference.ask:
            self.post_message(self.NoTarget(reference))
        else:
            super().action_open()


class AssetDetail(Vertical):
    """The details of one asset; `show` draws only the parts that changed."""

    class PreviewReplaced(Message):
        """Posted when an explanation or a comparison that the user requested replaces the preview."""

    def __init__(self, queries: QueryWorker, decoder: Decoder) -> None:
        super().__init__(id="assets-detail", classes="-without-preview")
        self._queries, self._decoder = queries, decoder
        self._panel: Panel | None = None
        self._previewed: tuple[object, ...] = ()
        self._preview: Preview | None = None
        """The preview of the file, None until it is read."""
        self._place = FIRST
        self._earlier: VersionPair | TextPreview | None = None
        self.is_explaining = False
        """Whether explanations are shown in place of the preview."""
        self._wanted: tuple[tuple[str, PictureView], ...] = ()

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        yield TitleLine("assets-title")
        yield AssetFacts(id="assets-facts", classes="for-references")
        yield ReferenceTree(self._ask_below)
        yield TitleLine("assets-preview-title", classes="for-preview", is_rule=True)
        yield FilePreview(id="assets-preview", classes="for-preview")

    @property
    def references(self) -> ReferenceTree:
        """The widget with the references."""
        return self.query_one(ReferenceTree)

    @property
    def parts(self) -> list[Rows]:
        """The widgets that can have the focus."""
        return [self.references, *([] if self.has_class("-without-preview") else [self.query_one(FilePreview)])]

    @property
    def preview_width(self) -> int:
        """Width of a line of the preview without edge and scroll bar (cells), computed from the screen before the first layout."""
        return (self.size.width or self.app.size.width) - 2

    def show(self, panel: Panel) -> None:
        """Show an asset. If the asset is shown already and was read again, the cursor and the open branches stay."""
        before, self._panel = self._panel, panel
        is_same = before is not None and (before.kind, before.key) == (panel.kind, panel.key)
        self._title.show(panel.path)
        if not is_same or before is None or before.facts != panel.facts:
            self.query_one(AssetFacts).show(panel.facts)
        self.references.show_panel(panel, is_same=is_same)
        self._read_preview(panel)

    @property
    def _title(self) -> TitleLine:
        return self.query_one("#assets-title", TitleLine)

    def clear(self) -> None:
        """Show no asset, because the visible tree has no rows."""
        if self._panel is None:
            return
        self._panel, self._previewed, self._preview = None, (), None
        self._title.show("")
        self.query_one(AssetFacts).show(())
        self.references.clear()
        self._draw_preview("", TextPreview("", ()))

    def show_gone(self) -> None:
        """Show that the asset no longer exists."""
        if self._panel is not None:
            self._title.show(self._panel.path, "gone")

    def show_why(self, preview: TextPreview) -> None:
        """Show explanations in place of the preview."""
        self._earlier, self._wanted, self.is_explaining = None, (), True
        self._draw_preview("Why", preview)
        self.post_message(self.PreviewReplaced())

    def _ask_below(self, branch: Branch) -> None:
        """Request the children of a reference from the database."""
        references, ref = self.references.references, branch.data
        if self._panel is None or not isinstance(ref, Ref):
            return
        above = references.above(branch) | {self._panel.key}
        self._queries.request(
            f"below {branch.key}", lambda reader: read_links(reader, ref, above), partial(self._grow, references, branch)
        )

    def _grow(self, references: References, branch: Branch, refs: tuple[Ref, ...]) -> None:
        if self.references.references is references:
            references.grow(branch, branches(refs))
            self.references.refresh_model()

    def _read_preview(self, panel: Panel) -> None:
        """Read the file for the preview, unless the file is unchanged."""
        state = (panel.file, panel.is_folder, *(pair for pair in panel.facts if pair[0] in _CHANGING_FACTS))
        if state == self._previewed:
            return
        self._previewed, self._preview, self._earlier, self.is_explaining = state, None, None, False
        self._decoder.drop_request()
        if panel.is_folder or not panel.file:
            self._draw_preview("", TextPreview("", ()))
        else:
            self._queries.request(PREVIEW, lambda _reader: preview_of(panel.file), partial(self._accept_preview, state))

    def _accept_preview(self, state: tuple[object, ...], preview: Preview) -> None:
        """Show a preview if its file is still selected, and request that its picture is decoded."""
        if state != self._previewed:
            return
        self._preview, self._place = preview, FIRST
        if not self.is_explaining:
            self._show_file(preview)

    def _show_file(self, preview: Preview) -> None:
        self._earlier, self._wanted, self.is_explaining = None, (), False
        self.set_class(bool(preview.form), "-picture")
        self._draw_preview("Preview", preview.at_first, preview.title(self._place))
        self.on_file_preview_resized()

    def on_file_preview_resized(self) -> None:
        """Request that the picture is decoded for the present size, unless this was requested already."""
        preview, earlier = self._preview, self._earlier
        if preview is None or self._panel is None or self.is_explaining:
            return
        if isinstance(earlier, TextPreview) or not (preview.form or earlier):
            return  # a text is shown
        view = self.query_one(FilePreview)
        (columns, rows), cell = view.size_in_cells, pixel_cell(view)
        shown, files, above = [preview], [self._panel.file], preview.above
        if earlier is not None:
            version, before, preview = earlier
            shown, files, above = [before, preview], [version.path, version.now], before.beside(version.label, preview, self._place)
        views = [each.view(self._place, columns, rows - len(above), shares=len(shown), cell=cell) for each in shown]
        wanted = tuple(zip(files, views, strict=True))
        if wanted != self._wanted:
            self._wanted = wanted
            self._decoder.request(wanted, partial(self._accept_picture, wanted, replace(preview, above=above), self._place))

    def step_texture(self, levels: int, pictures: int) -> bool:
        """Show another level, or another face or layer, of a texture; return False if no other exists."""
        preview = self._preview
        if preview is None or (len(preview.levels) if levels else preview.pictures.total) < 2:
            return False
        self._place = preview.place(self._place.level + levels, self._place.number + pictures)
        self.on_file_preview_resized()
        return True

    @property
    def is_comparing(self) -> bool:
        """Whether an earlier version is shown beside the current one."""
        return self._earlier is not None

    def compare(self, panel: Panel, comparison: VersionPair | TextPreview) -> None:
        """If this asset is still shown, show an earlier version beside the current one, or the differences of texts."""
        if self._preview is None or self._panel is None or (panel.kind, panel.key) != (self._panel.kind, self._panel.key):
            return
        self._earlier, self._wanted, self.is_explaining = comparison, (), False
        self.add_class("-picture")
        if isinstance(comparison, TextPreview):
            self._draw_preview("Before and after", comparison)
        self.on_file_preview_resized()
        self.post_message(self.PreviewReplaced())

    def show_file(self) -> None:
        """Show only the current file: end the comparison, or the explanations."""
        if self._preview is not None:
            self._show_file(self._preview)

    def _accept_picture(self, wanted: object, preview: Preview, place: TexturePlace, picture: Pixels | str) -> None:
        """Show a decoded picture, unless another picture was requested after it."""
        if self._preview is not None and wanted == self._wanted:
            shown = preview.with_picture(picture, place)
            self._draw_preview(*(("Preview", shown) if self._earlier is None else ("Before and after", replace(shown, kind=""))))

    def _draw_preview(self, title: str, preview: TextPreview, kind: str = "") -> None:
        self.set_class(not title, "-without-preview")
        view = self.query_one(FilePreview)
        view.show_preview(preview)
        more = view.title() if preview.is_numbered else kind or preview.kind
        self.query_one("#assets-preview-title", TitleLine).show(title, more)

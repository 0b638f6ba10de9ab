"""Moves and deletes on the Assets screen: asks for the destination, shows the preview, and asks for confirmation.

The engine plans and performs the relocation; this module changes no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec.structs import replace
from textual import events
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size

from aptui.core.paths import as_text
from aptui.features.relocation.relocation_records import Relocate, RelocationReport, describe_report, summarize_report
from aptui.shared.errors import KnownError
from aptui.shared.forms import prepare_form
from aptui.tui.data.assets_store import Kind
from aptui.tui.frame.line import Line, Part, Parts
from aptui.tui.frame.sheets import Lines
from aptui.tui.screens.assets.asset_actions import AssetExtension, AssetParts
from aptui.tui.terminal.safety import glyph, make_safe
from aptui.tui.widgets.cells import width_of, wrap
from aptui.tui.widgets.menu import MenuItem, Prompt, _PopUp

if TYPE_CHECKING:
    from concurrent.futures import Future

    from aptui.link.port import Answer
    from aptui.tui.screens.assets.asset_panel import Panel

_ROLES = {"dim": "muted", "bold": "title", "green": "completed", "yellow": "warning", "red": "failed", "": ""}
_INDENT = "    "
_LEAST_LINES, _AROUND_LINES = 3, 9
_NAME_CELLS = 48
"""Maximum width of a path in a title."""


class Moving(AssetExtension):
    """Asks for the destination, shows the engine's preview, confirms, and selects the new path."""

    def __init__(self, parts: AssetParts) -> None:
        super().__init__(parts)
        self._shell, self._moved = parts.shell, parts.navigation.follow_moved_file

    def actions(self) -> Mapping[str, Callable[[], object]]:
        """Return the actions Move and Delete."""
        return {"move": partial(self._when_read, self.ask_to_move), "delete": partial(self._when_read, self.ask_to_delete)}

    def menu_items(self, panel: Panel) -> Sequence[MenuItem | None]:
        """Return the menu items for Move and Delete."""
        can = self._can_move(panel)
        return [MenuItem("move", "Move…", "m", can), MenuItem("delete", "Delete…", "D", can)]

    def _can_move(self, panel: Panel) -> bool:
        return self._shell.can_ask and panel.kind is Kind.SOURCES and bool(panel.path)

    def _when_read(self, do: Callable[[Panel], object]) -> None:
        self.parts.selected.when_read(lambda panel: do(panel) if self._can_move(panel) else None)

    def ask_to_move(self, panel: Panel) -> None:
        """Ask for the destination of the panel's source or folder."""
        self._ask_where(panel, panel.path)

    def ask_to_delete(self, panel: Panel) -> None:
        """Show a preview of deleting the panel's source or folder, and ask for confirmation."""
        self._preview(Relocate(source_of(panel), is_delete=True), panel)

    def _ask_where(self, panel: Panel, value: str) -> None:
        def take_answer(text: str | None) -> None:
            target = (text or "").strip()
            if target and target != panel.path:
                self._preview(Relocate(source_of(panel), destination_of(panel, target)), panel, target)

        what = f"Move {'all of ' if panel.is_folder else ''}'{_short(panel.path)}' to"
        Prompt.ask(self._shell.app, what, take_answer, value=value)

    def _preview(self, order: Relocate, panel: Panel, typed: str = "") -> None:
        def take_report(report: RelocationReport) -> None:
            RelocationPreview.open(self._shell.app, report, self._request, self._moved)

        def show_refusal(error: KnownError) -> None:
            self._shell.show_toast(str(error), "error", 10)
            if typed:
                self._ask_where(panel, typed)

        self._request(order, take_report, show_refusal)

    def _request(
        self, order: Relocate, then: Callable[[RelocationReport], object], show_refusal: Callable[[KnownError], object]
    ) -> None:
        """Send the request to the engine, and call `then` with the report, or `show_refusal` with the error."""

        def take_answer(answer: Future[Answer]) -> None:
            error = answer.exception()
            if error is None:
                then(msgspec.convert(answer.result(), prepare_form(RelocationReport)))
            elif isinstance(error, KnownError):
                show_refusal(error)
            else:
                raise error

        self._shell.session.ask(order).add_done_callback(lambda answer: self._shell.in_ui(take_answer, answer))


SendRequest = Callable[[Relocate, Callable[[RelocationReport], object], Callable[[KnownError], object]], object]


def source_of(panel: Panel) -> str:
    """Return the source pattern for the panel's source, or for all sources in the panel's folder."""
    return f"{panel.path}/*" if panel.is_folder else as_text(panel.file)


def destination_of(panel: Panel, typed: str) -> str:
    """Return the destination pattern for the typed path.

    A folder is renamed to the typed path. If the typed path ends with a slash, the folder is moved into the typed folder.
    """
    if not panel.is_folder:
        return typed
    return f"{typed}{panel.path.rpartition('/')[2]}/*" if typed.endswith("/") else f"{typed}/*"


def new_path(report: RelocationReport) -> str:
    """Return the new relative path of the source or the folder; "" if it was deleted or not moved."""
    item = next((each for each in report.items if each.new and not each.is_metadata), None)
    if item is None:
        return ""
    if not report.order.source.endswith("/*"):
        return item.new
    below = item.old.removeprefix(report.order.source.removesuffix("*"))
    return item.new.removesuffix(f"/{below}")


def _short(path: str) -> str:
    text = make_safe(path)
    return text if width_of(text) <= _NAME_CELLS else glyph("ellipsis") + text[1 - _NAME_CELLS :]


class _Keys(Line):
    """A line that shows keys and their actions; a click on a key performs the action."""

    def __init__(self, list_keys: Callable[[], Sequence[tuple[str, str, bool]]], pressed: Callable[[str], object]) -> None:
        super().__init__()
        self._list_keys, self._pressed = list_keys, pressed

    def parts(self, width: int) -> Parts:  # noqa: ARG002  # the keys fit on the narrowest screen
        """Return the line of keys and actions; unavailable actions are shown pale."""
        found: list[Part] = []
        for key, text, is_able in self._list_keys():
            found += [Part(f" {key} ", "key" if is_able else "muted", key), Part(f"{text}  ", "" if is_able else "muted", key)]
        return tuple(found)

    async def on_click(self, event: events.Click) -> None:
        """Perform the action of the clicked key."""
        event.stop()
        end = 0
        for part in self._drawn:
            end += part.width
            if event.x < end:
                self._pressed(part.action)
                return


class RelocationPreview(_PopUp):
    """The preview of a move or a deletion, with options and the question whether to proceed."""

    DEFAULT_CSS = """
    RelocationPreview { width: 96%; max-width: 120; padding: 0 1; }
    RelocationPreview > Vertical { height: auto; }
    RelocationPreview Lines { height: 3; overflow-x: hidden; }
    """
    _ESCAPE: ClassVar[str] = "Esc"

    def __init__(self, report: RelocationReport, send: SendRequest, moved: Callable[[str], object]) -> None:
        super().__init__(lambda _what: None)
        self._report, self._request, self._moved = report, send, moved
        self._is_asking = False
        order = report.order
        verb = "Delete" if order.is_delete else "Move"
        named = report.items[0].old if report.counts.sources == 1 and report.items else order.source
        self.border_title = Content(f"{verb} {_short(named)}")

    @classmethod
    def open(
        cls, app: App[Any], report: RelocationReport, send: SendRequest, moved: Callable[[str], object] = lambda _path: None
    ) -> RelocationPreview:
        """Open the preview."""
        return cls(report, send, moved).open_in(app)

    def expect_size(self, screen: Size) -> Size:
        """Return the expected width from the CSS style; the height is unknown until the lines are wrapped."""
        return Size(min(screen.width * 96 // 100, 120), min(_LEAST_LINES + 6, screen.height))

    def compose(self) -> ComposeResult:
        """Create the lines and the keys."""
        with Vertical():
            yield Lines()
            yield _Keys(self._choices, self._press)
            yield _Keys(self._answers, self._press)

    def focus_first(self) -> None:
        """Focus the lines, so that keys scroll them."""
        self.query_one(Lines).focus()

    def on_resize(self) -> None:
        """Wrap the lines for the new width."""
        self._show()

    def _show(self) -> None:
        if not self.is_attached:
            return
        body = self.query_one(Lines)
        width = max(20, self.content_size.width - 1)
        shown_lines = [*describe_report(self._report, arrow=glyph("to"))]
        ending = [*summarize_report(self._report)]
        broken = [
            part for text, role in (*ending, ("", ""), *shown_lines[: -len(ending)]) for part in _wrap(text, _ROLES[role], width)
        ]
        body.styles.height = min(len(broken), max(_LEAST_LINES, self.app.size.height - _AROUND_LINES))
        body.show(broken)
        for keys in self.query(_Keys):
            keys.refresh_if_changed()

    # ------------------------------------------------------------------------------------------------------------------ keys

    @property
    def _can_do(self) -> bool:
        return not (self._report.is_performed or self._report.refusals or self._is_asking)

    def _choices(self) -> list[tuple[str, str, bool]]:
        order, is_open = self._report.order, not self._report.is_performed
        found = [] if order.is_delete else [("u", f"update references: {_on(order.updates_references)}", is_open)]
        return [
            *found,
            ("b", f"allow broken: {_on(order.allows_broken)}", is_open),
            ("m", f"metadata: {_on(not order.excludes_metadata)}", is_open),
        ]

    def _answers(self) -> list[tuple[str, str, bool]]:
        if self._report.is_performed:
            return [(self._ESCAPE, "close", True)]
        if self._is_asking:
            return [(self._ESCAPE, "close this preview; the engine continues", True)]
        return [("y", "delete" if self._report.order.is_delete else "move", self._can_do), (self._ESCAPE, "cancel", True)]

    def on_key(self, event: events.Key) -> None:
        """Handle the keys that are listed below the preview."""
        key = self._ESCAPE if event.key == "escape" or event.character in ("n", "q") else event.character
        if key in (self._ESCAPE, "y", "u", "b", "m"):
            event.stop()
            event.prevent_default()
            self._press(key)

    def _press(self, key: str) -> None:
        order = self._report.order
        if key == self._ESCAPE:
            self.answer(None)
        elif self._report.is_performed or self._is_asking:
            return
        elif key == "y" and self._can_do:
            self._ask_for(replace(order, is_confirmed=True))
        elif key == "u" and not order.is_delete:
            self._ask_for(replace(order, updates_references=not order.updates_references))
        elif key == "b":
            self._ask_for(replace(order, allows_broken=not order.allows_broken))
        elif key == "m":
            self._ask_for(replace(order, excludes_metadata=not order.excludes_metadata))

    def _ask_for(self, order: Relocate) -> None:
        self._is_asking = True
        self._request(order, self._show_answer, self._show_refusal)
        self._show()

    def _show_answer(self, report: RelocationReport) -> None:
        self._is_asking = False
        self._report = report if report.is_performed else replace(report, order=replace(report.order, is_confirmed=False))
        if report.is_whole:
            self.app.show_toast(next(iter(summarize_report(report)))[0])  # type: ignore[attr-defined]  # it is aptui's own app
            self.answer(None)
            if path := new_path(report):
                self._moved(path)
        elif self.is_attached:
            self._show()
        elif report.is_performed:  # the user closed the preview before the answer came
            self.app.show_toast(next(iter(summarize_report(report)))[0], "warning")  # type: ignore[attr-defined]  # it is aptui's own app

    def _show_refusal(self, error: KnownError) -> None:
        self._is_asking = False
        self.app.show_toast(str(error), "error", 10)  # type: ignore[attr-defined]  # it is aptui's own app
        self._show()


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


def _wrap(text: str, role: str, width: int) -> list[Parts]:
    """Wrap a line; continuation lines are indented further."""
    lead = len(text) - len(text.lstrip(" "))
    text = text[lead:]
    indent, further = (" " * min(cells, width // 2) for cells in (lead, lead + len(_INDENT)))
    end = wrap(text, width - len(indent))[0][1]
    rest = text[end:]
    rows = [indent + text[:end], *(further + rest[first:last] for first, last in wrap(rest, width - len(further)) if rest)]
    return [(Part(row.rstrip(), role),) for row in rows]

"""The stage: which pane is shown, which sheet covers it, and where the focus goes back to. What a pane shows is its own business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.widgets import ContentSwitcher, Input

from aptui.tui.frame.help import KeyTester, help_lines
from aptui.tui.frame.info import info_lines
from aptui.tui.frame.sheet import Sheet
from aptui.tui.frame.tabbar import TabBar
from aptui.tui.frame.toasts import Toasts

if TYPE_CHECKING:
    from textual.binding import ActiveBinding
    from textual.screen import Screen
    from textual.widget import Widget

    from aptui.config.model import Config
    from aptui.tui.data.feed import Feed
    from aptui.tui.data.session import Session
    from aptui.tui.pane import Command, Pane, PaneSpec
    from aptui.tui.preferences.keymap import Keymap
    from aptui.tui.preferences.state import Memory


class Stage(App[None]):
    """The half of the app that shows panes and sheets."""

    panes: list[PaneSpec]
    session: Session
    config: Config | None
    memory: Memory
    keymap: Keymap
    feed: Feed | None
    has_mouse: bool
    _mounted: dict[str, Pane]
    _focus_of: dict[str, Widget]
    _current: str
    _sheet: str
    _table_passed: bool

    def wake(self) -> None:
        """Ask for a frame."""
        raise NotImplementedError

    def commands(self) -> list[Command]:
        """Return what can be said on the `:` line now."""
        raise NotImplementedError

    def main_screen(self) -> Screen[Any]:
        """Return the screen below whatever is open."""
        raise NotImplementedError

    async def action_show_number(self, number: int) -> None:
        """Go to the pane with this number, if there is one."""
        for spec in self.panes:
            if spec.number == number:
                await self.action_show(spec.id)

    async def action_show(self, pane_id: str) -> None:
        """Go to a pane."""
        spec = next((each for each in self.panes if each.id == pane_id), None)
        if spec is None:
            return
        self._close_sheet(focuses=False)
        if pane_id == self._current:
            self.give_focus_back()
            return
        self._leave_pane()
        stage = self.query_one("#stage", ContentSwitcher)
        if pane_id not in self._mounted:
            pane = spec.load()(id=f"pane-{pane_id}")
            pane.display = False
            await stage.mount(pane)
            self._mounted[pane_id] = pane
            if pane.wants_jobs and self._table_passed and self.feed is not None:
                self.feed.refresh()
        self._current = pane_id
        stage.current = f"pane-{pane_id}"
        self.query_one(TabBar).show(pane_id)
        self.memory.put("shell.tab", pane_id)
        self.give_focus_back()
        self._mounted[pane_id].activate()
        self.wake()

    @property
    def pane(self) -> Pane | None:
        """The pane that is shown, or that a sheet covers."""
        return self._mounted.get(self._current)

    def _leave_pane(self) -> None:
        pane = self.pane
        if pane is None:
            return
        if self.focused is not None and pane in self.focused.ancestors_with_self:
            self._focus_of[self._current] = self.focused
        pane.deactivate()

    def give_focus_back(self) -> None:
        """Put the focus where it was in this pane, or on the first part that takes it."""
        pane = self.pane
        if pane is None:
            self.set_focus(None)
            return
        last = self._focus_of.get(self._current)
        if last is not None and last.is_attached and last.focusable:
            last.focus()
            return
        # A line to type in, shown or not, takes the keys only when people ask for it.
        first = next((each for each in pane.query("*") if each.focusable and not isinstance(each, Input)), None)
        self.set_focus(first)

    def _open_sheet(self, name: str, lines: Sequence[Any] | None = None) -> None:
        if not self._sheet and self.pane is not None and self.focused is not None and self.pane in self.focused.ancestors_with_self:
            self._focus_of[self._current] = self.focused
        self._sheet = name
        self.query_one("#stage", ContentSwitcher).current = name
        sheet = self.query_one(f"#{name}", Sheet)
        if lines is not None:
            sheet.show(lines)
        sheet.take_focus()

    def show_sheet(self, lines: Sequence[Any]) -> None:
        """Show lines, parts of which are safe text, in the place of the pane until `Esc`."""
        self._open_sheet("sheet-info", lines)

    def _close_sheet(self, *, focuses: bool = True) -> None:
        if not self._sheet:
            return
        self._sheet = ""
        self.query_one("#stage", ContentSwitcher).current = f"pane-{self._current}" if self._current else None
        if focuses:
            self.give_focus_back()
        self.wake()

    def on_sheet_closed(self) -> None:
        """Go back to the pane."""
        self._close_sheet()

    def action_help(self) -> None:
        """Show keys and commands of the place we are at."""
        if self._sheet != "sheet-help":
            title = next((spec.title for spec in self.panes if spec.id == self._current), "here")
            self._open_sheet("sheet-help", help_lines(self._active(), self.keymap, self.commands(), title))

    def action_keys(self) -> None:
        """Test keys."""
        active = self._active()
        self._open_sheet("sheet-keys")
        self.query_one(KeyTester).start(active, self.keymap)

    def action_messages(self) -> None:
        """Show what was said."""
        self._open_sheet("sheet-messages", self.query_one(Toasts).history())

    def action_info(self) -> None:
        """Show project, engine, versions."""
        more = [("Theme", self.theme), ("Mouse", "on" if self.has_mouse else "off")]
        if self.pane is not None and self.pane.status():
            more.append(("Here", self.pane.status()))
        project_dir = str(self.config.project_dir) if self.config else ""
        self._open_sheet("sheet-info", info_lines(self.session, project_dir, more))

    def _active(self) -> dict[str, ActiveBinding]:
        return self.screen.active_bindings

    def actions_here(self) -> list[tuple[str, str, str]]:
        """Return (key, id, what it does) of all actions with a key, as seen from the pane."""
        found: dict[str, tuple[str, str, str]] = {}
        for key, (_node, binding, is_enabled, _tooltip) in self.main_screen().active_bindings.items():
            does = self.keymap.does(binding.id or "") or binding.description
            if is_enabled and does and binding.id:
                found.setdefault(binding.id, (key, binding.id, does))
        return list(found.values())

    def remember_focus(self) -> None:
        """Note where the focus is in the pane."""
        if self.pane is not None and self.focused is not None and self.pane in self.focused.ancestors_with_self:
            self._focus_of[self._current] = self.focused

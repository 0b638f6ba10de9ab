"""Switches between panes, and stores which pane is shown, which sheet covers it, and which widget of each pane had the focus last.

Tests: `tests/tui/test_foreign_database.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.containers import Container
from textual.widgets import ContentSwitcher, Input

from aptui.shared.errors import KnownError
from aptui.tui.frame.sheets import Sheet
from aptui.tui.frame.statusline import TabBar
from aptui.tui.preferences.keymap import Actions

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.tui.data.feed import Batch, Feed
    from aptui.tui.pane import Pane, PaneSpec
    from aptui.tui.preferences.state import UiMemory


_SCREEN = "the screen"
"""Name of the state that keys wait for while a pane is being opened."""


class PaneSwitcher(Actions):
    """Mounts panes when they are first visited, and shows one pane, or a sheet (help, info, news …) in its place.

    Args:
        memory: remembers which pane was shown last.
        wake: requests a frame.
        read_jobs: reads the table of jobs again; called when a pane opens too late to receive the table from the feed.
        hold: called with the name of the awaited state; delays keys that do not quit, and returns a function that ends the delay.
    """

    def __init__(
        self,
        app: App[Any],
        specs: Sequence[PaneSpec],
        memory: UiMemory,
        wake: Callable[[], object],
        read_jobs: Callable[[], object],
        hold: Callable[[str], Callable[[], object]],
    ) -> None:
        self._app, self._specs, self._memory = app, specs, memory
        self._wake, self._read_jobs, self._hold = wake, read_jobs, hold
        self._turn = asyncio.Lock()
        self.mounted: dict[str, Pane] = {}
        self.sheet = ""
        """The id of the shown sheet, "" = none."""
        self._current = ""
        self._focus_of: dict[str, Widget] = {}
        self._has_table_passed = False
        self._parts: list[Batch] = []
        """Parts of the current batch of updates that the panes have not received yet, in reverse order."""

    # ---------------------------------------------------------------------------------------------------------------- panes

    @property
    def pane(self) -> Pane | None:
        """The current pane, even while a sheet (such as the help) is shown in its place."""
        return self.mounted.get(self._current)

    @property
    def title(self) -> str:
        """The title of the pane."""
        return next((spec.title for spec in self._specs if spec.id == self._current), "here")

    @property
    def status(self) -> str:
        """A few words about the content of the pane."""
        return self.pane.status() if self.pane is not None else ""

    async def show_first(self) -> None:
        """Show the pane that was shown when the screen was last left, or the first pane."""
        wanted = self._memory.get("shell.tab", "")
        if self._specs:
            await self.action_show(wanted if wanted in {spec.id for spec in self._specs} else self._specs[0].id)
            if not self._current:  # the remembered pane cannot be loaded
                await self.action_show(self._specs[0].id)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False if no pane has this number, so that its key has no effect."""
        return action != "number" or any(spec.number == parameters[0] for spec in self._specs)

    async def action_number(self, number: int) -> None:
        """Go to the pane with this number, if there is one."""
        for spec in self._specs:
            if spec.number == number:
                await self.action_show(spec.id)

    async def action_show(self, pane_id: str) -> None:
        """Go to a pane."""
        arrived = self._hold(_SCREEN)
        try:
            async with self._turn:
                await self._show(pane_id)
        finally:
            arrived()

    def reveal(self, pane_id: str, text: str, **how: str) -> None:
        """Go to a pane and call its `reveal` with the arguments. Keys wait until `reveal` has returned."""
        arrived = self._hold(_SCREEN)

        async def go() -> None:
            try:
                await self.action_show(pane_id)
                pane: Any = self.mounted.get(pane_id)
                if hasattr(pane, "reveal"):
                    pane.reveal(text, **how)
            finally:
                arrived()

        self._app.run_worker(go())

    action_reveal = reveal

    async def _show(self, pane_id: str) -> None:
        spec = next((each for each in self._specs if each.id == pane_id), None)
        if spec is None:
            return
        self.close_sheet(focuses=False)
        if pane_id == self._current:
            self.refocus()
            return
        if pane_id not in self.mounted:
            try:
                spec.load()
            except KnownError as error:
                self._app.notify(str(error), severity="warning", timeout=15)
                self.refocus()
                return
        if self.pane is not None:
            self.remember_focus()
            self.pane.deactivate()
        if pane_id not in self.mounted:
            await self._mount(spec)
        self._current = pane_id
        self._stage.current = f"pane-{pane_id}"
        self._app.query_one(TabBar).show(pane_id)
        self._memory.put("shell.tab", pane_id)
        self.refocus()
        self.mounted[pane_id].activate()
        self._wake()

    async def _mount(self, spec: PaneSpec) -> None:
        pane = spec.load()(id=f"pane-{spec.id}")
        pane.display = False
        await self._stage.mount(pane)
        self.mounted[spec.id] = pane
        if pane.wants_jobs and self._has_table_passed:
            self._read_jobs()

    @property
    def _stage(self) -> ContentSwitcher:
        return self._app.query_one("#stage", ContentSwitcher)

    # -------------------------------------------------------------------------------------------------------------- updates

    def hand_out(self, feed: Feed) -> bool:
        """Hand the next part of the waiting updates to all panes; return whether more parts are left."""
        self._parts = self._parts or feed.drain().parts()
        batch = self._parts.pop()
        if batch.table is not None:
            self._has_table_passed = True
        for pane in self.mounted.values():
            pane.on_news(batch)
        return bool(self._parts)

    def draw(self) -> None:
        """Draw the visible pane."""
        if self.pane is not None and not self.sheet:
            self.pane.on_frame()

    # ---------------------------------------------------------------------------------------------------------------- focus

    def remember_focus(self) -> None:
        """Remember which widget of the pane has the focus."""
        focused = self._app.focused
        if self.pane is not None and focused is not None and self.pane in focused.ancestors_with_self:
            self._focus_of[self._current] = focused

    def refocus(self) -> None:
        """Focus the sheet, or the pane's remembered widget, or the first widget of the pane that accepts the focus."""
        pane = self.pane
        if self.sheet:
            self._app.query_one(f"#{self.sheet}", Sheet).take_focus()
            return
        if pane is None:
            self._app.set_focus(None)
            return
        last = self._focus_of.get(self._current)
        if last is not None and last.is_attached and last.focusable:
            last.focus()
            return
        self._app.set_focus(_first_part(pane))

    # --------------------------------------------------------------------------------------------------------------- sheets

    def open_sheet(self, name: str, lines: Sequence[Any] | None = None) -> None:
        """Show a sheet in place of the pane, with these lines, or with the sheet's current content."""
        if not self.sheet:
            self.remember_focus()
        self.sheet = name
        self._stage.current = name
        sheet = self._app.query_one(f"#{name}", Sheet)
        if lines is not None:
            sheet.show(lines)
        sheet.take_focus()

    def close_sheet(self, *, focuses: bool = True) -> None:
        """Close the sheet (such as the help) and show the current pane again."""
        if not self.sheet:
            return
        self.sheet = ""
        self._stage.current = f"pane-{self._current}" if self._current else None
        if focuses:
            self.refocus()
        self._wake()


def _first_part(pane: Container) -> Widget | None:
    # An `Input`, such as the filter, is skipped, because it gets the focus only when the user opens it.
    return next((each for each in pane.query("*") if each.focusable and not isinstance(each, Input)), None)

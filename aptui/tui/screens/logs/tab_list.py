"""The tabs above a log, and which of them is shown; people make tabs of their own, change, move and remove them.

What a tab shows is told in `logs.tabs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aptui.tui.screens.logs.tabs import STANDARD, LogTab, mistake_in, tab_of, tabs_of, values_of
from aptui.tui.widgets.form import Field, Form
from aptui.tui.widgets.lines import LEVELS
from aptui.tui.widgets.menu import Menu, MenuItem

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


class TabList:
    """The standard tabs, then people's own.

    Args:
        show: called when another tab is to be shown, or the one that is shown became another.
    """

    def __init__(self, shell: Shell, show: Callable[[], None]) -> None:
        self._shell, self._show = shell, show
        memory, nothing = shell.memory, list[Any]()
        self.tabs = [*STANDARD, *tabs_of(memory.get("logs.tabs", nothing))]
        self.number = min(max(0, memory.get("logs.tab", 1)), len(self.tabs) - 1)

    @property
    def current(self) -> LogTab:
        """The tab that is shown."""
        return self.tabs[self.number]

    def names(self) -> list[str]:
        """Return what the tabs are called."""
        return [tab.name for tab in self.tabs]

    def show(self, number: int) -> None:
        """Show a tab; one after the last is the first."""
        self.number = number % len(self.tabs)
        self._show()

    def keep(self) -> None:
        """Remember people's tabs, and which one is shown."""
        self._shell.memory.put("logs.tabs", values_of(self.tabs))
        self._shell.memory.put("logs.tab", self.number)

    def ask(self) -> None:
        """Let people choose a tab, or make, change, move or remove one."""
        tab = self.current
        items: list[MenuItem | None] = [
            MenuItem(f"show {at}", name, str(at + 1) if at < 9 else "") for at, name in enumerate(self.names())
        ]
        own = [
            MenuItem("edit", f"Change '{tab.name}'…", "c", tab.is_own),
            MenuItem("left", "Move left", "less_than_sign", tab.is_own and self.number > len(STANDARD)),
            MenuItem("right", "Move right", "greater_than_sign", tab.is_own and self.number < len(self.tabs) - 1),
            MenuItem("remove", f"Remove '{tab.name}'", "d", tab.is_own, "warning" if tab.is_own else ""),
        ]
        Menu.ask(self._shell.app, [*items, None, MenuItem("new", "New tab…", "a"), *own], self._do, title="Tabs")

    def _do(self, what: str | None) -> None:
        match (what or "").split():
            case ["show", number]:
                self.show(int(number))
            case ["new"]:
                self.edit(None)
            case ["edit"]:
                self.edit(self.number)
            case [("left" | "right") as way]:
                place = self.number + (1 if way == "right" else -1)
                self.tabs.insert(place, self.tabs.pop(self.number))
                self._take(place)
            case ["remove"]:
                del self.tabs[self.number]
                self._take(self.number - 1)

    def edit(self, number: int | None) -> None:
        """Have people fill in what a tab shows; None makes a new one."""
        tab = LogTab("", is_own=True) if number is None else self.tabs[number]
        fields = [
            Field("name", "Name", tab.name, "as it stands above the lines"),
            Field("source", "Source", tab.source, "a regex on where a line comes from; empty = all"),
            Field("text", "Text", tab.text, "a filter, as after /; empty = all"),
            Field("levels", "Levels", tab.levels, "letters of EWID"),
        ]

        def take(form: dict[str, str] | None) -> None:
            if form is None:
                return
            if number is None:
                self.tabs.append(tab_of(form))
                self._take(len(self.tabs) - 1)
            else:
                self.tabs[number] = tab_of(form)
                self._take(number)

        def check(form: dict[str, str]) -> tuple[str, str] | None:
            if any(at != number and each.name == form["name"] for at, each in enumerate(self.tabs)):
                return ("name", "another tab has this name")
            unknown = set(form["levels"].upper()) - set(LEVELS) - {" ", ","}
            return ("levels", "levels are letters of EWID") if unknown else mistake_in(tab_of(form))

        Form.ask(self._shell.app, "New tab" if number is None else "Change the tab", fields, take, check)

    def _take(self, number: int) -> None:
        """Remember the tabs as they are now, and show one of them."""
        self._shell.memory.put("logs.tabs", values_of(self.tabs))
        self.show(number)

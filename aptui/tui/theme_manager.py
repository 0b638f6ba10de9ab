"""The wardrobe: the theme the app wears, the picker, and files that change while it runs. What a theme is stands in `theming`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.app import App

from aptui.tui.background import run_in_background
from aptui.tui.frame.picker import ThemePicker
from aptui.tui.preferences import theming

if TYPE_CHECKING:
    from aptui.tui.preferences.state import Memory

LOOK_S = 2.0
"""How often theme files are looked at."""


class Wardrobe(App[None]):
    """The half of the app that knows how it looks."""

    looks: theming.Looks
    person: Memory
    _is_left: threading.Event

    def tell(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show a message."""
        raise NotImplementedError

    def give_focus_back(self) -> None:
        """Put the focus where it was in the pane."""
        raise NotImplementedError

    def remember_focus(self) -> None:
        """Note where the focus is in the pane."""
        raise NotImplementedError

    def in_ui(self, do: Callable[..., object], *arguments: Any) -> None:
        """Have `do` called in the app's thread."""
        raise NotImplementedError

    def _use_looks(self, wanted: str) -> None:
        for look in self.looks.by_name.values():
            self.register_theme(theming.theme_of(look))
        name = theming.suitable(wanted, self.looks)
        if name in self.looks.by_name:
            self.theme = name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return a colour for every role, so that the rules of any widget hold under any theme."""
        return {f"role-{role}": "ansi_default" for role in theming.ROLES}

    def say_theme(self, name: str) -> None:
        """Choose a theme by name, open the picker, or with `reload` read the files again."""
        self._reload_looks(always=name == "reload")
        if name == "reload":
            self.tell(
                "themes read" if not self.looks.mistakes else str(self.looks.mistakes[0]),
                "warning" if self.looks.mistakes else "information",
            )
        elif not name:
            looks = sorted(self.looks.by_name.values(), key=lambda look: look.name)
            self.remember_focus()
            self.query_one(ThemePicker).start(looks, self.theme)
        elif name in self.looks.by_name:
            self.theme = name
            self.person.put("theme", name)
        else:
            self.tell(f"there is no theme '{name}'; there are {', '.join(sorted(self.looks.by_name))}", "warning")

    def _reload_looks(self, *, always: bool = False) -> None:
        """Read theme files again if any changed: when the picker opens, and when the terminal gets the focus back from an editor."""
        if not always and self.looks.is_current():
            return
        self.looks = theming.load_looks()
        self._use_looks(self.theme)
        self._invalidate_css()
        self.refresh_css(animate=False)
        self.screen_stack[0].refresh(layout=True)

    def begin_to_look(self) -> None:
        """Show what an editor elsewhere makes of the theme: a thread looks at the files' times, the screen hears of changes alone."""
        self._is_left = threading.Event()
        run_in_background("aptui-looks", self._keep_looking, self._is_left)

    def end_looking(self) -> None:
        """Look no more."""
        self._is_left.set()

    def _keep_looking(self, is_left: threading.Event) -> None:
        while not is_left.wait(LOOK_S):
            if not self.looks.is_current():
                self.in_ui(self._show_edited)

    def _show_edited(self) -> None:
        before = self.looks
        self._reload_looks()
        if self.looks is not before and self.looks.mistakes:
            self.tell(str(self.looks.mistakes[0]), "warning")

    def on_app_focus(self) -> None:
        """Look whether theme or key files were changed elsewhere meanwhile."""
        self._reload_looks()

    def on_theme_picker_shown(self, event: ThemePicker.Shown) -> None:
        """Show a theme; close the picker if it is for good."""
        self.theme = event.name
        if event.is_kept:
            self.person.put("theme", event.name)
            self.query_one(ThemePicker).display = False
            self.give_focus_back()

    def action_theme_next(self) -> None:
        """Go to the next theme."""
        self._reload_looks()
        names = sorted(self.looks.by_name)
        if not names:
            return
        at = names.index(self.theme) + 1 if self.theme in names else 0
        self.say_theme(names[at % len(names)])
        self.tell(f"theme {self.theme}", seconds=2)

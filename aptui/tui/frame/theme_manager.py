"""The current theme, the theme picker, and theme files that change while the app runs; the module `theming` reads theme files.

Tests: `tests/tui/preferences/test_theming.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from aptui.tui.background import run_in_background
from aptui.tui.frame.line import Part
from aptui.tui.frame.sheets import Lines
from aptui.tui.preferences import theming
from aptui.tui.preferences.keymap import Actions
from aptui.tui.preferences.theming import ThemeFile

if TYPE_CHECKING:
    from aptui.tui.frame.commandline import Host
    from aptui.tui.preferences.state import UiMemory


_TEXT_CELLS = 28
"""Width of a theme's description in the picker (cells)."""


class ThemePicker(Vertical):
    """The theme picker, a narrow column beside the pane.

    Moving the cursor shows a theme, Enter selects it, Esc restores the previous theme.
    """

    DEFAULT_CSS = """
    ThemePicker { width: 30; height: 1fr; display: none; }
    ThemePicker #picker-names { height: auto; max-height: 70%; }
    ThemePicker #picker-about { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "give_up", "back", id="picker.close")]

    class ThemePreviewed(Message):
        """Posted when the picker asks to show a theme; `is_final`: the picker closes; `is_chosen`: the user selected the theme."""

        def __init__(self, name: str, *, is_final: bool = False, is_chosen: bool = False) -> None:
            super().__init__()
            self.name, self.is_final, self.is_chosen = name, is_final or is_chosen, is_chosen

    def __init__(self) -> None:
        super().__init__(id="picker")
        self._themes: Sequence[ThemeFile] = ()
        self._names: list[str] = []
        self._before = ""

    def start(self, themes: Sequence[ThemeFile], current: str) -> None:
        """Open the picker with these themes, with the cursor on the theme named `current`."""
        self._names, self._before, self._themes = [theme.name for theme in themes], current, themes
        self.display = True
        if not self.children:  # the widgets are mounted only when the picker opens, because users rarely open it
            about = Lines(name="picker-about")
            about.can_focus = False
            self.mount(Lines(name="picker-names", has_cursor=True), about)
        at = self._names.index(current) if current in self._names else 0
        names = self.query_one("#picker-names", Lines)
        names.show([(Part(f" {name}", "title"),) for name in self._names], at)
        names.styles.height = len(self._names)
        self._describe(at)
        names.focus()

    def _describe(self, at: int) -> None:
        """Show the description of a theme below the names."""
        words = wrap(self._themes[at].description, _TEXT_CELLS) if self._themes else []
        self.query_one("#picker-about", Lines).show([(), *((Part(f" {line}", "muted"),) for line in words)])

    def on_lines_line_moved(self, event: Lines.LineMoved) -> None:
        """Show the theme under the cursor."""
        event.stop()
        self._describe(event.at)
        self.post_message(self.ThemePreviewed(self._names[event.at]))

    def on_lines_line_chosen(self, event: Lines.LineChosen) -> None:
        """Select the theme."""
        event.stop()
        self.post_message(self.ThemePreviewed(self._names[event.at], is_chosen=True))

    def action_give_up(self) -> None:
        """Return to the previous theme."""
        self.post_message(self.ThemePreviewed(self._before, is_final=True))


CHECK_S = 2.0
"""Interval between checks of the theme files for edits (seconds)."""


class ThemeManager(Actions):
    """Registers themes with Textual and chooses one.

    Args:
        remember_focus: called before the picker takes the focus.
        refocus: puts the focus back into the pane.
        person: the user's remembered values, which include the chosen theme.
        wanted: name of the first theme, "" = the remembered one.
    """

    def __init__(
        self, host: Host, remember_focus: Callable[[], object], refocus: Callable[[], object], person: UiMemory, wanted: str = ""
    ) -> None:
        self._screen, self._remember_focus, self._refocus, self._person = host, remember_focus, refocus, person
        self._app = host.app
        self._has_ended = threading.Event()
        self.themes = theming.load_themes()
        self._register(wanted or person.get("theme", theming.DEFAULT))

    def _register(self, wanted: str) -> None:
        for theme in self.themes.by_name.values():
            self._app.register_theme(theming.theme_of(theme))
        name = theming.suitable(wanted, self.themes)
        if name in self.themes.by_name:
            self._app.theme = name

    @property
    def names(self) -> Sequence[str]:
        """The names of all themes, in the order in which their files were read."""
        return tuple(self.themes.by_name)

    def choose(self, name: str) -> None:
        """Select a theme by name; "" opens the picker, "reload" reads the theme files again."""
        self.reload(always=name == "reload")
        if name == "reload":
            self._screen.show_toast(
                "themes read" if not self.themes.mistakes else str(self.themes.mistakes[0]),
                "warning" if self.themes.mistakes else "information",
            )
        elif not name:
            themes = sorted(self.themes.by_name.values(), key=lambda theme: theme.name)
            self._remember_focus()
            self._app.query_one(ThemePicker).start(themes, self._app.theme)
        elif name in self.themes.by_name:
            self._app.theme = name
            self._person.put("theme", name)
            self._screen.wake()
        else:
            self._screen.show_toast(f"unknown theme '{name}'; the themes are {', '.join(sorted(self.themes.by_name))}", "warning")

    def action_next(self) -> None:
        """Go to the next theme."""
        self.reload()
        names = sorted(self.themes.by_name)
        if not names:
            return
        at = names.index(self._app.theme) + 1 if self._app.theme in names else 0
        self.choose(names[at % len(names)])
        self._screen.show_toast(f"theme {self._app.theme}", seconds=2)

    def preview(self, name: str, *, is_final: bool, is_chosen: bool) -> None:
        """Show the theme that the picker requests; close the picker if this is its last request.

        A theme that the user did not select is not remembered: the terminal or an option may have set it for this start only.
        """
        self._app.theme = name
        self._screen.wake()
        if is_chosen:
            self._person.put("theme", name)
        if is_final:
            self._app.query_one(ThemePicker).display = False
            self._refocus()

    def reload(self, *, always: bool = False) -> None:
        """Read the theme files again if any of them has changed, or if `always` is set."""
        if not always and self.themes.is_current():
            return
        self.themes = theming.load_themes()
        self._register(self._app.theme)
        self._app._invalidate_css()  # noqa: SLF001  # Textual ignores a new theme of the same name
        self._app.refresh_css(animate=False)
        self._app.screen_stack[0].refresh(layout=True)

    # ----------------------------------------------------------------------------------------------------- changed theme files

    def watch(self) -> None:
        """Start a thread that checks the times of theme files every `CHECK_S`, so that edits are shown without a command."""
        self._has_ended.clear()
        run_in_background("aptui-looks", self._watch_files)

    def close(self) -> None:
        """End the thread that checks theme files."""
        self._has_ended.set()

    def _watch_files(self) -> None:
        while not self._has_ended.wait(CHECK_S):
            if not self.themes.is_current():
                self._screen.in_ui(self._show_edited)

    def _show_edited(self) -> None:
        before = self.themes
        self.reload()
        if self.themes is not before and self.themes.mistakes:
            self._screen.show_toast(str(self.themes.mistakes[0]), "warning")

"""The app: assembles frame, panes and keys from their parts and passes on what Textual calls. What is true is the engine's.

Nothing is polled. Whoever has something to draw calls `wake`, from any thread; then news are drained, every pane hears them, and
the visible one draws (`frame_clock`). While nothing happens no timer runs and no byte is sent.

Tests: `tests/tui/test_foreign_database.py`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.keys import key_to_character
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input

from aptui.tui import away
from aptui.tui import commands as shell_commands
from aptui.tui.builder_names import finder, known_names
from aptui.tui.command_bar import CommandBar
from aptui.tui.data.numpy_loading import load_numpy
from aptui.tui.engine_control import EngineControl
from aptui.tui.frame.commandline import Candidates, Choice, Command, CommandLine
from aptui.tui.frame.copying import Copying
from aptui.tui.frame.help import KeyTester
from aptui.tui.frame.hints import Hints
from aptui.tui.frame.line import Line
from aptui.tui.frame.main_screen import MainScreen
from aptui.tui.frame.picker import ThemePicker
from aptui.tui.frame.sheet import Sheet
from aptui.tui.frame.sheets import Sheets, actions_of
from aptui.tui.frame.statusline import Rule, StatusLine
from aptui.tui.frame.tabbar import Banner, TabBar
from aptui.tui.frame.theme_manager import ThemeManager
from aptui.tui.frame.toasts import Toasts
from aptui.tui.frame_clock import FrameClock
from aptui.tui.key_gate import Keyboard, KeyGate
from aptui.tui.pane import Pane, PaneSpec, existing
from aptui.tui.pane_switcher import PaneSwitcher
from aptui.tui.preferences import theming
from aptui.tui.preferences.keymap import load_keymap
from aptui.tui.preferences.state import UiMemory
from aptui.tui.terminal.clipboard import Clipboard
from aptui.tui.terminal.output.display import ThriftyApp

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.driver import Driver

    from aptui.config.model import Config
    from aptui.core.project import Builder
    from aptui.link.port import Answer, Verb
    from aptui.tui.data.feed import Feed
    from aptui.tui.data.session import Session


_FIRST_ROWS_WITHIN_S = 0.4
"""So long after the first screen was put together it is drawn without rows; those of 100,000 jobs take a quarter of a second."""


def _palette() -> type[Provider]:
    from aptui.tui.frame.palette import ShellProvider  # for start-up: Textual's palette is imported when it is first opened

    return ShellProvider


class AptuiApp(ThriftyApp, inherit_bindings=False):
    """aptui on a terminal. Panes reach it as `self.shell`, of which they see what `pane.Shell` names."""

    CSS_PATH = "app.tcss"
    TITLE = "aptui"
    COMMANDS = {_palette}  # noqa: RUF012  # Textual's own form
    VERTICAL_BREAKPOINTS = [(0, "-short"), (10, "-tall")]  # noqa: RUF012  # Textual's own form
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(f"{number}", f"show_number({number})", f"screen {number}", show=False, id=f"app.screen_{number}")
            for number in range(1, 8)
        ),
        Binding("colon", "command", "command", show=False, id="app.command"),
        Binding("i", "info", "info", show=False, id="app.info"),
        Binding("P", "pause", "pause", show=False, id="app.pause"),
        Binding("backslash", "plain", "plain", show=False, id="app.plain"),
        Binding("ctrl+z", "suspend", "to the shell", show=False, id="app.suspend"),
        Binding("T", "theme_next", "theme", show=False, id="app.theme"),
        Binding("M", "mouse", "mouse", show=False, id="app.mouse"),
        Binding("ctrl+l", "redraw", "redraw", show=False, id="app.redraw"),
        Binding("ctrl+c", "copy_or_quit", "copy or leave", show=False, id="app.copy_or_quit"),
        Binding("question_mark,f1", "help", "help", id="app.help"),
        Binding("ctrl+p", "command_palette", "palette", id="app.palette", priority=True),
        Binding("q", "detach", "detach", id="app.detach"),
        Binding("Q", "stop_engine", "stop the engine", show=False, id="app.stop_engine"),
    ]

    def __init__(
        self, session: Session, config: Config | None = None, *, memory: UiMemory, person: UiMemory,
        panes: Sequence[PaneSpec] | None = None,
        theme: str = "", driver: type[Driver] | None = None,
    ) -> None:  # fmt: skip
        # Textual would take NO_COLOR for greys; our theme without colours says it better.
        super().__init__(driver_class=driver)
        self.no_color = False
        self._filters = [each for each in self._filters if type(each).__name__ not in {"Monochrome", "NoColor"}]
        self.session, self.config, self.memory, self.person = session, config, memory, person
        self.panes = existing(panes)
        self.keymap = load_keymap()
        self.has_mouse = True
        self.engine_root = ""
        self.all_builders: Callable[[], Sequence[Builder]] | None = None
        """Returns the builders as the engine sees them, completed by their code; it may start a process, so ask in a thread."""
        self.feed: Feed | None = None
        self.copying = Copying(self, Clipboard(lambda data: self._driver.write(data) if self._driver is not None else None))
        self.clock = FrameClock(self, self.draw_frame, self.line_rest_s, key_s=self.line_key_s)
        self.switcher = PaneSwitcher(self, self.panes, memory, self.clock.wake, self._read_jobs)
        self.sheets = Sheets(self, self.switcher, lambda: self.keymap)
        self.keyboard = Keyboard(self, lambda: self.pane if self.feed is not None else None)
        self.gate = KeyGate(self.keyboard.awaited, lambda text: self.tell(text, "warning"))
        self.touched_s = -1e9
        self.bar = CommandBar(self, self.switcher.remember_focus, self.switcher.refocus)
        self.themes = ThemeManager(self, self, person, theme)
        self.engine = EngineControl(session, self, self.exit)
        self._lines: tuple[Line, ...] = ()

    # ------------------------------------------------------------------------------------------------------------ the frame

    def get_default_screen(self) -> Screen[None]:
        """Return the only screen."""
        return MainScreen()

    def compose(self) -> ComposeResult:
        """Yield the frame; panes come when they are visited."""
        yield StatusLine(self.session)
        yield TabBar(self.session, self.panes, [each.id for each in self.config.project.platforms] if self.config else ())
        yield Rule(self.session, name="rule-top")
        yield Banner(self.session)
        with Horizontal(id="middle"):
            with ContentSwitcher(id="stage"):
                yield Sheet("sheet-help", placeholder="type to narrow · Esc goes back")
                yield Sheet("sheet-info")
                yield KeyTester()
                yield Sheet("sheet-messages")
            yield ThemePicker()
        yield Rule(name="rule-bottom")
        with Horizontal(id="bottom"):
            yield Hints()
            yield CommandLine(self.commands, lambda: self.person.history("commands"))
        yield Candidates()
        yield Toasts()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return a colour for every role, so that the rules of any widget hold under any theme."""
        return {f"role-{role}": "ansi_default" for role in theming.ROLES}

    def on_mount(self) -> None:
        """Mount the frame first; everything that takes time comes after."""
        self.clock.start()
        self.set_keymap(self.keymap.overrides)
        self.screen.bindings_updated_signal.subscribe(self, lambda _screen: self.bar.update_hints())
        self.call_after_refresh(self._open)
        self.themes.watch()

    async def _open(self) -> None:
        """Show the first pane, read what the database holds, attach."""
        for mistake in (*self.themes.looks.mistakes, *self.keymap.mistakes):
            self.tell(str(mistake), "warning", 15)
        self.session.on_state.append(lambda: self.in_ui(self._show_engine))
        load_numpy()
        await self.switcher.show_first()
        # Once more after a paint: reading beside the pane's import gains nothing, they share the interpreter.
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.set_timer(_FIRST_ROWS_WITHIN_S, self.main_screen().show)
        self.open_feed()
        self.wake()  # frames that panes asked for before there was a feed showed nothing
        self.session.open()
        self._show_engine()
        _collect_garbage_again()

    def open_feed(self) -> None:
        """Begin to read jobs and to listen to news."""
        # For start-up: numpy, and the records of news, come after the first paint.
        from aptui.config.dirs import asset_database
        from aptui.tui.data.feed import Feed
        from aptui.tui.rejected_peers import RejectedPeers

        database, ms, news = asset_database(self.session.cache_dir), self.session.clock_ms, self.clock.wake_for_news
        self.feed = Feed(database, known_names(self), more_builders=finder(self), wake=self.wake, wake_for_news=news, clock_ms=ms)
        self.session.listeners.append(self.feed)
        self.session.listeners.append(RejectedPeers(lambda text: self.in_ui(self.tell, text, "warning", 15)))

    def _read_jobs(self) -> None:
        if self.feed is not None:
            self.feed.refresh()

    # ----------------------------------------------------------------------------------------------------------- the frames

    def wake(self) -> None:
        """Ask for a frame; any thread may, as often as it likes."""
        self.clock.wake()

    def in_ui(self, do: Callable[..., object], *arguments: Any) -> None:
        """Have `do` called in the app's thread, soon; does not wait, and does nothing once the app has ended."""
        self.clock.in_ui(do, *arguments)

    def draw_frame(self) -> bool:
        """Hand out a part of what happened; return whether there is more. After the last one, draw it."""
        if not self.is_running or self.feed is None:
            return False
        if self.switcher.take(self.feed):
            return True
        self._draw_lines()
        self.switcher.draw()
        if self.pane is None or not self.pane.awaited(None):
            self.main_screen().show()
        self.gate.look()
        return False

    def _draw_lines(self) -> None:
        # Looked for once: they stay, and a search through all that is mounted costs a third of a frame.
        self._lines = self._lines or tuple(self.main_screen().query("StatusLine, TabBar, Rule, Banner").results(Line))
        for line in self._lines:
            line.changed()

    def main_screen(self) -> MainScreen:
        """Return the screen below whatever is open."""
        return next(screen for screen in self.screen_stack if isinstance(screen, MainScreen))

    # ------------------------------------------------------------------------------------------------------ panes and sheets

    @property
    def pane(self) -> Pane | None:
        """The pane that is shown, or that a sheet covers."""
        return self.switcher.pane

    async def action_show(self, pane_id: str) -> None:
        """Go to a pane."""
        await self.switcher.show(pane_id)

    async def action_show_number(self, number: int) -> None:
        """Go to the pane with this number, if there is one."""
        await self.switcher.show_number(number)

    def remember_focus(self) -> None:
        """Note where the focus is in the pane."""
        self.switcher.remember_focus()

    def give_focus_back(self) -> None:
        """Put the focus where it was in the pane."""
        self.switcher.give_focus_back()

    def show_sheet(self, lines: Sequence[Any]) -> None:
        """Show lines, parts of which are safe text, in the place of the pane until `Esc`."""
        self.switcher.open_sheet("sheet-info", lines)

    def on_sheet_closed(self) -> None:
        """Go back to the pane."""
        self.switcher.close_sheet()

    def action_help(self) -> None:
        """Show keys and commands of the place we are at."""
        self.sheets.show_help(self.commands())

    def action_keys(self) -> None:
        """Test keys."""
        self.sheets.test_keys()

    def action_messages(self) -> None:
        """Show what was said."""
        self.switcher.open_sheet("sheet-messages", self.query_one(Toasts).history())

    def action_info(self) -> None:
        """Show project, engine, versions."""
        more = [("Engine root", self.engine_root), ("Theme", self.theme), ("Mouse", "on" if self.has_mouse else "off")]
        self.sheets.show_info(self.session, self.config, more)

    def actions_here(self) -> list[tuple[str, str, str]]:
        """Return (key, id, what it does) of all actions with a key, as seen from the pane."""
        return actions_of(self.main_screen(), self.keymap)

    # -------------------------------------------------------------------------------------------- commands, questions, words

    def commands(self) -> list[Command]:
        """Return what can be said on the `:` line now."""
        mine = [each for each in (self.pane.commands() if self.pane is not None else ()) if self.can_ask or not each.needs_engine]
        return sorted([*mine, *shell_commands.shell_commands(self)], key=lambda each: each.name)

    def action_command_palette(self) -> None:
        """Open the palette, unless it is open."""
        from aptui.tui.frame.palette import Palette  # for start-up: Textual's palette is imported when it is first opened

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def action_command(self, text: str = "") -> None:
        """Open the `:` line."""
        self.bar.open(text)

    def on_command_line_submitted(self, event: CommandLine.Submitted) -> None:
        """Do what was said."""
        self.bar.close()
        self.person.remember("commands", event.text)
        shell_commands.run(self, event.text, self.commands())

    def on_command_line_closed(self) -> None:
        """Go back to the hints."""
        self.bar.close()

    def question(self, text: str, choices: Sequence[Choice]) -> None:
        """Ask people in a box; the last choice changes nothing."""
        from aptui.tui.widgets.menu import Question  # for start-up

        if self.query_one(CommandLine).display:
            self.bar.close()
        Question.put(self, text, [(each.letter, each.text, each.run) for each in choices])

    def tell(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show a message (`information`, `warning` or `error`) in the corner; it is made safe, and is never markup."""
        for toasts in self.main_screen().query(Toasts):
            toasts.tell(text, severity, seconds)

    def notify(  # ours takes what Textual's does
        self,
        message: str,
        *,
        title: str = "",
        severity: str = "information",
        timeout: float | None = None,
        markup: bool = False,  # noqa: ARG002  # nothing is
    ) -> None:
        """Show a message; `tell` for those who call Textual's way."""
        self.tell(f"{title}: {message}" if title else message, severity, timeout or 5.0)

    def act(self, action: str) -> None:
        """Run an action of the app, soon."""
        self.call_later(self.run_action, action, self)

    def press(self, key: str) -> None:
        """Do as if `key` were pressed."""
        self.simulate_key(key)

    def action_press(self, key: str) -> None:
        """Do as if `key` were pressed: for clicks on hints."""
        self.simulate_key(key)

    # ------------------------------------------------------------------------------------------------------------ the engine

    @property
    def can_ask(self) -> bool:
        """Whether there may be an engine that does what it is told."""
        return self.engine.can_ask

    def ask(self, verb: Verb, done: str = "", then: Callable[[Answer], object] | None = None) -> None:
        """Ask the engine; `done` is shown and `then` called, in the app's thread, when it has answered. Refusals are shown."""
        self.engine.ask(verb, done, then)

    def _show_engine(self) -> None:
        """Show that the engine came, went, or is an old one."""
        self._draw_lines()
        self.refresh_bindings()
        self.engine.show_state()

    def action_pause(self) -> None:
        """Pause; or, while paused, ask whether to run the next job or to go on."""
        self.engine.pause()

    def action_stop_engine(self) -> None:
        """Stop the engine, after asking."""
        self.engine.stop()

    # -------------------------------------------------------------------------------------------------------- keys and themes

    def on_app_focus(self) -> None:
        """Look whether theme files were changed elsewhere meanwhile."""
        self.themes.reload()

    def on_theme_picker_shown(self, event: ThemePicker.Shown) -> None:
        """Show a theme; close the picker if it is for good."""
        self.themes.preview(event.name, is_kept=event.is_kept)

    def action_theme_next(self) -> None:
        """Go to the next theme."""
        self.themes.choose_next()

    async def on_event(self, event: events.Event) -> None:
        """Note when people did something."""
        if isinstance(event, (events.Key, events.Paste, events.MouseDown, events.MouseScrollDown, events.MouseScrollUp)):
            self.touched_s = time.monotonic()
        await super().on_event(event)

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:  # noqa: FBT002  # Textual's signature
        """Write what was typed ahead into the line that has the keys by now: "/r" shall search for "r", not reprocess."""
        character = key_to_character(key)
        if not priority and isinstance(self.focused, Input) and character is not None and character.isprintable():
            self.focused.replace(character, *self.focused.selection)
            return True
        if await super()._check_bindings(key, priority):
            return True
        if not priority and self.session.is_read_only and (what := self.keyboard.missed(key, self.engine)):
            self.tell(f"cannot {what}: the screen is read-only", "warning")
        return False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave out what needs an engine where none can be asked, and numbers without a pane."""
        if action in {"pause", "stop_engine"}:
            return self.can_ask
        if action == "show_number":
            return any(spec.number == parameters[0] for spec in self.panes)
        return super().check_action(action, parameters)

    # ------------------------------------------------------------------------------------------------- leaving and the screen

    def action_detach(self) -> None:
        """Leave; the engine goes on."""
        self.exit()

    def action_copy_or_quit(self) -> None:
        """Copy what is selected; with nothing selected, the second time within two seconds leaves."""
        self.copying.copy_or_quit()

    def copy_text(self, text: str, *, raw: bool = False) -> None:
        """Copy text to the terminal people sit at, and say how; the one way for everything in the app."""
        self.copying.copy(text, raw=raw)

    def action_redraw(self) -> None:
        """Draw everything again, and read it again."""
        self._repaint()
        if self.feed is not None:
            self.feed.refresh()
        if self.pane is not None:
            self.pane.reload()

    def _repaint(self) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write("\x1b[2J")
        self.refresh(layout=True)

    def action_plain(self) -> None:
        """Write news as lines in the terminal's own scrollback, until a key is pressed."""
        away.show_plain(self)

    def action_suspend(self) -> None:
        """Leave the terminal to the shell until its `fg`."""
        away.suspend(self)

    def set_mouse(self, *, is_on: bool) -> None:
        """Turn the mouse on or off: off leaves selecting to the terminal."""
        self.has_mouse = is_on
        self.person.put("mouse", is_on)
        turn = getattr(self._driver, "set_mouse", None)
        if turn is not None:
            turn(is_on=is_on)
        self.tell("the mouse is on" if is_on else "the mouse is off: the terminal selects")

    def action_mouse(self) -> None:
        """Turn the mouse on or off."""
        self.set_mouse(is_on=not self.has_mouse)

    def action_reload_keymap(self) -> None:
        """Read the key bindings again."""
        self.keymap = load_keymap()
        self.set_keymap(self.keymap.overrides)
        for mistake in self.keymap.mistakes:
            self.tell(str(mistake), "warning", 15)
        if not self.keymap.mistakes:
            self.tell("keys read")

    # ------------------------------------------------------------------------------------------------------------ the end

    def exit(self, *arguments: Any, **named: Any) -> None:
        """Leave; the pane says what shall be remembered while it still knows."""
        if self.pane is not None and not self._exit:
            self.pane.deactivate()
        super().exit(*arguments, **named)

    def on_unmount(self) -> None:
        """Save what is remembered, and let go: of the engine, which goes on, and of the database."""
        self.themes.close()
        self.memory.save()
        self.person.save()
        self.session.close()
        if self.feed is not None:
            self.feed.close()


def _collect_garbage_again() -> None:
    """Collect garbage from now on, but never what is there already; before the first paint it costs a tenth of it.

    News are many small records that leave nothing behind, so it is seldom worth a look.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()

"""The app: creates its parts, the frame, the panes and the keys, and handles Textual's events.

A key names its action as `part.action`: `engine.pause` is the method `action_pause` of `AptuiApp.engine`.

Nothing is polled. Code that has something to draw calls `wake`, from any thread. The next frame hands the waiting updates to every
pane, and the visible pane draws them (`drawing`). While nothing happens, no timer runs and no byte is sent to the terminal.

Tests: `tests/tui/test_foreign_database.py`, `tests/tui/test_known_builders.py`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.keys import key_to_character
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input

from aptui import feature
from aptui.config.dirs import asset_database
from aptui.core.notices import ConnectionsChanged, ShowRequested
from aptui.shared.connections.peers import GatewayReport
from aptui.tui import shell_commands
from aptui.tui.background import call_after, run_in_background
from aptui.tui.data.session import NoticeListener, Session
from aptui.tui.drawing import FrameClock, FrameDrawing, MainScreen
from aptui.tui.frame.commandline import Candidates, Choice, Command, CommandLine
from aptui.tui.frame.engine_control import EngineControl, TrustQuestion
from aptui.tui.frame.sheets import ENGINE_ROOT, KeyTester, Sheet, Sheets, Toasts, actions_of
from aptui.tui.frame.statusline import Banner, Hints, Rule, StatusLine, TabBar
from aptui.tui.frame.terminal_control import Copying, TerminalControl
from aptui.tui.frame.theme_manager import ThemeManager, ThemePicker
from aptui.tui.key_gate import Keyboard, KeyGate
from aptui.tui.pane import Pane, PaneSpec, add_panes, list_panes
from aptui.tui.pane_switcher import PaneSwitcher
from aptui.tui.preferences import theming
from aptui.tui.preferences.keymap import KeyBindings
from aptui.tui.preferences.state import UiMemory
from aptui.tui.shell_commands import CommandBar
from aptui.tui.terminal import safety
from aptui.tui.terminal.clipboard import Clipboard
from aptui.tui.terminal.output.display import DiffRenderingApp
from aptui.tui.terminal.safety import make_safe

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.driver import Driver
    from textual.timer import Timer

    from aptui.config.configuration import Config
    from aptui.core.project import Builder
    from aptui.link.codec import NoticeLine
    from aptui.tui.data.early_read import EarlyRead
    from aptui.tui.data.feed import Feed


_FIRST_ROWS_WITHIN_S = 0.4
"""Maximum time that the first paint waits for rows (seconds); reading the rows of 100,000 jobs takes a quarter of a second."""


_FOREIGN_PANES_AFTER_S = 1.0
"""Delay before panes are searched in other installed distributions (seconds): this search is the slowest step of a start."""


_PIXELS_AFTER_S = 0.5
"""Delay between a change of size or focus and the next question to tmux whether it shows pixels (seconds)."""


def _palette() -> type[Provider]:
    # Imported here, because only the palette needs this class, and the palette opens later.
    from aptui.tui.frame.palette import ShellProvider

    return ShellProvider


PARTS = frozenset({"bar", "copying", "engine", "keys", "sheets", "switcher", "terminal", "themes"})
"""Names of the app's attributes that have actions: the binding `engine.pause` calls `app.engine.action_pause`."""


class AptuiApp(DiffRenderingApp, inherit_bindings=False):
    """The Textual app that shows aptui on a terminal. A pane uses the app as `self.shell`, through the members of `pane.Shell`."""

    CSS_PATH = "app.tcss"
    TITLE = "aptui"
    COMMANDS = {_palette}  # noqa: RUF012  # Textual's own form
    VERTICAL_BREAKPOINTS = [(0, "-short"), (10, "-tall")]  # noqa: RUF012  # Textual's own form
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(f"{number}", f"switcher.number({number})", f"screen {number}", show=False, id=f"app.screen_{number}")
            for number in range(1, 10)
        ),
        Binding("colon", "bar.open", "command", show=False, id="app.command"),
        Binding("i", "sheets.info", "info", show=False, id="app.info"),
        Binding("P", "engine.pause", "pause", show=False, id="app.pause"),
        Binding("backslash", "terminal.plain", "plain", show=False, id="app.plain"),
        Binding("ctrl+z", "terminal.suspend", "return to the shell", show=False, id="app.suspend"),
        Binding("T", "themes.next", "theme", show=False, id="app.theme"),
        Binding("M", "terminal.mouse", "mouse", show=False, id="app.mouse"),
        Binding("percent_sign", "terminal.pixels", "pixels", show=False, id="app.pixels"),
        Binding("ctrl+l", "terminal.redraw", "redraw", show=False, id="app.redraw"),
        Binding("ctrl+c", "copying.copy_or_quit", "copy or quit", show=False, id="app.copy_or_quit"),
        Binding("question_mark,f1", "sheets.help", "help", id="app.help"),
        Binding("ctrl+p", "command_palette", "palette", id="app.palette", priority=True),
        Binding("q", "quit", "quit", id="app.quit"),
        Binding("Q", "engine.stop", "stop the engine", show=False, id="app.stop_engine"),
    ]

    def __init__(
        self, session: Session, config: Config | None = None, *, memory: UiMemory, person: UiMemory,
        panes: Sequence[PaneSpec] | None = None,
        theme: str = "", driver: type[Driver] | None = None,
    ) -> None:  # fmt: skip
        # If NO_COLOR is set, Textual turns all colours into greys. The filters for this are removed, because our theme without
        # colours uses text attributes instead.
        super().__init__(driver_class=driver)
        self.no_color = False
        self._filters = [each for each in self._filters if type(each).__name__ not in {"Monochrome", "NoColor"}]
        self.session, self.config, self.memory, self.person = session, config, memory, person
        self._has_all_panes = panes is not None
        self.panes = list(list_panes() if panes is None else panes)
        self.keys = KeyBindings(self, self.show_toast)
        self.terminal = TerminalControl(self, person, self._read_again)
        self.engine_root = self.news = ""
        self.trust: TrustQuestion | None = None
        self.all_builders: Callable[[], Sequence[Builder]] | None = None
        """Returns the configured builders, completed with the patterns and other values that their code declares.

        The function may start a process, so it is called in a thread.
        """
        self.feed: Feed | None = None
        """The reader of jobs and notices, None until it is opened."""
        self.early: EarlyRead | None = None
        """A read of the jobs that began before the app was imported; None = the jobs are read when the feed is opened."""
        self.copying = Copying(self, Clipboard(lambda data: self._driver.write(data) if self._driver is not None else None))
        self.keyboard = Keyboard(self, lambda: self.pane if self.feed is not None else None)
        self.switcher = PaneSwitcher(self, self.panes, memory, self.wake, self._read_jobs, self.keyboard.hold)
        self.sheets = Sheets(self, self.switcher, lambda: self.keys.keymap, self.commands, session, config, self._facts)
        self.gate = KeyGate(self.keyboard.name_awaited, lambda text: self.show_toast(text, "warning"))
        self.drawing = FrameDrawing(self, lambda: self.feed, self.switcher, self.gate)
        self.clock = FrameClock(self, self.drawing.draw, self.line_rest_s, self.line_key_s)
        self.touched_s = -1e9
        self._pixel_timer: Timer | None = None
        self._unknown_keys: set[str] = set()
        """Keys that were reported because they have no action."""
        self.bar = CommandBar(self, self.switcher.remember_focus, self.switcher.refocus)
        self.themes = ThemeManager(self, self.switcher.remember_focus, self.switcher.refocus, person, theme)
        self.engine = EngineControl(session, self, self.exit)
        # Members of `Shell` that a part of the app implements.
        self.wake_for_news, self.in_ui = self.clock.wake_for_news, self.clock.in_ui
        self.hold_keys, self.reveal = self.keyboard.hold, self.switcher.reveal
        self.ask, self.copy_text = self.engine.ask, self.copying.copy
        # `_action_targets` is private, but Textual has no public way to add objects that have actions.
        self._action_targets |= PARTS

    # ---------------------------------------------------------------------------------------------------- widgets and start

    def get_default_screen(self) -> Screen[None]:
        """Return the only screen."""
        return MainScreen()

    def compose(self) -> ComposeResult:
        """Yield the widgets of the frame; a pane is mounted when the user first visits it."""
        yield StatusLine(self.session, lambda: self.engine_root, lambda: self.news)
        yield TabBar(self.session, self.panes, [each.id for each in self.config.project.platforms] if self.config else ())
        yield Rule(self.session, name="rule-top")
        yield Banner(self.session)
        with Horizontal(id="middle"):
            with ContentSwitcher(id="stage"):
                yield Sheet(
                    "sheet-help",
                    placeholder="press / to search the help · Enter to run the selected line · Esc to go back",
                    folds=True,
                )
                yield Sheet(
                    "sheet-news", placeholder="press / to search the news · Enter to go to the selected job · Esc to go back"
                )
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
        """Return a colour for every role, so that the style sheets of widgets are valid with any theme."""
        return {f"role-{role}": "ansi_default" for role in theming.ROLES}

    def on_mount(self) -> None:
        """Set up the frame; slow steps run after the first drawing."""
        self.clock.start()
        self.keys.apply()
        self.screen.bindings_updated_signal.subscribe(self, lambda _screen: self.bar.update_hints())
        self.call_after_refresh(self._open)
        self.themes.watch()
        self.terminal.ask_for_pixels()

    async def _open(self) -> None:
        """Show the first pane, read the database, connect to the engine."""
        for mistake in self.themes.themes.mistakes:
            self.show_toast(str(mistake), "warning", 15)
        self.keys.report_mistakes()
        self.session.on_state.append(lambda: self.in_ui(self._show_engine))
        await self.switcher.show_first()
        # The read begins after a paint. To read while the pane is imported would save no time, because Python runs one thread at
        # a time.
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        call_after(self, _FIRST_ROWS_WITHIN_S, self.drawing.screen.show)
        self.open_feed()
        self.wake()  # draw again, because the frames that panes requested before the feed existed were empty
        self.session.open()
        self._show_engine()
        _collect_garbage_again()
        if self.trust is not None:
            self.trust.ask(self)
        if not self._has_all_panes:
            call_after(self, _FOREIGN_PANES_AFTER_S, lambda: run_in_background("aptui-features", self._find_foreign_panes))

    def _find_foreign_panes(self) -> None:
        """Search other installed distributions for panes; runs in a thread."""
        if any(each.panes for each in feature.list_foreign()):
            self.in_ui(self._add_foreign_panes)

    def _add_foreign_panes(self) -> None:
        self.panes[:] = add_panes(self.panes, feature.list_foreign())
        self.drawing.draw_lines()
        self.refresh_bindings()

    def open_feed(self) -> None:
        """Begin to read the jobs and to receive notices."""
        # Imported here to start faster: the module loads numpy and the records of notices.
        from aptui.tui.data.feed import Feed

        session = self.session
        self.feed = Feed(
            asset_database(session.cache_dir), find_known_names(self), more_builders=make_finder(self), wake=self.wake,
            wake_for_news=self.wake_for_news, clock_ms=session.clock_ms, early=self.early,
        )  # fmt: skip
        reveal, show_toast = (
            partial(self.in_ui, self.reveal, "assets"),
            lambda text: self.in_ui(self.show_toast, text, "warning", 15),
        )
        session.listeners += [self.feed, EngineEvents(reveal, show_toast)]

    # ------------------------------------------------------------------------------------------------------ panes and sheets

    def wake(self) -> None:
        """Request a frame; thread-safe and cheap."""
        self.clock.wake()

    @property
    def pane(self) -> Pane | None:
        """The current pane; a sheet may cover it."""
        return self.switcher.pane

    async def show(self, pane_id: str) -> None:
        """Go to a pane."""
        await self.switcher.action_show(pane_id)

    def set_news(self, text: str) -> None:
        """Show in line 1 of the screen what changed since the user's last visit."""
        self.news = text
        self.wake()

    def on_sheet_sheet_closed(self, event: Sheet.SheetClosed) -> None:
        """Show the pane in place of the closed sheet, and run the action that the user chose in the sheet."""
        self.switcher.close_sheet()
        if event.action:
            self.call_after_refresh(self.schedule_action, event.action)
        if self.trust is not None:
            self.trust.ask_again(self)

    def _facts(self) -> list[tuple[str, str]]:
        mouse = "on" if self.terminal.has_mouse else "off"
        return [(ENGINE_ROOT, self.engine_root), ("Theme", self.theme), ("Mouse", mouse)]

    def actions_here(self) -> list[tuple[str, str, str]]:
        """Return (key, id, description) of all actions with a key that are active in the current pane."""
        return actions_of(self.drawing.screen, self.keys.keymap)

    # ----------------------------------------------------------------------------------------- commands, questions, messages

    def commands(self) -> list[Command]:
        """Return the commands that the `:` line accepts now."""
        mounted = self.switcher.mounted.values()
        found = [each for pane in mounted for each in pane.commands() if pane is self.pane or each.is_everywhere]
        mine = [each for each in found if self.can_ask or not each.needs_engine]
        return sorted([*mine, *shell_commands.shell_commands(self)], key=lambda each: each.name)

    def action_command_palette(self) -> None:
        """Open the palette, unless the palette is open already."""
        from aptui.tui.frame.palette import Palette  # imported here: not needed before the palette opens
        from aptui.tui.widgets.menu import close_pop_ups  # imported here to start faster

        if not isinstance(self.screen, Palette):
            close_pop_ups(self.screen)
            hints = self.screen.query_one(Hints)

            def draw_hints(_nothing: object) -> None:
                self.call_later(hints.refresh_if_changed)

            self.push_screen(Palette(id="--command-palette"), draw_hints)
            hints.refresh_if_changed()

    def on_command_line_submitted(self, event: CommandLine.Submitted) -> None:
        """Close the `:` line and run its command."""
        self.bar.close()
        self.person.remember("commands", event.text)
        shell_commands.run(self, event.text, self.commands())

    def question(self, text: str, choices: Sequence[Choice]) -> None:
        """Ask the user in a box; the last choice is the safe choice, which changes nothing."""
        from aptui.tui.widgets.menu import Question  # imported here to start faster

        if self.query_one(CommandLine).display:
            self.bar.close()
        Question.open(self, text, [(each.character, each.text, each.run) for each in choices])

    def show_toast(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show a message (`information`, `warning` or `error`) in the corner. Its text is made safe and is not read as markup."""
        for toasts in self.drawing.screen.query_children(Toasts):
            toasts.show_toast(text, severity, seconds)

    def notify(  # The signature is Textual's.
        self,
        message: str,
        *,
        title: str = "",
        severity: str = "information",
        timeout: float | None = None,
        markup: bool = False,  # noqa: ARG002  # as above
    ) -> None:
        """Show a message that Textual posted."""
        self.show_toast(f"{title}: {message}" if title else message, severity, timeout or 5.0)

    def schedule_action(self, action: str) -> None:
        """Schedule an action of the app."""
        self.call_later(self.run_action, action, self)

    # ------------------------------------------------------------------------------------------------------------ the engine

    @property
    def can_ask(self) -> bool:
        """Whether requests can be sent to an engine."""
        return self.engine.can_ask

    def _show_engine(self) -> None:
        self.drawing.draw_lines()
        self.refresh_bindings()
        self.engine.show_state()

    # -------------------------------------------------------------------------------------------------------- keys and themes

    def _watch_app_focus(self, focus: bool) -> None:
        """Do nothing: Textual's method would remove the focus from the widget when the terminal loses it, which closes menus."""

    def on_app_focus(self) -> None:
        """Reload changed theme files, and ask tmux again whether it shows pixels."""
        self.themes.reload()
        self._ask_tmux_for_pixels()

    def on_resize(self) -> None:
        """Ask tmux again whether it shows pixels: the size may have changed because another terminal joined the tmux session."""
        self._ask_tmux_for_pixels()

    def _ask_tmux_for_pixels(self) -> None:
        """Inside tmux, ask again soon whether pixels can be shown: another terminal may show the tmux session now."""
        if safety.facts().multiplexer and self.terminal.wants_pixels:
            if self._pixel_timer is not None:
                self._pixel_timer.stop()
            self._pixel_timer = call_after(self, _PIXELS_AFTER_S, self.terminal.ask_for_pixels)

    def on_theme_picker_theme_previewed(self, event: ThemePicker.ThemePreviewed) -> None:
        """Show a theme; close the picker if the choice is final."""
        self.themes.preview(event.name, is_final=event.is_final, is_chosen=event.is_chosen)

    async def on_event(self, event: events.Event) -> None:
        """Record the time of the latest input."""
        if isinstance(event, (events.Key, events.Paste, events.MouseDown, events.MouseScrollDown, events.MouseScrollUp)):
            self.touched_s = time.monotonic()
        await super().on_event(event)

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:  # noqa: FBT002  # Textual defines this signature
        """If a key was typed just before an input got the focus, write it into the input: "/r" searches for "r"."""
        character = key_to_character(key)
        if not priority and isinstance(self.focused, Input) and character is not None and character.isprintable():
            self.focused.replace(character, *self.focused.selection)
            return True
        if await super()._check_bindings(key, priority):
            return True
        if not priority and self.session.is_read_only and (what := self.keyboard.name_missed(key, self.engine)):
            self.show_toast(f"cannot {what}: the screen is read-only", "warning")
        elif not priority and character is not None and character.isprintable() and key not in self._unknown_keys:
            self._unknown_keys.add(key)
            self.show_toast(f"'{character}' does nothing here; '?' shows the keys", seconds=2)
        return False

    def _read_jobs(self) -> None:
        if self.feed is not None:
            self.feed.refresh()

    def _read_again(self) -> None:
        self._read_jobs()
        if self.pane is not None:
            self.pane.reload()

    # --------------------------------------------------------------------------------------------------------------- exit

    def exit(self, *arguments: Any, **named: Any) -> None:
        """Make the pane store the values that the next start restores, then quit."""
        if self.pane is not None and not self._exit:
            self.pane.deactivate()
        super().exit(*arguments, **named)

    def on_unmount(self) -> None:
        """Save the remembered values, disconnect from the engine and close the database. The engine keeps running."""
        self.themes.close()
        self.memory.save()
        self.person.save()
        self.session.close()
        if self.feed is not None:
            self.feed.close()


# ------------------------------------------------------------------------------------- names of builders, and events to show

_BUILDERS_KEY = "shell.builders"
"""Name of the value {UUID in hex: name of a builder} among the values that the screen remembers for the project."""


def find_known_names(app: AptuiApp) -> dict[bytes, str]:
    """Return {UUID: name} of the builders in the configuration and of the builders that an earlier start found."""
    remembered: dict[str, object] = app.memory.get(_BUILDERS_KEY, {})
    try:
        names = {bytes.fromhex(uuid): f"{name}" for uuid, name in remembered.items()}
    except ValueError:  # invalid values are ignored, because the user may have edited the file
        names = {}
    return names | ({builder.uuid: builder.name for builder in app.config.project.builders} if app.config else {})


def make_finder(app: AptuiApp) -> Callable[[], dict[bytes, str]] | None:
    """Return a function that finds and stores the names of all builders, or None if the configuration has all names.

    The function is called in a thread.
    """
    config, complete = app.config, app.all_builders
    if config is None:
        return partial(_read_from_jobs, asset_database(app.session.cache_dir))
    if complete is None or not config.has_builders_to_find:
        return None
    configured = {builder.uuid for builder in config.project.builders}

    def find() -> dict[bytes, str]:
        names = {builder.uuid: builder.name for builder in complete()}
        own = {uuid.hex(): name for uuid, name in names.items() if uuid not in configured}
        app.in_ui(app.memory.put, _BUILDERS_KEY, own or None)
        return names

    return find


def _read_from_jobs(database: Path) -> dict[bytes, str]:
    from aptui.store.db.schema import translate_errors  # imported here because the first rows do not need it
    from aptui.store.queries.metrics import builder_names
    from aptui.store.queries.reader import open_reader

    with translate_errors(database), closing(open_reader(database)) as reader:
        return builder_names(reader)


_MOST_REMEMBERED = 1_000
"""Maximum number of reported addresses that are remembered."""
_AT_ONCE = 3
"""Maximum number of rejected addresses that get a message of their own at once; further addresses are only counted."""


class EngineEvents(NoticeListener):
    """Shows events of the engine: goes to the asset that an editor asked to show, and reports each rejected address once.

    Args:
        reveal: goes to a source; called in the session's thread.
        show_toast: shows a message; called in the session's thread.
    """

    def __init__(self, reveal: Callable[[str], object], show_toast: Callable[[str], object]) -> None:
        self._reveal, self._show_toast = reveal, show_toast
        self._since_ms = time.time_ns() // 1_000_000
        self._reported: dict[str, None] = {}

    def receive(self, news: Sequence[NoticeLine]) -> None:
        """Go to the last asset that an editor asked to show; report connections rejected since the screen opened."""
        source = ""
        for line in news:
            if isinstance(line.notice, ShowRequested) and line.notice.on_screen:
                source = line.notice.source
            elif isinstance(line.notice, ConnectionsChanged) and line.notice.gateway is not None:
                self._report(line.notice.gateway)
        if source:
            self._reveal(source)

    def _report(self, gateway: GatewayReport) -> None:
        fresh = [each for each in gateway.turned_away if each.address not in self._reported and each.last_ms >= self._since_ms]
        self._reported.update(dict.fromkeys(each.address for each in fresh))
        while len(self._reported) > _MOST_REMEMBERED:
            del self._reported[next(iter(self._reported))]
        for each in fresh[:_AT_ONCE]:
            self._show_toast(f"a connection was refused: {make_safe(each.why)}; you can allow it on the Connections screen")
        if len(fresh) > _AT_ONCE:
            left = len(fresh) - _AT_ONCE
            self._show_toast(f"connections from {left:,} more address{'es' * (left > 1)} were refused; see the Connections screen")


def _collect_garbage_again() -> None:
    """Enable the garbage collector for new objects only; if it ran before the first paint, it would take a tenth of the start.

    Updates are many small records without cycles, so the collector runs rarely.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()

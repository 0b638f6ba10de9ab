"""The app: frame, panes, keys, and the beat of the screen. What is shown in a pane is the pane's; what is true is the engine's.

Nothing is polled. Whoever has something to draw calls `wake`, from any thread; then news are drained, every pane hears them, and the visible
one draws: ten times a second at most, but for the first frames after a rest. While nothing happens no timer runs and no byte is sent.
"""

from __future__ import annotations

import contextvars
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.keys import key_to_character
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input

from aptui.shared.errors import KnownError
from aptui.shared.sanitize import sanitize
from aptui.tui import commands as said
from aptui.tui.data.builder_names import finder, known_names
from aptui.tui.data.session import SessionState, is_older
from aptui.tui.frame.commandline import Candidates, Choice, CommandLine, Question
from aptui.tui.frame.help import KeyTester
from aptui.tui.frame.hints import Hints
from aptui.tui.frame.line import Line
from aptui.tui.frame.picker import ThemePicker
from aptui.tui.frame.sheet import Sheet
from aptui.tui.frame.statusline import Rule, StatusLine
from aptui.tui.frame.tabbar import Banner, TabBar
from aptui.tui.frame.toasts import Toasts
from aptui.tui.pane import Command, Pane, PaneSpec, existing
from aptui.tui.pane_switcher import Stage
from aptui.tui.preferences import theming
from aptui.tui.preferences.keymap import load_keymap, shown_key
from aptui.tui.preferences.state import Memory
from aptui.tui.start import load_numpy, run
from aptui.tui.terminal.clipboard import Clipboard
from aptui.tui.theme_manager import Wardrobe

if TYPE_CHECKING:
    from textual.command import Provider
    from textual.driver import Driver
    from textual.widget import Widget

    from aptui.config.model import Config
    from aptui.core.model import Builder
    from aptui.link.port import Answer, Verb
    from aptui.tui.data.feed import Feed
    from aptui.tui.data.session import Session

__all__ = ["AptuiApp", "run"]
FRAME_S = 0.1
_BURST_S = 6 * FRAME_S
"""So many frames after a rest need not wait: the filter that a key changed takes two or three to be complete, the first rows five."""
_TWICE_S = 2.0
"""Within so long a second `Ctrl+C` leaves."""


def _palette() -> type[Provider]:
    from aptui.tui.frame.palette import ShellProvider  # Textual's palette is imported when it is first opened

    return ShellProvider


class MainScreen(Screen[None], inherit_bindings=False):
    """The only screen; everything that pops up is a part of it."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "next part", show=False, id="app.next_part"),
        Binding("shift+tab", "app.focus_previous", "previous part", show=False, id="app.previous_part"),
    ]


class AptuiApp(Stage, Wardrobe, inherit_bindings=False):
    """aptui on a terminal. Panes reach it as `self.shell`."""

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
        self, session: Session, config: Config | None = None, *, memory: Memory, person: Memory, panes: Sequence[PaneSpec] | None = None,
        theme: str = "", driver: type[Driver] | None = None,
    ) -> None:  # fmt: skip
        self.looks = theming.load_looks()
        # Textual would take NO_COLOR for greys; our theme without colours says it better.
        super().__init__(driver_class=driver)
        self.no_color = False
        self._filters = [each for each in self._filters if type(each).__name__ not in {"Monochrome", "NoColor"}]
        self.session, self.config, self.memory, self.person = session, config, memory, person
        self.panes = existing(panes)
        self.keymap = load_keymap()
        self.has_mouse = True
        self.all_builders: Callable[[], Sequence[Builder]] | None = None
        """Returns the builders as the engine sees them, completed by their code; it may start a process, so ask in a thread."""
        self.feed: Feed | None = None
        self.clips = Clipboard(lambda data: self._driver.write(data) if self._driver is not None else None)
        self._use_looks(theme or person.get("theme", theming.DEFAULT))
        self._mounted: dict[str, Pane] = {}
        self._focus_of: dict[str, Widget] = {}
        self._current = ""
        self._sheet = ""
        self._ui_context: contextvars.Context | None = None
        self._is_woken, self._next_frame, self._table_passed = False, 0.0, False
        self._lines: tuple[Line, ...] = ()
        self._ctrl_c_at = -_TWICE_S
        self._asked_about_pid = 0
        self._was_attached = False

    # ------------------------------------------------------------------------------------------------------------ the frame

    def get_default_screen(self) -> Screen[None]:
        """Return the only screen."""
        return MainScreen(id="_default")

    def compose(self) -> ComposeResult:
        """Yield the frame; panes come when they are visited."""
        session = self.session
        yield StatusLine(session)
        yield TabBar(session, self.panes, [each.id for each in self.config.project.platforms] if self.config else ())
        yield Rule(session, name="rule-top")
        yield Banner(session)
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
            yield Question()
        yield Candidates()
        yield Toasts()

    def on_mount(self) -> None:
        """Paint the frame first; everything that takes time comes after."""
        self._ui_context = contextvars.copy_context()
        self.set_keymap(self.keymap.overrides)
        self.screen.bindings_updated_signal.subscribe(self, lambda _screen: self._hints_changed())
        self.call_after_refresh(self._open)
        self.begin_to_look()

    async def _open(self) -> None:
        """Show the first pane, read what rests, attach."""
        for mistake in (*self.looks.mistakes, *self.keymap.mistakes):
            self.tell(str(mistake), "warning", 15)
        self.session.on_state.append(lambda: self.in_ui(self._engine_turned))
        load_numpy()
        wanted = self.memory.get("shell.tab", "")
        if self.panes:
            await self.action_show(wanted if wanted in {spec.id for spec in self.panes} else self.panes[0].id)
        # Once more after a paint: reading beside the pane's import gains nothing, they share the interpreter.
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._open_feed()
        self.wake()  # frames that panes asked for before there was a feed showed nothing
        self.session.open()
        self._engine_turned()
        _collect_garbage_again()

    def _open_feed(self) -> None:
        from aptui.tui.data.feed import Feed  # numpy, and the records of news, come after the first paint
        from aptui.tui.rejected_peers import Strangers

        self.feed = Feed(self.session.cache_dir / "assetdb.sqlite", known_names(self), more_builders=finder(self), wake=self.wake)
        self.session.listeners.append(self.feed)
        self.session.listeners.append(Strangers(lambda text: self.in_ui(self.tell, text, "warning", 15)))

    def _hints_changed(self) -> None:
        if not self.screen_stack:
            return  # it is told at the end, too, when nothing is shown any more
        for hints in self.screen.query(Hints):
            hints.changed()

    # ------------------------------------------------------------------------------------------------------------- the beat

    def wake(self) -> None:
        """Ask for a frame; any thread may, as often as it likes."""
        if not self._is_woken:
            self._is_woken = True
            self.in_ui(self._arm)

    def in_ui(self, do: Callable[..., object], *arguments: Any) -> None:
        """Have `do` called in the app's thread, soon; does not wait, and does nothing once the app has ended."""
        if self._loop is None or self._ui_context is None:
            return
        try:
            self._loop.call_soon_threadsafe(partial(do, *arguments), context=self._ui_context.copy())
        except RuntimeError:
            pass  # the loop is closed: nobody looks any more

    def _arm(self) -> None:
        wait_s = self._next_frame - time.monotonic()
        if wait_s > 0:
            self.set_timer(wait_s, self._frame)
        else:
            self.call_later(self._frame)

    def _frame(self) -> None:
        """Hand out what happened, and draw it."""
        self._is_woken = False
        self._next_frame = max(self._next_frame, time.monotonic() - _BURST_S) + FRAME_S
        if not self.is_running or self.feed is None:
            return
        batch = self.feed.drain()
        if batch.table is not None:
            self._table_passed = True
        for pane in self._mounted.values():
            pane.on_news(batch)
        self._frame_changed()
        visible = self._mounted.get(self._current)
        if visible is not None and not self._sheet:
            visible.on_frame()

    def _frame_changed(self) -> None:
        # Looked for once: they stay, and a search through all that is mounted costs a third of a frame.
        self._lines = self._lines or tuple(self.main_screen().query("StatusLine, TabBar, Rule, Banner").results(Line))
        for line in self._lines:
            line.changed()

    def main_screen(self) -> Screen[Any]:
        """Return the screen below whatever is open."""
        return next(screen for screen in self.screen_stack if isinstance(screen, MainScreen))

    def _engine_turned(self) -> None:
        """Show that the engine came, went, or is an old one."""
        session = self.session
        self._frame_changed()
        self.refresh_bindings()
        if session.state is SessionState.ATTACHED:
            if self._was_attached:
                self.tell(f"attached to the engine again, pid {session.engine.pid}")
            self._was_attached = True
            if is_older(session.engine.version) and session.engine.pid != self._asked_about_pid:
                self._asked_about_pid = session.engine.pid
                self._ask_about_old_engine()

    def _ask_about_old_engine(self) -> None:
        restart = self.session.restart_engine
        self.question(
            f"the engine is older (aptui {sanitize(self.session.engine.version)}); restart it?",
            [
                Choice("w", "when idle", partial(restart, is_when_idle=True)),
                Choice("y", "now", partial(restart, is_when_idle=False)),
                Choice("n", "keep it"),
            ],
        )

    # -------------------------------------------------------------------------------------------- commands, questions, words

    @property
    def can_ask(self) -> bool:
        """Whether there may be an engine that does what it is told."""
        return self.session.state is not SessionState.NONE and not self.session.is_read_only

    def commands(self) -> list[Command]:
        """Return what can be said on the `:` line now."""
        mine = [each for each in (self.pane.commands() if self.pane is not None else ()) if self.can_ask or not each.needs_engine]
        return sorted([*mine, *said.shell_commands(self)], key=lambda each: each.name)

    def action_command_palette(self) -> None:
        """Open the palette, unless it is open."""
        from aptui.tui.frame.palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def action_command(self, text: str = "") -> None:
        """Open the `:` line."""
        self.remember_focus()
        self.query_one(Hints).display = False
        self.query_one(CommandLine).start(text)

    def on_command_line_said(self, event: CommandLine.Said) -> None:
        """Do what was said."""
        self._close_bottom()
        self.person.remember("commands", event.text)
        said.run(self, event.text, self.commands())

    def on_command_line_closed(self) -> None:
        """Go back to the hints."""
        self._close_bottom()

    def _close_bottom(self) -> None:
        self.query_one(CommandLine).display = False
        self.query_one(Question).display = False
        self.query_one(Hints).display = True
        if self._sheet:
            self.query_one(f"#{self._sheet}", Sheet).take_focus()
        else:
            self.give_focus_back()

    def question(self, text: str, choices: Sequence[Choice]) -> None:
        """Ask people in the last line; the last choice changes nothing."""
        self.remember_focus()
        self.query_one(CommandLine).display = False
        self.query_one(Hints).display = False
        self.query_one(Question).start(text, choices)

    def on_question_answered(self, event: Question.Answered) -> None:
        """Do what was chosen."""
        self._close_bottom()
        event.choice.run()

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

    def ask(self, verb: Verb, done: str = "", then: Callable[[Answer], object] | None = None) -> None:
        """Ask the engine; `done` is said and `then` called, in the app's thread, when it has answered. Refusals are told."""
        self.session.ask(verb).add_done_callback(lambda answer: self.in_ui(self._answered, answer, done, then))

    def _answered(self, answer: Future[Answer], done: str, then: Callable[[Answer], object] | None) -> None:
        error = answer.exception()
        if error is None:
            if done:
                self.tell(done)
            if then is not None:
                then(answer.result())
        elif isinstance(error, KnownError):
            self.tell(str(error), "error", 10)
        else:
            raise error

    def action_pause(self) -> None:
        """Pause; or, while paused, ask whether to run the next job or to go on."""
        from aptui.link.port import Pause, Resume, RunNext

        health = self.session.latest_health
        if health is None or not health.is_paused:
            self.ask(Pause(), "paused; 'P' again runs the next job or goes on")
            return
        choices = [
            Choice("n", "run the next job", lambda: self.ask(RunNext(), "one job more")),
            Choice("r", "go on", lambda: self.ask(Resume(), "going on")),
            Choice("s", "stay paused"),
        ]
        self.question("paused", choices)

    def action_stop_engine(self) -> None:
        """Stop the engine, after asking."""
        from aptui.link.port import Shutdown

        progress = self.session.latest_progress
        running = progress.jobs_running if progress else 0
        text = f"stop the engine? {running:,} jobs are running" if running else "stop the engine?"
        choices = [
            Choice("y", "stop it", lambda: self.ask(Shutdown(), then=lambda _answer: self.exit())),
            Choice("w", "when idle", lambda: self.ask(Shutdown(is_when_idle=True), "the engine stops when it is idle")),
            Choice("n", "let it run"),
        ]
        self.question(text, choices)

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:  # noqa: FBT002  # Textual's signature
        """Write what was typed ahead into the line that has the keys by now: "/r" shall search for "r", not reprocess."""
        character = key_to_character(key)
        if not priority and isinstance(self.focused, Input) and character is not None and character.isprintable():
            self.focused.insert_text_at_cursor(character)
            return True
        return await super()._check_bindings(key, priority)

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
        selected = self.screen.get_selected_text()
        if selected:
            self.copy_text(selected)
            self.screen.clear_selection()
            return
        now = time.monotonic()
        if now - self._ctrl_c_at < _TWICE_S:
            self.exit()
            return
        self._ctrl_c_at = now
        key = next((key for key, name, _ in self.actions_here() if name == "app.detach"), "")
        self.tell(
            f"'{shown_key(key)}' leaves, and so does ^C again; the engine goes on" if key else "^C again leaves; the engine goes on"
        )

    def copy_text(self, text: str, *, raw: bool = False) -> None:
        """Copy text to the terminal people sit at, and say how; the one way for everything in the app."""
        self.clips.copy_soon(text, lambda copied: self.in_ui(self.tell, copied.toast()), raw=raw)

    def action_redraw(self) -> None:
        """Draw everything again, and read it again."""
        self._repaint()
        if self.feed is not None:
            self.feed.refresh()
        if self.pane is not None:
            self.pane.refreshed()

    def _repaint(self) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write("\x1b[2J")
        self.refresh(layout=True)

    def action_plain(self) -> None:
        """Give the terminal its own screen back and write news there as lines, until a key is pressed."""
        from aptui.tui.terminal import plain

        if self.is_headless or self._driver is None or not self._driver.can_suspend:
            self.tell("this terminal has no scrollback of its own", "warning")
            return
        with self.suspend():
            sys.__stdout__.write(f"── {sanitize(self.session.project_name)}: news as they come; any key goes back ──\n")  # type: ignore[union-attr]
            with plain.raw_keys(has_signals=False):
                plain.follow(self.session, cast(Any, sys.__stdout__), plain.until_key)
        self.wake()

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
        self.end_looking()
        self.memory.save()
        self.person.save()
        self.session.close()
        if self.feed is not None:
            self.feed.close()


def _collect_garbage_again() -> None:
    """Collecting garbage waits until the first pane is painted (a tenth of the time to it), and never looks at what was there before.

    News are many small records that leave nothing behind, so it is seldom worth a look.
    """
    import gc

    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()

"""Opens the `:` line and runs its commands; defines the commands that exist in every pane. Each pane adds its own commands.

Tests: `tests/tui/screens/assets/test_assets_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import App

from aptui import feature
from aptui.shared.errors import KnownError
from aptui.tui.data.session import SessionState
from aptui.tui.frame.commandline import Command, CommandLine
from aptui.tui.frame.statusline import Hints
from aptui.tui.preferences.keymap import Actions

if TYPE_CHECKING:
    from aptui.link.port import Verb
    from aptui.tui.pane import PaneSpec, Shell


class CommandBar(Actions):
    """The last line of the screen: hints, or the `:` line.

    Args:
        remember_focus: called before the line takes the focus.
        refocus: puts the focus back on the pane or sheet.
    """

    def __init__(self, app: App[Any], remember_focus: Callable[[], object], refocus: Callable[[], object]) -> None:
        self._app, self._remember_focus, self._refocus = app, remember_focus, refocus

    def action_open(self, text: str = "") -> None:
        """Open the `:` line."""
        self._remember_focus()
        self._app.query_one(Hints).display = False
        self._app.query_one(CommandLine).start(text)

    def close(self) -> None:
        """Hide the `:` line, and show the hints about keys in its place."""
        self._app.query_one(CommandLine).display = False
        self._app.query_one(Hints).display = True
        self._refocus()

    def update_hints(self) -> None:
        """Draw the hints again; called when other keys have become active."""
        if not self._app.screen_stack:
            return  # Textual also reports changed key bindings while the app ends, when no screen exists
        for hints in self._app.screen.query(Hints):
            hints.refresh_if_changed()


def shell_commands(app: Shell) -> list[Command]:
    """Return the commands that are available now; some need an engine."""
    from aptui.link.port import Drain, PauseJobs, ReloadConfig, ResumeJobs, RunNext  # imported here to start faster

    act: Callable[[str], Callable[[str], None]] = lambda action: lambda _rest: app.schedule_action(action)  # noqa: E731  # a table reads better

    def ask(verb: Verb, done: str) -> Callable[[str], None]:
        return lambda _rest: app.ask(verb, done)

    commands = [Command(spec.id, f"go to {spec.title}", act(f"switcher.show('{spec.id}')")) for spec in app.panes]
    for more in feature.load_all("commands"):
        commands += more(app)
    commands += [
        Command("pause", "start no more jobs", ask(PauseJobs(), "paused"), needs_engine=True),
        Command("next", "while paused: run one more job", ask(RunNext(), "one more job will run"), needs_engine=True),
        Command("resume", "continue after a pause", ask(ResumeJobs(), "resumed"), needs_engine=True),
        Command(
            "drain",
            "finish the queue; new changes wait",
            ask(Drain(), "finishing the queue; new changes wait until ':resume'"),
            needs_engine=True,
        ),
        Command(
            "rescan",
            "check all files again; 'full' reads every byte",
            partial(_rescan, app),
            lambda: ("full",),
            needs_engine=True,
        ),
        Command("reload", "read the configuration again", ask(ReloadConfig(), "configuration read"), needs_engine=True),
        Command(
            "restart",
            "restart the engine; 'now' does not wait until it is idle",
            partial(_restart, app),
            lambda: ("now", "when-idle"),
            True,
        ),
        Command("start", "start an engine if none is running", partial(_start, app)),
        Command("stop", "stop the engine (asks first)", act("engine.stop"), needs_engine=True),
        Command(
            "theme", "choose a theme; 'reload' reads the files again", app.themes.choose, lambda: (*app.themes.names, "reload")
        ),
        Command("mouse", "turn the mouse on or off", partial(_mouse, app), lambda: ("on", "off")),
        Command("pixels", "show pictures as pixels, or with blocks", partial(_pixels, app), lambda: ("on", "off")),
        Command("keys", "show the name and the action of each key that you press", act("sheets.keys")),
        Command("keymap", "read the key bindings again", act("keys.reload")),
        Command("messages", "show earlier messages", act("sheets.messages")),
        Command("info", "show project, engine, versions, folders", act("sheets.info")),
        Command("help", "show keys and commands of this screen", act("sheets.help")),
        Command("plain", "show plain lines in the terminal's own scrollback", act("terminal.plain")),
        Command("redraw", "draw and read everything again", act("terminal.redraw")),
        Command("quit", "quit; the engine keeps running", act("quit")),
    ]
    return [command for command in commands if app.can_ask or not command.needs_engine]


def run(app: Shell, text: str, commands: Sequence[Command]) -> None:
    """Run the command in a line, or show why it cannot run."""
    word, _, rest = text.partition(" ")
    if not word:
        return
    found = [each for each in commands if each.name == word] or [each for each in commands if each.name.startswith(word)]
    if len({each.name for each in found}) == 1:
        found[0].run(rest.strip())
    elif found:
        app.show_toast(f"'{word}' is ambiguous: {', '.join(each.name for each in found)}", "warning")
    elif there := next((spec for spec in app.panes if word in _list_names(spec)), None):
        is_here = app.pane is not None and app.pane.name_of_pane == there.id
        why = "cannot run now" if is_here else f"works only on the screen {there.title}; press {there.number} to go there"
        app.show_toast(f"':{word}' {why}", "warning")
    else:
        near = get_close_matches(word, [each.name for each in commands], n=1)
        app.show_toast(f"unknown command '{word}'" + (f"; did you mean '{near[0]}'?" if near else "; '?' lists them"), "warning")


def _list_names(spec: PaneSpec) -> Sequence[str]:
    try:
        return spec.load().list_command_names()
    except KnownError:  # reported when the user visits the pane
        return ()


def _rescan(app: Shell, rest: str) -> None:
    from aptui.link.port import RescanSources  # imported here: not needed before the first paint

    app.ask(RescanSources(is_full=rest == "full"), "scanning")


def _start(app: Shell, _rest: str) -> None:
    if app.session.state is SessionState.ATTACHED:
        app.show_toast("an engine is already running; ':restart' restarts it")
    app.session.start_engine()


def _restart(app: Shell, rest: str) -> None:
    if app.session.state is not SessionState.ATTACHED:
        app.show_toast("no engine is running; one starts now")
        app.session.start_engine()
        return
    app.session.restart_engine(is_when_idle=rest != "now")
    app.show_toast("the engine restarts" if rest == "now" else "the engine restarts when it is idle")


def _mouse(app: Shell, rest: str) -> None:
    app.terminal.set_mouse(is_on=rest != "off" if rest else not app.terminal.has_mouse)


def _pixels(app: Shell, rest: str) -> None:
    app.terminal.set_pixels(is_on=rest != "off" if rest else not app.terminal.wants_pixels)

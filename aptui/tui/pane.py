"""What every pane of the screen is, and which panes there are.

A pane itself lives in `screens/` and is imported when it is first visited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from msgspec import Struct
from textual.containers import Container

from aptui import feature
from aptui.tui.frame.commandline import Host

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.config.model import Config
    from aptui.core.project import Builder
    from aptui.feature import Feature
    from aptui.link.port import Answer, Verb
    from aptui.tui.data.feed import Batch, Feed
    from aptui.tui.frame.commandline import Command
    from aptui.tui.frame.engine_control import EngineControl
    from aptui.tui.frame.sheets import Sheets
    from aptui.tui.frame.terminal_control import TerminalControl
    from aptui.tui.frame.theme_manager import ThemeManager
    from aptui.tui.preferences.keymap import KeyBindings
    from aptui.tui.preferences.state import UiMemory


class Shell(Host, Protocol):
    """What panes and their parts may use of the app; `app` is the same as what Textual knows."""

    config: Config | None
    touched_s: float
    """When somebody last did something, by the monotonic clock."""
    memory: UiMemory
    """What is remembered of the project."""
    person: UiMemory
    """What is remembered of the person."""
    panes: list[PaneSpec]
    themes: ThemeManager
    terminal: TerminalControl
    keys: KeyBindings
    sheets: Sheets
    engine: EngineControl
    all_builders: Callable[[], Sequence[Builder]] | None

    @property
    def feed(self) -> Feed | None:
        """What reads jobs and hears news, None = it was not opened yet."""

    @property
    def pane(self) -> Pane | None:
        """The pane that is shown, or that a sheet covers."""

    @property
    def can_ask(self) -> bool:
        """Whether there may be an engine that does what it is told."""

    def ask(self, verb: Verb, done: str = "", then: Callable[[Answer], object] | None = None) -> None:
        """Ask the engine; `done` is shown and `then` called, in the app's thread, when it has answered."""

    def wake_for_news(self) -> None:
        """Ask for a frame that nobody waits for; any thread may."""

    def copy_text(self, text: str, *, raw: bool = False) -> None:
        """Copy text to the terminal people sit at, and say how."""

    def act(self, action: str) -> None:
        """Run an action of the app, soon."""

    async def show(self, pane_id: str) -> None:
        """Go to a pane."""

    def hold_keys(self, what: str) -> Callable[[], None]:
        """Have keys wait for what a key before them set out for, until what is returned is called."""

    def reveal(self, pane_id: str, text: str, **how: str) -> None:
        """Go to a pane and have it show something, as its `reveal` takes it; keys wait until it was told."""


class Pane(Container):
    """One of the screens 1 to 7: fills the room between the rules.

    The app calls the hooks below, always in its own thread. A hidden pane hears news too, so that it is true when it is shown
    again; it shall only note them, and draw in `on_frame`, which is called at most ten times a second and only while the pane is
    visible and something happened (news, or `self.app.wake()`, which any thread may call).
    """

    DEFAULT_CSS = "Pane { width: 1fr; height: 1fr; }"
    name_of_pane: ClassVar[str] = ""
    """The id in `PANES`; set by the registry."""
    wants_jobs: ClassVar[bool] = False
    """Whether the pane must see the whole table of jobs at least once (`Batch.table`), also when it is first visited late."""

    @property
    def shell(self) -> Shell:
        """The app: session, feed, memory and messages are there."""
        return cast("Shell", self.app)

    def name_awaited(self, focused: Widget | None) -> str:  # noqa: ARG002  # for those that read slowly
        """Return what the next key has to wait for where the focus is, "" = nothing: it shall act on what is shown."""
        return ""

    def activate(self) -> None:
        """Take the stage: the pane became visible. Set the focus where it was; the default does so."""

    def deactivate(self) -> None:
        """Leave the stage; put what shall be remembered into `self.shell.memory`."""

    def on_news(self, batch: Batch) -> None:
        """Note what happened since the last frame."""

    def on_frame(self) -> None:
        """Draw what changed; called after `on_news`."""

    def commands(self) -> Sequence[Command]:
        """Return the pane's own commands for the `:` line and the palette."""
        return ()

    def status(self) -> str:
        """Return a few words about what the pane shows, for the info sheet."""
        return ""

    def reload(self) -> None:
        """Read everything again: the engine came back, or people asked (`Ctrl+L`)."""


class PaneSpec(Struct, frozen=True):
    """A pane as the tab bar knows it; `short` is its title where room is scarce, `place` is `module:class`."""

    id: str
    number: int
    title: str
    short: str
    place: str

    def load(self) -> type[Pane]:
        """Import the pane's class."""
        kind = cast(type[Pane], feature.load(self.place))
        kind.name_of_pane = self.id
        return kind


PANES: list[PaneSpec] = [
    PaneSpec("jobs", 1, "Jobs", "Jobs", "aptui.tui.screens.jobs.jobs_pane:JobsPane"),
    PaneSpec("assets", 2, "Assets", "Assets", "aptui.tui.screens.assets.assets_pane:AssetsPane"),
    PaneSpec("logs", 3, "Logs", "Logs", "aptui.tui.screens.logs.logs_pane:LogsPane"),
    PaneSpec("builders", 5, "Builders", "Builders", "aptui.tui.screens.builders.builders_pane:BuildersPane"),
    PaneSpec("tools", 7, "Tools", "Tools", "aptui.tui.screens.tools.tools_pane:ToolsPane"),
]
"""The panes of the kernel; features add theirs (`aptui.feature`)."""


def list_panes() -> list[PaneSpec]:
    """Return the panes of the kernel and of the features that ship, in the order of their numbers."""
    return add_panes(PANES, feature.list_shipped())


def add_panes(panes: Sequence[PaneSpec], features: Sequence[Feature]) -> list[PaneSpec]:
    """Return `panes` and those of `features`, in the order of their numbers; an id or a number that is in use is not added."""
    found = list(panes)
    for each in features:
        for pane_id, (number, title, short, place) in each.panes.items():
            if all(pane_id != spec.id and number != spec.number for spec in found):
                found.append(PaneSpec(pane_id, number, title, short, place))
    return sorted(found, key=lambda spec: spec.number)

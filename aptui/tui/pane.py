"""The base class of panes, the app as panes use it, and the list of panes.

Panes live in `screens/` and in features; they are imported when they are first visited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from msgspec import Struct
from textual.containers import Container

from aptui import feature
from aptui.shared.errors import HostError
from aptui.tui.frame.commandline import Command, Host

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.config.configuration import Config
    from aptui.core.project import Builder
    from aptui.feature import Feature
    from aptui.link.port import Answer, Verb
    from aptui.tui.data.feed import Batch, Feed
    from aptui.tui.frame.engine_control import EngineControl
    from aptui.tui.frame.sheets import Sheets
    from aptui.tui.frame.terminal_control import TerminalControl
    from aptui.tui.frame.theme_manager import ThemeManager
    from aptui.tui.preferences.keymap import KeyBindings
    from aptui.tui.preferences.state import UiMemory


class Shell(Host, Protocol):
    """The app as panes and their parts use it; `app` is the same object with Textual's type."""

    config: Config | None
    touched_s: float
    """Time of the last input on the monotonic clock (seconds)."""
    memory: UiMemory
    """Values that the screen remembers for the project."""
    person: UiMemory
    """Values that the screen remembers for the user, in all projects."""
    panes: list[PaneSpec]
    themes: ThemeManager
    terminal: TerminalControl
    keys: KeyBindings
    sheets: Sheets
    engine: EngineControl
    all_builders: Callable[[], Sequence[Builder]] | None

    @property
    def feed(self) -> Feed | None:
        """The reader of jobs and notices, None until it is opened."""

    @property
    def pane(self) -> Pane | None:
        """The current pane; a sheet may cover it."""

    @property
    def can_ask(self) -> bool:
        """Whether requests can be sent to an engine."""

    def ask(self, verb: Verb, done: str = "", then: Callable[[Answer], object] | None = None) -> None:
        """Send a request to the engine; on success show `done` and call `then` in the app's thread."""

    def wake_for_news(self) -> None:
        """Request a frame for an update that the user's keys did not cause; thread-safe."""

    def copy_text(self, text: str, *, raw: bool = False) -> None:
        """Copy text to the clipboard of the user's terminal, and show a message that says how it was copied."""

    def schedule_action(self, action: str) -> None:
        """Schedule an action of the app."""

    def set_news(self, text: str) -> None:
        """Show in line 1 what changed since the user's last visit; "" = nothing."""

    async def show(self, pane_id: str) -> None:
        """Go to a pane."""

    def hold_keys(self, what: str) -> Callable[[], object]:
        """Make keys wait until the returned function is called, because an earlier key has not taken effect yet."""

    def reveal(self, pane_id: str, text: str, **how: str) -> None:
        """Go to a pane and call its `reveal` with the arguments; keys wait until `reveal` was called."""


class Pane(Container):
    """One of the numbered screens, such as Jobs. It fills the space between the two horizontal lines (`Rule`).

    The app calls the methods below in its own thread. `on_news` hands updates to all panes, also to hidden ones, so that a pane is
    current when it is shown again; the method only notes the updates and does not draw. `on_frame` draws. It is called while the
    pane is visible, after updates and after `self.shell.wake()` (thread-safe), at most ten times a second.
    """

    DEFAULT_CSS = "Pane { width: 1fr; height: 1fr; }"
    name_of_pane: ClassVar[str] = ""
    """The id of the pane, as in its `PaneSpec`; the pane switcher sets it."""
    wants_jobs: ClassVar[bool] = False
    """Whether the pane shows jobs. If it opens too late to receive the table of jobs (`Batch.table`), the jobs are read again."""

    @property
    def shell(self) -> Shell:
        """The app, with its session, feed, remembered values and messages."""
        return cast("Shell", self.app)

    def name_awaited(self, focused: Widget | None) -> str:  # noqa: ARG002  # for panes that read slowly
        """Return the name of the state that the next key has to wait for, "" = the pane can handle a key now."""
        return ""

    def activate(self) -> None:
        """React when the pane becomes visible. The widget that had the focus when the user left the pane has it again."""

    def deactivate(self) -> None:
        """React when the user leaves the pane: store the values to remember in `self.shell.memory`."""

    def on_news(self, batch: Batch) -> None:
        """Note the updates since the last frame."""

    def on_frame(self) -> None:
        """Draw what changed; called after `on_news`."""

    command_names: ClassVar[tuple[str, ...]] = ()
    """Names of all commands that `commands` can return, so that a message can say on which screen a command works."""

    @classmethod
    def list_command_names(cls) -> Sequence[str]:
        """Return `command_names`, with the names of commands that features add."""
        return cls.command_names

    def commands(self) -> Sequence[Command]:
        """Return the pane's commands that are possible now, for the `:` line and the palette."""
        return ()

    def status(self) -> str:
        """Return a few words about the content of the pane, for the info sheet."""
        return ""

    def reload(self) -> None:
        """Read all data again, because the engine is back or the user pressed `Ctrl+L`."""


class PaneSpec(Struct, frozen=True):
    """A pane as the tab bar shows it before its class is imported; `short` is the short title, `place` is `module:class`."""

    id: str
    number: int
    title: str
    short: str
    place: str

    def load(self) -> type[Pane]:
        """Import the pane's class.

        Raises:
            HostError: the import failed; the pane may belong to a package that was made for another version.
        """
        try:
            kind = cast(type[Pane], feature.load(self.place))
        except Exception as error:  # the code of another distribution may raise any exception
            hint = "update or uninstall the package that contains this screen"
            raise HostError(f"the screen {self.title} cannot be loaded: {error}", hint=hint) from error
        kind.name_of_pane = self.id
        return kind


PANES: list[PaneSpec] = [
    PaneSpec("jobs", 1, "Jobs", "Jobs", "aptui.tui.screens.jobs.jobs_pane:JobsPane"),
    PaneSpec("assets", 2, "Assets", "Assets", "aptui.tui.screens.assets.assets_pane:AssetsPane"),
    PaneSpec("logs", 3, "Logs", "Logs", "aptui.tui.screens.logs.logs_pane:LogsPane"),
    PaneSpec("builders", 5, "Builders", "Builders", "aptui.tui.screens.builders.builders_pane:BuildersPane"),
    PaneSpec("tools", 7, "Tools", "Tools", "aptui.tui.screens.tools.tools_pane:ToolsPane"),
]
"""The built-in panes; features add more panes (`aptui.feature`)."""


def list_panes() -> list[PaneSpec]:
    """Return the built-in panes and the panes of the features that are part of aptui, in the order of their numbers."""
    return add_panes(PANES, feature.list_shipped())


def add_panes(panes: Sequence[PaneSpec], features: Sequence[Feature]) -> list[PaneSpec]:
    """Return `panes` and the panes of `features`, in the order of their numbers.

    A pane of a feature is left out if its id or number is in use.
    """
    found = list(panes)
    for each in features:
        for pane_id, (number, title, short, place) in each.panes.items():
            if all(pane_id != spec.id and number != spec.number for spec in found):
                found.append(PaneSpec(pane_id, number, title, short, place))
    return sorted(found, key=lambda spec: spec.number)

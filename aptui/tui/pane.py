"""What every pane of the screen is, and which panes there are; a pane itself lives in `screens/` and is imported when it is first visited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, cast

from textual.containers import Container

if TYPE_CHECKING:
    from aptui.tui.app import AptuiApp
    from aptui.tui.data.feed import Batch


@dataclass(frozen=True, slots=True)
class Command:
    """Something that can be said on the `:` line and found in the palette.

    Args:
        name: one lower-case word, as in `:theme`.
        does: a phrase for people, lower case.
        run: takes what follows the name, stripped.
        complete: all arguments that make sense now; None = it takes none.
        needs_engine: it is not offered where there is no engine to ask.
    """

    name: str
    does: str
    run: Callable[[str], None]
    complete: Callable[[], Sequence[str]] | None = None
    needs_engine: bool = False


class Pane(Container):
    """One of the screens 1 to 7: fills the room between the rules.

    The app calls the hooks below, always in its own thread. A hidden pane hears news too, so that it is true when it is shown again; it shall
    only note them, and draw in `on_frame`, which is called at most ten times a second and only while the pane is visible and something
    happened (news, or `self.app.wake()`, which any thread may call).
    """

    DEFAULT_CSS = "Pane { width: 1fr; height: 1fr; }"
    name_of_pane: ClassVar[str] = ""
    """The id in `PANES`; set by the registry."""
    wants_jobs: ClassVar[bool] = False
    """Whether the pane must see the whole table of jobs at least once (`Batch.table`), also when it is first visited late."""

    @property
    def shell(self) -> AptuiApp:
        """The app, as what it is: session, feed, roles, memory and messages are there."""
        from aptui.tui.app import AptuiApp

        return cast(AptuiApp, self.app)

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

    def refreshed(self) -> None:
        """Read everything again: the engine came back, or people asked (`Ctrl+L`)."""


@dataclass(frozen=True, slots=True)
class PaneSpec:
    """A pane as the tab bar knows it; `short` is its title where room is scarce, `place` is `module:class`."""

    id: str
    number: int
    title: str
    short: str
    place: str

    @property
    def module(self) -> str:
        """The module the pane lives in."""
        return self.place.partition(":")[0]

    def load(self) -> type[Pane]:
        """Import the pane's class."""
        module, _, name = self.place.partition(":")
        kind = cast(type[Pane], getattr(import_module(module), name))
        kind.name_of_pane = self.id
        return kind


PANES: list[PaneSpec] = [
    PaneSpec("jobs", 1, "Jobs", "Jobs", "aptui.tui.screens.jobs.pane:JobsPane"),
    PaneSpec("assets", 2, "Assets", "Assets", "aptui.tui.screens.assets.pane:AssetsPane"),
    PaneSpec("logs", 3, "Logs", "Logs", "aptui.tui.screens.logs.pane:LogsPane"),
    PaneSpec("connections", 4, "Connections", "Conn", "aptui.tui.screens.connections.pane:ConnectionsPane"),
    PaneSpec("builders", 5, "Builders", "Build", "aptui.tui.screens.builders.pane:BuildersPane"),
    PaneSpec("cache", 6, "Shared cache", "Cache", "aptui.tui.screens.cache.pane:CachePane"),
    PaneSpec("tools", 7, "Tools", "Tools", "aptui.tui.screens.tools.pane:ToolsPane"),
]
"""All panes there shall be; `existing` are those there are."""


def existing(panes: Sequence[PaneSpec] | None = None) -> list[PaneSpec]:
    """Return the panes whose module exists: what does not exist yet is not drawn."""
    return [spec for spec in (PANES if panes is None else panes) if _exists(spec.module)]


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False

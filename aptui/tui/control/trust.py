"""The question before the engine of an untrusted project starts; `config.trust` decides, `cli.trust_verb` words it.

Tests: `tests/tui/test_trust_question.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Protocol

from aptui.shared.errors import KnownError
from aptui.tui.frame.commandline import Choice
from aptui.tui.frame.line import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.geometry import Size

_MOST_LINES = 8
"""Limit of lines in the box: it fits on a screen of 24 lines, and the list has the rest."""
_MARGINS = 3


class TrustDialogue(Protocol):
    """What this needs of the app."""

    sheets: Any

    @property
    def size(self) -> Size:
        """The size of the screen."""

    def question(self, text: str, choices: Sequence[Choice]) -> None:
        """Ask people in a box."""

    def show_toast(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show a message."""


class TrustQuestion:
    """Whether the user trusts a project.

    Args:
        changes: sentences about files that changed since the user trusted the project; empty if the user never did.
        runs: what would run: a sentence, then lines.
        trust: records trust and starts the engine.
        restrict: has the screen only look.
        is_running: an engine runs already, so nothing is asked.
    """

    def __init__(
        self,
        changes: Sequence[str],
        runs: Sequence[str],
        trust: Callable[[], None],
        restrict: Callable[[], None],
        *,
        is_running: bool = False,
    ) -> None:
        self._changes, self._runs, self._is_running = tuple(changes), tuple(runs), is_running
        self._trust, self._restrict = trust, restrict
        self._is_listing = False

    def ask(self, screen: TrustDialogue) -> None:
        """Ask, or with a running engine report the changes."""
        if self._is_running:
            if self._changes:
                screen.show_toast("; ".join(self._changes), "warning", 15)
            return
        lines = [*self._changes, *self._runs]
        left = len(lines) - _MOST_LINES
        more = [f"  and {left:,} more"] if left > 0 else []
        choices = [
            Choice("y", "trust it and start the engine", lambda: self._take_trust(screen)),
            Choice("l", "list everything", lambda: self._list(screen)),
            Choice("n", "only look: run nothing of it", self._restrict),
        ]
        screen.question("\n".join(["trust this project?", *lines[:_MOST_LINES], *more]), choices)

    def ask_again(self, screen: TrustDialogue) -> None:
        """Ask again after the list was shown."""
        if self._is_listing:
            self._is_listing = False
            self.ask(screen)

    def _take_trust(self, screen: TrustDialogue) -> None:
        try:
            self._trust()
        except KnownError as error:
            self._restrict()
            screen.show_toast(str(error), "error", 10)

    def _list(self, screen: TrustDialogue) -> None:
        self._is_listing = True
        width = max(_MARGINS + 1, screen.size.width) - _MARGINS
        lines = [part for line in (*self._changes, *self._runs) for part in wrap(line, width, subsequent_indent="    ")]
        screen.sheets.show([(Part(f" {line}"),) for line in lines])

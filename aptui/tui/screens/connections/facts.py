"""A line of facts on the Connections screen: key and value, as many as there is room for.

Tests: `tests/tui/screens/connections/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aptui.shared.sanitize import sanitize
from aptui.tui.frame.line import Line, Part, Parts, width_of
from aptui.tui.words import shorten


class Fact(Line):
    """One line of facts: (key, value, role) each; those at the end go where there is no room."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # Textual's name
        super().__init__(id=id)
        self.facts: list[tuple[str, str, str]] = []

    def show(self, facts: Sequence[tuple[str, str, str]]) -> None:
        """Show these facts."""
        self.facts = [fact for fact in facts if fact[1]]
        self.display = bool(self.facts)
        self.changed()

    def parts(self, width: int) -> Parts:
        """Return as many as fit; the first is cut where even that is too long."""
        parts: list[Part] = []
        for key, value, role in self.facts:
            more = [Part("   " if parts else " "), Part(f"{key}  " if key else "", "key"), Part(sanitize(value), role or "value")]
            if width_of(parts) + width_of(more) > width:
                if not parts:
                    more[-1] = Part(shorten(more[-1].text, width - width_of(more[:-1])), role or "value")
                    parts += more
                break
            parts += more
        return tuple(parts)

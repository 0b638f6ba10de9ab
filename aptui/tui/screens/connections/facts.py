"""Lines of facts on the Connections screen: key and value, in as many lines as they need and may have.

Tests: `tests/tui/screens/connections/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.strip import Strip

from aptui.shared.sanitize import sanitize
from aptui.tui.frame.line import Line, Part, Parts, strip_of, width_of
from aptui.tui.widgets.cells import wrap
from aptui.tui.words import shorten

_BETWEEN = "   "


class Fact(Line):
    """Facts, (key, value, role) each, one beside the other; those at the end go where there is no room.

    Args:
        most_lines: so many lines it may take.
    """

    def __init__(self, *, id: str | None = None, most_lines: int = 1) -> None:  # noqa: A002  # Textual's name
        super().__init__(id=id)
        self.facts: list[tuple[str, str, str]] = []
        self._most_lines = most_lines
        self._lines: list[Parts] = []

    def show(self, facts: Sequence[tuple[str, str, str]]) -> None:
        """Show these facts."""
        self.facts = [fact for fact in facts if fact[1]]
        self.display = bool(self.facts)
        self._lay_out(self.size.width)

    def on_resize(self, event: events.Resize) -> None:
        """Take the lines that are needed now."""
        self._lay_out(event.size.width)

    def _lay_out(self, width: int) -> None:
        lines = self.lines(width) if width else []
        if lines != self._lines:
            self._lines = lines
            self.styles.height = max(1, len(lines))
            self.refresh()

    def lines(self, width: int) -> list[Parts]:
        """Return the lines: no fact is parted that has room in one; what has no room in the last is cut, or left out."""
        lines: list[Parts] = [()]
        for key, value, role in self.facts:
            parts = _parts(key, value, role)
            if width_of(lines[-1]) + len(_BETWEEN) + width_of(parts) <= width and lines[-1]:
                lines[-1] += (Part(_BETWEEN), *parts)
                continue
            if lines[-1]:
                if len(lines) == self._most_lines:
                    break
                lines.append(())
            lines[-1:] = _break_fact(parts, width - 1, self._most_lines - len(lines) + 1)
        return lines

    def parts(self, width: int) -> Parts:
        """Return the first line."""
        return self.lines(width)[0]

    def render_line(self, y: int) -> Strip:
        """Return a line."""
        self._drawn = self._lines[y] if y < len(self._lines) else ()
        return strip_of(self._drawn, self, self.size.width, self.rich_style)


def _parts(key: str, value: str, role: str) -> Parts:
    return (Part(f"{key}  " if key else "", "key"), Part(sanitize(value), role or "value"))


def _break_fact(parts: Parts, width: int, most: int) -> list[Parts]:
    """Return a fact in as many lines as it needs; of more than `most` the last one is cut."""
    key, value = parts
    rows = wrap(value.text, max(1, width - key.width))
    texts = [value.text[start:end].rstrip() for start, end in rows[: most - 1]]
    if len(rows) >= most:
        texts.append(shorten(value.text[rows[most - 1][0] :], width - key.width))
    lead = (Part(" "), key), (Part(" " * (1 + key.width)),)
    return [(*lead[at > 0], Part(text, value.role)) for at, text in enumerate(texts)]

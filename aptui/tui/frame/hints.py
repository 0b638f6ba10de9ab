"""The last line: keys that mean something here and now, taken from the bindings that are really active.

Tests: `tests/tui/test_foreign_database.py`.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from textual.keys import _character_to_key
from textual.widgets import Input

from aptui.tui.frame.line import Line, Part, Parts, width_of
from aptui.tui.preferences.keymap import show_key

if TYPE_CHECKING:
    from textual.binding import ActiveBinding

ALWAYS = ("app.help", "app.palette", "app.detach")
"""Hints that stay when the line is too short; the rest is cut from the end."""
_PUNCTUATION = frozenset(map(_character_to_key, string.punctuation + " "))


class Hints(Line):
    """Keys and what they do; a click does it."""

    def __init__(self) -> None:
        super().__init__(id="hints")

    def parts(self, width: int) -> Parts:
        """Return as many hints as fit, the ones that always stay at the end."""
        mine, always = hints_of(self.screen.active_bindings, is_typing=isinstance(self.screen.focused, Input))
        always_shown = [hint for hint in always if hint]
        while always_shown and width_of([part for hint in always_shown for part in hint]) > width:
            always_shown.pop()
        free_width = width - width_of([part for hint in always_shown for part in hint]) - 1
        shown: list[Part] = [Part(" ")]
        for hint in mine:
            free_width -= width_of(hint)
            if free_width < 0:
                break
            shown += hint
        return tuple(shown + [part for hint in always_shown for part in hint])


def types(key: str) -> bool:
    """Whether a key writes a letter where there is a line to type in."""
    return len(key) == 1 or key in _PUNCTUATION


def hints_of(active: dict[str, ActiveBinding], *, is_typing: bool = False) -> tuple[list[Parts], list[Parts]]:
    """Return the hints of the place we are at, and those that are everywhere; one an action, its first key that does not type."""
    mine: dict[str, Parts] = {}
    always: dict[str, Parts] = {}
    for key, (node, binding, is_enabled, _tooltip) in active.items():
        if not binding.show or not is_enabled or not binding.description or (is_typing and types(key)):
            continue
        namespace = f"{node.id}" if node.id else ""
        into = always if binding.id in ALWAYS else mine
        name = binding.id or f"{namespace}.{binding.action}"
        into.setdefault(
            name,
            (
                Part(show_key(key), "key", f"keys.press('{key}')"),
                Part(f" {binding.description}   ", "muted", f"keys.press('{key}')"),
            ),
        )
    return list(mine.values()), [always[name] for name in ALWAYS if name in always]

"""What `?` and `:keys` show, made from the bindings that are really active.

Lines only, the sheet that holds them is `sheet.Sheet`.

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events

from aptui.tui.frame.line import Part, Parts
from aptui.tui.frame.sheet import BREAK, Lines, Sheet
from aptui.tui.preferences.keymap import EVERYWHERE, Keymap, show_key
from aptui.tui.terminal.safety import glyph

if TYPE_CHECKING:
    from textual.binding import ActiveBinding

    from aptui.tui.frame.commandline import Command

_KEYS_WIDTH, _FEW_KEYS_WIDTH, _DOES_WIDTH = 18, 12, 44
_ROOMY = 100


def help_lines(
    active: dict[str, ActiveBinding], keymap: Keymap, commands: Sequence[Command], title: str, width: int = 200
) -> list[Parts]:
    """Return an entry for each active action: those of the place, those that hold everywhere, the commands of the `:` line.

    No line of an entry is wider than `width` (see `sheet.BREAK`).
    """
    here: dict[str, list[str]] = {}
    does: dict[str, str] = {}
    everywhere: set[str] = set()
    for key, (_node, binding, _is_enabled, _tooltip) in active.items():
        name = binding.id
        action = keymap.actions.get(name or "")
        text = action.does if action else binding.description
        if not name or not text:
            continue  # Textual's own, for moving and for editing a line, have no id
        here.setdefault(name, []).append(show_key(key))
        does[name] = text
        if action is not None and action.scope == EVERYWHERE:
            everywhere.add(name)
    lines = [_heading(title)] + [_row(here[name], does[name], name, width) for name in here if name not in everywhere]
    lines += [(), _heading("everywhere")] + [_row(here[name], does[name], name, width) for name in here if name in everywhere]
    lines += [(), _heading("commands")] + [_row([f":{each.name}"], each.does, "", width) for each in commands]
    lines += [(), _heading("filter: what '/' takes, here and in 'aptui jobs --filter'")]
    lines += [_row([text], does, "filter", width) for text, does in FILTER]
    lines += [(), _heading("signs")] + [_row([_signs(names)], does, "signs", width) for names, does in SIGNS]
    return [
        (Part(" keys, then the filter, then signs: type 'filter' or 'signs' for those alone", "muted"),),
        (),
        *lines,
    ]


FILTER = (
    ("rock", "paths that match this regular expression, whatever their case"),
    (r"\.png$", "the end of a path; '.' alone is any character"),
    ('"my rock"', "quotes keep blanks, and make a status word a path"),
    ("failed", "a status: failed warnings errors completed processing pending cancelled"),
    ("status:failed,pending", "any of several"),
    ("!rock", "not that"),
    ("platform: key: builder:", "in a field; also folder: reason:"),
    ("error:IDAT", "in the error of a failed job"),
    ("cause:", "in what failures have in common, as 'f' groups them"),
    ("after:9:30 before:2h", "completed since 9:30, and not within the last two hours; also dates: 2026-11-20T23:01"),
    ("after:9:00..10:00", "both ends"),
    ("slower:1.5s faster:2m", "how long it took; also slower:1s..5s"),
    ("is:draft is:flaky", "a draft; it succeeded after a failed run; also is:critical"),
    ("one two", "terms with a blank between hold together"),
)
"""(what is typed, what it means) of the filter language."""
SIGNS = (
    (("failed", "error"), "failed; a line that is an error"),
    (("warning",), "completed with warnings; a line that is a warning; something to look at"),
    (("completed",), "completed"),
    (("processing",), "a worker is at it"),
    (("pending",), "waits for its turn, or for what it depends on"),
    (("cancelled",), "cancelled"),
    (("critical",), "critical: it runs before others"),
    (("mark",), "marked, or switched on in a menu"),
    (("cursor",), "where the keys act"),
    (("open",), "the tab in front; a folder that is open"),
    (("details",), "this line has details: Enter goes there"),
    (("wrapped",), "the line above goes on"),
)
"""(names of signs, what they mean)."""


def _signs(names: Sequence[str]) -> str:
    return "  ".join(dict.fromkeys(glyph(name) for name in names))


def _heading(text: str) -> Parts:
    return (Part(f" {text}", "title"),)


def _row(keys: Sequence[str], does: str, name: str, width: int) -> Parts:
    is_roomy = width >= _ROOMY
    shown = f"  {'  '.join(keys):<{_KEYS_WIDTH if is_roomy else _FEW_KEYS_WIDTH}} "
    indent = min(len(shown), (_KEYS_WIDTH if is_roomy else _FEW_KEYS_WIDTH) + 3)
    first, *more = textwrap.wrap(does, max(1, width - len(shown))) or [""]
    if more:
        more = textwrap.wrap(" ".join(more), max(1, width - indent))
    parts = [Part(shown, "key"), Part(f"{first:<{_DOES_WIDTH}}" if is_roomy and not more else first)]
    used = len(shown) + len(parts[-1].text)
    for line in more:
        parts += [BREAK, Part(f"{'':{indent}}{line}")]
        used = indent + len(line)
    if used + 2 + len(name) > width:
        parts, used = [*parts, BREAK], 0
    return (*parts, Part(f"  {name}" if is_roomy and used else f"{name:>{max(0, width - used)}}", "muted"))


class KeyTester(Sheet):
    """Shows what each key is called and what it would do here; twice `Esc` leaves."""

    def __init__(self) -> None:
        super().__init__("sheet-keys")
        self._active: dict[str, ActiveBinding] = {}
        self._keymap = Keymap()
        self._last = ""

    def start(self, active: dict[str, ActiveBinding], keymap: Keymap) -> None:
        """Begin to test the keys that are active now."""
        self._active, self._keymap, self._last = active, keymap, ""
        self.show([(Part(" Press keys to see what they are called and what they do. Esc twice leaves.", "title"),), ()])

    def on_key(self, event: events.Key) -> None:
        """Show a key instead of doing it."""
        event.stop()
        event.prevent_default()
        if event.key == self._last == "escape":
            self.post_message(self.SheetClosed())
            return
        self._last = event.key
        lines = self.query_one(Lines)
        self._all = [*self._all[:2], self._describe(event.key), *self._all[2:200]]
        lines.show(self._all)

    def _describe(self, key: str) -> Parts:
        found = self._active.get(key)
        if found is None:
            return (Part(f"  {show_key(key):<8}", "key"), Part(f"{key:<20}"), Part("nothing here", "muted"))
        name = found.binding.id or found.binding.action
        return (
            Part(f"  {show_key(key):<8}", "key"),
            Part(f"{key:<20}"),
            Part(f"{self._keymap.does(name) or found.binding.description}  "),
            Part(name, "muted"),
        )

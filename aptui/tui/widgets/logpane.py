"""The log view `LogPane`: shows a `LineSource`, hides levels, follows new lines, pauses, wraps, and shows search hits and marks.

Sources of lines are in `log_sources`.

    pane = LogPane(MemoryLines(lines), id="event-log")
    …in the frame timer:  pane.refresh_source()
    pane.go_to_first_error()
    pane.set_search(spans_of, hits)     # the spans to highlight in a text, and the keys of all lines with a hit
    pane.modes()                        # "without debug lines  following  wrapped  paused, 37 new" for the title line
    pane.current()                      # the line under the cursor; on_rows_highlighted reports a new one

The `window` of a line names its origin. It is shown in a column of `window_cells` cells. If `window_cells` is 0, the origin is a
word before the text, except in lines that the engine itself wrote. `wraps` selects whether long lines are initially wrapped or cut.
Wrapped lines scroll by whole lines of the log.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.strip import Strip

from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Spans, fit, merge, pad, safe, width_of, wrap
from aptui.tui.widgets.log_sources import LEVEL_WORDS, LEVELS, LineSource, LogPaneLine, MemoryLines
from aptui.tui.widgets.row_list import RowLines, RowPainting, Rows


class WrappedLines(RowLines):
    """The lines of a list whose rows may take several screen lines.

    The last entry of a row's state is the number of the row's line to paint.

    Args:
        height_of: returns the number of screen lines of a row.
    """

    def __init__(self, view: Rows, painting: RowPainting, height_of: Callable[[int], int]) -> None:
        super().__init__(view, painting)
        self._height_of = height_of
        self._laid: list[tuple[int, int]] = []
        """(row, line of the row) for each screen line; empty = the lines must be laid out again."""

    def draw(self, y: int) -> Strip | None:
        """Return the strip of a screen line, None if no row is at that line."""
        if y == 0 or not self._laid:
            self._laid = self.lay_out()
        if y >= len(self._laid):
            return None
        index, part = self._laid[y]
        state = (*self.view.row_state(index)[:-1], part)
        width = self.painting.width
        return Strip(merge(pad(self.view.draw_row(state), width, self.painting.painter.ground)), width)

    def lay_out(self) -> list[tuple[int, int]]:
        """Return (row, line of the row) for each screen line."""
        rows: list[tuple[int, int]] = []
        index, height = self.view.top, self.view.scrollable_content_region.height
        while len(rows) < height and index < self.view.count_rows():
            rows += [(index, part) for part in range(self._height_of(index))]
            index += 1
        return rows[:height]

    def row_at(self, y: int) -> int | None:
        """Return the row at a line of the widget."""
        return self._laid[y][0] if 0 <= y < len(self._laid) else None

    def forget(self) -> None:
        """Lay out all lines again."""
        super().forget()
        self._laid = []

    def refresh_row(self, index: int) -> None:
        """Draw a row again."""
        if not self._laid:  # no lines are laid out yet, so the screen lines of the row are unknown
            self.view.refresh()
            return
        lines = [y for y, (row, _) in enumerate(self._laid) if row == index]
        if lines:
            self.view.refresh(Region(0, lines[0], self.view.size.width, len(lines)))

    def refresh_changed(self) -> None:
        """Draw all lines again: the heights of rows may have changed."""
        self._laid = []
        self.view.refresh()

    def show_cursor(self) -> None:
        """Scroll as little as possible to show all screen lines of the cursor's row."""
        view = self.view
        if not view.is_attached or not view.scrollable_content_region.height:
            return
        visible_height, first = view.scrollable_content_region.height, view.cursor
        needed = self._height_of(first) if view.shown_count else 0
        while first > 0 and needed <= visible_height and first > view.top:
            needed += self._height_of(first - 1)
            first -= 1
        top = min(view.cursor, first if needed <= visible_height else first + 1)
        if top != view.top and (view.cursor < view.top or top > view.top):
            view.scroll_to(y=top, animate=False, force=True)
        self._laid = []


_SHOWN_ORDER = "IWED"
_LEVEL_NAMES = {"I": "infos", "W": "warnings", "E": "errors", "D": "debug lines"}
_LEVEL_CELLS = 9
_MOST_CHARS = 16_384
"""Maximum number of characters of a line that are measured and drawn; an ellipsis replaces the rest."""
_SHIFT_CELLS = 16
_LEAST_FOR_WINDOW, _LONGEST_WINDOW = 76, 20
_BEFORE_CONTEXT, _LEAST_VALUE, _BETWEEN_PAIRS = 14, 12, "   "
"""Layout of the details below a line: indent (cells), minimum width of a value (cells), and text between two values.

With this indent the details begin below the level of the line.
"""
_ENGINES_OWN = frozenset({"", "aptui", "none"})
"""Origins that are never shown as a word before the text, because most lines of the engine's log have one of them."""


class LogPane(Rows):
    """A pane that shows a log; the module docstring describes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "follow", id="log.follow", show=False),
        Binding("ctrl+s", "pause", "pause", id="log.pause", show=False),
        Binding("ctrl+w", "wrap", "wrap long lines", id="log.wrap", show=False),
        Binding("e", "step('E', 1)", "next error", id="log.next_error", show=False),
        Binding("E", "step('E', -1)", "previous error", id="log.previous_error", show=False),
        Binding("w", "step('W', 1)", "next warning", id="log.next_warning", show=False),
        Binding("W", "step('W', -1)", "previous warning", id="log.previous_warning", show=False),
        Binding("n", "hit(1)", "next hit", id="log.next_hit", show=False),
        Binding("N", "hit(-1)", "previous hit", id="log.previous_hit", show=False),
        Binding("I", "level('I')", "show or hide infos", id="log.infos", show=False),
        Binding("H", "level('D')", "show or hide debug lines", id="log.debugs", show=False),
        Binding("right", "shift(1)", "see more of long lines", id="log.right", show=False),
        Binding("left", "shift(-1)", "back to the start of lines", id="log.left", show=False),
    ]

    class ModesChanged(Rows.ListMessage):
        """Posted when follow, pause, wrap or the levels changed, so that the screen draws `modes()` again."""

    def __init__(self, source: LineSource | None = None, *, window_cells: int = 14, wraps: bool = False, **named: Any) -> None:
        super().__init__(**named)
        self.source: LineSource = source or MemoryLines()
        self._window_cells, self._wraps = window_cells, wraps
        self._seen_version: int | None = None
        self._paused_key: int | None = None
        """Key of the last line that a pause shows, None = no pause."""
        self._paused_count = 0
        self._levels = LEVELS
        self._shown: Sequence[int] | None = None
        self._offset = 0
        self._spans_of: Callable[[str], Spans] | None = None
        self._hits: Sequence[int] = ()
        self._search_number = 0
        self.is_following = False
        self.shows_context = False
        """Whether the details of a wrapped line are shown below the line."""
        self._plain, self._wrapped = self.row_lines, WrappedLines(self, self.painting, self._height_of)
        self.is_wrapped = wraps

    # -------------------------------------------------------------------------------------------------------------- the lines

    def set_source(self, source: LineSource) -> None:
        """Show another log from its first line; the settings of levels, wrap and follow do not change."""
        self.source = source
        self.marks.clear()
        self._seen_version = self._paused_key = None
        self.cursor, self.cursor_key = 0, None
        self.refresh_source()
        self.move_cursor(0)

    def renew_source(self, source: LineSource) -> None:
        """Show a newer state of the same log.

        A cursor on the last line goes to the new last line, unless the log is paused. Any other cursor stays on its line.
        Marks are kept.
        """
        is_at_end = self._paused_key is None and self.shown_count and self.cursor == self.shown_count - 1
        self.source, self._seen_version = source, None
        self.refresh_source()
        if is_at_end:
            self.move_cursor(self.shown_count - 1)

    def refresh_source(self) -> None:
        """Show new lines; call it once per frame."""
        if self.source.version == self._seen_version:
            return
        self._seen_version = self.source.version
        self._renew()
        if self._paused_key is not None:
            self.post_message(self.ModesChanged(self))

    def set_window_cells(self, cells: int) -> None:
        """Set the width of the window column."""
        if cells != self._window_cells:
            self._window_cells = cells
            self.row_lines.forget()
            self.painting.forget()

    def _renew(self) -> None:
        self._shown = None if self._levels == LEVELS else self.source.of_levels(self._levels)
        if (last := self._paused_key) is not None:
            rows = range(self._count_lines())
            self._paused_count = bisect.bisect_right(rows, last, key=lambda index: self.source.key(self._place(index)))
        self.refresh_rows()
        if self.is_following and self.shown_count:
            self.move_cursor(self.shown_count - 1)

    def show_context(self, is_on: bool) -> None:
        """Show or hide the details below each line; they are shown only if lines are wrapped."""
        if is_on != self.shows_context:
            self.shows_context = is_on
            self.row_lines.forget()
            self.refresh()

    def current(self) -> LogPaneLine | None:
        """Return the line under the cursor."""
        return self.source.line(self._place(self.cursor)) if self.shown_count else None

    def go_to_first_error(self) -> bool:
        """Put the cursor on the first error; without errors on the first warning; without warnings on the last line.

        Return whether the log has an error.
        """
        for level in "EW":
            place = 0 if self.shown_count and self.source.line(0).level == level else self.source.next_of(0, level, 1)
            if place is not None and self.move_to_key(self.source.key(place)):
                return level == "E"
        self.action_last()
        return False

    def set_search(self, spans_of: Callable[[str], Spans] | None, hits: Sequence[int] = ()) -> None:
        """Highlight in each text the ranges that `spans_of` returns; n and N move along `hits`, the ascending keys of lines."""
        self._spans_of, self._hits = spans_of, hits
        self._search_number += 1
        self.refresh()

    def modes(self) -> str:
        """Return a text that names hidden log levels and active modes, such as "following"; "" in the default state."""
        hidden = [_LEVEL_NAMES[level] for level in _SHOWN_ORDER if level not in self._levels]
        words = [f"without {' and '.join(hidden)}"] if hidden else []
        words += ["following"] if self.is_following else []
        if self.is_wrapped != self._wraps:
            words.append("wrapped" if self.is_wrapped else "cut")
        if self._paused_key is not None:
            words.append(f"paused, {self._count_lines() - self._paused_count:,} new")
        return "  ".join(words)

    @property
    def levels(self) -> str:
        """The visible levels in the order of `LEVELS`."""
        return self._levels

    @levels.setter
    def levels(self, levels: str) -> None:
        self._levels = "".join(level for level in LEVELS if level in levels)
        self._renew()
        self.post_message(self.ModesChanged(self))

    # ------------------------------------------------------------------------------------------------------ methods of `Rows`

    def _place(self, index: int) -> int:
        return index if self._shown is None else self._shown[index]

    def count_rows(self) -> int:
        """Return the number of visible lines."""
        count = self._count_lines()
        return count if self._paused_key is None else min(count, self._paused_count)

    def _count_lines(self) -> int:
        """Return the number of lines of the visible levels, including those that a pause hides."""
        return self.source.line_count() if self._shown is None else len(self._shown)

    def key_of(self, index: int) -> int:
        """Return the key of a line."""
        return self.source.key(self._place(index))

    def index_of(self, key: int) -> int | None:
        """Return the index of a line among the visible lines."""
        place = self.source.index_of(key)
        if place is None or self._shown is None:
            return place
        at = bisect.bisect_left(self._shown, place)
        return at if at < len(self._shown) and self._shown[at] == place else None

    def row_state(self, index: int) -> tuple[object, ...]:
        """Return all that determines how a line is drawn: the line, cursor, focus, mark, scroll offset, number of the search."""
        line = self.source.line(self._place(index))
        is_cursor = index == self.cursor
        is_lit = is_cursor and self.has_focus
        return (line, is_cursor, is_lit, self.marks.has(index, self.key_of(index)), self._offset, self._search_number, 0)

    def draw_row(self, state: tuple[object, ...]) -> list[Segment]:
        """Paint one screen line. The last entry of `state` is its number within a wrapped line of the log, from 0."""
        line, is_cursor, is_lit, is_mark, offset, _, part = cast(tuple[LogPaneLine, bool, bool, bool, int, int, int], state)
        painter, width = self.painting.painter, self.painting.width
        head, text_role = self._head(line, is_lit=is_lit)
        taken = sum(width_of(piece.text) for piece in head)
        text, spans = self._text(line)
        edge = self.edge(is_cursor=is_cursor, is_mark=is_mark, painter=painter)
        if not self.is_wrapped:
            return [
                edge,
                *head,
                *painter.pieces(
                    fit(text, width - taken - 1, spans=spans, offset=offset, is_prose=True), text_role, is_cursor=is_lit
                ),
            ]
        pieces = wrap(text, width - taken - 1)
        if part >= len(pieces):
            row_parts = self._context_rows(line)[part - len(pieces)]
            texts = [Segment(text, painter.style(role, is_cursor=is_lit)) for text, role in row_parts]
            return [edge, Segment(" " * _BEFORE_CONTEXT, painter.style("", is_cursor=is_lit)), *texts]
        start, end = pieces[part]
        cut = tuple((max(a, start) - start, min(b, end) - start) for a, b in spans if a < end and b > start)
        row = fit(text[start:end].rstrip().ljust(1), max(1, width - taken - 1), spans=cut)
        if part:
            head = [Segment(" " * taken, painter.style("", is_cursor=is_lit))]
        return [edge, *head, *painter.pieces(row, text_role, is_cursor=is_lit)]

    def _head(self, line: LogPaneLine, *, is_lit: bool) -> tuple[list[Segment], str]:
        """Return the painted time, level and origin of a line, as far as they fit, and the style role of its text."""
        painter, width = self.painting.painter, self.painting.width
        role = LEVEL_WORDS.get(line.level, "")
        text_role = role if role == "debug" else ""
        plain, pieces = painter.style("", is_cursor=is_lit), []
        if line.time and width >= 60:
            pieces += [Segment(fit(line.time, 12).text, painter.style("muted", is_cursor=is_lit)), Segment("  ", plain)]
        if role:
            text = f"{glyph(role)} {role.capitalize()}" if width >= 40 else glyph(role)
            pieces += [Segment(fit(text, _LEVEL_CELLS if width >= 40 else 1).text, painter.style(role, is_cursor=is_lit))]
            pieces += [Segment("  " if width >= 40 else " ", plain)]
        if not self._window_cells and line.window not in _ENGINES_OWN:
            pieces.append(
                Segment(
                    f"{fit(line.window, min(width_of(line.window), _LONGEST_WINDOW)).text}  ",
                    painter.style("muted", is_cursor=is_lit),
                )
            )
        elif self._window_cells and width >= _LEAST_FOR_WINDOW and (line.window or line.time):
            pieces += [
                Segment(fit(line.window, self._window_cells).text, painter.style("muted", is_cursor=is_lit)),
                Segment("  ", plain),
            ]
        pieces.append(Segment(f"{glyph('details')} " if line.has_details else "", painter.style("accent", is_cursor=is_lit)))
        return [piece for piece in pieces if piece.text], text_role

    def _text(self, line: LogPaneLine) -> tuple[str, Spans]:
        text = _cut(line.text)
        spans = line.spans
        if self._spans_of is not None:
            text = safe(text).text
            spans = tuple(self._spans_of(text))
        return safe(text, spans)

    # --------------------------------------------------------------------------------------------------------------- wrapping

    @property
    def is_wrapped(self) -> bool:
        """Whether long lines are wrapped."""
        return self.row_lines is self._wrapped

    @is_wrapped.setter
    def is_wrapped(self, value: bool) -> None:
        self.row_lines = self._wrapped if value else self._plain
        self.row_lines.forget()

    def _height_of(self, index: int) -> int:
        """Return the number of screen lines of a wrapped line."""
        line = self.source.line(self._place(index))
        width = self.painting.width
        taken = sum(width_of(piece.text) for piece in self._head(line, is_lit=False)[0])
        return len(wrap(self._text(line)[0], width - taken - 1)) + len(self._context_rows(line))

    def _context_rows(self, line: LogPaneLine) -> list[list[tuple[str, str]]]:
        """Return the details of a line as rows of (text, role), several short details in one row; [] if details are hidden."""
        rows: list[list[tuple[str, str]]] = []
        free_width, used = max(_LEAST_VALUE, self.painting.width - _BEFORE_CONTEXT - 1), 0
        for key, value in line.context if self.shows_context else ():
            name = f"{safe(key).text}  "
            cells = max(_LEAST_VALUE, free_width - width_of(name))
            first, *more = [
                text[a:b] for each in value.splitlines() or [""] for text in [safe(each).text] for a, b in wrap(text, cells)
            ]
            needed = width_of(name + first)
            if rows and not more and used + needed + len(_BETWEEN_PAIRS) <= free_width:
                rows[-1].append((_BETWEEN_PAIRS, ""))
                used += needed + len(_BETWEEN_PAIRS)
            else:
                rows.append([])
                used = free_width if more else needed
            rows[-1] += [(name, "key"), (first, "value")]
            rows += [[(" " * width_of(name), ""), (text, "value")] for text in more]
        return rows

    def cut_text(self) -> str:
        """Return the text of the line under the cursor if the text does not fit into its row, else ""."""
        if self.is_wrapped or not self.painting.width or self.cursor >= self.count_rows() or self._height_of(self.cursor) == 1:
            return ""
        return _cut(self.source.line(self._place(self.cursor)).text)

    @property
    def max_scroll_y(self) -> int:
        """Largest scroll position (rows). If lines are wrapped, even the last line can be scrolled to the top."""
        return max(0, self.shown_count - 1) if self.is_wrapped else super().max_scroll_y

    # --------------------------------------------------------------------------------------------------------------- actions

    def move_cursor(self, index: int) -> None:
        """Put the cursor on a line. If this is not the last line, stop following new lines."""
        if self.is_following and index < self.shown_count - 1:
            self.is_following = False
            self.post_message(self.ModesChanged(self))
        super().move_cursor(index)

    def action_follow(self) -> None:
        """Start or stop following the last line."""
        self.is_following = not self.is_following
        if self.is_following:
            self._paused_key = None
            self._renew()
        self.post_message(self.ModesChanged(self))

    def end_pause(self) -> None:
        """End a pause, because another log is shown."""
        if self._paused_key is not None:
            self.action_pause()

    def action_pause(self) -> None:
        """Start or stop a pause; during a pause no new lines are shown."""
        if self._paused_key is None:
            count = self.source.line_count()
            self._paused_key = self.source.key(count - 1) if count else -1
        else:
            self._paused_key = None
        self._renew()
        self.post_message(self.ModesChanged(self))

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.is_wrapped = not self.is_wrapped
        self._offset = 0
        self.row_lines.forget()
        self.painting.forget()
        if self.is_attached:
            self.scroll_to(y=min(self.top, self.max_scroll_y), animate=False, force=True)
        self.row_lines.show_cursor()
        self.refresh()
        self.post_message(self.ModesChanged(self))

    def action_level(self, level: str) -> None:
        """Show or hide the lines of a log level; the last visible level cannot be hidden."""
        levels = set(self._levels) ^ {level}
        if levels:
            self.levels = "".join(levels)

    def action_step(self, levels: str, step: int) -> None:
        """Go to the next or previous line with one of these levels, unless that line is hidden."""
        place = self.source.next_of(self._place(self.cursor), levels, step) if self.shown_count else None
        if place is not None:
            self.move_to_key(self.source.key(place))

    def action_hit(self, step: int) -> None:
        """Go to the next or previous hit; hits in hidden lines are skipped."""
        if self.cursor_key is None:
            return
        at = bisect.bisect_right(self._hits, self.cursor_key) if step > 0 else bisect.bisect_left(self._hits, self.cursor_key) - 1
        while 0 <= at < len(self._hits) and not self.move_to_key(self._hits[at]):
            at += step

    def action_shift(self, steps: int) -> None:
        """Scroll long lines horizontally."""
        self._offset = 0 if self.is_wrapped else max(0, self._offset + steps * _SHIFT_CELLS)
        self.refresh()


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}{glyph('ellipsis')}"

"""The output layer: stores what Textual draws as cells, and sends the differences to the terminal when the connection is free.

When Textual draws, it passes regions to this layer. They only change `_drawn`, the intended content of the screen. A frame is the
difference between `_drawn` and the content of the terminal, so ten drawings while the connection is busy cost one frame. Other
output is written at once, in order. If it may have changed cells, the whole screen is sent again (`forget`).

The text of cells is already safe (`safety.safe_segments`), and `FramePainter` sends only printable text.

`Pace` decides when the next frame may be sent: when the terminal has shown the previous frame. If frames were sent earlier, they
would queue up on a slow connection, and the user would see old frames.

Each frame is followed by a query for the cursor; its reply proves that the frame arrived. After a key, a second frame may be sent
before this reply, so that the echo of the key does not wait for an earlier frame. If the terminal never replies, the next frame is
sent when the terminal has accepted the output.

On a slow connection, these rules are not enough: most keys would wait for a background update. So updates are drawn so rarely
(`rest_s`) that the connection is mostly free. For this, the time per byte is measured: the delay of a reply compared with the
quickest reply, divided by the number of bytes of its frame. Between a key and the frame that echoes it, no update is applied or
drawn (`key_s`), because on a slow processor the key would wait for the update.

Tests: `tests/tui/terminal/output/test_layer.py`, `tests/tui/terminal/output/test_slow_line.py`.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from textual._compositor import ChopsUpdate, LayoutUpdate

from aptui.tui.terminal import safety
from aptui.tui.terminal.output.painter import (
    REPEATS_ALL,
    REPEATS_ASCII,
    SCROLLS_COLUMNS,
    Abilities,
    Columns,
    FramePainter,
    Pen,
    Row,
    StyleCache,
)
from aptui.tui.terminal.pixels import PixelPicture, PixelScreen, placeholder

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style
    from textual.strip import Strip


ECHO_S = 0.25
"""Maximum time between a key and the frame that echoes it (seconds)."""
_CHECK_S = 0.02
"""Interval between checks whether the echo was sent (seconds)."""
_ACTED_S = 1.0
"""Time after a key during which the user counts as active (seconds)."""
_TIMEOUT_S, _LONGEST_TIMEOUT_S = 2.0, 32.0
"""Timeouts of a reply (seconds): the first timeout, and the longest one after repeated timeouts."""
_MOST_UNANSWERED = 40
"""Number of unanswered queries after which a terminal that never replied is not queried again."""
_SLOW_S = 0.02
"""A frame that occupies the connection for less than this time does not noticeably delay keys (seconds)."""
_SHARE, _SHARE_AT_WORK = 10, 4
"""Updates may use at most 1/10 of the connection's capacity while the user is idle, and 1/4 while the user is active."""
_LONGEST_REST_S = 1.0
_ROUND_TRIP_GROWTH = 1.002
"""Factor by which the stored quickest round trip grows with each reply, because the connection may become slower."""
_LEAST_SEEN, _SAMPLED_FRAMES = 3, 8
"""`rest_s` delays updates only after `_LEAST_SEEN` frames were measured. It uses the newest `_SAMPLED_FRAMES` measured frames.

The first frames draw the whole screen, and updates must not wait after them.
"""
_LONG_BYTES, _SAMPLED_LONG_FRAMES = 1500, 4
"""Minimum size of a frame that `Pace.takes_s` uses (bytes), and maximum number of these frames that are kept.

In shorter frames, other delays dominate.
"""


class Pace:
    """The unanswered frames of one terminal, and the measured speed of the connection. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way: deque[tuple[float, int]] = deque()
        self._asked, self._answered = 0, 0
        self._timeout_s = _TIMEOUT_S
        self._quickest_s = math.inf
        self._seen: deque[tuple[float, int]] = deque(maxlen=_SAMPLED_FRAMES)
        self._long: deque[tuple[float, int]] = deque(maxlen=_SAMPLED_LONG_FRAMES)
        self._first_asked_s = math.inf
        self._left_s, self._left_bytes = -math.inf, 0
        self._drew_s = self._first_typed_s = -math.inf
        self.typed_s = -math.inf
        """Time of the last key (seconds)."""
        self.round_trip_s = 0.0
        """Round trip of the last reply (seconds)."""

    @property
    def asks(self) -> bool:
        """Whether to query the terminal after the next frame; False after too many queries to a terminal that has never replied."""
        return self._answered > 0 or self._asked < _MOST_UNANSWERED

    @property
    def answers(self) -> bool:
        """Whether the terminal has ever replied."""
        return self._answered > 0

    @property
    def under_way(self) -> int:
        """Number of queries that are not answered yet."""
        return len(self._under_way)

    def note_key(self) -> None:
        """Record the time of a key press."""
        with self._lock:
            now_s = self._clock()
            if self._first_typed_s <= self._drew_s:
                self._first_typed_s = now_s
            self.typed_s = now_s

    def note_sent_frame(self) -> None:
        """Record the time of a sent frame. The frame may show the effect of the last key."""
        self._drew_s = self._clock()

    def key_s(self) -> float:
        """Return the delay before the next check whether a key was echoed (seconds), 0 = no key waits for its echo.

        A key that draws nothing, such as `j` on the last row, delays updates once, by `ECHO_S`.
        """
        with self._lock:
            return _CHECK_S if self._drew_s < self._first_typed_s and self._clock() < self._first_typed_s + ECHO_S else 0.0

    def echoes(self) -> bool:
        """Return whether a frame that is drawn now may echo a key."""
        return self._clock() < self.typed_s + ECHO_S

    def note_frame(self, size: int = 0) -> None:
        """Note that a frame of `size` bytes was sent, followed by a query."""
        with self._lock:
            now_s = self._clock()
            self._asked += 1
            self._first_asked_s = min(self._first_asked_s, now_s)
            self._under_way.append((now_s, size))
            self._left_s, self._left_bytes = now_s, size

    def note_answer(self) -> None:
        """Note the reply to the oldest query."""
        with self._lock:
            self._answered += 1
            self._timeout_s = _TIMEOUT_S
            if not self._under_way:
                return
            sent_s, size = self._under_way.popleft()
            self.round_trip_s = self._clock() - sent_s
            self._quickest_s = min(self._quickest_s * _ROUND_TRIP_GROWTH, self.round_trip_s)
            if size:
                self._seen.append((self.round_trip_s - self._quickest_s, size))
            if size >= _LONG_BYTES:
                self._long.append((self.round_trip_s, size))

    def wait_s(self) -> float:
        """Return the maximum time that the next frame waits (seconds), 0 = send it now; a reply may end the wait earlier."""
        with self._lock:
            if not self._answered or len(self._under_way) < (2 if self.echoes() else 1):
                return 0.0
            lost_s = self._under_way[-1][0] + self._timeout_s
            if (left_s := lost_s - self._clock()) > 0:
                return left_s
            self._under_way.clear()
            self._timeout_s = min(self._timeout_s * 2, _LONGEST_TIMEOUT_S)
            return 0.0

    def rest_s(self) -> float:
        """Return how long updates must wait so that the connection is free for keys (seconds)."""
        with self._lock:
            if len(self._seen) < _LEAST_SEEN:
                return 0.0
            filled_s = self._left_bytes * sum(each for each, _ in self._seen) / sum(size for _, size in self._seen)
            if filled_s < _SLOW_S:
                return 0.0
            now_s = self._clock()
            share = _SHARE_AT_WORK if now_s < self.typed_s + _ACTED_S else _SHARE
            return max(0.0, self._left_s + min(filled_s * share, _LONGEST_REST_S) - now_s)

    def takes_s(self, size: int) -> float | None:
        """Return the minimum time that `size` bytes occupy the connection (seconds), None = not measured yet.

        It is computed from two values: the quickest reply, and the quickest of the measured frames with at least `_LONG_BYTES`
        bytes. A terminal that does not reply is treated as fast.
        """
        with self._lock:
            if self._long:
                return size * min(max(0.0, round_trip_s - self._quickest_s) / seen for round_trip_s, seen in self._long)
            is_silent = not self._answered and self._clock() - self._first_asked_s > _TIMEOUT_S
            return 0.0 if is_silent else None

    def forget(self) -> None:
        """Expect no more replies, because the terminal is lent to another program."""
        with self._lock:
            self._under_way.clear()
            self._seen.clear()
            self._long.clear()
            self._quickest_s = self._first_asked_s = math.inf


_QUESTION = "\x1b[6n"
"""Query for the position of the cursor; the terminal replies after it has handled all earlier output."""
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_TESTED_COLUMN = 3
"""Column (counted from 0) to which the output of each test in `_TESTS` moves the cursor if the terminal has the tested ability."""
_TESTS = {
    # The tests write in the last line of the screen, which is empty until the first frame. The first test repeats a blank (ASCII),
    # the second repeats a no-break space. These are two tests, because tmux repeats only ASCII characters.
    REPEATS_ASCII: ("\x1b[999;1H \x1b[2b", ""),
    REPEATS_ALL: ("\x1b[999;1H\xa0\x1b[2b", ""),
    SCROLLS_COLUMNS: ("\x1b[?69h\x1b[4;9s\x1b[999;6H\r", "\x1b[s\x1b[?69l"),  # \r moves the cursor to the left margin
}
"""{ability: (output that moves the cursor to `_TESTED_COLUMN` if the terminal has the ability, output that undoes it)}."""
_HARMLESS = re.compile(r"(?:\x1b\][^\x1b\x07]*(?:\x07|\x1b\\)|\x07|\x1b\[[?>=<][0-9;]*\$?[a-zA-Z])*(?:\x1bP\x1b\].*)?", re.DOTALL)
"""Matches output that does not change cells, cursor or pen: titles, the clipboard, links, the bell, modes, queries."""
_MOST_PENS_REMEMBERED = 4096
_FIRST_NUMBER = 16
"""Smallest number of a picture.

The first number that is used is random, because another program in the same tmux may show pictures too.
"""


class OutputLayer:
    """Sends frames to the terminal.

    Args:
        send: writes to the terminal, in order with other output.
        loop: the app's event loop; frames are made there.
        is_taken: returns whether the terminal has accepted all output.
    """

    def __init__(
        self,
        send: Callable[[str], object],
        abilities: Abilities,
        loop: asyncio.AbstractEventLoop,
        is_taken: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._loop, self._is_taken = send, loop, is_taken
        self._pens = StyleCache()
        self._painter = FramePainter(self._pens, abilities)
        self.pace = Pace(clock)
        self.frame_count = 0
        self.is_synchronized = False
        """Whether the terminal shows a frame only when it is complete (synchronized output)."""
        self._drawn: list[Row] = []
        self._dirty: dict[int, set[Columns]] = {}
        self._cursor = self._left_at = (0, 0)
        self._is_known = self._is_open = False
        self._tests: deque[str] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._pen_of: dict[Style | None, Pen] = {}
        self.pixels: PixelScreen | None = None
        """How the terminal shows pixels; None = it shows only cells, or was not asked."""
        self._pictures: dict[int, PixelPicture] = {}
        self._last_number = _FIRST_NUMBER + random.randrange(256 - _FIRST_NUMBER)
        self._picture_of: dict[Pen, int] = {}

    # --------------------------------------------------------------------------------------- the connection to the terminal

    def open(self) -> None:
        """Start with unknown content of the terminal, and test its abilities."""
        self._is_open, self._is_known = True, False
        self.pace.forget()
        self._tests.clear()
        for ability, (output, undo) in _TESTS.items():
            if output.isascii() or safety.facts().is_utf8:
                self._tests.append(ability)
                self.pace.note_frame()
                self._send(output + _QUESTION + undo)
        for picture in self._pictures.values():
            self._store(picture)

    def close(self) -> None:
        """Stop the output: remove pictures from the terminal, and reset its colours and attributes for the next program."""
        if self._is_open:
            removals = "".join(picture.removal for picture in self._pictures.values())
            has_links = any(pen.link for pen in self._pen_of.values())
            self._send(removals + ("\x1b]8;;\x1b\\\x1b[m" if has_links else "\x1b[m"))
        self._is_open = self._is_known = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note_answer(self, column: int) -> None:
        """Note the reply to a query: the column of the cursor, counted from 0; thread-safe."""
        if self._tests:
            ability = self._tests.popleft()
            (self._painter.tested.add if column == _TESTED_COLUMN else self._painter.tested.discard)(ability)
        self.pace.note_answer()
        self.wake()

    def wake(self) -> None:
        """Check soon whether a frame can be sent; thread-safe."""
        try:
            self._loop.call_soon_threadsafe(self._flush)
        except RuntimeError:
            return  # the event loop has ended

    def forget(self) -> None:
        """Send everything again, because the content of the terminal is unknown; thread-safe."""
        self._is_known = False
        self.wake()

    def note_other_output(self, data: str) -> None:
        """Note output that is not a frame; if it may have changed cells, the whole screen is sent again."""
        if self._is_open and not _HARMLESS.fullmatch(data):
            self.forget()

    # ------------------------------------------------------------------------------------------------------------- pictures

    def new_number(self) -> int:
        """Return a number for a picture that no other picture of this screen has."""
        self._last_number = _FIRST_NUMBER + (self._last_number + 1 - _FIRST_NUMBER) % (256 - _FIRST_NUMBER)
        return self._last_number

    def restore_pictures(self) -> None:
        """Send the stored pictures again, because another terminal may show the screen."""
        for picture in self._pictures.values():
            self._store(picture)
        self.forget()

    def add_picture(self, picture: PixelPicture) -> None:
        """Register a picture; cells with its number show it from then on."""
        self._pictures[picture.number] = picture
        self._painter.shows_placeholders = bool(picture.removal)
        self._painter.has_sixels |= not picture.removal
        if self._is_open:
            self._store(picture)

    def remove_picture(self, number: int) -> None:
        """Remove a picture; the caller draws other cells in its place."""
        picture = self._pictures.pop(number, None)
        if picture is not None and picture.removal and self._is_open:
            self._send(picture.removal)

    def _store(self, picture: PixelPicture) -> None:
        """Send a picture that the terminal stores; its size is included in the measurement of the connection's speed."""
        if picture.removal:
            self._send(picture.data + _QUESTION)
            self.pace.note_frame(len(picture.data))

    def _sixels(self) -> str:
        """Return the sixel pictures whose cells are all visible, with their positions.

        Pictures that reach the last line are left out: they would scroll the screen.
        """
        out, corner = "", placeholder(0, 0)
        for y, row in enumerate(self._drawn):
            for x, text in enumerate(row.texts):
                if text == corner and (pen := row.pens[x]) is not None:
                    picture = self._pictures.get(self._picture_of.get(pen, -1))
                    if picture is not None and y + picture.rows < len(self._drawn) and self._is_whole(picture, y, x):
                        out += f"\x1b[{y + 1};{x + 1}H{picture.data}"
        return out

    def _is_whole(self, picture: PixelPicture, top: int, left: int) -> bool:
        return all(
            self._drawn[top + row].texts[left : left + picture.columns] == [placeholder(row, at) for at in range(picture.columns)]
            for row in range(picture.rows)
        )

    # --------------------------------------------------------------------------------------------------------------- frames

    def show(self, update: object, console: Console, size: tuple[int, int], cursor: tuple[int, int]) -> bool:
        """Accept an update; return whether its kind is supported.

        Args:
            update: an update of Textual's compositor.
            console: the console with the terminal's colours.
            size: (columns, lines) of the screen.
            cursor: (column, line), inside the screen.
        """
        if not self._is_open or not isinstance(update, (LayoutUpdate, ChopsUpdate)):
            return False
        width, height = size
        if len(self._drawn) != height or (height and len(self._drawn[0].texts) != width):
            self._drawn = [Row.blank(width, self._pens.plain) for _ in range(height)]
            self._is_known = False
        self._cursor = cursor
        for y, x, strip in _pieces(update):
            if 0 <= y < height:
                self._write(y, x, strip, console)
        self._flush()
        return True

    def _write(self, y: int, x: int, strip: Strip, console: Console) -> None:
        row = self._drawn[y]
        self._dirty.setdefault(y, set()).add((x, x + strip.cell_length))
        goes_on = False
        for text, style, _ in safety.safe_segments(strip):
            if text:
                pen = self._pen_of.get(style) or self._pen(style, console)
                if place := safety.picture_row(text, style):
                    x = self._write_picture(row, x, text, place, pen)
                else:
                    x = row.write(x, text, pen, goes_on=goes_on)
                goes_on = True

    def _write_picture(self, row: Row, x: int, text: str, place: tuple[int, int], pen: Pen) -> int:
        """Write cells of a picture and return the column after them.

        The colour of these cells encodes the number of the picture. It is set here, because Textual converts indexed colours to
        RGB.
        """
        number, line = place
        pen = self._pens.pen(";".join(filter(None, (f"38;5;{number}", pen.background))))
        self._picture_of[pen] = number
        cells = tuple(placeholder(line, ord(each) - safety.FIRST_COLUMN) for each in text)
        return row.write_cells(x, cells, (pen,) * len(cells))

    def _pen(self, style: Style | None, console: Console) -> Pen:
        if len(self._pen_of) > _MOST_PENS_REMEMBERED:
            self._pen_of.clear()
        pen = self._pen_of[style] = self._pens.pen(*safety.sgr_and_link(style, console))
        return pen

    def _flush(self) -> None:
        """Send a frame if there are differences and the connection is free; otherwise check again when it may be free."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_open or not self._drawn or not (self._dirty or not self._is_known or self._cursor != self._left_at):
            return
        if not self._is_taken():
            return  # no timer is needed, because the driver calls `wake` after each write
        wait_s = self.pace.wait_s()
        if wait_s > 0:
            self._timer = self._loop.call_later(wait_s, self._flush)
            return
        self._send_frame()

    def _send_frame(self) -> None:
        if not self._is_known:
            self._painter.forget(len(self._drawn[0].texts), len(self._drawn))
            self._dirty = {y: set() for y in range(len(self._drawn))}
            self._is_known = True
        frame = self._painter.paint(self._drawn, self._dirty, self._cursor)
        self._dirty.clear()
        self._painter.has_sixels = any(not picture.removal for picture in self._pictures.values())
        self._left_at = self._cursor
        if not frame:
            return
        if self._painter.has_touched_pictures and not self._painter.shows_placeholders:
            frame += f"{self._sixels()}\x1b[{self._cursor[1] + 1};{self._cursor[0] + 1}H"
        self.pace.note_sent_frame()
        if self.is_synchronized:
            frame = f"{_BEGIN}{frame}{_END}"
        if self.pace.asks:
            frame += _QUESTION
            self.pace.note_frame(len(frame.encode()))
        self.frame_count += 1
        self._send(frame)


def _pieces(update: LayoutUpdate | ChopsUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Yield (line, column, strip) for each strip of an update."""
    if isinstance(update, LayoutUpdate):
        for y, line in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in line:
                yield y, x, strip
                x += strip.cell_length
        return
    for y, first, last in update.spans:
        for end, (x, chop) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if chop is not None and x <= last and end > first:
                yield y, x, chop if last > x >= first and end <= last else chop.crop(0, min(end, last) - x)

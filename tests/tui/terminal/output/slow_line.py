"""A simulated screen behind a slow connection, with a simulated clock. Its rows change all the time, and tests press keys."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace

from rich.console import Console
from rich.segment import Segment
from rich.style import Style

from aptui.tui.drawing import FrameClock
from aptui.tui.terminal.output.layer import OutputLayer
from aptui.tui.terminal.output.painter import Abilities
from tests.tui.model_terminal import ModelTerminal
from tests.tui.terminal.output.harness import picture

COLUMNS, LINES = 160, 45
_TOP, ROWS = 5, 20
"""First line of the table on the screen, and number of rows of the table."""
_PARTS, _STEPS = 6, 6
_STATUSES = ("pending", "processing", "completed", "failed")
_CURSOR = Style(bgcolor="#2b3647")


class SimulatedLoop:
    """An event loop whose clock jumps to the next due callback."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()

    def call_later(
        self, wait_s: float, do: Callable[..., object], *arguments: object, context: object = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback."""
        handle = asyncio.TimerHandle(self.now_s + wait_s, do, arguments, self)  # type: ignore[arg-type]  # it asks for little
        heapq.heappush(self._due, (handle.when(), next(self._numbers), handle))
        return handle

    def call_soon_threadsafe(self, do: Callable[..., object], *arguments: object, context: object = None) -> asyncio.TimerHandle:
        """Schedule a callback."""
        return self.call_later(0.0, do, *arguments)

    def get_debug(self) -> bool:
        """Schedule a callback."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing, because `run` skips cancelled timers."""

    def run(self, until_s: float) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until_s:
            at_s, _, handle = heapq.heappop(self._due)
            self.now_s = max(self.now_s, at_s)
            if not handle.cancelled():
                handle._callback(*handle._args)  # type: ignore[attr-defined]  # the loop's own affair
        self.now_s = max(self.now_s, until_s)


class FakeApp:
    """A fake app with the members that a frame clock uses."""

    is_running = True

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def set_timer(self, wait_s: float, do: Callable[[], object]) -> SimpleNamespace:
        self._loop.call_later(wait_s, do)
        return SimpleNamespace()

    def call_later(self, do: Callable[[], object]) -> None:
        self._loop.call_later(0.0, do)


class FarScreen:
    """A table with rows that change constantly. It is drawn over a simulated connection.

    Args:
        rate: bandwidth of the connection (bytes per second).
        round_trip_s: round-trip time of the idle connection.
        news_a_second: number of rows that change each second.
        heeds: whether updates give way to keys: updates are applied in parts and wait for the connection and for echoes.
        frame_s: processor time for applying and drawing one frame of updates (seconds). A key passes through several widgets; each
            of them takes a twentieth of this time.
    """

    def __init__(
        self, rate: float, round_trip_s: float, news_a_second: int, *, heeds: bool = True, frame_s: float = 0.0
    ) -> None:  # fmt: skip
        self.loop = SimulatedLoop()
        self._rate, self._half_s, self._news_s = rate, round_trip_s / 2, 1 / news_a_second
        self._console = Console(force_terminal=True, color_system="truecolor", width=COLUMNS, height=LINES)
        self._screen = ModelTerminal(COLUMNS, LINES)
        self._layer = OutputLayer(self._leave, Abilities(), self.loop, clock=lambda: self.loop.now_s)  # type: ignore[arg-type]
        rest_s = self._layer.pace.rest_s if heeds else lambda: 0.0
        key_s = self._layer.pace.key_s if heeds else lambda: 0.0
        self._clock = FrameClock(FakeApp(self.loop), self._draw, rest_s, key_s, lambda: self.loop.now_s)  # type: ignore[arg-type]
        self._frame_s, self._most_parts, self._parts = frame_s, _PARTS if heeds else 1, 0
        self._free_s = 0.0
        self._random = random.Random(8)
        self._cells, self._cursor, self._wanted, self._news = [""] * ROWS, 0, 0, 0
        self._under_way = self.most_under_way = self.largest_bytes = self.byte_count = self.frames_drawn = 0
        self._pressed_s: float | None = None
        self.echo_ms: list[float] = []
        self.seen_s: list[float] = []
        """Times when output arrived at the terminal."""
        self._clock.start()
        self._layer.open()
        while self._draw():
            pass
        self.loop.call_later(1.0, self._report)

    def press(self) -> None:
        """Press a key that moves the cursor. The app receives it after half a round trip."""
        self._pressed_s, self._wanted = self.loop.now_s, (self._cursor + 1) % ROWS
        self.loop.call_later(self._half_s, self._typed)

    def _typed(self) -> None:
        self._layer.pace.note_key()
        self._step(_STEPS)

    def _step(self, left: int) -> None:
        """Simulate one widget that handles the pressed key. After `left` more widgets, the cursor moves."""
        self.loop.now_s += self._frame_s / 20
        if left:
            self.loop.call_later(0.0, self._step, left - 1)
            return
        old, self._cursor = self._cursor, self._wanted
        self._show(min(old, self._cursor), max(old, self._cursor))

    def _report(self) -> None:
        self._news += 1
        self._cells[self._random.randrange(ROWS)] = (
            f"{self._random.choice(_STATUSES):<12}{self._news:>9}{self._random.random():>12.8f}"
        )
        self._clock.wake_for_news()
        self.loop.call_later(self._news_s, self._report)

    def _draw(self) -> bool:
        self.loop.now_s += self._frame_s / self._most_parts
        self._parts = (self._parts or self._most_parts) - 1
        if self._parts:
            return True
        self.frames_drawn += 1
        self._show(0, ROWS - 1)
        return False

    def _show(self, first: int, last: int) -> None:
        lines = []
        for row in range(first, last + 1):
            has_cursor = row == self._cursor
            text = f"{'▌' if has_cursor else ' '}{self._cells[row]}  textures/rock_{row:02}.png".ljust(COLUMNS)
            lines.append([Segment(text, _CURSOR if has_cursor else None)])
        assert self._layer.show(picture(lines, y=_TOP + first), self._console, (COLUMNS, LINES), (0, 0))

    def _leave(self, text: str) -> None:
        size = len(text.encode())
        self.byte_count += size
        self.largest_bytes = max(self.largest_bytes, size)
        self._under_way += size
        self.most_under_way = max(self.most_under_way, self._under_way)
        self._free_s = max(self._free_s, self.loop.now_s) + size / self._rate
        self.loop.call_later(self._free_s + self._half_s - self.loop.now_s, self._arrive, text, size)

    def _arrive(self, text: str, size: int) -> None:
        self._under_way -= size
        self._screen.feed(text)
        self.seen_s.append(self.loop.now_s)
        while self._screen.answers:
            column = int(self._screen.answers.pop(0).rstrip("R").split(";")[1]) - 1
            self.loop.call_later(self._half_s, self._layer.note_answer, column)
        if self._pressed_s is not None and self._screen.display[_TOP + self._wanted].startswith("▌"):
            self.echo_ms.append((self.loop.now_s - self._pressed_s) * 1000)
            self._pressed_s = None

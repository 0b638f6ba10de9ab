"""Two model terminals: one gets the output of Textual, the other the output of the output layer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rich.console import Console
from rich.control import Control
from rich.segment import Segment
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from aptui.tui.terminal.output.layer import OutputLayer
from aptui.tui.terminal.output.painter import Abilities
from tests.tui.model_terminal import ModelTerminal

WELL_KNOWN = Abilities()


class FakeLoop:
    """An event loop with its own clock, in which callbacks run only on demand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._soon: list = []
        self._later: list = []

    def call_soon_threadsafe(self, do, *arguments):
        self._soon.append(lambda: do(*arguments))

    def call_later(self, wait_s, do):
        handle = asyncio.TimerHandle(self.now_s + wait_s, do, (), self)
        self._later.append(handle)
        return handle

    def get_debug(self):
        return False

    def _timer_handle_cancelled(self, handle):
        """Do nothing: cancelled timers are skipped."""

    def run(self, seconds: float = 0.0) -> None:
        """Run the due callbacks, advance the clock, and run the callbacks that are due after that."""
        self.now_s += seconds
        due = [each for each in self._later if each.when() <= self.now_s and not each.cancelled()]
        self._later = [each for each in self._later if each.when() > self.now_s and not each.cancelled()]
        soon, self._soon = self._soon, []
        for do in soon:
            do()
        for handle in due:
            handle._callback()

    @property
    def timers(self) -> int:
        """Number of waiting timers."""
        return sum(not each.cancelled() for each in self._later)


class SideBySide:
    """A screen that is drawn by Textual and by the output layer; `sent` has the layer's output since the last check.

    Args:
        columns, lines: the size of the screen.
        abilities: the abilities of the terminal, also for the output layer.
        repeats, scrolls_columns: whether the terminal supports REP, and left and right margins.
        colours: the colour system of the console.
        answers: whether the terminal replies at once with the cursor's position.
    """

    def __init__(
        self, columns: int, lines: int, *, abilities: Abilities = WELL_KNOWN, repeats: bool = True,
        scrolls_columns: bool = True, colours: str = "truecolor", answers: bool = True,
    ) -> None:  # fmt: skip
        self.loop = FakeLoop()
        self.size = (columns, lines)
        self.console = Console(force_terminal=True, color_system=colours, width=columns, height=lines)
        self.stock = ModelTerminal(columns, lines, erases_in_colour=abilities.erases_in_colour)
        self.ours = ModelTerminal(
            columns, lines, erases_in_colour=abilities.erases_in_colour, repeats=repeats, scrolls_columns=scrolls_columns
        )
        for each in (self.stock, self.ours):
            each.feed("\x1b[?7l")  # turns off line wrapping, as Textual does in every terminal
        self.sent: list[str] = []
        self.byte_count = 0
        self.stock_byte_count = 0
        self.is_taken = True
        self._answers = answers
        self.layer = OutputLayer(self.receive, abilities, self.loop, lambda: self.is_taken, lambda: self.loop.now_s)
        self.layer.open()
        self.answer()

    def receive(self, text: str) -> None:
        self.sent.append(text)
        self.byte_count += len(text.encode())
        self.ours.feed(text)

    def answer(self) -> None:
        """Pass each reply of the model terminal to the output layer. The terminal replies to cursor queries."""
        while self._answers and self.ours.answers:
            self.layer.note_answer(int(self.ours.answers.pop(0).rstrip("R").split(";")[1]) - 1)
        self.loop.run()

    def show(self, update: CompositorUpdate, cursor: tuple[int, int] = (0, 0)) -> str:
        """Draw an update with the output layer and as Textual would; return the text that the output layer sent."""
        self.sent.clear()
        assert self.layer.show(update, self.console, self.size, cursor)
        stock = update.render_segments(self.console) + Control.move_to(*cursor).segment.text
        self.stock_byte_count += len(stock.encode())
        self.stock.feed(stock)
        sent = "".join(self.sent)
        self.answer()
        return sent

    def resize(self, columns: int, lines: int) -> None:
        """Resize both terminals."""
        self.size = (columns, lines)
        self.stock.resize(columns, lines)
        self.ours.resize(columns, lines)
        self.layer.forget()

    def differences(self) -> list[tuple]:
        """Return the visible differences of the two terminals, with the cursor."""
        theirs, ours = self.stock.cells(), self.ours.cells()
        found: list[tuple] = [
            (y, x, theirs[y][x], ours[y][x]) for y in range(self.size[1]) for x in range(self.size[0]) if theirs[y][x] != ours[y][x]
        ]
        if self.stock.cursor != self.ours.cursor:
            found.append(("cursor", self.stock.cursor, self.ours.cursor))
        return found[:4]


def picture(lines: Sequence[Sequence[Segment]], y: int = 0, x: int = 0) -> LayoutUpdate:
    """Return an update that draws `lines` one below the other; the first line begins at line `y` and column `x` of the screen."""
    strips = [Strip(line) for line in lines]
    width = max((strip.cell_length for strip in strips), default=0)
    return LayoutUpdate([[strip] for strip in strips], Region(x, y, width, len(strips)))


def pieces(height: int, width: int, parts: Sequence[tuple[int, int, Sequence[Segment]]]) -> ChopsUpdate:
    """Return an update that draws parts of lines; a part is (line, column, segments)."""
    chops: list[dict[int, Strip | None]] = [{} for _ in range(height)]
    ends: list[list[int]] = [[] for _ in range(height)]
    spans = []
    for y, x, segments in sorted(parts, key=lambda part: part[:2]):
        strip = Strip(segments)
        chops[y][x] = strip
        ends[y].append(min(x + strip.cell_length, width))
        spans.append((y, x, min(x + strip.cell_length, width)))
    return ChopsUpdate(chops, spans, ends)

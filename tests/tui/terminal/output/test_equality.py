"""For any frames, the terminal shows the same cells as with the output of Textual."""

from __future__ import annotations

import random

import pytest
from rich.segment import Segment
from rich.style import Style

from aptui.tui.terminal import safety
from aptui.tui.terminal.output.painter import Abilities
from tests.tui.terminal.output.harness import SideBySide, picture, pieces

WIDTH, HEIGHT = 24, 9
_COLOURS = [None, "red", "bright_blue", "#123456", "#ffaa00", "default"]
_LETTERS = "ab01 -─│✓▌…岩石é\u0301👍ｱ"


class Draughtsman(random.Random):
    """Draws random frames."""

    def style(self) -> Style:
        given = {name: self.choice([None, None, True]) for name in ("bold", "italic", "underline", "reverse", "strike")}
        return Style(color=self.choice(_COLOURS), bgcolor=self.choice(_COLOURS), **given)

    def text(self) -> str:
        return "x" + self.choice(
            [
                "".join(self.choices(_LETTERS, k=self.randrange(10))),
                " " * self.randrange(WIDTH),
                self.choice("-=─x") * self.randrange(WIDTH),
            ]
        )

    def line(self, width: int) -> list[Segment]:
        """Return segments of exactly this width, as a compositor draws them."""
        segments = [Segment(self.text(), self.style()) for _ in range(self.randrange(5))]
        return list(Segment.adjust_line_length(segments, width))

    def update(self):
        if self.randrange(4) == 0:
            return picture([self.line(WIDTH) for _ in range(HEIGHT)])
        parts = []
        for y in self.sample(range(HEIGHT), self.randint(1, 4)):
            x = self.randrange(WIDTH - 1)
            parts.append((y, x, self.line(self.randint(1, WIDTH - x))))
        return pieces(HEIGHT, WIDTH, parts)


@pytest.fixture(autouse=True)
def _wall():
    yield
    safety.install(safety.TerminalFacts())


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize(
    ("abilities", "colours"),
    [
        (Abilities(), ("truecolor", safety.TRUECOLOUR)),
        (Abilities(erases_in_colour=False), ("256", 256)),
        (Abilities(erases_in_colour=False, is_modern=False), ("standard", 16)),
        (Abilities(is_modern=False), ("truecolor", 0)),
    ],
)
def test_random_frames_show_the_same_cells_as_the_output_of_textual(abilities, colours, repeats):
    safety.install(safety.TerminalFacts(colours=colours[1]))
    for seed in range(6):
        draw = Draughtsman(seed)
        screen = SideBySide(WIDTH, HEIGHT, abilities=abilities, repeats=repeats, colours=colours[0])
        screen.show(picture([[Segment(" " * WIDTH)]] * HEIGHT))
        for step in range(8):
            screen.show(draw.update(), (draw.randrange(WIDTH), draw.randrange(HEIGHT)))

            assert (seed, step, screen.differences()) == (seed, step, [])


@pytest.mark.parametrize("scrolls_columns", [True, False])
def test_scrolling_tables_show_the_same_cells_as_the_output_of_textual(scrolls_columns):
    draw, screen, top = Draughtsman(1), SideBySide(60, 20, scrolls_columns=scrolls_columns), 30
    screen.show(picture([[Segment(f"岩 beside {y}".ljust(19))] for y in range(20)], 0, 40))

    for step in range(25):
        top += draw.randint(-6, 6)
        cursor, news, rule = draw.randrange(10), draw.randrange(60), draw.choice("─x")
        lines = []
        for y in range(20):
            text = f"{rule} row {top + y} {'news' if top + y == news else 'old'}".ljust(38) + ("█" if y == cursor else " ")
            style = Style(color="white", bgcolor="#0178d4" if y == cursor else "#1e1e1e")
            lines.append([Segment(text if 2 <= y < 16 else f"fixed {y if y != 17 else step}".ljust(39), style), Segment(" ")])
        screen.show(picture(lines), (0, cursor))

        assert (step, screen.differences()) == (step, [])


def test_cells_after_many_quick_resizes_equal_the_output_of_textual():
    draw, screen = Draughtsman(2), SideBySide(30, 8)
    screen.show(picture([[Segment("x" * 30)]] * 8))

    for step in range(20):
        columns, lines = draw.randint(2, 40), draw.randint(1, 12)
        screen.resize(columns, lines)
        if draw.randrange(2):
            screen.loop.run()  # a frame of the previous size arrives before the first frame of the new size
        text = Segment("岩 ab " * 6, Style(bgcolor="blue"))
        screen.show(picture([list(Segment.adjust_line_length([text], columns))] * lines))

        assert (step, screen.differences()) == (step, [])


def test_unchanged_frame_sends_nothing():
    screen = SideBySide(20, 3)
    lines = [[Segment("岩 ✓ text".ljust(19), Style(bold=True))]] * 3
    screen.show(picture(lines))

    assert screen.show(picture(lines)) == ""


def test_scrolling_by_a_line_sends_about_the_bytes_of_the_new_line():
    screen = SideBySide(160, 45)
    lines = [[Segment(f"row {y:05} {'abc/' * 30}".ljust(160), Style(color="#e0e0e0", bgcolor="#1e1e1e"))] for y in range(100)]
    screen.show(picture(lines[:45]))

    sent = screen.show(picture(lines[1:46]))

    assert len(sent) < 300
    assert screen.differences() == []


def table_pieces(rows: int, of: range, height: int) -> list[tuple[int, int, list[Segment]]]:
    """Return the pieces of a table in the columns `of`: line y shows row `rows` + y, and the last column is a scroll bar."""
    bar = len(of) - 1
    text = [(y, of.start, [Segment(f"row {rows + y:05} {'abc/' * 30}"[:bar])]) for y in range(4, height)]
    return [*text, *((y, of.start + bar, [Segment("█" if y == rows + 9 else " ")]) for y in range(4, height))]


@pytest.mark.parametrize("table", [range(94), range(66, 160)], ids=["left", "right"])
def test_scrolling_a_table_does_not_send_the_widget_beside_it_again(table):
    screen = SideBySide(160, 45)
    screen.show(picture([[Segment(f"fact {y} of the job ".ljust(160))] for y in range(45)]))
    screen.show(pieces(45, 160, table_pieces(0, table, 45)))

    sent = screen.show(pieces(45, 160, table_pieces(1, table, 45)))

    assert len(sent) < 300
    assert "fact" not in sent
    assert screen.differences() == []


def test_accent_at_the_start_of_a_segment_joins_the_letter_before_it():
    screen = SideBySide(10, 1)

    screen.show(picture([[Segment("ae"), Segment("\u0301b", Style(bold=True)), Segment("      ")]]))

    assert screen.differences() == []


def test_wide_character_that_is_cut_leaves_a_blank():
    screen = SideBySide(6, 1)
    screen.show(picture([[Segment("岩石火")]]))

    screen.show(pieces(1, 6, [(0, 3, [Segment("x")])]))

    assert screen.ours.display[0].replace("\0", "") == "岩 x火"


def test_hyperlink_sequences_enclose_the_text_of_a_link():
    screen = SideBySide(20, 2)

    sent = screen.show(picture([[Segment("see "), Segment("there", Style(link="https://example.org"))], [Segment("x" * 9)]]))

    assert "https://example.org\x1b\\there\x1b]8;;\x1b\\" in sent
    assert screen.differences() == []

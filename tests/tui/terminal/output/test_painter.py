"""The bytes that draw a difference between two pictures, and bytes that are never sent."""

import re

import pytest

from aptui.tui.terminal.output.cell_rows import Abilities, Row, StyleCache
from aptui.tui.terminal.output.painter import REPEATS_ALL, REPEATS_ASCII, SCROLLS_COLUMNS, FramePainter

CASE = StyleCache()


def painted(*pictures, abilities=Abilities(), tested=(), columns=(), width=40, pen="44"):
    """Return the output for the last of several pictures, each a list of lines in one pen."""
    painter = FramePainter(CASE, abilities)
    painter.tested.update(tested)
    painter.forget(width, len(pictures[0]))
    sent = ""
    for lines in pictures:
        rows = [Row.blank(width, CASE.pen(pen)) for _ in lines]
        for row, line in zip(rows, lines, strict=True):
            row.write(0, line, CASE.pen(pen))
        sent = painter.paint(rows, dict.fromkeys(range(len(rows)), columns), (0, 0))
    return sent


def test_changed_letter_is_drawn_by_a_cursor_move_and_one_letter():
    assert painted(["", "count: 1"], ["", "count: 2"]) == "\x1b[2;8H2\x1b[H"


def test_two_nearby_changes_are_written_with_the_unchanged_cells_between_them():
    assert painted(["a--b"], ["x--y"]) == "x--y\r"


def test_text_after_a_non_ascii_character_begins_with_an_absolute_column():
    assert painted(["✓ old"], ["✗ new"]).startswith("✗\x1b[2G new")


def test_end_of_a_line_is_erased_if_erasing_keeps_the_background():
    sent = "\x1b[0;44m\x1b[Hab"

    assert painted(["ab"]) == f"{sent}\x1b[K\r"
    assert painted(["ab"], abilities=Abilities(erases_in_colour=False)).startswith(sent + " " * 38)


def test_equal_cells_are_sent_by_the_repeat_sequence_if_it_is_supported():
    assert "-\x1b[29b" in painted(["-" * 30 + "x"], tested=[REPEATS_ASCII])
    assert "─\x1b[29b" in painted(["─" * 30 + "x"], tested=[REPEATS_ASCII, REPEATS_ALL])
    assert "─" * 30 in painted(["─" * 30 + "x"], tested=[REPEATS_ASCII])
    assert "-" * 30 in painted(["-" * 30 + "x"])


def test_blanks_inside_a_line_are_erased_on_modern_terminals():
    line = "a" + " " * 30 + "b"

    assert "a\x1b[30X\x1b[30Cb" in painted([line])
    assert "X" not in painted([line], abilities=Abilities(is_modern=False))


def test_old_terminal_gets_only_supported_sequences():
    old = Abilities(erases_in_colour=False, is_modern=False)

    sent = painted(["✓ old" + " " * 20 + "x"], ["✗ new" + " " * 25 + "y"], abilities=old)

    assert not re.search(r"\x1b\[[0-9]*[XGb]", sent)


def test_unprintable_text_is_never_sent():
    assert "\x1b]52" not in painted(["\x1b]52;c;AA==\x07"])
    assert "\x9b" not in painted(["a\x9bb"])


@pytest.mark.parametrize(("end", "is_scrolled"), [(7, False), (8, True)])
def test_columns_are_not_scrolled_if_their_border_divides_a_wide_character(end, is_scrolled):
    rows = [f"row {y} 岩 xx" for y in range(10)]

    sent = painted(rows[:9], rows[1:], tested=[SCROLLS_COLUMNS], columns=[(0, end)])

    assert (f"\x1b[?69h\x1b[1;{end}s" in sent) == is_scrolled

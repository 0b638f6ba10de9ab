"""Text becomes cells with the widths of Textual."""

import pytest
from rich.cells import cell_len

from aptui.tui.terminal.output.cell_rows import REST, Row, StyleCache, draw_cells

CASE = StyleCache()


@pytest.mark.parametrize("text", ["abc", "岩石", "e\u0301x", "❤\ufe0f!", "✓ done", "ｱ─", "กำ", ""])
def test_text_has_the_width_of_textual(text):
    cells, pens, accents = draw_cells(text, CASE.pen("31"))

    assert len(cells) == len(pens) == cell_len(text)
    assert accents + "".join(cells) == text


def test_blank_has_a_pen_without_the_invisible_attributes():
    _, pens, _ = draw_cells("a b", CASE.pen("31;44"))

    assert [pen.sgr for pen in pens] == ["31;44", "44", "31;44"]


def test_text_is_cut_between_characters():
    row = Row.blank(4, CASE.plain)

    assert row.write(1, "a岩b", CASE.plain) == 4
    assert row.texts == [" ", "a", "岩", REST]
    assert row.write(3, "岩", CASE.plain) == 4
    assert row.texts == [" ", "a", " ", " "]
    assert row.write(4, "x", CASE.plain) == 4


def test_half_of_a_wide_character_becomes_a_blank():
    row = Row.blank(4, CASE.plain)
    row.write(0, "岩石", CASE.plain)

    row.write(1, "xy", CASE.plain)

    assert row.texts == [" ", "x", "y", " "]

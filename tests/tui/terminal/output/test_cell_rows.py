"""Text becomes cells with the widths of Textual."""

import pytest
from rich.cells import cell_len, split_graphemes

from aptui.tui.terminal.output.cell_rows import _ONE_CELL_EACH, REST, Row, StyleCache, draw_cells

CASE = StyleCache()


@pytest.mark.parametrize("text", ["abc", "岩石", "e\u0301x", "❤\ufe0f!", "✓ done", "ｱ─", "กำ", ""])
def test_cell_widths_of_text_equal_those_of_textual(text):
    cells, pens, accents = draw_cells(text, CASE.pen("31"))

    assert len(cells) == len(pens) == cell_len(text)
    assert accents + "".join(cells) == text


def test_texts_that_are_not_divided_into_graphemes_have_one_cell_for_each_character():
    texts = [chr(code) for code in range(0x3000) if _ONE_CELL_EACH.fullmatch(chr(code)) and chr(code).isprintable()]

    assert len(texts) > 1000
    assert [text for text in texts if cell_len(text) != 1] == []
    for pair in ("".join(texts), "".join(reversed(texts))):
        assert len(split_graphemes(pair)[0]) == len(texts)
    assert not _ONE_CELL_EACH.fullmatch("✓\ufe0f")


def test_blank_cell_keeps_only_visible_attributes_in_its_pen():
    _, pens, _ = draw_cells("a b", CASE.pen("31;44"))

    assert [pen.sgr for pen in pens] == ["31;44", "44", "31;44"]


def test_text_is_not_cut_inside_a_character():
    row = Row.blank(4, CASE.plain)

    assert row.write(1, "a岩b", CASE.plain) == 4
    assert row.texts == [" ", "a", "岩", REST]
    assert row.write(3, "岩", CASE.plain) == 4
    assert row.texts == [" ", "a", " ", " "]
    assert row.write(4, "x", CASE.plain) == 4


def test_cut_wide_character_becomes_a_blank_cell():
    row = Row.blank(4, CASE.plain)
    row.write(0, "岩石", CASE.plain)

    row.write(1, "xy", CASE.plain)

    assert row.texts == [" ", "x", "y", " "]

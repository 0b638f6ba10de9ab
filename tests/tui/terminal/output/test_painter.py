"""Text becomes cells that are as wide as in Textual; only differences between two frames are sent, and never unprintable text."""

import itertools
import re

import pyte
import pytest
from rich.cells import cell_len, split_graphemes

from aptui.tui.terminal.output.painter import (
    _ONE_CELL_EACH,
    REPEATS_ALL,
    REPEATS_ASCII,
    REST,
    SCROLLS_COLUMNS,
    Abilities,
    FramePainter,
    Row,
    Shift,
    StyleCache,
    abilities_of,
    draw_cells,
    find_shift,
    shift_lines,
)

CASE = StyleCache()


def painted(*pictures, abilities=Abilities(), tested=(), columns=(), width=40, pen="44"):
    """Draw several frames, each a list of lines in the style `pen`; return the output of the last frame."""
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


# -------------------------------------------------------------------------------------------------------------------- moved lines


def lines(*texts, at=0):
    return dict(enumerate(texts, at))


def test_lines_that_scrolled_up_are_recognised():
    assert find_shift(lines(*"abcdef", at=3), lines(*"bcdefg", at=3)) == Shift(3, 8, 1)


def test_lines_that_scrolled_down_between_changed_lines_are_recognised():
    before = lines("head", *"abcdef", "log 1", "log 2")
    after = lines("other", *"xyabcd", "log 3", "log 4")

    assert find_shift(before, after) == Shift(1, 6, -2)


def test_blank_and_repeated_lines_are_not_recognised_as_scrolled():
    assert find_shift(lines(*"     a"), lines(*"    ab")) is None
    assert find_shift(lines(*"-----a"), lines(*"a-----")) is None


def test_scrolling_is_not_used_if_lines_that_did_not_move_would_be_drawn_again():
    before, after = {0: "a", 1: "b", 8: "c"}, {0: "x", 1: "a", 8: "b", 9: "c"}

    assert find_shift(before, after) is None


def test_lines_that_become_visible_by_scrolling_are_unknown():
    assert shift_lines("bcde", 1) == ["c", "d", "e", None]
    assert shift_lines("bcde", -2) == [None, None, "b", "c"]


# -------------------------------------------------------------------------------------------------------------------------- cells


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


def test_blank_cell_keeps_only_the_visible_attributes_of_its_style():
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


# --------------------------------------------------------------------------------------------------------------------------- pens

PENS = ["", "1", "1;31", "4;38;2;1;2;3;48;5;9", "7;31;42", "1;2;3", "48;2;1;2;3", "9;97;104", "21;31", "38;5;7", "39;49"]


def pens_of(*sequences):
    screen = pyte.Screen(2, 1)
    pyte.Stream(screen).feed("".join(sequences) + "x")
    return screen.buffer[0][0]


@pytest.mark.parametrize("one_by_one", [True, False])
def test_sequence_for_a_style_change_always_results_in_the_new_style(one_by_one):
    for old, new in itertools.product(PENS, PENS):
        change = CASE.change(CASE.pen(old), CASE.pen(new), one_by_one=one_by_one)

        assert pens_of(f"\x1b[0;{old}m", change) == pens_of(f"\x1b[0;{new}m"), (old, new)


def test_sequence_for_a_style_change_contains_only_differences():
    assert CASE.change(CASE.pen("1;31;44"), CASE.pen("1;32;44")) == "\x1b[32m"
    assert CASE.change(CASE.pen("1;31"), CASE.pen("1;31;44")) == "\x1b[44m"
    assert CASE.change(CASE.pen("1;38;2;1;2;3;44"), CASE.pen("38;2;1;2;3;44")) == "\x1b[22m"
    assert CASE.change(CASE.pen("31"), CASE.plain) == "\x1b[m"
    assert CASE.change(None, CASE.pen("31")) == "\x1b[0;31m"


def test_turning_bold_off_does_not_turn_faint_off():
    assert CASE.change(CASE.pen("1;2;38;2;100;100;100"), CASE.pen("2;38;2;100;100;100")) == "\x1b[22;2m"


def test_styles_that_look_alike_on_blank_cells_share_one_blank_style():
    assert CASE.pen("1;31;44").blank is CASE.pen("3;44").blank is CASE.pen("44")
    assert CASE.pen("4;31;44").blank is CASE.pen("4;31;44")
    assert CASE.pen("31", "https://a").blank is CASE.pen("31", "https://a")


def test_style_cache_holds_a_limited_number_of_styles():
    case = StyleCache()

    for number in range(9000):
        case.pen("31", f"https://example.org/{number}")

    assert len(case._pens) < 5000


# ------------------------------------------------------------------------------ abilities of terminals; compare `infocmp -1 NAME`


@pytest.mark.parametrize(
    ("environ", "erases_in_colour", "is_modern"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "linux"}, True, True),
        ({"TERM": "rxvt-unicode-256color"}, True, True),
        ({"TERM": "st-256color"}, True, True),
        ({"TERM": "screen"}, False, True),
        ({"TERM": "screen.xterm-256color"}, False, True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/t,1,0"}, True, True),
        ({"TERM": "vt220"}, False, True),
        ({"TERM": "vt100"}, False, False),
        ({"TERM": "sterile"}, False, True),
        ({}, False, True),
    ],
)
def test_abilities_follow_the_terminal_name(environ, erases_in_colour, is_modern):
    found = abilities_of(environ)

    assert (found.erases_in_colour, found.is_modern) == (erases_in_colour, is_modern)

"""The shortest sequence from one pen to another."""

import itertools

import pyte
import pytest

from aptui.tui.terminal.output.cell_rows import StyleCache

PENS = ["", "1", "1;31", "4;38;2;1;2;3;48;5;9", "7;31;42", "1;2;3", "48;2;1;2;3", "9;97;104", "21;31", "38;5;7", "39;49"]


def pens_of(*sequences):
    screen = pyte.Screen(2, 1)
    pyte.Stream(screen).feed("".join(sequences) + "x")
    return screen.buffer[0][0]


@pytest.mark.parametrize("one_by_one", [True, False])
def test_sequence_for_a_pen_change_always_results_in_the_new_pen(one_by_one):
    case = StyleCache()

    for old, new in itertools.product(PENS, PENS):
        change = case.change(case.pen(old), case.pen(new), one_by_one=one_by_one)

        assert pens_of(f"\x1b[0;{old}m", change) == pens_of(f"\x1b[0;{new}m"), (old, new)


def test_sequence_for_a_pen_change_contains_only_differences():
    case = StyleCache()

    assert case.change(case.pen("1;31;44"), case.pen("1;32;44")) == "\x1b[32m"
    assert case.change(case.pen("1;31"), case.pen("1;31;44")) == "\x1b[44m"
    assert case.change(case.pen("1;38;2;1;2;3;44"), case.pen("38;2;1;2;3;44")) == "\x1b[22m"
    assert case.change(case.pen("31"), case.plain) == "\x1b[m"
    assert case.change(None, case.pen("31")) == "\x1b[0;31m"


def test_turning_bold_off_does_not_turn_faint_off():
    case = StyleCache()

    assert case.change(case.pen("1;2;38;2;100;100;100"), case.pen("2;38;2;100;100;100")) == "\x1b[22;2m"


def test_pens_that_look_alike_on_blank_cells_share_one_blank_pen():
    case = StyleCache()

    assert case.pen("1;31;44").blank is case.pen("3;44").blank is case.pen("44")
    assert case.pen("4;31;44").blank is case.pen("4;31;44")
    assert case.pen("31", "https://a").blank is case.pen("31", "https://a")


def test_pen_cache_holds_a_limited_number_of_pens():
    case = StyleCache()

    for number in range(9000):
        case.pen("31", f"https://example.org/{number}")

    assert len(case._pens) < 5000

"""Moved lines are found if scrolling them saves bytes."""

from aptui.tui.terminal.output.painter import Shift, find_shift, shift_lines


def lines(*texts, at=0):
    return dict(enumerate(texts, at))


def test_lines_that_scrolled_up_are_found():
    assert find_shift(lines(*"abcdef", at=3), lines(*"bcdefg", at=3)) == Shift(3, 8, 1)


def test_lines_that_scrolled_down_are_found_beside_changed_lines():
    before = lines("head", *"abcdef", "log 1", "log 2")
    after = lines("other", *"xyabcd", "log 3", "log 4")

    assert find_shift(before, after) == Shift(1, 6, -2)


def test_blank_and_equal_lines_are_ignored():
    assert find_shift(lines(*"     a"), lines(*"    ab")) is None
    assert find_shift(lines(*"-----a"), lines(*"a-----")) is None


def test_scrolling_is_not_used_if_lines_that_did_not_move_would_be_drawn_again():
    before, after = {0: "a", 1: "b", 8: "c"}, {0: "x", 1: "a", 8: "b", 9: "c"}

    assert find_shift(before, after) is None


def test_lines_that_enter_the_screen_by_scrolling_are_blank():
    assert shift_lines("bcde", 1) == ["c", "d", "e", None]
    assert shift_lines("bcde", -2) == [None, None, "b", "c"]

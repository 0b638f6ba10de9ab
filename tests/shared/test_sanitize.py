"""Test that printed text contains no control sequences."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.core.paths import to_text
from aptui.shared.printing import sanitize, sanitize_lines

PIECES = [
    "\x1b",
    "[",
    "]",
    "P",
    "_",
    "^",
    "X",
    "31m",
    "0;title",
    "\x07",
    "\\",
    "\x9b",
    "\x9c",
    "\x9d",
    "\x90",
    "a",
    "\n",
    "\r",
    "\t",
    "\u202e",
]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain text, größer, 日本", "plain text, größer, 日本"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b1;31mred", "red"),
        ("a\x1b]0;evil title\x07b", "ab"),
        ("a\x1b]52;c;aGk=\x1b\\b", "ab"),
        ("a\x9d0;evil\x9cb", "ab"),
        ("a\x1bPq payload\x1b\\b", "ab"),
        ("a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d", "abcd"),
        ("\x1b(B\x1b[mreset", "reset"),
        ("a\tb", "a    b"),
        ("a\x07\x00\x7f", "a␇␀␡"),
        ("over\rwritten", "over␍written"),
        ("gpj.\u202eexe", "gpj.\ufffdexe"),
        ("zero\u200bwidth\ufeff", "zero\ufffdwidth\ufffd"),
        ("\x85next", "\ufffdnext"),
        ("two\nlines", "two␊lines"),
    ],
)
def test_control_characters_are_removed_or_replaced(raw: str, shown: str) -> None:
    assert sanitize(raw) == shown


def test_unterminated_sequence_does_not_hide_the_next_line() -> None:
    assert sanitize_lines("a\x1b]0;never ends\nthe error\x1b[3") == "a\nthe error"


def test_text_left_after_removing_a_sequence_cannot_form_a_new_sequence() -> None:
    assert sanitize("\x1b\x1b[0m[31mred") == "␛[31mred"


def test_undecodable_bytes_are_shown_as_hex_escapes() -> None:
    assert sanitize(to_text(b"caf\xe9.txt")) == "caf\\xe9.txt"
    assert sanitize("caf\udce9.txt") == "caf\\xe9.txt"


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map("".join))
def test_sanitized_text_has_no_control_characters(text: str) -> None:
    shown = sanitize(text)

    assert not [char for char in shown if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}]
    assert "\u202e" not in shown
    assert sanitize(shown) == shown


def test_sanitizing_takes_linear_time() -> None:
    began = time.process_time()
    for hostile in ("\x1b[" * 50_000, "\x1b]" + "a" * 100_000, "\x1b[" + "0;" * 50_000, "\x1bP" * 50_000, "\x1b" + " " * 100_000):
        sanitize(hostile)

    assert time.process_time() - began < 10

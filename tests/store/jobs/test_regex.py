"""A search of joined texts gives the same result as a search of each text; errors explain mistakes in a pattern."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aptui.store.jobs.regex import PatternError, TextBuffer, compile_pattern, contains

TEXTS = ["", "Rock.png", "rock_02.PNG", "ärger", "ÄRGER k", "a\nb", "x.pn", "kelvin \N{KELVIN SIGN}", "ſtone", "ab"]


def found(pattern: str, texts: list[str] = TEXTS) -> list[int]:
    return np.flatnonzero(contains(texts, pattern)).tolist()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(?i)rock", [1, 2]), ("(?i)^rock", [1, 2]), (r"(?i)\.png$", [1, 2]), ("(?i).png", [1, 2]), ("(?i)rock.", [1, 2]),
        ("(?i)ÄRGER", [3, 4]), ("(?i)k", [1, 2, 4, 7]), ("(?i)kelvin k", [7]), ("(?i)stone", [8]), ("(?i)stone|kelvin", [7, 8]),
        ("^$", [0]), ("(?i)x", [6]), (r"^\w+$", [5, 9]), (r"^\pL+$", [3, 5, 8, 9]),
        (r"\d{2}", [2]), (r"[^\w]", [1, 2, 3, 4, 6, 7, 8]),
        (r"\Aab\z", [9]), ("n[^x]", [1, 7, 8]), (r"pn\s|n\W", [7]), ("(?s)n.", [1, 7, 8]), ("(?m)^b", [5]), (r"\x{e4}", [3]),
        ("(?-i)ROCK", []), ("(?i:ROCK)_", [2]), ("[]x]", [6]), ("(?i)a", [5, 9]), (r"[[:upper:]]", [1, 2, 4]),
        (r"(?i)\Qk.p", [1]), (r"\Qx.pn\E$", [6]), (r"\Q(?=\E", []),
    ],
)  # fmt: skip
def test_pattern_finds_texts(pattern: str, expected: list[int]) -> None:
    assert found(pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "at", "what"),
    [
        ("a(", 1, "unclosed group"), ("a)(b", 0, "unopened group"), ("a[b", 1, "unclosed character class"),
        (r"\1", 0, "backreferences"),
        ("x(?=a)", 1, "look-around"), ("x(?<!a)", 1, "look-around"), ("(?x)a", 0, "unrecognized group or flag"),
        (r"\C", 0, "unrecognized escape"),
        ("a\\", 0, "incomplete escape"), ("a**", 1, "repetition of a repetition"), ("b(?s-im)a", 1, "flag 'm'"),
        ("(a{1000}){1000}", 9, "too large"), ("a{1001}", 1, "more than 1000"),
    ],
)  # fmt: skip
def test_invalid_pattern_is_an_error_with_its_position(pattern: str, at: int, what: str) -> None:
    with pytest.raises(PatternError, match=re.escape(what)) as caught:
        compile_pattern(pattern)

    assert caught.value.at == at


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("aAbBkKſsä._\n ", max_size=6), max_size=40),
    st.text(st.sampled_from(r"aAbksä._|^$?*[]()\w\d\W\b "), max_size=8),
    st.booleans(),
)
def test_search_of_joined_texts_equals_a_search_of_each_text(texts: list[str], pattern: str, ignores_case: bool) -> None:
    try:
        wanted = compile_pattern(f"(?i){pattern}" if ignores_case else pattern)
    except PatternError:
        return
    joined = TextBuffer.of(texts)
    alone = [wanted.span(data := text.encode(), 0, len(data)) is not None for text in texts]

    assert joined.with_pattern(wanted).tolist() == alone
    assert joined.some_with_pattern(wanted, range(0, len(texts), 3)).tolist() == alone[::3]
    assert joined.texts() == [joined[row] for row in range(len(texts))] == texts


def test_pattern_takes_linear_time() -> None:
    text = "a" * 200_000

    assert contains([text, text + "b"], r"(a*)*(a|aa)+$").tolist() == [True, False]
    assert contains([text], "(x+x+)+y").tolist() == [False]

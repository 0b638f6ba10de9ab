"""Untrusted wildcards match like plain regular expressions, and hostile wildcards take linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.core.patterns import is_like, wildcard
from aptui.shared.globs import Glob, LevelGlob

_FLAGS = re.IGNORECASE | re.DOTALL
PATTERN = st.text("aB/*?", max_size=8).filter(lambda text: "**" not in text)


def plain(pattern: str, *, crosses: bool) -> re.Pattern[str]:
    """Return the regular expression whose groups match the text of each star."""
    pieces = [re.escape(piece).replace(r"\?", "[^/]") for piece in pattern.split("*")]
    text = pieces[0]
    for at, piece in enumerate(pieces[1:], 1):
        text += ("(.*)" if crosses or at == len(pieces) - 1 else "([^/]*)") + piece
    return re.compile(text, _FLAGS)


@given(st.text("ab/\n", max_size=10), PATTERN)
def test_glob_matches_the_same_texts_as_an_equivalent_regex(text: str, pattern: str) -> None:
    found = plain(pattern, crosses=True).fullmatch(text)

    assert Glob(pattern).matches(text) == (found is not None)
    assert Glob(pattern).take_stars(text) == (found.groups() if found else None)


@given(st.text("ab/", max_size=12), PATTERN)
def test_only_the_last_star_of_a_level_glob_matches_slashes(text: str, pattern: str) -> None:
    found = plain(pattern, crosses=False).fullmatch(text)

    assert LevelGlob(pattern).take_stars(text) == (found.groups() if found else None)


@given(st.text("ab/", max_size=8), st.lists(st.sampled_from(["a", "b", "/", "*", "**/", "/**/", "?"]), max_size=7).map("".join))
def test_wildcard_matches_the_same_paths_as_an_equivalent_regex(path: str, pattern: str) -> None:
    pieces = re.split(r"(?:(?<=/)|^)\*\*+/", pattern)
    slow = "(?:.*/)?".join(re.escape(re.sub(r"\*+", "*", piece)).replace(r"\*", ".*").replace(r"\?", ".") for piece in pieces)

    expected = re.fullmatch(slow, path) is not None
    assert (wildcard(pattern).fullmatch(path) is not None) == expected == is_like(pattern, path)


@pytest.mark.parametrize("pattern", ["*?" * 60 + "!", "*a" * 200 + "!", "**/" * 100 + "!", "**/a/" * 60 + "!", "*a?" * 100 + "!"])
def test_hostile_patterns_match_in_linear_time(pattern: str) -> None:
    name, path = "a" * 200, "a/" * 500
    began = time.process_time()

    for text in (name, path):
        assert not Glob(pattern.replace("**/", "*/")).matches(text)
        assert LevelGlob(pattern.replace("**/", "*/")).take_stars(text) is None
        assert wildcard(pattern).fullmatch(text) is None
        assert not is_like(pattern, text)

    assert time.process_time() - began < 3

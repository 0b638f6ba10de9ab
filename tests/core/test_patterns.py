"""Builders that match a path, the meaning of wildcards, and ignored files."""

from __future__ import annotations

import re

import pytest
from fakes import glob
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aptui.core.patterns import PatternSet, ignore_matcher, is_like, literal_prefix, matches, wildcard
from aptui.core.project import Pattern, PatternKind


def regex(text: str) -> Pattern:
    return Pattern(PatternKind.REGEX, text, text)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.png", "a/b/C.PNG", True),
        ("*.png", "a.png.txt", False),
        ("a/*.png", "a/b/c.png", True),
        ("a/*/c", "a/c", False),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("**/x.txt", "x.txt", True),
        ("**/x.txt", "a/b/x.txt", True),
        ("**/x.txt", "a/yx.txt", False),
        ("a/**/x*y", "a/x1y", True),
        ("a/**/x*y", "a/b/c/x1y", True),
        ("a**", "abc/d", True),
        ("a*b*c*d", "a1b2b3c4d", True),
        ("a*b*c*d", "a1c2b3d", False),
        ("foo[1].png", "foo[1].png", True),
        ("*", "new\nline", True),
        ("Ä*", "äb", True),
    ],
)
def test_a_wildcard_matches_the_whole_path_across_folders(pattern: str, path: str, expected: bool) -> None:
    assert bool(wildcard(pattern).fullmatch(path)) is expected
    assert is_like(pattern.lower(), path.lower()) is expected


@given(st.text("ab/", max_size=8), st.text("ab*?", max_size=6))
def test_wildcard_matches_the_same_paths_as_its_direct_translation_to_a_regex(path: str, pattern: str) -> None:
    plain = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")

    assert bool(wildcard(pattern).fullmatch(path)) == bool(re.fullmatch(plain, path))


@given(st.text("ab/", max_size=8), st.text("ab/*?", max_size=6))
def test_single_match_has_the_same_result_as_a_compiled_wildcard(path: str, pattern: str) -> None:
    assert is_like(pattern, path) == bool(wildcard(pattern).fullmatch(path))


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("a/b/*.png", "a/b/"), ("a/b*/c", "a/"), ("*.png", ""), ("a/?", "a/"), ("a/b.png", "a/")],
)
def test_literal_prefix_of_a_pattern_is_the_folder_before_its_wildcards(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix


def test_all_builders_that_match_a_path_are_found_once_and_in_order() -> None:
    patterns = PatternSet([[glob("*.png"), glob("textures/*")], [glob("*.txt")], [regex(r"textures/.*\.png")], [glob("*.PNG")]])

    assert patterns.builders_for("Textures/a.png") == (0, 2, 3)
    assert patterns.builders_for("a.png") == (0, 3)
    assert patterns.builders_for("textures/readme.txt") == (0, 1)
    assert patterns.builders_for("a.jpg") == ()
    assert patterns.builders_for("png") == ()


def test_pattern_with_two_dots_matches_a_name_with_several_dots() -> None:
    patterns = PatternSet([[glob("*.gz")], [glob("*.tar.gz")], [glob("*.gz")]])

    assert patterns.builders_for("a/b.c.tar.gz") == (0, 1, 2)
    assert patterns.builders_for("b.gz") == (0, 2)
    assert patterns.builders_for("b.tar.gz/readme") == ()


def test_groups_and_flags_of_one_pattern_do_not_affect_other_patterns() -> None:
    patterns = PatternSet([[regex(r"(a)\1"), regex(r"(?P<x>b)c")], [regex(r"(?P<x>d)\1")], [regex("(?x) e f ")], [regex("g|h")]])

    assert patterns.builders_for("aa") == (0,)
    assert patterns.builders_for("bc") == (0,)
    assert patterns.builders_for("dd") == (1,)
    assert patterns.builders_for("ef") == (2,)
    assert patterns.builders_for("h") == (3,)
    assert patterns.builders_for("a") == ()


def test_absolute_pattern_is_matched_with_the_absolute_path() -> None:
    absolute = replace(regex(r".*/game/a\.x"), is_absolute=True)
    patterns = PatternSet([[absolute], [glob("*.x")], [regex("a.x")], [absolute, glob("b.x")]])

    assert patterns.builders_for("a.x", "/disk/Game") == (0, 1, 2, 3)
    assert patterns.builders_for("a.x", "/disk/other") == (1, 2)
    assert patterns.builders_for("b.x", "/disk/game") == (1, 3)
    assert [matches(absolute, "A.x", root) for root in ("/disk/game", "/disk")] == [True, False]


@given(
    st.lists(
        st.lists(st.sampled_from(["*.png", "*.a.png", "*", "a/*", "*.p?g", "x.png", "*.PNG", ".png"]), max_size=3), max_size=4
    ),
    st.sampled_from(["x.png", "a/x.png", "a.png/x", "a/b.a.png", ".png", "a", "X.PNG", "a/.PNG"]),
)
def test_pattern_set_finds_the_same_builders_as_single_matches(builders: list[list[str]], path: str) -> None:
    patterns = PatternSet([[glob(text) for text in texts] for texts in builders])

    expected = tuple(index for index, texts in enumerate(builders) if any(wildcard(text).fullmatch(path) for text in texts))
    assert patterns.builders_for(path) == expected


def test_no_path_is_ignored_without_ignore_rules() -> None:
    assert not ignore_matcher("")("a")


def test_ignore_rule_matches_the_whole_path_and_ignores_case() -> None:
    is_ignored = ignore_matcher(r"(?:.*/)?[^/]*\.tmp")

    assert is_ignored("a/B.TMP")
    assert not is_ignored("a/b.tmp.txt")

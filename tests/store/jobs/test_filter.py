"""The filter language: the meaning of a filter, errors of an invalid filter, and linear time of every pattern."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aptui.core.run_report import NUMBER_FACTS
from aptui.shared.errors import HostError
from aptui.store.jobs import regex
from aptui.store.jobs import texts as columns_of_text
from aptui.store.jobs.filter import (
    FIELDS,
    STATUS_CODES,
    STATUS_WORDS,
    Between,
    Filter,
    FilterError,
    TextMatch,
    parse,
    with_statuses,
)
from aptui.store.jobs.texts import TextPool, Texts

_NUMBERS = ("after", "before", "slower", "faster", "is", *NUMBER_FACTS)
NOW = datetime(2026, 11, 20, 12, 30)
NOW_MS = int(NOW.timestamp() * 1000)


@dataclass
class Rows:
    """A few rows with different sources. `others` has the values of further columns; a column that is not in it is constant."""

    sources: list[str]
    others: dict[str, list[Any]] = field(default_factory=dict)

    def row_count(self) -> int:
        return len(self.sources)

    def text(self, name: str) -> tuple[Any, Texts]:
        found = Texts()
        return found.extend_distinct(self.sources if name == "source" else self.others.get(name, [""] * len(self.sources))), found

    def read_log_lines(self, name: str, rows: Any, check: Any) -> list[str]:
        return ["" if check is None else self.others.get(f"{name} log", [""] * len(self.sources))[row] for row in rows.tolist()]

    def number(self, name: str) -> Any:
        return np.array(self.others.get(name, [0] * len(self.sources)))


PATHS = ["Textures/Rock_01.png", "textures/rock_02.PNG", "textures/my rock.fbx", "meshes/xfbx", "Ärger/straße.lua"]


LOGS = Rows(
    ["a", "b", "c", "d"],
    {
        "status": [STATUS_CODES["failed"], *[STATUS_CODES["completed"]] * 3],
        "errors": [2, 1, 0, 0], "warnings": [0, 2, 1, 0],
        "error": ["command exited with status 1", "", "", ""],
        "error log": ["first thing\nfatal: airship", "castle is old", "airship", ""],
        "warning log": ["airship", "no door\nairship is loud", "door without a target", ""],
    },
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("error:airship", [0]),  # all lines of a log are searched, but only if its job has errors
        ("error:^fatal", [0]),  # ^ and $ match at the beginning and end of each line
        ("error:castle|status", [0, 1]),  # the error message of a job is searched in addition to its log
        ("!error:.", [2, 3]),
        ("warning:airship", [1]),
        ("warning:door", [1, 2]),
        ("warning:door error:castle", [1]),
    ],
)
def test_error_and_warning_terms_match_log_lines_of_their_level(text: str, found: list[int]) -> None:
    assert hits(text, LOGS) == found


def test_filter_without_log_reading_matches_only_errors_of_jobs() -> None:
    mask = parse("error:castle|status").matches(LOGS, reads_logs=False)

    assert np.flatnonzero(mask).tolist() == [0]


def hits(text: str, rows: Rows | None = None) -> list[int]:
    return np.flatnonzero(parse(text, NOW_MS).matches(rows or Rows(PATHS))).tolist()


# ------------------------------------------------------------------------------------------------------------------- terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [0, 1, 2, 3, 4]), ("   ", [0, 1, 2, 3, 4]), ("rock", [0, 1, 2]), ("ROCK", [0, 1, 2]), ("(?-i)Rock", [0]),
        ("rock png", [0, 1]),
        ("!rock", [3, 4]),
        ("rock !(?-i)PNG", [0, 2]), ('"my rock"', [2]), ('!"my rock"', [0, 1, 3, 4]), (r"\.fbx", [2]), (".fbx", [2, 3]),
        ("^textures/.*[0-9]", [0, 1]),
        ('source:"y r"', [2]), ("source:^m", [3]), ("path:^m", [3]), ("ärger", [4]), ("STRASSE", []), (r"\S\w\d", [0, 1]),
        (r"(?-i)\p{Lu}ock", [0]),
        (r"[[:alpha:]]fbx", [3]), ("a|b", [2, 3, 4]), ("(?-i)[[:upper:]]ock", [0]), (r"rock\b", [2]), ("lua$ ärger", [4]),
    ],
)  # fmt: skip
def test_filter_finds_only_rows_that_match_all_terms(text: str, expected: list[int]) -> None:
    assert hits(text) == expected


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in ("status", "source", "warning", *_NUMBERS)])
def test_field_term_searches_only_its_field(name: str) -> None:
    rows = Rows(["a", "b", "image"], {name: ["Image", "mesh", ""]})

    assert hits(f"{name}:image", rows) == [0]
    assert hits(f"{name}:IMAGE", rows) == [0]
    assert hits(f"{name}:(?-i)IMAGE", rows) == []
    assert hits(f"!{name}:image", rows) == [1, 2]
    assert hits(f"{name.upper()}:m", rows) == [0, 1]


STATUS_ROWS = Rows(
    [f"{number}" for number in range(7)],
    {
        "status": [
            STATUS_CODES[name] for name in ("pending", "processing", "completed", "completed", "completed", "failed", "cancelled")
        ],
        "warnings": [0, 0, 0, 2, 1, 3, 0],
        "errors": [0, 0, 0, 0, 1, 1, 0],
    },
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pending", [0]), ("processing", [1]), ("completed", [2, 3, 4]), ("failed", [5]), ("cancelled", [6]), ("canceled", [6]),
        ("warnings", [3, 4]), ("Warning", [3, 4]), ("errors", [4]), ("error", [4]), ("inprogress", [1]),
        ("!failed", [0, 1, 2, 3, 4, 6]),
        ("status:failed|warnings", [3, 4, 5]), ("status:failed,warning", [3, 4, 5]), ("status:fail", [5]), ("status:^p", [0, 1]),
        ('"failed"', []), ("status:nonsense", []), ("source:failed", []),
    ],
)  # fmt: skip
def test_status_word_selects_a_status_unless_the_word_is_quoted(text: str, expected: list[int]) -> None:
    assert hits(text, STATUS_ROWS) == expected


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("12:01", datetime(2026, 11, 20, 12, 1)), ("23:01", datetime(2026, 11, 19, 23, 1)),
        ("12:01:30", datetime(2026, 11, 20, 12, 1, 30)),
        ("2026-11-19", datetime(2026, 11, 19)), ("2026-11-19T08:00", datetime(2026, 11, 19, 8)),
        ('"2026-11-19 08:00"', datetime(2026, 11, 19, 8)),
        ("2h", datetime(2026, 11, 20, 10, 30)), ("1d", datetime(2026, 11, 19, 12, 30)), ("90s", datetime(2026, 11, 20, 12, 28, 30)),
    ],
)  # fmt: skip
def test_after_term_accepts_a_time_a_date_or_an_age(value: str, moment: datetime) -> None:
    assert parse(f"after:{value}", NOW_MS).terms == (
        Between("completed_ms", int(moment.timestamp() * 1000), math.inf, is_negated=False),
    )


@pytest.mark.parametrize(
    ("value", "first", "last"),
    [
        ("9:00..10:00", datetime(2026, 11, 20, 9), datetime(2026, 11, 20, 10)),
        ("12:00..13:00", datetime(2026, 11, 20, 12), datetime(2026, 11, 20, 13)),
        ("23:00..01:00", datetime(2026, 11, 19, 23), datetime(2026, 11, 20, 1)),
        ("12:00..11:00", datetime(2026, 11, 20, 12), datetime(2026, 11, 21, 11)),
        ("13:00..14:00", datetime(2026, 11, 19, 13), datetime(2026, 11, 19, 14)),
    ],
)
def test_range_of_times_of_day_ends_after_its_beginning(value: str, first: datetime, last: datetime) -> None:
    least, most = (int(moment.timestamp() * 1000) for moment in (first, last))

    assert parse(f"after:{value}", NOW_MS).terms == (Between("completed_ms", least, most, is_negated=False),)


def test_after_term_with_an_age_that_exceeds_all_numbers_matches_every_completed_job() -> None:
    rows = Rows(["a", "b"], {"completed_ms": [NOW_MS - 1000, NOW_MS - 9_000_000]})

    assert hits(f"after:{'9' * 400}d", rows) == [0, 1]


def test_filter_terms_for_completion_time_and_duration_select_matching_jobs() -> None:
    rows = Rows(["a", "b", "c"], {"completed_ms": [0, NOW_MS - 1000, NOW_MS - 9_000_000], "duration_ms": [10, 1500, 1501]})

    assert hits("after:2h", rows) == [1]
    assert hits("!after:2h", rows) == [0, 2]
    assert hits("slower:1.5s", rows) == [2]
    assert hits("slower:1 !c", rows) == [1]
    assert hits("before:2h", rows) == [2]
    assert hits("faster:1.5s", rows) == [index for index, took in enumerate(rows.others["duration_ms"]) if took < 1500]
    assert hits("slower:1s..2s", rows) == [index for index, took in enumerate(rows.others["duration_ms"]) if 1000 <= took < 2000]
    assert hits("after:..2h", rows) == hits("before:2h", rows)
    assert hits("after:3h..", rows) == hits("after:3h", rows)


@pytest.mark.parametrize(
    ("value", "duration_ms"), [("200ms", 200), ("1.5s", 1500), ("3", 3000), ("2m", 120_000), ("1h", 3_600_000)]
)
def test_slower_filter_accepts_a_duration_with_or_without_unit(value: str, duration_ms: float) -> None:
    assert parse(f"slower:{value}").terms == (Between("duration_ms", duration_ms + 1, math.inf, is_negated=False),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("w:4096", [2]), ("width:=4096", [2]), ("w:>1024", [2, 3]), ("W:>=4096", [2, 3]), ("w:<4096", [1]), ("w:<=4096", [1, 2]),
        ("w:1..4096", [1, 2]), ("w:4096..", [2, 3]), ("w:..4096", [1, 2]), ("!w:>0", [0]), ("w:>=0", [1, 2, 3]), ("w:0", []),
        ("seconds:>1.5", [3]), ("seconds:<=1.5", [2]), ("format:png", [1]), ("w:>4000 h:<100", [3]),
    ],
)  # fmt: skip
def test_job_without_facts_matches_no_range_term(text: str, expected: list[int]) -> None:
    facts = {
        "width": [0, 64, 4096, 8192],
        "height": [0, 64, 4096, 64],
        "seconds": [0.0, 0.0, 1.5, 2.0],
        "format": ["", "png", "", ""],
    }

    assert hits(text, Rows(["a", "b", "c", "d"], facts)) == expected


@pytest.mark.parametrize("value", ["abc", "..", ">", "1..>2", "-1", "4k"])
def test_invalid_number_is_an_error_with_its_column(value: str) -> None:
    with pytest.raises(FilterError, match="is not a number") as caught:
        parse(f"rock w:{value}")
    assert caught.value.column == 8


def test_filter_term_stores_the_column_where_its_pattern_begins() -> None:
    terms = parse('a !key:"b c" failed').terms

    assert [(term.field, term.raw, term.column, term.is_negated) for term in terms if isinstance(term, TextMatch)] == [
        ("source", "a", 1, False), ("key", "b c", 9, True), ("status", "failed", 14, False),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ('a "open', 3, "the closing quote is missing", "…"), ('"a"b', 4, "space is missing", ""),
        ("status:", 8, "a pattern is missing after", ""),
        ("a !", 4, "a pattern is missing after '!'", ""), ('""', 2, "a pattern is missing after", ""),
        ("statsu:x", 1, "'statsu' is not a field", "'status:'"),
        ("a colour:red", 3, "'colour' is not a field", 'write "colour:red"'), ("after:soon", 7, "'soon' is not a time", "23:01"),
        ("after:99:99", 7, "not a time", "2h"), ("slower:fast", 8, "not a duration", "1.5s"),
        ("rock(", 5, "unclosed group", "backslash"),
        ("ok key:b[a", 9, "unclosed character class", ""), ("Rock(", 5, "unclosed group", ""),
        ('"a b" x{2,1}', 8, "invalid repetition", ""),
        ("*.fbx", 1, "repetition operator", r"\.fbx$"), ("(?<=a)b", 1, "look-around", "`!`"), ("status:(", 8, "unclosed group", ""),
        (r"(a)\1", 4, "backreferences", ""), ("(x{1000}){1000}", 10, "too large", ""),
        ("ab**", 3, "repetition of a repetition", ""), (r"a\q", 2, "unrecognized escape", ""),
    ],
)  # fmt: skip
def test_filter_error_has_the_column_of_the_mistake(text: str, column: int, message: str, hint: str) -> None:
    with pytest.raises(FilterError) as error:
        parse(text, NOW_MS).check()

    assert message in error.value.what
    assert (error.value.column, error.value.where) == (column, f"filter:{column}")
    assert hint in error.value.hint


def test_invalid_patterns_are_reported_when_rows_are_matched() -> None:
    for text in ("b[", "key:b[", "status:b["):
        with pytest.raises(FilterError):
            hits(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (".fbx", r"`.` matches any character; to match only a dot, write `\.fbx`"),
        (r"\.fbx", ""),
        ("a.fbx", ""),
        (".png$", r"`.` matches any character; to match only a dot, write `\.png$`"),
    ],
)
def test_pattern_with_an_unescaped_dot_before_an_extension_gets_a_hint(text: str, hint: str) -> None:
    assert parse(text).hint == hint


def test_search_without_the_search_engine_names_the_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    regex.compile_pattern.cache_clear()

    parse("failed").check()
    assert hits("failed slower:1s", STATUS_ROWS) == []
    with pytest.raises(HostError, match="'google-re2'"):
        hits("rock")


@pytest.mark.real
def test_search_engine_is_imported_only_by_the_first_search() -> None:
    code = (
        "import sys; from aptui.store.jobs.filter import parse; from aptui.store.jobs.texts import Texts;"
        "Texts(['a'])[0]; parse('a failed slower:1s');"
        "sys.exit('re2' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from('ab "!:\\.*()[]{}?+|^$,1äÄ\n'), max_size=14))
def test_any_text_is_a_valid_filter_or_an_error_with_a_column(text: str) -> None:
    try:
        mask = parse(text, NOW_MS).matches(Rows(PATHS))
    except FilterError as error:
        assert 1 <= error.column <= len(text) + 1  # noqa: PT017  # either answer is right
    else:
        assert len(mask) == len(PATHS)


# ----------------------------------------------------------------------------------------------------------------- picker


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("", ["failed"], "status:failed"), ("rock failed", ["failed", "warnings"], "status:failed|warnings rock"),
        ('status:x "a b" !key:c', [], '"a b" !key:c'), ("!failed a", ["errors"], "status:errors !failed a"),
        ('"failed"', [], '"failed"'),
    ],
)  # fmt: skip
def test_status_picker_changes_only_the_status_terms_of_a_filter(text: str, words: list[str], expected: str) -> None:
    assert with_statuses(text, words) == expected


def test_filter_lists_the_statuses_of_its_terms() -> None:
    assert parse("failed status:warn !completed a").statuses == ("failed", "warnings")
    assert parse(with_statuses("a", STATUS_WORDS)).statuses == STATUS_WORDS


# ------------------------------------------------------------------------------------------------------------------- spans


def test_spans_of_matches_are_merged_and_counted_in_characters() -> None:
    wanted = parse("fbx ärger source:rock !x key:rock rock_0")

    assert wanted.spans(["Ärger/rock_01.fbx", "none", ""]) == [((0, 5), (6, 12), (14, 17)), (), ()]
    assert parse("failed").spans(["failed"]) == [()]
    assert parse("a*").spans(["bbb"]) == [()]


# ------------------------------------------------------------------------------------------------------------------- texts


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_of_text, "CHUNK", 4)


@pytest.mark.usefixtures("small_chunks")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=18), st.sets(st.integers(0, 17)))
def test_text_column_finds_and_ranks_the_same_texts_as_a_search_in_a_plain_list(words: list[str], some: set[int]) -> None:
    column = Texts(words[:7])
    column.extend(words[7:])
    expected = [word.replace("\0", "␀") for word in words]
    codes = np.array(sorted(code for code in some if code < len(words)), np.int64)

    assert [column[code] for code in range(len(column))] == expected
    hits = [any("a" in line or not line for line in word.split("\n")) for word in expected]
    assert column.matches("a|^$", len(words)).tolist() == hits
    assert column.matches_some("a|^$", codes).tolist() == [hits[code] for code in codes]
    lower = [word.lower() for word in expected]
    ranks = column.ranks(len(words)).tolist()
    assert sorted(range(len(words)), key=lambda code: (ranks[code], code)) == sorted(
        range(len(words)), key=lambda code: (lower[code], code)
    )


@pytest.mark.usefixtures("small_chunks")
def test_joined_texts_are_stored_in_order() -> None:
    column = Texts()
    column.extend_joined("a\0\0ä\0d".encode(), 4)
    column.extend_joined(b"e", 1)
    column.extend_joined(b"f\0g\0h\0i", 4)

    assert [column[code] for code in range(len(column))] == ["a", "", "ä", "d", "e", "f", "g", "h", "i"]


def test_text_column_above_the_size_limit_has_the_same_sort_order(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["b", "A", "a", "C", "B"]
    few = Texts(words).ranks(5).tolist()
    monkeypatch.setattr(columns_of_text, "_MOST_SORTED_BYTES", 0)
    many = Texts(words).ranks(5)

    assert np.argsort(many, kind="stable").tolist() == np.argsort(few, kind="stable").tolist() == [1, 2, 0, 4, 3]


def test_text_pool_stores_equal_texts_once() -> None:
    pool = TextPool(Texts([""]))

    assert [pool[text] for text in ("a", "b", "", "a")] == [1, 2, 0, 1]
    assert pool.texts[2] == "b"


def test_search_stops_when_check_raises() -> None:
    class StoppedError(Exception):
        pass

    def check() -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        Filter("a", parse("a").terms).matches(Rows(PATHS), None, check)

"""`print_new` prints each line of a growing log once, and an incomplete line again; lines that were left out are not repeated."""

from __future__ import annotations

import pytest

from aptui.cli.log_verb import Followed, print_new
from aptui.store.joblog import JobLogLine


def lines(*texts: str) -> list[JobLogLine]:
    return [JobLogLine(1, "w", text, 5) for text in texts]


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ([], ["one"], ["one"]),
        (["one"], ["one"], []),
        (["one"], ["one", "two"], ["two"]),
        (["one", "tw"], ["one", "two", "three"], ["two", "three"]),
        (["one", "two", "three"], ["[… 1 left out …]", "two", "three", "four"], ["four"]),
        (["one", "two"], ["[… 9 left out …]", "twelve"], ["[… 9 left out …]", "twelve"]),
    ],
)
def test_print_new_prints_each_line_once(before: list[str], now: list[str], said: list[str]) -> None:
    heard: list[JobLogLine] = []
    followed = Followed(7, lines(*before))

    print_new(followed, lines(*now), heard.extend)

    assert heard == lines(*said)
    assert followed.lines == lines(*now)

"""Durations and times as the screen writes them."""

import pytest

from aptui.tui.words import brief, duration_text, moment_text

NOW_MS = 1_763_680_867_204


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1420, "1.42 s"), (59_940, "59.9 s"), (125_000, "2m 05s"), (3_720_000, "1h 02m")],
)
def test_duration_text_is_rounded_to_at_most_two_units(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0 s"), (40, "40 ms"), (840, "0.8 s"), (48_300, "48 s"), (100_000, "1m 40s"), (7_500_000, "2h 05m")],
)
def test_brief_duration_text_is_rounded(duration_ms: int, text: str) -> None:
    assert brief(duration_ms) == text


def test_times_of_today_have_no_date() -> None:
    today = moment_text(NOW_MS - 1, NOW_MS)

    assert len(today) == len("23:01:07.204")
    assert moment_text(NOW_MS - 86_400_000 * 3, NOW_MS)[:3].isalpha()
    assert moment_text(NOW_MS - 86_400_000 * 400, NOW_MS).startswith("20")

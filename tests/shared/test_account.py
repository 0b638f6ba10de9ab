import pytest

from aptui.shared.result_store import Account, duration


def test_summary_line_has_the_number_of_hits_and_the_saved_time():
    account = Account()
    for _ in range(96):
        account.count("image", remote_hits=1, built_ms=27_500, fetch_ms=1_875)
    account.count("image", misses=4)

    assert account.line() == "96 of 100 results from cache: 41 min saved, 3 min fetching"


def test_fetching_slower_than_building_is_reported_as_lost_time():
    account = Account()
    account.count("image", remote_hits=1, built_ms=1_000, fetch_ms=21_000)

    assert account.line() == "1 of 1 result from cache: 20 s lost, 21 s fetching"


def test_summary_line_is_empty_without_requests_and_short_without_hits():
    account = Account()
    assert account.line() == ""

    account.count("image", misses=3)
    assert account.line() == "0 of 3 results from cache"


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"unanswered": 7}, "the shared cache did not answer for 3, run 'aptui cache test' to see why"),
        ({"unusable": 2}, "2 found, but damaged, incomplete or too slow"),
        ({"uploads": 1, "not_uploaded": 2}, "1 uploaded; 2 not uploaded"),
    ],
)
def test_summary_line_says_why_results_were_not_fetched_or_uploaded(counts, reason):
    account = Account()
    account.count("image", misses=3, **counts)

    assert account.line() == f"0 of 3 results from cache; {reason}"


def test_builder_that_saved_most_time_is_listed_first():
    account = Account()
    account.count("image", local_hits=1, built_ms=10)
    account.count("mesh", remote_hits=2, built_ms=500, fetched_bytes=7)

    by_builder = account.by_builder()
    assert list(by_builder) == ["mesh", "image"]
    assert (by_builder["mesh"].hits, by_builder["mesh"].fetched_bytes) == (2, 7)
    assert account.total().hits == 3


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0, "0.0 s"), (9_940, "9.9 s"), (60_000, "60 s"), (300_000, "5 min"), (9_000_000, "2.5 h")]
)
def test_durations_are_printed_in_a_readable_unit(milliseconds, text):
    assert duration(milliseconds) == text

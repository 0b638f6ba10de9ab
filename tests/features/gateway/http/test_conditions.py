"""Conditional requests and ranges of RFC 9110."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from aptui.features.gateway.http.sending import Unsatisfiable, http_date, ranges_of, status_of

MODIFIED = 784_111_777
AT, BEFORE, AFTER = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:36 GMT", "Sun, 06 Nov 1994 08:49:38 GMT"
NEVER = "Thu, 01 Jan 99999999999999999999 00:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"If-None-Match": '"tag"'}, 304),
        ({"If-None-Match": 'W/"tag"'}, 304),
        ({"If-None-Match": '"x", "tag"'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"x"'}, 200),
        ({"If-None-Match": "tag"}, 200),
        ({"If-None-Match": '"x"', "If-Modified-Since": AFTER}, 200),
        ({"If-Modified-Since": AT}, 304),
        ({"If-Modified-Since": BEFORE}, 200),
        ({"If-Modified-Since": "yesterday"}, 200),
        ({"If-Modified-Since": NEVER}, 200),
        ({"If-Unmodified-Since": NEVER}, 200),
        ({"If-Match": '"tag"'}, 200),
        ({"If-Match": '"x", "tag"'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": 'W/"tag"'}, 412),
        ({"If-Match": '"x"'}, 412),
        ({"If-Match": '"x"', "If-None-Match": '"tag"'}, 412),
        ({"If-Match": '"tag"', "If-None-Match": '"tag"'}, 304),
        ({"If-Match": '"tag"', "If-Unmodified-Since": BEFORE}, 200),
        ({"If-Unmodified-Since": BEFORE}, 412),
        ({"If-Unmodified-Since": AT}, 200),
    ],
)
def test_conditional_requests_follow_the_rfc(headers: dict[str, str], status: int) -> None:
    assert status_of(make_mocked_request("GET", "/", headers), "tag", MODIFIED) == status


@pytest.mark.parametrize(("name", "status"), [("If-None-Match", 200), ("If-Match", 412)])
def test_empty_etag_in_a_request_does_not_match_a_file_without_an_etag(name: str, status: int) -> None:
    assert status_of(make_mocked_request("GET", "/", {name: '""'}), "", MODIFIED) == status


def ranges(size: int, text: str, **more: str) -> list[tuple[int, int]] | None:
    return ranges_of(make_mocked_request("GET", "/", {"Range": text, **more}), size, "tag", MODIFIED)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None), ("bytes=", None), ("lines=0-1", None), ("bytes=a-b", None), ("bytes=-", None), ("bytes=5-4", None),
        ("bytes=0-1,x", None),
        ("bytes=0-", [(0, 10)]), ("bytes=0-0", [(0, 1)]), ("bytes=3-99", [(3, 10)]), ("bytes=-3", [(7, 10)]),
        ("bytes=-99", [(0, 10)]),
        ("BYTES = 0-0", [(0, 1)]), ("bytes=0-0, 5-6", [(0, 1), (5, 7)]), ("bytes=5-6,0-0", [(5, 7), (0, 1)]),
        ("bytes=0-3,2-5,9-", [(0, 6), (9, 10)]),
        ("bytes=0-1,2-3", [(0, 4)]), ("bytes=20-,1-1", [(1, 2)]), ("bytes=" + ",".join(["0-0"] * 17), None),
        ("bytes=0-" + "9" * 30, None),
    ],
)  # fmt: skip
def test_byte_ranges_follow_the_rfc(text: str, found: list[tuple[int, int]] | None) -> None:
    assert ranges(10, text) == found


@pytest.mark.parametrize(("text", "size"), [("bytes=10-", 10), ("bytes=10-11,20-30", 10), ("bytes=-0", 10), ("bytes=0-", 0)])
def test_request_with_only_ranges_beyond_the_end_of_the_file_is_refused(text: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        ranges(size, text)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('"tag"', True),
        ('"x"', False),
        ('W/"tag"', False),
        (AT, True),
        (BEFORE, False),
        (AFTER, False),
        ("?", False),
        (NEVER, False),
    ],
)
def test_request_with_an_outdated_if_range_header_gets_the_whole_file(condition: str, holds: bool) -> None:
    assert ranges(10, "bytes=0-1", **{"If-Range": condition}) == ([(0, 2)] if holds else None)


@given(st.text(alphabet="0123456789-, bytes=", max_size=40), st.integers(0, 50))
def test_ranges_are_always_disjoint_and_inside_the_file(text: str, size: int) -> None:
    try:
        found = ranges(size, f"bytes={text}")
    except Unsatisfiable:
        return
    taken: set[int] = set()
    for first, end in found or []:
        part = set(range(first, end))
        assert part
        assert not part & taken
        assert max(part) < size
        taken |= part


@pytest.mark.parametrize(
    ("moment_s", "expected"), [(10**12, "Fri, 31 Dec 9999 23:59:59 GMT"), (-(10**12), "Thu, 01 Jan 1970 00:00:00 GMT")]
)
def test_file_time_outside_the_calendar_becomes_the_nearest_http_date(moment_s: int, expected: str) -> None:
    assert http_date(moment_s) == expected

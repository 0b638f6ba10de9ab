"""HTTP's ETags, conditional requests and ranges (RFC 9110 §13, §14) as decisions over headers; nothing is sent here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from itertools import pairwise

RANGES_MOST = 16
"""More ranges in one request are not worth their trouble: the whole file is sent, as §14.2 allows."""
_ETAGS = re.compile(r'\s*(W/)?"([^"]*)"\s*(?:,|$)')
_RANGE = re.compile(r"(\d*)-(\d*)", re.ASCII)
_DIGITS_MOST = 19

Range = tuple[int, int]
"""First byte, and the one after the last."""


class Unsatisfiable(ValueError):
    """No range that was asked for lies in the file (416)."""


def status_of(headers: Mapping[str, str], etag: str, modified_s: int) -> int:
    """Return 412, 304 or 200: what the conditions of a GET or HEAD come to (§13.2.2); `etag` is without quotes, "" = none."""
    if (wanted := headers.get("If-Match")) is not None:
        if not _matches(wanted, etag, weak=False):
            return 412
    elif (moment := _date(headers.get("If-Unmodified-Since"))) is not None and modified_s > moment:
        return 412
    if (known := headers.get("If-None-Match")) is not None:
        return 304 if _matches(known, etag, weak=True) else 200
    if (moment := _date(headers.get("If-Modified-Since"))) is not None and modified_s <= moment:
        return 304
    return 200


def ranges_of(headers: Mapping[str, str], size: int, etag: str, modified_s: int) -> list[Range] | None:
    """Return the ranges that a GET wants, None = the whole file. Ranges that overlap or touch become one.

    Raises:
        Unsatisfiable: none of them lies in the file.
    """
    unit, _, text = headers.get("Range", "").partition("=")
    if unit.strip().lower() != "bytes" or not _still_holds(headers.get("If-Range"), etag, modified_s):
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or len(words) > RANGES_MOST:
        return None
    found: list[Range] = []
    for word in words:
        match = _RANGE.fullmatch(word)
        if match is None or max(map(len, match.groups())) > _DIGITS_MOST or match[0] == "-":
            return None  # it is no range of ours: as if it were not there
        if match[1] and match[2] and int(match[1]) > int(match[2]):
            return None
        wanted = _within(match[1], match[2], size)
        if wanted[0] < wanted[1]:
            found.append(wanted)
    if not found:
        raise Unsatisfiable
    return _join_ranges(found)


def _within(first: str, last: str, size: int) -> Range:
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1, size) if last else size


def _join_ranges(ranges: list[Range]) -> list[Range]:
    """Return the ranges in the order in which they were asked for; if any overlap, as few as cover them, by place."""
    ordered = sorted(ranges)
    if all(one[1] < other[0] for one, other in pairwise(ordered)):
        return ranges
    joined = [ordered[0]]
    for first, end in ordered[1:]:
        if first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return joined


def _still_holds(if_range: str | None, etag: str, modified_s: int) -> bool:
    """Whether the client's part is of this very file (§13.1.5): a strong tag, or exactly this date."""
    if if_range is None:
        return True
    text = if_range.strip()
    if text.startswith(('"', "W/")):
        return bool(etag) and text == f'"{etag}"'
    return _date(text) == modified_s


def _matches(listed: str, etag: str, *, weak: bool) -> bool:
    if listed.strip() == "*":
        return True
    return bool(etag) and any(tag == etag and (weak or not is_weak) for is_weak, tag in _ETAGS.findall(listed))


def _date(text: str | None) -> int | None:
    if not text:
        return None
    try:
        return int(parsedate_to_datetime(text).timestamp())
    except (ValueError, TypeError, OverflowError):
        return None

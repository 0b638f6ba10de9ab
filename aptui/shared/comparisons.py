"""Ranges of a number as people write them: `4096`, `>4096`, `<= 512`, `1..64`.

Tests: `tests/store/jobs/test_filter.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

_SIGN = re.compile(r"\s*(<=|>=|<|>|=)?\s*(.*?)\s*", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
FORMS = "4096, >4096, <=512 or 1..64"


def plain_number(text: str) -> float:
    """Return a number without a sign; raises ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def between(text: str, number_of: Callable[[str], float] = plain_number) -> tuple[float, float]:
    """Return (minimum, exclusive maximum) of a range; both ends of `1..64` belong to it.

    Raises:
        ValueError: the text is not a range.
    """
    first, dots, last = text.partition("..")
    if dots:
        if not first.strip() and not last.strip():
            raise ValueError(text)
        most = math.nextafter(number_of(last.strip()), math.inf) if last.strip() else math.inf
        return (number_of(first.strip()) if first.strip() else 0.0), most
    found = _SIGN.fullmatch(text)
    assert found is not None  # the pattern matches any text, because every part may be empty
    sign, number = found[1] or "=", number_of(found[2])
    after = math.nextafter(number, math.inf)
    return {">": (after, math.inf), ">=": (number, math.inf), "<": (0.0, number), "<=": (0.0, after)}.get(sign, (number, after))

"""A share of many things, as the command line has it: `5%`, or `12`.

Tests: `tests/verbs/results/test_rebuild.py`.
"""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError

from msgspec import Struct


class SharedCacheSetup(Struct, frozen=True):
    """How many jobs: `percent` of all, or `count` when that is not 0."""

    percent: float = 0.0
    count: int = 0

    def of(self, total: int) -> int:
        """Return how many of `total` that is, at least one."""
        return min(total, self.count or max(1, math.ceil(total * self.percent / 100)))


def share(text: str) -> SharedCacheSetup:
    """Return what "5%" or "12" says, for the command line."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%|(\d+)", text.strip())
    if match is None or (match[1] and not 0 < float(match[1]) <= 100) or (match[2] and int(match[2]) == 0):
        raise ArgumentTypeError(f"'{text}' is neither a percentage like 5% nor a number of jobs")
    return SharedCacheSetup(percent=float(match[1])) if match[1] else SharedCacheSetup(count=int(match[2]))

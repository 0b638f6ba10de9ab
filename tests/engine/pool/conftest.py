"""Fixture of a pool with real workers."""

from __future__ import annotations

import pytest
from pool_harness import Harness


@pytest.fixture
def harness(tmp_path):
    """Return a function that opens a pool for builders; all pools are closed at the end."""
    made = []

    def make(*builders, **more):
        made.append(Harness(tmp_path, builders, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()

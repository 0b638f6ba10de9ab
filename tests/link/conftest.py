"""An engine's server and its clients."""

from __future__ import annotations

import pytest
from link_harness import opened


@pytest.fixture
def harness():
    """Return an open server."""
    with opened() as harness:
        yield harness

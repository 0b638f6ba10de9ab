"""An engine's server and its clients."""

from __future__ import annotations

import pytest
from link_room import opened


@pytest.fixture
def room():
    """Return an open server."""
    with opened() as room:
        yield room

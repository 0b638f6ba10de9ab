"""A world for the stories of the core."""

from __future__ import annotations

import pytest
from fake_world import World


@pytest.fixture
def world() -> World:
    """Return an engine without files over the default configuration."""
    return World()

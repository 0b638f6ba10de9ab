"""Fixture of a simulated engine for the tests of the core."""

from __future__ import annotations

import pytest
from fake_world import World


@pytest.fixture
def world() -> World:
    """Return a simulated engine with the default configuration and without files."""
    return World()

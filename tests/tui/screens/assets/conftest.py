"""Fixtures for tests of the Assets screen."""

from .assets_harness import store  # noqa: F401

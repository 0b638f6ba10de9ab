"""Fixtures for tests of the Assets screen."""

from .assets_harness import _own_homes, store  # noqa: F401

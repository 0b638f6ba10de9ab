"""Fixtures for tests of the Assets screen."""

from .assets_room import _own_homes, store  # noqa: F401

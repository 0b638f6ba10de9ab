"""Fixtures of the tests of this screen."""

from .assets_room import _own_homes, store  # noqa: F401

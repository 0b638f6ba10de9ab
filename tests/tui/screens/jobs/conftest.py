"""Fixtures of the tests of this screen."""

from .jobs_pane_room import _own_homes  # noqa: F401

"""Fixtures for tests of the Jobs screen."""

from .jobs_pane_harness import _own_homes  # noqa: F401

"""Fixtures for tests of the screens."""

from ..shell_harness import _own_homes  # noqa: F401

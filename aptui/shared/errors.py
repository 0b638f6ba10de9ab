"""The three families of errors that reach people; the failure of a builder is a result, not an exception.

Tests: `tests/shared/test_errors.py`.
"""

from __future__ import annotations


class KnownError(Exception):
    """An error that people can act on.

    Args:
        what: what is wrong; lower case, no full stop, paths quoted.
        where: `file`, `file:line` or `file:line:column`, or "" when there is no place.
        hint: what to do next, or "".
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.hint}" if self.hint else text


def install_advice(extra: str) -> str:
    """Return how an extra of aptui is installed, from an index and in a clone."""
    return f"pip install 'aptui[{extra}]', in a clone pip install '.[{extra}]'"


class UserError(KnownError):
    """Your file, your configuration, your arguments: exit code 3."""

    exit_code = 3


class HostError(KnownError):
    """The disk, a permission, a limit of the machine: exit code 2."""


class BusyError(KnownError):
    """Another engine holds the cache and cannot be asked: exit code 4."""

    exit_code = 4


class InternalError(KnownError):
    """A bug of ours: exit code 2."""

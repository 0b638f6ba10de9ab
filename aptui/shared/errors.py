"""Errors that users see, each with its exit code. The failure of a builder is a result, not one of these exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterable


class KnownError(Exception):
    """An error that the user can act on.

    Args:
        what: what is wrong; lower case, no full stop, paths quoted.
        where: `file`, `file:line` or `file:line:column`, or "" without a place.
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
    """Return the command that installs the packages of an extra; it names each package, because aptui is not on a package index."""
    import shlex
    from importlib.metadata import PackageNotFoundError

    try:
        return f"pip install {shlex.join(_packages(extra))}"
    except PackageNotFoundError:  # aptui is not installed, but runs from a clone
        return f"pip install '.[{extra}]' in the clone"


def _packages(extra: str) -> list[str]:
    from importlib.metadata import requires

    found = []
    for requirement in requires("aptui") or ():
        package, _, condition = requirement.partition(";")
        if f"extra == '{extra}'" in condition.replace('"', "'"):
            nested = re.fullmatch(r"aptui\[([^]]+)\]", package.strip())
            found += [package.strip()] if nested is None else [name for part in nested[1].split(",") for name in _packages(part)]
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the hint for an unknown word: the most similar known word, or all known words if none is similar."""
    from difflib import get_close_matches  # imported here, because it is needed only after a mistake

    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.6) or [name for name in names if name.lower() == word.lower()]
    if near:
        return f"did you mean '{near[0]}'?"
    return f"the known names are: {', '.join(names)}" if names else ""


class UserError(KnownError):
    """An error in the user's file, configuration or arguments: exit code 3."""

    exit_code = 3


class MissingProjectError(UserError):
    """No project was found: neither in the named folder nor above it is an `aptui.yaml` or a project of a known program."""


class HostError(KnownError):
    """A problem with the disk, a permission or a limit of the machine: exit code 2."""


class BusyError(KnownError):
    """Another process holds the cache or a port, or an engine is busy: exit code 4."""

    exit_code = 4


class InternalError(KnownError):
    """A bug of ours: exit code 2."""

"""Names of products that cannot lie in one cache: `a` is a file where `a/b` needs a folder.

Tests: `tests/core/state/test_working_set.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache


def folders_above(name: str) -> tuple[str, ...]:
    """Return the folders that a product lies in, apart from its platform's: "p/a/b/c" lies in "p/a" and "p/a/b"."""
    return _chain(name.rpartition("/")[0])


@lru_cache(maxsize=4096)
def _chain(folder: str) -> tuple[str, ...]:
    """Return `folder` and those that it lies in, apart from the platform's; asked for many products of one folder in a row."""
    above, slash, _name = folder.rpartition("/")
    return (*_chain(above), folder) if slash else ()


class Nesting:
    """Names, and which of them are folders for others."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._below: dict[str, dict[str, None]] = {}
        self._names: dict[str, None] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Add a name."""
        self._names[name] = None
        for folder in folders_above(name):
            self._below.setdefault(folder, {})[name] = None

    def discard(self, name: str) -> None:
        """Take a name out that was added."""
        del self._names[name]
        for folder in folders_above(name):
            del self._below[folder][name]
            if not self._below[folder]:
                del self._below[folder]

    def around(self, name: str) -> list[str]:
        """Return the names that cannot lie in one cache with `name`: folders for it, and names for which it is one."""
        if not self._names:
            return []
        return [*(folder for folder in folders_above(name) if folder in self._names), *self._below.get(name, ())]

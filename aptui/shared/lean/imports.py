"""Imports of libraries without parts that this process does not need, or does not need yet.

Tests: `tests/shared/lean/test_imports.py`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Any, cast

# Memory of the C library that this process keeps without need; where it is not glibc nothing happens.

_M_ARENA_MAX = -8
"""`mallopt(3)`."""


def use_one_heap() -> None:
    """Let threads that begin from now on share one heap: of several, each keeps what its thread once needed.

    Nobody waits for it: threads of Python take turns anyway.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Give the system what was needed for a while: glibc would keep it, 7 MB after a hundred thousand jobs were read."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Let modules not be found while the block imports those that can do without them; what is imported already stays."""
    with _instead(dict.fromkeys(names)):  # None is what the import system takes for "there is none"
        yield


@contextmanager
def defer(*names: str) -> Iterator[None]:
    """Let modules be imported when they are used: what the block takes from them are functions that find the real ones then."""
    with _instead({name: _Deferred(name) for name in names}):
        yield


@contextmanager
def substitute(name: str, **functions: Callable[[], object]) -> Iterator[None]:
    """Let a module have these functions alone while the block imports what calls no others of it."""
    stand_in = ModuleType(name)
    vars(stand_in).update(functions)
    with _instead({name: stand_in}):
        yield


@contextmanager
def _instead(modules: dict[str, ModuleType | None]) -> Iterator[None]:
    known = cast("dict[str, Any]", sys.modules)
    mine = {name: module for name, module in modules.items() if name not in known}
    known |= mine
    try:
        yield
    finally:
        for name in mine:
            del known[name]  # whoever needs it later gets the real one


class _Deferred(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is not self:  # the block is over
            return getattr(self._real(), name)

        def call_later(*args: object, **kwargs: object) -> object:
            return getattr(self._real(), name)(*args, **kwargs)

        return call_later

    def _real(self) -> ModuleType:
        return import_module(self.__name__)

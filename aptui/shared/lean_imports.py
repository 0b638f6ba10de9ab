"""Imports libraries faster and with less memory: leaves out or defers the modules that this process does not need."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Any, cast

# The functions below limit the unused memory that glibc keeps. With another C library they have no effect.

_M_ARENA_MAX = -8
"""Number of the option M_ARENA_MAX of mallopt(3): the maximum number of heaps."""


def use_one_heap() -> None:
    """Let threads that start after this call share one heap. With a heap for each thread, each heap would keep its peak memory.

    Threads do not wait for the shared heap, because Python runs one thread at a time.
    """
    _call_libc("mallopt", _M_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Return free memory to the system. Otherwise glibc keeps it: 7 MB after a hundred thousand jobs were read."""
    _call_libc("malloc_trim", 0)


def _call_libc(name: str, *arguments: int) -> None:
    ctypes = import_module("ctypes")  # imported here, because the import takes 2 ms and few processes need ctypes
    with suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(None), name)(*arguments)


def import_numpy() -> None:
    """Import numpy without the threads of OpenBLAS, because each would use a core for 60 ms after the import to wait for work."""
    name = "OPENBLAS_NUM_THREADS"
    is_set = name in os.environ
    os.environ.setdefault(name, "1")
    try:
        # These two modules only add docstrings to numpy. Empty modules replace them, to save time.
        with substitute("numpy._core._add_newdocs"), substitute("numpy._core._add_newdocs_scalars"):
            import_module("numpy")
    finally:
        if not is_set:  # child processes must not inherit the variable
            del os.environ[name]


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Make the import of the modules `names` fail in this block, so that optional imports of them by other modules are skipped.

    Modules that are already imported stay available.
    """
    with _instead(dict.fromkeys(names)):  # the import system treats a module whose entry is None as missing
        yield


@contextmanager
def defer(*names: str) -> Iterator[None]:
    """Defer the import of the modules `names` in this block: a module is imported when one of its functions is first called."""
    with _instead({name: _Deferred(name) for name in names}):
        yield


@contextmanager
def substitute(name: str, **functions: Callable[[], object]) -> Iterator[None]:
    """In this block, replace the module `name` by a module that has only `functions`.

    Modules that are imported in the block must not need other functions of the replaced module.
    """
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
            del known[name]  # later imports must get the real module


class _Deferred(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is not self:  # the `with` block has ended: use the real module
            return getattr(self._real(), name)

        def call_later(*args: object, **kwargs: object) -> object:
            return getattr(self._real(), name)(*args, **kwargs)

        return call_later

    def _real(self) -> ModuleType:
        return import_module(self.__name__)

"""Imports of libraries without parts of them that this process has no use for.

Tests: `tests/shared/lean/test_imports.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Let modules not be found while the block imports those that can do without them; what is imported already stays."""
    with _instead(dict.fromkeys(names)):  # None is what the import system takes for "there is none"
        yield


@contextmanager
def hollow(*names: str) -> Iterator[None]:
    """Let modules be empty while the block imports those that run them for their effects, or take types for annotations there."""
    with _instead({name: _Hollow(name) for name in names}):
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


class _Hollow(ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyType


class _AnyType:
    def __class_getitem__(cls, _item: object) -> type:
        return cls

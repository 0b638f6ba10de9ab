"""A stored row that cannot be what it says is damage of the database, and is told as such.

Tests: `tests/store/db/archive/test_folders.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from aptui.shared.errors import InternalError
from aptui.store.db.schema import DamagedError

_Method = TypeVar("_Method", bound=Callable[..., Any])


class _Archive(Protocol):
    path: Path


def report_damage(method: _Method) -> _Method:
    """Take a row that cannot be unpacked for what it is: damage."""

    @wraps(method)
    def unpacking(self: _Archive, *args: Any) -> Any:
        try:
            return method(self, *args)
        except (ArithmeticError, AttributeError, InternalError, LookupError, TypeError, ValueError, struct.error) as error:
            what = f"a row of the asset database '{self.path}' cannot be: {type(error).__name__}: {error}"
            raise DamagedError(what, hint="start again: it is set aside then, and rebuilt from the sources") from error

    return cast("_Method", unpacking)

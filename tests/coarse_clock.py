"""Make `os` report file times of a coarse clock, as on FAT, NFSv3 and ext4 with small inodes.

A test that calls `coarsen` gets these times in its process and in the processes that it starts.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import pytest

TICK_VARIABLE = "PYTHON_COARSE_TICK_NS"
"""Variable with the tick of the coarse clock; workers inherit it, because its name begins with `PYTHON`."""


class _Entry:
    """An `os.DirEntry` whose `stat` has the file times of a coarse clock."""

    def __init__(self, entry: os.DirEntry[Any], coarse: Callable[[os.stat_result], os.stat_result]) -> None:
        self._entry, self._coarse = entry, coarse

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._coarse(self._entry.stat(follow_symlinks=follow_symlinks))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __fspath__(self) -> Any:
        return self._entry.path


class _Entries:
    """An iterator of `os.scandir` that yields `_Entry` objects, whose file times come from a coarse clock."""

    def __init__(self, found: Any, coarse: Callable[[os.stat_result], os.stat_result]) -> None:
        self._found, self._coarse = found, coarse

    def __iter__(self) -> Iterator[_Entry]:
        return (_Entry(entry, self._coarse) for entry in self._found)

    def __next__(self) -> _Entry:
        return _Entry(next(self._found), self._coarse)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_ending: object) -> None:
        self._found.close()

    def close(self) -> None:
        self._found.close()


def coarse_functions(tick_ns: int) -> dict[str, Callable[..., Any]]:
    """Return replacements of `os` functions that round file times down to multiples of `tick_ns`."""

    def coarse(found: os.stat_result) -> os.stat_result:
        reduced: Any = found.__reduce__()
        values, more = reduced[1]
        times = {name: ns - ns % tick_ns for name, ns in more.items() if name in ("st_mtime_ns", "st_ctime_ns")}
        seconds = {name.removesuffix("_ns"): ns / 1e9 for name, ns in times.items()}
        return os.stat_result(values, {**more, **times, **seconds})

    def of(name: str) -> Callable[..., os.stat_result]:
        real = getattr(os, name)
        return lambda *words, **more: coarse(real(*words, **more))

    scandir = os.scandir
    return {
        **{name: of(name) for name in ("stat", "lstat", "fstat")},
        "scandir": lambda *words: _Entries(scandir(*words), coarse),
    }


def coarsen(patch: pytest.MonkeyPatch, folder: Path, tick_ns: int) -> None:
    """Report coarse file times in this process and in its child processes, which import modules from `folder`."""
    from aptui.engine.scan import walk

    functions = coarse_functions(tick_ns)
    for name, function in functions.items():
        patch.setattr(os, name, function)
    patch.setattr(os, "supports_follow_symlinks", {*os.supports_follow_symlinks, functions["stat"]})
    patch.setattr(walk, "scandir", functions["scandir"])
    for name, value in variables_for_programs(folder, tick_ns).items():
        patch.setenv(name, value)
    patch.syspath_prepend(str(folder))  # so that workers see the folder: their sandbox shows the engine's `sys.path`


def wait_for_tick(tick_ns: int, is_over: Callable[[Callable[[], bool]], object]) -> None:
    """Wait until a tick has just begun, so that the next actions happen within that tick.

    Args:
        is_over: waits until the function that it receives returns true.
    """
    is_over(lambda: time.time_ns() % tick_ns < tick_ns // 10)


def variables_for_programs(folder: Path, tick_ns: int) -> dict[str, str]:
    """Write modules to `folder`, and return the variables with which Python processes import them and report coarse times."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, folder)  # copied, because the sandbox of a worker does not show the folder of this module
    (folder / "sitecustomize.py").write_text("import coarse_clock\ncoarse_clock.install()\n")
    return {TICK_VARIABLE: str(tick_ns), "PYTHONPATH": str(folder)}


def install() -> None:
    """Give this process coarse file times from now on."""
    for name, function in coarse_functions(int(os.environ[TICK_VARIABLE])).items():
        setattr(os, name, function)
        setattr(sys.modules["posix"], name, function)

"""Which logs of the engine there are, and which of them is shown; what stands in one is `logs.lines`'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.store.logs.logs import engine_logs, log_folder
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.words import size_text

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

_BASES = ("aptui", "AP_GUI", "AP_Batch")
"""Logs of ours, and of O3DE's own tools beside them."""


class LogFiles:
    """The logs of a project, the newest first.

    Args:
        show: called when another log is to be shown.
    """

    def __init__(self, shell: Shell, show: Callable[[], None]) -> None:
        self._shell, self._show = shell, show
        self.paths: list[Path] = []
        self.age = 0
        """How many logs are newer than the one that is shown."""

    @property
    def folder(self) -> Path:
        """Where they are."""
        config = self._shell.config
        return config.log_dir if config else log_folder(self._shell.session.cache_dir)

    @property
    def path(self) -> Path | None:
        """The log that is shown."""
        return self.paths[self.age] if self.paths else None

    def find(self) -> bool:
        """Look which logs there are; an older one that is shown stays it. Return whether there is any."""
        shown, folder = self.path if self.age else None, self.folder
        self.paths = [path for base in _BASES for path in engine_logs(folder, base)]
        self.age = self.paths.index(shown) if shown in self.paths else 0
        return bool(self.paths)

    def step(self, step: int) -> None:
        """Show an older or a newer log."""
        if 0 <= self.age + step < len(self.paths):
            self.show(self.age + step)
        else:
            self._shell.show_toast("no older log is kept" if step > 0 else "this is the newest log")

    def show(self, age: int) -> None:
        """Show a log, 0 = the one that is written now."""
        self.age = age
        self._show()

    def ask(self) -> None:
        """Let people choose a log."""
        items = [MenuItem(f"{at}", f"{path.name}   {_size_of(path)}") for at, path in enumerate(self.paths)]
        if items:
            Menu.ask(self._shell.app, items, lambda chosen: self.show(int(chosen)) if chosen else None, title="Logs")
        else:
            self._shell.show_toast("there is no log", "warning")


def _size_of(path: Path) -> str:
    try:
        return size_text(path.stat().st_size)
    except OSError:
        return ""

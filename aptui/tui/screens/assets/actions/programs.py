"""Other programs for the file of an asset: the pager, the editor, what shows its folder.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aptui.tui.control import away
from aptui.tui.screens.assets import files as assets_files
from aptui.tui.screens.assets.panel import Panel

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


class AssetPrograms:
    """Runs them."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def pager(self, panel: Panel) -> None:
        """Open the file in `$PAGER`."""
        self._open_with(assets_files.pager(os.environ), panel)

    def editor(self, panel: Panel) -> None:
        """Open the file in `$EDITOR`."""
        self._open_with(assets_files.editor(os.environ), panel)

    def _open_with(self, command: list[str], panel: Panel) -> None:
        if panel.is_folder or not panel.file:
            return
        if not os.path.exists(panel.file):
            self._shell.show_toast(f"'{panel.file}' is not there", "warning")
            return
        away.lend(self._shell, [*command, panel.file])

    def folder(self, panel: Panel) -> None:
        """Show the folder, or that of the file."""
        folders = panel.folders or (panel.file if panel.is_folder else os.path.dirname(panel.file),)
        if any(folders):
            away.show_folder(self._shell, next(filter(os.path.isdir, folders), folders[0]))

"""Settings that people change on the Tools screen: read in a thread, asked for in a prompt, written to the file they choose.

Tests: `tests/tui/screens/tools/test_pane.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.shared.errors import KnownError
from aptui.tui.background import BackgroundTask
from aptui.tui.data.session import SessionState
from aptui.tui.screens.tools.list_view import ADJUSTABLE, Adjustable
from aptui.tui.widgets.menu import Menu, MenuItem, Prompt

if TYPE_CHECKING:
    from aptui.config.editing.edit import Setting, Value
    from aptui.tui.pane import Shell


class SettingsEditor:
    """What is set, and how it is changed.

    Args:
        shell: has a project.
        changed: called when `known` changed.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._reading = BackgroundTask("aptui-tools-settings", shell.in_ui)
        self._writing = BackgroundTask("aptui-tools-write", shell.in_ui)
        self.known: dict[str, Setting] | None = None
        """{key: setting} of those that are given anywhere; None = not read yet, or they cannot be."""

    def close(self) -> None:
        """Give up what is under way."""
        self._reading.close()
        self._writing.close()

    def read(self) -> bool:
        """Read all anew; return False where that is under way, so that it has to be asked for again."""
        project_dir = self._project_dir

        def work(_task: BackgroundTask) -> dict[str, Setting]:
            from aptui.config.editing.edit import settings  # for start-up

            return settings(project_dir, [each.key for each in ADJUSTABLE])

        return self._reading.start(work, self._take, self._show_failure)

    def _take(self, known: dict[str, Setting]) -> None:
        self.known = known
        self._changed()

    def _show_failure(self, error: KnownError) -> None:
        self.known = None
        self._shell.show_toast(f"settings cannot be changed from here: {error}", "warning", 10)
        self._changed()

    @property
    def _project_dir(self) -> Path:
        assert self._shell.config is not None
        return self._shell.config.project_dir

    def adjust(self, key: str, text: str = "") -> None:
        """Ask for the file, where there is a choice, then for the value (`text` stands there already), then write it."""
        from aptui.config.editing.edit import writable_files  # for start-up

        adjustable = next(each for each in ADJUSTABLE if each.key == key)
        project, own = writable_files(self._project_dir)
        setting = (self.known or {}).get(key)
        if setting is not None and setting.file == str(own) and adjustable.kind == "value":
            self._prompt(adjustable, own, text)  # whatever the project's file said would not count
            return
        items = [
            MenuItem("project", f"This project   {_short(project)}", "p"),
            MenuItem("own", f"You, in every project   {_short(own)}", "u"),
        ]
        files = {"project": project, "own": own}
        take_answer: Callable[[str | None], object] = lambda what: self._prompt(adjustable, files[what], text) if what else None  # noqa: E731  # reads better
        Menu.ask(self._shell.app, items, take_answer, title=f"Write '{key}' for")

    def _prompt(self, adjustable: Adjustable, file: Path, text: str) -> None:
        from aptui.config.editing.edit import mistake_in, value_of  # for start-up

        setting, adds = (self.known or {}).get(adjustable.key), adjustable.kind == "list"

        def check(text: str) -> str:
            if not text.strip():
                return f"for example {adjustable.example}"
            return mistake_in(adjustable.key, [text.strip()] if adds else value_of(text))

        def take_answer(text: str | None) -> None:
            if text is not None:
                self._write(adjustable, file, text.strip() if adds else value_of(text))

        title = f"{'Add to' if adds else 'Set'} {adjustable.key} in {_short(file)}"
        known = "" if adds or setting is None else str(setting.value)
        Prompt.ask(self._shell.app, title, take_answer, value=text or known, check=check)

    def _write(self, adjustable: Adjustable, file: Path, value: Value) -> None:
        adds, project_dir = adjustable.kind == "list", self._project_dir

        def work(_task: BackgroundTask) -> None:
            from aptui.config.editing.edit import write  # for start-up

            write(project_dir, file, adjustable.key, value, adds=adds)

        def take_result(_nothing: None) -> None:
            ending = "; the engine reloads it" if self._shell.session.state is SessionState.ATTACHED else ""
            self._shell.show_toast(
                f"{adjustable.key}{' +' if adds else ':'} {value} written to '{_short(file)}'{ending}", seconds=8
            )
            self.read()

        if not self._writing.start(work, take_result, lambda error: self._shell.show_toast(str(error), "error", 10)):
            self._shell.show_toast("another setting is being written; try again", "warning")


def _short(file: Path) -> str:
    home, text = os.path.expanduser("~"), str(file)
    return f"~{text[len(home) :]}" if text.startswith(f"{home}/") else text

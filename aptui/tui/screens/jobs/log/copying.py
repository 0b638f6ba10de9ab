"""The copy menus of the event log and of a line's details; what the texts look like is decided in `screens.jobs.texts`.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aptui.tui.screens.jobs import texts
from aptui.tui.screens.jobs.details import JobDetails
from aptui.tui.widgets.menu import Menu, MenuItem

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

Place = tuple[int, int] | None
_Copies = list[tuple[MenuItem, Callable[[], str]]]


def ask_lines(shell: Shell, job_details: JobDetails | None, keys: Sequence[int], place: Place) -> None:
    """Ask what of a log to copy; `keys` are the lines that are meant."""
    if job_details is None or not job_details.records:
        shell.show_toast("there is no line to copy", "warning")
        return
    lines = [job_details.records[key] for key in keys if key < len(job_details.records)]
    word = "line" if len(lines) == 1 else f"{len(lines):,} lines"
    copies: _Copies = [
        (MenuItem("line", f"Copy {word}", "y", bool(lines)), lambda: texts.log_text(lines, has_details=False)),
        (MenuItem("details", f"Copy {word} with details", "d", bool(lines)), lambda: texts.log_text(lines, has_details=True)),
        (MenuItem("all", "Copy all", "a"), lambda: texts.log_text(job_details.records, has_details=True)),
        (MenuItem("report", "Copy a bug report (Markdown)", "b"), lambda: texts.bug_report(job_details)),
    ]
    _ask(shell, copies, place)


def ask_details(shell: Shell, pair: tuple[str, str] | None, pairs: Sequence[tuple[str, str]], place: Place) -> None:
    """Ask what of the details to copy; `pair` is the one under the cursor."""
    if pair is None:
        return
    copies: _Copies = [
        (MenuItem("value", "Copy selected value", "y,v"), lambda: pair[1]),
        (MenuItem("key", "Copy selected key", "k"), lambda: pair[0]),
        (MenuItem("all", "Copy all values", "a"), lambda: "\n".join(f"{key} = {value}" for key, value in pairs)),
    ]
    _ask(shell, copies, place)


def _ask(shell: Shell, copies: _Copies, place: Place) -> None:
    def take_choice(what: str | None) -> None:
        for item, text in copies:
            if item.id == what:
                shell.copy_text(text())

    Menu.ask(shell.app, [item for item, _ in copies], take_choice, title="Copy", place=place)

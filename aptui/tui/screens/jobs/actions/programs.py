"""Other programs for what belongs to a job: the pager, the editor, the file browser; they borrow the terminal until they end.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

from aptui.shared.sanitize import sanitize
from aptui.store.logs import joblog
from aptui.tui.background import run_in_background
from aptui.tui.control import away
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.screens.jobs.details import native
from aptui.tui.screens.jobs.texts import log_text
from aptui.tui.screens.jobs.view import JobsView, path_of, query_in_background


class Programs:
    """Runs them."""

    def __init__(self, view: JobsView) -> None:
        self._view = view

    def log_of(self, info: JobRowInfo) -> str:
        """Return the path of the log that is shown for a job, "" = none is."""
        job_details = self._view.event_log.job_details
        return native(job_details.log) if job_details is not None and job_details.info.key == info.key and job_details.log else ""

    def is_logging(self, info: JobRowInfo) -> bool:
        """Whether what is shown for a job is the log of a run that goes on, which has no file yet."""
        job_details = self._view.event_log.job_details
        return job_details is not None and job_details.info.key == info.key and job_details.running_key != 0

    def pager(self, infos: Sequence[JobRowInfo]) -> None:
        """Open the log in the pager."""
        command = shlex.split(os.environ.get("PAGER", "")) or ([found] if (found := shutil.which("less")) else [])
        if not command:
            self._view.shell.show_toast("there is no pager: set $PAGER", "warning")
        else:
            self._read(command, infos[0])

    def _read(self, command: list[str], info: JobRowInfo) -> None:
        """Show a log in the pager as people read it: time, level, origin, text, details; of a run that goes on what there is."""
        job_details, log = self._view.event_log.job_details, self.log_of(info)
        if job_details is not None and self.is_logging(info):
            self._page(command, job_details.records)
            return
        if not log or not os.path.exists(log):
            self._view.shell.show_toast("no log", "warning")
            return
        try:
            lines = joblog.parse_text(Path(log).read_bytes().decode("utf-8", "replace"), 0)
        except OSError as error:
            self._view.shell.show_toast(f"the log cannot be read: {(error.strerror or 'no reason given').lower()}", "error")
            return
        self._page(command, lines)

    def _page(self, command: list[str], lines: Sequence[joblog.JobLogLine]) -> None:
        with NamedTemporaryFile("w", prefix="aptui-", suffix=".log", encoding="utf-8", errors="replace") as readable:
            readable.write("\n".join(map(sanitize, log_text(lines, has_details=True).split("\n"))) + "\n")
            readable.flush()
            self.run_outside([*command, readable.name])

    def log_folder(self, infos: Sequence[JobRowInfo]) -> None:
        """Show the folder with the log of the run."""
        log = self.log_of(infos[0])
        if log:
            away.show_folder(self._view.shell, os.path.dirname(log))
        else:
            self._view.shell.show_toast("no log", "warning")

    def log_editor(self, infos: Sequence[JobRowInfo]) -> None:
        """Open the log in the editor."""
        self._open(_editor(), self.log_of(infos[0]), "no log")

    def editor(self, infos: Sequence[JobRowInfo]) -> None:
        """Open the source in the editor; the log where that has the keys."""
        if self._view.event_log.has_focus_within:
            self.log_editor(infos)
        else:
            self._open_source(infos[0], lambda path: self._open(_editor(), path, "the source is gone"))

    def folder(self, infos: Sequence[JobRowInfo]) -> None:
        """Show the folder of the source."""
        self._open_source(infos[0], lambda path: away.show_folder(self._view.shell, os.path.dirname(path)))

    def capsule(self, infos: Sequence[JobRowInfo]) -> None:
        """Have `aptui capsule` write the job into a file where the screen was started; it reads inputs, which may take a while."""
        config = self._view.shell.config
        if config is None:
            self._view.shell.show_toast("there is no project here that a capsule could be made of", "warning")
            return
        run_in_background("aptui-capsule", self._write_capsule, str(config.project_dir), infos[0])

    def _write_capsule(self, project: str, info: JobRowInfo) -> None:
        name = native(info.source.rpartition("/")[2])
        file = os.path.abspath(f"{name}@{info.platform}.capsule.tgz")
        command = [sys.executable, "-m", "aptui", "-C", project, "--color", "never", "capsule", f"#{info.key}", "--out", file]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
        output = (ended.stderr + ended.stdout).strip() or "it printed nothing"
        severity = "error" if ended.returncode else "information"
        self._view.shell.in_ui(self._view.shell.show_toast, output.removeprefix("aptui: "), severity, 15)

    def _open(self, command: list[str], path: str, lacking: str) -> None:
        if not path or not os.path.exists(path):
            self._view.shell.show_toast(lacking, "warning")
        else:
            self.run_outside([*command, path])

    def run_outside(self, command: list[str], folder: str | None = None, note: str = "") -> None:
        """Lend the terminal to a program until it ends; `note` is written above what it writes."""
        away.lend(self._view.shell, command, folder, note)

    def _open_source(self, info: JobRowInfo, then: Callable[[str], object]) -> None:
        query_in_background(self._view, lambda reader: path_of(reader, info), lambda path: then(native(path)))


def _editor() -> list[str]:
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "") or ["vi"]

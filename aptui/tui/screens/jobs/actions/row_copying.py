"""What can be copied of jobs: paths, UUIDs, rows, commands, a bug report.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from aptui.core.paths import cache_path
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import Reader
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.screens.jobs import texts
from aptui.tui.screens.jobs.details import native
from aptui.tui.screens.jobs.view import JobsView, path_of, query_in_background
from aptui.tui.widgets.menu import Menu, MenuItem


class RowCopying:
    """Copies it."""

    def __init__(self, view: JobsView) -> None:
        self._view = view

    def copy(self, infos: Sequence[JobRowInfo]) -> None:
        """Ask what to copy."""
        word = "s" if len(infos) > 1 else ""
        job_details = self._view.event_log.job_details
        has_job_details = job_details is not None and job_details.info.key == infos[0].key
        commands = [command for info in infos if (command := texts.rerun_command(info, self._project_dir()))]
        items = [
            MenuItem("path", f"Copy path{word}", "y"),
            MenuItem("relative", f"Copy path{word} in the scan folder", "r"),
            MenuItem("product", "Copy product paths", "p"),
            MenuItem("log", "Copy path of the log", "l", bool(job_details and has_job_details and job_details.log)),
            MenuItem("uuid", f"Copy source UUID{word}", "u"),
            MenuItem("text", f"Copy row{word} as text", "t"),
            MenuItem("command", f"Copy command{word} that run{'' if word else 's'} this alone", "c", bool(commands)),
            MenuItem("report", "Copy a bug report (Markdown)", "b", has_job_details),
        ]

        def take_choice(what: str | None) -> None:
            match what:
                case "path":
                    query_in_background(self._view, lambda reader: [path_of(reader, info) for info in infos], self._copy_paths)
                case "relative":
                    self._copy_paths([info.source for info in infos])
                case "product":
                    query_in_background(self._view, partial(self._product_paths, infos), self._copy_paths)
                case "log" if job_details is not None:
                    self._copy_paths([job_details.log])
                case "uuid":
                    query_in_background(
                        self._view, lambda reader: _uuids(reader, infos), lambda found: self._view.shell.copy_text("\n".join(found))
                    )
                case "text":
                    rows = [self._view.table.row_text(info.key) for info in infos]
                    self._view.shell.copy_text("\n".join(filter(None, rows)))
                case "command":
                    self._view.shell.copy_text("\n".join(commands))
                case "report" if job_details is not None:
                    self._view.shell.copy_text(texts.bug_report(job_details))

        Menu.ask(self._view.shell.app, items, take_choice, title="Copy")

    def _product_paths(self, infos: Sequence[JobRowInfo], reader: Reader) -> list[str]:
        cache = self._view.shell.session.cache_dir
        return [f"{cache}/{cache_path(product.name)}" for info in infos if info.key > 0 for product in reader.products_of(info.key)]

    def _copy_paths(self, paths: Sequence[str]) -> None:
        r"""Copy paths as the bytes they are on the disk; a name with control characters is made safe instead."""
        known = [path for path in paths if path]
        if not known:
            self._view.shell.show_toast("there is nothing to copy", "warning")
            return
        names = [native(path) for path in known]
        is_safe = all(char.isprintable() or "\udc80" <= char <= "\udcff" for name in names for char in name)
        self._view.shell.copy_text("\n".join(names), raw=is_safe)

    def _project_dir(self) -> str:
        return str(self._view.shell.config.project_dir) if self._view.shell.config else ""


def _uuids(reader: Reader, infos: Sequence[JobRowInfo]) -> list[str]:
    sources = (reader.source(path) for path in dict.fromkeys(info.source for info in infos))
    return [uuid_text(source.uuid) for source in sources if source is not None]

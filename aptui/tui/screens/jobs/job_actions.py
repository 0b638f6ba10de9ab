"""What can be done with jobs, each by a key and in the row menu.

Who does it stands beside: engine, other screens, programs, copies.

Tests: `tests/tui/screens/jobs/test_jobs_pane.py`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui import feature
from aptui.core.paths import cache_path
from aptui.shared.sanitize import sanitize
from aptui.store import joblog
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import Reader
from aptui.tui.background import run_in_background
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.frame import terminal_control
from aptui.tui.screens.jobs import job_texts
from aptui.tui.screens.jobs.job_details import native
from aptui.tui.screens.jobs.job_texts import log_text, why_lines
from aptui.tui.screens.jobs.selection import JobsView, call_in_background, path_of, query_in_background
from aptui.tui.widgets.menu import Confirm, Menu, MenuItem

if TYPE_CHECKING:
    from aptui.link.port import Answer


# From jobs to other screens: to the source, a product, the builder.

_MOST_PRODUCTS = 20


class Navigation:
    """Goes there."""

    def __init__(self, view: JobsView) -> None:
        self._view = view

    def can_reveal(self, pane_id: str) -> bool:
        """Return whether a pane can be told where to go; looking imports it, so only who acts or opens a menu looks."""
        return any(each.id == pane_id and hasattr(each.load(), "reveal") for each in self._view.shell.panes)

    def source(self, infos: Sequence[JobRowInfo]) -> None:
        """Go to the source on the Assets screen."""
        self._go("assets", infos[0].source)

    def builder(self, infos: Sequence[JobRowInfo]) -> None:
        """Go to the builder on the Builders screen."""
        self._go("builders", infos[0].builder)

    def products(self, infos: Sequence[JobRowInfo]) -> None:
        """Go to the product on the Assets screen; ask which where there are several."""

        def ask(names: list[str]) -> None:
            if not names:
                self._view.shell.show_toast("this job made no product")
            elif len(names) == 1:
                self._go("assets", names[0])
            else:
                items = [MenuItem(name, name) for name in names[:_MOST_PRODUCTS]]
                Menu.ask(self._view.shell.app, items, lambda name: self._go("assets", name) if name else None, title="Products")

        query_in_background(self._view, lambda reader: [product.name for product in reader.products_of(infos[0].key)], ask)

    def _go(self, pane_id: str, name: str) -> None:
        if not self.can_reveal(pane_id):
            self._view.shell.show_toast("that screen cannot show it", "warning")
            return

        self._view.shell.reveal(pane_id, name, **({"came_from": "jobs"} if pane_id == "assets" else {}))


# What can be copied of jobs: paths, UUIDs, rows, commands, a bug report.


class RowCopying:
    """Copies it."""

    def __init__(self, view: JobsView) -> None:
        self._view = view

    def copy(self, infos: Sequence[JobRowInfo]) -> None:
        """Ask what to copy."""
        word = "s" if len(infos) > 1 else ""
        job_details = self._view.event_log.job_details
        has_job_details = job_details is not None and job_details.info.key == infos[0].key
        commands = [command for info in infos if (command := job_texts.rerun_command(info, self._project_dir()))]
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
                    self._view.shell.copy_text(job_texts.bug_report(job_details))

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


# What the engine can do with jobs when people ask for it: run again, cancel, escalate, show.

_ASKS_FROM = 100
"""So many jobs are not run again or stopped without asking."""


class EngineActions:
    """Asks the engine."""

    def __init__(self, view: JobsView) -> None:
        self._view = view

    def reprocess(self, infos: Sequence[JobRowInfo]) -> None:
        """Run jobs again; many only after asking."""
        from aptui.link.port import ReprocessJobs  # for start-up: the verbs come after the first paint

        keys = tuple(info.source.lower() for info in infos if info.key < 0)
        ids = tuple(info.key for info in infos if info.key > 0)
        verbs = [ReprocessJobs(keys=keys)] if keys else []
        verbs += [ReprocessJobs(job_ids=ids)] if ids else []

        def ask(yes: bool) -> None:  # as `Confirm` answers
            for verb in verbs if yes else ():
                self._view.shell.ask(verb, then=partial(self._report, "to be run again"))

        self._confirm(infos, f"Run {len(infos):,} jobs again?", "run them", ask)

    def cancel(self, infos: Sequence[JobRowInfo]) -> None:
        """Cancel what is pending or processing; many jobs only after asking."""
        from aptui.link.port import Cancel  # for start-up, as above

        ids = tuple(info.key for info in infos if info.key > 0 and info.status in ("pending", "processing"))
        if not ids:
            self._view.shell.show_toast("only what is pending or processing can be cancelled", "warning")
            return

        def ask(yes: bool) -> None:  # as `Confirm` answers
            if yes:
                self._view.shell.ask(Cancel(ids), then=partial(self._report, "cancelled"))

        self._confirm(infos, f"Cancel {len(ids):,} jobs?", "cancel them", ask)

    def escalate(self, infos: Sequence[JobRowInfo]) -> None:
        """Put jobs before all others."""
        from aptui.link.port import EscalateJobs  # for start-up, as above

        keys = tuple(info.source.lower() for info in infos if info.key < 0)
        ids = tuple(info.key for info in infos if info.key > 0)
        if infos and not keys and not any(info.status in ("pending", "processing") for info in infos):
            self._view.shell.show_toast("nothing to hurry: what is not pending runs no earlier; 'r' runs it again", "warning")
            return
        self._view.shell.ask(EscalateJobs(job_ids=ids, keys=keys), then=partial(self._report, "escalated"))

    def show(self, infos: Sequence[JobRowInfo]) -> None:
        """Show the source in the editors that are connected."""
        request = feature.find_request("show_source")
        if self._view.shell.session.gateway is None or request is None:
            self._view.shell.show_toast("no gateway runs, so no editor is connected", "warning")
            return
        done = f"the connected editors show '{infos[0].source}'"
        self._view.shell.ask(request(source=infos[0].source), then=lambda _answer: self._view.shell.show_toast(done))

    def _confirm(self, infos: Sequence[JobRowInfo], question: str, yes: str, then: Callable[[bool], None]) -> None:
        if len(infos) < _ASKS_FROM:
            then(True)  # as `Confirm` answers
        else:
            Confirm.ask(self._view.shell.app, question, then, yes=yes)

    def _report(self, what: str, answer: Answer) -> None:
        count = answer.get("count")
        jobs = "" if not isinstance(count, int) else f"{count:,} job{'' if count == 1 else 's'} "
        self._view.shell.show_toast(f"{jobs}{what}")


# Other programs for what belongs to a job: the pager, the editor, the file browser; they borrow the terminal until they end.


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
            terminal_control.show_folder(self._view.shell, os.path.dirname(log))
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
        self._open_source(infos[0], lambda path: terminal_control.show_folder(self._view.shell, os.path.dirname(path)))

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
        terminal_control.lend(self._view.shell, command, folder, note)

    def _open_source(self, info: JobRowInfo, then: Callable[[str], object]) -> None:
        query_in_background(self._view, lambda reader: path_of(reader, info), lambda path: then(native(path)))


def _editor() -> list[str]:
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "") or ["vi"]


Place = tuple[int, int] | None
Run = Callable[[Sequence[JobRowInfo]], None]


class RowAction(Struct, frozen=True):
    """One thing that can be done: `id` as in `jobs.<id>` of the keymap, `group` orders the menu."""

    id: str
    label: str
    group: int
    needs_engine: bool = False
    pane: str = ""


ROW_ACTIONS = (
    RowAction("source", "View source asset", 0, pane="assets"),
    RowAction("products", "View product asset…", 0, pane="assets"),
    RowAction("builder", "View builder", 0, pane="builders"),
    RowAction("pager", "Open log in $PAGER", 1),
    RowAction("log_editor", "Open log in $EDITOR", 1),
    RowAction("editor", "Open source in $EDITOR", 1),
    RowAction("folder", "Show the folder of the source", 1),
    RowAction("log_folder", "Show the folder of the log", 1),
    RowAction("copy", "Copy…", 1),
    RowAction("capsule", "Write a capsule: the job in a file", 1),
    RowAction("reprocess", "Reprocess", 2, needs_engine=True),
    RowAction("cancel", "Cancel", 2, needs_engine=True),
    RowAction("escalate", "Escalate", 2, needs_engine=True),
    RowAction("why", "Why", 2),
    RowAction("show", "Show in the editor that is connected", 2, needs_engine=True),
)


class RowActions:
    """Offers and does them for one screen."""

    def __init__(self, view: JobsView) -> None:
        self._view = view
        self.is_asking_why = False
        """Whether the sheet that says why is on its way: the next key is for it."""
        self.programs, self.navigation = Programs(view), Navigation(view)
        engine, copying = EngineActions(view), RowCopying(view)
        self._runs: dict[str, Run] = {
            "source": self.navigation.source,
            "products": self.navigation.products,
            "builder": self.navigation.builder,
            "pager": self.programs.pager,
            "log_editor": self.programs.log_editor,
            "editor": self.programs.editor,
            "folder": self.programs.folder,
            "log_folder": self.programs.log_folder,
            "copy": copying.copy,
            "capsule": self.programs.capsule,
            "reprocess": engine.reprocess,
            "cancel": engine.cancel,
            "escalate": engine.escalate,
            "why": self._why,
            "show": engine.show,
        }

    def can(self, action_id: str) -> bool:
        """Whether something can be done here at all."""
        action = next((each for each in ROW_ACTIONS if each.id == action_id), None)
        if action is None or (action.needs_engine and not self._view.shell.can_ask):
            return False
        return not action.pane or any(each.id == action.pane for each in self._view.shell.panes)

    def menu(self, place: Place = None) -> None:
        """Offer everything that can be done."""
        infos = self._view.list_selected()
        if not infos:
            return
        keys, items, group = self._view.shell.keys.keymap.actions, list[MenuItem | None](), 0
        for action in ROW_ACTIONS:
            if not self.can(action.id) or (action.pane and not self.navigation.can_reveal(action.pane)):
                continue
            if action.group != group and items:
                items.append(None)
            group = action.group
            key = keys.get(f"jobs.{action.id}")
            items.append(MenuItem(action.id, action.label, ",".join(key.keys) if key else "", self._is_possible(action.id, infos)))
        title = infos[0].source if len(infos) == 1 else f"{len(infos):,} jobs"
        Menu.ask(self._view.shell.app, items, lambda what: self._runs[what](infos) if what else None, title=title, place=place)

    def _is_possible(self, action_id: str, infos: Sequence[JobRowInfo]) -> bool:
        if action_id == "cancel":
            return any(info.status in ("pending", "processing") for info in infos)
        if action_id == "capsule":
            return len(infos) == 1 and infos[0].key > 0 and self._view.shell.config is not None
        if action_id in ("pager", "log_editor", "log_folder"):
            return bool(self.programs.log_of(infos[0])) or (action_id == "pager" and self.programs.is_logging(infos[0]))
        return True

    def do(self, action_id: str) -> None:
        """Do something with what is selected."""
        infos = self._view.list_selected()
        if not infos or not self.can(action_id):
            return
        changes_something = next(each.needs_engine for each in ROW_ACTIONS if each.id == action_id)
        if changes_something and len(infos) == 1 and self._view.resting.has_just_flipped:
            self._view.shell.show_toast(
                f"this row has just become another job: {infos[0].source}; again, if you mean it", "warning"
            )
            return
        self._runs[action_id](infos)

    def _why(self, infos: Sequence[JobRowInfo]) -> None:
        self.is_asking_why = True
        question = partial(why_lines, self._view.database, infos[0], self._view.shell.app.size.width - 1)
        call_in_background(self._view.shell, question, self._view.shell.sheets.show, self._explain_disabled)

    def _explain_disabled(self) -> None:
        self.is_asking_why = False

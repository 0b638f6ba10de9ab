"""Actions on jobs. A key of the Jobs screen, such as `r` (run again), or an entry in the menu of a row runs an action.

Each action has one line in `ROW_ACTIONS`. `JobsPane.BINDINGS` has the keys: `r` calls `row('reprocess')`, which runs the action
with the id `reprocess`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from aptui import feature
from aptui.core.paths import cache_path
from aptui.shared.errors import KnownError
from aptui.shared.files.replacing import read_regular
from aptui.shared.printing import count, sanitize
from aptui.store import joblog
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import Reader, open_reader
from aptui.tui.background import run_in_background
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.frame import terminal_control
from aptui.tui.screens.external_programs import copy_paths, editor, native, pager
from aptui.tui.screens.jobs import job_texts
from aptui.tui.screens.jobs.job_details import DetailsRequest, JobDetails
from aptui.tui.screens.jobs.job_texts import log_text, why_lines
from aptui.tui.screens.jobs.selection import JobsView
from aptui.tui.widgets.menu import Confirm, Menu, MenuItem

if TYPE_CHECKING:
    from aptui.link.port import Answer

T = TypeVar("T")
Place = tuple[int, int] | None
Infos = Sequence[JobRowInfo]

_MOST_PRODUCTS = 20
"""Maximum number of products in the menu in which the user chooses a product."""
_ASKS_FROM = 100
"""Minimum number of jobs for which running again or cancelling needs a confirmation."""


class RowActions:
    """Offers and runs the actions of one Jobs screen on its selected jobs."""

    def __init__(self, pane: JobsView) -> None:
        self._pane, self._shell = pane, pane.shell
        self.is_asking_why = False
        """Whether the explanation of why a job runs is being read; the next key waits until the explanation is shown."""

    def can(self, action_id: str) -> bool:
        """Return whether an action is possible on this screen."""
        action = _ACTIONS_BY_ID.get(action_id)
        if action is None or (action.needs_engine and not self._shell.can_ask):
            return False
        return not action.pane or any(each.id == action.pane for each in self._shell.panes)

    def menu(self, place: Place = None) -> None:
        """Open the menu of all actions."""
        infos = self._pane.list_selected()
        if not infos:
            return
        keys, items, group = self._shell.keys.keymap.actions, list[MenuItem | None](), 0
        for action in ROW_ACTIONS:
            if not self.can(action.id) or (action.pane and not self._can_reveal(action.pane)):
                continue
            if action.group != group and items:
                items.append(None)
            group = action.group
            key = keys.get(f"jobs.{action.id}")
            items.append(MenuItem(action.id, action.label, ",".join(key.keys) if key else "", self._is_possible(action.id, infos)))
        jobs = f"{len(infos):,} jobs"
        title = jobs if len(_sources(infos)) > 1 else infos[0].source if len(infos) == 1 else f"{infos[0].source}: {jobs}"
        Menu.ask(
            self._shell.app, items, lambda what: _ACTIONS_BY_ID[what].run(self, infos) if what else None, title=title, place=place
        )

    def _is_possible(self, action_id: str, infos: Infos) -> bool:
        if action_id == "cancel":
            return any(info.status in ("pending", "processing") for info in infos)
        if action_id == "capsule":
            return len(_sources(infos)) == 1 and infos[0].key > 0 and self._shell.config is not None
        if action_id in ("pager", "log_editor", "log_folder"):
            return bool(self._log_of(infos[0])) or (action_id == "pager" and self._is_logging(infos[0]))
        return True

    def run(self, action_id: str) -> None:
        """Run an action on the selected jobs."""
        infos = self._pane.list_selected()
        if not infos or not self.can(action_id):
            return
        if _ACTIONS_BY_ID[action_id].needs_engine and not self._pane.table.marks and self._pane.resting.has_just_flipped:
            self._shell.show_toast(f"the row changed just now to {infos[0].source}: press the key again to act on it", "warning")
            return
        _ACTIONS_BY_ID[action_id].run(self, infos)

    # ------------------------------------------------------------------------------------------------------ background work

    def _call(self, work: Callable[[], T], then: Callable[[T], object], ended: Callable[[], object]) -> None:
        """Call `work` in a thread. Then, in the app's thread, call `then` with the result or show the error, and call `ended`."""

        def run() -> None:
            try:
                result = work()
            except KnownError as error:
                self._shell.in_ui(self._shell.show_toast, str(error), "error")
            else:
                self._shell.in_ui(then, result)
            finally:
                self._shell.in_ui(ended)

        run_in_background("aptui-jobs", run)

    def query(self, question: Callable[[Reader], T], then: Callable[[T], object]) -> None:
        """Query the database in a thread and call `then` in the app's thread; keys wait until then."""

        def work() -> T:
            with closing(open_reader(self._pane.database)) as reader:
                return question(reader)

        self._call(work, then, self._shell.hold_keys("the answer"))

    # -------------------------------------------------------------------------------------------------------- other screens

    def _can_reveal(self, pane_id: str) -> bool:
        """Return whether a screen has the method `reveal`.

        The check imports the screen, so it is made only when the user runs an action or opens a menu.
        """
        return any(each.id == pane_id and hasattr(each.load(), "reveal") for each in self._shell.panes)

    def _reveal(self, pane_id: str, name: str) -> None:
        if self._can_reveal(pane_id):
            self._shell.reveal(pane_id, name, **({"came_from": "jobs"} if pane_id == "assets" else {}))
        else:
            self._shell.show_toast(f"the screen '{pane_id}' cannot show this job", "warning")

    def source(self, infos: Infos) -> None:
        """Show the source on the Assets screen."""
        self._reveal("assets", infos[0].source)

    def builder(self, infos: Infos) -> None:
        """Show the builder on the Builders screen."""
        self._reveal("builders", infos[0].builder)

    def products(self, infos: Infos) -> None:
        """Show a product of the first job's source on the Assets screen; let the user choose if there are several."""
        source = infos[0].source
        keys = [info.key for info in infos if info.source == source]

        def ask(names: list[str]) -> None:
            if not names:
                self._shell.show_toast("this job made no product")
            elif len(names) == 1:
                self._reveal("assets", names[0])
            else:
                items = [MenuItem(name, name) for name in names[:_MOST_PRODUCTS]]
                title = "Products" if len(items) == len(names) else f"{len(items)} of {len(names):,} products"
                Menu.ask(self._shell.app, items, lambda name: self._reveal("assets", name) if name else None, title=title)

        self.query(lambda reader: [product.name for key in keys for product in reader.products_of(key)], ask)

    def why(self, infos: Infos) -> None:
        """Show a sheet that explains the state of the job."""

        def end() -> None:
            self.is_asking_why = False

        self.is_asking_why = True
        question = partial(why_lines, self._pane.database, infos[0], self._shell.app.size.width - 1)
        self._call(question, lambda lines: self._shell.sheets.show(lines, "jobs.why"), end)

    # -------------------------------------------------------------------------------------------------------------- copying

    def _find_details(self, info: JobRowInfo) -> JobDetails | None:
        """Return the job's details if the lower panes show this job."""
        job_details = self._pane.event_log.job_details
        return job_details if job_details is not None and job_details.info.key == info.key else None

    def copy(self, infos: Infos) -> None:
        """Open the menu of texts to copy."""
        word, plural = "s" if len(infos) > 1 else "", "s" if len(_sources(infos)) > 1 else ""
        with_errors, shown, sources = self._with_errors(infos), self._find_details(infos[0]), _sources(infos)
        errors = f"first error{'s' if len(with_errors) > 1 else ''} with details"
        project_dir = str(self._shell.config.project_dir) if self._shell.config else ""
        commands = "\n".join(filter(None, (job_texts.rerun_command(info, project_dir) for info in infos)))
        rows = filter(None, (self._pane.table.row_text(info.key) for info in infos))
        copy_text, copy_files, query = self._shell.copy_text, partial(copy_paths, self._shell), self.query
        entries: list[tuple[str, str, bool, Callable[[], object]]] = [
            ("e", errors, True, lambda: self._copy_errors(with_errors)),
            ("y", f"path{plural}", True, lambda: query(lambda reader: [path_of(reader, info) for info in sources], copy_files)),
            ("r", f"path{plural} relative to the scan folder", True, lambda: copy_files([info.source for info in sources])),
            ("p", "product paths", True, lambda: query(partial(self._product_paths, infos), copy_files)),
            ("l", "path of the log", bool(shown and shown.log), lambda: copy_files([shown.log if shown else ""])),
            ("u", f"source UUID{plural}", True, lambda: query(partial(_uuids, infos), lambda found: copy_text("\n".join(found)))),
            ("t", f"row{word} as text", True, lambda: copy_text("\n".join(rows))),
            ("c", f"'aptui rerun' command{word}", bool(commands), lambda: copy_text(commands)),
            ("b", "a bug report (Markdown)", shown is not None, lambda: copy_text(job_texts.bug_report(shown)) if shown else None),
        ]
        choices = [(MenuItem(key, f"Copy {label}", key, is_enabled), do) for key, label, is_enabled, do in entries]
        Menu.run_one(self._shell.app, choices, title="Copy")

    def _with_errors(self, infos: Infos) -> Infos:
        """Return the jobs with errors, or all jobs if no job has errors.

        If the table has one line per source, return only the first of several jobs of a source that have the same error.
        """
        found = [info for info in infos if info.status == "failed" or info.errors] or infos
        if not self._pane.store.by_source:
            return found
        return list({(info.source, info.error or info.key): info for info in reversed(found)}.values())[::-1]

    def _copy_errors(self, infos: Infos) -> None:
        """Copy the first error of each job, after reading the logs in a thread."""

        def read() -> list[JobDetails]:
            reader = self._pane.event_log.reader
            return [reader.read(DetailsRequest(info)) for info in infos]

        def copy(found: list[JobDetails]) -> None:
            texts = [text for job_details in found if (text := job_texts.first_error(job_details))]
            if texts:
                self._shell.copy_text("\n\n".join(texts))
            else:
                self._shell.show_toast("there is no error to copy", "warning")

        shown = self._find_details(infos[0])
        if len(infos) == 1 and shown is not None:
            copy([shown])
        else:
            self._call(read, copy, self._shell.hold_keys("the answer"))

    def _product_paths(self, infos: Infos, reader: Reader) -> list[str]:
        cache = self._shell.session.cache_dir
        return [f"{cache}/{cache_path(product.name)}" for info in infos if info.key > 0 for product in reader.products_of(info.key)]

    # ----------------------------------------------------------------------------------------------- requests to the engine

    def reprocess(self, infos: Infos) -> None:
        """Run jobs again; ask for a confirmation if there are many."""
        from aptui.link.port import ReprocessJobs  # imported here: not needed before the first paint

        keys, ids = _split(infos)
        requests = [ReprocessJobs(keys=keys)] if keys else []
        requests += [ReprocessJobs(job_ids=ids)] if ids else []

        def ask() -> None:
            for request in requests:
                self._shell.ask(request, then=partial(self._report, "queued to run again"))

        self._confirm(len(infos), f"Run {len(infos):,} jobs again?", "run them", ask)

    def cancel(self, infos: Infos) -> None:
        """Cancel pending and running jobs; ask for a confirmation if there are many."""
        from aptui.link.port import Cancel  # imported here: not needed before the first paint

        ids = tuple(info.key for info in infos if info.key > 0 and info.status in ("pending", "processing"))
        if not ids:
            self._shell.show_toast("only pending and running jobs can be cancelled", "warning")
            return
        ask = partial(self._shell.ask, Cancel(ids), then=partial(self._report, "cancelled"))
        self._confirm(len(infos), f"Cancel {len(ids):,} jobs?", "cancel them", ask)

    def escalate(self, infos: Infos) -> None:
        """Run these jobs before all other jobs."""
        from aptui.link.port import EscalateJobs  # imported here: not needed before the first paint

        keys, ids = _split(infos)
        if infos and not keys and not any(info.status in ("pending", "processing") for info in infos):
            self._shell.show_toast("this job is not waiting; 'r' runs it again", "warning")
            return
        self._shell.ask(EscalateJobs(job_ids=ids, keys=keys), then=partial(self._report, "put first in the queue"))

    def show(self, infos: Infos) -> None:
        """Show the source in the connected editors."""
        request = feature.find_request("show_source")
        session = self._shell.session
        if (session.gateway is None and "o3de" not in session.engine.ports) or request is None:
            self._shell.show_toast("the gateway is not running, so no editor is connected", "warning")
            return
        done = f"the connected editors show '{infos[0].source}'"
        self._shell.ask(request(source=infos[0].source), then=lambda _answer: self._shell.show_toast(done))

    def _confirm(self, job_count: int, question: str, yes: str, ask: Callable[[], object]) -> None:
        if job_count < _ASKS_FROM:
            ask()
        else:
            Confirm.ask(self._shell.app, question, lambda is_sure: ask() if is_sure else None, yes=yes)

    def _report(self, what: str, answer: Answer) -> None:
        number = answer.get("count")
        self._shell.show_toast(f"{count(number, 'job')} {what}" if isinstance(number, int) else what)

    # ------------------------------------------------------------------------------------------------------- other programs

    def _log_of(self, info: JobRowInfo) -> str:
        """Return the path of the shown log if it belongs to this job, "" if not."""
        shown = self._find_details(info)
        return native(shown.log) if shown is not None and shown.log else ""

    def _is_logging(self, info: JobRowInfo) -> bool:
        """Return whether the lower panes show the log of this job while it runs; such a log has no file yet."""
        shown = self._find_details(info)
        return shown is not None and shown.running_key != 0

    def pager(self, infos: Infos) -> None:
        """Show the log in the pager as text: time, level, origin, message, details.

        For a running job, show the lines up to now.
        """
        command, log, shown = pager(), self._log_of(infos[0]), self._find_details(infos[0])
        if not shutil.which(command[0]):
            self._shell.show_toast(f"'{command[0]}' is not installed; set $PAGER to another program", "warning")
        elif shown is not None and self._is_logging(infos[0]):
            self._page(command, shown.records)
        elif not log or not os.path.exists(log):
            self._shell.show_toast("no log", "warning")
        else:
            try:
                self._page(command, joblog.parse_text(read_regular(log).decode("utf-8", "replace"), 0))
            except OSError as error:
                self._shell.show_toast(f"the log cannot be read: {(error.strerror or 'no reason given').lower()}", "error")

    def _page(self, command: list[str], lines: Sequence[joblog.JobLogLine]) -> None:
        with NamedTemporaryFile("w", prefix="aptui-", suffix=".log", encoding="utf-8", errors="replace") as readable:
            readable.write("\n".join(map(sanitize, log_text(lines, has_details=True).split("\n"))) + "\n")
            readable.flush()
            terminal_control.lend(self._shell, [*command, readable.name])

    def log_editor(self, infos: Infos) -> None:
        """Open the log in the editor."""
        self._edit(self._log_of(infos[0]), "no log")

    def editor(self, infos: Infos) -> None:
        """Open the source in the editor; if the log has the focus, open the log."""
        if self._pane.event_log.has_focus_within:
            self.log_editor(infos)
        else:
            self.query(
                lambda reader: path_of(reader, infos[0]), lambda path: self._edit(native(path), "the source no longer exists")
            )

    def _edit(self, path: str, lacking: str) -> None:
        if not path or not os.path.exists(path):
            self._shell.show_toast(lacking, "warning")
        else:
            terminal_control.lend(self._shell, [*editor(), path])

    def folder(self, infos: Infos) -> None:
        """Open the folder of the source, in a file browser or a shell."""

        def show(path: str) -> None:
            terminal_control.show_folder(self._shell, os.path.dirname(native(path)))

        self.query(lambda reader: path_of(reader, infos[0]), show)

    def log_folder(self, infos: Infos) -> None:
        """Open the folder of the log."""
        log = self._log_of(infos[0])
        if log:
            terminal_control.show_folder(self._shell, os.path.dirname(log))
        else:
            self._shell.show_toast("no log", "warning")

    def capsule(self, infos: Infos) -> None:
        """Run `aptui capsule` in a thread. The capsule, a file with the job, goes to the folder where the screen was started."""
        config = self._shell.config
        if config is None:
            self._shell.show_toast("a capsule can be written only in a project, not for a stored database", "warning")
            return
        run_in_background("aptui-capsule", self._write_capsule, str(config.project_dir), infos[0])

    def _write_capsule(self, project: str, info: JobRowInfo) -> None:
        name = native(info.source.rpartition("/")[2])
        file = os.path.abspath(f"{name}@{info.platform}.capsule.tgz")
        command = [sys.executable, "-P", "-m", "aptui", "-C", project, "--color", "never"]
        command += ["capsule", f"#{info.key}", "--out", file]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
        output = (ended.stderr + ended.stdout).strip() or "it printed nothing"
        severity = "error" if ended.returncode else "information"
        self._shell.in_ui(self._shell.show_toast, output.removeprefix("aptui: "), severity, 15)


class RowAction(Struct, frozen=True):
    """An action on jobs. Its id in the keymap is `jobs.<id>`. The menu has a line between actions of different groups.

    Args:
        needs_engine: whether the action sends a request to the engine.
        pane: id of the screen that the action shows, "" if the Jobs screen stays visible.
    """

    id: str
    label: str
    group: int
    run: Callable[[RowActions, Infos], object]
    needs_engine: bool = False
    pane: str = ""


ROW_ACTIONS = (
    RowAction("source", "Go to source", 0, RowActions.source, pane="assets"),
    RowAction("products", "Go to product…", 0, RowActions.products, pane="assets"),
    RowAction("builder", "Go to builder", 0, RowActions.builder, pane="builders"),
    RowAction("pager", "Open log in $PAGER", 1, RowActions.pager),
    RowAction("log_editor", "Open log in $EDITOR", 1, RowActions.log_editor),
    RowAction("editor", "Open source in $EDITOR", 1, RowActions.editor),
    RowAction("folder", "Open the source's folder", 1, RowActions.folder),
    RowAction("log_folder", "Open the log's folder", 1, RowActions.log_folder),
    RowAction("copy", "Copy…", 1, RowActions.copy),
    RowAction("capsule", "Write a capsule to repeat the job", 1, RowActions.capsule),
    RowAction("reprocess", "Run again", 2, RowActions.reprocess, needs_engine=True),
    RowAction("cancel", "Cancel", 2, RowActions.cancel, needs_engine=True),
    RowAction("escalate", "Run next", 2, RowActions.escalate, needs_engine=True),
    RowAction("why", "Why", 2, RowActions.why),
    RowAction("show", "Show in the connected editor", 2, RowActions.show, needs_engine=True),
)
_ACTIONS_BY_ID = {each.id: each for each in ROW_ACTIONS}


def _split(infos: Infos) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Split rows into failed analyses and jobs. Return (lower-case source paths of the analyses, ids of the jobs)."""
    return tuple(info.source.lower() for info in infos if info.key < 0), tuple(info.key for info in infos if info.key > 0)


def _sources(infos: Infos) -> list[JobRowInfo]:
    return list({info.source: info for info in reversed(infos)}.values())[::-1]


def _uuids(infos: Infos, reader: Reader) -> list[str]:
    sources = (reader.source(path) for path in dict.fromkeys(info.source for info in infos))
    return [uuid_text(source.uuid) for source in sources if source is not None]


def path_of(reader: Reader, info: JobRowInfo) -> str:
    """Return the full path of a job's source as text; if the source is not in the database, the relative path."""
    source = reader.source(info.source)
    return f"{source.root}/{source.source}" if source else info.source

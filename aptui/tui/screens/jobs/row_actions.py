"""What can be done with jobs, each by a key and in the row menu: asked of the engine, shown in other panes or programs, copied."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aptui.core.paths import cache_path
from aptui.shared.errors import KnownError
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import Reader, open_reader
from aptui.tui.background import run_in_background
from aptui.tui.data.jobs_store import JobInfo
from aptui.tui.screens.jobs import texts
from aptui.tui.screens.jobs.details import native
from aptui.tui.screens.jobs.why import why_lines
from aptui.tui.widgets.menu import Confirm, Menu, MenuItem

if TYPE_CHECKING:
    from aptui.link.port import Answer
    from aptui.tui.app import AptuiApp
    from aptui.tui.screens.jobs.pane import JobsPane

_ASKS_FROM = 100
"""So many jobs are not run again or stopped without asking."""
_MOST_PRODUCTS = 20
T = TypeVar("T")
Place = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that can be done: `id` as in `jobs.<id>` of the keymap, `group` orders the menu."""

    id: str
    label: str
    group: int
    needs_engine: bool = False
    pane: str = ""


DEEDS = (
    Deed("source", "View source asset", 0, pane="assets"),
    Deed("products", "View product asset…", 0, pane="assets"),
    Deed("builder", "View builder", 0, pane="builders"),
    Deed("pager", "Open log in $PAGER", 1),
    Deed("log_editor", "Open log in $EDITOR", 1),
    Deed("editor", "Open source in $EDITOR", 1),
    Deed("folder", "Show the folder", 1),
    Deed("copy", "Copy…", 1),
    Deed("reprocess", "Reprocess", 2, needs_engine=True),
    Deed("cancel", "Cancel", 2, needs_engine=True),
    Deed("escalate", "Escalate", 2, needs_engine=True),
    Deed("why", "Why", 2),
    Deed("show", "Show in the editor that is connected", 2, needs_engine=True),
)


class Deeds:
    """Does them for one pane."""

    def __init__(self, pane: JobsPane) -> None:
        self._pane = pane

    @property
    def shell(self) -> AptuiApp:
        """The app."""
        return self._pane.shell

    def can(self, deed_id: str) -> bool:
        """Whether something can be done here at all."""
        deed = next((each for each in DEEDS if each.id == deed_id), None)
        if deed is None or (deed.needs_engine and not self.shell.can_ask):
            return False
        return not deed.pane or any(each.id == deed.pane for each in self.shell.panes)

    def _reveals(self, pane_id: str) -> bool:
        """Whether a pane can be told where to go; looking imports it, so only who acts or opens a menu looks."""
        return any(each.id == pane_id and hasattr(each.load(), "reveal") for each in self.shell.panes)

    def menu(self, place: Place = None) -> None:
        """Offer everything that can be done."""
        infos = self._pane.selected()
        if not infos:
            return
        actions, items, group = self.shell.keymap.actions, list[MenuItem | None](), 0
        for deed in DEEDS:
            if not self.can(deed.id) or (deed.pane and not self._reveals(deed.pane)):
                continue
            if deed.group != group and items:
                items.append(None)
            group = deed.group
            action = actions.get(f"jobs.{deed.id}")
            items.append(MenuItem(deed.id, deed.label, ",".join(action.keys) if action else "", self._is_possible(deed.id, infos)))
        title = infos[0].source if len(infos) == 1 else f"{len(infos):,} jobs"
        Menu.ask(self.shell, items, lambda what: self.do(what) if what else None, title=title, place=place)

    def _is_possible(self, deed_id: str, infos: Sequence[JobInfo]) -> bool:
        if deed_id == "cancel":
            return any(info.status in ("pending", "processing") for info in infos)
        if deed_id in ("pager", "log_editor"):
            return bool(self._log_of(infos[0]))
        return True

    def do(self, deed_id: str) -> None:
        """Do something with what is selected."""
        infos = self._pane.selected()
        if infos and self.can(deed_id):
            getattr(self, f"_{deed_id}")(infos)

    # ---------------------------------------------------------------------------------------------------------- the engine

    def _reprocess(self, infos: Sequence[JobInfo]) -> None:
        from aptui.link.port import Reprocess  # the verbs come after the first paint

        keys = tuple(info.source.lower() for info in infos if info.key < 0)
        ids = tuple(info.key for info in infos if info.key > 0)
        verbs = [Reprocess(keys=keys)] if keys else []
        verbs += [Reprocess(job_ids=ids)] if ids else []

        def ask(yes: bool) -> None:  # as `Confirm` answers
            for verb in verbs if yes else ():
                self.shell.ask(verb, then=partial(self._said, "to be run again"))

        self._sure(infos, f"Run {len(infos):,} jobs again?", "run them", ask)

    def _cancel(self, infos: Sequence[JobInfo]) -> None:
        from aptui.link.port import Cancel

        ids = tuple(info.key for info in infos if info.key > 0 and info.status in ("pending", "processing"))
        if not ids:
            self.shell.tell("only what is pending or processing can be cancelled", "warning")
            return

        def ask(yes: bool) -> None:  # as `Confirm` answers
            if yes:
                self.shell.ask(Cancel(ids), then=partial(self._said, "cancelled"))

        self._sure(infos, f"Cancel {len(ids):,} jobs?", "cancel them", ask)

    def _escalate(self, infos: Sequence[JobInfo]) -> None:
        from aptui.link.port import Escalate

        keys = tuple(info.source.lower() for info in infos if info.key < 0)
        ids = tuple(info.key for info in infos if info.key > 0)
        self.shell.ask(Escalate(job_ids=ids, keys=keys), then=partial(self._said, "escalated"))

    def _show(self, infos: Sequence[JobInfo]) -> None:
        from aptui.link.port import Show

        if self.shell.session.gateway is None:
            self.shell.tell("no gateway runs, so no editor is connected", "warning")
            return
        told = f"editors that are connected were told of '{infos[0].source}'"
        self.shell.ask(Show(source=infos[0].source), then=lambda _answer: self.shell.tell(told))

    def _sure(self, infos: Sequence[JobInfo], question: str, yes: str, then: Callable[[bool], None]) -> None:
        if len(infos) < _ASKS_FROM:
            then(True)  # as `Confirm` answers
        else:
            Confirm.ask(self.shell, question, then, yes=yes)

    def _said(self, what: str, answer: Answer) -> None:
        count = answer.get("count")
        jobs = "" if not isinstance(count, int) else f"{count:,} job{'' if count == 1 else 's'} "
        self.shell.tell(f"{jobs}{what}")

    def _why(self, infos: Sequence[JobInfo]) -> None:
        in_thread(self.shell, partial(why_lines, self._pane.database, infos[0]), self.shell.show_sheet)

    # --------------------------------------------------------------------------------------------------------- other panes

    def _source(self, infos: Sequence[JobInfo]) -> None:
        self._go("assets", infos[0].source)

    def _builder(self, infos: Sequence[JobInfo]) -> None:
        self._go("builders", infos[0].builder)

    def _products(self, infos: Sequence[JobInfo]) -> None:
        def ask(names: list[str]) -> None:
            if not names:
                self.shell.tell("this job made no product")
            elif len(names) == 1:
                self._go("assets", names[0])
            else:
                items = [MenuItem(name, name) for name in names[:_MOST_PRODUCTS]]
                Menu.ask(self.shell, items, lambda name: self._go("assets", name) if name else None, title="Products")

        self._read(lambda reader: [product.name for product in reader.products_of(infos[0].key)], ask)

    def _go(self, pane_id: str, name: str) -> None:
        if not self._reveals(pane_id):
            self.shell.tell("that screen cannot be told where to go", "warning")
            return

        async def go() -> None:
            await self.shell.action_show(pane_id)
            pane: Any = self.shell.pane
            pane.reveal(name)

        self._pane.run_worker(go(), exclusive=True, group="go")

    # ------------------------------------------------------------------------------------------------------ other programs

    def _log_of(self, info: JobInfo) -> str:
        job_details = self._pane.event_log.job_details
        return native(job_details.log) if job_details is not None and job_details.info.key == info.key and job_details.log else ""

    def _pager(self, infos: Sequence[JobInfo]) -> None:
        command = shlex.split(os.environ.get("PAGER", "")) or ([found] if (found := shutil.which("less")) else [])
        if not command:
            self.shell.tell("there is no pager: set $PAGER", "warning")
        else:
            self._open(command, self._log_of(infos[0]), "no log")

    def _log_editor(self, infos: Sequence[JobInfo]) -> None:
        self._open(_editor(), self._log_of(infos[0]), "no log")

    def _editor(self, infos: Sequence[JobInfo]) -> None:
        if self._pane.event_log.has_focus_within:
            self._log_editor(infos)
        else:
            self._with_path(infos[0], lambda path: self._open(_editor(), path, "the source is gone"))

    def _folder(self, infos: Sequence[JobInfo]) -> None:
        self._with_path(infos[0], self._show_folder)

    def _show_folder(self, path: str) -> None:
        """Open the desktop's file browser where there is one, else a shell in the folder."""
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            self.shell.tell("the folder is gone", "warning")
        elif (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and (browser := shutil.which("xdg-open")):
            subprocess.Popen([browser, folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        else:
            self.run_outside([os.environ.get("SHELL") or "/bin/sh"], folder)

    def _open(self, command: list[str], path: str, lacking: str) -> None:
        if not path or not os.path.exists(path):
            self.shell.tell(lacking, "warning")
        else:
            self.run_outside([*command, path])

    def run_outside(self, command: list[str], folder: str | None = None) -> None:
        """Lend the terminal to a program until it ends."""
        driver = self.shell._driver  # noqa: SLF001  # there is no other way to ask
        if self.shell.is_headless or driver is None or not driver.can_suspend:
            self.shell.tell("this terminal cannot be lent to another program", "warning")
            return
        try:
            with self.shell.suspend():
                subprocess.run(command, cwd=folder, check=False)
        except OSError as error:
            self.shell.tell(f"'{command[0]}' cannot be run: {(error.strerror or 'no reason given').lower()}", "error")
        self.shell.refresh(layout=True)

    # -------------------------------------------------------------------------------------------------------------- copying

    def _copy(self, infos: Sequence[JobInfo]) -> None:
        word = "s" if len(infos) > 1 else ""
        job_details = self._pane.event_log.job_details
        has_job_details = job_details is not None and job_details.info.key == infos[0].key
        commands = [command for info in infos if (command := texts.rerun_command(info, self._project_dir()))]
        items = [
            MenuItem("path", f"Copy path{word}", "y"),
            MenuItem("relative", f"Copy path{word} in the scan folder", "r"),
            MenuItem("product", "Copy product paths", "p"),
            MenuItem("uuid", f"Copy source UUID{word}", "u"),
            MenuItem("text", f"Copy row{word} as text", "t"),
            MenuItem("command", f"Copy command{word} that run{'' if word else 's'} this alone", "c", bool(commands)),
            MenuItem("report", "Copy a bug report (Markdown)", "b", has_job_details),
        ]

        def chosen(what: str | None) -> None:
            match what:
                case "path":
                    self._read(lambda reader: [path_of(reader, info) for info in infos], self._copy_paths)
                case "relative":
                    self._copy_paths([info.source for info in infos])
                case "product":
                    self._read(partial(self._product_paths, infos), self._copy_paths)
                case "uuid":
                    self._read(lambda reader: _uuids(reader, infos), lambda found: self.shell.copy_text("\n".join(found)))
                case "text":
                    rows = [self._pane.table.row_text(info.key) for info in infos]
                    self.shell.copy_text("\n".join(filter(None, rows)))
                case "command":
                    self.shell.copy_text("\n".join(commands))
                case "report" if job_details is not None:
                    self.shell.copy_text(texts.bug_report(job_details))

        Menu.ask(self.shell, items, chosen, title="Copy")

    def _product_paths(self, infos: Sequence[JobInfo], reader: Reader) -> list[str]:
        cache = self.shell.session.cache_dir
        return [f"{cache}/{cache_path(product.name)}" for info in infos if info.key > 0 for product in reader.products_of(info.key)]

    def _copy_paths(self, paths: Sequence[str]) -> None:
        r"""Copy paths as the bytes they are on the disk; a name with control characters is made safe instead."""
        known = [path for path in paths if path]
        if not known:
            self.shell.tell("there is nothing to copy", "warning")
            return
        names = [native(path) for path in known]
        is_safe = all(char.isprintable() or "\udc80" <= char <= "\udcff" for name in names for char in name)
        self.shell.copy_text("\n".join(names), raw=is_safe)

    def _project_dir(self) -> str:
        return str(self.shell.config.project_dir) if self.shell.config else ""

    # -------------------------------------------------------------------------------------------------------------- reading

    def _with_path(self, info: JobInfo, then: Callable[[str], object]) -> None:
        self._read(lambda reader: path_of(reader, info), lambda path: then(native(path)))

    def _read(self, question: Callable[[Reader], T], then: Callable[[T], object]) -> None:
        def work() -> T:
            with closing(open_reader(self._pane.database)) as reader:
                return question(reader)

        in_thread(self.shell, work, then)


def in_thread(shell: AptuiApp, work: Callable[[], T], then: Callable[[T], object]) -> None:
    """Do `work` in a thread and hand its result to `then` in the app's; trouble is told."""

    def run() -> None:
        try:
            result = work()
        except KnownError as error:
            shell.in_ui(shell.tell, str(error), "error")
        else:
            shell.in_ui(then, result)

    run_in_background("aptui-jobs", run)


def path_of(reader: Reader, info: JobInfo) -> str:
    """Return the path of a job's source in text form; below its scan folder where that is known."""
    source = reader.source(info.source)
    return f"{source.root}/{source.source}" if source else info.source


def _uuids(reader: Reader, infos: Sequence[JobInfo]) -> list[str]:
    sources = (reader.source(path) for path in dict.fromkeys(info.source for info in infos))
    return [uuid_text(source.uuid) for source in sources if source is not None]


def _editor() -> list[str]:
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "") or ["vi"]

"""What can be done with jobs, each by a key and in the row menu.

Who does it stands beside: engine, other screens, programs, copies.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.screens.jobs.actions.engine_actions import EngineActions
from aptui.tui.screens.jobs.actions.navigation import Navigation
from aptui.tui.screens.jobs.actions.programs import Programs
from aptui.tui.screens.jobs.actions.row_copying import RowCopying
from aptui.tui.screens.jobs.view import JobsView, call_in_background
from aptui.tui.screens.jobs.why import why_lines
from aptui.tui.widgets.menu import Menu, MenuItem

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

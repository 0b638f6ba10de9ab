"""How what a look at the cache found is mended: the engine is asked to make it again or to delete it; nothing is deleted here.

Tests: `tests/features/sharing/screen/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aptui.core.paths import cache_path, key_of
from aptui.features.sharing.screen import contents as held
from aptui.features.sharing.screen.contents import CacheProblem
from aptui.shared.printing import count
from aptui.store.queries.integrity import mark_for_check
from aptui.tui.background import BackgroundTask
from aptui.tui.frame.commandline import Choice
from aptui.tui.screens.assets.asset_files import native
from aptui.tui.terminal.safety import make_safe
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.words import shorten

if TYPE_CHECKING:
    from aptui.shared.errors import KnownError
    from aptui.tui.pane import Shell

_NAME_CELLS = 30
"""Of a name in a question, so that its answers stay in sight."""


class Mending:
    """What can be done about findings.

    Args:
        problems: tells all that were found.
        gone: called with the names of files that the engine has deleted.
    """

    def __init__(self, shell: Shell, problems: Callable[[], Sequence[CacheProblem]], gone: Callable[[set[str]], object]) -> None:
        self._shell, self._problems, self._gone = shell, problems, gone
        self._checking = BackgroundTask("aptui-cache-check", shell.in_ui)
        self.going: list[CacheProblem] = []
        """Files that the engine was asked to delete, and that were still there."""

    def close(self) -> None:
        """Give up what is under way."""
        self._checking.close()

    # -------------------------------------------------------------------------------------------------------------- repair

    def ask_to_repair(self, chosen: Sequence[CacheProblem] = ()) -> None:
        """Ask whether to run the jobs of the sources of `chosen` again, or of all."""
        few, all_sources = _sources(chosen), _sources(self._problems())
        if not all_sources:
            return
        choices = []
        if few and len(few) < len(all_sources):
            choices.append(Choice("t", _these(few), lambda: self._reprocess(few)))
        choices += [
            Choice("a", f"all, {count(len(all_sources), 'source')}", lambda: self._reprocess(all_sources)),
            Choice("n", "no"),
        ]
        self._shell.question("run the jobs again of", choices)

    def _reprocess(self, sources: Sequence[str]) -> None:
        from aptui.link.port import ReprocessJobs  # for start-up: the verbs come after the first paint

        done = f"{count(len(sources), 'source')} asked for; verify again when the engine is idle"
        self._shell.ask(ReprocessJobs(keys=tuple(key_of(source) for source in sources)), done)

    # -------------------------------------------------------------------------------------------------------------- delete

    def ask_to_delete(self) -> None:
        """Ask whether the engine shall delete the files that belong to no product; say what it never looks at."""
        unowned = [each for each in self._problems() if each.kind == "unowned"]
        gone, others = [each for each in unowned if each.is_watched], [each for each in unowned if not each.is_watched]
        if not gone:
            self._shell.show_toast(
                f"the engine does not look there: no product lies in these folders; {_by_hand(others)}", "warning", 15
            )
            return
        rest = f", {len(others):,} elsewhere stay" if others else ""
        choices = [Choice("y", "delete", lambda: self._delete(gone)), Choice("n", "keep them")]
        self._shell.question(f"delete {count(len(gone), 'file')}{rest}?", choices)

    def _delete(self, gone: list[CacheProblem]) -> None:
        """Let the engine do it: it alone deletes in the cache, in every folder whose time is not the one it recorded."""
        from aptui.link.port import RescanSources  # for start-up: the verbs come after the first paint

        cache_dir = self._shell.session.cache_dir

        def work(_task: BackgroundTask) -> int:
            return mark_for_check(held.orphans_of(tuple(gone)), cache_dir)

        def ask(_folders: int) -> None:
            self.going = gone
            done = "the engine looks into their folders; it tries failed jobs again, too"
            self._shell.ask(RescanSources(), done, lambda _answer: self._shell.wake())
            self._gone(set())

        self._checking.start(work, ask, self._complain)

    def find_gone(self) -> None:
        """Look, in a thread, which of the files that the engine was asked to delete are still there."""
        cache_dir, going = self._shell.session.cache_dir, tuple(self.going)
        if going:
            self._checking.start(lambda _task: held.keep_unowned(cache_dir, going), self._take_left, self._complain)

    def _take_left(self, left: tuple[CacheProblem, ...]) -> None:
        gone = {each.name for each in self.going} - {each.name for each in left}
        was_going, self.going = bool(self.going), list(left)
        self._gone(gone)
        if was_going and not left:
            self._shell.show_toast("the files of no product are deleted")

    def _complain(self, error: KnownError) -> None:
        self._shell.show_toast(str(error), "error", 10)

    # ---------------------------------------------------------------------------------------------------------------- menu

    def open_menu(self, problem: CacheProblem, place: tuple[int, int] | None) -> None:
        """Offer what can be done about one finding."""
        items: list[MenuItem | None] = []
        if problem.source and self._shell.can_ask:
            items.append(MenuItem("repair", "Run its jobs again", "r"))
        if problem.job_id and any(spec.id == "jobs" for spec in self._shell.panes):
            items.append(MenuItem("job", "Show its job", "j"))
        items += [None] if items else []
        items.append(MenuItem("product", "Copy its path", "y"))
        if problem.source:
            items.append(MenuItem("source", "Copy the path of its source", "s"))
        Menu.ask(self._shell.app, items, lambda what: self._do(what, problem), title=problem.name, place=place)

    def _do(self, what: str | None, problem: CacheProblem) -> None:
        match what:
            case "repair":
                self._reprocess([problem.source])
            case "job":
                self._shell.reveal("jobs", f"#{problem.job_id}")
            case "product":
                self._shell.copy_text(native(str(self._shell.session.cache_dir), cache_path(problem.name)))
            case "source":
                self._shell.copy_text(native(problem.source))


def _sources(problems: Sequence[CacheProblem]) -> list[str]:
    return list(dict.fromkeys(each.source for each in problems if each.source))


def _these(sources: Sequence[str]) -> str:
    return shorten(make_safe(sources[0].rpartition("/")[2]), _NAME_CELLS) if len(sources) == 1 else f"these {len(sources):,}"


def _by_hand(problems: Sequence[CacheProblem]) -> str:
    folders = list(dict.fromkeys(each.name.rpartition("/")[0] for each in problems))
    return f"remove '{folders[0]}' by hand" + (f", and {len(folders) - 1:,} more" if len(folders) > 1 else "")

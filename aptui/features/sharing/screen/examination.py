"""One look at the files of the cache: are products as recorded (`verify`), which files belong to none (`unowned`).

It goes on in a thread and tells what it has found so far; what it found is mended elsewhere (`mending`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aptui.features.sharing.screen import contents as held
from aptui.features.sharing.screen.contents import CacheProblem, CheckProgress, gauge
from aptui.shared.printing import count
from aptui.tui.background import BackgroundTask
from aptui.tui.frame.line import Part
from aptui.tui.words import clock, size_text

if TYPE_CHECKING:
    from aptui.shared.errors import KnownError
    from aptui.tui.pane import Shell

_CANCELLED = -1


class CacheExamination:
    """The look that goes on, or the last one.

    Args:
        found: called, in the app's thread, with all that was found so far.
        turned: called when a look began, ended, was cancelled or failed, and when something of it is gone.
        ended: called when one has ended by itself.
    """

    def __init__(
        self, shell: Shell, found: Callable[[CheckProgress], object], turned: Callable[[], object], ended: Callable[[], object]
    ) -> None:
        self._shell, self._found, self._turned, self._ended = shell, found, turned, ended
        self._task = BackgroundTask("aptui-cache-look", shell.in_ui)
        self.kind = ""
        """"verify" or "unowned": what is, or was last, looked for."""
        self.progress: CheckProgress | None = None
        """What was found so far, None = nobody looked yet."""
        self.ended_ms = 0
        """When it ended; 0 = it goes on, negative = it was cancelled."""

    def close(self) -> None:
        """Give up what is under way."""
        self._task.close()

    @property
    def is_busy(self) -> bool:
        """Whether a look goes on."""
        return self._task.is_busy

    @property
    def problems(self) -> tuple[CacheProblem, ...]:
        """What was found."""
        return self.progress.problems if self.progress else ()

    def has_found(self, *kinds: str) -> bool:
        """Return whether there are findings of these kinds."""
        return any(each.kind in kinds for each in self.problems)

    def verify(self) -> None:
        """Compare every product with its digest."""
        self._start("verify", held.verify)

    def find_unowned(self) -> None:
        """Look for files that belong to no product."""
        config = self._shell.config
        platforms = tuple(platform.id for platform in config.project.platforms) if config else ()
        self._start("unowned", lambda task, cache_dir, report: held.find_unowned(task, cache_dir, platforms, report))

    def _start(self, kind: str, check: Callable[..., CheckProgress]) -> None:
        cache_dir = self._shell.session.cache_dir

        def work(task: BackgroundTask) -> CheckProgress:
            held.refuse_unreadable(cache_dir)
            return check(task, cache_dir, partial(self._shell.in_ui, self._take))

        if not self._task.start(work, self._end, self._fail, self._note_cancelled):
            self._shell.show_toast("the cache is being read already; 'c' cancels that", "warning")
            return
        self.kind, self.ended_ms = kind, 0
        self._take(CheckProgress())
        self._turned()

    def cancel(self) -> None:
        """Stop looking; what was found so far stays."""
        self._task.cancel()

    def forget(self, gone: set[str]) -> None:
        """Take what is gone off what was found."""
        if self.progress is not None and gone:
            rest = tuple(each for each in self.progress.problems if each.name not in gone)
            self._take(CheckProgress(self.progress.done, 0, self.progress.count, 0, 0, rest))
            self._turned()

    def _take(self, progress: CheckProgress) -> None:
        self.progress = progress
        self._found(progress)

    def _end(self, progress: CheckProgress) -> None:
        self.ended_ms = int(time.time() * 1000)
        self._take(progress)
        self._turned()
        self._ended()

    def _fail(self, error: KnownError) -> None:
        self.kind, self.progress = "", None
        self._shell.show_toast(str(error), "error", 10)
        self._turned()

    def _note_cancelled(self) -> None:
        self.ended_ms = _CANCELLED
        self._turned()

    # ---------------------------------------------------------------------------------------------------------- in a sentence

    def verdict(self, width: int, *, are_going: bool = False) -> tuple[Sequence[Part], Sequence[Part]]:
        """Return, for the rule above the findings, how the look goes or went.

        Args:
            are_going: whether the engine was asked to delete some of them.
        """
        progress = self.progress
        if progress is None:
            return (), ()
        title = "Verify" if self.kind == "verify" else "Unowned files"
        if self.is_busy:
            return _going_on(title, progress, width)
        if self.kind == "verify":
            text = _compare(progress) + (" so far" if self.ended_ms < 0 else "")
        elif are_going:
            text = f"{count(len(progress.problems), 'file')} left to delete; the engine is asked"
        else:
            text = _of_no_product(progress.problems)
        ended = "cancelled" if self.ended_ms < 0 else f"at {clock(self.ended_ms)}"
        role = "warning" if progress.problems else "completed"
        return (Part(title, "title"), Part(f"  {text}", role)), (Part(ended, "muted"),)


def _compare(progress: CheckProgress) -> str:
    products, found = count(progress.count, "product"), len(progress.problems)
    rest = f", {progress.without_digest:,} without a digest" if progress.without_digest else ""
    return (f"{found:,} of {products} not as recorded" if found else f"{products} as recorded") + rest


def _of_no_product(problems: Sequence[CacheProblem]) -> str:
    total_bytes = sum(max(0, each.size_bytes) for each in problems)
    if not problems:
        return "every file belongs to a product"
    return f"{count(len(problems), 'file')} of no product, {size_text(total_bytes)}"


def _going_on(title: str, progress: CheckProgress, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
    cancels = (Part("c", "key"), Part(" cancels", "muted"))
    found = f", {len(progress.problems):,} found" if progress.problems else ""
    if not progress.whole:
        text = f"  {count(progress.done, 'folder')} looked into{found}"
        return (Part(title, "title"), Part(text, "processing")), cancels
    read = f"{size_text(progress.done)} of {size_text(progress.whole)}"
    text = f"  {progress.count:,} of {count(progress.of_count, 'product')}, {read}{found}  "
    cells = max(0, min(30, width - len(title) - len(text) - 24))
    return (Part(title, "title"), Part(text, "processing"), *gauge(progress.done / progress.whole, cells)), cancels

"""Intents of copies that are still being read: they are on the disk by the time of the commit, which renames at once then.

Only products that are there already are announced, so their names are known. An intent that comes to nothing does no harm: a start
after a crash finds the product as it is recorded.

Tests: `tests/engine/cache/test_announced.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aptui.core.messages import JobCommit
    from aptui.core.model import PathKey
    from aptui.store.db.writer import Writer


class AnnouncedIntents:
    """Those of one cache."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[PathKey, Callable[[], dict[PathKey, frozenset[tuple[int, str]]]]]] = {}
        """{run key: its file, and what waits for the disk and returns {file: (job id, product name) that are there now}}."""

    def announce(self, copies: Sequence[tuple[PathKey, tuple[int, ...]]], writer: Writer) -> None:
        """Begin to put intents for the products of each (file, run keys of its copies) on the disk."""
        if copies:
            recorded = writer.announce_intents(copies)
            self._waiting.update((run_key, (key, recorded)) for key, run_keys in copies for run_key in run_keys)

    def covers(self, commit: JobCommit) -> bool:
        """Whether all that a commit is going to do is announced, and on the disk now."""
        found = self._waiting.pop(commit.run_key, None)
        if found is None or commit.stale:
            return False
        key, recorded = found
        announced = recorded().get(key, frozenset())
        return all((commit.job_id, product.name) in announced for _staged, product in commit.products)

    def withdraw(self, run_keys: Iterable[int], writer: Writer) -> None:
        """Clear what was announced for these runs: they came to nothing."""
        withdrawn = [run_key for run_key in run_keys if self._waiting.pop(run_key, None) is not None]
        if withdrawn:
            writer.withdraw_intents(withdrawn)

"""Hashing for the core: which files are to be read, who reads them, and what came of it; it decides nothing.

Tests: `tests/engine/loop/test_engine.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aptui.core.messages import Event, FilesHashed, HashOrder, HashResult
from aptui.core.model import Digest, FileFact, PathKey
from aptui.shared import trace

if TYPE_CHECKING:
    from aptui.engine.pool.pool import Pool

_FILES_PER_ORDER = 128
_FILES_PER_LIVE_ORDER = 32
"""Clients wait while an answer is taken in."""
_HERE_COUNT = 4
_HERE_BYTES = 1 << 16
"""So few and small files are read by the engine itself where every millisecond counts."""


class HashQueue:
    """Files that are being read.

    Args:
        roots: {scan folder id: absolute path}.
        next_seq: numbers orders and events.
        post: takes the `FilesHashed`.
        is_live: clients wait: orders are small, and a few small files are read by the engine itself instead of waiting for
            a worker.
    """

    def __init__(
        self, roots: Mapping[int, str], next_seq: Callable[[], int], post: Callable[[Event], None], *, is_live: bool
    ) -> None:
        self._roots, self._next_seq, self._post, self._is_live = roots, next_seq, post, is_live
        self._per_order = _FILES_PER_LIVE_ORDER if is_live else _FILES_PER_ORDER
        self._orders: dict[int, tuple[FileFact, ...]] = {}
        self._waiting: deque[tuple[FileFact, ...]] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no file is being read or waits to be."""
        return not (self._orders or self._waiting)

    @property
    def are_waiting(self) -> bool:
        """Whether files wait to be read."""
        return bool(self._waiting)

    def want(self, files: Sequence[FileFact]) -> None:
        """Have these files read."""
        for start in range(0, len(files), self._per_order):
            self._waiting.append(tuple(files[start : start + self._per_order]))

    def read_few(self) -> None:
        """Read what waits, if it is little."""
        if not self._is_live or len(self._waiting) != 1 or self._orders:
            return
        files = self._waiting[0]
        if len(files) <= _HERE_COUNT and all(fact.size <= _HERE_BYTES for fact in files):
            from aptui.worker.files import hash_files

            self._waiting.popleft()
            self.take(hash_files(self._order(files)))

    def send(self, pool: Pool) -> None:
        """Give workers what waits, as far as they are free."""
        while self._waiting and pool.free_for_looks > 0:
            pool.send_hash(self._order(self._waiting.popleft()))

    def _order(self, files: tuple[FileFact, ...]) -> HashOrder:
        order = self._next_seq()
        self._orders[order] = files
        trace.begin("hash", order, files=len(files))
        return HashOrder(order, tuple(f"{self._roots[fact.scan_folder]}/{fact.rel}" for fact in files))

    def take(self, result: HashResult) -> None:
        """Take the answer to an order."""
        files = self._orders.pop(result.order, None)
        if files is None:
            return
        trace.end("hash", result.order)
        errors = dict(result.errors)
        facts: list[FileFact] = []
        unreadable: list[tuple[PathKey, str]] = []
        unstable: list[PathKey] = []
        for index, (fact, found) in enumerate(zip(files, result.files, strict=True)):
            if index in errors:
                unreadable.append((fact.key, errors[index]))
            elif found is None:
                unstable.append(fact.key)
            else:
                digest, hash64, size, mtime_ns, ctime_ns, inode = found
                now = FileFact(fact.scan_folder, fact.rel, size, mtime_ns, ctime_ns, inode, Digest(digest), hash64, fact.is_shadow)
                facts.append(now)
        self._post(FilesHashed(self._next_seq(), tuple(facts), tuple(unreadable), tuple(unstable)))

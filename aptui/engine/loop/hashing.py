"""Hashing for the core: sends files to workers or reads them in the engine, and reports the results.

If only copy jobs need a file, its reader also stages the copies. Answers that arrive while the core is busy, mostly with a commit,
are passed on together, so that the next commit contains more copies.

Tests: `tests/engine/loop/test_engine.py`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.core.messages import Event, FilesHashed, HashFiles
from aptui.core.model import Digest, FileFact, PathKey
from aptui.core.orders import HashOrder, HashResult, Outcome
from aptui.shared import trace
from aptui.worker import file_access as files

if TYPE_CHECKING:
    from aptui.engine.pool.pool import Pool

_FILES_PER_ORDER = 256
_FILES_PER_LIVE_ORDER = (32, 128)
"""Minimum and maximum number of files that a live engine sends to a worker in one `HashOrder`.

Between these limits, an order has an eighth of the waiting files. For each order, the staged copies are synced once.
"""
_BYTES_PER_ORDER = 1 << 26
"""Size (bytes) of all files in a `HashOrder` at which no more files are added, so that other workers also get files."""
_FILES_TOGETHER = 2048
"""Maximum number of files that are reported to the core at once if no client waits.

Each commit costs two transactions (one synced) and index updates.
"""
_LIVE_FILES_TOGETHER = 128
"""Maximum number of files that a live engine reports to the core at once.

Clients and workers wait while the core processes these files.

A file counts as one file if the core plans its copies in one step with other copies. Any other file counts as `_ALONE` files.
"""
_ALONE = 4
"""Weight of any other file in `_FILES_TOGETHER` and `_LIVE_FILES_TOGETHER`: it has no copies, or they are planned alone."""
_LIVE_COPIES_TOGETHER = 256
"""Number of copies that are committed at once although more answers arrive; a smaller number waits for further copies."""
_HERE_COUNT, _HERE_BYTES = 4, 1 << 16
"""Maximum number of files that the engine reads itself, because a worker would take longer. `_HERE_BYTES`: maximum size of each."""
_ANNOUNCED_COUNT = 4
"""Maximum number of files in an order of a live engine whose copies are announced (`CopyStaging.announce`) during the reading."""


class _FileToRead(Struct, frozen=True):
    """A file to be read, with the run keys of its copies and its previous digest (`HashFiles`)."""

    fact: FileFact
    run_keys: tuple[int, ...] = ()
    known: bytes = b""


class _Order(Struct):
    """An order to read files, the time at which it was given (`at_ns` since 1970, `at_s` monotonic), and the answer to it.

    `found`, `errors`, `staged` and `unasked` are as in `HashResult`; the first `reported` files were already reported to the core.
    """

    files: list[_FileToRead]
    at_ns: int
    at_s: float
    found: Sequence[tuple[bytes, int, int, int, int, int] | None] = ()
    errors: Mapping[int, str] = {}
    staged: Mapping[int, int] = {}
    unasked: frozenset[int] = frozenset()
    reported: int = 0


class CopyStaging(Struct, frozen=True):
    """How readers of sources stage copies.

    Args:
        staging: the folder for copies, absolute.
        is_being_written: whether a process writes a source now, so that its copy is discarded. Its arguments are the absolute path,
            and whether the reader of the file has checked this already.
        discard: deletes the staged files of runs with these keys.
        may_group: whether the core may now plan the copies of many files in one step.
        announce: called with (file, run keys of its copies) for each file that is being read and whose products will be replaced.
        withdraw: called with the run keys of copies that were not made.
    """

    staging: str
    may_start: Callable[[], bool]
    is_being_written: Callable[[str, bool], bool]
    discard: Callable[[Sequence[int]], object]
    may_group: Callable[[], bool]
    announce: Callable[[Sequence[tuple[PathKey, tuple[int, ...]]]], object]
    withdraw: Callable[[Sequence[int]], object]


class HashQueue:
    """The files that wait to be read or are being read, and the answers that are not reported yet.

    Args:
        roots: {scan folder id: absolute path}.
        post: receives the `FilesHashed` event.
        is_live: whether clients wait. Then orders are small, and the engine itself reads a few small files.
        is_small_build: whether there is so little work that the engine itself reads and copies the files.
        note_read: called with each file that was read, and the earliest time at which its reading began (nanoseconds since 1970,
            and monotonic seconds).
    """

    def __init__(
        self,
        roots: Mapping[int, str],
        next_seq: Callable[[], int],
        post: Callable[[Event], None],
        *,
        is_live: bool,
        is_small_build: bool,
        copying: CopyStaging,
        note_read: Callable[[FileFact, int, float], object] = lambda _fact, _read_ns, _read_s: None,
    ) -> None:
        self._roots, self._next_seq, self._post, self._is_live = roots, next_seq, post, is_live
        self._is_small_build, self._copying, self._note_read = is_small_build, copying, note_read
        self._together = _LIVE_FILES_TOGETHER if is_live else _FILES_TOGETHER
        self._orders: dict[int, _Order] = {}
        self._waiting: deque[_FileToRead] = deque()
        self._answered: deque[_Order] = deque()
        self._copies_reported = 0
        """Number of files whose copies were reported to the core, but are committed together with the copies of a later event.

        Files whose copies the core plans in one step are not counted.
        """

    @property
    def is_idle(self) -> bool:
        """Whether no file is being read, and no file waits to be read."""
        return not (self._orders or self._waiting or self._answered)

    @property
    def are_answered(self) -> bool:
        """Whether answers have arrived that are not in the inbox yet."""
        return bool(self._answered)

    @property
    def are_waiting(self) -> bool:
        """Whether files wait to be read."""
        return bool(self._waiting)

    def add(self, command: HashFiles) -> None:
        """Add these files to the files that wait to be read."""
        self._waiting.extend(
            map(_FileToRead, command.files, command.copies, command.known) if command.copies else map(_FileToRead, command.files)
        )

    def read_few(self) -> None:
        """Read the waiting files in the engine if they are few and small.

        A live engine does not copy files itself, because the screen and other clients would have to wait. It leaves files that
        need copies to workers, which read and copy them in one step.
        """
        if not (self._is_live or self._is_small_build) or self._orders or not 0 < len(self._waiting) <= _HERE_COUNT:
            return
        may_copy = self._copying.may_start()
        if self._is_live and may_copy and any(wanted.run_keys for wanted in self._waiting):
            return
        if all(wanted.fact.size <= _HERE_BYTES for wanted in self._waiting):
            self.accept_result(files.hash_files(self._order(may_copy=may_copy and not self._is_live)))

    def send(self, pool: Pool) -> None:
        """Send waiting files to free workers."""
        while self._waiting and pool.free_for_analyses > 0:
            order = self._order(may_copy=self._copying.may_start())
            pool.send_hash(order)
            if self._is_live and order.copies and len(order.paths) <= _ANNOUNCED_COUNT:
                self._copying.announce([(file.fact.key, file.run_keys) for file in self._orders[order.order].files if file.known])

    def _order(self, *, may_copy: bool) -> HashOrder:
        order, staging = self._next_seq(), self._copying.staging
        files = self._take_waiting()
        self._orders[order] = _Order(files, time.time_ns(), time.monotonic())
        trace.begin("hash", order, files=len(files))
        paths = tuple(self._path_of(wanted.fact) for wanted in files)
        if not may_copy or not any(wanted.run_keys for wanted in files):
            return HashOrder(order, paths)
        if trace.active is not None:
            for wanted in files:
                for run_key in wanted.run_keys:
                    trace.begin("run", run_key, source=wanted.fact.rel)
        copies = tuple(tuple(f"{staging}/{run_key}" for run_key in wanted.run_keys) for wanted in files)
        return HashOrder(order, paths, copies, tuple(wanted.known for wanted in files), asks_writers=self._is_live)

    def _take_waiting(self) -> list[_FileToRead]:
        """Return the files of the next order."""
        least, most = _FILES_PER_LIVE_ORDER if self._is_live else (_FILES_PER_ORDER, _FILES_PER_ORDER)
        count, size = max(least, min(most, len(self._waiting) // 8)), 0
        files: list[_FileToRead] = []
        while self._waiting and len(files) < count and size < _BYTES_PER_ORDER:
            files.append(self._waiting.popleft())
            size += files[-1].fact.size
        return files

    def _path_of(self, fact: FileFact) -> str:
        return f"{self._roots[fact.scan_folder]}/{fact.rel}"

    def accept_result(self, result: HashResult) -> None:
        """Receive the answer to an order."""
        order = self._orders.pop(result.order, None)
        if order is not None:
            trace.end("hash", result.order)
            order.found, order.errors, order.staged = result.files, dict(result.errors), dict(result.staged)
            order.unasked = frozenset(result.unasked)
            self._answered.append(order)
            if trace.active is not None:
                for index in order.staged:
                    for run_key in order.files[index].run_keys:
                        trace.end("run", run_key, outcome=Outcome.SUCCEEDED.name)

    def post_answers(self) -> None:
        """Move finished results into the inbox, at most one batch at a time."""
        facts: list[FileFact] = []
        unreadable: list[tuple[PathKey, str]] = []
        unstable: list[PathKey] = []
        copies: list[tuple[PathKey, tuple[int, ...], int]] = []
        alone = 0
        for answer, first, end in self._next_files():
            staged = self._usable(answer, first, end)
            for index in range(first, end):
                wanted, found = answer.files[index], answer.found[index]
                key = wanted.fact.key
                if index in answer.errors:
                    unreadable.append((key, answer.errors[index]))
                elif found is None or (index in staged and self._is_being_written(answer, index)):
                    unstable.append(key)
                else:
                    facts.append(_as_read(wanted.fact, *found))
                    self._note_read(facts[-1], answer.at_ns, answer.at_s)
                if index in staged:
                    copies.append((key, wanted.run_keys, staged[index]))
                    alone += not self._is_grouped(wanted)
                elif wanted.run_keys:
                    self._copying.withdraw(wanted.run_keys)
        read = tuple(facts), tuple(unreadable), tuple(unstable), tuple(copies)
        self._post(FilesHashed(self._next_seq(), *read, time.time_ns() // 1_000_000, self._has_more(alone)))

    def _is_being_written(self, answer: _Order, index: int) -> bool:
        return self._copying.is_being_written(self._path_of(answer.files[index].fact), index not in answer.unasked)

    def _next_files(self) -> Iterator[tuple[_Order, int, int]]:
        """Yield (answer, first, end): the range of the answer's files that are reported now."""
        left = self._together
        while self._answered and left > 0:
            answer = self._answered[0]
            first = answer.reported
            while answer.reported < len(answer.files) and left > 0:
                left -= 1 if self._is_grouped(answer.files[answer.reported]) else _ALONE
                answer.reported += 1
            if answer.reported == len(answer.files):
                self._answered.popleft()
            yield answer, first, answer.reported

    def _is_grouped(self, wanted: _FileToRead) -> bool:
        """Whether the core may plan the copies of this file in one step with the copies of other files."""
        return bool(wanted.run_keys) and self._copying.may_group()

    def _has_more(self, alone: int) -> bool:
        """Whether the core should delay the commit of the reported copies, because more answers of workers have already arrived.

        Args:
            alone: number of newly reported files with copies, without files whose copies the core plans in one step.
        """
        self._copies_reported += alone
        has_more = self._is_live and bool(self._answered) and 0 < self._copies_reported < _LIVE_COPIES_TOGETHER
        if not has_more:
            self._copies_reported = 0
        return has_more

    def _usable(self, answer: _Order, first: int, end: int) -> dict[int, int]:
        """Return {index of a file: duration of its copying (ms)} of the files whose staged copies may become products."""
        staged = {index: answer.staged[index] for index in range(first, end) if index in answer.staged}
        if staged and not self._copying.may_start():
            self._copying.discard([run_key for index in staged for run_key in answer.files[index].run_keys])
            return {}
        return staged


def _as_read(fact: FileFact, digest: bytes, hash64: int, size: int, mtime_ns: int, ctime_ns: int, inode: int) -> FileFact:
    return FileFact(fact.scan_folder, fact.rel, size, mtime_ns, ctime_ns, inode, Digest(digest), hash64, fact.is_duplicate)

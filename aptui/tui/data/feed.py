"""Joins notices with the database: subscribe, then read, then apply notices.

A notice has a moment (epoch, seq), and every transaction of the database stores the moment up to which its rows are current. The
feed subscribes first and then reads, so that no change is missed. If a notice is not later than the moment of the rows, its change
is already in the rows, and the notice only shows whether its job is running; a later notice also changes the row. The engine may
write rows after it sends their notices: if the rows are older than the subscription, they are read again as soon as the database
has reached the moment of the subscription. A failed read is repeated at the first notice after the database exists.

Other threads call `receive`, `note_subscription`, `note_loss` and `read`; the UI calls `drain` once a frame.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.notices import (
    ConnectionsChanged,
    EngineMessage,
    HealthChanged,
    JobChanged,
    JobKey,
    JobProgress,
    MissingScan,
    Notice,
    ProductsChanged,
    Progress,
    SourcesChanged,
)
from aptui.shared.errors import KnownError
from aptui.shared.health import Connection, Health
from aptui.shared.lean_imports import give_memory_back
from aptui.store.jobs.job_table import AnalysisKeys, JobTable, Moment, build_first_table, build_job_table, read_job_table
from aptui.store.jobs.parts import Beginning, FirstJobs, JobPart
from aptui.store.queries.reader import NoDatabaseError, open_reader
from aptui.tui.background import run_in_background
from aptui.tui.data.session import NoticeListener

if TYPE_CHECKING:
    from aptui.link.codec import NoticeLine
    from aptui.tui.data.early_read import EarlyRead

NOTHING_YET = "nothing was processed yet; jobs appear here as the engine finds them"
"""Text in place of the jobs before the first engine has run."""
CATCH_UP_S = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Delays before each of five checks whether the database has reached the moment of the subscription (seconds)."""
_PART = 400
"""Number of changed jobs that are applied at a time. This takes 2 ms, so a key is delayed by at most 2 ms."""
_MOST_MESSAGES = 200
_NO_ENGINE: Moment = (0, 0)
"""(epoch, event number) of a database that was not written by an engine of aptui."""
_FIRST_PAINT_S = 0.1
"""Pause of the reading thread after the first jobs (seconds): reading more would delay their paint."""
_TIDY_MS = 1_000
_DELIVERED_MS = 10_000
"""Maximum time between the notice of a change and the row about it in the database (ms); it is enough for several commits."""


class JobNews(Struct, frozen=True, gc=False):
    """The newest notice of a job.

    Args:
        is_later: whether the notice is later than the rows that were read, so that it also changes the row.
        received_ms: time of receipt (ms since 1970).
        moment: the moment of the notice; rows that were read at this moment or later contain the change.
    """

    notice: JobChanged
    is_later: bool
    received_ms: int
    moment: Moment = (0, 0)


class Batch(Struct):
    """Updates since the last frame, to apply in this order: `table`, `running`, `jobs`.

    Args:
        table: all jobs, read again; None = unchanged.
        first: the first jobs (`store.jobs.parts.FirstJobs`), to show until there is a `table`.
        running: the jobs that ran at the subscription, {id: start in ms}; None = unchanged.
        percents: {id of a job: the newest report about its progress}.
        are_assets_stale: whether sources or products changed, so that trees are out of date.
        error: why the database cannot be read; "" if it can be read.
    """

    table: JobTable | None = None
    first: JobTable | None = None
    running: dict[int, int] | None = None
    jobs: tuple[JobNews, ...] = ()
    percents: dict[int, JobProgress] = {}
    are_assets_stale: bool = False
    messages: tuple[EngineMessage, ...] = ()
    progress: Progress | None = None
    health: Health | None = None
    connections: tuple[Connection, ...] | None = None
    missing_scans: tuple[MissingScan, ...] = ()
    error: str = ""

    def parts(self, most: int = _PART) -> list[Batch]:
        """Split the batch into parts that are quick to apply. The list is reversed: `pop` returns the part to apply next.

        A part has at most `most` changes of jobs. The part to apply first also has all updates of other kinds.
        """
        rest = [Batch(jobs=self.jobs[at : at + most]) for at in range(most, len(self.jobs), most)]
        return [*reversed(rest), replace(self, jobs=self.jobs[:most]) if rest else self]


class Feed(NoticeListener):
    """Notices of one engine, joined with its database.

    Args:
        builders: {UUID: name of a builder}.
        more_builders: returns the names of all builders, even those that take a while to find. It is called once in the reading
            thread, after the jobs were read. If a name differs from `builders`, the jobs are read again.
        wake: called by any thread when there is something to drain; may be called often.
        wake_for_news: like `wake`, for updates that can be drawn later because the user's keys did not cause them.
        clock_ms: the clock, for notices without a time.
        read_table: reads all jobs; a double in tests.
        early: a read that began before the feed was created; it is used unless the database has changed since.
    """

    def __init__(
        self,
        database: Path,
        builders: Mapping[bytes, str] | None = None,
        *,
        more_builders: Callable[[], Mapping[bytes, str]] | None = None,
        wake: Callable[[], None] = lambda: None,
        wake_for_news: Callable[[], None] | None = None,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        read_table: Callable[[], JobTable] | None = None,
        early: EarlyRead | None = None,
    ) -> None:
        self._database, self._builders, self._more_builders = database, dict(builders or {}), more_builders
        self._wake, self._wake_for_news, self._clock_ms = wake, wake_for_news or wake, clock_ms
        self._read_table = read_table or self._read_database
        self._early = early
        self._analyses = AnalysisKeys()
        self._lock = threading.Lock()
        self._pending = Batch()
        # The waiting updates that a newer notice of the same job or scan replaces; `drain` puts them into the batch.
        self._jobs: dict[JobKey, JobNews] = {}
        self._scans: dict[tuple[str, bool], MissingScan] = {}
        self._shown: Moment | None = None  # (epoch, event number) of the newest rows that were read
        self._subscribed: Moment = (0, 0)
        self._is_read_due = True
        self._has_failed = False
        self._reads, self._reading = 0, 0
        # Changes of jobs that `drain` has returned. A later read may still return older rows; then these changes are applied again.
        self._delivered: dict[JobKey, JobNews] = {}
        self._tidied_ms = 0
        self._thread: threading.Thread | None = None
        # Whether the thread will check again for a pending read. `is_alive` cannot tell: a thread that is about to end is alive.
        self._is_reading = False
        self._closed = threading.Event()

    # ------------------------------------------------------------------------------------- called in the session's thread

    def note_subscription(self, epoch: int, seq: int, running: Mapping[int, int]) -> None:
        """Read all rows; the notices of a new subscription follow. `running` is {id of a running job: duration so far in ms}."""
        now_ms = self._clock_ms()
        with self._lock:
            # The notices of an earlier connection are discarded: their changes are in the answer to the new subscription, or in the
            # rows of the next read.
            self._jobs.clear()
            self._pending.running = {job_id: now_ms - for_ms for job_id, for_ms in running.items()}
            self._subscribed = (epoch, seq)
            self._delivered.clear()
        self._request_read()

    def note_loss(self) -> None:
        """React to a lost connection: keep the rows, but show no job as running."""
        with self._lock:
            self._pending.running = {}
            self._jobs = {key: change for key, change in self._jobs.items() if change.notice.status != "processing"}
        self._wake()

    def receive(self, news: Sequence[NoticeLine]) -> None:
        """Receive notices; a notice replaces older notices of its kind or of its job."""
        received_ms = self._clock_ms()
        with self._lock:
            jobs = self._jobs
            for line in news:
                notice = line.notice
                if isinstance(notice, JobChanged):
                    # `is_later` is provisional: `drain` sets it to False if the rows that were read already contain the change.
                    key = notice.job_id or notice.key
                    jobs.pop(key, None)
                    jobs[key] = JobNews(notice, True, received_ms, line[:2])  # faster than (line.epoch, line.seq)
                else:
                    self._note(notice)
            epoch = max((line.epoch for line in news), default=0)
            is_new_epoch = epoch > self._subscribed[0]
            if is_new_epoch:
                self._subscribed = (epoch, 0)
            needs_read = self._has_failed and not self._is_read_due
        if is_new_epoch or (needs_read and self._database.is_file()):
            self._request_read()
        self._wake_for_news()

    def _note(self, notice: Notice) -> None:
        pending = self._pending
        match notice:
            case ProductsChanged() | SourcesChanged():
                pending.are_assets_stale = True
            case JobProgress():
                pending.percents[notice.job_id] = notice
            case Progress():
                pending.progress = notice
            case HealthChanged():
                pending.health = notice.health
            case ConnectionsChanged():
                pending.connections = notice.connections
            case MissingScan():
                self._scans.pop((notice.name, notice.is_over), None)
                self._scans[notice.name, notice.is_over] = notice
                pending.are_assets_stale |= notice.is_over
            case EngineMessage():
                pending.messages = (*pending.messages[1 - _MOST_MESSAGES :], notice)

    # ------------------------------------------------------------------------------------------------------------- reading

    @property
    def is_read_due(self) -> bool:
        """Whether all rows have to be read, for the first time or again."""
        with self._lock:
            return self._is_read_due

    @property
    def is_behind(self) -> bool:
        """Whether the rows are older than the subscription, so that they may lack earlier notices."""
        with self._lock:
            return self._shown is not None and self._shown < self._subscribed

    def _request_read(self) -> None:
        self.refresh()
        self._wake()

    def refresh(self) -> None:
        """Read all rows in a thread; if the thread is reading already, it reads again afterwards."""
        with self._lock:
            self._is_read_due = True
            if self._closed.is_set() or self._is_reading:
                return
            self._is_reading = True
            self._thread = run_in_background("aptui-read", self._read_until_current)

    def read(self) -> Moment:
        """Read all rows in the calling thread (blocks); return (epoch, event number) of the rows.

        Raises:
            KnownError: the database cannot be read.
        """
        with self._lock:
            self._is_read_due = False
            self._reads += 1
            self._reading += 1
            number = self._reads
        table, error = None, ""
        try:
            table = self._read_table()
        except KnownError as known:
            error = NOTHING_YET if isinstance(known, NoDatabaseError) else str(known)
            raise
        finally:
            with self._lock:
                self._reading -= 1
                self._pending.error, self._has_failed = error, bool(error)
                # Two reads may overlap. Only the rows of the read that began last are used, because they are the newest.
                if table is not None and number == self._reads:
                    self._adopt(table)
            self._wake()
        return table.moment

    def _adopt(self, table: JobTable) -> None:
        self._pending.table, self._shown = table, table.moment
        self._pending.are_assets_stale = True
        self._jobs = {key: received for key, received in self._delivered.items() if received.moment > table.moment} | self._jobs

    def close(self) -> None:
        """End the reading thread."""
        self._closed.set()
        if self._early is not None:
            self._early.close()
        if self._thread is not None:
            self._thread.join()

    def _read_until_current(self) -> None:
        while self._begins_read():
            with suppress(KnownError):  # the next frame shows the error
                self._catch_up()

    def _begins_read(self) -> bool:
        """Return whether another read is due; if not, the next request starts a new thread."""
        with self._lock:
            self._is_reading = self._is_read_due and not self._closed.is_set()
            return self._is_reading

    def _catch_up(self) -> None:
        """Read all jobs. If the engine has not saved some changes yet, read all jobs again as soon as it has saved them."""
        self.read()
        self._find_builders()
        give_memory_back()
        for pause_s in CATCH_UP_S:
            if self.is_read_due or not self.is_behind or self._closed.wait(pause_s):
                return
            if self._moment() >= self._subscribed:
                self.read()

    def _find_builders(self) -> None:
        more, self._more_builders = self._more_builders, None
        if more is None:
            return
        with suppress(KnownError):  # if a builder cannot be imported, its UUID is shown instead of its name
            found = more()
            if any(self._builders.get(uuid) != name for uuid, name in found.items()):
                self._builders.update(found)
                with self._lock:
                    self._is_read_due = True

    def _read_database(self) -> JobTable:
        early, self._early = self._early, None
        if early is not None and (table := self._read_already(early)) is not None:
            return table
        with closing(open_reader(self._database)) as reader:
            return read_job_table(reader, self._builders, self._analyses)

    def _read_already(self, early: EarlyRead) -> JobTable | None:
        """Return the table that `early` read while the app started, None if it failed or the database has changed."""
        parts = self._without_first(early.parts())
        try:
            beginning = next(parts, None)
            if isinstance(beginning, Beginning) and beginning.moment in (_NO_ENGINE, self._moment()):
                return build_job_table(chain((beginning,), parts), self._builders, self._analyses)
        except KnownError:
            pass  # the next read reports the error
        finally:
            early.close()
        return None

    def _without_first(self, parts: Iterator[JobPart]) -> Iterator[JobPart]:
        """Yield all parts except `FirstJobs`. Show `FirstJobs` at once, then pause, so that the screen can paint these jobs."""
        for part in parts:
            if isinstance(part, FirstJobs):
                table = build_first_table(part, self._builders, self._analyses)
                with self._lock:
                    self._pending.first = table
                self._wake()
                self._closed.wait(_FIRST_PAINT_S)
            else:
                yield part

    def _moment(self) -> Moment:
        with closing(open_reader(self._database)) as reader:
            return reader.moment()

    # ------------------------------------------------------------------------------------------- called in the UI's thread

    def drain(self) -> Batch:
        """Return the updates since the last call. Changes of jobs wait while a read is due."""
        with self._lock:
            batch, shown = self._pending, self._shown
            batch.missing_scans = tuple(self._scans.values())
            self._pending, self._scans = Batch(), {}
            if shown is None or self._is_read_due or self._reading > 0:
                self._pending.running, self._pending.percents = batch.running, batch.percents
                batch.running, batch.percents = None, {}
            else:
                batch.jobs = tuple([news if news.moment > shown else replace(news, is_later=False) for news in self._jobs.values()])
                self._store_delivered(self._jobs)
                self._jobs = {}
            return batch

    def _store_delivered(self, jobs: dict[JobKey, JobNews]) -> None:
        self._delivered |= jobs
        now_ms = self._clock_ms()
        if now_ms - self._tidied_ms >= _TIDY_MS:
            oldest, self._tidied_ms = now_ms - _DELIVERED_MS, now_ms
            self._delivered = {key: news for key, news in self._delivered.items() if news.received_ms >= oldest}

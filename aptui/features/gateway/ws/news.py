"""Converts the engine's notices to notifications, adds facts from the database, and sends them in batches to all sessions.

Tests: `tests/features/gateway/ws/test_frames.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aptui.core.notices import JobChanged, JobProgress, ProductsChanged, Progress, ShowRequested, SourcesChanged
from aptui.core.paths import from_text
from aptui.features.gateway import engine_requests, gateway_context, wire_codec, wire_records
from aptui.features.gateway.wire_records import Notice
from aptui.features.gateway.ws.client_sessions import WireSession, WireSessions, asset_of, frame_of, is_wanted, wait_until_taken
from aptui.link.codec import NoticeLine
from aptui.link.engine_link import EngineLink, NewsPulse
from aptui.shared.errors import KnownError
from aptui.store.db.schema import uuid_text, wire_asset_id
from aptui.store.queries.reader import SourceRow
from aptui.store.queries.serving import Served, asset_ids, sources_at

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.store.queries.serving import Database

_MOST = 20_000
"""Maximum number of waiting notices; above this number all notices are dropped and every client gets a `resync`."""
_READINESS_S = 0.25
"""Interval (seconds) of the queries for pending critical jobs while the engine works."""
_REMEMBERED = 10_000
"""Maximum number of remembered changes of sources."""
_REST_SHARE, _SENDING_SHARE, _REST_MOST_S = 1.0, 9.0, 0.25
"""Pause after publishing: first factor × publishing time + second factor × sending time, limited to a number of seconds.

If many clients are connected, the frames are few and large; if few clients are connected, each notification is sent almost at once.
"""
_SLICE = wire_codec.QUEUE_LIMIT // 2
"""Maximum number of notifications in a frame. It is half of a queue's limit, so that one queued frame cannot exceed the limit."""
_TAKING_S = 0.05
"""Maximum wait (seconds) after each frame until the clients have read it.

Only clients that had read all earlier frames are waited for.
"""


class NewsPublisher:
    """Converts notices of the engine to notifications for clients."""

    engine: EngineLink

    def __init__(self, config: Config, database: Database, sessions: WireSessions) -> None:
        self._config, self._database, self._sessions = config, database, sessions
        self.pulse = NewsPulse()
        self._platforms = [platform.id for platform in config.project.platforms]
        self._pending: list[NoticeLine] = []
        self._wake = asyncio.Event()
        self._ids: dict[str, tuple[bytes, int]] | None = None
        self._started: dict[int, wire_records.JobInfo] = {}
        self._changed: dict[str, str] = {}
        """{source: reason of the last change that was reported to clients}.

        A source is reported once, even if several of its jobs report the same change.
        """
        self._ready: dict[str, bool] = {}
        self._is_unsure = True
        """Whether the set of critical jobs may have changed since the last query."""
        self._sending_s = 0.0
        self._gaps = 0
        """Number of times that notices were lost: an engine connected or disconnected, or too many notices were waiting.

        If the number changes while `_publish` sends notifications, the remaining notifications are dropped.
        """
        self._tasks: list[asyncio.Task[None]] = []
        sessions.hello_callbacks.append(self._send_readiness)
        sessions.end_callbacks.append(lambda _session: self._forget_ids())

    def start(self) -> None:
        """Start publishing; called in the event loop."""
        self._tasks = [
            gateway_context.begin(self._publish_all(), "publishing notifications"),
            gateway_context.begin(self._watch_readiness(), "checking critical jobs"),
        ]

    async def close(self) -> None:
        """Stop publishing."""
        await gateway_context.end(*self._tasks)

    # ----------------------------------------------------------------------------------------------- notices of the engine

    def take_news(self, batch: Sequence[NoticeLine]) -> None:
        """Queue notices of the engine."""
        self._is_unsure = True
        if self._sessions.has_clients:
            self._pending.extend(batch)
            if len(self._pending) > _MOST:
                self._drop_notices()
                self._sessions.drop_queues("too many notifications at a time")
        self._wake.set()

    def on_engine_change(self, is_here: bool) -> None:
        """Handle that an engine has connected or disconnected; some of its notices may be missing."""
        self._drop_notices()
        self._started.clear()
        self._is_unsure = True
        self._ready.clear()
        if is_here:
            self._sessions.drop_queues("another engine has started")
        self._sessions.publish(self.engine.epoch, self.engine.seq, [wire_records.EngineChanged(is_here)])
        self._wake.set()
        self.pulse.wake_all()

    def _drop_notices(self) -> None:
        """Drop the queued notices. A running `_publish` drops the rest of its notices, too, because `_gaps` changes."""
        self._gaps += 1
        self._pending.clear()
        self._ids = None

    def _send_readiness(self, session: WireSession) -> None:
        ready = [wire_records.CriticalReady(platform) for platform, is_ready in self._ready.items() if is_ready]
        wanted = [each for each in ready if is_wanted(each, *session.wanted)]
        if wanted:
            session.queue(frame_of(self.engine.epoch, self.engine.seq, wanted))
        self._wake.set()

    def _forget_ids(self) -> None:
        if not self._sessions.has_clients:
            self._ids = None

    # -------------------------------------------------------------------------------------------- notifications to clients

    async def _publish_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._ids is None and self._sessions.has_clients:
                await self._read_ids()
            pending, self._pending = self._pending, []
            began, self._sending_s = loop.time(), 0.0
            if pending:
                try:
                    await self._publish(pending)
                except KnownError as error:
                    self._sessions.drop_queues(f"the asset database cannot be read: {error}")
            self.pulse.wake_all()
            if pending:
                rest_s = _REST_SHARE * (loop.time() - began) + _SENDING_SHARE * self._sending_s
                await asyncio.sleep(min(rest_s, _REST_MOST_S))

    async def _read_ids(self) -> None:
        try:
            rows = await self._database.ask(asset_ids)
        except KnownError:
            return
        self._ids = {name: (uuid, sub_id) for name, uuid, sub_id in rows}

    async def _publish(self, pending: Sequence[NoticeLine]) -> None:
        """Publish notices in order; if a product changed several times, publish only its last change."""
        epoch, seq, gaps = pending[-1].epoch, max(news.seq for news in pending), self._gaps
        digests, paths = _read_from_database(pending)
        wanted = {name: digest for name, digest in digests.items() if digest}
        rows = await self._database.read_products(wanted, (epoch, seq)) if wanted else {}
        known = await self._database.ask(lambda reader: sources_at(reader, paths)) if paths else {}
        notices = [each for news in pending for each in self._make_notices(news.notice, digests, rows, known)]
        latest = next((news.notice for news in reversed(pending) if isinstance(news.notice, Progress)), None)
        if latest is not None:
            self.engine.progress = latest
            waiting, running = latest.analyses_waiting + latest.jobs_waiting, latest.analyses_running + latest.jobs_running
            done = latest.jobs_done, latest.jobs_failed
            notices.append(wire_records.Counts(waiting, running, *done, latest.is_scanning, latest.eta_ms))
        for first in range(0, len(notices), _SLICE):
            if gaps != self._gaps:
                return
            began_s = monotonic()
            late = self._sessions.publish(epoch, seq, notices[first : first + _SLICE])
            self._sending_s += monotonic() - began_s
            await wait_until_taken(late, _TAKING_S)

    def _make_notices(
        self, notice: object, digests: dict[str, str], rows: dict[str, Served], known: dict[str, SourceRow]
    ) -> Iterable[Notice]:
        match notice:
            case ProductsChanged():
                return filter(None, [self._product(name, digests, rows) for name, _digest in notice.products])
            case SourcesChanged():
                return [_source(path, is_there, known) for path, is_there in notice.sources]
            case JobChanged():
                return self._job(notice, known)
            case JobProgress() if (job := self._started.get(notice.job_id)) is not None and job.run_key == notice.run_key:
                return [wire_records.JobProgressed(replace(job, percent=notice.percent))]
            case ShowRequested(on_screen=False):
                return [_show(notice, known)]
        return ()

    def _product(self, name: str, digests: dict[str, str], rows: dict[str, Served]) -> Notice | None:
        digest = digests.pop(name, None)  # `pop`, so that each product is reported once
        platform, _, path = name.partition("/")
        if digest is None or platform not in self._platforms:
            return None
        row = rows.get(name)
        if row is not None:
            if self._ids is not None:
                self._ids[name] = (row.uuid, row.sub_id)
            return wire_records.AssetChanged(asset_of(row))
        known = self._ids.pop(name, None) if self._ids is not None else None
        if digest or (self._ids is not None and known is None):
            # Either a later notice reports the removal of this product, or clients never received it as an asset.
            return None
        return wire_records.AssetRemoved(wire_asset_id(*known) if known is not None else "", platform, path)

    def _job(self, notice: JobChanged, known: dict[str, SourceRow]) -> list[Notice]:
        made: list[Notice] = []
        job = _job_of(notice)
        if notice.is_of_its_source and self._changed.get(notice.source) != notice.reason:
            if len(self._changed) >= _REMEMBERED:
                self._changed.clear()
            self._changed[notice.source] = notice.reason
            made.append(_source(notice.source, True, known))
        match notice.status:
            case "processing" if notice.job_id:
                made += self._make_started(notice, job)
            case "completed" if notice.job_id and notice.run_key:
                made += [*self._make_started(notice, job), wire_records.JobCompleted(job)]
                self._started.pop(notice.job_id, None)
            case "failed":
                if notice.job_id:
                    made += [*self._make_started(notice, job), wire_records.JobFailed(job)]
                    self._started.pop(notice.job_id, None)
                made.append(wire_records.SourceFailed(notice.source, notice.platform, notice.error))
            case _:
                self._started.pop(notice.job_id, None)
        return made

    def _make_started(self, notice: JobChanged, job: wire_records.JobInfo) -> list[Notice]:
        known = self._started.get(notice.job_id)
        if known is not None and known.run_key == notice.run_key:  # another run key: no client got the end of the earlier run
            return []
        started = self._started[notice.job_id] = replace(job, status="processing")
        return [wire_records.JobStarted(started)]

    # ----------------------------------------------------------------------------------------------------------- readiness

    async def _watch_readiness(self) -> None:
        """Report platforms without pending critical jobs.

        Query the engine only after events, and only while clients are subscribed.
        """
        while True:
            await self.pulse.wait(3600.0)
            while self._is_unsure and self._sessions.has_clients and self.engine.is_here:
                self._is_unsure = False
                try:
                    readiness = await self.engine.ask(engine_requests.Readiness())
                except KnownError:
                    self._is_unsure = True  # after the next event, query the engine again
                    break
                self._publish_readiness(readiness)
                if readiness["state"] != "idle":
                    self._is_unsure = True
                    await asyncio.sleep(_READINESS_S)

    def _publish_readiness(self, readiness: dict[str, Any]) -> None:
        now = {platform: is_critical_done(readiness, platform) for platform in self._platforms}
        fresh = [
            wire_records.CriticalReady(platform) for platform, is_ready in now.items() if is_ready and not self._ready.get(platform)
        ]
        self._ready = now
        if fresh:
            self._sessions.publish(self.engine.epoch, self.engine.seq, fresh)


def is_critical_done(readiness: dict[str, Any], platform: str) -> bool:
    """Whether an answer to `engine_requests.Readiness` has no pending critical jobs for a platform ("" = any)."""
    return bool(readiness["is_ready"]) and not pending_count(readiness["critical"], platform)


def pending_count(counts: dict[str, int], platform: str) -> int:
    """Return the number of jobs of a platform ("" = all) in {platform: number of jobs}; `common` jobs belong to all platforms."""
    return sum(count for name, count in counts.items() if platform in ("", name) or name == "common")


def _job_of(notice: JobChanged) -> wire_records.JobInfo:
    return wire_records.JobInfo(
        notice.job_id, notice.run_key, notice.source, notice.platform, notice.job_key, notice.builder, notice.status, notice.error,
        notice.warnings, notice.errors, notice.duration_ms, notice.completed_ms, notice.is_draft,
    )  # fmt: skip


def _read_from_database(pending: Sequence[NoticeLine]) -> tuple[dict[str, str], set[str]]:
    """Return the products and sources to read from the database: ({name of a product: its last digest, "" = removed}, sources)."""
    digests: dict[str, str] = {}
    paths: set[str] = set()
    for _epoch, _seq, notice in pending:
        match notice:
            case ProductsChanged():
                digests.update(notice.products)
            case SourcesChanged():
                paths.update(path for path, is_there in notice.sources if is_there)
            case ShowRequested(on_screen=False):
                paths.add(notice.source)
            case JobChanged() if notice.is_of_its_source:
                paths.add(notice.source)
    return digests, paths


def _source(path: str, is_there: bool, known: dict[str, SourceRow]) -> Notice:
    if not is_there:
        return wire_records.SourceRemoved(path)
    row = known.get(path)
    return wire_records.SourceChanged(path, uuid_text(row.uuid) if row is not None else "")


def _show(notice: ShowRequested, known: dict[str, SourceRow]) -> wire_records.Show:
    row = known.get(notice.source)
    platform, _, path = notice.product.partition("/")
    place = "" if row is None else from_text(f"{row.root}/{row.source}").decode("utf-8", "replace")
    return wire_records.Show(notice.source, place, uuid_text(row.uuid) if row is not None else "", path, platform)

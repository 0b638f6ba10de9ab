"""The process that serves O3DE's programs and forwards the engine's notices to them; `connection_supervisor` starts it.

A client first gets bulk messages with all products of its platforms. Notices that arrive before the last bulk message are sent
after it (`O3deSession.backlog`).

Tests: `tests/features/o3de/connection/test_connection_process.py`, `tests/features/o3de/connection/test_asset_notifications.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from aptui.core.notices import JobChanged, ProductsChanged, Progress, ShowRequested, SourcesChanged
from aptui.features.o3de.connection.connection_settings import ConnectionSettings
from aptui.features.o3de.connection.o3de_answers import ClientAnswers
from aptui.features.o3de.connection.o3de_messages import CHANGE, CHANGES, NO_ASSET, NO_UUID, SHOW, SOURCE, O3deMessage, encode
from aptui.features.o3de.connection.o3de_server import O3deServer, O3deSession
from aptui.link.codec import NoticeLine
from aptui.link.engine_link import EngineLink, NewsPulse
from aptui.shared.errors import KnownError
from aptui.shared.forms import prepare_form
from aptui.store.queries.reader import Reader, SourceRow
from aptui.store.queries.serving import Database, Served, asset_ids, catalog_page, sources_at

_CHANGED, _REMOVED, _STARTED, _COMPLETED, _FAILED, _COUNT = 0, 1, 4, 5, 6, 7
"""Numbers of the types of notifications about assets and jobs."""
_SOURCE_CHANGED, _SOURCE_REMOVED, _SOURCE_FAILED = range(3)
_PAGE = 1_000
"""Maximum number of products in each message of the list of all products."""
_MOST = 50_000
"""Maximum number of queued notices. Above this limit, all are dropped, and each client gets the list of all products again."""
_REMEMBERED = 10_000
_EDITOR = "EDITOR"


class AssetNotifications:
    """Sends notifications to the sessions of a server.

    Args:
        database: supplies the asset ids, sizes, types and dependencies of products, which the engine's notices do not contain.
    """

    server: O3deServer

    def __init__(self, settings: ConnectionSettings, database: Database) -> None:
        self._settings, self._database = settings, database
        self._pending: list[NoticeLine] = []
        self._wake = asyncio.Event()
        self._ids: dict[str, tuple[bytes, int]] | None = None
        """{product: asset id}. Stored here, because the database has no asset ids of removed products. None = not read yet."""
        self._started: set[int] = set()
        self._changed: dict[str, str] = {}
        """{source: reason of its last reported change}. A change that starts several jobs of a source is reported only once."""
        self._count = -1

    def queue(self, batch: Sequence[NoticeLine]) -> None:
        """Queue notices of the engine."""
        if self.server.sessions:
            self._pending += batch
            if len(self._pending) > _MOST:
                self._start_again()
            self._wake.set()
        else:
            self._ids = None
            self._started.clear()

    def note_engine(self, is_here: bool) -> None:
        """Handle a new connection to the engine (`is_here`), or the loss of the connection.

        After a new connection, send all products to every client again, because clients may have missed notices of the engine.
        """
        if is_here:
            self._start_again()

    def _start_again(self) -> None:
        self._pending.clear()
        self._started.clear()
        self._ids, self._count = None, -1
        self.server.send_bulk_again()

    async def run(self) -> None:
        """Send notifications until the task is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            pending, self._pending = self._pending, []
            try:
                if pending:
                    await self._publish(pending)
            except KnownError:
                self._start_again()

    async def send_all(self, session: O3deSession) -> None:
        """Send all products of a client's platforms, and wait until the client has read them.

        Raises:
            KnownError: the asset database does not exist.
        """
        await self._read_ids()
        for platform in session.platforms:
            name = ""
            while platform in self._settings.platforms and not session.why_ended:
                rows = await self._database.ask(partial(catalog_page, platform=platform, after=name, limit=_PAGE))
                payload = await asyncio.to_thread(_encode_bulk, rows, platform)
                if rows or not name:
                    session.send_now(CHANGES, payload)
                    await session.wait_until_sent()
                if len(rows) < _PAGE:
                    break
                name = rows[-1].name

    async def _read_ids(self) -> None:
        if self._ids is None:
            rows = await self._database.ask(asset_ids)
            self._ids = {name: (uuid, sub_id) for name, uuid, sub_id in rows}

    async def _publish(self, pending: Sequence[NoticeLine]) -> None:
        await self._read_ids()
        changes = (news.notice.products for news in pending if isinstance(news.notice, ProductsChanged))
        digests = dict(chain.from_iterable(changes))
        moment = pending[-1].epoch, max(news.seq for news in pending)
        present = {name: digest for name, digest in digests.items() if digest}
        rows = await self._database.read_products(present, moment) if present else {}
        sources = await self._database.ask(lambda reader: _read_sources(reader, pending))
        for at, news in enumerate(pending):
            match news.notice:
                case ProductsChanged(products=products):
                    # a client must receive the start of a job before the changes of its products
                    for started in _list_jobs_of(pending, at):
                        self._send_start(started, sources)
                    for name, _digest in products:
                        self._send_product(name, digests, rows)
                case SourcesChanged(sources=changed):
                    for path, is_there in changed:
                        self._send_source(path, _SOURCE_CHANGED if is_there else _SOURCE_REMOVED, sources)
                case JobChanged() as job:
                    self._send_job(job, sources)
                case Progress() as progress:
                    self._send_count(progress.pending_count)
                case ShowRequested(source=path, on_screen=False):
                    if path in sources:
                        self._show(sources[path])

    def _send_product(self, name: str, digests: dict[str, str], rows: dict[str, Served]) -> None:
        digest = digests.pop(name, None)  # each product is reported once, with its last change
        platform, _, path = name.partition("/")
        if digest is None or platform not in self._settings.platforms or self._ids is None:
            return
        row = rows.get(name)
        if row is not None:
            self._ids[name] = (row.uuid, row.sub_id)
            self._send(_change(row, platform), platform)
        elif not digest and name in self._ids:
            uuid, sub_id = self._ids.pop(name)
            self._send((path, _REMOVED, 0, (uuid, sub_id & 0xFFFF_FFFF), NO_UUID, (), platform), platform)

    def _send_start(self, notice: JobChanged, sources: dict[str, SourceRow]) -> None:
        """Report the change of a job's source and the start of the job, unless they were reported already."""
        if notice.is_of_its_source and self._changed.get(notice.source) != notice.reason:
            if len(self._changed) >= _REMEMBERED:
                self._changed.clear()
            self._changed[notice.source] = notice.reason
            self._send_source(notice.source, _SOURCE_CHANGED, sources)
        if notice.job_id and (notice.status == "processing" or _has_ended(notice)) and notice.job_id not in self._started:
            self._started.add(notice.job_id)
            self._send_job_state(notice, _STARTED)

    def _send_job(self, notice: JobChanged, sources: dict[str, SourceRow]) -> None:
        self._send_start(notice, sources)
        if notice.job_id and _has_ended(notice):
            self._send_job_state(notice, _FAILED if notice.status == "failed" else _COMPLETED)
        if notice.status == "failed":
            self._send_source(notice.source, _SOURCE_FAILED, sources)
        if notice.status != "processing":
            self._started.discard(notice.job_id)

    def _send_job_state(self, notice: JobChanged, state: int) -> None:
        self._send((notice.source, state, 0, NO_ASSET, NO_UUID, (), notice.platform), notice.platform)

    def _send_count(self, count: int) -> None:
        """Send the number of pending jobs; every platform gets the total of all platforms."""
        if count != self._count:
            self._count = count
            for platform in self._settings.platforms:
                self._send((str(count), _COUNT, 0, NO_ASSET, NO_UUID, (), platform), platform)

    def _send_source(self, path: str, kind: int, sources: dict[str, SourceRow]) -> None:
        row = sources.get(path)
        values = {
            "RelativeSourcePath": path,
            "ScanFolder": row.root if row is not None else "",
            "NotificationType": kind,
            "SourceUUID": row.uuid if row is not None else NO_UUID,
        }
        self.server.broadcast(SOURCE, encode(O3deMessage(SOURCE, values)))

    def _show(self, row: SourceRow) -> None:
        self.server.broadcast(SHOW, encode(O3deMessage(SHOW, {"FilePath": f"{row.root}/{row.source}"})), only=_EDITOR)

    def _send(self, change: tuple[Any, ...], platform: str) -> None:
        values = dict(zip((name for name, _kind in CHANGE.fields), change, strict=True))
        self.server.broadcast(CHANGE, encode(O3deMessage(CHANGE, values)), platform)


def _has_ended(notice: JobChanged) -> bool:
    return notice.status == "failed" or (notice.status == "completed" and bool(notice.run_key))


def _list_jobs_of(pending: Sequence[NoticeLine], at: int) -> list[JobChanged]:
    """Return the job notices that belong to `pending[at]`, a notice of changed products. These jobs changed the products.

    The job notices directly follow `pending[at]`, and all of them have the same `cause` as `pending[at]`.
    """
    found: list[JobChanged] = []
    for number in range(at + 1, len(pending)):
        notice = pending[number].notice
        if not isinstance(notice, JobChanged) or notice.cause != pending[at].notice.cause:
            break
        found.append(notice)
    return found


def _read_sources(reader: Reader, pending: Iterable[NoticeLine]) -> dict[str, SourceRow]:
    paths: set[str] = set()
    for news in pending:
        match news.notice:
            case SourcesChanged(sources=changed):
                paths.update(path for path, is_there in changed if is_there)
            case JobChanged(source=path) | ShowRequested(source=path, on_screen=False):
                paths.add(path)
    return sources_at(reader, paths)


def _change(row: Served, platform: str) -> tuple[Any, ...]:
    """Return the values of a notification about a product (`o3de_messages.CHANGE`)."""
    needs = tuple(((uuid, sub_id & 0xFFFF_FFFF), flags & 0xFFFF_FFFF_FFFF_FFFF) for uuid, sub_id, flags in row.needs)
    path, asset = row.name.partition("/")[2], (row.uuid, row.sub_id & 0xFFFF_FFFF)
    return path, _CHANGED, max(row.size, 0), asset, row.asset_type or NO_UUID, needs, platform


def _encode_bulk(rows: Sequence[Served], platform: str) -> bytes:
    return encode(O3deMessage(CHANGES, {"Type": _CHANGED, "Messages": [_change(row, platform) for row in rows]}))


_ENGINE_LIMIT_S = 5.0
"""Maximum wait for the engine before clients are served (seconds).

Without a connection to the engine, clients would miss its notices.
"""


# ------------------------------------------------------------------------------------------------------------- the process


class ConnectionService:
    """The server for O3DE's clients in one event loop; call `open` first, and `close` at the end."""

    def __init__(self, settings: ConnectionSettings, report: Callable[[str], object]) -> None:
        self._database = Database(Path(settings.database))
        self._pulse = NewsPulse()
        self._notifications = AssetNotifications(settings, self._database)
        self._engine = EngineLink(Path(settings.cache_dir), self._notifications.queue, self._notifications.note_engine, name="o3de")
        self._engine.listeners.append(lambda _batch: self._pulse.wake_all())
        self._engine.change_callbacks.append(lambda _is_here: self._pulse.wake_all())
        answers = partial(ClientAnswers, settings, self._database, self._engine, self._pulse)
        self.server = O3deServer(settings, answers, self._notifications.send_all, report)
        self._notifications.server = self.server
        self._task: asyncio.Task[None] | None = None

    async def open(self, listening: socket.socket) -> None:
        """Serve clients of a listening socket, and connect to the engine."""
        self._task = asyncio.get_running_loop().create_task(self._notifications.run())
        is_met = asyncio.Event()
        self._engine.change_callbacks.append(lambda _is_here: is_met.set())
        self._engine.start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_met.wait(), _ENGINE_LIMIT_S)
        await self.server.start(listening)

    async def run(self) -> None:
        """Run until the task of the notifications ends, which happens only after an internal error."""
        assert self._task is not None
        await self._task

    async def close(self) -> None:
        """End all connections."""
        await self.server.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._engine.close)
        await asyncio.to_thread(self._database.close)


async def _serve(settings: ConnectionSettings, listening: socket.socket) -> None:
    service = ConnectionService(settings, lambda text: print(text, flush=True))
    over = asyncio.Event()

    def wait_for_end() -> None:
        sys.stdin.read()  # blocks until the engine ends, because the end of the engine closes this pipe
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    threading.Thread(target=wait_for_end, name="standard input", daemon=True).start()
    await service.open(listening)
    running = asyncio.get_running_loop().create_task(service.run())
    ending = asyncio.get_running_loop().create_task(over.wait())
    try:
        await asyncio.wait((ending, running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        running.cancel()
        await service.close()


def main() -> None:
    """Serve clients of the listening socket with the descriptor in the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = msgspec.convert(json.loads(sys.stdin.readline()), prepare_form(ConnectionSettings))
    asyncio.run(_serve(settings, socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()

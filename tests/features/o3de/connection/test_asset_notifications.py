"""Notifications for O3DE's programs, with a database and a server in memory; `test_connection_process` has the whole process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aptui.core.model import RelPath
from aptui.core.notices import JobChanged, Notice, ProductsChanged, Progress
from aptui.features.o3de.connection.connection_process import AssetNotifications
from aptui.features.o3de.connection.connection_settings import ConnectionSettings
from aptui.features.o3de.connection.o3de_messages import CHANGE, Shape, decode
from aptui.link.codec import NoticeLine
from aptui.store.queries.serving import Served, asset_ids

CHANGED, REMOVED, STARTED, COMPLETED, FAILED, COUNT = 0, 1, 4, 5, 6, 7
SETTINGS = ConnectionSettings("Game", "", ("linux", "server"), "/cache", "/cache/db", "/user", "/log")


class _Database:
    """A database with the products in `rows` ({name: product}), and without sources."""

    def __init__(self) -> None:
        self.rows: dict[str, Served] = {}

    def add(self, name: str) -> None:
        self.rows[name] = Served(1, b"u" * 16, len(self.rows) + 1, name, b"t" * 16, 5, b"\xab", 1, 1, ((b"n" * 16, 2, 3),))

    async def ask(self, question: Any) -> Any:
        return [(row.name, row.uuid, row.sub_id) for row in self.rows.values()] if question is asset_ids else {}

    async def read_products(self, digests: dict[str, str], _moment: tuple[int, int]) -> dict[str, Served]:
        return {name: self.rows[name] for name in digests if name in self.rows}


class _Server:
    """A server with or without a client; collects what it would send: (platform, values of the notification)."""

    def __init__(self) -> None:
        self.sessions: set[object] = {object()}
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.bulk_count = 0

    def broadcast(self, shape: Shape, payload: bytes, platform: str = "", only: str = "") -> None:
        assert not only
        if shape is CHANGE:
            self.sent.append((platform, decode(CHANGE, payload).values))

    def send_bulk_again(self) -> None:
        self.bulk_count += 1

    def list_sent(self) -> list[tuple[int, str, str]]:
        """Return (type, data, platform) of each sent notification, and forget it."""
        sent, self.sent = self.sent, []
        return [(values["NotificationType"], values["StringData"], platform) for platform, values in sent]


async def run(database: _Database, server: _Server, batches: Sequence[Any]) -> None:
    """Pass batches of notices to `AssetNotifications`. If an item of `batches` is a function, call it instead."""
    notifications: Any = AssetNotifications(SETTINGS, database)  # type: ignore[arg-type]
    notifications.server = server
    task = asyncio.get_running_loop().create_task(notifications.run())
    seq = 0
    for batch in batches:
        if callable(batch):
            batch(notifications)
            continue
        lines = [NoticeLine(1, seq := seq + 1, notice) for notice in batch]
        notifications.queue(lines)
        for _ in range(20):
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def products(*names: str, digest: str = "ab") -> ProductsChanged:
    return ProductsChanged(1, tuple((name, digest) for name in names))


def job(status: str, *, run_key: int = 7, platform: str = "linux") -> JobChanged:
    return JobChanged(
        1,
        3,
        RelPath("a.txt"),
        1,
        platform,
        "key",
        "builder",
        status,
        "",
        "",
        0,
        0,
        0,
        "",
        run_key,  # type: ignore[arg-type]
    )


def count(waiting: int) -> Progress:
    return Progress(1, 0, 0, 0, waiting, 0, 0, 0, False)


def list_sent(*batches: Any, database: _Database | None = None) -> list[tuple[int, str, str]]:
    server = _Server()
    asyncio.run(run(database or _Database(), server, batches))
    return server.list_sent()


def test_notifications_keep_the_order_of_notices_and_report_only_last_changes() -> None:
    database = _Database()
    database.add("linux/a.txt")
    database.add("server/a.txt")
    notices: list[Notice] = [
        job("processing"), products("linux/gone.txt"), products("linux/a.txt", "server/a.txt"), job("completed"),
        products("linux/a.txt"), products("linux/gone.txt", digest=""), products("common/a.txt", "linux.catalog.jsonl"),
    ]  # fmt: skip

    assert list_sent(notices, database=database) == [
        (STARTED, "a.txt", "linux"), (CHANGED, "a.txt", "linux"), (CHANGED, "a.txt", "server"), (COMPLETED, "a.txt", "linux"),
    ]  # fmt: skip


def test_client_receives_the_start_of_a_short_job_before_its_products() -> None:
    """The engine reports a short job only when the job has ended, and therefore after the products of the job."""
    database = _Database()
    database.add("linux/a.txt")

    assert list_sent([products("linux/a.txt"), job("completed")], database=database) == [
        (STARTED, "a.txt", "linux"), (CHANGED, "a.txt", "linux"), (COMPLETED, "a.txt", "linux"),
    ]  # fmt: skip


def test_change_notification_has_size_type_and_dependencies() -> None:
    database, server = _Database(), _Server()
    database.add("linux/a.txt")
    asyncio.run(run(database, server, [[products("linux/a.txt")]]))

    ((platform, values),) = server.sent
    assert (platform, values["platform"], values["size"], values["assetType"]) == ("linux", "linux", 5, b"t" * 16)
    assert (values["assetId"], values["dependencies"]) == ((b"u" * 16, 1), (((b"n" * 16, 2), 3),))


def test_client_receives_each_job_state_only_once() -> None:
    assert list_sent([job("pending"), job("processing"), job("processing"), job("failed"), job("completed", run_key=0)]) == [
        (STARTED, "a.txt", "linux"), (FAILED, "a.txt", "linux"),
    ]  # fmt: skip
    assert list_sent([job("completed")], [job("processing")]) == [
        (STARTED, "a.txt", "linux"), (COMPLETED, "a.txt", "linux"), (STARTED, "a.txt", "linux"),
    ]  # fmt: skip
    assert list_sent([count(3), count(3), count(2)]) == [
        (COUNT, str(number), platform) for number in (3, 2) for platform in ("linux", "server")
    ]


def test_start_of_a_job_is_reported_although_its_last_run_ended_without_a_client() -> None:
    server = _Server()
    leave, connect = lambda _each: server.sessions.clear(), lambda _each: server.sessions.add(object())

    asyncio.run(run(_Database(), server, [[job("processing")], leave, [job("completed")], connect, [job("processing")]]))

    assert server.list_sent() == [(STARTED, "a.txt", "linux")] * 2


def test_removal_of_an_asset_is_reported_only_if_the_asset_existed() -> None:
    """The engine's notices are dropped while no client is connected.

    If an asset is made in this time and removed later, its removal must be reported, too.
    """
    database, server = _Database(), _Server()
    database.add("linux/a.txt")
    database.add("linux/b.txt")
    gone = database.rows.pop("linux/b.txt")

    def leave(_notifications: Any) -> None:
        server.sessions.clear()
        database.rows["linux/b.txt"] = gone

    def come(_notifications: Any) -> None:
        server.sessions.add(object())

    asyncio.run(
        run(
            database,
            server,
            [
                [products("linux/a.txt", "linux/unknown.txt", digest="")],
                leave,
                [products("linux/b.txt")],
                come,
                [count(1)],
                lambda _notifications: database.rows.clear(),
                [products("linux/b.txt", digest="")],
            ],
        )
    )

    assert [each for each in server.list_sent() if each[0] == REMOVED] == [(REMOVED, "a.txt", "linux"), (REMOVED, "b.txt", "linux")]


def test_all_products_are_sent_again_if_notices_may_be_missing() -> None:
    database, server = _Database(), _Server()
    database.add("linux/a.txt")
    flood = [products("linux/a.txt")] * 50_001
    asyncio.run(
        run(
            database,
            server,
            [lambda each: each.note_engine(False), lambda each: each.note_engine(True), flood, [products("linux/a.txt")]],
        )
    )

    assert server.bulk_count == 2
    assert server.list_sent() == [(CHANGED, "a.txt", "linux")]

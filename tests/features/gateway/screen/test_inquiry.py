"""Queries of the Connections screen to the engine, and its list of watched folders."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from msgspec import to_builtins

from aptui.core.notices import Progress
from aptui.core.project import Platform, Project, ScanFolder
from aptui.features.gateway.screen import screen
from aptui.features.gateway.screen.connection_rows import CLIENTS, ROOTS, client_row, drop_empty_columns, root_rows
from aptui.features.gateway.screen.screen import EngineInquiry
from aptui.shared.health import Connection, Health, WatchedRoot, WatchMode, WorkerInfo
from aptui.tui.data.feed import Batch
from aptui.tui.data.session import SessionState

CLIENT = Connection(2, "cli", "bench", 77, 1_790_000_000_000, False, 0)
IDLE = Progress(0, 12, 0, 0, 0, 0, 8, 0, False)
BUSY = Progress(0, 12, 0, 0, 3, 2, 8, 0, False)


class Harness:
    """A shell with a simulated engine and a stopped clock."""

    def __init__(self, monkeypatch) -> None:
        self.now_s, self.timers, self.asked, self.woken = 100.0, [], [], 0
        self.session = SimpleNamespace(
            connections=(), latest_progress=None, state=SessionState.ATTACHED, is_read_only=False, ask=self.take
        )
        monkeypatch.setattr(screen, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.inquiry = EngineInquiry(self, lambda wait_s, do: self.timers.append((wait_s, do)))

    def take(self, _verb) -> Future:
        self.asked.append(Future())
        return self.asked[-1]

    def in_ui(self, do, *arguments) -> None:
        do(*arguments)

    def wake(self) -> None:
        self.woken += 1

    def answer(self, state: str = "idle") -> None:
        worker = to_builtins(WorkerInfo(1, 101, state, "", 12_000, 68_000_000, 40))
        status = {"pid": 4711, "state": "idle", "connections": [to_builtins(CLIENT)], "workers": [worker]}
        self.asked[-1].set_result(status)


@pytest.fixture
def harness(monkeypatch):
    return Harness(monkeypatch)


def test_idle_engine_is_queried_once(harness):
    harness.inquiry.show(is_visible=True)
    harness.inquiry.ask_if_due()
    harness.answer()
    harness.inquiry.ask_if_due()

    assert len(harness.asked) == 1
    assert (harness.inquiry.status.pid, harness.inquiry.connections, harness.inquiry.status.workers[0].number) == (
        4711,
        (CLIENT,),
        1,
    )
    assert not harness.timers


def test_busy_engine_is_queried_every_second(harness):
    harness.inquiry.show(is_visible=True)
    harness.inquiry.ask_if_due()
    harness.answer("working")

    ((wait_s, due),) = harness.timers
    assert wait_s == screen.ASK_S
    harness.now_s += wait_s
    due()
    harness.inquiry.ask_if_due()
    assert len(harness.asked) == 2


def test_notices_within_one_second_cause_only_one_query(harness):
    harness.inquiry.show(is_visible=True)
    harness.inquiry.ask_if_due()
    harness.answer()
    harness.now_s += 0.3
    harness.inquiry.note(Batch(progress=BUSY))
    harness.inquiry.ask_if_due()

    assert len(harness.asked) == 1
    assert harness.inquiry.is_armed
    assert harness.timers[0][0] == pytest.approx(0.7)


def test_hidden_page_sends_no_queries(harness):
    harness.inquiry.show(is_visible=True)
    harness.inquiry.ask_if_due()
    harness.answer("working")
    harness.inquiry.show(is_visible=False)
    before = harness.woken
    harness.timers[0][1]()

    assert harness.woken == before
    assert not harness.inquiry.is_armed


def test_refused_query_keeps_the_last_state_on_the_connections_screen(harness):
    harness.inquiry.show(is_visible=True)
    harness.inquiry.ask_if_due()
    harness.answer()
    harness.inquiry.force()
    harness.inquiry.ask_if_due()
    harness.asked[-1].set_exception(RuntimeError("the engine is busy"))

    assert harness.inquiry.connections == (CLIENT,)


def test_screen_without_an_engine_sends_no_query(harness):
    harness.inquiry.note(Batch(connections=(CLIENT,), progress=IDLE))
    harness.session.state = SessionState.REATTACHING
    harness.inquiry.ask_if_due()

    assert not harness.asked
    assert (harness.inquiry.connections, harness.inquiry.status.workers, harness.inquiry.status.pid) == ((), (), 0)


def test_read_only_screen_sends_no_queries(harness):
    harness.session.is_read_only = True
    harness.inquiry.note(Batch(connections=(CLIENT,)))
    harness.inquiry.ask_if_due()

    assert not harness.asked
    assert harness.inquiry.connections == (CLIENT,)


BOTH = ("linux", "server")
HEALTH = Health(
    roots=(
        WatchedRoot("/game", WatchMode.NATIVE, "", 9), WatchedRoot("/art", WatchMode.POLLING, "no notifications on nfs"),
        WatchedRoot("/cache/linux", WatchMode.NATIVE, "", 4), WatchedRoot("/game/conf", WatchMode.GONE),
    )
)  # fmt: skip


def project(*folders: ScanFolder) -> Project:
    return Project((Platform("linux"), Platform("server")), "linux", folders, ())


def rows_of(health: Health | None, project: Project | None) -> list[tuple[str, ...]]:
    names = ("mode", "order", "name", "path", "watches", "detail")
    return [tuple(row.cells[name].text for name in names) for row in root_rows(health, project, "/cache")]


def test_scan_folders_are_listed_by_priority_before_other_folders() -> None:
    art = ScanFolder(2, "art", "/art", -5, platforms=BOTH)
    game = ScanFolder(1, "game", "/game", 10, platforms=BOTH)

    assert rows_of(HEALTH, project(art, game)) == [
        ("! polling", "-5", "art", "/art", "", "no notifications on nfs"),
        ("✓ native", "10", "game", "/game", "9", ""),
        ("✓ native", "", "(products)", "/cache/linux", "4", ""),
        ("✗ gone", "", "(configuration)", "/game/conf", "", ""),
    ]


def test_nested_scan_folder_is_shown_with_the_watch_mode_of_its_parent_folder() -> None:
    inner = ScanFolder(3, "inner", "/game/more/inner", 1, recursive=False, platforms=("linux",))

    row = rows_of(HEALTH, project(inner, ScanFolder(1, "game", "/game", 10, platforms=BOTH)))[0]

    assert row == ("✓ native", "1", "inner", "/game/more/inner", "", "without its subfolders; only for platforms linux")


@pytest.mark.parametrize("health", [None, Health()])
def test_watched_folders_are_not_listed_without_an_engine(health: Health | None) -> None:
    assert rows_of(health, project(ScanFolder(1, "game", "/game"))) == []


def test_all_watched_folders_are_listed_without_a_configuration() -> None:
    rows = root_rows(HEALTH)

    assert [row.cells["path"].text for row in rows] == ["/game", "/art", "/cache/linux", "/game/conf"]
    assert [column.id for column in drop_empty_columns(ROOTS, rows)] == ["mode", "path", "watches", "detail"]


@pytest.mark.parametrize(("waiting_bytes", "is_shown"), [(974, False), (1 << 20, True)])
def test_unread_bytes_of_a_client_are_shown_only_if_it_stopped_reading(waiting_bytes, is_shown) -> None:
    row = client_row(Connection(1, "cli", "bench", 77, 1_790_000_000_000, True, waiting_bytes))

    assert ("unread" in [column.id for column in drop_empty_columns(CLIENTS, [row])]) is is_shown

"""The Connections screen shows clients and workers, and can disconnect clients and restart workers."""

from __future__ import annotations

import os
from concurrent.futures import Future
from contextlib import asynccontextmanager

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from tui.fake_panes import FAKE_JOBS, FakeSession
from tui.shell_harness import LARGE, lines, shell, text, until
from tui.widget_zoo import PAYLOADS

from aptui.core.notices import ConnectionsChanged, EngineMessage, HealthChanged, LogLevel, Progress
from aptui.features.gateway.engine_requests import OrderPeers
from aptui.features.gateway.peers import peer_settings
from aptui.features.gateway.screen import screen
from aptui.features.gateway.screen.connection_rows import EngineStatus, read_status, source_of
from aptui.link import places
from aptui.link.port import Disconnect, ReadStatus, RestartWorker
from aptui.shared.connections.peers import Dial, GatewayReport, Peer, PeerAction, PeerOrder, PeerSettings, PeerState, TurnedAway
from aptui.shared.health import Connection, Health, WatchedRoot, WatchMode, WorkerInfo
from aptui.tui.data.session import NoSession, SessionState
from aptui.tui.pane import list_panes

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_homes")]

IDLE = Progress(0, 12, 0, 0, 0, 0, 8, 0, False)
BUSY = Progress(0, 12, 0, 0, 3, 2, 8, 0, False)
CLIENTS = (
    Connection(1, "tui", "", os.getpid(), 1_790_000_000_000, True, 0),
    Connection(2, "cli", "bench", 77, 1_790_000_000_000, False, 1 << 20),
)
ROOTS = (
    WatchedRoot("/game/assets", WatchMode.NATIVE, "", 1234), WatchedRoot("/net/art", WatchMode.POLLING, "no notifications on nfs"),
    WatchedRoot("/gone", WatchMode.GONE, "the folder is gone"),
)  # fmt: skip


def worker(number: int, state: str = "idle", job: str = "") -> WorkerInfo:
    return WorkerInfo(number, 100 + number, state, job, 12_000, 68_000_000, 40)


AT_WORK = worker(2, "working", "images: textures/rock.png (linux, image)")


HERE = [
    FAKE_JOBS,
    next(spec for spec in list_panes() if spec.id == "connections"),
]


class Engine(FakeSession):
    """An engine with a configured status."""

    def __init__(self, cache_dir, workers=(worker(1), worker(2)), clients=CLIENTS) -> None:
        super().__init__(cache_dir)
        self.workers, self.connections, self.health = workers, clients, Health(roots=ROOTS)
        self.latest_health, self.latest_progress = self.health, IDLE

    def ask(self, verb) -> Future:
        if self.refusal or not isinstance(verb, ReadStatus):
            return super().ask(verb)
        self.asked.append(verb)
        answer: Future = Future()
        answer.set_result(
            {
                "pid": 4711, "uptime_s": 3725.0, "rss_bytes": 36_500_000, "state": "idle", "more": 1,
                "connections": [to_builtins(each) for each in self.connections],
                "workers": [to_builtins(each) for each in self.workers],
            }
        )  # fmt: skip
        return answer

    @property
    def requests(self) -> list:
        """Requests of the user."""
        return [verb for verb in self.asked if not isinstance(verb, ReadStatus)]

    @property
    def ask_count(self) -> int:
        return sum(isinstance(verb, ReadStatus) for verb in self.asked)


@pytest.fixture(autouse=True)
def _quick_screen(monkeypatch):
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 0.003)  # By default the pilot sleeps 40 ms after each key.
    monkeypatch.setattr("aptui.tui.drawing.FRAME_S", 0.01)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr(screen, "ASK_S", 0.15)


@asynccontextmanager
async def opened(tmp_path, engine, size):
    async with shell(tmp_path, size=size, session=engine, panes=HERE) as (app, pilot, session):
        app.copied = []
        app.copy_text = lambda words, **_: app.copied.append(words)
        await pilot.press("4")
        yield app, pilot, session, app.pane


@asynccontextmanager
async def visit(tmp_path, *, session=None, size=LARGE):
    async with opened(tmp_path, session or Engine(tmp_path / "cache"), size) as (app, pilot, engine, pane):
        await until(
            pilot,
            lambda: pane.engine.table("workers").cursor_key is not None or not getattr(engine, "workers", ()) or engine.refusal,
        )
        await pilot.pause()
        yield app, pilot, engine, pane


async def test_engine_page_shows_the_engine_clients_workers_and_folders(tmp_path):
    async with visit(tmp_path) as (app, pilot, _session, _pane):
        await until(pilot, lambda: "up 1h 02m" in text(app))
        shown = text(app)

        for part in (
            "pid 4711", "idle", "up 1h 02m", "35 MiB", "/run/engine.sock", "(this screen)", "bench", "1.0 MiB", "65 MiB",
            "✓ native", "! polling", "no notifications on nfs", "✗ gone", "1,234",
        ):  # fmt: skip
            assert part in shown


async def test_details_column_of_watched_folders_appears_only_with_details(tmp_path):
    session = Engine(tmp_path / "cache")
    async with visit(tmp_path, session=session) as (app, pilot, session, _pane):
        await until(pilot, lambda: "no notifications on nfs" in text(app))
        assert "Detail" in text(app)
        session.latest_health = Health(roots=(WatchedRoot("/game", WatchMode.NATIVE, watches=7),))
        session.say(HealthChanged(0, session.latest_health))
        await until(pilot, lambda: "Detail" not in text(app))
        assert "Watches" in text(app)


async def test_loss_and_recovery_of_the_cluster_connection_are_shown(tmp_path):
    async with visit(tmp_path) as (app, pilot, session, _pane):
        session.workers = (replace(worker(1000, "lost", "cluster offline"), pid=0),)
        session.say(EngineMessage(1, 2, "the scheduler no longer answers"))
        await until(pilot, lambda: "✗ lost" in text(app))
        session.workers = (worker(1000, "idle", "cluster of 2"), worker(1001, "unfit", "2 slots on box"))
        await until(pilot, lambda: "cluster of 2" in text(app))
        assert "! unfit" in text(app)


async def test_busy_engine_is_queried_repeatedly_while_visible(tmp_path):
    async with visit(tmp_path) as (app, pilot, session, pane):
        session.workers = (worker(1), AT_WORK)
        session.say(BUSY)
        await until(pilot, lambda: session.ask_count >= 4)
        await until(pilot, lambda: "textures/rock.png" in text(app))
        await until(pilot, lambda: "▶ working" in text(app))
        await pilot.press("1")
        await until(pilot, lambda: not pane.engine.inquiry.is_armed)
        count = session.ask_count
        session.say(BUSY, 2)
        await pilot.pause(0.4)
        assert session.ask_count == count
        session.workers = (worker(1), worker(2))
        await pilot.press("4")
        session.say(IDLE, 3)
        await until(pilot, lambda: "▶ working" not in text(app))
        await until(pilot, lambda: not pane.engine.inquiry.is_armed)


async def test_new_client_is_shown_at_once(tmp_path):
    async with visit(tmp_path) as (app, pilot, session, _pane):
        session.connections = (*CLIENTS, Connection(3, "batch", "nightly", 99, 0, True, 0))
        session.say(ConnectionsChanged(0, session.connections))
        await until(pilot, lambda: "nightly" in text(app))


async def test_selected_client_is_disconnected_after_confirmation(tmp_path):
    async with visit(tmp_path) as (app, pilot, session, pane):
        assert pane.engine.table("clients").has_focus
        await pilot.press("j", "c")
        await until(pilot, lambda: "disconnect cli 2, bench?" in text(app))
        await pilot.press("n")
        assert session.requests == []
        await pilot.press("c", "y")
        await until(pilot, lambda: session.requests == [Disconnect(2)])
        await until(pilot, lambda: "client 2 is disconnected" in text(app))


async def test_only_a_busy_worker_needs_confirmation_before_its_restart(tmp_path):
    async with visit(tmp_path, session=Engine(tmp_path / "cache", (worker(1), AT_WORK))) as (app, pilot, session, _pane):
        await pilot.press("tab", "r")
        await until(pilot, lambda: session.requests == [RestartWorker(1)])
        await pilot.press("j", "r")
        question = "worker 2 runs images: textures/rock.png (linux, image): restart the worker when the job has ended?"
        await until(pilot, lambda: question in text(app))
        await pilot.press("y")
        await until(pilot, lambda: session.requests == [RestartWorker(1), RestartWorker(2)])
        await until(pilot, lambda: "worker 2 restarts when its job has ended" in text(app))


async def test_second_restart_ends_a_busy_worker_at_once_after_confirmation(tmp_path):
    ending = Engine(tmp_path / "cache", (replace(AT_WORK, state="ending"),))
    async with visit(tmp_path, session=ending) as (app, pilot, session, _pane):
        await pilot.press("tab", "r")
        await until(
            pilot,
            lambda: (
                "ends when images: textures/rock.png (linux, image) has ended: end the worker now? Then the job runs again"
                in text(app)
            ),
        )
        await pilot.press("y")
        await until(pilot, lambda: "worker 2 is ended; its job runs again" in text(app))
        assert session.requests == [RestartWorker(2)]


async def test_keys_of_the_engine_page_act_only_in_their_own_table(tmp_path):
    async with visit(tmp_path) as (app, pilot, session, _pane):
        await pilot.press("r", "tab", "c", "tab", "c", "r")
        assert session.requests == []
        await until(pilot, lambda: "disconnect cli" not in text(app))


async def test_enter_key_on_a_worker_shows_the_job_of_the_worker(tmp_path):
    async with visit(tmp_path, session=Engine(tmp_path / "cache", (worker(1), AT_WORK))) as (app, pilot, _session, _pane):
        await pilot.press("tab", "enter")
        await until(pilot, lambda: app.pane.name_of_pane == "connections")
        await pilot.press("j", "enter")
        await until(pilot, lambda: app.pane.name_of_pane == "jobs" and app.pane.revealed == [r'source:"^textures/rock\.png$"'])


async def test_engine_page_executes_its_commands_and_keys(tmp_path):
    async with visit(tmp_path) as (app, pilot, session, pane):
        await pilot.press("j", "y")
        await until(pilot, lambda: app.copied[0].split("\t")[:4] == ["2", "cli", "bench", "77"])
        await pilot.press("full_stop", "c", "n", "z")
        await until(pilot, lambda: "Workers" not in text(app))
        await pilot.press("z")
        for name, rest in (("disconnect", "9"), ("restart-worker", "9"), ("restart-worker", "2"), ("disconnect", "2")):
            next(command for command in pane.commands() if command.name == name).run(rest)
        await until(pilot, lambda: "there is no client 9" in text(app) and "there is no worker 9" in text(app))
        await pilot.press("y")
        await until(pilot, lambda: session.requests == [RestartWorker(2), Disconnect(2)])
        await pilot.click("#connections-clients", offset=(4, 0))
        await pilot.click("#connections-clients", offset=(4, 0))
        await until(pilot, lambda: [row.key for row in pane.engine.lists["clients"].records] == [2, 1])
        await pilot.click("#connections-clients", offset=(8, 1), button=3)
        await pilot.press("escape", "i")
        await until(pilot, lambda: "2 clients, 2 workers" in text(app))


async def test_refusal_of_an_automatic_query_is_not_shown(tmp_path):
    session = Engine(tmp_path / "cache")
    session.refusal = "the engine is busy"
    async with visit(tmp_path, session=session) as (app, pilot, _session, _pane):
        await until(pilot, lambda: "the engine is busy" not in text(app))
        await pilot.press("ctrl+l", "c", "y")
        await until(pilot, lambda: "the engine is busy" in text(app))


async def test_engine_page_is_updated_when_the_engine_dies_and_restarts(tmp_path):
    async with visit(tmp_path) as (app, pilot, session, _pane):
        session.turn(SessionState.REATTACHING, "the connection to the engine has ended")
        await until(pilot, lambda: "no engine" in text(app) and "type ':start' to start an engine" in text(app))
        await until(pilot, lambda: "Workers" not in text(app))
        session.turn(SessionState.ATTACHED)
        await until(pilot, lambda: "bench" in text(app))


async def test_engine_problems_that_need_the_user_are_shown(tmp_path):
    async with visit(tmp_path) as (app, pilot, session, _pane):
        session.latest_health = Health(
            pool="no room for a worker", broken_builders=(("images", "died 3 times"),), holds=(".git/index.lock",)
        )
        session.say(HealthChanged(0, session.latest_health))
        await until(pilot, lambda: "no room for a worker" in text(app))
        await until(pilot, lambda: "Builder images  died 3 times" in text(app))
        await until(pilot, lambda: "no folder is watched" in text(app))


async def test_engine_page_reports_that_no_engine_is_running(tmp_path):
    session = NoSession("copied", tmp_path)
    session.done, session.refusal = ["open"], None
    async with visit(tmp_path, session=session) as (app, pilot, _session, _pane):
        await until(pilot, lambda: "no engine: the screen shows a database only" in text(app))
        await until(pilot, lambda: str(tmp_path) in text(app))
        await pilot.press("c", "r", "y", "z", "full_stop", "escape")


async def test_screen_in_read_only_mode_shows_notices(tmp_path):
    session = Engine(tmp_path / "cache")
    session.is_read_only = True
    session.workers = ()
    async with visit(tmp_path, session=session) as (app, pilot, session, _pane):
        await until(pilot, lambda: "a read-only screen does not query" in text(app))
        await until(pilot, lambda: "bench" in text(app))
        assert session.asked == []


@pytest.mark.parametrize("size", [(80, 24), (1, 1)])
async def test_engine_page_draws_control_characters_safely_at_every_screen_size(tmp_path, size):
    clients = tuple(Connection(at, words, words, at, 0, True, 0) for at, words in enumerate(PAYLOADS))
    session = Engine(tmp_path / "cache", tuple(worker(at, words, words) for at, words in enumerate(PAYLOADS)), clients)
    session.latest_health = Health(
        roots=tuple(WatchedRoot(words, WatchMode.LIMITED, words) for words in PAYLOADS), disk=PAYLOADS[3]
    )
    async with visit(tmp_path, session=session, size=size) as (app, pilot, _session, pane):
        await pilot.press("j", "c", "n", "tab", "z", "G")

        await until(pilot, lambda: pane.engine.table("workers").cursor == len(PAYLOADS) - 1)
        assert all(line.isprintable() for line in lines(app))


@pytest.mark.parametrize(
    ("job", "source"),
    [
        ("images: a/b (1).png (linux, image)", "a/b (1).png"), ("reading 3 files", ""), ("copying 1 file", ""), ("", ""),
        ("x: y.png (analysis)", "y.png"),
    ],
)  # fmt: skip
def test_source_path_is_extracted_from_the_text_of_a_worker(job, source):
    assert source_of(job) == source


def test_engine_answer_in_an_unknown_format_is_ignored():
    assert read_status({"workers": 3}) == read_status({"pid": "x"}) == EngineStatus()


# ------------------------------------------------------------------------------------------------------ the gateway's page

FAR = "198.51.100.7"
SETTINGS = PeerSettings(
    (Dial("phone", "192.168.1.20"), Dial("tablet", "tablet.local", 99, is_auto=False)), ("10.0.0.0/8",), ("10.9.0.1",)
)
PEERS = (
    Peer(0, "phone", True, PeerState.CONNECTING, "192.168.1.20", 22229, is_enabled=True, trouble="connection refused"),
    Peer(0, "tablet", True, PeerState.DISCONNECTED, "tablet.local", 99),
    Peer(
        7, "viewer", False, PeerState.CONNECTED, "10.0.0.5", 0, ("linux",), ("read", "escalate"), "artist", False,
        1_790_000_000_000,
        1_790_000_060_000, "asset_status", 1_234_567, 89_000,
    ),
)  # fmt: skip
REPORT = GatewayReport("127.0.0.1", 45650, SETTINGS, PEERS, (TurnedAway(FAR, f"{FAR} is not in the allowed list", 3, 1, 2),))


def with_gateway(tmp_path, report=REPORT) -> Engine:
    session = Engine(tmp_path / "cache")
    session.gateway = report
    return session


@asynccontextmanager
async def visit_gateway(tmp_path, *, session=None, size=LARGE):
    async with opened(tmp_path, session or with_gateway(tmp_path), size) as (app, pilot, engine, pane):
        if engine.gateway is None:
            await pilot.press("t")
        await until(pilot, lambda: pane.gateway.focused == "peers" and pane.gateway.lists["allowed"].row_count())
        await pilot.pause()
        yield app, pilot, engine, pane.gateway


def order(*given, **named) -> OrderPeers:
    return OrderPeers(PeerOrder(*given, **named))


async def test_engine_page_reports_missing_answer_instead_of_missing_workers(tmp_path):
    session = Engine(tmp_path / "cache", workers=())
    session.latest_progress, session.refusal = BUSY, "busy"
    async with visit(tmp_path, session=session) as (app, pilot, _session, _pane):
        await until(pilot, lambda: "the engine has not answered yet" in text(app))
        assert "workers start with the first job" not in text(app)


async def test_high_screen_shows_both_pages_and_zoom_shows_one(tmp_path):
    async with visit_gateway(tmp_path, size=(200, 60)) as (app, pilot, _session, page):
        for part in ("── Connections ──", "── Allowed ──", "── Clients ──", "── Workers ──", "Gateway▾"):
            await until(pilot, lambda part=part: part in text(app))
        await pilot.press("t")
        await until(pilot, lambda: "Engine▾" in text(app) and app.pane.engine.has_focus_within)
        page.table("peers").focus()
        await until(pilot, lambda: "Gateway▾" in text(app))
        await pilot.press("z")
        await until(pilot, lambda: "── Workers ──" not in text(app))
        await pilot.press("z")
        await until(pilot, lambda: "── Workers ──" in text(app))


@pytest.mark.parametrize("size", [LARGE, (80, 24)])
async def test_gateway_page_shows_connections_and_access_lists(tmp_path, size):
    async with visit_gateway(tmp_path, size=size) as (app, pilot, _session, _page):
        shown = text(app)
        for part in (
            "127.0.0.1:45650", "1 of 3 connected", "phone", "22229", "tablet", "[x]", "[ ]", "viewer", "10.0.0.5", "1.2 MiB",
            "87 KiB",
            "✓ connected", "– disconnected", "! connecting", "connection refused", "this machine", "10.0.0.0/8",
            "only these may connect",
            "10.9.0.1", FAR,
        ):  # fmt: skip
            assert part in shown
        await pilot.press("G")
        await until(
            pilot, lambda: "token  artist" in text(app) and "may  read, escalate" in text(app) and "platforms  linux" in text(app)
        )
        assert "In and Out  messages, without downloads" in text(app), "values that do not fit into the line are in the next line"
        assert "since " in text(app)


async def test_reason_for_an_unreachable_device_is_shown_in_full(tmp_path):
    why = "connect to 192.168.1.20 port 22229 failed: the certificate is not signed by the authority that serve.dial_ca names"
    report = replace(REPORT, peers=(replace(PEERS[0], trouble=why),))
    async with visit_gateway(tmp_path, session=with_gateway(tmp_path, report), size=(80, 24)) as (app, pilot, _session, _page):
        await until(pilot, lambda: why in " ".join(text(app).split()))


async def test_gateway_report_is_drawn_at_once_and_removed_when_the_gateway_ends(tmp_path):
    async with visit_gateway(tmp_path) as (app, pilot, session, _page):
        session.gateway = replace(REPORT, peers=PEERS[:1], trouble="the disk is full")
        session.say(ConnectionsChanged(0, CLIENTS, session.gateway))
        await until(pilot, lambda: "viewer" not in text(app) and "the disk is full" in text(app))
        session.gateway = None
        session.say(ConnectionsChanged(0, CLIENTS, None), 2)
        await until(
            pilot,
            lambda: "no gateway is running" in text(app) and "changes made here take effect when the gateway starts" in text(app),
        )


async def test_valid_connection_is_added(tmp_path):
    async with visit_gateway(tmp_path) as (app, pilot, session, _page):
        await pilot.press("a", *"phone", "tab", *"1.2.3", "enter")
        await until(pilot, lambda: "address: expected an address or a host name" in text(app))
        await pilot.press(*".4", "enter")
        await until(pilot, lambda: "there is already a connection 'phone'" in text(app))
        await pilot.press("2", "tab", "tab", *"x9", "enter")
        await until(pilot, lambda: "port: expected a number" in text(app))
        await pilot.press("backspace", "backspace", *"70", "tab", "backspace", "backspace", "backspace", *"maybe", "enter")
        await until(pilot, lambda: "auto: expected yes or no" in text(app))
        await pilot.press(*["backspace"] * 5, *"no", "enter")
        await until(pilot, lambda: session.requests == [order(PeerAction.ADD, dial=Dial("phone2", "1.2.3.4", 70, is_auto=False))])
        await until(pilot, lambda: "connection 'phone2' is added" in text(app))


async def test_connection_is_edited_enabled_disconnected_and_removed_by_keys(tmp_path):
    async with visit_gateway(tmp_path) as (app, pilot, session, page):
        await pilot.press("O", "tab", "tab", *["backspace"] * 5, *"81", "enter")
        await until(pilot, lambda: session.requests == [order(PeerAction.EDIT, "phone", Dial("phone", "192.168.1.20", 81))])
        await pilot.press("A", "c")
        assert session.requests[1:] == [order(PeerAction.DISABLE, "phone")]
        await pilot.press("j", "A", "enter", "escape", "D")
        await until(pilot, lambda: "remove the connection 'tablet'?" in text(app))
        await pilot.press("y")
        assert session.requests[2:] == [order(PeerAction.ENABLE, "tablet"), order(PeerAction.REMOVE, "tablet")]
        await pilot.press("j", "O", "A", "D", "c")
        await until(pilot, lambda: "disconnect viewer?" in text(app))
        await pilot.press("y")
        assert session.requests[4:] == [order(PeerAction.DISCONNECT, number=7)]
        await pilot.press("y")
        assert app.copied[0].split("\t")[1:3] == ["viewer", "10.0.0.5"]
        await until(pilot, lambda: page.focused == "peers")


async def test_access_list_entries_are_added_moved_and_removed_by_keys(tmp_path):
    async with visit_gateway(tmp_path) as (app, pilot, session, page):
        await pilot.press("tab", "m", "D", "a", *"10.0.0.0/99", "enter")
        await until(pilot, lambda: "is not a range of addresses" in text(app))
        await pilot.press("backspace", "backspace", *"8, tv.local", "enter")
        assert session.requests == [order(PeerAction.ALLOW, entry="10.0.0.0/8"), order(PeerAction.ALLOW, entry="tv.local")]
        await pilot.press("j", "m")
        assert session.requests[2:] == [order(PeerAction.REJECT, entry="10.0.0.0/8")]
        await pilot.press("tab", "j", "m")
        await until(pilot, lambda: page.focused == "rejected")
        assert session.requests[3:] == [order(PeerAction.ALLOW, entry=FAR)]
        await pilot.press("k", "D", "y")
        assert session.requests[4:] == [order(PeerAction.FORGET, entry="10.9.0.1")]
        await pilot.press("a", *"127.0.0.1", "enter")
        await until(pilot, lambda: "connections from this machine cannot be rejected" in text(app))
        await pilot.press("escape")


async def test_allowed_list_is_switched_off_after_confirmation(tmp_path):
    async with visit_gateway(tmp_path) as (app, pilot, session, _page):
        await pilot.press("L")
        await until(pilot, lambda: "Switch the allowed list off?" in text(app))
        await pilot.press("enter")
        assert session.requests == []
        await pilot.press("L", "y")
        assert session.requests == [order(PeerAction.LIST_OFF)]
        session.gateway = replace(REPORT, settings=replace(SETTINGS, has_allow_list=False))
        session.say(ConnectionsChanged(0, CLIENTS, session.gateway))
        await until(pilot, lambda: "off: all clients may connect" in text(app))
        await pilot.press("L")
        assert session.requests == [order(PeerAction.LIST_OFF), order(PeerAction.LIST_ON)]


async def test_gateway_page_executes_its_commands_and_keys(tmp_path):
    async with visit_gateway(tmp_path) as (app, pilot, session, page):
        for name, rest in (("allow", "a.local, b.local"), ("reject", "?"), ("forget", "10.9.0.1")):
            next(command for command in app.pane.commands() if command.name == name).run(rest)
        assert [each.order.entry for each in session.requests] == ["a.local", "b.local", "10.9.0.1"]
        await until(pilot, lambda: "'?' is neither a host name nor an address" in text(app))
        await pilot.press("z")
        await until(pilot, lambda: "Allowed" not in text(app))
        await pilot.press("z", "tab", "z")
        await until(pilot, lambda: "Status" not in text(app) and "Allowed" in text(app))
        await pilot.press("z", "full_stop", "escape")
        await pilot.click("#connections-peers", offset=(20, 0))
        await pilot.click("#connections-peers", offset=(20, 0))
        await until(pilot, lambda: [row.data.id for row in page.lists["peers"].records] == ["viewer", "tablet", "phone"])
        await pilot.press("t")
        await until(pilot, lambda: "Workers" in text(app) and app.pane.engine.table("clients").has_focus)
        await pilot.press("t", "i")
        await until(pilot, lambda: "gateway: 1 of 3 connected" in text(app))


async def test_changes_without_a_gateway_are_stored_in_the_connections_file(tmp_path):
    session = Engine(tmp_path / "cache")
    session.gateway = None
    file = tmp_path / "cache" / peer_settings.PLACE
    async with visit_gateway(tmp_path, session=session) as (app, pilot, session, page):
        await until(pilot, lambda: "no gateway is running; to start it, write 'serve: {enabled: true}'" in text(app))
        await pilot.press("a", *"phone", "tab", *"tv.local", "enter")
        await until(pilot, lambda: "tv.local" in text(app))
        await pilot.press("A", "tab", "a", *"10.0.0.1", "enter")
        await until(pilot, lambda: page.lists["allowed"].row_count() == 2)
        assert peer_settings.read_stored(file).settings == PeerSettings((Dial("phone", "tv.local", is_auto=False),), ("10.0.0.1",))
        assert session.requests == []
        file.write_text("{")
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "was damaged" in text(app))


async def test_gateway_page_shows_why_the_gateway_did_not_start(tmp_path):
    session = Engine(tmp_path / "cache")
    session.gateway = None
    async with visit_gateway(tmp_path, session=session) as (app, pilot, session, _page):
        await until(pilot, lambda: "no gateway is running; to start it, write 'serve: {enabled: true}'" in text(app))
        places.announce_gateway(session.cache_dir, places.GatewayRecord(0, 0, "", "127.0.0.1", 1, "", "aiohttp is not installed"))
        session.say(EngineMessage(0, LogLevel.ERROR, "there is no gateway: aiohttp is not installed"))
        await until(pilot, lambda: "no gateway is running: aiohttp is not installed" in text(app))
        session.turn(SessionState.REATTACHING)
        await until(pilot, lambda: "no gateway is running; to start it, write 'serve: {enabled: true}'" in text(app))


async def test_read_only_screen_cannot_change_lists(tmp_path):
    session = with_gateway(tmp_path)
    session.is_read_only = True
    async with visit_gateway(tmp_path, session=session) as (app, pilot, session, page):
        await pilot.press("a", "O", "A", "D", "L", "tab", "m")
        page.list_entry(PeerAction.ALLOW, "tv.local")
        await until(pilot, lambda: "the screen is read-only" in text(app))
        assert session.asked == []


@pytest.mark.parametrize("size", [(80, 24), (1, 1)])
async def test_hostile_names_of_peers_are_drawn_as_text(tmp_path, size):
    peers = tuple(
        Peer(at, words, False, PeerState.CONNECTED, words, 0, (words,), (), words, last_request=words)
        for at, words in enumerate(PAYLOADS, 1)
    )
    report = GatewayReport(PAYLOADS[0], 1, PeerSettings(), peers, (TurnedAway(PAYLOADS[1], PAYLOADS[2], 1, 1, 2),), PAYLOADS[3])
    async with visit_gateway(tmp_path, session=with_gateway(tmp_path, report), size=size) as (app, pilot, _session, page):
        await pilot.press("j", "c", "n", "full_stop", "escape", "G")
        await until(pilot, lambda: page.table("peers").cursor == len(PAYLOADS) - 1)
        assert all(line.isprintable() for line in lines(app))


async def test_rejected_address_is_reported_once_on_any_screen(tmp_path):
    def away(*addresses: str) -> ConnectionsChanged:
        latest = 1 << 50
        return ConnectionsChanged(
            0, (), replace(REPORT, turned_away=tuple(TurnedAway(each, f"{each} is rejected", 1, 1, latest) for each in addresses))
        )

    async with shell(tmp_path, size=LARGE, session=Engine(tmp_path / "cache"), panes=HERE) as (app, pilot, session):
        session.say(ConnectionsChanged(0, (), REPORT))
        session.say(away("10.0.0.1"))
        session.say(away("10.0.0.1"))
        await until(pilot, lambda: text(app).count("a connection was refused: 10.0.0.1 is rejected") == 1)
        assert FAR not in text(app), "connections refused before the start of the screen are not reported"
        session.say(away("10.0.0.1", *(f"10.0.0.{number}" for number in range(2, 12))))
        await until(pilot, lambda: "connections from 7 more addresses were refused" in text(app))

"""A session over the real socket: subscription, notices, requests, loss, reconnection, start; and a session without an engine."""

import importlib.util
import sys
import threading
from pathlib import Path

import pytest
from waiting import TIMEOUT_S, until

from aptui.core.notices import EngineMessage, Progress

# Imported before a test changes `PROTOCOL` of the port module, because the client must keep the original protocol number.
from aptui.link.engine_client import EngineClient
from aptui.link.port import PingEngine, RescanSources, StopEngine
from aptui.shared.errors import BusyError, HostError, KnownError
from aptui.tui.data import session as session_module
from aptui.tui.data.session import EnginePlaces, LinkSession, NoSession, SessionState, is_older

pytestmark = pytest.mark.real

BUSY = Progress(0, 1234, 100, 114, 3390, 12, 812, 3, False)


@pytest.fixture(scope="module")
def link_harness():
    """Return the module `tests/link/link_harness.py`, whose test engine answers over a real socket."""
    spec = importlib.util.spec_from_file_location("link_harness", Path(__file__).parents[2] / "link" / "link_harness.py")
    module = sys.modules.get("link_harness") or importlib.util.module_from_spec(spec)
    if "link_harness" not in sys.modules:
        spec.loader.exec_module(module)
    return module


class RecordingListener:
    """Records the calls of a session."""

    def __init__(self) -> None:
        self.calls, self.changed = [], threading.Condition()

    def _note(self, *what) -> None:
        with self.changed:
            self.calls.append(what)
            self.changed.notify_all()

    def note_subscription(self, epoch, seq, running) -> None:
        self._note("subscribed", epoch, seq, running)

    def receive(self, news) -> None:
        for line in news:
            self._note("notice", *line)

    def note_loss(self) -> None:
        self._note("lost")

    def wait_until(self, is_so) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: is_so(self.calls), TIMEOUT_S), self.calls


def opened(socket: str, start=None, holder=int, **options) -> tuple[LinkSession, RecordingListener]:
    session, listener = (
        LinkSession(EnginePlaces("game", Path("/c"), socket, start, holder), back_off_s=(0.01,), **options),
        RecordingListener(),
    )
    session.listeners.append(listener)
    session.open()
    return session, listener


def test_answer_to_a_subscription_contains_durations_of_running_jobs():
    session, listener = LinkSession(EnginePlaces("game", Path("/c"), "", None, int)), RecordingListener()
    session.listeners.append(listener)
    session._note_subscription({"epoch": 7, "seq": 1, "running": [4, 9], "running_ms": [18_000, 20]})
    session._note_subscription({"epoch": 7, "seq": 1, "running": [4]})

    assert listener.calls == [("subscribed", 7, 1, {4: 18_000, 9: 20}), ("subscribed", 7, 1, {4: 0})]


def test_session_subscribes_and_passes_notices_in_order(link_harness):
    with link_harness.running() as engine:
        session, listener = opened(engine.harness.server.path)
        until(lambda: session.state is SessionState.ATTACHED)
        engine.do(lambda: [engine.harness.server.publish(notice, 7, 1) for notice in (BUSY, EngineMessage(0, 1, "hello"))])
        listener.wait_until(lambda calls: ("notice", 7, 1, EngineMessage(0, 1, "hello")) in calls)

        assert listener.calls[0] == ("subscribed", 7, 0, {})
        assert session.latest_progress == BUSY
        assert session.engine.version == "1.2.3"
        session.close()


def test_session_returns_the_answer_or_the_refusal_of_a_request(link_harness):
    with link_harness.running() as engine:
        session, _ = opened(engine.harness.server.path)
        until(lambda: session.state is SessionState.ATTACHED)

        assert session.ask(PingEngine()).result(TIMEOUT_S) == {"verb": "PingEngine"}
        with pytest.raises(KnownError, match="no scan now"):
            session.ask(RescanSources()).result(TIMEOUT_S)
        session.close()


def test_session_reconnects_after_it_has_lost_the_engine(link_harness):
    with link_harness.running() as engine:
        session, listener = opened(engine.harness.server.path)
        until(lambda: session.state is SessionState.ATTACHED)
    listener.wait_until(lambda calls: ("lost",) in calls)
    until(lambda: session.state is SessionState.REATTACHING)

    with pytest.raises(HostError, match="cannot ping: no engine is running"):
        session.ask(PingEngine()).result(TIMEOUT_S)
    session.close()
    assert session.connections == ()


def test_session_reconnects_when_the_engine_is_back(link_harness):
    with link_harness.running() as engine:
        paths = ["/nowhere/engine.sock", engine.harness.server.path]
        session, _ = opened("", connect=lambda _path: EngineClient.connect(paths.pop(0) if len(paths) > 1 else paths[0], "tui"))
        until(lambda: session.state is SessionState.ATTACHED)
        session.close()


def test_session_starts_an_engine_only_once_if_no_engine_is_listening(link_harness):
    started = []

    def refuse() -> None:
        started.append(1)
        raise HostError("the daemon does not start")

    session, _ = opened("/nowhere/engine.sock", refuse)
    until(lambda: started)
    until(lambda: session.state is SessionState.DETACHED)
    session.start_engine()
    until(lambda: len(started) == 2)
    session.close()

    assert len(started) == 2


def test_start_request_is_dropped_while_an_engine_is_running(link_harness):
    started, tries = [], []

    def connect(path: str) -> EngineClient:
        tries.append(path)
        return EngineClient.connect(path, "tui")

    with link_harness.running() as engine:
        session, listener = opened(engine.harness.server.path, lambda: started.append(1), connect=connect)
        until(lambda: session.state is SessionState.ATTACHED)
        session.start_engine()
    listener.wait_until(lambda calls: ("lost",) in calls)
    before = len(tries)
    until(lambda: len(tries) >= before + 3)
    session.close()

    assert not started


def test_session_starts_an_engine_after_another_run_has_ended():
    holders, started = [4711], []

    def start() -> None:
        started.append(list(holders))
        raise HostError("the daemon does not start")

    session, listener = opened("/nowhere/engine.sock", start, lambda: holders[0])
    until(lambda: session.state is SessionState.WAITING)
    listener.wait_until(lambda calls: calls)
    assert (started, listener.calls) == ([], [("subscribed", 0, 0, {})]), "no engine is started yet, but the stored rows are read"
    assert "4711" in session.trouble
    with pytest.raises(HostError, match="wait: an engine starts when the other run has ended"):
        session.ask(PingEngine()).result(TIMEOUT_S)
    session.start_engine()  # this request has no effect, because the session starts an engine in any case
    holders[0] = 0
    until(lambda: started)
    session.close()

    assert started == [[0]]


def test_database_is_read_again_while_another_run_writes_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "READ_AGAIN_S", 0.0)
    database, tries = tmp_path / "assetdb.sqlite", []

    def holder() -> int:
        tries.append(len(listener.calls))
        return 4711

    listener, session = (
        RecordingListener(),
        LinkSession(EnginePlaces("game", tmp_path, "/nowhere/engine.sock", int, holder), back_off_s=(0.001,)),
    )
    session.listeners.append(listener)
    session.open()
    until(lambda: len(tries) > 20)
    assert len(listener.calls) == 1, "nothing was written to the database"
    for name in (database, tmp_path / "assetdb.sqlite-wal"):
        before = len(listener.calls)
        name.write_bytes(b"rows")
        listener.wait_until(lambda calls, before=before: len(calls) > before)
    session.close()

    assert all(each == ("subscribed", 0, 0, {}) for each in listener.calls)


def test_engine_is_started_again_when_the_cache_is_no_longer_in_use():
    holders, started = [0], []

    def start() -> None:
        started.append(list(holders))
        holders[0] = 4711 if len(started) == 1 else 0
        raise BusyError("cache '/c' is held by process 4711") if holders[0] else HostError("the daemon does not start")

    session, _ = opened("/nowhere/engine.sock", start, lambda: holders[0])
    until(lambda: session.state is SessionState.WAITING)
    holders[0] = 0
    until(lambda: len(started) == 2)
    session.close()


def test_reason_of_a_failed_engine_start_is_shown_after_further_tries():
    def refuse() -> None:
        raise HostError("the daemon does not start", hint="mend it")

    session, listener = opened("/nowhere/engine.sock", refuse)
    listener.wait_until(lambda calls: calls)  # the session has tried once more to find an engine
    until(lambda: session.state is SessionState.DETACHED)
    session._tries_now.set()
    until(lambda: not session._tries_now.is_set())
    session.close()

    assert session.trouble == "the daemon does not start; mend it"


def test_read_only_session_sends_no_requests():
    started = []
    session, listener = opened("/nowhere/engine.sock", lambda: started.append(1), is_read_only=True)
    until(lambda: session.state is SessionState.DETACHED)

    listener.wait_until(lambda calls: calls)
    assert listener.calls == [("subscribed", 0, 0, {})], "without an engine, the stored rows are read once"
    with pytest.raises(KnownError, match="read-only"):
        session.ask(StopEngine()).result(TIMEOUT_S)
    session.close()
    assert started == []


def test_session_without_engine_reads_the_database_and_refuses_requests(tmp_path):
    session, listener = NoSession("copied", tmp_path), RecordingListener()
    session.listeners.append(listener)
    session.open()

    assert listener.calls == [("subscribed", 0, 0, {})]
    with pytest.raises(KnownError, match="which has no engine"):
        session.ask(PingEngine()).result(TIMEOUT_S)
    session.close()


def test_database_is_read_although_the_engine_has_another_protocol(link_harness, monkeypatch):
    monkeypatch.setattr("aptui.link.port.PROTOCOL", -1)
    with link_harness.running() as engine:
        session, listener = opened(engine.harness.server.path)
        listener.wait_until(lambda calls: ("subscribed", 0, 0, {}) in calls)

        assert session.state is SessionState.DETACHED
        assert session.trouble == "the running engine has another version of aptui (1.2.3)"
        session.close()


@pytest.mark.parametrize(
    ("version", "is_so"), [("0.0.9", True), ("0.1.0", False), ("", False), ("9.0", False), ("0.1.0+dirty", False)]
)
def test_older_engine_is_recognised_by_its_version(version, is_so):
    assert is_older(version) is is_so


@pytest.mark.parametrize(
    ("user", "terminal", "name"), [("ada", "/dev/pts/3", "ada@pts/3"), ("ada", None, "ada"), (None, "/dev/tty1", "1234@tty1")]
)
def test_screen_is_named_by_user_and_terminal_in_the_list_of_clients(monkeypatch, user, terminal, name):
    def answer(value):
        if value is None:
            raise OSError
        return value

    monkeypatch.setattr(session_module.getpass, "getuser", lambda: answer(user))
    monkeypatch.setattr(session_module.os, "ttyname", lambda _fd: answer(terminal))
    monkeypatch.setattr(session_module.os, "getuid", lambda: 1234)

    assert session_module.describe_terminal() == name

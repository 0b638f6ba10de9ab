"""The connection of the screen to an engine: connected, lost, reconnecting, or none.

A session has one thread, which connects, receives notices and answers, and calls the listeners.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import StrEnum
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from aptui import __version__
from aptui.config.dirs import asset_database
from aptui.shared.errors import BusyError, HostError, KnownError, UserError
from aptui.shared.forms import prepare_form

if TYPE_CHECKING:
    from aptui.core.notices import Notice, Progress
    from aptui.link.codec import NoticeLine
    from aptui.link.engine_client import EngineClient
    from aptui.link.port import Answer, Verb
    from aptui.shared.connections.peers import GatewayReport
    from aptui.shared.health import Connection, Health

BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Delays before each new attempt to connect (seconds); the last delay repeats. Connecting to a dead socket takes microseconds."""
START_WITHIN_S = 30.0
"""Maximum time from the start of an engine until it accepts connections (seconds)."""
READ_AGAIN_S = 2.0
"""Minimum interval between reads of the database while another run writes to it (seconds)."""
_SOON_S = 0.5
"""Interval between checks whether another run has ended (seconds). A check is cheap: it reads one file in `/proc`."""


class SessionState(StrEnum):
    """State of the connection to the engine; the values are shown to the user."""

    ATTACHING = "connecting"
    WAITING = "waiting"
    """Another run is using the cache; the session starts an engine when that run has ended."""
    ATTACHED = "connected"
    DETACHED = "no engine"
    REATTACHING = "reconnecting"
    NONE = "read only"


class EngineFacts(Struct, frozen=True):
    """Facts about the current or last engine."""

    pid: int = 0
    version: str = ""
    started_ms: int = 0
    socket: str = ""
    speaks_our_protocol: bool = True
    ports: Mapping[str, int] = {}
    """TCP ports of the engine's process: {name: port}."""


class NoticeListener:
    """Base class of objects that receive notices in the session's thread, such as `feed.Feed`; its methods do nothing."""

    def note_subscription(self, epoch: int, seq: int, running: Mapping[int, int]) -> None:
        """Handle a new subscription: its notices follow. `running` is {id of a running job: its duration so far in ms}."""

    def receive(self, news: Sequence[NoticeLine]) -> None:
        """Receive notices, in their order."""

    def note_loss(self) -> None:
        """Note that the connection is lost."""


class Session:
    """The connection to an engine as the app uses it, whether an engine is connected or not."""

    is_read_only = False
    state = SessionState.ATTACHING
    since_ms = 0
    """Time when `state` last changed from or to ATTACHED (ms since 1970)."""
    trouble = ""
    """The problem of the connection to the engine, in words for the user; "" = no problem."""
    engine = EngineFacts()
    """The current or last engine."""
    latest_progress: Progress | None = None
    """The latest report of the engine's progress, None = no report yet."""
    latest_health: Health | None = None
    """The latest report of the engine's health."""
    connections: tuple[Connection, ...] = ()
    """Connections of the gateway, as last reported."""
    gateway: GatewayReport | None = None
    """The last report of the gateway, None = no gateway is running."""

    def __init__(self, project_name: str, cache_dir: Path) -> None:
        self.project_name, self.cache_dir = project_name, cache_dir
        self.listeners: list[NoticeListener] = []
        self.on_state: list[Callable[[], None]] = []
        """Functions that are called after `state`, `trouble` or `engine` changed; in any thread."""

    def clock_ms(self) -> int:
        """Return the time (ms since 1970)."""
        return int(time.time() * 1000)

    def open(self) -> None:
        """Begin to connect; the caller adds the listeners before this call."""
        raise NotImplementedError

    def ask(self, verb: Verb) -> Future[Answer]:
        """Send a request; the future fails with a `KnownError` if there is no engine or it refuses."""
        raise NotImplementedError

    def start_engine(self) -> None:
        """Start an engine if none is running, and connect to it."""

    def restart_engine(self, *, is_when_idle: bool) -> None:
        """Stop the engine, then start an engine of this version."""

    def close(self) -> None:
        """Disconnect; the engine keeps running."""

    def _have_read(self) -> None:
        """Make the listeners read the database although no engine is connected; after a subscription, they read it again."""
        for listener in self.listeners:
            listener.note_subscription(0, 0, {})


def _stamps(cache_dir: Path) -> list[tuple[int, int]]:
    """Return (time of modification, size) for the asset database and for its write-ahead log. A write changes a pair."""
    database, found = asset_database(cache_dir), []
    for path in (database, f"{database}-wal"):
        with contextlib.suppress(OSError):
            status = os.stat(path)
            found.append((status.st_mtime_ns, status.st_size))
    return found


class NoSession(Session):
    """A session that shows a database without an engine, for `aptui open`."""

    is_read_only = True
    state = SessionState.NONE

    def open(self) -> None:
        """Make the listeners read the database."""
        self._have_read()

    def ask(self, verb: Verb) -> Future[Answer]:
        """Return a future with an error: a stored database has no engine that could answer."""
        why = f"cannot {_word(verb)}: the screen shows a stored database, which has no engine"
        return _fail(UserError(why, hint="open the project instead: run 'aptui -C DIR'"))


class EnginePlaces(Struct, frozen=True):
    """How a session finds and starts its engine.

    Args:
        socket: path of the engine's socket; "" = each attempt to connect finds it by the cache or the registry.
        start: starts a daemon, or raises a `KnownError`; None = the session starts no engine.
        holder: returns the id of the process that is using the cache, 0 = no process, or unknown.
        starts_at_once: whether the session starts an engine without a call of `start_engine`; False for an untrusted project.
    """

    project_name: str
    cache_dir: Path
    socket: str
    start: Callable[[], None] | None = None
    holder: Callable[[], int] = int
    starts_at_once: bool = True


class LinkSession(Session):
    """A session with an engine behind a local socket. If it `is_read_only`, it requests only notices and logs of runs."""

    def __init__(
        self,
        places: EnginePlaces,
        *,
        is_read_only: bool = False,
        connect: Callable[[str], EngineClient] | None = None,
        back_off_s: tuple[float, ...] = BACK_OFF_S,
    ) -> None:
        super().__init__(places.project_name, places.cache_dir)
        self.is_read_only, self.since_ms, self.engine = is_read_only, self.clock_ms(), EngineFacts(socket=places.socket)
        self._places, self._back_off_s = places, back_off_s
        self._connect = connect or partial(_connect, places.cache_dir)
        self._client: EngineClient | None = None
        self._is_closing = False
        self._tries_now = threading.Event()
        self._wants_engine = places.start is not None and not is_read_only and places.starts_at_once
        self._refusal = ""
        self._read_s, self._read_stamps = 0.0, _stamps(self.cache_dir)
        self._thread = threading.Thread(target=self._run, name="aptui-session", daemon=True)

    # ------------------------------------------------------------------------------------------------ called in any thread

    def open(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def ask(self, verb: Verb) -> Future[Answer]:
        """Send a request; the session's thread sets its result."""
        client = self._client
        if self.is_read_only and not _changes_nothing(verb):
            why, hint = self._refusal, "open the screen again, and trust the project"
            if not why:
                why, hint = "the screen was opened with '--read-only'", "open it without '--read-only'"
            return _fail(UserError(f"cannot {_word(verb)} here: {why}", hint=hint))
        if client is None:
            hint = (
                "wait: an engine starts when the other run has ended"
                if self.state is SessionState.WAITING
                else "type ':start' to start an engine"
            )
            return _fail(HostError(f"cannot {_word(verb)}: no engine is running", hint=hint))
        answer: Future[Answer] = Future()

        def hand_over(outcome: Answer | KnownError) -> None:
            if isinstance(outcome, KnownError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        try:
            client.post(verb, hand_over)
        except KnownError as gone:
            return _fail(gone)
        return answer

    def start_engine(self) -> None:
        """Start an engine now; do nothing if an engine is connected."""
        if self._client is None:
            self._wants_engine = self._places.start is not None and not self.is_read_only
            self._tries_now.set()

    def restrict(self, why: str) -> None:
        """Make the session read-only; `why` is shown to the user."""
        self.is_read_only, self._refusal = True, why
        self._turn(self.state, why)

    def restart_engine(self, *, is_when_idle: bool) -> None:
        """Stop the engine; when the connection ends, a new engine starts."""
        from aptui.link.port import StopEngine  # imported here: not needed before the first paint

        self._wants_engine = self._places.start is not None
        self.ask(StopEngine(is_when_idle))

    def close(self) -> None:
        """Disconnect, and wait at most 1 s for the thread, because the thread may be busy with the start of an engine."""
        self._is_closing = True
        self._tries_now.set()
        client = self._client
        if client is not None:
            client.hang_up()
        if self._thread.ident is not None:
            self._thread.join(1.0)

    # ---------------------------------------------------------------------------------------- run in the session's thread

    def _run(self) -> None:
        tries = 0
        while not self._is_closing:
            client = self._attach()
            if client is None:
                if not tries and not self.engine.pid:
                    self._have_read()
                elif self.state is SessionState.WAITING:
                    self._have_changes_read()
                pause_s = self._back_off_s[min(tries, len(self._back_off_s) - 1)]
                self._tries_now.wait(min(pause_s, _SOON_S) if self.state is SessionState.WAITING else pause_s)
                self._tries_now.clear()
                tries += 1
                continue
            tries = 0
            try:
                self._follow(client)
            except KnownError as gone:
                self.trouble = gone.what
            finally:
                self._client = None
                client.close()
            self._lose()

    def _have_changes_read(self) -> None:
        """Make the listeners read the database again if another run has changed it, at most every `READ_AGAIN_S`."""
        if time.monotonic() >= self._read_s + READ_AGAIN_S and _stamps(self.cache_dir) != self._read_stamps:
            self._have_read()

    def _have_read(self) -> None:
        self._read_s, self._read_stamps = time.monotonic(), _stamps(self.cache_dir)
        super()._have_read()

    def _attach(self) -> EngineClient | None:
        """Connect to an engine, and start one if that was requested; return None if no engine is available now."""
        try:
            client = self._connect(self._places.socket)
        except KnownError as absent:
            if self._wants_engine:
                return self._start()
            state = SessionState.REATTACHING if self.engine.pid else SessionState.DETACHED
            self._turn(state, self._refusal or absent.what)
            return None
        return client

    def _start(self) -> EngineClient | None:
        """Start an engine and connect to it; while another run holds the cache, wait for its end."""
        if holder := self._places.holder():
            self._turn(SessionState.WAITING, f"another run (process {holder}) is using this cache")
            return None
        self._wants_engine, self._refusal = False, ""
        self._turn(SessionState.ATTACHING, "")
        try:
            assert self._places.start is not None
            self._places.start()
            deadline = time.monotonic() + START_WITHIN_S
            while not self._is_closing and time.monotonic() < deadline:
                try:
                    return self._connect(self._places.socket)
                except KnownError:
                    self._tries_now.wait(self._back_off_s[0])
                    self._tries_now.clear()
        except KnownError as refused:
            self._refusal = str(refused)
            # The start fails if another run took the cache first. Then the session starts an engine after that run.
            self._wants_engine = refused.exit_code == BusyError.exit_code and self._places.holder() != 0
            self._turn(SessionState.DETACHED, self._refusal)
        return None

    def _follow(self, client: EngineClient) -> None:
        """Subscribe, then hand notices to the listeners until the connection ends."""
        # Importing these records takes long, so this thread imports them while the UI's thread prepares the first paint.
        from aptui.core.notices import JobChanged  # imported here to start faster
        from aptui.link.port import PROTOCOL, Subscribe

        # If the engine is stopped from now on, the session does not start another engine.
        self._wants_engine, self._refusal = False, ""
        hello = client.hello
        ours = hello.protocol == PROTOCOL
        self.engine = EngineFacts(hello.pid, hello.version, hello.started_ms, client.path, ours, hello.ports)
        self._client = client
        if not ours:
            self._turn(SessionState.DETACHED, f"the running engine has another version of aptui ({hello.version or 'unknown'})")
            self._have_read()
        else:
            self._note_subscription(client.ask(Subscribe(is_coalesced=True)))
            self._turn(SessionState.ATTACHED, "")
        while not self._is_closing:
            news = client.news(None)
            for line in news:
                # `JobChanged` is skipped for speed: nearly all notices are of this type, up to ten thousand a second.
                if not isinstance(line.notice, JobChanged):
                    self._note(line.notice)
            for listener in self.listeners:
                listener.receive(news)

    def _note_subscription(self, answer: Answer) -> None:
        from aptui.core.model import RunKey  # imported here: not needed before the first paint
        from aptui.core.notices import JobProgress, Progress
        from aptui.link.codec import NoticeLine
        from aptui.shared.health import Health

        progress = msgspec.convert(answer.get("progress"), prepare_form(Progress | None))
        health = msgspec.convert(answer.get("health"), prepare_form(Health | None))
        self.latest_progress, self.latest_health = progress or self.latest_progress, health or self.latest_health
        epoch, seq = (msgspec.convert(answer.get(name, 0), prepare_form(int)) for name in ("epoch", "seq"))
        running, for_ms, percents = (
            msgspec.convert(answer.get(name, ()), prepare_form(tuple[int, ...]))
            for name in ("running", "running_ms", "running_percent")
        )
        for listener in self.listeners:
            listener.note_subscription(epoch, seq, dict(zip_longest(running, for_ms, fillvalue=0)))
            shares = zip(running, percents, strict=False)
            if reported := [JobProgress(seq, job_id, RunKey(0), share) for job_id, share in shares if share >= 0]:
                listener.receive([NoticeLine(epoch, seq, each) for each in reported])

    def _note(self, notice: Notice) -> None:
        from aptui.core.notices import ConnectionsChanged, HealthChanged, Progress  # imported here to start faster

        match notice:
            case Progress():
                self.latest_progress = notice
            case HealthChanged():
                self.latest_health = notice.health
            case ConnectionsChanged():
                self.connections, self.gateway = notice.connections, notice.gateway

    def _lose(self) -> None:
        self.connections, self.gateway = (), None
        for listener in self.listeners:
            listener.note_loss()
        if not self._is_closing:
            self._turn(SessionState.REATTACHING, self.trouble)

    def _turn(self, state: SessionState, trouble: str) -> None:
        if (state, trouble) == (self.state, self.trouble):
            return
        if SessionState.ATTACHED in {state, self.state}:
            self.since_ms = self.clock_ms()
        self.state, self.trouble = state, trouble
        for notify in self.on_state:
            notify()


def is_older(version: str) -> bool:
    """Return whether an engine of `version` is older than this screen."""
    return bool(version) and _parts(version) < _parts(__version__)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.split("+", maxsplit=1)[0].split(".")[:3])


def _connect(cache_dir: Path, path: str) -> EngineClient:
    from aptui.link.engine_client import EngineClient  # imported here to start faster

    return EngineClient.of(cache_dir, "tui", describe_terminal(), path=path)


def describe_terminal() -> str:
    """Return the user and the terminal of this screen for the list of clients: `ada@pts/3`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name in the system's list of users
        user = f"{os.getuid()}"
    try:
        return f"{user}@{os.ttyname(2).removeprefix('/dev/')}"
    except OSError:
        return user


def _fail(why: KnownError) -> Future[Answer]:
    answer: Future[Answer] = Future()
    answer.set_exception(why)
    return answer


def _word(verb: Verb) -> str:
    from aptui.link.port import name_verb  # imported here: not needed before the first paint

    return name_verb(verb)


def _changes_nothing(verb: Verb) -> bool:
    from aptui.link.port import ReadRunLog  # imported here: not needed before the first paint

    return isinstance(verb, ReadRunLog)

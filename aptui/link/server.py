"""The engine's end of the local socket: its clients, their requests, the lines to be sent. `port.Answerer` answers.

The server runs in the engine's thread, on the engine's selector, and never waits. It appends lines to the outboxes of its clients;
`flush` sends them, once per turn of the loop, so that a thousand notices take one system call. A line of notices is encoded once,
and all outboxes refer to the same bytes. So a client that does not read costs little memory. A client is dropped when its outbox is
full, and may connect again.

A faulty client must not harm the engine. Clients of other users are refused; the kernel reports the user of each connection. Lines
have a maximum length, and a client has a time limit for its first message and for the end of each message that it began.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from aptui import __version__
from aptui.core.notices import JobChanged, JobProgress, Notice
from aptui.link import codec, places
from aptui.link.notice_feed import REPLACED, UNSETTLED, NoticeFeed, Outbox
from aptui.link.port import PROTOCOL, Answerer, EngineHello, PingEngine, ReadStatus, StopEngine, Verb
from aptui.shared import printing
from aptui.shared.errors import BusyError, HostError, InternalError, KnownError
from aptui.shared.floods import ErrorReports
from aptui.shared.health import Connection

_RECEIVE_BYTES = 1 << 14
_ANSWERS_BYTES = 1 << 16
"""Maximum size (bytes) of answers that are collected until the end of a turn of the loop.

Beyond this size they are sent at once, and the server reads no further requests of a client that does not receive its answers.
"""
_ACCEPTS = 64
"""Maximum number of connections that are accepted in one turn, so that a burst of connections does not block the loop."""
_ACCEPT_AGAIN_S = 1.0
"""Pause (seconds) of accepting connections after the process ran out of file descriptors.

Without the pause, the listening socket would wake the loop again and again.
"""
_HELLO_BYTES = 1 << 12
_NAME_LENGTH = 80
_GATEWAY_FACTOR = 4
"""Factor by which the limits `stalled_s` and `waiting_bytes` are higher for a gateway than for other clients.

A gateway runs at low priority; if it is dropped, all its clients have to connect again.
"""
_BEFORE_HELLO = (PingEngine, ReadStatus, StopEngine)
"""Requests that a client of another protocol may send: enough to restart the engine."""


class LinkLimits(Struct, frozen=True):
    """Limits of one client, and of all clients together.

    Args:
        message_s: time limit (seconds) for the first message, and for the end of each later message that has begun.
        begun_bytes: maximum total size of the unfinished messages of all clients; the client that exceeds the maximum is dropped.
        waiting_bytes: maximum size of the lines that wait for one client; a client that exceeds the maximum is dropped.
        waiting_lines: maximum number of notices for a client that has read nothing for `stalled_s` seconds. A client that reads may
            exceed the limit, because one turn of the loop may have more notices.
    """

    connections: int = 64
    message_s: float = 30.0
    begun_bytes: int = 16 << 20
    waiting_bytes: int = 4 << 20
    waiting_lines: int = 1_000
    stalled_s: float = 1.0


class _Client:
    """One connection: its identity, its unfinished message, and its outbox."""

    __slots__ = ("answers", "begun_s", "channel", "hello", "is_coalesced", "lines", "number", "outbox", "pid", "since_ms", "wants")

    def __init__(self, number: int, channel: socket.socket, pid: int, now: float) -> None:
        self.number, self.channel, self.pid = number, channel, pid
        self.since_ms = time.time_ns() // 1_000_000
        self.hello: EngineHello | None = None
        self.wants: bool | None = None
        """The client's subscription, None until the client has subscribed.

        True = all notices, False = only notices about jobs that ended.
        """
        self.is_coalesced = False
        self.lines = codec.LineBuffer(_HELLO_BYTES)
        self.answers: Iterator[bytes] = iter(())
        """Received request lines that are not handled yet."""
        self.begun_s: float | None = now
        """Time when the client's unfinished message began; before the first message, the time when the connection began.

        None = the client has sent only whole messages.
        """
        self.outbox = Outbox(channel, now)

    @property
    def slow_reader_factor(self) -> int:
        """Factor for this client's limits `stalled_s` and `waiting_bytes`: `_GATEWAY_FACTOR` for a gateway, otherwise 1."""
        return _GATEWAY_FACTOR if self.hello is not None and self.hello.kind == "gateway" else 1


class ClientRequest:
    """One request that waits for its answer (`port.Request`)."""

    __slots__ = ("_number", "_server", "client", "verb")

    def __init__(self, server: LinkServer, client: int, number: int, verb: Verb) -> None:
        self._server: LinkServer | None = server
        self._number = number
        self.client = client
        self.verb = verb

    def answer(self, **fields: object) -> None:
        """Send the answer."""
        try:
            self._say(codec.encode_answer(self._number, fields))
        except TypeError as error:
            self.refuse(f"the answer cannot be written: {error}", "this is a bug in aptui; please report it", 2)

    def refuse(self, what: str, hint: str = "", code: int = 3) -> None:
        """Send a refusal; `code` is the exit code of a verb that gets the refusal."""
        self._say(codec.encode_refusal(self._number, what, hint, code))

    def _say(self, line: bytes) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.queue_line(self.client, line)


class LinkServer:
    """The socket at `path` and all connected clients.

    Args:
        path: path of the socket; its folder is created if it is missing, and must belong to this user.
        selector: selector of the loop; the data of its keys is a function that is called with the mask of events.
        answerer: handles the requests, and is notified of clients that left.
        credentials: returns the process at the other end of a connection.
    """

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        answerer: Answerer,
        *,
        limits: LinkLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        credentials: Callable[[socket.socket], places.Credentials] = places.peer_credentials,
    ) -> None:
        self.path = path
        self._selector, self._answerer = selector, answerer
        self._limits = limits or LinkLimits()
        self._clock, self._credentials = clock, credentials
        self._listener: socket.socket | None = None
        self._bound: os.stat_result | None = None
        self._accept_again_s: float | None = None
        self._clients: dict[int, _Client] = {}
        self._subscribers: tuple[_Client, ...] = ()
        """Subscribed clients. The tuple is replaced, never changed, because a client may be dropped while a notice is published."""
        self._drawing: tuple[_Client, ...] = ()
        """Clients that receive coalesced notices. Like `_subscribers`, the tuple is replaced, never changed."""
        self._feed = NoticeFeed()
        self._reported: set[_Client] = set()
        """Clients with new lines since the last flush."""
        self._gone: list[int] = []
        """Clients that left. The answerer is notified of them between two requests."""
        self._count = 0
        self._reports = ErrorReports(self._clock)

    # --------------------------------------------------------------------------------------------------------- open, close

    def listen(self) -> None:
        """Open the socket; only the holder of the cache's lock may call this. A second call replaces a socket whose file is gone.

        Raises:
            BusyError: another process listens on the socket. HostError: the folder is not the user's own, or the socket cannot be
                made.
        """
        self._stop_listening()
        places.make_private(os.path.dirname(self.path))
        try:
            places.remove_stale(self.path)
            with contextlib.ExitStack() as opened:
                listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                # `bind` gives this mode to the socket's file (on Linux). A `umask` is not used, because it would also affect other
                # threads.
                os.fchmod(listener.fileno(), 0o600)
                listener.bind(self.path)
                self._bound = os.stat(self.path)
                listener.listen(128)
                listener.setblocking(False)
                self._selector.register(listener, selectors.EVENT_READ, self._on_connection)
                opened.pop_all()
        except OSError as error:
            raise HostError(
                f"socket '{self.path}' cannot be created: {error.strerror or error}",
                hint="check its permissions and the free space on its disk",
            ) from error
        self._listener = listener

    def close(self) -> None:
        """Send as many lines as possible without waiting, close all connections, and remove the socket.

        The engine's `Answerer` is not notified of the clients that are disconnected.
        """
        self._send_feed()
        for client in list(self._clients.values()):
            with contextlib.suppress(OSError):
                client.outbox.send(self._clock())
            self._drop(client)
        self._gone.clear()
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            if self._accept_again_s is None:
                self._selector.unregister(self._listener)
            with contextlib.suppress(OSError):
                # Remove the socket file only if it is still this server's own: another engine may listen at this path by now.
                if self._bound is not None and os.path.samestat(self._bound, os.stat(self.path)):
                    os.unlink(self.path)
            self._listener.close()
            self._listener = self._accept_again_s = None

    @property
    def is_unlinked(self) -> bool:
        """Whether the file of the socket was deleted, so that no client can connect."""
        return not os.path.lexists(self.path)

    # ------------------------------------------------------------------------------------------------ called by the engine

    def subscribe(self, number: int, wants_all: bool, *, is_coalesced: bool = False) -> None:
        """Send notices to a client from now on: every notice, or the newest notices once per interval (`notice_feed.BEAT_S`)."""
        client = self._clients.get(number)
        if client is not None:
            self._send_feed()
            client.wants, client.is_coalesced = wants_all, is_coalesced
            self._note_subscribers()

    def _note_subscribers(self) -> None:
        subscribers = [client for client in self._clients.values() if client.wants is not None]
        self._subscribers = tuple(client for client in subscribers if not client.is_coalesced)
        self._drawing = tuple(client for client in subscribers if client.is_coalesced)
        if not self._drawing:
            self._feed.clear()

    def publish(self, notice: Notice, epoch: int, seq: int) -> None:
        """Send a notice to all subscribers."""
        if self._drawing:
            self._feed.put(notice, epoch, seq)
        line = b""
        is_settled = not (isinstance(notice, JobProgress) or (isinstance(notice, JobChanged) and notice.status in UNSETTLED))
        key: object = type(notice) if isinstance(notice, REPLACED) else None
        if isinstance(notice, JobProgress):
            key = JobProgress, notice.job_id
        for client in self._subscribers:
            if client.wants or is_settled:
                line = line or codec.encode_notice(notice, epoch, seq)
                self._put(client, key, line)

    def _send_feed(self) -> None:
        for line in self._feed.lines(self._clock()) if self._drawing else ():
            for client in self._drawing:
                self._put(client, None, line)

    def _feed_deadline(self) -> float | None:
        return self._feed.deadline((client.outbox for client in self._drawing), self._limits.stalled_s)

    def queue_line(self, number: int, line: bytes) -> None:
        """Append a line to the outbox of a client, if it is still connected."""
        client = self._clients.get(number)
        if client is not None and client.is_coalesced:
            self._send_feed()  # the client must receive notices of earlier events before the answer
        if client is not None:
            self._put(client, None, line)
            if client.outbox.waiting_bytes > _ANSWERS_BYTES and not client.outbox.is_blocked:
                self._send(client, self._clock())

    def flush(self) -> None:
        """Send all waiting lines; the loop calls this once per turn, after everything else."""
        now = self._clock()
        due = self._feed_deadline()
        if due is not None and now >= due:
            self._send_feed()
        while self._reported or self._gone:
            reported, self._reported = self._reported, set()
            for client in reported:
                if not client.outbox.is_blocked:
                    self._send(client, now)
                    self._listen(client)  # a client that was blocked may have requests that are not handled yet
                is_stalled = now - client.outbox.taken_s > self._limits.stalled_s * client.slow_reader_factor
                if is_stalled and len(client.outbox) > self._limits.waiting_lines:
                    self._drop(client)
            self._report_gone_clients()

    def connections(self) -> tuple[Connection, ...]:
        """Return the clients that sent a hello."""
        return tuple(
            Connection(
                client.number,
                client.hello.kind,
                client.hello.name,
                client.pid or client.hello.pid,
                client.since_ms,
                client.wants is not None,
                client.outbox.waiting_bytes,
            )
            for client in self._clients.values()
            if client.hello is not None
        )

    def disconnect(self, number: int) -> bool:
        """Drop a client; return whether it existed. Its waiting lines are sent as far as possible without waiting."""
        client = self._clients.get(number)
        if client is None:
            return False
        self._send(client, self._clock())
        self._drop(client)
        return True

    def next_deadline(self) -> float | None:
        """Return when `poll` must be called at the latest, in seconds of the clock."""
        deadlines = [client.begun_s + self._limits.message_s for client in self._clients.values() if client.begun_s is not None]
        due = self._feed_deadline()
        return min([*deadlines, *(time_s for time_s in (self._accept_again_s, due) if time_s is not None)], default=None)

    def poll(self, now: float) -> None:
        """Drop clients that did not complete a message within its time limit."""
        if self._accept_again_s is not None and now >= self._accept_again_s and self._listener is not None:
            self._accept_again_s = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._on_connection)
        for client in list(self._clients.values()):
            if client.begun_s is not None and now >= client.begun_s + self._limits.message_s:
                what = "the message is incomplete" if client.hello else "the client did not send 'hello'"
                self._dismiss(client, f"{what} after {self._limits.message_s:g} s")
        self._report_gone_clients()

    # ------------------------------------------------------------------------------------------------- accepting clients

    def _on_connection(self, _mask: int) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTS):
            try:
                channel, _address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                self._selector.unregister(self._listener)
                self._accept_again_s = self._clock() + _ACCEPT_AGAIN_S
                return
            self._admit(channel)

    def _admit(self, channel: socket.socket) -> None:
        """Register the client of a new connection, or close the connection if it is refused."""
        channel.setblocking(False)
        try:
            who = self._credentials(channel)
        except OSError:
            channel.close()
            return
        if not who.is_trusted:
            channel.close()
        elif len(self._clients) >= self._limits.connections:
            with contextlib.suppress(OSError):
                channel.send(
                    codec.encode_refusal(0, f"the engine already has {self._limits.connections} connections, its maximum", code=4)
                )
            channel.close()
        else:
            self._count += 1
            client = _Client(self._count, channel, who.pid, self._clock())
            self._clients[client.number] = client
            self._selector.register(channel, selectors.EVENT_READ, lambda mask: self._on_client(client, mask))

    # ---------------------------------------------------------------------------------------------------- receiving requests

    def _on_client(self, client: _Client, mask: int) -> None:
        if client.number not in self._clients:
            return  # the client was dropped earlier in this turn
        if mask & selectors.EVENT_WRITE:
            self._send(client, self._clock())
        else:
            self._receive(client)
        self._listen(client)
        self._report_gone_clients()

    def _receive(self, client: _Client) -> None:
        try:
            data = client.channel.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.answers = client.lines.feed(data)
        if not data:
            self._drop(client)

    def _listen(self, client: _Client) -> None:
        """Handle the requests of a client, as long as it reads its answers."""
        try:
            while client.number in self._clients and not client.outbox.is_blocked:
                line = next(client.answers, None)
                if line is None:
                    self._note_begun(client)
                    return
                self._handle(client, line)
                if client.hello is not None:
                    client.begun_s = None
        except codec.LineTooLong:
            self._dismiss(client, f"a message is longer than {client.lines.limit_bytes} bytes")

    def _note_begun(self, client: _Client) -> None:
        if not client.lines.begun_bytes:
            return
        client.begun_s = client.begun_s or self._clock()
        if sum(each.lines.begun_bytes for each in self._clients.values()) > self._limits.begun_bytes:
            self._dismiss(client, "too many clients have sent incomplete messages", code=BusyError.exit_code)

    def _handle(self, client: _Client, line: bytes) -> None:
        """Check one message of a client, and pass its request to the answerer."""
        try:
            number, verb = codec.decode_request(line)
        except codec.MalformedLine as error:
            if client.hello is None:
                self._dismiss(client, error.what, error.hint, error.number)
            else:
                self.queue_line(client.number, codec.encode_refusal(error.number, error.what, error.hint))
            return
        request = ClientRequest(self, client.number, number, verb)
        if isinstance(verb, EngineHello) and client.hello is None:
            client.hello = EngineHello(verb.protocol, verb.version, _word(verb.kind), verb.pid, _word(verb.name))
            client.lines.limit_bytes = codec.LINE_LIMIT_BYTES
        elif client.hello is None:
            self._dismiss(client, "the first message must be 'hello'", number=number)
            return
        elif isinstance(verb, EngineHello):
            request.refuse("'hello' was already sent on this connection")
            return
        if client.hello.protocol != PROTOCOL and not isinstance(verb, (EngineHello, *_BEFORE_HELLO)):
            what = (
                f"the engine (aptui {__version__}) uses protocol {PROTOCOL}, and this client uses protocol {client.hello.protocol}"
            )
            request.refuse(what, "restart the engine", BusyError.exit_code)
            return
        try:
            self._answerer.handle(request)
        except KnownError as error:
            request.refuse(error.what, error.hint, error.exit_code)
        except Exception as error:  # noqa: BLE001  # a bug in the handling of one request must not end the engine
            self._report(error)
            request.refuse(f"internal error: {type(error).__name__}: {error}", "please report this", InternalError.exit_code)

    def _report(self, error: Exception) -> None:
        """Print the traceback of a bug, at a limited rate."""
        if self._reports.admits(type(error).__name__):
            printing.complain_of(error)

    # ---------------------------------------------------------------------------------------------------------- sending lines

    def _put(self, client: _Client, key: object, line: bytes) -> None:
        outbox = client.outbox
        if not outbox.waiting_bytes:
            outbox.taken_s = self._clock()
        outbox.put(key, line)
        self._reported.add(client)
        limit_bytes = self._limits.waiting_bytes * client.slow_reader_factor
        if outbox.waiting_bytes > limit_bytes:
            self._send(client, self._clock())
            if outbox.waiting_bytes > limit_bytes:
                self._drop(client)

    def _send(self, client: _Client, now: float) -> None:
        was_blocked = client.outbox.is_blocked
        try:
            client.outbox.send(now)
        except OSError:
            self._drop(client)
            return
        if client.outbox.is_blocked != was_blocked:
            events = selectors.EVENT_WRITE if client.outbox.is_blocked else selectors.EVENT_READ
            self._selector.modify(client.channel, events, self._selector.get_key(client.channel).data)

    # ------------------------------------------------------------------------------------------------- dropping clients

    def _dismiss(self, client: _Client, what: str, hint: str = "", number: int = 0, code: int = 3) -> None:
        """Send the reason to the client, if that is possible without waiting, and drop the client."""
        self.queue_line(client.number, codec.encode_refusal(number, what, hint, code))
        if client.number in self._clients:
            self._send(client, self._clock())
        self._drop(client)

    def _drop(self, client: _Client) -> None:
        """Forget a client at once. The answerer is notified later, because it may be publishing a notice now."""
        if self._clients.pop(client.number, None) is None:
            return
        self._reported.discard(client)
        self._selector.unregister(client.channel)
        client.channel.close()
        client.outbox.clear()
        if client.wants is not None:
            self._note_subscribers()
        if client.hello is not None:
            self._gone.append(client.number)

    def _report_gone_clients(self) -> None:
        while self._gone:
            self._answerer.forget_client(self._gone.pop(0))


def _word(text: str) -> str:
    return printing.sanitize(text[:_NAME_LENGTH])

"""A client's end of the local socket, for the command line and for the reading thread of a screen.

`places` finds the socket.

Only the reading thread calls `ask`, `next_news`, `news` and `close`. Any thread may call `post`; the reading thread then calls the
given function with the answer. Notices that arrive while `ask` waits for an answer are stored for `next_news`.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

import msgspec
from msgspec import Struct

from aptui import __version__
from aptui.config.dirs import refuse_other_user
from aptui.link import codec, places
from aptui.link.codec import AnswerLine, NoticeLine, NoticeLines, RefusalLine
from aptui.link.port import PROTOCOL, Answer, EngineHello, PingEngine, Verb
from aptui.shared.errors import BusyError, HostError, KnownError, UserError
from aptui.shared.forms import prepare_form

_RECEIVE_BYTES = 1 << 18
_LINE_LIMIT_BYTES = 64 << 20
"""Maximum length of a line. The engine is trusted, but a faulty engine must not fill the client's memory."""
_SEND_LIMIT = (10, 0)
"""Send timeout in seconds and microseconds.

An engine reads many times a second. If it reads nothing in this time, it is stuck or stopped.
"""


_SILENCE_S = 60.0
"""Timeout of a ping (seconds). A healthy engine answers within a fraction of a second, also while it works."""


class NoEngine(HostError):
    """No engine of this cache listens at the socket."""


class EngineGone(HostError):
    """The connection has ended."""


class NoAnswer(HostError):
    """The engine did not answer within the timeout."""


class RequestRefused(KnownError):
    """The engine refuses a request; this is also a `UserError`, a `BusyError` or a `HostError`."""


class _Mistaken(RequestRefused, UserError):
    """The engine refuses a request because of the client's mistake: exit code 3."""


class _Busy(RequestRefused, BusyError):
    """The engine refuses a request because it is busy: exit code 4."""


class _Troubled(RequestRefused, HostError):
    """The engine refuses a request because of an error in the engine: exit code 2."""


_FAMILIES: dict[int, type[RequestRefused]] = {UserError.exit_code: _Mistaken, BusyError.exit_code: _Busy}

Then = Callable[[Answer | KnownError], None]
"""Function that is called with the answer, or with the reason why no answer will arrive."""


class EngineWelcome(Struct, frozen=True):
    """Answer of an engine to a client's hello; an engine of another version may leave out or add fields."""

    protocol: int = 0
    version: str = ""
    pid: int = 0
    epoch: int = 0
    project: str = ""
    cache: str = ""
    cache_id: str = ""
    started_ms: int = 0
    ports: dict[str, int] = {}


class EngineClient:
    """A connection to an engine. Create it with `EngineClient.of` (by cache folder) or `EngineClient.connect` (by socket)."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lines = codec.LineBuffer(_LINE_LIMIT_BYTES)
        self._writing = threading.Lock()
        self._awaited: dict[int, Then] = {}
        self._count = 0
        self._unread_notices: deque[NoticeLine] = deque()
        self._end: KnownError | None = None
        """The error that further requests get, None while the connection is open."""
        self._end_reason: KnownError | None = None
        """The reason to report when the connection ends, if it is known beforehand; None = unknown."""
        self.hello = EngineWelcome()
        self.path = ""

    @classmethod
    def of(cls, cache_dir: places.Folder, kind: str = "cli", name: str = "", timeout_s: float = 5.0, *, path: str = "") -> Self:
        """Connect to the engine of a cache; every client that needs the engine of one project uses this function.

        Args:
            kind: kind of client (tui, cli, batch or a name that the client chooses), for the list of connections.
            name: the client's name, for the list of connections.
            timeout_s: maximum time for the hello.
            path: the socket of the engine, "" = the socket in the record of the cache or of the registry.

        Raises:
            NoEngine: no engine of this cache runs. HostError: the cache belongs to another user; see `connect`.
        """
        refuse_other_user(cache_dir)
        path = path or places.listening_at(cache_dir)
        client = cls.connect(path, kind, name, timeout_s)
        hello = client.hello
        if not places.is_same_cache(cache_dir, hello.cache, hello.cache_id):
            client.close()
            what = f"no engine is running for cache '{os.fspath(cache_dir)}': the engine at '{path}' has cache '{hello.cache}'"
            raise NoEngine(what, hint="start an engine with 'aptui start'")
        return client

    @classmethod
    def connect(cls, path: str, kind: str = "cli", name: str = "", timeout_s: float = 5.0) -> Self:
        """Connect to the engine that listens at `path`, whichever cache it has, and exchange hellos.

        `hello` of the returned client has the engine's protocol version. If it differs from the client's, the engine accepts only
        `PingEngine`, `ReadStatus` and `StopEngine`.

        Raises:
            NoEngine: no engine listens at `path`. RequestRefused: the engine has too many clients. NoAnswer, EngineGone: the engine
                sends no hello.
        """
        try:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise _as_refused(path, error) from None
        try:
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", *_SEND_LIMIT))
            channel.connect(path)
            if not places.peer_credentials(channel).is_trusted:
                raise PermissionError(errno.EACCES, "the process that listens there belongs to another user")
        except OSError as error:
            channel.close()
            raise _as_refused(path, error) from None
        client = cls(channel)
        client.path = path
        try:
            answer = client.ask(EngineHello(PROTOCOL, __version__, kind, os.getpid(), name), timeout_s)
            client.hello = msgspec.convert(answer, prepare_form(EngineWelcome))
        except msgspec.ValidationError as error:
            client.close()
            raise EngineGone(f"the engine's greeting is invalid: {error}") from error
        except BaseException:
            client.close()
            raise
        return client

    # --------------------------------------------------------------------------------------------------- sending requests

    def post(self, verb: Verb, then: Then | None = None) -> int:
        """Send `verb` and return its number.

        The reading thread calls `then` with the answer, or with the reason why no answer will arrive.

        Raises:
            EngineGone: the connection has ended; `then` is not called.
        """
        with self._writing:
            if self._end is not None:
                raise self._end
            self._count += 1
            number = self._count
            if then is not None:
                self._awaited[number] = then
            try:
                self._channel.sendall(codec.encode_request(number, verb))
            except OSError as error:
                # The reading thread reports the end of the connection, because the last message of the server may still be unread.
                self._shut_down()
                if not isinstance(error, (BrokenPipeError, ConnectionResetError)):
                    self._end_reason = EngineGone(
                        "the engine no longer reads requests", hint="it hangs or was suspended; 'aptui ps' lists it"
                    )
        return number

    def ask(self, verb: Verb, timeout_s: float | None = None, *, on_news: Callable[[NoticeLine], object] | None = None) -> Answer:
        """Send `verb` and return the answer. If `timeout_s` is None, wait as long as the engine answers pings.

        `on_news` receives notices; without `on_news`, notices are stored for `next_news`.

        Raises:
            RequestRefused: the engine refuses the request. NoAnswer: the answer is too late. EngineGone: the connection has ended.
        """
        answers: list[Answer | KnownError] = []
        number = self.post(verb, answers.append)
        if timeout_s is None:
            self.listen_while_alive(lambda: answers, on_news=on_news)
        elif not self.listen_until(lambda: answers, timeout_s, on_news=on_news):
            self._awaited.pop(number, None)
            raise NoAnswer(f"the engine did not answer within {timeout_s:g} s", hint="it may be busy; try again")
        if isinstance(answers[0], KnownError):
            raise answers[0]
        return answers[0]

    # ------------------------------------------------------------------------------------------------- receiving messages

    def listen_until(
        self,
        is_over: Callable[[], object],
        timeout_s: float | None = None,
        *,
        on_news: Callable[[NoticeLine], object] | None = None,
    ) -> bool:
        """Receive messages of the engine until `is_over` returns true; return False if the timeout passed first.

        `on_news` receives notices; without `on_news`, notices are stored for `next_news`.

        Raises:
            EngineGone: the connection has ended.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_over():
            if not self._listen(deadline):
                return False
            while on_news is not None and self._unread_notices:
                on_news(self._unread_notices.popleft())
        return True

    def listen_while_alive(self, is_over: Callable[[], object], *, on_news: Callable[[NoticeLine], object] | None = None) -> None:
        """Receive messages of the engine until `is_over` returns true; ping a silent engine, because it may be suspended.

        Raises:
            NoAnswer: the engine does not answer a ping. EngineGone: the connection has ended.
        """
        while not self.listen_until(is_over, _SILENCE_S, on_news=on_news):
            pongs: list[Answer | KnownError] = []
            self.post(PingEngine(), pongs.append)
            if not self.listen_until(lambda: pongs or is_over(), _SILENCE_S, on_news=on_news):  # noqa: B023  # the lambda is called only during this iteration
                what = f"the engine (process {self.hello.pid}) has not answered for {_SILENCE_S:g} s"
                raise NoAnswer(what, hint="it hangs or was suspended; 'aptui ps' lists it")

    def next_news(self, timeout_s: float | None = None) -> NoticeLine | None:
        """Return the next notice, or None after the timeout. Without a timeout, wait until a notice arrives.

        Raises:
            EngineGone: the connection has ended, and all notices were returned.
        """
        return self._unread_notices.popleft() if self.listen_until(lambda: self._unread_notices, timeout_s) else None

    def news(self, timeout_s: float | None = None) -> list[NoticeLine]:
        """Return all received notices, or [] after the timeout. Without a timeout, wait until a notice arrives.

        Raises:
            EngineGone: the connection has ended, and all notices were returned.
        """
        self.listen_until(lambda: self._unread_notices, timeout_s)
        news = list(self._unread_notices)
        self._unread_notices.clear()
        return news

    def fileno(self) -> int:
        """Return the socket's descriptor, so that a caller can wait until the engine has sent something."""
        return self._channel.fileno()

    def _listen(self, deadline: float | None) -> bool:
        """Wait for messages and receive them; return whether a message arrived before the deadline.

        Raises:
            EngineGone: the connection has ended.
        """
        if self._end is not None:
            raise self._end
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        if not poll.poll(None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000):
            return False
        try:
            data = self._channel.recv(_RECEIVE_BYTES)
        except OSError:
            data = b""
        try:
            for line in self._lines.feed(data):
                self._pass_on(codec.decode_message(line))
        except (codec.MalformedLine, codec.LineTooLong) as error:
            self._end_reason = EngineGone(f"the engine sent an invalid message: {error or 'a line without end'}")
            data = b""
        if not data:
            self._finish(EngineGone("the connection to the engine has ended"))
        return True

    def _pass_on(self, message: AnswerLine | RefusalLine | NoticeLine | NoticeLines | None) -> None:
        """Store notices for `next_news`, and pass answers and refusals to the callers that await them."""
        match message:
            case NoticeLine():
                self._unread_notices.append(message)
            case NoticeLines():
                self._unread_notices.extend(message.all)
            case AnswerLine():
                self._hand_over(message.number, message.answer)
            case RefusalLine(number=0):
                self._end_reason = _refusal_of(message)
            case RefusalLine():
                self._hand_over(message.number, _refusal_of(message))

    def _hand_over(self, number: int, answer: Answer | KnownError) -> None:
        then = self._awaited.pop(number, None)
        if then is not None:
            then(answer)

    # --------------------------------------------------------------------------------------------- closing the connection

    def hang_up(self) -> None:
        """End the connection. Any thread may call this; the reading thread then finds the connection ended."""
        with self._writing:
            self._shut_down()

    def close(self) -> None:
        """Close the connection; pending requests get `EngineGone` as their answer."""
        self._finish(EngineGone("the connection to the engine is closed"))
        self._channel.close()

    def _finish(self, end: KnownError) -> None:
        with self._writing:
            if self._end is not None:
                return
            self._end = EngineGone(self._end_reason.what, hint=self._end_reason.hint) if self._end_reason else end
            self._shut_down()
            awaited, self._awaited = self._awaited, {}
        for then in awaited.values():
            then(self._end_reason or self._end)

    def _shut_down(self) -> None:
        try:
            self._channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the socket is already shut down

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refusal_of(line: RefusalLine) -> RequestRefused:
    return _FAMILIES.get(line.code, _Troubled)(line.what, hint=line.hint)


def _as_refused(path: str, error: OSError) -> HostError:
    if isinstance(error, (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)):
        return NoEngine(f"no engine listens at '{path}'", hint="start an engine with 'aptui start'")
    if isinstance(error, BlockingIOError):
        return EngineGone(
            f"the engine at '{path}' does not accept connections", hint="it hangs or was suspended; 'aptui ps' lists it"
        )
    has_none_left = error.errno in (errno.EMFILE, errno.ENFILE)
    hint = (
        "this process has as many open files as 'ulimit -n' allows; raise that limit" if has_none_left else "check its permissions"
    )
    return HostError(f"socket '{path}' cannot be reached: {error.strerror or error}", hint=hint)

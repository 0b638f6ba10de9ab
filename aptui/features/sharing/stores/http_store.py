"""Shared results on an HTTP server in the layout of other build caches: GET, HEAD and PUT of `ac/<key>` and `cas/<digest>`.

A server is not believed: what it sends is read no further than it may be long, never unpacked, and no operation takes longer than
its limit, however slowly bytes trickle in. Redirects are not followed.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from aptui.features.sharing.records.record import is_name
from aptui.features.sharing.records.seal import MAX_RECORD_BYTES, TRUSTED
from aptui.features.sharing.stores.folder_store import prefix_of
from aptui.features.sharing.stores.streams import CHUNK_BYTES, name_errors, read_verified, write_verified
from aptui.shared.connections.addresses import is_loopback
from aptui.shared.errors import UserError
from aptui.shared.result_store import Mismatch, StoreError, StoreFull, StoreRefused

SLOWEST_BYTES_PER_S = 1 << 20
"""A transfer may take the limit of an operation, and as much longer as its bytes would need at this rate."""
_STALL_S = 5.0
_IDLE_CONNECTIONS = 8
_SENT_AT_ONCE = 64 * 1024
_Buffer = TypeVar("_Buffer", bytearray, memoryview)


_SMALL_RECORD_BYTES = 256 << 10
"""Records have some hundred bytes, or a hundred for each product."""
_one_large = threading.Lock()


class HttpStore:
    """A server as a store.

    Args:
        address: `http://…` or `https://…`; a user and password in it are sent as Basic authentication and told to nobody.
        namespace: whose results.
        token: sent as Bearer authentication.
        limit_s: how long an operation may take, besides the time for its bytes.
        context: how TLS is spoken; the system's certificates by default.
    """

    def __init__(
        self,
        address: str,
        namespace: str = TRUSTED,
        *,
        token: str = "",
        limit_s: float = 5.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        url = urlsplit(address)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise UserError(f"'{address}' is no address of a server", hint="http://<host>[:<port>]/<path>")
        if (token or url.username) and url.scheme == "http" and not is_loopback(url.hostname):
            raise UserError(
                f"the token for '{url.hostname}' would travel over http, where everybody on the way reads it",
                hint="use https://, or do without a token",
            )
        self._host, self._port = url.hostname, url.port
        self._is_safe, self._context = url.scheme == "https", context
        self._path = f"{url.path.rstrip('/')}/{prefix_of(namespace)}"
        self._limit_s = limit_s
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "aptui"} | _authority(url.username, url.password, token)
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        self.address = f"{url.scheme}://{host}{f':{url.port}' if url.port else ''}{url.path.rstrip('/')}"
        self._idle: deque[_Connection] = deque()

    def get_record(self, key: str) -> bytes | None:
        """Return the bytes at `/ac/<key>`, None when there are none."""
        with self._answer("GET", "ac", key) as answer:
            if answer.status == 404:
                return None
            data = answer.read(_SMALL_RECORD_BYTES)
            if len(data) == _SMALL_RECORD_BYTES:
                data += self._rest(answer)
            _expect_whole(answer, len(data))
            return data

    def _rest(self, answer: http.client.HTTPResponse) -> bytes:
        """Read the rest of a large record, one for all lookups at a time: an endless answer must not fill memory forty times."""
        if not _one_large.acquire(timeout=self._limit_s):
            raise StoreError("other large records take too long", where=self.address)
        try:
            return answer.read(MAX_RECORD_BYTES + 1 - _SMALL_RECORD_BYTES)
        finally:
            _one_large.release()

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """Publish a record; where a server ignores `If-None-Match`, asking first leaves a small window."""
        if if_absent and self._has("ac", key):
            return False
        headers = {"Content-Length": str(len(data))} | ({"If-None-Match": "*"} if if_absent else {})
        with self._answer("PUT", "ac", key, headers, [data], len(data)) as answer:
            return answer.status != 412

    def get_blob(self, digest: str, target: str, size: int) -> bool:
        """Fetch `/cas/<digest>` into `target`, verified."""
        with self._answer("GET", "cas", digest, size=size) as answer:
            if answer.status == 404:
                return False
            with name_errors(target):
                write_verified(_chunks(answer), target, digest, size)
            return True

    def has_blobs(self, digests: Iterable[str]) -> set[str]:
        """Return which of these the server says that it has."""
        return {digest for digest in digests if self._has("cas", digest)}

    def put_blob(self, digest: str, source: str, *, replaces: bool = False) -> None:
        """Send a file; its last bytes go out only when all of them are what they should be."""
        if not replaces and self._has("cas", digest):
            return
        with name_errors(source):
            size = os.stat(source).st_size
        with self._answer("PUT", "cas", digest, {"Content-Length": str(size)}, read_verified(source, digest), size):
            return

    def close(self) -> None:
        """Close what is connected."""
        while self._idle:
            self._idle.pop().close()

    def _has(self, kind: str, name: str) -> bool:
        with self._answer("HEAD", kind, name) as answer:
            return answer.status != 404

    @contextlib.contextmanager
    def _answer(
        self, method: str, kind: str, name: str, headers: dict[str, str] | None = None, body: Iterable[bytes] = (), size: int = 0
    ) -> Iterator[http.client.HTTPResponse]:
        """Ask; the connection is used again only if the answer was read to its end."""
        if not is_name(name):
            raise Mismatch(f"'{name[:80]}' names nothing in a store")
        deadline = time.monotonic() + self._limit_s + size / SLOWEST_BYTES_PER_S
        connection: _Connection | None = None
        answer: http.client.HTTPResponse | None = None
        try:
            connection, answer = self._exchange(method, f"{self._path}{kind}/{name}", headers or {}, body, deadline)
            self._check_answer(answer, method)
            yield answer
            if answer.status in {404, 412} or method in {"HEAD", "PUT"}:
                answer.read(_SENT_AT_ONCE)  # what an error page says
            if answer.isclosed() and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                connection = None
        except (http.client.HTTPException, ValueError) as error:
            raise StoreError(f"the server does not speak HTTP: {type(error).__name__} {error}", where=self.address) from error
        except OSError as error:
            raise StoreError(f"the server cannot be reached: {error}", where=self.address) from error
        finally:
            if answer is not None:
                answer.close()
            if connection is not None:
                connection.close()

    def _exchange(
        self, method: str, path: str, headers: dict[str, str], body: Iterable[bytes], deadline: float
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        """Send a request and read the head of its answer; a connection that the server closed meanwhile is replaced once.

        A body that can be read only once is sent on a connection that was just looked at.
        """
        while True:
            connection = self._connection(deadline)
            is_used = connection.is_used
            try:
                connection.ask(method, path, self._headers | headers, body)
                return connection, connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError):
                connection.close()
                if not is_used or body:
                    raise
            except BaseException:
                connection.close()
                raise

    def _connection(self, deadline: float) -> _Connection:
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if connection.is_quiet():
                    connection.deadline, connection.is_used = deadline, True
                    return connection
                connection.close()
        return _Connection(self._host, self._port, self._context if self._is_safe else None, deadline, is_safe=self._is_safe)

    def _check_answer(self, answer: http.client.HTTPResponse, method: str) -> None:
        status = answer.status
        if answer.getheader("Content-Encoding", "identity") != "identity":
            raise Mismatch("the server packs what it sends, though it was asked not to", where=self.address)
        if status in {404, 412} and not (status == 404 and method == "PUT"):
            return
        if status in {401, 403, 405, 501}:
            raise StoreRefused(f"the server refuses: {status} {answer.reason}", where=self.address)
        if status in {413, 507}:
            raise StoreFull(f"the server is full: {status} {answer.reason}", where=self.address)
        if status == 409:
            raise StoreError(
                "the server needs its folders to be created first",
                where=self.address,
                hint=f"make '{self._path}ac' and '…/cas' there",
            )
        if status != 200 and not (method == "PUT" and status in {201, 202, 204}):
            raise StoreError(f"the server answers {status} {answer.reason}", where=self.address)


class _Connection(http.client.HTTPConnection):
    """A connection with one deadline for whatever is asked next, TLS or not."""

    def __init__(self, host: str, port: int | None, context: ssl.SSLContext | None, deadline: float, *, is_safe: bool) -> None:
        super().__init__(host, port or (443 if is_safe else 80))
        self.deadline, self.is_used = deadline, False
        self._safe_context = (context or ssl.create_default_context()) if is_safe else None
        self.response_class = self._response  # type: ignore[assignment]  # a class and a function are called alike

    def connect(self) -> None:
        """Connect within the time that is left."""
        self.timeout = _time_left(self.deadline)
        super().connect()
        if self._safe_context is not None:
            self.sock.settimeout(_time_left(self.deadline))
            self.sock = self._safe_context.wrap_socket(self.sock, server_hostname=self.host)

    def ask(self, method: str, path: str, headers: dict[str, str], body: Iterable[bytes]) -> None:
        """Send a whole request."""
        self.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            self.putheader(name, value)
        self.endheaders()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has answered already: that it wants no more
            for chunk in body:
                self._send_slowly(chunk)

    def _send_slowly(self, chunk: bytes) -> None:
        for start in range(0, len(chunk), _SENT_AT_ONCE):
            self.sock.settimeout(_time_left(self.deadline))
            self.sock.sendall(memoryview(chunk)[start : start + _SENT_AT_ONCE])

    def is_quiet(self) -> bool:
        """Return whether the other end has neither said anything unasked nor hung up."""
        try:
            self.sock.settimeout(0)
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except (OSError, AttributeError):
            pass
        return False

    def _response(self, sock: socket.socket, *args: object, **kwargs: object) -> http.client.HTTPResponse:
        answer = http.client.HTTPResponse(sock, *args, **kwargs)  # type: ignore[arg-type]  # what HTTPConnection passes on
        answer.fp = io.BufferedReader(_Timed(sock, self, answer.fp), _SENT_AT_ONCE)
        return answer


class _Timed(io.RawIOBase):
    """Reads a socket until the deadline of its connection, however often a byte arrives.

    `held` keeps the socket open where the connection is closed before the answer is read: `Connection: close`.
    """

    def __init__(self, sock: socket.socket, connection: _Connection, held: io.BufferedIOBase) -> None:
        self._sock, self._connection, self._held = sock, connection, held

    def close(self) -> None:
        """Let go of the socket."""
        self._held.close()
        super().close()

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: _Buffer) -> int:  # type: ignore[override]  # typeshed's WriteableBuffer has no name at run time
        """Read what is there, waiting no longer than may be."""
        self._sock.settimeout(_time_left(self._connection.deadline))
        return self._sock.recv_into(buffer)


def _time_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it took too long")
    return min(left, _STALL_S)


def _chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield what comes; trouble of the connection is told from trouble with the file that it is written to."""
    try:
        while chunk := answer.read(CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise StoreError(f"the server broke off its answer: {error}") from error
    _expect_whole(answer, 0)


def _expect_whole(answer: http.client.HTTPResponse, got: int) -> None:
    """Refuse an answer that broke off: `length` is what should still come."""
    if answer.length and got <= MAX_RECORD_BYTES:
        raise StoreError("the server broke off its answer")


def _authority(user: str | None, password: str | None, token: str) -> dict[str, str]:
    if token:
        return {"Authorization": f"Bearer {token}"}
    if user is None:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}

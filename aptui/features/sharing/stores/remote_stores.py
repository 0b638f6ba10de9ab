"""Shared results on servers: over HTTP in the layout of other build caches, and in object stores.

Over HTTP, results are read and written by GET, HEAD and PUT of `ac/<key>` and `cas/<digest>`.

The server is not trusted: answers have a maximum length, are not decompressed, and each operation has a timeout, even if bytes
trickle in. Redirects are not followed.
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
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from aptui.features.sharing.record import MAX_RECORD_BYTES, TRUSTED, validate_name
from aptui.features.sharing.stores.folder_store import prefix_of
from aptui.features.sharing.stores.placing import CHUNK_BYTES, name_errors, read_verified, write_verified
from aptui.shared.connections.addresses import is_loopback, url_host
from aptui.shared.errors import UserError, install_advice
from aptui.shared.result_store import Mismatch, StoreError, StoreFull, StoreRefused

SLOWEST_BYTES_PER_S = 1 << 20
"""Minimum rate of a transfer (bytes per second).

The timeout of a transfer is the timeout of an operation plus the time for the bytes at this rate.
"""
_STALL_S = 5.0
"""Timeout of a single read or write on a connection, in seconds."""
_IDLE_CONNECTIONS = 8
"""Maximum number of open connections without a request."""
_SENT_AT_ONCE = 64 * 1024
"""Maximum number of bytes of a single write to a connection."""
_TOKEN_HINTS = {
    401: "set APTUI_CACHE_TOKEN to a token of the server",
    403: "use a token that allows this, or set 'shared_cache.mode' to 'client' to read only",
}
"""{status of an answer: what the user can do about it}."""
_Buffer = TypeVar("_Buffer", bytearray, memoryview)


_SMALL_RECORD_BYTES = 256 << 10
"""Maximum size (bytes) of a small record. A record has some hundred bytes, and about a hundred bytes more per product."""
_large_record_lock = threading.Lock()


class HttpStore:
    """A server as a store.

    Args:
        address: `http://…` or `https://…`; user and password in it are sent as Basic authentication and never printed.
        token: sent as Bearer authentication.
        limit_s: timeout (seconds) of an operation; the time for its bytes at `SLOWEST_BYTES_PER_S` is added.
        context: TLS context; by default the system's certificates.
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
            raise UserError(f"'{address}' is not an address of a server", hint="write http://<host>[:<port>]/<path>")
        if (token or url.username) and url.scheme == "http" and not is_loopback(url.hostname):
            raise UserError(
                f"the token for '{url.hostname}' would be sent unencrypted over http",
                hint="use https://, or remove the token",
            )
        self._host, self._port = url.hostname, url.port
        self._is_safe, self._context = url.scheme == "https", context
        self._path = f"{url.path.rstrip('/')}/{prefix_of(namespace)}"
        self._limit_s = limit_s
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "aptui"} | _authority(url.username, url.password, token)
        port = f":{url.port}" if url.port else ""
        self.address = f"{url.scheme}://{url_host(url.hostname)}{port}{url.path.rstrip('/')}"
        self._idle: deque[_Connection] = deque()

    def get_record(self, key: str) -> bytes | None:
        """Return the record at `/ac/<key>`, or None if the record does not exist."""
        with self._answer("GET", "ac", key) as answer:
            if answer.status == 404:
                return None
            data = answer.read(_SMALL_RECORD_BYTES)
            if len(data) == _SMALL_RECORD_BYTES:
                data += self._read_large(answer)
            _expect_whole(answer, len(data))
            return data

    def _read_large(self, answer: http.client.HTTPResponse) -> bytes:
        """Return the bytes of a large record after its first `_SMALL_RECORD_BYTES` bytes.

        Only one thread at a time reads a large record, so that several very long answers do not fill the memory.
        """
        if not _large_record_lock.acquire(timeout=self._limit_s):
            raise StoreError("timeout while waiting until another large record was read", where=self.address)
        try:
            return answer.read(MAX_RECORD_BYTES + 1 - _SMALL_RECORD_BYTES)
        finally:
            _large_record_lock.release()

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """Publish a record.

        With `if_absent`, check first whether the record exists. If the server ignores `If-None-Match`, another writer may publish a
        record between this check and the upload.
        """
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
        """Return which of these blobs the server has."""
        return {digest for digest in digests if self._has("cas", digest)}

    def put_blob(self, digest: str, source: str, *, replaces: bool = False) -> None:
        """Send a file. The last bytes are sent only if the digest of all bytes is right."""
        if not replaces and self._has("cas", digest):
            return
        with name_errors(source):
            size = os.stat(source).st_size
        with self._answer("PUT", "cas", digest, {"Content-Length": str(size)}, read_verified(source, digest), size):
            return

    def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()

    def _has(self, kind: str, name: str) -> bool:
        with self._answer("HEAD", kind, name) as answer:
            return answer.status != 404

    @contextlib.contextmanager
    def _answer(
        self, method: str, kind: str, name: str, headers: dict[str, str] | None = None, body: Iterable[bytes] = (), size: int = 0
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request; the connection is used again only if the answer was read to its end."""
        path = f"{self._path}{kind}/{validate_name(name)}"
        deadline = time.monotonic() + self._limit_s + size / SLOWEST_BYTES_PER_S
        connection: _Connection | None = None
        answer: http.client.HTTPResponse | None = None
        try:
            connection, answer = self._exchange(method, path, headers or {}, body, deadline)
            self._check_answer(answer, method)
            yield answer
            if answer.status in {404, 412} or method in {"HEAD", "PUT"}:
                answer.read(_SENT_AT_ONCE)  # the connection can be used again only after the whole answer was read
            if answer.isclosed() and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                connection = None
        except ssl.SSLCertVerificationError as error:
            raise StoreError(
                f"the certificate of the server is not valid: {error.verify_message}",
                where=self.address,
                hint="if your team has a certificate authority of its own, set SSL_CERT_FILE to its certificate",
            ) from error
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
        """Send a request and read the head of its answer; if the server has closed the connection, open a new one once.

        A request with a body is sent only on a connection that was just checked, because the body cannot be read again for a second
        attempt.
        """
        while True:
            connection = self._connection(deadline)
            is_used = connection.is_used
            try:
                connection.send_request(method, path, self._headers | headers, body)
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
            raise Mismatch("the server compresses its answers, although the client does not allow it", where=self.address)
        if status in {404, 412} and not (status == 404 and method == "PUT"):
            return
        if status in {401, 403, 405, 501}:
            what = f"the server refused to {'store a result' if method == 'PUT' else 'answer'}: {status} {answer.reason}"
            raise StoreRefused(what, where=self.address, hint=_TOKEN_HINTS.get(status, ""))
        if status in {413, 507}:
            raise StoreFull(f"the disk of the server is full: {status} {answer.reason}", where=self.address)
        if status == 409:
            raise StoreError(
                "the server cannot store files, because their folders do not exist",
                where=self.address,
                hint=f"create the folders '{self._path}ac' and '{self._path}cas' on the server",
            )
        if status != 200 and not (method == "PUT" and status in {201, 202, 204}):
            raise StoreError(f"the server answered {status} {answer.reason}", where=self.address)


class _Connection(http.client.HTTPConnection):
    """A connection to a server, with or without TLS. Each request has one deadline for all its steps."""

    def __init__(self, host: str, port: int | None, context: ssl.SSLContext | None, deadline: float, *, is_safe: bool) -> None:
        super().__init__(host, port or (443 if is_safe else 80))
        self.deadline, self.is_used = deadline, False
        self._safe_context = (context or ssl.create_default_context()) if is_safe else None
        self.response_class = self._response  # type: ignore[assignment]  # http.client only calls it

    def connect(self) -> None:
        """Connect before the deadline."""
        self.timeout = _time_left(self.deadline)
        super().connect()
        if self._safe_context is not None:
            self.sock.settimeout(_time_left(self.deadline))
            self.sock = self._safe_context.wrap_socket(self.sock, server_hostname=self.host)

    def send_request(self, method: str, path: str, headers: dict[str, str], body: Iterable[bytes]) -> None:
        """Send a request with its body."""
        self.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            self.putheader(name, value)
        self.endheaders()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server may answer before it has read the whole body
            for chunk in body:
                self._send_slowly(chunk)

    def _send_slowly(self, chunk: bytes) -> None:
        for start in range(0, len(chunk), _SENT_AT_ONCE):
            self.sock.settimeout(_time_left(self.deadline))
            self.sock.sendall(memoryview(chunk)[start : start + _SENT_AT_ONCE])

    def is_quiet(self) -> bool:
        """Whether the connection can be used again: the server has neither closed the connection nor sent unrequested data."""
        try:
            self.sock.settimeout(0)
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except (OSError, AttributeError):
            pass
        return False

    def _response(self, sock: socket.socket, *args: object, **kwargs: object) -> http.client.HTTPResponse:
        answer = http.client.HTTPResponse(sock, *args, **kwargs)  # type: ignore[arg-type]  # as HTTPConnection calls it
        answer.fp = _AnswerReader(_Timed(sock, self, answer.fp), _SENT_AT_ONCE)
        return answer


class _AnswerReader(io.BufferedReader):
    """Reads an answer in pieces of known length, because an answer may be endless."""

    def read(self, size: int | None = -1) -> bytes:
        """Return the next `size` bytes.

        Raises:
            ValueError: `size` is negative. `http.client` calls `read` so for a chunk whose declared length is negative.
        """
        if size is None or size < 0:
            raise ValueError("a chunk of the answer has a negative length")
        return super().read(size)


class _Timed(io.RawIOBase):
    """Reads a socket until the deadline of its connection. Single bytes that trickle in do not extend the deadline.

    Args:
        held: the reader that `http.client` created for the answer. It is kept, because closing it would close the socket:
            with `Connection: close`, the connection is closed before the answer is read.
    """

    def __init__(self, sock: socket.socket, connection: _Connection, held: io.BufferedIOBase) -> None:
        self._sock, self._connection, self._held = sock, connection, held

    def close(self) -> None:
        """Release the socket."""
        self._held.close()
        super().close()

    def readable(self) -> bool:
        """Return True; `io.BufferedReader` requires it."""
        return True

    def readinto(self, buffer: _Buffer) -> int:  # type: ignore[override]  # typeshed's WriteableBuffer has no name at run time
        """Read the available bytes before the deadline."""
        self._sock.settimeout(_time_left(self._connection.deadline))
        return self._sock.recv_into(buffer)


def _time_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the server took too long")
    return min(left, _STALL_S)


def _chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the bytes of an answer. Convert errors of the connection, so that they differ from errors of the target file."""
    try:
        while chunk := answer.read(CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise StoreError(f"the server ended its answer too early: {error}") from error
    _expect_whole(answer, 0)


def _expect_whole(answer: http.client.HTTPResponse, got: int) -> None:
    """Raise StoreError if the answer is incomplete; `answer.length` is the number of bytes that were not received."""
    if answer.length and got <= MAX_RECORD_BYTES:
        raise StoreError("the server ended its answer too early")


def _authority(user: str | None, password: str | None, token: str) -> dict[str, str]:
    if token:
        return {"Authorization": f"Bearer {token}"}
    if user is None:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}


# Stores shared results in an object store (S3 and compatible stores, Google, Azure). The library obstore, which is imported on
# first use, calls the object store.
#
# obstore reads the credentials and the region from the same places as the provider's own tools. It reads the whole body of an error
# answer, and has no option that limits the body: only the timeout of the request ends an endless body.


class ObjectStore:
    """A bucket, or a folder in it, as a store.

    Args:
        address: `s3://<bucket>[/<path>]` or another scheme.
        limit_s: timeout of one request.
        options: further arguments of `obstore.store.from_url`: endpoint, region, credentials.
    """

    def __init__(
        self, address: str, namespace: str = TRUSTED, *, limit_s: float = 30.0, options: Mapping[str, Any] | None = None
    ) -> None:
        self.address = address
        self._prefix = prefix_of(namespace)
        try:
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        except ImportError:
            raise UserError("object stores need the package 'obstore'", where=address, hint=install_advice("s3")) from None
        timeout = timedelta(seconds=limit_s)
        shared: dict[str, Any] = dict(options or {})
        if not address.startswith("memory:"):
            shared = {
                "client_options": {"timeout": timeout, "connect_timeout": timeout, **_http_option()}
                | shared.pop("client_options", {}),
                "retry_config": {"max_retries": 1, "retry_timeout": timeout},
            } | shared
        try:
            self._store: Any = from_url(address, **shared)
        except (BaseError, ValueError, TypeError) as error:
            raise UserError(f"the object store cannot be used: {_first_line(error)}", where=address) from None

    def get_record(self, key: str) -> bytes | None:
        """Return the record at `key`, or None if the record does not exist."""
        with self._name_errors():
            try:
                answer = self._store.get(self._name("ac", key))
            except FileNotFoundError:
                return None
            data = bytearray()
            for chunk in answer.stream():  # the server is not trusted, so its answer may be longer than `answer.meta` says
                data += chunk
                if len(data) > MAX_RECORD_BYTES:
                    raise Mismatch("the record is too long", where=self.address)
            return bytes(data)

    def put_record(self, key: str, data: bytes, *, if_absent: bool = True) -> bool:
        """Publish a record; the store ensures that the first writer wins."""
        from obstore.exceptions import AlreadyExistsError

        with self._name_errors():
            try:
                self._store.put(self._name("ac", key), data, mode="create" if if_absent else "overwrite", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def get_blob(self, digest: str, target: str, size: int) -> bool:
        """Fetch a blob into `target`, verified."""
        with self._name_errors():
            try:
                answer = self._store.get(self._name("cas", digest))
            except FileNotFoundError:
                return False
            with name_errors(target):
                write_verified((bytes(chunk) for chunk in answer.stream()), target, digest, size)
            return True

    def has_blobs(self, digests: Iterable[str]) -> set[str]:
        """Return which of these blobs exist."""
        return {digest for digest in digests if self._has(digest)}

    def put_blob(self, digest: str, source: str, *, replaces: bool = False) -> None:
        """Send a file, verified while it is read; an incomplete upload publishes nothing."""
        if not replaces and self._has(digest):
            return
        with self._name_errors():
            self._store.put(self._name("cas", digest), read_verified(source, digest))

    def close(self) -> None:
        """Do nothing: obstore releases its resources."""

    def _has(self, digest: str) -> bool:
        with self._name_errors():
            try:
                self._store.head(self._name("cas", digest))
            except FileNotFoundError:
                return False
            return True

    def _name(self, kind: str, name: str) -> str:
        return f"{self._prefix}{kind}/{validate_name(name)}"

    @contextlib.contextmanager
    def _name_errors(self) -> Iterator[None]:
        """Convert errors of obstore to errors of a store."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise StoreRefused(_first_line(error), where=self.address) from None
        except (BaseError, OSError, ValueError) as error:
            raise StoreError(f"the object store reports an error: {_reason(error)}", where=self.address) from None


def _reason(error: BaseException) -> str:
    text = _first_line(error)
    if "http://" in text and text.endswith("builder error") and not _http_option():  # obstore does not name the cause
        return "its endpoint is http://, without TLS; use https://, or set AWS_ALLOW_HTTP=true"
    return text


def _http_option() -> dict[str, bool]:
    """Return the client option that allows HTTP without TLS if the environment allows it.

    Without client options, obstore itself would read the environment.
    """
    return {"allow_http": True} if os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"1", "true"} else {}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]

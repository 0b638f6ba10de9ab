"""`aptui cache serve`: this machine's store over HTTP, in the layout of other build caches.

Paths are `/[ns/<namespace>/]ac/<key>` and `/cas/<digest>`. A file's name is always 64 hex digits, so that no path from a client is
used on the disk. Blobs are checked while they arrive and published completely or not at all. The server does not parse records; the
clients check the seals of the records that they fetch. Only clients with a token may write; each token writes to one namespace.
`shared.connections.http_sockets` limits the number of connections, and the time that a slow client may take.

Tests: `tests/features/sharing/test_cache_server.py`, `tests/features/sharing/test_slow_clients.py`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import hashlib
import hmac
import os
import re
import ssl
import stat
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from aptui.features.sharing.record import MAX_RECORD_BYTES, TRUSTED
from aptui.features.sharing.stores import local, placing
from aptui.features.sharing.stores.folder_store import FolderStore
from aptui.features.sharing.stores.placing import CHUNK_BYTES, write_all
from aptui.shared.connections.addresses import is_loopback
from aptui.shared.connections.http_sockets import (
    HANDSHAKE_LIMIT_S,
    HttpSocket,
    LimitedServer,
    SocketLimits,
    bind,
    load_tls,
    refuse_invalid_dates,
)
from aptui.shared.errors import UserError
from aptui.shared.result_store import StoreError

_PATH = re.compile("/(?:ns/(?P<namespace>[a-z0-9][a-z0-9._-]{0,63})/)?(?P<kind>ac|cas)/(?P<name>[0-9a-f]{64})")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_IDLE_S = 75.0
"""Timeout of a connection between two requests, in seconds."""
_LINGERS_S = 5.0
"""Time (seconds) for which the server reads and drops the rest of a refused upload, so that the client receives the answer."""
_SHARE = 0.5
"""Maximum share of the server's connections that uploads with the same token may use."""
_SLOWEST_BYTES_PER_S = 64 * 1024
"""Minimum rate of a transfer (bytes per second). The timeout of a transfer is its size divided by this rate, plus `timeout_s`."""


@dataclass(frozen=True, slots=True)
class CacheServer:
    """Settings of the server.

    Args:
        host: an address of this machine. Addresses other than the loopback need tokens, and TLS unless `is_plain` (then a proxy
            provides TLS).
        read_tokens: tokens that may read, in addition to the write tokens. Without read tokens, every client of a server on the
            loopback may read.
        write_tokens: {token: the namespace that it may write}; empty = no client may write, unless `is_writable`.
        is_writable: all clients may write to the trusted namespace; allowed on the loopback only.
        max_blob_bytes: maximum size of an upload.
        timeout_s: maximum time for a request's headers, and the additional time of a slow transfer.
        limit_bytes: size limit of the store, 0 = no limit.
    """

    root: str
    host: str = "127.0.0.1"
    port: int = 8089
    read_tokens: tuple[str, ...] = field(default=(), repr=False)
    write_tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_writable: bool = False
    certificate: str = ""
    private_key: str = ""
    is_plain: bool = False
    max_blob_bytes: int = 16 * 1024**3
    most_connections: int = 512
    timeout_s: float = 30.0
    limit_bytes: int = 0

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


def application(serving: CacheServer) -> web.Application:
    """Return the web application.

    Raises:
        UserError: clients without permission could use the server.
    """
    _check(serving)
    app = web.Application(handler_args={"keepalive_timeout": _IDLE_S, "lingering_time": _LINGERS_S})
    handler = _Handler(serving)
    app.router.add_route("*", "/{path:.*}", handler.answer)
    return app


def serve(
    serving: CacheServer, *, started: Callable[[str], None] = lambda _address: None, stop: Callable[[], bool] | None = None
) -> None:
    """Serve until interrupted, or until `stop` returns true; call `started` with the address.

    Raises:
        UserError: clients without permission could use the server, or the address cannot be used. BusyError: the port is taken.
    """
    app = application(serving)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(app, serving, started, stop))


async def _serve(
    app: web.Application, serving: CacheServer, started: Callable[[str], None], stop: Callable[[], bool] | None
) -> None:
    gate = _CacheSockets(serving.most_connections, serving.timeout_s)
    asyncio.get_running_loop().set_exception_handler(gate.reports.handle)
    options = {"context": _tls(serving), "handshake_s": min(HANDSHAKE_LIMIT_S, serving.timeout_s)}
    server = LimitedServer(app, gate, acceptor=options)
    lease = placing.Lease(serving.root)
    try:
        port = await server.open(bind(serving.host, serving.port, "--port"))
        started(f"{'https' if serving.certificate else 'http'}://{serving.host}:{port}")
        while stop is None or not stop():
            await asyncio.sleep(0.05 if stop else 3600)
    finally:
        await server.close()
        lease.close()


def _check(serving: CacheServer) -> None:
    if serving.is_loopback:
        return
    if not serving.read_tokens and not serving.write_tokens:
        raise UserError(
            f"other machines can reach '{serving.host}', so the server needs tokens for reading and writing",
            hint="add --read-token-file FILE and --write-token-file FILE",
        )
    if serving.is_writable:
        raise UserError(
            f"other machines can reach '{serving.host}', so '--writable' would let all of them write",
            hint="replace --writable by --write-token-file FILE",
        )
    if not serving.certificate and not serving.is_plain:
        raise UserError(
            f"other machines can reach '{serving.host}', so tokens would be sent unencrypted",
            hint="add --certificate FILE and --key FILE",
        )


def _tls(serving: CacheServer) -> ssl.SSLContext | None:
    if not serving.certificate:
        return None
    return load_tls(serving.certificate, serving.private_key or serving.certificate, "'--certificate'", "'--key'")


class _Handler:
    """Answers requests."""

    def __init__(self, serving: CacheServer) -> None:
        self._serving = serving
        self._busy: Counter[str] = Counter()

    @contextlib.contextmanager
    def _count_upload(self, request: web.Request) -> Iterator[None]:
        """Count an upload of a token during the `with` block.

        Uploads without a token are possible only from this machine; their number is not limited.

        Raises:
            web.HTTPServiceUnavailable: too many uploads with this token are running. The server may then close the connection to
            admit a new connection.
        """
        client = _token(request)
        if client and self._busy[client] >= max(1, int(self._serving.most_connections * _SHARE)):
            assert isinstance(request.protocol, _CacheSocket)
            request.protocol.note_refused()
            raise web.HTTPServiceUnavailable(text="too many uploads with this token are running\n", headers={"Retry-After": "5"})
        self._busy[client] += 1
        try:
            yield
        finally:
            self._busy[client] -= 1
            if not self._busy[client]:
                del self._busy[client]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        assert isinstance(request.protocol, _CacheSocket)
        request.protocol.note_request()
        match = _PATH.fullmatch(request.path)
        if match is None:
            return web.Response(status=404, text="this address does not exist")
        if not self._may_answer(request):
            return web.Response(status=421, text="the host name of this request is not a name of this server")
        namespace = match["namespace"] or TRUSTED
        if request.method in {"GET", "HEAD"}:
            return await self._send_entry(request, namespace, match["kind"], match["name"])
        if request.method == "PUT":
            return await self._receive(request, namespace, match["kind"], match["name"])
        return web.Response(status=405, headers={"Allow": "GET, HEAD, PUT"})

    def _may_answer(self, request: web.Request) -> bool:
        """Return whether a request may be answered: requests of web pages are refused.

        A web page can reach the loopback by DNS rebinding. So on the loopback, the request must name this machine as its host.
        """
        if request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"} or "Origin" in request.headers:
            return False
        try:
            name = (request.url.host or "").strip("[]")
        except ValueError:  # the header `Host` is invalid
            return False
        return not self._serving.is_loopback or name in {"localhost", "127.0.0.1", "::1", self._serving.host}

    async def _send_entry(self, request: web.Request, namespace: str, kind: str, name: str) -> web.StreamResponse:
        if not self._may_read(_token(request)):
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="aptui"'})
        refuse_invalid_dates(request)
        store = self._store(namespace)
        path = store.record_path(name) if kind == "ac" else store.blob_path(name)
        size = await asyncio.to_thread(_read_used_bytes, path)
        if size is None:
            return web.Response(status=404)
        return _File(path, self._serving.timeout_s + size / _SLOWEST_BYTES_PER_S)

    async def _receive(self, request: web.Request, namespace: str, kind: str, name: str) -> web.StreamResponse:
        refusal = self._refusal(request, namespace, kind)
        if refusal is not None:
            return refusal
        receive = self._receive_record if kind == "ac" else self._receive_blob
        try:
            with self._count_upload(request):
                return await receive(request, self._store(namespace), name)
        except TimeoutError:
            answer = web.Response(status=408, text="the upload is too slow")
            answer.force_close()
            return answer
        except OSError as error:
            return web.Response(status=507 if error.errno in _FULL else 500, text=error.strerror or "")
        except StoreError as error:
            return web.Response(status=500, text=str(error))

    def _refusal(self, request: web.Request, namespace: str, kind: str) -> web.Response | None:
        """Return a refusal before the body is read, None = the upload may start."""
        if not self._may_write(_token(request), namespace):
            return web.Response(status=403, text="this token may not write to this namespace")
        length = request.content_length
        if length is not None and length > (MAX_RECORD_BYTES if kind == "ac" else self._serving.max_blob_bytes):
            return web.Response(status=413)
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return web.Response(status=415, text="compressed uploads are not accepted")
        return None

    async def _receive_record(self, request: web.Request, store: FolderStore, name: str) -> web.StreamResponse:
        data = b"".join([chunk async for chunk in self._body(request, MAX_RECORD_BYTES)])
        if_absent = request.headers.get("If-None-Match") == "*"

        def put() -> bool:
            with placing.share_with_gc(self._serving.root):
                return store.put_record(name, data, if_absent=if_absent)

        return web.Response(status=201 if await asyncio.to_thread(put) else 412)

    async def _receive_blob(self, request: web.Request, store: FolderStore, name: str) -> web.StreamResponse:
        """Write the body of an upload to a temporary file, which becomes the blob if the digest of the bytes is right."""
        path, hasher = await asyncio.to_thread(store.temporary), hashlib.sha256()
        try:
            with await asyncio.to_thread(open, path, "xb", 0) as file:
                async for chunk in self._body(request, self._serving.max_blob_bytes):
                    hasher.update(chunk)
                    await asyncio.to_thread(write_all, file.fileno(), chunk)
            if hasher.hexdigest() != name:
                return web.Response(status=400, text="the bytes do not match the digest")
            await asyncio.to_thread(self._publish, path, store.blob_path(name))
            return web.Response(status=201)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)

    async def _body(self, request: web.Request, most_bytes: int) -> AsyncIterator[bytes]:
        """Yield the chunks of a request's body.

        Raises:
            web.HTTPRequestEntityTooLarge: the body is too long. TimeoutError: the body arrives too slowly.
        """
        began_s, size = asyncio.get_running_loop().time(), 0
        while True:
            async with asyncio.timeout_at(began_s + self._serving.timeout_s + size / _SLOWEST_BYTES_PER_S):
                chunk = await request.content.readany()
            if not chunk:
                return
            size += len(chunk)
            if size > most_bytes:
                raise web.HTTPRequestEntityTooLarge(most_bytes, size)
            yield chunk

    def _publish(self, written: str, path: str) -> None:
        placing.remember(written)
        placing.make_read_only(written)
        size = os.stat(written).st_size
        with placing.share_with_gc(self._serving.root):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(written, path)
        root, limit_bytes = self._serving.root, self._serving.limit_bytes
        if local.needs_cleanup(root, [size], limit_bytes):
            threading.Thread(target=local.gc, args=(root, limit_bytes), name="aptui-cache-cleanup", daemon=True).start()

    def _store(self, namespace: str) -> FolderStore:
        return FolderStore(self._serving.root, namespace, syncs=False)

    def _may_read(self, token: str) -> bool:
        tokens = self._serving.read_tokens
        return (not tokens and self._serving.is_loopback) or any(
            _is_same(token, known) for known in (*tokens, *self._serving.write_tokens)
        )

    def _may_write(self, token: str, namespace: str) -> bool:
        if self._serving.is_writable and self._serving.is_loopback and namespace == TRUSTED:
            return True
        return any(_is_same(token, known) and place == namespace for known, place in self._serving.write_tokens.items())


class _CacheSocket(HttpSocket):
    """A client's connection. The server may close it after refusing a request, even while the request's body still arrives."""

    __slots__ = ("_is_refused",)

    def __init__(self, *values: Any, **more: Any) -> None:
        super().__init__(*values, **more)
        self._is_refused = False

    def note_request(self) -> None:
        """Stop the header timeout, because a request's header is complete."""
        super().note_request()
        self._is_refused = False

    def note_refused(self) -> None:
        """Allow closing this connection to admit another connection.

        Called when the current request was refused before its body was read.
        """
        self._is_refused = True

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return super().is_busy and not self._is_refused


class _CacheSockets(SocketLimits):
    def make_socket(self, *values: Any, **more: Any) -> HttpSocket:
        return _CacheSocket(*values, limits=self, **more)


class _File(web.FileResponse):
    """An answer with a file; a transfer that exceeds the time limit is aborted."""

    def __init__(self, path: str, limit_s: float) -> None:
        super().__init__(path, chunk_size=CHUNK_BYTES, headers={"Content-Type": "application/octet-stream"})
        self._limit_s = limit_s

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the file."""
        try:
            async with asyncio.timeout(self._limit_s):
                return await super().prepare(request)
        except TimeoutError:
            if isinstance(request.protocol, _CacheSocket):
                request.protocol.drop()
            raise ConnectionResetError("the client read too slowly") from None


def _token(request: web.Request) -> str:
    """Return the token of a request: as bearer token, or as the password of Basic authentication, which all clients support."""
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):  # the value is not base64, or has bytes that are not text
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
    return ""


def _is_same(token: str, known: str) -> bool:
    # The tokens are compared as bytes, because a header may contain bytes that are not text.
    return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), known.encode("utf-8", "surrogateescape"))


def _read_used_bytes(path: str) -> int | None:
    """Return the size of a file and record the time of its use; None = the file does not exist or is a link."""
    try:
        state = os.stat(path, follow_symlinks=False)
        if not stat.S_ISREG(state.st_mode):
            return None
        os.utime(path, ns=(time.time_ns(), state.st_mtime_ns))
    except OSError:
        return None
    return state.st_size

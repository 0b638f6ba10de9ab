"""Forwarding for devices: a request or answer arrives complete and unchanged, or is refused. Raw bytes pass in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import threading
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from disk_project import Project
from msgspec.structs import replace

from aptui.features.gateway.access import guard
from aptui.features.gateway.access.guard import GUARD, ClientIdentity
from aptui.features.gateway.client import Client
from aptui.features.gateway.gateway_context import CONTEXT
from aptui.features.gateway.peers import proxy
from aptui.features.gateway.peers.proxy import PROXY, ProxyLimits, targets
from aptui.features.gateway.wire_codec import Scope
from aptui.features.gateway.ws.client_sessions import SESSIONS
from aptui.shared.errors import UserError
from tests.features.gateway.served import served

pytestmark = pytest.mark.real

READER = ClientIdentity("device", frozenset({Scope.READ}), "127.0.0.1")
LIMITS = ProxyLimits(connect_s=2.0, quiet_s=0.3, request_bytes=10_000, response_bytes=200_000, at_once=2, in_all=3)


class Service:
    """A server that returns configured answers and records requests."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer = web.Response
        self.gate = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.received.append((request.method, request.raw_path, dict(request.headers), b""))
        with contextlib.suppress(Exception):
            self.received[-1] = (*self.received[-1][:3], await request.read())
        answer = self.answer()
        return await answer if asyncio.iscoroutine(answer) else answer


class Harness:
    """A gateway whose only client is `READER`."""

    def __init__(self, port: int, service: Service, app: web.Application, http: aiohttp.ClientSession) -> None:
        self.url, self.service, self.app, self.http = f"http://127.0.0.1:{port}", service, app, http

    def ask(self, path: str, method: str = "GET", **more):
        headers = {"Authorization": "Bearer right", **more.pop("headers", {})}
        return self.http.request(
            method, aiohttp.client.URL(self.url + path, encoded=True), headers=headers, allow_redirects=False, **more
        )


@asynccontextmanager
async def serving(app: web.Application):
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def raw(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Simulates a shader compiler: answers each line with the length of the line, and ends at `quit`."""
    try:
        while (line := await reader.readline()) and line != b"quit\n":
            writer.write(b"%d\n" % len(line) + line)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def harness(limits: ProxyLimits = LIMITS, is_connected: bool = True):
    service = Service()
    upstream = web.Application(client_max_size=0)
    upstream.router.add_route("*", "/{rest:.*}", service.handle)
    compiler = await asyncio.start_server(raw, "127.0.0.1", 0)
    async with serving(upstream) as port, compiler:
        proxies = (
            ("tool", f"http://127.0.0.1:{port}/base/"),
            ("gone", "http://127.0.0.1:1"),
            ("compiler", f"tcp://127.0.0.1:{compiler.sockets[0].getsockname()[1]}"),
            ("deaf", "tcp://127.0.0.1:1"),
        )
        app = web.Application()
        tokens = SimpleNamespace(
            owner_of=lambda token: SimpleNamespace(name=READER.name, scopes=READER.scopes, digest="") if token == "right" else None
        )
        rules = guard.Guard(SimpleNamespace(origins=(), hosts=(), address="127.0.0.1", port=0), tokens, None)
        sessions = [SimpleNamespace(identity=READER)] if is_connected else []
        app[CONTEXT] = SimpleNamespace(config=SimpleNamespace(serve=SimpleNamespace(proxies=proxies)), guard=rules)
        app[GUARD], app[SESSIONS] = rules, sessions
        app.on_response_prepare.append(guard.mark_response)
        proxy.add_routes(app)
        app[PROXY].limits = limits
        async with serving(app) as gateway_port, aiohttp.ClientSession(auto_decompress=False) as http:
            yield Harness(gateway_port, service, app, http)


# ----------------------------------------------------------------------------------------------------------------- requests


async def test_request_is_forwarded_without_hop_by_hop_headers():
    async with harness() as there:
        headers = {
            "X-Mine": "1", "Connection": "keep-alive, X-Hop", "X-Hop": "2", "Cookie": "aptui-token=secret", "Origin": there.url,
            "X-Forwarded-For": "8.8.8.8", "TE": "trailers", "Content-Type": "application/octet-stream",
        }  # fmt: skip
        async with there.ask("/v1/proxy/tool/a%20b/c%2Bd?q=%2F&r", "POST", data=b"bytes", headers=headers) as reply:
            assert reply.status == 200
        method, path, received, body = there.service.received[0]
        assert (method, path, body) == ("POST", "/base/a%20b/c%2Bd?q=%2F&r", b"bytes")
        assert received["X-Mine"] == "1"
        assert received["X-Forwarded-For"] == "127.0.0.1"
        for name in ("X-Hop", "Cookie", "Origin", "Authorization", "TE"):
            assert name not in received


async def test_proxied_answer_keeps_no_cookies_or_cors_headers_of_the_service():
    async with harness() as there:
        there.service.answer = lambda: web.Response(
            status=418, body=b"\x1f\x8bzipped",
            headers={"Content-Encoding": "gzip", "X-Theirs": "1", "Set-Cookie": "aptui-token=x",
            "Content-Security-Policy": "default-src *",
                     "Access-Control-Allow-Origin": "*", "Connection": "X-Hop", "X-Hop": "2", "X-Frame-Options": "ALLOWALL",
                     "Clear-Site-Data": '"*"', "Refresh": "0; url=http://elsewhere/", "Alt-Svc": 'h2="elsewhere:443"'},
        )  # fmt: skip
        async with there.ask("/v1/proxy/tool/x") as reply:
            assert (reply.status, await reply.read(), reply.headers["X-Theirs"]) == (418, b"\x1f\x8bzipped", "1")
            assert reply.headers["Content-Encoding"] == "gzip"
            assert reply.headers["Content-Security-Policy"] == "sandbox"
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            assert reply.headers["X-Frame-Options"] == "DENY"
            for name in ("Set-Cookie", "Access-Control-Allow-Origin", "X-Hop", "Clear-Site-Data", "Refresh", "Alt-Svc"):
                assert name not in reply.headers
        async with there.ask("/v1/proxy/tool/x", "HEAD") as reply:
            assert (reply.status, await reply.read()) == (418, b"")


@pytest.mark.parametrize(
    ("more", "path", "status"),
    [
        ({"headers": {"Authorization": "Bearer wrong"}}, "tool/x", 401),
        ({}, "absent/x", 404),
        ({}, "gone/x", 502),
        ({}, "tool/../x", 400),
        ({}, "tool/a/%2e%2e/x", 400),
        ({}, "tool/%252e%252e/x", 400),
        ({}, "tool/%25252e%25252e/x", 400),
        ({}, "tool/%2525252e%2525252e/x", 400),
        ({}, f"tool/%{'25' * 9}41/x", 400),
        ({}, "tool/..;/x", 400),
        ({}, "tool/..;v=1/x", 400),
        ({}, "tool/%252e%252e%253bv/x", 400),
        ({}, "tool/a%5c..%5cx", 400),
        ({}, "tool/a%00x", 400),
        ({}, "tool/a%2f..%2fx", 400),
        ({}, "compiler", 426),
        ({"method": "POST", "data": b"x" * 10_001}, "tool/x", 413),
    ],
)
async def test_forbidden_request_is_not_forwarded(more, path, status):
    async with harness() as there:
        async with there.ask(f"/v1/proxy/{path}", **more) as reply:
            assert reply.status == status
        assert there.service.received == []


async def test_proxy_request_needs_an_open_websocket_of_the_same_client():
    async with harness(is_connected=False) as there:
        async with there.ask("/v1/proxy/tool/x") as reply:
            assert reply.status == 403
        there.app[SESSIONS].append(SimpleNamespace(identity=replace(READER, address="198.51.100.7")))
        async with there.ask("/v1/proxy/tool/x") as reply:
            assert reply.status == 403
        there.app[SESSIONS].append(SimpleNamespace(identity=READER))
        async with there.ask("/v1/proxy/tool/x") as reply:
            assert reply.status == 200


async def test_request_body_of_unknown_length_is_streamed_up_to_the_limit():
    async with harness() as there:

        async def pieces(count):
            for _ in range(count):
                yield b"x" * 1000

        async with there.ask("/v1/proxy/tool/x", "PUT", data=pieces(9)) as reply:
            assert reply.status == 200
        assert len(there.service.received[0][3]) == 9000
        async with there.ask("/v1/proxy/tool/x", "PUT", data=pieces(50)) as reply:
            assert reply.status == 413


async def test_redirect_to_another_host_is_not_followed():
    async with harness() as there:

        async def sent_to(place):
            there.service.answer = lambda: web.Response(status=302, headers={"Location": place})
            async with there.ask("/v1/proxy/tool/a/b") as reply:
                return reply.status, reply.headers.get("Location")

        base = f"http://127.0.0.1:{there.app[PROXY].known['tool'].port}"
        assert await sent_to("c?d") == (302, "/v1/proxy/tool/a/c?d")
        assert await sent_to(f"{base}/base/z") == (302, "/v1/proxy/tool/z")
        elsewhere = (
            "http://169.254.169.254/", "//evil.example/", "/outside", f"{base}/based", f"{base}@evil.example/", "http://[",
            "../../x",
            f"{base}/base/../x", f"{base}/base/%2e%2e/x", "file:///etc/passwd",
        )  # fmt: skip
        for place in elsewhere:
            assert (await sent_to(place))[0] == 502
        assert len(there.service.received) == 2 + len(elsewhere)


# ----------------------------------------------------------------------------------------------------------- failing services


async def test_silent_service_times_out():
    async with harness() as there:

        async def wait():
            await there.service.gate.wait()
            return web.Response()

        there.service.answer = wait
        async with there.ask("/v1/proxy/tool/x") as reply:
            assert reply.status == 504
        there.service.gate.set()


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n" + b"4000\r\nhalf",
    ],
)
async def test_client_recognizes_an_incomplete_answer_of_a_service(words):
    async with harness() as there, sick(there, words), there.ask("/v1/proxy/sick/x") as reply:
        with pytest.raises(aiohttp.ClientError):
            await reply.read()


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"\x00\x01\x02\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000,
        b"HTTP/1.1 200 \x1b[31m\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \x01\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_invalid_answer_of_a_service_returns_502(words):
    async with harness() as there, sick(there, words), there.ask("/v1/proxy/sick/x") as reply:
        assert reply.status == 502


@asynccontextmanager
async def sick(there: Harness, words: bytes):
    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(words)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        there.app[PROXY].known.update(targets([("sick", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")]))
        yield


async def test_endless_answer_of_a_service_is_cut_off():
    async with harness() as there:

        async def pour():
            endless = there.app[PROXY]
            assert endless.limits.response_bytes < 300_000
            return web.Response(body=chunks(), headers={})

        async def chunks():
            for _ in range(100):
                yield b"x" * 10_000

        there.service.answer = pour
        async with there.ask("/v1/proxy/tool/x") as reply:
            with pytest.raises(aiohttp.ClientError):
                await reply.read()
        there.service.answer = lambda: web.Response(body=b"x" * 200_001)
        async with there.ask("/v1/proxy/tool/x") as reply:
            assert reply.status == 502


async def test_number_of_forwarded_requests_is_limited():
    async with harness(limits=replace(LIMITS, quiet_s=10)) as there:

        async def wait():
            await there.service.gate.wait()
            return web.Response()

        there.service.answer = wait
        first = [asyncio.ensure_future(there.ask("/v1/proxy/tool/x").__aenter__()) for _ in range(2)]
        while len(there.service.received) < 2:
            await asyncio.sleep(0.005)
        async with there.ask("/v1/proxy/tool/x") as reply:
            assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        there.service.gate.set()
        for each in await asyncio.gather(*first):
            assert each.status == 200
            each.release()
        async with there.ask("/v1/proxy/tool/x") as reply:
            assert reply.status == 200


# -------------------------------------------------------------------------------------------------------------------- raw TCP


def relayed(there: Harness, name: str = "compiler"):
    return there.http.ws_connect(f"{there.url}/v1/proxy/{name}", headers={"Authorization": "Bearer right"})


async def test_bytes_are_forwarded_in_both_directions_until_the_service_ends():
    async with harness() as there, relayed(there) as socket:
        big = b"x" * 60_000
        for piece in (b"hel", b"lo\n", big + b"\n"):
            await socket.send_bytes(piece)
        expected = b"6\nhello\n" + b"60001\n" + big + b"\n"
        got = b""
        while len(got) < len(expected):
            got += await socket.receive_bytes()
        assert got == expected
        await socket.send_bytes(b"quit\n")
        assert (await socket.receive()).type is WSMsgType.CLOSE
        assert socket.close_code == 1000


async def test_text_frame_on_a_forwarded_connection_is_refused():
    async with harness() as there, relayed(there) as socket:
        await socket.send_str("hello\n")
        assert (await socket.receive()).type is WSMsgType.CLOSE
        assert socket.close_code == 1003


async def test_missing_tcp_service_is_reported_before_the_websocket_opens():
    async with harness() as there:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await relayed(there, "deaf")
        assert refused.value.status == 502


async def test_disconnected_websocket_releases_its_tcp_connection_to_the_service():
    async with harness() as there:
        for _ in range(4):
            async with relayed(there) as socket:
                await socket.send_bytes(b"hello\n")
                await socket.receive_bytes()
        while there.app[PROXY]._busy.total():
            await asyncio.sleep(0.005)


async def test_service_that_reads_nothing_causes_a_timeout():
    async with harness() as there:

        async def deaf(_reader, writer):
            await there.service.gate.wait()
            writer.transport.abort()
            over.set()

        over = asyncio.Event()

        async with await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024) as server:
            there.app[PROXY].known.update(targets([("deaf", f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")]))
            async with relayed(there, "deaf") as socket:
                closed = asyncio.ensure_future(socket.receive())
                while not closed.done():
                    with contextlib.suppress(ConnectionError):
                        await asyncio.wait_for(socket.send_bytes(b"x" * (1 << 19)), 2)
                assert socket.close_code == 1011
            there.service.gate.set()
            await over.wait()


# -------------------------------------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "http://",
        "tcp://host",
        "tcp://host:99999",
        "http://u:p@host",
        "http://host/?q",
        "file:///etc/passwd",
        "http://[",
        "x",
        "tcp://h:1/path",
    ],
)
def test_invalid_target_is_refused(url):
    with pytest.raises(UserError, match=r"serve\.proxies"):
        targets([("x", url)])


def test_compressed_body_is_forwarded_unchanged(tmp_path):
    packed, received = gzip.compress(b"x" * 10_000), []

    class Upstream(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.headers["Content-Encoding"], self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        thread = threading.Thread(target=upstream.serve_forever)
        thread.start()
        settings = f"""
platforms: {{linux: {{}}}}
scan_folders: [{{name: game, path: assets}}]
builders: [{{name: data, copy: ["*.txt"]}}]
serve: {{port: 0, proxies: {{tool: "http://127.0.0.1:{upstream.server_port}"}}}}
"""
        project = Project(tmp_path / "project", settings)
        with (
            served(project, tmp_path / "tokens.json") as place,
            Client.connect(f"http://127.0.0.1:{place.port}", token=place.token),
        ):
            reply = place.ask("POST", "/v1/proxy/tool/x", packed, Content_Encoding="gzip", Content_Type="application/octet-stream")
        upstream.shutdown()
        thread.join()

    assert (reply.status, received) == (200, [("gzip", packed)])

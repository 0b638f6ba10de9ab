"""The screen in a browser.

Access only with the token, one screen for each ticket, and a terminal like a real one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import chromium
import pytest
from aiohttp import ClientSession, WSMsgType, WSServerHandshakeError
from processes import has_ended
from tools import needs
from waiting import TIMEOUT_S

from aptui.features.gateway.web import web_screen as serve_web
from aptui.features.gateway.web import web_terminal
from aptui.features.gateway.web.web_screen import TerminalPage, Tickets

pytestmark = pytest.mark.real

pytest.importorskip("textual_serve")

ECHO = ["sh", "-c", "stty -echo; stty size; while read word; do echo got $word; stty size; done"]


class Caller:
    """An HTTP client of the web screen. Tests may replace its token by an invalid token."""

    def __init__(self, http: ClientSession, address: str, folder: Path) -> None:
        self.http, self.folder = http, folder
        self.url, _, self.token = address.partition("/#token=")

    async def status(self, path: str, method: str = "GET", **headers: str) -> int:
        async with self.http.request(method, self.url + path, headers=headers) as answer:
            return answer.status

    async def ticket(self) -> str:
        async with self.http.post(f"{self.url}/ticket", headers={"Authorization": f"Bearer {self.token}"}) as answer:
            assert answer.status == 200, await answer.text()
            return (await answer.json())["ticket"]

    def screen(self, ticket: str, width: object = 91, height: object = 17) -> Any:
        return self.http.ws_connect(f"{self.url}/ws/{ticket}?width={width}&height={height}")


@asynccontextmanager
async def opened(tmp_path: Path, command: list[str] = ECHO) -> AsyncIterator[Caller]:
    before = children()
    stage = TerminalPage(command, tmp_path / "audit.log")
    address = await stage.open()
    try:
        async with ClientSession() as http, asyncio.timeout(TIMEOUT_S):
            yield Caller(http, address, tmp_path)
    finally:
        await stage.close()
        async with asyncio.timeout(TIMEOUT_S):
            await children_are_gone(before)


async def children_are_gone(before: set[str]) -> None:
    """Wait until textual-serve has ended the processes of its screens."""
    while any("waitpid-" in thread.name for thread in threading.enumerate()) or children() - before:
        await asyncio.sleep(0.005)
    for _ in range(3):  # The loop runs the callbacks of the ended processes.
        await asyncio.sleep(0)


def children() -> set[str]:
    found = {child for file in Path("/proc/self/task").glob("*/children") for child in file.read_text().split()}
    return {child for child in found if not has_ended(child)}


async def until(socket: Any, words: str) -> str:
    seen = ""
    while words not in seen:
        message = await socket.receive()
        assert message.type is WSMsgType.BINARY, (message, seen)
        seen += message.data.decode()
    return seen


# ------------------------------------------------------------------------------------------------------- tokens and tickets


async def test_web_screen_ticket_is_issued_only_for_the_token(tmp_path):
    async with opened(tmp_path) as caller:
        assert await caller.status("/ticket", "POST") == 401
        assert await caller.status("/ticket", "POST", Authorization="Bearer " + caller.token[:-1]) == 401
        assert await caller.status("/ticket", "POST", Cookie=f"aptui-token={caller.token[:-1]}") == 401
        assert await caller.status("/ticket", "POST", Authorization=f"Bearer {caller.token}") == 200


async def test_web_screen_needs_a_ticket_that_is_valid_once(tmp_path):
    async with opened(tmp_path) as caller:
        ticket = await caller.ticket()
        async with caller.screen(ticket) as socket:
            await until(socket, "17 91")
        for used in (ticket, caller.token, "x"):
            with pytest.raises(WSServerHandshakeError) as refused:
                await caller.screen(used)
            assert refused.value.status == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "same"}, 200),
    ],
)
async def test_other_origins_and_hosts_are_refused_even_with_the_token(tmp_path, headers, status):
    async with opened(tmp_path) as caller:
        mine = {name: value.replace("same", caller.url) for name, value in headers.items()}
        assert await caller.status("/ticket", "POST", Authorization=f"Bearer {caller.token}", **mine) == status
        assert await caller.status("/", **mine) == status


async def test_a_page_of_another_origin_cannot_use_a_ticket(tmp_path):
    async with opened(tmp_path) as caller:
        with pytest.raises(WSServerHandshakeError) as refused:
            await caller.http.ws_connect(f"{caller.url}/ws/{await caller.ticket()}", origin="http://evil.example")

        assert refused.value.status == 403


async def test_web_screen_serves_only_files_of_its_page(tmp_path):
    async with opened(tmp_path) as caller:
        for path in ("/", "/screen.js", "/screen.css", "/static/js/textual.js", "/static/css/xterm.css"):
            async with caller.http.get(caller.url + path) as answer:
                assert answer.status == 200
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert "http://" not in (await answer.text() if path.startswith("/screen") or path == "/" else "")
        for path in ("/static/", "/static/js/", "/static/../server.py", "/static/images/background.png", "/ws", "/download/x"):
            assert await caller.status(path) == 404
        async with caller.http.get(caller.url) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self';" in policy


async def test_number_of_web_screens_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(serve_web, "SCREENS_LIMIT", 1)
    async with opened(tmp_path) as caller:
        spare = await caller.ticket()
        async with caller.screen(await caller.ticket()) as socket:
            await until(socket, "17 91")
            assert await caller.status("/ticket", "POST", Authorization=f"Bearer {caller.token}") == 503
            with pytest.raises(WSServerHandshakeError) as refused:
                await caller.screen(spare)
            assert refused.value.status == 503


async def test_every_web_screen_is_in_the_audit_log(tmp_path):
    async with opened(tmp_path) as caller, caller.screen(await caller.ticket()) as socket:
        await until(socket, "17 91")
        noted = json.loads((tmp_path / "audit.log").read_text())
        assert noted["request"] == "screen"
        assert noted["address"] == "127.0.0.1"
        assert caller.token not in str(noted)


def test_web_screen_ticket_expires_after_half_a_minute():
    now = [0.0]
    tickets = Tickets(lambda: now[0])
    early, late = tickets.issue(), tickets.issue()
    now[0] = 30.0
    assert tickets.redeem(early)
    now[0] = 30.1

    assert not tickets.redeem(late)


def test_unused_web_screen_tickets_are_dropped():
    tickets = Tickets()
    given = [tickets.issue() for _ in range(40)]

    assert [tickets.redeem(each) for each in given] == [False] * 8 + [True] * 32


# ------------------------------------------------------------------------------------------------------------- the terminal


async def test_browser_keys_and_window_size_reach_the_screen(tmp_path):
    async with opened(tmp_path) as caller, caller.screen(await caller.ticket()) as socket:
        await until(socket, "17 91")
        await socket.send_json(["resize", {"width": 70, "height": 20}])
        await socket.send_json(["stdin", "hello\n"])
        assert "got hello" in await until(socket, "20 70")


@pytest.mark.parametrize(("width", "height", "shown"), [("1000000000", "0", "1 500"), ("-3", "99999", "300 1")])
async def test_impossible_size_of_a_web_terminal_is_clamped(tmp_path, width, height, shown):
    async with opened(tmp_path) as caller, caller.screen(await caller.ticket(), width, height) as socket:
        await until(socket, shown)


_LATE = """
import sys, time
from aptui.features.gateway.web import web_terminal as terminal
at_once = terminal.termios.tcsetwinsize
def late(*words):
    time.sleep(0.3)
    at_once(*words)
terminal.termios.tcsetwinsize = late
sys.exit(terminal.main(["stty", "size"]))
"""


def test_terminal_has_its_size_before_the_screen_program_starts():
    given = {"COLUMNS": "70", "ROWS": "20", "PATH": os.environ["PATH"]}

    with subprocess.Popen([sys.executable, "-c", _LATE], env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        output = process.stdout.read()

    assert b"20 70" in output


async def test_web_screen_that_has_ended_closes_its_socket(tmp_path):
    async with opened(tmp_path, ["echo", "bye"]) as caller, caller.screen(await caller.ticket()) as socket:
        assert "bye" in await until(socket, "bye")
        assert (await socket.receive()).type in {WSMsgType.CLOSE, WSMsgType.CLOSED}


async def test_browser_disconnect_ends_a_screen_with_unread_output(tmp_path):
    async with opened(tmp_path, ["sh", "-c", "echo $$; trap '' HUP TERM; exec yes"]) as caller:
        async with caller.screen(await caller.ticket()) as socket:
            pid = int((await until(socket, "\n")).split()[0])
            assert Path(f"/proc/{pid}").exists()
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


def test_web_screen_runs_in_its_own_terminal():
    given = {
        "TEXTUAL_DRIVER": "x:Y",
        "COLUMNS": "3",
        "TERM": "dumb",
        "TMUX": "x",
        "NO_COLOR": "1",
        "HOME": "/h",
        "TERM_PROGRAM": "textual",
    }

    assert web_terminal.environment(given) == {
        "HOME": "/h",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "APTUI_GLYPHS": "utf8",
    }


def test_web_terminal_reads_only_complete_packets():
    received = bytearray(web_terminal.packet(b"D", b"one") + web_terminal.packet(b"M", b"")[:-1])
    assert list(web_terminal.packets(received)) == [(b"D", b"one")]
    received += b"\0"

    assert list(web_terminal.packets(received)) == [(b"M", b"")]
    assert not received


def test_packet_with_a_length_of_gigabytes_ends_the_web_terminal():
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "aptui.features.gateway.web.web_terminal", "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin, process.stdout:
        assert process.stdout.readline() == b"__GANGLION__\n"
        with pytest.raises(BrokenPipeError):
            process.stdin.write(b"D" + (1 << 31).to_bytes(4, "big"))
            while True:
                process.stdin.write(bytes(1 << 16))


# -------------------------------------------------------------------------------------------------- the screen in a browser


@needs("chromium")
async def test_browser_draws_the_screen_and_removes_the_token_from_the_address(tmp_path):
    """This test checks the input and output of the terminal, because the drawn picture cannot be read."""
    drawn = tmp_path / "keys"

    def watch(address: str) -> None:
        with chromium.browser(tmp_path / "profile", *chromium.SOFTWARE_GL) as browser:
            page = browser.open(address, width=1000, height=600)
            page.until("document.body.classList.contains('-first-byte')")
            assert page.evaluate("location.href") == address.partition("#")[0]
            page.until("document.activeElement.classList.contains('xterm-helper-textarea')")
            beside = "getComputedStyle(document.querySelector('.xterm-viewport')).backgroundColor"
            assert page.evaluate(beside) == "rgba(0, 0, 0, 0)", "the space beside the last column has the colour of the page"
            page.ask("Input.insertText", text="hello")
            page.ask("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
            page.until("document.body.classList.contains('-closed')")
            assert "the screen was left" in page.evaluate("document.body.innerText")
            assert page.complaints == []

    async with opened(tmp_path, ["sh", "-c", f"echo a picture of the screen; read word; echo $word > {drawn}"]) as caller:
        await asyncio.to_thread(watch, f"{caller.url}/#token={caller.token}")

    assert "hello" in drawn.read_text()


def test_missing_textual_serve_is_reported_with_the_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)

    with pytest.raises(Exception, match=r"pip install 'aiohttp.*' 'textual-serve"):
        asyncio.run(TerminalPage(["true"], tmp_path / "audit.log").open())

"""A real gateway over a real engine, attacked by hostile clients.

Memory stays bounded, and a well-behaved client always gets answers. `python -m tests.drills.hostile.serve_hostile MUTANT
--project DIR` is the same gateway without one of its rules.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import math
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from aptui.features.gateway import gateway, wire_codec, wire_records
from aptui.features.gateway.access import guard, tokens
from aptui.features.gateway.client import Client, Refusal, local
from aptui.features.gateway.http import change_feed
from aptui.features.gateway.wire_codec import Scope
from aptui.features.gateway.wire_records import Ping
from aptui.link import places, port
from aptui.link.engine_client import EngineClient
from aptui.shared import floods
from aptui.shared.connections import http_sockets
from aptui.shared.errors import KnownError
from tests.features.gateway.live_served import CERTIFICATE, KEY
from tests.waiting import TIMEOUT_S

from ..worlds.mutants import replace_members
from ..worlds.report import Report, Say

GROWTH_LIMIT_BYTES = 192 << 20
"""Maximum growth of memory (bytes): room for an unfinished frame of each of 64 clients and 128 unauthenticated peers."""
LOG_LIMIT_BYTES = 1 << 20
"""Maximum size of the log: a client that sends nonsense must not fill the disk."""
_MISSED_S = 2.0
"""Timeout of the search for a broken rule (seconds). If no rule is broken, the timeout of all tests applies."""
HALF_OPEN = 1_000
_HELD_MOST = guard.UNIDENTIFIED_LIMIT + http_sockets.PENDING_LIMIT + 16
"""Maximum number of connections that are not authenticated yet."""
_SILENT = 20
_SILENT_TLS = 400
_SOURCES = 300
_SETTINGS = """platforms: {linux: {}}
scan_folders: [{name: game, path: assets}]
builders: [{name: all, copy: ["*.txt"]}]
cache: Cache
workers: 2
serve: {port: 0, clients_limit: 64}
"""


# ------------------------------------------------------------------------------------------------------------------- mutants


def _endless_frames() -> None:
    """Break the gateway on purpose: it accepts frames of any declared length."""
    replace_members(wire_codec, FRAME_LIMIT_BYTES=1 << 31)


def _silent_connections() -> None:
    """Break the gateway on purpose: it keeps silent connections open."""
    replace_members(guard, HEADER_LIMIT_S=1e9, UNIDENTIFIED_LIMIT=1 << 30)


def _open_handshakes() -> None:
    """Break the gateway on purpose: it neither closes nor counts connections that make no TLS handshake."""
    http_sockets.Acceptor.__init__.__kwdefaults__.update(limit=1 << 30, handshake_s=600.0)


def _careless() -> None:
    """Break the gateway on purpose: streams of a token have no limit, revoked tokens stay, every refusal is logged in full."""
    replace_members(change_feed, FOLLOWERS_PER_TOKEN=1 << 30, FOLLOWERS_LIMIT=1 << 30)
    replace_members(gateway, _REVOKED_CHECK_S=1e9)
    replace_members(floods.FloodGate, admit=lambda *_: True)
    replace_members(guard, _DETAIL_CHARACTERS=1 << 30)


MUTANTS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "endless-frames": _endless_frames,
    "open-doors": _silent_connections,
    "open-handshakes": _open_handshakes,
    "careless": _careless,
}


# -------------------------------------------------------------------------------------------------------------------- victim


class Victim:
    """An engine, its gateway, and the well-behaved client."""

    def __init__(self, folder: Path, mutant: str = "", *, is_safe: bool = False) -> None:
        (folder / "assets").mkdir()
        settings, self.tls = _SETTINGS, None
        if is_safe:
            (folder / "c.pem").write_text(CERTIFICATE)
            (folder / "k.pem").write_text(KEY)
            settings = settings.replace("clients_limit: 64", "clients_limit: 64, tls_cert: c.pem, tls_key: k.pem")
            self.tls = ssl.create_default_context(cafile=str(folder / "c.pem"))
        (folder / "aptui.yaml").write_text(settings)
        for number in range(_SOURCES):
            (folder / "assets" / f"{number}.txt").write_bytes(random.Random(number).randbytes(2_000))
        self.folder = folder
        self.limit_s = _MISSED_S if mutant else TIMEOUT_S
        self.names: dict[str, str] = {}
        command = [sys.executable, "-m", "tests.drills.hostile.serve_hostile", mutant or "none", "--project", str(folder)]
        self.log = folder / "gateway.log"
        with self.log.open("wb") as log:
            self.gateway = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self.url, self.token = local(folder / "Cache")
                self.client = self.connect()
                break
            except KnownError:
                assert time.monotonic() < deadline, "the gateway does not start in time"
                assert self.gateway.poll() is None, "the gateway has ended"
                time.sleep(0.05)
        self.engine = EngineClient.connect(places.socket_path(folder / "Cache"))
        self.rest()

    def connect(self, token: str = "") -> Client:
        """Return a well-behaved client; its default token is that of the user who runs the gateway.

        Try again until the timeout: on a busy machine, a handshake may take longer than the gateway allows while others wait.
        """
        deadline = time.monotonic() + self.limit_s
        while True:
            try:
                return Client.connect(self.url, token=token or self.token, tls=self.tls, client="good", notices=("counts",))
            except KnownError:
                if self.gateway.poll() is not None or time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)

    def token_for(self, *scopes: Scope) -> str:
        """Return a new token of the user whose gateway is attacked, and store the token's name in `names`."""
        name = f"drill {time.monotonic_ns()}"
        token = tokens.add(tokens.path(), name, scopes)
        self.names[token] = name
        return token

    def rest(self) -> None:
        """Wait until no job is pending."""
        while self.engine.ask(port.ReadStatus(), TIMEOUT_S)["state"] != "idle":
            time.sleep(0.02)

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    def peak_bytes(self) -> int:
        """Return the peak memory of the gateway since `forget_peak`."""
        text = Path(f"/proc/{self.gateway.pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("VmHWM"))

    def forget_peak(self) -> None:
        Path(f"/proc/{self.gateway.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.gateway.pid}/fd"))

    def upgraded(self) -> socket.socket:
        """Return a raw WebSocket after its hello."""
        wire = socket.create_connection(self.address, TIMEOUT_S)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {wire_codec.PATH} HTTP/1.1",
            f"Host: {self.address[0]}:{self.address[1]}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            f"Authorization: Bearer {self.token}",
        ]
        wire.sendall("\r\n".join([*lines, "", ""]).encode())
        hello = b'{"id": 1, "request": "hello", "protocol": 1, "client": "bad", "wants_catalog": true}'
        wire.sendall(frame_head(1, len(hello)) + bytes(4) + hello)
        return wire

    def end(self) -> str:
        """Stop the engine and the gateway; return violations of the gateway's exit."""
        self.client.close()
        self.gateway.send_signal(signal.SIGTERM)
        code = self.gateway.wait(TIMEOUT_S)
        with contextlib.suppress(KnownError):
            self.engine.ask(port.StopEngine(False), TIMEOUT_S)
        self.engine.close()
        return "" if code == 0 else f"the gateway ended with {code}"


def frame_head(kind: int, length: int) -> bytes:
    """Return the head of a masked frame, without the mask."""
    if length < 126:
        return struct.pack("!BB", 0x80 | kind, 0x80 | length)
    return struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, length)


# ------------------------------------------------------------------------------------------------------------------- attacks


def never_reads(victim: Victim, _dice: random.Random, _seconds: float) -> Iterator[str]:
    """Twenty clients subscribe to everything and do not read, while every job runs repeatedly."""
    with _closing([victim.upgraded() for _ in range(_SILENT)]):
        for _lap in range(8):
            victim.engine.ask(port.ReprocessJobs(("*",)), TIMEOUT_S)
            victim.rest()
    yield from ()


def lengths(victim: Victim, _dice: random.Random, _seconds: float) -> Iterator[str]:
    """Frames and bodies that declare a gigabyte; the attacker sends up to 128 MiB as long as the gateway accepts them."""
    endless = b"POST /v1/connect HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: application/json\r\nContent-Length: 1073741824\r\n\r\n"
    with _closing([*(victim.upgraded() for _ in range(3)), socket.create_connection(victim.address)]) as wires:
        heads = [
            frame_head(1, 1 << 30) + bytes(4),
            frame_head(1, 1 << 30) + bytes(4),
            frame_head(2, 1 << 62) + bytes(4),
            endless % (b"127.0.0.1", victim.address[1]),
        ]
        for wire, head in zip(wires, heads, strict=True):
            wire.settimeout(TIMEOUT_S)  # the gateway refuses the data long before this timeout
            with contextlib.suppress(OSError):
                wire.sendall(head)
                for _piece in range(128):
                    wire.sendall(bytes(1 << 20))
    yield from ()


def half_open(victim: Victim, _dice: random.Random, _seconds: float) -> Iterator[str]:
    """A thousand sockets with incomplete requests."""
    before = victim.descriptors()
    wires = []
    with contextlib.ExitStack() as stack:
        for _number in range(HALF_OPEN):
            wire = stack.enter_context(socket.create_connection(victim.address))
            with contextlib.suppress(OSError):
                wire.sendall(b"GET /v1/connect HTTP/1.1\r\nHost: 127")
            wires.append(wire)
        with victim.connect():  # the well-behaved client can still connect while the attacking connections are open
            pass
        # At first the gateway holds up to `PENDING_LIMIT` more connections. Wait until it has closed the oldest of them.
        held = victim.descriptors() - before
        deadline = time.monotonic() + victim.limit_s
        while guard.UNIDENTIFIED_LIMIT + 8 < held <= _HELD_MOST and time.monotonic() < deadline:
            time.sleep(0.05)
            held = victim.descriptors() - before
    if held > guard.UNIDENTIFIED_LIMIT + 8:
        yield f"{held} sockets of strangers are held"


def noise(victim: Victim, dice: random.Random, seconds: float) -> Iterator[str]:
    """Random bytes, on fresh sockets and on WebSockets."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for wire in (socket.create_connection(victim.address), victim.upgraded()):
            with wire, contextlib.suppress(OSError):
                wire.settimeout(1.0)
                for _piece in range(dice.randrange(1, 8)):
                    wire.sendall(dice.randbytes(dice.choice((1, 7, 500, 70_000))))
    yield from ()


def half_tls(victim: Victim, _dice: random.Random, _seconds: float) -> Iterator[str]:
    """Sockets that never start their TLS handshake, while a well-behaved client connects."""
    before = victim.descriptors()
    with contextlib.ExitStack() as stack:
        over = threading.Event()

        def crowd() -> None:
            for _number in range(_SILENT_TLS):
                if over.is_set():
                    return
                with contextlib.suppress(OSError):
                    stack.enter_context(socket.create_connection(victim.address, 2.0))

        thread = threading.Thread(target=crowd)
        thread.start()
        time.sleep(1.0)
        began = time.monotonic()
        with victim.connect():
            took_s = time.monotonic() - began
        held = victim.descriptors() - before
        over.set()
        thread.join()
    if held > http_sockets.PENDING_LIMIT + 16:
        yield f"{held} sockets before their handshake are held"
    if took_s > victim.limit_s:
        yield f"the owner got in after {took_s:.1f} s"


def followers(victim: Victim, _dice: random.Random, _seconds: float) -> Iterator[str]:
    """Sixty streams of `/v1/changes` with the same read-only token."""
    token = victim.token_for(Scope.READ)
    with _closing([_asking(victim, "/v1/changes?follow=1", token) for _ in range(60)]) as wires:
        taken = sum(_head(wire).startswith(b"HTTP/1.1 200") for wire in wires)
        with victim.connect():
            pass
    if taken > change_feed.FOLLOWERS_PER_TOKEN:
        yield f"{taken} streams of one token were taken"


def revocation(victim: Victim, _dice: random.Random, _seconds: float) -> Iterator[str]:
    """A stream and a WebSocket whose token is revoked while they are silent."""
    token = victim.token_for(Scope.READ)
    with _asking(victim, "/v1/changes?since=0&follow=1", token) as wire, victim.connect(token) as client:
        _head(wire)
        tokens.revoke(tokens.path(), victim.names[token])
        began = time.monotonic()
        end_s = began + victim.limit_s + 1.0  # both connections must be closed by then
        wire.settimeout(victim.limit_s + 1.0)
        with contextlib.suppress(ConnectionError, TimeoutError):
            while wire.recv(1 << 16):
                pass
        with contextlib.suppress(KnownError):
            while client.next_notice(max(0.1, end_s - time.monotonic())) is not None:
                pass
        took_s = time.monotonic() - began
    if took_s > victim.limit_s:
        yield f"a revoked token listened for {took_s:.1f} s"


def floods_of_requests(victim: Victim, _dice: random.Random, _seconds: float) -> Iterator[str]:
    """Requests of each scope that are refused, too large, too deep, or expensive to process; none of them disturbs the engine."""
    epoch = victim.engine.ask(port.ReadStatus(), TIMEOUT_S)["epoch"]
    audit = next(victim.folder.rglob("gateway-audit.log"), None)
    before = audit.stat().st_size if audit else 0
    deep = "[" * 200_000
    with victim.connect(victim.token_for(Scope.READ, Scope.ESCALATE)) as client:
        for _lap in range(40):
            for request in (
                wire_records.Reprocess(("x" * 4_000,) * 200),
                wire_records.Escalate(asset="{00000000-0000-0000-0000-00000000abcd}", term="*" + "a" * 60_000),
                wire_records.CheckMove("*?" * 60 + "!", "a"),
                wire_records.CheckDelete("*" * 3_000),
                wire_records.JobLog(job_id=1 << 63),
                wire_records.AssetStatus(term=deep),
            ):
                with contextlib.suppress(Refusal):
                    client.ask(request, TIMEOUT_S)
    audit = next(victim.folder.rglob("gateway-audit.log"), None)
    grown = audit.stat().st_size - before if audit else 0
    if grown > LOG_LIMIT_BYTES:
        yield f"the audit log grew by {grown >> 10} KiB"
    if victim.engine.ask(port.ReadStatus(), TIMEOUT_S)["epoch"] != epoch:
        yield "the engine broke down and began again"


def _asking(victim: Victim, path: str, token: str) -> socket.socket:
    """Return a socket that has sent a request."""
    wire = socket.create_connection(victim.address, TIMEOUT_S)
    host = f"{victim.address[0]}:{victim.address[1]}"
    wire.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    return wire


def _head(wire: socket.socket) -> bytes:
    try:
        return wire.recv(4_096)
    except OSError:
        return b""


Attack = Callable[[Victim, random.Random, float], Iterator[str]]
ATTACKS: tuple[Attack, ...] = (never_reads, lengths, half_open, noise, followers, revocation, floods_of_requests)
SAFE_ATTACKS: tuple[Attack, ...] = (half_tls,)
"""Attacks on a gateway with TLS."""


@contextlib.contextmanager
def _closing(wires: list[socket.socket]) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        for wire in wires:
            stack.enter_context(wire)
        yield wires


# --------------------------------------------------------------------------------------------------------------------- drill


def attacked(
    folder: Path,
    seed: int,
    seconds: float = 10.0,
    *,
    mutant: str = "",
    say: Say = print,
    attacks: tuple[Attack, ...] = ATTACKS,
    is_safe: bool = False,
) -> Report:
    """Drill G1: run the attacks against one gateway, with random data for `seconds`."""
    report, dice = Report("G1"), random.Random(seed)
    victim = Victim(folder, mutant, is_safe=is_safe)
    try:
        for attack in attacks:
            report.faults += 1
            report.violations += [f"{attack.__name__}: {each}" for each in _attack(victim, attack, dice, seconds, say)]
    except KnownError as error:
        report.violations.append(f"the well-behaved client hears: {error}")
    finally:
        ending = victim.end()
        report.violations += [ending] if ending else []
    return report


def hostile_clients(folder: Path, seed: int, seconds: float = 10.0, *, mutant: str = "", say: Say = print) -> Report:
    """Drill G1: run every attack on a gateway without TLS and on a gateway with TLS."""
    report = Report("hostile-clients")
    for is_safe, attacks in ((False, ATTACKS), (True, SAFE_ATTACKS)):
        part = folder / ("tls" if is_safe else "plain")
        part.mkdir()
        found = attacked(part, seed, seconds, mutant=mutant, say=say, attacks=attacks, is_safe=is_safe)
        report.faults += found.faults
        report.violations += found.violations
    return report


def _attack(victim: Victim, attack: Attack, dice: random.Random, seconds: float, say: Say) -> Iterator[str]:
    victim.forget_peak()
    before, worst, log_bytes = victim.peak_bytes(), [0.0], victim.log.stat().st_size
    over = threading.Event()
    good = threading.Thread(target=_be_good, args=(victim, over, worst))
    good.start()
    try:
        yield from attack(victim, dice, seconds)
    finally:
        over.set()
        good.join()
    grown, log_bytes = victim.peak_bytes() - before, victim.log.stat().st_size - log_bytes
    say(f"  {attack.__name__}: grew by {grown >> 20} MiB, slowest answer {worst[0] * 1000:.0f} ms, log {log_bytes >> 10} KiB")
    if log_bytes > LOG_LIMIT_BYTES:
        yield f"its log grew by {log_bytes >> 10} KiB"
    if grown > GROWTH_LIMIT_BYTES:
        yield f"memory grew by {grown >> 20} MiB"
    if worst[0] > victim.limit_s:
        yield f"an answer took {worst[0]:.1f} s"


def _be_good(victim: Victim, over: threading.Event, worst: list[float]) -> None:
    """Send requests and fetch a product repeatedly, and record response times.

    A missing answer counts as the longest response time.
    """
    wanted = (victim.folder / "assets" / "7.txt").read_bytes()
    while not over.is_set():
        began = time.monotonic()
        try:
            victim.client.ask(Ping(), TIMEOUT_S)
            is_right = victim.client.read_product(TIMEOUT_S, path="7.txt", platform="linux") == wanted
        except KnownError:
            is_right = False
        worst[0] = max(worst[0], time.monotonic() - began if is_right else math.inf)
        over.wait(0.02)


def main() -> int:
    """Run a gateway with one of the defects in `MUTANTS`, or an intact gateway for the argument "none"."""
    from aptui.cli import main as cli_main

    chosen = argparse.ArgumentParser()
    chosen.add_argument("mutant")
    mutant, rest = chosen.parse_known_args()
    MUTANTS["" if mutant.mutant == "none" else mutant.mutant]()
    return cli_main.main(["gateway", *rest])


if __name__ == "__main__":
    sys.exit(main())

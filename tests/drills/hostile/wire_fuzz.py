"""Drill A1: malformed frames and slow readers on an engine's socket.

The engine survives, its memory stays bounded, and other clients are served.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from aptui import feature
from aptui.core.notices import JobChanged
from aptui.link.engine_client import EngineClient, NoEngine
from aptui.link.notice_feed import Outbox
from aptui.link.port import PROTOCOL, VERBS, EngineHello, PingEngine, RescanSources, Subscribe
from aptui.link.server import LinkLimits, LinkServer
from aptui.shared.errors import KnownError
from tests.waiting import TIMEOUT_S

from ..worlds.mutants import replace_members
from ..worlds.report import Report, Say

GROWTH_LIMIT_BYTES = 64 << 20
ANSWER_LIMIT_S = 0.05
NEWS_PER_SCAN = 50_000
NEWS_PER_TURN = 200
GUESTS = 63
SCANS = 2
HELLO = json.dumps({"id": 1, "verb": "hello", "protocol": PROTOCOL, "version": "0", "kind": "fuzz", "pid": 1}).encode() + b"\n"


# ---------------------------------------------------------------------------------------------------------------- mutants


def unbounded_outbox() -> LinkLimits:
    """Break the engine on purpose: it does not limit the data that waits for a client."""
    return LinkLimits(waiting_bytes=1 << 60, waiting_lines=1 << 60)


def waiting_writes() -> LinkLimits:
    """Break the engine on purpose: it waits until a client reads its data."""
    send = Outbox.send

    def send_and_wait(self: Outbox, now: float) -> None:
        send(self, now)
        deadline = time.monotonic() + 0.2
        while self.is_blocked and time.monotonic() < deadline:
            send(self, now)

    replace_members(Outbox, send=send_and_wait)
    return LinkLimits()


MUTANTS: dict[str, Callable[[], LinkLimits]] = {
    "unbounded-outbox": unbounded_outbox,
    "waiting-writes": waiting_writes,
}


# ----------------------------------------------------------------------------------------------------------------- victim


class Handler:
    """A request handler that answers at once; each scan publishes `NEWS_PER_SCAN` updates."""

    def __init__(self) -> None:
        self.server: LinkServer
        self.pending = 0
        self.seq = 0

    def handle(self, request) -> None:
        match request.verb:
            case EngineHello():
                request.answer(protocol=PROTOCOL, version="0", pid=os.getpid(), epoch=1)
            case Subscribe(wants_all=wants_all, is_coalesced=is_coalesced):
                self.server.subscribe(request.client, wants_all, is_coalesced=is_coalesced)
                request.answer(epoch=1, seq=self.seq)
            case RescanSources():
                self.pending += NEWS_PER_SCAN
                request.answer()
            case _:
                request.answer(connections=self.server.connections())

    def forget_client(self, client) -> None:
        """Do nothing: this handler stores no data of clients."""

    def report(self) -> None:
        """Publish the updates of one turn."""
        for _ in range(min(self.pending, NEWS_PER_TURN)):
            self.pending -= 1
            self.seq += 1
            notice = JobChanged(0, self.seq, "a/b.txt", 1, "pc", "key", "builder", "completed", "", "", 0, 0, 5, "x" * 150, 1)
            self.server.publish(notice, 1, self.seq)


def _serve(path: str, limits: LinkLimits) -> None:
    handler = Handler()
    with selectors.DefaultSelector() as selector:
        server = handler.server = LinkServer(path, selector, handler, limits=limits)
        server.listen()
        while True:
            for key, mask in selector.select(0.0 if handler.pending else 1.0):
                key.data(mask)
            server.poll(time.monotonic())
            handler.report()
            server.flush()


class Victim:
    """A server in a forked process, one well-behaved client, and hostile sockets."""

    def __init__(self, path: str, mutant: str) -> None:
        self._path = path
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _serve(path, MUTANTS[mutant]() if mutant else LinkLimits())
            finally:
                os._exit(70)
        self._client = self._connect()
        self._client.ask(PingEngine(), TIMEOUT_S)
        self._small_bytes = self._memory_bytes("VmRSS")
        self._open: list[socket.socket] = []
        self.worst_s = 0.0

    def _connect(self) -> EngineClient:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return EngineClient.connect(self._path, timeout_s=TIMEOUT_S)
            except NoEngine:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _memory_bytes(self, field: str) -> int:
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))

    def forget_peak(self) -> None:
        """Restart the measurement of the memory peak and the slowest answer."""
        with open(f"/proc/{self.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
        self.worst_s = 0.0

    @property
    def grown_bytes(self) -> int:
        """Growth of the peak memory since the idle state."""
        return self._memory_bytes("VmHWM") - self._small_bytes

    def ping(self) -> None:
        """Send a request from the well-behaved client, and record the slowest answer."""
        started = time.monotonic()
        self._client.ask(PingEngine(), TIMEOUT_S)
        self.worst_s = max(self.worst_s, time.monotonic() - started)

    def rescan(self) -> None:
        """Publish many updates."""
        self._client.ask(RescanSources(), TIMEOUT_S)

    def bare(self, data: bytes = b"") -> socket.socket:
        """Return a socket that sent `data` and stays open until `hang_up`."""
        bare = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bare.settimeout(0.2)
        self._open.append(bare)
        while True:
            try:
                bare.connect(self._path)
                break
            except BlockingIOError:
                time.sleep(0.001)
        pour(bare, data)
        return bare

    def hang_up(self) -> None:
        """Close all bare sockets."""
        while self._open:
            self._open.pop().close()

    def end(self) -> str:
        """Kill the server; return "", or a description of its end if the server ended before the kill."""
        self._client.close()
        self.hang_up()
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return "" if code == -signal.SIGKILL else f"ended with {code}"


def pour(bare: socket.socket, data: bytes) -> bool:
    """Send data until the other end stalls or closes the connection; return whether all data was sent."""
    try:
        bare.sendall(data)
    except (TimeoutError, OSError):
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------- attacks


def random_bytes(victim: Victim, dice: random.Random) -> None:
    """Send random bytes, with and without a hello before them."""
    for number in range(100):
        victim.bare(HELLO * (number % 2) + dice.randbytes(dice.randrange(1 << dice.randrange(1, 17))))
        if number % 10 == 9:
            victim.ping()
            victim.hang_up()


def broken_messages(victim: Victim, dice: random.Random) -> None:
    """Send almost valid messages: a changed byte, deep nesting, invalid UTF-8, endless numbers."""
    bare = victim.bare(HELLO)
    for number in range(2_000):
        name = dice.choice([*VERBS, *feature.requests()])
        message = bytearray(json.dumps({"id": number + 1, "verb": name, "job_ids": [1, 2], "keys": ["a"]}).encode())
        for _ in range(dice.randrange(4)):
            message[dice.randrange(len(message))] = dice.randrange(256)
        if not pour(bare, bytes(message).replace(b"\n", b"") + b"\n"):
            bare = victim.bare(HELLO)
        with contextlib.suppress(OSError):
            bare.recv(1 << 16, socket.MSG_DONTWAIT)
    for inner in (
        b"[" * 500_000,
        b'{"a":' * 150_000,
        b"9" * 900_000,
        b'"' + b"\xff" * 900_000,
        b"[[]," * 200_000,
        b'{"":0},' * 100_000,
    ):
        pour(victim.bare(HELLO), b'{"id":1,"verb":"cancel","job_ids":' + inner + b"\n" + b"[" + inner + b"]\n")
        victim.ping()


def endless_line(victim: Victim, _dice: random.Random) -> None:
    """Begin a message of 256 MiB."""
    bare = victim.bare(HELLO + b'{"id":1,"verb":"hold","why":"')
    for _ in range(256):
        if not pour(bare, b"x" * (1 << 20)):
            break
        victim.ping()


def half_messages(victim: Victim, _dice: random.Random) -> None:
    """Begin a large message on each allowed connection, and send nothing more."""
    for _ in range(GUESTS):
        victim.bare(HELLO + b'{"id":1,"verb":"hold","why":"' + b"x" * ((1 << 20) - 100))
        victim.ping()


def idle_connections(victim: Victim, _dice: random.Random) -> None:
    """Connect 1,000 times without sending."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    for number in range(1_000):
        victim.bare()
        if number % 50 == 0:
            victim.ping()


def deaf_subscribers(victim: Victim, _dice: random.Random) -> None:
    """Connect the maximum number of clients, which subscribe and do not read the updates of many rescans."""
    for _ in range(GUESTS):
        victim.bare(HELLO + b'{"id":2,"verb":"subscribe"}\n')
    for _ in range(SCANS):
        victim.rescan()
        for _ in range(NEWS_PER_SCAN // NEWS_PER_TURN):
            victim.ping()
            if victim.grown_bytes > GROWTH_LIMIT_BYTES:
                return  # this growth is already a violation


def deaf_requesters(victim: Victim, _dice: random.Random) -> None:
    """Connect the maximum number of clients, which send endless requests with longer answers and do not read the answers."""
    for _ in range(GUESTS):
        bare = victim.bare(HELLO)
        bare.settimeout(0.02)
        pour(bare, b'{"id":2,"verb":"status","lists_connections":true}\n' * 20_000)
        victim.ping()


Attack = Callable[[Victim, random.Random], None]
ATTACKS: tuple[Attack, ...] = (
    random_bytes,
    broken_messages,
    endless_line,
    half_messages,
    idle_connections,
    deaf_subscribers,
    deaf_requesters,
)


def attacked(
    folder: Path,
    seed: int,
    count: int = 1,
    *,
    mutant: str = "",
    attacks: Sequence[Attack] = ATTACKS,
    answer_limit_s: float = ANSWER_LIMIT_S,
    say: Say = print,
) -> Report:
    """Drill A1: every attack `count` times against one engine."""
    say(f"seed {seed}")
    report = Report("A1")
    dice = random.Random(seed)
    victim = Victim(str(folder / "socket"), mutant)
    try:
        for number in range(count):
            for attack in attacks:
                where = f"{number}, {attack.__name__}"
                report.faults += 1
                try:
                    report.violations += _attack(victim, attack, dice, answer_limit_s, where, say)
                except KnownError as error:
                    report.violations.append(f"{where}: the well-behaved client hears: {error}")
                    return report
    finally:
        ending = victim.end()
        report.violations += [ending] if ending else []
    return report


def _attack(victim: Victim, attack: Attack, dice: random.Random, limit_s: float, where: str, say: Say) -> Iterator[str]:
    victim.forget_peak()
    attack(victim, dice)
    victim.ping()
    victim.hang_up()
    victim.ping()
    say(f"  {where}: grew by {victim.grown_bytes >> 20} MiB, slowest answer {victim.worst_s * 1000:.1f} ms")
    if victim.grown_bytes > GROWTH_LIMIT_BYTES:
        yield f"{where}: memory grew by {victim.grown_bytes >> 20} MiB"
    if victim.worst_s > limit_s:
        yield f"{where}: an answer took {victim.worst_s * 1000:.0f} ms"

"""Helpers for tests of the connection between client and engine: a server, a plain socket, and an example of each record.

The server has a simple request handler; the test or a thread runs its loop.
"""

import contextlib
import json
import os
import selectors
import socket
import tempfile
import threading
import time
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

from waiting import TIMEOUT_S, Clock, until

from aptui.core import notices
from aptui.core.notices import JobChanged
from aptui.link.port import (
    PROTOCOL,
    Disconnect,
    EngineHello,
    PingEngine,
    ReadStatus,
    RescanSources,
    Settle,
    StopEngine,
    Subscribe,
)
from aptui.link.server import LinkLimits, LinkServer
from aptui.shared.errors import UserError

NOTICES = typing.get_args(notices.Notice)


class Handler:
    """A handler that answers requests at once, with two exceptions: it refuses `RescanSources`, and the test answers `Settle`."""

    def __init__(self) -> None:
        self.server: LinkServer
        self.taken = []
        self.gone = []

    def handle(self, request) -> None:
        self.taken.append(request)
        match request.verb:
            case EngineHello():
                request.answer(protocol=PROTOCOL, version="1.2.3", pid=os.getpid(), epoch=7, project="/p", cache="/c", started_ms=5)
            case Subscribe(wants_all=wants_all, is_coalesced=is_coalesced):
                self.server.subscribe(request.client, wants_all, is_coalesced=is_coalesced)
                request.answer(epoch=7, seq=0)
            case ReadStatus(lists_connections=True):
                request.answer(connections=self.server.connections(), workers=[])
            case Disconnect(number=number):
                request.answer(was_there=self.server.disconnect(number))
            case RescanSources():
                raise UserError("no scan now", hint="later")
            case PingEngine() | ReadStatus() | StopEngine():
                request.answer(verb=type(request.verb).__name__)
            case Settle():
                pass

    def forget_client(self, client) -> None:
        self.gone.append(client)


class Harness:
    """The server in this thread; `turn` is one turn of the engine's loop."""

    def __init__(self, folder, limits=None, **options) -> None:
        self.path = str(Path(folder, "engine", "socket"))
        self.clock = Clock(1000.0)
        self.handler = Handler()
        self.selector = selectors.DefaultSelector()
        options.setdefault("clock", self.clock)
        self.server = self.handler.server = LinkServer(self.path, self.selector, self.handler, limits=limits, **options)
        self.server.listen()
        self._open = []

    def turn(self, wait_s=0.0) -> None:
        for key, mask in self.selector.select(wait_s):
            key.data(mask)
        self.server.poll(self.clock.now)
        self.server.flush()

    def turn_until(self, is_true) -> None:
        until(is_true, step=lambda _left_s: self.turn(0.01))

    def bare(self) -> "Bare":
        bare = Bare(self)
        self._open.append(bare)
        return bare

    def guest(self, **fields) -> "Bare":
        """Return a bare client that has said hello."""
        bare = self.bare()
        bare.say(id=1, verb="hello", **{"protocol": PROTOCOL, "version": "1", "kind": "test", "pid": 1, **fields})
        assert bare.receive()["answer"]["version"] == "1.2.3"
        return bare

    def subscriber(self, **fields) -> "Bare":
        bare = self.guest()
        bare.say(id=2, verb="subscribe", **fields)
        assert bare.receive()["id"] == 2
        return bare

    def close(self) -> None:
        for bare in self._open:
            bare.socket.close()
        self.server.close()
        self.selector.close()


class Bare:
    """A client as a bare socket. Each receive also runs the server's loop once."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(harness.path)
        self.socket.setblocking(False)
        self.begun = b""
        self.is_over = False

    def send(self, data: bytes) -> None:
        """Send all data. While the kernel's buffer is full, run the server's loop."""
        while data:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                self.harness.turn()

    def say(self, **message) -> None:
        self.send(json.dumps(message).encode() + b"\n")

    def read(self) -> bool:
        """Read all available bytes; return whether there were any."""
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        self.is_over = not data
        self.begun += data
        return True

    def receive(self):
        """Return the next message; None at the end."""
        deadline = time.monotonic() + TIMEOUT_S
        while b"\n" not in self.begun:
            if self.is_over:
                return None
            assert time.monotonic() < deadline, "no message arrived in time"
            if not self.read():
                self.harness.turn(0.01)
        line, self.begun = self.begun.split(b"\n", 1)
        return json.loads(line)

    def receive_all(self) -> list:
        """Return all lines until the end of the connection."""
        return list(iter(self.receive, None))


class Engine:
    """A server whose loop runs in a thread; `do` calls a function in that thread."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self._calls = []
        self._is_over = False
        self._read, self._write = os.pipe()
        harness.selector.register(self._read, selectors.EVENT_READ, lambda _mask: os.read(self._read, 100))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            while self._calls:
                call, done = self._calls.pop(0)
                call()
                self.harness.server.flush()
                done.set()
            self.harness.turn(1.0)

    def do(self, call) -> None:
        done = threading.Event()
        self._calls.append((call, done))
        os.write(self._write, b"x")
        assert done.wait(TIMEOUT_S)

    def await_request(self, kind):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = [request for request in list(self.harness.handler.taken) if isinstance(request.verb, kind)]
            if found:
                return found[-1]
            assert time.monotonic() < deadline, "no request arrived in time"
            time.sleep(0.001)

    def close(self) -> None:
        self._is_over = True
        os.write(self._write, b"x")
        self._thread.join()
        self.harness.selector.unregister(self._read)
        os.close(self._read)
        os.close(self._write)


@contextlib.contextmanager
def short_folder():
    """A folder whose path is short enough for a socket; `tmp_path` contains the test's name, which may be too long."""
    with tempfile.TemporaryDirectory(prefix="link-", dir="/tmp") as folder:
        yield Path(folder)


@contextlib.contextmanager
def opened(limits: LinkLimits | None = None, **options):
    with short_folder() as folder, contextlib.closing(Harness(folder, limits, **options)) as harness:
        yield harness


@contextlib.contextmanager
def running(limits: LinkLimits | None = None):
    with opened(limits, clock=time.monotonic) as harness:
        harness.clock = type("Real", (), {"now": property(lambda _self: time.monotonic())})()
        with contextlib.closing(Engine(harness)) as engine:
            yield engine


def example(record: Any, seed: int = 1) -> Any:
    """Return a record whose fields all have a value other than their default."""
    hints = typing.get_type_hints(record)
    names = record.__struct_fields__
    return record(**{name: _value(hints[name], seed + at) for at, name in enumerate(names)})


def _value(hint, seed):
    if hasattr(hint, "__supertype__"):
        return _value(hint.__supertype__, seed)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _value(next(item for item in arguments if item is not type(None)), seed)
    if origin is tuple:
        inner = arguments[:1] * 2 if arguments[-1] is Ellipsis else arguments
        return tuple(_value(item, seed + at) for at, item in enumerate(inner))
    if hasattr(hint, "__struct_fields__"):
        return example(hint, seed)
    if issubclass(hint, Enum):
        return list(hint)[seed % len(hint)]
    return {bool: True, int: seed * 1_000_003, str: f'text {seed} \n "ä" \U0010ff80', float: seed + 0.5}[hint]


def job(number: int, status: str = "completed") -> JobChanged:
    """Return the notice of a job."""
    return JobChanged(1, number, "a/b.txt", 1, "pc", "key", "builder", status, "", "", 0, 0, 5, "", number)

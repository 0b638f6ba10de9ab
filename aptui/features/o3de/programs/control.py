"""Sockets on 127.0.0.1: the control channel, and a port that closes every connection.

Commands are raw text without a terminator, one per message. TCP may join or split commands. They stay distinct, because no
command is a prefix of another command.

Every user of the machine and every web page in a browser can connect to a loopback port. So the channel answers only root and the
user who runs the program; the kernel reports the owner of the other end. A connection that starts like HTTP or TLS is closed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from aptui.link import places
from aptui.shared.errors import HostError

HOST = "127.0.0.1"
COMMANDS = ("ping", "isidle", "waitforidle", "signalidle", "windowid", "quit")
_NO_WINDOW_ID = "0"
_READ_BYTES = 4096
_BETWEEN = b" \t\r\n\0"
"""Bytes that may separate commands. O3DE's tools send none, but a user who types in a terminal does."""
_LAST_PORT = 65535
_PEERS_LIMIT = 16
_WAITERS_LIMIT = 8
"""Maximum number of pending answers per client."""


class Processor(Protocol):
    """The program that the control channel controls; it defines the condition "idle"."""

    def is_idle(self) -> bool:
        """Whether all known work is done."""

    def when_idle(self, then: Callable[[], None]) -> None:
        """Call `then` when all changes before this call are processed."""

    def at_next_idle(self, then: Callable[[], None]) -> None:
        """Call `then` when the engine becomes idle.

        If the engine is idle already, and has done work since the last call of a callback, call `then` at once.
        """

    def quit(self) -> None:
        """Stop as soon as all running jobs can be ended cleanly."""


def commands_in(data: bytes) -> tuple[list[str], bytes]:
    """Return the complete commands at the start of `data`, and an incomplete command after them. Drop the rest of the data."""
    found: list[str] = []
    while data := data.lstrip(_BETWEEN):
        command = next((name for name in COMMANDS if data.startswith(name.encode())), None)
        if command is None:
            is_beginning = any(name.encode().startswith(data) for name in COMMANDS)
            return found, data if is_beginning else b""
        found.append(command)
        data = data[len(command) :]
    return found, b""


class _Peer(Struct, eq=False):
    """A connected client; `is_gone` is set when its connection ends."""

    channel: socket.socket
    data: bytes = b""
    is_gone: bool = False
    waiting_count: int = 0


def is_foreign(data: bytes) -> bool:
    """Whether received data, for example HTTP or TLS, cannot be a control command. Commands begin with a lower-case letter."""
    given = data.lstrip(_BETWEEN)
    return bool(given) and not (given[:1].isalpha() and given[:1].islower())


class _Listener:
    """A listening socket on a selector. If no file descriptor is free, new connections are closed at once."""

    def __init__(self, selector: selectors.BaseSelector, channel: socket.socket, take: Callable[[socket.socket], None]) -> None:
        self._selector, self._channel, self._add_client = selector, channel, take
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        """A spare descriptor. If no descriptor is free, the spare one is closed, so that one connection can be accepted and closed.

        Otherwise the full queue of the socket would wake the loop forever.
        """
        selector.register(channel, selectors.EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        return int(self._channel.getsockname()[1])

    def close(self) -> None:
        self._selector.unregister(self._channel)
        self._channel.close()
        if self._spare >= 0:
            os.close(self._spare)

    def _accept(self, _mask: int) -> None:
        try:
            self._add_client(self._channel.accept()[0])
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and self._spare >= 0:
                os.close(self._spare)
                with contextlib.suppress(OSError):
                    self._channel.accept()[0].close()
                self._spare = -1
        if self._spare < 0:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


class ControlChannel:
    """Answers commands. It registers functions with the caller's selector; the caller calls them with the event mask."""

    def __init__(self, selector: selectors.BaseSelector, processor: Processor) -> None:
        self._selector, self._processor = selector, processor
        self._peers: set[_Peer] = set()
        self._listener = _Listener(selector, listener(0), self._add_client)
        self.port = self._listener.port

    def close(self) -> None:
        """Close every connection."""
        for peer in list(self._peers):
            self._leave(peer)
        self._listener.close()

    def _add_client(self, channel: socket.socket) -> None:
        try:
            is_ours = len(self._peers) < _PEERS_LIMIT and places.loopback_uid(channel) in (os.geteuid(), 0)
        except OSError:
            is_ours = False  # the client has disconnected already
        if not is_ours:
            channel.close()
            return
        channel.setblocking(False)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Peer(channel)
        self._peers.add(peer)
        self._selector.register(channel, selectors.EVENT_READ, lambda _mask: self._read(peer))

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.channel.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or is_foreign(peer.data + data):
            self._leave(peer)
            return
        commands, peer.data = commands_in(peer.data + data)
        for command in commands:
            if not peer.is_gone:
                self._answer(peer, command)

    def _answer(self, peer: _Peer, command: str) -> None:
        processor = self._processor
        match command:
            case "ping":
                self._send(peer, "pong")
            case "isidle":
                self._send(peer, "true" if processor.is_idle() else "false")
            case "waitforidle":
                self._wait(peer, processor.when_idle)
            case "signalidle":
                self._wait(peer, processor.at_next_idle)
            case "windowid":
                self._send(peer, _NO_WINDOW_ID)
            case _:
                processor.quit()

    def _wait(self, peer: _Peer, ask: Callable[[Callable[[], None]], None]) -> None:
        if peer.waiting_count >= _WAITERS_LIMIT:
            self._leave(peer)
            return

        def report() -> None:
            peer.waiting_count -= 1
            self._send(peer, "idle")

        peer.waiting_count += 1
        ask(report)

    def _send(self, peer: _Peer, text: str) -> None:
        """Send a few bytes. A client whose buffer is full does not read its answers, so it is disconnected."""
        if peer.is_gone:
            return
        try:
            peer.channel.send(text.encode())
        except OSError:
            self._leave(peer)

    def _leave(self, peer: _Peer) -> None:
        if not peer.is_gone:
            peer.is_gone = True
            self._peers.discard(peer)
            self._selector.unregister(peer.channel)
            peer.channel.close()


class RefusingPort:
    """A port that accepts and closes every connection, because O3DE's own protocol is not served.

    Args:
        first_port: the first port to try; 0 = any free port.
        report: called at the first rejected connection.
    """

    def __init__(self, selector: selectors.BaseSelector, first_port: int, report: Callable[[], None] = lambda: None) -> None:
        self._report: Callable[[], None] | None = report
        self._listener = _Listener(selector, _free_listener(first_port), self._refuse)
        self.port = self._listener.port

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _refuse(self, channel: socket.socket) -> None:
        channel.close()
        if self._report is not None:
            self._report()
        self._report = None


def listener(port: int) -> socket.socket:
    """Return a socket that listens on `port` for this machine only; 0 = any free port.

    Raises:
        OSError: the port is in use.
    """
    channel = socket.create_server((HOST, port))
    channel.setblocking(False)
    return channel


def _free_listener(first_port: int) -> socket.socket:
    for port in range(first_port, _LAST_PORT + 1 if first_port else 1):
        with contextlib.suppress(OSError, OverflowError):
            return listener(port)
    raise HostError(f"no port from {first_port} upwards is free", hint="add --randomListeningPort to use any free port")

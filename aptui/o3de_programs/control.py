"""The control channel (spec/surface.md §3.7) and the port that nobody is served at: sockets on 127.0.0.1; what idle means is not known here.

Commands are raw text without an end, one a message. What TCP joins or splits is told apart by the words themselves: none begins another.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aptui.shared.errors import HostError

HOST = "127.0.0.1"
COMMANDS = ("ping", "isidle", "waitforidle", "signalidle", "windowid", "quit")
DEFAULT_PORT = 45643
"""spec/surface.md §5.3, `remote_port`."""
_NO_WINDOW_ID = "0"
_READ_BYTES = 4096
_BETWEEN = b" \t\r\n\0"
"""What may stand between commands: nothing of the reference sends it, people with a terminal do."""
_LAST_PORT = 65535


class Processor(Protocol):
    """Whoever is controlled."""

    def is_idle(self) -> bool:
        """Whether nothing is left to do, as far as anybody can say at once."""
        ...

    def when_idle(self, then: Callable[[], None]) -> None:
        """Call `then` when everything that was changed before now is processed."""
        ...

    def at_next_idle(self, then: Callable[[], None]) -> None:
        """Call `then` when it becomes idle the next time, or has become so since somebody was told last."""
        ...

    def quit(self) -> None:
        """End as soon as that can be done cleanly."""
        ...


def commands_in(data: bytes) -> tuple[list[str], bytes]:
    """Return the commands in what has come so far, and what may be the beginning of another; anything else is dropped."""
    found: list[str] = []
    while data := data.lstrip(_BETWEEN):
        command = next((name for name in COMMANDS if data.startswith(name.encode())), None)
        if command is None:
            is_beginning = any(name.encode().startswith(data) for name in COMMANDS)
            return found, data if is_beginning else b""
        found.append(command)
        data = data[len(command) :]
    return found, b""


@dataclass(slots=True, eq=False)
class _Peer:
    """Somebody who is connected; `is_gone` once that is over."""

    channel: socket.socket
    data: bytes = b""
    is_gone: bool = False


class ControlChannel:
    """Answers commands; it lives on somebody else's selector, whose data are called with the event mask."""

    def __init__(self, selector: selectors.BaseSelector, processor: Processor) -> None:
        self._selector, self._processor = selector, processor
        self._listener = listener(0)
        self._peers: set[_Peer] = set()
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """Where it is."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Close every connection."""
        for peer in list(self._peers):
            self._leave(peer)
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, _mask: int) -> None:
        with contextlib.suppress(OSError):
            channel, _address = self._listener.accept()
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
        if not data:
            self._leave(peer)
            return
        commands, peer.data = commands_in(peer.data + data)
        for command in commands:
            self._answer(peer, command)

    def _answer(self, peer: _Peer, command: str) -> None:
        processor = self._processor
        match command:
            case "ping":
                self._send(peer, "pong")
            case "isidle":
                self._send(peer, "true" if processor.is_idle() else "false")
            case "waitforidle":
                processor.when_idle(lambda: self._send(peer, "idle"))
            case "signalidle":
                processor.at_next_idle(lambda: self._send(peer, "idle"))
            case "windowid":
                self._send(peer, _NO_WINDOW_ID)
            case _:
                processor.quit()

    def _send(self, peer: _Peer, text: str) -> None:
        """Answer with a few bytes; whoever leaves no room for those does not read at all."""
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


class ClosedDoor:
    """A port that can be connected to and that closes every connection at once: the reference's own protocol is not spoken here.

    Args:
        first_port: where to begin to look for a free one; 0 = any.
        tell: called when somebody is turned away for the first time.
    """

    def __init__(self, selector: selectors.BaseSelector, first_port: int, tell: Callable[[], None] = lambda: None) -> None:
        self._selector = selector
        self._tell: Callable[[], None] | None = tell
        self._listener = _free_listener(first_port)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """Where it is."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, _mask: int) -> None:
        with contextlib.suppress(OSError):
            self._listener.accept()[0].close()
            if self._tell is not None:
                self._tell()
            self._tell = None


def listener(port: int) -> socket.socket:
    """Return a socket that listens on `port` of this machine alone, 0 = any.

    Raises:
        OSError: somebody else has it.
    """
    channel = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        channel.bind((HOST, port))
        channel.listen()
        channel.setblocking(False)
    except BaseException:
        channel.close()
        raise
    return channel


def _free_listener(first_port: int) -> socket.socket:
    for port in range(first_port, _LAST_PORT + 1 if first_port else 1):
        with contextlib.suppress(OSError, OverflowError):
            return listener(port)
    raise HostError(f"no port from {first_port} upwards is free", hint="--randomListeningPort takes any")

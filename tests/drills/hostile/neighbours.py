"""Another user of this machine against everything that belongs to an engine: sockets, ports, files and locks.

The drill needs root, to become another user. Each of the `MUTANTS` removes one rule, and the drill must notice the missing rule.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest import mock

from disk_project import COPIES, HOST, Project

from aptui.engine.cache.cache import Cache
from aptui.features.gateway import wire_codec
from aptui.features.gateway.access import guard, tokens
from aptui.features.o3de.programs.control import ControlChannel
from aptui.link import places
from aptui.link.port import PROTOCOL
from aptui.link.server import LinkServer
from tests.features.gateway.served import served
from tests.waiting import TIMEOUT_S

from ..worlds.report import Report, Say

OTHER_UID = 65534


# ----------------------------------------------------------------------------------------------------------- another user


class OtherUser:
    """A process of another user that runs the given attempts. Create the process before any thread is started."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._ours.close()
            try:
                os.setgroups([])
                os.setresgid(OTHER_UID, OTHER_UID, OTHER_UID)
                os.setresuid(OTHER_UID, OTHER_UID, OTHER_UID)
                while words := theirs.recv(1 << 16).decode("utf-8", "surrogateescape").split("\0", 1):
                    if len(words) < 2:
                        break
                    theirs.sendall(b"y" if _comes_through(*words) else b"n")
            finally:
                os._exit(0)
        theirs.close()

    def may(self, kind: str, what: str) -> bool:
        """Return whether the process of `OTHER_UID` gets access. `kind` is lock, read, socket, control or gateway."""
        self._ours.sendall(f"{kind}\0{what}".encode("utf-8", "surrogateescape"))
        answer = self._ours.recv(1)
        assert answer, "the process of the other user has ended"
        return answer == b"y"

    def close(self) -> None:
        """End the process that runs as `OTHER_UID`."""
        self._ours.close()
        os.waitpid(self._pid, 0)


def _comes_through(kind: str, what: str) -> bool:
    try:
        if kind == "lock":
            descriptor = os.open(what, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            finally:
                os.close(descriptor)
            return True
        if kind == "read":
            os.close(os.open(what, os.O_RDONLY))
            return True
        if kind == "socket":
            with socket.socket(socket.AF_UNIX) as wire:
                wire.settimeout(TIMEOUT_S)
                wire.connect(what)
                wire.sendall(_HELLO)
                return bool(wire.recv(1))
        # No HTTP client, because this process runs as another user, who may be unable to read the client's modules.
        with socket.socket() as wire:
            wire.settimeout(TIMEOUT_S)
            wire.connect(("127.0.0.1", int(what)))
            wire.sendall(_REQUESTS[kind] % int(what) if kind == "gateway" else _REQUESTS[kind])
            return _ANSWERS[kind] in wire.recv(4_096)
    except OSError:
        return False


_HELLO = json.dumps({"id": 1, "verb": "hello", "protocol": PROTOCOL, "version": "0", "kind": "test", "pid": 1}).encode() + b"\n"
_REQUESTS = {"control": b"ping", "gateway": b"GET /v1/products HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"}
_ANSWERS = {"control": b"pong", "gateway": b" 200 "}


# ------------------------------------------------------------------------------------------------------------------ mutants


def _open_files(folder: Path, _stack: ExitStack) -> None:
    """Break the engine on purpose: other users can read its private files."""
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _open_socket(folder: Path, stack: ExitStack) -> None:
    """Break the engine on purpose: other users can connect to its socket, and it does not check which user a client is."""
    (folder / "run").chmod(0o755)
    (folder / "run" / "socket").chmod(0o666)
    stack.enter_context(mock.patch.object(places.Credentials, "is_trusted", True))


def _open_control(_folder: Path, stack: ExitStack) -> None:
    """Break the engine on purpose: it does not check which user sent a request to its control port."""
    stack.enter_context(mock.patch.object(places, "loopback_uid", return_value=os.geteuid()))


def _open_gateway(_folder: Path, stack: ExitStack) -> None:
    """Break the gateway on purpose: it accepts clients without a token."""
    anybody = guard.ClientIdentity("anybody", frozenset(wire_codec.Scope), "")
    stack.enter_context(mock.patch.object(guard.Guard, "identify", return_value=anybody))


MUTANTS: dict[str, Callable[[Path, ExitStack], None]] = {
    "": lambda *_: None,
    "open-files": _open_files,
    "open-socket": _open_socket,
    "open-control": _open_control,
    "open-gateway": _open_gateway,
}


# -------------------------------------------------------------------------------------------------------------------- drill


def drill(folder: Path, *, mutant: str = "", say: Say = print) -> Report:
    """Drill `neighbours`: another user of the machine tries to use each private file, lock, socket and port of an engine."""
    folder.chmod(0o755)
    with ExitStack() as stack:
        others = stack.enter_context(closing(OtherUser()))
        project = Project(folder / "project", COPIES)
        project.write("assets/a.txt", "ours")
        project.engine_run()
        place = stack.enter_context(served(project, folder / "state" / "tokens.json"))
        tokens.add(place.token_file, "phone", [wire_codec.Scope.READ])
        cache = Cache(project.cache, [HOST])
        cache.acquire()
        stack.callback(cache.close)
        selector = stack.enter_context(selectors.DefaultSelector())
        server = LinkServer(str(folder / "run" / "socket"), selector, Quiet())
        server.listen()
        stack.callback(server.close)
        MUTANTS[mutant](folder, stack)
        control = ControlChannel(selector, Quiet())
        stack.callback(control.close)
        _turn_around(selector, server, stack)
        tries = [(kind, str(path)) for path in _private(project.cache, folder / "state") for kind in ("read", "lock")]
        tries += [("socket", server.path), ("control", str(control.port)), ("gateway", str(place.port))]
        report = Report("neighbours", faults=len(tries))
        report.violations += [f"another user may {kind}: {what}" for kind, what in tries if others.may(kind, what)]
    say(f"  neighbours: {report.faults} tries, {len(report.violations)} came through")
    return report


def _turn_around(selector: selectors.BaseSelector, server: LinkServer, stack: ExitStack) -> None:
    over = threading.Event()

    def turn() -> None:
        while not over.is_set():
            for key, mask in selector.select(0.02):
                key.data(mask)
            server.flush()

    thread = threading.Thread(target=turn)
    thread.start()
    stack.callback(thread.join)
    stack.callback(over.set)


class Quiet:
    """A request handler that is never idle, and answers every request with an empty answer."""

    def is_idle(self) -> bool:
        return False

    def handle(self, request: Any) -> None:
        request.answer()

    def forget_client(self, client: int) -> None:
        pass


def _private(cache: Path, state: Path) -> list[Path]:
    below = (*cache.glob("assetdb.sqlite*"), *(cache / ".aptui").rglob("*"), *state.rglob("*"))
    return [path for path in below if path.is_file()]

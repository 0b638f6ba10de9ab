"""Another user of this machine against everything that belongs to an engine: sockets, ports, files and locks.

Needs root, to be somebody else. `MUTANTS` take one rule away each: a drill that does not notice is no drill.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from aptui.engine.cache.cache import Cache
from aptui.link.server import LinkServer
from aptui.o3de_programs.control import ControlChannel
from aptui.store.db import schema

from .kills import Report, Say

NOBODY = 65534
_TRY = """
import fcntl, os, socket, sys
kind, path = sys.argv[1:]
try:
    if kind == "lock":
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif kind == "read":
        open(path, "rb").read(1)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).connect(path)
    else:
        with socket.create_connection(("127.0.0.1", int(path)), 5) as wire:
            wire.sendall(b"ping")
            wire.settimeout(5)
            if wire.recv(10) != b"pong":
                sys.exit(1)
except OSError:
    sys.exit(1)
"""


def _open_files(folder: Path) -> None:
    """Break the contract: what is ours alone can be read."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


MUTANTS: dict[str, Callable[[Path], None]] = {"": lambda _folder: None, "open-files": _open_files}


def tried(kind: str, what: str) -> bool:
    """Return whether another user comes through."""
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, "-I", "-c", _TRY, kind, what]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, timeout=30, stderr=subprocess.DEVNULL).returncode == 0


def can_be_somebody_else() -> bool:
    """Whether there are the rights and the program for it, and Python can be run by others."""
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, "-I", "-c", ""]
    try:
        return os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 0
    except OSError:
        return False


def attacked(cache: Path, socket: str = "", control_port: int = 0, *, mutant: str = "", say: Say = print) -> Report:
    """N1: every file, lock, socket and port of an engine at `cache`, tried by somebody else.

    Args:
        cache: the cache folder of an engine that runs; the folders above must let others through, or nothing is tried.
        socket: of the engine, "" = none.
        control_port: of `AssetProcessor --acceptInput`, 0 = none.
    """
    report = Report("N1")
    MUTANTS[mutant](cache)
    tries = [(kind, str(path)) for path in _private(cache) for kind in ("read", "lock")]
    tries += [("socket", socket)] if socket else []
    tries += [("port", str(control_port))] if control_port else []
    for kind, what in tries:
        report.faults += 1
        if tried(kind, what):
            report.violations.append(f"another user may {kind}: {what}")
    say(f"  neighbours: {report.faults} tries, {len(report.violations)} came through")
    return report


def drill(folder: Path, *, mutant: str = "", say: Say = print) -> Report:
    """N1 with a cache, a socket and a control channel of its own, in `folder`, which others may enter."""
    folder.chmod(0o755)
    cache = Cache(folder / "Cache", ["linux"])
    cache.take()
    schema.prepare(cache.root / "assetdb.sqlite")
    over = threading.Event()
    with ExitStack() as stack:
        stack.callback(cache.close)
        selector = stack.enter_context(selectors.DefaultSelector())
        server = LinkServer(str(folder / "run" / "socket"), selector, None, version="1")
        server.listen()
        stack.callback(server.close)
        control = ControlChannel(selector, Quiet())
        stack.callback(control.close)

        def turn() -> None:
            while not over.is_set():
                for key, mask in selector.select(0.02):
                    key.data(mask)

        thread = threading.Thread(target=turn)
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        return attacked(cache.root, server.path, control.port, mutant=mutant, say=say)


class Quiet:
    """A processor that only ever waits."""

    def is_idle(self) -> bool:
        return False


def _private(cache: Path) -> list[Path]:
    return [path for path in (*cache.glob("assetdb.sqlite*"), *(cache / ".aptui").rglob("*")) if path.is_file()]

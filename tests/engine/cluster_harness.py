"""A Dask cluster on the loopback interface in separate processes, and a proxy to its scheduler that can drop all data."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from waiting import until

import aptui


class LoopbackCluster:
    """A scheduler and some workers with one slot each; `address` is the scheduler's address."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        self.workers = [self.start_worker(number) for number in range(count)]
        until(lambda: self._registered() >= count, "the workers have joined")

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        """Start one more worker."""
        return self._start(
            "worker",
            self.address,
            *("--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", f"w{number}", "--resources", "paint=1"),
            *("--preload", "aptui.features.cluster.task", "--local-directory", str(self._folder / f"w{number}")),
        )

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(Path(aptui.__file__).parent.parent), "PYTHONWARNINGS": "ignore"}
        with (self._folder / f"{words[0]}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *words], stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _registered(self) -> int:
        log = self._folder / "scheduler.log"
        return log.read_text().count("Starting worker compute stream") if log.exists() else 0

    def close(self) -> None:
        """End the remaining processes."""
        for process in (*self.workers, self.scheduler):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Proxy:
    """A TCP proxy for a local port. While `is_cut` is true, it forwards no data, like a network that loses all packets."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.is_cut = False
        self._is_over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as sockets:
            sockets.enter_context(self._listener)
            selector.register(self._listener, selectors.EVENT_READ, None)
            while not self._is_over:
                if self.is_cut:
                    time.sleep(0.02)
                    continue
                for key, _ in selector.select(0.05):
                    if key.data is None:
                        self._accept(selector, sockets)
                    else:
                        _forward(key.fileobj, key.data, selector)

    def _accept(self, selector: selectors.BaseSelector, sockets: contextlib.ExitStack) -> None:
        ours, _ = self._listener.accept()
        sockets.enter_context(ours)
        try:
            theirs = sockets.enter_context(socket.create_connection(("127.0.0.1", self._target)))
        except OSError:
            ours.close()
            return
        selector.register(ours, selectors.EVENT_READ, theirs)
        selector.register(theirs, selectors.EVENT_READ, ours)

    def close(self) -> None:
        """End the proxy and all its connections."""
        self._is_over = True
        self._thread.join()


def _forward(source: socket.socket, target: socket.socket, selector: selectors.BaseSelector) -> None:
    try:
        data = source.recv(1 << 16)
        target.sendall(data)
    except OSError:
        data = b""
    if not data:
        for each in (source, target):
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(each)
            each.close()


@contextlib.contextmanager
def loopback_cluster(folder: Path, count: int) -> Iterator[LoopbackCluster]:
    """Start a cluster; end it when the context ends."""
    cluster = LoopbackCluster(folder, count)
    try:
        yield cluster
    finally:
        cluster.close()

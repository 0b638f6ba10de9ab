"""Benchmarks of the gateway: time from a save to its report, cost of a thousand clients, and file downloads compared with nginx.

`python -m tests.bench.serve N` starts N subscribers of the gateway at `APTUI_URL` (`APTUI_TOKEN`). One of them, the recorder,
prints its notices. The others let the kernel discard received data, to use little processor time: real subscribers run on other
machines.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import random
import re
import select
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aptui.link import port
from tests.bench.live import engine_of, own_project, processor_s
from tests.bench.measure import say

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench
    from tests.bench.live import Engine

ROWS: dict[str, Callable[[Bench], None]] = {}
_TIMEOUT_S = 300.0
_SAVES = 60
_GAP_S = 0.2
_CLIENTS = 1_000
_SIZES = (4 << 10, 64 << 10)
_REQUESTS = 4_000
_AT_ONCE = 8


def row(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
    """Register a benchmark, which prints one row of the report, under the name of its function."""
    ROWS[function.__name__.replace("_", "-")] = function
    return function


def _load() -> str:
    return f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


@contextlib.contextmanager
def gateway_of(project: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the address, the token and the process of a gateway beside a running engine."""
    process = subprocess.Popen(
        [sys.executable, "-m", "aptui", "gateway", "--project", str(project)], stdout=subprocess.PIPE, text=True
    )
    from aptui.features.gateway.client import local

    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield *local(project / "Cache"), process.pid
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


# ------------------------------------------------------------------------------------------------------------------- notify


@row
def notify(bench: Bench) -> None:
    """The time from a save to its notification.

    Each save is timed twice: until a client of the gateway receives the notification, and until `inotifywait` reports the product.
    """
    if shutil.which("inotifywait") is None:
        say("notify", "no inotifywait (inotify-tools): no figure")
        return
    project, sources = own_project(bench, "notify")
    _add_rows(project)
    chosen = random.Random(7).sample(bench.paths, min(_SAVES, len(bench.paths)))
    with engine_of(project) as engine, gateway_of(project) as (url, token, _pid):
        ours, theirs = _saves(engine, sources, chosen, url, token)
    behind = sorted(mine - other for mine, other in zip(ours, theirs, strict=True))
    say(
        "notify",
        f"save → client {_spread(ours)}; save → inotifywait on the product {_spread(theirs)}: "
        f"{statistics.median(ours) / statistics.median(theirs):.2f} ×, {1000 * statistics.median(behind):.1f} ms behind; {_load()}",
    )


def _add_rows(project: Path) -> None:
    with (project / "aptui.yaml").open("a") as file:
        file.write(f"serve: {{port: 0, clients_limit: {_CLIENTS + 8}}}\n")


def _spread(times_s: list[float]) -> str:
    ordered = sorted(1000 * each for each in times_s)
    return f"p50 {ordered[len(ordered) // 2]:.1f} ms, p99 {ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]:.1f} ms"


def _saves(engine: Engine, sources: Path, chosen: list[str], url: str, token: str) -> tuple[list[float], list[float]]:
    from aptui.features.gateway.client import Client
    from aptui.features.gateway.wire_records import AssetChanged

    products = engine.cache / "linux"
    command = ["inotifywait", "-m", "-r", "-q", "-e", "moved_to,close_write,create", "--format", "%w%f", str(products)]
    received: queue.Queue[tuple[str, float]] = queue.Queue()
    ours, theirs = [], []
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as peer,
        Client.connect(url, token=token, client="bench", notices=("asset_changed",)) as client,
    ):
        assert peer.stdout is not None
        threading.Thread(
            target=lambda: [received.put((line.rstrip("\n"), time.perf_counter())) for line in peer.stdout or ()], daemon=True
        ).start()
        time.sleep(3.0)  # wait until the watches are active, and until the engine relies on the sources' modification times
        for number, path in enumerate(chosen):
            time.sleep(_GAP_S)
            began = time.perf_counter()
            (sources / path).write_bytes(b"%d\n" % number + random.Random(number).randbytes(64))
            while True:
                found = client.next_notice(_TIMEOUT_S)
                if found is None:
                    raise SystemExit("no word came: no figure")
                if isinstance(found.notice, AssetChanged) and found.notice.asset.path == path.lower():
                    break
            ours.append(time.perf_counter() - began)
            while (event := received.get(timeout=_TIMEOUT_S))[0] != str(products / path.lower()):
                pass
            theirs.append(event[1] - began)
        peer.terminate()
    return ours, theirs


# -------------------------------------------------------------------------------------------------------------- subscribers


@row
def subscribers(bench: Bench) -> None:
    """Compare the cost of a rerun of all jobs with and without a thousand clients that receive every notice.

    Runs with clients and runs without clients alternate.
    """
    project, _sources = own_project(bench, "subscribers")
    _add_rows(project)
    none: list[_Cost] = []
    many: list[_Cost] = []
    with engine_of(project) as engine:
        _again(engine)  # the first run only warms caches and is not measured
        for _run in range(bench.runs):
            none.append(_again(engine))
            with gateway_of(project) as (url, token, pid), _crowd(url, token) as crowd:
                many.append(_again(engine, pid, crowd.pid))
                received = _received(crowd)
    wall, own = (statistics.median(each[at] for each in many) / statistics.median(each[at] for each in none) for at in (0, 1))
    gateway_s, clients_s = (statistics.median(each[at] for each in many) for at in (2, 3))
    say(
        "subscribers",
        f"{bench.count:,} jobs, none {_walls(none)}, {_CLIENTS:,} clients {_walls(many)}: {wall:.2f} × (target ≤ 1.10), "
        f"the engine's own processor time {own:.2f} ×, the gateway's {gateway_s:.1f} s, the clients' {clients_s:.1f} s; "
        f"{received}; {_load()}",
    )


_Cost = tuple[float, float, float, float]
"""Wall time, and processor times of the engine (without its workers), of the gateway and of the clients."""


def _walls(costs: list[_Cost]) -> str:
    walls = [cost[0] for cost in costs]
    return f"{statistics.median(walls):.2f} s [{min(walls):.2f} … {max(walls):.2f}]"


def _again(engine: Engine, *others: int) -> _Cost:
    """Run every job again and return the cost up to the end of the engine's work."""
    began, processor, theirs = time.perf_counter(), engine.processor_s(), [processor_s(pid) for pid in others]
    engine.client.ask(port.ReprocessJobs(("*",)), _TIMEOUT_S)
    engine.rest()
    gateway_s, clients_s = (processor_s(pid) - before for pid, before in zip(others, theirs, strict=True)) if others else (0.0, 0.0)
    return time.perf_counter() - began, engine.processor_s() - processor, gateway_s, clients_s


@contextlib.contextmanager
def _crowd(url: str, token: str) -> Iterator[subprocess.Popen[str]]:
    environ = {**os.environ, "APTUI_URL": url, "APTUI_TOKEN": token}
    command = ["nice", "-n", "19", sys.executable, "-m", "tests.bench.serve", str(_CLIENTS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the clients do not get in: no figure")
        try:
            yield process
        finally:
            process.terminate()


def _received(crowd: subprocess.Popen[str]) -> str:
    """Let the clients print their notices."""
    assert crowd.stdin is not None
    assert crowd.stdout is not None
    crowd.stdin.write("what\n")
    crowd.stdin.flush()
    return crowd.stdout.readline().strip()


_SINK = bytearray(1 << 20)
_ALIVE_S = 10.0


class _Subscriber:
    """A minimal client: the kernel counts and drops the received data, unless the client `keeps` them."""

    def __init__(self, url: str, token: str, number: int, *, keeps: bool) -> None:
        place = urlsplit(url)
        self.stored, self.received_bytes, self._keeps = bytearray(), 0, keeps
        self.socket = socket.create_connection((place.hostname or "", place.port or 80), 30)
        self._open(f"{place.hostname}:{place.port}", token)
        hello = json.dumps({"id": 1, "request": "hello", "protocol": 1, "client": f"subscriber {number}"}).encode()
        self.socket.sendall(bytes((0x81, 0x80 | len(hello))) + bytes(4) + hello)
        self._welcomed()
        self.socket.setblocking(False)

    def _open(self, host: str, token: str) -> None:
        words = f"""GET /v1/connect HTTP/1.1
Host: {host}
Authorization: Bearer {token}
Connection: Upgrade
Upgrade: websocket
Sec-WebSocket-Version: 13
Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}
Sec-WebSocket-Extensions: permessage-deflate

"""
        self.socket.sendall(words.replace("\n", "\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.socket.recv(1)
        if b" 101 " not in head:
            raise SystemExit(head.decode())

    def _welcomed(self) -> None:
        """Read the first WebSocket frame, which is the gateway's welcome."""
        head = self.socket.recv(4, socket.MSG_WAITALL)
        left = int.from_bytes(head[2:], "big") if head[1] == 126 else head[1] - 2
        self.socket.recv(left, socket.MSG_WAITALL)

    def receive(self) -> None:
        """Read the received data."""
        with contextlib.suppress(BlockingIOError):
            if self._keeps:
                self.stored += self.socket.recv(len(_SINK))
            else:
                self.received_bytes += self.socket.recv_into(_SINK, len(_SINK), socket.MSG_TRUNC)

    def live(self) -> None:
        """Send a pong without waiting for a ping: this client discards all received data unread, including pings."""
        self.socket.send(b"\x8a\x80\0\0\0\0")


def _count_notifications(stream: bytes) -> Counter[str]:
    """Return how often a gateway sent each notification after its welcome."""
    found: Counter[str] = Counter()
    at = 0
    while at + 2 <= len(stream):
        first, size = stream[at], stream[at + 1]
        at += 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(stream[at : at + width], "big"), at + width
        data = stream[at : at + size]
        at += size
        if len(data) < size or first & 0x0F != 1:
            continue
        text = zlib.decompressobj(-15).decompress(data + b"\0\0\xff\xff") if first & 0x40 else data
        found.update(notice["notice"] for notice in json.loads(text).get("notices", ()))
    return found


def _subscribe(count: int) -> None:
    url, token = os.environ["APTUI_URL"], os.environ["APTUI_TOKEN"]
    clients = {each.socket.fileno(): each for each in (_Subscriber(url, token, at, keeps=not at) for at in range(count))}
    recorder = next(iter(clients.values()))
    poll = select.epoll()
    for number in clients:
        poll.register(number, select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    print("ready", flush=True)
    alive_at = time.monotonic() + _ALIVE_S
    while True:
        for number, _mask in poll.poll(1.0):
            if number in clients:
                clients[number].receive()
            elif not sys.stdin.readline():
                return
            else:
                least = min(each.received_bytes for each in clients.values() if each is not recorder)
                counts = ", ".join(
                    f"{name} {often:,}" for name, often in sorted(_count_notifications(bytes(recorder.stored)).items())
                )
                print(f"each client received {least:,} bytes or more, the recorder {len(recorder.stored):,}: {counts}", flush=True)
        if time.monotonic() > alive_at:
            alive_at = time.monotonic() + _ALIVE_S
            for each in clients.values():
                each.live()


# ------------------------------------------------------------------------------------------------------------- file serving


@row
def file_serving(bench: Bench) -> None:
    """Products of 4 and 64 KiB over kept connections: the gateway, and nginx over the same folder."""
    missing = [name for name in ("nginx", "ab") if shutil.which(name) is None]
    if missing:
        say("file-serving", f"no {' and '.join(missing)}: no figure")
        return
    project, sources = own_project(bench, "files")
    _add_rows(project)
    for size in _SIZES:
        (sources / f"{size}.bin").write_bytes(random.Random(size).randbytes(size))
    texts = []
    with engine_of(project), gateway_of(project) as (url, token, _pid), _nginx(project) as peer:
        for size in _SIZES:
            rates = [
                (_rate(f"{url}/v1/products/linux/{size}.bin", token), _rate(f"{peer}/linux/{size}.bin", token))
                for _run in range(bench.runs)
            ]
            ours, theirs = (statistics.median(each) for each in zip(*rates, strict=True))
            texts.append(f"{size >> 10} KiB {ours:,.0f}/s against {theirs:,.0f}/s: nginx is {theirs / ours:.1f} × as fast")
    say("file-serving", f"{_AT_ONCE} at once, {'; '.join(texts)}; {_load()}")


def _rate(url: str, token: str) -> float:
    command = ["ab", "-q", "-k", "-n", str(_REQUESTS), "-c", str(_AT_ONCE), "-H", f"Authorization: Bearer {token}", url]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    failed, rate = (re.search(rf"{name}:\s+([\d.]+)", output) for name in ("Failed requests", "Requests per second"))
    if failed is None or rate is None or int(failed[1]) or "Non-2xx" in output:
        raise SystemExit(f"requests failed: no figure\n{output}")
    return float(rate[1])


@contextlib.contextmanager
def _nginx(project: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    settings = project / "nginx.conf"
    settings.write_text(
        f"daemon off; worker_processes 1; user root; pid {project}/nginx.pid; error_log /dev/null;\n"
        "events {}\n"
        f"http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; "
        f"server {{ listen 127.0.0.1:{number}; root {project}/Cache; }} }}\n"
    )
    process = subprocess.Popen(["nginx", "-p", str(project), "-c", str(settings)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", number), 1):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{number}"
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        _subscribe(int(sys.argv[1]))

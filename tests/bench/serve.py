"""Rows of the outer wire: a save heard by a client, what a thousand subscribers cost the engine, files beside nginx.

`python -m tests.bench.serve N` is N subscribers that read and throw away; `APTUI_URL` and `APTUI_TOKEN` say whose.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import random
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.link import port
from tests.bench.live import engine_of, own_project
from tests.bench.measure import say

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench
    from tests.bench.live import Engine

ROWS: dict[str, Callable[[Bench], None]] = {}
_PATIENCE_S = 300.0
_SAVES = 60
_GAP_S = 0.2
_CLIENTS = 1_000
_SIZES = (4 << 10, 64 << 10)
_REQUESTS = 4_000
_AT_ONCE = 8


def row(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
    """Register a row under its name."""
    ROWS[function.__name__.replace("_", "-")] = function
    return function


def _load() -> str:
    return f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


@contextlib.contextmanager
def gateway_of(project: Path) -> Iterator[tuple[str, str]]:
    """Give the address and the token of a gateway beside an engine that runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "aptui", "gateway", "--project", str(project)], stdout=subprocess.PIPE, text=True
    )
    from aptui.client import local

    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield local(project / "Cache")
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


# ------------------------------------------------------------------------------------------------------------------- notify


@row
def notify(bench: Bench) -> None:
    """From a save to the word of it: at a client of the gateway, and at `inotifywait` on the products, in the same run."""
    if shutil.which("inotifywait") is None:
        say("notify", "no inotifywait (inotify-tools): no figure")
        return
    project, sources = own_project(bench, "notify")
    _add_room(project)
    chosen = random.Random(7).sample(bench.paths, min(_SAVES, len(bench.paths)))
    with engine_of(project) as engine, gateway_of(project) as (url, token):
        ours, theirs = _saves(engine, sources, chosen, url, token)
    behind = sorted(mine - other for mine, other in zip(ours, theirs, strict=True))
    say(
        "notify",
        f"save → client {_spread(ours)}; save → inotifywait on the product {_spread(theirs)}: "
        f"{statistics.median(ours) / statistics.median(theirs):.2f} ×, {1000 * statistics.median(behind):.1f} ms behind; {_load()}",
    )


def _add_room(project: Path) -> None:
    with (project / "aptui.yaml").open("a") as file:
        file.write(f"serve: {{port: 0, clients_limit: {_CLIENTS + 8}}}\n")


def _spread(times_s: list[float]) -> str:
    ordered = sorted(1000 * each for each in times_s)
    return f"p50 {ordered[len(ordered) // 2]:.1f} ms, p99 {ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]:.1f} ms"


def _saves(engine: Engine, sources: Path, chosen: list[str], url: str, token: str) -> tuple[list[float], list[float]]:
    from aptui.client import Client
    from aptui.serve.notices import AssetChanged

    products = engine.cache / "linux"
    command = ["inotifywait", "-m", "-r", "-q", "-e", "moved_to,close_write,create", "--format", "%w%f", str(products)]
    heard: queue.Queue[tuple[str, float]] = queue.Queue()
    ours, theirs = [], []
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as peer,
        Client.connect(url, token=token, client="bench", notices=("asset_changed",)) as client,
    ):
        assert peer.stdout is not None
        threading.Thread(
            target=lambda: [heard.put((line.rstrip("\n"), time.perf_counter())) for line in peer.stdout or ()], daemon=True
        ).start()
        time.sleep(3.0)  # the watches stand, and no source is too fresh to be trusted
        for number, path in enumerate(chosen):
            time.sleep(_GAP_S)
            began = time.perf_counter()
            (sources / path).write_bytes(b"%d\n" % number + random.Random(number).randbytes(64))
            while True:
                found = client.next_notice(_PATIENCE_S)
                if found is None:
                    raise SystemExit("no word came: no figure")
                if isinstance(found.notice, AssetChanged) and found.notice.asset.path == path.lower():
                    break
            ours.append(time.perf_counter() - began)
            while (event := heard.get(timeout=_PATIENCE_S))[0] != str(products / path.lower()):
                pass
            theirs.append(event[1] - began)
        peer.terminate()
    return ours, theirs


# -------------------------------------------------------------------------------------------------------------- subscribers


@row
def subscribers(bench: Bench) -> None:
    """Every job runs again: with a thousand clients who hear of each, and with none, by turns."""
    project, _sources = own_project(bench, "subscribers")
    _add_room(project)
    none: list[tuple[float, float]] = []
    many: list[tuple[float, float]] = []
    with engine_of(project) as engine:
        _again(engine)  # warm
        for _run in range(bench.runs):
            none.append(_again(engine))
            with gateway_of(project) as (url, token), _crowd(url, token) as crowd:
                many.append(_again(engine))
                heard = crowd()
    wall, processor = (statistics.median(each[at] for each in many) / statistics.median(each[at] for each in none) for at in (0, 1))
    say(
        "subscribers",
        f"{bench.count:,} jobs, none {_walls(none)}, {_CLIENTS:,} clients {_walls(many)}: {wall:.2f} × (target ≤ 1.10), "
        f"the engine's own processor time {processor:.2f} ×; each client heard {heard:,} bytes or more; {_load()}",
    )


def _walls(costs: list[tuple[float, float]]) -> str:
    walls = [wall for wall, _processor in costs]
    return f"{statistics.median(walls):.2f} s [{min(walls):.2f} … {max(walls):.2f}]"


def _again(engine: Engine) -> tuple[float, float]:
    """Run every job again and return how long that took, and the engine's own processor time."""
    began, processor = time.perf_counter(), engine.processor_s()
    engine.client.ask(port.Reprocess(("*",)), _PATIENCE_S)
    engine.rest()
    return time.perf_counter() - began, engine.processor_s() - processor


@contextlib.contextmanager
def _crowd(url: str, token: str) -> Iterator[Callable[[], int]]:
    environ = {**os.environ, "APTUI_URL": url, "APTUI_TOKEN": token}
    command = ["nice", "-n", "10", sys.executable, "-m", "tests.bench.serve", str(_CLIENTS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the clients do not get in: no figure")

        def heard() -> int:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("how many\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        try:
            yield heard
        finally:
            process.terminate()


async def _subscribe(count: int) -> None:
    import aiohttp

    url, token = os.environ["APTUI_URL"], os.environ["APTUI_TOKEN"]
    heard = [0] * count
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def enter(at: int) -> aiohttp.ClientWebSocketResponse:
            socket = await http.ws_connect(f"{url}/v1/connect", headers={"Authorization": f"Bearer {token}"}, max_msg_size=0)
            await socket.send_json({"id": 1, "request": "hello", "protocol": 1, "client": f"subscriber {at}"})
            await socket.receive()
            return socket

        async def listen(at: int, socket: aiohttp.ClientWebSocketResponse) -> None:
            async for message in socket:
                heard[at] += len(message.data)

        sockets = [await enter(at) for at in range(count)]
        tasks = [asyncio.ensure_future(listen(at, socket)) for at, socket in enumerate(sockets)]
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), lambda: (sys.stdin.readline(), print(min(heard), flush=True)))
        await asyncio.gather(*tasks)


# ------------------------------------------------------------------------------------------------------------- file serving


@row
def file_serving(bench: Bench) -> None:
    """Products of 4 and 64 KiB over kept connections: the gateway, and nginx over the same folder."""
    missing = [name for name in ("nginx", "ab") if shutil.which(name) is None]
    if missing:
        say("file-serving", f"no {' and '.join(missing)}: no figure")
        return
    project, sources = own_project(bench, "files")
    _add_room(project)
    for size in _SIZES:
        (sources / f"{size}.bin").write_bytes(random.Random(size).randbytes(size))
    texts = []
    with engine_of(project), gateway_of(project) as (url, token), _nginx(project) as peer:
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
    import socket

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
        asyncio.run(_subscribe(int(sys.argv[1])))

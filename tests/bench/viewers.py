"""Benchmarks of an engine with viewers, which are clients that subscribe as the screen does: the speed of its jobs and saves."""

from __future__ import annotations

import contextlib
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from aptui.link import places, port
from aptui.link.engine_client import EngineClient
from aptui.shared.errors import KnownError
from tests.bench.live import Engine, engine_of, milliseconds, own_project, saves
from tests.bench.measure import say, settle

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench

_TIMEOUT_S = 300.0
_SAVES = 30


def live_save_viewers(bench: Bench) -> None:
    """Time from a save to its product, alternately without clients and with two clients that subscribe as the screen does."""
    project, sources = own_project(bench, "live-save-viewers")
    times: dict[int, list[float]] = {0: [], 2: []}
    with engine_of(project) as engine:
        time.sleep(3.0)
        for turn in range(2 * bench.runs):
            viewers = 2 * (turn % 2)
            chosen = random.Random(turn).sample(bench.paths, min(_SAVES, len(bench.paths)))
            with _viewers(engine, viewers):
                times[viewers] += saves(sources, project / "Cache" / "linux", chosen, is_lower=True)
    alone, seen = times[0], times[2]
    ratio = sorted(seen)[len(seen) // 2] / sorted(alone)[len(alone) // 2]
    say("live-save-viewers", f"nobody {milliseconds(alone)}; two viewers {milliseconds(seen)}: {ratio:.2f} ×")


def live_viewers(bench: Bench) -> None:
    """Time to run all jobs again, with zero, one and five clients that subscribe as the screen does."""
    project = bench.copy_project("live-viewers")
    rates: dict[int, list[float]] = {0: [], 1: [], 5: []}
    costs: dict[int, list[float]] = {0: [], 1: [], 5: []}
    with engine_of(project) as engine:
        for viewers in list(rates) * bench.runs:
            settle()
            with _viewers(engine, viewers):
                began, spent_s = time.monotonic(), engine.processor_s()
                engine.client.ask(port.ReprocessJobs(keys=("*",)), _TIMEOUT_S)
                answer = engine.client.ask(port.Settle(), _TIMEOUT_S)
                if answer["run"] != len(bench.paths):
                    raise SystemExit(f"{answer['run']} jobs run instead of {len(bench.paths)}")
                rates[viewers].append(len(bench.paths) / (time.monotonic() - began))
                costs[viewers].append((engine.processor_s() - spent_s) / len(bench.paths) * 1e6)
    medians = {viewers: statistics.median(found) for viewers, found in rates.items()}
    text = ", ".join(
        f"{viewers}: {rate:.0f} jobs/s ({rate / medians[0]:.2f}), {statistics.median(costs[viewers]):.0f} µs of the engine a job"
        for viewers, rate in medians.items()
    )
    say("live-viewers", f"{text} (target ± 3 %)")


@contextlib.contextmanager
def _viewers(engine: Engine, count: int) -> Iterator[None]:
    """Connect `count` clients that subscribe as the screen does."""
    clients = [EngineClient.connect(places.socket_path(engine.cache)) for _ in range(count)]
    threads = [threading.Thread(target=_listen, args=(client,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    yield
    for client in clients:
        client.hang_up()
    for thread in threads:
        thread.join(10)
    for client in clients:
        client.close()


def _listen(client: EngineClient) -> None:
    with contextlib.suppress(KnownError):
        client.ask(port.Subscribe(is_coalesced=True), _TIMEOUT_S)
        while client.next_news() is not None:
            pass


ROWS: dict[str, Callable[[Bench], None]] = {"live-save-viewers": live_save_viewers, "live-viewers": live_viewers}

"""Shared by the pool's tests: a pool with its own selector, a small project on disk, and functions that make orders."""

from __future__ import annotations

import hashlib
import itertools
import selectors
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from waiting import TIMEOUT_S, until

from aptui.core.orders import AnalyseOrder, CopyOrder, ProcessOrder
from aptui.core.project import Builder, BuilderKind, CommandRule, Platform
from aptui.engine.pool.pool import Pool, PoolSettings
from aptui.worker.file_access import stat_key

HOSTILE_FILE = Path(__file__).with_name("hostile_builders.py")
PLATFORMS = (Platform("linux", ("tools",)), Platform("common"))


def python_builder(class_name: str, name: str, **more: object) -> Builder:
    return Builder(name.encode().ljust(16, b"\0"), name, BuilderKind.PYTHON, origin=f"file:{HOSTILE_FILE}:{class_name}", **more)


def command_builder(name: str, command: str, products: tuple[str, ...] = (), params: str = "{}", **rule: str) -> Builder:
    return Builder(
        name.encode().ljust(16, b"\0"), name, BuilderKind.COMMAND, params=params, command=CommandRule(command, products, **rule)
    )


class Harness:
    """Drives a pool only by its selector and its deadlines, as the engine's loop does."""

    def __init__(
        self,
        folder: Path,
        builders: Sequence[Builder] = (),
        size: int = 2,
        settings: PoolSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        **more: object,
    ) -> None:
        self.folder, self.root, self.staging = folder, folder / "assets", folder / "staging"
        self.root.mkdir(exist_ok=True)
        self.staging.mkdir(exist_ok=True)
        self.selector = selectors.DefaultSelector()
        self.results: dict[int, object] = {}
        self.times: dict[int, float] = {}
        self.hashes: list[object] = []
        self.clock = clock
        self.pool = Pool(builders, PLATFORMS, size, self.selector, self._take, settings=settings, clock=clock, **more)
        self._keys = itertools.count(1)

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of the pool's running workers."""
        return tuple(info.pid for info in self.pool.workers())

    def _take(self, results: list) -> None:
        for result in results:
            if hasattr(result, "run_key"):
                assert result.run_key not in self.results, "two results for one run"
                self.results[result.run_key] = result
                self.times[result.run_key] = time.monotonic()
            else:
                self.hashes.append(result)

    def source(self, rel: str, data: bytes = b"hello") -> Path:
        path = self.root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def process_order(self, builder: str, rel: str = "a.txt", limit_s: float = TIMEOUT_S, **more: object) -> ProcessOrder:
        path = self.root / rel
        if not path.exists():
            self.source(rel)
        key = next(self._keys)
        fields = {
            "platform": "linux",
            "params": "{}",
            "expected": stat_key(path.stat()),
            "source_digest": hashlib.sha256(path.read_bytes()).digest(),
            "memory_limit_bytes": 0,
            "is_critical": False,
            **more,
        }
        return ProcessOrder(
            run_key=key,
            builder=builder,
            root=str(self.root),
            rel=rel,
            source_uuid=bytes(16),
            job_key=builder,
            additional_fingerprint="",
            priority=0,
            staging=str(self.staging / str(key)),
            limit_s=limit_s,
            **fields,
        )

    def analyse_order(self, builder: str, rel: str = "a.txt", limit_s: float = TIMEOUT_S) -> AnalyseOrder:
        if not (self.root / rel).exists():
            self.source(rel)
        return AnalyseOrder(next(self._keys), builder, str(self.root), rel, bytes(16), ("linux",), limit_s)

    def copy_order(self, rel: str, present: bytes = b"") -> CopyOrder:
        key = next(self._keys)
        return CopyOrder(key, str(self.root / rel), str(self.staging / f"c{key}"), present)

    def turn(self, timeout_s: float) -> None:
        due_s = self.pool.next_deadline()
        wait_s = timeout_s if due_s is None else max(0.0, min(timeout_s, due_s - self.clock()))
        for key, _ in self.selector.select(wait_s):
            key.data()
        self.pool.poll(self.clock())

    def until(self, condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
        until(condition, lambda: f"the results: {self.results}", timeout_s, self.turn)

    def run(self, *orders: Any, timeout_s: float = TIMEOUT_S) -> list:
        """Send orders in one message and return their results in order."""
        self.pool.send(orders)
        self.until(lambda: all(order.run_key in self.results for order in orders), timeout_s)
        return [self.results[order.run_key] for order in orders]

    def close(self) -> None:
        self.pool.close(0.5)
        self.selector.close()

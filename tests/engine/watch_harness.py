"""A watcher and its notifications, for tests and drills: waits for conditions, and judges notifications as the engine would."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import contextmanager

from waiting import until

from aptui.engine.watch.watcher import ChangeNotification, NotifiedRoot, Watcher, WatchTimings
from aptui.shared.health import WatchedRoot, WatchMode

QUICK = WatchTimings(beat_s=0.02, poll_interval_s=0.02, overlay_interval_s=0.05, root_check_every_s=0.03)


class Harness:
    """The notifications of a watcher."""

    def __init__(self) -> None:
        self.hints: list[ChangeNotification] = []
        self.health: list[tuple[WatchedRoot, ...]] = []
        self.watcher: Watcher
        self._news = threading.Condition()

    def report(self, hint: ChangeNotification) -> None:
        with self._news:
            self.hints.append(hint)
            self._news.notify_all()

    def report_health(self, health: tuple[WatchedRoot, ...]) -> None:
        with self._news:
            self.health.append(health)
            self._news.notify_all()

    def until(self, condition: Callable[[], bool], what: str = "") -> None:
        with self._news:
            until(
                condition,
                lambda: f"{what or 'condition'}; {self.hints[-5:]}; {self.watcher.health()}",
                step=lambda left_s: self._news.wait(min(0.02, left_s)),
            )

    def until_mode(self, mode: WatchMode, at: int = 0) -> WatchedRoot:
        self.until(lambda: self.watcher.health()[at].mode == mode, f"mode {mode}")
        return self.watcher.health()[at]

    def forget(self) -> None:
        with self._news:
            self.hints.clear()

    def paths(self) -> set[bytes]:
        return {path for hint in list(self.hints) for path in hint.paths}

    def trees(self) -> set[bytes]:
        return {tree for hint in list(self.hints) for tree in hint.trees}

    def losses(self) -> list[str]:
        return [hint.why for hint in list(self.hints) if hint.is_lost]

    def is_covered(self, path: bytes) -> bool:
        """Whether the notifications cover `path`: they name the path, its folder, a tree above it, or everything."""
        return not self.uncovered([path])

    def uncovered(self, paths: Iterable[bytes]) -> list[bytes]:
        if self.losses():
            return []
        named, trees = self.paths(), self.trees()
        covered: dict[bytes, bool] = {b"": False}

        def is_below(folder: bytes) -> bool:
            if folder not in covered:
                covered[folder] = folder in trees or is_below(folder.rpartition(b"/")[0])
            return covered[folder]

        return [path for path in paths if path not in named and path.rpartition(b"/")[0] not in named and not is_below(path)]


@contextmanager
def watching(*roots: NotifiedRoot, settings: WatchTimings = QUICK, is_settled: bool = True, kind: type[Watcher] = Watcher):
    """Yield a harness whose watcher watches `roots`.

    With `is_settled`, wait until all roots are watched, and delete the notifications that the start caused.
    """
    harness = Harness()
    harness.watcher = kind(roots, harness.report, harness.report_health, settings=settings)
    harness.watcher.start()
    try:
        if is_settled:
            harness.until(lambda: len(harness.losses()) >= len(roots), "the beginning of watching")
            harness.forget()
        yield harness
    finally:
        harness.watcher.close()


def put(path: bytes, text: bytes = b"x") -> bytes:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text)
    return path

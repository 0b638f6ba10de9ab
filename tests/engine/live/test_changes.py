"""Messages of the live engine about notifications that it received."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aptui.core.notices import LogLevel
from aptui.core.project import Platform, Project
from aptui.engine.live.changes import ChangeTracker
from aptui.engine.live.roots import SOURCES
from aptui.engine.watch.notifications import REGULAR, ChangeNotification


def test_scan_reason_shared_by_several_roots_is_reported_once() -> None:
    messages: list[tuple[str, LogLevel]] = []
    tracker = ChangeTracker(Project((Platform("linux"),), "linux", (), ()), "/c", lambda: None, lambda: None)
    engine: Any = SimpleNamespace(news=SimpleNamespace(say=lambda text, level: messages.append((text, level))))
    tracker.engine = engine
    for root in range(3):
        tracker.receive(ChangeNotification(f"{SOURCES}{root}", frozenset(), is_lost=True, why=REGULAR))
    tracker.receive(ChangeNotification(f"{SOURCES}3", frozenset(), is_lost=True, why="the disk was full"))

    tracker._take_notifications()

    assert messages == [
        (f"checking all files: {REGULAR}", LogLevel.INFO),
        ("checking all files: the disk was full", LogLevel.WARNING),
    ]

"""Every screen in a scene (`scene.py`) equals the approved one in `snapshots/`.

After an intended change: `SNAPSHOTS=update pytest tests/tui/test_snapshots.py`, then read the difference in git. A snapshot is
text: the screen, how many cells of each line wear which style, and the styles. (pytest-textual-snapshot would need an older pytest,
and keeps SVGs, in which everything differs when one cell does.)

The tour waits until a screen equals its snapshot, up to a timeout.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tools import FEATURES_WITH_SCREENS, needs_feature

from .scene import Scene, scene
from .shell_harness import LARGE, SMALL

pytestmark = [pytest.mark.real, needs_feature(*FEATURES_WITH_SCREENS)]

FOLDER = Path(__file__).parent / "snapshots"
UPDATES = os.environ.get("SNAPSHOTS") == "update"
THEMES = ("dark", "monochrome")
TOUR = {
    "jobs": [("1", "2 lines")],
    "jobs-filter": [("/ s t a t u s : f a i l e d", "2 of 74"), ("enter", "Expecting")],
    "jobs-menu": [("right-click", "Run again")],
    "assets": [("escape escape 2", "▌    broken.json")],
    "assets-source": [("down down down", "▌    palette.json")],
    "assets-picture": [("G k k right", "▾ sprites"), ("down", "▌    moth.png"), ("enter", "▀")],
    "logs": [("3", "failed data/broken.json")],
    "connections-gateway": [("4", "viewer"), ("j j", "artist")],
    "connections": [("t", "pid 4711")],
    "builders": [("5", "shaders")],
    "cache": [("6", "96 products")],
    "tools": [("7", "Drain")],
    "help": [("question_mark", "search the help")],
}
"""{name of a snapshot: (keys pressed after the previous snapshot, words that the screen shows then)}."""
_TIMEOUT_S, _LITTLE_S = 6.0, 0.3
"""Timeouts of a step (seconds): normally, and after one step has failed, so that the others do not take minutes."""


@cache
def toured(size: tuple[int, int]) -> dict[str, str]:
    """Return {name of a snapshot: drawn text} for one size; made once for all tests."""
    drawn: dict[str, str] = {}

    async def tour(here: Scene) -> None:
        timeout_s = _TIMEOUT_S
        async with here.opened(size) as (app, hands):
            for at, (name, keys) in enumerate(TOUR.items()):
                for pressed, words in keys:
                    if pressed == "right-click":
                        await hands.click(offset=(20, 5), button=3)
                    else:
                        await hands.press(*pressed.split())
                    if not await _becomes(lambda words=words: words in "\n".join(here.lines(app)), timeout_s):
                        timeout_s = _LITTLE_S
                # Changing the theme is slow, so every second screen is drawn in the reverse order of themes.
                for theme in THEMES[:: 1 if at % 2 else -1]:
                    app.theme = theme
                    expected = text_of(file_of(name, size, theme))
                    if UPDATES:
                        await here.settled(app)
                    elif not await _becomes(lambda expected=expected: here.drawn(app) == expected, timeout_s):
                        timeout_s = _LITTLE_S
                    drawn[file_of(name, size, theme).name] = here.drawn(app)

    with scene() as here:
        asyncio.run(tour(here))
    return drawn


async def _becomes(is_so: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def file_of(name: str, size: tuple[int, int], theme: str) -> Path:
    return FOLDER / f"{name}-{size[0]}x{size[1]}-{theme}.txt"


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "140x40"])
@pytest.mark.parametrize("name", TOUR)
@pytest.mark.parametrize("theme", THEMES)
def test_screen_equals_its_snapshot(name, size, theme):
    file = file_of(name, size, theme)
    drawn = toured(size)[file.name]
    if UPDATES:
        file.write_text(drawn, encoding="utf-8")

    assert drawn.splitlines() == text_of(file).splitlines()


def test_snapshot_folder_has_one_file_for_each_screen_size_and_theme():
    names = {file_of(name, size, theme).name for name in TOUR for size in (SMALL, LARGE) for theme in THEMES}

    assert {path.name for path in FOLDER.iterdir()} == names


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "140x40"])
def test_snapshot_lines_have_full_width_and_no_local_paths(size):
    for drawn in toured(size).values():
        lines = [line for line in drawn.splitlines() if line.startswith("|")]

        assert len(lines) == size[1]
        assert "/tmp" not in drawn
        assert os.path.expanduser("~/") not in drawn

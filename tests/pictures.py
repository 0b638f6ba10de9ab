"""`python -m tests.pictures` makes the README's pictures, SVGs in `pictures/`, from the snapshots' scene and the real screens.

One of them is animated: the notices of a recorded engine are replayed, and keys are pressed.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui.core.notices import JobChanged, Progress
from tests.cast import Frame, row_of, svg_of

if TYPE_CHECKING:
    from aptui.core.notices import Notice
    from aptui.tui.app import AptuiApp
    from tests.tui.scene import Engine, Scene

FOLDER = Path(__file__).parent / "pictures"
LARGE, SMALL = (120, 34), (80, 24)
_FONTS = "ui-monospace, 'Cascadia Mono', 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_NAME = re.compile(r"terminal-\d+")
PICTURES = {
    "jobs": (
        LARGE,
        (
            ("1", "2 lines"),
            ("working", " left"),
            ("/ d a t a | m o d e l s | t e x t u r e s space p l a t f o r m : l i n u x enter", " of 74  "),
            ("e", "Expecting"),
        ),
        "Expecting",
    ),
    "assets": (LARGE, (("2", "│ data/broken.json"), ("down down down", "│ data/palette.json")), "palette.json"),
    "builders": (LARGE, (("5", "shaders"), ("m", "Analysis")), "Metrics"),
    "small": (SMALL, (("1", "2 lines"),), "words/poem.words"),
}
"""{name: (size, ((pressed keys, words that then appear), …), words that the picture must contain)}."""
CAST = "cast"
CAST_SIZE = (120, 30)
CAST_STEPS: tuple[tuple[str, str, float], ...] = (
    ("1", "2 lines", 2.0),
    ("play 12", "idle", 0.35),
    ("e", "Expecting", 1.6),
    ("enter", "Esc back", 1.6),
    ("escape", "failed first", 0.5),
    ("x", "Fingerprint   ", 2.4),
    ("escape", "failed first", 0.4),
    ("slash", "/", 0.4),
    ("s h a d", "lamp.frag", 1.6),
    ("enter", "lamp.frag", 1.2),
    ("escape", "failed first", 0.6),
    ("2", "│ data/broken.json", 1.4),
    ("down down down", "│ data/palette.json", 2.4),
    ("5", "shaders", 0.8),
    ("m", "Analysis", 2.4),
    ("1", "failed first", 0.8),
)
"""Steps of the animation: (keys to press, words that the screen then shows, seconds for which the frame is shown).

Instead of keys, `play N` replays the recorded engine's notices in N parts, with a frame after each part.
"""
MOST_CAST_BYTES = 300_000


def make() -> Iterator[tuple[str, str]]:
    """Yield (name, SVG) of each picture."""
    from tests.tui.scene import scene  # imported here, because `tests` is not yet on the path when this module is imported

    with scene() as here:
        for name, (size, steps, _words) in PICTURES.items():
            yield name, asyncio.run(_drawn(here, size, steps))
        yield CAST, asyncio.run(_cast(here))


async def _drawn(here: Scene, size: tuple[int, int], steps: tuple[tuple[str, str], ...]) -> str:
    async with here.opened(size) as (app, hands):
        for pressed, words in steps:
            if pressed == "working":
                _set_to_work(here, app.session)
            else:
                await hands.press(*pressed.split())
            await here.until(app, lambda words=words: words in "\n".join(here.lines(app)))
        await here.settled(app)
        return _plain(here.masked(app.export_screenshot(title="aptui")))


async def _cast(here: Scene) -> str:
    frames: list[Frame] = []

    async def take(app: AptuiApp, seconds: float) -> None:
        await here.settled(app, 0.25)
        strips = app.screen._compositor.render_strips()
        rows = tuple(row_of([(here.masked(each.text), each.style) for each in strip]) for strip in strips)
        frames.append(Frame(rows, seconds))

    async with here.opened(CAST_SIZE) as (app, hands):
        for pressed, words, seconds in CAST_STEPS:
            if pressed.startswith("play "):
                for piece in _pieces(here.notices(), int(pressed.split()[1])):
                    for notice in piece:
                        app.session.report(notice)
                    await take(app, seconds)
            else:
                await hands.press(*pressed.split())
            await here.until(app, lambda words=words: words in "\n".join(here.lines(app)))
            await take(app, seconds)
    return svg_of(frames, CAST_SIZE[0], poster=len(frames) // 4)


def _pieces(recorded_notices: list[Notice], count: int) -> Iterator[list[Notice]]:
    """Yield the notices of the build, in `count` pieces of equal length."""
    built = [each for each in recorded_notices if isinstance(each, (JobChanged, Progress))]
    step = -(-len(built) // count)
    for start in range(0, len(built), step):
        yield built[start : start + step]


def _set_to_work(here: Scene, engine: Engine) -> None:
    """Make a failed job fail again, and show running jobs."""
    from tests.tui.scene import NOW_MS

    recorded_notices = here.notices()
    jobs = [each for each in recorded_notices if isinstance(each, JobChanged)]
    engine.report(next(replace(each, completed_ms=NOW_MS - 2_000) for each in reversed(jobs) if each.status == "failed"))
    running = [
        each
        for each in jobs
        if each.status == "processing" and each.source.startswith(("textures/", "models/")) and each.platform == "linux"
    ]
    for notice in running[-4:]:
        engine.report(notice)
    engine.report(next(each for each in reversed(recorded_notices) if isinstance(each, Progress) and each.jobs_running == 4))


def _plain(svg: str) -> str:
    """Replace network fonts of a picture by local ones, and element names that depend on the content by a fixed name."""
    return _NAME.sub("aptui", _FACE.sub("", svg).replace("Fira Code, monospace", _FONTS).replace("Fira Code", _FONTS))


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent)]
    FOLDER.mkdir(exist_ok=True)
    for name, svg in make():
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
    sys.exit(0)

"""The screen over a recording: how it looks, what its keys and commands do, and that nothing can be changed from it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from aptui.tui.frame.sheets import Toasts
from aptui.tui.preferences.state import UiMemory
from aptui.tui.replay.app import ReplayApp, milliseconds
from aptui.tui.replay.scrubber import Scrubber
from aptui.tui.replay.session import ReplaySession
from tui.shell_room import LARGE, SMALL, Hands, opened, text, until

from .replay_room import Clock, played

pytestmark = pytest.mark.real

FOLDER = Path(__file__).parent / "snapshots"
UPDATES = os.environ.get("SNAPSHOTS") == "update"
Do = Callable[[ReplayApp, Hands, ReplaySession, Clock], Awaitable[None]]


@pytest.fixture(autouse=True)
def _fixed_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def in_replay(tmp_path: Path, do: Do, size: tuple[int, int] = SMALL) -> None:
    """Open the screen over the recording, paused at its beginning, and do something with it."""

    async def main() -> None:
        with played(tmp_path) as (session, clock):
            app = ReplayApp(
                session, None, memory=UiMemory(tmp_path / "project.json"), person=UiMemory(tmp_path / "person.json"), theme="dark"
            )
            async with opened(app, size) as hands:
                await until(hands, lambda: "textures/sand.png" in text(app))
                await do(app, hands, session, clock)

    asyncio.run(main())


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "140x40"])
def test_it_looks_as_it_did(tmp_path: Path, size: tuple[int, int]) -> None:
    async def look(app: ReplayApp, hands: Hands, session: ReplaySession, _clock: Clock) -> None:
        session.set_speed(10)
        session.toggle()
        session.go_to(6_000)
        await until(hands, lambda: "no room on the wall" in text(app) and "a replay: P pauses" in text(app))
        app.drawing.screen.query_one(Toasts).display = False  # it fades after a while
        file = FOLDER / f"replay-{size[0]}x{size[1]}.txt"
        if UPDATES:
            file.write_text(text(app) + "\n", encoding="utf-8")
        await until(hands, lambda: text(app) + "\n" == file.read_text(encoding="utf-8"))

    in_replay(tmp_path, look, size)


def test_keys_pause_jump_step_and_change_the_speed(tmp_path: Path) -> None:
    async def press(app: ReplayApp, hands: Hands, session: ReplaySession, clock: Clock) -> None:
        async def becomes(label: str) -> None:
            await until(hands, lambda: session.label == label and label in text(app))

        await hands.press("P")
        await becomes("‖ replay 00:00 of 00:08, ×1")
        await hands.press(";", ";", ";", ";")
        await becomes("‖ replay 00:05 of 00:08, ×1")
        assert "✗ failed" in text(app)
        await hands.press(",")
        await becomes("‖ replay 00:03 of 00:08, ×1")
        await hands.press("=", "=")
        await becomes("‖ replay 00:03 of 00:08, ×5")
        await hands.press("_")
        await becomes("‖ replay 00:03 of 00:08, ×2")
        await hands.press(")")
        await becomes("‖ replay 00:08 of 00:08, ×2")
        await hands.press("(")
        await becomes("‖ replay 00:00 of 00:08, ×2")
        await hands.press("P")
        await becomes("▶ replay 00:00 of 00:08, ×2")

    in_replay(tmp_path, press, LARGE)


def test_commands_go_to_a_time_and_set_the_speed_and_say_what_is_none(tmp_path: Path) -> None:
    async def say(app: ReplayApp, hands: Hands, session: ReplaySession, _clock: Clock) -> None:
        await hands.press("P", "@", "0", ":", "0", "7", "enter")
        await until(hands, lambda: session.at_ms == 7_000)
        await until(hands, lambda: "meshes/hill.fbx" in text(app))
        await hands.press(":", *"speed 50", "enter")
        await until(hands, lambda: session.speed == 50)
        await hands.press(":", *"speed fast", "enter")
        await until(hands, lambda: "'fast' is no speed" in text(app))
        await hands.press("@", *"noon", "enter")
        await until(hands, lambda: "'noon' is no time" in text(app))

    in_replay(tmp_path, say, LARGE)


def test_a_click_on_the_scrubber_goes_there(tmp_path: Path) -> None:
    async def click(app: ReplayApp, hands: Hands, session: ReplaySession, _clock: Clock) -> None:
        await hands.press("P")
        app.drawing.screen.query_one(Toasts).display = False  # it fades after a while
        scrubber = app.drawing.screen.query_one(Scrubber)
        begin, room = len(" 00:00 "), scrubber.size.width - len(" 00:00  00:08 ")
        await hands.click(scrubber, offset=(begin + (room - 1) // 4, 0))
        await until(hands, lambda: 1_900 < session.at_ms < 2_100)
        await hands.click(scrubber, offset=(0, 0))
        await until(hands, lambda: session.at_ms == 0)

    in_replay(tmp_path, click)


def test_nothing_can_be_changed_and_it_says_so(tmp_path: Path) -> None:
    async def try_to(app: ReplayApp, hands: Hands, session: ReplaySession, _clock: Clock) -> None:
        names = {command.name for command in app.commands()}
        assert names.isdisjoint({"start", "stop", "rescan", "reload", "drain", "cache", "tools"})
        assert {"goto", "speed", "jobs", "assets"} <= names
        await hands.press("r")
        await until(hands, lambda: "the screen is read-only" in text(app))

    in_replay(tmp_path, try_to, LARGE)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("90", 90_000),
        ("2:13", 133_000),
        ("1:02:13", 3_733_000),
        (" 7 s ", 7_000),
        ("", None),
        ("noon", None),
        ("1:2:3:4", None),
        ("-5", None),
    ],
)
def test_times_that_people_write(written: str, expected: int | None) -> None:
    assert milliseconds(written) == expected

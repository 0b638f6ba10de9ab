"""The screen without an engine over a database of O3DE: every pane shows it and changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tools import FEATURES_WITH_SCREENS, needs_feature

from aptui.tui.app import AptuiApp
from aptui.tui.data.session import NoSession
from aptui.tui.preferences.state import UiMemory
from tests.store import o3de_database as o3de

from .shell_harness import LARGE, opened, text, until

pytestmark = pytest.mark.real

ROCK_LOG = (
    "~~1750000000001~~1~~1f~~AssetBuilder~~C: [Source] = Textures/Rock.png\n"
    "~~1750000000002~~1~~1f~~Image Builder~~E: Image Builder: cannot read the file\r\n"
    "~~1750000000003~~1~~1f~~AssetBuilder~~S: 2 errors, 1 warnings\n"
)
AP_LOG = (
    "~~1750000000000~~1~~7f~~none~~AzFramework File Logging New Run\n"
    "~~1750000000001~~1~~7f~~AssetProcessor~~Asset Processor Batch Processing Started.\n"
    "~~1750000000002~~2~~7f~~AssetProcessor~~W: AssetProcessor: a gem is old\n"
)


@pytest.fixture(params=[36, 40])
def game(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    game = tmp_path / "Game"
    o3de.make(game / "Cache/assetdb.sqlite", request.param, is_in_log=True)
    log = game / "user/log/JobLogs/Textures/Rock.png-1-3.log"
    log.parent.mkdir(parents=True)
    log.write_text(ROCK_LOG)
    (game / "user/log/AP_Batch.log").write_text(AP_LOG)
    return game


def open_foreign(game: Path, script) -> None:
    """Open the screen as `aptui open` does, and call `script(app, hands)`; `hands` is the pilot that presses keys."""

    async def main() -> None:
        session = NoSession(game.name, game / "Cache")
        app = AptuiApp(session, None, memory=UiMemory(game / "project.json"), person=UiMemory(game / "person.json"), theme="dark")
        async with opened(app, LARGE) as hands:
            await until(hands, lambda: "Textures/Rock.png" in text(app))
            await script(app, hands)

    asyncio.run(main())


def bytes_of(game: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (game / "Cache").iterdir()}


PANES = {
    "1": ["▸ Textures/Rock.png", "7 sources, 9 jobs"],
    "t": ["Textures/Rock.png", "Levels/Main/Main.prefab", "! 3 warnings", "1.50 s", "▶ processing", "· pending", "9 jobs"],
    "2": ["Sources▾ 6", "Textures", "Levels", "Terrain"],
    "3": ["AP_Batch.log", "Batch Processing Started", "! Warning", "a gem is old"],
    "4": ["the screen shows a database only"],
    "5": ["{49494949-4949-4949-4949-494949494949}", "this builder is only in the database"],
    "6": ["5 products", "android", "common", "textures/"],
    "7": ["Key tester"],
}


@needs_feature(*FEATURES_WITH_SCREENS)
def test_panes_show_a_foreign_database_without_changing_it(game):
    before = bytes_of(game)

    async def script(app, hands):
        for key, wanted in PANES.items():
            await hands.press(key)
            await until(hands, lambda wanted=wanted: all(words in text(app) for words in wanted))

    open_foreign(game, script)

    assert bytes_of(game) == before


def test_log_of_a_job_is_read_from_the_folder_of_o3de(game):
    async def script(app, hands):
        for _ in range(2):
            await hands.press("down")
        await until(hands, lambda: "cannot read the file" in text(app))

        assert "Event log · Textures/Rock.png · android" in text(app)

    open_foreign(game, script)


def test_intermediate_asset_of_a_foreign_database_shows_its_source(game):
    async def script(app, hands):
        await hands.press("2", "t")
        await until(hands, lambda: "materials" in text(app))
        await hands.press("right", "down")
        await until(hands, lambda: "stone_made.azmaterial" in text(app) and "Materials/Stone.material" in text(app))

    open_foreign(game, script)

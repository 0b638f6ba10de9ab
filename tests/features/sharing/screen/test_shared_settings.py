"""Settings of the shared cache on the screen: a draft that is tested, saved with comments kept, or discarded."""

from __future__ import annotations

from contextlib import asynccontextmanager
from unittest.mock import Mock, patch

import pytest

from aptui.config.configuration import SharedCacheSettings
from aptui.config.load import load
from aptui.features.sharing import totals as shared_totals
from aptui.features.sharing.namespaces import ProbeAnswer
from aptui.features.sharing.screen.shared_settings import Draft, SharedSettings
from aptui.shared.result_store import Account
from aptui.tui.pane import PaneSpec
from aptui.tui.widgets.menu import Menu, Prompt
from tests.tui.database import database
from tests.tui.shell_harness import LARGE, SMALL, shell, text, until

pytestmark = pytest.mark.real

PANES = [PaneSpec("cache", 6, "Cache", "Cache", "aptui.features.sharing.screen.screen:CachePane")]
CONFIG = """\
# ours
scan_folders: [{name: game, path: .}]  # all of it
builders: [{name: data, copy: ["*.txt"]}]
shared_cache:
  mode: inactive  # for now
  patterns: [{name: pictures, glob: "*.png"}]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    folder = tmp_path / "game"
    folder.mkdir()
    (folder / "aptui.yaml").write_text(CONFIG)
    (tmp_path / "cache/.aptui").mkdir(parents=True)
    with database(tmp_path / "cache"):
        yield folder


@asynccontextmanager
async def in_cache(tmp_path, project, size=LARGE):
    def give_config(app):
        app.config = load(project)

    async with shell(tmp_path, size=size, panes=PANES, before=give_config) as (app, pilot, _engine):
        await until(pilot, lambda: app.pane.inventory.contents is not None)
        await pilot.pause()
        yield app, pilot


def asking(app):
    """Return whether a menu or prompt has the focus. An answered prompt loses the focus before it is removed."""
    return app.focused is not None and any(isinstance(each, (Menu, Prompt)) for each in app.focused.ancestors_with_self)


async def choose(app, pilot, *keys):
    """Open the menu and press keys. Each key is pressed only after the menu or prompt for this key has opened."""
    for at, key in enumerate(keys):
        if at or key != "O":
            await until(pilot, lambda: asking(app))
        await pilot.press(key)
        await pilot.pause()


async def fill(app, pilot, entry):
    """Answer a prompt."""
    await until(pilot, lambda: app.query(Prompt))
    app.query_one(Prompt).query_one("Input").value = entry
    await pilot.pause()
    await pilot.press("enter")
    await pilot.pause()


async def test_saved_settings_keep_the_comments_of_the_project_file(tmp_path, project):
    (tmp_path / "share").mkdir()
    async with in_cache(tmp_path, project) as (app, pilot):
        await choose(app, pilot, "O", "l")
        await fill(app, pilot, str(tmp_path / "share"))
        await choose(app, pilot, "m", "s", "a", "s")
        await until(pilot, lambda: not app.pane.sharing.is_dirty)

    entry = (project / "aptui.yaml").read_text()
    sharing = load(project).sharing
    assert (sharing.mode, sharing.store) == ("server", str(tmp_path / "share"))
    assert [(each.name, each.pattern.text) for each in sharing.patterns] == [("pictures", "*.png"), ("New Name", "*")]
    assert all(comment in entry for comment in ("# ours", "# all of it", "# for now"))


async def test_pattern_edits_can_be_discarded(tmp_path, project):
    drafts = []
    async with in_cache(tmp_path, project) as (app, pilot):
        shared = app.pane.sharing
        await choose(app, pilot, "O")
        for key, entry in (("e", ""), ("n", "art"), ("p", ".*png"), ("t", ""), ("r", "")):
            await until(pilot, lambda: asking(app))
            await pilot.press("escape")
            await until(pilot, lambda: not asking(app))
            shared._open_pattern(0)
            await pilot.pause()
            await choose(app, pilot, key)
            if entry:
                await fill(app, pilot, entry)
            drafts.append([(row.name, row.kind, row.text, row.is_enabled) for row in shared.draft.patterns])
        assert "not saved" in text(app)
        await choose(app, pilot, "d")
        assert not shared.is_dirty

    assert drafts == [
        [("pictures", "glob", "*.png", False)],
        [("art", "glob", "*.png", False)],
        [("art", "glob", ".*png", False)],
        [("art", "regex", ".*png", False)],
        [],
    ]
    assert (project / "aptui.yaml").read_text() == CONFIG


async def test_invalid_setting_is_reported_and_not_written(tmp_path, project):
    async with in_cache(tmp_path, project) as (app, pilot):
        await choose(app, pilot, "O", "m", "c", "s")
        await until(pilot, lambda: "needs a store" in " ".join(text(app).replace("─", " ").split()))
        assert app.pane.sharing.is_dirty

    assert (project / "aptui.yaml").read_text() == CONFIG


@pytest.mark.parametrize(("width", "shows_account"), [(60, False), (80, True)])
async def test_line_about_the_shared_cache_shows_its_mode_before_the_share_of_stored_results(
    tmp_path, project, width, shows_account
):
    account = Account()
    account.count("data", local_hits=3, misses=1, built_ms=90_000, fetch_ms=1000)
    shared_totals.add(tmp_path / "cache", account, {})
    async with in_cache(tmp_path, project, SMALL) as (app, _pilot):
        left, right = app.pane.sharing.summary(width)

        assert "".join(part.text for part in left).startswith(" shared cache  inactive")
        assert bool(right) == shows_account


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_summary_shows_time_savings_and_whether_a_location_works(tmp_path, project, size):
    share = tmp_path / "a folder with quite a long name for such a small screen"
    share.mkdir()
    account = Account()
    account.count("data", local_hits=3, misses=1, built_ms=90_000, fetch_ms=1000)
    shared_totals.add(tmp_path / "cache", account, {})
    async with in_cache(tmp_path, project, size) as (app, pilot):
        app.pane.activate()
        await pilot.pause()
        assert "results from cache: 89 s saved" in text(app)
        for place, words in (
            (tmp_path / "nowhere", "the folder of the shared cache does not exist"),
            (share, "the store answered after"),
        ):
            await choose(app, pilot, "O", "l")
            await fill(app, pilot, str(place))
            await choose(app, pilot, "t")
            await until(pilot, lambda: app.pane.sharing.answer is not None)
            await until(pilot, lambda words=words: f"not saved   {words}" in text(app))


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_savings_of_each_builder_are_shown(tmp_path, project, size):
    account = Account()
    account.count("data", local_hits=3, remote_hits=5, misses=1, built_ms=90_000, fetch_ms=1000)
    account.count("pictures", remote_hits=1, built_ms=0, fetch_ms=2000)
    account.count("copies", misses=1)
    shared_totals.add(tmp_path / "cache", account, {})
    async with in_cache(tmp_path, project, size) as (app, pilot):
        await choose(app, pilot, "O", "i")
        await until(pilot, lambda: "All runs" in text(app))
        assert "data        88 %   3 here, 5 shared, 1 made   89 s saved" in text(app)
        assert "pictures   100 %   0 here, 1 shared, 0 made   2.0 s lost" in text(app)
        assert "copies       0 %   0 here, 0 shared, 1 made  " in text(app)
        assert "0.0 s" not in text(app)


@pytest.mark.parametrize("is_changed", [False, True])
def test_answer_of_a_store_is_shown_only_with_the_tested_location(is_changed):
    shell = Mock()
    shell.config.sharing = SharedCacheSettings()
    shared, answer = SharedSettings(shell, Mock()), ProbeAnswer("/a", "works")
    shared.draft = Draft("client", "/a")

    with patch.object(shared, "_task") as task:
        shared.test()
    if is_changed:
        shared.draft = Draft("client", "/b")
    task.start.call_args.args[1](answer)

    assert shared.answer == (None if is_changed else answer)

"""Builder names are stored, so that the first rows after the next start show them.

If an editor asks the screen to show an asset, the cursor moves to the asset.
"""

import sqlite3
from types import SimpleNamespace

import pytest

from aptui.core.notices import ShowRequested
from aptui.link.codec import NoticeLine
from aptui.shared.errors import KnownError
from aptui.store.queries import metrics
from aptui.tui.app import EngineEvents, find_known_names, make_finder
from aptui.tui.preferences.state import UiMemory
from aptui.tui.screens.builders.builder_facts import find
from tests.store.conftest import BUILDER, job_row, source_row
from tests.tui.database import database

SHIPPED, OWN = SimpleNamespace(uuid=b"s" * 16, name="image"), SimpleNamespace(uuid=b"o" * 16, name="wordlist")


def app_with(memory: UiMemory, *, has_more: bool = True) -> SimpleNamespace:
    config = SimpleNamespace(project=SimpleNamespace(builders=(SHIPPED,)), has_builders_to_find=has_more)
    return SimpleNamespace(
        config=config, memory=memory, all_builders=lambda: (SHIPPED, OWN), in_ui=lambda do, *arguments: do(*arguments)
    )


def test_builder_names_that_were_found_are_remembered(tmp_path):
    memory = UiMemory(tmp_path / "memory.json")
    app = app_with(memory)
    assert find_known_names(app) == {SHIPPED.uuid: "image"}

    assert make_finder(app)() == {SHIPPED.uuid: "image", OWN.uuid: "wordlist"}
    memory.save()

    assert find_known_names(app_with(UiMemory(tmp_path / "memory.json"))) == {SHIPPED.uuid: "image", OWN.uuid: "wordlist"}


def test_builder_names_are_not_searched_if_the_configuration_has_all_names(tmp_path):
    assert make_finder(app_with(UiMemory(tmp_path / "memory.json"), has_more=False)) is None


def test_builder_names_without_configuration_come_from_jobs(tmp_path):
    with database(tmp_path) as made:
        made.put(
            put_source=[source_row()],
            put_job=[
                job_row(1, inputs='[["rule","before","00"]]'), job_row(2, platform="pc", inputs='[["rule","now","00"]]'),
                job_row(3, builder=b"X" * 16, platform="mac"),
            ],
        )  # fmt: skip
        app = SimpleNamespace(config=None, all_builders=None, session=SimpleNamespace(cache_dir=made.path.parent))

        assert make_finder(app)() == {BUILDER: "now"}


@pytest.mark.parametrize("remembered", [{"no hex": "x"}, {"0g": 1}, []])
def test_invalid_remembered_builder_names_are_ignored(tmp_path, remembered):
    memory = UiMemory(tmp_path / "memory.json")
    memory.put("shell.builders", remembered)

    assert find_known_names(app_with(memory)) == {SHIPPED.uuid: "image"}


def test_screen_goes_to_the_last_asset_that_an_editor_requests_for_the_screen():
    revealed = []
    shown = [
        ShowRequested(1, "a.png", on_screen=True), ShowRequested(1, "b.png", on_screen=True),
        ShowRequested(1, "c.png"),
    ]  # fmt: skip

    EngineEvents(revealed.append, print).receive([NoticeLine(1, 1, each) for each in shown])
    EngineEvents(revealed.append, print).receive([NoticeLine(1, 1, shown[2])])

    assert revealed == ["b.png"]


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    """A project without configuration whose database fails in the middle of a query."""

    def fail(*_arguments):
        raise sqlite3.DatabaseError("disk I/O error")

    with database(tmp_path) as made:
        made.put(put_source=[source_row(1, "a.png")])
    monkeypatch.setattr(metrics.Reader, "ask", fail)
    return SimpleNamespace(config=None, all_builders=None, session=SimpleNamespace(cache_dir=tmp_path)), made.path


def test_failed_query_for_names_is_an_error_that_the_feed_handles(damaged):
    with pytest.raises(KnownError, match="disk I/O error"):
        make_finder(damaged[0])()


def test_failed_query_for_metrics_is_shown_on_the_builders_screen(damaged):
    assert "disk I/O error" in find(damaged[1], None, None).trouble

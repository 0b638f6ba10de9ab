"""An O3DE project whose engine, gems and own folder have builder scripts, through the real command line."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from scripts_harness import BUS_ID, MOCK

from aptui.cli import main
from aptui.cli.read_access import all_builders
from aptui.core.project import BuilderKind

pytestmark = pytest.mark.real

OTHER_ID = "{0C1D8E5A-59A4-4B5E-9C3B-2F5A7C5B1E02}"


def script(name, bus_id, pattern):
    return (
        MOCK.replace("Crate Builder", name)
        .replace(BUS_ID, bus_id)
        .replace("create, process)", f'create, process, pattern="{pattern}")')
    )


@pytest.fixture
def game(engine):
    """Return a small engine with a gem; engine, gem and project have a bootstrap file each."""
    engine.write("Game/project.json", {"project_name": "Game", "gem_names": ["Tools"]})
    engine.write("engine.json", {"engine_name": "small", "external_subdirectories": ["Gems/Tools"]})
    engine.write("Gems/Tools/gem.json", {"gem_name": "Tools"})
    engine.write("Assets/Editor/Scripts/bootstrap.py", "import builtins\nbuiltins.order = ['engine']\n")
    engine.write(
        "Gems/Tools/Editor/Scripts/bootstrap.py", f"import builtins\nbuiltins.order.append('gem')\n{script('One', BUS_ID, '*.one')}"
    )
    own = (
        "import builtins, azlmbr.paths\nassert builtins.order == ['engine', 'gem']\n"
        "assert azlmbr.paths.projectroot.endswith('/Game')\n"
    )
    engine.write("Game/Editor/Scripts/bootstrap.py", own + script("Two", OTHER_ID, "*/Game/Two/*.two"))
    engine.write("Game/One/A.one", "a")
    engine.write("Game/Two/b.two", "b")
    engine.write("Game/b.two", "b")
    return engine


def asked(game, sql):
    with closing(sqlite3.connect(game.project / "Cache/assetdb.sqlite")) as database:
        return database.execute(sql).fetchall()


def batch(game):
    return main.main(["batch", "--project", str(game.project)])


def test_scripts_of_engine_and_gem_and_project_make_products(game, capfd):
    assert batch(game) == 0

    assert "bootstrap" not in capfd.readouterr().err
    assert asked(game, "SELECT ProductName FROM Products WHERE ProductName LIKE '%.mock_asset' ORDER BY 1") == [
        ("linux/one/a.mock_asset",),
        ("linux/two/b.mock_asset",),
    ]
    assert batch(game) == 0
    assert "0 jobs run, 4 skipped" in capfd.readouterr().out


def test_batch_finds_a_new_script(game, capfd):
    (game.project / "Editor/Scripts/bootstrap.py").rename(game.root / "kept.py")
    batch(game)
    assert asked(game, "SELECT COUNT(*) FROM Products WHERE ProductName LIKE '%.mock_asset'") == [(1,)]

    (game.root / "kept.py").rename(game.project / "Editor/Scripts/bootstrap.py")
    batch(game)

    assert asked(game, "SELECT COUNT(*) FROM Products WHERE ProductName LIKE '%.mock_asset'") == [(2,)]


def test_script_builders_are_listed_without_an_engine(game):
    settings = game.load()

    assert settings.has_builders_to_find
    found = {each.name: each for each in all_builders(settings) if each.kind is BuilderKind.PYTHON}
    assert sorted(found) == ["One", "Two"]
    assert found["One"].platforms == ("linux",)


def test_builder_config_overrides_builders_and_jobs(game):
    game.write("Game/One/C.uno", "c")
    batch(game)
    game.write(
        "Game/BuilderConfig.ini",
        "[Builder One]\nversion=9\npatterns=*.uno\n[Job Mock]\npriority=4\ncritical=true\nfingerprint=x\nparams=Depth=3\n",
    )

    found = {each.name: each for each in all_builders(game.load())}
    batch(game)

    assert (found["One"].version, [each.text for each in found["One"].patterns]) == ("9", ["*.uno"])
    assert asked(game, "SELECT SourceName FROM Sources JOIN Jobs ON SourcePK = SourceID WHERE JobKey = 'Mock' ORDER BY 1") == [
        ("One/C.uno",), ("Two/b.two",),
    ]  # fmt: skip

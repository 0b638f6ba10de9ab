"""Screens of projects with a broken configuration, of folders without a project, and of databases.

With a broken configuration, the screen uses a running engine, or is read-only. It does not start an engine.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aptui.batch import options as batch_config
from aptui.cli import init_verb, screen_verb
from aptui.link import places
from aptui.shared.errors import UserError
from aptui.tui.data.session import LinkSession
from tests.tui.database import database


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A project with a broken `aptui.yaml` and a stored valid configuration; returns the list of opened screens."""
    (tmp_path / "aptui.yaml").write_text("platforms: {linux: \n  - oops")
    good = SimpleNamespace(name="game", project_dir=tmp_path, cache_dir=tmp_path / "Cache")
    monkeypatch.setattr(batch_config, "last_good", lambda *_: good)
    monkeypatch.setattr(places, "engine_of", lambda _cache: None)
    found: list[Any] = []
    monkeypatch.setattr(screen_verb, "_run", lambda config, session, *_: found.append((config, session)) or 0)
    return found


def arguments(folder: Path, *, read_only: bool = False) -> Namespace:
    return Namespace(project=str(folder), set=[], read_only=read_only, theme="", no_mouse=False)


def test_screen_with_broken_configuration_uses_running_engine(
    opened: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "engine_of", lambda cache: cache == tmp_path / "Cache")

    assert screen_verb.tui(arguments(tmp_path)) == 0

    ((config, session),) = opened
    assert isinstance(session, LinkSession)
    assert (config.name, session.is_read_only, session._wants_engine) == ("game", False, False)


def test_screen_of_a_broken_configuration_without_an_engine_is_read_only(opened: list[Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"aptui\.yaml"):
        screen_verb.tui(arguments(tmp_path))
    assert opened == []

    assert screen_verb.tui(arguments(tmp_path, read_only=True)) == 0
    assert opened[0][1].is_read_only


def test_broken_configuration_is_an_error_if_no_valid_one_is_stored(
    opened: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_config, "last_good", lambda *_: None)

    with pytest.raises(UserError):
        screen_verb.tui(arguments(tmp_path, read_only=True))
    assert opened == []


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A terminal on which the user presses these keys, and a folder with a text file but without a project."""
    keys: list[str] = []
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/a.json").write_text("{}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(init_verb, "sys", SimpleNamespace(stdin=terminal, stdout=terminal))
    monkeypatch.setattr(init_verb, "_read_key", lambda: keys.pop(0))
    monkeypatch.setattr(screen_verb, "_run", lambda config, *_: print("opened", config.name) or 0)
    monkeypatch.delenv("TERM", raising=False)
    return keys


def test_screen_writes_the_proposed_project_when_the_user_presses_w(
    typed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed.append("w")

    assert screen_verb.tui(Namespace(**vars(arguments(tmp_path)), adopt_cache=False)) == 0

    out = capsys.readouterr().out
    assert "uses: json" in out
    assert out.endswith(f"opened {tmp_path.name}\n")
    assert "uses: json" in (tmp_path / "aptui.yaml").read_text()


@pytest.mark.parametrize("key", ["n", "\r", "\x1b[A"])
def test_screen_writes_no_project_unless_the_user_presses_w(
    typed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    typed.append(key)

    assert screen_verb.tui(arguments(tmp_path)) == 3

    assert "no file was written" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["assets"]


def test_screen_proposes_no_project_in_a_folder_without_known_files(typed: list[str], tmp_path: Path) -> None:
    (tmp_path / "assets/a.json").unlink()

    with pytest.raises(UserError, match=r"no 'aptui\.yaml'"):
        screen_verb.tui(arguments(tmp_path))
    assert typed == []


@pytest.mark.parametrize(
    ("folder", "named", "title"),
    [
        ("game/Cache", "", "game"),
        ("game/Cache", "assetdb.sqlite", "game"),
        ("game/cache", "", "game"),
        ("builds/nightly", "", "nightly"),
    ],
)
def test_screen_of_database_has_project_title(opened: list[Any], tmp_path: Path, folder: str, named: str, title: str) -> None:
    with database(tmp_path / folder):
        assert screen_verb.open(Namespace(database=str(tmp_path / folder / named), theme="", no_mouse=False)) == 0

    ((_, session),) = opened
    assert (session.project_name, session.cache_dir) == (title, tmp_path / folder)

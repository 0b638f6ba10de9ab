"""`aptui batch` with the answer of a running engine."""

from __future__ import annotations

import contextlib
import io
import socket
from pathlib import Path

import pytest

from aptui import __version__
from aptui.batch import attach
from aptui.batch.options import RunOptions
from aptui.batch.reporter import Reporter
from aptui.batch.summary import Summary
from aptui.config import load
from aptui.config.configuration import Config
from aptui.link.client import EngineClient, EngineWelcome
from aptui.shared.errors import UserError

pytestmark = pytest.mark.real


def settle(config: Config, tmp_path: Path) -> Summary:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as channel:
        client = EngineClient(channel)
        client.hello = EngineWelcome(version=__version__)
        return attach.settle(client, config, RunOptions(), Reporter(io.StringIO(), tmp_path), 0.0)


def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: object, settings: str = "") -> Summary:
    (tmp_path / "aptui.yaml").write_text(f"scan_folders: [{{name: game, path: .}}]\n{settings}")
    monkeypatch.setattr(attach, "_follow", lambda *_all: {"run": 2, "shared": shared})
    monkeypatch.setattr(attach, "collect", lambda *_all: Summary())
    loaded = load.load(tmp_path)
    return settle(loaded, tmp_path)


def test_run_with_running_engine_prints_cache_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"local_hits": 96, "misses": 4, "built_ms": 2_640_000, "fetch_ms": 180_000, "of a later version": 7}

    summary = settled(tmp_path, monkeypatch, counts)

    assert summary.account == "96 % from cache: 41 min saved, 3 min fetching"
    assert summary.shared["local_hits"] == 96


@pytest.mark.parametrize("shared", [{}, None, {"misses": 3}])
def test_cache_account_without_shared_cache_and_hits_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: object
) -> None:
    assert settled(tmp_path, monkeypatch, shared).account == ""


def test_cache_account_with_shared_store_reports_zero_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = f"shared_cache: {{mode: client, store: {tmp_path / 'share'}}}\n"

    assert settled(tmp_path, monkeypatch, {"misses": 3}, settings).account == "0 % from cache"


def test_folder_mistakes_of_running_engine_are_in_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aptui.yaml").write_text("scan_folders: [{name: game, path: .}]\n")
    monkeypatch.setattr(attach, "_follow", lambda *_all: {"run": 0, "folder_mistakes": ["a/.aptui.yaml:1:2: wrong"]})
    monkeypatch.setattr(attach, "collect", lambda *_all: Summary())

    summary = settle(load.load(tmp_path), tmp_path)

    assert summary.mistakes == ("a/.aptui.yaml:1:2: wrong",)


def test_configuration_refused_by_engine_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"run": 0, "configuration": "aptui.yaml:3:60: unknown parameter 'fromat'"}
    (tmp_path / "aptui.yaml").write_text("scan_folders: [{name: game, path: .}]\n")
    monkeypatch.setattr(attach, "_follow", lambda *_all: wrong)

    with pytest.raises(UserError, match=r"aptui\.yaml:3:60: unknown parameter 'fromat'"):
        settle(load.load(tmp_path), tmp_path)


def test_engine_of_other_version_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attach, "__version__", "9.9")

    settled(tmp_path, monkeypatch, {})

    assert "this is 9.9: 'aptui start' replaces it" in capsys.readouterr().err

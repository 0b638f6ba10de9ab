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
from aptui.link.client import EngineClient, EngineWelcome
from aptui.shared.errors import UserError

pytestmark = pytest.mark.real


def settle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object], settings: str = "") -> Summary:
    """Return the summary of `aptui batch` if the running engine answers this."""
    (tmp_path / "aptui.yaml").write_text(f"scan_folders: [{{name: game, path: .}}]\n{settings}\n")
    monkeypatch.setattr(attach, "_follow", lambda *_all: answer)
    monkeypatch.setattr(attach, "collect", lambda *_all: Summary())
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as channel:
        client = EngineClient(channel)
        client.hello = EngineWelcome(version=__version__)
        return attach.settle(client, load.load(tmp_path), RunOptions(), Reporter(io.StringIO(), tmp_path), 0.0)


@pytest.mark.parametrize(
    ("shared", "store", "account"),
    [
        (
            {"local_hits": 96, "misses": 4, "built_ms": 2_640_000, "fetch_ms": 180_000, "of a later version": 7},
            "",
            "96 % from cache: 41 min saved, 3 min fetching",
        ),
        ({}, "", ""),
        (None, "", ""),
        ({"misses": 3}, "", ""),
        ({"misses": 3}, "shared_cache: {mode: client, store: /share}", "0 % from cache"),
    ],
)
def test_cache_account_of_a_running_engine_is_printed_if_there_are_hits_or_a_shared_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: object, store: str, account: str
) -> None:
    assert settle(tmp_path, monkeypatch, {"run": 2, "shared": shared}, store).account == account


def test_folder_mistakes_of_running_engine_are_in_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = settle(tmp_path, monkeypatch, {"run": 0, "folder_mistakes": ["a/.aptui.yaml:1:2: wrong"]})

    assert summary.mistakes == ("a/.aptui.yaml:1:2: wrong",)


def test_configuration_refused_by_engine_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"aptui\.yaml:3:60: unknown parameter 'fromat'"):
        settle(tmp_path, monkeypatch, {"run": 0, "configuration": "aptui.yaml:3:60: unknown parameter 'fromat'"})


def test_engine_of_other_version_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attach, "__version__", "9.9")

    settle(tmp_path, monkeypatch, {"run": 2})

    assert "this is 9.9: 'aptui start' replaces it" in capsys.readouterr().err

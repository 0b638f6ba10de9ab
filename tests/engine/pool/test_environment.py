"""Variables that reach builders are listed in the configuration's manual."""

from __future__ import annotations

from aptui.config.dirs import data_dir
from aptui.engine.pool import spawning


def test_manual_lists_every_variable_that_builders_get() -> None:
    manual = (data_dir() / "config" / "builders.yaml").read_text(encoding="utf-8")

    words = set(manual.replace(",", " ").replace(".", " ").split())

    assert {*spawning._ALLOWED, *spawning._ALLOWED_PREFIXES} <= words


def test_variables_outside_the_allow_list_do_not_reach_builders(monkeypatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LC_TIME", "C")

    found = spawning.python_environment()

    assert "SECRET_TOKEN" not in found
    assert found["LC_TIME"] == "C"

"""Fixtures for the tests of O3DE projects."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_engine import SmallEngine


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallEngine:
    """Return an engine on a Linux machine of a user without settings."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "person"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    for module in ("config.packing", "config.compiler", "features.o3de.project.o3de_settings"):
        monkeypatch.setattr(f"aptui.{module}.host_platform", lambda: "linux")
    return SmallEngine(tmp_path)

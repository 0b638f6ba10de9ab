"""Fixtures of the tests of workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_harness import Harness


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Return a place for runs in this process; a run changes the current folder to "/", and the end of the test restores it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return Harness(tmp_path)

"""Counts of shared results that a live engine reports to its clients, tested without a socket."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_project import LiveProject, own_live_project
from tools import needs_feature

from aptui.link import port

pytestmark = [pytest.mark.real, needs_feature("sharing")]

SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: upper, patterns: ["*.up"], command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out"}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    return own_live_project(tmp_path, monkeypatch, SETTINGS, {"assets/a.up": "one"})


def shared(project: LiveProject) -> tuple[int, int]:
    """Send a `Settle` request. Return the hits and misses of the result store since the previous `Settle` request."""
    counts = project.ask(port.Settle()).answered["shared"]
    return counts.get("local_hits", 0), counts.get("misses", 0)


def test_settle_request_returns_shared_result_counts_since_the_previous_request(project: LiveProject) -> None:
    with project.running():
        project.ask(port.Settle())
        assert shared(project) == (0, 0)

        project.write("assets/a.up", "two")
        assert shared(project) == (0, 1)

        project.write("assets/a.up", "one")
        assert shared(project) == (1, 0)
        assert project.product("linux/a.out") == b"ONE"
        assert shared(project) == (0, 0)

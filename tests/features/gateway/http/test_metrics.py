"""`GET /metrics` on the gateway, without an engine beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_project import Project
from homes import own_homes

from aptui.features.gateway.wire_codec import Scope
from tests.features.gateway.served import Served, served

pytestmark = pytest.mark.real

SETTINGS = """
platforms: {linux: {}}
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    own_homes(tmp_path, monkeypatch)
    project = Project(tmp_path / "project", SETTINGS)
    project.write("assets/a.txt", "a")
    project.engine_run()
    with served(project, tmp_path / "tokens.json") as place:
        yield place


def test_metrics_need_scope_read(place: Served) -> None:
    reply = place.get("/metrics")

    assert reply.status == 200
    assert reply["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    lines = reply.body.decode().splitlines()
    assert lines[-1] == "# EOF"
    assert {'aptui_jobs{status="completed"} 1', "aptui_engine_up 0", 'aptui_job_seconds_gcount{builder="data"} 1'} <= set(lines)
    assert place.get("/metrics", Authorization="").status == 401
    assert place.get("/metrics", Authorization=place.with_scopes(Scope.READ)).status == 200


def test_metrics_request_without_a_database_returns_503(place: Served) -> None:
    (place.project.cache / "assetdb.sqlite").unlink()

    assert place.get("/metrics").status == 503

"""Clients that wait for an idle AssetProcessor get an answer after requested work, but not after the engine's own second checks."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from disk_project import COPIES
from live_project import LiveProject

from aptui.features.o3de.programs import asset_processor, processor_run

pytestmark = pytest.mark.real


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    monkeypatch.setattr(processor_run, "to_reprocess", lambda _start: iter(()))
    return LiveProject(tmp_path / "project", COPIES)


def start_of(project: LiveProject) -> Any:
    printer = SimpleNamespace(say=bool, say_all=bool, started_ms=0)
    given = SimpleNamespace(has=lambda _switch: False)
    facts = SimpleNamespace(user=SimpleNamespace(zero_analysis=None, skips_start_scan=False))
    return SimpleNamespace(console=printer, config=SimpleNamespace(log_dir=project.root / "logs"), given=given, facts=facts)


def test_second_check_of_a_recently_changed_file_does_not_report_idle(project: LiveProject) -> None:
    reported: list[str] = []
    with project.running() as live:
        processor = asset_processor._Processor(live, start_of(project))
        first = project.write("assets/first.txt", "1")
        os.utime(
            first, (ahead := time.time() + 1000.0, ahead)
        )  # a time in the future, so that every check treats the file as just changed
        processor.when_idle(lambda: reported.append("first"))
        project.until(lambda: reported, "the first")
        project.settle()  # process late notifications now: later they would count as new work
        project.until_idle()
        watching, engine = live.watching, live.engine
        assert engine is not None
        watching._second_checks = dict.fromkeys(["", *watching._second_checks], 0.0)
        watching.poll(1.0)
        assert not engine.is_idle

        processor.at_next_idle(lambda: reported.append("second"))
        project.until_idle()
        project.until_idle()
        assert reported == ["first"]
        project.write("assets/second.txt", "2")
        project.until(lambda: len(reported) > 1, "the second")

        assert project.product("linux/second.txt") == b"2"

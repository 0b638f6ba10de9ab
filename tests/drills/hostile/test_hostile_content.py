"""Short forms of the drills `hostile-assets` and `names`; `python -m tests.drills names` runs a drill at full length."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..hostile import hostile_content

pytestmark = pytest.mark.real


def test_untrusted_content_cannot_read_write_or_run_files_outside_the_project(tmp_path: Path) -> None:
    report = hostile_content.assets(tmp_path, seed=1)

    assert report.faults >= 180
    assert not report.violations


@pytest.mark.parametrize(
    ("mutant", "only", "what"), [("trusting-names", "pack/n00", "was opened outside"), ("trusting-folders", "set/luac", "ran: ")]
)
def test_drill_reports_violations_if_the_engine_trusts_content(tmp_path: Path, mutant: str, only: str, what: str) -> None:
    assert any(what in text for text in hostile_content.assets(tmp_path, seed=1, mutant=mutant, only=only).violations)


def test_shell_does_not_run_file_names_in_a_command_template_as_code(tmp_path: Path) -> None:
    report = hostile_content.names(tmp_path, count=150, seed=1)

    assert report.faults >= 100
    assert not report.violations


def test_drill_reports_violations_if_file_names_are_pasted_into_shell_commands(tmp_path: Path) -> None:
    assert hostile_content.names(tmp_path, count=100, seed=1, mutant="pasting").violations

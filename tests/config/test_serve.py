"""The configuration keys about undeclared reads: allowed layers, defaults, and the report of `doctor` about tracing."""

from __future__ import annotations

from pathlib import Path

import pytest
from homes import own_project

from aptui.cli import main
from aptui.config.configuration import ConfigErrors
from aptui.config.load import load
from aptui.core.project import UndeclaredReads
from aptui.worker.commands import read_trace

PROJECT = """
scan_folders: [{{name: game, path: assets}}]
builders:
  - {{name: data, copy: ["*.txt"]{copy}}}
  - {{name: tables, uses: json{python}}}
  - {{name: upper, patterns: ["*.up"], command: "cp {{source}} {{products_dir}}"{command}}}
{project}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_project(tmp_path, monkeypatch)


def write(folder: Path, **said: str) -> Path:
    (folder / "aptui.yaml").write_text(PROJECT.format(**{"copy": "", "python": "", "command": "", "project": "", **said}))
    return folder


def test_undeclared_reads_default_to_warning_without_tracing(folder: Path) -> None:
    project = load(write(folder)).project

    assert project.undeclared_reads is UndeclaredReads.WARN
    assert [(rule.undeclared_reads, rule.traces_reads) for rule in project.builders] == [(None, False)] * 3


def test_undeclared_reads_of_project_and_builder_change_no_signature(folder: Path) -> None:
    before = load(write(folder)).project
    write(folder, python=", undeclared_reads: ignore", command=", trace_reads: true", project="undeclared_reads: add")

    compiled, remembered = load(folder), load(folder)

    project = compiled.project
    assert remembered == compiled
    assert project.undeclared_reads is UndeclaredReads.ADD
    assert [rule.undeclared_reads for rule in project.builders] == [None, UndeclaredReads.IGNORE, None]
    assert [rule.traces_reads for rule in project.builders] == [False, False, True]
    assert project.signature == before.signature
    assert isinstance(remembered.project.builders[1].undeclared_reads, UndeclaredReads)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"copy": ", undeclared_reads: add"}, "'undeclared_reads' belongs to a builder with 'uses:', 'command:' or 'steps:'"),
        ({"python": ", trace_reads: true"}, "'trace_reads' belongs to a builder with 'command:'"),
        ({"python": ", undeclared_reads: perhaps"}, "ignore, warn or add"),
    ],
)
def test_undeclared_reads_setting_is_refused_where_it_has_no_effect(folder: Path, said: dict[str, str], message: str) -> None:
    write(folder, **said)

    with pytest.raises(ConfigErrors, match=message):
        load(folder)


@pytest.mark.real
def test_doctor_reports_whether_commands_can_be_traced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> str:
        main.main(["doctor"])
        return next(line for line in capsys.readouterr().out.splitlines() if "tracing" in line)

    write(folder)
    plain = told()
    write(folder, command=", trace_reads: true")
    monkeypatch.setattr(read_trace, "fault", lambda: "strace is not installed")
    lacking = told()
    monkeypatch.setattr(read_trace, "fault", lambda: "")

    assert "no builder has trace_reads" in plain
    assert lacking.startswith("warn")
    assert "the reads of upper are not known: strace is not installed" in lacking
    assert told().startswith("ok")

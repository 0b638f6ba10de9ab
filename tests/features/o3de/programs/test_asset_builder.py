"""`AssetBuilder` runs the builders of one source, and prints logs. It refuses switches that only O3DE's asset processor passes."""

import re
from pathlib import Path

import pytest
from lytesttools import PLATFORMS, RULES, O3deProject

from aptui.features.o3de.programs import asset_builder, asset_processor_batch
from aptui.features.o3de.programs.asset_builder import parse
from aptui.shared.errors import UserError

BUILDERS = """builders:
  - {name: data, uses: json}
"""
NEEDY = """from aptui.sdk import *
from uuid import UUID

class Needy:
    name, version, patterns = "needy", 1, ["*.needy"]
    uuid = UUID("5d8a4d2e-6a5b-4b07-9a3f-6f9f0c3a7c11")

    def create_jobs(self, request):
        other = open(request.full_path).read()
        jobs = [
            JobDescriptor("needy", platform.id, job_dependencies=[JobDependency(other, "txt", platform.id)])
            for platform in request.platforms
        ]
        return CreateJobsResponse(Result.SUCCESS, jobs=jobs, source_dependencies=[SourceDependency(other)])

    def process_job(self, request):
        with open(request.products_dir + "/a.made", "w") as file:
            file.write("made")
        return ProcessJobResponse(Result.SUCCESS, products=[JobProduct("a.made")])
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> O3deProject:
    made = O3deProject(tmp_path, monkeypatch)
    folder = {"ScanFolder Project": {"watch": "@PROJECTROOT@", "recursive": 1, "order": 0}}
    made.settings({**PLATFORMS, **RULES, **folder, "Platforms": {"linux": "enabled"}})
    made.source("aptui.yaml", BUILDERS)
    return made


@pytest.mark.real
def test_asset_builder_exits_with_1_for_a_broken_source(project: O3deProject, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = project.source("sub/good.json", '{"a": 1}'), project.source("sub/bad.json", "{")

    assert asset_builder.main([f'-debug="{good}"', "-port=45643", "-gamename=AutomatedTesting"]) == 0
    output = capsys.readouterr().out
    assert 'good.json" failed' not in output
    for line in ("Source = sub/good.json", "Platforms = linux", "S: 0 errors, 0 warnings"):
        assert f"AssetBuilder: {line}" in output
    assert "good.json, sub id 0, " in output
    stored_in = Path(output.rpartition("stored in ")[2].strip())
    assert [path.name for path in stored_in.rglob("*.json")] == ["good.json"]

    assert asset_builder.main([f"-debug={bad}"]) == 1
    output = capsys.readouterr().out
    assert 'bad.json" failed' in output
    assert "AssetBuilder: E: " in output
    assert not project.cache.exists()


@pytest.mark.real
@pytest.mark.parametrize("is_there", [True, False])
def test_project_around_the_source_is_used_if_the_named_project_is_wrong(
    project: O3deProject, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_there: bool
) -> None:
    """A relative `--project-path` may lead to a folder of another project or without a project, if the folder names are equal."""
    text = project.source("a.txt", "text")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / project.project.name).mkdir(parents=True)
    root = {
        "ScanFolder Root": {"watch": "@ENGINEROOT@", "recursive": 0, "order": 9}
    }  # This scan folder is not recursive, so it does not contain the source.
    folder = {"ScanFolder Project": {"watch": "@PROJECTROOT@", "recursive": 1, "order": 0}}
    project.settings({**PLATFORMS, **RULES, **folder, **root, "Platforms": {"linux": "enabled"}})
    if is_there:
        (elsewhere / project.project.name / "project.json").write_text('{"project_name": "Other"}')
    monkeypatch.chdir(elsewhere)

    code = asset_builder.main([f"-debug={text}", f"--project-path={project.project.name}", f"--engine-path={project.root}"])

    output = capsys.readouterr().out
    assert code == 0, output
    assert "AssetBuilder: Source = a.txt" in output
    assert f"project '{project.project}', which contains it, is used instead" in output


@pytest.mark.real
def test_option_debug_create_analyses_the_source_without_processing_it(
    project: O3deProject, capsys: pytest.CaptureFixture[str]
) -> None:
    text = project.source("a.txt", "text")

    assert asset_builder.main([f"-debug_create={text}", f"--project-path={project.project}"]) == 0
    output = capsys.readouterr().out
    assert "AssetBuilder: Job 'txt' for linux by builder 'txt'" in output
    assert "Processing" not in output

    assert asset_builder.main([f"-debug={text}"]) == 0
    assert "AssetBuilder: Product = a.txt, sub id 0, 4 bytes" in capsys.readouterr().out


@pytest.mark.real
def test_asset_builder_applies_folder_settings_and_keeps_the_job_log(
    project: O3deProject, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project.source("sub/.aptui.yaml", "builders: {data: {params: {indent: 3}}}")
    source = project.source("sub/good.json", '{"a": 1}')

    assert asset_builder.main([f"-debug={source}"]) == 0

    output = capsys.readouterr().out
    assert f"AssetBuilder: Settings = {settings}\n" in output
    stored_in = Path(output.rpartition("stored in ")[2].strip())
    assert next(stored_in.rglob("good.json")).read_text() == '{\n   "a": 1\n}\n'

    settings.write_text("builders: {data: {params: {indent: wide}}}")
    bad = project.source("bad.json", "{")

    assert asset_builder.main([f"-debug={source}"]) == 1
    assert "sub/.aptui.yaml:1:" in capsys.readouterr().out
    assert asset_builder.main([f"-debug={bad}"]) == 1
    log = re.search(r"AssetBuilder: Log = (.*)", capsys.readouterr().out)
    assert log is not None
    assert "S: 1 errors, 0 warnings" in Path(log[1]).read_text()


@pytest.mark.real
def test_asset_builder_lists_each_job_dependency_with_its_status(project: O3deProject, capsys: pytest.CaptureFixture[str]) -> None:
    project.source("builders/needy.py", NEEDY)
    source = project.source("a.needy", "b.txt")
    project.source("b.txt", "text")

    assert asset_builder.main([f"-debug_create={source}"]) == 0
    output = capsys.readouterr().out
    assert "AssetBuilder: Source dependency = b.txt\n" in output
    assert "AssetBuilder: W: Job 'needy' needs job 'txt' of 'b.txt' for linux; this job is not processed yet\n" in output

    assert asset_processor_batch.main([f"--project-path={project.project}", "--randomListeningPort"]) == 0
    capsys.readouterr()
    assert asset_builder.main([f"-debug_create={source}"]) == 0
    assert "AssetBuilder: Job 'needy' needs job 'txt' of 'b.txt' for linux; this job is completed\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-task=resident", "-id=1"], "-task=resident is valid only if O3DE's asset processor starts this program"),
        (["-task=paint"], "'paint' is not a task"),
        (["-debug=relative.txt"], "-debug expects an absolute path, not 'relative.txt'"),
        (["-port=1"], "the source is missing"),
        (["stray"], "'stray' is neither a switch nor the value of a switch"),
    ],
)
def test_invalid_command_line_is_refused(arguments: list[str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        parse(arguments)


def test_asset_builder_errors_begin_with_the_program_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert asset_builder.main(["-task=paint", "-input=/a.txt"]) == 1

    assert "AssetBuilder: Error: 'paint' is not a task" in capsys.readouterr().out


def test_ignored_switches_of_asset_builder_are_reported() -> None:
    given = parse(["--task", "debug_create", "--input", '"/p/a.txt"', "-port", "7", "--colour"])

    assert (given.source, given.processes) == ("/p/a.txt", False)
    assert [note.split()[0] for note in given.notes] == ["-port", "-colour"]
    assert parse([]).wants_help
    assert all(any(f"-{name} :" in line for line in asset_builder.help_lines()) for name in asset_builder.SWITCHES)


def test_gamename_switch_finds_the_project_above_or_beside_the_source(tmp_path: Path) -> None:
    for name in ("Game", "Other"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "project.json").write_text("{}")
    source = tmp_path / "Game" / "sub" / "a.txt"

    assert parse([f"-debug={source}", "-gamename=Game"]).project == str(tmp_path / "Game")
    assert parse([f"-debug={source}", "-gamename=Other"]).project == str(tmp_path / "Other")
    assert parse([f"-debug={source}", "-gamename=None"]).project == ""

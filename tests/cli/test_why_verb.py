"""`why` over several runs: jobs that never succeed, and needed files that are not assets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from homes import own_project

from aptui.cli import main

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: bad, patterns: ["*.bad"], command: "echo wrong >&2; exit 3 # {source}"}
  - {name: words, uses: words, patterns: ["*.words"]}
"""
BUILDER = """
from aptui.sdk import CreateJobsResponse, JobDescriptor, ProcessJobResponse, Result, SourceDependency, SourceDependencyKind
class Words:
    name = "words"
    version = "1"
    patterns = ("*.words",)
    def create_jobs(self, request):
        needs = [SourceDependency("plain.inc"), SourceDependency("wild*.inc", SourceDependencyKind.WILDCARD)]
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("words", item.id) for item in request.platforms], needs)
    def process_job(self, request):
        return ProcessJobResponse(Result.SUCCESS)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"aptui.yaml": CONFIG, "builders/words.py": BUILDER, "assets/plain.inc": "", "assets/wild1.inc": ""}
    return own_project(tmp_path, monkeypatch, files)


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the output of a verb."""
    capsys.readouterr()
    main.main(words)
    return capsys.readouterr().out


@pytest.mark.real
def test_why_of_a_job_that_never_completed_names_the_first_failure(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = project / "assets" / "a.bad"
    source.write_text("1")
    main.main(["batch"])
    assert "its last run failed; it ran because: new source" in output_of(capsys, "why", "a.bad")

    source.write_text("22")
    main.main(["batch"])

    message = r"its last 2 runs failed, the first of them at \d{4}-.*; it ran because: source 'a\.bad' changed \(\w+ -> \w+\)"
    assert re.search(message, output_of(capsys, "why", "a.bad"))
    main.main(["batch"])
    assert re.search("its last 3 runs failed, .*: its previous run failed", output_of(capsys, "why", "a.bad"))
    for _ in range(3):
        main.main(["batch"])
    before = re.findall(r"before: .{19}: (.*)", output_of(capsys, "why", "a.bad"))
    assert before[0] == "failed; it ran because: its previous run failed"
    assert "its last 5 or more runs failed" in output_of(capsys, "why", "a.bad")


@pytest.mark.real
@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["", "unknown", "other"], r"its last 3 runs failed, the first of them at \d{4}-"),
        (["unknown", "other"], "last 2 runs failed;"),
    ],
)
def test_why_counts_failures_of_a_job_that_could_not_run(
    project: Path, capsys: pytest.CaptureFixture[str], texts: list[str], sentence: str
) -> None:
    needs = 'item.id, job_dependencies=[JobDependency("b", "words", name) for name in request.read_source().decode().split()]'
    builder = BUILDER.replace("import ", "import JobDependency, ").replace("item.id", needs, 1)
    (project / "builders/words.py").write_text(
        builder.replace("ProcessJobResponse(Result.SUCCESS", "ProcessJobResponse(Result.FAILED")
    )
    for text in texts:
        (project / "assets" / "a.words").write_text(text)
        main.main(["batch"])

    assert re.search(sentence, output_of(capsys, "why", "a.words"))


@pytest.mark.real
def test_why_does_not_count_failures_before_the_source_was_good_again(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "aptui.yaml").write_text(CONFIG.replace("echo wrong >&2; exit 3 #", "cp {source} {products_dir} && grep good"))
    for text in ("good", "bad", "good", "worse"):
        (project / "assets" / "a.bad").write_text(text)
        main.main(["batch"])

    assert "its last run failed" in output_of(capsys, "why", "a.bad")


@pytest.mark.real
def test_why_of_a_job_that_failed_again_names_the_inputs_of_its_last_good_products(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "aptui.yaml").write_text(CONFIG.replace("echo wrong >&2; exit 3 #", "cp {source} {products_dir} && grep good"))
    (project / "assets" / "a.bad").write_text("good")
    main.main(["batch"])
    assert "\n      made of:\n        source a.bad  770e607624d6" in output_of(capsys, "why", "a.bad")
    (project / "assets" / "a.bad").write_text("worse")
    main.main(["batch"])

    assert "\n      last good products were made of:\n        source a.bad  770e607624d6" in output_of(capsys, "why", "a.bad")


@pytest.mark.real
def test_why_names_the_sources_that_need_a_dependency(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "assets" / "a.words").write_text("")
    main.main(["batch"])

    for name in ("plain.inc", "wild1.inc"):
        assert "needed by 1 source: a.words" in output_of(capsys, "why", name)

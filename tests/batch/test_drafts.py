"""`aptui batch` over builders that make drafts first: products are made, marked, postponed and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from homes import own_project
from tools import needs_feature
from verb_project import Run, runner

pytestmark = pytest.mark.real

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - name: upper
    patterns: ["*.up"]
    quality: [draft, final]
    command: "test ! -e fail-{quality} && (echo {quality} $APTUI_QUALITY; cat {source}) > {products_dir}/{stem}.txt"
  - {name: stamp, uses: stamp, quality: [draft, final]}
platforms: {linux: {}}
workers: 1
"""
STAMP = """
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result


class Stamp:
    name = "stamp"
    version = "1"
    patterns = ("*.st",)

    def create_jobs(self, request):
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("stamp", platform.id) for platform in request.platforms])

    def process_job(self, request):
        with open(request.product_path(request.stem + ".bin"), "w") as file:
            file.write(request.quality)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(request.stem + ".bin")])
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"builders/stamp.py": STAMP, "aptui.yaml": CONFIG, "assets/a.up": "a", "assets/b.st": "b"}
    return own_project(tmp_path, monkeypatch, files)


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def products(project: Path) -> dict[str, str]:
    """Return {file name: text}."""
    return {
        path.name: path.read_text() for path in sorted((project / "Cache" / "linux").glob("*.*")) if path.suffix in (".txt", ".bin")
    }


FINALS = {"a.txt": "final final\na", "b.bin": "final"}
DRAFTS = {"a.txt": "draft draft\na", "b.bin": "draft"}


def test_batch_makes_final_products_by_default(run: Run, project: Path) -> None:
    code, out, _ = run("batch", "--json", "--require", "final")

    summary = json.loads(out)
    assert (code, summary["jobs_run"], summary["drafts"]) == (0, 4, [])
    assert products(project) == FINALS


def test_batch_with_the_draft_option_postpones_final_products(run: Run, project: Path) -> None:
    code, out, _ = run("batch", "--draft", "--json")
    left = products(project)
    listed = json.loads(run("jobs", "--filter", "is:draft", "--json")[1])
    shown = run("jobs")[1]
    again = json.loads(run("batch", "--draft", "--json")[1])["jobs_run"]
    later = json.loads(run("batch", "--json")[1])

    summary = json.loads(out)
    assert (code, summary["jobs_run"]) == (0, 2)
    assert [(each["source"], each["builder"]) for each in summary["drafts"]] == [("a.up", "upper"), ("b.st", "stamp")]
    assert left == DRAFTS
    assert [job["draft"] for job in listed] == [True, True]
    assert shown.count("completed, draft") == 2
    assert (again, later["jobs_run"], later["drafts"]) == (0, 2, [])
    assert products(project) == FINALS


def test_batch_that_requires_final_products_fails_if_a_draft_remains(run: Run, project: Path) -> None:
    config = project / "aptui.yaml"
    config.write_text(config.read_text().replace("test ! -e fail-{quality}", "test {quality} = draft"))

    code, _, _ = run("batch", "--draft")
    gated, out, _ = run("batch", "--require", "final")
    ungated, _, _ = run("batch")

    assert (code, gated, ungated) == (0, 1, 1)
    assert "drafts: their final products failed or are pending:\n  a.up" in out
    assert products(project) == {**FINALS, "a.txt": "draft draft\na"}


def test_status_exits_with_0_if_a_job_has_draft_products(run: Run, project: Path) -> None:
    config = project / "aptui.yaml"
    config.write_text(config.read_text().replace("test ! -e fail-{quality}", "test {quality} = draft"))
    run("batch")

    code, out, _ = run("status", "--json")

    assert (code, json.loads(out)["draft_jobs"]) == (0, 1)


def test_draft_option_together_with_require_option_is_a_mistake(run: Run) -> None:
    code, _, err = run("batch", "--draft", "--require", "final")

    assert code == 3
    assert "'--draft' makes drafts, and '--require final' rejects drafts" in err


def test_require_option_accepts_only_the_value_final(run: Run) -> None:
    code, _, err = run("batch", "--require", "best")

    assert code == 3
    assert "best" in err


def test_require_option_succeeds_in_a_project_without_drafts(run: Run, project: Path) -> None:
    (project / "aptui.yaml").write_text("scan_folders: [{name: game, path: assets}]\nplatforms: {linux: {}}\n")

    code, out, _ = run("batch", "--draft", "--json")

    assert (code, json.loads(out)["drafts"]) == (0, [])
    assert run("batch", "--require", "final")[0] == 0


def test_enabling_drafts_does_not_rerun_up_to_date_jobs(run: Run, project: Path) -> None:
    config = project / "aptui.yaml"
    with_drafts = config.read_text()
    config.write_text(with_drafts.replace("    quality: [draft, final]\n", "").replace(", quality: [draft, final]", ""))
    run("batch")
    config.write_text(with_drafts)

    _, out, _ = run("batch", "--json")

    assert json.loads(out)["jobs_run"] == 0


@needs_feature("sharing")
def test_restore_refuses_a_run_that_made_a_draft(run: Run, project: Path) -> None:
    run("batch")

    code, _, err = run("restore", "a.up", "--run", "2")

    assert code == 3
    assert "run 2 of this job made a draft" in err
    assert products(project) == FINALS


@needs_feature("sharing")
def test_next_batch_does_not_replace_a_restored_final_product(run: Run, project: Path) -> None:
    (project / "assets" / "b.st").unlink()
    run("batch")
    (project / "assets" / "a.up").write_text("other")
    run("batch", "--draft")

    code, _, err = run("restore", "a.up", "--run", "2")
    restored = products(project)
    _, out, _ = run("batch", "--json")

    assert (code, err) == (0, err)
    assert restored == products(project) == {"a.txt": "final final\na"}
    assert json.loads(out)["drafts"] == []


@needs_feature("sharing")
def test_stored_final_product_is_restored_even_if_only_drafts_are_requested(run: Run, project: Path) -> None:
    run("batch")
    (project / "assets" / "a.up").write_text("other")
    run("batch")
    (project / "assets" / "a.up").write_text("a")

    _, out, _ = run("batch", "--draft", "--json")

    assert json.loads(out)["drafts"] == []
    assert products(project) == FINALS

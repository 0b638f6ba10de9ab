"""`aptui restore`: products of an earlier run are restored, stay through restarts, and are replaced with the next edit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from homes import own_project
from verb_project import Run

PROJECT = """\
scan_folders: [{name: game, path: assets}]
builders:
  - name: upper
    patterns: ["*.up"]
    command: "tr a-z A-Z < {source} > {products_dir}/{stem}.txt; cp {source} {products_dir}/{stem}.bak"
  - {name: data, copy: ["*.txt"]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = own_project(tmp_path, monkeypatch)
    (folder / "aptui.yaml").write_text(f"{PROJECT}local_store: {{enabled: true, path: {tmp_path}/store}}\n")
    return folder


@pytest.fixture
def twice(project: Path, run: Run) -> Path:
    """Return the product of a source that was built, changed and built again."""
    (project / "assets" / "plain.txt").write_text("plain")
    for text in ("one", "two"):
        (project / "assets" / "a.up").write_text(text)
        assert run("batch")[0] == 0
    return project / "Cache" / "linux" / "a.txt"


MEASURE = """
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result


class Measure:
    name = "measure"
    version = "1"
    patterns = ("*.wide",)
    analysis_fingerprint = ""

    def create_jobs(self, request):
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("measure", platform.id) for platform in request.platforms])

    def process_job(self, request):
        data = request.read_source()
        with open(request.product_path("a.out"), "wb") as file:
            file.write(data)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct("a.out", facts={"width": len(data)})])
"""


def matching(run: Run, text: str) -> list[str]:
    """Return the sources of the jobs that match a filter."""
    return [row["source"] for row in json.loads(run("jobs", "--filter", text, "--json")[1])]


def row_of(run: Run) -> dict[str, object]:
    (row,) = json.loads(run("jobs", "--filter", "a.up", "--json")[1])
    return dict(row)


@pytest.mark.real
def test_restored_products_stay_until_the_source_changes(project: Path, twice: Path, run: Run) -> None:
    assert twice.read_text() == "TWO"

    code, output, errors = run("restore", "a.up", "--run", "2")

    assert errors == ""
    assert (code, twice.read_text(), twice.with_suffix(".bak").read_text()) == (0, "ONE", "one")
    assert "its result is from its run of " in output
    assert row_of(run)["restored"] is True
    assert "completed, restored" in run("jobs")[1]
    for words in (["batch"], ["batch", "--full-scan"]):
        assert run(*words)[0] == 0
        assert twice.read_text() == "ONE"
    assert run("verify")[0] == 0
    assert "restored by hand" in run("why", "a.up")[1]

    (project / "assets" / "a.up").write_text("three")
    run("batch")
    assert (twice.read_text(), row_of(run)["restored"]) == ("THREE", False)


@pytest.mark.real
def test_running_engine_keeps_restored_products_until_the_next_edit(project: Path, twice: Path, run: Run) -> None:
    run("start")
    try:
        code, output, errors = run("restore", "a.up", "--run", "2")
        assert (code, errors, twice.read_text()) == (0, "", "ONE")
        assert "its result is from its run of " in output
        assert row_of(run)["restored"] is True
        assert (run("batch")[0], twice.read_text()) == (0, "ONE")

        (project / "assets" / "a.up").write_text("three")
        assert run("batch")[0] == 0
        assert (twice.read_text(), row_of(run)["restored"]) == ("THREE", False)
    finally:
        run("stop")

    assert (run("batch")[0], twice.read_text()) == (0, "THREE")


@pytest.mark.real
def test_width_filter_ignores_replaced_products_after_a_restore(project: Path, run: Run) -> None:
    (project / "builders").mkdir()
    (project / "builders" / "measure.py").write_text(MEASURE)
    source = project / "assets" / "a.wide"
    for width in (1, 22):
        source.write_text("x" * width)
        assert run("batch")[0] == 0
    assert matching(run, "width:22") == ["a.wide"]

    assert run("restore", "a.wide", "--run", "2")[0] == 0

    assert (project / "Cache" / "linux" / "a.out").read_text() == "x"
    assert matching(run, "width:22") == []
    source.write_text("x" * 33)
    run("batch")
    assert matching(run, "width:33") == ["a.wide"]


@pytest.mark.real
def test_products_of_an_earlier_run_are_restored_for_a_failed_job(project: Path, twice: Path, run: Run) -> None:
    (project / "aptui.yaml").write_text((project / "aptui.yaml").read_text().replace("tr a-z", "exit 3; tr a-z"))
    assert run("batch")[0] == 1

    code, output, _ = run("restore", "a.up", "--run", "3", "--json")

    assert code == 0
    assert json.loads(output)["restored"] is True
    assert twice.read_text() == "ONE"
    assert run("batch")[0] == 0


@pytest.mark.real
def test_impossible_restore_is_reported(project: Path, twice: Path, run: Run, tmp_path: Path) -> None:
    assert "run 9 of this job does not exist; give a number from 1 (the last run) to 2" in run("restore", "a.up", "--run", "9")[2]
    assert "products that are copies of their sources are not stored" in run("restore", "plain.txt", "--run", "1")[2]
    for blob in (tmp_path / "store").rglob("*"):
        if blob.is_file() and blob.read_bytes() == b"ONE":
            blob.unlink()

    code, _, output = run("restore", "a.up", "--run", "2")

    assert code == 3
    assert "'linux/a.txt' of the earlier run is not in this machine's store" in output
    assert twice.read_text() == "TWO"


@pytest.mark.real
def test_damaged_blob_is_not_restored(project: Path, twice: Path, run: Run, tmp_path: Path) -> None:
    for blob in (tmp_path / "store").rglob("*"):
        if blob.is_file() and blob.read_bytes() == b"ONE":
            blob.chmod(0o644)
            blob.write_bytes(b"ONF")

    code, output, _ = run("restore", "a.up", "--run", "2")

    assert code == 1
    assert "was not restored: the products cannot be restored:" in output
    assert "is damaged" in output
    assert twice.read_text() == "TWO"

"""`verify --rebuild`: runs a sample of jobs twice and names the builders whose products differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import verb_project
from verb_project import Run

from aptui.cli.verify_verb import SampleSize, sample, share
from aptui.store.queries.reader import JobRow

pytestmark = pytest.mark.real

DICE = """
import os
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result


class Dice:
    name = "dice"
    version = "1"
    patterns = ("*.dice",)

    def create_jobs(self, request):
        jobs = [JobDescriptor("dice", item.id) for item in request.platforms if item.id == "linux"]
        return CreateJobsResponse(Result.SUCCESS, jobs)

    def process_job(self, request):
        what = request.read_source().decode().strip()
        name = request.stem + ".out"
        data = b"0123456789"
        if what == "bytes":
            data += os.urandom(16)
        elif what == "size":
            data += b"x" * len(os.environ.get("PYTHONHASHSEED", ""))
        elif what == "names":
            name = os.urandom(8).hex() + ".out"
        elif what == "set":
            data += " ".join({"one", "two", "three", "four", "five", "six"}).encode()
        elif what == "fragile" and "verify-" in request.products_dir:
            return ProcessJobResponse(Result.FAILED, error="not again")
        elif what == "outside":
            with open(os.path.join(request.scan_folder, "..", "secret"), "rb") as file:
                data += file.read()
        with open(request.product_path(name), "wb") as file:
            file.write(data)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(name)])
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = verb_project.write(tmp_path, monkeypatch)
    (project / "builders" / "dice.py").write_text(DICE)
    (project / "secret").write_text("old")
    return project


def files_below(folder: Path) -> dict[str, bytes]:
    """Return {path: bytes} of all files except the database and `builders.json`.

    `builders.json` changes without a rebuild: a check more than two seconds after a code file changed stores the time of that file.
    """
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): path.read_bytes() for path in files if "sqlite" not in path.name and path.name != "builders.json"}


def test_rebuild_of_equal_products_changes_no_file(run: Run, project: Path) -> None:
    run("batch")
    before = files_below(project / "Cache")

    code, out, _ = run("verify", "--rebuild", "100%", "--json")

    output = json.loads(out)
    assert (code, output["differences"], output["left_out"]) == (0, [], [])
    assert output["rebuilt"] == output["jobs"] == sum(output["builders"].values())
    assert set(output["builders"]) == {"data", "tables", "upper", "words"}
    assert files_below(project / "Cache") == before
    assert list((project / "Cache" / ".aptui" / "temp").iterdir()) == []


def test_rebuild_leaves_out_disabled_platforms(run: Run, project: Path) -> None:
    run("batch")
    config = project / "aptui.yaml"
    config.write_text(config.read_text().replace("server: {tags: [server]}", "server: {tags: [server], enabled: false}"))

    code, out, _ = run("verify", "--rebuild", "100%", "--json")

    output = json.loads(out)
    assert "enabled: false" in config.read_text()
    assert (code, output["left_out"], output["rebuilt"]) == (0, [], output["jobs"])


def test_rebuild_names_nondeterministic_builders_and_differences(run: Run, project: Path) -> None:
    for name in ("bytes", "size", "names", "set", "fragile", "outside", "well"):
        (project / "assets" / f"{name}.dice").write_text(name)
    run("batch")
    (project / "secret").write_text("new")

    code, out, _ = run("verify", "--rebuild", "100%", "--seed", "1", "--json")
    _, output, _ = run("verify", "--rebuild", "100%")

    found = {Path(item["source"]).stem: item for item in json.loads(out)["differences"]}
    assert code == 1
    assert {item["builder"] for item in found.values()} == {"dice"}
    assert {name: (item["kind"], item["against"]) for name, item in found.items()} == {
        "bytes": ("bytes", "second run"),
        "size": ("size", "second run"),
        "names": ("names", "second run"),
        "set": ("bytes", "second run"),
        "fragile": ("failed", "recorded"),
        "outside": ("bytes", "recorded"),
    }
    assert found["bytes"]["offset"] >= 10
    assert found["outside"]["offset"] == 10
    assert "not again" in found["fragile"]["said"]
    assert "two runs differ from byte" in output
    assert "builder 'dice': 6 of 7 jobs" in output


def test_rebuild_leaves_out_changed_sources(run: Run, project: Path) -> None:
    run("batch")
    (project / "assets" / "sub" / "b.up").write_text("changed")

    code, out, _ = run("verify", "--rebuild", "100%", "--json")

    assert (code, json.loads(out)["left_out"]) == (0, ["sub/b.up"])


def test_rebuild_refuses_impossible_options(run: Run, project: Path) -> None:
    assert run("verify", "--rebuild", "5%")[0] == 3
    run("batch")
    assert run("verify", "--rebuild", "5%", "--repair")[0] == 3
    code, _, complaint = run("verify", "--rebuild", "0%")
    assert code == 3
    assert "neither a percentage" in complaint


def rows(**counts: int) -> list[JobRow]:
    plain = dict.fromkeys(JobRow.__struct_fields__, "")
    made = []
    for builder, count in counts.items():
        for at in range(count):
            made.append(JobRow(**{**plain, "builder": builder.encode(), "source": f"{builder}{at:03}", "job_id": len(made) + 1}))
    return made


def test_rebuild_sample_has_every_builder_and_depends_only_on_its_seed() -> None:
    jobs = rows(many=200, few=3, one=1)

    first, again, other = (sample(jobs, SampleSize(percent=5), seed) for seed in (1, 1, 2))

    assert first == again != other
    assert len(first) == 11
    assert {row.builder for row in first} == {row.builder for row in other} == {b"many", b"few", b"one"}
    assert len(sample(jobs, SampleSize(count=1), 1)) == 3
    assert len(sample(jobs, SampleSize(percent=100), 1)) == len(sample(jobs, SampleSize(count=999), 1)) == 204


@pytest.mark.parametrize(("text", "expected"), [("5%", SampleSize(5.0)), ("0.5%", SampleSize(0.5)), ("12", SampleSize(count=12))])
def test_rebuild_accepts_a_percentage_or_a_number_of_jobs(text: str, expected: SampleSize) -> None:
    assert share(text) == expected

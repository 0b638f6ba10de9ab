"""`aptui cache verify --rebuild` runs jobs again, and removes a stored result if two new runs agree, but differ from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from homes import own_project
from verb_project import Run

from aptui.features.sharing.namespaces import probe
from tests.features.sharing import harness
from tests.features.sharing.harness import sharing

pytestmark = pytest.mark.real

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - name: first
    patterns: ["*.up"]
    intermediate: true
    command: "tr a-z A-Z < {source} > {products_dir}/{stem}.mid"
  - {name: glue, patterns: ["*.glu"], command: "cat {source} SECRET > {products_dir}/{stem}.out"}
  - {name: dice, patterns: ["*.dice"], command: "cat {source} /proc/sys/kernel/random/uuid > {products_dir}/{stem}.out"}
  - name: joined
    patterns: ["*.src"]
    command: "cat {source} $(dirname {source})/b.inc > {products_dir}/{stem}.out; echo out: $(dirname {source})/b.inc > {depfile}"
    depfile: "{stem}.d"
workers: 1
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = own_project(tmp_path, monkeypatch)
    (folder / "secret").write_text("old")
    (folder / "aptui.yaml").write_text(CONFIG.replace("SECRET", str(folder / "secret")))
    for name in ("a.up", "b.glu", "b.inc", "c.txt", "d.src", "e.src"):
        (folder / "assets" / name).write_text(name)
    return folder


def build(run: Run) -> None:
    """Process the project until every result is stored.

    Several runs may be needed: a run does not store a result if an input was modified shortly before the run.
    """
    assert run("batch")[0] == 0
    for number in range(5):
        if not json.loads(run("cache", "prefetch", "--json")[1])["missing"]:
            return
        run("batch", "--set", f"cache=Fill{number}")


def rebuilt(run: Run, share: str = "100%") -> dict[str, Any]:
    return dict(json.loads(run("cache", "verify", "--rebuild", share, "--json")[1]))


def test_stored_results_are_rebuilt_and_identical(run: Run, project: Path) -> None:
    build(run)

    code, out, _ = run("cache", "verify", "--rebuild", "100%")
    output = rebuilt(run)

    assert code == 0
    assert "4 of 4 jobs have a result in" in out
    assert "every result matches the stored one" in out
    assert (output["jobs"], output["kept"], output["rebuilt"], output["removed"]) == (4, 4, 4, 0)
    assert (output["left_out"], output["differences"]) == ([], [])
    assert output["builders"] == {"first": 1, "glue": 1, "joined": 2}
    assert list((project / "Cache" / ".aptui" / "temp").iterdir()) == []


def test_stored_result_that_differs_from_two_equal_runs_is_removed(run: Run, project: Path) -> None:
    build(run)
    (project / "secret").write_text("new")

    code, out, _ = run("cache", "verify", "--rebuild", "100%")

    assert code == 1
    assert "b.glu@linux:glue: linux/b.out: both runs differ from the kept result from byte 5, of" in out
    assert "1 result removed; removed results are built again when needed" in out
    assert (rebuilt(run)["kept"], rebuilt(run)["differences"]) == (3, [])
    run("batch", "--set", "cache=Other")
    assert (project / "Other" / "linux" / "b.out").read_text() == "b.glunew"


def test_nondeterministic_builder_is_reported_and_its_results_stay(run: Run, project: Path) -> None:
    (project / "assets" / "x.dice").write_text("x")
    build(run)

    output = rebuilt(run)

    assert [(item["builder"], item["against"]) for item in output["differences"]] == [("dice", "second run")]
    assert (output["removed"], rebuilt(run)["kept"]) == (0, 5)


@pytest.mark.parametrize("changed", ["assets/d.src", "assets/b.inc"])
def test_rebuild_skips_jobs_with_changed_inputs(run: Run, project: Path, changed: str) -> None:
    build(run)
    (project / changed).write_text("other")

    output = rebuilt(run)

    assert output["left_out"] == (["d.src"] if changed.endswith("src") else ["d.src", "e.src"])
    assert (output["removed"], output["differences"]) == (0, [])


def test_rebuild_skips_a_job_whose_builder_changed(run: Run, project: Path) -> None:
    build(run)
    settings = project / "aptui.yaml"
    settings.write_text(settings.read_text().replace("tr a-z A-Z", "cat"))

    output = rebuilt(run)

    assert (output["left_out"], output["rebuilt"], output["removed"]) == (["a.up"], 3, 0)


def test_sample_of_stored_results_is_rebuilt(run: Run, project: Path) -> None:
    build(run)

    output = rebuilt(run, "1")

    assert (output["jobs"], output["rebuilt"]) == (4, 3)
    assert output["builders"] == {"first": 1, "glue": 1, "joined": 1}


def test_rebuild_option_needs_cache_verify_and_a_local_store(run: Run, project: Path) -> None:
    assert run("cache", "stats", "--rebuild", "5%")[0] == 3
    with (project / "aptui.yaml").open("a") as settings:
        settings.write("local_store: {enabled: false}\n")
    assert "this machine stores no results" in run("cache", "verify", "--rebuild", "5%")[2]


def test_probe_of_a_reachable_store_mentions_writing_only_in_server_mode(tmp_path):
    (tmp_path / "share").mkdir()

    assert "can be written to" in probe(sharing(tmp_path, tmp_path / "share", "server")).message
    answer = probe(sharing(tmp_path, tmp_path / "share", "client"))
    assert (answer.is_bad, answer.address) == (False, str(tmp_path / "share"))
    assert "written" not in answer.message


def test_store_error_is_reported_once_without_the_address_of_the_store(tmp_path):
    address = f"127.0.0.1:{harness.free_port()}"

    answer = probe(sharing(tmp_path, f"http://me:secret@{address}", "client"))

    assert answer.is_bad
    assert address not in answer.message
    assert "secret" not in f"{answer}"
    assert "mount the network folder" in probe(sharing(tmp_path, tmp_path / "nowhere", "client")).message

"""`log --history` and `log --compare`: the runs of an asset, and the differences of two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import verb_project
from verb_project import Run

from aptui.cli import main

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run three times: `tables/bad.json` fails, is fixed and fails again; `sub/b.up` gets a new version; `a.txt` changes twice."""
    folder = tmp_path_factory.mktemp("history")
    with pytest.MonkeyPatch.context() as patch:
        project = verb_project.write(folder, patch)
        main.main(["batch"])
        (project / "assets/tables/bad.json").write_text("{}")
        (project / "assets/a.txt").write_text("longer")
        (project / "aptui.yaml").write_text(verb_project.CONFIG.replace("version: 1", "version: 2"))
        main.main(["batch"])
        (project / "assets/tables/bad.json").write_text("{oops again}")
        (project / "assets/a.txt").write_text("longer yet")
        main.main(["batch"])
    return project


def runs(out: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(out)[0]["runs"]
    return found


def test_history_lists_every_run(run: Run) -> None:
    _, out, _ = run("log", "a.txt@linux", "--history", "--json")

    found = runs(out)
    assert [item["run"] for item in found] == [1, 2, 3]
    assert [item["products"][0]["size"] for item in found] == [10, 6, 1]
    assert len({item["products_digest"] for item in found}) == 3
    assert len({entry["digest"] for item in found for entry in item["inputs"] if entry["kind"] == "source"}) == 3
    assert [item["outcome"] for item in found] == ["completed"] * 3
    assert found[-1]["reason"] == "new source"


def test_history_lists_failed_runs_with_their_inputs(run: Run, processed: Path) -> None:
    _, out, _ = run("log", "tables/bad.json@linux", "--history", "--json")

    found = runs(out)
    outcomes = [item["outcome"] for item in found]
    sources = [next(entry["digest"] for entry in item["inputs"] if entry["kind"] == "source") for item in found]
    assert (outcomes[0], outcomes[-1], outcomes.count("completed")) == ("failed", "failed", 1)
    assert sources[0] != sources[outcomes.index("completed")] != sources[-1] != sources[0]
    assert all(bool(item["products"]) is (item["outcome"] == "completed") for item in found)


def test_history_has_the_builder_version_of_each_run(run: Run) -> None:
    _, out, _ = run("log", "sub/b.up@linux", "--history", "--json")

    assert [item["builder_version"] for item in runs(out)] == ["2", "1"]


def test_history_as_text_has_a_table_for_each_job(run: Run) -> None:
    code, out, _ = run("log", "a.txt", "--history")

    lines = out.splitlines()
    assert code == 0
    assert [line.split("  #")[0] for line in lines if line.startswith("a.txt")] == ["a.txt@linux:data", "a.txt@server:data"]
    assert sum(" completed " in line for line in lines) == 6
    assert "source 'a.txt' changed" in out


def test_log_compare_prints_the_differences_of_two_runs(run: Run) -> None:
    _, out, _ = run("log", "a.txt@linux", "--compare", "3", "1", "--json")
    _, output, _ = run("log", "a.txt@linux", "--compare", "3", "1")
    _, version, _ = run("log", "sub/b.up@linux", "--compare", "2", "1")

    found = json.loads(out)
    assert [(change["change"], change["name"]) for change in found["inputs"]] == [("changed", "source a.txt")]
    assert [(change["change"], change["name"]) for change in found["products"]] == [("changed", "linux/a.txt")]
    assert "1 bytes -> " in output
    assert "10 bytes" in output
    assert "changed  rule upper" in version
    assert "products: no differences" in version


def test_log_compare_with_a_failed_run_does_not_compare_products(run: Run) -> None:
    _, output, _ = run("log", "tables/bad.json@linux", "--compare", "2", "1")

    assert "a failed run has no products to compare" in output


def test_unknown_run_number_is_a_mistake(run: Run) -> None:
    code, _, complaint = run("log", "a.txt@linux", "--compare", "1", "9")

    assert (code, "give a number from 1 (the last run) to 3" in complaint) == (3, True)
    assert run("log", "nothing.txt", "--history")[0] == 3

"""`aptui history`: sessions listed, one shown, two compared; invalid arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import verb_project
from verb_project import Run

from aptui.cli import main

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions: `tables/bad.json` fails in the first; then it is fixed, `sub/b.up` grows, `shared/c.txt` is deleted."""
    folder = tmp_path_factory.mktemp("sessions")
    with pytest.MonkeyPatch.context() as patch:
        project = verb_project.write(folder, patch)
        main.main(["batch"])
        (project / "assets/tables/bad.json").write_text("{}")
        (project / "assets/sub/b.up").write_text("b" * 5000)
        (project / "shared/c.txt").unlink()
        main.main(["batch"])
    return project


def test_history_lists_sessions_with_the_newest_first(run: Run) -> None:
    code, out, _ = run("history", "--json")

    second, first = json.loads(out)
    assert code == 0
    assert (first["session"], first["kind"], first["detail"], first["outcome"]) == (1, "start", "new source", "rested")
    assert first["jobs_run"] > second["jobs_run"] > 0
    assert (first["jobs_failed"], second["jobs_failed"], second["jobs_gone"]) == (2, 0, 2)
    _, out, _ = run("history", "--limit", "1")
    assert len(out.splitlines()) == 2


def test_history_of_one_session_lists_its_runs(run: Run) -> None:
    _, out, _ = run("history", "last", "--json")
    found = json.loads(out)

    assert found["jobs_run"] == len(found["runs"])
    assert {item["source"] for item in found["runs"]} == {"tables/bad.json", "sub/b.up"}
    _, out, _ = run("history", "1")
    assert "session 1: start: new source" in out
    assert "tables/bad.json@linux" in out


def test_history_compares_the_earlier_of_two_sessions_with_the_later(run: Run) -> None:
    _, out, _ = run("history", "2", "1", "--json")
    found = json.loads(out)

    assert {item["source"] for item in found["mended"]} == {"tables/bad.json"}
    assert [(item["source"], item["product_bytes_before"], item["product_bytes"]) for item in found["grew"]] == [
        ("sub/b.up", 1, 5000)
    ]
    assert {item["source"] for item in found["gone"]} == {"c.txt"}
    assert found["began_to_fail"] == found["new_jobs"] == []
    _, out, _ = run("history", "last~1", "last")
    assert "mended (2):" in out
    assert "+4.9 KiB  sub/b.up@linux:upper  now 4.9 KiB" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("9",), "'9' is not a session; sessions 1 to 2 are stored"),
        (("yesterday",), "'yesterday' is not a session"),
        (("1", "2", "1"), "too many sessions"),
        (("--limit", "-3"), "--limit: -3 is not a valid number of lines"),
        (("--limit", "x"), "invalid int value"),
    ],
)
def test_history_refuses_an_unknown_session(run: Run, words: tuple[str, ...], message: str) -> None:
    code, out, err = run("history", *words)

    assert (code, out) == (3, "")
    assert message in err

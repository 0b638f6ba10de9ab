"""`aptui size`, `aptui trace`, and the marks of jobs that became slower, on a project with two sessions."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import verb_project
from verb_project import Run

from aptui.cli import main
from aptui.features.insight.size import SizeBy, SizeRow, size_page

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two sessions. The source `sub/b.up` is larger in the second session.

    The recorded durations of its job are set to 1 ms in the first session, and to 4 s in the second.
    """
    folder = tmp_path_factory.mktemp("night")
    with pytest.MonkeyPatch.context() as patch:
        project = verb_project.write(folder, patch)
        (project / "assets/tables/bad.json").write_text("{}")
        main.main(["batch"])
        (project / "assets/sub/b.up").write_text("b" * 5000)
        main.main(["batch"])
    with closing(sqlite3.connect(project / "Cache/assetdb.sqlite")) as database, database:
        sql = """UPDATE aptui_session_runs SET duration_ms = CASE session_id WHEN 1 THEN 1 ELSE 4000 END
            WHERE job_id IN (SELECT JobID FROM Jobs WHERE JobKey = 'upper')"""
        assert database.execute(sql).rowcount == 2
    return project


def test_builders_are_listed_with_the_growth_of_their_products(run: Run) -> None:
    _, out, _ = run("size", "--by", "builder", "--json", "--diff", "1")

    found = {item["name"]: item for item in json.loads(out)}
    assert (found["upper"]["bytes"], found["upper"]["grew_bytes"]) == (5000, 4999)
    assert {item["grew_bytes"] for name, item in found.items() if name != "upper"} == {0}
    _, out, _ = run("size")
    assert out.splitlines()[0].split() == ["folder", "products", "size"]
    assert any(line.startswith("sub ") and "4.9 KiB" in line for line in out.splitlines())
    _, out, _ = run("size", "--by", "type", "--limit", "1")
    assert "more; --limit" in out


@pytest.fixture(autouse=True, scope="module")
def _commits(processed: Path) -> None:
    with closing(sqlite3.connect(processed / "Cache/assetdb.sqlite")) as database, database:
        for number, commit in ((1, "abc1" + "d" * 36), (2, "abc1" + "e" * 36)):
            database.execute("UPDATE aptui_sessions SET commit_id = ? WHERE session_id = ?", (commit, number))


def test_size_comparison_accepts_a_commit_instead_of_a_session(run: Run) -> None:
    _, out, _ = run("size", "--by", "builder", "--json", "--diff", "ABC1dd")

    assert json.loads(out) == json.loads(run("size", "--by", "builder", "--json", "--diff", "1")[1])
    assert json.loads(out)[0]["grew_bytes"] == 4999


def test_html_page_of_sizes_loads_no_other_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "size.html"
    code, out, _ = run("size", "--by", "builder", "--diff", "abc1dd", "--html", str(file))

    page = file.read_text(encoding="utf-8")
    assert (code, out) == (0, f"wrote {file}\n")
    assert "since session 1 (commit abc1dddddddd)" in page
    assert '<td>upper</td><td class="n">1</td><td class="n">4.9 KiB</td><td class="n">+4.9 KiB</td>' in page
    assert 'class="grew" style="width:100.0%"' in page
    assert not re.search(r"src=|href=|<script|url\(", page)
    assert run("size", "--html", str(tmp_path / "none/size.html"))[0] == 3


def test_html_page_of_sizes_escapes_names() -> None:
    row = SizeRow("<script>x</script>\x1b[0m&\udcff", 1, 10)

    page = size_page([row], row, SizeBy.FOLDER, "<b>", None)

    assert "&lt;script&gt;" in page
    assert "<b>" not in page
    assert "\x1b" not in page
    page.encode()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--by", "colour"), "invalid choice"),
        (("--depth", "0"), "--depth: 0 is not between 1 and 64"),
        (("--limit", "-1"), "--limit: -1 is not a valid number of lines"),
        (("--diff", "77"), "'77' is not a session"),
        (("--diff", "main"), "'main' is neither a session nor a commit"),
        (("--diff", "beef"), "no stored session ended at commit 'beef'"),
        (("--diff", "abc1"), "several commits begin with 'abc1'"),
        (("--by", "type", "--diff", "1"), "--diff cannot be used with --by type"),
    ],
)
def test_invalid_size_options_are_refused(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run("size", *words)

    assert code == 3
    assert message in err


def test_trace_places_every_run_on_a_lane(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "night.json"
    code, out, _ = run("trace", "1", "--out", str(file))

    events = json.loads(file.read_text())["traceEvents"]
    runs = [event for event in events if event["ph"] == "X" and event["tid"] > 0]
    assert code == 0
    assert "critical path:" in out
    assert len(runs) == len({event["args"]["job"] for event in runs}) == 11
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in runs)
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} >= {"critical path", "worker lane 1"}
    _, out, _ = run("trace", "1", "--json")
    assert json.loads(out)["traceEvents"] == events


def test_unwritable_trace_is_refused(run: Run, tmp_path: Path) -> None:
    code, _, err = run("trace", "--out", str(tmp_path / "none/x.json"))

    assert code == 3
    assert "cannot be written" in err
    assert run("trace", "88")[0] == 3


def test_jobs_and_status_commands_report_a_job_that_became_slower(run: Run) -> None:
    _, out, _ = run("jobs", "--slower", "--json")
    (found,) = json.loads(out)
    assert (found["source"], found["slower"]["median_s"], found["slower"]["earlier_runs"]) == ("sub/b.up", 0.001, 1)
    _, out, _ = run("jobs")
    assert [line.split()[0] for line in out.splitlines() if "times slower" in line] == ["sub/b.up"]
    _, out, _ = run("status", "--json")
    assert json.loads(out)["slower_jobs"] == 1
    assert "slower     1 job compared with earlier runs" in run("status")[1]


def test_job_slower_than_the_limit_fails_every_batch(run: Run) -> None:
    """The limit is the value of the option, for example `--fail-on slower:2x`."""
    code, out, _ = run("batch", "--json", "--fail-on", "slower:2x")
    (found,) = json.loads(out)["slower"]
    assert (code, found["source"], found["builder"], found["duration_s"]) == (1, "sub/b.up", "upper", 4.0)
    assert run("batch")[0] == 0
    assert run("batch", "--fail-on", "slower:5000x")[0] == 0
    code, out, _ = run("batch", "--fail-on", "slower:2x")
    assert (code, "slower than in earlier runs:" in out) == (1, True)
    assert run("batch", "--fail-on", "slower:much")[0] == 3

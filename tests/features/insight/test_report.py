"""`aptui report`: failures by folder, builder, platform and owner; CODEOWNERS and its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import verb_project
from verb_project import Run

from aptui.cli import main
from aptui.features.insight import report
from aptui.features.insight.report import NO_OWNER, Owners, owners_of
from aptui.shared.errors import UserError


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        project = verb_project.write(folder, patch)
        (project / "CODEOWNERS").write_text("* @all\n/assets/tables/ @tables @data  # tables\n")
        main.main(["batch"])
    return project


@pytest.mark.real
def test_report_by_folder_lists_the_failed_jobs(run: Run) -> None:
    code, out, _ = run("report", "--json")

    (tables,) = json.loads(out)
    assert (code, tables["name"], tables["failed"]) == (0, "tables", 2)
    assert {job["source"] for job in tables["failures"]} == {"tables/bad.json"}
    assert all(job["error"] and job["builder"] == "tables" for job in tables["failures"])
    _, out, _ = run("report")
    assert out.splitlines()[0].split()[:3] == ["folder", "jobs", "failed"]
    hidden = "not shown: 2 of 3 rows, which have no failures and warnings ("
    assert any(line.startswith(hidden) for line in out.splitlines())
    assert "  tables/bad.json@linux:" in out


@pytest.mark.real
def test_report_with_all_groups_counts_every_job_once(run: Run) -> None:
    _, out, _ = run("status", "--json")
    known = sum(json.loads(out)["jobs"].values())

    for by in ("folder", "builder", "platform", "owner"):
        _, out, _ = run("report", "--by", by, "--all", "--json")
        assert sum(row["jobs"] for row in json.loads(out)) == known


@pytest.mark.real
def test_last_matching_codeowners_pattern_decides_who_owns_a_failed_job(run: Run) -> None:
    _, out, _ = run("report", "--by", "owner", "--all", "--json")

    found = {row["name"]: row for row in json.loads(out)}
    assert found.keys() == {"@all", "@tables @data"}
    assert (found["@tables @data"]["failed"], found["@all"]["failed"]) == (2, 0)
    assert "failed, @tables @data:" in run("report", "--by", "owner")[1]


@pytest.mark.real
def test_invalid_report_options_are_refused(run: Run, processed: Path) -> None:
    code, _, err = run("report", "--depth", "0")
    assert (code, "--depth: 0 is not between 1 and 64" in err) == (3, True)
    owners = processed / "CODEOWNERS"
    text = owners.read_text()
    owners.unlink()
    try:
        code, _, err = run("report", "--by", "owner")
    finally:
        owners.write_text(text)
    assert code == 3
    assert "there is no CODEOWNERS" in err
    assert ".github/CODEOWNERS" in err


@pytest.mark.parametrize(
    ("pattern", "path", "is_meant"),
    [
        ("*", "a/b.png", True),
        ("*.png", "a/b.png", True),
        ("*.png", "a/b.tga", False),
        ("/a/", "a/b/c.png", True),
        ("a/", "x/a/c.png", True),
        ("/a/*", "a/c.png", True),
        ("/a/*", "a/b/c.png", False),
        ("a/*", "a/b.png", True),
        ("/a/**/c", "a/b/d/c", True),
        (r"with\ blank.png", "with blank.png", True),
        ("*", "../elsewhere.png", False),
        ("a/*", "x/a/b.png", False),
        ("**/a/*", "x/y/a/b.png", True),
        ("**/a/*", "x/a/b/c.png", False),
        ("a/**", "a/b/c.png", True),
        ("a/**", "a", False),
        ("a", "x/a/b.png", True),
        ("/a", "x/a/b.png", False),
        ("a/", "a", False),
        ("a/**/b/*.png", "a/x/b/y/b/c.png", True),
        ("/**/b", "b", True),
        ("*a*b*c", "xaxbxcxbxc", True),
        ("*a*b*c", "xcxbxa", False),
        ("?.png", "x/a.png", True),
        ("[a-c]x[!0-9].png", "bxq.png", True),
        ("[a-c]x[!0-9].png", "bx1.png", False),
        ("[]a]x", "]x", True),
        ("[a-z&&b]x", "&x", True),
        ("A.png", "a.png", False),
        ("/*", "a.png", True),
    ],
)
def test_codeowners_pattern_matches_the_expected_paths(pattern: str, path: str, is_meant: bool) -> None:
    owners = Owners("/repo", [(pattern, ("@me",))])

    assert owners.of(f"/repo/{path}") == ("@me" if is_meant else NO_OWNER)


def test_codeowners_pattern_without_an_owner_makes_a_file_unowned(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github/CODEOWNERS").write_text("# all\n* @all\n\n[Section] @x\n/free/\n/art/ @art me@example.org # us\n")

    owners = owners_of(tmp_path)

    assert [owners.of(f"{tmp_path}/{name}") for name in ("a", "free/a", "art/a")] == ["@all", NO_OWNER, "@art me@example.org"]
    (tmp_path / "below").mkdir()
    assert owners_of(tmp_path / "below").of(f"{tmp_path}/art/a") == "@art me@example.org"


def test_negated_codeowners_pattern_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "CODEOWNERS").write_text("* @all\n!x @me\n")

    with pytest.raises(UserError, match="negated patterns are not supported") as caught:
        owners_of(tmp_path)

    assert str(caught.value.where).endswith("CODEOWNERS:2")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a*a*a*a*a*a*a*a*a*a*b", "a" * 39),
        ("*a" * 120 + "*b", "a" * 4_000),
        ("**/a/" * 50 + "b", "a/" * 2_000 + "a"),
        ("**/*a/" * 40 + "b", "aa/" * 1_300 + "a"),
        ("[a-z]*" * 40 + "!", "a" * 4_000),
        ("*?" * 100 + "b", "a" * 4_000),
    ],
)
def test_codeowners_pattern_matches_without_backtracking(pattern: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of segment comparisons grows at most as (segments in the pattern) × (segments in the path)."""
    count = 0
    inherited = report._compile_segment

    def counted(text: str) -> Any:
        matches = inherited(text)
        regex = matches.__self__.pattern  # type: ignore[attr-defined]
        assert regex.count("*") - regex.count(r"\*") <= text.count("*")
        assert regex.count("(?>.*?") >= text.count("*") - 1, "only the last wildcard may backtrack"

        def compare(part: str) -> object:
            nonlocal count
            count += 1
            return matches(part)

        return compare

    monkeypatch.setattr(report, "_compile_segment", counted)
    owners = Owners("/repo", [(pattern, ("@me",))])

    assert owners.of(f"/repo/{path}") == NO_OWNER
    assert count <= 2 * (path.count("/") + 1) * (pattern.count("/") + 1)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a" * 257 + " @x", "longer than 256 characters"),
        ("a[ @x", "a bracket is not closed, or a backslash is at the end"),
        ("x[z-a] @x", "a range in brackets ends before it begins"),
        ("/ @x", "it cannot match a path"),
        ("* @x\n" * 10_001, "more than 10,000 patterns"),
    ],
)
def test_invalid_codeowners_is_refused_with_its_line(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "CODEOWNERS").write_text(text)

    with pytest.raises(UserError, match=error) as caught:
        owners_of(tmp_path)

    assert str(caught.value.where).endswith(f"CODEOWNERS:{text.count(chr(10)) or 1}")

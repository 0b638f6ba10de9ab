"""`deps`, `query` and `affected` on a processed project, on a database alone, and in a real git repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from homes import own_homes
from tools import MACHINE
from verb_project import Run, runner

from aptui.cli import main
from tests.store.graph_rows import Rows

pytestmark = pytest.mark.real

CONFIG = """
platforms: {linux: {}, server: {}}
scan_folders:
  - {name: game, path: assets, order: 0}
  - {name: base, path: base, order: 1}
ignore: ["*.tmp"]
companions: {"*.note": info}
builders:
  - {name: plain, copy: ["*.txt"]}
  - {name: notes, uses: notes, patterns: ["*.note"]}
  - {name: afters, uses: afters, patterns: ["*.after"]}
workers: 2
"""
BUILDER = '''
from aptui.sdk import CreateJobsResponse, DependencyKind, JobDependency, JobDescriptor, JobProduct, ProcessJobResponse, Result
from aptui.sdk import SourceDependency, SourceDependencyKind


class Notes:
    """Every line names what the note depends on."""

    name, version, patterns = "notes", "1", ("*.note",)

    def create_jobs(self, request):
        lines = [line for line in request.read_source().decode().split() if line]
        kinds = (SourceDependencyKind.ABSOLUTE, SourceDependencyKind.WILDCARD)
        edges = [SourceDependency(line, kinds["*" in line]) for line in lines]
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("note", item.id) for item in request.platforms], edges)

    def process_job(self, request):
        name = request.source.rpartition("/")[2] + ".bin"
        with open(request.product_path(name), "wb") as file:
            file.write(request.read_source())
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(name, 0)])


class Afters:
    """Waits for the jobs of notes."""

    name, version, patterns = "afters", "1", ("*.after",)

    def create_jobs(self, request):
        target, kind = (request.read_source().decode().split() + ["FINGERPRINT"])[:2]
        jobs = []
        for item in request.platforms:
            needed = JobDependency(target, "note", item.id, DependencyKind[kind])
            jobs.append(JobDescriptor("after", item.id, job_dependencies=[needed]))
        return CreateJobsResponse(Result.SUCCESS, jobs, [])

    process_job = Notes.process_job
'''
FILES = {
    "aptui.yaml": CONFIG,
    "builders/notes.py": BUILDER,
    "assets/a.txt": "a",
    "assets/b.txt": "b",
    "assets/lonely.txt": "lonely",
    "assets/one.note": "a.txt\n",
    "assets/two.note": "one.note\n",
    "assets/all.note": "b*.txt\n",
    "assets/file.note": "data.raw\n",
    "assets/wait.after": "two.note",
    "assets/data.raw": "raw",
    "assets/one.note.info": "",
    "base/a.txt": "overridden",
    "base/c.txt": "c",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def write(folder: Path) -> Path:
    project = folder / "project"
    for name, text in FILES.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return project


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    project = write(folder)
    with pytest.MonkeyPatch.context() as patch:
        own_homes(folder, patch)
        patch.chdir(project)
        assert main.main(["batch"]) == 0
    return project


@pytest.fixture
def there(processed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_homes(processed.parent, monkeypatch)
    monkeypatch.chdir(processed)
    return processed


def edges(out: str, way: str) -> set[tuple[str, str, str]]:
    return {(edge["from"], edge["to"], edge["kind"]) for edge in json.loads(out)[way]}


# -------------------------------------------------------------------------------------------------------------------- deps


def test_deps_lists_dependencies_and_dependants(run: Run, there: Path) -> None:
    code, out, _ = run("deps", "one.note")

    assert code == 0
    assert out.splitlines() == ["one.note needs:", "  source  a.txt", "one.note needed by:", "  source  two.note"]


def test_deps_tree_lists_indirect_dependencies(run: Run, there: Path) -> None:
    _, out, _ = run("deps", "assets/a.txt", "--in", "--tree")

    assert out.splitlines() == ["a.txt needed by:", "  source  one.note", "    source  two.note", "      job  wait.after"]


def test_deps_in_the_copy_of_a_project_reads_the_files_of_the_copy(
    run: Run, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(there, tmp_path / "copy", symlinks=True)
    (tmp_path / "copy/assets/one.note").write_text("A.txt\n")
    monkeypatch.chdir(tmp_path / "copy")

    _, out, _ = run("deps", "one.note", "--out")

    assert out.splitlines()[1:] == ["  source  a.txt  (one.note contains the name 'A.txt', but the file is 'a.txt')"]


def test_deps_json_names_edges_of_every_kind(run: Run, there: Path) -> None:
    _, wild, _ = run("deps", "all.note", "--out", "--json")
    _, waits, _ = run("deps", "wait.after", "--out", "--tree", "--json")

    assert edges(wild, "out") == {("all.note", "b.txt", "wildcard")}
    assert "in" not in json.loads(wild)
    assert ("wait.after", "two.note", "job") in edges(waits, "out")
    assert ("one.note", "a.txt", "source") in edges(waits, "out")


def test_deps_lists_dependants_of_a_file_without_jobs(run: Run, there: Path) -> None:
    _, out, _ = run("deps", "data.raw", "--in")

    assert out.splitlines() == ["data.raw needed by:", "  source  file.note"]


def test_deps_prints_a_graph_in_dot_format(run: Run, there: Path) -> None:
    _, out, _ = run("deps", "one.note", "--dot")

    assert out.startswith("digraph assets {")
    assert '[label="one.note", shape=box]' in out
    assert out.count(" -> ") == 2


def test_deps_of_unknown_name_gives_a_hint(run: Run, there: Path) -> None:
    code, _, complaint = run("deps", "one.not")

    assert code == 3
    assert "did you mean 'one.note'" in complaint


def test_deps_lists_products_if_requested(run: Run, tmp_path: Path) -> None:
    rows = Rows(tmp_path / "assetdb.sqlite", 3)
    rows.need([(0, 1), (1, 2), (2, 0)])
    rows.need_path(0, "gone.dds")

    _, of_source, _ = run("deps", "--database", str(tmp_path), "s0", "--product", "--out", "--tree")
    _, of_product, _ = run("deps", "--database", str(tmp_path), "linux/p0", "--in")

    assert of_source.splitlines() == [
        "linux/p0 needs:",
        "  unmet  gone.dds",
        "  product  linux/p1",
        "    product  linux/p2",
        "      product  linux/p0  (see above)",
    ]
    assert of_product.splitlines() == ["linux/p0 needed by:", "  product  linux/p2"]


def test_o3de_database_is_queried_without_a_project(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(tmp_path / "assetdb.sqlite", 3)
    rows.need([(0, 1)])
    rows.depend(0, "S2")
    rows.as_o3de()
    monkeypatch.chdir(tmp_path)

    _, sources, _ = run("deps", "--database", "assetdb.sqlite", "s0", "--json")
    _, found, _ = run("query", "--database", "assetdb.sqlite", "products(rdeps(s1))", "--json")

    assert edges(sources, "out") == {("s0", "s2", "source")}
    assert {node["name"] for node in json.loads(found)["nodes"]} == {"linux/p0", "linux/p1"}


# ------------------------------------------------------------------------------------------------------------------- query


def test_query_prints_a_path_between_assets(run: Run, there: Path) -> None:
    _, out, _ = run("query", "somepath(linux/two.note.bin, a.txt)", "--platform", "linux")
    _, way, _ = run("query", "somepath(two.note, a.txt)")

    assert way.splitlines() == ["two.note", "  source  one.note", "  source  a.txt"]
    assert out.splitlines() == ["linux/two.note.bin", "  made of  two.note", "  source  one.note", "  source  a.txt"]


def test_query_lists_the_nodes_of_a_set_difference(run: Run, there: Path) -> None:
    _, out, _ = run("query", "rdeps(a.txt) - products(*)")

    assert [line.split()[:2] for line in out.splitlines()] == [
        ["kind", "name"], ["source", "a.txt"], ["source", "one.note"], ["source", "two.note"], ["source", "wait.after"],
    ]  # fmt: skip


def test_query_reports_that_no_path_exists(run: Run, there: Path) -> None:
    code, out, complaint = run("query", "somepath(a.txt, one.note)")

    assert (code, out) == (0, "")
    assert "does not depend on the second" in complaint


@pytest.mark.parametrize(
    ("query", "where"), [("deps(one.note", "query:14: expected ')'"), ("deps(one.not)", "query:6: 'one.not' is not a source")]
)
def test_query_error_names_the_column_of_the_mistake(run: Run, there: Path, query: str, where: str) -> None:
    code, _, complaint = run("query", query)

    assert code == 3
    assert where in complaint


# ---------------------------------------------------------------------------------------------------------------- affected

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason=MACHINE + "git is not installed")


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "-c", "core.autocrlf=false")
    subprocess.run(("git", *identity, *words), cwd=folder, check=True, capture_output=True)


def commit_all(project: Path) -> None:
    (project / ".gitignore").write_text("Cache/\n.aptui/\n")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "all")
    git(project, "tag", "start")


@pytest.fixture
def no_git_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(variable)


@pytest.fixture
def repository(there: Path, no_git_around: None) -> Iterator[Path]:
    """The processed project with all files committed; changes are undone afterwards."""
    if not (there / ".git").exists():
        commit_all(there)
    yield there
    git(there, "reset", "-q", "--hard", "start")
    git(there, "clean", "-qfd")


FLAT = """
scan_folders: [{name: top, path: top, recursive: false}, {name: base, path: base}]
builders: [{name: text, copy: ["*.txt"]}]
workers: 1
"""


def affected(run: Run, since: str = "HEAD") -> dict[str, Any]:
    code, out, complaint = run("affected", "--since", since, "--json")
    assert code == 0, complaint
    found: dict[str, Any] = json.loads(out)
    return found


def statuses(answer: dict[str, Any]) -> dict[str, str]:
    return {item["source"]: item["status"] for item in answer["sources"]}


@needs_git
def test_affected_lists_every_job_that_the_next_batch_runs(
    run: Run, tmp_path: Path, no_git_around: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(tmp_path)
    monkeypatch.chdir(project)
    run("batch")
    commit_all(project)
    (project / "assets/a.txt").write_text("other")
    (project / "assets/data.raw").write_text("other")
    (project / "assets/b2.txt").write_text("new")
    git(project, "add", "assets/a.txt")

    answer = affected(run)
    _, out, _ = run("batch", "--json")

    assert statuses(answer) == {
        "a.txt": "affected", "one.note": "affected", "two.note": "affected", "wait.after": "affected", "file.note": "affected",
        "all.note": "affected", "b2.txt": "new",
    }  # fmt: skip
    summary = json.loads(out[out.index("{") :])
    assert len(answer["jobs"]) + 2 == summary["jobs_run"]  # `affected` cannot predict the two jobs of the new source
    assert "linux/a.txt" in answer["products"]


@needs_git
def test_affected_verb_lists_deleted_and_renamed_files_of_the_work_tree_and_of_commits(run: Run, repository: Path) -> None:
    git(repository, "mv", "assets/lonely.txt", "assets/alone.txt")
    git(repository, "commit", "-qm", "moved")
    (repository / "assets/b.txt").unlink()

    answer = affected(run, "HEAD~1")

    assert statuses(answer) == {"lonely.txt": "deleted", "alone.txt": "new", "b.txt": "deleted", "all.note": "affected"}
    assert statuses(affected(run)) == {"b.txt": "deleted", "all.note": "affected"}


@needs_git
def test_file_that_another_scan_folder_leaves_out_does_not_hide_a_changed_file(
    run: Run, tmp_path: Path, no_git_around: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first scan folder is not recursive, so only the file of the second scan folder is a source."""
    project = tmp_path / "flat"
    for name in ("top/sub/a.txt", "base/sub/b.txt"):
        (project / name).parent.mkdir(parents=True)
        (project / name).write_text("text")
    (project / "aptui.yaml").write_text(FLAT)
    monkeypatch.chdir(project)
    run("batch")
    commit_all(project)
    (project / "base/sub/a.txt").write_text("new")

    assert statuses(affected(run)) == {"sub/a.txt": "new"}


@needs_git
def test_affected_leaves_out_disabled_platforms(run: Run, repository: Path) -> None:
    (repository / "assets/a.txt").write_text("other")
    assert {job["platform"] for job in affected(run)["jobs"]} == {"linux", "server"}

    config = repository / "aptui.yaml"
    config.write_text(config.read_text().replace("server: {}", "server: {enabled: false}"))
    assert {job["platform"] for job in affected(run)["jobs"]} == {"linux"}


@needs_git
def test_changed_companions_and_builder_code_affect_their_sources(run: Run, repository: Path) -> None:
    (repository / "base/a.txt").write_text("still overridden")
    (repository / "assets/x.tmp").write_text("ignored")
    (repository / "assets/one.note.info").write_text("more")

    companions = affected(run)
    (repository / "builders/notes.py").write_text(BUILDER + "\n")
    builders = affected(run)

    assert set(statuses(companions)) == {"one.note", "two.note", "wait.after"}
    assert "companion" in next(item["why"] for item in companions["sources"] if item["source"] == "one.note")
    assert set(statuses(builders)) == {"one.note", "two.note", "all.note", "file.note", "wait.after"}


@needs_git
def test_changed_file_modes_and_unused_builder_code_affect_nothing(run: Run, repository: Path) -> None:
    (repository / "assets/a.txt").chmod(0o755)
    (repository / "assets/b.txt").chmod(0o755)
    git(repository, "add", "assets/b.txt")
    (repository / "assets/lonely.txt").write_bytes((repository / "assets/lonely.txt").read_bytes())
    (repository / "builders/_nobody.py").write_text("nobody imports it")

    assert affected(run) | {"repositories": []} == {
        "since": "HEAD", "repositories": [], "not_covered": [], "configuration": [], "files": [], "sources": [], "jobs": [],
        "products": [],
    }  # fmt: skip


@needs_git
def test_affected_job_is_uncertain_if_it_depends_only_on_a_product(
    run: Run, tmp_path: Path, no_git_around: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write(tmp_path)
    (project / "assets/order.after").write_text("one.note ORDER")
    monkeypatch.chdir(project)
    run("batch")
    commit_all(project)
    (project / "assets/one.note").write_text("a.txt b.txt")
    (project / "assets/fresh.txt").write_text("new")

    jobs = {job["source"]: job["certain"] for job in affected(run)["jobs"]}
    _, out, _ = run("affected", "--since", "HEAD")

    assert jobs == {"one.note": True, "two.note": True, "wait.after": True, "order.after": False}
    assert "2 of these jobs run only if the products that they depend on change" in out
    assert "the dependencies of new sources are not known until the sources are processed" in out


@needs_git
def test_affected_reports_changed_configuration(run: Run, repository: Path) -> None:
    _, nothing, _ = run("affected", "--since", "HEAD")
    (repository / "aptui.yaml").write_text(CONFIG + "\n# more\n")
    _, _, complaint = run("affected", "--since", "HEAD")

    assert nothing == "0 sources, 0 jobs, 0 products would be processed again\n"
    assert "the configuration also changed" in complaint


@needs_git
def test_unknown_commit_or_missing_git_repository_is_refused(run: Run, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, complaint = run("affected", "--since", "nope")
    dashed = run("affected", "--since=--output=x")
    with monkeypatch.context() as patch:
        patch.setenv("GIT_DIR", str(repository / "nothing"))
        outside = run("affected", "--since", "HEAD")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(repository))
        without = run("affected", "--since", "HEAD")

    assert (code, "'nope' is not a commit" in complaint) == (3, True)
    assert dashed[0] == 3
    assert not (repository / "x").exists()
    assert (outside[0], "is not in a git repository" in outside[2]) == (3, True)
    assert (without[0], "git is not installed" in without[2]) == (3, True)


def test_changed_folder_settings_mark_every_affected_job_as_uncertain(run: Run, repository: Path) -> None:
    (repository / "assets" / ".aptui.yaml").write_text("builders: {}\n")

    answer = affected(run)

    assert answer["jobs"]
    assert not any(job["certain"] for job in answer["jobs"])


def test_deps_lists_files_that_match_a_wildcard_but_are_not_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "aptui.yaml": CONFIG, "builders/x.py": BUILDER, "base/b.txt": "", "assets/one.note": "ui/*.png\n",
        "assets/ui/A.png": "", "assets/ui/b.png": "", "assets/uix.png": "",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    main.main(["batch"])
    run = runner(capsys)
    capsys.readouterr()

    code, out, _ = run("deps", "one.note", "--out")

    assert code == 0
    assert [line.strip() for line in out.splitlines() if "png" in line] == [
        "wildcard  ui/*.png", "file  ui/A.png  (not a source)", "file  ui/b.png  (not a source)",
    ]  # fmt: skip
    (found,) = json.loads(run("deps", "one.note", "--json")[1])["unresolved"]
    assert found["files"] == ["ui/A.png", "ui/b.png"]

"""All ways to run code of a project: with `sandbox: require`, project code never writes outside the sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from homes import own_project
from tools import needs_bubblewrap, needs_feature

from aptui.cli import main
from aptui.config import load
from aptui.config.dirs import builders_record
from aptui.engine.pool import sandbox
from aptui.shared.errors import HostError

CONFIG = """
sandbox: MODE
scan_folders: [{name: game, path: assets}]
builders:
  - {name: run, patterns: ["*.run"], command: "cat {source} > {products_dir}/{stem}.txt; sh PROJECT/mark command"}
checks:
  mine: {files: ["*.run"], command: [sh, mark, check]}
on:
  quiet: 0s
  idle: {exec: [sh, mark, hook]}
"""
BUILDER = """
import os, subprocess
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result

def mark(road):
    subprocess.run(["sh", "PROJECT/mark", road], check=False)

mark("import")

class Words:
    name = "words"
    version = "1"
    patterns = ("*.words",)

    def create_jobs(self, request):
        mark("analysis")
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("words", each.id) for each in request.platforms], [])

    def process_job(self, request):
        mark("process")
        with open(request.product_path("out.idx"), "wb") as file:
            file.write(request.read_source())
        return ProcessJobResponse(Result.SUCCESS, [JobProduct("out.idx", 0)])
"""
MARK = """
touch OUTSIDE/$1 HOME/$1 PROJECT/$1.mark 2>/dev/null
true
"""
ROADS = {"import", "analysis", "process", "command", "check", "hook"}


def write(folder: Path, patch: pytest.MonkeyPatch, mode: str) -> Path:
    """Make a project with its own code of each kind in `ROADS`. Each kind tries to write a file outside the sandbox."""
    patch.setenv("HOME", str(folder / "home"))
    patch.setenv("APTUI_TRUST", "1")
    patch.delenv(sandbox.VARIABLE, raising=False)
    (folder / "home").mkdir()
    (folder / "outside").mkdir()
    texts = {"aptui.yaml": CONFIG, "builders/words.py": BUILDER, "mark": MARK, "assets/a.run": "a", "assets/b.words": "b"}
    places = {"MODE": mode, "OUTSIDE": str(folder / "outside"), "HOME": str(folder / "home"), "PROJECT": str(folder / "project")}
    for word, place in places.items():
        texts = {name: text.replace(word, place) for name, text in texts.items()}
    return own_project(folder, patch, texts)


def marks(folder: Path) -> set[str]:
    """Return the kinds of project code, for example "import" or "hook", that could write a file outside the sandbox."""
    found = [*(folder / "outside").iterdir(), *(folder / "home").iterdir()]
    return {path.name for path in found if path.name in ROADS} | {path.stem for path in (folder / "project").glob("*.mark")}


@pytest.mark.real
@needs_feature("shipping")
def test_project_code_of_every_kind_runs_if_the_sandbox_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, "off")

    main.main(["batch"])
    main.main(["check"])

    assert marks(tmp_path) == ROADS


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in a repository that requires the sandbox, after its first batch run."""
    folder = tmp_path_factory.mktemp("roads")
    with pytest.MonkeyPatch.context() as patch:
        project = write(folder, patch, "require")
        git = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b"]
        (project / ".gitignore").write_text("Cache\n")
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"]):
            subprocess.run([*git, *words], check=True)
        assert main.main(["batch"]) == 0
    return folder


@needs_bubblewrap
@pytest.mark.real
@pytest.mark.parametrize(
    "words",
    [
        "batch", "batch --full-scan", "builders", "doctor", "explain assets/b.words", "log b.words", "jobs", "status", "check",
        "cache ready HEAD --trust-code", "cache ready HEAD", "cache prefetch", "rerun b.words", "rerun a.run", "reprocess *",
        "verify", "verify --rebuild", "lint", "affected HEAD", "capsule a.run --out ../a.tgz", "capsule run ../a.tgz",
        "capsule b.words --out ../b.tgz", "capsule run ../b.tgz",
    ],
)  # fmt: skip
def test_verbs_run_no_code_outside_a_required_sandbox(processed: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("HOME", str(processed / "home"))
    monkeypatch.setenv("APTUI_TRUST", "1")
    monkeypatch.delenv(sandbox.VARIABLE, raising=False)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(processed / name.lower()))
    monkeypatch.chdir(processed / "project")
    builders_record(processed / "project/Cache").unlink(missing_ok=True)  # without the record of builders, aptui imports them again

    main.main(words.split())

    assert marks(processed) == set()


@needs_bubblewrap
@pytest.mark.real
def test_project_that_requires_a_sandbox_gets_its_products(processed: Path) -> None:
    assert {path.name for path in (processed / "project/Cache").rglob("*") if path.suffix in (".txt", ".idx")} >= {
        "a.txt",
        "out.idx",
    }


@pytest.mark.real
def test_project_code_does_not_run_if_the_required_sandbox_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, "require")
    _hide_bubblewrap(tmp_path, monkeypatch)

    for words in ("batch", "builders", "doctor", "explain assets/b.words", "check", "rerun b.words", "cache ready HEAD"):
        main.main(words.split())

    assert marks(tmp_path) == set()


@pytest.mark.real
def test_automatic_sandbox_that_cannot_start_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, monkeypatch, "auto")
    _hide_bubblewrap(tmp_path, monkeypatch)

    main.main(["batch"])

    output = capsys.readouterr()
    assert (output.out + output.err).count(f"builders and commands run without a sandbox: {sandbox.MISSING}") == 1
    main.main(["doctor"])
    assert sandbox.MISSING in capsys.readouterr().out


def _hide_bubblewrap(folder: Path, patch: pytest.MonkeyPatch) -> None:
    programs = folder / "bin"
    programs.mkdir()
    for name in ("sh", "cat", "touch", "git", "rm"):
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    patch.setenv("PATH", str(programs))


@pytest.mark.real
def test_project_below_a_linked_folder_is_visible_in_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "real", monkeypatch, "auto")
    monkeypatch.setattr(sandbox.shutil, "which", lambda _name: "/usr/bin/bwrap")

    found = sandbox.plan_sandbox(load.load(tmp_path / "link/project"))

    assert found is not None
    assert {str(tmp_path / "link/project"), str(tmp_path / "real/project")} <= set(found.reads)
    assert os.path.samefile(*(path for path in found.reads if path.endswith("/project")))


def test_required_sandbox_that_cannot_start_fails_before_a_cache_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, monkeypatch, "require")
    _hide_bubblewrap(tmp_path, monkeypatch)

    with pytest.raises(HostError, match="programs of the project cannot run in a sandbox"):
        sandbox.sandbox_of(load.load(tmp_path / "project"), stages=False)

    assert not (tmp_path / "project/Cache").exists()

"""`aptui capsule`: written, run elsewhere and compared; included and excluded files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
import verb_project
from verb_project import Run, runner

from aptui.cli import main

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("capsule")
    with pytest.MonkeyPatch.context() as patch:
        project = verb_project.write(folder, patch)
        patch.setenv("SECRET_OF_MINE", "hunter2")
        main.main(["batch"])
    return project


@pytest.fixture(autouse=True)
def secret_of_mine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "hunter2")


def names(file: Path) -> set[str]:
    with tarfile.open(file) as tar:
        return set(tar.getnames())


def test_capsule_of_a_command_builder_has_a_script_that_runs_without_aptui(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "b up.tgz"
    code, out, _ = run("capsule", "sub/b.up", "--out", str(file), "--json")

    facts = json.loads(out)
    assert (code, facts["job"]["job_key"], facts["expected"]["status"]) == (0, "upper", "completed")
    assert [one["path"] for one in facts["inputs"]] == ["sub/b.up"]
    assert names(file) == {
        f"capsule/{name}" for name in ("aptui.yaml", "builders/words.py", "capsule.json", "run.sh", "sources/sub/b.up")
    }
    with tarfile.open(file) as tar:
        tar.extractall(tmp_path / "it's here", filter="data")
        held = b"".join(tar.extractfile(entry).read() for entry in tar.getmembers() if entry.isfile())  # type: ignore[union-attr]
    assert b"hunter2" not in held
    there = tmp_path / "it's here/capsule"
    subprocess.run([there / "run.sh"], check=True, cwd="/", capture_output=True)
    assert (there / "out/b.txt").read_text() == "B"


def test_capsule_of_a_source_whose_name_is_not_utf_8_makes_the_recorded_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project, file, name = verb_project.write(tmp_path, monkeypatch), tmp_path / "c.tgz", os.fsdecode(b"caf\xe9.up")
    (project / "assets/sub" / name).write_text("c")
    main.main(["batch"])

    assert main.main(["capsule", f"sub/{name}", "--out", str(file)]) == 0
    assert main.main(["capsule", "run", str(file), "--trust-code"]) == 0

    assert "equal to the recorded result" in capsys.readouterr().out
    with tarfile.open(file) as tar:
        tar.extractall(tmp_path / "here", filter="data")
    subprocess.run([tmp_path / "here/capsule/run.sh"], check=True, capture_output=True)
    assert (tmp_path / "here/capsule/out" / os.fsdecode(b"caf\xe9.txt")).read_text() == "C"


def test_running_a_capsule_makes_the_products_of_the_recorded_run(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "b.tgz"
    run("capsule", "sub/b.up", "--out", str(file))

    code, out, _ = run("capsule", "run", str(file), "--json", "--trust-code")

    assert (code, json.loads(out)["same"], json.loads(out)["differences"]) == (0, True, [])


def test_bytes_of_a_capsule_do_not_depend_on_its_file_name(run: Run, tmp_path: Path) -> None:
    first, second = tmp_path / "a.tgz", tmp_path / "b.tgz"

    assert run("capsule", "sub/b.up", "--out", str(first))[0] == 0
    time.sleep(1.01)  # a time stamp in the second capsule would now differ from the first
    assert run("capsule", "sub/b.up", "--out", str(second))[0] == 0

    assert first.read_bytes() == second.read_bytes()


def test_capsule_of_a_failed_job_includes_dependencies_and_fails_again(run: Run, tmp_path: Path) -> None:
    broken, words = tmp_path / "bad.tgz", tmp_path / "x.tgz"
    run("capsule", "tables/bad.json@linux", "--out", str(broken))
    code, out, _ = run("capsule", "run", str(broken), "--trust-code")
    assert code == 0
    assert "result: failed: tables/bad.json:1:2" in out

    run("capsule", "x.words@server", "--out", str(words))
    assert {"capsule/sources/a.txt", "capsule/sources/x.words"} <= names(words)
    assert run("capsule", "run", str(words), "--trust-code")[0] == 0


def test_capsule_run_reports_products_that_differ_from_the_record(run: Run, tmp_path: Path) -> None:
    file, other = tmp_path / "b.tgz", tmp_path / "other.tgz"
    run("capsule", "sub/b.up", "--out", str(file))
    with tarfile.open(file) as tar, tarfile.open(other, "w:gz") as changed:
        for entry in tar.getmembers():
            data = tar.extractfile(entry).read()  # type: ignore[union-attr]
            data = b"other" if entry.name.endswith("b.up") else data
            entry.size = len(data)
            changed.addfile(entry, io.BytesIO(data))

    code, out, _ = run("capsule", "run", str(other), "--trust-code")

    assert code == 1
    assert "linux/sub/b.txt" in out
    assert "differs from the recorded result" in out


def test_missing_or_empty_capsule_is_refused(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.tgz"
    with tarfile.open(empty, "w:gz"):
        pass

    assert run("capsule", "run", str(empty))[0] in (2, 3)
    assert run("capsule", "run", str(tmp_path / "none.tgz"))[0] == 2
    assert run("capsule", "no/such.png")[0] == 3
    assert run("capsule", "run")[0] == 3
    assert run("capsule", "sub/b.up", "--out", str(tmp_path / "none/x.tgz"))[0] == 3


@pytest.fixture
def drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Enter a project with one source, whose builder has a draft quality."""
    project = tmp_path / "drafts"
    (project / "assets").mkdir(parents=True)
    (project / "assets/a.up").write_text("a")
    (project / "aptui.yaml").write_text("""
scan_folders: [{name: game, path: assets}]
builders:
  - name: upper
    patterns: ["*.up"]
    quality: [draft, final]
    command: "echo {quality} $APTUI_QUALITY > {products_dir}/{stem}.txt"
platforms: {linux: {}}
workers: 1
""")
    monkeypatch.chdir(project)
    return runner(capsys)


def made_by_script(file: Path, folder: Path) -> str:
    """Unpack a capsule file, run its `run.sh`, and return the content of the product."""
    with tarfile.open(file) as tar:
        tar.extractall(folder, filter="data")
    subprocess.run([folder / "capsule/run.sh"], check=True, cwd="/", capture_output=True)
    return (folder / "capsule/out/a.txt").read_text()


@pytest.mark.parametrize(("words", "quality"), [(("--draft",), "draft"), ((), "final")])
def test_running_a_capsule_uses_the_quality_of_the_recorded_run(
    drafts: Run, tmp_path: Path, words: tuple[str, ...], quality: str
) -> None:
    file = tmp_path / "a.tgz"
    assert drafts("batch", *words)[0] == 0

    made = json.loads(drafts("capsule", "a.up", "--out", str(file), "--json")[1])
    code, out, _ = drafts("capsule", "run", str(file), "--json", "--trust-code")

    assert (code, json.loads(out)["differences"]) == (0, [])
    assert made["job"]["quality"] == quality
    assert made_by_script(file, tmp_path / "there") == f"{quality} {quality}\n"

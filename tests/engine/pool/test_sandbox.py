"""The sandbox: its command, when it is off, and the permissions of a worker inside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from disk_project import Project
from msgspec.structs import replace
from tools import needs_bubblewrap

from aptui.cli import main
from aptui.config import load
from aptui.engine.pool import sandbox
from aptui.engine.pool.sandbox import Sandbox
from aptui.shared.errors import HostError

SETTINGS = """
scan_folders: [{name: game, path: assets}]
sandbox: MODE
builders:
  - {name: look, patterns: ["*.look"], command: "sh {source} > {products_dir}/{stem}.txt 2>&1; true"}
"""
PROBE = """
cat "$SECRET" && echo secret is read
ls -A ~ | grep -v '^project$' && echo home is seen
echo x > "$(dirname "$0")/written" && echo source is written
grep -v lo: /proc/net/dev | grep : && echo network is there
echo done
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    home = tmp_path / "home"
    (home / "project" / "assets").mkdir(parents=True)
    (home / ".key").write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    for name in ("CACHE", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "xdg"))
    return Project(home / "project", SETTINGS.replace("MODE", "require"))


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake bubblewrap that prints an error and starts nothing."""
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'bwrap: no namespaces here' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.path.expanduser('~')}")
    return program


def test_sandboxed_worker_can_read_the_project_and_write_only_to_staging(project: Project, stub: Path) -> None:
    found = sandbox.plan_sandbox(load.load(project.root))
    assert found is not None

    words = found.command(["worker"])

    binds = {(kind, path) for kind, path, again in zip(words, words[1:], words[2:], strict=False) if path == again}
    home = str(project.root.parent)
    assert words[0] == str(stub)
    assert words[-2:] == ["--", "worker"]
    assert {"--unshare-user", "--unshare-net", "--die-with-parent"} <= set(words)
    assert {path for kind, path in binds if kind == "--bind"} == {"/proc", f"{project.cache}/.aptui/staging"}
    assert {("--ro-bind-try", str(project.root)), ("--ro-bind-try", str(stub.parent)), ("--ro-bind", "/usr")} <= binds
    assert ("--ro-bind-try", home) not in binds, "the sandbox hides the user's home folder, although PATH contains this folder"
    assert words[words.index(home) - 1] == "--tmpfs"
    assert words.index(home) < words.index(str(project.root)), "the project is mounted after the mount that hides the home folder"


def test_secret_files_are_empty_in_the_sandbox(tmp_path: Path) -> None:
    key = tmp_path / "team.key"
    key.write_text("secret")

    words = Sandbox("bwrap", "/home/x", (), (), (str(key), str(tmp_path / "none"))).command([])

    assert words[words.index(str(key)) - 2 :][:3] == ["--ro-bind", "/dev/null", str(key)]
    assert str(tmp_path / "none") not in words


@pytest.mark.real
def test_missing_sandbox_is_an_error_only_if_the_project_requires_it(project: Project, stub: Path) -> None:
    config = load.load(project.root)

    assert sandbox.sandbox_of(replace(config, sandbox="off")) is None
    assert sandbox.sandbox_of(replace(config, sandbox="auto")) is None
    with pytest.raises(HostError, match="cannot run in a sandbox: bwrap: no namespaces here"):
        sandbox.sandbox_of(config)
    stub.unlink()
    with pytest.raises(HostError, match="is not installed on this machine"):
        sandbox.sandbox_of(config)


@pytest.mark.real
def test_sandbox_that_just_worked_is_not_probed_again(project: Project, stub: Path) -> None:
    runs = stub.with_name("runs")
    stub.write_text(f'#!/bin/sh\necho >> {runs}\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    config = load.load(project.root)

    described, workers = sandbox.sandbox_of(config, stages=False), sandbox.sandbox_of(config)

    assert described is not None
    assert workers == replace(described, writes=(f"{project.cache}/.aptui/staging",))
    assert runs.read_text() == "\n"


@pytest.mark.real
def test_sandbox_is_used_by_default_if_bubblewrap_works(project: Project, stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    project.config(SETTINGS.replace("sandbox: MODE\n", ""))
    config = load.load(project.root)
    assert sandbox.sandbox_of(config) is None, "tests have no sandbox by default"

    monkeypatch.delenv(sandbox.VARIABLE)
    assert sandbox.sandbox_of(config) is not None
    assert sandbox.sandbox_of(replace(config, sandbox="off")) is None
    monkeypatch.setenv(sandbox.VARIABLE, "off")
    assert sandbox.sandbox_of(replace(config, sandbox="require")) is not None, "the variable cannot turn off a required sandbox"


def test_target_of_a_linked_scan_folder_is_visible_in_the_sandbox(project: Project, stub: Path, tmp_path: Path) -> None:
    there = tmp_path / "disk" / "assets"
    there.mkdir(parents=True)
    project.path("assets").rmdir()
    project.path("assets").symlink_to(there)

    found = sandbox.plan_sandbox(load.load(project.root))

    assert found is not None
    assert str(there) in found.reads


@needs_bubblewrap
@pytest.mark.real
@pytest.mark.parametrize("mode", ["off", "require"])
def test_sandboxed_command_cannot_read_write_or_send(project: Project, mode: str) -> None:
    project.config(SETTINGS.replace("MODE", mode))
    project.engine_run({"assets/a.look": PROBE.replace("$SECRET", f"{project.root.parent}/.key")})

    (text,) = project.texts().values()
    assert "done" in text
    found = [claim for claim in ("secret is read", "home is seen", "source is written", "network is there") if claim in text]
    assert "secret is read" in found if mode == "off" else not found, text


@needs_bubblewrap
@pytest.mark.real
@pytest.mark.parametrize(
    ("command", "error"), [("kill -9 $PPID", "killed by SIGKILL"), ("sleep 60", "time"), ("exit 3", "status 3")]
)
def test_builder_has_the_same_outcome_with_and_without_a_sandbox(project: Project, command: str, error: str) -> None:
    rule = f'  - {{name: bad, patterns: ["*.bad"], time_limit: 1s, command: "{command} # {{source}}"}}\n'
    project.config(SETTINGS.replace("MODE", "require") + rule)
    project.engine_run({"assets/a.bad": "x"})

    assert error in project.errors()["a.bad:bad"]


@needs_bubblewrap
@pytest.mark.real
def test_error_of_a_failed_run_names_the_path_that_the_sandbox_hides(project: Project) -> None:
    project.write("assets/a.look", "exit 1")
    rule = '  - {name: bad, patterns: ["*.bad"], command: "exit 3 # {source}"}\n'
    project.config(SETTINGS.replace("MODE", "require") + rule)
    project.engine_run({"assets/a.bad": "x"})

    logs = [
        path.read_text()
        for path in (project.cache / ".aptui").rglob("*")
        if path.is_file() and b"sandbox_paths" in path.read_bytes()
    ]
    assert len(logs) == 1, "only the failed run mentions hidden paths"


@needs_bubblewrap
@pytest.mark.real
def test_job_that_runs_in_the_foreground_uses_the_sandbox(project: Project) -> None:
    project.engine_run({"assets/a.look": PROBE.replace("$SECRET", f"{project.root.parent}/.key")})

    assert main.main(["rerun", "a.look", "--project", str(project.root)]) == 0

    (made,) = (project.cache / ".aptui" / "temp").rglob("a.txt")
    assert "done" in made.read_text()
    assert "secret is read" not in made.read_text()


@needs_bubblewrap
@pytest.mark.real
def test_python_builders_run_in_the_sandbox(project: Project) -> None:
    project.config(SETTINGS.replace("MODE", "require") + '  - {name: tables, uses: json, patterns: ["*.json"]}\n')
    project.engine_run({"assets/a.json": '{"a": 1}'})

    assert set(project.statuses().values()) == {"completed"}

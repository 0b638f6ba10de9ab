"""Verbs that may run the code of an untrusted project: the table in GUIDE.md, checked for all verbs."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tools import FEATURES, needs_feature

from aptui.cli import main, trust_verb
from aptui.cli.verbs import all_verbs
from aptui.config import load, trust
from aptui.config.dirs import TRUST_VARIABLE
from aptui.link import places
from tests.homes import own_project

pytestmark = pytest.mark.real
Markers = Callable[[], set[str]]

RUN = {
    "batch": [["batch"]],
    "builder": [["builder", "run", "evil", "assets/c.e"]],
    "reprocess": [["reprocess", "*"]],
    "rerun": [["rerun", "b.a"]],
    "restore": [["restore", "b.a", "--run", "1"]],
    "start": [["start"]],
}
"""Verbs that run jobs: a user who types such a verb consents to run the project's code."""
READ_ONLY = {
    "affected": [["affected", "--since", "HEAD"]],
    "assetlist": [["assetlist", "a.txt"]],
    "builders": [["builders"], ["builders", "--json"]],
    "bundle": [["bundle", "a.txt", "--output", "one.zip"], ["bundle", "a.txt", "--output", "two.zip", "--unsettled"]],
    "cache": [["cache", action] for action in ("stats", "test", "prefetch", "verify", "gc", "init")] + [["cache", "ready", "HEAD"]],
    "capsule": [["capsule", "b.a"]],
    "changes": [["changes"]],
    "check": [["check"]],
    "client": [["client", "ping"]],
    "compare": [["compare", "one.list", "two.list"]],
    "completion": [["completion", "words", "aptui", "jobs", ""]],
    "config": [["config"], ["config", "--explain", "cache"]],
    "delete": [["delete", "a.txt"]],
    "deps": [["deps", "a.txt"]],
    "docs": [["docs"]],
    "doctor": [["doctor"]],
    "drain": [["drain"]],
    "explain": [["explain", "a.txt"], ["explain", "c.e"]],
    "help": [["help"]],
    "history": [["history"]],
    "hold": [["hold", "--", "true"]],
    "identities": [["identities"]],
    "init": [["init", "--dry-run"]],
    "interest": [["interest", "a.txt"]],
    "jobs": [["jobs"], ["jobs", "--filter", "builder:evil"]],
    "lint": [["lint"]],
    "log": [["log", "b.a"]],
    "logs": [["logs"]],
    "move": [["move", "a.txt", "d.txt"], ["move", "a.txt", "d.txt", "--confirm"]],
    "open": [["open", "none"]],
    "pause": [["pause"]],
    "ps": [["ps"]],
    "query": [["query", "deps(a.txt)"]],
    "reload": [["reload"]],
    "report": [["report"]],
    "rescan": [["rescan"]],
    "resume": [["resume"]],
    "run-next": [["run-next"]],
    "scan-missing": [["scan-missing"], ["scan-missing", "--clear"]],
    "schema": [["schema"]],
    "size": [["size"]],
    "status": [["status"], ["status", "--json"]],
    "stop": [["stop"]],
    "token": [["token", "list"]],
    "trace": [["trace"]],
    "trust": [["trust", "--list"]],
    "verify": [["verify"]],
    "why": [["why", "b.a"], ["why", "c.e"]],
}
"""Verbs that must not run code of an untrusted project: they only read, or send a request to an engine.

No engine runs in these tests."""
STAY = {
    "demo": "it writes a project of its own",
    "gateway": "it listens to clients and runs nothing of a project",
    "serve": "the engine itself: 'start' starts it",
    "web": "it starts the screen in a browser, which asks",
    "worker": "it does what a cluster sends",
}
"""Verbs that run until they are stopped, or that write their own project."""
YAML = """\
scan_folders: [{{name: game, path: assets}}]
builders:
  - {{name: data, copy: ["*.txt"]}}
  - name: convert
    patterns: ["*.a"]
    command: "echo command >> {markers}; cp {{source}} {{products_dir}}/{{stem}}.b"
    products: ["*.b"]
checks: {{look: {{files: ["*"], command: [sh, -c, "echo check >> {markers}"]}}}}
on: {{idle: {{exec: [sh, -c, "echo hook >> {markers}"]}}}}
sandbox: "off"
"""
BUILDER = """\
from aptui.sdk import CreateJobsResponse

with open({markers!r}, "a") as file:
    file.write("import\\n")


class Evil:
    name = "evil"
    patterns = ("*.e",)
    version = "1"

    def create_jobs(self, request):
        return CreateJobsResponse()

    def process_job(self, request):
        return None
"""


@pytest.fixture
def markers(tmp_path: Path) -> Markers:
    """Return a function that returns the marks that were added to a file since its last call.

    Each kind of code of the project adds its own mark when it runs: a command adds "command", for example.
    """
    file = tmp_path / "markers"

    def take() -> set[str]:
        ran = set(file.read_text().split()) if file.exists() else set()
        file.unlink(missing_ok=True)
        return ran

    return take


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, markers: Markers) -> Path:
    """Return a fresh clone of a project whose builder file, command, check and hook write to the markers file when they run."""
    monkeypatch.delenv(TRUST_VARIABLE)
    names = {"markers": str(tmp_path / "markers")}
    files = {"aptui.yaml": YAML.format(**names), "builders/evil.py": BUILDER.format(**names)}
    folder = own_project(tmp_path, monkeypatch, {**files, "assets/a.txt": "a", "assets/b.a": "b", "assets/c.e": "c"})
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        _git(folder, *words)
    return folder


@pytest.fixture
def subtle(hostile: Path, tmp_path: Path) -> Path:
    """Return a project without `builders/` whose other code writes to the markers file when it runs.

    That code is a tool's version command and the filter, hook and file-system monitor of the git repository.
    """
    settings = (hostile / "aptui.yaml").read_text()
    tool = f"{{name: sh, version: \"sh -c 'echo version | tee -a {tmp_path}/markers'\"}}"
    (hostile / "aptui.yaml").write_text(settings.replace('products: ["*.b"]', f'products: ["*.b"]\n    tools: [{tool}]'))
    (hostile / ".gitattributes").write_text("*.txt filter=a=b\n")
    _git(hostile, "rm", "-rqf", "builders")
    _git(hostile, "add", "-A")
    _git(hostile, "commit", "-qm", "second")
    for name in ("clean", "smudge", "process", "fsmonitor", "post-index-change"):
        (hostile / ".git" / "hooks" / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/markers\n")
        (hostile / ".git" / "hooks" / name).chmod(0o755)
    for key in ("core.fsmonitor", "filter.a=b.clean", "filter.a=b.smudge"):
        _git(hostile, "config", key, f".git/hooks/{key.rpartition('.')[2]}")
    (hostile / "assets/a.txt").write_text("changed")
    return hostile


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=Bea", "-c", "user.email=bea@example.com", *words], cwd=folder, check=True)


def ran_by(table: dict[str, list[list[str]]], markers: Markers) -> dict[str, set[str]]:
    """Return {command line: kinds of code that ran}, without command lines that ran no code."""
    markers()
    found = {}
    for words in [words for lines in table.values() for words in lines]:
        main.main(words)
        if ran := markers():
            found[" ".join(words)] = ran
    return found


def process(project: Path, markers: Markers) -> None:
    """Process the project while it is trusted, then change its builder file, so that it is untrusted."""
    main.main(["batch"])
    with (project / "builders/evil.py").open("a") as file:
        file.write("# changed\n")
    markers()


@needs_feature(*FEATURES)
def test_every_verb_is_tested_with_an_untrusted_project() -> None:
    assert sorted([*RUN, *READ_ONLY, *STAY]) == sorted(all_verbs())


@pytest.mark.usefixtures("hostile")
def test_read_only_verbs_execute_no_code_in_fresh_clone(markers: Markers) -> None:
    assert ran_by(READ_ONLY, markers) == {}
    assert trust.list_recorded() == []


@pytest.mark.usefixtures("subtle")
def test_read_only_verbs_execute_neither_version_commands_nor_programs_of_the_repository(markers: Markers) -> None:
    main.main(["batch"])
    main.main(["trust", "--revoke"])

    assert ran_by(READ_ONLY, markers) == {}


def test_guide_names_the_verbs_that_imply_trust() -> None:
    section = (Path(main.__file__).parents[1] / "GUIDE.md").read_text().partition("## Trust")[2]

    row = next(line for line in section.splitlines() if line.startswith("| `batch`"))
    assert [verb for verb in (*RUN, "serve") if f"`{verb}" not in row] == []


def test_read_only_verbs_execute_no_code_after_the_code_was_changed(hostile: Path, markers: Markers) -> None:
    process(hostile, markers)

    assert ran_by(READ_ONLY, markers) == {}


def test_read_only_verbs_execute_no_code_after_trust_was_revoked(hostile: Path, markers: Markers) -> None:
    process(hostile, markers)
    assert main.main(["trust"]) == 0
    assert main.main(["trust", "--revoke"]) == 0

    assert ran_by(READ_ONLY, markers) == {}


@pytest.mark.parametrize("is_alive", [True, False])
def test_revoke_reports_only_a_running_engine(hostile: Path, capsys: pytest.CaptureFixture[str], is_alive: bool) -> None:
    record = places.describe_this_process(hostile, hostile / "Cache", 0)
    places.announce(hostile / "Cache", record if is_alive else replace(record, pid_started=record.pid_started + 1))

    assert main.main(["trust", "--revoke"]) == 0

    assert ("is still running" in capsys.readouterr().out) is is_alive


@needs_feature("shipping")
def test_verb_check_executes_the_code_of_a_trusted_project(hostile: Path, markers: Markers) -> None:
    process(hostile, markers)
    main.main(["trust"])

    assert ran_by({"check": READ_ONLY["check"], "doctor": READ_ONLY["doctor"]}, markers) == {"check": {"check", "import"}}


@pytest.mark.parametrize("verb", sorted(RUN.keys() & set(all_verbs())))
def test_verbs_that_run_jobs_imply_trust(hostile: Path, markers: Markers, verb: str) -> None:
    if verb != "batch":
        process(hostile, markers)
        main.main(["trust", "--revoke"])
        (hostile / "assets/b.a").write_text("new")
    main.main(RUN[verb][0])
    main.main(["stop"])

    assert trust.is_trusted(load.load(hostile))
    assert "import" in markers()


def test_status_reports_untrusted_change_with_its_author(
    hostile: Path, markers: Markers, capsys: pytest.CaptureFixture[str]
) -> None:
    process(hostile, markers)
    main.main(["status"])
    assert (
        "trust      builders/evil.py changed since you trusted this project; the change is not committed to Git\n"
        in capsys.readouterr().out
    )

    _git(hostile, "commit", "-qam", "more")
    main.main(["status"])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=hostile, capture_output=True, text=True, check=True).stdout
    assert f"changed since you trusted this project, by Bea in {commit}" in capsys.readouterr().out


def test_listing_changed_code_runs_no_program_that_the_repository_names(hostile: Path, markers: Markers, tmp_path: Path) -> None:
    process(hostile, markers)
    script = tmp_path / "hostile.sh"
    script.write_text(f"#!/bin/sh\necho git >> {tmp_path}/markers\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "gpg.program", "filter.x.clean", "diff.external", "core.pager", "core.sshCommand"):
        _git(hostile, "config", key, str(script))
    _git(hostile, "config", "log.showSignature", "true")
    (hostile / ".gitattributes").write_text("*.py filter=x diff=x\n")
    config = load.load(hostile)
    markers()

    assert trust_verb.change_lines(config, trust.assess(config)) != []
    assert markers() == set()


def test_trust_lists_code_that_can_run(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["trust", str(hostile)]) == 0
    out = capsys.readouterr().out

    assert out.startswith("the project runs 1 command, 1 hook, 1 command check and 1 Python file\n")
    assert "  Python file builders/evil.py\n" in out
    main.main(["trust", "--list"])
    assert capsys.readouterr().out == f"{hostile}\n"


@pytest.mark.parametrize(
    ("setting", "lines"),
    [
        ("", []),
        ('sandbox: "off"', ["  sandbox off: builders and commands can access everything that you can access"]),
        ("sandbox_paths: [/srv/keys]", ["  sandbox path /srv/keys: builders and commands may read it"]),
    ],
)
def test_trust_lists_settings_that_open_the_sandbox(
    hostile: Path, capsys: pytest.CaptureFixture[str], setting: str, lines: list[str]
) -> None:
    file = hostile / "aptui.yaml"
    file.write_text(file.read_text().replace('sandbox: "off"', setting))

    assert main.main(["trust"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("  sandbox")] == lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "answer", "is_trusted"),
    [([], "y\n", True), ([], "n\n", False), ([], "\n", False), ([], "", False), (["--yes"], "", True)],
)
def test_trust_on_a_terminal_lists_code_and_asks_unless_yes_is_given(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], answer: str, is_trusted: bool
) -> None:
    out = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stdout", out)

    code = main.main(["trust", *words])

    assert (code, trust.is_trusted(load.load(hostile))) == ((0, True) if is_trusted else (3, False))
    assert ("trust this project?" in out.getvalue()) == (not words)
    assert "Python file builders/evil.py\n" in out.getvalue()


def test_trust_on_a_terminal_does_not_ask_about_a_trusted_project(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main.main(["trust"])
    out = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", out)

    assert main.main(["trust"]) == 0
    assert "trust this project?" not in out.getvalue()
    assert trust.is_trusted(load.load(hostile))


def test_trust_on_a_terminal_names_the_changed_files_before_it_asks(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main.main(["trust"])
    (hostile / "builders/evil.py").write_text("changed = 1\n")
    out = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    monkeypatch.setattr("sys.stdout", out)

    assert main.main(["trust"]) == 3
    assert "builders/evil.py changed since you trusted this project" in out.getvalue().partition("trust this project?")[0]


@needs_feature("shipping")
def test_check_verb_refuses_a_command_check_of_an_untrusted_project(
    hostile: Path, markers: Markers, capsys: pytest.CaptureFixture[str]
) -> None:
    process(hostile, markers)

    assert main.main(["check"]) == 3
    assert "check 'look' was not applied: the check runs a command of this project" in capsys.readouterr().err


def test_plain_screen_on_a_pipe_neither_asks_nor_starts_an_engine(
    hostile: Path, markers: Markers, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull) as nothing:
        before = os.dup(0)
        os.dup2(nothing.fileno(), 0)
        try:
            assert main.main(["--plain"]) == 0
        finally:
            os.dup2(before, 0)
            os.close(before)

    out = capsys.readouterr().out
    assert "you have not trusted this project yet" in out
    assert "none of its code runs; run 'aptui trust' to trust the project" in out
    assert markers() == set()
    assert not (hostile / "Cache").exists()

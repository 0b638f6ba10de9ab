"""Capsules as hostile input: no capsule writes or runs outside its folder or causes an internal error."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from verb_project import Run, runner

from aptui.config.dirs import user_file
from aptui.features.insight import received_capsule
from aptui.shared.errors import UserError

pytestmark = pytest.mark.real

Members = dict[str, bytes]
COMMAND = {"name": "up", "patterns": ["*.up"], "command": "tr a-z A-Z < {source} > {products_dir}/{stem}.txt"}


def make_facts(**changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "job": {"source": "a.up", "platform": "linux", "job_key": "up", "is_analysis": False, "quality": "final"},
        "builder": {"name": "up", "kind": "command", "version": 1},
        "made_by": {"aptui": "0"},
        "tools": [],
        "expected": {"status": "completed", "error": "", "products": []},
        "inputs": [],
        "lacks": [],
        **changes,
    }


def make_members(facts: Any = None, **settings: Any) -> Members:
    configuration = {
        "platforms": {"linux": {}},
        "scan_folders": [{"name": "game", "path": "sources"}],
        "builders": [COMMAND],
        **settings,
    }
    return {
        "capsule/capsule.json": json.dumps(facts or make_facts()).encode(),
        "capsule/aptui.yaml": json.dumps(configuration).encode(),
        "capsule/sources/a.up": b"a",
    }


def pack(file: Path, members: Members, *more: tarfile.TarInfo) -> Path:
    with tarfile.open(file, "w:gz") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        for entry in more:
            tar.addfile(entry)
    return file


def make_entry(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", headers: dict[str, str] | None = None
) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.pax_headers = kind, target, headers or {}
    return entry


def with_facts(**changes: Any) -> Members:
    return make_members(make_facts(**changes))


def with_raw_facts(data: bytes) -> Members:
    return {**make_members(), "capsule/capsule.json": data}


JOB = make_facts()["job"]
EXPECTED = make_facts()["expected"]
MALFORMED: dict[str, Members] = {
    "inputs are numbers": with_facts(inputs=[1]),
    "tools are numbers": with_facts(tools=[1]),
    "lacks are lists": with_facts(lacks=[[]]),
    "platform is a list": with_facts(job={**JOB, "platform": ["linux"]}),
    "source is a number": with_facts(job={**JOB, "source": 1}),
    "quality is unknown": with_facts(job={**JOB, "quality": "best"}),
    "products are numbers": with_facts(expected={**EXPECTED, "products": [5]}),
    "products lack a digest": with_facts(expected={**EXPECTED, "products": [{"name": "x"}]}),
    "error is null": with_facts(expected={**EXPECTED, "error": None}),
    "job is missing": with_raw_facts(b'{"format": 1}'),
    "format is a text": with_facts(format="1"),
    "format is newer": with_facts(format=99),
    "format is newer and its maker is a list": with_facts(format=99, made_by=[1]),
    "facts are a list": with_raw_facts(b"[]"),
    "facts are deep": with_raw_facts(b"[" * 100_000),
    "facts are not UTF-8": with_raw_facts(b'{"format": "\xff"}'),
    "facts have a lone surrogate": with_raw_facts(json.dumps(make_facts()).replace("a.up", "\\ud800").encode()),
    "facts have a huge number": with_raw_facts(json.dumps(make_facts()).replace('"format": 1', '"format": 1e999').encode()),
    "configuration is a list": {**make_members(), "capsule/aptui.yaml": b"[]"},
    "configuration is not YAML": {**make_members(), "capsule/aptui.yaml": b"{: ["},
    "configuration is not text": {**make_members(), "capsule/aptui.yaml": b"\xff\x00"},
    "configuration is missing": {name: data for name, data in make_members().items() if "yaml" not in name},
    "builders are a text": make_members(builders="x"),
    "builders are numbers": make_members(builders=[1]),
    "a builder has no form": make_members(builders=[{"name": "x"}]),
    "platforms are numbers": make_members(platforms=[1]),
    "the platform is unknown": with_facts(job={**JOB, "platform": "../../x"}),
    "scan folder is absolute": make_members(scan_folders=[{"name": "game", "path": "/etc"}]),
    "scan folder is above": make_members(scan_folders=[{"name": "game", "path": "sources/../.."}]),
    "another scan folder is outside": make_members(
        scan_folders=[{"name": "game", "path": "sources"}, {"name": "other", "path": "~"}]
    ),
    "a file is a folder of another": {**make_members(), "capsule/sources/a.up/b": b""},
    "a file of another kind": {**make_members(), "capsule/builders/x.so": b""},
    "a file at the top": {**make_members(), "capsule/.aptui.yaml": b""},
    "a file outside": {**make_members(), "other": b""},
    "an absolute name": {**make_members(), "/capsule/sources/x": b""},
    "a name with ..": {**make_members(), "capsule/sources/../../../x": b""},
    "a name with an empty part": {**make_members(), "capsule//sources/x": b""},
    "a long name": {**make_members(), f"capsule/sources/{'x' * 300}": b""},
    "a deep name": {**make_members(), f"capsule/sources/{'x/' * 1500}x": b""},
    "large code": {**make_members(), "capsule/builders/x.py": b"#" * (5 << 20)},
}
ENTRIES = {
    "a symbolic link": make_entry("capsule/sources/x", tarfile.SYMTYPE, "/etc/passwd"),
    "a symbolic link to a folder": make_entry("capsule/sources", tarfile.SYMTYPE, "/tmp"),
    "a hard link": make_entry("capsule/sources/x", tarfile.LNKTYPE, "capsule/sources/a.up"),
    "a pipe": make_entry("capsule/sources/x", tarfile.FIFOTYPE),
    "a device": make_entry("capsule/sources/x", tarfile.CHRTYPE),
    "a sparse file": make_entry("capsule/sources/x", tarfile.GNUTYPE_SPARSE),
    "a long header": make_entry("capsule/sources/x", headers={"comment": "9" * (1 << 20)}),
    "a name twice": make_entry("capsule/aptui.yaml"),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


def left_folders(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "tmp").iterdir() if path.name.startswith("aptui-capsule-"))


@pytest.mark.parametrize("case", [*MALFORMED, *ENTRIES])
def test_malformed_capsule_is_refused_before_anything_runs(run: Run, tmp_path: Path, case: str) -> None:
    more = [ENTRIES[case]] if case in ENTRIES else []
    file = pack(tmp_path / "x.tgz", MALFORMED.get(case) or make_members(), *more)

    code, out, error = run("capsule", "run", str(file), "--trust-code")

    assert (code, out, left_folders(tmp_path)) == (3, "", [])
    assert "internal error" not in error
    assert error.count("\n") <= 6


@pytest.mark.parametrize(
    "junk",
    [b"", b"nonsense", gzip.compress(b"x" * 5000), gzip.compress(b"\0" * 20_000), b"\x1f\x8b" + b"\xff" * 90],
    ids=["empty", "text", "letters", "zeros", "damaged"],
)
def test_file_that_is_not_a_capsule_is_refused(run: Run, tmp_path: Path, junk: bytes) -> None:
    file = tmp_path / "x.tgz"
    file.write_bytes(junk)

    assert run("capsule", "run", str(file), "--trust-code")[0] == 3
    assert left_folders(tmp_path) == []


def test_damaged_capsule_is_refused(run: Run, tmp_path: Path) -> None:
    whole = pack(tmp_path / "x.tgz", {**make_members(), "capsule/sources/noise": os.urandom(20_000)}).read_bytes()
    cut, changed, pipe = tmp_path / "cut.tgz", tmp_path / "changed.tgz", tmp_path / "pipe.tgz"
    cut.write_bytes(whole[: len(whole) // 2])
    changed.write_bytes(whole[:9000] + bytes(64) + whole[9064:])
    os.mkfifo(pipe)

    assert [run("capsule", "run", str(file), "--trust-code")[0] for file in (cut, changed, pipe)] == [3, 3, 3]


def test_decompression_bomb_is_refused_before_it_is_written(run: Run, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.tgz"
    with tarfile.open(bomb, "w:gz", compresslevel=1) as tar:
        for number in range(40):
            entry = tarfile.TarInfo(f"capsule/sources/{number}")
            entry.size = 1 << 20
            tar.addfile(entry, io.BytesIO(bytes(1 << 20)))

    code, _, error = run("capsule", "run", str(bomb), "--trust-code", "--limit", "32MiB")

    assert (code, "--limit" in error, left_folders(tmp_path)) == (3, True, [])
    assert run("capsule", "run", str(bomb), "--limit", "nonsense")[0] == 3


def test_capsule_with_too_many_members_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_capsule, "_MOST_MEMBERS", 10)
    file = pack(tmp_path / "x.tgz", {**make_members(), **{f"capsule/sources/{number}": b"" for number in range(10)}})

    code, _, error = run("capsule", "run", str(file), "--trust-code")

    assert (code, "more than 10 files and folders" in error) == (3, True)


def test_settings_of_a_capsule_that_lead_outside_its_folder_are_ignored(run: Run, tmp_path: Path) -> None:
    victim, hook = tmp_path / "victim", tmp_path / "hook"
    (victim / "linux").mkdir(parents=True)
    (victim / "linux/keep.txt").write_text("x")
    commands = {"failed": {"exec": ["touch", str(hook)]}, "idle": {"exec": ["touch", str(hook)]}}
    members = make_members(
        cache=str(victim), logs=str(tmp_path / "logs"), on=commands, sandbox="off", sandbox_paths=["/"],
        linked_folders=["/"], environment=["SECRET"], local_store={"enabled": True, "path": str(tmp_path / "store")},
        shared_cache={"mode": "server", "store": str(tmp_path / "shared"), "trust": "unsealed"},
        serve={"enabled": True}, checks={"c": {"match": ["*"], "command": ["touch", str(hook)]}},
    )  # fmt: skip

    code, out, error = run("capsule", "run", str(pack(tmp_path / "x.tgz", members)), "--trust-code")

    assert (code, "result: completed, 1 product" in out) == (1, True)
    ignored = error.split("ignored settings: ")[1].splitlines()[0].split(", ")
    assert {"cache", "logs", "on", "serve", "sandbox", "checks", "shared_cache"} <= set(ignored)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tmp", "victim", "x.tgz"]
    assert [path.name for path in victim.rglob("*")] == ["linux", "keep.txt"]
    assert not (tmp_path / "home/.cache/aptui").exists()


def test_sandbox_of_a_capsule_is_auto_unless_the_user_requires_a_sandbox(tmp_path: Path) -> None:
    file = pack(tmp_path / "x.tgz", make_members(sandbox="off"))
    user_file().parent.mkdir(parents=True, exist_ok=True)
    found = []
    for number, text in enumerate(("", "sandbox: require\ncache: elsewhere\n", "sandbox: off\n")):
        user_file().write_text(text)
        folder = tmp_path / str(number)
        folder.mkdir()
        config = received_capsule.receive(str(file), folder)[1].load("linux")
        found.append(config.sandbox)
        assert config.cache_dir == folder / "capsule/Cache"

    assert found == ["auto", "require", "auto"]


def test_capsule_code_runs_only_with_consent(run: Run, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    members = {**make_members(), "capsule/builders/x.py": f"open({str(proof)!r}, 'w')\n".encode()}
    file = str(pack(tmp_path / "x.tgz", members))

    code, out, error = run("capsule", "run", file)

    assert (code, out, proof.exists(), left_folders(tmp_path)) == (3, "", False, [])
    assert "--trust-code" in error
    assert "tr a-z A-Z" in error
    assert "builders/x.py" in error


def test_capsule_without_code_needs_no_consent(run: Run, tmp_path: Path) -> None:
    file = str(pack(tmp_path / "x.tgz", make_members(builders=[{"name": "up", "copy": ["*.up"]}])))

    code, out, _ = run("capsule", "run", file)

    assert (code, "result:" in out) == (1, True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "runs"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_user_at_a_terminal_is_asked_for_consent_to_run_capsule_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, runs: bool
) -> None:
    from argparse import Namespace

    from aptui.features.insight import capsule

    file = str(pack(tmp_path / "x.tgz", make_members()))
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", Terminal())
    asked: Callable[[], int] = lambda: capsule.capsule(Namespace(words=["run", file], trust_code=False, limit="1GiB", json=False))

    if runs:
        assert asked() == 1
    else:
        with pytest.raises(UserError, match="was not run"):
            asked()


def begin(file: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start a capsule whose job sleeps, and wait until the job runs."""
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    # The test starts a new interpreter, because a fork would not use this TMPDIR. The command resets SIGHUP, because the signal is
    # ignored when the tests run under nohup.
    start = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); from aptui.cli.main import main; sys.exit(main())"
    words = [sys.executable, "-c", start, "capsule", "run", str(file), "--trust-code"]
    process = subprocess.Popen(words, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not list((folder / "tmp").glob("aptui-capsule-*/capsule/Cache/assetdb.sqlite")) and time.monotonic() < until:
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_interrupted_capsule_run_leaves_no_folder(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    sleeping = [{**COMMAND, "command": "sleep 30; cp {source} {products_dir}"}]
    process = begin(pack(tmp_path / "x.tgz", make_members(builders=sleeping)), tmp_path)
    process.send_signal(number)

    assert process.wait(20) == 130
    assert left_folders(tmp_path) == []


def test_folder_of_a_killed_capsule_is_deleted_when_the_next_capsule_runs(run: Run, tmp_path: Path) -> None:
    sleeping = [{**COMMAND, "command": "sleep 5; cp {source} {products_dir}"}]
    file = pack(tmp_path / "x.tgz", make_members(builders=sleeping))
    process = begin(file, tmp_path)
    process.kill()
    process.wait(10)
    assert len(left_folders(tmp_path)) == 1

    until = time.monotonic() + 20
    while left_folders(tmp_path) and time.monotonic() < until:  # a worker of the killed run may still write into the folder
        assert run("capsule", "run", str(file))[0] == 3
    assert left_folders(tmp_path) == []

"""Folder settings on the disk: parsing a settings file, its report in a scan, and changes under a running engine."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from disk_project import Project

from aptui.config import folder as config_folder
from aptui.config import load
from aptui.config.yaml import nodes
from aptui.core.messages import FolderSeen
from aptui.core.model import FileFact
from aptui.core.orders import AnalyseOrder
from aptui.core.project import Project as CoreProject
from aptui.core.project import ScanFolder
from aptui.engine.loop.engine import Engine
from aptui.engine.scan.metadata import FolderSettings
from aptui.engine.scan.scanner import Scanner
from aptui.engine.scan.walk import Walk
from aptui.shared.errors import UserError

FILE = "one/.aptui.yaml"
SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders:
  - name: mark
    patterns: ["*.up"]
    command: "printf '%s' {params.mark} | cat {source} - > {products_dir}/{stem}.out"
    params: {mark: "."}
"""


def compiled(text: str) -> dict[str, object]:
    """Return the contents of a compiled file."""
    found: dict[str, object] = json.loads(config_folder.compile_folder(text.encode(), FILE))
    return found


def test_compiled_settings_file_has_the_line_and_column_of_every_key() -> None:
    text = compiled(
        "builders:\n  mark:\n    params: {a: [1, {b: null}]}\n    platforms: {server: skip, '*': {c: 1.5}}\n  data: {}\n"
    )

    assert text == {
        "file": FILE,
        "builders": {
            "mark": {"params": {"a": [1, {"b": None}]}, "platforms": {"server": "skip", "*": {"c": 1.5}}},
            "data": {"params": {}, "platforms": {}},
        },
        "places": {
            "mark": "2:3",
            "mark\nparams": "3:5",
            "mark\nparams\na": "3:14",
            "mark\nplatforms": "4:5",
            "mark\nplatforms\nserver": "4:17",
            "mark\nplatforms\n*": "4:31",
            "mark\nplatforms\n*\nc": "4:37",
            "data": "5:3",
        },
    }
    assert compiled("# nothing\n") == compiled("builders: {}\n") == {"file": FILE, "builders": {}, "places": {}}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("builders: [a]", "'builders' must be a mapping from a builder's name to its adjustments, not a list"),
        ("builder: {}", "unknown key 'builder'; did you mean 'builders'?"),
        ("builders: {a: {time_limit: 3s}}", "unknown key 'time_limit' in 'builders.a'; the known names are: params, platforms"),
        ("builders: {a: {platforms: {b: no}}}", "'builders.a.platforms.b' must be skip, or a mapping of parameters, not 'no'"),
        ("builders: {a: {}, a: {}}", "key 'a' is given twice, first at .aptui.yaml:1:12"),
        ("builders: {", "not valid YAML: "),
        ("#" * (32 << 10) + "\n#", "the file is larger than 32 KiB; check whether this is a configuration file"),
        ("builders: {a: {params: {b: [" + "1," * 1000 + "]}}}", "the file has more than 1,000 keys and values"),
    ],
)
def test_mistake_in_a_settings_file_is_reported_in_one_line_with_its_place(text: str, error: str) -> None:
    found = str(compiled(text)["error"])

    assert found.startswith(f"{FILE}:")
    assert error in found
    assert "\n" not in found


def test_unreadable_settings_file_is_reported_as_a_mistake(tmp_path: Path) -> None:
    assert json.loads(config_folder.read(str(tmp_path / "gone"), FILE)) == {
        "file": FILE,
        "error": f"{FILE}: cannot be read: no such file or directory",
    }


# ----------------------------------------------------------------------------------------------- settings files in a scan


class Nothing:
    """A fake archive without stored folders, so that a scan reports every folder."""

    def folder_digests(self) -> dict[str, tuple[tuple[int, bytes], ...]]:
        return {}

    def folder_parts(self, _folder: str) -> dict[int, tuple[bytes, tuple[FileFact, ...]]]:
        return {}


def seen(root: Path, *, unfinished: dict[str, FileFact | None] | None = None) -> dict[str, str | None]:
    """Return {folder: text of its settings in the report of a scan}."""
    folders = tuple(ScanFolder(number, name, str(root / name)) for number, name in enumerate(("game", "shared"), 1))
    project = CoreProject((), "linux", folders, ())
    scanner = Scanner(project, Walk(project), Nothing(), iter(range(99)).__next__, unfinished=unfinished or {})  # type: ignore[arg-type]
    return {event.folder: event.settings for step in scanner.steps() for event in step if isinstance(event, FolderSeen)}


def test_scan_reads_the_settings_of_the_winning_file(tmp_path: Path) -> None:
    for name, text in (("game/a.txt", ""), ("shared/.aptui.yaml", "builders: {shared: {}}"), ("game/One/.aptui.yaml", "")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    strange = os.fsdecode(b"shared/\xff")
    (tmp_path / strange).mkdir()
    (tmp_path / strange / ".aptui.yaml").write_text("builders: {strange: {}}")

    found = seen(tmp_path)

    assert json.loads(found[""] or "")["builders"].keys() == {"shared"}
    assert json.loads(found["one"] or "")["file"] == "One/.aptui.yaml"
    assert json.loads(found["\U0010ffff"] or "")["builders"].keys() == {"strange"}
    (tmp_path / "game/.aptui.yaml").write_text("builders: {game: {}}")
    assert json.loads(seen(tmp_path)[""] or "")["builders"].keys() == {"game"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("Art/hero.png", "art/hero.png"),
        ("art/VILLAIN.png", "Art/villain.png"),
        ("ART/both.png", "Art/both.png"),
        ("art/both.png", "art/both.png"),
        ("ART/Sub/deep.png", "art/sub/deep.png"),
        ("ART/other.png", ""),
        ("ART", "Art"),
        ("", "."),
        ("none/hero.png", ""),
    ],
)
def test_file_is_found_in_each_folder_whose_name_differs_only_in_case(tmp_path: Path, asked: str, found: str) -> None:
    for name in ("Art/villain.png", "Art/both.png", "art/hero.png", "art/both.png", "Art/sub/other.png", "art/sub/deep.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert config_folder.find_spelling(str(tmp_path), asked) == (str(tmp_path / found) if found else "")


def test_file_is_found_below_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "private/art").mkdir(parents=True)
    (tmp_path / "private/art/Hero.png").touch()
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if os.fspath(path) in (str(tmp_path), str(tmp_path / "private")):
            raise PermissionError(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)

    assert config_folder.find_spelling(str(tmp_path), "private/art/hero.png") == str(tmp_path / "private/art/Hero.png")


def test_settings_file_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "game").mkdir()
    (tmp_path / "game/.aptui.yaml").write_text("half a fi")

    assert seen(tmp_path, unfinished={".aptui.yaml": None}) == {"": None}


# -------------------------------------------------------------------------------------------- changes while an engine runs


@pytest.mark.real
def test_running_engine_applies_changed_folder_settings(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", SETTINGS)
    for name in ("a.up", "one/b.up", "one/deep/c.up"):
        project.write(f"assets/{name}", name)
    engine = Engine(load.load(project.root, workers=1))
    engine.open()
    engine.start_scan()
    engine.run_until_idle()
    ran = engine.pipeline.jobs.reports.counts["run"]

    project.write("assets/one/.aptui.yaml", "builders: {mark: {params: {mark: '?'}}}")
    engine.scans.check_folder("one")
    engine.run_until_idle()
    texts, stored = project.texts(), engine.archive.settings()
    project.delete("assets/one/.aptui.yaml")
    engine.scans.check_folder("one")
    engine.run_until_idle()
    engine.settle()
    gone = engine.archive.settings()
    engine.close()

    assert ({folder: json.loads(text)["file"] for folder, text in stored.items()}, gone) == ({"one": "one/.aptui.yaml"}, {})
    assert texts == {"a.out": "a.up.", "one/b.out": "one/b.up?", "one/deep/c.out": "one/deep/c.up?"}
    assert project.texts() == {"a.out": "a.up.", "one/b.out": "one/b.up.", "one/deep/c.out": "one/deep/c.up."}
    assert (ran, engine.pipeline.jobs.reports.counts["run"]) == (3, 7)
    project.check_rest()
    assert project.engine_run().runs == {}


def test_analysis_receives_adjusted_parameters(tmp_path: Path) -> None:
    from aptui.core.project import Builder, BuilderKind, Platform
    from aptui.sdk import CreateJobsRequest, CreateJobsResponse, Result
    from aptui.worker.builder_run import analyse

    received: list[CreateJobsRequest] = []

    class Listener:
        def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
            received.append(request)
            return CreateJobsResponse(Result.SUCCESS)

    builder = Builder(bytes(16), "b", BuilderKind.PYTHON, params='{"a":1,"b":1}', platform_params=(("server", '{"b":2}'),))
    order = '{"params":{"a":3},"platforms":{"linux":{"c":4},"server":{"b":5}}}'
    (tmp_path / "x").write_text("")

    analyse(
        AnalyseOrder(1, "b", str(tmp_path), "x", bytes(16), ("linux", "server"), 1.0, order),
        builder,
        {"linux": Platform("linux"), "server": Platform("server")},
        lambda _builder: Listener(),
    )

    assert received[0].params_for("linux") == {"a": 3, "b": 1, "c": 4}
    assert received[0].params_for("server") == {"a": 3, "b": 5}


@pytest.mark.real
def test_folder_settings_cannot_set_the_program_that_a_builder_runs(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "scan_folders: [{name: game, path: assets}]\nbuilders: [{name: scripts, uses: lua}]\n")
    canary = tmp_path / "canary"
    project.write("assets/pack/cc", f"#!/bin/sh\ntouch {canary}\n")
    os.chmod(tmp_path / "project/assets/pack/cc", 0o755)
    project.edit({"assets/pack/a.lua": "return 1\n", "assets/other/b.lua": "return 1\n"})
    for program in (str(tmp_path / "project/assets/pack/cc"), "../../../../../assets/pack/cc"):
        project.engine_run({"assets/pack/.aptui.yaml": f"builders:\n  scripts:\n    params: {{luac: {program}}}\n"})

        assert not canary.exists()
        ((source, error),) = project.errors().items()
        assert source.startswith("pack/a.lua:")
        assert "pack/.aptui.yaml:3:14: 'luac' of builder 'scripts' can be set only in the project's aptui.yaml" in error


# ----------------------------------------------------------------------------------------------------------- hostile files

_OPEN = b"builders: {mark: {params: {mark: '?', x: ["
HOSTILE = {
    "many values": _OPEN + b"1," * 450 + b"1]}}}\n" + b"#" * 30_000,
    "too many values": _OPEN + b"1," * 15_000 + b"1]}}}\n",
    "many words": b"builders: {mark: {params: {mark: '?', x: " + b"a " * 15_000 + b"}}}\n",
    "many lines": b"builders:\n mark:\n  params:\n   mark: '?'\n   x: |\n" + b"    a\n" * 5_000,
    "blank lines": b"\n" * 32_000,
    "many keys": b"builders: {mark: {params: {" + b",".join(b"k%d: 1" % number for number in range(2_500)) + b"}}}",
    "deep lists": b"[" * 32_000,
    "deep mappings": b"{a: " * 8_000,
    "large": b"a: [" + b"1," * (1 << 20),
    "large and deep": b"[" * 100_000,
}


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list with one number for each parsed YAML token: the number of open brackets that the parser checks for this token."""
    counted: list[int] = []
    inherited = nodes.Scanner.stale_possible_simple_keys

    def stale(scanner: Any) -> None:
        counted.append(len(scanner.possible_simple_keys))
        inherited(scanner)

    monkeypatch.setattr(nodes.Scanner, "stale_possible_simple_keys", stale)
    return counted


@pytest.mark.parametrize("name", HOSTILE)
def test_parser_limits_the_work_for_a_folder_settings_file(scanned: list[int], name: str) -> None:
    config_folder.compile_folder(HOSTILE[name], FILE)

    assert len(scanned) < 20 * config_folder.MOST_NODES
    assert sum(scanned) < 100 * config_folder.MOST_NODES


def test_parser_limits_the_work_for_a_deeply_nested_project_file(scanned: list[int]) -> None:
    with pytest.raises(UserError, match="the YAML is nested deeper than 50 levels"):
        nodes.read_yaml(b"a: " + b"[" * 100_000, "aptui.yaml")

    assert sum(scanned) < 10_000


@pytest.mark.parametrize("name", [*HOSTILE, "small"])
def test_settings_files_classified_as_cheap_need_few_parser_steps(scanned: list[int], name: str) -> None:
    data = HOSTILE.get(name, b"builders: {mark: {params: {mark: '?'}}}\n")
    if config_folder.is_cheap(data):
        config_folder.compile_folder(data, FILE)

    assert len(scanned) < 500
    assert config_folder.is_cheap(data) == (name in ("small", "large", "large and deep"))


@pytest.mark.real
def test_expensive_file_is_compiled_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, done = tmp_path / ".aptui.yaml", threading.Event()
    path.write_bytes(HOSTILE["many values"])
    settings = FolderSettings(done.set)

    first = settings.read(str(path), FILE)
    assert done.wait(30)
    text = settings.read(str(path), FILE)
    monkeypatch.setattr("aptui.engine.scan.metadata.compile_apart", lambda *_: pytest.fail("compiled again"))
    monkeypatch.setattr(config_folder, "compile_folder", lambda *_: pytest.fail("compiled again"))
    os.utime(path, (1, 1))

    assert first is None
    assert json.loads(text or "")["builders"]["mark"]["params"]["mark"] == "?"
    assert settings.read(str(path), FILE) == text


def test_compilation_may_end_while_the_engine_asks_whether_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = FolderSettings(mock.Mock())
    values = mock.PropertyMock(side_effect=[threading.current_thread(), None])
    monkeypatch.setattr(FolderSettings, "_thread", values, raising=False)

    assert settings.is_busy


def test_pipe_instead_of_a_folder_settings_file_is_reported_as_a_mistake(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".aptui.yaml")

    assert "it is not a regular file" in config_folder.read(str(tmp_path / ".aptui.yaml"), FILE)


@pytest.mark.real
def test_engine_compiles_expensive_files_in_another_process(tmp_path: Path, scanned: list[int]) -> None:
    """The engine's process parses no YAML during the scan, after an edit, or after a change of only the time stamp."""
    project = Project(tmp_path / "project", SETTINGS)
    for number, data in enumerate(HOSTILE.values()):
        project.edit({f"assets/f{number}/a.up": "a", f"assets/f{number}/.aptui.yaml": data})
    engine = Engine(load.load(project.root, workers=1))
    engine.open()
    scanned.clear()
    engine.start_scan()
    engine.run_until_idle()
    texts = project.texts()
    project.write("assets/f1/.aptui.yaml", HOSTILE["many lines"])
    project.write("assets/f0/.aptui.yaml", b"# x\n" + HOSTILE["many values"])
    for folder in ("f0", "f1"):
        engine.scans.check_folder(folder)
    engine.run_until_idle()
    later = project.texts()
    project.touch("assets/f0/.aptui.yaml", 1)
    engine.scans.check_folder("f0")
    engine.run_until_idle()
    engine.close()

    assert scanned == [], "the engine's process parsed YAML"
    assert texts == {"f0/a.out": "a?", "f2/a.out": "a?", "f3/a.out": "a?", "f4/a.out": "a."}
    assert later == {**texts, "f1/a.out": "a?"}

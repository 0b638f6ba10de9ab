"""`explain`: all settings of a path with the lines that set them, without engine or database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import verb_project

from aptui.cli import main
from aptui.features.gateway.peers import peer_settings
from aptui.shared.connections.peers import PeerAction, PeerOrder, PeerSettings

pytestmark = pytest.mark.real

Explain = Callable[..., dict[str, Any]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = verb_project.write(tmp_path, monkeypatch)
    (project / "Cache" / ".aptui").mkdir(parents=True)  # the list of builder classes is cached in this folder
    return project


@pytest.fixture
def explain(project: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    def explain(*words: str) -> dict[str, Any]:
        assert main.main(["explain", "--json", *words]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out.replace(f"{project}/", ""))
        return answer

    return explain


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the text that `aptui explain` prints."""
    assert main.main(["explain", *words]) == 0
    return capsys.readouterr().out


def platforms(answer: dict[str, Any], builder: str) -> dict[str, dict[str, Any]]:
    """Return {platform: its facts}."""
    found = next(item for item in answer["builders"] if item["builder"] == builder)
    return {item["platform"]: item for item in found["platforms"]}


def write(project: Path, rel: str, text: str) -> None:
    """Write a file."""
    (project / rel).parent.mkdir(parents=True, exist_ok=True)
    (project / rel).write_text(text)


def test_explain_names_the_line_that_sets_a_parameter(explain: Explain, project: Path) -> None:
    write(project, "assets/.aptui.yaml", "builders:\n  tables: {params: {minify: false, a: 1}}\n")
    write(project, "shared/Tables/.aptui.yaml", "builders:\n  tables: {params: {a: 2}, platforms: {server: {b: 3}}}\n")
    config = verb_project.CONFIG.replace("uses: json,", "uses: json, params: {b: 0, c: 0}, platforms: {SERVER: {d: 4}},")
    write(project, "aptui.yaml", config)
    write(project, "../xdg_config_home/aptui/aptui.yaml", "builders:\n  - {name: tables, params: {c: 5}}\n")

    found = platforms(explain("tables/x.json", "--set", "builders.tables.params.e=6"), "tables")

    assert found["linux"]["params"] == {
        "a": {"value": 2, "from": "shared/Tables/.aptui.yaml:2:21"},
        "b": {"value": 0, "from": "aptui.yaml:11:44"},
        "c": {"value": 5, "from": f"{project.parent}/xdg_config_home/aptui/aptui.yaml:2:32"},
        "e": {"value": 6, "from": "--set builders.tables.params.e"},
        "minify": {"value": False, "from": "assets/.aptui.yaml:2:21"},
    }
    assert found["server"]["params"]["b"] == {"value": 3, "from": "shared/Tables/.aptui.yaml:2:49"}
    assert found["server"]["params"]["d"] == {"value": 4, "from": "aptui.yaml:11:78"}


def test_explain_names_the_reason_and_the_line_of_a_skipped_platform(explain: Explain, project: Path) -> None:
    config = verb_project.CONFIG.replace("path: shared,", "path: shared, exclude: [server],").replace(
        "{server: skip}", "{'*': skip}"
    )
    write(project, "aptui.yaml", config)
    write(project, "assets/.aptui.yaml", "builders: {data: {platforms: {server: skip}}}")

    skipped = platforms(explain("a.txt"), "data")["server"]
    excluded = platforms(explain("c.txt"), "data")["server"]
    off = platforms(explain("sub/b.up"), "upper")["linux"]

    assert (skipped["said"], skipped["from"]) == ("skipped", "assets/.aptui.yaml:1:31")
    assert (excluded["said"], excluded["from"]) == ("not enabled for scan folder 'shared'", "aptui.yaml:7:43")
    assert (off["said"], off["from"]) == ("skipped", "aptui.yaml:17:22")


def test_explain_names_winning_and_overridden_scan_folders(explain: Explain) -> None:
    answer = explain("A.TXT")

    assert answer["is"] == "source"
    assert answer["scan_folder"] == {"name": "game", "file": "assets/a.txt"}
    assert answer["overridden"] == [{"name": "shared", "file": "shared/a.txt"}]


def test_explain_accepts_the_path_of_a_missing_file(explain: Explain) -> None:
    answer = explain("models/new.fbx")

    assert (answer["is"], answer["scan_folder"], answer["builders"]) == ("missing", None, [])
    assert [(item["path"], item["exists"]) for item in answer["companions"]] == [("models/new.fbx.assetinfo", False)]
    assert "/config/defaults.yaml:" in answer["companions"][0]["from"]


def test_explain_names_the_origin_of_limits_and_patterns(explain: Explain, project: Path) -> None:
    write(project, "aptui.yaml", verb_project.CONFIG.replace("version: 1", "version: 1\n    time_limit: 5s"))
    write(project, "builders/echo.py", verb_project.BUILDER.replace("words", "echo").replace("Words", "Echo"))

    upper, words, echo = (explain(path)["builders"][0] for path in ("sub/b.up", "x.words", "x.echo"))

    assert (upper["pattern"], upper["from"], upper["kind"]) == ("*.up", "aptui.yaml:13:16", "command")
    assert upper["limits"]["time_s"] == {"value": 5.0, "from": "aptui.yaml:15:17"}
    assert "/config/defaults.yaml:" in upper["limits"]["memory_bytes"]["from"]
    assert (words["limits"].keys(), words["from"]) == ({"time_s", "memory_bytes", "analysis_s"}, "aptui.yaml:19:43")
    assert echo["from"] == "builder class 'Echo' in 'builders/echo.py'"
    assert echo["limits"] == words["limits"]


def test_explain_names_the_ignore_rule(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ignored       by the rule '*.tmp' (aptui.yaml:8:10), so the settings below have no effect" in output_of(
        capsys, "notes.tmp"
    )
    write(project, "assets/.aptui.yaml", "builders: {data: {platforms: {server: skip}}}")
    write(project, "aptui.yaml", verb_project.CONFIG.replace('"raw/"]', '"raw/", "/.aptui.yaml"]'))
    assert "settings" not in output_of(capsys, "a.txt")


def test_explain_names_the_builder_that_excludes_a_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, "aptui.yaml", verb_project.CONFIG.replace("uses: json,", "uses: json, exclude: ['*/old.json'],"))
    write(project, "assets/tables/old.json", "{}")

    assert "none: builder 'tables' excludes it with the pattern '*/old.json'" in output_of(capsys, "tables/old.json")


def test_explain_of_folder_shows_its_settings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no settings apply here" in output_of(capsys, "sub")
    write(project, "assets/.aptui.yaml", "builders: {upper: {params: {mark: [é]}}, data: {platforms: {server: skip}}}")

    lines = [" ".join(line.split()) for line in output_of(capsys, "sub").splitlines()]

    assert lines == [
        "sub",
        "a folder; these settings apply to the files in it",
        "scan folder game (assets/sub)",
        "settings assets/.aptui.yaml",
        "builder data, copies",
        "linux no parameters",
        "server skipped (assets/.aptui.yaml:1:61)",
        "builder upper, runs a command",
        'linux mark = ["é"] (assets/.aptui.yaml:1:29)',
    ]
    assert output_of(capsys, ".aptui.yaml").splitlines()[1].startswith("  a settings file is not a source")
    assert output_of(capsys, "assets").splitlines()[0] == "."


def test_explain_reports_the_line_of_a_mistake_in_a_settings_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, "assets/.aptui.yaml", "builders:\n  daat: {}\n")
    write(project, "assets/sub/.aptui.yaml", "builders: [")

    text = output_of(capsys, "sub/b.up")

    assert "assets/.aptui.yaml:2:3: 'daat' is not a builder; did you mean 'data'?" in text
    assert "assets/sub/.aptui.yaml:" in text
    assert "until this is corrected, all sources in this folder fail" in text


def test_explain_refuses_a_path_outside_the_scan_folders(explain: Explain, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["explain", "/etc/passwd"]) == 3
    assert "is not in a scan folder" in capsys.readouterr().err
    assert explain("assets/sub/b.up")["path"] == "sub/b.up"


def test_rerun_verb_applies_folder_settings_and_why_verb_mentions_aptui_explain(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "aptui.yaml", verb_project.CONFIG.replace("tr a-z A-Z < {source}", "echo {params.mark}"))
    write(project, "assets/.aptui.yaml", "builders: {upper: {params: {mark: seen}}}")
    main.main(["batch"])
    capsys.readouterr()

    assert main.main(["rerun", "sub/b.up"]) == 0
    folder = capsys.readouterr().out.splitlines()[-1].split()[-1]
    assert [path.read_text() for path in Path(folder).rglob("b.txt")] == ["seen\n"]
    assert main.main(["why", ".aptui.yaml"]) == 0
    assert "'aptui explain' shows what these settings change" in capsys.readouterr().out


def test_list_that_was_changed_on_the_screen_is_explained_as_an_override(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / "aptui.yaml"
    file.write_text(file.read_text() + "serve: {rejected: [1.2.3.4]}\n")
    order = PeerOrder(PeerAction.REJECT, entry="5.6.7.8")
    peer_settings.change_settings(project / "Cache" / peer_settings.PLACE, PeerSettings(rejected=("1.2.3.4",)), order)

    assert main.main(["config", "--explain", "serve.rejected"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'serve.rejected is ["1.2.3.4", "5.6.7.8"]'
    assert "connections.json (changed on the Connections screen)" in lines[1]
    assert "aptui.yaml:" in lines[2]
    main.main(["doctor"])
    assert "serve.rejected differ from the configuration" in capsys.readouterr().out

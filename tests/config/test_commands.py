"""Mistakes in commands that are reported when the configuration is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from aptui.config.builders import missing_programs, program_of, unknown_placeholder
from aptui.config.load import load
from aptui.shared.errors import UserError

PROJECT = "scan_folders: [{name: game, path: ., order: 0}]\n"


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("cp {source} {products_dir}/{stem}.txt", ""),
        ("cp {src} {products_dir}", "{src}"),
        ('echo "{sorce}"', "{sorce}"),
        ("awk '{print}' {source}", ""),
        ("echo it\\'s {here}", "{here}"),
        ("x ${HOME} {params.size} {} {a,b} {1..3}", ""),
    ],
)
def test_unknown_placeholder_is_found_outside_single_quotes(line: str, unknown: str) -> None:
    assert unknown_placeholder(line) == unknown


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("tr a-z A-Z < {source}", "tr"),
        ("LANG=C A=b sort {source}", "sort"),
        ("convert", "convert"),
        ("cd /tmp && tr a b", ""),
        ("./tool {source}", ""),
        ("$TOOL {source}", ""),
        ("{params.tool} x", ""),
        ("(tr a b)", ""),
        ("tr;x", "tr"),
    ],
)
def test_program_of_a_command_line_is_its_first_plain_word(line: str, program: str) -> None:
    assert program_of(line) == program


def test_an_unknown_placeholder_is_a_mistake_with_its_place_and_the_list(tmp_path: Path) -> None:
    (tmp_path / "aptui.yaml").write_text(
        PROJECT + "builders:\n  - {name: u, patterns: ['*.x'], version: 1, command: 'cp {src} y'}\n"
    )

    with pytest.raises(UserError, match=r"aptui.yaml:3:\d+: '\{src\}' is not a placeholder; there are source, products_dir"):
        load(tmp_path)


def test_missing_program_is_reported_with_its_builder_at_every_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aptui.yaml").write_text(
        PROJECT + "builders:\n  - {name: u, patterns: ['*.x'], version: 1, command: 'sqush {source}'}\n"
    )

    (said,) = missing_programs(load(tmp_path))
    assert said.startswith(f"{tmp_path}/aptui.yaml:3:")
    assert "the program 'sqush' of builder 'u' is not in the PATH" in said
    (tmp_path / "sqush").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(missing_programs(load(tmp_path))) == []


def test_invalid_addresses_are_reported_with_their_places(tmp_path: Path) -> None:
    lists = "serve:\n  allowed: [10.0.0.1, bad..host]\n  connections: [{id: x, address: '?', port: 4}]\n"
    (tmp_path / "aptui.yaml").write_text(f"{PROJECT}builders: []\n{lists}")

    with pytest.raises(UserError) as refused:
        load(tmp_path)

    first, second = str(refused.value).splitlines()
    assert ":4:23: 'bad..host' is neither a host name nor an address" in first
    assert ":5:" in second

"""The first aptui.yaml, the shipped reference files, and the published schema."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aptui.config import dirs, proposal
from aptui.config.dirs import data_dir
from aptui.config.load import load
from aptui.config.yaml.config_schema import SCHEMA, check
from aptui.config.yaml.nodes import read_yaml
from aptui.core.paths import to_text
from aptui.core.patterns import PatternSet
from aptui.core.project import BuilderKind
from aptui.shared.errors import InternalError, UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "game").mkdir()
    return tmp_path / "game"


def init(folder: Path, copy_patterns: Sequence[str] = ()) -> Path:
    return proposal.write(proposal.propose(folder, copy_patterns))[0]


def test_init_finds_builders_for_existing_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.config.proposal.find_spec", lambda _module: True)  # report all packages as installed
    (folder / "assets" / "deep").mkdir(parents=True)
    for name in ("a.PNG", "b.jpg", "c.wav", "d.json", "deep/e.lua", "f", ".hidden"):
        (folder / "assets" / name).touch()

    file = init(folder)

    loaded = load(folder)
    assert file == folder / "aptui.yaml"
    assert loaded.cache_dir == folder / "Cache"
    assert [(rule.name, rule.origin) for rule in loaded.project.builders] == [
        ("textures", "entry:texture"),
        ("sounds", "entry:audio"),
        ("scripts", "entry:lua"),
        ("data", "entry:json"),
    ]
    assert [[pattern.text for pattern in rule.patterns] for rule in loaded.project.builders] == [
        ["*.png", "*.jpg"],
        ["*.wav"],
        ["*.lua"],
        ["*.json"],
    ]
    assert [scan.path for scan in loaded.project.scan_folders] == [str(folder / "assets")]


def test_init_without_assets_folder_uses_the_folder_itself(folder: Path) -> None:
    init(folder)

    loaded = load(folder)
    assert [scan.path for scan in loaded.project.scan_folders] == [str(folder)]
    assert [rule.kind for rule in loaded.project.builders] == [BuilderKind.COPY]


def test_init_takes_copy_patterns_that_are_not_utf_8(folder: Path) -> None:
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("x")

    found = proposal.propose(folder, [os.fsdecode(b"caf\xe9.*")])
    proposal.write(found)

    assert [rule.count for rule in found.rules] == [1]
    (builder,) = load(folder).project.builders
    assert PatternSet([builder.patterns]).builders_for(to_text(b"caf\xe9.txt")) == (0,)


def test_init_with_copy_patterns_writes_only_a_copy_rule(folder: Path) -> None:
    (folder / "a.png").touch()

    init(folder, copy_patterns=["*.txt", 'odd "ä".x', "*.json"])

    (rule,) = load(folder).project.builders
    assert (rule.kind, [pattern.text for pattern in rule.patterns]) == (BuilderKind.COPY, ["*.txt", 'odd "ä".x', "*.json"])


def test_init_refuses_a_pattern_that_could_never_match(folder: Path) -> None:
    with pytest.raises(UserError, match="--copy: pattern '/x' must be relative"):
        init(folder, copy_patterns=["/x"])

    assert list(folder.iterdir()) == []


def test_init_never_overwrites_an_existing_file(folder: Path) -> None:
    (folder / "aptui.yaml").write_text("mine", encoding="utf-8")

    with pytest.raises(UserError, match="already exists"):
        init(folder)

    assert (folder / "aptui.yaml").read_text(encoding="utf-8") == "mine"


def test_init_writes_the_place_of_the_schema_for_editors(folder: Path) -> None:
    text = init(folder).read_text(encoding="utf-8")

    assert "# yaml-language-server: $schema=" in text
    assert "aptui schema" in text


def test_shipped_files_are_found_in_a_checkout_and_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = data_dir()
    (tmp_path / "aptui" / "_data" / "config").mkdir(parents=True)
    (tmp_path / "aptui" / "_data" / "config" / "defaults.yaml").touch()
    monkeypatch.setattr(dirs, "__file__", str(tmp_path / "aptui" / "config" / "dirs.py"))

    assert (checkout / "config" / "builders.yaml").is_file()
    assert data_dir() == tmp_path / "aptui" / "_data"


def test_broken_installation_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirs, "__file__", str(tmp_path / "aptui" / "config" / "dirs.py"))

    with pytest.raises(InternalError, match="install aptui again"):
        data_dir()


def test_published_schema_equals_the_schema_in_use() -> None:
    published = (data_dir() / "config" / "aptui.schema.json").read_text(encoding="utf-8")

    assert published == json.dumps(SCHEMA, indent=2, ensure_ascii=False) + "\n"


def keys_of(part: Any) -> set[str]:
    if isinstance(part, list):
        return {key for item in part for key in keys_of(item)}
    if not isinstance(part, dict):
        return set()
    properties = part.get("properties", {})
    return set(properties) | {key for value in [*properties.values(), *part.values()] for key in keys_of(value)}


def shipped_text() -> str:
    return "".join((data_dir() / "config" / name).read_text(encoding="utf-8") for name in ("defaults.yaml", "builders.yaml"))


@pytest.mark.parametrize("key", sorted(keys_of(SCHEMA)))
def test_every_key_is_documented_in_the_shipped_files(key: str) -> None:
    explained = rf"^# +(?:\d\. )?(?:\w+, )*{key}(?:, \w+)*:|{{{key}: …}}"

    assert re.search(explained, shipped_text(), re.MULTILINE), f"no comment explains '{key}'"


def test_every_example_in_the_shipped_files_is_valid() -> None:
    examples = re.findall(r"(?:^#:.*\n)+", shipped_text(), re.MULTILINE)

    assert len(examples) >= 8
    for example in examples:
        text = re.sub(r"^#: ?", "", example, flags=re.MULTILINE)
        assert [str(mistake) for mistake in check(read_yaml(text.encode(), text))] == []


def test_builder_examples_are_valid_in_one_configuration(folder: Path) -> None:
    blocks = re.findall(r"(?:^#:.*\n)+", (data_dir() / "config" / "builders.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    entries = [re.sub(r"^#: ?", "", block, flags=re.MULTILINE).removeprefix("builders:\n") for block in blocks]
    platforms = "platforms: {linux: {tags: [tools]}, server: {}}\n"
    scan = "scan_folders: [{name: game, path: .}]\nresources: {gpu: 1}\n"
    (folder / "aptui.yaml").write_text(f"{platforms}{scan}builders:\n{''.join(entries)}", encoding="utf-8")

    assert [rule.name for rule in load(folder).project.builders] == ["data", "textures", "sprites", "upper", "thumbs", "models"]

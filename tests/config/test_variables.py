"""Environment variables that the configuration names: their digests, and their effect on the configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aptui.config.configuration import Config, ConfigErrors
from aptui.config.load import load
from aptui.config.merge import differing, variables_of

SETTINGS = """
scan_folders: [{name: game, path: assets}]
environment: [SHARED_ONE]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: one, patterns: ["*.a"], command: "cp {source} {products_dir}", environment: [OWN]}
  - {name: two, patterns: ["*.b"], command: "cp {source} {products_dir}"}
"""
Loaded = Callable[[str], Config]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    (tmp_path / "assets").mkdir()

    def loaded(text: str) -> Config:
        (tmp_path / "aptui.yaml").write_text(text)
        return load(tmp_path)

    return loaded


def test_builder_gets_shared_and_own_variables_and_copy_rule_gets_no_variables(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARED_ONE", "x")
    monkeypatch.delenv("OWN", raising=False)

    found = {
        builder.name: [(name, bool(digest)) for name, digest in builder.variables] for builder in loaded(SETTINGS).project.builders
    }

    assert found == {"data": [], "one": [("OWN", False), ("SHARED_ONE", True)], "two": [("SHARED_ONE", True)]}


@pytest.mark.parametrize(("name", "is_other"), [("OWN", True), ("SHARED_ONE", True), ("NOBODYS", False)])
def test_changed_variable_changes_the_configuration_without_a_changed_file(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, name: str, is_other: bool
) -> None:
    monkeypatch.delenv(name, raising=False)
    before = loaded(SETTINGS)
    monkeypatch.setenv(name, "1")
    one = loaded(SETTINGS)
    monkeypatch.setenv(name, "2")
    two = loaded(SETTINGS)
    monkeypatch.setenv(name, "1")

    signatures = [config.project.signature for config in (before, one, two)]
    assert len(set(signatures)) == (3 if is_other else 1)
    assert loaded(SETTINGS).project == one.project
    assert differing(two, variables_of(one)) == ([name] if is_other else [])
    assert "1" not in variables_of(one).values(), "the value itself is kept nowhere"


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("environment: [A-B]", "'environment.1' must be the name of an environment variable"),
        ("environment: [TMPDIR]", "'environment.1' must be the name of an environment variable"),
        ("environment: [APTUI_SOURCE]", "'environment.1' must be the name of an environment variable"),
        (
            'builders: [{name: a, copy: ["*.a"], environment: [X]}]',
            "'environment' belongs to a builder with 'uses:', 'command:' or 'steps:'",
        ),
    ],
)
def test_a_wrong_name_is_refused_with_its_place(loaded: Loaded, line: str, mistake: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        loaded(f"scan_folders: [{{name: game, path: assets}}]\n{line}\n")

    assert mistake in str(caught.value)
    assert "aptui.yaml:2:" in str(caught.value)

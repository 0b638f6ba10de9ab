"""The list of panes: panes of the kernel and of features, ordered by their numbers."""

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import needs_feature

from aptui import feature
from aptui.feature import Feature
from aptui.tui.app import AptuiApp
from aptui.tui.pane import PANES, PaneSpec, add_panes, list_panes
from aptui.tui.preferences.state import UiMemory
from tui.fake_panes import FakeSession
from tui.shell_harness import opened, text, until

SPARKLES = Feature("sparkle", "shows sparkles", panes={"sparkles": (8, "Sparkles", "Spark", "tui.fake_panes:JobsProbe")})


@needs_feature("gateway", "sharing")
def test_built_in_panes_and_panes_of_features_are_listed_by_number() -> None:
    assert [spec.title for spec in list_panes()] == ["Jobs", "Assets", "Logs", "Connections", "Builders", "Cache", "Tools"]


def test_list_of_panes_without_features_has_only_built_in_panes() -> None:
    assert add_panes(PANES, []) == PANES


def test_pane_whose_id_or_number_is_in_use_is_not_added() -> None:
    clashing = Feature("clash", "clashes", panes={"jobs": (9, "Again", "Again", ""), "other": (1, "Other", "Other", "")})

    assert add_panes(PANES, [clashing]) == PANES


@pytest.mark.real
def test_list_of_panes_loads_no_code_of_a_feature() -> None:
    code = "import sys; from aptui.tui.pane import list_panes; list_panes(); print(*sys.modules, sep='\\n')"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not [name for name in loaded if name.startswith("aptui.features.") and name.count(".") > 2]


@pytest.mark.parametrize("spec", list_panes(), ids=lambda spec: spec.id)
def test_pane_lists_every_command_that_its_code_defines(spec: PaneSpec) -> None:
    pane = spec.load()
    code = "".join(file.read_text(encoding="utf-8") for file in Path(inspect.getfile(pane)).parent.glob("*.py"))

    assert set(re.findall(r'\bCommand\(\s*"([\w-]+)"', code)) <= set(pane.command_names)


@needs_feature("shipping")
def test_assets_screen_lists_the_names_of_commands_that_features_add() -> None:
    pane = next(spec for spec in list_panes() if spec.id == "assets").load()
    extensions = feature.load_all("assets")
    code = "".join(Path(inspect.getfile(each)).read_text(encoding="utf-8") for each in extensions)

    added = set(re.findall(r'\bCommand\(\s*"([\w-]+)"', code))
    assert "missing" in added
    assert added <= set(pane.list_command_names())


def test_pane_of_another_python_package_has_a_tab_and_a_key(tmp_path, monkeypatch):
    monkeypatch.setattr(feature, "list_foreign", lambda: (SPARKLES,))
    monkeypatch.setattr("aptui.tui.app._FOREIGN_PANES_AFTER_S", 0.01)
    monkeypatch.setattr("aptui.tui.pane.PANES", [PaneSpec("jobs", 1, "Jobs", "Jobs", "tui.fake_panes:JobsProbe")])
    app = AptuiApp(FakeSession(tmp_path), memory=UiMemory(tmp_path / "a.json"), person=UiMemory(tmp_path / "b.json"))

    async def visit() -> None:
        async with opened(app, (140, 40)) as pilot:
            await until(pilot, lambda: "8 Sparkles" in text(app))
            await pilot.press("8")
            await until(pilot, lambda: app.pane is not None and app.pane.name_of_pane == "sparkles")

    asyncio.run(visit())

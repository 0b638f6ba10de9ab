"""Features: the table lists every folder, features of other distributions work like aptui's own, and module names are unique."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

import aptui
from aptui import feature
from aptui.cli import main
from aptui.config.dirs import data_dir
from aptui.feature import Feature
from aptui.tui.screens.assets.asset_actions import AssetActions, AssetParts

ROOT = Path(aptui.__file__).parent
PROJECT = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FOREIGN = {
    "sparkle-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sparkle\nVersion: 1.0\n",
    "sparkle-1.0.dist-info/entry_points.txt": "[aptui.features]\nsparkle = sparkle:FEATURE\n",
    "sparkle/__init__.py": """
from aptui.feature import Feature

FEATURE = Feature(
    name="sparkle",
    summary="counts sparkles",
    verbs={"sparkle": ("sparkle.verbs", "count sparkles")},
    requests={"count_sparkles": "sparkle.requests:CountSparkles"},
    answers="sparkle.answers:Sparkler",
    points={"assets": "sparkle.screen:Sparkles"},
)
""",
    "sparkle/requests.py": """
from typing import ClassVar

from aptui.link.port import FeatureRequest


class CountSparkles(FeatureRequest, frozen=True):
    wire_name: ClassVar = "count_sparkles"
    factor: int = 1
""",
    "sparkle/answers.py": """
class Sparkler:
    def __init__(self, live):
        self._live = live

    def handle(self, request, verb):
        request.answer(count=verb.factor * self._live.working_engine().pipeline.status().run)

    def forget_client(self, client):
        pass
""",
    "sparkle/verbs.py": """
from aptui.batch.options import load_config
from aptui.link.engine_client import EngineClient
from aptui.link.port import Settle
from sparkle.requests import CountSparkles


def sparkle_arguments(parser):
    parser.add_argument("factor", type=int)


def sparkle(arguments):
    with EngineClient.of(load_config(arguments).cache_dir) as client:
        client.ask(Settle(), 30)
        print(client.ask(CountSparkles(arguments.factor))["count"])
    return 0
""",
    "sparkle/screen.py": """
from aptui.tui.frame.commandline import Command
from aptui.tui.screens.assets.asset_actions import AssetExtension
from aptui.tui.widgets.menu import MenuItem


class Sparkles(AssetExtension):
    done = []

    def actions(self):
        return {"sparkle": lambda: self.done.append(self.parts.trees.view.cursor_key)}

    def menu_items(self, panel):
        return [MenuItem("sparkle", f"Let {panel.path} sparkle", "k", self.parts.shell.can_ask)]

    def commands(self):
        return [Command("sparkle", "let something sparkle", self.done.append)]
""",
}
"""Files of a separately installed package that adds a feature to aptui."""


def test_feature_table_lists_every_feature_folder() -> None:
    folders = {path.parent.name for path in (ROOT / "features").glob("*/__init__.py")}

    assert {each.name for each in feature.features()} == folders


@pytest.mark.parametrize("each", tuple(feature.features()), ids=lambda each: each.name)
def test_every_object_that_a_feature_declares_can_be_loaded(each: Feature) -> None:
    places = [*each.points.values(), *each.requests.values(), *([each.answers] if each.answers else [])]

    assert all(feature.load(place) is not None for place in places)


def test_feature_of_a_separate_package_adds_a_verb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = Feature("greeting", "says hello", verbs={"greet": ("foreign_greeting", "print a greeting")})
    point = metadata.EntryPoint("greeting", "foreign_greeting:FEATURE", feature.GROUP)
    monkeypatch.setattr(feature, "list_foreign", cache(feature.list_foreign.__wrapped__))
    monkeypatch.setattr(metadata, "entry_points", lambda **_wanted: [point])
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda _self: foreign)

    assert main.find_verb("greet") == ("foreign_greeting", "print a greeting", "", ())
    assert main.main(["greeet"]) == 3
    assert "did you mean 'greet'?" in capsys.readouterr().err


def test_feature_that_cannot_be_loaded_is_reported_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = [each for each in feature.features() if "doctor" in each.points]
    half = Feature("half", "has a missing module", points={"doctor": "half_missing:lines"})
    broken = metadata.EntryPoint("broken", "broken_feature:FEATURE", feature.GROUP)
    points = [broken, metadata.EntryPoint("half", "half:FEATURE", feature.GROUP)]
    monkeypatch.setattr(feature, "list_foreign", cache(feature.list_foreign.__wrapped__))
    monkeypatch.setattr(feature, "_problems", {})
    monkeypatch.setattr(metadata, "entry_points", lambda **_wanted: points)
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: half if self.name == "half" else import_module(self.module))

    assert main.main(["--help"]) == 0
    assert [each.__module__ for each in feature.load_all("doctor")] == [each.points["doctor"].partition(":")[0] for each in shipped]
    assert main.main(["--help"]) == 0

    lines = set(capsys.readouterr().err.splitlines())
    advice = "update or uninstall the package that contains this feature"
    assert lines == {
        f"aptui: the feature '{name}' cannot be loaded: ModuleNotFoundError: No module named '{module}'; {advice}"
        for name, module in (("broken", "broken_feature"), ("half", "half_missing"))
    }


_NAMES_USED_TWICE = {
    "paths": "`azlmbr.paths` is O3DE's name",
}
"""{module name that occurs twice below `aptui/`: reason}. Entries may be removed, but not added."""
_CONVENTIONAL_NAMES = frozenset({"__init__", "verbs", "screen", "requests", "settings"})


def test_no_two_modules_have_the_same_name() -> None:
    counts = Counter(path.stem for path in ROOT.rglob("*.py") if path.stem not in _CONVENTIONAL_NAMES and "_data" not in path.parts)

    assert {name for name, count in counts.items() if count > 1} <= _NAMES_USED_TWICE.keys()


def write_all(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def run(folder: Path, packages: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a project, with packages that are found before the installed ones."""
    environment = {**os.environ, "PYTHONPATH": str(packages), "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.real
@pytest.mark.starts
def test_engine_answers_a_request_that_a_separate_package_adds(tmp_path: Path) -> None:
    write_all(tmp_path / "site", FOREIGN)
    write_all(tmp_path / "p", {"aptui.yaml": PROJECT, "assets/a.txt": "a", "assets/b.txt": "b"})

    assert run(tmp_path / "p", tmp_path / "site", "-m", "aptui", "start").returncode == 0
    try:
        answer = run(tmp_path / "p", tmp_path / "site", "-m", "aptui", "sparkle", "10")
    finally:
        run(tmp_path / "p", tmp_path / "site", "-m", "aptui", "stop")

    assert (answer.stdout, answer.stderr) == ("20\n", "")


@pytest.mark.real
def test_separate_package_adds_actions_and_commands_to_assets_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path / "site", FOREIGN)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(feature, "list_foreign", cache(feature.list_foreign.__wrapped__))
    [sparkles] = [extend for extend in feature.load_all("assets") if extend.__module__ == "sparkle.screen"]
    shell = SimpleNamespace(can_ask=True)
    tree = SimpleNamespace(view=SimpleNamespace(cursor_key=7))
    parts = AssetParts(shell, mock.Mock(), tree, mock.Mock(), mock.Mock())  # type: ignore[arg-type]  # the test uses only two fields

    actions = AssetActions(parts, [sparkles(parts)])

    assert actions.can("sparkle")
    assert not actions.can("unknown")
    actions.run("sparkle")
    sparkles(parts).commands()[0].run("a rock")
    assert sparkles.done == [7, "a rock"]


WITHOUT = """
import sys
from aptui import feature
from aptui.cli import main
codes = [main.main(words) for words in (["--help"], ["batch"], ["doctor"], ["docs"])]
for each in feature.features():
    each.answers and feature.load(each.answers)
from aptui.engine.live import requests
from aptui.tui import app, pane
for spec in pane.list_panes():
    spec.load()
print("codes", codes, [main.main([verb]) for verb in sys.argv[1:]])
"""
"""Code that uses a copy of the program from which features have been removed.

It runs some verbs, loads the request handlers and all screens, and then runs the verbs of the removed features, which must fail.
"""
BUILT_ON = {"relocation": ["o3de"], "shipping": ["o3de"]}
"""{feature: features that depend on it (`pyproject.toml` has the reasons)}; they are removed together with it."""


def copy_without(folder: Path, gone: list[str]) -> Path:
    """Return a copy of the program without these features."""
    copy = folder / "copy"
    shutil.copytree(ROOT, copy / "aptui", ignore=shutil.ignore_patterns("__pycache__"))
    for each in ("config", "themes"):
        (copy / each).symlink_to(data_dir() / each)
    table = copy / "aptui/features/__init__.py"
    for name in gone:
        shutil.rmtree(copy / "aptui/features" / name)
        text = table.read_text()
        table.write_text(re.sub(rf'\n    "{name}".*', "", text))
        assert table.read_text() != text
    return copy


@pytest.mark.real
@pytest.mark.starts
@pytest.mark.parametrize("name", [each.name for each in feature.features()])
def test_aptui_works_after_a_feature_has_been_removed(name: str, tmp_path: Path) -> None:
    gone = [name, *BUILT_ON.get(name, [])]
    copy = copy_without(tmp_path, gone)
    write_all(tmp_path / "p", {"aptui.yaml": PROJECT, "assets/a.txt": "a"})
    verbs = [verb for each in feature.features() if each.name in gone for verb in each.verbs]

    ended = run(tmp_path / "p", copy, "-c", WITHOUT, *verbs)

    assert f"codes [0, 0, 0, 0] {[3] * len(verbs)}" in ended.stdout, ended.stdout + ended.stderr
    assert ended.stderr.count("is not a verb") == len(verbs)
    assert (tmp_path / "p/Cache" / "linux/a.txt").read_text() == "a"


@pytest.mark.real
@pytest.mark.starts
def test_remaining_tests_pass_after_all_features_have_been_removed(tmp_path: Path) -> None:
    """The run includes tests of lists that features extend. It skips test modules that import a feature."""
    checkout = Path(__file__).parent.parent
    copy = copy_without(tmp_path, [each.name for each in feature.features()])
    shutil.copytree(checkout / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__", "features"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy(checkout / name, copy)
    words = ["-m", "fast", "-n0", "-p", "no:randomly", "tests/cli", "tests/config/test_ci.py", "tests/link", "tests/shared"]
    words += ["tests/test_linear_patterns.py", "tests/tui/frame/test_frame.py", "tests/tui/test_pane.py", "-rs"]

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout
    assert "deleted feature: gateway" in ended.stdout


def test_docstring_of_the_feature_module_lists_every_extension_point() -> None:
    texts = [path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py") if "features" not in path.parts]
    used = {name for text in texts for name in re.findall(r'feature\.(?:load_\w+|has)\("([\w ]+)"\)', text)}
    listed = set(re.findall(r"^\| `([\w ]+)` \|", feature.__doc__ or "", re.MULTILINE))

    assert {point for each in feature.features() for point in each.points} <= listed
    assert used <= listed

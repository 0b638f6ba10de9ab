"""Features: the table lists every folder, a feature of another distribution is used like one of ours, and names are unique."""

from collections import Counter
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

import aptui
from aptui import feature
from aptui.cli import main
from aptui.feature import Feature

ROOT = Path(aptui.__file__).parent


def test_every_folder_of_a_feature_is_in_the_table() -> None:
    folders = {path.parent.name for path in (ROOT / "features").glob("*/__init__.py")}

    assert {each.name for each in feature.features()} == folders


@pytest.mark.parametrize("each", tuple(feature.features()), ids=lambda each: each.name)
def test_places_of_a_feature_can_be_loaded(each: Feature) -> None:
    places = [*each.points.values(), *each.requests.values(), *([each.answers] if each.answers else [])]

    assert all(feature.load(place) is not None for place in places)


def test_feature_of_another_distribution_adds_a_verb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = Feature("greeting", "says hello", verbs={"greet": ("foreign_greeting", "print a greeting")})
    point = metadata.EntryPoint("greeting", "foreign_greeting:FEATURE", feature.GROUP)
    monkeypatch.setattr(feature, "_read_foreign", cache(feature._read_foreign.__wrapped__))
    monkeypatch.setattr(metadata, "entry_points", lambda **_wanted: [point])
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda _self: foreign)

    assert main.place_of("greet") == ("foreign_greeting", "print a greeting")
    assert main.main(["greeet"]) == 3
    assert "did you mean 'greet'?" in capsys.readouterr().err


_NAMES_USED_TWICE = frozenset(
    [
        "__main__",
        "admission",
        "alerts",
        "archive",
        "assets",
        "cells",
        "checks",
        "code",
        "codec",
        "columns",
        "commands",
        "context",
        "doctor",
        "engine",
        "facts",
        "feed",
        "files",
        "gateway",
        "health",
        "history",
        "layout",
        "lfs",
        "limits",
        "lines",
        "links",
        "load",
        "main",
        "messages",
        "metrics",
        "model",
        "notices",
        "opening",
        "options",
        "orders",
        "overrides",
        "pace",
        "packing",
        "pane",
        "paths",
        "peers",
        "places",
        "processes",
        "project",
        "questions",
        "readers",
        "references",
        "registry",
        "reports",
        "results",
        "row_actions",
        "rows",
        "run",
        "sandbox",
        "schema",
        "search",
        "server",
        "sessions",
        "sharing",
        "start",
        "supervisor",
        "switches",
        "table",
        "terminal",
        "texts",
        "trace",
        "tree",
        "trust",
        "work",
    ]
)
"""Names of modules that still stand twice below `aptui/`; this list may only shrink."""
_CONVENTIONAL_NAMES = frozenset({"__init__", "verbs", "screen", "requests", "settings"})


def test_module_names_are_used_once() -> None:
    counts = Counter(path.stem for path in ROOT.rglob("*.py") if path.stem not in _CONVENTIONAL_NAMES)

    assert {name for name, count in counts.items() if count > 1} <= _NAMES_USED_TWICE

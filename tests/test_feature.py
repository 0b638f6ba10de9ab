"""Features: what the table says is there, and a feature of another distribution is used like one of ours."""

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

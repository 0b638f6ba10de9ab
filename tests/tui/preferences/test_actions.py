"""Every key of the app names an existing action, of the app or of one of its parts."""

from importlib.metadata import version

import pytest
from textual.actions import parse
from textual.app import App
from textual.binding import Binding

from aptui.tui.app import PARTS, AptuiApp
from aptui.tui.data.session import SessionState
from aptui.tui.preferences.state import UiMemory
from aptui.tui.shell_commands import shell_commands
from tui.fake_panes import PROBES, FakeSession

ACTING = {
    *(spec.id for spec in PROBES), "stop", "keys", "keymap",
    "messages", "info", "help", "plain", "redraw", "quit",
}  # fmt: skip
"""Commands of the `:` line that run an action of the app."""


@pytest.fixture
def app(tmp_path):
    session = FakeSession(tmp_path / "cache")
    return AptuiApp(session, memory=UiMemory(tmp_path / "a.json"), person=UiMemory(tmp_path / "b.json"), panes=PROBES)


@pytest.mark.parametrize("binding", [*Binding.make_bindings(AptuiApp.BINDINGS)], ids=lambda each: each.id)
def test_every_key_names_an_existing_action(app, binding):
    part, name, parameters = parse(binding.action)
    place = getattr(app, part) if part in PARTS else app

    assert part in {*PARTS, ""}
    assert callable(getattr(place, f"action_{name}", None))
    if part == "switcher":
        assert app.switcher.check_action(name, parameters) is (parameters[0] in {spec.number for spec in PROBES})


def test_keys_reach_the_parts_of_the_app_in_the_installed_textual_version(app):
    """The app extends the private set `App._action_targets`, so each new version of Textual must be checked."""
    assert version("textual") == "8.2.8", (
        "Textual was updated: check that keys reach the parts of the app, then change the version in this test"
    )
    assert app._action_targets == {"app", "screen", "focused", *PARTS}
    assert App()._action_targets == {"app", "screen", "focused"}
    for part in PARTS:
        assert app._parse_action(f"{part}.any", app)[0] is getattr(app, part)


def test_actions_that_need_an_engine_are_hidden_without_an_engine(app):
    app.session.state = SessionState.NONE

    assert {name for name in PARTS if not getattr(app, name).check_action("any", ())} == {"engine"}
    with app.engine.assume_engine():
        assert app.engine.check_action("pause", ())


def test_commands_of_the_colon_line_name_existing_actions(app, monkeypatch):
    named: list[str] = []
    monkeypatch.setattr(app, "schedule_action", named.append)

    for command in shell_commands(app):
        if command.name in ACTING:
            command.run("")

    assert len(named) == len(ACTING)
    for action in named:
        part, name, _ = parse(action)
        assert callable(getattr(getattr(app, part) if part else app, f"action_{name}", None)), action

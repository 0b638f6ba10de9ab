"""The first frame has the first rows or is drawn after a timeout. Before it, no widget is styled twice."""

from __future__ import annotations

import pytest
from textual.css.stylesheet import Stylesheet

from aptui.tui import app as app_module
from aptui.tui.app import AptuiApp
from aptui.tui.drawing import MainScreen
from aptui.tui.frame.sheets import Lines
from aptui.tui.pane import PaneSpec
from tests.tui.fake_panes import JobsProbe
from tests.tui.jobs_harness import in_jobs
from tests.tui.shell_harness import in_shell, text, until


class Waiting(JobsProbe):
    """A pane that is still reading its rows."""

    has_rows = False

    def name_awaited(self, _focused) -> str:
        return "" if self.has_rows else "the first rows"


WAITING = [PaneSpec("jobs", 1, "Jobs", "Jobs", "tui.test_main_screen:Waiting")]


@pytest.fixture
def drawn(monkeypatch) -> list[bool]:
    """Return a list that gets an item for each drawn frame: whether the pane had rows in this frame."""
    pictures: list[bool] = []
    display = AptuiApp._display

    def note(app, screen, renderable) -> None:
        if renderable is not None:
            pictures.append(getattr(app.pane, "has_rows", False))
        display(app, screen, renderable)

    monkeypatch.setattr(AptuiApp, "_display", note)
    return pictures


def test_first_frame_has_rows(tmp_path, monkeypatch, drawn):
    monkeypatch.setattr(app_module, "_FIRST_ROWS_WITHIN_S", 1000)

    async def do(app, pilot, _session) -> None:
        app.wake()
        await pilot.pause()
        assert drawn == []

        app.pane.has_rows = True
        app.wake()
        await until(pilot, lambda: drawn)

        assert all(drawn)
        assert "AutomatedTesting" in text(app)

    in_shell(tmp_path, do, panes=WAITING)


def test_first_frame_is_drawn_without_rows_after_the_timeout(tmp_path, monkeypatch, drawn):
    monkeypatch.setattr(app_module, "_FIRST_ROWS_WITHIN_S", 0.01)

    async def do(_app, pilot, _session) -> None:
        await until(pilot, lambda: drawn)

        assert not any(drawn)

    in_shell(tmp_path, do, panes=WAITING)


@pytest.fixture
def styled(monkeypatch) -> list[str]:
    """A list that receives the id of each widget that is styled before the first frame."""
    parts: list[str] = []
    apply, show = Stylesheet.apply, MainScreen.show

    def note(sheet, node, **named) -> None:
        parts.append(node.id or "")
        apply(sheet, node, **named)

    def show_noted(screen) -> None:
        monkeypatch.setattr(Stylesheet, "apply", apply)
        show(screen)

    monkeypatch.setattr(Stylesheet, "apply", note)
    monkeypatch.setattr(MainScreen, "show", show_noted)
    return parts


def test_status_line_and_tabs_are_styled_once_before_the_first_frame(tmp_path, styled):
    async def do(_app, _pilot, _session) -> None:
        assert {name: styled.count(name) for name in ("status", "tabs", "rule-top", "command", "picker")} == dict.fromkeys(
            ("status", "tabs", "rule-top", "command", "picker"), 1
        )

    in_shell(tmp_path, do)


def test_jobs_pane_is_styled_once_before_the_first_frame(tmp_path, styled):
    parts = ("jobs-filter", "jobs-bar", "event-log", "event-body", "event-title", "event-filter", "event-lines", "details")

    async def do(_app, _pilot, _pane) -> None:
        assert {name: styled.count(name) for name in parts} == dict.fromkeys(parts, 1)

    in_jobs(tmp_path, do)


def test_sheets_and_pickers_have_no_widgets_until_they_are_opened(tmp_path):
    async def do(app, pilot, _session) -> None:
        assert not app.query("Sheet > *, KeyTester > *, ThemePicker > *")

        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.focused, Lines))

        assert [type(part).__name__ for part in app.query("Sheet > *")] == ["Input", "Lines"]

    in_shell(tmp_path, do)

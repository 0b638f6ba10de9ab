from types import SimpleNamespace

import pytest

from aptui.tui.preferences.state import UiMemory
from aptui.tui.screens.jobs.selection import CursorGoal
from tests.tui.jobs_room import NOW_MS, in_jobs

from .jobs_pane_room import sees, settled


class Screen:
    """A table that shows `rows` of the known jobs, and the calls that it received."""

    def __init__(self):
        self.store = SimpleNamespace(is_loaded=True, is_busy=False, info=lambda key: key if key in self.known else None)
        self.known, self.rows, self.done = {1, 2, 3}, {1, 2}, []
        self.goal = CursorGoal(self.store, lambda: self, self.clear, lambda text, _severity: self.done.append(text))

    def move_to_key(self, key):
        self.done += [key] * (key in self.rows)
        return key in self.rows

    def action_first(self):
        self.done.append("first")

    def clear(self):
        self.done.append("clear")


@pytest.fixture
def screen():
    return Screen()


def test_cursor_goes_to_visible_job_at_once(screen):
    screen.goal.set_job(2)
    screen.goal.apply()

    assert screen.done == [2]


def test_cursor_goes_to_hidden_job_after_filter_is_removed(screen):
    screen.goal.set_job(3)
    screen.store.is_busy = True
    screen.goal.apply()
    assert screen.done == ["clear"]

    screen.store.is_busy, screen.rows = False, screen.known
    screen.goal.apply()
    screen.goal.apply()

    assert screen.done == ["clear", 3]


def test_unknown_job_is_reported_only_after_first_rows(screen):
    screen.store.is_loaded = False
    screen.goal.set_job(9)
    screen.goal.apply()
    assert not screen.done

    screen.store.is_loaded = True
    screen.goal.apply()

    assert screen.done == ["no job #9"]


def test_cursor_goes_to_first_row_once(screen):
    screen.goal.set_first()
    screen.goal.apply()
    screen.goal.apply()

    assert screen.done == ["first"]


def test_new_and_fixed_failures_since_the_last_visit_are_reported(tmp_path):
    memory = UiMemory(tmp_path / "project.json")
    memory.put("jobs.failed", [1, 3, 77])  # 2 is new, 3 was fixed, 77 no longer exists
    memory.put("jobs.left_ms", NOW_MS - 90_000)

    async def look(app, pilot, pane):
        await sees(pilot, app, ": 1 newly failed, 1 fixed, :news shows them")
        next(each for each in pane.commands() if each.name == "news").run("")
        await settled(pilot, pane)
        assert {pane.store.info(key).key for key in pane.store.keys(0, 9)} >= {1, 2}
        assert pane.choices.text.startswith("status:failed after:")
        pane.deactivate()

    app = in_jobs(tmp_path, look, memory=memory)
    assert app.memory.get("jobs.failed", []) == [1, 2]
    assert app.memory.get("jobs.left_ms", 0) >= NOW_MS

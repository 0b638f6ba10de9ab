from types import SimpleNamespace

import pytest

from aptui.tui.screens.jobs.selection import CursorGoal


class Screen:
    """A table that shows `rows` of the jobs that are known, and what was done to it."""

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


def test_a_job_that_is_shown_has_the_cursor_at_once(screen):
    screen.goal.be(2)
    screen.goal.reach()

    assert screen.done == [2]


def test_a_job_that_a_filter_hides_has_it_when_the_rows_without_the_filter_are_there(screen):
    screen.goal.be(3)
    screen.store.is_busy = True
    screen.goal.reach()
    assert screen.done == ["clear"]

    screen.store.is_busy, screen.rows = False, screen.known
    screen.goal.reach()
    screen.goal.reach()

    assert screen.done == ["clear", 3]


def test_before_the_first_rows_nobody_says_that_there_is_no_such_job(screen):
    screen.store.is_loaded = False
    screen.goal.be(9)
    screen.goal.reach()
    assert not screen.done

    screen.store.is_loaded = True
    screen.goal.reach()

    assert screen.done == ["there is no job #9"]


def test_the_first_row_is_gone_to_once(screen):
    screen.goal.be_first()
    screen.goal.reach()
    screen.goal.reach()

    assert screen.done == ["first"]

"""The cursor in a log moves by itself only if the caller asked for it, and then once, after the log was read."""

from types import SimpleNamespace

import pytest

from aptui.store.joblog import JobLogLine
from aptui.tui.screens.jobs.event_log import LogCursor

TALLY = JobLogLine(1, "aptui", "0 errors, 0 warnings", 0)
LINE = JobLogLine(1, "Builder", "made it", 0)


class FakePane:
    """A log pane that records its calls."""

    def __init__(self, *, has_error: bool, key: int = 1) -> None:
        self.moves, self._has_error, self.cursor_key = [], has_error, key

    def go_to_first_error(self) -> bool:
        self.moves.append("error")
        return self._has_error

    def action_last(self) -> None:
        self.moves.append("last")

    def action_move(self, step: int) -> None:
        self.moves.append(step)


@pytest.mark.parametrize(
    ("has_error", "running_key", "moves"), [(True, 0, ["error"]), (False, 0, ["error", -1]), (True, 7, ["last"])]
)
def test_log_cursor_starts_on_the_first_error_or_else_on_the_last_line(has_error, running_key, moves):
    pane = FakePane(has_error=has_error)
    cursor = LogCursor(lambda: pane)

    cursor.go_to_main_line(SimpleNamespace(records=(LINE, TALLY), running_key=running_key))

    assert pane.moves == moves


def test_requested_move_of_the_log_cursor_happens_once_after_the_log_is_read():
    pane, read = FakePane(has_error=True), SimpleNamespace(records=(), running_key=0)
    cursor = LogCursor(lambda: pane)
    cursor.apply(read)
    cursor.request()
    cursor.apply(None)

    assert pane.moves == []
    cursor.apply(read)
    cursor.apply(read)
    assert pane.moves == ["error"]
    cursor.request()
    cursor.cancel()
    cursor.apply(read)
    assert pane.moves == ["error"]

"""The writer's thread reports saved rows to the loop: each ticket once. A failure of the writer is raised in the loop."""

from __future__ import annotations

import pytest

from aptui.engine.loop.engine import OVERDUE_S, SavedRows
from aptui.shared.errors import HostError, InternalError


def test_saved_rows_are_pending_until_acknowledged() -> None:
    woken: list[int] = []
    saved = SavedRows(lambda: woken.append(1))
    assert not saved.has_unreported
    saved.note(3)
    saved.note(5)

    assert saved.has_unreported
    assert (saved.take_unreported(), saved.ticket, len(woken)) == (5, 5, 2)
    assert not saved.has_unreported


def test_failure_of_the_writer_is_raised_even_after_a_new_writer_starts() -> None:
    woken: list[int] = []
    saved = SavedRows(lambda: woken.append(1))
    saved.check()
    saved.note(4)
    saved.fail(HostError("the disk is full"))
    saved.restart()

    assert (saved.ticket, saved.has_unreported, len(woken)) == (0, False, 2)
    with pytest.raises(HostError, match="disk is full"):
        saved.check()


def test_engine_fails_if_rows_are_saved_out_of_order() -> None:
    saved = SavedRows(lambda: None)
    saved.note(120)

    saved.note(119)

    assert saved.ticket == 120
    with pytest.raises(InternalError, match="save 119 came after save 120"):
        saved.check()


def test_rows_still_unsaved_after_ten_idle_seconds_are_reported() -> None:
    saved = SavedRows(lambda: None)
    saved.note(118)

    reports = [saved.find_overdue(120, now, is_at_rest=True) for now in (5.0, 5.0 + OVERDUE_S - 0.1, 5.0 + OVERDUE_S)]
    saved.note(120)

    assert reports[:2] == ["", ""]
    assert "saves 119 to 120 of the asset database did not end" in reports[2]
    assert saved.find_overdue(120, 99.0, is_at_rest=True) == ""


def test_rows_are_not_overdue_while_other_work_is_pending() -> None:
    saved = SavedRows(lambda: None)
    saved.find_overdue(1, 0.0, is_at_rest=True)
    saved.find_overdue(1, OVERDUE_S, is_at_rest=False)

    assert saved.find_overdue(1, OVERDUE_S + 1, is_at_rest=True) == ""

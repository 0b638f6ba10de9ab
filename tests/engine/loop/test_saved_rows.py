"""The loop learns from the writer's thread what is saved: each ticket is news once, and a failure is raised in the loop."""

from __future__ import annotations

import pytest

from aptui.engine.loop.saved_rows import SavedRows
from aptui.shared.errors import HostError


def test_what_is_saved_is_news_until_the_pipeline_was_told_of_the_newest() -> None:
    woken: list[int] = []
    saved = SavedRows(lambda: woken.append(1))
    assert not saved.are_news
    saved.note(3)
    saved.note(5)

    assert saved.are_news
    assert (saved.take_news(), saved.ticket, len(woken)) == (5, 5, 2)
    assert not saved.are_news


def test_a_failure_of_the_writer_is_raised_in_the_loop_also_after_it_began_anew() -> None:
    woken: list[int] = []
    saved = SavedRows(lambda: woken.append(1))
    saved.check()
    saved.note(4)
    saved.fail(HostError("the disk is full"))
    saved.begin_anew()

    assert (saved.ticket, saved.are_news, len(woken)) == (0, False, 2)
    with pytest.raises(HostError, match="disk is full"):
        saved.check()

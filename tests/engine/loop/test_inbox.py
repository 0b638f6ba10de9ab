"""The inbox: the order of events, and their numbers."""

from __future__ import annotations

from aptui.core.messages import RequestReceived, RowsSaved
from aptui.engine.loop.context import Inbox


def test_inbox_returns_events_in_the_order_of_their_arrival() -> None:
    inbox = Inbox()
    inbox.post(RowsSaved(inbox.next_seq(), 1))
    inbox.post(RowsSaved(inbox.next_seq(), 2))

    assert [inbox.take().ticket, inbox.take().ticket] == [1, 2]
    assert not inbox


def test_event_numbers_increase_in_the_order_of_handling() -> None:
    inbox = Inbox()
    inbox.post(RowsSaved(inbox.next_seq(), 1))
    went_before = RequestReceived(inbox.next_seq(), "stop")

    assert inbox.take().seq > went_before.seq
    assert inbox.seq > went_before.seq

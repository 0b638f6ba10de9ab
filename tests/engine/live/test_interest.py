"""Clients report the sources that they show: these get a higher priority for 90 s. Too many sources in one report are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aptui.engine.live.requests import LASTS_S, InterestRequests
from aptui.link import port
from aptui.shared.errors import KnownError


class Live:
    """An engine that records its requests."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.asked: list[tuple[str, tuple[str, ...], int]] = []
        self.engine: Any = SimpleNamespace(ask=self._ask)
        self.now = 100.0

    def _ask(self, verb: str, *, keys: tuple[str, ...] = (), value: int = 0) -> None:
        self.asked.append((verb, keys, value))


@pytest.fixture
def live() -> Live:
    return Live()


def show(interest: InterestRequests, *keys: str) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    request: Any = SimpleNamespace(answer=lambda **more: answers.update(more))
    interest.handle(request, port.NoteInterest(keys))
    return answers


def test_priority_of_shown_sources_is_requested_once_a_second_and_expires(live: Live) -> None:
    interest = InterestRequests(live, lambda: live.now)  # type: ignore[arg-type]
    assert interest.next_deadline(live.now) is None
    assert show(interest, "A.txt", "a.txt", "b.txt") == {"count": 2}
    live.now += 10.5
    show(interest, "c.txt")
    show(interest, "d.txt")
    assert live.asked == [("interest", ("a.txt", "b.txt"), 1), ("interest", ("c.txt",), 11), ("interest", ("d.txt",), 11)]

    live.asked.clear()
    assert interest.next_deadline(live.now) == 100.0 + 1 + LASTS_S
    interest.poll(100.0 + LASTS_S)
    assert live.asked == []
    interest.poll(100.0 + 1 + LASTS_S)
    assert live.asked == [("expire", (), 1)]
    interest.poll(100.0 + 11 + LASTS_S)
    assert live.asked[1:] == [("expire", (), 11)]
    assert interest.next_deadline(live.now) is None


def test_list_of_shown_sources_is_refused_if_too_long_or_without_an_engine(live: Live) -> None:
    interest = InterestRequests(live, lambda: live.now)  # type: ignore[arg-type]

    with pytest.raises(KnownError, match="1,001 sources are too many"):
        show(interest, *(f"{number}.txt" for number in range(1_001)))
    assert show(interest, *(f"{number}.txt" for number in range(1_000))) == {"count": 1_000}
    live.engine = None
    with pytest.raises(KnownError, match="cannot process requests"):
        show(interest, "a.txt")

"""Any thread can wake a loop. Several calls wake it once; calls after the waker was closed have no effect."""

from __future__ import annotations

import selectors

from aptui.engine.waking import Waker


def test_waker_wakes_once_for_many_calls_and_not_after_it_is_closed() -> None:
    woken: list[int] = []
    with selectors.DefaultSelector() as selector:
        waker = Waker(selector, lambda: woken.append(1))
        assert selector.select(0) == []
        waker.wake()
        waker.wake()
        for key, mask in selector.select(0):
            key.data(mask)

        assert (woken, selector.select(0)) == ([1], [])
        assert waker.is_open
        waker.wake()
        waker.close()
        waker.wake()
        waker.close()
        assert not selector.get_map()
        assert not waker.is_open

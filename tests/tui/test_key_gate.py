"""A pressed key waits until the screen shows the data that it needs. After a timeout, it is dropped with a message."""

from __future__ import annotations

import asyncio

import pytest

from aptui.tui import key_gate
from aptui.tui.key_gate import KeyGate


def test_keys_wait_for_the_awaited_state_and_keep_their_order() -> None:
    waits, passed = ["the filter"], []

    async def press(gate: KeyGate, key: str) -> None:
        if await gate.lets_through(key):
            passed.append(key)

    async def play() -> None:
        gate = KeyGate(lambda key: "" if key == "q" else waits[0], lambda _text: None)
        await press(gate, "q")
        task = asyncio.ensure_future(press(gate, "y"))
        await asyncio.sleep(0)
        assert passed == ["q"]
        waits[0] = ""
        gate.check_again()
        await task

    asyncio.run(play())
    assert passed == ["q", "y"]


def test_key_is_dropped_with_a_message_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_gate, "_WITHIN_S", -1.0)
    messages: list[str] = []

    assert not asyncio.run(KeyGate(lambda _key: "the log", messages.append).lets_through("y"))
    assert messages == ["the key was ignored, because the screen waited too long for the log"]

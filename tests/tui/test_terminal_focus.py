"""After the terminal lost and regained the focus, every key works in every state."""

from __future__ import annotations

import asyncio

import pytest
from textual import events

from .scene import Scene, scene
from .shell_harness import SMALL

pytestmark = pytest.mark.real

STATES = (
    "1", "1 y", "1 full_stop", "1 s", "1 S", "1 C", "1 slash", "1 f", "1 x", "1 enter", "1 enter y", "1 enter slash",
    "1 question_mark",
    "1 colon", "1 T", "1 ctrl+p", "1 i", "2", "2 slash", "2 full_stop", "2 y", "3", "3 t", "3 slash", "3 y", "4", "4 t", "4 a",
    "4 full_stop", "5", "5 p", "5 d", "5 m", "6", "6 e", "6 full_stop", "7", "7 full_stop",
)  # fmt: skip
"""Keys that lead to a menu, sheet, palette, filter, form, log or pane."""


@pytest.mark.timeout(300)
def test_every_key_works_after_the_terminal_lost_and_regained_the_focus() -> None:
    lost: list[str] = []

    async def visit(here: Scene) -> None:
        async with here.opened(SMALL) as (app, hands):
            for state in STATES:
                await hands.press("escape", "escape", "escape", *state.split())
                await hands.pause(0.1)
                focused, keys = app.screen.focused, set(app.screen.active_bindings)

                for event in (events.AppBlur(), events.AppFocus()):
                    app.post_message(event)
                    await hands.pause(0.1)

                if app.screen.focused is not focused or set(app.screen.active_bindings) != keys:
                    lost.append(state)

    with scene() as here:
        asyncio.run(visit(here))
    assert lost == []

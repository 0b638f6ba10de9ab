"""Makes keys wait until the rows, logs or filters that they act on are shown; after a timeout a key is dropped with a message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.app import App

    from aptui.tui.frame.engine_control import EngineControl
    from aptui.tui.pane import Pane

WITHIN_S = {"the first rows": 30.0}
"""{awaited state: timeout (seconds)}; states that are not listed have the timeout `_WITHIN_S`."""
_WITHIN_S = 20.0
_CHECK_S = 0.05


_NEVER_WAIT = frozenset({"ctrl+c", "ctrl+l"})
"""Keys that are never delayed, because they do not act on a row, log or filter."""
_LEAVE, _SHOW = "quit", "switcher.number("
"""`_LEAVE` is the action that closes the screen; the actions of the number keys, which go to a pane, begin with `_SHOW`."""
_ROWS = frozenset({"the first rows", "the filter", "the search"})
"""Awaited states of a pane in which keys that quit and number keys, which go to a pane, work at once; other keys wait.

The state "the sheet" is not in this set, so in this state keys that quit and number keys wait too. Otherwise the sheet, which is
about to open, would cover the next pane.
"""


class Keyboard:
    """Finds the state that a key has to wait for; the state depends on the key and on the focus.

    Args:
        pane: returns the current pane, None = no pane is mounted yet, or the feed is not open yet.
    """

    def __init__(self, app: App[Any], pane: Callable[[], Pane | None]) -> None:
        self._app, self._pane = app, pane
        self._held: dict[object, str] = {}

    def hold(self, what: str) -> Callable[[], object]:
        """Make keys wait until the returned function is called, because an earlier key has not taken effect yet."""
        task = object()
        self._held[task] = what
        return lambda: self._held.pop(task, None)

    def name_awaited(self, key: str) -> str:
        """Return the name of the state that a key has to wait for.

        Returns "" if the key is handled at once, for example because it quits or is typed into an input or a menu.
        """
        if key in _NEVER_WAIT or self._app._exit:  # noqa: SLF001  # Textual has no public name for it
            return ""
        pane, focused = self._pane(), self._app.focused
        if pane is None:
            return "" if self._action(key) == _LEAVE else "the first screen"
        if self._held and not self._app.screen.is_modal:
            return "" if self._action(key) == _LEAVE else next(iter(self._held.values()))
        if focused is not None and pane not in focused.ancestors_with_self:
            return ""
        awaited = pane.name_awaited(focused)
        return "" if awaited in _ROWS and self._action(key).startswith((_LEAVE, _SHOW)) else awaited

    def _action(self, key: str) -> str:
        found = self._app.screen.active_bindings.get(key)
        return found.binding.action if found is not None else ""

    def name_missed(self, key: str, engine: EngineControl) -> str:
        """Return the description of the key's action if it is disabled only because no requests can be sent, else ""."""
        with engine.assume_engine():
            for namespace, bindings in self._app.screen._modal_binding_chain:  # noqa: SLF001  # as in Textual's `_check_bindings`
                for binding in bindings.key_to_bindings.get(key, ()):
                    if self._app._check_action_state(binding.action, namespace):  # noqa: SLF001  # as above
                        return binding.description
        return ""


class KeyGate:
    """Delays keys, one at a time, until the state that they act on is shown.

    Args:
        awaited: returns the name of the state that a key has to wait for, "" = none.
        drop: called with a message when a key is dropped.
    """

    def __init__(self, awaited: Callable[[str], str], drop: Callable[[str], object]) -> None:
        self._awaited, self._drop = awaited, drop
        self._moved = asyncio.Event()

    def check_again(self) -> None:
        """Check again whether the waiting key may be handled, because the state changed."""
        self._moved.set()

    async def lets_through(self, key: str) -> bool:
        """Wait until the awaited state is reached; return False after a timeout."""
        began_s = time.monotonic()
        while what := self._awaited(key):
            if time.monotonic() - began_s > WITHIN_S.get(what, _WITHIN_S):
                self._drop(f"the key was ignored, because the screen waited too long for {what}")
                return False
            self._moved.clear()
            try:
                async with asyncio.timeout(_CHECK_S):
                    await self._moved.wait()
            except TimeoutError:
                pass
        return True

"""Keys wait until what they are about is there; what comes too late is dropped with a word. What is awaited, the app says."""

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
"""So long keys wait for something; for all else `_WITHIN_S`."""
_WITHIN_S = 20.0
_CHECK_S = 0.05


_NEVER_WAIT = frozenset({"ctrl+c", "ctrl+l"})
"""Keys that are about no row, log or filter."""
_LEAVE, _SHOW = "quit", "switcher.number("
_ROWS = frozenset({"the first rows", "the filter", "the search"})
"""What who leaves need not wait for; a sheet that is about to open takes the same key to be closed."""


class Keyboard:
    """What a key means where the focus is.

    Args:
        pane: returns the pane that is shown, None = there is none yet, or nothing to show in it.
    """

    def __init__(self, app: App[Any], pane: Callable[[], Pane | None]) -> None:
        self._app, self._pane = app, pane
        self._held: dict[object, str] = {}

    def hold(self, what: str) -> Callable[[], None]:
        """Have keys wait for what a key before them set out for, until what is returned is called."""
        task = object()
        self._held[task] = what
        return lambda: self._let_go(task)

    def _let_go(self, task: object) -> None:
        self._held.pop(task, None)

    def name_awaited(self, key: str) -> str:
        """Return what a key has to wait for: what it is about, unless it is one that leaves, or goes into a line or a menu."""
        if key in _NEVER_WAIT or self._app._exit:  # noqa: SLF001  # Textual tells it in no other way
            return ""
        pane, focused = self._pane(), self._app.focused
        if pane is None:
            return "" if self._leaves(key) else "the first screen"
        if self._held and not self._app.screen.is_modal:
            return "" if self._leaves(key) else next(iter(self._held.values()))
        if focused is not None and pane not in focused.ancestors_with_self:
            return ""
        awaited = pane.name_awaited(focused)
        return "" if awaited in _ROWS and self._goes_away(key) else awaited

    def _leaves(self, key: str) -> bool:
        """Whether a key closes the screen: nobody has to wait for rows that do not come."""
        return self._action(key) == _LEAVE

    def _goes_away(self, key: str) -> bool:
        """Whether a key closes the screen or goes to another, where there are other rows."""
        return self._leaves(key) or self._action(key).startswith(_SHOW)

    def _action(self, key: str) -> str:
        found = self._app.screen.active_bindings.get(key)
        return found.binding.action if found is not None else ""

    def name_missed(self, key: str, engine: EngineControl) -> str:
        """Return what a key would do if there were an engine to ask, "" = nothing."""
        with engine.suppose():
            for namespace, bindings in self._app.screen._modal_binding_chain:  # noqa: SLF001  # as the app itself looks for them
                for binding in bindings.key_to_bindings.get(key, ()):
                    if self._app._check_action_state(binding.action, namespace):  # noqa: SLF001  # as above
                        return binding.description
        return ""


class KeyGate:
    """Lets one key after the other through.

    Args:
        awaited: returns what a key, by its name, has to wait for, "" = nothing.
        drop: called with what is to be said of keys that waited in vain.
    """

    def __init__(self, awaited: Callable[[str], str], drop: Callable[[str], object]) -> None:
        self._awaited, self._drop = awaited, drop
        self._moved = asyncio.Event()

    def check_again(self) -> None:
        """Something changed: look again whether keys may pass."""
        self._moved.set()

    async def lets_through(self, key: str) -> bool:
        """Wait until a key means what people see; return whether it ever did."""
        began_s = time.monotonic()
        while what := self._awaited(key):
            if time.monotonic() - began_s > WITHIN_S.get(what, _WITHIN_S):
                self._drop(f"a key was dropped: {what} took too long")
                return False
            self._moved.clear()
            try:
                async with asyncio.timeout(_CHECK_S):
                    await self._moved.wait()
            except TimeoutError:
                pass
        return True

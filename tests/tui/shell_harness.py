"""Runs the app without a terminal: one call opens it over fake panes and a fake engine and runs a test in it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any
from unittest.mock import patch

from textual import events
from textual.app import App
from textual.keys import _character_to_key, key_to_character
from textual.message_pump import MessagePump
from textual.screen import Screen
from waiting import until_async

from aptui.tui.app import AptuiApp
from aptui.tui.preferences.state import UiMemory
from tui.fake_panes import PROBES, FakeSession

SMALL, LARGE = (80, 24), (140, 40)
_TURNS = 4
"""Number of turns of the event loop to wait, so that updates from threads and resumed tasks reach the widgets."""
_MOST_CHECKS = 50
"""Maximum number of checks of a screen that does not stop drawing."""
_refresh = Screen._compositor_refresh


def _put_off(screen: Screen) -> None:
    """Delay drawing until a test checks the screen; a screen below another one does not draw."""
    if screen is screen.app.screen:
        screen._dirty_widgets.clear()
        screen.app._update_mouse_over(screen)
    else:
        _refresh(screen)


@asynccontextmanager
async def opened(app: App[Any], size: tuple[int, int] = SMALL) -> AsyncIterator["Hands"]:
    """Open an app without a terminal. It draws only when it is idle, which halves the time of a test."""
    with patch.object(Screen, "_compositor_refresh", _put_off):
        async with app.run_test(size=size) as pilot:
            yield Hands(pilot)


class Hands:
    """Presses keys and waits until the app has handled the messages; Textual's pilot waits for fixed times instead.

    All other attributes are those of the pilot.
    """

    def __init__(self, pilot) -> None:
        self._pilot = pilot

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pilot, name)

    async def press(self, *keys: str) -> None:
        for key in keys:
            name = _character_to_key(key) if len(key) == 1 else key
            self._pilot.app.post_message(events.Key(name, key if len(key) == 1 else key_to_character(name)))
            await self._wait_until_handled()

    async def pause(self, seconds: float = 0) -> None:
        await asyncio.sleep(seconds)
        await self._wait_until_handled()

    async def _wait_until_handled(self) -> None:
        for _ in range(2):  # A key is passed from the app down to a widget, and back up to its handler.
            await self._handled()
            await asyncio.sleep(0.003)  # Threads with little work finish within these 3 ms.
            await self._handled()
            self._draw()
        await self._handled()
        for _ in range(_MOST_CHECKS):
            if not self._draw():
                if self._is_still():
                    break
                await asyncio.sleep(0.005)
            await self._handled()
        self._show()

    def _show(self) -> None:
        """Draw the delayed changes, unless the screen still waits for its first rows."""
        screen = self._pilot.app.screen
        if getattr(screen, "is_shown", True) and screen._compositor._dirty_regions:
            _refresh(screen)

    def _draw(self) -> bool:
        """Lay out and draw pending changes, as the screen's timer would do later; return whether there were any."""
        screen = self._pilot.app.screen
        pending = (
            screen._layout_required, screen._scroll_required, screen._repaint_required, screen._recompose_required,
            screen._dirty_widgets, screen._callbacks,
        )  # fmt: skip
        if not any(pending) or self._pilot.app._batch_count:
            return False
        screen._on_timer_update()
        return True

    def _is_still(self) -> bool:
        """Return whether no message and no frame is pending."""
        clock = getattr(self._pilot.app, "clock", None)
        return not (clock and clock._is_woken) and all(map(_is_at_rest, _parts(self._pilot.app)))

    async def _handled(self) -> None:
        """Wait until each busy widget has handled its queued messages.

        The pilot waits for every widget, which takes longer than handling a key.
        """
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        app = self._pilot.app
        busy = [part for part in _parts(app) if not _is_at_rest(part)]
        done = [asyncio.Event() for _ in busy]
        asked = [mark for part, mark in zip(busy, done, strict=True) if part.call_later(mark.set)]
        while not all(mark.is_set() for mark in asked) and not app._exception_event.is_set():
            await asyncio.sleep(0)


def _parts(app: App[Any]) -> list[MessagePump]:
    return [app, *app.screen.walk_children(with_self=True)]


def _is_at_rest(part: MessagePump) -> bool:
    """Return whether a widget waits for a message and its queue is empty. A widget that is not mounted yet returns False."""
    there_is_one = part._message_queue.ready_event
    return bool(there_is_one._waiters) and not there_is_one.is_set()


@asynccontextmanager
async def shell(tmp_path, *, size=SMALL, session=None, theme="dark", panes=PROBES, before=None):
    """Open the app and yield (app, pilot, session). `session` is a session, or a function that makes one for a cache folder."""
    session = (session or FakeSession)(tmp_path / "cache") if session is None or callable(session) else session
    app = AptuiApp(
        session, memory=UiMemory(tmp_path / "project.json"), person=UiMemory(tmp_path / "person.json"), panes=panes, theme=theme
    )
    if before:
        before(app)
    async with opened(app, size) as pilot:
        await until(pilot, lambda: "open" in session.done and (app.pane is not None or not panes))
        await pilot.pause()
        yield app, pilot, session


def in_shell(tmp_path, do: Callable[..., Awaitable[None]], **more) -> AptuiApp:
    """Open the app, call `do(app, pilot, session)`, close it; return the app."""

    async def main() -> AptuiApp:
        async with shell(tmp_path, **more) as (app, pilot, session):
            await do(app, pilot, session)
        return app

    return asyncio.run(main())


def script_test(open_screen: Callable[..., object], parts: Sequence[str], *uses: str, **options: object):
    """Return a decorator that makes a test from a script; `open_screen(tmp_path, script, **options)` runs the script in a screen.

    Each parameter of the script is a name in `parts` or the name of a fixture. `open_screen` gives the script the values of
    `parts`. It also receives the fixtures `project`, `size` and `theme` if the test has them. Each name in `uses` is a fixture
    that the test has even if the script has no parameter for it.
    """

    def decorate(script):
        wanted = signature(script).parameters

        def test(tmp_path, **fixtures):
            async def run(*values):
                known = {"tmp_path": tmp_path, **fixtures, **dict(zip(parts, values, strict=True))}
                await script(**{name: known[name] for name in wanted})

            open_screen(
                tmp_path, run, **options, **{name: fixtures[name] for name in ("project", "size", "theme") if name in fixtures}
            )

        names = dict.fromkeys(["tmp_path", *uses, *(name for name in wanted if name not in parts)])
        test.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in names])
        test.__name__, test.__doc__, test.__module__ = script.__name__, script.__doc__, script.__module__
        return test

    return decorate


on_shell = partial(script_test, in_shell, ("app", "pilot", "session"))


async def until(pilot, is_so: Callable[[], object]) -> None:
    """Wait for a condition, up to 20 seconds."""
    await until_async(is_so, "the screen that was waited for", 20, pilot.pause)


def layouts_of(app) -> list[object]:
    """Return a list that gets an item at each layout from now on."""
    seen: list[object] = []
    app.screen.screen_layout_refresh_signal.subscribe(app.screen, seen.append)
    return seen


def lines(app) -> list[str]:
    """Return the lines of the screen."""
    return ["".join(segment.text for segment in strip).rstrip() for strip in app.screen._compositor.render_strips()]


def text(app) -> str:
    return "\n".join(lines(app))

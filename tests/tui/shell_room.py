"""Runs the shell without a terminal: one call opens it over fake panes and a fake engine, does something with it, and looks."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from aptui.tui.app import AptuiApp
from aptui.tui.state import Memory
from tui.fake_panes import PROBES, FakeSession

SMALL, LARGE = (80, 24), (140, 40)


def in_shell(
    tmp_path, do: Callable[..., Awaitable[None]], *, size=SMALL, session=None, theme="dark", panes=PROBES, before=None
) -> AptuiApp:
    """Open the shell, do `do(app, pilot, session)`, close it; return it as it was left."""
    session = session or FakeSession(tmp_path / "cache")

    async def main() -> AptuiApp:
        app = AptuiApp(
            session, memory=Memory(tmp_path / "project.json"), person=Memory(tmp_path / "person.json"), panes=panes, theme=theme
        )
        if before:
            before(app)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: "open" in session.done)
            await pilot.pause()
            await do(app, pilot, session)
        return app

    return asyncio.run(main())


async def until(pilot, is_so: Callable[[], object]) -> None:
    """Wait until something is so; twenty seconds at most."""
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, "it never became so"
        await pilot.pause(0.01)


def lines(app) -> list[str]:
    """Return what is on the screen."""
    return ["".join(segment.text for segment in strip).rstrip() for strip in app.screen._compositor.render_strips()]


def text(app) -> str:
    return "\n".join(lines(app))

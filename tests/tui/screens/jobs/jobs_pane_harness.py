"""Helpers for tests of the Jobs screen."""

from __future__ import annotations

from inspect import signature

import pytest

from aptui.tui.data.job_infos import JobRowInfo
from tests.store.conftest import job_row, source_row
from tests.tui.jobs_harness import NOW_MS, fill, in_jobs
from tests.tui.shell_harness import text, until

INFO = JobRowInfo(1, "a.png", "project", "linux", "Image", "image", "failed", 0, 1, NOW_MS, 5, "new", "boom `x`", "", 9, 1)


@pytest.fixture(autouse=True)
def _own_homes(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def sources(pane) -> list[str]:
    return [pane.store.cell(index, "source").text for index in range(pane.store.row_count())]


async def settled(pilot, pane) -> None:
    await until(pilot, lambda: not pane.store.is_busy)
    await pilot.pause(0.12)


async def typed(pilot, pane, words: str) -> None:
    await pilot.press("slash", *words)
    await settled(pilot, pane)


async def sees(pilot, app, *parts: str) -> None:
    """Wait until all given texts are on the screen."""
    try:
        await until(pilot, lambda: all(part in text(app) for part in parts))
    except AssertionError as error:
        missing = [part for part in parts if part not in text(app)]
        raise AssertionError(f"not on the screen: {missing}\n{text(app)}") from error


async def details_of(pilot, pane, key: int, run_key: int | None = None) -> None:
    def is_there() -> bool:
        job_details = pane.event_log.job_details
        return bool(
            job_details
            and job_details.info.key == key
            and (run_key is None or (job_details.run and job_details.run.run_key == run_key))
        )

    await until(pilot, is_there)
    await pilot.pause(0.02)


def many(store, log_dir) -> None:
    fill(store, log_dir)
    names = [f"many/{number:02}.png" for number in range(30)]
    store.put(
        put_source=[source_row(at, name) for at, name in enumerate(names, 100)],
        put_job=[job_row(at, at, warnings=0, completed_ms=NOW_MS - 9000, last_log="") for at in range(100, 130)],
    )


def on_jobs(**options):
    """Make a test from a script for the Jobs screen, whose parameters are some of: app, pilot, pane."""

    def decorate(script):
        def test(tmp_path):
            async def run(app, pilot, pane):
                known = {"app": app, "pilot": pilot, "pane": pane}
                await script(**{name: known[name] for name in signature(script).parameters})

            in_jobs(tmp_path, run, **options)

        test.__name__, test.__doc__, test.__module__ = script.__name__, script.__doc__, script.__module__
        return test

    return decorate

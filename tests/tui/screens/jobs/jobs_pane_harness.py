"""Helpers for tests of the Jobs screen."""

from __future__ import annotations

from functools import partial

from aptui.tui.data.job_infos import JobRowInfo
from tests.store.conftest import job_row, source_row
from tests.tui.jobs_harness import NOW_MS, fill, in_jobs
from tests.tui.shell_harness import script_test, text, until

INFO = JobRowInfo(1, "a.png", "project", "linux", "Image", "image", "failed", 0, 1, NOW_MS, 5, "new", "boom `x`", "", 9, 1)


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


on_jobs = partial(script_test, in_jobs, ("app", "pilot", "pane"))

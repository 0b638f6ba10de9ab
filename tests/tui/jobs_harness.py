"""Runs the Jobs screen over a real database with real logs and a fake engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

from aptui.core.model import RelPath, RunKey
from aptui.core.notices import JobChanged, LogLevel, LogRecord
from aptui.store import joblog
from aptui.tui.app import AptuiApp
from aptui.tui.pane import PANES
from aptui.tui.preferences.state import UiMemory
from aptui.tui.screens.jobs.jobs_pane import JobsPane
from tests.store.conftest import BUILDER, Store, analysis_row, edge_row, job_row, product_row, source_row

from .database import database
from .fake_panes import FakeSession
from .shell_harness import LARGE, opened, until

NOW_MS = int(time.time() * 1000)
EVIL = "[/oops] [red]x[/red] \x1b]0;EVIL\x07\x1b[31mred"
BYTES_NAME = "textures/bad\U0010ffe9name.png"


def record(level: LogLevel, words: str, **context: str) -> LogRecord:
    return LogRecord(level, "Image Compile", words, NOW_MS, tuple(context.items()))


LOG = (
    record(LogLevel.INFO, "Opening textures/rock_01.png"),
    record(LogLevel.DEBUG, "4096×4096"),
    record(LogLevel.WARNING, "No colour profile"),
    record(LogLevel.ERROR, "Unexpected end of data in IDAT chunk", Chunk="IDAT", Offset="0x0012F3A0", Trace="png.py(212): decode"),
    record(LogLevel.INFO, EVIL),
    record(LogLevel.ERROR, "giving up"),
)


def fill(store: Store, log_dir: Path) -> None:
    """Write six jobs, one failed analysis, and logs of three runs."""
    joblog.write(log_dir / "JobLogs/rock-9.log", LOG, 1, 2)
    joblog.write(log_dir / "JobLogs/rock-7.log", (record(LogLevel.INFO, "the run before"),), 0, 0)
    joblog.write(log_dir / "JobLogs/sand.log", (record(LogLevel.WARNING, "sand is warm", Heat="40"),), 1, 0)
    names = ["textures/rock_01.png", "textures/sand.png", "meshes/rock.fbx", "x.lua", BYTES_NAME, f"evil/{EVIL}.png"]
    failed = {
        "state": "failed",
        "status": 2,
        "errors": 2,
        "warnings": 1,
        "error": "IDAT chunk is broken\nmore",
        "last_log": "JobLogs/rock-9.log",
    }
    store.put(
        put_source=[source_row(at, name) for at, name in enumerate(names, 1)],
        put_job=[
            job_row(
                1, 1, job_key="Image Compile", run_key=9, completed_ms=NOW_MS - 1000, duration_ms=1420,
                reason="the source changed", **failed,
            ),
            job_row(2, 1, platform="pc", run_key=10, completed_ms=NOW_MS - 2000, **(failed | {"last_log": ""})),
            job_row(3, 2, warnings=1, completed_ms=NOW_MS - 3000, last_log="JobLogs/sand.log"),
            job_row(4, 3, state="waiting", status=0, warnings=0, completed_ms=0, last_log=""),
            job_row(5, 5, warnings=0, completed_ms=NOW_MS - 5000, last_log="", reason=EVIL, error=EVIL),
            job_row(6, 6, warnings=0, completed_ms=NOW_MS - 6000, last_log="JobLogs/gone.log", job_key=EVIL),
        ],
        put_analysis=[analysis_row(4, state="failed", error="no such preset", completed_ms=NOW_MS - 8000)],
        put_product=[product_row(1, 1, "linux/textures/rock_01.dds"), product_row(2, 1, "linux/textures/rock_01.mip")],
        put_edge=[edge_row(0, "textures/sand.png")],
        put_run=[
            (1, 9, NOW_MS - 1000, 1420, 1, "the source changed", "IDAT chunk is broken", "JobLogs/rock-9.log", 0xABC, "1",
         b"", "", ""),
            (1, 7, NOW_MS - 90_000, 900, 0, "new source", "", "JobLogs/rock-7.log", 0xAB, "1", b"", "", ""),
        ],
    )  # fmt: skip


def notice(job_id: int, status: str, **changes: object) -> JobChanged:
    values: dict[str, object] = {
        "cause": 1, "job_id": job_id, "source": RelPath("textures/sand.png"), "scan_folder": 1, "platform": "linux",
        "job_key": "Image",
        "builder": "image", "status": status, "reason": "changed", "error": "", "warnings": 0, "errors": 0, "duration_ms": 5,
        "log_file": "", "run_key": RunKey(5),
    }  # fmt: skip
    return JobChanged(**(values | changes))  # type: ignore[arg-type]


class Session(FakeSession):
    """A fake engine that confirms the subscription at once."""

    running: tuple[int, ...] = ()

    def open(self) -> None:
        super().open()
        for listener in self.listeners:
            listener.note_subscription(3, 1, dict.fromkeys(self.running, 0))


Do = Callable[[AptuiApp, object, JobsPane], Awaitable[None]]


def in_jobs(
    tmp_path: Path, do: Do, *, size=LARGE, read_only=False, running=(), filler=fill, memory=None, panes=(PANES[0],), platforms=()
) -> AptuiApp:
    """Open the Jobs screen over the database, wait for its rows and the first log, call `do(app, pilot, pane)`."""
    cache = tmp_path / "cache"
    cache.mkdir(exist_ok=True)
    session = Session(cache)
    session.is_read_only, session.running = read_only, running
    remembered = memory or UiMemory(tmp_path / "project.json")

    async def main() -> AptuiApp:
        app = AptuiApp(session, memory=remembered, person=UiMemory(tmp_path / "person.json"), panes=list(panes), theme="dark")
        app.config = SimpleNamespace(
            checks=(),
            project=SimpleNamespace(
                platforms=[SimpleNamespace(id=each) for each in platforms],
                builders=(SimpleNamespace(uuid=BUILDER, name="image", patterns=(SimpleNamespace(text="*.png"),)),),
                scan_folders=(SimpleNamespace(path="/project/assets", is_intermediate=False),),
            ),
            project_dir=tmp_path,
            has_builders_to_find=False,
            log_dir=tmp_path / "logs",
        )
        copied: list[tuple[str, bool]] = []
        app.copied = copied
        app.copy_text = lambda words, *, raw=False: copied.append((words, raw))
        async with opened(app, size) as pilot:
            await until(pilot, lambda: "open" in session.done and isinstance(app.pane, JobsPane) and app.pane.store.is_loaded)
            pane = app.pane
            await until(pilot, lambda: pane.event_log.job_details is not None or not pane.store.total)
            await do(app, pilot, pane)
        return app

    with database(cache) as store:
        filler(store, tmp_path / "logs")
        app_left = asyncio.run(main())
        app_left.store_of_test = store
        return app_left

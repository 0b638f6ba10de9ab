"""A recording of a small engine, and a session that plays it by a clock that the test turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import to_builtins

from aptui.core.model import RelPath, RunKey
from aptui.core.notices import JobChanged, Notice, Progress
from aptui.link import codec
from aptui.link.recording import RecordingEnd, RecordingHead, RecordingWriter, read_recording
from aptui.store.history.replaying import ReplayedDatabase, copy_database
from aptui.tui.replay.session import ReplaySession
from tests.store.conftest import BUILDER, job_row, source_row
from tests.tui.database import database

STARTED_MS = 1_795_255_560_000
NAMES = ("textures/sand.png", "textures/rock.png", "meshes/hill.fbx")
EPOCH, SEQ = 3, 1


def job(job_id: int, status: str, **changes: object) -> JobChanged:
    values: dict[str, object] = {
        "cause": 1, "job_id": job_id, "source": RelPath(NAMES[job_id - 1]), "scan_folder": 1, "platform": "linux",
        "job_key": "Image", "builder": "image", "status": status, "reason": "the source changed", "error": "", "warnings": 0,
        "errors": 0, "duration_ms": 70, "log_file": "", "run_key": RunKey(50 + job_id),
    }  # fmt: skip
    return JobChanged(**(values | changes))  # type: ignore[arg-type]


def progress(done: int, failed: int, running: int, waiting: int) -> Progress:
    return Progress(1, 3, 0, 0, waiting, running, done, failed, False, failing_count=failed)


STORY: tuple[tuple[int, Notice], ...] = (
    (1_000, progress(0, 0, 1, 2)),
    (1_000, job(1, "processing")),
    (2_000, job(1, "completed", completed_ms=STARTED_MS + 2_000)),
    (2_500, progress(1, 0, 1, 1)),
    (3_000, job(2, "processing")),
    (5_000, job(2, "failed", error="no room on the wall", errors=1, completed_ms=STARTED_MS + 5_000)),
    (5_000, progress(1, 1, 0, 1)),
    (7_000, job(3, "completed", completed_ms=STARTED_MS + 7_000)),
    (7_000, progress(2, 1, 0, 0)),
)
LENGTH_MS = 8_000


def recorded(folder: Path, story: Sequence[tuple[int, Notice]] = STORY, length_ms: int = LENGTH_MS) -> Path:
    """Write a recording: three jobs, two of them completed before it began."""
    with database(folder) as store:
        names = NAMES[:2]
        store.put(
            put_source=[source_row(at, name) for at, name in enumerate(names, 1)],
            put_job=[job_row(at, at, warnings=0, completed_ms=STARTED_MS - 60_000, last_log="") for at in (1, 2)],
        )
        copy_database(folder / "assetdb.sqlite", folder / "copy.sqlite")
    path = folder / "a.rec"
    with open(path, "wb") as stream:
        writer = RecordingWriter(stream, 1 << 30)
        first = to_builtins(progress(0, 0, 0, 0))
        writer.add_head(RecordingHead("0.1.0", "lantern", STARTED_MS, EPOCH, SEQ, (), {BUILDER.hex(): "image"}, first))
        writer.add_database(folder / "copy.sqlite")
        for at, (at_ms, notice) in enumerate(story, SEQ + 1):
            is_failure = isinstance(notice, JobChanged) and notice.status == "failed"
            writer.add_news(at_ms, codec.encode_notice(notice, EPOCH, at), is_failure=is_failure)
        writer.end(RecordingEnd(length_ms, "stopped"))
    return path


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def played(tmp_path: Path, path: Path | None = None) -> Iterator[tuple[ReplaySession, Clock]]:
    """Open a recording; the session is not opened yet, and is closed at the end."""
    made, folder = tmp_path / "made", tmp_path / "played"
    made.mkdir()
    folder.mkdir()
    path = path or recorded(made)
    clock = Clock()
    found = read_recording(path, folder)
    with closing(ReplayedDatabase(folder / "assetdb.sqlite", {"image": BUILDER})) as replayed:
        session = ReplaySession(found, replayed, folder, clock_s=clock)
        try:
            yield session, clock
        finally:
            session.close()

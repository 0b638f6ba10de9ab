"""Notices and log records: what the engine reports. The field `cause` of a notice is the `seq` of the event that led to it.

They are not in `messages`, so that a program that only receives notices creates few classes at its start: each class takes almost a
millisecond.

Tests: `tests/core/pipeline/test_run_results.py`.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from aptui.core.model import RelPath, RunKey
from aptui.core.run_report import ContentFacts
from aptui.shared.connections.peers import GatewayReport, PeerOrder
from aptui.shared.health import Connection, Health

JobKey = int | tuple[int, str, str]


class LogLevel(IntEnum):
    """Severity of a log record, as O3DE's Asset Processor writes it in its log files."""

    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


class LogRecord(Struct, frozen=True):
    """One line of a job's log.

    `window` is the origin of the line (O3DE's word); `context` are key/value pairs shown with the line.
    """

    level: int
    window: str
    text: str
    time_ms: int
    context: tuple[tuple[str, str], ...] = ()


class JobChanged(Struct, frozen=True):
    """The whole state of one job; it replaces earlier notices. `status` is the status that users see; "" if the job is gone.

    `is_run` is False if no run happened: the job's inputs did not change, or the job is gone. `facts` are the combined facts of its
    products; `flaky` are the failures of runs before a run succeeded (`core.retry`), "" = none. `is_draft`: its products are drafts
    (`core.quality`). `is_critical`: the job runs before other jobs.
    """

    cause: int
    job_id: int
    source: RelPath
    scan_folder: int
    platform: str
    job_key: str
    builder: str
    status: str
    reason: str
    error: str
    warnings: int
    errors: int
    duration_ms: int
    log_file: str
    run_key: RunKey
    completed_ms: int = 0
    is_run: bool = True
    facts: ContentFacts | None = None
    flaky: str = ""
    is_draft: bool = False
    is_critical: bool = False

    @property
    def key(self) -> JobKey:
        """The identity of the job: its id, or the name of an analysis."""
        return self.job_id or (self.scan_folder, self.source, self.job_key)

    @property
    def is_of_its_source(self) -> bool:
        """Whether the job runs, or failed, because the bytes of its source changed (`core.fingerprint.explain`)."""
        is_unfinished = self.status in ("pending", "processing", "failed") or (self.status == "completed" and self.run_key)
        return bool(is_unfinished) and f"source '{self.source.lower()}' changed" in self.reason.lower()

    @property
    def failure(self) -> str:
        """Describe a failed job by its name and its error. If the error begins with the path, the path is not repeated."""
        return f"failed {self.source} ({self.platform}, {self.job_key}): {self.error.removeprefix(f'{self.source}:').lstrip()}"


class JobProgress(Struct, frozen=True):
    """Progress of the run of a job in per cent, as the builder reports it. A worker sends this notice at most ten times a second.

    This notice is not stored, and is sent after the notice that the job runs.
    """

    cause: int
    job_id: int
    run_key: RunKey
    percent: int


class ProductsChanged(Struct, frozen=True):
    """Products published or removed: (name, digest hex or "" when removed)."""

    cause: int
    products: tuple[tuple[str, str], ...]


class SourcesChanged(Struct, frozen=True):
    """Sources that appeared, changed or disappeared: (relative path, is present)."""

    cause: int
    sources: tuple[tuple[RelPath, bool], ...]


class EngineMessage(Struct, frozen=True):
    """A sentence for users about the whole engine, not about one job, such as "a link to a folder is not followed: …"."""

    cause: int
    level: int
    text: str


class Progress(Struct, frozen=True):
    """Counts of the work of the engine, at most 10 times a second; a newer notice replaces all older notices.

    `scan_ms`, `analysis_ms` and `processing_ms` are how long this scan, its analyses and its jobs have taken until now. `eta_ms` is
    the expected and `least_ms` the minimum remaining time; -1 = unknown. `jobs_done` and `jobs_failed` count the runs of this
    engine that completed and that failed.
    `done_before` and `failed_before` count the runs that ended before the present session, `done_now` and `failed_now` the runs
    of this session.
    `failing_count` is the number of jobs and analyses that are failed now, -1 = unknown.
    """

    cause: int
    files_scanned: int
    analyses_waiting: int
    analyses_running: int
    jobs_waiting: int
    jobs_running: int
    jobs_done: int
    jobs_failed: int
    is_scanning: bool
    scan_ms: int = 0
    analysis_ms: int = 0
    processing_ms: int = 0
    eta_ms: int = -1
    failing_count: int = -1
    least_ms: int = -1
    done_before: int = 0
    failed_before: int = 0

    @property
    def pending_count(self) -> int:
        """Number of jobs and analyses that have not ended yet."""
        return self.analyses_waiting + self.analyses_running + self.jobs_waiting + self.jobs_running

    @property
    def is_working(self) -> bool:
        """Whether the engine is checking files, or has pending jobs."""
        return self.is_scanning or self.pending_count > 0

    @property
    def done_now(self) -> int:
        """Number of completed runs of the present session."""
        return self.jobs_done - self.done_before

    @property
    def failed_now(self) -> int:
        """Number of failed runs of the present session."""
        return self.jobs_failed - self.failed_before


class MissingScan(Struct, frozen=True):
    """Progress of a search for missing dependencies; `name` is the scanned file, `error` why the search ended too early."""

    cause: int
    name: str
    file_count: int
    done_count: int = 0
    hit_count: int = 0
    seconds: float = 0.0
    is_over: bool = False
    error: str = ""


class HealthChanged(Struct, frozen=True):
    """The health of the engine changed; the notice contains the complete new health."""

    cause: int
    health: Health


class ConnectionsChanged(Struct, frozen=True):
    """Clients connected or disconnected; the notice lists all clients that are connected now.

    `gateway` is the gateway's report on its clients, None = no gateway.
    """

    cause: int
    connections: tuple[Connection, ...]
    gateway: GatewayReport | None = None


class ShowRequested(Struct, frozen=True):
    """Notice that a user wants to see a source, or its product `product` (a name, "" = none), in the editor or on the screen."""

    cause: int
    source: RelPath
    product: str = ""
    on_screen: bool = False


class PeerOrdered(Struct, frozen=True):
    """Notice that passes a client's request on to the gateway; no other subscriber receives it."""

    cause: int
    order: PeerOrder


Notice = (
    JobChanged | JobProgress | ProductsChanged | SourcesChanged | EngineMessage | Progress | HealthChanged | ConnectionsChanged
    | MissingScan | ShowRequested | PeerOrdered
)  # fmt: skip

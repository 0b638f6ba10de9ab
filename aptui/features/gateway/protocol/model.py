"""What the outer wire speaks of, in requests, answers and notifications alike: assets, jobs, and closed sets of words.

Tests: `tests/features/gateway/protocol/test_codec.py`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Match(StrEnum):
    """How a search term is meant: `exact` finds endings only.

    `default` also finds names without extension, and the term cut at its last `_`.
    """

    DEFAULT = "default"
    EXACT = "exact"


class Status(StrEnum):
    """How far an asset is."""

    UNKNOWN = "unknown"
    """The question named nothing."""
    MISSING = "missing"
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPILED = "compiled"
    FAILED = "failed"


class Reach(StrEnum):
    """Which dependencies are meant."""

    DIRECT = "direct"
    ALL = "all"


class Asset(Struct, frozen=True):
    """A product, as runtimes know it.

    `dependencies` are (asset id, flags), `legacy` its former asset ids, `digest` SHA-256 in hex.
    """

    id: str
    platform: str
    path: str
    type: str
    size: int
    digest: str
    dependencies: tuple[tuple[str, int], ...] = ()
    legacy: tuple[str, ...] = ()


class JobInfo(Struct, frozen=True):
    """A job: `status` is pending, processing, completed, failed or cancelled; `run_key` that of its last run, 0 = none.

    `is_draft`: its products are drafts, whose finals are still to come or failed.
    """

    job_id: int
    run_key: int
    source: str
    platform: str
    job_key: str
    builder: str
    status: str
    error: str = ""
    warnings: int = 0
    errors: int = 0
    duration_ms: int = 0
    completed_ms: int = 0
    is_draft: bool = False


class LogLine(Struct, frozen=True):
    """A line of a log: `level` 0 debug, 1 information, 2 warning, 3 error."""

    level: int
    text: str


class ScanFolderInfo(Struct, frozen=True):
    """A scan folder; `path` is absolute."""

    name: str
    path: str
    order: int
    is_recursive: bool


class DependencyInfo(Struct, frozen=True):
    """A product that another needs; `path` is "" when there is no such product.

    `flags` bits 0 to 3 are 0 load before, 1 right after, 2 on demand.
    """

    id: str
    path: str
    flags: int

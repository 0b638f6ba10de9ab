"""What clients are told on the outer wire without asking: one record each.

Tests: `tests/serve/ws/test_sessions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from aptui.serve.protocol.model import Asset, JobInfo


@dataclass(frozen=True, slots=True)
class Catalog:
    """Assets that there are; the last part has `is_last`. What was known of their platforms before is void when the first comes."""

    assets: tuple[Asset, ...]
    is_first: bool = False
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class AssetChanged:
    """A product is there, new or with other bytes."""

    asset: Asset


@dataclass(frozen=True, slots=True)
class AssetRemoved:
    """A product is gone; `id` "" = it is not known any more."""

    id: str
    platform: str
    path: str


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """A source appeared or changed."""

    path: str
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class SourceRemoved:
    """A source is gone."""

    path: str


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """A source cannot be processed: it could not be analysed, or a job of it failed."""

    path: str
    platform: str
    error: str


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A job runs."""

    job: JobInfo


@dataclass(frozen=True, slots=True)
class JobCompleted:
    """A job ended well."""

    job: JobInfo


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A job failed."""

    job: JobInfo


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is owed, over all platforms; `eta_ms` -1 = nobody can say."""

    waiting: int
    running: int
    done: int
    failed: int
    is_scanning: bool
    eta_ms: int = -1


@dataclass(frozen=True, slots=True)
class CriticalReady:
    """Nothing critical is owed for a platform any more: an editor can open while the rest goes on."""

    platform: str


@dataclass(frozen=True, slots=True)
class Show:
    """A person at the screen wants to see this in the editor: a source, and the product of it if one was chosen."""

    source: str
    source_file: str
    uuid: str
    product: str = ""
    platform: str = ""


@dataclass(frozen=True, slots=True)
class EngineChanged:
    """An engine came (`is_here`) or went; what is asked meanwhile is answered from what rests."""

    is_here: bool


@dataclass(frozen=True, slots=True)
class Resync:
    """Notifications were lost: what the client knows may be wrong. With `wants_catalog` the whole catalog follows."""

    why: str

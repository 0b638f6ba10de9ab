"""What clients are told on the outer wire without asking: one record each.

Tests: `tests/features/gateway/ws/test_sessions.py`.
"""

from __future__ import annotations

from msgspec import Struct

from aptui.features.gateway.protocol.model import Asset, JobInfo


class Catalog(Struct, frozen=True):
    """Assets that there are; the last part has `is_last`. What was known of their platforms before is void when the first comes."""

    assets: tuple[Asset, ...]
    is_first: bool = False
    is_last: bool = False


class AssetChanged(Struct, frozen=True):
    """A product is there, new or with other bytes."""

    asset: Asset


class AssetRemoved(Struct, frozen=True):
    """A product is gone; `id` "" = it is not known any more."""

    id: str
    platform: str
    path: str


class SourceChanged(Struct, frozen=True):
    """A source appeared or changed."""

    path: str
    uuid: str = ""


class SourceRemoved(Struct, frozen=True):
    """A source is gone."""

    path: str


class SourceFailed(Struct, frozen=True):
    """A source cannot be processed: it could not be analysed, or a job of it failed."""

    path: str
    platform: str
    error: str


class JobStarted(Struct, frozen=True):
    """A job runs."""

    job: JobInfo


class JobCompleted(Struct, frozen=True):
    """A job ended well."""

    job: JobInfo


class JobFailed(Struct, frozen=True):
    """A job failed."""

    job: JobInfo


class Counts(Struct, frozen=True):
    """How much is owed, over all platforms; `eta_ms` -1 = nobody can say."""

    waiting: int
    running: int
    done: int
    failed: int
    is_scanning: bool
    eta_ms: int = -1


class CriticalReady(Struct, frozen=True):
    """Nothing critical is owed for a platform any more: an editor can open while the rest goes on."""

    platform: str


class Show(Struct, frozen=True):
    """A person at the screen wants to see this in the editor: a source, and the product of it if one was chosen."""

    source: str
    source_file: str
    uuid: str
    product: str = ""
    platform: str = ""


class EngineChanged(Struct, frozen=True):
    """An engine came (`is_here`) or went; what is asked meanwhile is answered from what rests."""

    is_here: bool


class Resync(Struct, frozen=True):
    """Notifications were lost: what the client knows may be wrong. With `wants_catalog` the whole catalog follows."""

    why: str

"""Records of the gateway's WebSocket: requests and their answers, notifications, and the values in them.

`wire_codec` has their names and scopes. The docstrings are published in `config/aptui-serve.asyncapi.json`.

Tests: `tests/features/gateway/test_wire_codec.py`, `tests/features/gateway/ws/test_routing.py`.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct

# ------------------------------------------------------------------------------------------------------------------ values


class Match(StrEnum):
    """How a search term is matched.

    `exact` finds paths that end with the term. `default` finds more paths. It ignores the extensions of the term and of the path.
    For sources with pending jobs, it also finds paths that contain the part of the term before its last `_`.
    """

    DEFAULT = "default"
    EXACT = "exact"


class Status(StrEnum):
    """Status of an asset; `unknown`: the request named no asset."""

    UNKNOWN = "unknown"
    MISSING = "missing"
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPILED = "compiled"
    FAILED = "failed"


class Reach(StrEnum):
    """The dependencies to list: only direct ones, or all."""

    DIRECT = "direct"
    ALL = "all"


class Asset(Struct, frozen=True):
    """A product.

    `dependencies` are (asset id, flags), `legacy` its former asset ids, `digest` its SHA-256 in hexadecimal.
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
    """A job. `status` is pending, processing, completed, failed or cancelled; `run_key` names its last run, 0 = none.

    `is_draft`: its products are drafts, and the run that makes the final products is pending or failed. `percent`: progress of the
    current run, -1 = unknown.
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
    percent: int = -1


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
    """A product that another product needs; `path` is "" if the needed product does not exist.

    Bits 0 to 3 of `flags` are a number: 0 = load before, 1 = load right after, 2 = load on demand.
    """

    id: str
    path: str
    flags: int


# ---------------------------------------------------------------------------------------------------- requests and answers


class Hello(Struct, frozen=True):
    """The first request of a connection.

    Args:
        protocol: the version that the client speaks.
        client: display name of the client.
        platforms: platforms whose notifications the client gets; empty = all.
        project: name of the expected project; "" = any. Case does not matter.
        wants_catalog: send every asset of these platforms first, then changes.
        notices: names of the notifications that the client gets; empty = all.
    """

    protocol: int
    client: str
    platforms: tuple[str, ...] = ()
    project: str = ""
    wants_catalog: bool = False
    notices: tuple[str, ...] = ()


class Welcome(Struct, frozen=True):
    """The answer to `hello`.

    `connection` is the number of this connection, `scopes` are those of its token; `epoch` 0 = no engine is running.
    """

    protocol: int
    version: str
    project: str
    platforms: tuple[str, ...]
    connection: int
    scopes: tuple[str, ...]
    epoch: int
    seq: int


class Ping(Struct, frozen=True):
    """Request to check whether the gateway answers."""


class Done(Struct, frozen=True):
    """Answer without data: the request was carried out."""


class AssetStatus(Struct, frozen=True):
    """Request for the status of an asset; its pending jobs get a higher priority.

    Args:
        platform: "" = any.
        asset: an asset id, or the UUID of a source; `term` is then ignored.
        term: part of the path of a source or product.
        match: how `term` is matched.
        fence: wait until the engine has processed all earlier changes on the disk, even while all workers run long jobs. After 5 s
            the answer is sent with `is_fenced` false.
    """

    platform: str = ""
    asset: str = ""
    term: str = ""
    match: Match = Match.DEFAULT
    fence: bool = True


class WaitReady(AssetStatus, frozen=True):
    """Request like `asset_status` that is answered when the status is `compiled` or `failed`, or after `timeout_s` seconds."""

    timeout_s: float = 60.0


class AssetState(Struct, frozen=True):
    """The status of an asset; `jobs` are its pending and failed jobs.

    `is_fenced` is false if recent changes on the disk may be missing. `is_draft`: some of `assets` are drafts, and the runs that
    make the final products are pending or failed.
    """

    status: Status
    jobs: tuple[JobInfo, ...] = ()
    assets: tuple[Asset, ...] = ()
    is_fenced: bool = True
    is_draft: bool = False


class Escalate(AssetStatus, frozen=True):
    """Request to raise the priority of all jobs of some assets and their dependencies; assets are named as in `asset_status`."""


class Counted(Struct, frozen=True):
    """The number of sources or jobs that the request applies to."""

    count: int


class Interest(Struct, frozen=True):
    """Report of the assets (by id), sources and products (by path) that an editor or game shows, at most 1,000 in all.

    The jobs of these sources and of their dependencies run before other jobs, but after critical jobs and jobs of an `escalate`
    request. A report expires after 90 seconds. A client may send at most 100 requests per second that raise priorities.
    """

    assets: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


class ProcessorStatus(Struct, frozen=True):
    """Request for the number of pending jobs of a platform ("" = all), and whether all critical jobs have ended."""

    platform: str = ""


class ProcessorState(Struct, frozen=True):
    """State of the engine: idle, working, paused, draining, drained, held, in trouble, or "gone" while no engine is running.

    `is_ready`: the first scan is complete and no critical job is pending, so that an editor can open.
    """

    state: str
    is_ready: bool
    pending: int
    critical_pending: int
    failed: int
    is_scanning: bool


class PlatformStatus(Struct, frozen=True):
    """Request for the enabled platforms, and whether `platform` is enabled."""

    platform: str = ""


class PlatformState(Struct, frozen=True):
    """All enabled platforms. `is_enabled` says whether the requested platform is one of them."""

    is_enabled: bool
    platforms: tuple[str, ...]


class JobsInfo(Struct, frozen=True):
    """Request for the jobs of a source or asset, by search term, asset id or job key.

    `escalates` raises the priority of the pending jobs. `fence` as in `asset_status`.
    """

    asset: str = ""
    term: str = ""
    job_key: str = ""
    platform: str = ""
    escalates: bool = False
    fence: bool = True


class JobList(Struct, frozen=True):
    """The jobs of a source or asset; `is_cut`: the list is not complete; `is_fenced` as in `AssetState`."""

    jobs: tuple[JobInfo, ...]
    is_cut: bool = False
    is_fenced: bool = True


class JobLog(Struct, frozen=True):
    """Request for the log of the run `run_key`, or of the last run of the job `job_id`.

    `wants_path` also requests the path of the log file; this needs the scope `control`.
    """

    run_key: int = 0
    job_id: int = 0
    wants_path: bool = False


class JobLogText(Struct, frozen=True):
    """A log; `is_cut`: its beginning is left out."""

    lines: tuple[LogLine, ...]
    note: str = ""
    path: str = ""
    is_cut: bool = False


class SourceInfo(Struct, frozen=True):
    """Request for a source, by path (relative, absolute, or of one of its products), by UUID, or by the asset id of a product."""

    path: str = ""
    asset: str = ""


class SourceFacts(Struct, frozen=True):
    """A source with its products and jobs; if `is_found` is false, `path` repeats the request."""

    is_found: bool
    path: str
    uuid: str = ""
    scan_folder: str = ""
    scan_folder_path: str = ""
    products: tuple[Asset, ...] = ()
    jobs: tuple[JobInfo, ...] = ()


class ProductInfo(Struct, frozen=True):
    """Request for the products at a path or with an asset id, and their source; `platform` "" = for all platforms.

    If `asset` (an asset id) is set, `path` is ignored.
    """

    path: str = ""
    asset: str = ""
    platform: str = ""


class ProductFacts(Struct, frozen=True):
    """The requested products, and the relative and absolute path of their source. `products` is empty if none was found."""

    products: tuple[Asset, ...]
    source: str = ""
    source_file: str = ""
    source_uuid: str = ""


class ResolvePath(Struct, frozen=True):
    """Request to resolve an absolute or relative path of a source or product."""

    path: str
    platform: str = ""


class ResolvedPath(Struct, frozen=True):
    """The path of a source: `relative` to its scan folder, and absolute (`file`); `products` are the paths of its products.

    If `is_found` is false, `relative` repeats the request.
    """

    is_found: bool
    relative: str
    file: str = ""
    scan_folder: str = ""
    products: tuple[str, ...] = ()


class Dependencies(Struct, frozen=True):
    """Request for the run-time dependencies of a product, direct or all."""

    asset: str
    platform: str = ""
    reach: Reach = Reach.DIRECT


class DependencyList(Struct, frozen=True):
    """The products that the requested product needs; `is_cut`: the list is not complete."""

    dependencies: tuple[DependencyInfo, ...]
    is_cut: bool = False


class UnresolvedCounts(Struct, frozen=True):
    """Request to count the dependencies of a product that have no target."""

    asset: str
    platform: str = ""


class Unresolved(Struct, frozen=True):
    """The number of dependencies without a target, by asset id and by path."""

    by_id: int
    by_path: int


class ScanFolders(Struct, frozen=True):
    """Request for the scan folders."""


class ScanFolderList(Struct, frozen=True):
    """The scan folders in order of precedence; if a file is in several of them, the first one counts."""

    folders: tuple[ScanFolderInfo, ...]


class ClearFingerprint(Struct, frozen=True):
    """Request to run jobs again even if their inputs did not change: all jobs of the sources that `term` matches."""

    term: str


class Reprocess(Struct, frozen=True):
    """Request to run jobs again: the jobs of sources (paths or `*` patterns), or the jobs with these ids."""

    sources: tuple[str, ...] = ()
    job_ids: tuple[int, ...] = ()


class Rescan(Struct, frozen=True):
    """Request to check all sources again."""


class SaveCatalog(Struct, frozen=True):
    """Request to write the catalogs; answered when they are on the disk."""


class CheckMove(Struct, frozen=True):
    """Request for the effects of moving a source; nothing is moved."""

    source: str
    destination: str


class CheckDelete(Struct, frozen=True):
    """Request for the effects of deleting a source; nothing is deleted."""

    source: str


class RelocationCheck(Struct, frozen=True):
    """Effects of a move or deletion: affected files (old, new relative path), paths of files that depend on them, problems."""

    files: tuple[tuple[str, str], ...]
    dependants: tuple[str, ...]
    problems: tuple[str, ...]


class SendCatalog(Struct, frozen=True):
    """Request to send every asset of the client's platforms again, as after `hello`."""


class ReadProduct(Struct, frozen=True):
    """Request for bytes of a product, named by asset id or path; they are sent in binary frames after the answer.

    The bytes start at `offset`; `length` 0 = all bytes to the end.
    """

    asset: str = ""
    path: str = ""
    platform: str = ""
    offset: int = 0
    length: int = 0


class ProductBytes(Struct, frozen=True):
    """The product, and the number of bytes in the binary frames that follow."""

    product: Asset
    length: int


class Shutdown(Struct, frozen=True):
    """Request to stop the engine; `is_when_idle`: as soon as no job is pending."""

    is_when_idle: bool = False


# ----------------------------------------------------------------------------------------------------------- notifications


def _name_of(record: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", record).lower()


class Notice(Struct, frozen=True, tag_field="notice", tag=_name_of):
    """A notification; its JSON form has the field `notice` with its name, for example `asset_changed` for `AssetChanged`."""


class Catalog(Notice, frozen=True):
    """A part of the catalog; the first part replaces all earlier assets of the platforms, the last part has `is_last`."""

    assets: tuple[Asset, ...]
    is_first: bool = False
    is_last: bool = False


class AssetChanged(Notice, frozen=True):
    """A product is new or has other bytes."""

    asset: Asset


class AssetRemoved(Notice, frozen=True):
    """A product was removed; `id` "" = unknown."""

    id: str
    platform: str
    path: str


class SourceChanged(Notice, frozen=True):
    """A source was added or changed."""

    path: str
    uuid: str = ""


class SourceRemoved(Notice, frozen=True):
    """A source was removed."""

    path: str


class SourceFailed(Notice, frozen=True):
    """The analysis or a job of a source failed."""

    path: str
    platform: str
    error: str


class JobStarted(Notice, frozen=True):
    """A job runs."""

    job: JobInfo


class JobProgressed(Notice, frozen=True):
    """The builder of a running job reported its progress (`job.percent`); at most ten times a second for each worker."""

    job: JobInfo


class JobCompleted(Notice, frozen=True):
    """A job succeeded."""

    job: JobInfo


class JobFailed(Notice, frozen=True):
    """A job failed."""

    job: JobInfo


class Counts(Notice, frozen=True):
    """Numbers of jobs over all platforms; `eta_ms` -1 = unknown."""

    waiting: int
    running: int
    done: int
    failed: int
    is_scanning: bool
    eta_ms: int = -1


class CriticalReady(Notice, frozen=True):
    """No critical job of a platform is pending any longer, so an editor can open while other jobs run."""

    platform: str


class Show(Notice, frozen=True):
    """A user of the screen requests that the editor shows this source, or one of its products."""

    source: str
    source_file: str
    uuid: str
    product: str = ""
    platform: str = ""


class EngineChanged(Notice, frozen=True):
    """An engine has connected (`is_here`) or disconnected; without an engine, answers come from the database."""

    is_here: bool


class Resync(Notice, frozen=True):
    """Notifications were lost, so the client's data may be wrong. With `wants_catalog` the whole catalog follows."""

    why: str

"""Requests of clients to the gateway and their answers, one record each; scopes and JSON are `codec`'s.

Tests: `tests/features/gateway/ws/test_routing.py`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

# What the outer wire speaks of, in requests, answers and notifications alike: assets, jobs, and closed sets of words.


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


class Hello(Struct, frozen=True):
    """Who calls. Before it nothing else is answered.

    Args:
        protocol: the version that the client speaks.
        client: its name, for people.
        platforms: those it wants to hear of; none = all.
        project: the name of the project it expects; "" = any. Case does not matter.
        wants_catalog: every asset of these platforms first, then what changes.
        notices: the names of the notifications it wants; none = all.
    """

    protocol: int
    client: str
    platforms: tuple[str, ...] = ()
    project: str = ""
    wants_catalog: bool = False
    notices: tuple[str, ...] = ()


class Welcome(Struct, frozen=True):
    """Who answers.

    `connection` is this connection's number, `scopes` what the client may do, `epoch` 0 = no engine runs just now.
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
    """Ask whether anybody is there."""


class Done(Struct, frozen=True):
    """Nothing more to say than that it was done."""


class AssetStatus(Struct, frozen=True):
    """How far an asset is; what is owed is hurried.

    Args:
        platform: "" = any.
        asset: an asset id or the UUID of a source; then `term` is not looked at.
        term: part of the path of a source or product.
        match: how `term` is meant.
        fence: what changed on the disk before this was asked is taken into account: it is looked at, read and analysed first, also
            while all workers are in long jobs. Where that takes more than 5 s, the answer tells what is known, and `is_fenced` is
            false.
    """

    platform: str = ""
    asset: str = ""
    term: str = ""
    match: Match = Match.DEFAULT
    fence: bool = True


class WaitReady(Struct, frozen=True):
    """As `asset_status`, but answered when it is processed, `compiled` or `failed`, or with its state after `timeout_s`."""

    platform: str = ""
    asset: str = ""
    term: str = ""
    match: Match = Match.DEFAULT
    fence: bool = True
    timeout_s: float = 60.0


class AssetState(Struct, frozen=True):
    """The state; `jobs` are those that are pending, or that failed.

    `is_fenced` is false where what changed on the disk may not be in it. `is_draft`: some of `assets` are drafts, whose finals are
    still to come, or failed.
    """

    status: Status
    jobs: tuple[JobInfo, ...] = ()
    assets: tuple[Asset, ...] = ()
    is_fenced: bool = True
    is_draft: bool = False


class Escalate(Struct, frozen=True):
    """Hurry everything that makes these assets, and what they depend on. Named as in `asset_status`."""

    asset: str = ""
    term: str = ""
    platform: str = ""
    match: Match = Match.DEFAULT
    fence: bool = True


class Escalated(Struct, frozen=True):
    """How many jobs were hurried."""

    count: int


class Interest(Struct, frozen=True):
    """What an editor or a running game looks at: assets by id, sources and products by path, 1,000 in all at most.

    Their jobs come before others, and what these depend on, the newest look first; what was looked at 90 seconds ago counts as
    nothing. It may be said often; who escalates comes before who looks.
    """

    assets: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


class Interested(Struct, frozen=True):
    """How many sources that are."""

    count: int


class ProcessorStatus(Struct, frozen=True):
    """What is owed for a platform ("" = all), and whether everything critical is done."""

    platform: str = ""


class ProcessorState(Struct, frozen=True):
    """`state` is idle, working, paused, draining, drained, held, in trouble, or "gone" while no engine runs.

    `is_ready`: the first scan is over and no critical job is owed, so that an editor can open.
    """

    state: str
    is_ready: bool
    pending: int
    critical_pending: int
    failed: int
    is_scanning: bool


class PlatformStatus(Struct, frozen=True):
    """Which platforms products are made for."""

    platform: str = ""


class PlatformState(Struct, frozen=True):
    """`is_enabled` is about the platform that was asked for; `platforms` are all enabled ones."""

    is_enabled: bool
    platforms: tuple[str, ...]


class JobsInfo(Struct, frozen=True):
    """The jobs of a source or asset, by search term, asset id or job key; those that are owed are hurried if `escalates`."""

    asset: str = ""
    term: str = ""
    job_key: str = ""
    platform: str = ""
    escalates: bool = False
    fence: bool = True


class JobList(Struct, frozen=True):
    """Jobs; `is_cut` = there are more; `is_fenced` as in `AssetState`."""

    jobs: tuple[JobInfo, ...]
    is_cut: bool = False
    is_fenced: bool = True


class JobLog(Struct, frozen=True):
    """What a job logged: of the run `run_key`, or of the last run of `job_id`.

    With `wants_path` also where it lies (scope control).
    """

    run_key: int = 0
    job_id: int = 0
    wants_path: bool = False


class JobLogText(Struct, frozen=True):
    """A log; `is_cut` = its beginning was left out."""

    lines: tuple[LogLine, ...]
    note: str = ""
    path: str = ""
    is_cut: bool = False


class SourceInfo(Struct, frozen=True):
    """A source by its path (relative, absolute, or of one of its products), or by its UUID or the asset id of a product."""

    path: str = ""
    asset: str = ""


class SourceFacts(Struct, frozen=True):
    """A source and everything made of it; `is_found` false: nothing has that name, and `path` is what was asked."""

    is_found: bool
    path: str
    uuid: str = ""
    scan_folder: str = ""
    scan_folder_path: str = ""
    products: tuple[Asset, ...] = ()
    jobs: tuple[JobInfo, ...] = ()


class ProductInfo(Struct, frozen=True):
    """A product by its path or asset id, of one platform or ("") of all."""

    path: str = ""
    asset: str = ""
    platform: str = ""


class ProductFacts(Struct, frozen=True):
    """The products, and the source that they are made of, relative and absolute; no products = nothing has that name."""

    products: tuple[Asset, ...]
    source: str = ""
    source_file: str = ""
    source_uuid: str = ""


class ResolvePath(Struct, frozen=True):
    """What a path is, whoever's it is: an absolute one of a source or product, or a relative one of either."""

    path: str
    platform: str = ""


class ResolvedPath(Struct, frozen=True):
    """`relative` to its scan folder, `file` absolute; of a source its products' paths. Not found, it echoes what was asked."""

    is_found: bool
    relative: str
    file: str = ""
    scan_folder: str = ""
    products: tuple[str, ...] = ()


class Dependencies(Struct, frozen=True):
    """What a product needs at run time: one step far, or all the way."""

    asset: str
    platform: str = ""
    reach: Reach = Reach.DIRECT


class DependencyList(Struct, frozen=True):
    """The products that are needed, the asked one not among them; `is_cut` = there are more."""

    dependencies: tuple[DependencyInfo, ...]
    is_cut: bool = False


class UnresolvedCounts(Struct, frozen=True):
    """How many dependencies of a product lead to nothing."""

    asset: str
    platform: str = ""


class Unresolved(Struct, frozen=True):
    """By asset id, and by path."""

    by_id: int
    by_path: int


class ScanFolders(Struct, frozen=True):
    """Where sources are."""


class ScanFolderList(Struct, frozen=True):
    """The scan folders, the one that wins first."""

    folders: tuple[ScanFolderInfo, ...]


class ClearFingerprint(Struct, frozen=True):
    """Forget what the jobs of the sources that `term` means were made of: they run again."""

    term: str


class Reprocess(Struct, frozen=True):
    """Run jobs again: those of sources (paths or `*` patterns), or these."""

    sources: tuple[str, ...] = ()
    job_ids: tuple[int, ...] = ()


class Counted(Struct, frozen=True):
    """How many."""

    count: int


class Rescan(Struct, frozen=True):
    """Look at all sources again."""


class SaveCatalog(Struct, frozen=True):
    """Write the catalogs, and answer when they are on the disk."""


class CheckMove(Struct, frozen=True):
    """What would come of moving a source; nothing is moved."""

    source: str
    destination: str


class CheckDelete(Struct, frozen=True):
    """What would come of deleting a source; nothing is deleted."""

    source: str


class RelocationCheck(Struct, frozen=True):
    """The files that would move or go as (old, new) relative paths, who depends on them, and what stands in the way."""

    files: tuple[tuple[str, str], ...]
    dependants: tuple[str, ...]
    problems: tuple[str, ...]


class SendCatalog(Struct, frozen=True):
    """Every asset of the client's platforms once more, as after `hello`."""


class ReadProduct(Struct, frozen=True):
    """The bytes of a product, by asset id or path, in binary frames after the answer; `length` 0 = to its end."""

    asset: str = ""
    path: str = ""
    platform: str = ""
    offset: int = 0
    length: int = 0


class ProductBytes(Struct, frozen=True):
    """The product whose bytes follow, and how many they are."""

    product: Asset
    length: int


class Shutdown(Struct, frozen=True):
    """Stop the engine."""

    is_when_idle: bool = False


# What clients are told on the outer wire without asking: one record each.


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

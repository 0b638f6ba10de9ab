"""Records of sources, jobs and products, which all packages share; `core.project` has the records of the configuration.

Tests: `tests/core/test_rows.py`.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NewType

from msgspec import Struct, field

from aptui.core.quality import is_of_draft
from aptui.core.retry import JobFailure
from aptui.core.run_report import ContentFacts, Ties

RelPath = NewType("RelPath", str)
"""Path relative to a scan folder, `/` between parts, in the text form of `core.paths.to_text`."""
PathKey = NewType("PathKey", str)
"""A `RelPath` in lower case, which identifies a source across scan folders."""
Digest = NewType("Digest", bytes)
"""SHA-256 of a file's bytes, 32 bytes; `NO_DIGEST` when not known or the file is missing."""
RunKey = NewType("RunKey", int)
"""Number of one run of a job; later runs have higher numbers, and no number is used again. 0 = no run."""
SourceUuid = NewType("SourceUuid", bytes)
"""16 bytes, big-endian, as O3DE's `Sources.SourceGuid` holds them."""

NO_DIGEST = Digest(b"")
DUPLICATE_MARK = "\U0010ff01"
"""Character between path and scan folder in the key of a duplicate path (`FileFact.is_duplicate`).

`paths.to_text` escapes this character, so it does not occur in the text form of a file name.
"""
UNKNOWN_SIZE = -1
"""Value of a file's size if only its digest is known."""


class FileFact(Struct, frozen=True):
    """A file as `stat` reported it; `digest` and `hash64` (XXH64, seed 0) if its bytes were read, else `NO_DIGEST` and 0.

    `is_duplicate`: the file has a metadata type (`Project.metadata_types`), and an earlier scan folder has a file with the same
    path. Files of metadata types do not override each other, so each of them is a source.
    """

    scan_folder: int
    rel: RelPath
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: Digest = NO_DIGEST
    hash64: int = 0
    is_duplicate: bool = False

    @property
    def stamp(self) -> tuple[int, int, int, int]:
        """(size, mtime_ns, ctime_ns, inode) of the file: if all of them are unchanged, the file counts as unchanged."""
        return self.size, self.mtime_ns, self.ctime_ns, self.inode

    @property
    def key(self) -> PathKey:
        """The key of this file as a source."""
        return PathKey(f"{self.rel.lower()}{DUPLICATE_MARK}{self.scan_folder}" if self.is_duplicate else self.rel.lower())


class DependencyKind(IntEnum):
    """Meaning of a job dependency: whether the job waits for the other job, and runs again when the other job changes.

    FINGERPRINT: runs again, does not wait. ORDER: waits, and runs again. ORDER_ONCE: waits, unless the other job has completed at
    least once. ORDER_ONLY: waits. The names and meanings are those of O3DE's `JobDependencyType`.
    """

    FINGERPRINT = 0
    ORDER = 1
    ORDER_ONCE = 2
    ORDER_ONLY = 3


class JobDependency(Struct, frozen=True, order=True):
    """An edge from a job to the job named `key` of `source` on `platform`; `sub_ids` restrict it to some products.

    With `is_uuid`, `source` is a UUID of the source as 32 hex digits. A `source` with a `*` (`is_wildcard`) stands for all
    matching sources that have a job with this key.
    """

    source: PathKey
    key: str
    platform: str
    kind: DependencyKind
    sub_ids: tuple[int, ...] = ()
    is_uuid: bool = False

    @property
    def is_wildcard(self) -> bool:
        """Whether `source` is a pattern with a `*`, and not the name of one source."""
        return "*" in self.source and not self.is_uuid


class EdgeKind(IntEnum):
    """Meaning of `SourceEdge.target`."""

    PATH = 0
    WILDCARD = 1
    UUID = 2
    JOB = 3
    DISCOVERED = 4


class SourceEdge(Struct, frozen=True, order=True):
    """A source dependency as declared: `target` is a relative path (as written), a `*` pattern, or the UUID in hex.

    For DISCOVERED edges of an analysis, `target` is the absolute path of a file, existing or missing, that the analysis tried to
    read, and that is hidden: the project ignores it, or a file of another scan folder overrides it.
    """

    kind: EdgeKind
    target: str


class JobPlan(Struct, frozen=True):
    """A job that an analysis declares (a "job descriptor"). `params` is canonical JSON."""

    key: str
    platform: str
    priority: int = 0
    is_critical: bool = False
    additional_fingerprint: str = ""
    params: str = "{}"
    job_dependencies: tuple[JobDependency, ...] = ()


class ProductFlag(IntEnum):
    """Bits of `Products.Flags`, as O3DE's `ProductOutputFlags` has them."""

    PRODUCT = 1
    INTERMEDIATE = 2
    CACHED = 4


class LinkKind(IntEnum):
    """Kind of the target of a `ProductLink`; the first two are O3DE's `UnresolvedDependencyType`."""

    SOURCE_FILE = 0
    PRODUCT_FILE = 1
    ASSET = 2


class ProductLink(Struct, frozen=True):
    """A declared run-time dependency of a product; `store.db.product_links` resolves it in the database.

    `path` is in lower case, has no platform, and may contain `*`. It is relative, except that the path of a source may be
    absolute. For an ASSET it is "", and `source_uuid` and `sub_id` name the target. The low bits of `flags` are the load
    behaviour.
    """

    kind: LinkKind
    path: str = ""
    flags: int = 2
    source_uuid: bytes = b""
    sub_id: int = 0
    is_exclusion: bool = False


class Product(Struct, frozen=True):
    """A product in the cache. `name` is `<platform>/<path in lower case>`, `digest` SHA-256, `hash64` XXH64.

    `links` are products that it needs at run time. A change of only `links` or `facts` causes no run of other jobs.
    """

    name: str
    sub_id: int
    asset_type: bytes
    flags: int
    digest: Digest
    hash64: int
    size: int
    links: tuple[ProductLink, ...] = ()
    legacy_sub_ids: tuple[int, ...] = ()
    facts: ContentFacts | None = None


class JobState(StrEnum):
    """The seven states of a job (`core.machine`); the status that users see is derived from them."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    COMMITTING = "committing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


SHOWN: dict[str, str] = {
    JobState.WAITING: "pending",
    JobState.QUEUED: "pending",
    JobState.RUNNING: "processing",
    JobState.COMMITTING: "processing",
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
}
"""{state of a job: the status that users see}"""
SETTLED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class Job(Struct, eq=False):
    """One job in memory: (source, builder, platform, key). An analysis is a job with `key` = ANALYSIS_KEY and platform "".

    `fingerprint` is that of the last *committed* run, 0 if the job has no committed run. `planned` is the fingerprint of the
    pending plan, None while it is unknown. `inputs` is the manifest of the last committed run, `planned_inputs` the manifest of
    the plan: ((kind, name, digest hex), ...). `reason` is why the last plan needed a run, `origin` says where the committed
    result came from, "" = from a run of this engine. `discovered` are source dependencies found while processing (depfile). For
    an analysis, `fingerprint` and `planned` are analysis fingerprints, and `plans` and `edges` are from its last success.

    `tried` are the kinds of failure (`core.retry`) of the runs of the present plan that were retried. `flaky` are, as text, the
    kinds of failure of the runs that failed before the committed run succeeded. `stale_count`: consecutive runs whose source
    changed while they ran. `is_doubted`: settled in memory but stored as pending, because a change of a dependency is not saved
    yet. `is_unsaved`: it has no row, or a row from before its source changed; the row of the source's folder is saved only
    after the job's row. `is_due`: its next evaluation may plan its final products (`pipeline.plans`). `is_fetched`: the result
    before the present plan was not made by a run of this engine, so `duration_ms` is not the duration of a run. `ties` are the
    files that its last run used. `failure` is the failure of its last run; None after a success, or if no run is needed any more.
    `lost` are products that were missing or changed when they were checked; their files may still exist.
    """

    source: Source
    builder: bytes
    platform: str
    key: str
    id: int = 0
    state: JobState | None = None
    fingerprint: int = 0
    planned: int | None = None
    run_key: RunKey = RunKey(0)
    plan: JobPlan | None = None
    priority: int = 0
    is_critical: bool = False
    escalation: int = 0
    misses_dependency: bool = False
    is_forced: bool = False
    is_doubted: bool = False
    is_unsaved: bool = False
    is_due: bool = False
    is_fetched: bool = False
    tried: tuple[str, ...] = ()
    stale_count: int = 0
    reason: str = ""
    origin: str = ""
    flaky: str = ""
    error: str = ""
    inputs: tuple[tuple[str, str, str], ...] = ()
    planned_inputs: tuple[tuple[str, str, str], ...] = ()
    products: tuple[Product, ...] = ()
    lost: tuple[Product, ...] = ()
    discovered: tuple[tuple[str, str], ...] = ()
    warnings: int = 0
    errors: int = 0
    log_file: str = ""
    cycle: tuple[str, ...] = ()
    first_fail_ms: int = 0
    last_fail_ms: int = 0
    last_log_ms: int = 0
    first_fail_log: str = ""
    last_fail_log: str = ""
    failure_cause: str = ""
    duration_ms: int = 0
    completed_ms: int = 0
    plans: tuple[JobPlan, ...] = ()
    edges: tuple[SourceEdge, ...] = ()
    ties: Ties | None = None
    failure: JobFailure | None = None

    @property
    def full_reason(self) -> str:
        """The reason why the job's last plan needed a run, and the origin of the job's result, in one sentence."""
        return with_origin(self.reason, self.origin)

    def set_reason(self, reason: str) -> None:
        """Record why a run is needed. Clear `origin`, which belongs to the result that the run will replace."""
        self.is_fetched |= bool(self.origin)
        self.reason, self.origin = reason, ""

    @property
    def label(self) -> str:
        """The name of the job in texts: `relative path@platform:job key`."""
        return f"{self.source.rel}@{self.platform}:{self.key}"

    @property
    def is_draft(self) -> bool:
        """Whether the job's last products are drafts."""
        return is_of_draft(self.inputs)

    @property
    def is_finishing(self) -> bool:
        """Whether the job's present plan is to replace its draft by its final products."""
        return is_of_draft(self.inputs) and not is_of_draft(self.planned_inputs)

    @property
    def is_analysis(self) -> bool:
        """Whether this job is the analysis of a (source, builder)."""
        return self.key == ANALYSIS_KEY


def with_origin(reason: str, origin: str) -> str:
    """Combine a reason and an origin into one sentence; `store.queries.reader.REASON_SQL` gives the same text."""
    sentence = f"its result is {origin}" if origin else ""
    return f"{reason}; {sentence}" if reason and sentence else reason or sentence


ANALYSIS_KEY = "\x00analyse"
LISTED_ANALYSIS = "CreateJobs_"
"""Beginning of the job key of a failed analysis in lists of jobs, as in O3DE; the UUID of its builder follows."""
_ANALYSIS = "analysis"


def describe_key(job_key: str, builder: str = "") -> str:
    """Return a job key for users; for an analysis `analysis:BUILDER`, or `analysis` if the builder's name is unknown."""
    if not job_key.startswith(LISTED_ANALYSIS):
        return job_key
    return f"{_ANALYSIS}:{builder}" if builder and not builder.startswith("{") else _ANALYSIS


class SourceIdentity(Struct, frozen=True):
    """Content of a source's `.meta` file.

    `legacy` are earlier UUIDs, `original` is the path of the source when the file was made, `digest` covers the file's bytes, and
    `problem` says why the file cannot be used, "" = the file can be used.
    """

    uuid: SourceUuid
    legacy: tuple[SourceUuid, ...] = ()
    original: str = ""
    created_ms: int = 0
    digest: Digest = NO_DIGEST
    problem: str = ""


class Source(Struct, eq=False):
    """A source with its jobs, products and edges: the unit that is loaded from the database and removed from memory.

    `fact` is None if the file does not exist. `jobs`: {(builder uuid, platform, key): job}, with analyses. `trouble` is why the
    source cannot be analysed (a case clash, unreadable bytes), "" = it can be analysed. `last_ticket` is the ticket with which
    its rows were last ordered to be saved; until this ticket is acknowledged, the source stays in memory. `identity` is the
    content of its `.meta` file, `misidentity` why this identity cannot be used, "" = it can be used.
    """

    key: PathKey
    rel: RelPath
    scan_folder: int
    uuid: SourceUuid
    id: int = 0
    fact: FileFact | None = None
    jobs: dict[tuple[bytes, str, str], Job] = field(default_factory=dict)
    trouble: str = ""
    is_stored: bool = False
    last_ticket: int = 0
    identity: SourceIdentity | None = None
    misidentity: str = ""

    @property
    def is_duplicate(self) -> bool:
        """Whether an earlier scan folder has a file with the same path (`FileFact.is_duplicate`)."""
        return DUPLICATE_MARK in self.key

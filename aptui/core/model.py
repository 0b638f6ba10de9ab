"""The nouns every room shares: platforms, scan folders, builders, sources, jobs. Records only; the rules live elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NewType

RelPath = NewType("RelPath", str)
"""Path relative to a scan folder, `/` between parts, in the text form of `core.paths.to_text`."""
PathKey = NewType("PathKey", str)
"""A `RelPath` in lower case: what identifies a source across scan folders."""
Digest = NewType("Digest", bytes)
"""SHA-256 of a file's bytes, 32 bytes; `NO_DIGEST` when not known or the file is missing."""
RunKey = NewType("RunKey", int)
"""Rising number of one attempt at a job; 0 = none. Never reused."""
SourceUuid = NewType("SourceUuid", bytes)
"""16 bytes, big-endian (spec/surface.md §4)."""

NO_DIGEST = Digest(b"")
COMMON_PLATFORM = "common"
"""The platform of jobs that make intermediates (spec/engine.md §7)."""


@dataclass(frozen=True, slots=True)
class Platform:
    """What products are made for; `tags` in lower case, sorted."""

    id: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScanFolder:
    """A watched root. `id` is the row in ScanFolders; `path` is absolute, without a trailing slash; lower `order` wins."""

    id: int
    name: str
    path: str
    order: int = 0
    recursive: bool = True
    platforms: tuple[str, ...] = ()


class PatternKind(IntEnum):
    """How a pattern's text is read; both forms ignore case and match the whole relative path."""

    GLOB = 0
    REGEX = 1


@dataclass(frozen=True, slots=True)
class Pattern:
    """`text` as the user wrote it; `regex` is its translation for `re.fullmatch` with IGNORECASE on the relative path."""

    kind: PatternKind
    text: str
    regex: str


class BuilderKind(StrEnum):
    """Who does the work: `copy` needs no code; `command` runs a program; `python` is a class."""

    COPY = "copy"
    COMMAND = "command"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class CommandRule:
    """The `command:` form of a builder (config/builders.yaml documents each key)."""

    command: str
    products: tuple[str, ...] = ()
    depfile: str = ""
    dependency_regex: str = ""
    warning_regex: str = ""
    error_regex: str = ""


@dataclass(frozen=True, slots=True)
class Builder:
    """One enabled builder.

    `uuid` is the name UUID of `aptui:builder:<name>`; `code_digest` covers its code and tools (b"" for none);
    `origin` tells a worker where the code is: "entry:<name>", "file:<absolute path>:<class>", or "".
    `params` is canonical JSON (sorted keys) of the parameters common to all platforms; `platform_params` maps a platform id
    to canonical JSON that overrides `params` key by key; `platforms` are the enabled platform ids it works for, in order.
    `needs_analysis` is false for rules whose one job per platform is known without asking anyone (copy, command).
    """

    uuid: bytes
    name: str
    kind: BuilderKind
    version: str = "1"
    analysis_fingerprint: str = ""
    patterns: tuple[Pattern, ...] = ()
    platforms: tuple[str, ...] = ()
    origin: str = ""
    code_digest: bytes = b""
    params: str = "{}"
    platform_params: tuple[tuple[str, str], ...] = ()
    command: CommandRule | None = None
    priority: int = 0
    is_critical: bool = False
    deletes_products_on_failure: bool = False
    analyse_limit_s: float = 120.0
    process_limit_s: float = 3600.0
    memory_limit_bytes: int = 0
    asset_type: bytes = b""

    @property
    def needs_analysis(self) -> bool:
        """Whether `create_jobs` has to be asked in a worker."""
        return self.kind is BuilderKind.PYTHON


@dataclass(frozen=True, slots=True)
class Companion:
    """Metadata companion: a change of it re-runs its source (spec/engine.md §4).

    For a source that matches `source`, the companion is the source's path + "." + `suffix` or, when `replaces` is set and the source's
    extension equals it (no dot), the path with that extension replaced by `suffix`.
    """

    source: Pattern
    suffix: str
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """What the core needs to know of the configuration; the paths of cache and logs are the engine's business.

    `builders` in the order of the configuration; `signature` changes whenever anything in here that decides about jobs changes;
    `scan_signature` whenever scan folders or ignore rules do. `ignore_regex` matches (fullmatch, IGNORECASE) relative paths of files and
    folders that are not looked at; "" = none. `resting_platforms` are configured but not asked for this time: their jobs are left alone.
    `declared_builders` are the names in the configuration, `declared_platforms` its ids and tags, enabled or not.
    """

    platforms: tuple[Platform, ...]
    host_platform: str
    scan_folders: tuple[ScanFolder, ...]
    builders: tuple[Builder, ...]
    ignore_regex: str = ""
    companions: tuple[Companion, ...] = ()
    signature: str = ""
    scan_signature: str = ""
    workers: int = 2
    debug_output: bool = False
    resting_platforms: tuple[str, ...] = ()
    declared_builders: tuple[str, ...] = ()
    declared_platforms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file as `stat` saw it. `digest` and `hash64` (XXH64, seed 0) when its bytes were read, else `NO_DIGEST` and 0."""

    scan_folder: int
    rel: RelPath
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: Digest = NO_DIGEST
    hash64: int = 0


class DependencyKind(IntEnum):
    """What a job dependency means (spec/engine.md §3, the table)."""

    FINGERPRINT = 0
    ORDER = 1
    ORDER_ONCE = 2
    ORDER_ONLY = 3


@dataclass(frozen=True, slots=True, order=True)
class JobDependency:
    """An edge from a job to the job named `key` of `source` on `platform`; `sub_ids` narrow it to some products."""

    source: PathKey
    key: str
    platform: str
    kind: DependencyKind
    sub_ids: tuple[int, ...] = ()


class EdgeKind(IntEnum):
    """What `SourceEdge.target` holds."""

    PATH = 0
    WILDCARD = 1
    UUID = 2
    JOB = 3
    DISCOVERED = 4


@dataclass(frozen=True, slots=True, order=True)
class SourceEdge:
    """A source dependency as declared: `target` is a relative path (as written), a `*` pattern, or 32 hex digits of a UUID."""

    kind: EdgeKind
    target: str


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What an analysis says about one job (a "job descriptor"). `params` is canonical JSON."""

    key: str
    platform: str
    priority: int = 0
    is_critical: bool = False
    additional_fingerprint: str = ""
    params: str = "{}"
    job_dependencies: tuple[JobDependency, ...] = ()


class ProductFlag(IntEnum):
    """Bits of `Products.Flags` (spec/surface.md §4)."""

    PRODUCT = 1
    INTERMEDIATE = 2
    CACHED = 4


@dataclass(frozen=True, slots=True)
class Product:
    """A product in the cache. `name` is `<platform>/<path in lower case>`, `digest` SHA-256, `hash64` XXH64."""

    name: str
    sub_id: int
    asset_type: bytes
    flags: int
    digest: Digest
    hash64: int
    size: int


class JobState(StrEnum):
    """The seven states; what people see is derived (architecture, "The job machine")."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    COMMITTING = "committing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


SETTLED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


@dataclass(slots=True, eq=False)
class Job:
    """One job in memory: (source, builder, platform, key). An analysis is a job too, with `key` = ANALYSIS_KEY and platform "".

    `fingerprint` belongs to the last *committed* run, 0 = none; `planned` to the plan now owed, None = not known yet.
    `inputs` is the manifest of the last committed run, `planned_inputs` that of the plan: ((kind, name, digest hex), ...).
    `reason` says why the last plan was owed. `discovered` are source dependencies found while processing (depfile).
    For an analysis `fingerprint`/`planned` are analysis fingerprints, `plans` and `edges` what the last success said.
    `lost_count` counts LOST of the present plan, `stale_count` runs in a row whose source changed under them. `is_doubted`: it rests, but its row says that it is owed work until it has been looked
    at, for something it is made of is about to be saved.
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
    lost_count: int = 0
    stale_count: int = 0
    reason: str = ""
    error: str = ""
    inputs: tuple[tuple[str, str, str], ...] = ()
    planned_inputs: tuple[tuple[str, str, str], ...] = ()
    products: tuple[Product, ...] = ()
    discovered: tuple[tuple[str, str], ...] = ()
    warnings: int = 0
    errors: int = 0
    log_file: str = ""
    ring: tuple[str, ...] = ()
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

    @property
    def is_analysis(self) -> bool:
        """Whether this job is the analysis of a (source, builder)."""
        return self.key == ANALYSIS_KEY


ANALYSIS_KEY = "\x00analyse"


@dataclass(slots=True, eq=False)
class Source:
    """A source and everything that hangs on it: the unit that is loaded from and leaves to the database.

    `fact` is None when the file is gone. `jobs` by (builder uuid, platform, key), analyses included.
    `trouble` says why it cannot be analysed at all (a case clash, unreadable bytes), "" = nothing. `last_ticket` is the last order to
    save rows of it; until that is acknowledged the aggregate stays in memory.
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

"""What travels to workers and back: orders for runs and for reading files, and the results of those.

Workers import this and not the events and commands of the pipeline (`core.messages`), which stay in the engine.

Tests: `tests/core/pipeline/test_run_results.py`.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from aptui.core.model import JobPlan, ProductLink, SourceEdge
from aptui.core.notices import LogRecord
from aptui.core.run_report import NOTHING_USED, ContentFacts, Used


class PlannedInput(Struct, frozen=True):
    """A source dependency of a plan: the absolute path of its scan folder, its relative path, and the digest of its bytes (hex)."""

    root: str
    rel: str
    digest: str


class AnalyseOrder(Struct, frozen=True):
    """Ask builder `builder` (a name) for its jobs. `root` is the scan folder's absolute path; platforms are ids it works for.

    `settings` is what folders adjust (`core.settings.Adjustment.order`), "" for nothing. `declared` are the paths and patterns (in
    lower case) that the last analysis declared as source dependencies, `inputs` the existing files that these name.
    """

    run_key: int
    builder: str
    root: str
    rel: str
    source_uuid: bytes
    platforms: tuple[str, ...]
    limit_s: float
    settings: str = ""
    declared: tuple[str, ...] = ()
    inputs: tuple[PlannedInput, ...] = ()


class ProcessOrder(Struct, frozen=True):
    """Do one job.

    `params` is the canonical JSON of the plan's parameters; `staging` is an absolute folder that belongs to the run alone.
    `expected` is (size, mtime_ns, ctime_ns, inode) of the source as it was hashed: if it differs before or after, the
    outcome is STALE. `source_digest` is the digest those bytes had. `settings` is what folders adjust, as in
    `AnalyseOrder`. `quality` is `draft` or `final` (`core.results.quality`). `declared` and `inputs` are as in `AnalyseOrder`.
    """

    run_key: int
    builder: str
    root: str
    rel: str
    source_uuid: bytes
    platform: str
    job_key: str
    params: str
    additional_fingerprint: str
    priority: int
    is_critical: bool
    expected: tuple[int, int, int, int]
    source_digest: bytes
    staging: str
    limit_s: float
    memory_limit_bytes: int
    debug_output: bool = False
    keeps_temp: bool = False
    settings: str = ""
    quality: str = "final"
    declared: tuple[str, ...] = ()
    inputs: tuple[PlannedInput, ...] = ()


class CopyOrder(Struct, frozen=True):
    """Copy one source to the file `staged`.

    Nothing is written when its digest equals `present_digest`: the product is there already. With `takes_pointers` the pointer of
    a file that Git LFS has not fetched is copied like any other source.
    """

    run_key: int
    path: str
    staged: str
    present_digest: bytes = b""
    takes_pointers: bool = False


class HashOrder(Struct, frozen=True):
    """Read the files at these absolute paths; one answer each, in order.

    `copies` are, for each file, the paths at which copies of what is read may be staged, unless its digest is the one in `known`
    (b"" = none is): a job that copies it then need not read it again. With `asks_writers` a file that another process holds open
    for writing just then counts as changed while read, and is not copied.
    """

    order: int
    paths: tuple[str, ...]
    copies: tuple[tuple[str, ...], ...] = ()
    known: tuple[bytes, ...] = ()
    asks_writers: bool = False


class Outcome(IntEnum):
    """How a run ended.

    LOST: its worker died while it ran. RETURNED: its worker died before it began. STALE: its source changed under it.
    """

    SUCCEEDED = 0
    FAILED = 1
    LOST = 2
    RETURNED = 3
    STALE = 4
    CANCELLED = 5


class StagedProduct(Struct, frozen=True):
    """A product as a worker left it: `staged` is its absolute path in staging ("" = equal to the one in the cache, nothing staged).

    `name` is relative to the platform's cache folder, in lower case, `/` between parts. `is_executable`: its mode allows it.
    """

    staged: str
    name: str
    sub_id: int
    asset_type: bytes
    flags: int
    digest: bytes
    hash64: int
    size: int
    links: tuple[ProductLink, ...] = ()
    legacy_sub_ids: tuple[int, ...] = ()
    is_executable: bool = False
    facts: ContentFacts | None = None


class Read(Struct, frozen=True):
    """A file below a scan folder that a call opened for reading, declared or not: its absolute path, and the code that opened it.

    `where` is "file:line", or the name of a program; `digest` hex of the bytes, "" when it is missing; not known where only
    a warning may come of it, and then only files that are there are named. `is_hidden`: another scan folder has a file of that
    path, too, so that nobody else comes to know its bytes, or that it is missing; an earlier one has, where it is missing.
    """

    path: str
    where: str
    digest: str = ""
    is_hidden: bool = False


class AnalyseResult(Struct, frozen=True):
    """What `create_jobs` said. `error` is "" on success, else one line; `kind` says what it failed of, as in `RunResult`.

    `is_unfinished`: it asked which files a new pattern matches; `edges` declare that pattern, and the analysis must be repeated.
    """

    run_key: int
    outcome: int
    error: str = ""
    plans: tuple[JobPlan, ...] = ()
    edges: tuple[SourceEdge, ...] = ()
    log: tuple[LogRecord, ...] = ()
    duration_ms: int = 0
    reads: tuple[Read, ...] = ()
    used: Used = NOTHING_USED
    kind: str = ""
    is_unfinished: bool = False


class RunResult(Struct, frozen=True):
    """What one run of a job left behind. `error` is "" on success, else one line, the first error.

    `source_digest`/`source_hash64` are those of the bytes the builder was given. `discovered` are dependencies found while
    processing: ((absolute path, digest hex or "" when missing), ...). `origin` says for people where it comes from when no
    builder ran, "" = one did. `kind` is what it failed of (`core.results.retry`), "" = nobody knows, or another run would, too.
    `probed` are ((absolute path, "" = it was looked for and is missing), (listed folder and `/*`, digest of its names), ...):
    a stored result counts only where they are the same. `is_private`: it is not stored, for it read what its key does not cover.
    `is_final`: it is a final, though a draft was asked for (`core.results.quality`).
    """

    run_key: int
    outcome: int
    error: str = ""
    products: tuple[StagedProduct, ...] = ()
    source_digest: bytes = b""
    discovered: tuple[tuple[str, str], ...] = ()
    log: tuple[LogRecord, ...] = ()
    warnings: int = 0
    errors: int = 0
    duration_ms: int = 0
    peak_rss_bytes: int = 0
    command_line: str = ""
    reprocess: tuple[str, ...] = ()
    reads: tuple[Read, ...] = ()
    probed: tuple[tuple[str, str], ...] = ()
    is_private: bool = False
    origin: str = ""
    used: Used = NOTHING_USED
    kind: str = ""
    is_final: bool = False


class HashResult(Struct, frozen=True):
    """Answer to a `HashOrder`: per path (digest, hash64, size, mtime_ns, ctime_ns, inode), or None when gone or changed while read.

    Both digest b"" and size -1 mean the file cannot be read; `errors` then holds {index: text} as pairs. `staged` are
    (index, milliseconds that it took) of the files whose copies are all staged and durable; `unasked` those of them of which this
    worker could not tell whether somebody wrote them then.
    """

    order: int
    files: tuple[tuple[bytes, int, int, int, int, int] | None, ...]
    errors: tuple[tuple[int, str], ...] = ()
    staged: tuple[tuple[int, int], ...] = ()
    unasked: tuple[int, ...] = ()

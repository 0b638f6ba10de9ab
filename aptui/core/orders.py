"""Orders to workers, for runs and for reading files, and their results.

Workers import this module and not the events and commands of the pipeline (`core.messages`), which stay in the engine.

Tests: `tests/core/pipeline/test_run_results.py`.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from aptui.core.model import JobPlan, ProductLink, SourceEdge
from aptui.core.notices import LogRecord
from aptui.core.run_report import NOTHING_USED, ContentFacts, Used


class PlannedInput(Struct, frozen=True):
    """A file that a plan depends on: the absolute path of its scan folder, its relative path, and the digest of its bytes (hex)."""

    root: str
    rel: str
    digest: str


class AnalyseOrder(Struct, frozen=True):
    """Order to call `create_jobs` of the builder named `builder`. `root` is the scan folder's absolute path.

    `platforms` are the ids of the platforms to plan jobs for. `settings` are the adjustments by folder settings
    (`core.settings.FolderAdjustment`), "" = none. `declared` are the paths and patterns (in lower case) that the last analysis
    declared as source dependencies, `inputs` the existing files with these names.
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
    """Order to do one job.

    `params` is the canonical JSON of the plan's parameters; `staging` is an absolute folder that belongs to the run alone.
    `expected` is (size, mtime_ns, ctime_ns, inode) of the source when it was hashed, and `source_digest` is the digest of its
    bytes then. If the source differs from `expected` before or after the run, the outcome is STALE. `settings` are adjustments,
    as in `AnalyseOrder`. `quality` is `draft` or `final` (`core.quality`). `declared` and `inputs` are as in `AnalyseOrder`.
    With `is_batched` the worker may start the command once for this order and others in the same message.
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
    is_batched: bool = False


class CopyOrder(Struct, frozen=True):
    """Order to copy one source file to the file `staged`.

    If the digest of the source equals `present_digest`, nothing is written, because the product exists already. With
    `takes_pointers` the pointer of a file that Git LFS has not fetched is copied like any other source.
    """

    run_key: int
    path: str
    staged: str
    present_digest: bytes = b""
    takes_pointers: bool = False


class HashOrder(Struct, frozen=True):
    """Order to read the files at these absolute paths; the result has one entry for each path, in the same order.

    `copies` has a tuple of paths for each file. While the worker reads the file, it may stage copies at these paths, so that jobs
    that copy the file need not read it again. If the digest of a file equals its digest in `known` (b"" = none), no copy of it is
    staged. If `asks_writers` is set, the worker does not copy a file that another process holds open for writing. The result then
    says that this file changed while it was read.
    """

    order: int
    paths: tuple[str, ...]
    copies: tuple[tuple[str, ...], ...] = ()
    known: tuple[bytes, ...] = ()
    asks_writers: bool = False


class Outcome(IntEnum):
    """How a run ended.

    LOST: the worker died during the run. RETURNED: the worker died before the run began. STALE: the source changed during the run.
    """

    SUCCEEDED = 0
    FAILED = 1
    LOST = 2
    RETURNED = 3
    STALE = 4
    CANCELLED = 5


class StagedProduct(Struct, frozen=True):
    """A product as a worker left it. `staged` is its absolute path in staging, "" if it equals the product in the cache.

    `name` is relative to the platform's cache folder, in lower case, `/` between parts. `is_executable`: its mode allows execution.
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
    """A file below a scan folder that a run opened for reading, declared or not. `path` is absolute.

    `where` is the code that opened the file: "file:line", or a program's name. `digest` is the hex digest of the bytes, "" if
    the file is missing. `digest` is also "" for an existing file if the read can only cause a warning. `is_hidden`: the
    file is not a source, because the project ignores it, or because another scan folder has a file of the same relative path
    (`worker.reads`). Scans do not read hidden files, and do not notice when one is missing.
    """

    path: str
    where: str
    digest: str = ""
    is_hidden: bool = False


class AnalyseResult(Struct, frozen=True):
    """Result of one analysis (`create_jobs`).

    `error` is "" on success, else one line; `kind` is the kind of failure, as in `RunResult`.

    `is_unfinished`: the analysis asked which files match a pattern that it had not declared before. `edges` now declare the
    pattern, so that the analysis can run again with the list of these files. `is_for_all_sources`: the plans of this analysis
    are the same for every source with the same platforms and settings.
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
    is_for_all_sources: bool = False


class RunResult(Struct, frozen=True):
    """Result of one run of a job. `error` is "" on success, else one line, the first error.

    `source_digest` is the digest of the bytes that the builder received. `discovered` are dependencies found while processing:
    ((absolute path, digest hex or "" when missing), ...). `origin` says where the result comes from if no builder ran, else "".
    `kind` is the kind of failure (`core.retry`), "" if it is unknown or if another run would fail in the same way. `probed` are
    (absolute path, "") for each file that was searched for and is missing, and (folder + `/*`, digest of its names) for each
    folder that was listed: a stored result counts only if all these are unchanged. `is_private`: the result is not put into a
    shared or local store, because the key of a stored result would not cover everything that the run read. `is_final`: the
    result has final products, although a draft was requested (`core.quality`). `is_durable`: its staged products are synced to
    the disk; otherwise the commit syncs them.
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
    is_durable: bool = False


class HashResult(Struct, frozen=True):
    """Answer to a `HashOrder`.

    `files` are (digest, hash64, size, mtime_ns, ctime_ns, inode) for each path, None if the file is gone or changed while it was
    read. Digest b"" and size -1 mean that the file cannot be read; `errors` then has (index, error text). `staged` are (index,
    duration in ms) of files whose copies are all staged and durable. `unasked` are the indices of the files for which this worker
    could not find out whether other processes write to them.
    """

    order: int
    files: tuple[tuple[bytes, int, int, int, int, int] | None, ...]
    errors: tuple[tuple[int, str], ...] = ()
    staged: tuple[tuple[int, int], ...] = ()
    unasked: tuple[int, ...] = ()

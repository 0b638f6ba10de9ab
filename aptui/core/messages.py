"""The two vocabularies of the pipeline: events and commands.

Messages to workers are in `orders`, notices to clients in `notices`. Events are facts (past tense), commands are orders
(imperative). Events about files and runs carry batches, because the loop must move thousands of them a second. Each command and
notice carries `cause`, the `seq` of the event that led to it.

Tests: `tests/core/pipeline/test_run_results.py`.
"""

from __future__ import annotations

from msgspec import Struct

from aptui.core.model import FileFact, PathKey, Product, SourceIdentity
from aptui.core.notices import LogRecord
from aptui.core.orders import AnalyseOrder, AnalyseResult, CopyOrder, ProcessOrder, RunResult
from aptui.core.run_report import OutsideFile

# ------------------------------------------------------------------------------------------------------------------ events


class ScanStarted(Struct, frozen=True):
    """Event: a scan of the relative folder `below` (lower case, "" = everything) began.

    `retries`: unfinished and failed jobs are tried again during the scan.
    """

    seq: int
    below: str = ""
    retries: bool = True


class FolderSeen(Struct, frozen=True):
    """Event: the scan found a folder that differs from its last known state, or that must be checked again.

    The folder is a relative path; its files may be in several scan folders.

    Args:
        folder: relative folder in lower case, "" = top.
        facts: the new and changed files, each with its digest if the digest is stored; without files that a file of an earlier
            scan folder overrides (`core.paths.merge_folder`).
        gone: keys of stored files of this folder that no longer exist.
        clashes: the files whose name differs only in case from other names in their scan folder, each as (fact, the other
            names); these files are not in `facts`.
        rows: the new rows of the folder table, one for each scan folder in which the folder exists: (scan folder id, folder
            digest, all files that the folder has there).
        settings: the text of the folder's settings file (`core.settings`), "" = no file, None = unchanged.
        identities: (key of a source, content of its `.meta` file) for the sources of `facts` that have a `.meta` file.
    """

    seq: int
    folder: str
    facts: tuple[FileFact, ...]
    gone: tuple[PathKey, ...]
    clashes: tuple[tuple[FileFact, tuple[str, ...]], ...]
    rows: tuple[tuple[int, bytes, tuple[FileFact, ...]], ...]
    settings: str | None = None
    identities: tuple[tuple[PathKey, SourceIdentity], ...] = ()


class FilesSeen(Struct, frozen=True):
    """Event: known files were checked one by one and have to be read again. Each of them is the winner of its path.

    The event does not cover their folders: the row of a folder is saved only when the whole folder has been checked.
    """

    seq: int
    facts: tuple[FileFact, ...]


class FoldersUnchanged(Struct, frozen=True):
    """Event: the scan found no change in these folders (relative paths in lower case)."""

    seq: int
    folders: tuple[str, ...]


class SlotsFree(Struct, frozen=True):
    """Event: the engine may send workers up to `count` messages now; one message can start several jobs.

    `critical` is the limit in place of `count`, if it is higher and the next job is an analysis or a critical job. `jobs` is the
    maximum number of jobs that start now, 0 = no limit. The job with the id `job_id` starts first.
    """

    seq: int
    count: int
    jobs: int = 0
    job_id: int = 0
    critical: int = 0


class ScanFinished(Struct, frozen=True):
    """Event: the scan has reported every folder. A file that it did not report no longer exists."""

    seq: int


class FilesHashed(Struct, frozen=True):
    """The answer to `HashFiles`: `facts` are the files that were read, with digests.

    `unreadable` are (key, error text) of files that could not be read, `unstable` the keys of files that changed while they were
    read. `copies` are (key, run keys, milliseconds): copies of exactly these bytes are staged under the run keys that `HashFiles`
    named. `has_more`: another `FilesHashed` follows soon; copies and rows of both events are stored together.
    """

    seq: int
    facts: tuple[FileFact, ...]
    unreadable: tuple[tuple[PathKey, str], ...] = ()
    unstable: tuple[PathKey, ...] = ()
    copies: tuple[tuple[PathKey, tuple[int, ...], int], ...] = ()
    now_ms: int = 0
    has_more: bool = False


class OutsideSeen(Struct, frozen=True):
    """Event: runs have read files outside all scan folders, and these files changed. `files`: pairs (absolute path, new state)."""

    seq: int
    files: tuple[tuple[str, OutsideFile], ...]


class RunsFinished(Struct, frozen=True):
    """Event: results of runs and analyses, in the order in which they arrived."""

    seq: int
    results: tuple[AnalyseResult | RunResult, ...]
    now_ms: int = 0


class ProductsCommitted(Struct, frozen=True):
    """Event: the commit ordered by `CommitProducts` ended at `now_ms`.

    `failed` are (run key, error text, number of products that were moved before the error). All products of the `committed` runs
    are in the cache, and their rows are saved.
    """

    seq: int
    committed: tuple[int, ...]
    failed: tuple[tuple[int, str, int], ...]
    now_ms: int = 0


class ProductsLost(Struct, frozen=True):
    """Event: products that have rows in the database are no longer in the cache; `names` are the product names."""

    seq: int
    names: tuple[str, ...]


class RowsSaved(Struct, frozen=True):
    """Event: the database has saved the rows of all `SaveRows` commands with tickets up to `ticket`."""

    seq: int
    ticket: int


class RequestReceived(Struct, frozen=True):
    """Event: a request of a client. `verb` is one of the words below, `keys` are sources, `job_ids` jobs.

    The words are "reprocess", "cancel", "escalate", "stop", "analyse", "save", "interest" and "expire". "escalate" raises
    the urgency of jobs to at least `value`. "analyse" does so for pending analyses, because a client needs the list of jobs. "save"
    saves every job without a row, so that a client can read it. "interest" boosts the sources `keys`; each boost has a number,
    `value`, that is not lower than the number of the previous boost. "expire" ends all boosts with numbers up to `value`.
    """

    seq: int
    verb: str
    keys: tuple[PathKey, ...] = ()
    job_ids: tuple[int, ...] = ()
    value: int = 0


Event = (
    ScanStarted
    | FolderSeen
    | FilesSeen
    | FoldersUnchanged
    | ScanFinished
    | SlotsFree
    | FilesHashed
    | OutsideSeen
    | RunsFinished
    | ProductsCommitted
    | ProductsLost
    | RowsSaved
    | RequestReceived
)

# ---------------------------------------------------------------------------------------------------------------- commands

Rows = dict[str, list[tuple[object, ...]]]
"""{operation of `store.db.writer`: parameter tuples}; applied in the writer's fixed order within one transaction."""


class HashFiles(Struct, frozen=True):
    """Read the bytes of these files; the answer is `FilesHashed`.

    `copies` are, for each file, the run keys under which copies may be staged while it is read; () unless all its jobs are copies.
    `known` is, for each file, the last known digest, b"" = none; a file that still has this digest is not copied. Both are empty
    if no file is copied.
    """

    cause: int
    files: tuple[FileFact, ...]
    copies: tuple[tuple[int, ...], ...] = ()
    known: tuple[bytes, ...] = ()


class StartRuns(Struct, frozen=True):
    """Send one message to one worker: orders of one kind."""

    cause: int
    orders: tuple[AnalyseOrder | ProcessOrder | CopyOrder, ...]


class KillRuns(Struct, frozen=True):
    """Stop these runs, and ignore messages that still arrive from them."""

    cause: int
    run_keys: tuple[int, ...]


class JobCommit(Struct, frozen=True):
    """The changes of one job in a commit; `Pipeline.commit_rows` returns the rows that are saved with them.

    `products` are moved into the cache: (staged path, product). Products with `stale` names are deleted, and products with
    `touched` names get a new modification time. `is_first`: the job has no earlier products. `identities` are the `.meta` files of
    its intermediates: (product, bytes, whether the file replaces an existing file); they are written before the products are
    moved. `is_durable`: the products are already synced to the disk.
    """

    run_key: int
    job_id: int
    products: tuple[tuple[str, Product], ...]
    stale: tuple[str, ...]
    touched: tuple[str, ...] = ()
    is_first: bool = False
    identities: tuple[tuple[str, bytes, bool], ...] = ()
    is_durable: bool = False


class CommitProducts(Struct, frozen=True):
    """Commit these jobs together before the next event is handled. This is always the last command in the answer to an event."""

    cause: int
    commits: tuple[JobCommit, ...]


class DeleteProducts(Struct, frozen=True):
    """Remove the products `names` from the cache after the rows of the `SaveRows` command with this ticket are saved."""

    cause: int
    names: tuple[str, ...]
    ticket: int


class SaveRows(Struct, frozen=True):
    """Save these rows in one transaction; answered by `RowsSaved(ticket)`.

    Transactions are saved in the order of their commands.
    """

    cause: int
    ticket: int
    rows: Rows


class WriteLog(Struct, frozen=True):
    """Write the log of a run to `file` (relative to the log folder); without records nothing is written."""

    cause: int
    file: str
    records: tuple[LogRecord, ...]
    warnings: int = 0
    errors: int = 0


class DropLogs(Struct, frozen=True):
    """Remove superseded logs (relative to the log folder)."""

    cause: int
    files: tuple[str, ...]


class DiscardStaging(Struct, frozen=True):
    """Delete the staged files of these runs."""

    cause: int
    run_keys: tuple[int, ...]


class RecheckFiles(Struct, frozen=True):
    """Check these files again soon, because they changed while they were read."""

    cause: int
    keys: tuple[PathKey, ...]


class CompareFiles(Struct, frozen=True):
    """Check files again if they differ from `facts`: runs may have written to them, and a batch does not watch files."""

    cause: int
    facts: tuple[FileFact, ...]


class DescribeBuilder(Struct, frozen=True):
    """Report that a run of the builder `builder` used code or tools that differ from those in the builder's description.

    No run of any builder starts until the builders are described again. If the descriptions differ then, a new pipeline is needed.
    """

    cause: int
    builder: str


Command = (
    HashFiles
    | StartRuns
    | KillRuns
    | CommitProducts
    | DeleteProducts
    | SaveRows
    | WriteLog
    | DropLogs
    | DiscardStaging
    | RecheckFiles
    | CompareFiles
    | DescribeBuilder
)

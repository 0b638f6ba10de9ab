"""The seam to the asset database: the questions that the core may ask of it, and the names of the rows it has saved.

The real implementer is `store.archive`; tests use a fake of dicts. Every answer shows committed rows only: what was ordered
saved and is not acknowledged yet, the pipeline overlays from memory.

Tests: `tests/core/records/test_rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from aptui.core.model import FileFact, PathKey, Source, SourceUuid
from aptui.core.results.run_report import OutsideFile

SETTINGS_STATE = "settings:"
"""What begins the keys in `aptui_state` of the texts of `core.settings`, each followed by its relative folder."""
ROW_OPERATIONS: dict[str, str] = {
    # name: its parameters, in order. The writer applies them in this order within a transaction.
    "drop_source": "source_id",  # with its jobs, products, analyses, runs, conflicts and stats of analyses
    "drop_analysis": "source_id, builder_uuid",
    "drop_job": "job_id",  # with its products, runs and conflicts
    "drop_products": "job_id",  # those that the same rows put again, by name and sub id, keep their ids
    "drop_product": "product_id",
    "drop_declared": "product_id",  # its links, former sub ids and facts
    "drop_draft": "job_id",  # what it has made is its final, or gone
    "drop_edges": "source_uuid, builder_uuid",  # its rows in SourceDependency and aptui_edges
    "drop_folder": "scan_folder_id, folder",  # its row in aptui_folders
    "drop_file": "scan_folder_id, name",  # name: relative path
    "drop_conflict": "job_id",
    "drop_missing": "product_id",  # what a scan found in it; the names that were read of it stay
    "drop_legacy": "source_id",
    "put_source": "source_id, scan_folder_id, rel, source_uuid, path_key, digest, identity, mtime_ms, hash64",
    "put_legacy": "uuid, source_id, created_ms",  # a UUID that the source answers to as well
    "put_analysis": "source_id, builder_uuid, state, fingerprint|None, error, warnings, errors, duration_ms, completed_ms, "
    "log_file, reason, plans_blob, failure",
    "put_job": "job_id, source_id, job_key, fingerprint, platform, builder_uuid, status, run_key, first_fail_ms, first_fail_log, "
    "last_fail_ms, last_fail_log, last_ms, last_log, errors, warnings, state, planned|None, error, reason, inputs_blob, plan_blob, "
    "duration_ms, completed_ms, failure_cause, escalation, origin, failure",  # failure: core.results.retry, packed
    "put_product": "product_id, job_id, name, sub_id, asset_type, hash64, flags, digest, size",
    "put_link": "product_id, job_id, at, kind, platform, path, prefix|None, is_exclusion, source_uuid, sub_id, flags",
    "put_legacy_sub_id": "product_id, job_id, sub_id",
    "put_facts": "product_id, job_id, width, height, triangles, rate, seconds, format",
    "put_missing": "product_id, scanner, version, source_fingerprint, uuid, sub_id, text, when, scanned_s, product_name, digest",
    "put_missing_scan": "product_id, digest, terms, names_blob, product_name",
    "put_edge": "source_uuid, builder_uuid, kind, target, type_bits, sub_ids, from_asset_id, source_id",
    # products_digest and step: core.records.history
    "put_run": "job_id, run_key, completed_ms, duration_ms, outcome, reason, error, log_file, fingerprint, builder_version, "
    "products_digest, step, origin",
    "put_draft": "job_id, final",  # what it has made is a draft (core.results.quality); final: what is planned to replace it
    "put_retries": "job_id, run_key, kinds",  # what runs failed of before the one with this key succeeded (core.results.retry)
    "put_stat": "name, value_ms, time_ms",  # of an analysis; those of jobs are in their rows
    "put_conflict": "name, job_id",
    "put_folder": "scan_folder_id, folder, digest, files_blob",
    "put_file": "scan_folder_id, name, is_folder, mtime_ms, hash64",  # one that is no source
    "put_cache_folder": "name, ctime_ns",  # folder relative to the cache root
    "put_state": "key, value",
    # what is said of a session at its end (core.sessions): its runs are those of higher run keys than the last session's
    "put_session": "started_ms|0, ended_ms|0, kind, detail, commit_id, outcome, saved_ms, fetched_bytes",
    "prune_session": "session_id",  # a part of its runs becomes what was before all sessions
    "doubt_job": "job_id",  # its products may not be those recorded, or somebody asked: it needs a run whatever its inputs are
    "doubt_analysis": "source_id, builder",  # the same of an analysis
}
"""Operations of `Rows`. 64-bit hashes are signed for SQLite (`store.schema.to_signed`) by the writer's caller."""


class Archive(Protocol):
    """The stored state, by key; in batches, because one question a file would cost more than the answer."""

    def sources(self, keys: Sequence[PathKey]) -> dict[PathKey, Source]:
        """Return the stored sources among `keys`, each with all its jobs (analyses too), products and edges.

        `fact` of a source is taken from the folder table when it is there, else None; its digest is that of the source's row
        (`as_planned`).
        """
        ...

    def files(self, keys: Sequence[PathKey]) -> dict[PathKey, FileFact]:
        """Return what the folder table remembers of these files (winners only)."""
        ...

    def forget(self, folder: str) -> None:
        """The row of this relative folder was saved anew: drop any copy kept of it."""
        ...

    def files_below(self, prefix: PathKey) -> Iterable[FileFact]:
        """Yield remembered winners whose key starts with `prefix` (a folder with its slash, or "")."""
        ...

    def dependents(self, targets: Sequence[str]) -> dict[str, set[PathKey]]:
        """Return {target: keys of sources with an edge on it}; targets are keys or 32 hex digits, compared in lower case.

        Job dependencies (type bit 2) and discovered ones count as edges; wildcard edges do not.
        """
        ...

    def wildcards(self) -> list[tuple[str, PathKey]]:
        """Return every wildcard edge: (pattern in lower case, key of the source that has it)."""
        ...

    def keys_of(self, uuid: SourceUuid) -> list[PathKey]:
        """Return the keys of the stored sources that answer to this UUID.

        The one that has it comes first, then by scan folder and age.
        """
        ...

    def read_removed(self) -> dict[bytes, tuple[str, bytes]]:
        """Return {SHA-256: (relative path, UUID)} of sources that went without their identity file.

        They stand below `core.identity.REMOVED_SOURCE_STATE`.
        """
        ...

    def has_identities(self) -> bool:
        """Return whether any source has a `.meta` file."""
        ...

    def owners(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        """Return {product name: (job id, key of its source)} for products recorded under these names."""
        ...

    def owners_below(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        """Return {product name: (job id, key of its source)} for products recorded anywhere below folders of these names."""
        ...

    def conflicts(self, names: Sequence[str]) -> dict[str, list[tuple[int, PathKey]]]:
        """Return {product name: [(job id, key of its source)]} of jobs that failed because they made this name too.

        () = all names.
        """
        ...

    def list_unfinished(self) -> list[PathKey]:
        """Return the keys of sources with unfinished work.

        That is a job or an analysis that is neither COMPLETED nor CANCELLED, or an analysis without a fingerprint.
        """
        ...

    def drafts(self) -> list[PathKey]:
        """Return the keys of the sources that have jobs which rest on their drafts."""
        ...

    def key_of_jobs(self, job_ids: Sequence[int]) -> dict[int, PathKey]:
        """Return {job id: key of its source}."""
        ...

    def reason_of(self, job_id: int) -> tuple[str, str]:
        """Return (why the job's last committed run was needed, where its result came from), "" where that is not known."""
        ...

    def state(self, key: str) -> str | None:
        """Return the value of `key` in aptui_state."""
        ...

    def outside(self) -> dict[str, OutsideFile]:
        """Return {absolute path: what it was} of the files outside all scan folders that runs found (`core.results.outside`)."""
        ...

    def settings(self) -> dict[str, str]:
        """Return {relative folder: text of its settings} (`core.settings`), those in aptui_state that are not ""."""
        ...

    def has_intermediates(self) -> bool:
        """Return whether any job made an intermediate."""
        ...

    def has_edges(self) -> bool:
        """Return whether any source depends on anything."""
        ...

    def next_ids(self) -> tuple[int, int, int, int]:
        """Return the next free (source id, job id, product id, run key)."""
        ...

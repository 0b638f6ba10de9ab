"""Test doubles for the pure core: an archive, a disk and builders in dictionaries. `fake_world` drives them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from aptui.core import fingerprint, identity, retry, rows, run_report
from aptui.core.asset_checks import Check
from aptui.core.messages import FolderSeen, Rows
from aptui.core.model import (
    ANALYSIS_KEY,
    Digest,
    EdgeKind,
    FileFact,
    Job,
    JobState,
    LinkKind,
    PathKey,
    Product,
    ProductLink,
    RelPath,
    RunKey,
    Source,
    SourceIdentity,
    SourceUuid,
)
from aptui.core.orders import Outcome
from aptui.core.paths import key_of, merge_folder, name_uuid, parent
from aptui.core.patterns import wildcard_regex
from aptui.core.project import (
    COMMON_PLATFORM,
    Builder,
    BuilderKind,
    Companion,
    Pattern,
    PatternKind,
    Platform,
    Project,
    RetryFailed,
    ScanFolder,
)
from aptui.core.retry import RetryRule
from aptui.core.rows import ROW_OPERATIONS
from aptui.core.run_report import OUTSIDE_STATE, SETTINGS_STATE, OutsideFile
from aptui.core.settings import file_key
from aptui.core.state.conflicts import folders_above

_WIDTHS = {operation: len(parameters.split(",")) for operation, parameters in ROW_OPERATIONS.items()}
"""{row operation: number of values in its rows}."""

_OWNERS = {
    "put_legacy": ("sources", 1), "put_analysis": ("sources", 0), "put_job": ("sources", 1), "put_product": ("jobs", 1),
    "put_link": ("products", 0), "put_facts": ("products", 0), "put_legacy_sub_id": ("products", 0), "put_edge": ("sources", 7),
    "put_run": ("jobs", 0), "put_retries": ("jobs", 0), "put_draft": ("jobs", 0), "put_conflict": ("jobs", 1),
}  # fmt: skip
"""{row operation: (table that contains the owner of each row, column of the row with the owner's id)}."""
_REPLACED = {"put_retries": "retries", "put_draft": "drafts", "put_stat": "stats", "put_state": "state"}
"""{row operation that only replaces a value: its table, whose key is the first column}."""

Row = tuple[object, ...]


def sha(data: bytes | str) -> Digest:
    """Return the SHA-256 of `data`."""
    return Digest(hashlib.sha256(data.encode() if isinstance(data, str) else data).digest())


def glob(text: str) -> Pattern:
    """Return a glob pattern."""
    return Pattern(PatternKind.GLOB, text, wildcard_regex(text))


def builder(name: str, pattern: str, kind: BuilderKind, platforms: Sequence[str] = ("linux",), **more: object) -> Builder:
    """Return a builder for one pattern."""
    return Builder(
        uuid=name_uuid(f"aptui:builder:{name}".encode()),
        name=name,
        kind=kind,
        patterns=(glob(pattern),),
        platforms=tuple(platforms),
        **more,  # type: ignore[arg-type]
    )


def copier(name: str = "data", pattern: str = "*.txt", platforms: Sequence[str] = ("linux",), **more: object) -> Builder:
    """Return a builder that copies the sources that match `pattern`."""
    return builder(name, pattern, BuilderKind.COPY, platforms, **more)


def scripter(name: str = "script", pattern: str = "*.s", platforms: Sequence[str] = ("linux",), **more: object) -> Builder:
    """Return a builder whose sources contain its instructions: see `fake_world.Script`."""
    return builder(name, pattern, BuilderKind.PYTHON, platforms, **more)


MADE = "made"
"""The scan folder of intermediates, which every project of `Setup` has."""


class Setup(Struct, frozen=True):
    """A short form of a configuration; `project` returns the complete configuration."""

    builders: tuple[Builder, ...] = (copier(), scripter())
    platforms: tuple[str, ...] = ("linux",)
    folders: tuple[str, ...] = ("game",)
    companions: tuple[Companion, ...] = ()
    resting: tuple[str, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()
    """(folder, platform): the sources of this folder are not built for this platform."""
    debug_output: bool = False
    tags: tuple[str, ...] = ()
    metadata_types: tuple[str, ...] = ()
    retry: RetryRule | None = None
    resources: tuple[tuple[str, int], ...] = ()
    makes_finals: bool = True
    checks: tuple[Check, ...] = ()
    retry_failed: RetryFailed = RetryFailed.ALWAYS
    run_settings: tuple[tuple[str, str, str], ...] = ()
    memory_settings: tuple[tuple[str, str, str], ...] = ()

    @property
    def all_folders(self) -> tuple[str, ...]:
        """Return the names of the scan folders in their order, that of intermediates last."""
        return (*self.folders, MADE)

    def project(self, ids: Mapping[str, int]) -> Project:
        """Return the configuration as a project of the core."""
        ids = {MADE: len(ids) + 1, **ids}
        return Project(
            platforms=(*(Platform(name, self.tags) for name in self.platforms), Platform(COMMON_PLATFORM)),
            host_platform="linux",
            scan_folders=tuple(
                ScanFolder(
                    ids[name],
                    name,
                    f"/disk/{name}",
                    order,
                    platforms=tuple(item for item in self.platforms if (name, item) not in self.excluded),
                    is_intermediate=name == MADE,
                )
                for order, name in enumerate(self.all_folders)
            ),
            builders=self.builders,
            companions=self.companions,
            debug_output=self.debug_output,
            resting_platforms=self.resting,
            metadata_types=self.metadata_types,
            retry=self.retry,
            resources=self.resources,
            makes_finals=self.makes_finals,
            checks=self.checks,
            retry_failed=self.retry_failed,
            run_settings=self.run_settings,
            memory_settings=self.memory_settings,
        )


# ------------------------------------------------------------------------------------------------------------------ archive


@dataclass
class Tables:
    """The rows, by their keys."""

    sources: dict[int, Row] = field(default_factory=dict)
    jobs: dict[int, Row] = field(default_factory=dict)
    analyses: dict[tuple[int, bytes], Row] = field(default_factory=dict)
    products: dict[int, Row] = field(default_factory=dict)
    links: dict[int, tuple[ProductLink, ...]] = field(default_factory=dict)
    edges: set[tuple[str, int, bytes, int]] = field(default_factory=set)
    conflicts: set[tuple[str, int]] = field(default_factory=set)
    folders: dict[tuple[str, int], tuple[bytes, tuple[FileFact, ...]]] = field(default_factory=dict)
    files: dict[tuple[int, str], Row] = field(default_factory=dict)
    runs: dict[tuple[int, int], Row] = field(default_factory=dict)
    retries: dict[int, tuple[int, str]] = field(default_factory=dict)
    drafts: dict[int, int | None] = field(default_factory=dict)
    stats: dict[str, tuple[int, int]] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    legacy: set[tuple[bytes, int, int]] = field(default_factory=set)


@dataclass
class Index:
    """Indexes of rows.

    {source key or UUID: source id}, {source id: its jobs, builders, edges}, {job id: its products, runs}.
    """

    sources: dict[object, int] = field(default_factory=dict)
    uuids: dict[object, int] = field(default_factory=dict)
    jobs: dict[object, set[int]] = field(default_factory=dict)
    analyses: dict[int, set[bytes]] = field(default_factory=dict)
    edges: dict[int, dict[bytes, set[tuple[str, int, bytes, int]]]] = field(default_factory=dict)
    targets: dict[str, set[tuple[str, int, bytes, int]]] = field(default_factory=dict)
    products: dict[int, list[int]] = field(default_factory=dict)
    names: dict[object, set[int]] = field(default_factory=dict)
    runs: dict[int, set[int]] = field(default_factory=dict)


class FakeArchive:
    """An implementation of `core.rows.Archive` that contains only the rows that were applied with `save`.

    Rows that a database would refuse raise an error.
    """

    def __init__(self) -> None:
        self.tables = Tables()
        self.ranks: dict[int, int] = {}
        self.scan_folders: set[int] = set()
        self.metadata_types: tuple[str, ...] = ()
        self.max_run_key = 0
        self._index = Index()
        self._unpacked: dict[str, dict[PathKey, FileFact]] = {}

    # ---------------------------------------------------------------------------------------------------------------- rows

    def save(self, saved: Rows) -> None:
        """Apply rows as the writer does: in the fixed order of the operations."""
        unknown = saved.keys() - ROW_OPERATIONS.keys()
        assert not unknown, f"there is no row operation {sorted(unknown)}"
        for operation in [each for each in ROW_OPERATIONS if each in saved]:
            owners, column = _OWNERS.get(operation, ("", 0))
            for row in saved[operation]:
                assert len(row) == _WIDTHS[operation], f"{operation} takes {ROW_OPERATIONS[operation]}, not {row}"
                assert not owners or row[column] in getattr(self.tables, owners), f"{operation} {row}: its owner is not stored"
                if operation in _REPLACED:
                    getattr(self.tables, _REPLACED[operation])[row[0]] = row[1] if len(row) == 2 else row[1:]
                elif operation not in ("put_facts", "put_legacy_sub_id"):
                    getattr(self, f"_{operation}")(*row)

    def _drop_source(self, source_id: int) -> None:
        row = self.tables.sources.pop(source_id, None)
        if row is not None:
            del self._index.sources[row[4]]
        self._drop_legacy(source_id)
        for job_id in list(self._index.jobs.pop(source_id, ())):
            self._drop_job(job_id)
        for uuid in list(self._index.analyses.pop(source_id, ())):
            del self.tables.analyses[source_id, uuid]
        for edge in [edge for edges in self._index.edges.pop(source_id, {}).values() for edge in edges]:
            self._forget_edge(edge)

    def _drop_analysis(self, source_id: int, uuid: bytes) -> None:
        self.tables.analyses.pop((source_id, uuid), None)
        self._index.analyses.get(source_id, set()).discard(uuid)

    def _drop_job(self, job_id: int) -> None:
        row = self.tables.jobs.pop(job_id, None)
        if row is not None:
            self._index.jobs.get(row[1], set()).discard(job_id)
        self._drop_products(job_id)
        self._drop_conflict(job_id)
        self._drop_draft(job_id)
        for run_key in self._index.runs.pop(job_id, ()):
            del self.tables.runs[job_id, run_key]

    def _drop_products(self, job_id: int) -> None:
        for product_id in self._index.products.pop(job_id, ()):
            self.tables.links.pop(product_id, None)
            self._index.names[self.tables.products.pop(product_id)[2]].discard(product_id)

    def _drop_edges(self, source_uuid: bytes, uuid: bytes) -> None:
        source_id = self._index.uuids.get(source_uuid, 0)
        for edge in self._index.edges.get(source_id, {}).pop(uuid, ()):
            self._forget_edge(edge)

    def _forget_edge(self, edge: tuple[str, int, bytes, int]) -> None:
        self.tables.edges.discard(edge)
        self._index.targets[edge[0]].discard(edge)

    def _drop_folder(self, scan_folder: int, folder: str) -> None:
        self.tables.folders.pop((folder, scan_folder), None)

    def _drop_file(self, scan_folder: int, name: str) -> None:
        self.tables.files.pop((scan_folder, name), None)

    def _drop_conflict(self, job_id: int) -> None:
        self.tables.conflicts = {row for row in self.tables.conflicts if row[1] != job_id}

    def _put_source(self, source_id: int, *row: object) -> None:
        assert row[0] in self.scan_folders, f"scan folder {row[0]} has no row"
        assert self._index.sources.setdefault(row[3], source_id) == source_id, f"two sources have the key {row[3]}"
        self._index.uuids[row[2]] = source_id
        self.tables.sources[source_id] = (source_id, *row)

    def _drop_legacy(self, source_id: int) -> None:
        self.tables.legacy = {row for row in self.tables.legacy if row[1] != source_id}

    def _put_legacy(self, uuid: bytes, source_id: int, created_ms: int) -> None:
        self.tables.legacy.add((uuid, source_id, created_ms))

    def _put_analysis(self, source_id: int, uuid: bytes, *row: object) -> None:
        self._index.analyses.setdefault(source_id, set()).add(uuid)
        self.tables.analyses[source_id, uuid] = (source_id, uuid, *row)

    def _put_job(self, job_id: int, source_id: int, *row: object) -> None:
        self._index.jobs.setdefault(source_id, set()).add(job_id)
        self.tables.jobs[job_id] = (job_id, source_id, *row)

    def _put_product(self, product_id: int, job_id: int, *row: object) -> None:
        assert product_id not in self.tables.products, f"product id {product_id} is taken"
        self._index.products.setdefault(job_id, []).append(product_id)
        self._index.names.setdefault(row[0], set()).add(product_id)
        self.tables.products[product_id] = (product_id, job_id, *row)

    def _put_link(
        self,
        product_id: int,
        _job_id: int,
        _at: int,
        kind: LinkKind,
        _platform: str,
        path: str,
        _prefix: str | None,
        is_exclusion: int,
        uuid: bytes,
        sub_id: int,
        flags: int,
    ) -> None:
        link = ProductLink(LinkKind(kind), path, flags, uuid, sub_id, bool(is_exclusion))
        self.tables.links[product_id] = (*self.tables.links.get(product_id, ()), link)

    def _put_edge(
        self, _uuid: bytes, builder_uuid: bytes, kind: int, target: str, _bits: int, _sub_ids: str, _from: int, source_id: int
    ) -> None:
        edge = (target.lower(), source_id, builder_uuid, kind)
        self.tables.edges.add(edge)
        self._index.edges.setdefault(source_id, {}).setdefault(builder_uuid, set()).add(edge)
        self._index.targets.setdefault(edge[0], set()).add(edge)

    def _put_run(self, job_id: int, run_key: int, *row: object) -> None:
        self._index.runs.setdefault(job_id, set()).add(run_key)
        self.tables.runs[job_id, run_key] = (job_id, run_key, *row)

    def _drop_draft(self, job_id: int) -> None:
        self.tables.drafts.pop(job_id, None)

    def drafts(self) -> list[PathKey]:
        return sorted({self._key(job_id) for job_id in self.tables.drafts if self.tables.jobs[job_id][6] == 4})

    def _put_conflict(self, name: str, job_id: int) -> None:
        self.tables.conflicts.add((name, job_id))

    def _put_folder(self, scan_folder: int, folder: str, digest: bytes, facts: Sequence[FileFact]) -> None:
        self.tables.folders[folder, scan_folder] = (digest, tuple(replace(fact, is_duplicate=False) for fact in facts))

    def _put_file(self, scan_folder: int, name: str, *row: object) -> None:
        self.tables.files[scan_folder, name] = row

    def _doubt_job(self, job_id: int) -> None:
        row = self.tables.jobs.get(job_id)
        if row is not None:
            row = (*row[:3], 0, *row[4:6], 0, *row[7:16], "waiting", None, *row[18:])
            self.tables.jobs[job_id] = row

    def _doubt_analysis(self, source_id: int, uuid: bytes) -> None:
        row = self.tables.analyses.get((source_id, uuid))
        if row is not None:
            self.tables.analyses[source_id, uuid] = (*row[:2], "waiting", None, *row[4:])

    # ------------------------------------------------------------------------------------------------------------- sources

    def sources(self, keys: Sequence[PathKey]) -> dict[PathKey, Source]:
        found: dict[PathKey, Source] = {}
        for key in keys:
            if key not in self._index.sources:
                continue
            source_id, scan_folder, rel, uuid, _key, _digest, named, *_file = self.tables.sources[self._index.sources[key]]
            source = Source(key, RelPath(rel), scan_folder, SourceUuid(uuid), source_id, is_stored=True)  # type: ignore[arg-type]
            source.identity = identity.unpack(named)  # type: ignore[arg-type]
            found[key] = source
            for builder_uuid in sorted(self._index.analyses.get(source.id, ())):
                self._add_analysis(source, self.tables.analyses[source.id, builder_uuid])
            for job_id in sorted(self._index.jobs.get(source.id, ())):
                self._add_job(source, self.tables.jobs[job_id])
        for key, fact in self.files(list(found)).items():
            planned: Digest = self.tables.sources[self._index.sources[key]][5]  # type: ignore[assignment]
            found[key].fact = rows.as_planned(fact, planned)
        return found

    @staticmethod
    def _add_analysis(source: Source, row: Row) -> None:
        job = Job(source, row[1], "", ANALYSIS_KEY, state=JobState(row[2]), fingerprint=row[3] or 0, error=row[4])  # type: ignore[arg-type]
        job.warnings, job.errors, job.duration_ms, job.completed_ms, job.log_file, job.reason = row[5:11]  # type: ignore[assignment]
        job.plans, job.edges = rows.unpack_analysis(row[11])  # type: ignore[arg-type]
        job.failure = retry.load(row[12])  # type: ignore[arg-type]
        job.planned = rows.find_planned(job)
        source.jobs[job.builder, "", ANALYSIS_KEY] = job

    def _add_job(self, source: Source, row: Row) -> None:
        job_id, _source, key, print_, platform, uuid, _status, run_key = row[:8]
        job = Job(source, uuid, platform, key, job_id, JobState(row[16]), print_, row[17], RunKey(run_key))  # type: ignore[arg-type]
        (
            job.first_fail_ms, job.first_fail_log, job.last_fail_ms, job.last_fail_log, job.last_log_ms, job.log_file, job.errors,
            job.warnings,
        ) = row[8:16]  # type: ignore[assignment]  # fmt: skip
        job.error, job.reason, inputs, plan, job.duration_ms, job.completed_ms, job.failure_cause, job.escalation, job.origin = row[
            18:27
        ]  # type: ignore[assignment]
        job.failure = retry.load(row[27])  # type: ignore[arg-type]
        tried_key, kinds = self.tables.retries.get(job_id, (0, ""))  # type: ignore[call-overload]
        job.flaky = kinds if tried_key == run_key else ""
        job.inputs = fingerprint.load(inputs)  # type: ignore[arg-type]
        job.plan, job.discovered = rows.unpack_plan(plan, key, platform)  # type: ignore[arg-type]
        job.priority, job.is_critical = job.plan.priority, job.plan.is_critical
        for product_id in self._index.products.get(job.id, ()):
            _id, _owner, name, sub_id, kind, hash64, flags, digest, size = self.tables.products[product_id]
            links = self.tables.links.get(product_id, ())
            job.products += (Product(name, sub_id, kind, flags, digest, hash64, size, links),)  # type: ignore[arg-type]
        source.jobs[job.builder, job.platform, job.key] = job

    def keys_of(self, uuid: SourceUuid) -> list[PathKey]:
        held = [row[4] for row in self.tables.sources.values() if row[3] == uuid]
        claims = [(row, self.tables.sources[row[1]]) for row in self.tables.legacy if row[0] == uuid]
        return held + [source[4] for row, source in sorted(claims, key=lambda item: (item[1][1], item[0][2], item[1][4]))]  # type: ignore[return-value,operator]

    def read_removed(self) -> dict[bytes, tuple[str, bytes]]:
        texts = [
            (key.removeprefix("departed:"), *text.split(" ", 1))
            for key, text in self.tables.state.items()
            if key.startswith("departed:")
        ]
        return {bytes.fromhex(row[1]): (row[2], bytes.fromhex(row[0])) for row in texts if row[1]}

    def has_identities(self) -> bool:
        return any(row[6] for row in self.tables.sources.values())

    def has_intermediates(self) -> bool:
        return any(str(row[2]).startswith("common/") for row in self.tables.products.values())

    def key_of_jobs(self, job_ids: Sequence[int]) -> dict[int, PathKey]:
        return {job_id: self._key(job_id) for job_id in job_ids if job_id in self.tables.jobs}

    def _key(self, job_id: int) -> PathKey:
        return self.tables.sources[self.tables.jobs[job_id][1]][4]  # type: ignore[index,return-value]

    def list_unfinished(self) -> list[PathKey]:
        ids = {row[1] for row in self.tables.jobs.values() if row[6] != 4 and row[16] != "cancelled"}
        ids |= {
            row[0]
            for row in self.tables.analyses.values()
            if (row[2] != "completed" or row[3] is None) and (row[2] != "cancelled" or row[3] is None)
        }
        return sorted(self.tables.sources[source_id][4] for source_id in ids)  # type: ignore[index,type-var,misc]

    # --------------------------------------------------------------------------------------------------------------- files

    def files(self, keys: Sequence[PathKey]) -> dict[PathKey, FileFact]:
        found = {}
        for key in keys:
            folder = parent(key)
            if folder not in self._unpacked:
                self._unpacked[folder] = self._winners(folder)
            if key in self._unpacked[folder]:
                found[key] = self._unpacked[folder][key]
        return found

    def _winners(self, folder: str) -> dict[PathKey, FileFact]:
        return merge_folder([facts for _part, (_digest, facts) in self._parts(folder)], self.metadata_types)[0]

    def _parts(self, folder: str) -> list[tuple[int, tuple[bytes, tuple[FileFact, ...]]]]:
        parts = [(part, row) for (name, part), row in self.tables.folders.items() if name == folder and part in self.ranks]
        return sorted(parts, key=lambda item: self.ranks[item[0]])

    def forget(self, folder: str) -> None:
        self._unpacked.pop(folder, None)

    def files_below(self, prefix: PathKey) -> Iterable[FileFact]:
        for folder in sorted({folder for folder, _part in self.tables.folders}):
            if f"{folder}/".startswith(prefix) or not prefix:
                yield from self._winners(folder).values()

    def folder_parts(self, folder: str) -> dict[int, tuple[bytes, tuple[FileFact, ...]]]:
        """Return {scan folder: stored digest and files} of a folder, with which the scanner compares the disk."""
        return {part: row for (name, part), row in self.tables.folders.items() if name == folder}

    # -------------------------------------------------------------------------------------------------- edges and products

    def dependents(self, targets: Sequence[str]) -> dict[str, set[PathKey]]:
        found: dict[str, set[PathKey]] = {}
        for target in targets:
            for _name, source_id, _builder, kind in self._index.targets.get(target.lower(), ()):
                if kind != EdgeKind.WILDCARD:
                    found.setdefault(target, set()).add(self.tables.sources[source_id][4])  # type: ignore[arg-type]
        return found

    def wildcards(self) -> list[tuple[str, PathKey]]:
        return sorted(
            {
                (name, self.tables.sources[owner][4])
                for name, owner, _builder, kind in self.tables.edges
                if kind == EdgeKind.WILDCARD
            }  # type: ignore[misc]
        )

    def outside(self) -> dict[str, OutsideFile]:
        rows = {key.removeprefix(OUTSIDE_STATE): text for key, text in self.tables.state.items() if key.startswith(OUTSIDE_STATE)}
        return run_report.load((path, text) for path, text in rows.items() if text)

    def settings(self) -> dict[str, str]:
        found = {
            key.removeprefix(SETTINGS_STATE): text for key, text in self.tables.state.items() if key.startswith(SETTINGS_STATE)
        }
        return {folder: text for folder, text in found.items() if text}

    def has_edges(self) -> bool:
        return bool(self.tables.edges)

    def owners(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        rows = [(name, self.tables.products[max(ids)]) for name in names if (ids := self._index.names.get(name))]
        return {name: (row[1], self._key(row[1])) for name, row in rows}  # type: ignore[misc,arg-type]

    def owners_below(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        folders = set(names)
        return self.owners([name for name in self._index.names if folders.intersection(folders_above(name))])

    def conflicts(self) -> dict[str, list[tuple[int, PathKey]]]:
        found: dict[str, list[tuple[int, PathKey]]] = {}
        for name, job_id in sorted(self.tables.conflicts):
            found.setdefault(name, []).append((job_id, self._key(job_id)))
        return found

    def reason_of(self, job_id: int) -> tuple[str, str]:
        """Return (reason, origin of the result) of the last successful run of a job; unknown values are ""."""
        runs = [self.tables.runs[job_id, run_key] for run_key in sorted(self._index.runs.get(job_id, ()), reverse=True)]
        return next(((str(row[5]), str(row[12])) for row in runs if row[4] == Outcome.SUCCEEDED), ("", ""))

    def state(self, key: str) -> str | None:
        return self.tables.state.get(key)

    def next_ids(self) -> tuple[int, int, int, int]:
        tables = self.tables
        run_key = max(self.max_run_key, int(tables.state.get("run_keys", 0)), *(row[7] for row in tables.jobs.values()), 0)  # type: ignore[call-overload]
        return max(tables.sources, default=0) + 1, max(tables.jobs, default=0) + 1, max(tables.products, default=0) + 1, run_key + 1

    def reopen(self) -> FakeArchive:
        """Return another archive with the same rows, as if a new process had opened it: no row is unpacked yet."""
        other = FakeArchive()
        other.tables, other.max_run_key = self.tables, self.max_run_key
        other._index = self._index
        other.ranks, other.scan_folders, other.metadata_types = dict(self.ranks), set(self.scan_folders), self.metadata_types
        return other


# --------------------------------------------------------------------------------------------------------------------- disk


class File(Struct, frozen=True):
    """A file of the fake disk; `version` stands for its times and inode."""

    text: str
    version: int

    def fact(self, scan_folder: int, rel: str, *, is_read: bool = False) -> FileFact:
        """Return the facts that `stat` reports, with the digest if the bytes were read."""
        digest = sha(self.text) if is_read else Digest(b"")
        hash64 = int.from_bytes(digest[:8], "big")
        return FileFact(scan_folder, RelPath(rel), len(self.text), self.version, self.version, self.version, digest, hash64)


class FakeDisk:
    """Files by scan folder name and relative path."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, File]] = {}
        self._names: dict[tuple[str, PathKey], list[str]] = {}
        self._version = 1_000

    @property
    def clock(self) -> int:
        """The version of the last written file."""
        return self._version

    def write(self, folder: str, rel: str, text: str) -> None:
        """Write a file."""
        self._version += 1
        self.put(folder, rel, File(text, self._version))

    def put(self, folder: str, rel: str, file: File) -> None:
        """Store `file` at a path of a scan folder, replacing an existing file."""
        names = self._names.setdefault((folder, key_of(RelPath(rel))), [])
        if rel not in names:
            names.append(rel)
        self.files.setdefault(folder, {})[rel] = file

    def delete(self, folder: str, rel: str) -> None:
        """Delete a file."""
        del self.files[folder][rel]
        self._names[folder, key_of(RelPath(rel))].remove(rel)

    def copy(self) -> FakeDisk:
        """Return another disk with the same files, without the files that jobs made."""
        other = FakeDisk()
        for folder, files in self.files.items():
            for rel, file in files.items() if folder != MADE else ():
                other.put(folder, rel, file)
        return other

    def winner(self, folders: Sequence[str], rel: str) -> tuple[str, str, File] | None:
        """Return (folder, real relative path, file) of the file that a path names in the first of `folders` that has it.

        None if that folder has several, which differ in letter case, or if no folder has it.
        """
        for folder in folders:
            same = self._names.get((folder, key_of(RelPath(rel))))
            if same:
                return (folder, same[0], self.files[folder][same[0]]) if len(same) == 1 else None
        return None

    def keys(self, folders: Sequence[str]) -> list[PathKey]:
        """Return the keys of all files."""
        return sorted({key_of(RelPath(rel)) for folder in folders for rel in self.files.get(folder, {})})


class FakeScanner:
    """Compares the disk with the stored files, one relative folder at a time, as `engine.scanner` does."""

    def __init__(self, disk: FakeDisk, project: Project, archive: FakeArchive) -> None:
        self._disk = disk
        self._project = project
        self._archive = archive
        self.unfinished: dict[PathKey, FileFact | None] = {}
        """{file being written: its previous state, which still counts}. None = the previous state is unknown."""

    def folders(self) -> list[str]:
        """Return every relative folder to check; folders that are only stored come last."""
        present = {""}
        for folder in self._project.scan_folders:
            for rel in self._disk.files.get(folder.name, {}):
                path = parent(key_of(RelPath(rel)))
                while path:
                    present.add(path)
                    path = parent(path)
        remembered = {name for name, _part in self._archive.tables.folders} - present
        return [*sorted(present), *sorted(remembered)]

    def compare(
        self, folder: str, seq: int, *, reassess: bool = False, is_full: bool = False, again: frozenset[PathKey] | None = None
    ) -> FolderSeen | None:
        """Return how a folder differs from its stored state; None without a difference."""
        parts = self._list(folder)
        before = self._archive.folder_parts(folder)
        waited = {key for key in self.unfinished if parent(key) == folder}
        digests = {part: sha(repr([item.fact(part, rel) for rel, item in files])) for part, files in parts.items() if files}
        known = {part: digest for part, (digest, _facts) in before.items()}
        if again is None and not (reassess or is_full) and known == digests:
            return None
        old = {(part, fact.rel): fact for part, (_digest, facts) in before.items() for fact in facts}
        facts = {part: [self._fact(part, rel, item, old, is_full, again) for rel, item in files] for part, files in parts.items()}
        if waited:
            facts = {part: self._as_before(part, found, old) for part, found in facts.items()}
            digests = {
                part: digest if waited.isdisjoint(fact.key for fact in facts[part]) else b"" for part, digest in digests.items()
            }
        if again is None and not before and not any(facts.values()):
            return None
        was, was_clashing = self._merge({part: row[1] for part, row in before.items()})
        now, clashing = self._merge(facts)
        metas_before, metas = self._metas({part: row[1] for part, row in before.items()}), self._metas(facts)
        named = {key: (fact.scan_folder, key_of(fact.rel) + identity.META_SUFFIX) for key, fact in now.items()}
        renamed = {key for key, meta in named.items() if _differs(metas_before.get(meta), metas.get(meta))}
        again = again and again | {fact.key for fact in now.values() if key_of(fact.rel) in again}
        changed = tuple(
            fact
            for key, fact in now.items()
            if reassess or is_full or (again and key in again) or key in renamed or _differs(was.get(key), fact)
        )
        clashing_keys = {key_of(fact.rel) for fact, _others in clashing}
        gone = {*was, *(PathKey(fact.rel) for fact, _others in was_clashing)}
        gone |= {replace(fact, is_duplicate=True).key for row in before.values() if reassess for fact in row[1]}
        gone -= {*now, *(PathKey(fact.rel) for fact, _others in clashing)}
        gone |= clashing_keys & was.keys()
        present = folder == "" or any(facts.values())
        lines = tuple((part, digests.get(part, b""), tuple(found)) for part, found in facts.items()) if present else ()
        fact = now.get(file_key(folder))
        settings = self._settings(fact) if fact else ""
        identities = tuple(self._identities(changed, metas))
        return FolderSeen(seq, folder, changed, tuple(sorted(gone)), tuple(clashing), lines, settings, identities)

    def _identities(
        self, changed: Iterable[FileFact], metas: Mapping[tuple[int, str], FileFact]
    ) -> Iterator[tuple[PathKey, SourceIdentity]]:
        names = {item.id: item.name for item in self._project.scan_folders}
        for fact in changed:
            meta = metas.get((fact.scan_folder, key_of(fact.rel) + identity.META_SUFFIX))
            parsed = parse_identity(self._disk.files[names[meta.scan_folder]][meta.rel].text) if meta is not None else None
            if parsed is not None:
                yield fact.key, parsed

    @staticmethod
    def _metas(facts: Mapping[int, Sequence[FileFact]]) -> dict[tuple[int, str], FileFact]:
        """Return {(scan folder, path key): file}. An identity file applies only to a source of its own scan folder."""
        return {(part, key_of(fact.rel)): fact for part, found in facts.items() for fact in found}

    def _settings(self, fact: FileFact) -> str:
        """Return the parsed settings file, {builder: {"params": ..., "platforms": ...}} in JSON, or the error of invalid text."""
        name = next(item.name for item in self._project.scan_folders if item.id == fact.scan_folder)
        text = self._disk.files[name][fact.rel].text
        try:
            parsed = json.loads(text)
        except ValueError:
            return json.dumps({"file": fact.rel, "error": f"{fact.rel}:1:1: not valid YAML"})
        sections = {name: {"params": {}, "platforms": {}, **section} for name, section in parsed.items()}
        return json.dumps({"file": fact.rel, "builders": sections, "places": dict.fromkeys(sections, "2:3")})

    def _list(self, folder: str) -> dict[int, list[tuple[str, File]]]:
        return {
            item.id: sorted(
                (rel, file)
                for rel, file in self._disk.files.get(item.name, {}).items()
                if parent(key_of(RelPath(rel))) == folder
            )
            for item in self._project.scan_folders
        }  # fmt: skip

    @staticmethod
    def _fact(
        part: int, rel: str, item: File, old: Mapping[tuple[int, str], FileFact], is_full: bool, again: frozenset[PathKey] | None
    ) -> FileFact:
        fact = item.fact(part, rel)
        known = old.get((part, rel))
        is_known = known is not None and not _differs(known, fact) and not is_full and not (again and key_of(fact.rel) in again)
        return known if is_known and known is not None else fact

    def _as_before(self, part: int, found: list[FileFact], old: Mapping[tuple[int, str], FileFact]) -> list[FileFact]:
        """Return the files of one scan folder. A file being written has its previous state, or is left out if that is unknown."""
        facts = []
        for fact in found:
            key = key_of(fact.rel)
            last = self.unfinished.get(key)
            is_same = last is not None and (last.scan_folder, last.rel) == (part, fact.rel)
            known = fact if key not in self.unfinished else last if is_same else old.get((part, fact.rel))
            facts += [known] if known is not None else []
        return facts

    def _merge(
        self, parts: Mapping[int, Sequence[FileFact]]
    ) -> tuple[dict[PathKey, FileFact], list[tuple[FileFact, tuple[RelPath, ...]]]]:
        rank = self._archive.ranks
        ranked = sorted(parts, key=lambda item: rank.get(item, len(rank)))
        return merge_folder([parts[part] for part in ranked], self._project.metadata_types)


def meta(name: str, original: str = "", *legacy: str, created_ms: int = 0) -> str:
    """Return the text of an identity file on the fake disk; `name` stands for a UUID."""
    return " ".join(("meta", name, original or "-", *legacy, *([f"created:{created_ms}"] if created_ms else [])))


def meta_uuid(name: str) -> SourceUuid:
    """Return the UUID that a name in `meta` stands for."""
    return SourceUuid(name_uuid(f"meta:{name}".encode()))


def parse_identity(text: str) -> SourceIdentity | None:
    """Parse an identity file of the fake disk: None if it is empty, else the identity of the source or its problem."""
    if not text:
        return None
    word, name, original, *legacy = [*text.split(), "", "", ""][: max(3, len(text.split()))]
    if word != "meta" or not original:
        return SourceIdentity(SourceUuid(bytes(16)), digest=sha(text), problem="its identity file is damaged")
    created_ms = sum(int(word.removeprefix("created:")) for word in legacy if word.startswith("created:"))
    had = tuple(meta_uuid(word) for word in legacy if not word.startswith("created:"))
    return SourceIdentity(meta_uuid(name), had, original, created_ms, sha(text))


def _differs(old: FileFact | None, new: FileFact | None) -> bool:
    if old is None or new is None:
        return old is not new
    return (old.scan_folder, old.rel, old.size, old.mtime_ns, old.inode) != (
        new.scan_folder,
        new.rel,
        new.size,
        new.mtime_ns,
        new.inode,
    )

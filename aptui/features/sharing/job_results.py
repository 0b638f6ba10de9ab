"""Converts runs to records that other machines can use, and converts records to results; restores the products of earlier runs.

Instead of paths of this machine, a record has relative names of files, and digests of products.

Tests: `tests/features/sharing/test_shared_cache.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.dirs import asset_database
from aptui.core.model import FileFact, Job, ProductFlag
from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import Outcome, ProcessOrder, RunResult, StagedProduct
from aptui.core.paths import as_text, normalize, os_path
from aptui.core.project import Builder
from aptui.core.quality import is_of_any_draft
from aptui.core.retry import FailureKind
from aptui.core.run_report import code_digest
from aptui.features.sharing.record import Discovered, JobFacts, Record, as_discovered, base_key
from aptui.features.sharing.stores.folder_store import FolderStore
from aptui.link.port import FeatureRequest, Request
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.shared.files import clocks
from aptui.store.queries.reader import RESTORED, ProductRow, open_reader
from aptui.worker import file_access

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.features.sharing.service import CacheHit


_ABI = "1"
"""A version number that is part of every key.

Increase this number when a change of the engine or the SDK makes the same builder code produce different products.
"""
_MOST_DIGESTS = 50_000
"""Maximum number of remembered digests of files."""
_HIDDEN, _PROBED = "!", "?"
"""Prefixes of names in records; quoted names of scan folders never begin with these characters.

`!`: the run read this file although a file of another scan folder hides it. `?`: the file was missing, or the folder was listed.
"""


class NotShareable(Exception):
    """Other machines cannot use the result, because it depends on files of this machine."""


class FilePlaces(Struct, frozen=True):
    """The scan folders of the files that a run found.

    `own` is the folder with the run's source, `named` is {name: absolute path} of all scan folders.

    In a record, a file that a run found is named `@FOLDER/PATH`, or `@/PATH` if it is in the same scan folder as the run's source.
    `@/PATH` never means a file of another scan folder. The name `@!FOLDER/PATH` is a file that was read although a file of another
    scan folder hides it. The name `@?FOLDER/PATH` is a missing file, and `@?FOLDER/PATH/*` is a listed folder; neither is an input
    of the job.
    """

    own: str
    named: Mapping[str, str]

    def name_of(self, path: str, hidden: Container[str] = ()) -> str:
        """Return a file's name in a record.

        Args:
            path: absolute, or relative; a relative path means the file in the first scan folder that has a file at this path.
            hidden: absolute paths of files that were read although files of other scan folders hide them.

        Raises:
            NotShareable: the file is outside all scan folders.
        """
        if not path.startswith("/"):
            path = as_text(place_of(os.path.normpath(path), tuple(self.named.values())))
        for name, root in self.named.items():
            if path.startswith(f"{root}/"):
                sign = _HIDDEN if normalize(path) in hidden else ""
                return f"@{sign}{'' if root == self.own else quote(name, safe='')}{path[len(root) :]}"
        raise NotShareable(f"the job depends on '{path}', which is outside all scan folders")

    def name_probed(self, path: str) -> str:
        """Return the name that a record uses for a missing file or a listed folder; see `RunResult.probed`."""
        name = self.name_of(path)
        return f"@{_PROBED}{name[1:]}"

    def path_of(self, name: str) -> str:
        """Return the absolute path of a file that a record names, as system calls need it; "" = its scan folder is unknown."""
        folder, _, rel = name.removeprefix("@").removeprefix(_HIDDEN).removeprefix(_PROBED).partition("/")
        root = self.named.get(unquote(folder)) if folder else self.own
        return f"{root}/{os_path(rel)}" if root else ""

    def is_hidden_as_in_run(self, name: str) -> bool:
        """Return whether the file `name` of a record is hidden on this machine if and only if it was hidden in the record's run.

        A file is hidden if a file of another scan folder has priority. If no scan folder has the file, it counts as not hidden.
        """
        _folder, _, rel = name.removeprefix("@").partition("/")
        winner = next((path for path in _paths_of(rel, tuple(self.named.values())) if os.path.isfile(path)), "")
        return (winner in ("", self.path_of(name))) != name.startswith(f"@{_HIDDEN}")

    def find_path(self, name: str) -> str:
        """Convert the name of a file in a record to a path.

        The path is absolute if the file was hidden by a file of another scan folder, otherwise relative.
        """
        is_hidden = name.startswith(f"@{_HIDDEN}")
        return as_text(self.path_of(name)) if is_hidden else name.partition("/")[2]


class Present:
    """Compares files that a builder found on another machine with the local files; any thread may call."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self._named = named
        self._known: dict[str, tuple[file_access.StatKey, str]] = {}

    def beside(self, own: str) -> Callable[[Discovered], bool]:
        """Return a function that checks whether local files equal the files that a stored result depends on.

        The function takes pairs (name of a file, its digest in the stored result, "" = missing). `own` is the scan folder of the
        job's source, to which names that begin with `@/` are relative.
        """
        places = FilePlaces(own, self._named)
        return lambda discovered: all(self._is_same(places, name, digest) for name, digest in discovered)

    def _is_same(self, places: FilePlaces, name: str, digest: str) -> bool:
        path = places.path_of(name)
        if not name.startswith(f"@{_PROBED}"):
            return self._digest(path) == digest and places.is_hidden_as_in_run(name)
        return file_access.digest_listing(os.path.dirname(path)) == digest if digest else not os.path.lexists(path)

    def _digest(self, path: str) -> str:
        read_ns = time.time_ns()
        try:
            state = file_access.stat_key(os.stat(path))
            known = self._known.get(path)
            if known is not None and known[0] == state:
                return known[1]
            (digest, _hash64, _size), found = file_access.hash_file(path, sees_through=True)
        except (OSError, file_access.FileChanged):
            return ""
        if len(self._known) >= _MOST_DIGESTS:
            self._known.clear()
        if clocks.is_settled(file_access.stat_key(found), read_ns):
            self._known[path] = file_access.stat_key(found), digest.hex()
        return digest.hex()


def place_of(rel: str, roots: Sequence[str]) -> str:
    """Return the absolute path of a file: below the first folder of `roots` that contains it, else below `roots[0]`."""
    paths = _paths_of(rel, roots)
    return next((path for path in paths if os.path.isfile(path)), paths[0])


def _paths_of(rel: str, roots: Sequence[str]) -> list[str]:
    return [f"{root}/{os_path(rel)}" for root in roots]


def facts_of(job: Job, builder: Builder, manifest: tuple[tuple[str, str, str], ...]) -> JobFacts:
    """Return the inputs from which a job's key is computed."""
    code = code_digest(builder.code_files).hex() if builder.code_files else ""
    return JobFacts(manifest, job.platform, job.key, builder.uuid, _ABI, builder.name, code)


def record_of(facts: JobFacts, result: RunResult, builder: Builder, places: FilePlaces, hidden: Container[str] = ()) -> Record:
    """Return the record of a successful run; `hidden` are absolute paths of inputs that other files hide.

    Raises:
        NotShareable: the run depends on a file outside all scan folders.
    """
    return Record(
        base_key(facts),
        tuple(replace(product, staged="") for product in result.products),
        as_discovered(
            (
                *((places.name_of(path, hidden), digest) for path, digest in result.discovered),
                *((places.name_probed(path), digest) for path, digest in result.probed),
            )
        ),
        result.log,
        result.warnings,
        result.errors,
        result.duration_ms,
        result.command_line,
        tuple(_relative(path, tuple(places.named.values())) for path in result.reprocess),
        builder.name,
        builder.version,
        os.uname().nodename,
        time.time_ns() // 1_000_000,
        result.used.code.hex(),
        facts.known,
    )


def _relative(path: str, roots: Sequence[str]) -> str:
    if not path.startswith("/"):
        return os.path.normpath(path)
    for root in roots:
        if path.startswith(f"{root}/"):
            return path[len(root) + 1 :]
    raise NotShareable(f"the job depends on '{path}', which is outside all scan folders")


def as_result(hit: CacheHit, order: ProcessOrder, places: FilePlaces, milliseconds: int) -> RunResult:
    """Return a fetched result in the form in which a worker returns the result of `order`; `milliseconds` is the fetch duration."""
    record, origin = hit.record, origin_of(hit)
    flag = int(ProductFlag.CACHED) if hit.is_remote else 0
    note = LogRecord(LogLevel.INFO, record.builder, origin, time.time_ns() // 1_000_000)
    return RunResult(
        order.run_key,
        Outcome.SUCCEEDED,
        products=tuple(replace(product, staged=as_text(product.staged), flags=product.flags | flag) for product in hit.products),
        source_digest=order.source_digest,
        discovered=tuple(
            (places.find_path(name), digest) for name, digest in record.discovered if not name.startswith(f"@{_PROBED}")
        ),
        log=(*record.log, note) if record.log else (),
        warnings=record.warnings,
        errors=record.errors,
        duration_ms=milliseconds,
        command_line=record.command_line,
        reprocess=record.reprocess,
        origin=origin,
        is_durable=True,
    )


def origin_of(hit: CacheHit) -> str:
    """Return a text for users about the store and the machine from which a result came."""
    where = "the shared cache" if hit.is_remote else "this machine's store"
    return f"from {where} ({hit.record.writer or 'unknown'}, {printing.minute(hit.record.written_ms)})"


def sync(paths: Sequence[str]) -> None:
    """Sync fetched files to the disk, as a worker does with its products."""
    if len(paths) >= file_access.SYNC_EACH_BELOW:
        file_access.sync_file_system(os.path.dirname(paths[0]))
        return
    for path in paths:
        file_access.sync_file(path)


def is_untouched(path: str, fact: FileFact) -> bool:
    """Whether an input's file still has the size and times that it had when the run was planned."""
    try:
        now = os.stat(os_path(path))
    except OSError:
        return False
    return (now.st_size, now.st_mtime_ns, now.st_ctime_ns) == (fact.size, fact.mtime_ns, fact.ctime_ns)


# Restores the products of an earlier run from this machine's store. The restored products stay until an input of the job changes.
#
# A restored job has no special status. It is up to date, like a job with a result from another machine. The origin of the job's
# result names the earlier run.


class Restore(FeatureRequest, frozen=True):
    """Restore the products of an earlier run of a job from this machine's store. Answered with {} when the job is queued."""

    wire_name: ClassVar = "restore"
    job_id: int = 0
    run_key: int = 0


class RestoreRequests:
    """Handles `Restore` requests."""

    def __init__(self, live: EngineSupervisor) -> None:
        self._live = live

    def handle(self, request: Request, verb: Restore) -> None:
        """Queue a run that restores the products of an earlier run of the job, and answer the request.

        Raises:
            KnownError: the engine cannot be opened, or the products are not stored.
        """
        self._live.working_engine().restore(verb.job_id, verb.run_key)
        request.answer()

    def forget_client(self, client: int) -> None:
        """Do nothing, because every request is answered at once and no request waits."""


class StoredProduct(Struct, frozen=True):
    """A product of the earlier run: the file with the product's bytes, and the row of the current product with the same name."""

    path: str
    digest: str
    row: ProductRow


class StoredRun(Struct, frozen=True):
    """An earlier run whose products are all in the store."""

    products: tuple[StoredProduct, ...]
    origin: str


def find_stored_run(config: Config, job_id: int, run_key: int) -> StoredRun:
    """Return the stored products of a run.

    Raises:
        UserError: the run is unknown or failed, or its products are no longer in the store.
    """
    with closing(open_reader(asset_database(config.cache_dir))) as database, database.snapshot():
        runs = database.runs_of(job_id)
        at = next((at for at, run in enumerate(runs) if run.run_key == run_key), -1)
        if at < 0:
            raise UserError("this job has no run with this number", hint="run 'aptui log JOB --history' to list the stored runs")
        known = {product.name: product for product in database.products_of(job_id)}
        then = database.moments_of(job_id)[at]
    run = runs[at]
    if run.outcome != Outcome.SUCCEEDED:
        raise UserError(
            f"run {at + 1} of this job failed, so it has no products",
            hint="run 'aptui log JOB --history' to see the outcome of each run",
        )
    if is_of_any_draft(then.inputs):
        hint = "run 'aptui log JOB --history' to list all runs, and restore the run that followed the draft"
        raise UserError(f"run {at + 1} of this job made a draft, which cannot be restored", hint=hint)
    if not config.sharing.local_store:
        raise UserError(
            "this machine stores no results, because 'local_store' is disabled",
            hint="write 'local_store: {enabled: true}' in aptui.yaml",
        )
    products = tuple(_find_stored(config, name, digest, known) for name, digest, _size in then.products)
    return StoredRun(products, f"from its run of {printing.minute(run.completed_ms)}{RESTORED}")


def _find_stored(config: Config, name: str, digest: str, known: Mapping[str, ProductRow]) -> StoredProduct:
    """Return the stored file of a product; `digest` is the first half of its digest, because the history stores only this half."""
    if name not in known:
        raise UserError(
            f"the job no longer makes '{name}', which the earlier run made",
            hint="restore the source from version control, and process it",
        )
    found = find_stored_file(config, digest)
    if not found:
        hint = (
            "products that are copies of their sources are not stored, and results that were not used for a long time are deleted"
        )
        raise UserError(f"'{name}' of the earlier run is not in this machine's store '{config.sharing.local_store}'", hint=hint)
    return StoredProduct(found, digest, known[name])


def find_stored_file(config: Config, digest: str) -> str:
    """Return the file of this machine's store whose digest begins with `digest` (at least 32 hex digits), "" = it is not stored.

    This function is the extension point `stored file`.
    """
    if not config.sharing.local_store:
        return ""
    beside = Path(FolderStore(config.sharing.local_store, config.sharing.namespace, syncs=False).blob_path(digest.ljust(64, "0")))
    return str(min(beside.parent.glob(f"{digest}*"), default=""))


def _place_name(name: str, roots: Sequence[str]) -> str:
    """Return the absolute path of a discovered file; names of files in scan folders are relative."""
    return name if name.startswith("/") else as_text(place_of(name, roots))


def open_stored_run(config: Config, job_id: int, run_key: int) -> Callable[[ProcessOrder, Job, Mapping[int, str]], RunResult]:
    """Return the function that answers an order with the products of an earlier run: the extension point `restore`.

    Raises:
        UserError: see `find_stored_run`.
    """
    return partial(restore_run, find_stored_run(config, job_id, run_key))


def restore_run(stored: StoredRun, order: ProcessOrder, job: Job, roots: Mapping[int, str]) -> RunResult:
    """Return the products of a run as the result of this order; the result is a failure if a stored file is damaged."""
    began_s = time.monotonic()
    staging = os_path(order.staging)
    try:
        if len(stored.products) != 1:
            os.mkdir(staging)
        products = tuple(
            _make_staged(product, staging if len(stored.products) == 1 else f"{staging}/{at}")
            for at, product in enumerate(stored.products)
        )
    except (OSError, file_access.FileChanged, ValueError) as error:
        return RunResult(
            order.run_key, Outcome.FAILED, f"the products cannot be restored: {error}", errors=1, kind=FailureKind.OBSTACLE
        )
    return RunResult(
        order.run_key,
        Outcome.SUCCEEDED,
        products=products,
        source_digest=order.source_digest,
        discovered=tuple((_place_name(name, tuple(roots.values())), digest) for name, digest in job.discovered),
        log=(LogRecord(LogLevel.INFO, order.builder, f"the result is {stored.origin}", time.time_ns() // 1_000_000),),
        duration_ms=round(1000 * (time.monotonic() - began_s)),
        origin=stored.origin,
        is_final=True,
    )


def _make_staged(product: StoredProduct, target: str) -> StagedProduct:
    digest, hash64, size = file_access.copy_into(product.path, target)
    if not digest.hex().startswith(product.digest):
        raise ValueError(f"'{product.path}' in the store is damaged")
    file_access.sync_file(target)
    row = product.row
    inner = row.name.partition("/")[2]
    return StagedProduct(as_text(target), inner, row.sub_id, row.asset_type, row.flags, digest, hash64, size)

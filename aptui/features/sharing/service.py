"""Finds, fetches and verifies stored results, and stores and uploads new results.

This machine's store is searched first, then the team's store. If a store is unreachable, slow or wrong, the lookup counts as a
miss; the store is reported once and not used for a while. Any thread may call, and no call waits longer for a store than the
configuration allows.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.configuration import SharedCacheSettings
from aptui.core.orders import StagedProduct
from aptui.features.sharing import publishing
from aptui.features.sharing.namespaces import Namespace, TroubleReporter, namespaces_of
from aptui.features.sharing.publishing import MadeResult, Present, ResultUploader, SharedResult
from aptui.features.sharing.record import JobFacts, Record, base_key, flaw_of_report
from aptui.features.sharing.stores import placing
from aptui.features.sharing.stores.breaker import Breaker, DeadlineExecutor, TooSlow
from aptui.features.sharing.stores.local import LocalStore
from aptui.features.sharing.stores.placing import Lease
from aptui.features.sharing.stores.remote_stores import SLOWEST_BYTES_PER_S
from aptui.shared.errors import KnownError
from aptui.shared.result_store import Account, Mismatch, Store, StoreError


class Stopwatch:
    """A clock at 1/n of normal speed while n lookups run, so that the durations of all lookups add up to the elapsed time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._at_s, self._shown_s, self._count = clock, clock(), 0.0, 0
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the time on the clock, in seconds."""
        with self._lock:
            self._advance()
            return self._shown_s

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Count one more running lookup during the `with` block."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, count: int) -> None:
        with self._lock:
            self._advance()
            self._count += count

    def _advance(self) -> None:
        now_s = self._clock()
        self._shown_s += (now_s - self._at_s) / max(self._count, 1)
        self._at_s = now_s


T = TypeVar("T")
_WRONG_RESULT_PAUSE_S = 600.0
"""Delay (seconds) before a result that was wrong may be requested again."""
_RESERVED_BYTES = 1 << 27
"""Minimum free disk space (bytes) that must remain after a download.

With less free space, the engine starts no jobs and cannot write its database.
"""
_LOOKUP_THREADS = 8
"""Number of threads that call the team's store."""


class FoundResult(Struct, frozen=True):
    """A result in a store: its record was read and is trusted; its blobs are not fetched yet."""

    facts: JobFacts
    result: SharedResult
    namespace: Namespace
    is_remote: bool
    lookup_ms: int = 0


class CacheHit(Struct, frozen=True):
    """A fetched result: `staged` are the absolute paths of its products' files, in the order of the record.

    `is_remote`: the record or some of the files came from the team's store.
    """

    builder: str
    record: Record
    staged: tuple[str, ...]
    is_remote: bool

    @property
    def products(self) -> tuple[StagedProduct, ...]:
        """The products with their staged files, in the same form as products from a worker."""
        return tuple(replace(item, staged=path) for item, path in zip(self.record.products, self.staged, strict=True))


class Service:
    """Shared results for one engine.

    Args:
        sharing: the configuration; `local_store` "" = this machine stores no results.
        say: called once per problem, by any thread.

    Raises:
        UserError: a configured key or address is invalid.
    """

    def __init__(
        self,
        sharing: SharedCacheSettings,
        say: Callable[[str], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.account = Account()
        self._deadline_s, self._clock, self._stopwatch = sharing.deadline_s, clock, Stopwatch(clock)
        self._reporter, self._breaker = TroubleReporter(say), Breaker(clock)
        self._paused: dict[str, float] = {}
        self._namespaces = namespaces_of(sharing, self._reporter)
        self._lease = _take_lease(sharing.local_store) if self._namespaces[0].local is not None else None
        self._lookups = DeadlineExecutor("aptui-shared-ask", _LOOKUP_THREADS)
        writing = Breaker(clock)
        self._uploader = ResultUploader(
            self._namespaces[0],
            self.account,
            self._reporter,
            writing,
            writes=sharing.writes,
            local_limit_bytes=sharing.local_limit_bytes,
        )

    # ----------------------------------------------------------------------------------------------------- finding results

    def find(self, facts: JobFacts, present: Present, folder: str, *, is_shared: bool = True) -> CacheHit | None:
        """Put a job's result from a store into `folder` and return it, None = no store has a result.

        The hit or miss is counted in `account`.
        """
        began, found, hit = self._stopwatch.now(), None, None
        try:
            with self._stopwatch.at_work():
                found = self.look_up(facts, present, is_shared=is_shared)
                hit = self.fetch(found, folder) if found is not None else None
        except Exception as error:  # noqa: BLE001  # an error here must not delay a job
            self._reporter.report_error(error)
        if hit is None:
            self.account.count(facts.builder_name, misses=1, unusable=found is not None, fetch_ms=self._since(began))
        return hit

    def look_up(self, facts: JobFacts, present: Present, *, is_shared: bool = True) -> FoundResult | None:
        """Return a job's result if a store has it.

        Args:
            present: returns whether the files that the builder found have the same bytes on this machine.
            is_shared: whether the team's store is used, too.
        """
        base, began, started_s = base_key(facts), self._stopwatch.now(), self._clock()
        for namespace in self._namespaces:
            result = self._check_result(namespace, self._read_local(namespace, base, present), facts)
            if result is not None and self._is_within_reach(namespace, result, is_shared=is_shared):
                return FoundResult(facts, result, namespace, is_remote=False, lookup_ms=self._since(began))
        for namespace in self._namespaces if is_shared else ():
            if namespace.remote is None or self._is_paused(base):
                continue
            left_s = self._deadline_s - (self._clock() - started_s)
            read = partial(publishing.read_result, namespace.remote, namespace.trust.open_sealed, base, present)
            result = self._ask(namespace.remote, facts.builder_name, base, left_s, read)
            result = self._check_result(namespace, result, facts, is_remote=True)
            if result is not None:
                return FoundResult(facts, result, namespace, is_remote=True, lookup_ms=self._since(began))
        return None

    def fetch(self, found: FoundResult, folder: str) -> CacheHit | None:
        """Put the products of a result into the new folder `folder`; if that fails, remove them and return None."""
        began, products = self._stopwatch.now(), found.result.record.products
        targets = [os.path.join(folder, str(number)) for number in range(len(products))]
        try:
            os.makedirs(folder, exist_ok=True)
            missing = [index for index, item in enumerate(products) if not self._place(found.namespace, item, targets[index])]
            is_whole = not missing or self._fetch_blobs(found, folder, {targets[index]: products[index] for index in missing})
        except OSError as error:
            self._reporter.report("placing", f"a shared result cannot be put into '{folder}': {error.strerror}")
            is_whole, missing = False, []
        if not is_whole:
            for target in targets:
                with contextlib.suppress(OSError):
                    os.unlink(target)
            if not found.is_remote and found.namespace.local is not None:
                found.namespace.local.drop_record(found.result.key)  # blobs of this record are missing, so the record is useless
            return None
        if found.is_remote and found.namespace.fetched is not None:
            try:
                publishing.publish(found.namespace.fetched, publishing.open_trusted, found.namespace.trust, found.result)
                self._uploader.clean_after(found.result.record)
            except KnownError as error:
                self._reporter.report_error(error)
        fetched = {products[index].digest: products[index].size for index in missing}
        return self._count_hit(found, targets, sum(fetched.values()), self._since(began) + found.lookup_ms)

    def note_unused(self, hit: CacheHit) -> None:
        """Count a fetched result as a miss instead of a hit: the job ran here before the result arrived, so it saved no time."""
        counts = {"remote_hits": -1} if hit.is_remote else {"local_hits": -1}
        self.account.count(hit.builder, misses=1, unusable=1, built_ms=-hit.record.duration_ms, **counts)

    # ----------------------------------------------------------------------------------------------------- storing results

    def put(
        self,
        facts: JobFacts,
        record: Record,
        files: Mapping[str, str],
        *,
        is_shared: bool = True,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        """Store a result in the background, and upload it if this machine writes to the team's store.

        Args:
            files: {digest in hex: absolute path} of its products; they are verified while they are read.
            is_current: whether all inputs are unchanged since before the run; called just before publishing.
        """
        self._uploader.put(MadeResult(facts, record, dict(files), is_current, is_shared))

    def wait_until_stored(self, limit_s: float) -> bool:
        """Wait until all results are stored and uploaded; return False after `limit_s`."""
        return self._uploader.wait_until_stored(limit_s)

    @property
    def waiting(self) -> int:
        """Number of results that are not stored or uploaded yet."""
        return self._uploader.waiting

    def close(self) -> None:
        """End the threads, release the lease, and close the team's stores; results that are not uploaded yet are dropped."""
        self._uploader.close()
        self._lookups.close()
        if self._lease is not None:
            self._lease.close()
        for namespace in self._namespaces:
            if namespace.remote is not None:
                namespace.remote.close()

    # ------------------------------------------------------------------------------------------------------------- helpers

    def _read_local(self, namespace: Namespace, base: str, present: Present) -> SharedResult | None:
        if namespace.local is None:
            return None
        try:
            return publishing.read_result(namespace.local, publishing.open_trusted, base, present)
        except Mismatch as error:
            namespace.local.drop_record(base)
            self._reporter.report_error(error)
        except StoreError as error:
            self._reporter.report_error(error)
        return None

    def _check_result(
        self, namespace: Namespace, result: SharedResult | None, facts: JobFacts, *, is_remote: bool = False
    ) -> SharedResult | None:
        """Return a result if its run reported exactly the inputs of the job, otherwise None.

        A wrong result is deleted from this machine's store, or not requested again from the team's store for a while.
        """
        flaw = flaw_of_report(result.record, facts) if result is not None else ""
        if result is None or not flaw:
            return result
        if is_remote:
            self._paused[result.record.base] = self._clock() + _WRONG_RESULT_PAUSE_S
        elif namespace.local is not None:
            namespace.local.drop_record(result.key)
        self._reporter.report_error(Mismatch(flaw))
        return None

    def _is_within_reach(self, namespace: Namespace, result: SharedResult, *, is_shared: bool) -> bool:
        """Whether this machine has all blobs of a result, or the team's store may have them."""
        with contextlib.suppress(StoreError):
            if namespace.local is not None and namespace.local.has_blobs(result.record.blobs) == result.record.blobs.keys():
                return True
        return is_shared and namespace.remote is not None and not self._breaker.is_open

    def _ask(self, store: Store, builder: str, name: str, limit_s: float, call: Callable[[], T]) -> T | None:
        """Call the team's store, and report success or failure to the circuit breaker."""
        if not self._breaker.allows():
            self.account.count(builder, unanswered=1)
            return None
        try:
            answer = self._lookups.wait(call, limit_s)
        except Mismatch as error:
            self._breaker.note_success()
            self._paused[name] = self._clock() + _WRONG_RESULT_PAUSE_S
            error.where = error.where or store.address
            self._reporter.report_error(error)
        except TooSlow:
            self._fail(builder, StoreError(f"the shared cache did not answer within {self._deadline_s:g} s", where=store.address))
        except StoreError as error:
            self._fail(builder, error)
        except Exception as error:  # noqa: BLE001  # an error of a store must not delay a job
            self._fail(builder, StoreError(f"{type(error).__name__}: {error}", where=store.address))
        else:
            self._breaker.note_success()
            return answer
        return None

    def _fail(self, builder: str, error: StoreError) -> None:
        self.account.count(builder, unanswered=1)
        self._reporter.report_error(error)
        if self._breaker.note_failure():
            self._reporter.report(
                f"rest {error.where}", f"the shared cache is not used for some time, because it failed several times: {error}"
            )

    def _is_paused(self, name: str) -> bool:
        return self._paused.get(name, 0.0) > self._clock()

    def _place(self, namespace: Namespace, item: StagedProduct, target: str) -> bool:
        if namespace.local is None:
            return False
        try:
            return namespace.local.get_blob(item.digest.hex(), target, item.size, is_executable=item.is_executable)
        except StoreError as error:
            self._reporter.report_error(error)
            return False

    def _fetch_blobs(self, found: FoundResult, folder: str, targets: dict[str, StagedProduct]) -> bool:
        """Download blobs into a folder next to `folder`, then put them at their targets.

        So a download that continues after its timeout cannot change files that are already in use.
        """
        remote, base = found.namespace.remote, found.result.record.base
        if remote is None or self._is_paused(base):
            return False
        wanted = {item.digest.hex(): item.size for item in targets.values()}
        if not self._fits_on_disk(folder, sum(wanted.values())):
            return False
        spool, is_given_up = f"{folder}.part-{secrets.token_hex(4)}", threading.Event()
        limit_s = self._deadline_s + sum(wanted.values()) / SLOWEST_BYTES_PER_S
        try:
            is_here = self._ask(
                remote,
                found.facts.builder_name,
                base,
                limit_s,
                lambda: _download(remote, wanted, spool, is_given_up, self._uploader.replaces),
            )
            if is_here:
                _place_all(found.namespace, targets, spool)
            return bool(is_here)
        finally:
            is_given_up.set()
            shutil.rmtree(spool, ignore_errors=True)

    def _fits_on_disk(self, folder: str, size: int) -> bool:
        """Whether the disk of `folder` has enough space for a download of `size` bytes.

        The check is needed because `size` comes from the record of another machine, which may be wrong.
        """
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        if size + _RESERVED_BYTES <= free:
            return True
        text = (
            f"a shared result of {size >> 20:,} MiB is not downloaded, because the disk of '{folder}' has only "
            f"{free >> 20:,} MiB left"
        )
        self._reporter.report("room", text)
        return False

    def _count_hit(self, found: FoundResult, targets: list[str], fetched_bytes: int, fetch_ms: int) -> CacheHit:
        builder, is_remote = found.facts.builder_name, found.is_remote or fetched_bytes > 0
        counts = {"remote_hits": 1} if is_remote else {"local_hits": 1}
        record = found.result.record
        self.account.count(builder, built_ms=record.duration_ms, fetch_ms=fetch_ms, fetched_bytes=fetched_bytes, **counts)
        return CacheHit(builder, record, tuple(targets), is_remote)

    def _since(self, began: float) -> int:
        return round(1000 * (self._stopwatch.now() - began))


def _take_lease(root: str) -> Lease | None:
    with contextlib.suppress(OSError):
        return Lease(root)
    return None


def _download(
    remote: Store, wanted: Mapping[str, int], spool: str, is_given_up: threading.Event, replaces: Callable[[Iterable[str]], None]
) -> bool:
    """Download blobs into the new folder `spool`; return whether the store had all of them.

    After a damaged blob, the next upload replaces all blobs of the result, because further blobs may be damaged.
    """
    is_done = False
    os.mkdir(spool)
    try:
        for digest, size in wanted.items():
            try:
                if not remote.get_blob(digest, os.path.join(spool, digest), size):
                    return False
            except Mismatch:
                replaces(wanted)
                raise
        is_done = True
        return True
    finally:
        if not is_done or is_given_up.is_set():
            shutil.rmtree(spool, ignore_errors=True)


def _place_all(namespace: Namespace, targets: Mapping[str, StagedProduct], spool: str) -> None:
    """Put verified blobs at their targets and into this machine's store."""
    for digest in {item.digest.hex() for item in targets.values() if item.is_executable}:
        placing.make_executable(os.path.join(spool, digest))  # the mode is set before hard links to this file are made
    for target, item in targets.items():
        path = os.path.join(spool, item.digest.hex())
        if namespace.local is None or not _is_placed(namespace.local, path, target, item):
            shutil.copyfile(path, target)
            if item.is_executable:
                placing.make_executable(target)


def _is_placed(local: LocalStore, path: str, target: str, item: StagedProduct) -> bool:
    with contextlib.suppress(StoreError):
        local.put_blob(item.digest.hex(), path)
        return local.get_blob(item.digest.hex(), target, item.size, is_executable=item.is_executable)
    return False

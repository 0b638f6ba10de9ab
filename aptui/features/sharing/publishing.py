"""Reads and publishes records and variants in stores, and uploads results of this machine in the background.

Tests: `tests/features/sharing/test_results.py`, `tests/features/sharing/test_service.py`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable

from msgspec import Struct

from aptui.core.notices import LogLevel
from aptui.features.sharing import record as records
from aptui.features.sharing.namespaces import Namespace, TroubleReporter
from aptui.features.sharing.record import Discovered, JobFacts, Record, Seal, Variants, difference, part_sealed, variant_key
from aptui.features.sharing.stores.breaker import Breaker, DeadlineExecutor
from aptui.features.sharing.stores.local import gc, needs_cleanup
from aptui.shared.errors import KnownError
from aptui.shared.result_store import Account, Mismatch, Store, StoreError, StoreFull, StoreRefused

# A store has one entry at the base key of a job: a record, or a list of variants if the builder finds dependencies while it runs
# (`sharing.record`).

Present = Callable[[Discovered], bool]
"""A function that returns whether each found dependency has the recorded digest on this machine, too."""
Open = Callable[[bytes], tuple[str, bytes]]
"""A function that checks and opens a sealed record: `Seal.open_sealed`, or `open_trusted` for this machine's store."""


class SharedResult(Struct, frozen=True):
    """The record of a result, the record's bytes with its seal (checksum, MAC, signature), and its key in a store."""

    record: Record
    data: bytes
    key: str


def open_trusted(data: bytes) -> tuple[str, bytes]:
    """Open a record from this machine's own store, which returns trusted records only."""
    kind, _, body = part_sealed(data)
    return kind, body


def read_result(store: Store, opens: Open, base: str, present: Present) -> SharedResult | None:
    """Return the stored result with base key `base` whose dependencies equal the local files, None if the store lacks it.

    Args:
        present: returns whether dependencies of a stored result equal the local files.

    Raises:
        Mismatch: the record is damaged or not trusted. StoreError: the store does not answer.
    """
    data = store.get_record(base)
    if data is None:
        return None
    entry = records.decode_record(*opens(data), base)
    if isinstance(entry, Record):
        return SharedResult(entry, data, base) if not entry.discovered else None
    # The variant with the most dependencies is tried first, because a variant without dependencies always matches.
    for discovered, key in sorted(entry.variants, key=lambda pair: -len(pair[0])):
        if present(discovered) and (found := _variant(store, opens, base, discovered, key)):
            return found
    return None


def publish(store: Store, opens: Open, seal: Seal, result: SharedResult) -> Record | None:
    """Publish a result. If its key has a record already, keep and return that record (the first writer wins).

    The blobs of the result must be stored before the call, because readers of the record may fetch them at once. A damaged record
    is replaced.

    Raises:
        Mismatch: the key has a record that this machine does not trust; that record is kept.
    """
    base = result.record.base
    if not result.record.discovered:
        if store.put_record(base, result.data):
            return None
        there = _entry(store, opens, base, base)
        if not isinstance(there, Variants):
            return there if there is not None or store.put_record(base, result.data, if_absent=False) else None
    return _publish_variant(store, opens, seal, result)


def _publish_variant(store: Store, opens: Open, seal: Seal, result: SharedResult) -> Record | None:
    base, discovered = result.record.base, result.record.discovered
    there = _entry(store, opens, base, base)
    key = variant_key(base, discovered)
    before: Record | Variants | None = None
    if not store.put_record(key, result.data):
        before = _entry(store, opens, base, key)
        if before is None:
            store.put_record(key, result.data, if_absent=False)
    listed = there if isinstance(there, Variants) else Variants(base)
    if isinstance(there, Record):  # a record without dependencies: store it again as the variant with the dependencies ()
        other = variant_key(base, ())
        store.put_record(other, records.seal_record(there, seal))
        listed = listed.put_variant((), other)
    if (discovered, key) not in listed.variants:
        store.put_record(base, records.seal_record(listed.put_variant(discovered, key), seal), if_absent=False)
    return before if isinstance(before, Record) else None


def _variant(store: Store, opens: Open, base: str, discovered: Discovered, key: str) -> SharedResult | None:
    data = store.get_record(key)
    if data is None:
        return None
    entry = records.decode_record(*opens(data), base)
    if not isinstance(entry, Record) or entry.discovered != discovered:
        raise Mismatch("the record belongs to another variant")
    return SharedResult(entry, data, key)


def _entry(store: Store, opens: Open, base: str, key: str) -> Record | Variants | None:
    """Return the entry at a key, None = the key has no entry or a damaged entry."""
    data = store.get_record(key)
    if data is None:
        return None
    try:
        part_sealed(data)
    except Mismatch:
        return None
    return records.decode_record(*opens(data), base)


# Texts in logs that mention a full disk.
_DISK_FULL = re.compile(
    r"no space left on device|\bENOSPC\b|\bdisk (?:is )?full\b|not enough (?:disk )?space|quota exceeded|\bEDQUOT\b|write error",
    re.IGNORECASE,
)


def doubt(record: Record) -> str:
    """Return why a record must not be shared, "" = it may be shared.

    A run that failed because of a full disk may look successful (Bazel #4276).
    """
    for line in record.log:
        if line.level >= LogLevel.WARNING and _DISK_FULL.search(line.text):
            return f"the log of the job mentions a full disk: '{line.text[:100]}'"
    return ""


_UPLOAD_THREADS = 2
_MOST_WAITING = 10_000
"""Maximum number of results that wait to be stored or uploaded; further results are not stored."""


class MadeResult(Struct, frozen=True):
    """A result of this machine that will be stored: `files` is {digest of a product in hex: its absolute path}.

    `is_current` returns whether the inputs are unchanged since before the run.
    """

    facts: JobFacts
    record: Record
    files: dict[str, str]
    is_current: Callable[[], bool]
    is_shared: bool

    @property
    def builder(self) -> str:
        """Name of the builder."""
        return self.facts.builder_name


class ResultUploader:
    """Stores and uploads results of this machine, in the only namespace that this machine writes.

    Args:
        writes: whether results are uploaded to the team's store.
        local_limit_bytes: size limit of this machine's store, 0 = no limit.
    """

    def __init__(
        self,
        namespace: Namespace,
        account: Account,
        reporter: TroubleReporter,
        breaker: Breaker,
        *,
        writes: bool,
        local_limit_bytes: int,
    ) -> None:
        self._namespace, self._account, self._reporter, self._breaker = namespace, account, reporter, breaker
        self._writes, self._limit_bytes = writes, local_limit_bytes
        self._differing: set[str] = set()
        self._wrong_blobs: set[str] = set()
        self._idle = threading.Condition()
        self.waiting = 0
        """Number of results that still have to be stored or uploaded."""
        self._is_cleaning = False
        self._storing = DeadlineExecutor("aptui-shared-keep", 1)
        self._uploading = DeadlineExecutor("aptui-shared-upload", _UPLOAD_THREADS)

    def put(self, made: MadeResult) -> None:
        """Store and upload a result in the background."""
        if reason := doubt(made.record):
            self._reporter.report(f"doubt {made.builder}", f"a result of '{made.builder}' is not stored: {reason}")
            return
        with self._idle:
            is_accepted = self.waiting < _MOST_WAITING
            self.waiting += is_accepted
        if is_accepted:
            self._storing.submit(lambda: self._store(made))
        else:
            self._account.count(made.builder, not_uploaded=1)

    def replaces(self, digests: Iterable[str]) -> None:
        """Make the next upload replace these blobs, because the team's store has wrong bytes for the digest of at least one."""
        self._wrong_blobs.update(digests)

    def clean_after(self, record: Record) -> None:
        """Clean this machine's store in the background, if a cleanup is due after the result `record` was added."""
        local = self._namespace.local
        if local is not None and needs_cleanup(local.address, (1, *record.blobs.values()), self._limit_bytes):
            with self._idle:
                is_due, self._is_cleaning = not self._is_cleaning, True
            if is_due:
                self._storing.submit(lambda: self._clean(local.address))

    def _clean(self, root: str) -> None:
        """Remove results until the store is below its limit, unless another cleanup has ended since; runs in a thread."""
        try:
            if needs_cleanup(root, (), self._limit_bytes):
                gc(root, self._limit_bytes)
        except Exception as error:  # noqa: BLE001  # a store that is too large must not delay a job
            self._reporter.report_error(error)
        finally:
            with self._idle:
                self._is_cleaning = False
                self._idle.notify_all()

    def wait_until_stored(self, limit_s: float) -> bool:
        """Wait until all results are stored and uploaded, and no cleanup runs; return False after `limit_s`."""
        with self._idle:
            return self._idle.wait_for(lambda: not (self.waiting or self._is_cleaning), limit_s)

    def close(self) -> None:
        """End the threads; they do not keep the process alive."""
        self._storing.close()
        self._uploading.close()

    def _store(self, made: MadeResult) -> None:
        """Store a result; runs in a thread."""
        is_uploading = False
        try:
            if made.is_current():
                result = SharedResult(made.record, records.seal_record(made.record, self._namespace.trust), made.record.base)
                self._store_locally(made, result)
                is_uploading = self._is_uploaded(made)
                if is_uploading:
                    self._uploading.submit(lambda: self._upload(made, result))
        except Exception as error:  # noqa: BLE001  # a result that is not stored is only made again
            self._reporter.report_error(error)
        finally:
            if not is_uploading:
                self._on_end()

    def _store_locally(self, made: MadeResult, result: SharedResult) -> None:
        local = self._namespace.local
        if local is None:
            return
        try:
            for digest in made.record.blobs:
                local.put_blob(digest, made.files[digest])
            self._compare(made, publish(local, open_trusted, self._namespace.trust, result))
            self._account.count(made.builder, stored=1)
            self.clean_after(made.record)
        except KnownError as error:
            self._reporter.report_error(error)

    def _is_uploaded(self, made: MadeResult) -> bool:
        is_steady = made.builder not in self._differing
        return self._writes and made.is_shared and self._namespace.remote is not None and is_steady

    def _upload(self, made: MadeResult, result: SharedResult) -> None:
        """Upload a result; runs in a thread."""
        is_done = False
        try:
            if self._namespace.remote is not None and self._is_uploaded(made) and self._breaker.allows():
                is_done = self._send(self._namespace.remote, made, result)
                self._breaker.note_success()
        except (StoreFull, StoreRefused) as error:
            self._breaker.open_now()
            self._reporter.report(f"upload {error.where}", f"results are not uploaded to the shared cache: {error}")
        except Mismatch as error:
            self._breaker.note_success()
            self._reporter.report_error(error)
        except Exception as error:  # noqa: BLE001  # a result that is not uploaded is only made again
            self._breaker.note_failure()
            self._reporter.report_error(error)
        finally:
            sent_bytes = sum(made.record.blobs.values()) if is_done else 0
            self._account.count(made.builder, uploads=is_done, not_uploaded=not is_done, uploaded_bytes=sent_bytes)
            self._on_end()

    def _send(self, remote: Store, made: MadeResult, result: SharedResult) -> bool:
        """Upload the blobs, then their record; return False and upload no record if an input changed since before the run."""
        for digest in made.record.blobs:
            remote.put_blob(digest, self._file_of(made, digest), replaces=digest in self._wrong_blobs)
            self._wrong_blobs.discard(digest)
        if not made.is_current():
            return False
        self._compare(made, publish(remote, self._namespace.trust.open_sealed, self._namespace.trust, result))
        return True

    def _file_of(self, made: MadeResult, digest: str) -> str:
        """Return the file of a blob: the copy in this machine's store if possible, because a later run may replace the product."""
        local = self._namespace.local
        try:
            return local.blob_path(digest) if local is not None and local.has_blobs([digest]) else made.files[digest]
        except StoreError:
            return made.files[digest]

    def _compare(self, made: MadeResult, theirs: Record | None) -> None:
        """Compare a result with the stored record of its job; if they differ, report the builder and stop uploading its results."""
        text = difference(made.record, theirs) if theirs is not None else ""
        if text:
            self._differing.add(made.builder)
            self._account.count(made.builder, differences=1)
            self._reporter.report(
                f"differs {made.builder}", f"builder '{made.builder}' makes different products from the same inputs: {text}"
            )

    def _on_end(self) -> None:
        with self._idle:
            self.waiting -= 1
            self._idle.notify_all()

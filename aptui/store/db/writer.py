"""The writer thread, the only one that writes the asset database; the operations' SQL is in `statements`.

The thread gets its work from a queue and does it in order. `save` does not wait: saves that arrive within some milliseconds, or
while a transaction is written, share one transaction. `run` and `finish` wait until their transaction, which includes all earlier
saves, is committed. `record_intents` and `announce_intents` return a function for waiting, which the caller calls when it needs the
intents.

Durability: a power cut may lose the last transactions. The database then has an earlier, valid state, but it does not match the
cache if files were renamed or deleted because of the lost rows. So a transaction is synced before files are changed because of it:
intents (files are renamed next) and rows of dropped products (files are deleted next). The transaction of `finish` is not synced,
because recovery finishes durable intents anyway. After a failed save, all further requests are refused with the same error, because
their rows may depend on the lost rows.
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from msgspec import Struct, field

from aptui.core.messages import Rows
from aptui.core.model import PathKey
from aptui.shared import trace
from aptui.shared.errors import HostError, InternalError, KnownError
from aptui.store.db.change_log import CatalogMark, ChangeLog, TouchedRows
from aptui.store.db.product_links import ProductLinkProjection
from aptui.store.db.schema import has_rows, host_error
from aptui.store.db.statements import STATEMENTS, Parameters, execute, query_ids

# If a job makes a product again, the product keeps its row and its id, by which other rows refer to it.
#
# After a run, the core requests two changes: drop all products of the job, and put the new products. `keep_products` replaces these
# requests by the differences between the stored and the new products. A product with the same name and sub id keeps its row, as in
# O3DE (`AssetDatabaseConnection::SetProduct`), and unchanged rows are not written. Deleting a row and inserting it again costs
# every index of Products twice, and a look-up in each table that refers to the row.

_Row = tuple[object, ...]
_PRODUCTS = """SELECT p.JobPK, p.ProductName, p.SubID, p.ProductID, p.AssetType, p.Hash, p.Flags, o.digest, o.size
FROM json_each(?) k CROSS JOIN Products p ON p.JobPK = k.value LEFT JOIN aptui_products o ON o.product_id = p.ProductID
ORDER BY p.ProductID"""
_DECLARED = {
    "put_link": (
        "aptui_product_links",
        """SELECT l.product_id, l.at, l.kind, l.platform, l.path, l.prefix, l.is_exclusion, l.source_guid, l.sub_id, l.flags
        FROM json_each(?) k CROSS JOIN aptui_product_links l ON l.product_id = k.value""",
    ),
    "put_legacy_sub_id": (
        "LegacySubIDs",
        "SELECT l.ProductPK, l.SubID FROM json_each(?) k CROSS JOIN LegacySubIDs l ON l.ProductPK = k.value",
    ),
    "put_facts": (
        "aptui_facts",
        """SELECT f.product_id, f.width, f.height, f.triangles, f.rate, f.seconds, f.format, f.more
        FROM json_each(?) k CROSS JOIN aptui_facts f ON f.product_id = k.value""",
    ),
}
"""{operation: (its table, SQL that reads the existing rows of products)}.

The columns of the SQL are the operation's parameters in the same order, except that the second parameter, the job, is left out.
"""


def keep_products(database: sqlite3.Connection, rows: Rows) -> Rows:
    """Return `rows` without the pairs that drop and put the same product; the product's existing row is changed instead.

    The caller applies the result to `database` afterwards.
    """
    put = rows.get("put_product", ())
    again = {row[0] for row in rows.get("drop_products", ())} & {row[1] for row in put}
    if not again:
        return rows
    there: dict[_Row, tuple[int, _Row]] = {}
    gone: list[int] = []
    for job_id, name, sub_id, product_id, *columns in query_ids(database, _PRODUCTS, again):
        if there.setdefault((job_id, name, sub_id), (product_id, tuple(columns)))[0] != product_id:
            gone.append(product_id)
    new_ids: dict[object, int] = {}
    """{id of a new product in `rows`: id of the stored row of the same product}."""
    equal: set[int] = set()
    for row in put:
        product_id, before = there.pop(row[1:4], (0, ()))
        if product_id:
            new_ids[row[0]] = product_id
            if row[4:] == before:
                equal.add(product_id)
    gone += [product_id for product_id, _before in there.values()]
    others = _declaring_others(database, rows, new_ids)
    changed = {
        **rows,
        "drop_products": [row for row in rows["drop_products"] if row[0] not in again],
        "drop_product": [*rows.get("drop_product", ()), *((product_id,) for product_id in gone)],
        "drop_declared": [*rows.get("drop_declared", ()), *((product_id,) for product_id in others)],
        "put_product": list(_move_rows(put, new_ids, equal - others)),
    }
    for operation in _DECLARED.keys() & rows.keys():
        changed[operation] = list(_move_rows(rows[operation], new_ids, set(new_ids.values()) - others))
    # Findings of a scan for missing dependencies are dropped, because they are about the earlier products.
    if has_rows(database, "MissingProductDependencies"):
        changed["drop_missing"] = [*rows.get("drop_missing", ()), *((product_id,) for product_id in new_ids.values())]
    return changed


def _move_rows(rows: Iterable[_Row], new_ids: Mapping[object, int], left: Collection[int]) -> Iterator[_Row]:
    """Yield `rows` with each product id replaced by the id of its kept row (`new_ids`); skip rows of the products in `left`."""
    for row in rows:
        product_id = new_ids.get(row[0], row[0])
        if product_id not in left:
            yield (product_id, *row[1:])


def _declaring_others(database: sqlite3.Connection, rows: Rows, new_ids: Mapping[object, int]) -> set[int]:
    """Return the kept products whose rows in the tables of `_DECLARED` will change."""
    before: set[_Row] = set()
    now: set[_Row] = set()
    for operation, (table, sql) in _DECLARED.items():
        if has_rows(database, table):
            before.update((*row, operation) for row in query_ids(database, sql, new_ids.values()))
        now.update((new_ids[row[0]], *row[2:], operation) for row in rows.get(operation, ()) if row[0] in new_ids)
    return {cast("int", row[0]) for row in before ^ now}


MERGED_ROWS_MAX = 20_000
"""Maximum number of rows of saves that are merged into one transaction: about half a second of writing."""
HELD_S = 0.005
"""Time (seconds) that a save waits for other saves, or for a commit, to share one transaction with them."""
_RELIED_ON = ("drop_source", "drop_job", "drop_products")
"""Operations after which files of products are deleted from the cache, so their transactions are synced."""
CHECKPOINT_PAGES = 4_000
"""Size of the write-ahead log (pages) from which a commit moves its pages into the database, as far as readers allow: 16 MiB."""
CACHE_KIB = 64 * 1024
BUSY_TIMEOUT_S = 1.0
LOCK_TIMEOUT_S = 30.0
"""Maximum time (seconds) to wait for another program's write lock."""

_INTENTS_SQL = "INSERT OR REPLACE INTO aptui_intents VALUES (?, ?, ?, ?, ?, ?)"
_CLEAR_SQL = "DELETE FROM aptui_intents WHERE run_key IN (SELECT value FROM json_each(?))"
_PRODUCTS_SQL = """SELECT p.JobPK, p.ProductName FROM aptui_sources o CROSS JOIN Jobs j ON j.SourcePK = o.source_id
    CROSS JOIN Products p ON p.JobPK = j.JobID WHERE o.path_key = ?"""
_NEW_SCAN_FOLDER = "INSERT INTO ScanFolders(ScanFolder, DisplayName, PortableKey, IsRoot) VALUES (?, ?, ?, 0)"
_SCAN_FOLDER = "UPDATE ScanFolders SET ScanFolder = ?, DisplayName = ?, PortableKey = ? WHERE ScanFolderID = ?"

T = TypeVar("T")


class Intent(NamedTuple):
    """One rename that a commit is about to make; `stale` is a JSON list of product names to delete after it."""

    run_key: int
    job_id: int
    name: str
    digest: bytes
    size: int
    stale: str


class _Save(Struct):
    ticket: int
    rows: Rows


class _Transaction(Struct):
    """Rows of a transaction; `then` is called inside the transaction."""

    rows: Rows
    durable: bool
    then: Callable[[], object] | None = None


class _Call(Struct):
    """A request to the writer's thread whose caller waits for the end; `action` is a function or a transaction."""

    action: Callable[[], object] | _Transaction
    done: threading.Event = field(default_factory=threading.Event)
    result: object = None
    error: KnownError | None = None


class Writer:
    """Owner of the connection that writes the database.

    Args:
        path: a database that `schema.prepare` has checked.
        on_saved: called in the writer's thread after a commit, with the highest ticket that has been saved.
        on_failed: called in the writer's thread when a save has failed; nothing is saved after that.
        lock_timeout_s: maximum wait for another program's write lock.
    """

    def __init__(
        self,
        path: Path,
        on_saved: Callable[[int], None],
        on_failed: Callable[[KnownError], None] | None = None,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self._path = path
        self._on_saved = on_saved
        self._on_failed = on_failed
        self._lock_timeout_s = lock_timeout_s
        self._queue: queue.SimpleQueue[_Save | _Call | None] = queue.SimpleQueue()
        self._failure: KnownError | None = None
        self._ticket = 0
        self._is_closed = False
        self._database = self._open()
        self._is_durable = True
        self._thread = threading.Thread(target=self._work, name="database-writer", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------ callable from any thread

    def save(self, ticket: int, rows: Rows) -> None:
        """Save `rows` after all earlier requests; `on_saved` reports the end. Tickets must rise.

        Raises:
            KnownError: an earlier save failed.
        """
        self._refuse_if_broken()
        if ticket <= self._ticket:  # rows of an older save would replace newer rows
            raise InternalError(f"save {ticket} was requested after save {self._ticket}", hint="please report this")
        self._ticket = ticket
        self._queue.put(_Save(ticket, rows))

    def run(self, rows: Rows, *, durable: bool) -> None:
        """Save `rows` and return when they are committed, and on the disk if `durable`.

        Raises:
            HostError: the disk is full, or failed; nothing of `rows` was saved.
        """
        self._ask(_Transaction(rows, durable))

    def record_intents(self, intents: Iterable[Parameters]) -> Callable[[], object]:
        """Start syncing `Intent` rows; return a function that waits until they are on the disk, before the first rename."""
        listed = list(intents)
        call = self._post(_Transaction({}, durable=True, then=lambda: execute(self._database, _INTENTS_SQL, listed)))
        return lambda: _wait(call)

    def announce_intents(
        self, copies: Sequence[tuple[PathKey, Sequence[int]]]
    ) -> Callable[[], dict[PathKey, frozenset[tuple[int, str]]]]:
        """Start saving intents (planned renames) while the bytes of the files are still being read, so without digests.

        Return a function that waits until the intents are on the disk, and returns {file: pairs (job id, product name)}. If
        saving them fails, that result is empty, and the caller must record the intents.

        Args:
            copies: pairs (file, run keys); each product of the file gets one intent for each run key.
        """
        found: dict[PathKey, frozenset[tuple[int, str]]] = {}

        def put() -> None:
            for key, run_keys in copies:
                found[key] = frozenset(self._database.execute(_PRODUCTS_SQL, (key,)))
                rows = [(run_key, job_id, name, b"", 0, "[]") for run_key in run_keys for job_id, name in found[key]]
                execute(self._database, _INTENTS_SQL, rows)

        call = _Call(_Transaction({}, durable=True, then=put))

        def wait() -> dict[PathKey, frozenset[tuple[int, str]]]:
            call.done.wait()
            return found if call.error is None else {}

        if not self._is_closed:
            self._queue.put(call)
            return wait
        return dict

    def finish(self, rows: Rows, run_keys: Sequence[int]) -> None:
        """Save the rows of a commit and clear the intents of its runs, in one transaction."""
        self._ask(_Transaction(rows, durable=False, then=self._clearing(run_keys)))

    def withdraw_intents(self, run_keys: Sequence[int]) -> None:
        """Clear the intents of runs that ended without a result; returns at once."""
        if not self._is_closed:
            self._queue.put(_Call(_Transaction({}, durable=False, then=self._clearing(run_keys))))

    def _clearing(self, run_keys: Sequence[int]) -> Callable[[], object]:
        return lambda: self._database.execute(_CLEAR_SQL, (json.dumps(run_keys),))

    def intents(self) -> list[Intent]:
        """Return the intents that were open when the last engine ended, by run key."""
        sql = "SELECT run_key, job_id, name, digest, size, stale FROM aptui_intents ORDER BY run_key, name"
        return self._ask(lambda: [Intent(*row) for row in self._database.execute(sql)])

    def sync_scan_folders(self, folders: Sequence[tuple[str, str, int]]) -> tuple[dict[str, int], list[int]]:
        """Give each (name, path, order) its row in ScanFolders; names are compared without case.

        Returns:
            {name: ScanFolderID}, and the ids of other rows, which the engine drops with their sources.
        """
        return self._ask(lambda: self._sync_scan_folders(folders))

    def drop_scan_folder(self, scan_folder_id: int) -> None:
        """Delete a scan folder's row with all rows that refer to it."""
        self._ask(lambda: self._drop_scan_folder(scan_folder_id))

    def pop_preloaders(self) -> set[int] | None:
        """Return the products whose preload dependencies may have changed since the last call; None = possibly all."""
        return self._ask(self._links.pop_preloaders)

    def product_changes(self) -> tuple[int, frozenset[str] | None]:
        """Return the number of transactions that changed products, and the names of products that changed.

        The names count from the start of the engine, or from the last `mark_catalogs` that set the mark; None = too many to list.
        All saves that were requested before this call are included.
        """
        return self._ask(lambda: (self._mark.changes, None if self._mark.names is None else frozenset(self._mark.names)))

    def mark_catalogs(self, changes: int, text: str) -> bool:
        """Set the mark that catalogs are up to date, unless products changed after transaction number `changes`.

        Return whether the mark is set.
        """

        def mark() -> bool:
            if self._mark.changes != changes:
                return False
            self._transact([], durable=False, then=lambda: self._mark.put(text))
            return True

        return self._ask(mark)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database and empty it, as far as readers allow."""
        with trace.span("checkpoint"):
            self._ask(lambda: self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())

    @property
    def is_at_its_path(self) -> bool | None:
        """Whether the file at the database's path is still the open database; None = the path does not exist."""
        try:
            seen = os.stat(self._path)
        except FileNotFoundError:
            return None
        return (seen.st_dev, seen.st_ino) == self._identity

    def close(self) -> None:
        """Finish all requests, then end the thread; a second call has no effect."""
        if self._is_closed:
            return
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()
        self._database.close()

    # ------------------------------------------------------------------------------------------------------ the thread

    def _ask(self, action: Callable[[], T] | _Transaction) -> T:
        return cast("T", _wait(self._post(action)))

    def _post(self, action: Callable[[], object] | _Transaction) -> _Call:
        self._refuse_if_broken()
        call = _Call(action)
        self._queue.put(call)
        return call

    def _refuse_if_broken(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise InternalError("the asset database is closed")

    def _work(self) -> None:
        """Handle requests from the queue until the queue returns None."""
        item = self._queue.get()
        while item is not None:
            if isinstance(item, _Call):
                self._answer(item)
                item = self._queue.get()
            else:
                item = self._save_with_followers(item)

    def _answer(self, call: _Call) -> None:
        try:
            if self._failure is not None:
                raise self._failure
            if isinstance(call.action, _Transaction):
                self._transact([call.action.rows], durable=call.action.durable, then=call.action.then)
            else:
                call.result = call.action()
        except Exception as error:  # noqa: BLE001 (every error is reported to the waiting caller)
            call.error = self._as_known(error)
        finally:
            call.done.set()

    def _save_with_followers(self, first: _Save) -> _Save | _Call | None:
        """Save `first`, and the saves that arrive within `HELD_S`, in one transaction; return the next request."""
        saves, after, row_count = [first], cast("_Save | _Call | None", None), _row_count(first)
        until = time.monotonic() + HELD_S
        while row_count < MERGED_ROWS_MAX:
            try:
                after = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(after, _Call) and isinstance(after.action, _Transaction):
                self._save_together(saves, after, after.action)
                return self._queue.get()
            if not isinstance(after, _Save):
                self._save_all(saves)
                return after
            saves.append(after)
            row_count += _row_count(after)
        self._save_all(saves)
        return self._queue.get()

    def _save_together(self, saves: list[_Save], call: _Call, asked: _Transaction) -> None:
        """Save the rows of the pending saves and of one call in the same transaction, and mark the call as done.

        `asked` has the rows of `call`. If a row is refused, the saves and the call get separate transactions, so that only one
        caller gets the error.
        """
        if self._failure is None:
            batches = [*(save.rows for save in saves), asked.rows]
            try:
                self._transact(batches, durable=asked.durable or _are_relied_on(saves), then=asked.then)
            except (sqlite3.IntegrityError, sqlite3.ProgrammingError, InternalError):
                pass
            except Exception as error:  # noqa: BLE001 (reported to the waiting caller, and to the next one)
                self._fail(error)
            else:
                self._on_saved(max(save.ticket for save in saves))
                call.done.set()
                return
        self._save_all(saves)
        self._answer(call)

    def _save_all(self, saves: list[_Save]) -> None:
        if self._failure is not None:
            return
        try:
            self._transact([save.rows for save in saves], durable=_are_relied_on(saves))
            self._on_saved(max(save.ticket for save in saves))
        except Exception as error:  # noqa: BLE001 (reported to the next caller)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._as_known(error)
        if self._on_failed is not None:
            self._on_failed(self._failure)

    def _as_known(self, error: Exception) -> KnownError:
        if isinstance(error, KnownError):
            return error
        if isinstance(error, (sqlite3.OperationalError, OSError)) or type(error) is sqlite3.DatabaseError:
            if isinstance(error, sqlite3.Error):
                return host_error(self._path, error)
            what = f"the asset database '{self._path}' cannot be written: {error}"
            return HostError(what, hint="check its permissions and the free space on its disk")
        return InternalError(f"the asset database '{self._path}' refused a row: {type(error).__name__}: {error}")

    # ---------------------------------------------------------------------------------------------------- transactions

    def _transact(self, batches: Sequence[Rows], *, durable: bool, then: Callable[[], object] | None = None) -> None:
        """Apply `batches` one after the other and call `then`, all in one transaction."""
        with trace.span("transaction", saves=len(batches), synced=durable):
            try:
                self._try_transact(batches, durable=durable, then=then)
            except UnicodeEncodeError:
                # A lone surrogate in a builder's text must not stop the engine, so this character is replaced.
                self._try_transact([_encodable(rows) for rows in batches], durable=durable, then=then)

    def _try_transact(self, batches: Sequence[Rows], *, durable: bool, then: Callable[[], object] | None) -> None:
        self._begin(durable=durable)
        try:
            self._touched.begin()
            self._links.begin()
            self._mark.begin()
            self._changes.begin()
            for batch in batches:
                rows = keep_products(self._database, batch)
                touched = self._touched.find(rows)
                self._links.watch(rows, touched)
                self._mark.watch(rows, touched)
                self._changes.watch(touched)
                self._apply(rows)
            self._links.project()
            self._mark.end(self._links.owners)
            self._changes.write_entries()
            if then is not None:
                then()
            self._database.execute("COMMIT")
            self._mark.note_commit()
            self._changes.note_commit()
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _apply(self, rows: Rows) -> None:
        unknown = rows.keys() - STATEMENTS.keys()
        if unknown:
            raise InternalError(f"'{min(unknown)}' is not a row operation")
        for name, statements in STATEMENTS.items():
            parameters = rows.get(name)
            if parameters:
                for sql, shape in statements:
                    execute(self._database, sql, parameters if shape is None else map(shape, parameters))

    def _begin(self, *, durable: bool) -> None:
        self._refuse_if_replaced()
        if durable != self._is_durable:
            self._database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable
        give_up = time.monotonic() + self._lock_timeout_s
        while True:
            try:
                self._database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up:
                    raise
                time.sleep(0.001 + os.urandom(1)[0] * 0.0002)  # at random, so that two programs do not collide again
            else:
                return

    def _refuse_if_replaced(self) -> None:
        """Refuse to write into a file that was deleted or replaced, because SQLite would not report an error."""
        if not self.is_at_its_path:
            raise HostError(
                f"the asset database '{self._path}' was deleted or replaced while the engine used it", hint="restart the engine"
            )

    def _open(self) -> sqlite3.Connection:
        with ExitStack() as stack:
            try:
                database = sqlite3.connect(
                    self._path,
                    timeout=min(BUSY_TIMEOUT_S, self._lock_timeout_s),
                    isolation_level=None,
                    check_same_thread=False,
                    cached_statements=256,
                )
                stack.callback(database.close)
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA foreign_keys = ON")
                database.execute("PRAGMA synchronous = FULL")
                database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
                database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
                database.execute("PRAGMA temp_store = MEMORY")
                self._touched = TouchedRows(database)
                self._links, self._mark = ProductLinkProjection(database), CatalogMark(database)
                self._changes = ChangeLog(database, self._touched)
                stat = self._path.stat()
            except sqlite3.Error as error:
                raise host_error(self._path, error) from error
            stack.pop_all()
        self._identity = (stat.st_dev, stat.st_ino)
        return database

    # ---------------------------------------------------------------------------------------------------- scan folders

    def _sync_scan_folders(self, folders: Sequence[tuple[str, str, int]]) -> tuple[dict[str, int], list[int]]:
        known = {key.lower(): row for row, key in self._database.execute("SELECT ScanFolderID, PortableKey FROM ScanFolders")}
        ids: dict[str, int] = {}

        def put() -> None:
            for name, path, _ in sorted(folders, key=lambda folder: folder[2]):
                row, values = known.pop(name.lower(), None), (path, name, name)
                if row is None:
                    row = self._database.execute(_NEW_SCAN_FOLDER, values).lastrowid or 0
                else:
                    self._database.execute(_SCAN_FOLDER, (*values, row))
                ids[name] = row

        self._transact([], durable=True, then=put)
        return ids, sorted(known.values())

    def _drop_scan_folder(self, scan_folder_id: int) -> None:
        sql = "SELECT SourceID FROM Sources WHERE ScanFolderPK = ?"
        sources: list[Parameters] = self._database.execute(sql, (scan_folder_id,)).fetchall()
        drop = "DELETE FROM ScanFolders WHERE ScanFolderID = ?"
        self._transact([{"drop_source": sources}], durable=True, then=lambda: self._database.execute(drop, (scan_folder_id,)))


def _wait(call: _Call) -> object:
    """Return the result of a call when it is done, or raise its error."""
    call.done.wait()
    if call.error is not None:
        raise call.error
    return call.result


def _are_relied_on(saves: Iterable[_Save]) -> bool:
    return any(save.rows.get(name) for save in saves for name in _RELIED_ON)


def _row_count(save: _Save) -> int:
    return sum(map(len, save.rows.values()))


def _encodable(rows: Rows) -> Rows:
    return {name: [tuple(map(_encodable_value, row)) for row in listed] for name, listed in rows.items()}


def _encodable_value(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value

"""The cache on disk: the only module that makes, moves or deletes a product.

A commit has five steps:

1. Sync the staged products, while the intent rows are written. (For copies of files that were just saved, the intents are written
   earlier: `announced`.)
2. Rename all products, and sync the folders.
3. In one transaction, save the rows of products and jobs, and clear the intents.
4. Delete stale products.
5. The caller sends the notices.

If the engine dies during a commit, the next start finds either the new rows, or the old rows with intents. The intents name the
products that may be newer than their rows.

    <cache>/<platform>/…        products
    <cache>/Intermediate Assets/…  products on platform `common`
    <cache>/assetdb.sqlite      the asset database
    <cache>/.aptui/             aptui's own files: staging/, trash/, lock, logs
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.config.dirs import DATABASE, OWN_FOLDER
from aptui.core.identity import META_SUFFIX, find_identified
from aptui.core.paths import as_text, cache_path, from_text, parent, to_text
from aptui.core.project import COMMON_PLATFORM, COMMON_PREFIX
from aptui.engine.cache import catalog
from aptui.engine.cache.cache_places import (
    NO_FOLDER,
    Placement,
    ReplacedFiles,
    Stamp,
    close_to_others,
    empty_in_background,
    read_ctime_ns,
    refuse_foreign,
    refuse_other_kinds,
    stamp_of,
)
from aptui.shared import trace
from aptui.shared.errors import BusyError, HostError
from aptui.shared.files.clocks import RACY_NS, is_coarse
from aptui.shared.files.confinement import ConfinedTree, ConfinementError, LinkError, parts_of

if TYPE_CHECKING:
    from aptui.core.messages import CommitProducts, JobCommit, Rows
    from aptui.core.model import PathKey
    from aptui.core.state.commits import JobRow
    from aptui.store.db.last_run import ProductArchive
    from aptui.store.db.writer import Writer


# An intent is a row that names a product that a commit is about to place. Announced intents are written while sources are still
# being read. They are on the disk when the commit begins, so that it can rename the products immediately. Only existing products
# are announced, because their names are known. An intent without a commit has no effect: the start after a crash finds that the
# product still has its recorded bytes.


class AnnouncedIntents:
    """The intents that are written before their commits begin, for one cache."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[PathKey, Callable[[], dict[PathKey, frozenset[tuple[int, str]]]]]] = {}
        """{run key of a copy job: (source of the job, function)}.

        The function waits until the intents are on the disk. Then it returns the announced products of each source:
        {source: {(job id, product name), ...}}.
        """

    def announce(self, copies: Sequence[tuple[PathKey, tuple[int, ...]]], writer: Writer) -> None:
        """Begin to write intents for the products of copy jobs. Each of `copies` is (source, run keys of its copy jobs)."""
        if copies:
            recorded = writer.announce_intents(copies)
            self._waiting.update((run_key, (key, recorded)) for key, run_keys in copies for run_key in run_keys)

    def covers(self, commit: JobCommit) -> bool:
        """Wait until the announced intents are on the disk; return whether they include every product of a commit."""
        found = self._waiting.pop(commit.run_key, None)
        if found is None or commit.stale:
            return False
        key, recorded = found
        announced = recorded().get(key, frozenset())
        return all((commit.job_id, product.name) in announced for _staged, product in commit.products)

    def withdraw(self, run_keys: Iterable[int], writer: Writer) -> None:
        """Delete the intents that were announced for runs that ended without a result."""
        withdrawn = [run_key for run_key in run_keys if self._waiting.pop(run_key, None) is not None]
        if withdrawn:
            writer.withdraw_intents(withdrawn)


_SYNC_EACH_UP_TO = 3
"""Maximum number of folders of one commit that are synced one by one; for more folders, one `syncfs` costs less."""
RESERVE_BYTES = 128 * 1024 * 1024
"""Minimum free space (bytes) of the cache's disk. If less space is free, no job is started. O3DE has the same limit."""

_MOST_DELETED = 10_000
_MOST_PLACED = 20_000
_STAGING, _TRASH, _LOCK = (f"{OWN_FOLDER}/{name}".encode() for name in ("staging", "trash", "lock"))
_DATABASE_FILES = tuple(f"{DATABASE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal"))
"""Names of the database's files. They must not be links, because SQLite would write to the target of the link."""


class Cache:
    """The cache folder of one project, held by one engine at a time.

    Args:
        platforms: ids of all platforms that may have a folder here.
    """

    def __init__(self, root: Path, platforms: Sequence[str]) -> None:
        self.root = root
        self.own = root / OWN_FOLDER
        self.staging = self.own / "staging"
        self._platforms = platforms
        self._root = os.fsencode(str(root))
        self._known_folders: set[str] = set()
        self._dirty: set[str] = set()
        self._doubted: set[str] = set()
        self._suspect: set[str] = set()
        """Folders with a product that could not be deleted; the next start checks these folders even if their times are equal."""
        self.deleted: dict[str, None] = {}
        """The products that the engine deleted most recently and has not made again. Notifications about them are ignored."""
        self.placed: dict[str, Stamp] = {}
        """{name: stamp} of the last intermediates that were placed. If a file has a different stamp, another program changed it."""
        self.announced = AnnouncedIntents()
        self._lock = -1

    # ---------------------------------------------------------------------------------------------------------- open, close

    def acquire(self) -> None:
        """Create the cache folder if necessary, and lock it.

        Raises:
            BusyError: another engine holds the folder. UserError: another user owns the folder, or one of the cache's paths is
                a link, a device, a pipe or a socket.
            HostError: the cache folder cannot be written.
        """
        try:
            catalogs = (path.name for path in self.root.glob(f"*{catalog.SUFFIX}"))
            refuse_other_kinds(self.root, self._platforms, (*_DATABASE_FILES, *catalogs))
            if not self.own.is_dir():
                refuse_foreign(self.root, self._platforms)
            self.root.mkdir(parents=True, exist_ok=True)
            with self._tree() as tree:
                for folder in (_STAGING, _TRASH):
                    tree.make_folder(folder)
                # A user who can open the lock file can lock it and so keep the engine from starting. So other users get no access
                # to the cache's own folder.
                close_to_others(self.own)
                own = tree.descriptor_of(OWN_FOLDER.encode())
                self._lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=own)
            close_to_others(self.own / "lock")
        except OSError as error:
            raise HostError(f"the cache '{self.root}' cannot be written: {error.strerror}", hint="check its permissions") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._lock, 200, 0).decode("utf-8", "replace").strip() or "another process"
            os.close(self._lock)
            self._lock = -1
            raise BusyError(f"the cache '{self.root}' is in use by {owner}", hint="wait until it ends, or stop it") from None
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"process {os.getpid()}\n".encode(), 0)
            self._empty_staging()
        except OSError as error:
            self.close()
            raise HostError(f"the cache '{self.root}' cannot be written: {error.strerror}", hint="check its disk") from error

    def close(self) -> None:
        """Unlock the cache folder, and delete the trash in it."""
        if self._lock < 0:
            return
        with contextlib.suppress(OSError):
            self._empty_staging()  # workers that were killed when the engine ended may have left files
        os.close(self._lock)
        self._lock = -1
        with contextlib.suppress(OSError), self._tree() as tree:
            empty_in_background(tree.descriptor_of(_TRASH))

    @property
    def is_in_place(self) -> bool:
        """Whether the locked folder is still at its path: another program may move, replace or delete the folder."""
        try:
            return os.path.samestat(os.stat(self.own / "lock"), os.fstat(self._lock))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # an error of the disk does not show that the folder was moved

    @property
    def moved_to(self) -> str:
        """Path of the locked folder, if it was moved; "" if it is at its old path or deleted."""
        try:
            path = os.readlink(f"/proc/self/fd/{self._lock}")
            is_there = os.path.samestat(os.stat(path), os.fstat(self._lock))
        except OSError:
            return ""
        return os.path.dirname(os.path.dirname(path)) if is_there and not self.is_in_place else ""

    def throw_away_products(self) -> None:
        """Move every platform's folder to the trash, because no record of their contents exists."""
        with self._tree() as tree:
            for platform in self._platforms:
                with contextlib.suppress(FileNotFoundError):
                    self._throw_away(tree, from_text(cache_path(platform)), platform)

    def _throw_away(self, tree: ConfinedTree, path: bytes, kind: str) -> None:
        tree.move(path, tree, b"%s/%d-%s-%s" % (_TRASH, os.getpid(), os.urandom(4).hex().encode(), kind.encode()))

    def _empty_staging(self) -> None:
        with self._tree() as tree:
            for name in os.listdir(tree.descriptor_of(_STAGING)):
                tree.remove(b"%s/%s" % (_STAGING, os.fsencode(name)))

    def _tree(self) -> contextlib.closing[ConfinedTree]:
        """Open the cache as a confined tree for one operation.

        It is not kept open, because another program may replace the folder of the cache.
        """
        return contextlib.closing(ConfinedTree(self._root))

    def refuse_full_disk(self) -> None:
        """Raise HostError if the disk has less than `RESERVE_BYTES` left or is mounted read-only."""
        disk = os.statvfs(self.root)
        if disk.f_flag & os.ST_RDONLY:
            raise HostError(
                f"the cache '{self.root}' is on a read-only file system", hint="check the disk; 'dmesg' may show the reason"
            )
        free = disk.f_bavail * disk.f_frsize
        if free < RESERVE_BYTES:
            raise HostError(
                f"the disk of cache '{self.root}' is full: {free >> 20} MiB left, {RESERVE_BYTES >> 20} MiB needed",
                hint="free some space on that disk",
            )

    # --------------------------------------------------------------------------------------------------------------- commit

    def commit(
        self, order: CommitProducts, writer: Writer, rows_of: Callable[[int], Iterable[JobRow]], mark: Rows | None = None
    ) -> tuple[list[int], list[tuple[int, str, int]]]:
        """Perform a commit; return the run keys of the recorded runs, and the failed runs (form: `ProductsCommitted.failed`).

        `rows_of` returns the database rows of a run, and may wait for them; `mark` are rows to save in the same transaction.

        Raises:
            HostError: the database cannot be written. No row was saved, and the next start completes or undoes the commit.
        """
        intents = [row for commit in order.commits if not self.announced.covers(commit) for row in _intents_of(commit)]
        wait_for_intents = writer.record_intents(intents) if intents else None
        done: list[JobCommit] = []
        failed: list[tuple[int, str, int]] = []
        half_placed: set[int] = set()
        """Runs that failed after renaming some of their products. Their intents stay, and the next start repairs the products."""
        touched: set[str] = set()
        replacing = sum(len(commit.products) for commit in order.commits if not commit.is_first)
        with contextlib.closing(ReplacedFiles(replacing)) as replaced:
            with contextlib.closing(Placement(self.staging, self._root, replaced)) as placement:
                with trace.span("sync products"):
                    unsynced = placement.sync(commit for commit in order.commits if not commit.is_durable)
                if wait_for_intents is not None:
                    wait_for_intents()
                for commit in order.commits:
                    if commit.run_key in unsynced:
                        failed.append((commit.run_key, unsynced[commit.run_key], 0))
                        continue
                    error, placed = self._place(commit, touched, placement)
                    if error:
                        failed.append((commit.run_key, error, placed))
                        if placed:
                            half_placed.add(commit.run_key)
                    else:
                        done.append(commit)
                        self._touch(commit.touched)
            with trace.span("sync", folders=len(touched)):
                self._sync(touched)
            rows = {**(mark or {}), **self.doubt_rows(touched)}
            for commit in done:
                for operation, row in rows_of(commit.run_key):
                    rows.setdefault(operation, []).append(row)
            cleared = [run_key for run_key, _error, _placed in failed if run_key not in half_placed]
            writer.finish(rows, [commit.run_key for commit in done if not commit.stale] + cleared)
        if with_stale := [commit for commit in done if commit.stale]:
            self.delete(name for commit in with_stale for name in commit.stale)
            writer.finish({}, [commit.run_key for commit in with_stale])
        moved = {
            commit.run_key
            for commit in done
            if len(commit.products) == 1 and commit.products[0][0] == self._path_staged(commit.run_key)
        }
        self.discard(commit.run_key for commit in order.commits if commit.run_key not in moved)
        return [commit.run_key for commit in done], failed

    def doubt_rows(self, folders: set[str]) -> Rows:
        """Return rows that mark these folders as doubtful.

        The next start checks a doubtful folder. The mark stays until this engine records the folder's ctime (`folder_rows`).
        """
        fresh = {folder for folder in folders if folder} - self._doubted
        self._doubted |= fresh
        return {"put_cache_folder": [(folder, 0) for folder in fresh]} if fresh else {}

    def _place(self, commit: JobCommit, touched: set[str], placement: Placement) -> tuple[str, int]:
        """Rename one job's products to their paths in the cache.

        Return the error ("" = no error), and the number of renamed products.
        """
        for name, data, is_new in commit.identities:
            try:
                self._place_identity(commit.run_key, name + META_SUFFIX, data, touched, placement, replaces=is_new)
            except OSError as error:
                return f"identity file '{name}{META_SUFFIX}' cannot be placed: {error.strerror}", 0
        for placed, (staged, product) in enumerate(commit.products):
            try:
                self._move_in(staged, product.name, touched, placement)
            except OSError as error:
                return f"product '{product.name}' cannot be placed: {error.strerror}", placed
        return "", len(commit.products)

    def _place_identity(
        self, run_key: int, name: str, data: bytes, touched: set[str], placement: Placement, *, replaces: bool
    ) -> None:
        """Write the identity file of an intermediate. Without `replaces`, an existing file stays, unless it is empty."""
        with contextlib.suppress(OSError), self._tree() as tree:
            found = tree.status(_path_of(name))
            if not replaces and stat.S_ISREG(found.st_mode) and found.st_size:
                return
        staged = f"{self.staging}/{run_key}{META_SUFFIX}"
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._move_in(staged, name, touched, placement)

    def _move_in(self, staged: str, name: str, touched: set[str], placement: Placement) -> None:
        folder = parent(name)
        try:
            if folder not in self._known_folders:
                self._make_folder(folder, touched, placement)
            try:
                placement.move(staged, _path_of(name))
            except FileNotFoundError:  # another program deleted the folder since it was made
                placement.close()
                self._make_folder(folder, touched, placement)
                placement.move(staged, _path_of(name))
        except OSError:
            self._known_folders.discard(folder)
            raise
        touched.add(folder)
        self.deleted.pop(name, None)
        if name.startswith(COMMON_PREFIX):
            self._note_placed(name)

    def _touch(self, names: Iterable[str]) -> None:
        """Set the file times of some products to now, because a job made the products again with equal bytes.

        A file with several hard links keeps its time.
        """
        with self._tree() as tree:
            for name in names:
                with contextlib.suppress(OSError):
                    if tree.status(_path_of(name)).st_nlink > 1:
                        continue  # the local result store has the same file, and a new time would look like a write to it
                    tree.touch(_path_of(name))
                    if name.startswith(COMMON_PREFIX):
                        self._note_placed(name)

    def _note_placed(self, name: str) -> None:
        stamp = stamp_of(self._path(name))
        if stamp is not None:
            self.placed.pop(name, None)
            self.placed[name] = stamp
        if len(self.placed) > _MOST_PLACED:
            del self.placed[next(iter(self.placed))]

    def _make_folder(self, folder: str, touched: set[str], placement: Placement) -> None:
        if placement.make_folder(_path_of(folder, is_folder=True)):
            above = folder
            while above:
                above = parent(above)
                touched.add(above)
        self._known_folders.add(folder)

    def _sync(self, folders: set[str]) -> None:
        if len(folders) > _SYNC_EACH_UP_TO:
            from aptui.worker.file_access import sync_file_system

            sync_file_system(os.fsdecode(self._root))
        else:
            with self._tree() as tree:
                for folder in folders:
                    os.fsync(tree.descriptor_of(_path_of(folder, is_folder=True)))
        self._dirty.update(folder for folder in folders if folder)

    def discard(self, run_keys: Iterable[int]) -> None:
        """Delete the staged files of these runs."""
        with self._tree() as tree:
            for run_key in run_keys:
                with contextlib.suppress(FileNotFoundError):
                    tree.remove(b"%s/%d" % (_STAGING, run_key))

    def delete(self, names: Iterable[str]) -> list[str]:
        """Delete products, and folders that become empty; return a message about each product that cannot be deleted.

        The identity file of an intermediate is deleted with it.
        """
        problems: list[str] = []
        emptied: set[str] = set()
        with self._tree() as tree:
            for name in (each for product in names for each in _with_identity(product)):
                try:
                    path = _path_of(name)
                except ConfinementError as error:
                    problems.append(f"product '{name}' in the asset database was not deleted, because its path {error.strerror}")
                    continue
                self.deleted[name] = None
                try:
                    tree.unlink(path)
                except (FileNotFoundError, NotADirectoryError):
                    pass
                except OSError as error:
                    problems.append(f"product '{name}' cannot be deleted: {error.strerror}")
                    self._suspect.add(parent(name))
                    continue
                emptied.add(parent(name))
            while len(self.deleted) > _MOST_DELETED:
                del self.deleted[next(iter(self.deleted))]
            for folder in sorted(emptied, key=len, reverse=True):
                self._dirty.add(folder)
                self._remove_empty(tree, folder)
        return problems

    def _remove_empty(self, tree: ConfinedTree, folder: str) -> None:
        while folder:  # also removes the folder of a platform if it is empty, because the platform may be disabled by now
            try:
                tree.remove_folder(_path_of(folder, is_folder=True))
            except OSError:
                return
            self._known_folders.discard(folder)
            self._dirty.add(folder)
            folder = parent(folder)
            if folder:
                self._dirty.add(folder)

    # -------------------------------------------------------------------------------------------------- checks of the cache

    def note_written(self, folders: Iterable[str]) -> None:
        """Record that the engine wrote files other than products into these folders, which changes their ctime."""
        self._dirty.update(folders)

    @property
    def is_unrecorded(self) -> bool:
        """Whether the next start would have to check folders, because their present ctimes are not recorded yet."""
        return bool(self._dirty)

    def folder_rows(self, index: ProductArchive) -> Rows:
        """Return rows that record the present ctime of every folder that the engine changed since the last call.

        If another program also changed a folder, a recorded ctime would hide that change from the next start. So some folders are
        recorded as doubtful, and the next start checks them. A folder is doubtful if it has missing or unexpected files, or if one
        more change could leave its recent ctime as it is. The row of a deleted folder stays, because it proves that the engine made
        this folder.
        """
        folders = dict.fromkeys(self._suspect, 0)
        for folder in self._dirty - self._suspect:
            now_ns, ctime_ns = time.time_ns(), read_ctime_ns(self._path(folder))
            is_trusted = not is_coarse(ctime_ns) or ctime_ns < now_ns - RACY_NS
            folders[folder] = ctime_ns if is_trusted and self._is_whole(folder, index) else 0
        self._dirty.clear()
        self._doubted.clear()
        return {"put_cache_folder": list(folders.items())} if folders else {}

    def _is_whole(self, folder: str, index: ProductArchive) -> bool:
        """Whether a folder contains exactly the products that are recorded for it."""
        expected = index.products_in(folder)
        if read_ctime_ns(self._path(folder)) == NO_FOLDER:
            return not expected
        try:
            with os.scandir(self._path(folder)) as found:
                names = {f"{folder}/{to_text(entry.name)}" for entry in found if entry.is_file(follow_symlinks=False)}
        except OSError:
            return False
        return expected.keys() == {name for name in names if name in expected or not _is_companion(name, expected)}

    def recover(self, writer: Writer, index: ProductArchive) -> None:
        """Complete or undo the commits of an engine that died.

        The intents show which products may be newer than their rows. The job of a newer product runs again, even if its
        inputs did not change. A file without a row is deleted.
        """
        doubtful: dict[int, None] = {}
        intents = writer.intents()
        for intent in intents:
            names = [intent.name, *json.loads(intent.stale or "[]")]
            for name in filter(None, names):
                recorded = index.product_digest(name)
                self._dirty.add(parent(name))
                if recorded is None:
                    self.delete((name,))
                elif self.digest(name) != recorded:
                    doubtful[intent.job_id] = None
        if intents:
            writer.finish({"doubt_job": [(job_id,) for job_id in doubtful]}, sorted({intent.run_key for intent in intents}))

    def is_touched(self, index: ProductArchive, platforms: Collection[str] | None = None, *, trusts_times: bool = True) -> bool:
        """Whether any folder changed since the last engine ended; only folders of `platforms` (and `common`), if they are given.

        With `trusts_times`, a folder with its recorded ctime counts as unchanged; otherwise the names of its files are compared.
        """
        return any(
            read_ctime_ns(self._path(folder)) != ctime_ns or not (trusts_times or self._is_whole(folder, index))
            for folder, ctime_ns in index.cache_folders().items()
            if platforms is None or folder.partition("/")[0] in (COMMON_PLATFORM, *platforms)
        )

    def find_lost(
        self, index: ProductArchive, say: Callable[[str], None], *, trusts_times: bool = True
    ) -> tuple[list[str], list[str]]:
        """Delete files without rows. Return the recorded products that are missing, and the deleted files.

        A folder without a row was not made by the engine: its files stay, and `say` reports the folder.

        Args:
            trusts_times: whether to skip each folder whose ctime equals its recorded ctime.
        """
        gone: list[str] = []
        orphans: list[str] = []
        recorded = index.cache_folders()
        for folder, ctime_ns in recorded.items():
            if read_ctime_ns(self._path(folder)) != ctime_ns:
                self._dirty.add(folder)
            elif trusts_times:
                continue
            gone.extend(self._compare(folder, index, say, orphans, recorded))
        for platform in self._platforms:
            if platform not in recorded:
                self._say_foreign(platform, say)
        return gone, orphans

    def _say_foreign(self, folder: str, say: Callable[[str], None]) -> None:
        """Report a folder that the engine did not make, unless it has no files."""
        path = self._path(folder)
        if any(files for _path, _folders, files in os.walk(path)):
            name = cache_path(folder)
            say(f"'{name}' in the cache was not made by aptui, so its files are kept; delete or move them if you do not need them")

    def _compare(
        self,
        folder: str,
        index: ProductArchive,
        say: Callable[[str], None],
        orphans: list[str],
        recorded: Mapping[str, int],
    ) -> list[str]:
        """Delete the files without rows in one cache folder; return its recorded products that are missing.

        If the folder cannot be read, its products are kept: they may be intact, and their jobs could not replace them.
        """
        expected = index.products_in(folder)
        present: set[str] = set()
        try:
            path = _path_of(folder, is_folder=True)
            with self._tree() as tree, os.scandir(tree.descriptor_of(path)) as found:
                for entry in found:
                    inner = b"%s/%s" % (path, os.fsencode(entry.name))
                    name = f"{folder}/{as_text(entry.name)}"
                    if entry.is_dir(follow_symlinks=False):
                        if name in expected:
                            say(f"a folder at the path of product '{name}' in the cache was deleted")
                            self._throw_away(tree, inner, "folder")
                        elif name not in recorded:
                            self._say_foreign(name, say)
                        continue
                    if name in expected and entry.is_file(follow_symlinks=False):
                        present.add(name)
                    elif entry.is_symlink() or not _is_companion(name, expected):
                        try:
                            tree.unlink(inner)
                        except OSError as error:
                            say(f"'{name}' in the cache does not belong to a product, but cannot be deleted: {error.strerror}")
                        else:
                            say(f"'{name}' in the cache was deleted, because it does not belong to a product")
                            orphans.append(name)
        except LinkError:
            say(f"the cache folder '{folder}' is behind a link, so aptui deletes no files in it")
            return list(expected)
        except (FileNotFoundError, NotADirectoryError):
            return list(expected)
        except OSError as error:
            say(f"the cache folder '{self.root / cache_path(folder)}' cannot be checked: {error.strerror}; its products are kept")
            return []
        return [name for name in expected if name not in present]

    def digest(self, name: str) -> bytes | None:
        """Return the SHA-256 of a product's file in the cache, None if it cannot be read."""
        try:
            with self._tree() as tree, open(tree.open_file(_path_of(name)), "rb") as file:
                return hashlib.file_digest(file, "sha256").digest()
        except OSError:
            return None

    def _path_staged(self, run_key: int) -> str:
        """Return the staging path of a run: a file for a copy, otherwise a folder."""
        return f"{self.staging}/{run_key}"

    def _path(self, name: str) -> bytes:
        return self._root + b"/" + from_text(cache_path(name))


def _path_of(name: str, *, is_folder: bool = False) -> bytes:
    """Return the path of a product in the cache, or with `is_folder` the path of a folder of products.

    Raises:
        ConfinementError: the path is not in the folder of a platform. The database of another program may contain such a name.
    """
    path = from_text(cache_path(name))
    if is_folder and not path:
        return path
    parts = parts_of(path)
    if parts[0] == OWN_FOLDER.encode() or not (is_folder or parts[1:]):
        raise ConfinementError(errno.EACCES, "is not in the folder of a platform")
    return path


def _intents_of(commit: JobCommit) -> Iterable[tuple[int, int, str, bytes, int, str]]:
    stale = json.dumps(commit.stale, ensure_ascii=False) if commit.stale else "[]"
    for _staged, product in commit.products:
        yield commit.run_key, commit.job_id, product.name, product.digest, product.size, stale
        stale = "[]"
    if stale != "[]":
        yield commit.run_key, commit.job_id, "", b"", 0, stale


def _with_identity(name: str) -> tuple[str, ...]:
    """Return the name of a product and, for an intermediate, the name of its identity file."""
    return (name, name + META_SUFFIX) if name.startswith(COMMON_PREFIX) else (name,)


def _is_companion(name: str, products: Container[str]) -> bool:
    """Whether the file `name` is a catalog, or the identity file of one of `products`: the engine makes these files itself."""
    return find_identified(name) in products or (name.count("/") == 1 and name.rpartition("/")[2].startswith("assetcatalog."))

"""The cache on disk: refused folders, the order of steps in a commit, and recovery after a crash.

The database is a fake that records its calls in order.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from coarse_clock import coarsen
from disk_project import HOST, Project
from msgspec import structs

from aptui.core.messages import CommitProducts, JobCommit
from aptui.core.model import Digest, Product
from aptui.engine.cache import cache as cache_module
from aptui.engine.cache import cache as packages
from aptui.engine.cache.cache import Cache
from aptui.engine.cache.cache_places import NO_FOLDER, ReplacedFiles
from aptui.shared.errors import BusyError, HostError, UserError
from aptui.shared.files.confinement import ConfinedTree
from aptui.store.db.writer import Intent
from aptui.worker import file_access


class Diary:
    """A fake writer and index: records each call, and the contents of the cache at that moment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notes: list[tuple[str, Any]] = []
        self.left: list[Intent] = []
        self.digests: dict[str, bytes] = {}
        self.folders: dict[str, int] = {}

    def _visible(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob("linux/**/*") if path.is_file())

    def record_intents(self, intents: Sequence[tuple]) -> Callable[[], None]:
        self.notes.append(("intents", [row[2] for row in intents]))
        return lambda: self.notes.append(("visible", self._visible()))

    def finish(self, rows: dict, run_keys: Sequence[int]) -> None:
        self.notes.append(("visible", self._visible()))
        self.notes.append(("finish", (sorted(rows), list(run_keys))))

    def intents(self) -> list[Intent]:
        return self.left

    def product_digest(self, name: str) -> bytes | None:
        return self.digests.get(name)

    def products_in(self, folder: str) -> dict[str, bytes]:
        return {name: digest for name, digest in self.digests.items() if name.rpartition("/")[0] == folder}

    def cache_folders(self) -> dict[str, int]:
        return self.folders


def product(name: str, data: bytes) -> Product:
    return Product(name, 0, bytes(16), 1, Digest(hashlib.sha256(data).digest()), 0, len(data))


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    cache = Cache(tmp_path / "Cache", ["linux"])
    cache.acquire()
    yield cache
    cache.close()


@pytest.fixture
def diary(cache: Cache) -> Diary:
    return Diary(cache.root)


def stage(cache: Cache, run_key: int, *made: tuple[str, bytes], stale: tuple[str, ...] = ()) -> JobCommit:
    moves = []
    for index, (name, data) in enumerate(made):
        path = cache.staging / f"{run_key}-{index}"
        path.write_bytes(data)
        moves.append((str(path), product(name, data)))
    return JobCommit(run_key, 10 + run_key, tuple(moves), stale)


def rows_of(run_key: int) -> list[tuple[str, tuple[object, ...]]]:
    """Return the database rows that are saved when the run `run_key` is committed."""
    return [("put_job", (run_key,))]


def test_commit_does_not_count_first_products_as_replaced_files(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    class Counted(ReplacedFiles):
        def __init__(self, count: int) -> None:
            counts.append(count)
            super().__init__(count)

    monkeypatch.setattr(cache_module, "ReplacedFiles", Counted)
    first = [structs.replace(stage(cache, run_key, (f"linux/{run_key}", b"first")), is_first=True) for run_key in range(1, 40)]

    cache.commit(CommitProducts(1, tuple(first)), diary, rows_of)  # type: ignore[arg-type]
    cache.commit(CommitProducts(2, (stage(cache, 50, ("linux/1", b"again")), first[0])), diary, rows_of)  # type: ignore[arg-type]

    assert counts == [0, 1]
    assert (cache.root / "linux/1").read_bytes() == b"again"


# --------------------------------------------------------------------------------------------- opening and closing the cache


def test_second_engine_on_a_cache_fails_and_names_the_first_process(cache: Cache) -> None:
    other = Cache(cache.root, ["linux"])

    with pytest.raises(BusyError, match=f"process {os.getpid()}"):
        other.acquire()


@pytest.mark.parametrize("is_old", [False, True])
def test_cache_denies_other_users_access_to_its_own_folder_and_lock(tmp_path: Path, is_old: bool) -> None:
    own = tmp_path / "cache" / ".aptui"
    if is_old:
        own.mkdir(parents=True)
        own.chmod(0o755)
        (own / "lock").touch(0o644)
    cache = Cache(tmp_path / "cache", ["linux"])
    cache.acquire()

    assert [path.stat().st_mode & 0o077 for path in (own, own / "lock")] == [0, 0]
    cache.close()


def test_cache_refuses_a_folder_that_contains_files_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "linux").mkdir()
    (tmp_path / "linux" / "mine.txt").write_text("not yours")
    cache = Cache(tmp_path, ["linux"])

    with pytest.raises(UserError, match="did not make"):
        cache.acquire()

    assert (tmp_path / "linux" / "mine.txt").exists()
    assert not (tmp_path / ".aptui").exists()


def test_cache_folder_that_cannot_be_created_raises_a_host_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(HostError, match="cannot be written"):
        Cache(tmp_path / "file" / "Cache", ["linux"]).acquire()


def test_own_folder_that_cannot_be_read_raises_a_host_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that runs as root can leave a folder `.aptui` that this user cannot read."""
    (tmp_path / ".aptui").mkdir()

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch, pytest.raises(HostError, match="cannot be written: Permission denied"):
        patch.setattr(os, "scandir", refuse)
        Cache(tmp_path, ["linux"]).acquire()


def test_failed_opening_on_a_full_disk_releases_the_lock_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    cache = Cache(tmp_path, ["linux"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(HostError, match="No space left"):
            cache.acquire()

    cache.acquire()
    cache.close()


def test_cache_raises_an_error_if_the_disk_is_full(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "RESERVE_BYTES", 1 << 62)

    with pytest.raises(HostError, match="is full"):
        cache.refuse_full_disk()


def test_cache_empties_the_staging_folder_when_it_is_opened(cache: Cache) -> None:
    (cache.staging / "7").mkdir()
    (cache.staging / "7" / "half.png").write_text("half")
    (cache.staging / "8").write_text("half")
    os.close(os.open(cache.own / "lock", os.O_RDONLY))
    cache.close()

    cache.acquire()

    assert list(cache.staging.iterdir()) == []


def test_closed_cache_releases_the_flock_of_its_lock_file(cache: Cache) -> None:
    cache.close()
    descriptor = os.open(cache.own / "lock", os.O_RDWR)

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    os.close(descriptor)


@pytest.mark.real
def test_platform_folder_with_unrecorded_products_is_moved_aside(cache: Cache) -> None:
    (cache.root / "linux" / "f").mkdir(parents=True)
    (cache.root / "linux" / "f" / "a.txt").write_text("?")

    cache.throw_away_products()

    assert not (cache.root / "linux").exists()


# -------------------------------------------------------------------------------------------------------------------- commit


@pytest.mark.parametrize("place", ["{root}/{name}", "{staging}/../{name}", "{staging}/link/{name}", "{staging}", "{name}", ""])
def test_commit_does_not_move_a_file_from_outside_the_staging_folder(
    cache: Cache, diary: Diary, tmp_path: Path, place: str
) -> None:
    """A worker reports the paths of its products. A hostile file may control the worker after an attack on a decoder."""
    for folder in (tmp_path, cache.staging.parent):
        (folder / "secret").write_bytes(b"s")
    (cache.staging / "link").symlink_to(tmp_path)
    staged = place.format(root=tmp_path, staging=cache.staging, name="secret")
    commit = JobCommit(1, 11, ((staged, product("linux/a.txt", b"s")),), ())

    done, failed = cache.commit(CommitProducts(1, (commit,)), diary, rows_of)

    assert (done, [run_key for run_key, *_ in failed]) == ([], [1])
    assert (tmp_path / "secret").read_bytes() == (cache.staging.parent / "secret").read_bytes() == b"s"
    assert not (cache.root / "linux" / "a.txt").exists()


def test_commit_writes_intents_then_renames_products_then_saves_rows(cache: Cache, diary: Diary) -> None:
    order = CommitProducts(1, (stage(cache, 1, ("linux/f/a.txt", b"a")), stage(cache, 2, ("linux/b.txt", b"b"))))

    done, failed = cache.commit(order, diary, rows_of)

    assert (done, failed) == ([1, 2], [])
    assert diary.notes[:2] == [("intents", ["linux/f/a.txt", "linux/b.txt"]), ("visible", [])]
    assert diary.notes[2] == ("visible", ["linux/b.txt", "linux/f/a.txt"])
    assert diary.notes[3][0] == "finish"
    assert list(cache.staging.iterdir()) == []


@pytest.mark.parametrize("count", [3, file_access.SYNC_EACH_BELOW])
def test_commit_syncs_staged_products_before_it_renames_them(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    synced: list[str] = []
    fsync, place = os.fsync, Cache._place
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))[1])
    monkeypatch.setattr(file_access, "sync_file_system", synced.append)
    before: list[list[str]] = []
    monkeypatch.setattr(Cache, "_place", lambda self, *given: (before.append(list(synced)), place(self, *given))[1])
    commits = [stage(cache, run_key, (f"linux/{run_key}", b"a")) for run_key in range(1, count)]
    durable = structs.replace(stage(cache, count, ("linux/durable", b"a")), is_durable=True)
    staged = [path for commit in commits for path, _product in commit.products]
    expected = staged if count == 3 else [str(cache.staging)]
    commits += [] if count == 3 else [stage(cache, 100, ("linux/100", b"a"))]

    cache.commit(CommitProducts(1, (*commits, durable)), diary, rows_of)  # type: ignore[arg-type]

    assert before == [expected] * (len(commits) + 1)


@pytest.mark.parametrize("is_alone", [True, False])
def test_product_that_cannot_be_synced_fails_its_run(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """After a failed sync, not even a successful sync proves that the bytes are on the disk, so the staged files are deleted."""
    bad = stage(cache, 1, ("linux/a", b"a"), ("linux/b", b"b"))
    others = [] if is_alone else [stage(cache, 2, ("linux/c", b"c"))]
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == bad.products[1][0]:
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)

    done, failed = cache.commit(CommitProducts(1, (bad, *others)), diary, rows_of)  # type: ignore[arg-type]

    assert done == [commit.run_key for commit in others]
    assert failed == [(1, "product 'linux/b' cannot be saved on the disk: Input/output error", 0)]
    assert diary._visible() == [f"linux/{name}" for name in ("c" if others else "")]


def test_commit_fails_all_runs_if_the_file_system_cannot_be_synced(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_path: str) -> None:
        raise OSError(5, "Input/output error")

    commits = [stage(cache, run_key, (f"linux/{run_key}", b"a")) for run_key in range(1, file_access.SYNC_EACH_BELOW + 1)]
    monkeypatch.setattr(file_access, "sync_file_system", broken)

    done, failed = cache.commit(CommitProducts(1, tuple(commits)), diary, rows_of)  # type: ignore[arg-type]

    assert (done, len(failed)) == ([], len(commits))
    assert failed[0][1] == "product 'linux/1' cannot be saved on the disk: Input/output error"


def test_commit_deletes_stale_products_after_it_has_saved_the_rows(cache: Cache, diary: Diary) -> None:
    cache.commit(CommitProducts(1, (stage(cache, 1, ("linux/f/old.txt", b"old")),)), diary, rows_of)
    diary.notes.clear()

    cache.commit(CommitProducts(2, (stage(cache, 2, ("linux/g/new.txt", b"new"), stale=("linux/f/old.txt",)),)), diary, rows_of)

    kinds = [kind for kind, _ in diary.notes]
    assert kinds == ["intents", "visible", "visible", "finish", "visible", "finish"]
    assert diary.notes[2][1] == ["linux/f/old.txt", "linux/g/new.txt"]
    assert diary.notes[3][1][1] == []
    assert diary.notes[4][1] == ["linux/g/new.txt"]
    assert diary.notes[5][1] == ([], [2])
    assert not (cache.root / "linux" / "f").exists()


def test_commit_without_products_writes_no_intent_rows(cache: Cache, diary: Diary) -> None:
    cache.commit(CommitProducts(1, (stage(cache, 1),)), diary, rows_of)

    assert [kind for kind, _ in diary.notes] == ["visible", "finish"]


def test_commit_syncs_every_changed_folder_before_it_saves_the_rows(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(cache_module, "_SYNC_EACH_UP_TO", 10)
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))[1])
    seen_at_finish: list[str] = []
    monkeypatch.setattr(diary, "finish", lambda _rows, _keys: seen_at_finish.extend(synced))

    cache.commit(CommitProducts(1, (stage(cache, 1, ("linux/f/g/a.txt", b"a")),)), diary, rows_of)

    wanted = {str(cache.root / name) for name in ("linux/f/g", "linux/f", "linux")} | {str(cache.root)}
    assert wanted <= set(seen_at_finish)


def test_commit_syncs_many_changed_folders_with_one_call(cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(file_access, "sync_file_system", synced.append)
    seen_at_finish: list[str] = []
    monkeypatch.setattr(diary, "finish", lambda _rows, _keys: seen_at_finish.extend(synced))

    cache.commit(CommitProducts(1, (stage(cache, 1, ("linux/f/g/a.txt", b"a")),)), diary, rows_of)

    assert seen_at_finish == [str(cache.root)]


def test_product_that_cannot_be_placed_fails_only_its_job(cache: Cache, diary: Diary) -> None:
    (cache.root / "linux" / "a.txt" / "in").mkdir(parents=True)
    order = CommitProducts(1, (stage(cache, 1, ("linux/a.txt", b"a")), stage(cache, 2, ("linux/b.txt", b"b"))))

    done, failed = cache.commit(order, diary, rows_of)

    assert done == [2]
    assert [(run_key, placed) for run_key, _, placed in failed] == [(1, 0)]
    assert "linux/a.txt" in failed[0][1]
    assert sorted(diary.notes[-1][1][1]) == [1, 2]


def test_commit_opens_a_folder_once_for_all_products_in_this_folder(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [stage(cache, number, (f"linux/f/g/{number}.txt", b"a")) for number in range(20)]
    opened = []
    open_file = os.open
    monkeypatch.setattr(os, "open", lambda path, *how, **where: (opened.append(path), open_file(path, *how, **where))[1])

    cache.commit(CommitProducts(1, tuple(made)), diary, rows_of)

    assert opened.count(b"g") == 1
    assert len(list((cache.root / "linux/f/g").iterdir())) == 20


def test_commit_creates_a_folder_again_that_was_deleted_during_the_commit(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = CommitProducts(1, (stage(cache, 1, ("linux/f/a.txt", b"a")), stage(cache, 2, ("linux/f/b.txt", b"b"))))
    replace = os.replace

    def then_deleted(staged: bytes, name: bytes, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        replace(staged, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if name == b"a.txt":
            shutil.rmtree(cache.root / "linux/f")

    monkeypatch.setattr(os, "replace", then_deleted)
    done, failed = cache.commit(order, diary, rows_of)

    assert (done, failed) == ([1, 2], [])
    assert [path.name for path in (cache.root / "linux/f").iterdir()] == ["b.txt"]


def test_folder_of_a_first_commit_is_checked_at_the_next_start(cache: Cache, diary: Diary) -> None:
    written: list[dict] = []
    diary.finish = lambda rows, _keys: written.append(rows)  # type: ignore[method-assign]
    for run_key in (1, 2):
        cache.commit(CommitProducts(1, (stage(cache, run_key, (f"linux/f/{run_key}.txt", b"a")),)), diary, rows_of)
    diary.digests = {"linux/f/1.txt": b"", "linux/f/2.txt": b""}

    rows = cache.folder_rows(diary)

    assert written[0]["put_cache_folder"].count(("linux/f", 0)) == 1
    assert ("linux/f", 0) not in written[1].get("put_cache_folder", [])
    assert ("linux/f", (cache.root / "linux/f").stat().st_ctime_ns) in rows["put_cache_folder"]


@pytest.mark.parametrize("known", [("1.txt", "2.txt", "deleted by others.txt"), ("1.txt",)])
def test_folder_that_another_program_changed_is_checked_at_the_next_start(
    cache: Cache, diary: Diary, known: tuple[str, ...]
) -> None:
    for name in ("1.txt", "2.txt"):
        cache.commit(CommitProducts(1, (stage(cache, int(name[0]), (f"linux/f/{name}", b"a")),)), diary, rows_of)
    diary.digests = {f"linux/f/{name}": b"" for name in known}

    assert ("linux/f", 0) in cache.folder_rows(diary)["put_cache_folder"]
    assert not cache.is_unrecorded


# ---------------------------------------------------------------------------------------------------- recovery after a crash


def put(cache: Cache, name: str, data: bytes) -> Path:
    path = cache.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_recovery_marks_a_job_as_doubtful_if_its_product_is_newer_than_its_row(cache: Cache, diary: Diary) -> None:
    put(cache, "linux/a.txt", b"new")
    put(cache, "linux/b.txt", b"old b")
    diary.digests = {"linux/a.txt": hashlib.sha256(b"old").digest(), "linux/b.txt": hashlib.sha256(b"old b").digest()}
    diary.left = [Intent(5, 15, "linux/a.txt", b"x", 3, "[]"), Intent(6, 16, "linux/b.txt", b"x", 3, "[]")]
    written: list[tuple[dict, list]] = []
    diary.finish = lambda rows, keys: written.append((rows, keys))  # type: ignore[method-assign]

    cache.recover(diary, diary)

    assert written == [({"doubt_job": [(15,)]}, [5, 6])]


def test_recovery_deletes_products_without_rows(cache: Cache, diary: Diary) -> None:
    path = put(cache, "linux/f/new.txt", b"new")
    stale = put(cache, "linux/f/stale.txt", b"stale")
    diary.left = [Intent(5, 15, "linux/f/new.txt", b"x", 3, json.dumps(["linux/f/stale.txt"]))]

    cache.recover(diary, diary)

    assert not path.exists()
    assert not stale.exists()
    assert not path.parent.exists()


def test_recovery_writes_nothing_if_no_commit_was_interrupted(cache: Cache, diary: Diary) -> None:
    cache.recover(diary, diary)

    assert diary.notes == []


# ------------------------------------------------------------------------------------- identity files of intermediates


@pytest.mark.parametrize(
    ("before", "replaces", "after"), [(None, False, "new"), ("", False, "new"), ("x", False, "x"), ("x", True, "new")]
)
def test_non_empty_identity_file_is_kept_unless_the_commit_replaces_it(
    cache: Cache, diary: Diary, before: str | None, replaces: bool, after: str
) -> None:
    if before is not None:
        put(cache, "Intermediate Assets/f/a.mid.meta", before.encode())
    commit = structs.replace(stage(cache, 1, ("common/f/a.mid", b"a")), identities=(("common/f/a.mid", b"new", replaces),))

    assert cache.commit(CommitProducts(1, (commit,)), diary, rows_of) == ([1], [])  # type: ignore[arg-type]
    assert (cache.root / "Intermediate Assets/f/a.mid.meta").read_text() == after
    assert list(cache.staging.iterdir()) == []


def test_job_fails_without_a_product_if_its_identity_file_cannot_be_placed(cache: Cache, diary: Diary) -> None:
    (cache.root / "Intermediate Assets/a.mid.meta").mkdir(parents=True)
    commit = structs.replace(stage(cache, 1, ("common/a.mid", b"a")), identities=(("common/a.mid", b"new", False),))

    done, failed = cache.commit(CommitProducts(1, (commit,)), diary, rows_of)  # type: ignore[arg-type]

    assert (done, failed[0][0], failed[0][2]) == ([], 1, 0)
    assert "'common/a.mid.meta' cannot be placed" in failed[0][1]
    assert not (cache.root / "Intermediate Assets/a.mid").exists()


def test_identity_file_is_deleted_with_its_intermediate(cache: Cache, diary: Diary) -> None:
    for name in ("f/a.mid", "f/a.mid.meta", "b.mid", "b.mid.meta"):
        put(cache, f"Intermediate Assets/{name}", b"x")
    diary.left = [Intent(5, 15, "common/b.mid", b"x", 3, "[]")]

    cache.delete(["common/f/a.mid"])
    cache.recover(diary, diary)  # type: ignore[arg-type]

    assert not (cache.root / "Intermediate Assets").exists()


def test_identity_file_is_deleted_unless_its_intermediate_is_recorded(cache: Cache, diary: Diary) -> None:
    names = ("a.mid", "a.mid.meta", "gone.mid.meta")
    paths = [put(cache, f"Intermediate Assets/{name}", b"x") for name in names]
    put(cache, "linux/a.txt", b"x")
    put(cache, "linux/a.txt.meta", b"x")
    diary.digests, diary.folders = {"common/a.mid": b"", "linux/a.txt": b""}, {"common": 1, "linux": 1}

    assert sorted(cache.find_lost(diary, print)[1]) == ["common/gone.mid.meta", "linux/a.txt.meta"]
    assert [path.exists() for path in paths] == [True, True, False]
    assert ("common", 0) not in cache.folder_rows(diary)["put_cache_folder"]


# ---------------------------------------------------------------------------------------------- missing and unknown products


def test_check_for_lost_products_reads_only_folders_whose_time_changed(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, "linux/f/a.txt", b"a")
    put(cache, "linux/g/b.txt", b"b")
    diary.digests = {"linux/f/a.txt": b"", "linux/g/b.txt": b"", "linux/g/gone.txt": b""}
    diary.folders = {"linux/f": (cache.root / "linux/f").stat().st_ctime_ns, "linux/g": 1}
    checked: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: (checked.append(os.readlink(f"/proc/self/fd/{folder}")), scandir(folder))[1])

    lost, _orphans = cache.find_lost(diary, print)

    assert lost == ["linux/g/gone.txt"]
    assert checked == [str(cache.root / "linux/g")]


@pytest.mark.real
@pytest.mark.parametrize(
    ("error", "lost"), [(errno.EMFILE, []), (errno.EIO, []), (errno.ENOENT, ["linux/f/a.txt"]), (errno.ENOTDIR, ["linux/f/a.txt"])]
)
def test_products_of_an_unreadable_cache_folder_are_lost_only_if_the_folder_is_gone(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch, error: int, lost: list[str]
) -> None:
    put(cache, "linux/f/a.txt", b"a")
    diary.digests, diary.folders = {"linux/f/a.txt": b""}, {"linux/f": 1}
    monkeypatch.setattr(os, "scandir", mock.Mock(side_effect=OSError(error, os.strerror(error))))
    reported: list[str] = []

    assert cache.find_lost(diary, reported.append) == (lost, [])
    assert len(reported) == (not lost)
    assert cache.folder_rows(diary) == {"put_cache_folder": [("linux/f", 0)]}, "the next start checks the folder"


@pytest.mark.real
def test_unknown_entries_at_the_paths_of_products_are_deleted_and_reported(cache: Cache, diary: Diary) -> None:
    foreign = put(cache, "linux/f/stranger.txt", b"?")
    (cache.root / "linux/f/link.txt").symlink_to("/etc/passwd")
    put(cache, "linux/f/folder.txt/in.txt", b"?")
    put(cache, "linux/assetcatalog.xml", b"a catalog is no product and stays")
    diary.digests = {"linux/f/link.txt": b"", "linux/f/folder.txt": b""}
    diary.folders = {"linux/f": 1, "linux": 1}
    reported: list[str] = []

    lost, orphans = cache.find_lost(diary, reported.append)

    assert sorted(lost) == ["linux/f/folder.txt", "linux/f/link.txt"]
    assert sorted(orphans) == ["linux/f/link.txt", "linux/f/stranger.txt"]
    assert not foreign.exists()
    assert list((cache.root / "linux/f").iterdir()) == []
    assert (cache.root / "linux/assetcatalog.xml").exists()
    assert len(reported) == 3


@pytest.mark.real
def test_lost_product_is_found_beside_an_unknown_file_that_cannot_be_deleted(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, "linux/f/.nfs01", b"a file that a program on another machine has open")
    diary.digests, diary.folders = {"linux/f/a.txt": b""}, {"linux": 1, "linux/f": 1}
    monkeypatch.setattr(ConfinedTree, "unlink", mock.Mock(side_effect=OSError(errno.EBUSY, "Device or resource busy")))
    reported: list[str] = []

    assert cache.find_lost(diary, reported.append) == (["linux/f/a.txt"], [])
    assert [text.rpartition(": ")[2] for text in reported] == ["Device or resource busy"]


@pytest.mark.real
def test_deleted_product_is_detected_although_the_folder_mtime_is_restored(cache: Cache, diary: Diary) -> None:
    put(cache, "linux/f/a.txt", b"a")
    diary.digests = {"linux/f/a.txt": b"", "linux/f/b.txt": b""}
    put(cache, "linux/f/b.txt", b"b")
    cache.note_written(["linux/f"])
    diary.folders = dict(cache.folder_rows(diary)["put_cache_folder"])
    assert not cache.is_touched(diary)
    before = (cache.root / "linux/f").stat()

    (cache.root / "linux/f/a.txt").unlink()
    os.utime(cache.root / "linux/f", ns=(before.st_atime_ns, before.st_mtime_ns))

    assert cache.is_touched(diary)
    assert cache.find_lost(diary, print)[0] == ["linux/f/a.txt"]


@pytest.mark.real
@pytest.mark.parametrize("tick_ns", [1_000_000_000, 2_000_000_000])
def test_product_deleted_in_the_clock_tick_of_its_commit_is_detected(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tick_ns: int
) -> None:
    coarsen(monkeypatch, tmp_path / "coarse", tick_ns)
    put(cache, "linux/f/a.txt", b"a")
    diary.digests = {"linux/f/a.txt": b""}
    cache.note_written(["linux/f"])
    diary.folders = dict(cache.folder_rows(diary)["put_cache_folder"])

    (cache.root / "linux/f/a.txt").unlink()

    assert cache.find_lost(diary, print)[0] == ["linux/f/a.txt"]


@pytest.mark.real
def test_full_scan_checks_folders_even_if_their_recorded_time_matches(cache: Cache, diary: Diary) -> None:
    put(cache, "linux/f/a.txt", b"a")
    unrecorded = put(cache, "linux/f/stray.txt", b"?")
    diary.digests = {"linux/f/a.txt": b"", "linux/f/b.txt": b""}
    diary.folders = {"linux/f": (cache.root / "linux/f").stat().st_ctime_ns}
    assert cache.find_lost(diary, print) == ([], [])
    assert not cache.is_touched(diary)

    assert cache.is_touched(diary, trusts_times=False)
    assert cache.find_lost(diary, print, trusts_times=False) == (["linux/f/b.txt"], ["linux/f/stray.txt"])
    assert not unrecorded.exists()


@pytest.mark.real
def test_files_in_a_folder_of_another_program_are_reported_and_kept(cache: Cache, diary: Diary) -> None:
    put(cache, "linux/f/a.txt", b"a")
    diary.digests = {"linux/f/a.txt": b""}
    diary.folders = {"linux": 0, "linux/f": 0}
    stays = [put(cache, "linux/mine/deep/notes.txt", b"?"), put(cache, "linux/f/mine/notes.txt", b"?")]
    (cache.root / "linux/empty").mkdir()
    reported: list[str] = []

    assert cache.find_lost(diary, reported.append) == ([], [])
    assert all(path.exists() for path in stays)
    assert sorted(text.partition("' in the cache was not made by aptui")[0] for text in reported) == [
        "'linux/f/mine",
        "'linux/mine",
    ]


@pytest.mark.real
def test_unrecorded_files_in_platform_folder_are_reported(cache: Cache, diary: Diary) -> None:
    put(cache, "linux/notes.txt", b"?")
    reported: list[str] = []

    assert cache.find_lost(diary, reported.append) == ([], [])
    assert [text.partition(" in")[0] for text in reported] == ["'linux'"]


@pytest.mark.real
def test_unrecorded_file_in_a_former_folder_of_the_engine_is_deleted(cache: Cache, diary: Diary) -> None:
    put(cache, "linux/f/a.txt", b"a")
    cache.delete(["linux/f/a.txt"])
    diary.folders = dict(cache.folder_rows(diary)["put_cache_folder"])
    assert cache.find_lost(diary, print) == ([], [])

    leftover = put(cache, "linux/f/a.txt", b"a")

    assert cache.is_touched(diary)
    assert cache.find_lost(diary, print)[1] == ["linux/f/a.txt"]
    assert not leftover.exists()


def test_all_products_of_a_missing_folder_are_reported_as_lost(cache: Cache, diary: Diary) -> None:
    diary.digests = {"linux/f/a.txt": b"", "linux/f/b.txt": b""}
    diary.folders = {"linux/f": 1}

    assert sorted(cache.find_lost(diary, print)[0]) == ["linux/f/a.txt", "linux/f/b.txt"]


def test_deletion_of_a_product_also_deletes_folders_that_become_empty(cache: Cache, diary: Diary) -> None:
    put(cache, "linux/f/g/a.txt", b"a")
    put(cache, "linux/f/b.txt", b"b")

    problems = cache.delete(["linux/f/g/a.txt", "linux/f/g/never.txt"])

    assert problems == []
    assert sorted(path.name for path in (cache.root / "linux/f").iterdir()) == ["b.txt"]
    assert ("linux/f/g", NO_FOLDER) in cache.folder_rows(diary)["put_cache_folder"]


def test_product_that_replaces_a_folder_marks_the_folder_as_gone(cache: Cache, diary: Diary) -> None:
    """If the database kept the folder's row, the next engine would search for products at this path, which is now a file."""
    put(cache, "linux/f/a.txt/deep/b.txt", b"b")
    cache.delete(["linux/f/a.txt/deep/b.txt"])
    cache.commit(CommitProducts(1, (stage(cache, 1, ("linux/f/a.txt", b"a")),)), diary, rows_of)  # type: ignore[arg-type]
    diary.digests = {"linux/f/a.txt": hashlib.sha256(b"a").digest()}

    rows = cache.folder_rows(diary)

    recorded = dict(rows["put_cache_folder"])
    assert {folder for folder, ctime_ns in recorded.items() if ctime_ns == NO_FOLDER} == {"linux/f/a.txt", "linux/f/a.txt/deep"}
    assert recorded.keys() >= {"linux", "linux/f"}
    diary.folders = recorded
    assert cache.find_lost(diary, print) == ([], [])
    assert cache.delete(["linux/f/a.txt/deep/b.txt"]) == [], "a folder in the path is now a file, so the product does not exist"


def test_product_that_cannot_be_deleted_is_checked_at_the_next_start(
    cache: Cache, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, "linux/f/a.txt", b"a")

    def refuse(_path: object, **_how: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        problems = cache.delete(["linux/f/a.txt"])

    assert len(problems) == 1
    assert cache.folder_rows(diary) == {"put_cache_folder": [("linux/f", 0)]}


def test_commit_keeps_the_intent_rows_of_a_partly_placed_run(cache: Cache, diary: Diary) -> None:
    (cache.root / "linux" / "b.txt" / "in").mkdir(parents=True)
    order = CommitProducts(
        1, (stage(cache, 1, ("linux/a.txt", b"a"), ("linux/b.txt", b"b")), stage(cache, 2, ("linux/c.txt", b"c")))
    )

    done, failed = cache.commit(order, diary, rows_of)

    assert (done, [(run_key, placed) for run_key, _, placed in failed]) == ([2], [(1, 1)])
    assert diary.notes[-1][1][1] == [2]


# ---------------------------------------------------------------------------------------------------------- links in the cache


def _linked_project(tmp_path: Path) -> tuple[Project, Path]:
    project = Project(tmp_path / "project", 'scan_folders: [{name: game, path: assets}]\nbuilders: [{name: d, copy: ["*.txt"]}]\n')
    project.engine_run({"assets/a.txt": "a", "assets/d/b.txt": "b"})
    private = tmp_path / "private"
    private.mkdir()
    for name in ("letter", "b.txt"):
        (private / name).write_text("mine")
    return project, private


@pytest.mark.real
def test_cache_refuses_a_linked_platform_folder_and_keeps_the_target(tmp_path: Path) -> None:
    project, private = _linked_project(tmp_path)
    project.delete(f"Cache/{HOST}")
    project.path(f"Cache/{HOST}").symlink_to(private)

    with pytest.raises(UserError, match="is a link"):
        project.engine_run()
    assert {path.name: path.read_text() for path in private.iterdir()} == {"letter": "mine", "b.txt": "mine"}


@pytest.mark.real
@pytest.mark.parametrize("change", ["delete", "edit", "nothing"])
def test_cache_changes_no_file_behind_a_link_below_a_platform_folder(tmp_path: Path, change: str) -> None:
    project, private = _linked_project(tmp_path)
    project.delete(f"Cache/{HOST}/d")
    project.path(f"Cache/{HOST}/d").symlink_to(private)
    if change == "delete":
        project.delete("assets/d/b.txt")
    elif change == "edit":
        project.write("assets/d/b.txt", "edited")

    project.engine_run()

    assert {path.name: path.read_text() for path in private.iterdir()} == {"letter": "mine", "b.txt": "mine"}

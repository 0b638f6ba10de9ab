"""Files are read, hashed and copied: digests are correct, unchanged files are not written, and no copy mixes two versions."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import xxhash
from msgspec.structs import replace

from aptui.core.orders import CopyOrder, HashOrder, Outcome
from aptui.worker import file_access

SMALL, LARGE = b"small", os.urandom(file_access.CHUNK_BYTES) * 2 + b"tail"


def order(tmp_path, data=SMALL, present=b"", key=1):
    (tmp_path / f"source{key}").write_bytes(data)
    return CopyOrder(key, str(tmp_path / f"source{key}"), str(tmp_path / f"staging/copy{key}"), present)


def while_reading(monkeypatch, change):
    """Call `change` once, after the first call of `os.read`."""
    read, todo = os.read, [change]

    def reading(descriptor, count):
        data = read(descriptor, count)
        if todo:
            todo.pop()()
        return data

    monkeypatch.setattr(os, "read", reading)


def append_to(path):
    def change():
        with open(path, "ab") as file:
            file.write(b"more")

    return change


@pytest.mark.parametrize("data", [b"", SMALL, LARGE[: file_access.CHUNK_BYTES], LARGE])
def test_copy_is_equal_and_has_correct_hashes(tmp_path, data):
    (result,) = file_access.copy_files([order(tmp_path, data)])

    (product,) = result.products
    assert (result.outcome, result.error) == (Outcome.SUCCEEDED, "")
    assert product.staged == str(tmp_path / "staging/copy1")
    assert (tmp_path / "staging/copy1").read_bytes() == data
    assert (product.digest, product.hash64, product.size) == (
        hashlib.sha256(data).digest(),
        xxhash.xxh64_intdigest(data),
        len(data),
    )
    assert result.source_digest == product.digest


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_unchanged_product_is_not_written_again(tmp_path, data):
    (result,) = file_access.copy_files([order(tmp_path, data, hashlib.sha256(data).digest())])

    assert result.outcome == Outcome.SUCCEEDED
    assert (result.products[0].staged, result.products[0].digest) == ("", hashlib.sha256(data).digest())
    assert not (tmp_path / "staging").exists()


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_changed_product_is_written(tmp_path, data):
    (result,) = file_access.copy_files([order(tmp_path, data, hashlib.sha256(b"other").digest())])

    assert result.outcome == Outcome.SUCCEEDED
    assert (tmp_path / "staging/copy1").read_bytes() == data


@pytest.mark.parametrize("data", [SMALL, LARGE])
@pytest.mark.parametrize("present", [b"", bytes(32)])
def test_copy_is_stale_if_its_source_changed_during_the_copy(tmp_path, monkeypatch, data, present):
    one = order(tmp_path, data, present)
    while_reading(monkeypatch, append_to(one.path))

    (result,) = file_access.copy_files([one])

    assert (result.outcome, result.error) == (Outcome.STALE, "source: the file changed while it was read")
    assert result.products == ()
    assert not os.path.exists(one.staged)


def test_copy_is_stale_if_its_source_was_rewritten_with_equal_size(tmp_path, monkeypatch):
    one = order(tmp_path, LARGE)
    while_reading(monkeypatch, lambda: os.utime(one.path, ns=(1, 1)))

    (result,) = file_access.copy_files([one])

    assert result.outcome == Outcome.STALE


def test_copy_order_for_a_deleted_or_replaced_source_gives_a_stale_result(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    paths = [tmp_path / "gone", tmp_path / "fifo", tmp_path]

    results = file_access.copy_files([CopyOrder(n, str(path), str(tmp_path / "copy")) for n, path in enumerate(paths)])

    assert [(result.outcome, result.error) for result in results] == [
        (Outcome.STALE, "source: the file was deleted"),
        (Outcome.STALE, "source: not a regular file"),
        (Outcome.STALE, "source: not a regular file"),
    ]


def test_unreadable_source_fails_the_copy_with_the_reason_of_the_system(tmp_path):
    (tmp_path / "loop").symlink_to("loop")

    (result,) = file_access.copy_files([CopyOrder(1, str(tmp_path / "loop"), str(tmp_path / "copy"))])

    assert (result.outcome, result.errors) == (Outcome.FAILED, 1)
    assert result.error == "cannot read source: Too many levels of symbolic links"


def test_copy_never_overwrites_a_file(tmp_path):
    one = order(tmp_path)
    os.mkdir(tmp_path / "staging")
    (tmp_path / "staging/copy1").write_bytes(b"somebody's")

    (result,) = file_access.copy_files([one])

    assert (result.outcome, result.error) == (Outcome.FAILED, "cannot write the copy: File exists")
    assert (tmp_path / "staging/copy1").read_bytes() == b"somebody's"


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_copy_to_a_full_disk_fails_and_leaves_no_file(tmp_path, monkeypatch, data):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    one = order(tmp_path)
    (tmp_path / "source1").write_bytes(data)

    (result,) = file_access.copy_files([one])

    assert (result.outcome, result.error) == (Outcome.FAILED, "cannot write the copy: No space left on device")
    assert not os.path.exists(one.staged)


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_copy_of_a_source_on_a_disk_that_fails_says_that_the_source_cannot_be_read(tmp_path, monkeypatch, data):
    def fail(_descriptor, _count):
        raise OSError(5, "Input/output error")

    one = order(tmp_path)
    (tmp_path / "source1").write_bytes(data)
    monkeypatch.setattr(file_access.os, "read", fail)

    (result,) = file_access.copy_files([one])
    monkeypatch.undo()

    assert (result.outcome, result.error) == (Outcome.FAILED, "cannot read source: Input/output error")
    assert not os.path.exists(one.staged)


def test_error_of_a_disk_that_fails_while_a_file_is_hashed_has_no_descriptor_in_its_text(tmp_path, monkeypatch):
    def fail(_descriptor, _count):
        raise OSError(5, "Input/output error")

    (tmp_path / "source").write_bytes(SMALL)
    monkeypatch.setattr(file_access.os, "read", fail)

    with pytest.raises(OSError, match="Input/output error") as caught:
        file_access.hash_file(str(tmp_path / "source"))
    monkeypatch.undo()

    assert str(caught.value) == "[Errno 5] Input/output error"


def test_failed_copy_does_not_affect_other_copies_of_a_large_batch(tmp_path):
    orders = [order(tmp_path, b"%d" % key, key=key) for key in range(file_access.SYNC_EACH_BELOW + 5)]
    os.unlink(orders[3].path)

    results = file_access.copy_files(orders)

    assert [result.run_key for result in results] == [one.run_key for one in orders]
    assert [result.run_key for result in results if result.outcome != Outcome.SUCCEEDED] == [3]
    assert (tmp_path / "staging/copy36").read_bytes() == b"36"


def test_all_copies_of_a_large_batch_fail_if_they_cannot_be_synced(tmp_path, monkeypatch):
    def broken(path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_access, "sync_file_system", broken)
    orders = [order(tmp_path, b"x", key=key) for key in range(file_access.SYNC_EACH_BELOW)]

    results = file_access.copy_files(orders)

    assert {(result.outcome, result.error) for result in results} == {
        (Outcome.FAILED, "the staging folder cannot be saved on the disk: Input/output error")
    }


def test_copy_is_writable_and_executable_like_its_source(tmp_path):
    one = order(tmp_path)
    os.chmod(one.path, 0o555)

    file_access.copy_files([one])

    assert os.stat(one.staged).st_mode & 0o700 == 0o700


def test_hash_results_are_in_the_order_of_the_files_and_contain_their_stat(tmp_path):
    (tmp_path / "a").write_bytes(SMALL)
    (tmp_path / "b").write_bytes(LARGE)

    result = file_access.hash_files(HashOrder(9, (str(tmp_path / "b"), str(tmp_path / "a"))))

    assert (result.order, result.errors) == (9, ())
    for found, name, data in zip(result.files, "ba", (LARGE, SMALL), strict=True):
        seen = os.stat(tmp_path / name)
        assert found == (
            hashlib.sha256(data).digest(),
            xxhash.xxh64_intdigest(data),
            len(data),
            seen.st_mtime_ns,
            seen.st_ctime_ns,
            seen.st_ino,
        )


def test_unreadable_file_has_an_error_and_a_missing_file_has_no_entry(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a").write_bytes(SMALL)
    names = ("gone", "loop", "a", "a/below")

    result = file_access.hash_files(HashOrder(9, tuple(str(tmp_path / name) for name in names)))

    assert (result.files[0], result.files[3]) == (None, None)
    assert result.files[1] == (b"", 0, -1, 0, 0, 0)
    assert result.files[2][2] == 5
    assert result.errors == ((1, "Too many levels of symbolic links"),)


def test_a_file_without_permission_is_unreadable(tmp_path, monkeypatch):
    def denied(*_arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)

    result = file_access.hash_files(HashOrder(9, (str(tmp_path / "a"),)))

    assert result.files == ((b"", 0, -1, 0, 0, 0),)
    assert result.errors == ((0, "Permission denied"),)


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_a_file_that_changes_while_it_is_hashed_has_no_hash(tmp_path, monkeypatch, data):
    (tmp_path / "a").write_bytes(data)
    while_reading(monkeypatch, append_to(tmp_path / "a"))

    result = file_access.hash_files(HashOrder(9, (str(tmp_path / "a"),)))

    assert (result.files, result.errors) == ((None,), ())


def test_sync_of_several_files_names_the_files_that_failed(tmp_path, monkeypatch):
    paths = [str(tmp_path / name) for name in "abc"]
    descriptors = [os.open(path, os.O_CREAT | os.O_RDONLY) for path in paths]
    synced, fsync = [], os.fsync

    def failing(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path == paths[1]:
            raise OSError(5, "Input/output error")
        synced.append(path)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)

    failed = file_access.sync_open(descriptors)
    for descriptor in descriptors:
        os.close(descriptor)

    assert synced == [paths[0], paths[2]]
    assert failed == {descriptors[1]: "Input/output error"}


def test_small_file_is_read_with_a_small_buffer(tmp_path, monkeypatch):
    counts, read = [], os.read
    (tmp_path / "a").write_bytes(SMALL)
    monkeypatch.setattr(os, "read", lambda descriptor, count: (counts.append(count), read(descriptor, count))[1])

    file_access.hash_file(str(tmp_path / "a"))
    file_access.copy_files([order(tmp_path)])

    assert counts == [len(SMALL) + 1] * 2


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 7\n" % (b"a" * 64)


def test_lfs_pointer_without_content_is_copied_only_on_request(tmp_path):
    one = order(tmp_path, POINTER)

    (failed,) = file_access.copy_files([one])
    (copied,) = file_access.copy_files([replace(one, takes_pointers=True)])

    assert (failed.outcome, failed.error) == (
        Outcome.FAILED,
        "not fetched from Git LFS: run 'git lfs pull', or set 'lfs_pointers: copy' in aptui.yaml",
    )
    assert copied.outcome == Outcome.SUCCEEDED
    assert Path(one.staged).read_bytes() == POINTER


# ------------------------------------------------------------------------------- files that are copied while they are hashed


def hash_order(tmp_path, *texts: bytes, known: tuple[bytes, ...] = ()) -> HashOrder:
    """Write `texts` to files; return an order to hash each file and to copy it to two places."""
    for number, data in enumerate(texts):
        (tmp_path / f"file{number}").write_bytes(data)
    count = range(len(texts))
    paths = tuple(str(tmp_path / f"file{number}") for number in count)
    copies = tuple((str(tmp_path / f"staging/{number}"), str(tmp_path / f"staging/{number}-too")) for number in count)
    return HashOrder(9, paths, copies, known or (b"",) * len(texts))


def staged(tmp_path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tmp_path / "staging").glob("*")}


@pytest.mark.parametrize("data", [b"", SMALL, LARGE])
def test_hashing_with_copy_reads_the_file_once(tmp_path, monkeypatch, data):
    one = hash_order(tmp_path, data)
    opened, read, open_, read_ = [], [], os.open, os.read
    monkeypatch.setattr(os, "open", lambda path, *more: (opened.append(str(path)), open_(path, *more))[1])
    monkeypatch.setattr(os, "read", lambda *how: (found := read_(*how), read.append(len(found)))[0])

    result = file_access.hash_files(one)

    assert opened.count(one.paths[0]) == 1
    assert sum(read) == len(data)
    assert staged(tmp_path) == {"0": data, "0-too": data}
    assert [index for index, _took_ms in result.staged] == [0]
    assert result.files[0][:3] == (hashlib.sha256(data).digest(), xxhash.xxh64_intdigest(data), len(data))


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_unchanged_file_is_not_copied(tmp_path, data):
    result = file_access.hash_files(hash_order(tmp_path, data, known=(hashlib.sha256(data).digest(),)))

    assert (result.staged, staged(tmp_path)) == ((), {})


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_a_file_that_changes_while_it_is_hashed_leaves_no_copy(tmp_path, monkeypatch, data):
    one = hash_order(tmp_path, data)
    while_reading(monkeypatch, append_to(one.paths[0]))

    result = file_access.hash_files(one)

    assert (result.files, result.staged, staged(tmp_path)) == ((None,), (), {})


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_digest_is_correct_if_the_copy_cannot_be_written(tmp_path, monkeypatch, data):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    one = hash_order(tmp_path, data)
    monkeypatch.setattr(os, "write", full)

    result = file_access.hash_files(one)

    assert result.files[0][0] == hashlib.sha256(data).digest()
    assert (result.staged, staged(tmp_path)) == ((), {})


def test_copy_during_hashing_never_overwrites_a_file(tmp_path):
    one = hash_order(tmp_path, SMALL)
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging/0-too").write_bytes(b"somebody's")

    result = file_access.hash_files(one)

    assert (result.staged, staged(tmp_path)) == ((), {"0-too": b"somebody's"})


def test_worker_syncs_many_copies_with_one_call(tmp_path, monkeypatch):
    texts = [b"%d" % number for number in range(file_access.SYNC_EACH_BELOW)]
    synced = []
    monkeypatch.setattr(file_access, "sync_file_system", synced.append)

    result = file_access.hash_files(hash_order(tmp_path, *texts))

    assert (len(result.staged), len(synced)) == (len(texts), 1)


def test_staged_copies_are_dropped_if_they_cannot_be_synced(tmp_path, monkeypatch):
    def broken(path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_access, "sync_file_system", broken)

    result = file_access.hash_files(hash_order(tmp_path, *(b"x" for _ in range(file_access.SYNC_EACH_BELOW))))

    assert (result.staged, staged(tmp_path)) == ((), {})
    assert all(found is not None for found in result.files)


def test_lfs_pointer_without_content_is_not_copied_during_hashing(tmp_path):
    result = file_access.hash_files(hash_order(tmp_path, POINTER, SMALL))

    assert [index for index, _took_ms in result.staged] == [1]
    assert result.files[0][0] == bytes.fromhex("aa" * 32)


@pytest.mark.parametrize("data", [SMALL, LARGE])
def test_file_open_for_writing_is_not_copied_if_writers_are_checked(tmp_path, data):
    one = replace(hash_order(tmp_path, data), asks_writers=True)
    with open(one.paths[0], "ab"):
        while_written, untold = file_access.hash_files(one), file_access.hash_files(replace(one, order=2, asks_writers=False))
    left = staged(tmp_path)
    for path in one.copies[0]:
        Path(path).unlink()
    after = file_access.hash_files(one)

    assert (while_written.files, while_written.staged) == ((None,), ())
    assert left == {"0": data, "0-too": data}
    assert untold.files[0] is not None
    assert [index for index, _took_ms in after.staged] == [0]
    assert after.unasked == ()


def test_result_lists_staged_copies_that_were_not_checked_for_writers(tmp_path, monkeypatch):
    monkeypatch.setattr(file_access.replacing, "is_being_written", lambda _descriptor: None)

    result = file_access.hash_files(replace(hash_order(tmp_path, SMALL, b"other"), asks_writers=True))

    assert [index for index, _took_ms in result.staged] == [0, 1]
    assert result.unasked == (0, 1)

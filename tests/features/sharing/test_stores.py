"""Common behaviour of all stores."""

import os
import threading

import pytest

from aptui.features.sharing.namespaces import open_store
from aptui.features.sharing.record import Seal, base_key, seal_record
from aptui.features.sharing.stores.folder_store import FolderStore
from aptui.features.sharing.stores.remote_stores import ObjectStore
from aptui.shared.errors import UserError
from aptui.shared.result_store import Mismatch, StoreError
from tests.features.sharing.conftest import _bucket, s3_options
from tests.features.sharing.harness import digest_of, facts, files_of, record

KEY = base_key(facts())
ONE, OTHER = (seal_record(record(facts(), data), Seal()) for data in (b"one", b"other"))


def name_of(data):
    return digest_of(data).hex()


def essence(data):
    return data.partition(b"\n")[2]


def test_stored_record_is_returned_and_the_first_writer_wins(store):
    """A second record with the same key does not replace the first record."""
    assert store.get_record(KEY) is None
    assert store.put_record(KEY, ONE)
    assert not store.put_record(KEY, OTHER)

    assert essence(store.get_record(KEY)) == essence(ONE)


def test_record_is_replaced_on_request(store):
    store.put_record(KEY, ONE)

    assert store.put_record(KEY, OTHER, if_absent=False)
    assert essence(store.get_record(KEY)) == essence(OTHER)


@pytest.mark.parametrize("size", [0, 1, 70_000, 3 << 20])
def test_blobs_are_returned_unchanged(store, tmp_path, size):
    data = os.urandom(size)
    [(digest, path)] = files_of(tmp_path / "made", data).items()
    target = tmp_path / "target"
    assert not store.get_blob(digest, str(target), size)

    store.put_blob(digest, path)
    store.put_blob(digest, path)

    assert store.get_blob(digest, str(target), size)
    assert target.read_bytes() == data
    assert store.has_blobs([digest, name_of(b"nobody's")]) == {digest}


def test_changed_file_is_not_published(store, tmp_path):
    """If the digest of an upload differs from the blob's name, the upload ends before its last byte."""
    [(digest, path)] = files_of(tmp_path / "made", b"x" * (2 << 20)).items()
    with open(path, "r+b") as file:
        file.write(b"y")

    with pytest.raises(StoreError):
        store.put_blob(digest, path)
    assert store.has_blobs([digest]) == set()


def test_blob_of_another_length_than_recorded_is_refused(store, tmp_path):
    """A blob that is longer or shorter than the recorded length is refused, and the target file is not created."""
    [(digest, path)] = files_of(tmp_path / "made", b"x" * 100_000).items()
    store.put_blob(digest, path)

    for size in (99_999, 100_001):
        with pytest.raises(Mismatch):
            store.get_blob(digest, str(tmp_path / "target"), size)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("name", ["../../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "/x", ""])
def test_every_store_refuses_a_record_or_blob_name_that_is_not_a_digest(store, tmp_path, name):
    """A name is validated before it becomes a path."""
    for call in (
        lambda: store.get_record(name),
        lambda: store.put_record(name, ONE),
        lambda: store.get_blob(name, str(tmp_path / "t"), 1),
        lambda: store.put_blob(name, str(tmp_path / "t")),
        lambda: store.has_blobs([name]),
    ):
        with pytest.raises(Mismatch):
            call()


def written_at_once(store):
    """Write a record with the same key in each of eight threads.

    Return (all records, the records that `put_record` reported as stored).
    """
    start, written, won = threading.Barrier(8), [], []

    def write(number):
        data = seal_record(record(facts(), str(number).encode()), Seal())
        written.append(essence(data))
        start.wait()
        if store.put_record(KEY, data):
            won.append(essence(data))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return written, won


def test_exactly_one_of_many_concurrent_writers_wins(exact_store):
    """If many threads write a record with the same key at once, the store keeps the record of exactly one thread."""
    _, won = written_at_once(exact_store)

    assert won == [essence(exact_store.get_record(KEY))]


def test_concurrent_writers_leave_no_mixed_content(store):
    """After concurrent writes with one key, the store has one complete record. In a web server, it can be any of the records."""
    written, won = written_at_once(store)

    assert won
    assert essence(store.get_record(KEY)) in written


def test_namespaces_are_separate(tmp_path):
    """A record of an untrusted branch is not found in the trusted namespace."""
    (tmp_path / "share").mkdir()
    branch, trusted = FolderStore(str(tmp_path / "share"), "branch-7"), FolderStore(str(tmp_path / "share"))
    [(digest, path)] = files_of(tmp_path / "made", b"evil").items()
    branch.put_blob(digest, path)
    branch.put_record(KEY, ONE)

    assert trusted.get_record(KEY) is None
    assert trusted.has_blobs([digest]) == set()


def test_unreachable_bucket_is_an_error_within_the_deadline(tmp_path):
    pytest.importorskip("obstore")
    store = ObjectStore("s3://bucket", limit_s=0.5, options=s3_options("http://127.0.0.1:9"))

    with pytest.raises(StoreError):
        store.get_record(KEY)


def test_error_of_a_bucket_with_an_http_endpoint_names_the_variable_to_set(monkeypatch):
    pytest.importorskip("obstore")
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    variables = {"ENDPOINT_URL": "http://127.0.0.1:9", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y", "REGION": "us-east-1"}
    for name, value in variables.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    with pytest.raises(StoreError, match="AWS_ALLOW_HTTP=true"):
        open_store("s3://bucket").get_record(KEY)


@pytest.mark.real
def test_bucket_settings_come_from_environment_variables_of_the_provider(moto, monkeypatch):
    bucket = _bucket(moto).address
    variables = {"ENDPOINT_URL": moto, "ALLOW_HTTP": "true", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y", "REGION": "us-east-1"}
    for name, value in variables.items():
        monkeypatch.setenv(f"AWS_{name}", value)

    assert open_store(bucket, "branch-7").put_record(KEY, ONE)
    assert open_store(bucket, "branch-7").get_record(KEY) == ONE
    assert open_store(bucket).get_record(KEY) is None


@pytest.mark.parametrize(
    ("address", "kind"),
    [("/share", "FolderStore"), ("file:///share", "FolderStore"), ("https://x/y", "HttpStore"), ("memory:///", "ObjectStore")],
)
def test_address_selects_the_kind_of_store(address, kind):
    assert type(open_store(address)).__name__ == kind


@pytest.mark.slow
@pytest.mark.parametrize("address", ["", "share", "ftp://x", "C:/x", "s3:bucket"])
def test_store_address_of_an_unknown_kind_is_a_user_error(address):
    with pytest.raises(UserError):
        open_store(address)

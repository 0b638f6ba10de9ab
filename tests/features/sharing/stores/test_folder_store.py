import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from waiting import until

from aptui.features.sharing.stores.folder_store import ABANDONED_AFTER_S, FolderStore, prefix_of, sweep
from aptui.shared.errors import UserError
from aptui.shared.result_store import Mismatch, StoreError, StoreFull, StoreRefused
from tests.features.sharing.harness import digest_of, files_of

KEY = "ab" * 32


@pytest.fixture
def share(tmp_path):
    (tmp_path / "share").mkdir()
    return FolderStore(str(tmp_path / "share"))


def test_unmounted_share_is_reported_and_not_treated_as_an_empty_store(tmp_path):
    store = FolderStore(str(tmp_path / "share"))

    for call in (
        lambda: store.get_record(KEY),
        lambda: store.put_record(KEY, b"x"),
        lambda: store.get_blob(KEY, str(tmp_path / "t"), 1),
    ):
        with pytest.raises(StoreError, match="does not exist"):
            call()
    assert not (tmp_path / "share").exists()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"Y" + data[1:], lambda _data: b""]
)
def test_blob_with_another_digest_is_refused_and_leaves_no_file(share, tmp_path, damage):
    """Length and digest of every blob are verified for every store."""
    data = b"x" * 5000
    [(digest, path)] = files_of(tmp_path / "made", data).items()
    share.put_blob(digest, path)
    with open(share.blob_path(digest), "wb") as file:
        file.write(damage(data))

    with pytest.raises(Mismatch):
        share.get_blob(digest, str(tmp_path / "target"), len(data))
    assert not (tmp_path / "target").exists()

    share.put_blob(digest, path, replaces=True)
    assert share.get_blob(digest, str(tmp_path / "target"), len(data))


def test_blob_is_not_written_through_a_symlink(share, tmp_path):
    """No symbolic links."""
    [(digest, path)] = files_of(tmp_path / "made", b"data").items()
    share.put_blob(digest, path)
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "target").symlink_to(tmp_path / "precious")

    with pytest.raises(StoreError):
        share.get_blob(digest, str(tmp_path / "target"), 4)
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EACCES, StoreRefused),
        (errno.EROFS, StoreRefused),
        (errno.EIO, StoreError),
    ],
)
def test_system_errors_become_store_errors(share, tmp_path, monkeypatch, code, kind):
    """A full store keeps no incomplete files."""

    def fail(_descriptor):
        raise OSError(code, os.strerror(code))

    [(digest, path)] = files_of(tmp_path / "made", b"data").items()
    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(kind):
        share.put_blob(digest, path)
    monkeypatch.undo()
    assert share.has_blobs([digest]) == set()
    assert os.listdir(tmp_path / "share" / "tmp") == []


_WRITER = """
import sys
from aptui.features.sharing.stores import folder_store
folder_store.CHUNK_BYTES = 64 * 1024
root, digest, source = sys.argv[1:]
store = folder_store.FolderStore(root)
while True:
    print("again", flush=True)
    store.put_blob(digest, source, replaces=True)
    store.put_record(digest, b"record " * 10000, if_absent=False)
"""


@pytest.mark.real
def test_process_killed_during_put_leaves_a_valid_store(share, tmp_path):
    data = os.urandom(4 << 20)
    [(digest, path)] = files_of(tmp_path / "made", data).items()
    for number in range(8):
        with subprocess.Popen([sys.executable, "-c", _WRITER, share.address, digest, path], stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(0.003 * number)
            writer.send_signal(signal.SIGKILL)
        record = share.get_record(digest)
        target = tmp_path / f"target{number}"

        assert record in (None, b"record " * 10000)
        assert not share.get_blob(digest, str(target), len(data)) or digest_of(target.read_bytes()).hex() == digest

    left = len(os.listdir(tmp_path / "share" / "tmp"))
    assert sweep(share.address, time.time()) == 0
    assert sweep(share.address, time.time() + ABANDONED_AFTER_S + 60) == left


@pytest.mark.real
def test_replacement_of_a_record_is_atomic(share, tmp_path):
    data = os.urandom(1 << 20)
    [(digest, path)] = files_of(tmp_path / "made", data).items()
    with subprocess.Popen([sys.executable, "-c", _WRITER, share.address, digest, path], stdout=subprocess.PIPE) as writer:
        until(lambda: share.get_record(digest) is not None)
        seen = [share.get_record(digest) for _ in range(300)]
        for number in range(30):
            assert share.get_blob(digest, str(tmp_path / f"target{number}"), len(data))
        writer.kill()

    assert set(seen) == {b"record " * 10000}


@pytest.mark.parametrize("name", ["", "..", "a/b", "Upper", "-x", "x" * 65])
def test_namespace_with_special_characters_is_refused(name):
    assert prefix_of("trusted") == ""
    assert prefix_of("branch-7") == "ns/branch-7/"
    with pytest.raises(UserError):
        prefix_of(name)


@pytest.mark.parametrize(("mode", "folder_mode", "file_bits"), [(0o2770, 0o2770, 0o440), (0o700, 0o700, 0o400)])
def test_group_permissions_of_a_store_are_kept(tmp_path, mode, folder_mode, file_bits):
    (tmp_path / "share").mkdir()
    (tmp_path / "share").chmod(mode)
    share = FolderStore(str(tmp_path / "share"))
    [(digest, path)] = files_of(tmp_path / "made", b"x").items()
    before = os.umask(0o077)
    try:
        share.put_blob(digest, path)
        share.put_record(KEY, b"x")
    finally:
        os.umask(before)

    for name in (share.blob_path(digest), share.record_path(KEY)):
        assert os.stat(name).st_mode & 0o444 == file_bits
        assert os.stat(os.path.dirname(name)).st_mode & 0o7777 == folder_mode
    assert os.stat(tmp_path / "share" / "tmp").st_mode & 0o7777 == folder_mode

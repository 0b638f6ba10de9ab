import errno
import os

import pytest
from tools import MACHINE

from aptui.features.sharing.stores import placing
from aptui.features.sharing.stores.folder_store import FolderStore
from aptui.features.sharing.stores.placing import read_verified, write_verified
from aptui.shared.result_store import Mismatch
from tests.features.sharing.harness import digest_of

DATA = os.urandom(3 << 20)


def failing(code):
    def fail(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EIO])
def test_copy_works_without_copy_file_range(tmp_path, monkeypatch, code):
    (tmp_path / "source").write_bytes(DATA)
    monkeypatch.setattr(os, "copy_file_range", failing(code))

    placing.copy(str(tmp_path / "source"), str(tmp_path / "target"))
    assert (tmp_path / "target").read_bytes() == DATA


def test_failed_copy_leaves_no_file(tmp_path, monkeypatch):
    (tmp_path / "source").write_bytes(DATA)
    monkeypatch.setattr(os, "copy_file_range", failing(errno.EXDEV))
    monkeypatch.setattr(os, "write", failing(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        placing.copy(str(tmp_path / "source"), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EMLINK, errno.EPERM])
def test_hard_link_returns_false_if_unsupported(tmp_path, monkeypatch, code):
    monkeypatch.setattr(os, "link", failing(code))

    assert not placing.link(str(tmp_path / "source"), str(tmp_path / "target"))
    monkeypatch.setattr(os, "link", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        placing.link(str(tmp_path / "source"), str(tmp_path / "target"))


def test_note_of_a_checked_file_is_valid_until_the_file_is_written(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"data")
    placing.remember(str(path))
    if not placing.is_remembered(str(path), path.stat()):
        pytest.skip(MACHINE + "this file system takes no notes")

    os.utime(path, ns=(0, path.stat().st_mtime_ns))
    assert placing.is_remembered(str(path), path.stat())
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert not placing.is_remembered(str(path), path.stat())


def test_publishing_works_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    store = FolderStore(str(tmp_path))

    assert store.put_record("ab" * 32, b"first")
    assert not store.put_record("ab" * 32, b"second")
    assert store.get_record("ab" * 32) == b"first"


def test_reflink_creates_a_file_if_supported(tmp_path, monkeypatch):
    """The system call is simulated (see ioctl_ficlone(2)), because most file systems of test machines do not support reflinks."""
    (tmp_path / "source").write_bytes(DATA)
    asked = []

    def clone(target, request, source):
        asked.append(request)
        os.write(target, os.pread(source, len(DATA), 0))

    monkeypatch.setattr(placing.fcntl, "ioctl", clone)
    monkeypatch.setattr(placing, "_no_reflinks", set())

    assert placing.reflink(str(tmp_path / "source"), str(tmp_path / "target"))
    assert (tmp_path / "target").read_bytes() == DATA
    assert asked == [0x40049409]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL])
def test_reflink_is_not_tried_again_on_a_file_system_without_reflinks(tmp_path, monkeypatch, code):
    (tmp_path / "source").write_bytes(DATA)
    monkeypatch.setattr(placing.fcntl, "ioctl", failing(code))
    monkeypatch.setattr(placing, "_no_reflinks", set())

    assert not placing.reflink(str(tmp_path / "source"), str(tmp_path / "target"))
    monkeypatch.setattr(placing.fcntl, "ioctl", failing(errno.EIO))
    assert not placing.reflink(str(tmp_path / "source"), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_full_disk_does_not_count_as_missing_reflink_support(tmp_path, monkeypatch):
    (tmp_path / "source").write_bytes(DATA)
    monkeypatch.setattr(placing.fcntl, "ioctl", failing(errno.ENOSPC))
    monkeypatch.setattr(placing, "_no_reflinks", set())

    with pytest.raises(OSError, match="No space"):
        placing.reflink(str(tmp_path / "source"), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()
    assert not placing._no_reflinks


def test_blob_beyond_the_maximum_length_is_refused(tmp_path):
    """At most the declared size is written and read."""
    taken = []

    def endless():
        while len(taken) < 1000:
            taken.append(1)
            yield b"x" * 100

    with pytest.raises(Mismatch, match="longer"):
        write_verified(endless(), str(tmp_path / "target"), "00" * 32, 250)

    assert len(taken) == 3
    assert not (tmp_path / "target").exists()


def test_existing_blob_stays_unchanged(tmp_path):
    (tmp_path / "target").write_bytes(b"precious")

    with pytest.raises(FileExistsError):
        write_verified([b"x"], str(tmp_path / "target"), digest_of(b"x").hex(), 1)
    assert (tmp_path / "target").read_bytes() == b"precious"


@pytest.mark.parametrize("size", [0, 5, (1 << 20) + 1, 3 << 20])
def test_upload_of_a_changed_file_is_not_completed(tmp_path, size):
    """An upload is completed only if the digest of all bytes is right."""
    data = os.urandom(size)
    (tmp_path / "made").write_bytes(data)
    assert b"".join(read_verified(str(tmp_path / "made"), digest_of(data).hex())) == data

    sent = []
    with pytest.raises(Mismatch):
        for chunk in read_verified(str(tmp_path / "made"), "00" * 32):
            sent.append(chunk)
    assert sum(map(len, sent)) < max(size, 1)

import errno
import os

import pytest

from aptui.sharing import placing
from aptui.sharing.folder_store import FolderStore

DATA = os.urandom(3 << 20)


def failing(code):
    def fail(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EIO])
def test_where_the_system_does_not_copy_bytes_are_read_and_written(tmp_path, monkeypatch, code):
    (tmp_path / "source").write_bytes(DATA)
    monkeypatch.setattr(os, "copy_file_range", failing(code))

    placing.copy(str(tmp_path / "source"), str(tmp_path / "target"))
    assert (tmp_path / "target").read_bytes() == DATA


def test_a_copy_that_fails_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "source").write_bytes(DATA)
    monkeypatch.setattr(os, "copy_file_range", failing(errno.EXDEV))
    monkeypatch.setattr(os, "write", failing(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        placing.copy(str(tmp_path / "source"), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EMLINK, errno.EPERM])
def test_a_link_that_cannot_be_is_no_error(tmp_path, monkeypatch, code):
    monkeypatch.setattr(os, "link", failing(code))

    assert not placing.link(str(tmp_path / "source"), str(tmp_path / "target"))
    monkeypatch.setattr(os, "link", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        placing.link(str(tmp_path / "source"), str(tmp_path / "target"))


def test_what_is_remembered_of_a_file_holds_while_it_is_not_written_to(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"data")
    placing.remember(str(path))
    if not placing.is_remembered(str(path), path.stat()):
        pytest.skip("this file system takes no notes")

    os.utime(path, ns=(0, path.stat().st_mtime_ns))
    assert placing.is_remembered(str(path), path.stat())
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert not placing.is_remembered(str(path), path.stat())


def test_a_share_without_hard_links_publishes_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    store = FolderStore(str(tmp_path))

    assert store.put_record("ab" * 32, b"first")
    assert not store.put_record("ab" * 32, b"second")
    assert store.get_record("ab" * 32) == b"first"

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aptui.shared.errors import HostError, UserError
from aptui.shared.files.replacing import PRIVATE, read_regular, refuse_unwritable, replace_bytes, replacing


def test_replace_bytes_replaces_the_existing_file(tmp_path):
    path = tmp_path / "list.json"
    replace_bytes(path, b"old")

    replace_bytes(path, b"new", mode=PRIVATE)

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == PRIVATE
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_keeps_the_old_file_and_leaves_no_new_file(tmp_path):
    path = tmp_path / "list.json"
    path.write_bytes(b"old")

    with pytest.raises(ValueError, match="half way"), replacing(path) as stream:
        stream.write(b"half")
        raise ValueError("half way")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folder_is_reported_with_the_name_that_the_user_gave(tmp_path):
    with pytest.raises(UserError) as refused, replacing(tmp_path / "none" / "list.json", what="'none/list.json'"):
        pass

    assert refused.value.what == "'none/list.json' cannot be written: its folder does not exist"
    assert "another file" in refused.value.hint


def test_link_in_place_of_the_temporary_file_is_not_followed(tmp_path):
    path, foreign = tmp_path / "list.json", tmp_path / "foreign"
    foreign.write_bytes(b"not ours")
    (tmp_path / f".list.json.{os.getpid()}.new").symlink_to(foreign)

    with pytest.raises(HostError):
        replace_bytes(path, b"new")

    assert foreign.read_bytes() == b"not ours"


@pytest.mark.parametrize("name", ["/", ".", "", "folder"])
def test_writing_to_a_folder_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()

    with pytest.raises(UserError, match="'it' cannot be written: it is a folder"):
        replace_bytes(Path(name), b"new", what="'it'")
    with pytest.raises(HostError, match="it is a folder"):
        replace_bytes(Path(name), b"new")
    with pytest.raises(UserError, match="it is a folder"):
        refuse_unwritable(name)

    assert (tmp_path / "folder").is_dir()


def test_replace_bytes_writes_into_a_pipe_and_does_not_replace_the_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        refuse_unwritable(str(pipe))
        replace_bytes(pipe, b"new", is_synced=True)

        assert os.read(reader, 10) == b"new"
        assert pipe.is_fifo()
    finally:
        os.close(reader)


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_open_file_named_by_its_descriptor_is_written_in_place(name, tmp_path):
    target = tmp_path / "kept"
    with target.open("wb") as opened:
        path = Path(name.format(opened.fileno()))
        refuse_unwritable(str(path))
        replace_bytes(path, b"new")

        assert os.fstat(opened.fileno()).st_ino == target.stat().st_ino
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_a_regular_file_is_read(tmp_path, kind):
    path = tmp_path / "file"
    {"pipe": os.mkfifo, "device": lambda at: at.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](path)

    with pytest.raises(OSError, match="not a regular file"):
        read_regular(path)


def test_regular_file_is_read_up_to_the_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")

    assert read_regular(path) == b"12345"
    assert read_regular(path, 3) == b"123"
    assert read_regular(path, 3, is_tail=True) == b"345"
    assert read_regular(path, 9, is_tail=True) == b"12345"


@pytest.mark.real
def test_file_with_the_lease_of_a_file_server_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"text")
    code = (
        "import fcntl, os, signal, sys\n"
        "file = os.open(sys.argv[1], os.O_RDWR)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})\n"
        "fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print(flush=True)\n"
        "signal.sigwait({signal.SIGIO})\n"
        "fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"\n"

        assert read_regular(file) == b"text"

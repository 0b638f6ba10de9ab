"""`ConfinedRoot` opens no file outside its folder, with or without the system call openat2."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from tools import MACHINE

from aptui.shared.files import confinement
from aptui.shared.files.confinement import ConfinedRoot, Opener, open_by_kernel, open_by_parts

OPENERS = {"kernel": open_by_kernel, "parts": open_by_parts}


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[int]:
    """Yield a descriptor of a folder `cache`. The folder `cache-secret` beside it, with the same prefix, has a secret file."""
    root = tmp_path / "cache"
    (root / "linux/sub").mkdir(parents=True)
    (root / "linux/a.txt").write_bytes(b"a")
    (root / "linux/sub/b.txt").write_bytes(b"b")
    Path(os.fsdecode(bytes(root / "linux") + b"/\xff\xe9.txt")).write_bytes(b"odd")
    (tmp_path / "cache-secret").mkdir()
    (tmp_path / "cache-secret/key").write_bytes(b"secret")
    (root / "file-link").symlink_to("linux/a.txt")
    (root / "dir-link").symlink_to("linux")
    (root / "out-link").symlink_to(tmp_path / "cache-secret")
    (root / "linux/up-link").symlink_to("../../cache-secret/key")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest, cache: int) -> Opener:
    if request.param == "kernel" and not confinement.has_openat2(cache):
        pytest.skip(MACHINE + "its kernel has no openat2")
    return OPENERS[request.param]


def read(opener: Opener, cache: int, path: bytes) -> bytes:
    descriptor = opener(cache, path)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (b"linux/a.txt", b"a"), (b"linux/sub/b.txt", b"b"), (b"linux//sub/./b.txt", b"b"), (b"./linux/a.txt", b"a"),
        (b"linux/\xff\xe9.txt", b"odd"), (unquote_to_bytes("linux/%ff%E9.txt"), b"odd"), (unquote_to_bytes("linux%2Fa.txt"), b"a"),
    ],
)  # fmt: skip
def test_path_below_the_folder_is_opened(opener: Opener, cache: int, path: bytes, data: bytes) -> None:
    assert read(opener, cache, path) == data


@pytest.mark.parametrize(
    "path",
    [
        b"../cache-secret/key", b"linux/../../cache-secret/key", b"..", b"linux/..", b"linux/../linux/a.txt",
        b"../cache/linux/a.txt",
        b"/etc/passwd", b"//etc/passwd", b"", b"linux/a.txt\0", b"linux\0/../a", b"\0",
        b"file-link", b"dir-link/a.txt", b"dir-link/", b"out-link", b"out-link/key", b"linux/up-link", b"loop", b"loop/x",
        unquote_to_bytes("%2e%2e/cache-secret/key"), unquote_to_bytes("..%2Fcache-secret%2Fkey"),
        unquote_to_bytes("%2Fetc%2Fpasswd"),
        unquote_to_bytes("linux/a.txt%00.png"),
    ],
)  # fmt: skip
def test_path_that_leads_outside_is_refused(opener: Opener, cache: int, path: bytes) -> None:
    with pytest.raises(PermissionError):
        opener(cache, path)


def test_absolute_path_inside_the_folder_is_refused(opener: Opener, cache: int, tmp_path: Path) -> None:
    for path in (tmp_path / "cache/linux/a.txt", tmp_path / "cache-secret/key"):
        with pytest.raises(PermissionError):
            opener(cache, bytes(path))


def test_links_below_proc_self_are_refused(opener: Opener) -> None:
    descriptor = os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for path in (b"root/etc/passwd", b"cwd/x", b"fd/0", b"exe"):
            with pytest.raises(PermissionError):
                opener(descriptor, path)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("path", "code"), [(b"linux/none", errno.ENOENT), (b"none/a", errno.ENOENT), (b"linux/a.txt/x", errno.ENOTDIR)]
)
def test_missing_path_raises_the_errno_of_the_system_call(opener: Opener, cache: int, path: bytes, code: int) -> None:
    with pytest.raises(OSError) as caught:
        opener(cache, path)
    assert caught.value.errno == code


def test_folders_and_pipes_cannot_be_opened_as_confined_files(cache: int) -> None:
    with pytest.raises(IsADirectoryError):
        confinement.open_confined_file(cache, b"linux")
    with pytest.raises(PermissionError):
        confinement.open_confined_file(cache, b"pipe")


def test_refused_path_leaves_no_descriptor_open(opener: Opener, cache: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in (b"linux/none", b"dir-link/a.txt", b"linux/sub/b.txt/x", b"linux/sub/none/x"):
        with pytest.raises(OSError):
            opener(cache, path)
    with pytest.raises(IsADirectoryError):
        confinement.open_confined_file(cache, b"linux")
    assert len(os.listdir("/proc/self/fd")) == before


def test_paths_are_opened_by_parts_if_the_kernel_has_no_openat2(cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in (errno.ENOSYS, errno.EPERM):

        def refused(*_words: object, code: int = code) -> int:
            raise OSError(code, "")

        monkeypatch.setattr(confinement, "open_by_kernel", refused)
        assert not confinement.has_openat2(cache)
        assert confinement._choose.__wrapped__() is open_by_parts


def test_folder_replaced_on_the_disk_is_opened_again(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/a").write_bytes(b"old")
    root = ConfinedRoot(bytes(tmp_path / "cache"))
    try:
        os.close(root.open_file(b"a")[0])
        (tmp_path / "cache").rename(tmp_path / "aside")
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache/a").write_bytes(b"new")

        descriptor, _found = root.open_file(b"a")
        assert os.read(descriptor, 9) == b"new"
        os.close(descriptor)
    finally:
        root.close()

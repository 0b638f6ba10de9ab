"""Places of products in the cache: open folders are reused, and the space of replaced files is freed after the commit."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from aptui.engine.cache import cache_places
from aptui.engine.cache.cache_places import ReplacedFiles
from aptui.shared.files import confinement
from aptui.shared.files.confinement import ConfinedTree

MANY = cache_places._FEWEST_APART


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    for number in range(MANY + 1):
        (tmp_path / str(number)).write_text("old")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def held_below(folder: Path) -> list[str]:
    """Return the sorted names of files below `folder` that are deleted, but are still open in this process."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue  # `os.listdir` has closed this descriptor, which it used for the listing
        if path.startswith(f"{folder}/") and path.endswith(" (deleted)"):
            found.append(os.path.basename(path).removesuffix(" (deleted)"))
    return sorted(found)


def replace(replaced: ReplacedFiles, folder: int, names: list[str]) -> None:
    for name in names:
        replaced.hold(os.fsencode(name), folder)
        os.close(os.open(f"{name}-new", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
        os.replace(f"{name}-new", name, src_dir_fd=folder, dst_dir_fd=folder)


def test_space_of_many_replaced_files_is_freed_after_the_commit(tmp_path: Path, folder: int) -> None:
    replaced = ReplacedFiles(MANY)
    names = [str(number) for number in range(MANY)]

    replace(replaced, folder, [*names, "fresh"])
    before = held_below(tmp_path)
    replaced.close()

    assert before == names
    until(lambda: not held_below(tmp_path), "replaced files are held open")


def test_space_of_replaced_files_is_freed_if_descriptors_cannot_be_sent(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(109, "Too many references: cannot splice")

    monkeypatch.setattr(socket, "send_fds", refuse)
    replaced = ReplacedFiles(MANY)
    replace(replaced, folder, [str(number) for number in range(MANY)])

    replaced.close()

    assert held_below(tmp_path) == []


def test_commit_does_not_wait_for_a_full_socket_of_replaced_files(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pair = socket.socketpair

    def make_small_pair() -> tuple[socket.socket, socket.socket]:
        pair = make_pair()
        pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the kernel raises it to its minimum
        return pair

    monkeypatch.setattr(socket, "socketpair", make_small_pair)
    monkeypatch.setattr(cache_places, "_MOST_HELD", MANY)
    replaced = ReplacedFiles(MANY)

    for _time in range(20 * MANY):
        replaced.hold(b"0", folder)
    replaced.close()

    os.unlink(tmp_path / "0")
    until(lambda: not held_below(tmp_path), "replaced files are held open")


def test_space_of_a_few_replaced_files_is_freed_at_once(tmp_path: Path, folder: int) -> None:
    replaced = ReplacedFiles(1)

    replace(replaced, folder, ["0"])

    assert held_below(tmp_path) == []
    replaced.close()


def test_least_recently_used_folder_is_closed_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    held: list[int] = []
    open_folders = [f"{platform}/f" for platform in "abcd"]
    for name in (*open_folders, "e/f"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(confinement, "_FOLDERS_OPEN", len(open_folders))
    os_open, os_close = os.open, os.close

    def open_folder(path: bytes, flags: int, mode: int = 0o777, **named: int) -> int:
        opened.append(path)
        held.append(os_open(path, flags, mode, **named))
        return held[-1]

    def close_folder(descriptor: int) -> None:
        if descriptor in held:  # a descriptor that is not in `held` was opened before `os.open` was patched
            held.remove(descriptor)
        os_close(descriptor)

    monkeypatch.setattr(os, "open", open_folder)
    monkeypatch.setattr(os, "close", close_folder)
    folders = ConfinedTree(os.fsencode(tmp_path))

    found = [folders.descriptor_of(name.encode()) for _time in range(3) for name in open_folders]
    assert found == found[: len(open_folders)] * 3
    assert opened.count(b"f") == len(open_folders)
    folders.descriptor_of(b"a/f")
    folders.descriptor_of(b"e/f")
    folders.descriptor_of(b"a/f")
    assert opened.count(b"f") == len(open_folders) + 1
    folders.descriptor_of(b"b/f")
    assert opened.count(b"f") == len(open_folders) + 2, "the least recently used folder was closed"
    folders.close()

    assert not held

"""A client of O3DE's protocol can use files below its aliases, and no other files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

from aptui.features.o3de.connection.o3de_messages import EXCHANGES, O3deMessage, decode, encode
from aptui.features.o3de.connection.virtual_files import NAMES, VirtualFiles

BY_NAME = {each.request.name: each for each in EXCHANGES}

READ, WRITE, APPEND, UPDATE, CREATE_PATH = 1, 2, 4, 32, 64
OK, ERROR, NO_HANDLE = 0, 1, 2


class Files:
    """A project with products, user files and a secret beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache, self.user = folder / "Cache", folder / "user"
        for path, data in {
            "Cache/linux/textures/hero.dds": "product",
            "Cache/linux/b.txt": "b",
            "Cache/assetdb.sqlite": "database",
            "user/log/Game.log": "log",
            "secret.txt": "secret",
        }.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(data)
        self.files = VirtualFiles(str(self.cache), "linux", str(self.user), str(self.user / "log"))

    def ask(self, name: str, **values: Any) -> dict[str, Any]:
        """Return the answer to a request that is encoded and decoded as in a connection."""
        shape = BY_NAME[f"{name}Request"].request
        return self.files.answer(decode(shape, encode(O3deMessage(shape, values))))

    def open(self, path: str, mode: int = READ) -> int:
        answer = self.ask("FileOpen", FilePath=path, Mode=mode)
        return answer["FileHandle"] if answer["ResultCode"] == OK else 0

    def read(self, handle: int, count: int = 100) -> bytes:
        answer = self.ask("FileRead", FileHandle=handle, BytesToRead=count)
        assert answer["ResultCode"] == OK
        return answer["Data"]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path)
    yield made
    made.files.close()


@pytest.mark.parametrize("path", ["@products@/textures/hero.dds", "@PRODUCTS@\\Textures\\HERO.dds", "textures//./hero.dds"])
def test_product_path_is_found_in_any_case_and_with_any_separator(files: Files, path: str) -> None:
    handle = files.open(path)

    assert files.read(handle, 4) == b"prod"
    assert files.ask("FileTell", FileHandle=handle)["Offset"] == 4
    assert files.ask("FileSeek", FileHandle=handle, Mode=2, Offset=-2) == {"ResultCode": OK}
    assert files.read(handle) == b"ct"
    assert files.read(handle) == b""
    assert files.ask("FileRead", FileHandle=handle, BytesToRead=5, FailOnFewerRead=True)["ResultCode"] == ERROR
    assert files.ask("FileSeek", FileHandle=handle, Mode=7, Offset=0) == {"ResultCode": ERROR}
    assert files.ask("FileSize", FilePath=path) == {"ResultCode": OK, "Size": 7}
    assert files.ask("FileModTime", FilePath=path)["ModTime"] == int((files.cache / "linux/textures/hero.dds").stat().st_mtime)
    assert files.ask("FileExists", FilePath=path) == {"Exists": True}
    assert files.ask("FileIsReadOnly", FilePath=path) == {"IsReadOnly": True}
    assert files.ask("PathIsDirectory", Path=path.replace("/hero.dds", "").replace("\\HERO.dds", "")) == {"IsDirectory": True}
    files.ask("FileClose", FileHandle=handle)
    assert files.ask("FileRead", FileHandle=handle, BytesToRead=1) == {"ResultCode": NO_HANDLE}


def test_modification_time_before_1970_becomes_zero(files: Files) -> None:
    os.utime(files.cache / "linux/b.txt", (-100.0, -100.0))

    assert files.ask("FileModTime", FilePath="b.txt") == {"ModTime": 0}


def test_absolute_path_is_accepted_below_the_folder_of_an_alias(files: Files) -> None:
    assert files.read(files.open(f"{files.cache}/linux/b.txt")) == b"b"
    assert files.read(files.open(f"{files.user}/log/Game.log")) == b"log"


OUTSIDE = (
    "@products@/../assetdb.sqlite", "@user@/../secret.txt", "../assetdb.sqlite", "/etc/passwd", "@engroot@/x", "@products@/a\0b",
    "{folder}/secret.txt", "{folder}/Cache/assetdb.sqlite", "{folder}/Cache/linux/../assetdb.sqlite", "{folder}/users/x",
    "@products@/link/secret.txt", "@user@/link/secret.txt", "@user@/file", "@products@/pipe", "",
)  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_path_that_leads_outside_or_contains_a_link_is_refused(files: Files, path: str) -> None:
    for place in (files.cache / "linux", files.user):
        (place / "link").symlink_to(files.folder)
        (place / "file").symlink_to(files.folder / "secret.txt")
    os.mkfifo(files.cache / "linux/pipe")
    named = path.format(folder=files.folder)

    for mode in (READ, WRITE, READ | UPDATE, APPEND, WRITE | CREATE_PATH):
        assert files.open(named, mode) == 0, mode
    if named and "link" not in path and path not in ("@user@/file", "@products@/pipe"):
        assert not any(files.ask("FileExists", FilePath=named).values())
        assert files.ask("FileSize", FilePath=named) == {"ResultCode": ERROR}
    assert files.ask("FileCopy", SourcePath=named, DestPath="@user@/stolen.txt")["ResultCode"] == ERROR
    assert files.ask("FileCopy", SourcePath="@user@/log/Game.log", DestPath=named)["ResultCode"] == ERROR
    assert (files.folder / "secret.txt").read_text() == "secret"


def test_client_cannot_change_products(files: Files) -> None:
    product = "@products@/b.txt"
    for mode in (WRITE, APPEND, READ | UPDATE):
        assert files.open(product, mode) == 0
    for name, values in {
        "FileRemove": {"FilePath": product},
        "FileRename": {"SourcePath": product, "DestPath": "@user@/b.txt"},
        "FileCopy": {"SourcePath": "@user@/log/Game.log", "DestPath": product},
        "PathCreate": {"Path": "@products@/new"},
        "PathDestroy": {"Path": "@products@/textures"},
    }.items():
        assert files.ask(name, **values) == {"ResultCode": ERROR}, name

    assert (files.cache / "linux/b.txt").read_text() == "b"
    assert not (files.cache / "linux/new").exists()


def test_client_of_another_machine_cannot_write_settings_of_the_project(files: Files) -> None:
    handle = files.open("@user@/evil.setreg", WRITE)
    files.ask("FileClose", FileHandle=handle)

    settings = ("@user@/Registry/evil.setreg", "@USER@\\registry//evil.setreg", f"{files.user}/Registry/evil.setreg")
    for path in (*settings, "@user@/project.json"):
        assert files.open(path, WRITE | CREATE_PATH) == 0
        assert files.ask("FileRename", SourcePath="@user@/evil.setreg", DestPath=path) == {"ResultCode": ERROR}
    assert not (files.user / "Registry").exists()
    assert not (files.user / "project.json").exists()
    files.files = VirtualFiles(str(files.cache), "linux", str(files.user), str(files.user / "log"), is_local=True)
    assert files.open("@user@/Registry/own.setreg", WRITE | CREATE_PATH)


def test_client_can_write_copy_move_and_remove_files_of_the_user(files: Files) -> None:
    handle = files.open("@user@/Saves/One.sav", WRITE | CREATE_PATH)
    assert files.ask("FileWrite", FileHandle=handle, Data=b"saved") == {"ResultCode": OK, "BytesWritten": 5}
    assert files.ask("FileFlush", FileHandle=handle) == {"ResultCode": OK}
    assert files.ask("FileRead", FileHandle=handle, BytesToRead=1) == {"ResultCode": ERROR}
    appended = files.open("@user@/Saves/One.sav", APPEND)
    files.ask("FileWrite", FileHandle=appended, Data=b" twice")

    saved = files.user / "Saves/One.sav"
    assert saved.read_text() == "saved twice"
    assert not saved.stat().st_mode & 0o111
    updated = files.open("@user@/Saves/One.sav", READ | UPDATE)
    files.ask("FileWrite", FileHandle=updated, Data=b"S")
    assert files.ask("FileCopy", SourcePath="@products@/b.txt", DestPath="@user@/b.txt") == {"ResultCode": OK}
    assert files.ask("FileCopy", SourcePath="@user@/b.txt", DestPath="@user@/b.txt") == {"ResultCode": ERROR}
    assert files.ask("FileRename", SourcePath="@user@/Saves/One.sav", DestPath="@log@/One.sav") == {"ResultCode": OK}
    assert (files.user / "log/One.sav").read_text() == "Saved twice"
    assert files.ask("FileRemove", FilePath="@log@/One.sav") == {"ResultCode": OK}
    assert files.ask("PathCreate", Path="@usercache@/a/b") == {"ResultCode": OK}
    assert (files.user / "Cache/a/b").is_dir()
    assert files.ask("PathDestroy", Path="@usercache@/a") == {"ResultCode": OK}
    assert files.ask("PathDestroy", Path="@user@/b.txt") == {"ResultCode": ERROR}
    assert files.ask("PathDestroy", Path="@user@") == {"ResultCode": ERROR}
    assert sorted(each.name for each in files.user.rglob("*")) == ["Cache", "Game.log", "Saves", "b.txt", "log"]


def test_listed_file_paths_begin_with_the_alias(files: Files) -> None:
    assert files.ask("FindFiles", Path="@products@/textures", Filter="*.DDS") == {
        "ResultCode": OK, "Files": ["@products@/textures/hero.dds"],
    }  # fmt: skip
    assert files.ask("FindFiles", Path="@products@", Filter="?.txt")["Files"] == ["@products@/b.txt"]
    assert files.ask("FindFiles", Path="@products@/missing", Filter="*") == {"ResultCode": ERROR}

    tree = files.ask("FileTree")

    assert sorted(tree["Files"]) == [
        "@log@/Game.log", "@products@/b.txt", "@products@/textures/hero.dds", "@user@/log/Game.log",
    ]  # fmt: skip
    assert tree["Folders"] == ["@products@", "@products@/textures", "@log@", "@user@", "@user@/log"]


@pytest.mark.parametrize("platform", ["", "..", "a/b"])
def test_client_without_a_platform_has_no_products(files: Files, platform: str) -> None:
    files.files.close()
    files.files = VirtualFiles(str(files.cache), platform, str(files.user), str(files.user / "log"))

    assert files.open("@products@/assetdb.sqlite") == files.open("linux/b.txt") == 0
    assert files.read(files.open("@log@/Game.log")) == b"log"


def test_open_files_are_limited_and_closed_with_the_connection(files: Files) -> None:
    before = len(os.listdir("/proc/self/fd"))
    handles = [files.open("b.txt") for _ in range(600)]

    assert (handles[511], handles[512:]) == (512, [0] * 88)
    files.files.close()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert files.open("b.txt") == 0


def test_files_are_closed_if_the_connection_ends_at_the_end_of_an_operation(files: Files) -> None:
    before, lock = len(os.listdir("/proc/self/fd")), MagicMock()
    lock.acquire.side_effect = [False, True]
    lock.__exit__.side_effect = lambda *_error: files.files.close()

    with patch.object(files.files, "_lock", lock):
        files.open("b.txt")

    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_file_request_without_values_gets_a_valid_answer(files: Files, name: str) -> None:
    answer = files.ask(name.removesuffix("Request"))

    exchange = BY_NAME[name]
    if exchange.response is not None:
        encode(O3deMessage(exchange.response, answer))

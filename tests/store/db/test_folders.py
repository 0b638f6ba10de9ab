"""Stored files are read back without files that another scan folder overrides. Folders are unpacked only if that is cheaper."""

from __future__ import annotations

import pytest

from aptui.core.model import PathKey
from aptui.store.db import last_run as folders
from aptui.store.db.schema import DamagedError
from tests.store.conftest import DIGEST, Store, fact, put_folder, with_gem


def test_path_in_two_scan_folders_returns_the_file_of_lowest_rank(store: Store) -> None:
    gem = with_gem(store)
    put_folder(store, "tex", fact("Tex/A.png", 1, size=10), fact("Tex/only.png", 1))
    put_folder(store, "tex", fact("tex/a.png", gem, size=20))

    keys = [PathKey("tex/a.png"), PathKey("tex/only.png"), PathKey("tex/missing.png")]

    assert [found.size for found in store.archive({1: 0, gem: 1}).files(keys).values()] == [10, 1]
    assert [found.size for found in store.archive({1: 1, gem: 0}).files(keys).values()] == [20, 1]


def test_files_of_scan_folders_without_rank_are_not_returned(store: Store) -> None:
    gem = with_gem(store)
    put_folder(store, "", fact("a.png", gem))

    archive = store.archive({1: 0})

    assert archive.files([PathKey("a.png")]) == {}
    assert list(archive.files_below(PathKey(""))) == []


def test_files_whose_names_differ_only_in_case_are_not_returned(store: Store) -> None:
    put_folder(store, "", fact("a.png"), fact("A.png"), fact("b.png"))

    assert list(store.archive().files([PathKey("a.png"), PathKey("b.png")])) == ["b.png"]


def test_files_below_a_folder_do_not_include_siblings_with_its_prefix(store: Store) -> None:
    for folder in ("", "a", "a-b", "a/b", "a/b/c", "a0", "ab"):
        put_folder(store, folder, fact(f"{folder}/x".removeprefix("/")))

    archive = store.archive()

    assert [found.rel for found in archive.files_below(PathKey("a/"))] == ["a/x", "a/b/x", "a/b/c/x"]
    assert {found.rel for found in archive.files_below(PathKey(""))} == {"x", "a/x", "a-b/x", "a/b/x", "a/b/c/x", "a0/x", "ab/x"}


def test_folder_checks_ignore_siblings_with_the_same_prefix(store: Store) -> None:
    for folder in ("a-b", "a/b/c", "d"):
        put_folder(store, folder, fact(f"{folder}/x"))
    folders = store.archive().folders

    assert {name for name in ("a", "a/b", "a/b/c", "a/c", "a-b", "b", "d") if folders.has_folder(name)} == {
        "a", "a/b", "a/b/c", "a-b", "d",
    }  # fmt: skip
    assert {name for name in ("", "a", "a/b", "a/b/c", "a/c", "a-b", "d") if folders.has_folders_below(name)} == {"", "a", "a/b"}


def test_files_below_a_folder_do_not_include_overridden_files(store: Store) -> None:
    gem = with_gem(store)
    put_folder(store, "a", fact("a/x", 1))
    put_folder(store, "a", fact("a/X", gem), fact("a/y", gem))

    found = store.archive({1: 0, gem: 1}).files_below(PathKey("a/"))

    assert sorted((item.rel, item.scan_folder) for item in found) == [("a/x", 1), ("a/y", gem)]


def test_folder_stays_unpacked_in_memory_until_it_is_released(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_ASKED_ALONE", 0)
    put_folder(store, "a", fact("a/x", size=1))
    archive = store.archive()
    assert archive.files([PathKey("a/x")])[PathKey("a/x")].size == 1
    put_folder(store, "a", fact("a/x", size=2))
    assert archive.files([PathKey("a/x")])[PathKey("a/x")].size == 1

    archive.forget("a")
    archive.forget("never seen")

    assert archive.files([PathKey("a/x")])[PathKey("a/x")].size == 2


def test_only_the_most_recently_used_folders_stay_unpacked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "FOLDERS_SHELVED", 2)
    monkeypatch.setattr(folders, "_ASKED_ALONE", 0)
    archive = store.archive()
    for folder in ("a", "b", "c"):
        put_folder(store, folder, fact(f"{folder}/x", size=1))
    for key in ("a/x", "b/x", "a/x", "c/x"):
        archive.files([PathKey(key)])
    for folder in ("a", "b", "c"):
        put_folder(store, folder, fact(f"{folder}/x", size=2))

    # "b" was the least recently used of two folders when "c" was unpacked, so "b" was dropped and is read again.
    assert [archive.files([PathKey(f"{folder}/x")])[PathKey(f"{folder}/x")].size for folder in ("a", "c", "b")] == [1, 1, 2]


def test_single_file_is_read_without_unpacking_its_folder(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gem = with_gem(store)
    put_folder(store, "a", fact("a/x", size=1), fact("a/Up", size=2))
    put_folder(store, "a", fact("a/x", gem, size=3))
    archive = store.archive()
    monkeypatch.setattr(folders, "unpack_files", lambda *_: pytest.fail("unpacked"))

    assert archive.files([PathKey("a/up")]) == {PathKey("a/up"): fact("a/Up", size=2)}
    assert archive.files([PathKey("a/none")]) == {}
    assert archive.folders.variants(PathKey("a/x")) == [fact("a/x", size=1), fact("a/x", gem, size=3)]
    monkeypatch.undo()
    assert archive.files([PathKey("a/x")]) == {PathKey("a/x"): fact("a/x", size=1)}


def test_folder_digests_are_listed_by_scan_folder_for_every_folder(store: Store) -> None:
    gem = with_gem(store)
    put_folder(store, "", fact("x"), digest=b"1")
    put_folder(store, "ä", fact("Ä/x"), digest=b"2")
    put_folder(store, "ä", fact("ä/x", gem), digest=b"3")

    assert store.archive().folders.folder_digests() == {"": ((1, b"1"),), "ä": ((1, b"2"), (gem, b"3"))}


def test_files_of_each_scan_folder_include_overridden_files(store: Store) -> None:
    gem = with_gem(store)
    put_folder(store, "a", fact("a/x"), digest=b"1")
    put_folder(store, "a", fact("A/X", gem), digest=b"2")

    archive = store.archive()

    assert archive.folders.folder_parts("a") == {1: (b"1", [fact("a/x")]), gem: (b"2", [fact("A/X", gem)])}
    assert archive.folders.folder_parts("b") == {}


def test_folder_row_that_cannot_be_unpacked_is_reported_as_damage(store: Store) -> None:
    store.put(put_folder=[(1, "a", DIGEST, b"\x09short")])
    archive = store.archive()

    with pytest.raises(DamagedError):
        archive.files([PathKey("a/x")])
    with pytest.raises(DamagedError):
        list(archive.files_below(PathKey("")))
    with pytest.raises(DamagedError):
        archive.folders.folder_parts("a")

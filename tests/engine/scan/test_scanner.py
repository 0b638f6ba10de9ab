"""The scan: the scan folder that owns a file, the report of differences from the stored state, and the number of system calls."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from stored_folders import StoredFolders

from aptui.config.own_files import OwnFiles
from aptui.core.messages import FolderSeen, FoldersUnchanged
from aptui.core.model import FileFact, PathKey
from aptui.core.project import Project, ScanFolder
from aptui.engine.scan import walk
from aptui.engine.scan.scanner import Scanner
from aptui.engine.scan.walk import Walk
from aptui.shared.errors import HostError


class Tree:
    """Scan folders on disk that a test scans repeatedly."""

    def __init__(
        self, root: Path, *folders: ScanFolder, ignore: str = "", never: tuple[str, ...] = (), linked_folders: tuple[str, ...] = ()
    ) -> None:
        self.project = Project((), "linux", folders, (), ignore_regex=ignore, linked_folders=linked_folders)
        self.stored = StoredFolders()
        self.never = never
        self.messages: list[str] = []
        self._numbers = itertools.count(1)

    def scan(self, *, is_full: bool = False, reassess: bool = False) -> list[FolderSeen | FoldersUnchanged]:
        walk = Walk(self.project, OwnFiles(self.never))
        scanner = Scanner(self.project, walk, self.stored, lambda: next(self._numbers), is_full=is_full, reassess=reassess)
        events = [event for step in scanner.steps() for event in step]
        self.messages = walk.sentences
        self.stored.store(events)
        return events


def folder(number: int, path: Path, *, recursive: bool = True) -> ScanFolder:
    path.mkdir(parents=True, exist_ok=True)
    return ScanFolder(number, f"folder{number}", str(path), number, recursive)


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def seen(events: Sequence[FolderSeen | FoldersUnchanged]) -> dict[str, int]:
    return {str(fact.rel): fact.scan_folder for event in events if isinstance(event, FolderSeen) for fact in event.facts}


def gone(events: Sequence[FolderSeen | FoldersUnchanged]) -> list[PathKey]:
    return [key for event in events if isinstance(event, FolderSeen) for key in event.gone]


def test_second_scan_reports_all_folders_as_unchanged(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"))
    write(tmp_path / "a", "x.txt", "f/y.txt", "f/g/z.txt")

    first, second = tree.scan(), tree.scan()

    assert seen(first) == {"x.txt": 1, "f/y.txt": 1, "f/g/z.txt": 1}
    assert [type(event) for event in second] == [FoldersUnchanged]
    assert sorted(second[0].folders) == ["", "f", "f/g"]


def test_changed_file_is_reported_without_other_files_or_folders(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"))
    write(tmp_path / "a", "x.txt", "f/y.txt", "f/z.txt")
    tree.scan()
    (tmp_path / "a/f/y.txt").write_text("another")

    events = tree.scan()

    assert seen(events) == {"f/y.txt": 1}
    assert [event.folder for event in events if isinstance(event, FolderSeen)] == ["f"]


def test_deleted_file_and_deleted_folder_are_reported_as_gone(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"))
    write(tmp_path / "a", "x.txt", "f/Y.txt", "f/g/z.txt")
    tree.scan()
    (tmp_path / "a/f/Y.txt").unlink()
    (tmp_path / "a/f/g/z.txt").unlink()
    (tmp_path / "a/f/g").rmdir()

    assert sorted(gone(tree.scan())) == ["f/g/z.txt", "f/y.txt"]
    assert gone(tree.scan()) == []


def test_deleted_file_uncovers_the_file_of_the_next_scan_folder(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"), folder(2, tmp_path / "b"))
    write(tmp_path / "a", "F/X.txt")
    write(tmp_path / "b", "f/x.txt", "f/y.txt")

    first = tree.scan()
    (tmp_path / "a/F/X.txt").unlink()
    second = tree.scan()

    assert seen(first) == {"F/X.txt": 1, "f/y.txt": 2}
    assert seen(second) == {"f/x.txt": 2}
    assert gone(second) == []


def test_sources_whose_names_differ_only_in_case_are_reported_as_a_clash(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"))
    write(tmp_path / "a", "x.txt", "X.txt", "y.txt")

    (event,) = tree.scan()

    assert isinstance(event, FolderSeen)
    assert {fact.rel: others for fact, others in event.clashes} == {"x.txt": ("X.txt",), "X.txt": ("x.txt",)}
    assert [fact.rel for fact in event.facts] == ["y.txt"]


@pytest.mark.parametrize(
    ("recursive", "owners"),
    [(True, {"x.txt": 2, "y.txt": 1, "f/z.txt": 1}), (False, {"x.txt": 2, "y.txt": 1, "inner/f/z.txt": 2})],
)
def test_nested_scan_folder_that_is_listed_first_owns_the_files_that_it_covers(
    tmp_path: Path, recursive: bool, owners: dict[str, int]
) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a/inner", recursive=recursive), folder(2, tmp_path / "a"))
    write(tmp_path / "a", "x.txt", "inner/y.txt", "inner/f/z.txt")

    assert seen(tree.scan()) == owners


def test_cache_and_logs_are_never_walked(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"), never=(str(tmp_path / "a/Cache"), str(tmp_path / "a/logs")))
    write(tmp_path / "a", "x.txt", "Cache/linux/x.txt", "logs/y.txt", "sub/Cache/z.txt")

    assert seen(tree.scan()) == {"x.txt": 1, "sub/Cache/z.txt": 1}


def test_ignored_files_and_folders_are_not_reported(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"), ignore=r"(.*/)?skip(/.*)?|.*\.tmp")
    write(tmp_path / "a", "x.txt", "x.TMP", "f/skip/y.txt", "skip/z.txt")

    assert seen(tree.scan()) == {"x.txt": 1}


def test_link_to_a_file_outside_the_scan_folders_is_not_a_source(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"), folder(2, tmp_path / "b"))
    write(tmp_path, "a/x.txt", "b/y.txt", "a-secret.txt")
    (tmp_path / "a/inside.txt").symlink_to("x.txt")
    (tmp_path / "a/other.txt").symlink_to("../b/y.txt")
    (tmp_path / "a/out.txt").symlink_to("../a-secret.txt")
    (tmp_path / "a/far.txt").symlink_to("/etc/passwd")

    events = tree.scan()

    assert seen(events) == {"x.txt": 1, "inside.txt": 1, "other.txt": 1, "y.txt": 2}
    assert len([text for text in tree.messages if "leads out of the scan folders" in text]) == 2


def test_scan_reports_links_to_folders_and_reads_links_to_files(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"), linked_folders=(str(tmp_path),))
    write(tmp_path, "a/real/x.txt", "outside.txt")
    (tmp_path / "a/loop").symlink_to("..")
    (tmp_path / "a/link.txt").symlink_to("../outside.txt")
    (tmp_path / "a/dangling.txt").symlink_to("nowhere")
    os.mkfifo(tmp_path / "a/fifo.txt")

    events = tree.scan()

    assert seen(events) == {"real/x.txt": 1, "link.txt": 1}
    assert [("are not sources" in text, "its target does not exist" in text) for text in sorted(tree.messages)] == [
        (True, False),
        (False, True),
    ]


def test_missing_scan_folder_stops_the_scan(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"))
    write(tmp_path / "a", "x.txt")
    tree.scan()
    (tmp_path / "a").rename(tmp_path / "unmounted")

    with pytest.raises(HostError, match="does not exist"):
        tree.scan()

    assert tree.stored.rows


def test_scan_keeps_the_bytes_of_undecodable_names(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"))
    (tmp_path / "a" / os.fsdecode(b"caf\xe9.txt")).write_text("x")

    assert list(seen(tree.scan())) == ["caf\U0010ffe9.txt"]
    assert seen(tree.scan()) == {}


@pytest.mark.parametrize(("is_full", "reassess"), [(True, False), (False, True)])
def test_scan_reports_all_files_if_it_is_full_or_the_configuration_is_new(tmp_path: Path, is_full: bool, reassess: bool) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"))
    write(tmp_path / "a", "x.txt", "f/y.txt")
    tree.scan()

    assert seen(tree.scan(is_full=is_full, reassess=reassess)) == {"x.txt": 1, "f/y.txt": 1}


def test_scan_of_unchanged_files_lists_folders_once_and_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "a"))
    write(tmp_path / "a", *(f"f{number}/{name}.txt" for number in range(5) for name in "abc"))
    tree.scan()
    calls: Counter[str] = Counter()
    for name in ("scandir", "stat", "lstat", "open", "listdir"):
        monkeypatch.setattr(os, name, _counted(name, getattr(os, name), calls))
    monkeypatch.setattr(walk, "scandir", os.scandir)

    tree.scan()

    assert calls["scandir"] == 6
    assert calls["open"] == calls["listdir"] == calls["lstat"] == 0
    assert calls["stat"] <= 2  # one `stat` of the scan folder, one of the list of files that aptui wrote


def _counted(name: str, call: object, calls: Counter[str]) -> object:
    def counted(*args: object, **kwargs: object) -> object:
        calls[name] += 1
        return call(*args, **kwargs)  # type: ignore[operator]

    return counted


def test_missing_file_that_is_being_written_is_not_reported_as_deleted(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "one"))
    write(tmp_path / "one", "d/a.txt", "d/b.txt")
    tree.scan()
    unfinished: dict[PathKey, FileFact | None] = {PathKey("d/a.txt"): None, PathKey("d/b.txt"): None}
    (tmp_path / "one/d/b.txt").unlink()

    scanner = Scanner(tree.project, Walk(tree.project), tree.stored, lambda: 99, unfinished=unfinished)
    event = scanner.check_folder("d", frozenset({PathKey("d/a.txt")}))

    assert event is not None
    assert event.gone == ()
    assert [(digest, {str(fact.rel) for fact in facts}) for _part, digest, facts in event.rows] == [(b"", {"d/a.txt", "d/b.txt"})]


def test_record_of_an_unfinished_file_is_kept_only_in_its_scan_folder(tmp_path: Path) -> None:
    tree = Tree(tmp_path, folder(1, tmp_path / "one"), folder(2, tmp_path / "two"))
    write(tmp_path / "one", "x.txt")
    write(tmp_path / "two", "X.txt")
    tree.scan()
    winner = tree.stored.rows["", 1][1][0]

    unfinished: dict[PathKey, FileFact | None] = {PathKey("x.txt"): winner}
    scanner = Scanner(tree.project, Walk(tree.project), tree.stored, lambda: 99, unfinished=unfinished)
    event = scanner.check_folder("", frozenset({PathKey("x.txt")}))

    assert event is not None
    assert [(part, [(fact.scan_folder, fact.rel) for fact in facts]) for part, _digest, facts in event.rows] == [
        (1, [(1, "x.txt")]),
        (2, [(2, "X.txt")]),
    ]

"""The file that wins if several scan folders have files of the same path."""

from __future__ import annotations

from aptui.core.model import FileFact, RelPath
from aptui.core.overrides import merge_folder


def fact(rel: str, scan_folder: int = 1) -> FileFact:
    return FileFact(scan_folder, RelPath(rel), 1, 2, 3, 4)


def test_earlier_scan_folder_wins_for_names_that_differ_only_in_case() -> None:
    mine, theirs, other = fact("d/A.txt", 1), fact("d/a.txt", 2), fact("d/b.txt", 2)

    winners, clashes = merge_folder([[mine], [theirs, other]])

    assert winners == {"d/a.txt": mine, "d/b.txt": other}
    assert clashes == []


def test_all_files_that_differ_only_in_case_in_one_scan_folder_clash() -> None:
    crowd = [fact("A.txt"), fact("a.txt"), fact("a.TXT")]

    winners, clashes = merge_folder([[*crowd, fact("b.txt")]])

    assert list(winners) == ["b.txt"]
    assert clashes == [
        (crowd[0], ("a.txt", "a.TXT")),
        (crowd[1], ("A.txt", "a.TXT")),
        (crowd[2], ("A.txt", "a.txt")),
    ]


def test_case_clash_hides_the_file_of_a_later_scan_folder() -> None:
    winners, clashes = merge_folder([[fact("A.txt"), fact("a.txt")], [fact("a.txt", 2)]])

    assert winners == {}
    assert [clash[0].scan_folder for clash in clashes] == [1, 1]


def test_case_clash_of_overridden_files_is_ignored() -> None:
    winner = fact("a.txt", 1)

    winners, clashes = merge_folder([[winner], [fact("A.txt", 2), fact("a.txt", 2)]])

    assert winners == {"a.txt": winner}
    assert clashes == []

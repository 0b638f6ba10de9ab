"""Tests of source patterns and destination patterns. They cover each rule of O3DE's relocator."""

from __future__ import annotations

from pathlib import Path

import pytest

from aptui.config.configuration import Config
from aptui.core.project import Project, ScanFolder
from aptui.features.relocation.moved_files import DiskTree
from aptui.features.relocation.relocation_patterns import FoundSource, RelocationError, find, from_switches, read_destination

FILES = (
    "/p/dev/subfolder1/somefile.tif", "/p/dev/subfolder1/otherfile.tif", "/p/dev/subfolder2/file.tif", "/p/dev/duplicate/file1.tif",
    "/p/dev/duplicate/folder/file1.tif", "/p/dev/test.txt", "/p/dev/subfolder1/odd*name.tif", "/p/folder/otherfile.tif",
    "/p/folder/a/b/c/d/otherfile.tif", "/p/folder/duplicate/file1.tif", "/p/flat/sub/deep.png", "/p/elsewhere/x.tif",
)  # fmt: skip


class Disk:
    """Three scan folders with files; `/p` in a path stands for the folder `root`."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        for file in FILES:
            path = Path(self.real(file))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        names = ("dev", "folder", "flat")
        self.folders = tuple(ScanFolder(at, each, f"{root}/{each}", recursive=each != "flat") for at, each in enumerate(names, 1))
        project = Project((), "linux", self.folders, ())
        self.tree = DiskTree(Config(root, "p", root / "Cache", root / "Cache/logs", root / "Cache/temp", project))

    def real(self, path: str) -> str:
        """Return a path in which the test's temporary folder replaces `/p`."""
        return self._root + path[2:] if path.startswith("/p/") or path == "/p" else path

    def found(self, source: str) -> list[str]:
        """Return the files that a source matches."""
        return list(find(self.real(source), self.tree).files)

    def goes_to(self, source: str, destination: str) -> list[str]:
        """Return the new path of each file that `source` matches, if the files are moved to `destination`."""
        where = find(self.real(source), self.tree)
        target = read_destination(where, self.real(destination), self.tree)
        return [target.of(rel).replace(f"{self._root}/", "/p/") for rel in where.files]

    def refusal_of(self, source: str, destination: str = "") -> str:
        """Return O3DE's message about an invalid source or destination."""
        with pytest.raises(RelocationError) as caught:
            self.goes_to(source, destination)
        assert caught.value.exit_code == 3
        return caught.value.reference.replace(f"{self._root}/", "/p/")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    return Disk(tmp_path_factory.mktemp("p"))


# ---------------------------------------------------------------------------------------------------------------- switches


ALONE_REFUSED = ("leaveEmptyFolders", "allowBrokenDependencies", "confirm", "excludeMetaDataFiles")
ALONE = "Command --{} must be used with command --move or --delete"
MOVE_FORMAT = "Invalid format for move command.  Expected format is move=<source>,<destination>"


@pytest.mark.parametrize(
    ("switches", "error"),
    [
        *(
            ([name], ALONE.format(name))
            for name in ("leaveEmptyFolders", "allowBrokenDependencies", "confirm", "excludeMetaDataFiles")
        ),
        (["delete=a", "updateReferences"], "Command --updateReferences must be used with command --move"),
        *(([f"move={given}"], MOVE_FORMAT) for given in ("a", "a,", ",b", "a,b,c", "")),
    ],
)
def test_wrong_switches_of_a_relocation_are_refused(switches: list[str], error: str) -> None:
    with pytest.raises(RelocationError) as caught:
        from_switches(dict(switch.partition("=")[::2] for switch in switches))

    assert caught.value.reference == error


def test_refused_switch_names_the_command_that_it_needs() -> None:
    with pytest.raises(RelocationError, match=r"^--updateReferences can be used only with --move$"):
        from_switches({"delete": "a", "updateReferences": ""})
    with pytest.raises(RelocationError, match=r"^--confirm can be used only with --move or --delete$"):
        from_switches({"confirm": ""})


def test_switches_are_parsed_into_a_relocation_request() -> None:
    order = from_switches({"move": "a/*,b/*", "confirm": "", "updateReferences": "", "leaveEmptyFolders": ""})

    assert order is not None
    assert (order.source, order.destination, order.is_delete) == ("a/*", "b/*", False)
    assert (order.is_confirmed, order.updates_references, order.leaves_empty_folders, order.allows_broken) == (
        True,
        True,
        True,
        False,
    )
    assert from_switches({"quitonidle": ""}) is None
    assert from_switches({"delete": "a"}).is_delete


# ------------------------------------------------------------------------------------------------------------------ source


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("subfolder1/somefile.tif", ["subfolder1/somefile.tif"]),
        ("otherfile.tif", ["otherfile.tif"]),
        ("/p/folder/otherfile.tif", ["otherfile.tif"]),
        ("/p/dev/duplicate/file1.tif", ["duplicate/file1.tif"]),
        ("subfolder1/some*", ["subfolder1/somefile.tif"]),
        ("subfolder1/some*.tif", ["subfolder1/somefile.tif"]),
        ("SubFolder1/SOME*.tif", ["subfolder1/somefile.tif"]),
        ("subfolder1/some????.tif", ["subfolder1/somefile.tif"]),
        ("subfolder1/*file*", ["subfolder1/otherfile.tif", "subfolder1/somefile.tif"]),
        ("/p/dev/subfolder2*", ["subfolder2/file.tif"]),
        ("subfolder?/f*", ["subfolder2/file.tif"]),
        ("a/*", ["a/b/c/d/otherfile.tif"]),
        ("/p/dev/duplicate/*", ["duplicate/file1.tif", "duplicate/folder/file1.tif"]),
        ("/p/dev/duplicate/*.tif", ["duplicate/file1.tif"]),
    ],
)
def test_source_pattern_finds_files(disk: Disk, source: str, files: list[str]) -> None:
    assert disk.found(source) == files


def test_existing_file_with_a_star_is_not_a_pattern(disk: Disk) -> None:
    where = find("subfolder1/odd*name.tif", disk.tree)

    assert where.files == ("subfolder1/odd*name.tif",)
    assert where.is_plain
    assert disk.goes_to("subfolder1/odd*name.tif", "new/") == ["new/odd*name.tif"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("subfolder1/**.tif", "Consecutive wildcards are not allowed."),
        ("duplicate/file1.tif", "Relative path matched multiple files/folders."),
        ("duplicate/*.tif", "Wildcard query duplicate/*.tif matched files in multiple scanfolders."),
        ("*", "Wildcard query * matched files in multiple scanfolders."),
        ("subfolder1", "Cannot operate on directories."),
        ("subfolder1/", "Cannot operate on directories."),
        ("/p/dev/subfolder?", "Wildcard search did not match any files."),
        ("/p/elsewhere/x.tif", "Path /p/elsewhere/x.tif points to a file outside the current project's scan folders."),
        ("/p/elsewhere/*", "Path /p/elsewhere points to a folder outside the current project's scan folders."),
        ("../elsewhere/x.tif", "Path ../elsewhere/x.tif points to a file outside the current project's scan folders."),
        ("nothere.tif", "Path nothere.tif points to a file outside the current project's scan folders."),
        ("/p/dev/nothere.tif", "File not found."),
        ("subfolder1/doesNotExist*.txt", "Wildcard search did not match any files."),
        ("older/*", "Wildcard search did not match any files."),
        ("subfolder*/", "Wildcard search did not match any files."),
        ("sub/*", "Wildcard search did not match any files."),
        ("*/c/*", "Wildcard cannot match across directory levels."),
        ("", "Invalid format for move command."),
    ],
)
def test_invalid_source_is_refused(disk: Disk, source: str, message: str) -> None:
    assert disk.refusal_of(source).startswith(message)


def test_wildcard_inside_a_source_pattern_matches_one_folder_level(disk: Disk) -> None:
    assert disk.found("/p/dev/*/file*") == ["duplicate/file1.tif", "subfolder2/file.tif"]


def test_subfolder_of_a_non_recursive_scan_folder_is_refused(disk: Disk) -> None:
    assert disk.refusal_of("/p/flat/sub/deep.png").startswith("Path /p/flat/sub/deep.png points to a file outside")
    assert disk.refusal_of("sub/deep.png").startswith("Path sub/deep.png points to a file outside")


# ------------------------------------------------------------------------------------------------------------- destination


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        ("otherfile.tif", "anewfile.png", "anewfile.png"),
        ("subfolder1/somefile.tif", "somefile.tif", "somefile.tif"),
        ("subfolder1/somefile.tif", "subfolder2/", "subfolder2/somefile.tif"),
        ("subfolder1/somefile.tif", "./subfolder2//", "subfolder2/somefile.tif"),
        ("subfolder1/s*", "subfolder2/", "subfolder2/somefile.tif"),
        ("/p/dev/*o*/some*.tif", "subfolder2/subfolder3/*o*/some*.tif", "subfolder2/subfolder3/subfolder1/somefile.tif"),
        ("a/b/c/*", "a/*", "a/d/otherfile.tif"),
        ("/p/folder/a/b/*", "/p/folder/a/*", "/p/folder/a/c/d/otherfile.tif"),
        ("/p/folder/a/b/*", "a/*", "a/c/d/otherfile.tif"),
        ("a/b/*", "/p/dev/a/*", "/p/dev/a/c/d/otherfile.tif"),
        ("/p/dev/duplicate/fi*", "someOtherPlace/rename*", "someOtherPlace/renamele1.tif"),
        ("/p/dev/duplicate/folder*", "someOtherPlace/rename*", "someOtherPlace/rename/file1.tif"),
        ("/p/dev/duplicate/fil*1.tif", "someOtherPlace/*", "someOtherPlace/e"),
        ("subfolder2/fi*", "place/*.rename", "place/le.tif.rename"),
        ("SUBFOLDER2/FI*", "place/*", "place/le.tif"),
    ],
)
def test_destination_of_each_file_follows_the_pattern(disk: Disk, source: str, destination: str, expected: str) -> None:
    assert disk.goes_to(source, destination) == [expected]


@pytest.mark.parametrize(
    ("name", "pattern", "destination", "expected"),
    [
        ("aaaaaaab", "a*b*", "a*bb*", "aaaaaaabb"),
        ("aaaaaaaaaa", "a*a*", "a*b*", "aaaaaaaaab"),
        ("aaabbbaaabbb", "a*a*", "a*c*", "aaabbbaacbbb"),
        ("aabccbedd", "a*b*dd", "1*2*3", "1abcc2e3"),
        ("aabb", "aabb*", "1*", "1"),
        ("abcdef", "a*b*e*", "1*2*3*", "12cd3f"),
    ],
)
def test_wildcards_in_a_pattern_match_as_much_as_possible(
    disk: Disk, name: str, pattern: str, destination: str, expected: str
) -> None:
    assert read_destination(FoundSource(disk.folders[0], pattern, (name,)), destination, disk.tree).of(name) == expected


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        ("a/b/c/*", "../a*", "Destination cannot contain any path navigation."),
        ("a/b/c/*", "/p", "Destination must exist within a scanfolder."),
        ("a/b/c/*", "/p/elsewhere/*", "Destination must exist within a scanfolder."),
        ("a/b/c/*", "d", "Source and destination paths must have the same number of wildcards."),
        ("a/b/c/*", "*/d/*", "Source and destination paths must have the same number of wildcards."),
        ("otherfile.tif", "new*.tif", "Source and destination paths must have the same number of wildcards."),
        *[("a/b/c/*", f"d/*{sign}", "Destination string contains invalid characters.") for sign in '?<>|"\0'],
        ("otherfile.tif", "new\0/", "Destination string contains invalid characters."),
        ("otherfile.tif", "", "Invalid format for move command."),
    ],
)
def test_invalid_destination_is_refused(disk: Disk, source: str, destination: str, message: str) -> None:
    assert disk.refusal_of(source, destination).startswith(message)


def test_wildcard_inside_a_destination_does_not_match_a_slash(disk: Disk) -> None:
    target = read_destination(FoundSource(disk.folders[1], "*/c/*", ("a/b/c/d/otherfile.tif",)), "*/d/*", disk.tree)

    with pytest.raises(RelocationError) as caught:
        target.of("a/b/c/d/otherfile.tif")

    assert caught.value.reference.startswith("Wildcard cannot match across directory levels.")

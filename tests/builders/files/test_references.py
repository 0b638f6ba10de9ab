import os
from types import SimpleNamespace

import pytest

from aptui.builders.files.references import declare_needed, declare_sources, read
from aptui.sdk import (
    ForbiddenNameError,
    LoadBehavior,
    NamedFileError,
    PathDependency,
    PathDependencyKind,
    located,
    placed_name,
    read_named,
)


@pytest.mark.parametrize(
    ("source", "path", "expected"),
    [
        ("art/rock.gltf", "rock.bin", "art/rock.bin"),
        ("art/rock.gltf", "./tex//a.png", "art/tex/a.png"),
        ("art/rock.gltf", "../tex/a.png", "tex/a.png"),
        ("art/rock.gltf", "../../a.png", "../a.png"),
        ("rock.obj", "tex\\a.png", "tex/a.png"),
        ("rock.obj", "/abs/a.png", "/abs/a.png"),
    ],
)
def test_reference_is_resolved_against_the_file_that_contains_it(source, path, expected):
    assert placed_name(source, path) == expected


def test_dependencies_are_listed_once_and_are_absolute_if_outside_the_scan_folder():
    assert [each.path for each in declare_sources("/game/assets", ["b", "a", "b", "../shared/x", "..x"])] == [
        "b",
        "a",
        "/game/shared/x",
        "..x",
    ]


def test_needed_path_with_a_leading_exclamation_mark_is_not_an_exclusion():
    found = declare_needed("/game/assets", ["a", "!b", "../c", "a"], LoadBehavior.PRE_LOAD)

    assert found == [
        PathDependency(path, PathDependencyKind.SOURCE_FILE, LoadBehavior.PRE_LOAD) for path in ("a", "./!b", "/game/c")
    ]


def test_error_for_an_unreadable_file_names_the_file(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"bytes")

    def read_named_file(path):
        return read(SimpleNamespace(read_named=lambda path, named_by: read_named(str(tmp_path), path, named_by=named_by)), path)

    assert read_named_file("a") == b"bytes"
    for path, what in (
        ("b", "is missing"),
        ("a/b", "is missing"),
        ("folder", "cannot be read: Is a directory"),
        ("x\0", "not the path of a file"),
    ):
        with pytest.raises(NamedFileError, match=what):
            read_named_file(path)


@pytest.fixture
def tree(tmp_path):
    """Two scan folders, and a secret file beside them."""
    for name, text in (("assets/art/a.bin", "a"), ("shared/b.bin", "b"), ("secret/key", "canary"), ("assets-2/c", "canary")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "assets/art/leads_out").symlink_to(tmp_path / "secret/key")
    (tmp_path / "assets/art/folder_out").symlink_to(tmp_path / "secret")
    (tmp_path / "assets/art/leads_to_shared").symlink_to(tmp_path / "shared/b.bin")
    os.mkfifo(tmp_path / "assets/art/pipe")
    (tmp_path / "assets/art/zero").symlink_to("/dev/zero")
    return tmp_path


def read_in(tree, path, **more):
    folders = (str(tree / "assets"), str(tree / "shared"))
    return read_named(folders[0], path, folders, named_by="art/rock.gltf", **more)


@pytest.mark.parametrize(
    "name",
    [
        "../../secret/key",
        "%2e%2e/%2e%2e/secret/key",
        "..%2F..%2Fsecret%2Fkey",
        "..%5c..%5csecret%5ckey",
        "x/../../../secret/key",
        "../../assets-2/c",
        "leads_out",
        "folder_out/key",
        "folder_out/no_such",
        "pipe",
        "zero",
        "/proc/self/environ",
        "/etc/passwd",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "http://host/x",
        "../../no_such",
        "a\0b",
    ],
)
def test_error_for_a_path_outside_the_scan_folders_names_the_source(tree, name):
    with pytest.raises(ForbiddenNameError, match=r"^art/rock\.gltf names '"):
        read_in(tree, placed_name("art/rock.gltf", name, is_uri=True))


def test_absolute_path_is_refused_only_outside_the_project(tree):
    with pytest.raises(ForbiddenNameError, match="outside the project's scan folders"):
        read_in(tree, str(tree / "secret/key"))

    assert read_in(tree, str(tree / "shared/b.bin")) == b"b"
    assert read_in(tree, "../shared/b.bin") == b"b"
    assert read_in(tree, "art/leads_to_shared") == b"b"
    assert read_in(tree, placed_name("art/rock.gltf", "./a.bin")) == b"a"


def test_file_is_found_in_a_scan_folder_that_is_a_link(tree):
    (tree / "other_way").symlink_to(tree / "assets")

    assert read_named(str(tree / "other_way"), "art/a.bin") == b"a"
    assert located(str(tree / "other_way"), str(tree / "assets/art/a.bin")) == str(tree / "assets/art/a.bin")


def test_file_larger_than_the_limit_is_refused(tree):
    assert read_in(tree, "art/a.bin", most_bytes=1) == b"a"
    (tree / "assets/art/a.bin").write_text("ab")
    with pytest.raises(ForbiddenNameError, match="larger than"):
        read_in(tree, "art/a.bin", most_bytes=1)


def test_missing_file_in_a_scan_folder_is_not_reported_as_forbidden(tree):
    with pytest.raises(NamedFileError, match="'art/no' is missing") as caught:
        read_in(tree, "art/no")

    assert not isinstance(caught.value, ForbiddenNameError)


@pytest.mark.parametrize(
    ("there", "named", "message"),
    [
        ("tex/Hero.png", "TEX/hero.png", "; there is 'tex/Hero.png', which differs only in case"),
        (
            "caf\u00e9.png",
            "cafe\u0301.png",
            "; there is 'caf\u00e9.png', which differs only in how accents are stored (NFC and NFD)",
        ),
        (
            "cafe\u0301/a.png",
            "caf\u00e9/a.png",
            "; there is 'cafe\u0301/a.png', which differs only in how accents are stored (NFC and NFD)",
        ),
        ("tex/other.png", "tex/hero.png", ""),
    ],
)
def test_error_for_a_missing_file_suggests_a_file_with_similar_spelling(tmp_path, there, named, message):
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("x")

    with pytest.raises(NamedFileError) as raised:
        read_named(str(tmp_path), named)

    advice = ": correct the name, or rename the file"
    assert str(raised.value) == f"the file '{named}' is missing{message}{advice if message else ''}"

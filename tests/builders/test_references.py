import pytest

from aptui.builders.references import UnusableError, declared, needed, placed, read
from aptui.sdk import LoadBehavior, PathDependency, PathDependencyKind


@pytest.mark.parametrize(
    ("source", "path", "wished"),
    [
        ("art/rock.gltf", "rock.bin", "art/rock.bin"),
        ("art/rock.gltf", "./tex//a.png", "art/tex/a.png"),
        ("art/rock.gltf", "../tex/a.png", "tex/a.png"),
        ("art/rock.gltf", "../../a.png", "../a.png"),
        ("rock.obj", "tex\\a.png", "tex/a.png"),
        ("rock.obj", "/abs/a.png", "/abs/a.png"),
    ],
)
def test_a_path_is_placed_beside_what_names_it(source, path, wished):
    assert placed(source, path) == wished


def test_dependencies_are_declared_once_and_in_full_when_they_climb_out():
    assert [each.path for each in declared("/game/assets", ["b", "a", "b", "../shared/x", "..x"])] == [
        "b",
        "a",
        "/game/shared/x",
        "..x",
    ]


def test_what_a_product_needs_is_told_by_its_source_and_never_taken_for_an_exclusion():
    found = needed("/game/assets", ["a", "!b", "../c", "a"], LoadBehavior.PRE_LOAD)

    assert found == [
        PathDependency(path, PathDependencyKind.SOURCE_FILE, LoadBehavior.PRE_LOAD) for path in ("a", "./!b", "/game/c")
    ]


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").write_bytes(b"bytes")

    assert read(str(tmp_path), "a") == b"bytes"
    for path, what in (
        ("b", "is missing"),
        ("a/b", "is missing"),
        ("folder", "cannot be read: Is a directory"),
        ("x\0", "cannot be read"),
    ):
        with pytest.raises(UnusableError, match=what):
            read(str(tmp_path), path)

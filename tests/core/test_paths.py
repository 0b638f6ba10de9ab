"""File names as text and as bytes, UUIDs of paths, the file that wins a path, and paths of product dependencies."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.core.model import FileFact, LinkKind, ProductLink, RelPath
from aptui.core.paths import (
    from_text,
    is_below,
    key_of,
    merge_folder,
    name_beside,
    name_uuid,
    normalize,
    parent,
    path_link,
    path_uuid,
    settle_links,
    to_text,
)

SOURCE, PRODUCT, ASSET = LinkKind
NAMES = st.one_of(
    st.binary(),
    st.text().map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text(alphabet="aé\U0010ff7f\U0010ff80\U0010ffff\U0010feff").map(str.encode),
)


@pytest.mark.slow
@given(NAMES)
def test_any_name_survives_conversion_to_text_and_back(name: bytes) -> None:
    assert from_text(to_text(name)) == name


@given(NAMES, NAMES)
def test_two_file_names_never_have_the_same_text_form(one: bytes, other: bytes) -> None:
    assert (to_text(one) == to_text(other)) == (one == other)


@given(st.binary())
def test_the_text_of_any_name_is_valid_in_utf8_and_json(name: bytes) -> None:
    text = to_text(name)

    assert text.encode().decode() == text
    assert json.loads(json.dumps(text)) == text


def test_each_undecodable_byte_becomes_one_private_use_character() -> None:
    assert to_text(b"a\xff\x80b") == "a\U0010ffff\U0010ff80b"


def test_valid_file_name_is_its_own_text_form() -> None:
    assert to_text("Größe/日本.png".encode()) == "Größe/日本.png"
    assert to_text(b"plain.txt") == "plain.txt"


def test_valid_private_use_character_is_escaped_byte_by_byte() -> None:
    name = "x\U0010ff80".encode()

    assert to_text(name) == "x\U0010fff4\U0010ff8f\U0010ffbe\U0010ff80"


@pytest.mark.parametrize(
    ("path", "uuid"),
    [
        ("testassets/invalidassetidnoreport.txt", "E68A85B0-131D-5A82-B2D5-BC58EE4062AE"),
        ("textures/_dev_purple.tif", "A2482826-053D-5634-A27B-084B1326AAE5"),
        ("Libs/Particles/Milestone2Particles.xml", "6BDE282B-49C9-57F7-B071-4B26579BCA9A"),
    ],
)
def test_uuid_of_a_path_equals_the_uuid_in_o3de(path: str, uuid: str) -> None:
    assert path_uuid(path) == UUID(uuid).bytes


def test_the_uuid_of_an_undecodable_name_hashes_its_original_bytes() -> None:
    assert path_uuid(to_text(b"Dir/\xff.TXT")) == name_uuid(b"dir/\xff.txt")


def test_key_of_a_path_is_in_lower_case() -> None:
    assert key_of("Textures/Ä.PNG") == "textures/ä.png"


@pytest.mark.parametrize(
    ("source", "file", "expected"),
    [
        ("Textures/Hero.PNG", "Hero.webp", "textures/hero.webp"),
        ("Hero.PNG", "Hero.WEBP", "hero.webp"),
    ],
)
def test_path_of_a_file_beside_a_source_is_in_lower_case(source: str, file: str, expected: str) -> None:
    assert name_beside(source, file) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a\\b", "a/b"),
        ("./a//b/./c/", "a/b/c"),
        ("a/b/../c", "a/c"),
        ("../a", "../a"),
        ("a/../../b", "../b"),
        ("../../a", "../../a"),
        ("/a/../../b", "/b"),
        ("/", "/"),
        (".", ""),
        ("", ""),
    ],
)
def test_normalized_path_stays_relative_or_absolute(path: str, expected: str) -> None:
    assert normalize(path) == expected


def test_parent_of_a_top_level_file_is_the_empty_folder() -> None:
    assert parent("a/b/c.txt") == "a/b"
    assert parent("c.txt") == ""


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [
        ("foo/a", "foo", True),
        ("foo/a/b", "foo", True),
        ("foobar/a", "foo", False),
        ("foo", "foo", False),
        ("a", "", True),
        ("", "", False),
    ],
)
def test_path_is_below_a_folder_only_after_a_separator(path: str, folder: str, expected: bool) -> None:
    assert is_below(path, folder) is expected


# ------------------------------------------------------------------------------------------------- the file that wins a path


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


# ----------------------------------------------------------------------------------------------------- product dependencies


@pytest.mark.parametrize(
    "written", ["Meshes/Rock.FBX", "meshes\\Rock.fbx", "meshes//rock.fbx", "./meshes/x/../rock.fbx", "/game/Meshes/rock.fbx"]
)
def test_every_spelling_of_a_path_has_the_same_normal_form(written: str) -> None:
    assert path_link(written, SOURCE, 1, "/game") == ProductLink(SOURCE, "meshes/rock.fbx", 1)


def test_path_of_a_source_outside_the_scan_folder_stays_absolute() -> None:
    assert path_link("/Gamers/a.fbx", SOURCE, 2, "/game").path == "/gamers/a.fbx"


def test_link_that_begins_with_an_exclamation_mark_is_an_exclusion() -> None:
    assert path_link("!A/*.x", PRODUCT, 2) == ProductLink(PRODUCT, "a/*.x", 2, is_exclusion=True)


@pytest.mark.parametrize("end", ["tif", "tiff", "bmp", "gif", "jpg", "JPEG", "tga", "png"])
def test_link_to_an_image_path_is_a_source_dependency(end: str) -> None:
    assert path_link(f"a.{end}", PRODUCT, 2).kind is SOURCE
    assert path_link(f"a.{end}.x", PRODUCT, 2).kind is PRODUCT


@pytest.mark.parametrize(
    ("written", "why"), [("", "is empty"), ("!", "is empty"), ("../a", "leads out"), (":a", "begins with"), ("/a", "is absolute")]
)
def test_link_with_an_invalid_path_is_refused(written: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        path_link(written, PRODUCT, 2)


def test_first_of_several_duplicate_links_is_kept() -> None:
    first, again, other = path_link("a", SOURCE, 0), path_link("A", SOURCE, 2), path_link("a", PRODUCT, 2)

    assert settle_links([first, again, other]) == ((first, other), ())


def test_link_is_dropped_if_its_path_is_both_included_and_excluded() -> None:
    links = [path_link(text, SOURCE, 2) for text in ("a/*", "b", "!b", "!c")]

    assert settle_links(links) == ((links[0], links[3]), ("b",))

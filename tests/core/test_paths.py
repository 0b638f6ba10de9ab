"""File names as text and as bytes, and the UUIDs of paths."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.core.paths import from_text, is_below, key_of, name_beside, name_uuid, normalize, parent, path_uuid, to_text

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

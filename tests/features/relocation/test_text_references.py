"""References in texts: every spelling is found, other bytes stay, and a file is rewritten as a whole or not at all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aptui.core.paths import to_text
from aptui.features.relocation.moved_files import (
    Rename,
    UnreadableError,
    replace_names,
    rewrite,
    why_not_writable,
    write_as_seen_from,
)

OLD, NEW = "00112233445566778899aabbccddeeff", "fedcba98765432100123456789abcdef"
DASHED = "00112233-4455-6677-8899-aabbccddeeff"
NEW_DASHED = "fedcba98-7654-3210-0123-456789abcdef"
PATH = Rename("Textures/rock.png", "Stones/rock 2.png", 0)
UUID = Rename(OLD, NEW, 0, is_uuid=True)
PREFIXES = ("/home/me/game/assets/", "assets/")


def mended(text: str, *renames: Rename) -> str:
    return replace_names(text.encode(), renames or (PATH, UUID), PREFIXES).data.decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"Textures/rock.png"', '"Stones/rock 2.png"'),
        ("Textures\\rock.png", "Stones\\rock 2.png"),
        ('"Textures\\\\rock.png"', '"Stones\\\\rock 2.png"'),
        ('"Textures\\/rock.png"', '"Stones\\/rock 2.png"'),
        ("textures/rock.png", "stones/rock 2.png"),
        ("hint={Textures/rock.png}", "hint={Stones/rock 2.png}"),
        ("/Textures/rock.png", "/Stones/rock 2.png"),
        ("@projectroot@/Textures/rock.png", "@projectroot@/Stones/rock 2.png"),
        ("assets/Textures/rock.png", "assets/Stones/rock 2.png"),
        ("/home/me/game/assets/Textures/rock.png", "/home/me/game/assets/Stones/rock 2.png"),
        ("../assets/Textures/rock.png", "../assets/Stones/rock 2.png"),
        ("~assets/Textures/rock.png", "~assets/Stones/rock 2.png"),
        ("${ROOT}/Textures/rock.png", "${ROOT}/Stones/rock 2.png"),
        ("$(ROOT)/Textures/rock.png", "$(ROOT)/Stones/rock 2.png"),
        ("url(/Textures/rock.png)", "url(/Stones/rock 2.png)"),
        ("the file Textures/rock.png.", "the file Stones/rock 2.png."),
        (OLD, NEW),
        (OLD.upper(), NEW.upper()),
        (DASHED, NEW_DASHED),
        (f"{{{DASHED.upper()}}}", f"{{{NEW_DASHED.upper()}}}"),
        (f"id={{{DASHED}}}:1f", f"id={{{NEW_DASHED}}}:1f"),
        (f"{OLD}0", f"{OLD}0"),
        (f"x{DASHED}", f"x{DASHED}"),
    ],
)
def test_every_spelling_of_a_path_or_a_uuid_is_found(text: str, expected: str) -> None:
    assert mended(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "MyTextures/rock.png", "other/Textures/rock.png", "../Textures/rock.png", "Textures/rock.png.meta", "Textures/rock.pngx",
        "Textures/rock.png/x", "old-Textures/rock.png", "x.Textures/rock.png", "oldassets/Textures/rock.png",
        "Props (old)/Textures/rock.png", "[a]\\Textures\\rock.png", "{a}/Textures/rock.png", "Textureſ/rock.png",
    ],
)  # fmt: skip
def test_reference_to_a_longer_name_is_not_matched(text: str) -> None:
    assert mended(text) == text


def test_relative_path_is_replaced_with_or_without_a_leading_dot() -> None:
    here = Rename("rock.png", "../Stones/rock.png", 0, is_seen_from_here=True)

    assert mended('"rock.png" "./rock.png" "sub/rock.png" "bedrock.png"', here) == (
        '"../Stones/rock.png" "./../Stones/rock.png" "sub/rock.png" "bedrock.png"'
    )


def test_replaced_path_in_a_url_stays_percent_encoded() -> None:
    assert mended("uri: my%20rock.png", Rename("my rock.png", "our rock.png", 0)) == "uri: our%20rock.png"


def test_reference_below_a_scan_folder_with_blanks_and_brackets_is_replaced() -> None:
    found = replace_names(
        b"'/my game/assets (2)/a.png' /my game/assets (2)/b.png", [Rename("a.png", "c.png", 0)], ["/my game/assets (2)/"]
    )

    assert found.data == b"'/my game/assets (2)/c.png' /my game/assets (2)/b.png"


def test_url_of_a_name_with_a_percent_sign_stays_percent_encoded() -> None:
    rename = Rename("50%.png", "60 %.png", 0)

    assert mended('"50%25.png" "50%.png"', rename) == '"60%20%25.png" "60 %.png"'


def test_name_that_differs_in_a_letter_without_the_same_lower_case_is_not_matched() -> None:
    assert mended("dıl.png dil.png", Rename("dil.png", "x.png", 0)) == "dıl.png x.png"


def test_names_that_are_not_utf_8_are_replaced_byte_for_byte() -> None:
    rename = Rename(to_text(b"a\xff.png"), to_text(b"b\xfe.png"), 0)

    assert replace_names(b'"a\xff.png" "a%FF.png"', [rename], ()).data == b'"b\xfe.png" "b%FE.png"'


def test_reference_whose_text_stays_valid_is_reported_as_unchanged() -> None:
    same = Rename("rock.png", "rock.png", 4, is_seen_from_here=True)

    found = replace_names(b"rock.png", [same], ())

    assert (found.count, found.same, found.changed) == (0, frozenset({4}), frozenset())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\ufefftextures/a.png\r\nx\r\n".encode(), "\ufeffb.png\r\nx\r\n".encode()),
        (b"textures/a.png \xff\xfe\x80 no utf-8\rold mac", b"b.png \xff\xfe\x80 no utf-8\rold mac"),
        (b"\xff\xfe" + "textures/a.png\r\n".encode("utf-16-le"), b"\xff\xfe" + "b.png\r\n".encode("utf-16-le")),
        (b"\xfe\xff" + "ä textures/a.png".encode("utf-16-be"), b"\xfe\xff" + "ä b.png".encode("utf-16-be")),
    ],
)
def test_rewrite_keeps_encoding_byte_order_mark_and_line_ends(before: bytes, after: bytes) -> None:
    assert replace_names(before, [Rename("textures/a.png", "b.png", 0)], ()).data == after


def test_name_with_non_ascii_letters_is_found_in_any_case() -> None:
    assert mended("BILDER/ÄPFEL.png", Rename("Bilder/Äpfel.png", "obst.png", 0)) == "obst.png"


def test_longest_matching_path_is_replaced() -> None:
    short, long = Rename("a/b", "x", 0), Rename("a/b/c.png", "y", 1)
    other = Rename("a/bc", "z", 2)

    assert mended("a/b a/b/c.png a/bc a\\b a/b/c", short, long, other) == "x y z x a/b/c"


def test_rewrite_finds_thousands_of_names_in_one_pass() -> None:
    renames = [Rename(f"images/set{at // 100}/picture{at}.png", f"art/{at}.png", at) for at in range(3_000)]
    text = "\n".join(f"{rename.old} and images/set{rename.target}/none.png" for rename in renames) * 3

    found = replace_names(text.encode(), renames, ())

    assert found.count == 9_000 - 2  # in copies 2 and 3 of the text, the first name directly follows other text
    assert len(found.changed) == 3_000


def test_rewrite_of_a_long_line_takes_little_time() -> None:
    text = b"assets/textures/a.png " * 20_000
    began_s = time.process_time()

    assert replace_names(text, [Rename("textures/a.png", "b.png", 0)], ["/project/assets/", "assets/"]).count == 20_000
    assert time.process_time() - began_s < 5


def test_binary_data_is_refused() -> None:
    with pytest.raises(UnreadableError, match="not text"):
        replace_names(b"glTF\x02\0\0\0textures/a.png", [PATH], ())


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [
        ("", "a.png", "a.png"),
        ("a", "a/b.png", "b.png"),
        ("a/b", "a/c/d.png", "../c/d.png"),
        ("a", "a", "../a"),
        ("A/b", "a/b/c", "c"),
    ],
)
def test_relative_path_between_a_file_and_a_folder_is_computed(folder: str, path: str, expected: str) -> None:
    assert write_as_seen_from(folder, path) == expected


def test_rewrite_keeps_mode_and_leaves_no_files(tmp_path: Path) -> None:
    file = tmp_path / "a.scene"
    file.write_bytes(b"old")
    file.chmod(0o640)

    rewrite(str(file), b"new")

    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.scene"]


def test_read_only_file_and_link_are_not_rewritten(tmp_path: Path) -> None:
    file, link = tmp_path / "a.scene", tmp_path / "b.scene"
    file.write_bytes(b"old")
    file.chmod(0o444)
    link.symlink_to("a.scene")

    with pytest.raises(UnreadableError, match="read-only"):
        rewrite(str(file), b"new")

    assert why_not_writable(str(link)) == "the path is a link"
    assert file.read_bytes() == b"old"

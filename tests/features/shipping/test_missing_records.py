"""Names of assets in a file: forms, borders, limits; every file takes time proportional to its length."""

from __future__ import annotations

import pytest

from aptui.features.shipping import missing_records
from aptui.features.shipping.missing_records import LINE_LIMIT, MissingScanResult, Names, join_path, plain_path, specialist

UUID = "6BDE282B-49C9-57F7-B071-4B26579BCA9A"
PLAIN = UUID.replace("-", "")
BYTES = bytes.fromhex(PLAIN)
EXTENSIONS = ("png", "txt", "lua", "c")
PIECE = 1 << 20
HOSTILE = 2 * PIECE


def names_in(data: bytes | str, *, limit: int = LINE_LIMIT, piece: int = PIECE) -> Names:
    data = data.encode() if isinstance(data, str) else data
    scan = MissingScanResult(EXTENSIONS, limit)
    for at in range(0, len(data), piece):
        scan.feed(data[at : at + piece])
    return scan.finish()


@pytest.mark.parametrize(
    "text",
    [UUID, PLAIN, PLAIN.lower(), f"{{{PLAIN}}}", f'a="{UUID}"', f"of={PLAIN}", f"{UUID}, and", f"{PLAIN}.", f"x {UUID}:[1a]"],
)
def test_uuid_spellings_are_found(text: str) -> None:
    assert list(names_in(text).uuids) == [BYTES]


@pytest.mark.parametrize(
    "text", [f"a{PLAIN}", f"{PLAIN}t", f"{PLAIN}0", f"_{UUID}", "B076CDDC-14DK-50F4-A5E9-7518ABB3E851", PLAIN[:-1]]
)
def test_longer_and_shorter_hex_is_not_a_uuid(text: str) -> None:
    assert not names_in(text)


@pytest.mark.parametrize(
    "text", [f"{UUID}:7", f"{{{UUID}}}:[7]", f"{{{PLAIN}}}-7 inline", f"{PLAIN}:7", f"{PLAIN}-7", f"<{UUID}>:(7)"]
)
def test_asset_id_is_not_a_bare_uuid(text: str) -> None:
    names = names_in(text)

    assert list(names.assets) == [(BYTES, 7)]
    assert not names.uuids


def test_too_large_sub_id_is_ignored() -> None:
    assert not names_in(f"{UUID}:4294967296")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a textures/rock.png b", ["textures/rock.png"]),
        ("a=textures\\rock.PNG;", ["textures/rock.png"]),
        ("textures\\\\rock.png", ["textures/rock.png"]),
        ("see rock.png.", ["rock.png"]),
        ("./sub/rock.png ../up/rock.png", ["sub/rock.png", "../up/rock.png"]),
        ("@products@/ui/a-b_c.png", ["ui/a-b_c.png"]),
        ("/lib-1.2/rock.v2.png", ["lib-1.2/rock.v2.png", "rock.v2.png"]),
        ("textures/Ärger.png", ["textures/ärger.png"]),
        (r'"one.png\ntwo.png"', ["one.png/ntwo.png", "one.png", "ntwo.png"]),
        ('"Crystal Sunset (new+1).png"', ["crystal sunset (new+1).png"]),
        ("no extension textures/rock, another one rock.dds, none rock.", []),
    ],
)
def test_path_spellings_are_found(text: str, expected: list[str]) -> None:
    found = names_in(text).paths

    assert [path for path in expected if path not in found] == []
    assert bool(found) == bool(expected)


def test_names_are_found_once_with_their_first_text() -> None:
    names = names_in("Textures\\Rock.png textures/rock.png TEXTURES//ROCK.PNG")

    assert names.paths == {"textures/rock.png": "Textures\\Rock.png"}


def test_names_do_not_depend_on_pieces() -> None:
    text = f"\x00a.png\r\n{UUID}:7, 'b/c.png' and {PLAIN}\nd\\e.txt \xff.png".encode("latin-1") * 3
    whole = names_in(text)

    assert len(whole) == 5
    assert all(names_in(text, piece=size) == whole for size in (1, 2, 3, 7, 40, 64))


def test_names_per_line_are_limited() -> None:
    line = " ".join(f"{number}.png" for number in range(40)) + " " + " ".join(f"{number:032x}" for number in range(1, 41))

    few, all_of_it = names_in(f"first.png\n{line}\nlast.png", limit=30), names_in(line, limit=0)

    assert (len(few.paths), len(few.uuids), few.is_partial) == (32, 30, True)
    assert (len(all_of_it.paths), len(all_of_it.uuids), all_of_it.is_partial) == (40, 40, False)
    assert not names_in("\n".join(line.split()), limit=30).is_partial


def test_line_limit_counts_across_pieces() -> None:
    line = b" ".join(b"%06d.png" % number for number in range(20_000))

    names = names_in(line, limit=100, piece=4096)

    assert (len(names.paths), names.is_partial) == (100, True)
    assert list(names_in(line + b"\nend.png", limit=100, piece=4096).paths)[-1] == "end.png"


def test_names_per_file_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_records, "NAMES_MAX", 50)

    names = names_in("\n".join(f"{number}.c" for number in range(90)))

    assert (len(names), names.is_partial) == (50, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [b"a", b"a-", b".", b"a.", b"/.a", b"a.a/", b"\\", b"../", b"aaaaaaaa-", b"6BDE282B49C957F7B0714B26579BCA9A-", b'"a.png',
     b"' ", b"\xff."]
)  # fmt: skip
def test_hostile_line_takes_linear_time(pattern: bytes) -> None:
    line = (pattern * HOSTILE)[:HOSTILE]

    # A quadratic scan would take hours, and the test's time limit would end it.
    assert len(names_in(line)) <= 10
    assert len(names_in(line, limit=0)) <= 10


def test_utf_16_is_decoded() -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        data = ("\ufeff" + f"of textures/rock.png {UUID}").encode(encoding)
        expert = specialist("readme.txt", data)
        assert expert is not None
        translate = expert.translator()
        pieces = [translate(data[at : at + 3], False) for at in range(0, len(data), 3)] + [translate(b"", True)]

        names = names_in(b"".join(pieces))

        assert (list(names.paths), list(names.uuids)) == (["textures/rock.png"], [BYTES])


def test_specialist_is_chosen_by_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    own = missing_records.Specialist("own", frozenset({".own"}), (), lambda: lambda data, _: data)
    monkeypatch.setattr(missing_records, "SPECIALISTS", [own])

    assert specialist("a/b.OWN", b"") is own
    assert specialist("a.own/b", b"") is None


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [
        ("", "a.png", "a.png"),
        ("x/y", "a.png", "x/y/a.png"),
        ("x/y", "../a.png", "x/a.png"),
        ("x", "../../a.png", ""),
        ("x", "./b/../a.png", "x/a.png"),
    ],
)
def test_relative_path_is_joined_to_a_folder(folder: str, path: str, expected: str) -> None:
    assert join_path(folder, path) == expected
    assert plain_path("/" + path.replace("/", "\\")).startswith("..") == path.startswith("..")

"""Finding names of assets in files in linear time, choosing products to scan, and storing the results of a scan."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from aptui.features.shipping import name_scanner
from aptui.features.shipping.missing_rows import (
    NO_UUID,
    NOTHING,
    DeclaredReference,
    KnownAssets,
    MissingHit,
    choose_scanned,
    pack_names,
    read_declared,
    read_declared_by_sources,
    read_remembered,
    result_rows,
    results,
    unpack_names,
)
from aptui.features.shipping.name_scanner import LINE_LIMIT, Names, NameScan, join_path, plain_path, utf16_translator
from aptui.store.queries import assets
from aptui.store.queries.reader import Reader
from tests.store.conftest import Store, edge_row, job_row, source_row, uuid_of

UUID = "6BDE282B-49C9-57F7-B071-4B26579BCA9A"
PLAIN = UUID.replace("-", "")
BYTES = bytes.fromhex(PLAIN)
EXTENSIONS = ("png", "txt", "lua", "c")
PIECE = 1 << 20
HOSTILE = 2 * PIECE


def names_in(data: bytes | str, *, limit: int = LINE_LIMIT, piece: int = PIECE) -> Names:
    data = data.encode() if isinstance(data, str) else data
    scan = NameScan(EXTENSIONS, limit)
    for at in range(0, len(data), piece):
        scan.feed(data[at : at + piece])
    return scan.finish()


@pytest.mark.parametrize(
    "text",
    [UUID, PLAIN, PLAIN.lower(), f"{{{PLAIN}}}", f'a="{UUID}"', f"of={PLAIN}", f"{UUID}, and", f"{PLAIN}.", f"x {UUID}:[1a]"],
)
def test_every_spelling_of_a_uuid_is_found(text: str) -> None:
    assert list(names_in(text).uuids) == [BYTES]


@pytest.mark.parametrize(
    "text", [f"a{PLAIN}", f"{PLAIN}t", f"{PLAIN}0", f"_{UUID}", "B076CDDC-14DK-50F4-A5E9-7518ABB3E851", PLAIN[:-1]]
)
def test_hex_text_of_another_length_is_not_a_uuid(text: str) -> None:
    assert not names_in(text)


@pytest.mark.parametrize(
    "text", [f"{UUID}:7", f"{{{UUID}}}:[7]", f"{{{PLAIN}}}-7 inline", f"{PLAIN}:7", f"{PLAIN}-7", f"<{UUID}>:(7)"]
)
def test_uuid_in_an_asset_id_is_not_also_listed_as_uuid(text: str) -> None:
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
def test_every_spelling_of_a_path_is_found(text: str, expected: list[str]) -> None:
    found = names_in(text).paths

    assert [path for path in expected if path not in found] == []
    assert bool(found) == bool(expected)


def test_repeated_name_is_reported_once_with_its_first_spelling() -> None:
    names = names_in("Textures\\Rock.png textures/rock.png TEXTURES//ROCK.PNG")

    assert names.paths == {"textures/rock.png": "Textures\\Rock.png"}


def test_name_search_does_not_depend_on_the_size_of_the_read_blocks() -> None:
    text = f"\x00a.png\r\n{UUID}:7, 'b/c.png' and {PLAIN}\nd\\e.txt \xff.png".encode("latin-1") * 3
    whole = names_in(text)

    assert len(whole) == 5
    assert all(names_in(text, piece=size) == whole for size in (1, 2, 3, 7, 40, 64))


@pytest.mark.parametrize("end", [20, 27, 30, 37, 43, 60])
def test_quoted_name_with_blanks_is_found_at_the_end_of_a_read_block(end: int) -> None:
    data = f'{{"a":"{"x" * (PIECE - end)}","b":"dawn/Crystal Sunset (new).png","c":"tail"}}'

    assert "dawn/crystal sunset (new).png" in names_in(data).paths


def test_quote_in_an_earlier_line_begins_no_name_in_the_next_read_block() -> None:
    data = f'"{"x" * (PIECE - 9)}"dawn\ncrystal sunset.png"'

    assert list(names_in(data).paths) == ["sunset.png"]


def test_name_search_limits_the_number_of_names_per_line() -> None:
    line = " ".join(f"{number}.png" for number in range(40)) + " " + " ".join(f"{number:032x}" for number in range(1, 41))

    few, all_of_it = names_in(f"first.png\n{line}\nlast.png", limit=30), names_in(line, limit=0)

    assert (len(few.paths), len(few.uuids), few.is_partial) == (32, 30, True)
    assert (len(all_of_it.paths), len(all_of_it.uuids), all_of_it.is_partial) == (40, 40, False)
    assert not names_in("\n".join(line.split()), limit=30).is_partial


def test_limit_of_names_per_line_applies_across_several_read_blocks() -> None:
    line = b" ".join(b"%06d.png" % number for number in range(20_000))

    names = names_in(line, limit=100, piece=4096)

    assert (len(names.paths), names.is_partial) == (100, True)
    assert list(names_in(line + b"\nend.png", limit=100, piece=4096).paths)[-1] == "end.png"


def test_name_search_limits_the_number_of_names_per_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_scanner, "NAMES_MAX", 50)

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

    # A scan in quadratic time would exceed the time limit of the test.
    assert len(names_in(line)) <= 10
    assert len(names_in(line, limit=0)) <= 10


def test_utf_16_text_is_decoded() -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        data = ("\ufeff" + f"of textures/rock.png {UUID}").encode(encoding)
        translate = utf16_translator(data)
        assert translate is not None
        pieces = [translate(data[at : at + 3], False) for at in range(0, len(data), 3)] + [translate(b"", True)]

        names = names_in(b"".join(pieces))

        assert (list(names.paths), list(names.uuids)) == (["textures/rock.png"], [BYTES])


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
def test_relative_path_is_resolved_against_a_folder(folder: str, path: str, expected: str) -> None:
    assert join_path(folder, path) == expected
    assert plain_path("/" + path.replace("/", "\\")).startswith("..") == path.startswith("..")


STAMP = (1000, "2001-09-09 03:46:40")


def product(number: int, job: int, name: str, sub_id: int = 0, flags: int = 1) -> tuple[object, ...]:
    return (number, job, name, sub_id, b"T" * 16, 0, flags, bytes([number]) * 32, 10)


@pytest.fixture
def filled(store: Store) -> Store:
    store.put(
        put_source=[source_row(1, "Textures/Rock.png"), source_row(2, "levels/one_a.lvl"), source_row(3, "levels/oneXa.lvl")],
        put_job=[job_row(1, 1), job_row(2, 1, platform="server"), job_row(3, 2), job_row(4, 3)],
        put_product=[
            product(1, 1, "linux/textures/rock.dds"), product(2, 1, "linux/textures/rock.mip", 1),
            product(3, 2, "server/textures/rock.dds"),
            product(4, 3, "linux/levels/one_a.bin"), product(5, 4, "linux/levels/onexa.bin"),
            product(6, 4, "common/levels/half.tmp", 5, 2),
        ],
        put_edge=[edge_row(0, "textures/rock.png", source_id=2)],
    )  # fmt: skip
    return store


@pytest.fixture
def reader(filled: Store) -> Reader:
    return filled.reader()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", [1, 2, 3, 4, 5]), ("*.bin", [4, 5]), ("%.bin", [4, 5]), ("*one_a*", [4]), ("levels/one?a.bin", [4, 5]),
        ("linux/levels", [4, 5]),
        ("Textures/", [1, 2, 3]), ("server/*", [3]), ("linux/textures/rock.dds", [1]), ("textures/rock.dds", [1, 3]),
        ("levels/one_a.lvl", [4]),
        (uuid_of(1).hex(), [1, 2, 3]), (f"{uuid_of(1).hex()}:1", [2]), ("half", []), ("common/levels/half.tmp", []),
    ],
)  # fmt: skip
def test_scan_chooses_products_by_pattern(reader: Reader, pattern: str, expected: list[int]) -> None:
    assert sorted(each.product_id for each in choose_scanned(reader, [pattern] if pattern else [])) == expected


def test_scan_chooses_products_by_thousands_of_patterns(reader: Reader) -> None:
    names = [each.name for each in choose_scanned(reader)]

    assert [each.name for each in choose_scanned(reader, [*(f"none{number}" for number in range(1_200)), *names, *names])] == names


def test_scan_chooses_products_by_id_and_pattern(reader: Reader) -> None:
    assert sorted(each.product_id for each in choose_scanned(reader, ["server/*"], [4])) == [3, 4]


def test_known_names_are_resolved_to_sources_and_products(reader: Reader) -> None:
    known = KnownAssets(reader)
    known.look_up(
        [uuid_of(1), uuid_of(9)],
        ["textures/rock.png", "nothing.png"],
        {"linux": {"rock.dds", "textures/rock.dds", "linux/levels/one_a.bin", "x.bin"}},
    )

    assert [target.sub_id for target in known.of_uuid(uuid_of(1))] == [0, 1]
    assert known.of_uuid(uuid_of(9)) == ()
    assert [target.inner for target in known.of_source("textures/rock.png")] == ["textures/rock.dds", "textures/rock.mip"]
    assert known.of_source("nothing.png") == ()
    for path in ("textures/rock.dds", "rock.dds"):
        target = known.of_product("linux", path)
        assert target is not None
        assert (target.uuid, target.sub_id) == (uuid_of(1), 0)
    assert known.of_product("linux", "linux/levels/one_a.bin") is not None
    assert known.of_product("linux", "x.bin") is None
    assert {"png", "lvl", "dds", "mip", "bin"} <= known.extensions


def test_legacy_uuid_refers_to_its_source(filled: Store) -> None:
    filled.put(put_legacy=[(uuid_of(77), 1, 5)])
    known = KnownAssets(filled.reader())
    known.look_up([uuid_of(77)], [], {})

    assert {target.uuid for target in known.of_uuid(uuid_of(77))} == {uuid_of(1)}


def test_declared_path_dependencies_may_be_wildcards() -> None:
    own = DeclaredReference()
    for path in ("Textures/A.dds", "levels/*.bin", ":secret/*", ":secret.bin"):
        own.note(b"", 0, path)
    own.note(uuid_of(1), 3, "")

    assert own.has_path("textures/a.dds")
    assert own.has_path("levels/one/two.bin")
    assert not own.has_path("secret/a.bin")
    assert not own.has_path("secret.bin")
    assert (own.assets, own.sources) == ({(uuid_of(1), 3)}, {uuid_of(1)})


def test_scan_results_are_deleted_with_their_product(filled: Store) -> None:
    one = choose_scanned(filled.reader(), ["linux/levels/one_a.bin"])[0]
    names = Names({(uuid_of(1), 0): "a"}, {uuid_of(2): "b"}, {"x.png": "X.png"}, is_partial=True)
    rows = result_rows(one, [MissingHit("rock.dds", uuid_of(1), 0, "textures/rock.dds")], "partly", STAMP)
    filled.put(put_missing=rows, put_missing_scan=[(one.product_id, one.digest, "terms", pack_names(names), one.name)])
    reader = filled.reader()

    found = results(reader, [one.product_id])
    assert [(row.text, row.uuid, row.meant) for row in found] == [
        ("rock.dds", uuid_of(1), "linux/textures/rock.dds"), ("partly", NO_UUID, "")
    ]  # fmt: skip
    assert read_remembered(reader, [one.product_id], "terms") == {one.product_id: (one.digest, names)}
    assert read_remembered(reader, [one.product_id], "other terms") == {}
    assert unpack_names(pack_names(names)) == names

    filled.put(drop_products=[(3,)])
    assert filled.count("MissingProductDependencies") == filled.count("aptui_missing_scans") == 0


def test_scan_results_are_deleted_after_their_product_changed(filled: Store) -> None:
    one = choose_scanned(filled.reader(), ["linux/levels/one_a.bin"])[0]
    rows = result_rows(one._replace(product_id=99), [], NOTHING, STAMP) + result_rows(
        one._replace(name="linux/other.bin"), [], NOTHING, STAMP
    )
    filled.put(
        put_missing=rows,
        put_missing_scan=[
            (99, b"", "", pack_names(Names()), one.name),
            (one.product_id, b"", "", pack_names(Names()), "linux/other.bin"),
        ],
    )

    assert filled.count("MissingProductDependencies") == filled.count("aptui_missing_scans") == 0


def test_scan_results_are_deleted_after_their_product_was_made_again(filled: Store) -> None:
    one = choose_scanned(filled.reader(), ["linux/levels/one_a.bin"])[0]
    rows = result_rows(one, [MissingHit("rock.dds", uuid_of(1), 0, "textures/rock.dds")], "", STAMP)

    filled.put(put_missing=result_rows(one._replace(digest=b"what it had been"), [], NOTHING, STAMP))
    assert filled.count("MissingProductDependencies") == 0
    filled.put(put_missing=rows)
    assert filled.count("MissingProductDependencies") == 1


def test_product_details_show_missing_dependencies_and_scan_result(filled: Store) -> None:
    one = choose_scanned(filled.reader(), ["server/*"])[0]
    filled.put(put_missing=result_rows(one, [MissingHit("r", uuid_of(1), 0, "")], "partly", STAMP))

    details = assets.product_details(filled.reader(), one.product_id)

    assert details is not None
    assert [(item.text, item.product_id, item.scanned_s) for item in details.missing] == [("r", 3, 1000)]
    assert (details.scanned_s, details.scan_says) == (1000, "partly")


def test_missing_dependency_table_has_the_column_order_of_o3de(filled: Store) -> None:
    one = choose_scanned(filled.reader(), ["server/*"])[0]
    filled.put(put_missing=result_rows(one, [MissingHit("r", uuid_of(1), 0, "")], "", STAMP))

    row = filled.rows("SELECT * FROM MissingProductDependencies")[0]

    assert row[5:8] == (uuid_of(1), 0, "r")


def test_declared_dependencies_are_read_for_many_products(filled: Store) -> None:
    with closing(sqlite3.connect(filled.path, isolation_level=None)) as database:
        database.execute(
            "INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags,"
            " UnresolvedPath) VALUES (4, ?, 1, 'linux', 0, ''), (4, zeroblob(16), 0, 'linux', 0, 'Sounds/Bang.wav')",
            (uuid_of(1),),
        )

    found = read_declared(filled.reader(), [4, 5])
    of_source = read_declared_by_sources(filled.reader(), ["levels/one_a.lvl"])["levels/one_a.lvl"]

    assert found == {4: DeclaredReference({(uuid_of(1), 1)}, {uuid_of(1)}, {"sounds/bang.wav"}), 5: DeclaredReference()}
    assert of_source.has_path("textures/rock.png")  # this path is declared as a source dependency
    assert of_source.has_path("sounds/bang.wav")

"""Products to scan, meanings of names, declared dependencies and results of a scan, over a real database."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from aptui.features.shipping.missing_records import Names
from aptui.features.shipping.missing_rows import (
    NO_UUID,
    NOTHING,
    DeclaredReference,
    KnownName,
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
from aptui.store.queries import assets
from aptui.store.queries.reader import Reader
from tests.store.conftest import Store, edge_row, job_row, source_row, uuid_of

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
def test_products_are_chosen_by_pattern(reader: Reader, pattern: str, expected: list[int]) -> None:
    assert sorted(each.product_id for each in choose_scanned(reader, [pattern] if pattern else [])) == expected


def test_products_are_chosen_by_id_and_pattern(reader: Reader) -> None:
    assert sorted(each.product_id for each in choose_scanned(reader, ["server/*"], [4])) == [3, 4]


def test_names_mean_sources_and_products(reader: Reader) -> None:
    known = KnownName(reader)
    known.learn(
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


def test_former_uuid_means_its_source(filled: Store) -> None:
    filled.put(put_legacy=[(uuid_of(77), 1, 5)])
    known = KnownName(filled.reader())
    known.learn([uuid_of(77)], [], {})

    assert {target.uuid for target in known.of_uuid(uuid_of(77))} == {uuid_of(1)}


def test_declared_paths_may_be_wildcards() -> None:
    own = DeclaredReference()
    for path in ("Textures/A.dds", "levels/*.bin", ":secret/*", ":secret.bin"):
        own.note(b"", 0, path)
    own.note(uuid_of(1), 3, "")

    assert own.has_path("textures/a.dds")
    assert own.has_path("levels/one/two.bin")
    assert not own.has_path("secret/a.bin")
    assert not own.has_path("secret.bin")
    assert (own.assets, own.sources) == ({(uuid_of(1), 3)}, {uuid_of(1)})


def test_scan_rows_are_deleted_with_their_product(filled: Store) -> None:
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


def test_rows_of_changed_products_are_dropped(filled: Store) -> None:
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


def test_rows_of_remade_products_are_dropped(filled: Store) -> None:
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


def test_column_positions_are_those_of_o3de(filled: Store) -> None:
    one = choose_scanned(filled.reader(), ["server/*"])[0]
    filled.put(put_missing=result_rows(one, [MissingHit("r", uuid_of(1), 0, "")], "", STAMP))

    row = filled.rows("SELECT * FROM MissingProductDependencies")[0]

    assert row[5:8] == (uuid_of(1), 0, "r")


def test_declared_dependencies_of_many_products(filled: Store) -> None:
    with closing(sqlite3.connect(filled.path, isolation_level=None)) as database:
        database.execute(
            "INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags,"
            " UnresolvedPath) VALUES (4, ?, 1, 'linux', 0, ''), (4, zeroblob(16), 0, 'linux', 0, 'Sounds/Bang.wav')",
            (uuid_of(1),),
        )

    found = read_declared(filled.reader(), [4, 5])
    of_source = read_declared_by_sources(filled.reader(), ["levels/one_a.lvl"])["levels/one_a.lvl"]

    assert found == {4: DeclaredReference({(uuid_of(1), 1)}, {uuid_of(1)}, {"sounds/bang.wav"}), 5: DeclaredReference()}
    assert of_source.has_path("textures/rock.png")  # a source dependency
    assert of_source.has_path("sounds/bang.wav")

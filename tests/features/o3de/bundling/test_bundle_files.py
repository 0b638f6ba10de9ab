"""Files of the bundler: asset lists and their comparison, rules, settings, manifests and bundles."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from aptui.features.o3de.binary_stream import RegistryAsset, parse
from aptui.features.o3de.bundling import object_stream
from aptui.features.o3de.bundling.bundle_files import (
    BundleSettings,
    ComparisonKind,
    ComparisonStep,
    ListedAsset,
    PackedAsset,
    appearing,
    compare_lists,
    delete_rollovers,
    existing_bundles,
    kind_of,
    list_text,
    load_list,
    load_rules,
    manifest_text,
    matching,
    rules_text,
    write_bundles,
)
from aptui.shared.errors import HostError, UserError


def packed(folder: Path, name: str, data: bytes, digest: bytes = b"") -> PackedAsset:
    file = folder / name.replace("/", "_")
    file.write_bytes(data)
    return PackedAsset(RegistryAsset(hashlib.md5(name.encode()).digest(), 1, name, b"", len(data)), file, digest)


def others_of(bundle: Path) -> list[str]:
    with zipfile.ZipFile(bundle) as archive:
        names = object_stream.parse(archive.read("manifest.xml").decode()).object.get("DependentBundleNames")
    return [child.value or "" for child in names.children] if names else []


def test_written_bundle_contains_assets_manifest_and_catalog(tmp_path: Path) -> None:
    assets = [packed(tmp_path, name, name.encode()) for name in ("b.txt", "levels/one/one.spawnable")]

    (made,) = write_bundles(assets, tmp_path / "x_pc.pak", version=2, max_mib=1)

    with zipfile.ZipFile(made) as archive:
        assert archive.namelist() == ["b.txt", "levels/one/one.spawnable", "DeltaCatalog.xml", "manifest.xml"]
        assert archive.read("b.txt") == b"b.txt"
        assert b"levels/one/one.spawnable" in archive.read("DeltaCatalog.xml")
        assert len(parse(archive.read("DeltaCatalog.xml")).children[0].children) == 2
        assert 'value="levels/one"' in archive.read("manifest.xml").decode()
        assert not any(entry.flag_bits & 8 for entry in archive.infolist())  # flag 8 would mean: size after the data
    assert write_bundles(assets[::-1], tmp_path / "y.pak", version=2, max_mib=1)[0].read_bytes() == made.read_bytes()


def test_first_part_of_a_split_bundle_names_the_other_parts(tmp_path: Path) -> None:
    assets = [packed(tmp_path, f"{at}.bin", os.urandom(400_000)) for at in range(5)]

    made = write_bundles(assets, tmp_path / "x_pc.pak", version=2, max_mib=1)

    assert [path.name for path in made] == ["x_pc.pak", "x_pc__1.pak", "x_pc__2.pak"]
    assert all(path.stat().st_size <= 1 << 20 for path in made)
    assert [others_of(path) for path in made] == [["x_pc__1.pak", "x_pc__2.pak"], [], []]
    assert existing_bundles(tmp_path / "x_pc.pak") == made

    delete_rollovers(made[0], made[:2])
    assert existing_bundles(tmp_path / "x_pc.pak") == made[:2]


@pytest.mark.parametrize("name", ["game__dlc.pak", "game__1 (copy).pak", "game__1.pak.zip"])
def test_other_bundle_with_a_similar_name_is_not_part_of_the_set(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")

    assert existing_bundles(tmp_path / "game.pak") == []
    delete_rollovers(tmp_path / "game.pak", [])
    assert (tmp_path / name).exists()


def test_bundles_of_a_set_are_found_although_their_name_has_brackets(tmp_path: Path) -> None:
    made = [tmp_path / "game[1].pak", tmp_path / "game[1]__1.pak"]
    for path in (*made, tmp_path / "game1__1.pak"):
        path.write_bytes(b"")

    assert existing_bundles(made[0]) == made


def test_failed_bundle_write_leaves_no_files(tmp_path: Path) -> None:
    large, wrong = packed(tmp_path, "large", os.urandom(2 << 20)), packed(tmp_path, "wrong", b"x", b"y" * 20)

    with pytest.raises(UserError, match="'large' has 2 MiB; a bundle has at most 1 MiB"):
        write_bundles([large], tmp_path / "x.pak", version=2, max_mib=1)
    with pytest.raises(HostError, match="'wrong' differs from the asset list"):
        write_bundles([wrong], tmp_path / "x.pak", version=2, max_mib=1)
    assert {path.name for path in tmp_path.iterdir()} == {"large", "wrong"}


STEPS = [
    ComparisonStep(ComparisonKind.DELTA, "a", "b", "$c"),
    ComparisonStep(ComparisonKind.FILE_PATTERN, "$c", "", "d", "*.txt", is_regex=True),
    ComparisonStep(ComparisonKind.INTERSECTION_COUNT, count=3),
]


def test_saved_comparison_rules_are_loaded_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.rules"
    path.write_text(rules_text(STEPS))

    assert load_rules(path) == STEPS

    path.write_text(rules_text(STEPS).replace('field="comparisonType" value="0"', 'field="comparisonType" value="77"'))
    with pytest.raises(UserError, match="type 77"):
        load_rules(path)


def test_changed_bundle_settings_keep_all_other_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.bundlesettings"
    new = BundleSettings()
    new.set(asset_list="a.assetlist", max_mib=5)
    path.write_text(new.text())

    settings = BundleSettings(path)
    assert (settings.asset_list, settings.bundle, settings.version, settings.max_mib) == ("a.assetlist", "", 2, 5)
    settings.set(bundle="b.pak")

    changed = [line for line in settings.text().splitlines() if line not in new.text().splitlines()]
    assert [line.strip().split()[2:4] for line in changed] == [['field="BundleFilePath"', 'value="b.pak"']]


def test_bundle_manifest_names_catalog_and_levels_and_other_bundles() -> None:
    text = manifest_text(2, ["a__1.pak"], ["levels/one"])

    assert 'field="CatalogName" value="DeltaCatalog.xml"' in text
    assert 'field="element" value="a__1.pak"' in text
    assert 'field="element" value="levels/one"' in text


def asset(name: str, digest: str = "0") -> ListedAsset:
    guid = f"{{00000000-0000-0000-0000-{ord(name[0]):012d}}}"
    return ListedAsset(guid, 1, f"{name}.txt", 9, digest.encode() * 20)


A, B, C, NEW_B = asset("a"), asset("b"), asset("c"), asset("b", "1")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ComparisonKind.DELTA, [NEW_B, C]),
        (ComparisonKind.UNION, [A, NEW_B, C]),
        (ComparisonKind.INTERSECTION, [NEW_B]),
        (ComparisonKind.COMPLEMENT, [C]),
    ],
)
def test_each_comparison_kind_keeps_the_expected_assets(kind: ComparisonKind, expected: list[ListedAsset]) -> None:
    assert compare_lists(kind, [A, B], [NEW_B, C]) == expected


def test_asset_paths_match_a_wildcard_or_regex_in_upper_or_lower_case() -> None:
    assert matching([A, B], "A*.TXT", is_regex=False) == [A]
    assert matching([A, B], "[bc].txt", is_regex=True) == [B]
    with pytest.raises(UserError, match="not a regular expression"):
        matching([A], "(", is_regex=True)


def test_count_comparison_keeps_assets_that_occur_in_enough_lists() -> None:
    assert appearing([[A, B], [B, C], [B, A]], 2) == [A, B]
    assert appearing([[A, B], [B, C], [B, A]], 3) == [B]


def test_comparison_kind_is_parsed_from_a_word_or_number() -> None:
    assert kind_of("filePattern") == kind_of("FILEPATTERN") == kind_of("4") == ComparisonKind.FILE_PATTERN
    with pytest.raises(UserError, match="0 or delta"):
        kind_of("nothing")


def test_saved_asset_list_is_loaded_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.assetlist"
    path.write_text(list_text([A, NEW_B]))

    assert load_list(path) == [A, NEW_B]
    assert 'field="element" value="808464432"' in path.read_text()

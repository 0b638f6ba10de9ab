"""Bundles: their content, and their maximum size."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from aptui.features.o3de.asset_registry import RegistryAsset
from aptui.features.o3de.binary_stream import parse
from aptui.features.o3de.bundling import object_stream
from aptui.features.o3de.bundling.bundle_files import PackedAsset, delete_rollovers, free_names, write_bundles
from aptui.shared.errors import HostError, UserError


def packed(folder: Path, name: str, data: bytes, digest: bytes = b"") -> PackedAsset:
    file = folder / name.replace("/", "_")
    file.write_bytes(data)
    return PackedAsset(RegistryAsset(hashlib.md5(name.encode()).digest(), 1, name, b"", len(data)), file, digest)


def others_of(bundle: Path) -> list[str]:
    with zipfile.ZipFile(bundle) as archive:
        names = object_stream.parse(archive.read("manifest.xml").decode()).object.get("DependentBundleNames")
    return [child.value or "" for child in names.children] if names else []


def test_written_bundle_contains_its_assets_a_manifest_and_a_catalog(tmp_path: Path) -> None:
    assets = [packed(tmp_path, name, name.encode()) for name in ("b.txt", "levels/one/one.spawnable")]

    (made,) = write_bundles(assets, tmp_path / "x_pc.pak", version=2, max_mib=1)

    with zipfile.ZipFile(made) as archive:
        assert archive.namelist() == ["b.txt", "levels/one/one.spawnable", "DeltaCatalog.xml", "manifest.xml"]
        assert archive.read("b.txt") == b"b.txt"
        assert b"levels/one/one.spawnable" in archive.read("DeltaCatalog.xml")
        assert len(parse(archive.read("DeltaCatalog.xml")).children[0].children) == 2
        assert 'value="levels/one"' in archive.read("manifest.xml").decode()
        assert not any(entry.flag_bits & 8 for entry in archive.infolist())  # Bit 8 would mean that a size follows the bytes.
    assert write_bundles(assets[::-1], tmp_path / "y.pak", version=2, max_mib=1)[0].read_bytes() == made.read_bytes()


def test_first_part_of_a_split_bundle_names_the_other_parts(tmp_path: Path) -> None:
    assets = [packed(tmp_path, f"{at}.bin", os.urandom(400_000)) for at in range(5)]

    made = write_bundles(assets, tmp_path / "x_pc.pak", version=2, max_mib=1)

    assert [path.name for path in made] == ["x_pc.pak", "x_pc__1.pak", "x_pc__2.pak"]
    assert all(path.stat().st_size <= 1 << 20 for path in made)
    assert [others_of(path) for path in made] == [["x_pc__1.pak", "x_pc__2.pak"], [], []]
    assert free_names(tmp_path / "x_pc.pak") == made

    delete_rollovers(made[0], made[:2])
    assert free_names(tmp_path / "x_pc.pak") == made[:2]


def test_failed_bundle_write_leaves_no_files(tmp_path: Path) -> None:
    large, wrong = packed(tmp_path, "large", os.urandom(2 << 20)), packed(tmp_path, "wrong", b"x", b"y" * 20)

    with pytest.raises(UserError, match="'large' has 2 MiB; a bundle has at most 1 MiB"):
        write_bundles([large], tmp_path / "x.pak", version=2, max_mib=1)
    with pytest.raises(HostError, match="'wrong' differs from the asset list"):
        write_bundles([wrong], tmp_path / "x.pak", version=2, max_mib=1)
    assert {path.name for path in tmp_path.iterdir()} == {"large", "wrong"}

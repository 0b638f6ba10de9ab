"""Files with comparison rules or bundle settings, and manifests of bundles."""

from pathlib import Path

import pytest

from aptui.features.o3de.bundling.asset_lists import ComparisonKind
from aptui.features.o3de.bundling.bundle_files import BundleSettings, ComparisonStep, load_rules, manifest_text, rules_text
from aptui.shared.errors import UserError

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


def test_bundle_manifest_names_the_catalog_the_bundles_and_the_levels() -> None:
    text = manifest_text(2, ["a__1.pak"], ["levels/one"])

    assert 'field="CatalogName" value="DeltaCatalog.xml"' in text
    assert 'field="element" value="a__1.pak"' in text
    assert 'field="element" value="levels/one"' in text

"""Asset lists: the SHA-1 of the bytes as five numbers, and the result of each comparison."""

from pathlib import Path

import pytest

from aptui.features.o3de.bundling import asset_lists
from aptui.features.o3de.bundling.asset_lists import ComparisonKind, ListedAsset, appearing, compare_lists, kind_of, matching
from aptui.shared.errors import UserError


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


def test_comparison_is_named_by_word_or_number() -> None:
    assert kind_of("filePattern") == kind_of("FILEPATTERN") == kind_of("4") == ComparisonKind.FILE_PATTERN
    with pytest.raises(UserError, match="0 or delta"):
        kind_of("nothing")


def test_saved_asset_list_is_loaded_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.assetlist"
    path.write_text(asset_lists.text_of([A, NEW_B]))

    assert asset_lists.load(path) == [A, NEW_B]
    assert 'field="element" value="808464432"' in path.read_text()

"""Seed lists: the platform bits of a seed, and saving a list without changes to its other parts."""

import re
from pathlib import Path

import pytest

from aptui.features.o3de.bundling import object_stream
from aptui.features.o3de.bundling.object_stream import Element
from aptui.features.o3de.bundling.seeds import Seed, SeedList, flag_of, is_for, merge_seeds, platforms_in
from aptui.shared.errors import UserError

ONE, TWO, THREE = (f"{{00000000-0000-0000-0000-00000000000{number}}}" for number in (1, 2, 3))
JSON = """{
    "Type": "JsonSerialization",
    "Version": 1,
    "ClassName": "AZStd::vector<SeedInfo, allocator>",
    "ClassData": [
        {
            "assetId": {
                "guid": "{00000000-0000-0000-0000-000000000001}"
            },
            "platformFlags": 255
        },
        {
            "assetId": {
                "guid": "{00000000-0000-0000-0000-000000000002}",
                "subId": 1000
            },
            "platformFlags": 2,
            "pathHint": "b.txt"
        }
    ]
}"""
XML = object_stream.dump(
    object_stream.stream_of(
        Element(
            "AZStd::vector",
            "{82FC5264-88D0-57CD-9307-FC52E4DAD550}",
            children=[
                Element(
                    "SeedInfo",
                    "{FACC3682-2ACA-4AA4-B85A-07AD276D18A0}",
                    "element",
                    version=2,
                    children=[
                        object_stream.asset_id("assetId", guid, sub_id),
                        object_stream.number("platformFlags", flags),
                        object_stream.string("pathHint", hint),
                    ],
                )
                for guid, sub_id, flags, hint in ((ONE, 0, 255, ""), (TWO, 1000, 2, "b.txt"))
            ],
        )
    )
)


def test_platform_flags_equal_those_of_o3de() -> None:
    assert [flag_of(name) for name in ("pc", "linux", "android", "ios", "mac", "server")] == [1, 2, 4, 8, 16, 256]
    assert platforms_in(5) == ("pc", "android")
    assert is_for(1 << 30, "server")
    assert is_for(1 << 31, "pc")
    assert not is_for(1 << 31, "server")
    with pytest.raises(UserError, match="do not support platform 'amiga'"):
        flag_of("amiga")


def test_seed_is_removed_with_its_last_platform() -> None:
    listed = SeedList()
    listed.add(ONE, 7, 1, "a.txt")
    listed.add(ONE, 7, 2, "other")
    assert listed.seeds == [Seed(ONE, 7, 3, "a.txt")]

    assert listed.remove(ONE, 7, 1)
    assert listed.seeds == [Seed(ONE, 7, 2, "a.txt")]
    assert listed.remove(ONE, 7, 2)
    assert listed.seeds == []
    assert not listed.remove(ONE, 7, 2)


def test_new_seed_list_is_written_in_the_json_format_of_the_engine() -> None:
    """The engine omits values that are defaults: sub id 0 and no path."""
    listed = SeedList()
    listed.add(ONE, 0, 255, "")
    listed.add(TWO, 1000, 2, "b.txt")

    assert listed.text() == JSON


@pytest.mark.parametrize("form", [JSON, JSON.replace("\n", "\r\n") + "\r\n", XML, XML.replace("\t", "  ")])
def test_adding_a_seed_changes_no_other_line(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.seed"
    path.write_text(form, newline="")
    listed = SeedList.load(path)
    assert listed.seeds == [Seed(ONE, 0, 255, ""), Seed(TWO, 1000, 2, "b.txt")]
    assert listed.text() == form

    listed.set(listed.seeds[0], flags=255, hint="")
    listed.add(THREE, 4, 1, "c.txt")
    assert listed.text().splitlines()[:10] == form.splitlines()[:10]
    listed.remove(THREE, 4, 1)

    assert listed.text() == form


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot|nothing|value"),
        ("[]", "is not a seed list"),
        ('{"Type": "JsonSerialization", "ClassName": "Other", "ClassData": []}', "is not a seed list"),
        (JSON.replace('"subId": 1000', '"subId": -1'), "a.seed:15:26: '-1' is not a 32-bit number"),
        (JSON.replace("{00000000-0000-0000-0000-000000000001}", "one"), "'one' is not a UUID"),
        (JSON.replace('"assetId"', '"asset"'), "a.seed:6:9: a seed has no asset id"),
        (XML.replace("AssetId", "Other").replace("assetId", "other"), "a seed has no asset id"),
    ],
)  # fmt: skip
def test_error_about_a_damaged_seed_list_names_the_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.seed").write_text(text)

    with pytest.raises(UserError) as refused:
        SeedList.load(tmp_path / "a.seed")

    assert re.search(why, str(refused.value))


def test_seed_list_of_the_engine_may_have_comments_or_no_seeds(tmp_path: Path) -> None:
    path = tmp_path / "a.seed"
    path.write_text("// ours\n" + JSON)
    assert len(SeedList.load(path).seeds) == 2

    for empty in ('"ClassData": [\n    ]', '"ClassData": {}', '"Version": 1'):
        path.write_text(f'{{"Type": "JsonSerialization", "ClassName": "AZStd::vector<SeedInfo, allocator>", {empty}}}')
        assert SeedList.load(path).seeds == []


def test_merged_seed_lists_contain_each_asset_once() -> None:
    one, two = SeedList(), SeedList()
    one.add(ONE, 0, 1, "a")
    two.add(ONE, 0, 2, "b")
    two.add(TWO, 0, 2, "c")

    assert merge_seeds([one, two]) == [Seed(ONE, 0, 3, "a"), Seed(TWO, 0, 2, "c")]

"""Seed lists: platforms as bits, and lists that keep what nobody changed."""

import pytest

from aptui.o3de.bundling import object_stream
from aptui.o3de.bundling.seeds import Seed, SeedList, flag_of, is_for, merge_seeds, platforms_in
from aptui.shared.errors import UserError

ONE, TWO = "{00000000-0000-0000-0000-000000000001}", "{00000000-0000-0000-0000-000000000002}"


def test_platforms_have_the_bits_of_the_engine() -> None:
    assert [flag_of(name) for name in ("pc", "linux", "android", "ios", "mac", "server")] == [1, 2, 4, 8, 16, 256]
    assert platforms_in(5) == ("pc", "android")
    assert is_for(1 << 30, "server")
    assert is_for(1 << 31, "pc")
    assert not is_for(1 << 31, "server")
    with pytest.raises(UserError, match="'amiga' has no bit"):
        flag_of("amiga")


def test_seeds_are_added_for_platforms_and_go_with_the_last_one() -> None:
    listed = SeedList()
    listed.add(ONE, 7, 1, "a.txt")
    listed.add(ONE, 7, 2, "other")
    assert listed.seeds == [Seed(ONE, 7, 3, "a.txt")]

    assert listed.remove(ONE, 7, 1)
    assert listed.seeds == [Seed(ONE, 7, 2, "a.txt")]
    assert listed.remove(ONE, 7, 2)
    assert listed.seeds == []
    assert not listed.remove(ONE, 7, 2)


def test_a_list_that_is_read_again_is_the_same_and_one_seed_more_changes_no_other_line() -> None:
    listed = SeedList()
    listed.add(ONE, 0, 255, "a.txt")
    before = listed.text()
    again = SeedList(object_stream.parse(before))
    assert again.text() == before

    again.add(TWO, 1000, 2, "b.txt")
    again.set(again.seeds[0], flags=255, hint="a.txt")

    assert again.text().startswith(before.removesuffix("\t</Class>\n</ObjectStream>\n\n"))


def test_lists_are_merged_by_asset() -> None:
    one, two = SeedList(), SeedList()
    one.add(ONE, 0, 1, "a")
    two.add(ONE, 0, 2, "b")
    two.add(TWO, 0, 2, "c")

    assert merge_seeds([one, two]) == [Seed(ONE, 0, 3, "a"), Seed(TWO, 0, 2, "c")]

"""Polling without kernel notifications: differences between two listings of a tree, and the count of folders to poll."""

import os

import pytest
from watch_harness import put

from aptui.engine.watch.polling import Listings, survey, undecodable_name

pytestmark = pytest.mark.real


def no():
    return False


@pytest.fixture
def top(tmp_path):
    folder = os.fsencode(tmp_path) + b"/root"
    put(folder + b"/one/a")
    put(folder + b"/two/deep/a")
    return folder


def difference(listings):
    found = listings.compare(no)
    return found.changed, found.appeared, found.gone


def test_first_listing_and_an_equal_second_listing_have_no_differences(top):
    listings = Listings(top)

    assert difference(listings) == (set(), set(), set())
    assert difference(listings) == (set(), set(), set())


@pytest.mark.parametrize(
    "act",
    [
        lambda top: put(top + b"/one/a", b"longer"),
        lambda top: put(top + b"/one/b"),
        lambda top: os.unlink(top + b"/one/a"),
        lambda top: os.rename(top + b"/one/a", top + b"/one/A"),
        lambda top: os.utime(top + b"/one/a", ns=(1, 1)),
        lambda top: os.chmod(top + b"/one/a", 0o600),
        lambda top: os.symlink(b"nowhere", top + b"/one/link"),
        lambda top: put(top + b"/one/b\xff"),
    ],
)
def test_folder_with_different_entries_is_reported(top, act):
    listings = Listings(top)
    listings.compare(no)
    act(top)

    assert difference(listings) == ({top + b"/one"}, set(), set())


def test_new_folder_is_reported_with_its_parent_folder(top):
    listings = Listings(top)
    listings.compare(no)
    put(top + b"/three/a")

    assert difference(listings) == ({top}, {top + b"/three"}, set())


def test_folder_replaced_by_another_folder_of_the_same_name_is_reported(top):
    listings = Listings(top)
    listings.compare(no)
    put(top + b"/two/other/a")
    os.rename(top + b"/one", top + b"/../away")
    os.rename(top + b"/two/other", top + b"/one")

    changed, _appeared, _gone = difference(listings)
    assert {top, top + b"/one"} <= changed


def test_removed_folder_is_reported_without_its_contents(top):
    put(top + b"/two/deep/er/a")
    listings = Listings(top)
    listings.compare(no)
    os.rename(top + b"/two", top + b"/../away")

    assert listings.compare(no).removed == {top + b"/two"}


def test_skipped_or_too_deep_folders_are_not_listed(top):
    skipping, shallow = Listings(top, skips=(top + b"/one",)), Listings(top, is_recursive=False)
    skipping.compare(no)
    shallow.compare(no)
    put(top + b"/one/b")

    assert difference(skipping) == difference(shallow) == (set(), set(), set())


def test_deleted_names_are_reported_if_the_listing_stores_names(top):
    listings = Listings(top, keeps_names=True)
    listings.compare(no)
    os.unlink(top + b"/one/a")
    os.rename(top + b"/two", top + b"/../away")

    _changed, _appeared, gone = difference(listings)
    assert {top + b"/one/a", top + b"/two", top + b"/two/deep/a"} <= gone


def test_missing_top_folder_is_an_error_but_an_interrupted_listing_is_not(top):
    listings = Listings(top)
    listings.compare(no)
    put(top + b"/one/b")
    assert not listings.compare(lambda: True).changed
    os.rename(top, top + b"2")

    with pytest.raises(FileNotFoundError):
        listings.compare(no)


def test_count_of_folders_to_poll_includes_link_targets(top):
    put(top + b"/../outside/x/a")
    os.symlink(top + b"/one", top + b"/link")
    os.symlink(b"..", top + b"/two/loop")
    os.symlink(top + b"/../outside", top + b"/out")
    os.symlink(top + b"/one/a", top + b"/file")
    found = survey(top, is_recursive=True, is_over=no)

    assert found.links == {top + b"/link", top + b"/two/loop", top + b"/out"}
    assert found.folders == 4 + 2
    assert not found.escape
    assert survey(top, is_recursive=False, is_over=no).folders == 1


def test_polling_survey_finds_a_folder_name_that_is_not_utf8(top):
    put(top + b"/\xff/deep/a")

    assert survey(top, is_recursive=True, is_over=no).undecodable == top + b"/\xff"


def test_undecodable_file_or_folder_name_is_found(top):
    assert undecodable_name(top, no) == b""
    put(top + b"/two/deep/b\xff")

    assert undecodable_name(top, no) == top + b"/two/deep/b\xff"

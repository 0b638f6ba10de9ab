"""Intervals of repeated and delayed notifications, tested with a fake clock."""

import itertools
import os

import pytest
from msgspec.structs import replace
from waiting import Clock
from watch_harness import put

from aptui.engine.watch.notifications import ChangeNotification, NotifiedRoot, RootNotifications, WatchTimings

ADDED, MODIFIED, DELETED = 1, 2, 3


@pytest.fixture
def clock():
    return Clock(1000.0)


@pytest.fixture
def reported():
    return []


@pytest.fixture
def hints(tmp_path, clock, reported):
    root = NotifiedRoot(os.fsencode(tmp_path), "a")
    return RootNotifications(root, WatchTimings(clock=clock), reported.append)


def pass_time(clock, hints, seconds, step=0.05):
    end = clock.now + seconds
    while clock.now < end:
        clock.now += step
        hints.notify_due()


def test_lost_notifications_are_reported_at_growing_intervals(clock, hints, reported):
    moments = []
    hints.notify = lambda hint: moments.append(clock.now)
    for _ in range(1200):
        clock.now += 0.05
        hints.report_loss("again")
    pass_time(clock, hints, 100)
    distances = [later - earlier for earlier, later in itertools.pairwise(moments)]

    assert 0.1 <= distances[0] < 0.3
    assert all(later > 1.5 * earlier for earlier, later in itertools.pairwise(distances))
    assert len(moments) < 12
    assert moments[-1] > 1000 + 1200 * 0.05


def test_interval_between_reported_losses_is_short_after_a_quiet_time(clock, hints, reported):
    for _ in range(40):
        clock.now += 0.05
        hints.report_loss("again")
    pass_time(clock, hints, 20)
    reported.clear()
    hints.report_loss("one")
    pass_time(clock, hints, 0.05)
    hints.report_loss("two")
    pass_time(clock, hints, 0.2)

    assert [hint.why for hint in reported] == ["one", "two"]


def test_postponed_report_of_lost_notifications_can_be_sent_at_once(clock, hints, reported):
    hints.report_loss("one")
    hints.report_loss("two")
    assert [hint.why for hint in reported] == ["one"]
    hints.notify_loss()

    assert [hint.why for hint in reported] == ["one", "two"]


def test_periodic_scan_interval_restarts_after_lost_notifications(clock, hints, reported):
    pass_time(clock, hints, 400)
    hints.report_loss("meanwhile")
    pass_time(clock, hints, 590, step=1)
    assert [hint.why for hint in reported] == ["meanwhile"]
    pass_time(clock, hints, 20)

    assert len(reported) == 2


def test_new_folder_is_reported_exactly_twice_if_nothing_else_changes(clock, hints, reported, tmp_path):
    new = os.fsencode(tmp_path) + b"/new"
    os.mkdir(new)
    hints.note_changes([(ADDED, os.fsdecode(new))])
    pass_time(clock, hints, 60)

    assert reported == [ChangeNotification("a", frozenset(), frozenset({new}))] * 2
    assert not hints.has_young()


def test_new_folder_is_reported_repeatedly_during_a_burst_of_changes(clock, hints, reported, tmp_path):
    new = os.fsencode(tmp_path) + b"/new"
    os.mkdir(new)
    hints.note_changes([(ADDED, os.fsdecode(new))])
    for _ in range(60):
        hints.note_changes([(MODIFIED, os.fsdecode(tmp_path) + "/busy")])
        pass_time(clock, hints, 0.05)
    while_busy = sum(new in hint.trees for hint in reported)
    pass_time(clock, hints, 10)

    assert 3 <= while_busy <= 5
    assert sum(new in hint.trees for hint in reported) == while_busy + 1


def test_second_reports_of_consecutive_new_folders_are_combined(clock, hints, reported, tmp_path):
    for number in range(400):
        new = os.fsencode(tmp_path) + b"/%d/%d" % (number % 10, number)
        os.makedirs(new)
        hints.note_changes([(ADDED, os.fsdecode(new))])
        clock.now += 0.0002
    first = len(reported)
    pass_time(clock, hints, 2)

    assert len(reported) - first <= 3


def test_notification_lists_no_path_below_a_tree_that_it_lists(hints, reported, tmp_path):
    top = os.fsencode(tmp_path)
    put(top + b"/t/deep/er/file")
    put(top + b"/t2/file")
    hints.note_changes(
        [(ADDED, os.fsdecode(top + rel)) for rel in (b"/t", b"/t/deep", b"/t/deep/er", b"/t/deep/er/file", b"/t2/file")]
    )

    assert reported == [ChangeNotification("a", frozenset({top + b"/t2/file"}), frozenset({top + b"/t"}))]


def test_deletion_is_reported_only_if_the_path_is_missing(clock, reported, tmp_path):
    top = os.fsencode(tmp_path)
    root = NotifiedRoot(top, "a", wants="deletions", skips=(top + b"/.staging",))
    hints = RootNotifications(root, WatchTimings(clock=clock), reported.append)
    put(top + b"/there")
    os.symlink(b"nowhere", top + b"/link")
    names = ["there", "link", "gone", ".staging/gone"]
    hints.note_changes([(DELETED, os.path.join(tmp_path, name)) for name in names] + [(ADDED, os.path.join(tmp_path, "new"))])

    assert reported == [ChangeNotification("a", frozenset({top + b"/gone"}))]


def test_renamed_products_cost_one_lstat_each_until_a_folder_is_found(clock, reported, tmp_path, monkeypatch):
    """An added path may be a new folder that needs a watch, or a product; only `lstat` shows the difference."""
    checked, lstat = [], os.lstat
    hints = RootNotifications(
        NotifiedRoot(os.fsencode(tmp_path), "a", wants="deletions"), WatchTimings(clock=clock), reported.append
    )
    (tmp_path / "folder").mkdir()
    names = [*map(str, range(50)), "folder", *map(str, range(50, 100))]
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "lexists", checked.append)
        patch.setattr(os, "lstat", lambda path: checked.append(path) or lstat(path))
        hints.note_changes([(ADDED, f"{tmp_path}/{name}") for name in names])
        hints.note_changes([(ADDED, f"{tmp_path}/{name}") for name in names])

    assert not reported
    assert len(checked) == 51


def test_changes_in_a_linked_root_are_reported_under_the_path_of_the_link(clock, reported, tmp_path):
    put(os.fsencode(tmp_path) + b"/real/a")
    os.symlink(tmp_path / "real", tmp_path / "link")
    root = NotifiedRoot(os.fsencode(tmp_path / "link"), "a")
    hints = RootNotifications(root, replace(WatchTimings(), clock=clock), reported.append)
    hints.note_changes([(MODIFIED, str(tmp_path / "link" / "a"))])

    assert reported == [ChangeNotification("a", frozenset({root.path + b"/a"}))]

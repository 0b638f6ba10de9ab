"""The watcher on real folders: saves, new trees, lost notifications, roots that disappear and return, names that are not UTF-8."""

import errno
import os
import shutil
import signal
import threading
from itertools import count

import pytest
from msgspec.structs import replace
from watch_harness import QUICK, Harness, put, watching

from aptui.engine.watch import limits as watch_limits
from aptui.engine.watch.limits import WatchLimits, inotify_descriptors
from aptui.engine.watch.notifications import ALL, CONTENTS, DELETIONS
from aptui.engine.watch.watch_supervisor import WatchSupervisor
from aptui.engine.watch.watcher import NotifiedRoot, Watcher, WatchTimings
from aptui.shared.health import WatchMode

pytestmark = pytest.mark.real

PLENTY = WatchLimits(16384, 100_000, 128)


@pytest.fixture
def top(tmp_path):
    folder = os.fsencode(tmp_path) + b"/root"
    os.mkdir(folder)
    return folder


def native(folder, tag="a", **more):
    return NotifiedRoot(folder, tag, poll=False, **more)


def test_watching_begins_with_a_request_for_a_scan(top):
    with watching(native(top), is_settled=False) as harness:
        assert harness.watcher.health()[0].mode in WatchMode
        harness.until(lambda: bool(harness.hints))

        assert harness.hints[0].is_lost
        assert harness.hints[0].tag == "a"
        assert harness.until_mode(WatchMode.NATIVE).watches == 1


def test_each_creation_write_rename_and_deletion_of_a_file_is_reported(top):
    with watching(native(top)) as harness:
        for act, path in [
            (lambda: put(top + b"/a"), top + b"/a"),
            (lambda: put(top + b"/a", b"more"), top + b"/a"),
            (lambda: os.rename(top + b"/a", top + b"/b"), top + b"/b"),
            (lambda: os.utime(top + b"/b", (1, 1)), top + b"/b"),
            (lambda: os.unlink(top + b"/b"), top + b"/b"),
        ]:
            harness.forget()
            act()
            harness.until(lambda path=path: path in harness.paths())

        assert harness.paths() == {top + b"/b"}


@pytest.mark.parametrize(
    ("save", "names"),
    [
        (lambda top: os.rename(top + b"/a", top + b"/A"), b"aA"),
        (lambda top: os.replace(put(top + b"/.new", b"new"), top + b"/a"), b"a"),
        (lambda top: (os.rename(top + b"/a", top + b"/b"), put(top + b"/a", b"new"), os.unlink(top + b"/b")), b"ab"),
        (lambda top: os.link(put(top + b"/../elsewhere"), top + b"/b"), b"b"),
    ],
    ids=["rename", "save by rename", "save with a backup", "hard link"],
)
def test_each_way_to_save_or_rename_a_file_is_reported(top, save, names):
    put(top + b"/a")
    with watching(native(top)) as harness:
        save(top)
        harness.until(lambda: {top + b"/%c" % name for name in names} <= harness.paths())

        assert not harness.trees()


def test_folder_that_is_moved_into_a_root_is_reported_as_one_tree(top):
    put(top + b"/../other/deep/a")
    with watching(native(top)) as harness:
        os.rename(top + b"/../other", top + b"/in")
        harness.until(lambda: sum(top + b"/in" in hint.trees for hint in harness.hints) >= 2)

        assert harness.trees() == {top + b"/in"}


def test_files_of_a_moved_folder_are_reported_by_new_path(top):
    put(top + b"/one/deep/a")
    with watching(native(top)) as harness:
        os.rename(top + b"/one", top + b"/two")
        harness.until(lambda: sum(top + b"/two" in hint.trees for hint in harness.hints) >= 2)
        harness.forget()
        put(top + b"/two/deep/a", b"new")

        harness.until(lambda: top + b"/two/deep/a" in harness.paths())


def test_every_file_is_reported_if_four_threads_create_folders_at_once(top):
    written, lock = set(), threading.Lock()

    def make(number):
        for tree in range(number, 400, 4):
            for name in range(5):
                path = put(top + b"/%d/a/b/%d/%d" % (tree % 40, tree, name))
                with lock:
                    written.add(path)

    with watching(native(top)) as harness:
        threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        harness.until(lambda: not harness.uncovered(written))
        reported = sum(len(hint.trees) for hint in harness.hints)

        assert len(written) == 2000
        # the limit is 4 × the number of created folders, because loaded machines report some folders repeatedly
        assert reported < 4 * (40 * 3 + 400)


def test_skipped_folder_is_not_reported(top):
    os.mkdir(top + b"/cache")
    os.mkdir(top + b"/cached")
    with watching(native(top, skips=(top + b"/cache",))) as harness:
        put(top + b"/cache/a")
        put(top + b"/cached/a")
        harness.until(lambda: top + b"/cached/a" in harness.paths())

        assert harness.paths() == {top + b"/cached/a"}


def test_nonrecursive_root_reports_direct_children_only(top):
    os.mkdir(top + b"/deep")
    with watching(native(top, is_recursive=False)) as harness:
        put(top + b"/deep/a")
        put(top + b"/a")
        harness.until(lambda: top + b"/a" in harness.paths())

        assert top + b"/deep/a" not in harness.paths()
        assert harness.watcher.health()[0].watches == 1


def test_changes_behind_links_to_folders_are_not_reported(top):
    put(top + b"/real/a")
    put(top + b"/../outside/a")
    os.symlink(top + b"/real", top + b"/link")
    os.symlink(top, top + b"/real/loop")
    os.symlink(top + b"/../outside", top + b"/out")
    with watching(native(top)) as harness:
        put(top + b"/../outside/a", b"new")
        put(top + b"/real/a", b"new")
        harness.until(lambda: top + b"/real/a" in harness.paths())

        assert harness.paths() == {top + b"/real/a"}


def test_a_folder_stays_watched_when_a_link_to_it_is_removed(top):
    put(top + b"/real/a")
    os.symlink(top + b"/real", top + b"/link")
    with watching(native(top)) as harness:
        os.unlink(top + b"/link")
        harness.until(lambda: bool(harness.losses()))
        harness.forget()
        put(top + b"/real/a", b"new")

        harness.until(lambda: top + b"/real/a" in harness.paths())


def test_root_with_a_link_to_very_many_folders_is_polled(top, monkeypatch):
    monkeypatch.setattr("aptui.engine.watch.polling.FOREIGN_FOLDERS", 3)
    for number in range(4):
        os.makedirs(top + b"/../outside/%d" % number)
    os.symlink(top + b"/../outside", top + b"/out")
    with watching(native(top)) as harness:
        assert "'out'" in harness.until_mode(WatchMode.POLLING).detail.replace(os.fsdecode(top) + "/", "")


# Lost notifications.


def test_burst_of_many_changes_is_reported_as_a_possible_loss(top):
    with watching(native(top), settings=replace(QUICK, limits=lambda: WatchLimits(16, 1000, 128))) as harness:
        for number in range(40):
            put(top + b"/%d" % number)

        harness.until(lambda: any("max_queued_events" in why for why in harness.losses()))


def test_burst_of_changes_is_not_a_loss_if_the_queue_is_long(top):
    with watching(native(top), settings=replace(QUICK, limits=lambda: PLENTY)) as harness:
        for number in range(40):
            put(top + b"/%d" % number)
        harness.until(lambda: len(harness.paths()) == 40)

        assert not harness.losses()


def test_stuck_watching_thread_is_reported_as_a_possible_loss(top):
    late = [0.0]
    ticks = count()
    with watching(native(top), settings=replace(QUICK, clock=lambda: next(ticks) * 1e-6 + late[0])) as harness:
        late[0] = 5.0

        harness.until(lambda: any("did not run for" in why for why in harness.losses()))


def test_request_to_check_everything_is_reported_for_every_root(top):
    put(top + b"/one/a")
    put(top + b"/two/a")
    with watching(native(top + b"/one", "one"), native(top + b"/two", "two")) as harness:
        harness.watcher.suspect("woken by SIGCONT")
        harness.until(lambda: len(harness.losses()) == 2)

        assert {hint.tag for hint in harness.hints} == {"one", "two"}
        assert set(harness.losses()) == {"woken by SIGCONT"}


def test_periodic_scan_is_requested(top):
    with watching(native(top), settings=replace(QUICK, rescan_every_s=0.05)) as harness:
        harness.until(lambda: len(harness.losses()) >= 3)

        assert "regular" in harness.losses()[0]


@pytest.mark.parametrize("name", [b"bad\xff", b"\xff\xfe"])
def test_watching_continues_after_a_file_name_that_is_not_utf8(top, name):
    with watching(native(top)) as harness:
        put(top + b"/" + name)
        harness.until(lambda: bool(harness.losses()))
        harness.until_mode(WatchMode.NATIVE)
        harness.forget()
        put(top + b"/good")

        harness.until(lambda: harness.is_covered(top + b"/good"))


def test_root_whose_watch_ends_repeatedly_is_polled(top):
    settings = replace(QUICK, rescan_backoff_s=(0.01, 60.0), failures_before_polling=2)
    with watching(native(top), settings=settings) as harness:
        for number in count():
            put(top + b"/bad\xff", b"%d" % number)
            threading.Event().wait(0.005)
            if harness.watcher.health()[0].mode == WatchMode.POLLING:
                break
        harness.until(lambda: "polling began" in harness.losses())
        harness.forget()
        put(top + b"/worse\xff")
        harness.until(lambda: harness.is_covered(top + b"/worse\xff"))

        assert "is not valid UTF-8" in harness.watcher.health()[0].detail


def test_root_with_a_folder_whose_name_is_not_utf8_is_polled_until_the_folder_is_renamed(top):
    put(top + b"/b\xff/a")
    with watching(native(top), settings=replace(QUICK, retry_names_s=0.1)) as harness:
        assert "is not valid UTF-8, so notifications ended; rename the file" in harness.until_mode(WatchMode.POLLING).detail
        put(top + b"/b\xff/a", b"new")
        harness.until(lambda: harness.paths() == {top + b"/b\xff"})
        os.rename(top + b"/b\xff", top + b"/b")

        harness.until_mode(WatchMode.NATIVE)


def test_folder_removed_from_polled_root_is_reported(top):
    put(top + b"/one/two/a")
    put(top + b"/old/a")
    with watching(NotifiedRoot(top, "t", poll=True)) as harness:
        harness.until_mode(WatchMode.POLLING)
        harness.forget()
        shutil.rmtree(os.fsdecode(top + b"/one"))
        os.rename(top + b"/old", top + b"/new")

        harness.until(lambda: {top + b"/one", top + b"/old"} <= harness.paths())


def test_a_file_with_an_unusual_name_is_reported_by_the_same_name(top):
    names = [b"line\nbreak", b"tab\t", b"\x1b[31m", "ä".encode(), "a\u0308".encode(), b" ", b"-rf", b"[@click=x]", b"\x7f" * 255]
    with watching(native(top)) as harness:
        for name in names:
            put(top + b"/" + name)
        harness.until(lambda: len(harness.paths()) >= len(names))

        assert harness.paths() == {top + b"/" + name for name in names}


# Roots that are deleted, replaced, missing or no longer requested.


def test_deleted_root_is_watched_again_when_it_exists_again(top):
    with watching(native(top)) as harness:
        os.rmdir(top)
        assert "does not exist" in harness.until_mode(WatchMode.GONE).detail
        harness.forget()
        os.mkdir(top)
        harness.until(lambda: bool(harness.losses()))
        harness.until_mode(WatchMode.NATIVE)
        harness.forget()
        put(top + b"/a")

        harness.until(lambda: top + b"/a" in harness.paths())


def test_replaced_root_is_watched_again(top):
    os.mkdir(top + b"2")
    with watching(native(top)) as harness:
        os.rename(top + b"2", top)
        harness.until(lambda: bool(harness.losses()))
        harness.until_mode(WatchMode.NATIVE)
        harness.forget()
        put(top + b"/a")

        harness.until(lambda: top + b"/a" in harness.paths())


def test_root_that_is_missing_at_the_start_is_reported_as_gone(top):
    with watching(native(top + b"/later"), is_settled=False) as harness:
        harness.until_mode(WatchMode.GONE)
        assert not harness.hints
        os.mkdir(top + b"/later")

        harness.until(lambda: bool(harness.losses()))


def test_watcher_keeps_the_roots_that_the_old_and_the_new_set_contain(top):
    for name in (b"/one/a", b"/two/a", b"/three/a"):
        put(top + name)
    one, two, three = (native(top + b"/" + name, name.decode()) for name in (b"one", b"two", b"three"))
    with watching(one, two) as harness:
        harness.watcher.replace([two, three])
        harness.until(lambda: bool(harness.losses()))
        tags = {hint.tag for hint in harness.hints}
        harness.forget()
        for name in (b"/one/a", b"/two/a", b"/three/a"):
            put(top + name, b"new")
        harness.until(lambda: len(harness.paths()) >= 2)

        assert tags == {"three"}
        assert harness.paths() == {top + b"/two/a", top + b"/three/a"}
        assert [root.path for root in harness.watcher.health()] == [os.fsdecode(two.path), os.fsdecode(three.path)]


# Roots that need more inotify watches or instances than the kernel allows.


def test_root_with_more_folders_than_the_limit_of_watches_is_polled(top):
    for number in range(20):
        os.mkdir(top + b"/%d" % number)
    with watching(native(top), settings=replace(QUICK, limits=lambda: WatchLimits(16384, 10, 128))) as harness:
        detail = harness.until_mode(WatchMode.LIMITED).detail
        put(top + b"/3/a")

        harness.until(lambda: top + b"/3" in harness.paths())
        assert "fs.inotify.max_user_watches is 10" in detail
        assert "21" in detail


@pytest.mark.parametrize("wants", [ALL, DELETIONS, CONTENTS])
def test_watch_limit_that_is_reached_while_running_is_reported(top, wants):
    settings = replace(QUICK, limits=lambda: WatchLimits(16384, 10, 128), recheck_s=0.05, limits_check_every_s=0.05)
    with watching(replace(native(top), wants=wants), settings=settings) as harness:
        for number in range(20):
            os.mkdir(top + b"/%d" % number)
        harness.until_mode(WatchMode.LIMITED)
        harness.until(lambda: bool(harness.losses()))


def test_watches_of_a_root_are_set_again_if_some_are_missing(top):
    lie = [0]
    settings = replace(
        QUICK, recheck_s=0.02, limits_check_every_s=0.05, watch_count=lambda fd: max(0, watch_limits.watch_count(fd) - lie[0])
    )
    with watching(native(top), settings=settings) as harness:
        lie[0] = 1
        os.mkdir(top + b"/new")
        harness.until(lambda: any("were not watched" in why for why in harness.losses()))

        harness.until_mode(WatchMode.NATIVE)


def test_a_root_is_watched_again_when_the_limit_is_raised(top):
    limits = [WatchLimits(16384, 0, 128)]
    with watching(native(top), settings=replace(QUICK, limits=lambda: limits[0])) as harness:
        harness.until_mode(WatchMode.LIMITED)
        limits[0] = PLENTY

        harness.until_mode(WatchMode.NATIVE)


def test_root_is_polled_if_no_inotify_descriptor_is_available(top, monkeypatch):
    def refuse(*_arguments):
        raise watch_supervisor.WatchfilesRustInternalError("Too many open files (os error 24)")

    from aptui.engine.watch import watch_supervisor

    monkeypatch.setattr(watch_supervisor, "RustNotify", refuse)
    with watching(native(top)) as harness:
        assert "max_user_instances" in harness.until_mode(WatchMode.LIMITED).detail


def test_root_is_polled_with_the_remedy_if_the_process_has_too_many_open_files(top, monkeypatch):
    def refuse():
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(watch_limits, "inotify_descriptors", refuse)
    with watching(native(top)) as harness:
        assert "ulimit -n" in harness.until_mode(WatchMode.LIMITED).detail
        monkeypatch.undo()


# Polling and mounts.


def test_polled_root_reports_changed_folders_and_new_trees(top):
    put(top + b"/old/a")
    with watching(NotifiedRoot(top, "a", poll=True)) as harness:
        put(top + b"/old/a", b"longer")
        harness.until(lambda: harness.paths() == {top + b"/old"})
        put(top + b"/new/deep/a")
        harness.until(lambda: top + b"/new" in harness.trees())
        harness.forget()
        os.unlink(top + b"/old/a")
        harness.until(lambda: top + b"/old" in harness.paths())

        assert harness.watcher.health()[0].mode == WatchMode.POLLING


def test_turn_reports_health_once_if_no_root_changed(top):
    published = []
    roots = [NotifiedRoot(top + b"/missing%d" % number, "a") for number in range(3)]
    supervisor = WatchSupervisor(QUICK, lambda _notification: None, threading.Event(), threading.Event())

    supervisor.turn(roots, lambda: published.append("first turn"))
    supervisor.turn(roots, lambda: published.append("second turn"))

    assert published == ["first turn"] * 4 + ["second turn"]


def test_polled_root_reports_its_removal_and_its_return(top):
    with watching(NotifiedRoot(top, "a", poll=True)) as harness:
        os.rmdir(top)
        harness.until_mode(WatchMode.GONE)
        harness.forget()
        os.mkdir(top)
        harness.until_mode(WatchMode.POLLING)

        harness.until(lambda: bool(harness.losses()))


@pytest.mark.parametrize(
    ("kind", "mode", "word"),
    [
        (b"nfs4", WatchMode.POLLING, "nfs4"),
        (b"fuse.sshfs", WatchMode.POLLING, "fuse.sshfs"),
        (b"ext4", WatchMode.NATIVE, ""),
        (b"overlay", WatchMode.NATIVE, "overlay"),
    ],
)
def test_watcher_watches_or_polls_a_root_depending_on_its_file_system(top, kind, mode, word):
    text = b"1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / %s rw - %s x rw\n" % (top, kind)
    with watching(NotifiedRoot(top, "a"), settings=replace(QUICK, mountinfo=lambda: text)) as harness:
        assert word in harness.until_mode(mode).detail
        put(top + b"/a")

        harness.until(lambda: harness.is_covered(top + b"/a"))


def test_only_the_network_share_mounted_below_a_watched_root_is_polled(top):
    put(top + b"/share/a")
    text = b"1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / %s/share rw - nfs4 x rw\n" % top
    with watching(NotifiedRoot(top, "a"), settings=replace(QUICK, mountinfo=lambda: text), is_settled=False) as harness:
        harness.until(lambda: "polling began" in harness.losses())
        put(top + b"/share/a", b"new")
        harness.until(lambda: top + b"/share" in harness.paths())

        assert "nfs4" in harness.until_mode(WatchMode.NATIVE).detail


def test_new_mount_below_a_watched_folder_causes_a_new_watch(top):
    texts = [b"1 0 0:1 / / rw - ext4 /dev/x rw\n"]
    with watching(NotifiedRoot(top, "a"), settings=replace(QUICK, mountinfo=lambda: texts[0])) as harness:
        texts[0] += b"2 1 0:2 / %s/share rw - tmpfs x rw\n" % top

        harness.until(lambda: any("mounted" in why for why in harness.losses()))


# The sync cookie.


def cookies_beside(top):
    os.makedirs(top + b"/../cookies", exist_ok=True)
    return os.path.realpath(top + b"/../cookies")


def mark(cookies, name=b"1"):
    path = put(cookies + b"/" + name)
    os.unlink(path)
    return path


def test_sync_cookie_passes_after_all_earlier_changes_were_reported(top):
    cookies = cookies_beside(top)
    for name in (b"one", b"two", b"three"):
        os.mkdir(top + b"/" + name)
    roots = [native(top + b"/" + name, name.decode()) for name in (b"one", b"two", b"three")]
    with watching(*roots, settings=replace(QUICK, cookie_folder=cookies)) as harness:
        for lap in range(20):
            written = [put(top + b"/%s/%d" % (name, lap)) for name in (b"one", b"two", b"three")]
            path = mark(cookies, b"%d" % lap)
            harness.until(lambda path=path: path in harness.paths())
            before = [hint.paths for hint in harness.hints if hint.tag != "cookie" or path in hint.paths]
            passed = next(number for number, paths in enumerate(before) if path in paths)

            assert set(written) <= set().union(*before[:passed])
        assert sum(hint.tag == "cookie" for hint in harness.hints) == 20
        assert [root.watches for root in harness.watcher.health()] == [1, 1, 1]


def test_sync_cookie_waits_for_the_repeated_report_of_new_folders(top):
    cookies = cookies_beside(top)
    with watching(native(top), settings=replace(QUICK, cookie_folder=cookies)) as harness:
        os.mkdir(top + b"/new")
        path = mark(cookies)
        harness.until(lambda: path in harness.paths())
        harness.watcher.close()

        before = harness.hints[: next(number for number, hint in enumerate(harness.hints) if path in hint.paths)]
        assert sum(top + b"/new" in hint.trees for hint in before) >= 2


def test_sync_cookie_inside_a_root_is_not_reported_as_a_changed_path(top):
    os.mkdir(top + b"/cookies")
    with watching(native(top, wants="deletions"), settings=replace(QUICK, cookie_folder=top + b"/cookies")) as harness:
        path = mark(top + b"/cookies")
        harness.until(lambda: path in harness.paths())

        assert {hint.tag for hint in harness.hints} == {"cookie"}


# Roots with `wants="deletions"` or `wants="contents"`.


@pytest.mark.parametrize("poll", [False, True])
def test_root_that_wants_deletions_reports_only_deletions(top, poll):
    for name in (b"/a", b"/b", b"/c"):
        put(top + name)
    with watching(NotifiedRoot(top, "cache", wants="deletions", poll=poll)) as harness:
        put(top + b"/new")
        put(top + b"/tmp")
        os.replace(top + b"/tmp", top + b"/a")
        os.unlink(top + b"/b")
        harness.until(lambda: top + b"/b" in harness.paths())

        assert harness.paths() <= {top + b"/b", top + b"/tmp"}
        assert not harness.trees()


@pytest.mark.parametrize("poll", [False, True])
def test_root_without_notifications_of_new_folders_reports_paths_only(top, poll):
    for name in (b"/a", b"/b"):
        put(top + name)
    with watching(NotifiedRoot(top, "cache", wants="contents", poll=poll)) as harness:
        os.unlink(top + b"/b")
        put(top + b"/new/file")
        harness.until(lambda: top + b"/b" in harness.paths() and top + b"/new" in harness.paths())
        put(top + b"/a")
        harness.until(lambda: {top, top + b"/a"} & harness.paths())

        assert not harness.trees()


# The end of a watcher, exceptions in its listener, and its signal.


def test_closed_watcher_leaves_no_thread_and_no_descriptor(top):
    put(top + b"/one/a")
    put(top + b"/two/a")
    threads, inotify, descriptors = set(threading.enumerate()), inotify_descriptors(), set(os.listdir("/proc/self/fd"))
    with watching(native(top + b"/one", "one"), NotifiedRoot(top + b"/two", "two", poll=True)) as harness:
        assert len(inotify_descriptors()) == len(inotify) + 1
        harness.watcher.close()
        harness.watcher.close()

        assert set(threading.enumerate()) == threads
        assert inotify_descriptors() == inotify
        harness.until(lambda: set(os.listdir("/proc/self/fd")) <= descriptors)


def test_a_watcher_can_be_closed_before_it_was_started(top):
    harness = Harness()
    Watcher([native(top)], harness.report, harness.report_health).close()

    assert not harness.hints


def test_a_watcher_that_is_closed_at_once_ends(top):
    harness = Harness()
    watcher = Watcher([native(top)], harness.report, harness.report_health, settings=WatchTimings())
    watcher.start()
    watcher.close()

    assert not [thread for thread in threading.enumerate() if thread.name in ("watch", "keep")]


def test_exception_in_the_listener_does_not_end_watching(top):
    with watching(native(top)) as harness:
        real, failures = harness.report, []

        def break_once(hint):
            if not failures:
                failures.append(hint)
                raise RuntimeError("listener broke")
            real(hint)

        for watched in harness.watcher._roots.watched:
            watched.root_notifications.notify = break_once
        put(top + b"/a")
        harness.until(lambda: any("listener broke" in why for why in harness.losses()))
        harness.forget()
        put(top + b"/b")

        harness.until(lambda: harness.is_covered(top + b"/b"))
        assert any("listener broke" in root.detail for health in harness.health for root in health)
        harness.until_mode(WatchMode.NATIVE)


def test_changes_are_found_even_if_the_kernel_sends_no_sigio_signal(top, monkeypatch):
    monkeypatch.setattr("aptui.engine.watch.watch_supervisor._F_SETOWN_EX", -1)
    with watching(native(top)) as harness:
        put(top + b"/a")

        harness.until(lambda: top + b"/a" in harness.paths())


def test_signal_of_the_watcher_does_not_call_another_handler(top):
    met = []
    before = signal.signal(signal.SIGIO, lambda *_: met.append(1))
    try:
        with watching(native(top)) as harness:
            for number in range(20):
                put(top + b"/%d" % number)
            harness.until(lambda: len(harness.paths()) == 20)
    finally:
        signal.signal(signal.SIGIO, before)

    assert not met

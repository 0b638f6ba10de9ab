"""The live engine over real folders: detected changes, the start of jobs, holds, and recovery from errors."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import shutil
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from disk_project import COPIES
from live_project import LiveProject, Ticker, own_live_project
from msgspec.structs import replace
from scripted_source import one_product

from aptui.config import dirs, load
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database, identity_of
from aptui.core.notices import JobChanged, Notice
from aptui.engine.cache import cache as cache_harness
from aptui.engine.cache.cache import Cache
from aptui.engine.live import changes, supervisor, writing
from aptui.engine.live.reload import ConfigurationReload, ReloadCallback
from aptui.engine.live.requests import reachable
from aptui.engine.live.supervisor import EngineSupervisor
from aptui.engine.loop import scans
from aptui.engine.loop.rest import RestRecorder
from aptui.engine.watch.watcher import Watcher
from aptui.link import places, port
from aptui.shared.errors import HostError, InternalError, UserError
from aptui.shared.health import WatchMode

pytestmark = pytest.mark.real


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    return own_live_project(tmp_path, monkeypatch, COPIES, {"assets/a.txt": "a"})


@pytest.fixture
def retrying(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    """A project whose engine reopens without delay after an error."""
    monkeypatch.setattr(supervisor, "_RETRY_S", (0.01, 0.1))
    return project


# ----------------------------------------------------------------------------------------------------- detection of changes


def test_products_change_when_files_are_added_or_renamed_or_deleted(project: LiveProject) -> None:
    with project.running():
        project.save("new.txt", "new")
        project.move("assets/new.txt", "assets/other.txt")
        project.until_product("linux/other.txt", "new")
        project.until_product("linux/new.txt", None)
        project.save("other.txt", None)


def test_a_file_that_is_saved_by_a_rename_is_processed_once(project: LiveProject) -> None:
    with project.running():
        project.forget()
        project.write("assets/a.txt~tmp", "atomic")
        project.path("assets/a.txt~tmp").rename(project.path("assets/a.txt"))
        project.until_product("linux/a.txt", "atomic")

        assert project.runs == Counter({"a.txt:data": 1})


def test_folder_moved_into_a_scan_folder_gets_products_until_moved_out(project: LiveProject) -> None:
    for number in range(20):
        project.write(f"elsewhere/deep/er/{number}.txt", str(number))
    with project.running():
        project.move("elsewhere", "assets/tree")
        project.until_product("linux/tree/deep/er/19.txt", "19")
        assert len(list(project.cache.glob("linux/tree/deep/er/*.txt"))) == 20
        project.move("assets/tree", "elsewhere")
        project.until(lambda: not (project.cache / "linux/tree").exists())


def test_products_change_when_a_file_and_a_folder_replace_each_other(project: LiveProject) -> None:
    project.write("assets/x/y.txt", "below")
    with project.running():
        project.delete("assets/x")
        project.save("x.txt/z.txt", "deep")
        project.delete("assets/x.txt")
        project.save("x.txt", "flat")


def test_engine_still_notices_changes_after_an_undecodable_file_name(project: LiveProject) -> None:
    with project.running():
        project.write(b"assets/\xff.txt", "strange")
        project.until(lambda: len(list(project.cache.glob("linux/*.txt"))) == 2)
        project.save("a.txt", "after")


def test_deleted_product_is_made_again_even_if_the_engine_once_deleted_it(project: LiveProject) -> None:
    with project.running():
        project.save("a.txt", None)
        project.save("a.txt", "again")
        (project.cache / "linux/a.txt").unlink()
        project.until_product("linux/a.txt", "again")


def test_message_about_a_polled_folder_names_the_reason_and_a_remedy(project: LiveProject) -> None:
    project.write(b"assets/\xff/b.txt", "b")
    with project.running() as live:
        project.until(lambda: any("rename the file" in text for text in project.messages))

        [detail] = [root.detail for root in live.health.roots if root.mode is WatchMode.POLLING]
        assert any(detail in text and "is polled" in text for text in project.messages)
        project.delete(b"assets/\xff")
        project.until_product("linux/a.txt", "a")


def test_rescan_finds_changes_whose_notifications_were_lost(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    unheard: list[object] = []
    monkeypatch.setattr(changes.ChangeTracker, "receive", lambda _self, hint: unheard.append(hint))
    with project.running() as live:
        project.write("assets/a.txt", "unheard")
        project.until(lambda: unheard)
        assert project.product("linux/a.txt") == b"a"

        live.watching.rescan(retries=False)
        project.until_product("linux/a.txt", "unheard")


def test_engine_that_skips_its_start_scan_notices_only_later_changes(project: LiveProject) -> None:
    with project.running():
        pass
    project.write("assets/a.txt", "while nobody looked")
    with project.running(skips_start_scan=True):
        project.save("b.txt", "b")


def test_ignored_files_and_folders_cause_no_runs_and_no_products(project: LiveProject) -> None:
    with project.running():
        project.forget()
        project.edit({"assets/.git/objects/ab/c.txt": "object", "assets/a.txt~": "backup"})
        project.save("a.txt", "seen")

        assert project.runs == Counter({"a.txt:data": 1})
        assert not (project.cache / "linux/.git").exists()


def test_a_recently_saved_file_is_checked_twice_and_processed_once(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_SECOND_CHECK_S", 0.3)
    monkeypatch.setattr(scans, "RACY_NS", 200_000_000)
    with project.running() as live:
        project.forget()
        project.save("a.txt", "fresh")
        assert live.engine is not None
        archive = live.engine.archive
        project.until(lambda: project.is_idle and not archive.folders.list_distrusted_folders())

        assert project.runs == Counter({"a.txt:data": 1})


class Ears:
    """A server that records all notices in `received`."""

    def __init__(self) -> None:
        self.received: list[Notice] = []

    def publish(self, notice: Notice, _epoch: int, _seq: int) -> None:
        self.received.append(notice)

    def close(self) -> None: ...

    def poll(self, _now: float) -> None: ...

    flush = next_deadline = connections = lambda *_: None


def test_only_a_slow_job_is_reported_as_processing(project: LiveProject) -> None:
    project.config(
        COPIES.replace(
            "]}]",
            "]}, {name: slow, patterns: ['*.s'], version: 1, command: 'sleep 0.4; cp {source} {products_dir}/s', products: ['s']}]",
        )
    )
    with project.running() as live:
        ears = Ears()
        live.server = ears  # type: ignore[assignment]
        live.follow(is_followed=True)
        project.save("a.txt", "quick")
        project.write("assets/b.s", "slow")
        project.until_product("linux/s", "slow")

    expected = {
        name: [news.status for news in ears.received if isinstance(news, JobChanged) and news.source == name]
        for name in ("a.txt", "b.s")
    }
    assert expected["a.txt"][-1] == "completed"
    assert len(expected["a.txt"]) <= 2
    assert expected["b.s"][-2:] == ["processing", "completed"]


# ------------------------------------------------------------------------------------------ files that a program is writing


def test_a_file_that_is_open_for_writing_is_processed_after_it_is_closed(project: LiveProject) -> None:
    with project.running() as live:
        project.forget()
        with project.path("assets/a.txt").open("wb", buffering=0) as file:
            file.write(b"half")
            project.until(lambda: live.watching.unfinished)
            project.write("assets/b.txt", "b")
            project.until(lambda: project.product("linux/b.txt") == b"b")
            assert project.product("linux/a.txt") == b"a"
            file.write(b" and half")
        project.until_product("linux/a.txt", "half and half")

        assert project.runs["a.txt:data"] == 1


def watch_for_absence(project: LiveProject, name: str) -> list[float]:
    """Return a list that gets an entry whenever the product is missing after a turn of the loop."""
    missing: list[float] = []

    def check(now: float) -> None:
        if project.product(name) is None:
            missing.append(now)

    project.live.parts.append(Ticker(check=check))
    return missing


@pytest.mark.parametrize("gap_s", [0.0, 0.005, 0.02, 0.05, 0.1])
def test_a_file_keeps_its_product_when_it_is_saved_twice_in_a_row(project: LiveProject, gap_s: float) -> None:
    with project.running():
        missing = watch_for_absence(project, "linux/a.txt")
        for number in range(6):
            project.write("assets/a.txt", f"first {number}")
            again_at = time.monotonic() + gap_s
            project.until(lambda at=again_at: time.monotonic() >= at)  # type: ignore[misc]  # the moment of this round
            project.save("a.txt", f"second {number}")

        assert not missing


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_file_that_is_deleted_and_written_again_keeps_its_product(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch, is_renamed: bool
) -> None:
    stopped_at: list[float] = []  # the engine's clock is stopped while the file is missing, because a busy machine may be slow
    with project.running() as live:
        poll = live.watching.poll
        monkeypatch.setattr(live.watching, "poll", lambda now: poll(stopped_at[0] if stopped_at else now))
        missing = watch_for_absence(project, "linux/a.txt")
        for number in range(6):
            stopped_at.append(time.monotonic())
            if is_renamed:
                project.path("assets/a.txt").rename(project.path("assets/a.txt~"))
            else:
                project.path("assets/a.txt").unlink()
            again_at = time.monotonic() + 0.01
            project.until(lambda at=again_at: time.monotonic() >= at)  # type: ignore[misc]  # the moment of this round
            project.write("assets/a.txt", f"anew {number}")
            stopped_at.clear()
            project.until_product("linux/a.txt", f"anew {number}")

        assert not missing


def test_file_is_processed_without_delay_if_its_writer_ends_during_the_check(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.running() as live:
        project.forget()
        ended, waited = [], []
        is_open, put_off = writing.is_open_for_writing, live.watching._writing._put_off

        def ends_before_the_lease(path: bytes | str) -> bool | None:
            if not ended and os.fsdecode(path).endswith("a.txt"):
                ended.append(project.write("assets/a.txt", "whole"))
            return is_open(path)

        monkeypatch.setattr(writing, "is_open_for_writing", ends_before_the_lease)
        monkeypatch.setattr(live.watching._writing, "_put_off", lambda *words: (waited.append(words), put_off(*words)))
        project.write("assets/a.txt", "ha")
        project.until_product("linux/a.txt", "whole")

        assert ended
        assert not waited


def test_a_file_that_keeps_changing_is_processed_at_most_twice(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    # The engine's clock stands still while the test writes the file, so that slow writes on a busy machine do not matter.
    stopped_at: list[float] = []
    with project.running() as live:
        poll = live.watching.poll
        monkeypatch.setattr(live.watching, "poll", lambda now: poll(stopped_at[0] if stopped_at else now))
        project.forget()
        stopped_at.append(time.monotonic())
        text = ""
        for number in range(12):
            text += f"{number} "
            project.write("assets/a.txt", text)
            for _turn in range(3):
                project.live.parts.append(Ticker(0.005))
                project.live.turn()
                project.live.parts.pop()
        stopped_at.clear()
        project.until_product("linux/a.txt", text)

        assert project.runs["a.txt:data"] <= 2


def test_the_result_of_a_run_is_discarded_if_its_source_is_being_written(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.running() as live:
        answers = [True]
        monkeypatch.setattr(live.watching, "is_being_written", lambda _path, **_words: bool(answers and answers.pop()))
        project.forget()
        project.save("a.txt", "once more")

        assert not answers
        assert project.runs == Counter({"a.txt:data": 1})


# -------------------------------------------------------------------------------------------- delayed processing of changes


def test_changes_during_a_git_lock_are_processed_after_the_lock_is_removed(project: LiveProject) -> None:
    (project.root / ".git").mkdir()
    with project.running() as live:
        project.forget()
        lock = project.write(".git/index.lock", "")
        for number in range(10):
            project.write(f"assets/{number}.txt", str(number))
        project.write("assets/a.txt", "first version")
        project.until(lambda: live.watching.holds == (str(lock),))
        project.until(lambda: live.health.holds)
        assert not project.runs
        project.write("assets/a.txt", "second version")
        project.delete(".git/index.lock")
        project.until_product("linux/a.txt", "second version")
        project.until_product("linux/9.txt", "9")

        assert project.runs == Counter({"a.txt:data": 1, **{f"{number}.txt:data": 1 for number in range(10)}})
        assert not live.health.holds


def test_changes_are_delayed_until_the_client_that_holds_them_leaves(project: LiveProject) -> None:
    with project.running() as live:
        project.forget()
        assert project.ask(port.Hold("make world"), client=7).answered == {}
        project.write("assets/a.txt", "held")
        project.until(lambda: live.watching._paths)
        assert live.health.holds == ("make world",)
        assert not project.runs
        project.handler.forget_client(7)
        project.until_product("linux/a.txt", "held")

        assert project.runs == Counter({"a.txt:data": 1})


def test_changes_held_back_by_a_hold_request_do_not_wake_the_engine(project: LiveProject) -> None:
    with project.running() as live:
        project.write("assets/a.txt", "looked at once more by and by")
        project.until(lambda: live.watching._second_checks)
        project.until_idle()
        project.ask(port.Hold("make world"), client=7)
        project.write("assets/a.txt", "held")
        project.until(lambda: live.watching._paths)
        much_later = max(live.watching._second_checks.values()) + 1

        assert (live.watching.next_deadline(much_later) or math.inf) > much_later

        with project.path("assets/b.txt").open("wb"):
            project.handler.forget_client(7)
            project.until(lambda: live.watching.unfinished)
            live._break_down(HostError("the disk is full"))
            assert live.watching.next_deadline(much_later) is None
            assert live._deadline(much_later) == live._retry_at


# ----------------------------------------------------------------------------------------------------------------- products


def test_live_engine_makes_a_product_again_that_a_user_deleted(project: LiveProject) -> None:
    project.write("assets/deep/b.txt", "b")
    with project.running():
        project.forget()
        (project.cache / "linux/a.txt").unlink()
        project.until_product("linux/a.txt", "a")
        shutil.rmtree(project.cache / "linux/deep")
        project.until_product("linux/deep/b.txt", "b")

        assert project.runs == Counter({"a.txt:data": 1, "deep/b.txt:data": 1})


def test_product_of_a_deleted_source_is_not_made_again(project: LiveProject) -> None:
    project.write("assets/b.txt", "b")
    with project.running():
        project.forget()
        project.save("b.txt", None)
        project.settle()

        assert not [run for run in project.runs if run.startswith("b.txt")]


# ------------------------------------------------------------------------------------------------------------ configuration


def test_changed_configuration_is_applied_and_runs_only_affected_jobs(project: LiveProject) -> None:
    project.write("assets/b.dat", "b")
    with project.running():
        project.forget()
        project.config(COPIES.replace("]}]", "]}, {name: more, copy: ['*.dat']}]"))
        project.until_product("linux/b.dat", "b")

        assert project.runs == Counter({"b.dat:more": 1})
        assert any("configuration was reloaded" in text for text in project.messages)


def test_change_of_the_configuration_before_its_watch_starts_is_applied(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("assets/b.dat", "b")
    start = Watcher.start

    def start_late(watcher: Watcher) -> None:
        project.config(COPIES.replace("]}]", "]}, {name: more, copy: ['*.dat']}]"))
        start(watcher)

    monkeypatch.setattr(Watcher, "start", start_late)
    with project.running():
        project.until_product("linux/b.dat", "b")


def test_configuration_change_does_not_retry_failed_jobs(project: LiveProject) -> None:
    settings = COPIES.replace("]}]", "]}, {name: bad, patterns: ['*.bad'], command: 'false'}%s]")
    project.edit({"assets/b.bad": "b", "assets/b.dat": "b"})
    project.config(settings % "")
    with project.running():
        project.forget()
        project.config(settings % ", {name: more, copy: ['*.dat']}")
        project.until_product("linux/b.dat", "b")

        assert project.runs == Counter({"b.dat:more": 1})


SLOW = """
scan_folders: [{name: game, path: assets}]
builders: [{name: slow, patterns: ["*.slow"], command: "sleep 1.5 && cp {source} {products_dir}/o", products: ["o"]}]
"""


@pytest.mark.parametrize(
    "setting", ["limits: {process: 100ms}", "checks: {small: {files: ['*.slow'], bytes: '<= 1', level: block}}"]
)
def test_removed_setting_reruns_the_jobs_that_it_made_fail(project: LiveProject, setting: str) -> None:
    project.write("assets/a.slow", "text")
    project.config(f"{SLOW}{setting}\n")
    with project.running():
        assert project.runs == Counter({"a.slow:slow!": 1})
        assert project.product("linux/o") is None
        project.forget()
        project.config(SLOW)

        project.until_product("linux/o", "text")

        assert project.runs == Counter({"a.slow:slow": 1})


def test_broken_configuration_is_reported_and_is_not_applied(project: LiveProject) -> None:
    with project.running() as live:
        project.config(COPIES + "builder: []\n")
        project.until(lambda: live.health.configuration)
        assert "aptui.yaml:4" in live.health.configuration
        project.save("a.txt", "still")
        project.config(COPIES)
        project.until(lambda: not live.health.configuration)


def test_change_of_a_project_builder_runs_only_the_jobs_of_the_builder(project: LiveProject) -> None:
    source = one_product("words", "*.words", "data = request.read_source() + b'%s'", product="'w.out'")
    project.edit({"builders/words.py": source % "1", "assets/w.words": "w"})
    with project.running():
        project.until_product("linux/w.out", "w1")
        project.forget()
        project.write("builders/words.py", source % "22")
        project.until_product("linux/w.out", "w22")

        assert {run for run in project.runs if not run.startswith("w.words:CreateJobs")} == {"w.words:words"}


def test_change_of_the_cache_folder_needs_a_restart_of_the_engine(project: LiveProject) -> None:
    with project.running() as live:
        project.config(COPIES + "cache: Elsewhere\n")
        project.until(lambda: "restart the engine" in live.health.configuration)


# ------------------------------------------------------------------------------------------------------ errors and recovery


@pytest.mark.parametrize(("error", "text"), [(HostError("the disk is full"), "the disk is full"), (KeyError("a bug"), "KeyError")])
def test_engine_reports_an_error_of_the_loop_and_opens_again(
    retrying: LiveProject, monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    with retrying.running() as live:
        monkeypatch.setattr(live.engine, "turn", mock.Mock(side_effect=error))
        live.turn()
        assert live.engine is None
        retrying.until(lambda: text in live.health.disk)
        retrying.save("a.txt", "when all is well again")
        assert not live.health.disk


@pytest.mark.parametrize(
    ("place", "name", "value", "text"),
    [
        (cache_harness, "RESERVE_BYTES", 1 << 62, "is full"),
        (os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY, f_bavail=1 << 40, f_frsize=4096), "read-only"),
    ],
)
def test_engine_continues_when_an_unwritable_cache_is_writable_again(
    retrying: LiveProject, monkeypatch: pytest.MonkeyPatch, place: object, name: str, value: object, text: str
) -> None:
    with retrying.running() as live:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            live.pause(True)
            retrying.write("assets/a.txt", "when it can be written")
            retrying.until(lambda: text in live.health.disk)
            live.pause(False)
        retrying.until_product("linux/a.txt", "when it can be written")


def test_deleted_or_replaced_database_is_reported_when_idle(retrying: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    project = retrying
    monkeypatch.setattr(supervisor, "_OWN_FILES_CHECK_S", 0.01)
    with project.running() as live:
        database = asset_database(live.config.cache_dir)
        away = database.rename(database.with_name("away"))
        project.until(lambda: "was deleted: restore the file, or run 'aptui rescan'" in live.health.database)
        away.rename(database)
        project.until(lambda: not live.health.database)
        copied = away.with_name("copied")
        copied.write_bytes(database.read_bytes())
        copied.rename(database)
        project.until(lambda: "was replaced: run 'aptui rescan'" in live.health.database)

        project.ask(port.RescanSources())

        project.until(lambda: not live.health.database and project.is_idle)
        assert [text for text in project.messages if "the asset database" in text][:2] == [
            "the asset database was deleted: restore the file, or run 'aptui rescan' to rebuild everything",
            "the asset database was replaced: run 'aptui rescan' to continue with the new database",
        ]


def test_engine_makes_its_socket_and_record_again_when_their_folder_was_deleted(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_OWN_FILES_CHECK_S", 0.01)
    with project.running() as live, reachable(live):
        cache = live.config.cache_dir
        shutil.rmtree(places.engine_dir(cache))
        assert places.engine_of(cache) is None

        project.until(lambda: places.engine_of(cache))

        with socket.socket(socket.AF_UNIX) as client:
            client.connect(places.listening_at(cache))
            project.until(lambda: live.server is not None and live.server.next_deadline() is not None, "a client is connected")
        assert [record.cache for record in places.engines()] == [str(cache)]


def test_epoch_of_the_engine_increases_with_a_new_database(retrying: LiveProject) -> None:
    with retrying.running() as live:
        assert live.engine is not None
        before = live.engine.epoch
        asset_database(live.config.cache_dir).unlink()
        retrying.save("a.txt", "in another database")

        assert live.engine is not None
        assert live.engine.epoch > before, "by the epoch a client distinguishes notices of the old and of the new database"


def test_retry_delay_of_a_failed_engine_grows_until_an_engine_is_idle(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_RETRY_S", (0.01, 60.0))
    with project.running() as live:
        project.settle()
        live._break_down(HostError("the disk is full"))
        live._try_again()
        live._break_down(HostError("the disk is full"))
        assert live._retry_s == 0.04
        project.until(lambda: live._retry_s == 0.01)
        assert not live.health.disk


@pytest.mark.parametrize("broken", ["follow_configuration", "poll"])
def test_engine_whose_every_turn_raises_an_error_sleeps_between_its_attempts(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    with project.running() as live:
        clock = SimpleNamespace(now=time.monotonic())
        select = live.selector.select

        def sleep(wait_s: float | None = None) -> object:
            clock.now += wait_s or 0.0
            return select(0.0)

        monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: clock.now, time_ns=time.time_ns))
        monkeypatch.setattr(live.selector, "select", sleep)
        monkeypatch.setattr(live.roots, broken, mock.Mock(side_effect=OSError(errno.EMFILE, "too many open files")))
        monkeypatch.setattr(live, "_engine", mock.Mock(side_effect=HostError("the cache cannot be opened")))
        live.reload()
        live.adopt(live.config)

        for _turn in range(40):
            live.turn()

        assert clock.now - time.monotonic() > 5 * 30.0
        assert len(project.messages) < 10, "an error that lasts is reported once"


def test_engine_opens_again_after_the_folder_of_a_platform_could_not_be_made(
    retrying: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def refuse(path: Path, *arguments: object, **named: object) -> None:
        if path.name == "linux":
            raise OSError(errno.EDQUOT, "Disk quota exceeded", str(path))
        make(path, *arguments, **named)  # type: ignore[arg-type]

    with retrying.running() as live:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "mkdir", refuse)
            live._break_down(HostError("the disk is full"))
            retrying.until(lambda: "Disk quota exceeded" in live.health.disk)

        retrying.until(lambda: not live.health.disk)
        retrying.save("a.txt", "when there is space again")


def test_configuration_is_applied_although_the_idle_state_of_the_engine_cannot_be_recorded(
    retrying: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with retrying.running() as live:
        monkeypatch.setattr(live.engine, "settle", mock.Mock(side_effect=HostError("the asset database is locked")))
        retrying.config(COPIES + 'ignore: ["*.tmp"]\n')
        live.reload()
        retrying.until(lambda: live.config.project.ignore_regex and retrying.is_idle)

        retrying.save("a.txt", "with the new configuration")


def test_engine_that_a_request_opens_again_handles_changes_at_once(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    with project.running() as live:
        monkeypatch.setattr(supervisor, "_RETRY_S", (0.0, 600.0))
        live._retry_s = 600.0
        live._break_down(HostError("the disk is full"))
        with monkeypatch.context() as patched:
            patched.setattr(live.roots, "poll", mock.Mock(side_effect=OSError(errno.EMFILE, "too many open files")))
            live.wake()
            live.turn()

        assert live.working_engine() is live.engine
        project.save("a.txt", "after the request")


def test_reload_is_answered_although_the_folders_to_watch_cannot_be_listed(
    retrying: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[str, bool]] = []
    with retrying.running() as live:
        monkeypatch.setattr(live.roots, "follow_configuration", mock.Mock(side_effect=HostError("a folder cannot be read")))
        live.reload(lambda error, is_changed: answers.append((error, is_changed)))
        retrying.until(lambda: answers)

    assert answers == [("", False)]


def test_reload_that_is_requested_during_a_reading_is_answered_by_the_next_reading(tmp_path: Path) -> None:
    """The first reading may have begun before the user's change."""
    rereading = ConfigurationReload(mock.Mock(side_effect=UserError("wrong")), lambda: None)
    first, second = mock.Mock(), mock.Mock()

    def take() -> tuple[ReloadCallback, ...]:
        assert rereading._thread is not None
        rereading._thread.join()
        loaded = rereading.take()
        assert loaded is not None
        return loaded.callbacks

    rereading.want_now(first)
    rereading.begin(tmp_path)
    rereading.want_now(second)
    answered_first = take()
    rereading.begin(tmp_path)

    assert (answered_first, take()) == ((first,), (second,))


def test_reload_begins_later_if_no_thread_can_be_started(retrying: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[tuple[str, bool]] = []
    with retrying.running() as live, monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError("can't start new thread")))
        live.reload(lambda error, is_changed: answers.append((error, is_changed)))
        retrying.until(lambda: "can't start new thread" in live.health.disk)
        patched.undo()
        retrying.until(lambda: answers)

    assert answers == [("", False)]


class FullDisk(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")


def test_engine_continues_if_the_traceback_of_a_bug_cannot_be_printed(
    retrying: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with retrying.running() as live:
        monkeypatch.setattr(sys, "stderr", FullDisk())
        monkeypatch.setattr(live.engine, "turn", mock.Mock(side_effect=KeyError("a bug")))
        retrying.until(lambda: "KeyError" in live.health.disk)
        retrying.save("a.txt", "when all is well again")


def test_reason_of_exhausted_descriptors_has_the_remedy_and_is_reported_once(
    retrying: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def announce() -> None:
        raise HostError("the record cannot be written", hint="check its permissions") from OSError(errno.EMFILE, "no descriptors")

    with retrying.running() as live:
        live.openings.append(announce)
        live._break_down(KeyError("a bug"))
        retrying.until(lambda: live._retry_s >= 0.08)

        assert (
            live.health.disk == "the record cannot be written; restart the engine with a higher limit of open files ('ulimit -n')"
        )
        assert sum("the record" in text for text in retrying.messages) == 1


def test_retry_delay_grows_while_the_idle_state_cannot_be_recorded(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_RETRY_S", (0.01, 60.0))
    monkeypatch.setattr(supervisor, "_SETTLE_AFTER_S", 0.0)
    with project.running() as live:
        monkeypatch.setattr(RestRecorder, "record", mock.Mock(side_effect=HostError("the catalog cannot be read")))
        project.write("assets/a.txt", "changed")

        project.until(lambda: live._retry_s >= 0.08)


def test_engine_continues_with_its_configuration_if_its_installation_is_deleted(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.running() as live:
        monkeypatch.setattr(dirs, "data_dir", mock.Mock(side_effect=InternalError("the 'config' folder is missing")))
        monkeypatch.setattr(load, "data_dir", dirs.data_dir)
        project.config(COPIES + "quality: {}\n")
        project.until(lambda: "the 'config' folder is missing" in live.health.configuration)

        project.save("a.txt", "changed")
        assert not any("tries again" in text for text in project.messages)


def test_health_and_log_name_an_error_although_the_next_attempt_succeeds(project: LiveProject) -> None:
    with project.running() as live:
        live._retry_s = 0.0
        live._break_down(HostError("the disk is full"))

        assert live.health.disk == "the disk is full"
        assert "the disk is full" in project.path("Cache/.aptui/logs/aptui.log").read_text()
        assert sum("the disk is full" in text for text in project.messages) == 1
        project.until(lambda: not live.health.disk)


def test_recreated_project_folder_is_used_with_its_configuration(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_RETRY_S", (0.01, 60.0))
    with project.running() as live:
        shutil.rmtree(project.root)
        project.until(lambda: "does not exist" in live.health.disk and "aptui.yaml" in live.health.configuration)
        live._retry_at, live._tried_at = time.monotonic() + 60.0, 0.0
        project.root.mkdir()
        project.config(COPIES.replace("*.txt", "*.new"))
        project.write("assets/b.new", "of the new one")

        project.settle()  # the client need not wait for the next retry

        assert project.product("linux/b.new") == b"of the new one"
        assert (live.health.disk, live.health.configuration) == ("", "")


def test_products_of_a_scan_folder_that_disappears_are_kept(retrying: LiveProject) -> None:
    with retrying.running() as live:
        retrying.move("assets", "away")
        retrying.until(lambda: any(root.mode is WatchMode.GONE for root in live.health.roots))
        retrying.until(lambda: "does not exist" in live.health.disk)
        assert retrying.product("linux/a.txt") == b"a"
        retrying.write("away/a.txt", "back")
        retrying.move("away", "assets")
        retrying.until_product("linux/a.txt", "back")


def test_scan_folder_that_is_made_after_the_start_is_scanned(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    later = project.root / "later"
    without, folder = project.load(), "scan_folders: [{name: later, path: later}, "

    def load_existing() -> Config:
        return load.load(project.root) if later.is_dir() else replace(without, missing_folders=(str(later),))

    monkeypatch.setattr(project, "load", load_existing)
    project.config(COPIES.replace("scan_folders: [", folder))
    with project.running() as live:
        assert str(later) not in {root.path for root in live.health.roots}

        project.write("later/b.txt", "b")

        project.until_product("linux/b.txt", "b")
        assert not live.configuration_error
        assert not any("is not watched" in text for text in project.messages)


@pytest.mark.parametrize("path", ["later", "unwatched/inner/later"])
def test_scan_folder_that_is_made_after_it_was_configured_is_scanned(project: LiveProject, path: str) -> None:
    later = project.root / path
    later.parent.mkdir(parents=True, exist_ok=True)
    with project.running() as live:
        project.config(COPIES.replace("scan_folders: [", f"scan_folders: [{{name: later, path: {path}}}, "))
        project.until(lambda: "scan folder 'later' does not exist" in live.health.configuration)
        assert f"'{later}'" in live.configuration_error
        assert str(later) not in {root.path for root in live.health.roots}

        project.write(f"{path}/b.txt", "b")

        project.until_product("linux/b.txt", "b")
        assert not live.health.configuration
        assert not any("is not watched" in text for text in project.messages)


def test_missing_scan_folder_is_reported_also_if_the_configuration_is_read_again(retrying: LiveProject) -> None:
    with retrying.running() as live:
        retrying.move("assets", "away")
        retrying.until(lambda: any(root.mode is WatchMode.GONE for root in live.health.roots))
        live.reload()
        retrying.until(lambda: "does not exist" in live.configuration_error)

        assert any(root.mode is WatchMode.GONE for root in live.health.roots)
        retrying.move("away", "assets")
        retrying.until(lambda: not live.configuration_error)


def test_missing_project_folder_is_not_created(retrying: LiveProject) -> None:
    with retrying.running() as live:
        away = retrying.root.rename(retrying.root.with_name("away"))
        retrying.until(lambda: "project folder" in live.health.disk)
        assert not retrying.root.exists()
        (away / "assets/a.txt").write_text("back")
        away.rename(retrying.root)
        retrying.until_product("linux/a.txt", "back")


def test_engine_releases_the_cache_and_ends_when_its_project_was_moved(
    retrying: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_MOVED_S", 0.2)
    with retrying.running() as live:
        away = retrying.root.rename(retrying.root.with_name("away"))
        retrying.until(lambda: "was moved" in live.health.disk)
        assert str(away) in live.health.disk
        with contextlib.closing(Cache(away / "Cache", ["linux"])) as cache:
            cache.acquire()  # `acquire` raises an error if the engine still holds the folder

        retrying.until(lambda: live.is_stopping)


@pytest.mark.parametrize("harm", ["moved", "deleted", "moved and replaced", "deleted and replaced"])
def test_engine_uses_a_new_folder_at_the_path_of_its_moved_cache_folder(harm: str, retrying: LiveProject) -> None:
    with retrying.running() as live:
        assert live.engine is not None
        first, opened = live.engine, []
        live.openings.append(lambda: opened.append(identity_of(retrying.cache)))
        elsewhere = retrying.root.with_name("elsewhere")
        retrying.cache.rename(elsewhere)
        if "replaced" in harm:
            shutil.copytree(elsewhere, retrying.cache)
        if "deleted" in harm:
            shutil.rmtree(elsewhere)

        answer = retrying.ask(port.EngineHello(port.PROTOCOL, "1", "test", 1)).answered
        retrying.until(lambda: live.engine not in (None, first))
        retrying.until_product("linux/a.txt", "a")

        assert answer is not None
        assert answer["cache_id"] in ("", identity_of(retrying.cache))
        assert opened == [identity_of(retrying.cache)]
        assert not live.is_stopping


def test_second_start_runs_no_jobs_for_unchanged_files(project: LiveProject) -> None:
    with project.running():
        project.save("b.txt", "b")
    project.forget()
    with project.running():
        assert not project.runs


# -------------------------------------------------------------------------------------------- jobs that write their own source

SELF_WRITER = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: self, patterns: ["*.w"], version: 1, command: 'cp {source} {products_dir}/o; echo x >> {source}', products: ["o"]}
"""


def test_job_that_writes_its_own_source_fails_after_ten_runs(project: LiveProject) -> None:
    project.config(SELF_WRITER)
    project.engine_run({"assets/a.txt": None, "assets/a.w": "a"})
    [error] = project.errors().values()
    assert "'a.w' changed during each of 10 runs" in error
    written = project.path("assets/a.w").read_text()
    assert written.count("x") == 10
    assert not project.engine_run().runs
    with project.running():
        project.until_idle()
        assert project.path("assets/a.w").read_text() == written
        project.write("assets/a.w", "edited")
        project.until(lambda: project.path("assets/a.w").read_text().count("x") >= 10)
        project.until_idle()

    assert project.path("assets/a.w").read_text().count("x") <= 12


@pytest.mark.parametrize("is_quiet", [False, True])
def test_jobs_that_wait_for_a_postponed_file_are_not_reported_as_stuck(is_quiet: bool) -> None:
    state = {"_is_first_scan": False, "_idle_since": None, "_is_settled": False, "stops_when_idle": False}
    supervisor = SimpleNamespace(
        **state,
        watching=SimpleNamespace(is_quiet=is_quiet),
        roots=SimpleNamespace(add_intermediates=lambda: None),
        _code_changes=mock.Mock(),
    )
    engine = mock.Mock()
    engine.pipeline.jobs.stuck.return_value = ["a job"]

    EngineSupervisor._rest(supervisor, engine, 0.0)
    EngineSupervisor._rest(supervisor, engine, 10.0)

    assert engine.news.say_once.called == is_quiet


def test_product_that_was_deleted_just_before_a_stop_is_made_again(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    # the engine stops before the notification arrives
    monkeypatch.setattr(changes.ChangeTracker, "_products_gone", lambda *_: None)
    with project.running():
        project.until_product("linux/a.txt", "a")
        project.save("b.txt", "b")
        project.until_idle()
        project.delete("Cache/linux/a.txt")

    project.engine_run()

    assert project.texts() == {"a.txt": "a", "b.txt": "b"}

"""Checks of the cache run one at a time, report findings while they run, and end with a summary."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aptui.features.sharing.screen import cache_contents
from aptui.features.sharing.screen.cache_contents import CacheExamination, CacheProblem, CheckProgress
from aptui.shared.errors import HostError

STRAY = CacheProblem("unowned", "linux/stray.tmp", "", 2, is_watched=True)
LONELY = CacheProblem("unowned", "linux/lonely/x", "", 1)


class Task:
    """A background task that the test runs."""

    def __init__(self, *_) -> None:
        self.is_busy = False

    def start(self, work, ended, failed, cancelled) -> bool:
        if self.is_busy:
            return False
        self.is_busy, self.work, self.ended, self.failed, self.cancelled = True, work, ended, failed, cancelled
        return True

    def run(self) -> None:
        try:
            found = self.work(self)
        except HostError as error:
            self.is_busy = False
            self.failed(error)
        else:
            self.is_busy = False
            self.ended(found)

    def cancel(self) -> None:
        self.is_busy = False
        self.cancelled()


@pytest.fixture
def room(monkeypatch, tmp_path):
    monkeypatch.setattr(cache_contents, "BackgroundTask", Task)
    monkeypatch.setattr(cache_contents, "refuse_unreadable", lambda _cache_dir: None)
    room = SimpleNamespace(found=[], turns=0, ends=0, told=[])
    shell = SimpleNamespace(
        in_ui=lambda do, *given: do(*given), show_toast=lambda text, *_: room.told.append(text), config=None,
        session=SimpleNamespace(cache_dir=tmp_path),
    )  # fmt: skip
    room.look = CacheExamination(
        shell, room.found.append, lambda: setattr(room, "turns", room.turns + 1), lambda: setattr(room, "ends", room.ends + 1)
    )
    return room


def said(look: CacheExamination, **more: bool) -> str:
    left, right = look.verdict(100, **more)
    return "".join(part.text for part in (*left, *right))


def finds(monkeypatch, *steps: CheckProgress) -> None:
    def look(_task, _cache_dir, _platforms, tell):
        for step in steps[:-1]:
            tell(step)
        return steps[-1]

    monkeypatch.setattr(cache_contents, "find_unowned", look)


def test_check_findings_are_reported_before_the_check_ends(room, monkeypatch):
    finds(monkeypatch, CheckProgress(1, problems=(STRAY,)), CheckProgress(2, problems=(STRAY, LONELY)))
    room.look.find_unowned()
    assert said(room.look) == "Unowned files  0 folders checkedc cancels"
    room.look._task.run()

    assert [each.problems for each in room.found] == [(), (STRAY,), (STRAY, LONELY)]
    assert (room.turns, room.ends) == (2, 1)
    assert said(room.look).startswith("Unowned files  2 files, 3 B")
    assert room.look.has_found("unowned")
    assert not room.look.has_found("damaged", "missing")


def test_second_cache_check_is_refused_while_the_first_one_runs(room, monkeypatch):
    finds(monkeypatch, CheckProgress(1))
    room.look.find_unowned()
    room.look.verify()

    assert room.look.kind == "unowned"
    assert room.told == ["the cache is being read already; press 'c' to cancel"]


def test_cancelled_check_keeps_its_findings(room, monkeypatch):
    monkeypatch.setattr(cache_contents, "verify", lambda *_: CheckProgress(count=7))
    room.look.verify()
    room.look._take(CheckProgress(count=5))
    room.look.cancel()

    assert said(room.look) == "Verify  5 products match their records so farcancelled"
    assert room.ends == 0


def test_failed_check_reports_the_reason(room, monkeypatch):
    def fail(*_):
        raise HostError("cannot be read")

    monkeypatch.setattr(cache_contents, "verify", fail)
    room.look.verify()
    room.look._task.run()

    assert (room.look.kind, room.look.progress, room.told, said(room.look)) == ("", None, ["cannot be read"], "")


def test_deleted_files_are_removed_from_the_findings(room, monkeypatch):
    finds(monkeypatch, CheckProgress(2, problems=(STRAY, LONELY)))
    room.look.find_unowned()
    room.look._task.run()
    assert said(room.look, are_going=True).startswith("Unowned files  2 files not deleted yet; the engine will delete them")
    room.look.forget({STRAY.name})

    assert room.look.problems == (LONELY,)
    assert room.ends == 1

"""Checks of the cache run one at a time, report findings while they run, and end with a summary."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aptui.features.sharing.screen import cache_contents
from aptui.features.sharing.screen.cache_contents import CacheExamination, CacheProblem, CheckProgress
from aptui.shared.errors import HostError

ORPHAN = CacheProblem("unowned", "linux/stray.tmp", "", 2, is_watched=True)
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
def harness(monkeypatch, tmp_path):
    monkeypatch.setattr(cache_contents, "BackgroundTask", Task)
    monkeypatch.setattr(cache_contents, "refuse_unreadable", lambda _cache_dir: None)
    harness = SimpleNamespace(found=[], turns=0, ends=0, reported=[])
    shell = SimpleNamespace(
        in_ui=lambda do, *given: do(*given), show_toast=lambda text, *_: harness.reported.append(text), config=None,
        session=SimpleNamespace(cache_dir=tmp_path),
    )  # fmt: skip
    harness.examination = CacheExamination(
        shell,
        harness.found.append,
        lambda: setattr(harness, "turns", harness.turns + 1),
        lambda: setattr(harness, "ends", harness.ends + 1),
    )
    return harness


def summary(examination: CacheExamination, **more: bool) -> str:
    left, right = examination.verdict(100, **more)
    return "".join(part.text for part in (*left, *right))


def finds(monkeypatch, *steps: CheckProgress) -> None:
    def check(_task, _cache_dir, _platforms, report):
        for step in steps[:-1]:
            report(step)
        return steps[-1]

    monkeypatch.setattr(cache_contents, "find_unowned", check)


def test_check_findings_are_reported_before_the_check_ends(harness, monkeypatch):
    finds(monkeypatch, CheckProgress(1, problems=(ORPHAN,)), CheckProgress(2, problems=(ORPHAN, LONELY)))
    harness.examination.find_unowned()
    assert summary(harness.examination) == "Unowned files  0 folders checkedc cancels"
    harness.examination._task.run()

    assert [each.problems for each in harness.found] == [(), (ORPHAN,), (ORPHAN, LONELY)]
    assert (harness.turns, harness.ends) == (2, 1)
    assert summary(harness.examination).startswith("Unowned files  2 files, 3 B")
    assert harness.examination.has_found("unowned")
    assert not harness.examination.has_found("damaged", "missing")


def test_second_cache_check_is_refused_while_the_first_one_runs(harness, monkeypatch):
    finds(monkeypatch, CheckProgress(1))
    harness.examination.find_unowned()
    harness.examination.verify()

    assert harness.examination.kind == "unowned"
    assert harness.reported == ["the cache is being read already; press 'c' to cancel"]


def test_cancelled_check_keeps_its_findings(harness, monkeypatch):
    monkeypatch.setattr(cache_contents, "verify", lambda *_: CheckProgress(count=7))
    harness.examination.verify()
    harness.examination._set_progress(CheckProgress(count=5))
    harness.examination.cancel()

    assert summary(harness.examination) == "Verify  5 products match their records so farcancelled"
    assert harness.ends == 0


def test_failed_check_reports_the_reason(harness, monkeypatch):
    def fail(*_):
        raise HostError("cannot be read")

    monkeypatch.setattr(cache_contents, "verify", fail)
    harness.examination.verify()
    harness.examination._task.run()

    assert (harness.examination.kind, harness.examination.progress, harness.reported, summary(harness.examination)) == (
        "",
        None,
        ["cannot be read"],
        "",
    )


def test_deleted_files_are_removed_from_the_findings(harness, monkeypatch):
    finds(monkeypatch, CheckProgress(2, problems=(ORPHAN, LONELY)))
    harness.examination.find_unowned()
    harness.examination._task.run()
    assert summary(harness.examination, are_going=True).startswith(
        "Unowned files  2 files not deleted yet; the engine will delete them"
    )
    harness.examination.forget({ORPHAN.name})

    assert harness.examination.problems == (LONELY,)
    assert harness.ends == 1

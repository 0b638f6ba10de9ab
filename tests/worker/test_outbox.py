"""Results that a worker holds back: reported only when durable, held only for a short time, and an I/O error fails one run."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from aptui.core.notices import LogLevel
from aptui.core.orders import Outcome, RunResult, StagedProduct
from aptui.worker import file_access, outbox
from aptui.worker.outbox import HELD_S, AnswerOutbox


class Told:
    """Record syncs and sent results in order, with a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deeds: list[object] = []
        self.results: list[RunResult] = []
        self.broken: set[str] = set()
        self.now_s = 100.0
        self.outbox = AnswerOutbox(self._send, lambda: self.now_s)
        monkeypatch.setattr(os, "fsync", self._fsync)
        monkeypatch.setattr(file_access, "sync_file_system", self.deeds.append)

    def _fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path in self.broken:
            raise OSError(5, "Input/output error")
        self.deeds.append(os.path.basename(path))

    def _send(self, results: list[RunResult]) -> None:
        self.deeds.append([result.run_key for result in results])
        self.results += results

    def add(self, folder: Path, run_key: int, product_count: int = 1) -> None:
        staging = folder / str(run_key)
        staging.mkdir()
        products = []
        for index in range(product_count):
            path = staging / f"{run_key}-{index}"
            path.write_bytes(b"data")
            products.append(StagedProduct(str(path), path.name, index, b"", 1, b"", 0, 4))
        self.outbox.add("tool", str(staging), RunResult(run_key, Outcome.SUCCEEDED, "", tuple(products)))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


def test_held_runs_are_answered_together_when_all_are_durable(told: Told, tmp_path: Path) -> None:
    told.add(tmp_path, 1)
    told.add(tmp_path, 2, product_count=2)

    told.outbox.meanwhile()
    held = list(told.deeds)
    told.outbox.flush()
    told.outbox.flush()

    assert held == []
    assert told.deeds == ["1-0", "2-0", "2-1", [1, 2]]


def test_an_answer_is_held_so_long_and_not_longer(told: Told, tmp_path: Path) -> None:
    told.add(tmp_path, 1)
    told.now_s += HELD_S * 0.9
    told.add(tmp_path, 2)

    told.outbox.meanwhile()
    held = list(told.results)
    told.now_s += HELD_S * 0.2
    told.outbox.meanwhile()

    assert held == []
    assert [result.run_key for result in told.results] == [1, 2]


def test_nothing_is_held_while_a_command_takes_long(told: Told, tmp_path: Path) -> None:
    told.add(tmp_path, 1)

    told.outbox.meanwhile(takes_long=True)

    assert [result.run_key for result in told.results] == [1]


def test_failed_sync_fails_only_its_run_and_removes_the_product(told: Told, tmp_path: Path) -> None:
    for run_key in (1, 2, 3):
        told.add(tmp_path, run_key, product_count=2)
    told.broken = {str(tmp_path / "2/2-1")}

    told.outbox.flush()

    assert [result.outcome for result in told.results] == [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED]
    failed = told.results[1]
    assert (failed.error, failed.products, failed.errors) == ("products cannot be made durable: Input/output error", (), 1)
    assert [(record.level, record.window) for record in failed.log] == [(LogLevel.ERROR, "tool")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]


def test_many_products_share_one_sync_of_the_file_system(told: Told, tmp_path: Path) -> None:
    told.add(tmp_path, 1, product_count=file_access.SYNC_EACH_BELOW)

    told.outbox.flush()

    assert told.deeds == [str(tmp_path / "1"), [1]]


def test_a_file_system_that_cannot_be_synced_fails_all(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(outbox.file_access, "sync_file_system", broken)
    told.add(tmp_path, 1, product_count=file_access.SYNC_EACH_BELOW)
    told.add(tmp_path, 2)

    told.outbox.flush()

    assert [result.outcome for result in told.results] == [Outcome.FAILED, Outcome.FAILED]


def test_unsent_answer_is_kept(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told.add(tmp_path, 1)
    with monkeypatch.context() as patched:
        patched.setattr(outbox, "_check_failed", None)
        with pytest.raises(TypeError):
            told.outbox.flush()

    told.outbox.flush()

    assert [result.run_key for result in told.results] == [1]


def test_the_next_command_runs_while_products_are_synced(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that finish during a sync share the next sync, in the order in which they finished."""
    disk, is_at_first, sync = threading.Event(), threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        is_at_first.set()
        assert disk.wait(30)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    told.outbox.works_apart = True
    for run_key in (1, 2, 3):
        told.add(tmp_path, run_key)
        told.outbox.flush()
        assert is_at_first.wait(30)
    before = list(told.results)
    disk.set()
    told.outbox.settle()

    assert before == []
    assert [result.run_key for result in told.results] == [1, 2, 3]
    assert [deed for deed in told.deeds if isinstance(deed, list)] == [[1], [2, 3]]


def test_send_failure_in_the_thread_ends_the_worker(told: Told, tmp_path: Path) -> None:
    def refuse(results: list[RunResult]) -> None:
        raise BrokenPipeError

    has_hung_up = threading.Event()
    outbox = AnswerOutbox(refuse, hang_up=has_hung_up.set)
    outbox.works_apart = True
    told.outbox = outbox
    told.add(tmp_path, 1)
    outbox.flush()

    with pytest.raises(BrokenPipeError):
        outbox.settle()
    told.add(tmp_path, 2)
    with pytest.raises(BrokenPipeError):
        outbox.flush()
    assert has_hung_up.wait(30)

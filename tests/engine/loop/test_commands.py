"""The command executor: its work during a commit, and the order in which it performs commands."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_project import LiveProject, own_live_project

from aptui.core.messages import Command, CommitProducts, HashFiles, JobCommit, SaveRows, ScanStarted
from aptui.core.model import PathKey
from aptui.core.notices import EngineMessage, LogLevel, Notice
from aptui.core.pipeline.pipeline import Pipeline
from aptui.core.state.commits import JobRow
from aptui.engine.cache.cache import Cache
from aptui.engine.live import changes
from aptui.engine.loop import commands
from aptui.engine.loop import engine as loop_engine
from aptui.engine.loop.engine import Engine
from aptui.link import port
from aptui.shared.errors import HostError, InternalError

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
platforms: {linux: {}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    return own_live_project(tmp_path, monkeypatch, SETTINGS, {"assets/a.txt": "a"})


class Held:
    """A commit that does not end before `let_go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let_go = threading.Event()
        self.done: list[str] = []
        commit = Cache.commit

        def held(cache: Cache, *given: object) -> object:
            self.let_go.wait(30)
            answer = commit(cache, *given)  # type: ignore[arg-type]  # as it was called
            self.done.append("committed")
            return answer

        monkeypatch.setattr(Cache, "commit", held)


@pytest.fixture
def held(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """A live engine of the project during the commit of `a.txt`."""
    with project.running() as live:
        held = Held(monkeypatch)
        project.write("assets/a.txt", "again")
        project.until(lambda: live.engine is not None and live.engine.is_committing)
        yield held
        held.let_go.set()


def test_engine_answers_clients_during_a_commit(project: LiveProject, held: Held) -> None:
    answer = project.ask(port.ReadStatus()).answered

    assert answer is not None
    assert answer["state"] == "working"
    assert held.done == []


def test_engine_handles_no_event_until_a_commit_has_ended(project: LiveProject, held: Held) -> None:
    engine = project.live.engine
    assert engine is not None
    seq = engine.inbox.seq
    engine.ask("reprocess", keys=["a.txt"])
    project.ask(port.ReadStatus())
    project.ask(port.ReadStatus())
    waits, taken = bool(engine.inbox), engine.inbox.seq - seq
    held.let_go.set()
    project.until_idle()

    assert (waits, taken) == (True, 1)  # the event number rises by 1 for the request
    assert project.runs["a.txt:data"] == 3


def test_files_are_read_during_a_commit(project: LiveProject, held: Held) -> None:
    engine = project.live.engine
    assert engine is not None
    fact = engine.pipeline.jobs.memory.last_seen(PathKey("a.txt"))
    assert fact is not None
    engine.digests.add(HashFiles(1, (fact,)))
    project.until(lambda: engine.digests.are_answered, "read")

    assert engine.is_committing
    assert held.done == []


def test_commit_makes_its_rows_in_small_groups_over_several_loop_turns(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    turns = [0]
    turn, make = Engine._turn, Pipeline.commit_rows
    monkeypatch.setattr(commands, "_ROWS_TOGETHER", 2)
    monkeypatch.setattr(Pipeline, "commit_rows", lambda *given: (made.append(turns[0]), make(*given))[1])
    monkeypatch.setattr(Engine, "_turn", lambda *given: (turns.append(turns.pop() + 1), turn(*given))[1])
    for number in range(9):
        project.write(f"assets/{number}.txt", f"text {number}")
    with project.running():
        project.until_idle()
    counts = Counter(made)

    assert sum(counts.values()) == 10
    assert max(counts.values()) == 2
    assert project.texts() == {"a.txt": "a", **{f"{number}.txt": f"text {number}" for number in range(9)}}


class Rows:
    """A commit of three runs. The test makes the database rows of a run when the commit requests them."""

    def __init__(self, broken: int = 0) -> None:
        self.saved: list[int] = []
        self._broken = broken
        order = CommitProducts(1, tuple(JobCommit(run_key, 1, (), ()) for run_key in (1, 2, 3)))
        self.commit = commands._PendingCommit(order, self._perform, self._make, lambda: None)

    def _perform(self, rows_of: Callable[[int], Iterable[JobRow]]) -> tuple[list[int], list[tuple[int, str, int]]]:
        for run_key in (1, 2, 3):
            self.saved += [row[0] for _operation, row in rows_of(run_key)]  # type: ignore[misc]  # as `_make` made it
        return [1, 2, 3], []

    def _make(self, run_key: int) -> list[JobRow]:
        if run_key == self._broken:
            raise InternalError("no rows")
        return [("put_job", (run_key,))]


def test_commit_thread_waits_for_database_rows_that_the_engine_makes() -> None:
    rows = Rows()

    rows.commit.go_on(2)
    before = (rows.commit.is_over, rows.commit.wants_rows, list(rows.saved))
    rows.commit.go_on(2)

    assert rows.commit.answer() == ([1, 2, 3], [])
    assert before == (False, True, [])
    assert rows.saved == [1, 2, 3]


def test_commit_makes_its_remaining_rows_before_it_answers() -> None:
    rows = Rows()

    assert rows.commit.answer() == ([1, 2, 3], [])
    assert rows.saved == [1, 2, 3]


def test_commit_thread_ends_without_saving_if_its_rows_cannot_be_made() -> None:
    rows = Rows(broken=2)

    with pytest.raises(InternalError, match="no rows"):
        rows.commit.go_on(3)
    rows.commit.wait()

    assert rows.commit.is_over
    assert rows.saved == []


def test_check_of_the_cache_waits_until_products_have_rows(
    project: LiveProject, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = project.live.engine
    assert engine is not None
    lost = Cache.find_lost
    monkeypatch.setattr(Cache, "find_lost", lambda *given, **how: (held.done.append("looked"), lost(*given, **how))[1])
    held.let_go.set()
    engine.start_scan(is_full=True)
    project.until_idle()

    assert held.done[:2] == ["committed", "looked"]
    assert project.product("linux/a.txt") == b"again"


def test_engine_that_is_stopped_during_a_commit_completes_the_commit(project: LiveProject, held: Held) -> None:
    held.let_go.set()
    project.live.close()

    assert held.done == ["committed"]
    assert project.product("linux/a.txt") == b"again"
    assert project.statuses() == {"a.txt:data": "completed"}
    assert project.engine_run().runs == {}


def test_engine_does_not_perform_commands_after_a_failed_commit(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_given: object) -> object:
        raise HostError("the disk is gone")

    with project.running() as live:
        engine = live.engine
        assert engine is not None
        with monkeypatch.context() as patch:
            patch.setattr(Cache, "commit", broken)
            project.write("assets/a.txt", "after the disk came back")
            project.until(lambda: "the disk is gone" in live.health.disk)
        assert not engine.is_committing
        project.until_product("linux/a.txt", "after the disk came back")


def test_products_are_correct_if_each_loop_turn_handles_one_event(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_engine, "_SLICE_S", 0.0)
    monkeypatch.setattr(changes, "_SLICE_S", 0.0)
    with project.running():
        for number in range(30):
            project.write(f"assets/{number}/b.txt", f"b{number}")
        project.until(lambda: project.product("linux/29/b.txt") == b"b29")
        for number in range(30):
            project.write(f"assets/{number}/b.txt", f"c{number}")
        project.delete("assets/a.txt")
        project.settle()

        assert project.texts() == {f"{number}/b.txt": f"c{number}" for number in range(30)}


def test_engine_starts_no_job_while_reported_changes_are_checked(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    with project.running() as live:
        engine = live.engine
        assert engine is not None
        with monkeypatch.context() as patch:
            patch.setattr(changes.ChangeTracker, "is_amid_changes", True)
            engine.ask("reprocess", keys=["a.txt"])
            project.until(lambda: len(engine.pipeline.jobs.ready))
            project.ask(port.ReadStatus())
            project.ask(port.ReadStatus())
            was_started = bool(engine.pipeline.jobs.running)
        project.until_idle()

    assert not was_started
    assert project.runs["a.txt:data"] == 2


class Answers:
    """An engine context with prepared answers of the pipeline; commits end when allowed, and performed commands are recorded."""

    def __init__(self, answers: list[list[str]]) -> None:
        self._answers = answers
        self.ordered, self.done, self.ticket = 0, [], 0  # type: tuple[int, list[str], int]
        self.may_end = threading.Semaphore(0)
        self.context = SimpleNamespace(
            pipeline=self,
            writer=SimpleNamespace(
                save=lambda ticket, _rows: self.done.append(f"save {ticket}"), run=lambda _rows, durable: durable
            ),
            cache=SimpleNamespace(commit=self._commit, doubt_rows=lambda _folders: {}),
            inbox=SimpleNamespace(next_seq=lambda: 1),
            news=SimpleNamespace(notify=lambda notice: self.done.append(notice.text)),
            closing=SimpleNamespace(callback=lambda _call: None),
            live=None,
            wake=lambda: None,
        )
        scans = SimpleNamespace(mark_fresh_files=lambda _rows: None, note_changes=lambda _rows: None)
        runs = SimpleNamespace(note_committed=lambda _order, _committed: None)
        self.executor = commands.CommandExecutor(self.context, scans, runs)  # type: ignore[arg-type]  # all that it asks of them

    def handle(self, _event: object) -> tuple[list[Command], list[Notice]]:
        """Return the next prepared answer of the pipeline: one notice, and a command for each prepared word "save" or "commit"."""
        answer: list[Command] = []
        for word in self._answers.pop(0) if self._answers else ():
            self.ticket += word == "save"
            commit = CommitProducts(1, (JobCommit(1, 1, (), ()),))
            answer.append(SaveRows(1, self.ticket, {}) if word == "save" else commit)
        self.ordered += 1
        return answer, [EngineMessage(1, LogLevel.INFO, f"news {self.ordered}")]

    @staticmethod
    def commit_rows(_run_key: int) -> list[JobRow]:
        return []

    def _commit(self, *_given: object) -> tuple[list[int], list[tuple[int, str, int]]]:
        self.may_end.acquire()
        return [], []


ANSWERS = st.lists(st.lists(st.sampled_from(("save", "commit")), max_size=5), min_size=1, max_size=8)


@given(answers=ANSWERS, delays=st.lists(st.integers(0, 3), max_size=40))
def test_engine_saves_rows_in_ticket_order_for_any_duration_of_commits(answers: list[list[str]], delays: list[int]) -> None:
    """The fake pipeline answers each event with random commands. Each commit lasts for a random number of turns of the loop."""
    engine = Answers(answers)
    while answers:
        engine.executor.handle(ScanStarted(1))
        while engine.executor.is_committing:
            for _turn in range(delays.pop() if delays else 0):
                engine.executor.go_on()
            engine.may_end.release()
            engine.executor._commit.wait()  # type: ignore[union-attr]  # it is committing
            engine.executor.go_on()

    assert [word for word in engine.done if word.startswith("save")] == [f"save {ticket + 1}" for ticket in range(engine.ticket)]
    assert [word for word in engine.done if word.startswith("news")] == [f"news {seq + 1}" for seq in range(engine.ordered)]

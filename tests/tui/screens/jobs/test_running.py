"""The log of a running job: the screen shows its lines, replaces them by the final log, and never shows them for another job."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from aptui.core.notices import LogLevel, LogRecord
from aptui.link.port import ReadRunLog
from aptui.shared.errors import HostError, UserError
from aptui.store import joblog
from aptui.tui.data.session import EngineFacts, SessionState
from aptui.tui.frame import terminal_control
from aptui.tui.screens.jobs.job_details import AGAIN_S, FIRST_S, RunningLog
from aptui.tui.screens.jobs.jobs_pane import JobsPane
from tests.store.conftest import job_row
from tests.tui.jobs_harness import NOW_MS, fill, in_jobs, notice
from tests.tui.shell_harness import lines, text, until

from .jobs_pane_harness import on_jobs

RUN = 77


def records(*texts: str) -> list[dict[str, object]]:
    return [{"level": 1, "window": "image", "text": text, "time_ms": NOW_MS, "context": []} for text in texts]


class Runs:
    """An engine that reports the lines that a run has logged so far."""

    def __init__(self, app, job_id: int = 3) -> None:
        self.logged: tuple[str, ...] = ()
        self.asked: list[ReadRunLog] = []
        self._job_id, self._ask = job_id, app.session.ask
        app.session.ask = self.ask

    def ask(self, verb):
        if not isinstance(verb, ReadRunLog):
            return self._ask(verb)
        self.asked.append(verb)
        answer: Future = Future()
        if verb.job_id != self._job_id:
            answer.set_result({"run_key": 0, "stamp": -1, "records": []})
        else:
            stamp = len(self.logged)
            is_known = (verb.run_key, verb.seen) == (RUN, stamp)
            answer.set_result({"run_key": RUN, "stamp": stamp, "records": None if is_known else records(*self.logged)})
        return answer


def keep(store, log_dir) -> None:
    fill(store, log_dir)
    JobsPane.test_store = store


async def select(pilot, pane, job_id: int) -> None:
    pane.table.move_to_key(job_id)
    await until(pilot, lambda: not pane.event_log.is_reading and pane.event_log.info.key == job_id)


async def at_work(app, pilot, pane) -> Runs:
    """Select a job whose run begins and logs one line."""
    runs = Runs(app)
    await select(pilot, pane, 3)
    runs.logged = ("one",)
    app.session.say(notice(3, "processing"), 2)
    await until(pilot, lambda: "image  one" in text(app))
    return runs


async def end_run(pilot, app, pane, log_dir, *texts: str) -> None:
    """End the run of job 3 with these lines in its log, and wait until the screen shows them."""
    log_records = [LogRecord(LogLevel.INFO, "image", text, NOW_MS) for text in texts]
    joblog.write(log_dir / "JobLogs/sand-2.log", log_records, 0, 0)
    pane.test_store.put(
        put_job=[job_row(3, 2, run_key=RUN, completed_ms=NOW_MS, last_log="JobLogs/sand-2.log")],
        put_run=[(3, RUN, NOW_MS, 5, 0, "changed", "", "JobLogs/sand-2.log", 1, "1", b"", "", "")],
    )
    app.session.say(notice(3, "completed", run_key=RUN), 9)
    await until(pilot, lambda: pane.event_log.job_details.run is not None and not pane.event_log.job_details.running_key)
    await pilot.pause()


pytestmark = pytest.mark.real


@on_jobs(filler=keep)
async def test_lines_of_a_running_job_are_replaced_by_its_log_without_moving(app, pilot, pane, tmp_path):
    runs = Runs(app)
    await select(pilot, pane, 3)
    await until(pilot, lambda: "sand is warm" in text(app))
    await pilot.press("enter")  # Without Enter, the cursor stays on the first row, even if another job moves to it.
    runs.logged = ("one", "two")
    app.session.say(notice(3, "processing"), 2)
    await until(pilot, lambda: "two" in text(app))
    assert "sand is warm" not in text(app), "the lines of the earlier run were removed"
    assert f"run {RUN}" in text(app)
    log = pane.event_log.log_pane
    assert log.cursor == 1

    runs.logged = ("one", "two", "three")
    await until(pilot, lambda: "three" in text(app))
    assert log.cursor == 2, "the cursor stays at the end"
    log.move_cursor(0)
    runs.logged = ("one", "two", "three", "four")
    await until(pilot, lambda: "four" in text(app))
    assert log.cursor == 0, "the cursor stays where the user put it"
    before = [line[:80] for line in lines(app) if " image  " in line]

    await end_run(pilot, app, pane, tmp_path / "logs", *runs.logged)

    assert log.cursor == 0
    assert [line[:80] for line in lines(app) if " image  " in line] == before
    assert "no errors" in text(app) or "0 errors" in text(app)
    asked_count = len(runs.asked)
    await pilot.pause(AGAIN_S + 0.5)
    assert len(runs.asked) == asked_count, "the lines of an ended run are not requested"


@on_jobs(filler=keep)
async def test_cursor_on_the_last_line_of_a_log_stays_last_when_the_run_ends(app, pilot, pane, tmp_path):
    runs = Runs(app)
    await select(pilot, pane, 3)
    await pilot.press("enter")
    runs.logged = ("one", "two")
    app.session.say(notice(3, "processing"), 2)
    await until(pilot, lambda: "two" in text(app))

    await end_run(pilot, app, pane, tmp_path / "logs", "one", "two", "three")

    assert pane.event_log.job_details.records[pane.event_log.log_pane.cursor].text == "three"


@on_jobs(filler=keep)
async def test_late_answer_for_the_previous_job_does_not_replace_the_selected_log(app, pilot, pane):
    runs = await at_work(app, pilot, pane)
    late: Future = Future()
    app.session.ask = lambda verb: late if isinstance(verb, ReadRunLog) else runs.ask(verb)
    await until(pilot, lambda: late._done_callbacks)

    await select(pilot, pane, 1)
    late.set_result({"run_key": RUN, "stamp": 9, "records": records("of the first")})
    await pilot.pause(0.2)
    assert "giving up" in text(app)
    assert "image  one" not in text(app)
    assert "of the first" not in text(app)

    app.session.ask = runs.ask
    await select(pilot, pane, 3)
    await until(pilot, lambda: "image  one" in text(app))


@on_jobs(filler=keep)
async def test_earlier_run_of_a_job_can_be_shown_while_its_next_run_is_active(app, pilot, pane):
    runs = Runs(app, job_id=1)
    await select(pilot, pane, 1)
    await until(pilot, lambda: "giving up" in text(app))
    await pilot.press("enter", "escape")  # after these keys, the cursor stays on the job, because the user acted on it
    runs.logged = ("now",)
    app.session.say(notice(1, "processing", source="textures/rock_01.png"), 2)
    await until(pilot, lambda: "image  now" in text(app))

    await pilot.press("{")
    await until(pilot, lambda: "giving up" in text(app) and "run 1 of 2" in text(app))
    await pilot.press("{")
    await until(pilot, lambda: "the run before" in text(app))
    await pilot.press("}")
    await until(pilot, lambda: "giving up" in text(app))
    await pilot.press("}")
    await until(pilot, lambda: "image  now" in text(app))
    await pilot.press("}")
    await until(pilot, lambda: "there is no later run" in text(app))


@on_jobs(filler=keep)
async def test_log_search_finds_new_lines_of_a_running_job(app, pilot, pane):
    runs = await at_work(app, pilot, pane)
    await pilot.press("enter")
    await pilot.press("slash")
    await pilot.press(*"needle")
    await pilot.press("enter")
    runs.logged = ("one", "a needle")
    await until(pilot, lambda: "1 hit" in text(app))


def test_pager_shows_lines_of_running_job(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGER", "less")

    async def run(app, pilot, pane):
        runs = Runs(app)
        await select(pilot, pane, 3)
        runs.logged = ("one", "two")
        app.session.say(notice(3, "processing"), 2)
        await until(pilot, lambda: "image  two" in text(app))
        read: list[str] = []
        monkeypatch.setattr(terminal_control, "lend", lambda _host, command, **_more: read.append(Path(command[-1]).read_text()))
        await pilot.press("o")
        await until(pilot, lambda: read)

        assert [line.rpartition(" | ")[2] for line in read[0].splitlines()] == ["one", "two"]

    in_jobs(tmp_path, run, filler=keep)


# ----------------------------------------------------------------------------------- requests for the lines of a running job


class Asking:
    """A screen that shows a running job, the time, and the requests to the engine."""

    def __init__(self) -> None:
        self.now_s, self.running_id, self.shown = 100.0, 5, []
        self.answers: list[Future] = []
        self.session = SimpleNamespace(state=SessionState.ATTACHED, engine=EngineFacts(4711), ask=self._ask)
        self.asked: list[ReadRunLog] = []
        self.log = RunningLog(self, lambda: self.running_id, self.accept_running, lambda _wait_s: None, lambda: self.now_s)  # type: ignore[arg-type]

    def _ask(self, verb):
        self.asked.append(verb)
        self.answers.append(Future())
        return self.answers[-1]

    def in_ui(self, do, *arguments) -> None:
        do(*arguments)

    def accept_running(self, running) -> None:
        self.shown.append([line.text for line in running.lines])

    def poll(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.log.ask()

    def answer(self, run_key: int, stamp: int, *texts: str) -> None:
        self.answers[-1].set_result({"run_key": run_key, "stamp": stamp, "records": records(*texts) if texts else None})


@pytest.fixture
def asking() -> Asking:
    found = Asking()
    found.poll()
    found.poll(FIRST_S)
    return found


def test_running_log_is_requested_again_only_after_the_answer_and_a_delay(asking: Asking) -> None:
    assert asking.asked == [ReadRunLog(5)]
    asking.poll(60)
    assert len(asking.asked) == 1
    asking.answer(7, 2, "one", "two")
    asking.poll(AGAIN_S / 2)
    assert len(asking.asked) == 1
    asking.poll(AGAIN_S / 2)
    assert asking.asked[1:] == [ReadRunLog(5, 7, 2)]
    asking.answer(7, 2)

    assert asking.shown == [["one", "two"]]


def test_lines_of_a_new_run_replace_the_lines_of_the_previous_run(asking: Asking) -> None:
    asking.answer(7, 2, "one", "two")
    asking.poll(AGAIN_S)
    asking.answer(8, 1, "anew")
    assert asking.shown[-1] == ["anew"]


def test_cursor_that_passes_running_jobs_causes_no_request(asking: Asking) -> None:
    for job_id in range(10, 30):
        asking.running_id = job_id
        asking.poll(FIRST_S / 2)
    assert len(asking.asked) == 1
    asking.poll(FIRST_S)
    assert len(asking.asked) == 1, "the next request waits for the answer"
    asking.answer(7, 1, "one")
    asking.poll(AGAIN_S)
    assert asking.asked[1:] == [ReadRunLog(29)]
    assert asking.shown == []


def test_log_of_a_running_job_is_not_requested_from_an_engine_without_support(asking: Asking) -> None:
    asking.answers[-1].set_exception(UserError("'read_run_log' is not a verb"))
    asking.poll(60)
    asking.poll(60)
    assert len(asking.asked) == 1

    asking.session.engine = EngineFacts(4712)
    asking.poll()
    asking.session.state = SessionState.REATTACHING
    asking.poll(60)
    assert len(asking.asked) == 1

    asking.session.state = SessionState.ATTACHED
    asking.poll()
    asking.poll(FIRST_S)
    assert len(asking.asked) == 2
    asking.answers[-1].set_exception(HostError("the connection to the engine has ended"))
    asking.poll(AGAIN_S)
    assert len(asking.asked) == 3

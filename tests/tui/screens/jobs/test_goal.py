import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from aptui.core.notices import Progress
from aptui.store.queries.session_history import OutcomeChange
from aptui.tui.data.job_infos import CauseGroup
from aptui.tui.data.session import SessionState
from aptui.tui.preferences.state import UiMemory
from aptui.tui.screens.jobs import job_details, jobs_table, selection
from aptui.tui.screens.jobs.jobs_table import Causes
from aptui.tui.screens.jobs.selection import CursorGoal, LastVisit
from tests.store.conftest import job_row, source_row
from tests.store.queries.test_session_history import run_row, session_row
from tests.tui.jobs_harness import NOW_MS, fill, in_jobs, notice
from tests.tui.shell_harness import LARGE, SMALL, until

from .jobs_pane_harness import sees

FAILED = {"state": "failed", "status": 2, "errors": 1, "error": "broken", "last_log": ""}


class Screen:
    """A fake table: `rows` are the `known` jobs that it shows, and `done` lists its calls and the shown messages."""

    def __init__(self):
        self.store = SimpleNamespace(is_loaded=True, is_busy=False, info=lambda key: key if key in self.known else None)
        self.known, self.rows, self.done = {1, 2, 3}, {1, 2}, []
        self.goal = CursorGoal(self.store, lambda: self, self.clear, lambda text, _severity: self.done.append(text))

    def move_to_key(self, key):
        self.done += [key] * (key in self.rows)
        return key in self.rows

    def index_of(self, key):
        return key if key in self.rows else None

    def start_at_top(self):
        self.done.append("first")

    def clear(self):
        self.done.append("clear")


@pytest.fixture
def screen():
    return Screen()


def test_cursor_goes_to_a_requested_visible_job_at_once(screen):
    screen.goal.set_job(2)
    screen.goal.apply()

    assert screen.done == [2]


def test_going_to_a_hidden_job_removes_the_filter_first(screen):
    screen.goal.set_job(3)
    screen.store.is_busy = True
    screen.goal.apply()
    assert screen.done == ["clear"]

    screen.store.is_busy, screen.rows = False, screen.known
    screen.goal.apply()
    screen.goal.apply()

    assert screen.done == ["clear", 3]


def test_unknown_job_is_reported_only_after_first_rows(screen):
    screen.store.is_loaded = False
    screen.goal.set_job(9)
    screen.goal.apply()
    assert not screen.done

    screen.store.is_loaded = True
    screen.goal.apply()

    assert screen.done == ["job #9 does not exist"]


def test_cursor_is_placed_on_the_first_row_only_once(screen):
    screen.goal.set_first()
    screen.goal.apply()
    screen.goal.apply()

    assert screen.done == ["first"]


@pytest.mark.parametrize(("passing", "done"), [(2, []), (3, ["first"]), (None, [])])
def test_cursor_goes_to_the_first_hit_if_the_filter_hides_its_row(screen, passing, done):
    screen.goal.keep_row(passing)
    screen.store.is_busy = True
    screen.goal.apply()
    assert not screen.done

    screen.store.is_busy = False
    screen.goal.apply()
    screen.goal.apply()

    assert screen.done == done


def test_new_and_fixed_failures_since_the_last_visit_are_listed(tmp_path, monkeypatch):
    for module in (job_details, selection):
        monkeypatch.setattr(module, "author_of", lambda _folder, commit: {"b" * 40: "Bea"}.get(commit, ""))
    memory = UiMemory(tmp_path / "project.json")
    memory.put("jobs.failed", [1, 3, 77])  # Job 2 is a new failure, job 3 was fixed, and job 77 no longer exists.
    memory.put("jobs.left_ms", NOW_MS - 90_000)

    def filler(store, log_dir):
        fill(store, log_dir)
        store.put(put_run=[run_row(2, 10, completed_ms=NOW_MS - 9000)])
        store.put(put_session=[session_row(NOW_MS - 9500, NOW_MS - 8000, commit="a" * 40)])
        store.put(put_job=[job_row(2, 1, platform="pc", run_key=11, **FAILED)])
        store.put(put_run=[run_row(2, 11, outcome=1, completed_ms=NOW_MS - 2000)])
        store.put(put_session=[session_row(NOW_MS - 3000, NOW_MS - 1000, commit="b" * 40)])

    async def script(app, pilot, pane):
        await sees(
            pilot, app, "1 newly failed since bbbbbbb (Bea), 1 fixed", "type ':news' to see what changed since your last visit"
        )
        assert app.news == "1 newly failed since bbbbbbb (Bea), 1 fixed"
        await pilot.press(*":news", "enter")
        await sees(
            pilot, app, "Newly failed (1)", "textures/rock_01.png  pc", "since bbbbbbb (Bea)", "Fixed (1)", "textures/sand.png"
        )
        assert not app.news
        await pilot.press("j", "j", "j", "j", "enter")
        await until(pilot, lambda: pane.table.cursor_key == 2 and not app.switcher.sheet)
        pane.deactivate()

    app = in_jobs(tmp_path, script, memory=memory, filler=filler)
    assert app.memory.get("jobs.failed", []) == [1, 2]
    assert app.memory.get("jobs.left_ms", 0) >= NOW_MS


def test_job_that_runs_again_counts_as_fixed_only_after_it_succeeded(tmp_path):
    memory = UiMemory(tmp_path / "project.json")
    memory.put("jobs.failed", [1, 2, 3, 4])  # Job 4 is pending.
    memory.put("jobs.left_ms", NOW_MS - 90_000)

    async def script(app, pilot, pane):
        await pilot.press(*":news", "enter")
        await sees(pilot, app, "the changes since your last visit appear when the scan has ended and failed jobs have run again")
        pane.deactivate()
        assert app.memory.get("jobs.failed", []) == [1, 2, 3, 4]
        await pilot.press("q")
        app.session.say(notice(4, "failed", source="meshes/rock.fbx", error="hot"), 3)
        await sees(pilot, app, "1 fixed", "see what changed since your last visit")
        await pilot.press(*":news", "enter")
        await sees(pilot, app, "Fixed (1)", "textures/sand.png")

    in_jobs(tmp_path, script, memory=memory)


class Visit:
    """A later visit of the Jobs screen. Job 1 had failed at the last visit and now has `status`; `messages` has the shown texts."""

    def __init__(self, tmp_path, *, left_ms=NOW_MS - 90_000):
        memory = UiMemory(tmp_path / "project.json")
        memory.put("jobs.failed", [1])
        memory.put("jobs.left_ms", left_ms)
        self.status, self.messages = "failed", []
        self.failed_too: set[int] = set()
        self.memory = memory
        self.session = SimpleNamespace(
            state=SessionState.ATTACHED, latest_progress=None, latest_health=None, clock_ms=lambda: NOW_MS
        )
        shell = SimpleNamespace(
            memory=memory, session=self.session, config=None, can_ask=True, app=SimpleNamespace(size=SimpleNamespace(width=80)),
            set_news=self.messages.append, show_toast=lambda text, **_: self.messages.append(text),
            in_ui=lambda do, *args: do(*args),
            sheets=SimpleNamespace(show_news=lambda lines: self.messages.append(lines[1][0].text.strip())),
        )  # fmt: skip
        store = SimpleNamespace(
            is_loaded=True,
            info=lambda key: SimpleNamespace(
                key=key, status="failed" if key in self.failed_too else self.status, source="a.png", platform="pc", error=""
            ),
            find_failed=lambda: self.failed_too | ({1} if self.status == "failed" else set()),
            find_among=lambda keys, *_statuses: set(keys) if self.status == "pending" else set(),
        )
        self.last = LastVisit(SimpleNamespace(shell=shell, database=tmp_path / "none.sqlite"), store)
        self.last.restore()


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(selection, "run_in_background", lambda _name, work, *arguments: work(*arguments))


@pytest.mark.parametrize(
    ("state", "progress"),
    [
        (SessionState.ATTACHING, None),
        (SessionState.ATTACHED, Progress(1, 0, 0, 0, 0, 0, 0, 0, is_scanning=True)),
        (SessionState.ATTACHED, Progress(1, 9, 0, 1, 0, 0, 0, 0, is_scanning=False)),
    ],
)
@pytest.mark.usefixtures("at_once")
def test_changes_since_the_last_visit_are_shown_after_scan_and_analyses(tmp_path, state, progress):
    visit = Visit(tmp_path)
    visit.session.state, visit.session.latest_progress = state, progress
    visit.last.compare()
    visit.status = "pending"
    visit.session.state = SessionState.ATTACHED
    visit.session.latest_progress = Progress(1, 9, 0, 0, 1, 0, 0, 0, is_scanning=False)
    visit.last.compare()
    assert not visit.messages

    visit.status = "completed"
    visit.last.compare()

    assert visit.messages[0] == "1 fixed"


@pytest.mark.usefixtures("at_once")
def test_paused_queue_does_not_delay_the_changes_since_the_last_visit(tmp_path):
    visit = Visit(tmp_path)
    visit.status = "pending"
    visit.last.compare()
    visit.last.keep()
    assert (visit.messages, visit.memory.get("jobs.left_ms", 0)) == ([], NOW_MS - 90_000)
    visit.session.latest_health = SimpleNamespace(is_paused=True)
    visit.failed_too = {2}
    visit.last.compare()
    visit.last.keep()

    assert visit.messages[0] == "1 newly failed"
    assert visit.memory.get("jobs.left_ms", 0) == NOW_MS
    assert visit.memory.get("jobs.failed", []) == [1, 2]  # job 1 has not run since its failure


@pytest.mark.usefixtures("at_once")
def test_changes_of_fixed_jobs_are_read_also_if_very_many_jobs_failed(tmp_path, monkeypatch):
    asked = []
    reader = nullcontext()
    monkeypatch.setattr(selection, "open_reader", lambda _path: SimpleNamespace(close=lambda: None, snapshot=lambda: reader))
    monkeypatch.setattr(selection, "read_changes", lambda _reader, keys, _project: asked.extend(keys) or {})
    visit = Visit(tmp_path)
    visit.status, visit.failed_too = "completed", set(range(2, 300))

    visit.last.compare()

    assert visit.messages[0] == "298 newly failed, 1 fixed"
    assert 1 in asked
    assert len(asked) == 201


@pytest.mark.usefixtures("at_once")
def test_job_that_was_cancelled_is_not_reported_as_fixed(tmp_path):
    visit = Visit(tmp_path)
    visit.status = "cancelled"
    visit.last.compare()
    assert not visit.messages

    visit.last.show()

    assert visit.messages == ["", "no job failed or was fixed since your last visit"]


def test_first_visit_says_that_the_next_visit_shows_changes(tmp_path):
    visit = Visit(tmp_path, left_ms=0)
    visit.last.compare()
    visit.last.show()

    assert visit.messages == ["", "this is your first visit; your next visit shows what has changed since"]


def test_failure_cause_shows_its_start_time_while_more_jobs_fail(monkeypatch):
    read, may_end = [], threading.Event()

    def first_failed(_reader, keys):
        read.append(keys)
        assert may_end.wait(10)
        return keys[-1]

    for name, replacement in (
        ("open_reader", lambda _path: SimpleNamespace(close=lambda: None, snapshot=nullcontext)),
        ("first_failed", first_failed),
        ("read_changes", lambda _reader, keys, _project: {key: OutcomeChange(True, NOW_MS, "", False) for key in keys}),
    ):
        monkeypatch.setattr(jobs_table, name, replacement)
    keys = [1, 2]
    store = SimpleNamespace(
        failure_groups=lambda: [CauseGroup("hot", False, tuple(keys))], info=lambda key: SimpleNamespace(source=f"{key}.png")
    )
    accepted = []
    shell = SimpleNamespace(
        config=None, session=SimpleNamespace(clock_ms=lambda: NOW_MS), wake=lambda: None,
        in_ui=lambda do, *arguments: accepted.append((do, arguments)),
    )  # fmt: skip
    causes = Causes(SimpleNamespace(shell=shell, database=None), store)
    for key in range(3, 50):
        causes.renew()
        keys.append(key)
    may_end.set()
    causes._reader.wait_until_idle(10)
    for do, arguments in accepted:
        do(*arguments)
    causes.close()

    assert len(read) <= 3  # one thread reads the causes, and it skips all requests except the newest
    assert read[-1] == tuple(range(1, 49))
    causes.show(store.failure_groups())
    assert causes.cell(0, "since").text
    assert causes.cell(0, "first").text == "48.png"
    assert causes.find_first(causes.at(0))[0] == 48


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (LARGE, "failing since bbbbbbb (Bea"),
        (SMALL, "failing since bbbbbbb (Bea) "),
        ((160, 45), "cave.quest · failing since bbbbbbb (Bea) "),
    ],
)
def test_commit_of_first_failure_is_shown_above_log_and_in_causes(tmp_path, monkeypatch, size, words):
    for module in (job_details, selection):
        monkeypatch.setattr(module, "author_of", lambda _folder, _commit: "Bea Smith")

    def filler(store, log_dir):
        store.put(put_source=[source_row(1, "quests/deep/folder/cave.quest")], put_job=[job_row(1, 1, run_key=1)])
        store.put(put_run=[run_row(1, 1, completed_ms=NOW_MS - 9_000_000)])
        store.put(put_session=[session_row(NOW_MS - 9_500_000, NOW_MS - 8_000_000, commit="a" * 40)])
        store.put(put_job=[job_row(1, 1, run_key=2, **FAILED)])
        store.put(put_run=[run_row(1, 2, outcome=1, completed_ms=NOW_MS - 7_300_000)])
        store.put(put_session=[session_row(NOW_MS - 7_400_000, NOW_MS - 7_000_000, commit="b" * 40)])

    async def script(app, pilot):
        await sees(pilot, app, words)
        await pilot.press("f")
        await sees(pilot, app, "Failing since", "  bbbbbbb (Bea Smith)", "quests/")

    in_jobs(tmp_path, lambda app, pilot, _pane: script(app, pilot), filler=filler, size=size)

"""Lines 1 to 3 of the screen show the progress, the failures and the tabs that need attention."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from msgspec.structs import replace
from textual.geometry import Size
from tools import needs_feature

from aptui.core.notices import Progress
from aptui.shared.health import Health, WatchedRoot, WatchMode
from aptui.tui.data.session import SessionState
from aptui.tui.frame.line import Bar, Part
from aptui.tui.frame.statusline import Banner, Rule, StatusLine, TabBar, activity_of, attention, banner_text, share_of, trouble_of
from aptui.tui.pane import list_panes

from ..fake_panes import FakeSession


def progress(**changes: int) -> Progress:
    values = {
        "cause": 0, "files_scanned": 0, "analyses_waiting": 0, "analyses_running": 0, "jobs_waiting": 60, "jobs_running": 2,
        "jobs_done": 35, "jobs_failed": 3, "is_scanning": False, "processing_ms": 10_000, "eta_ms": 9000,
    }  # fmt: skip
    return Progress(**(values | changes))


@pytest.fixture
def session(tmp_path: Path) -> FakeSession:
    made = FakeSession(tmp_path)
    made.latest_progress = progress()
    return made


def test_status_line_has_the_progress_as_a_sentence(session: FakeSession) -> None:
    shown = "".join(part.text for part in StatusLine(session).parts(140))

    assert "● building 38 %  38 of 100 jobs · 3 failed · 9.0 s left · 2 running · 3.8 a second" in shown


def test_estimate_below_a_second_has_no_milliseconds(session: FakeSession) -> None:
    session.latest_progress = progress(eta_ms=22)

    assert "· less than 1 s left ·" in "".join(part.text for part in StatusLine(session).parts(140))


def test_remaining_time_without_an_engine_estimate_is_derived_from_the_job_rate(session: FakeSession) -> None:
    session.latest_progress, session.project_name = progress(analyses_waiting=4555, eta_ms=0), "game"
    shown = ["".join(part.text for part in StatusLine(session).parts(width)) for width in (80, 140)]

    assert shown[0].rstrip().endswith("3 failed · about 20 min left"), "the engine has no estimate yet"
    assert "· 4,555 to analyse · 2 running" in shown[1]


@pytest.mark.parametrize("changes", [{}, {"analyses_waiting": 1780}, {"analyses_running": 3, "jobs_waiting": 900}])
def test_percentage_in_line_1_matches_its_done_and_total_jobs(session: FakeSession, changes: dict[str, int]) -> None:
    session.latest_progress = progress(**changes)
    shown = "".join(part.text for part in StatusLine(session).parts(140))

    percent, done, total = (
        int(each.replace(",", ""))
        for each in re.search(r"building (\d+) %  ([\d,]+) of (?:about )?([\d,]+) jobs", shown).groups()  # type: ignore[union-attr]
    )
    assert percent == 100 * done // total
    assert ("about" in shown) == bool(changes)


@pytest.mark.parametrize(
    ("width", "shown"),
    [(19, " cache  inactive 2"), (18, " cache  inacti… 2"), (11, " cache…  2"), (10, " cache… 2"), (9, " cach… 2")],
)
def test_bar_that_is_too_narrow_marks_where_its_text_is_cut(width: int, shown: str) -> None:
    bar = Bar(lambda _width: ((Part(" cache  "), Part("inactive")), (Part("2"),)), id="bar", rules=False)

    assert "".join(part.text for part in bar.parts(width)) == shown


@pytest.mark.parametrize("state", [SessionState.REATTACHING, SessionState.DETACHED, SessionState.WAITING])
def test_status_lines_show_no_activity_while_no_engine_is_connected(session: FakeSession, state: SessionState) -> None:
    session.state = state
    session.latest_health = Health(roots=(WatchedRoot("/game", WatchMode.NATIVE),))
    shown = "".join(part.text for part in StatusLine(session).parts(140))

    tabs = "".join(part.text for part in TabBar(session, list_panes(), []).parts(140))

    assert not re.search(r"running|a second|left|of \d|%", shown)
    assert "watched" not in tabs
    assert "3 failed" in shown
    assert {part.role for part in Rule(session, name="bar").parts(102)[1:5] if part.text} == {"rule"}


def test_line_1_shows_engine_root_and_ports_if_there_is_room(session: FakeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    session.latest_progress = progress(jobs_waiting=0, jobs_running=0, scan_ms=400)
    session.engine = replace(session.engine, ports={"control": 51234, "listening": 45643})
    session.gateway = SimpleNamespace(port=8484, turned_away=())

    shown = ["".join(part.text for part in StatusLine(session, lambda: "/home/ada/o3de").parts(width)) for width in (80, 116, 160)]
    assert "engine ~/o3de  control 51234  port 45643  gateway 8484  scan 0.4 s" in shown[2]
    assert "engine" not in shown[1]
    assert "gateway 8484" in shown[1]
    assert "port" not in shown[0]


@pytest.mark.parametrize(("took_ms", "shown"), [(76_000, "0.5 a second"), (86_000, "26.5 a minute"), (3_800_000, "0.6 a minute")])
def test_low_rate_of_finished_jobs_is_shown_per_minute(session: FakeSession, took_ms: int, shown: str) -> None:
    session.latest_progress = progress(processing_ms=took_ms)

    assert f" · {shown}" in "".join(part.text for part in StatusLine(session).parts(140))


@pytest.mark.parametrize("width", range(90, 150))
def test_three_blanks_separate_the_status_sentence_from_each_timer(session: FakeSession, width: int) -> None:
    session.latest_progress = progress(scan_ms=400, analysis_ms=900, analyses_waiting=1456)

    shown = "".join(part.text for part in StatusLine(session).parts(width))

    before, timer, _ = shown.partition("scan 0.4 s") if "scan" in shown else shown.partition("processing 10.0 s")
    assert not timer or before.endswith("   ")


def test_percentage_excludes_jobs_done_before_the_current_work(session: FakeSession) -> None:
    session.latest_progress = progress(jobs_done=10_035, jobs_failed=33, done_before=10_000, failed_before=30)

    assert share_of(session.latest_progress) == (38, 100)
    assert "3.8 a second" in "".join(part.text for part in StatusLine(session).parts(140))
    assert [len(part.text) for part in Rule(session, name="bar").parts(102)[1:5]] == [35, 3, 2, 60]


def test_percentage_and_bar_include_pending_analyses(session: FakeSession) -> None:
    session.latest_progress = progress(analyses_waiting=90, analyses_running=10)

    assert activity_of(SessionState.ATTACHED, session.latest_progress, None).text == "● building 19 %"
    done, failed = (len(part.text) for part in Rule(session, name="bar").parts(202)[1:3])
    assert done + failed == 38


def test_idle_or_scanning_engine_has_no_percentage() -> None:
    idle = progress(jobs_waiting=0, jobs_running=0)

    assert share_of(idle) == (0, 0)
    assert activity_of(SessionState.ATTACHED, idle, None).text == "✓ idle"
    assert activity_of(SessionState.ATTACHED, progress(jobs_done=0, jobs_failed=0), None).text == "● building"


def test_draining_engine_is_shown_as_draining_and_then_as_drained() -> None:
    health = Health(is_draining=True)

    assert activity_of(SessionState.ATTACHED, progress(), health).text == "‖ draining"
    assert activity_of(SessionState.ATTACHED, progress(jobs_waiting=0, jobs_running=0), health).text == "‖ drained"


def test_progress_bar_has_sections_for_done_failed_running_and_remaining_jobs(session: FakeSession) -> None:
    parts = Rule(session, name="bar").parts(102)

    assert [(part.role, len(part.text)) for part in parts[1:5]] == [
        ("completed", 35),
        ("failed", 3),
        ("processing", 2),
        ("rule", 60),
    ]
    session.latest_progress = progress(jobs_failed=1, jobs_done=9999, jobs_running=1, jobs_waiting=0)
    lengths = [len(part.text) for part in Rule(session, name="bar").parts(102)[1:5]]
    assert (lengths[1], lengths[2], sum(lengths)) == (1, 1, 100)


def test_status_line_marks_a_read_only_screen(session: FakeSession) -> None:
    session.is_read_only = True

    assert "· read only" in "".join(part.text for part in StatusLine(session).parts(140))


def test_tabs_that_need_attention_are_marked(session: FakeSession) -> None:
    assert attention(session) == {"jobs": "failed"}
    session.latest_progress = progress(failing_count=0)
    session.gateway = SimpleNamespace(turned_away=("203.0.113.7",))
    session.latest_health = Health(disk="full", broken_builders=(("a", "b"),), configuration="line 3")

    assert attention(session) == {"connections": "warning", "builders": "failed", "cache": "warning", "tools": "warning"}


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        ("no engine listens at '/home/ada/.local/state/s'", "! no engine is running · type ':start' to start an engine"),
        ("it ended", "! no engine: it ended · type ':start' to start an engine"),
        ("", "! no engine is running · type ':start' to start an engine"),
    ],
)
def test_banner_reports_a_missing_engine_only_once(trouble, expected):
    session = FakeSession(Path("/c"), SessionState.DETACHED)
    session.trouble = trouble

    assert banner_text(session) == expected
    session.is_read_only = True
    assert banner_text(session) == expected.removesuffix(" · type ':start' to start an engine")


def test_banner_names_the_run_that_holds_the_cache():
    session = FakeSession(Path("/c"), SessionState.WAITING)
    session.trouble = "another run (process 4711) is using this cache"

    assert banner_text(session) == "! another run (process 4711) is using this cache; an engine starts when that run has ended"
    assert "waiting" in "".join(part.text for part in StatusLine(session).parts(80))


@needs_feature("gateway", "sharing")
def test_narrow_tab_bar_shows_only_the_most_important_facts(session: FakeSession) -> None:
    def right(width: int) -> str:
        return (
            "".join(part.text for part in TabBar(session, list_panes(), ["linux", "server"]).parts(width))
            .rpartition("Tools")[2]
            .strip()
        )

    native = WatchedRoot("/b", WatchMode.NATIVE)
    session.latest_progress, session.latest_health = None, Health(roots=(native, native))
    assert [right(width) for width in (140, 100, 80, 75)] == [
        "linux, server   2 folders watched   connected", "linux, server   2 folders watched", "linux, server", "connected",
    ]  # fmt: skip
    session.state = SessionState.REATTACHING
    assert [right(width) for width in (100, 80)] == ["reconnecting", "reconnecting"]
    session.state, session.latest_health = SessionState.ATTACHED, Health(roots=(WatchedRoot("/a", WatchMode.GONE), native))
    assert [right(width) for width in (100, 85)] == ["! gone: 1 of 2 folders   connected", "! gone: 1 of 2 folders"]


@pytest.mark.parametrize(("height", "lines"), [(24, 3), (10, 1)])
def test_banner_marks_the_place_where_a_long_problem_is_cut(session: FakeSession, height: int, lines: int) -> None:
    session.state, session.trouble = SessionState.DETACHED, "the engine cannot be started " * 20
    banner = Banner(session)

    with patch.object(Banner, "app", SimpleNamespace(size=Size(60, height))):
        rows = banner._wrap()

    assert len(rows) == lines
    assert max(map(len, rows)) <= 58
    assert rows[-1].endswith("…")


def test_banner_of_a_broken_configuration_shows_only_the_first_mistake():
    mistakes = "/home/ada/games/aptui.yaml:11:5: 'name' is missing\n/home/ada/games/aptui.yaml:11:6: unknown key 'nam'"

    assert trouble_of(Health(configuration=mistakes)) == "! configuration: aptui.yaml:11:5: 'name' is missing  (and 1 more)"
    assert (
        trouble_of(Health(database="the asset database was deleted: restore the file"))
        == "! the asset database was deleted: restore the file"
    )
    assert trouble_of(Health(disk="'/srv/a:1:1: b' is full")) == "! disk: '/srv/a:1:1: b' is full"

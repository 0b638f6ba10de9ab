"""Sheets about sessions: lines at both widths, commands that open them, and the time line with its lanes and critical path."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aptui.config.configuration import Config
from aptui.core.asset_checks import Check, Limit
from aptui.core.model import EdgeKind
from aptui.features.insight.history_verb import timeline
from aptui.features.insight.session_lines import check_lines, history, sizes_lines, time_line
from aptui.shared.errors import UserError
from aptui.tui.frame.line import Parts
from tests.features.insight.test_comparing import NOW
from tests.store.conftest import Store, edge_row, job_row, product_row, source_row
from tests.store.queries.test_session_history import job, run_row, session_row
from tests.tui.database import database
from tests.tui.jobs_harness import in_jobs
from tests.tui.shell_harness import SMALL, text, until

WIDTHS = (80, 140)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with database(tmp_path) as store:
        yield store


def night(store: Store, *_: object) -> None:
    """Two sessions: job 1 begins to fail, job 2 becomes slow, job 3 is new."""
    job(store, 1, 101, duration_ms=100, completed_ms=NOW)
    job(store, 2, 102, duration_ms=100, completed_ms=NOW)
    store.put(put_session=[session_row(NOW - 1000, NOW, kind="start")])
    job(store, 1, 201, outcome=1, duration_ms=50, completed_ms=NOW + 2000)
    job(store, 2, 202, duration_ms=900, completed_ms=NOW + 2500)
    job(store, 3, 203, duration_ms=10, completed_ms=NOW + 2600)
    store.put(put_session=[session_row(NOW + 1000, NOW + 3000, kind="checkout", detail="\x1b[31ma → b")])


def texts_of(lines: list[Parts]) -> list[str]:
    return ["".join(part.text for part in parts) for parts in lines]


@pytest.mark.parametrize("width", WIDTHS)
def test_history_sheet_lists_the_sessions(store: Store, width: int) -> None:
    night(store)

    listed = texts_of(history(store.reader(), [], str, width))

    assert [line.split()[0] for line in listed if line[:6].strip().isdigit()] == ["2", "1"]
    assert "checkout: " in listed[2]
    assert "\x1b" not in "".join(listed)
    assert all(len(line) <= width for line in listed[:-1])


def test_history_sheet_shows_one_session_or_the_comparison_of_two_sessions(store: Store) -> None:
    night(store)
    reader = store.reader()

    one = texts_of(history(reader, ["last"], lambda _uuid: "image", 80))
    assert " Failed" in one
    assert any("0.9 s" in line and "2.png@linux:Image  image" in line for line in one)
    both = texts_of(history(reader, ["2", "1"], str, 80))
    at = both.index(" Began to fail (1)")
    assert "1.png@linux" in both[at + 1]
    assert any("9.0 times" in line and "2.png" in line for line in both)
    assert " New (1)" in both
    heads = next(at for at, line in enumerate(both) if "1 began to fail · " in line)
    assert "1 slower" in both[heads]
    assert heads < at


@pytest.mark.parametrize("width", WIDTHS)
def test_timeline_has_a_row_for_each_lane(store: Store, width: int) -> None:
    night(store)

    lines = time_line(store.reader(), [], str, width)

    rows = [line for line in texts_of(lines) if line.startswith(" lane")]
    assert len(rows) == 2
    assert all(len(row) <= width for row in rows)
    assert sum("█" in row for row in rows) == 1
    texts = texts_of(lines)
    assert next(at for at, line in enumerate(texts) if "Critical path" in line) < texts.index(rows[0])
    assert any(part.role == "failed" for parts in lines for part in parts)


@pytest.mark.parametrize(("began_ms", "ended_ms"), [(-90_000, 1500), (-9_000, -8_000)])
def test_timeline_shows_a_run_that_began_before_its_session(store: Store, began_ms: int, ended_ms: int) -> None:
    ran(store, 1, began_ms, ended_ms)
    session(store)

    assert any("lane 1" in line and line.split()[2].startswith("█") for line in texts_of(time_line(store.reader(), [], str, 80)))


def test_size_sheet_lists_sizes_with_bars(store: Store) -> None:
    night(store)
    reader = store.reader()

    assert any(line.startswith(" linux") and "█" in line for line in texts_of(sizes_lines(reader, ["platform"], str, 80)))
    assert any("+10 B" in line for line in texts_of(sizes_lines(reader, ["builder", "1"], lambda _uuid: "image", 80)))


def test_checks_sheet_lists_checks_with_their_findings(store: Store) -> None:
    night(store)
    checks = (Check("small", "fail", limits=(Limit("bytes", "< 5", 0.0, 5.0),)), Check("names", file_name=".*"))
    config = cast("Config", SimpleNamespace(checks=checks, project=SimpleNamespace(resting_platforms=())))

    lines = check_lines(config, store.reader(), [], str, 80)

    assert texts_of(lines)[1].startswith(" small  fail  ")
    assert any(", wanted: < 5" in line for line in texts_of(lines)), texts_of(lines)
    assert texts_of(lines)[-1] == " names  warn  nothing found"
    assert any(part.role == "failed" for parts in lines for part in parts)
    assert "no checks are configured" in texts_of(check_lines(config, store.reader(), ["none"], str, 80))[1]


def test_sheets_of_an_empty_database_report_that_nothing_is_recorded(store: Store) -> None:
    reader = store.reader()

    assert texts_of(history(reader, [], str, 80))[1] == " no session is stored yet"
    assert texts_of(sizes_lines(reader, ["no such"], str, 80))[-1] == " there are no products"
    with pytest.raises(UserError):
        time_line(reader, ["last"], str, 80)
    with pytest.raises(UserError):
        history(reader, ["x"], str, 80)


@pytest.mark.real
def test_commands_open_the_sheets_about_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")

    async def script(app, pilot, _pane):
        for command, shown in (
            ("history", "checkout"),
            ("history 1 2", "Began to fail"),
            ("timeline", "Critical path"),
            ("size type", ".png"),
        ):
            await pilot.press(":", *("space" if char == " " else char for char in command), "enter")
            await until(pilot, lambda shown=shown: shown in text(app))
            await pilot.press("escape")
        await pilot.press(":", *"history", "space", "9", "enter")
        await until(pilot, lambda: "'9' is not a session" in text(app))
        await pilot.press(":", *"restore", "space", "x", "space", "1", "enter")
        await until(pilot, lambda: "'x' is not a job" in text(app))
        await pilot.press(":", *"restore", "space", *"1.png", "space", "²", "enter")
        await until(pilot, lambda: "run ² does not exist" in text(app))

    in_jobs(tmp_path, script, size=SMALL, filler=night)


def ran(store: Store, number: int, began_ms: int, ended_ms: int, *, platform: str = "linux", name: str = "") -> None:
    store.put(
        put_source=[source_row(number, f"{number}.png")],
        put_job=[job_row(number, number, run_key=number, platform=platform)],
        put_product=[product_row(number, number, name or f"linux/{number}.out")],
        put_run=[run_row(number, number, completed_ms=ended_ms, duration_ms=ended_ms - began_ms)],
    )


def needs(store: Store, number: int, *targets: int) -> None:
    store.put(put_edge=[edge_row(int(EdgeKind.JOB), f"{target}.png", source_id=number) for target in targets])


def session(store: Store, **changes: Any) -> None:
    store.put(put_session=[session_row(1000, 9000, **changes)])


def test_timeline_uses_the_fewest_lanes(store: Store) -> None:
    ran(store, 1, 1000, 3000)
    ran(store, 2, 1500, 2000)
    ran(store, 3, 2000, 2500)
    ran(store, 4, 3000, 3100)
    session(store)

    found = timeline(store.reader(), 1)

    assert found.lane_count == 2
    assert {span.run.job_id: (span.lane, span.began_ms, span.ended_ms) for span in found.spans} == {
        1: (1, 0, 2000), 2: (0, 500, 1000), 3: (0, 1000, 1500), 4: (0, 2000, 2100),
    }  # fmt: skip


def test_timeline_places_runs_with_the_same_commit_one_after_another(store: Store) -> None:
    for number in range(1, 41):  # the results of these forty runs are committed at the same time
        ran(store, number, 2990, 3000)
    ran(store, 41, 2000, 2800)
    session(store)

    found = timeline(store.reader(), 1)

    assert found.lane_count == 2
    spans = sorted((span.lane, span.began_ms, span.ended_ms) for span in found.spans)
    assert all(lane != after or end <= begin for (lane, _, end), (after, begin, _) in pairwise(spans))
    assert max(end for _lane, _begin, end in spans) == 2000


def test_critical_path_is_the_longest_chain(store: Store) -> None:
    ran(store, 1, 1000, 2000)
    ran(store, 2, 2000, 3500)
    ran(store, 3, 3500, 4000)
    ran(store, 4, 1000, 3600)
    needs(store, 2, 1)
    needs(store, 3, 2, 9)
    session(store)

    found = timeline(store.reader(), 1)

    assert found.needs == {2: (1,), 3: (2,)}
    assert (found.critical, found.critical_ms) == ([1, 2, 3], 3000)


def test_timeline_shows_that_a_job_waits_for_the_job_that_made_its_source(store: Store) -> None:
    ran(store, 1, 1000, 2000, platform="common", name="common/2.png")
    ran(store, 2, 2000, 2100)
    session(store)

    assert timeline(store.reader(), 1).critical == [1, 2]


def test_dependency_cycle_does_not_stop_the_critical_path(store: Store) -> None:
    ran(store, 1, 1000, 2000)
    ran(store, 2, 1000, 2500)
    needs(store, 1, 2)
    needs(store, 2, 1)
    session(store)

    assert timeline(store.reader(), 1).critical == [1, 2]


def test_timeline_omits_dependencies_on_runs_of_other_sessions(store: Store) -> None:
    ran(store, 1, 1000, 2000)
    session(store)
    ran(store, 2, 3000, 3500)
    needs(store, 2, 1)
    session(store)

    found = timeline(store.reader(), 2)

    assert (found.needs, found.critical) == ({}, [2])


def test_timeline_of_an_empty_session_is_empty(store: Store) -> None:
    session(store)

    found = timeline(store.reader(), 1)

    assert (found.spans, found.lane_count, found.critical, found.critical_ms) == ([], 0, [], 0)

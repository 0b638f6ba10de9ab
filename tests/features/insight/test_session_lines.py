"""The sheets about sessions: their lines over a real database at both widths, and the commands that open them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aptui.config.configuration import Config
from aptui.core.asset_checks import Check, Limit
from aptui.features.insight.session_lines import check_lines, history, sizes_lines, time_line
from aptui.shared.errors import UserError
from aptui.tui.frame.line import Parts
from tests.features.insight.test_comparing import NOW
from tests.store.conftest import Store
from tests.store.queries.test_session_history import job, session_row
from tests.tui.database import database
from tests.tui.jobs_room import in_jobs
from tests.tui.shell_room import SMALL, text, until

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


def said(lines: list[Parts]) -> list[str]:
    return ["".join(part.text for part in parts) for parts in lines]


@pytest.mark.parametrize("width", WIDTHS)
def test_sessions_are_listed(store: Store, width: int) -> None:
    night(store)

    listed = said(history(store.reader(), [], str, width))

    assert [line.split()[0] for line in listed if line[:6].strip().isdigit()] == ["2", "1"]
    assert "checkout: " in listed[2]
    assert "\x1b" not in "".join(listed)
    assert all(len(line) <= width for line in listed[:-1])


def test_one_session_and_two_compared(store: Store) -> None:
    night(store)
    reader = store.reader()

    one = said(history(reader, ["last"], lambda _uuid: "image", 80))
    assert " Failed" in one
    assert any("0.9 s" in line and "2.png@linux:Image  image" in line for line in one)
    both = said(history(reader, ["2", "1"], str, 80))
    at = both.index(" Began to fail (1)")
    assert "1.png@linux" in both[at + 1]
    assert any("9.0 times" in line and "2.png" in line for line in both)
    assert " New (1)" in both
    heads = next(at for at, line in enumerate(both) if "1 began to fail · " in line)
    assert "1 slower" in both[heads]
    assert heads < at


@pytest.mark.parametrize("width", WIDTHS)
def test_time_line_has_a_row_for_each_lane(store: Store, width: int) -> None:
    night(store)

    lines = time_line(store.reader(), [], str, width)

    rows = [line for line in said(lines) if line.startswith(" lane")]
    assert len(rows) == 2
    assert all(len(row) <= width for row in rows)
    assert sum("█" in row for row in rows) == 1
    texts = said(lines)
    assert next(at for at, line in enumerate(texts) if "Critical path" in line) < texts.index(rows[0])
    assert any(part.role == "failed" for parts in lines for part in parts)


def test_sizes_with_bars(store: Store) -> None:
    night(store)
    reader = store.reader()

    assert any(line.startswith(" linux") and "█" in line for line in said(sizes_lines(reader, ["platform"], str, 80)))
    assert any("+10 B" in line for line in said(sizes_lines(reader, ["builder", "1"], lambda _uuid: "image", 80)))


def test_checks_with_their_findings(store: Store) -> None:
    night(store)
    checks = (Check("small", "fail", limits=(Limit("bytes", "< 5", 0.0, 5.0),)), Check("names", file_name=".*"))
    config = cast("Config", SimpleNamespace(checks=checks))

    lines = check_lines(config, store.reader(), [], str, 80)

    assert said(lines)[1].startswith(" small  fail  ")
    assert any(", wanted: < 5" in line for line in said(lines)), said(lines)
    assert said(lines)[-1] == " names  warn  nothing found"
    assert any(part.role == "failed" for parts in lines for part in parts)
    assert "no checks are configured" in said(check_lines(config, store.reader(), ["none"], str, 80))[1]


def test_empty_database(store: Store) -> None:
    reader = store.reader()

    assert said(history(reader, [], str, 80))[1] == " no session is recorded yet"
    assert said(sizes_lines(reader, ["no such"], str, 80))[-1] == " there are no products"
    with pytest.raises(UserError):
        time_line(reader, ["last"], str, 80)
    with pytest.raises(UserError):
        history(reader, ["x"], str, 80)


@pytest.mark.real
def test_commands_open_sheets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("TERM", "xterm-256color")

    async def look(app, pilot, _pane):
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
        await until(pilot, lambda: "there is no session '9'" in text(app))
        await pilot.press(":", *"restore", "space", "x", "space", "1", "enter")
        await until(pilot, lambda: "no job is called 'x'" in text(app))

    in_jobs(tmp_path, look, size=SMALL, filler=night)

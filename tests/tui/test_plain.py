"""Plain lines instead of the screen: which notices are printed, safe text, the maximum number of waiting lines, and following."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aptui.core.notices import EngineMessage, HealthChanged, JobChanged, Notice
from aptui.link.codec import NoticeLine
from aptui.shared.health import Health
from aptui.tui import plain
from aptui.tui.data.session import Session
from aptui.tui.plain import Stream, follow, line_of


def job(status: str, **more: Any) -> JobChanged:
    facts: dict[str, Any] = {"source": "a.png", "error": "", "warnings": 0, "errors": 0, "job_key": "Image"} | more
    return JobChanged(
        0,
        1,
        facts["source"],
        1,
        "pc",
        facts["job_key"],
        "b",
        status,
        "",
        facts["error"],
        facts["warnings"],
        facts["errors"],
        3,
        "",
        cast(Any, 1),
    )


def test_plain_mode_prints_only_settled_jobs_without_control_characters() -> None:
    news = job("failed", source="a\x1b]0;x\x07.png", error="bad\x9b1m")
    stream = Stream()
    stream.receive([NoticeLine(1, 1, news)])
    stream.note_loss()

    assert "✗ failed" in line_of(news, 0)
    assert line_of(news, 0).isprintable()
    assert len(list(stream.lines())) == 2


@pytest.mark.parametrize(
    ("notice", "words"),
    [
        (job("processing"), ""), (job(""), ""), (HealthChanged(0, Health()), ""),
        (job("completed", warnings=2), "✓ completed  a.png  pc · Image  2 warnings"),
        (job("completed", warnings=1, errors=3), "✓ completed  a.png  pc · Image  3 errors  1 warning"),
        (job("completed", job_key="CreateJobs_{e189aa390ca9561091cc9322cf87e201}"), "✓ completed  a.png  analysis:b"),
        (job("failed", error="no pixels"), "✗ failed     a.png  pc · Image  no pixels"),
        (EngineMessage(0, 0, "all is well"), "· all is well"), (EngineMessage(0, 2, "little room"), "! little room"),
        (HealthChanged(0, Health(is_paused=True)), "‖ paused"),
    ],
)  # fmt: skip
def test_plain_line_has_time_and_event(notice: Notice, words: str) -> None:
    assert line_of(notice, 0).partition(" ")[2] == words


def test_dropped_plain_lines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_MOST_WAITING", 2)
    stream = Stream()
    stream.receive([NoticeLine(1, at, EngineMessage(0, 0, f"line {at}")) for at in range(5)])

    first, *rest = stream.lines()
    assert "3 lines are left out" in first
    assert [line.partition(" ")[2] for line in rest] == ["· line 0", "· line 1"]
    assert list(stream.lines()) == []


def test_follow_writes_plain_lines_until_the_end_and_removes_its_listener() -> None:
    session, out = SimpleNamespace(listeners=[]), io.StringIO()
    news = [EngineMessage(0, 0, "one"), EngineMessage(0, 0, "two")]

    def is_over(_wait_s: float) -> bool:
        if news:
            session.listeners[0].receive([NoticeLine(1, 1, news.pop(0))])
            return False
        return True

    follow(cast(Session, session), out, is_over)

    assert [line.partition(" ")[2] for line in out.getvalue().splitlines()] == ["· one", "· two"]
    assert session.listeners == []

"""Alerts: one digest for many jobs, only new failures, no repetition; a program or hook that hangs blocks nothing."""

from __future__ import annotations

import http.server
import io
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aptui.config.settings import Alert, AlertSettings
from aptui.core.model import RelPath, RunKey
from aptui.core.notices import JobChanged, Progress
from aptui.features.insight import alerter
from aptui.features.insight.alerter import Alerter

LONG_S = 3_600.0


def job(number: int, status: str = "failed", name: str = "") -> JobChanged:
    path = RelPath(name or f"{number}.png")
    return JobChanged(0, number, path, 1, "linux", "key", "image", status, "", "broken", 0, 0, 1, "", RunKey(1))


def progress(*, waiting: int) -> Progress:
    return Progress(0, 0, 0, 0, waiting, 0, 0, 0, is_scanning=False)


class Harness:
    """An alerter with a clock, a list of messages and a terminal that the test controls."""

    def __init__(self, folder: Path, *alerts: Alert, failing: tuple[int | str, ...] = (), quiet_s: float = LONG_S) -> None:
        self.now, self.messages = 100.0, [""]
        self.messages.clear()
        self.terminal = io.StringIO()
        settings = AlertSettings(alerts, quiet_s)
        config: Any = SimpleNamespace(on=settings, name="game", project_dir=folder, cache_dir=folder, sandbox="auto")
        self.alerter = Alerter(lambda: config, failing, self.messages.append, self.terminal, lambda: self.now)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(alerter, "_run_program", lambda _alert, digest: found.append(digest))
    return found


ALL = tuple(Alert(event, ("tell",)) for event in ("failed", "mended", "idle"))


def test_many_failures_are_sent_as_one_digest_with_the_first_names(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    harness = Harness(tmp_path, ALL[0])
    for number in range(1, 51):
        harness.alerter(job(number))
    harness.alerter.close()

    (digest,) = sent
    assert digest["text"] == "game: 50 jobs failed: 1.png, 2.png, 3.png and 47 more"
    assert (digest["count"], len(digest["jobs"])) == (50, alerter.LISTED)
    assert digest["jobs"][0] == {
        "source": "1.png", "platform": "linux", "job_key": "key", "builder": "image", "error": "broken"
    }  # fmt: skip


def test_only_new_failures_and_recoveries_are_sent(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    harness = Harness(tmp_path, *ALL, failing=(1, 2, "a.py"))
    for notice in (job(1), job(2, "completed"), job(0, "completed", "a.py"), job(3, "completed")):
        harness.alerter(notice)
    harness.alerter.close(has_rested=True)

    assert [(digest["event"], digest["count"]) for digest in sent] == [("mended", 2), ("idle", 4)]
    assert sent[1]["text"] == "game: all work is done; 4 jobs ran, 1 failed"


def test_job_that_recovers_at_once_or_is_deleted_causes_no_alert(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    harness = Harness(tmp_path, *ALL[:2], failing=(3,))
    for notice in (job(1), job(1, "completed"), job(2), job(2, ""), job(3, "")):
        harness.alerter(notice)
    harness.alerter.close()

    assert sent == []


def test_alert_digest_is_sent_when_idle_or_after_a_quiet_period(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    harness = Harness(tmp_path, *ALL)
    harness.alerter(progress(waiting=5))
    harness.alerter(job(1))

    assert harness.alerter._wait_s() == LONG_S
    harness.now += LONG_S / 2
    assert harness.alerter._wait_s() == LONG_S / 2
    with harness.alerter._changed:
        harness.alerter._is_at_rest = True
        assert (harness.alerter._wait_s() or 0) < 0
        harness.alerter._sent_s = harness.now - 10
        assert harness.alerter._wait_s() == LONG_S - 10
    assert sent == []
    harness.alerter.close()


def test_alert_about_the_end_of_work_is_sent_only_after_long_work(tmp_path: Path, sent: list[dict[str, Any]]) -> None:
    harness = Harness(tmp_path, ALL[2])
    for seconds in (1, 2 * LONG_S):
        harness.alerter(progress(waiting=1))
        harness.alerter(job(1, "completed"))
        harness.now += seconds
        harness.alerter(progress(waiting=0))
    harness.alerter.close()

    assert [digest["count"] for digest in sent] == [1]


def test_alerter_without_alerts_starts_no_thread(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.alerter(job(1))
    harness.alerter.close(has_rested=True)

    assert harness.alerter._thread is None
    assert not harness.alerter._failing


@pytest.mark.real
def test_alert_program_gets_the_digest_without_a_shell(tmp_path: Path) -> None:
    code = "import os,sys; open('told','w').write(sys.stdin.read()+os.environ['APTUI_EVENT']+sys.argv[1])"
    harness = Harness(tmp_path, Alert("failed", (sys.executable, "-c", code, "$HOME; x")))
    harness.alerter(job(1))
    harness.alerter.close()

    text = (tmp_path / "told").read_text()
    assert text.endswith("}failed$HOME; x")
    assert json.loads(text.removesuffix("failed$HOME; x"))["count"] == 1
    assert harness.messages == []


@pytest.mark.real
def test_failing_alert_program_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(alerter, "PROGRAM_LIMIT_S", 0.05)
    wrong = [Alert("failed", ("./nothing-here",), desktop=True), Alert("failed", ("/bin/sh", "-c", "exit 7"))]
    slow = Alert("failed", ("/bin/sh", "-c", "while :; do :; done"))
    harness = Harness(tmp_path, *wrong, slow)
    digest = {"event": "failed", "text": "x", "folder": str(tmp_path)}
    harness.alerter._send(digest)
    harness.alerter._send(digest)

    assert len(harness.messages) == 4
    assert "No such file" in harness.messages[0]
    assert harness.messages[1] == "on.failed.desktop: the program 'notify-send' is not installed"
    assert harness.messages[2].endswith("ended with exit code 7")
    assert "was stopped" in harness.messages[3]


class Hook(http.server.BaseHTTPRequestHandler):
    """An HTTP handler that records POST requests."""

    got: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        self.got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(302 if self.path == "/elsewhere" else 204)
        self.send_header("Location", "/x")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


@pytest.fixture
def hook() -> Iterator[str]:
    Hook.got = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.real
def test_webhook_gets_the_digest_and_its_redirect_is_not_followed(tmp_path: Path, hook: str) -> None:
    harness = Harness(tmp_path, Alert("failed", webhook=f"{hook}/x?a=b"), Alert("failed", webhook=f"{hook}/elsewhere"))
    harness.alerter(job(1))
    harness.alerter.close()

    assert [path for path, _ in Hook.got] == ["/x?a=b", "/elsewhere"]
    assert json.loads(Hook.got[0][1])["text"] == "game: 1 job failed: 1.png"
    assert harness.messages == ["on.failed.webhook: '127.0.0.1' answered 302 Found"]


def test_terminal_alert_omits_escape_sequences_in_job_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerter.printing, "is_terminal", lambda _stream: True)
    harness = Harness(tmp_path, Alert("failed", bell=True))
    harness.alerter(job(1, name="a;\x1b[31m\x07.png"))
    harness.alerter.close()

    text = harness.terminal.getvalue()
    assert text.startswith("\a\x1b]9;game: 1 job failed: a,")
    assert text.count("\x1b") == 1
    assert text.count("\a") == 2

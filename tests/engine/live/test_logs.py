"""Requests for the log of a job: the answer has the lines written so far, and no lines if no worker runs the job."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from live_project import own_live_project

from aptui.engine.live.requests import ANSWER_TIMEOUT_S, LogRequests
from aptui.engine.pool.worker_messages import LogSoFar
from aptui.link import port
from aptui.shared.errors import KnownError
from aptui.worker.output import BoundedText
from aptui.worker.wire import LogAnswer

SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders:
- name: slow
  patterns: ["*.slow"]
  command: "echo 'warning: hot'; echo begun; while ! test -e GO; do sleep 0.01; done; cp {source} {products_dir}"
"""


# ------------------------------------------------------------------------------------------------- requests to a real engine


@pytest.mark.real
def test_running_job_reports_its_log_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = own_live_project(tmp_path, monkeypatch, SETTINGS, {})
    project.config(SETTINGS.replace("GO", f"{project.root}/go"))
    with project.running() as live:
        project.write("assets/a.slow", "a")
        project.until(lambda: live.engine is not None and live.engine.pipeline.running_job_ids())
        assert live.engine is not None
        (job_id,) = live.engine.pipeline.running_job_ids()

        def answer_to(verb: port.ReadRunLog) -> dict[str, Any]:
            log_answer = project.ask(verb).answered
            assert log_answer is not None
            return log_answer

        project.until(lambda: len(answer_to(port.ReadRunLog(job_id))["records"]) == 2)
        first = answer_to(port.ReadRunLog(job_id))
        assert [(record.level, record.text) for record in first["records"]] == [(2, "hot"), (1, "begun")]
        again = answer_to(port.ReadRunLog(job_id, first["run_key"], first["stamp"]))
        assert again == {**first, "records": None}, "no line is new"
        assert answer_to(port.ReadRunLog(job_id, 4711, first["stamp"])) == first, "the known lines are of another run"
        assert answer_to(port.ReadRunLog(4711)) == {"run_key": 0, "stamp": -1, "records": []}

        project.write("go", "")
        project.until_idle()
        assert answer_to(port.ReadRunLog(job_id)) == {"run_key": 0, "stamp": -1, "records": []}


# ---------------------------------------------------------------------------------------- requests to a simulated engine


class Live:
    """A fake engine with one run (key 7). `log_answer` is the worker's answer about its log, None = the run has ended."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.log_answer: LogAnswer | None = LogAnswer(7, 3)
        self.is_awaited, self.now = True, 100.0
        job = SimpleNamespace(id=1, is_analysis=False)
        self.engine: Any = SimpleNamespace(
            pipeline=SimpleNamespace(jobs=SimpleNamespace(running={7: job})), runs=SimpleNamespace(pool_if_any=self)
        )

    def log_so_far(self, run_key: int, *, asks: bool = False) -> LogSoFar | None:
        assert run_key == 7
        return LogSoFar(self.log_answer, "w", BoundedText(), self.is_awaited) if self.log_answer else None


def asked(logs: LogRequests, job_id: int = 1, client: int = 1) -> dict[str, Any]:
    log_answer: dict[str, Any] = {}
    request: Any = SimpleNamespace(answer=lambda **more: log_answer.update(more), client=client)
    logs.handle(request, port.ReadRunLog(job_id))
    return log_answer


@pytest.fixture
def live() -> Live:
    return Live()


@pytest.fixture
def logs(live: Live) -> LogRequests:
    return LogRequests(live, lambda: live.now)  # type: ignore[arg-type]


def test_request_for_a_log_waits_at_most_one_second_for_the_worker(live: Live, logs: LogRequests) -> None:
    assert logs.next_deadline(live.now) is None
    log_answer = asked(logs)
    logs.poll(live.now)
    assert not log_answer
    assert logs.next_deadline(live.now) == live.now + ANSWER_TIMEOUT_S

    logs.poll(live.now + ANSWER_TIMEOUT_S)

    assert log_answer == {"run_key": 7, "stamp": 3, "records": ()}
    assert logs.next_deadline(live.now) is None


def test_request_for_a_log_is_answered_when_the_run_has_ended(live: Live, logs: LogRequests) -> None:
    one, other = asked(logs), asked(logs, client=2)
    live.log_answer = None
    logs.poll(live.now)

    assert one == other == {"run_key": 0, "stamp": -1, "records": []}


def test_request_for_a_log_is_answered_when_the_engine_reopens(live: Live, logs: LogRequests) -> None:
    log_answer = asked(logs)
    live.engine = None
    logs.poll(live.now)

    assert log_answer["run_key"] == 0
    with pytest.raises(KnownError, match="the engine cannot process requests now"):
        asked(logs)


def test_the_log_of_a_run_without_a_worker_is_empty(live: Live, logs: LogRequests) -> None:
    live.log_answer = None
    assert asked(logs) == {"run_key": 7, "stamp": -1, "records": []}


def test_engine_does_not_answer_a_log_request_of_a_disconnected_client(live: Live, logs: LogRequests) -> None:
    log_answer = asked(logs)
    logs.forget_client(1)
    live.is_awaited = False
    logs.poll(live.now)

    assert not log_answer

"""Requests of clients and the engine's answers. The tests call the engine's request handler without a socket."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from disk_project import COPIES
from live_project import LiveProject, Request, own_live_project

from aptui.cli.read_access import resource_line
from aptui.core.notices import JobChanged, Progress
from aptui.engine.loop.scans import Scans
from aptui.link import port

pytestmark = pytest.mark.real


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    return own_live_project(tmp_path, monkeypatch, COPIES, {f"assets/{name}.txt": name for name in "abc"})


def note_scans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """Return a list that gets (whether failed jobs are retried, whether all bytes are read) of each scan that begins."""
    scans: list[tuple[bool, bool]] = []
    start = Scans.start

    def note(scans_of_engine: Scans, *, retries: bool, is_full: bool) -> None:
        scans.append((retries, is_full))
        start(scans_of_engine, retries=retries, is_full=is_full)

    monkeypatch.setattr(Scans, "start", note)
    return scans


def test_status_request_returns_project_state_and_uptime_of_the_engine(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.running():
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() - 365 * 86_400 * 10**9)
        status = project.ask(port.ReadStatus()).answered

        assert status is not None
        assert status["state"] == "idle"
        assert status["project"] == str(project.root)
        assert status["protocol"] == port.PROTOCOL
        assert 0 <= status["uptime_s"] < 600, "the uptime does not depend on the time of day"


def test_status_reports_holders_and_waiters_of_a_resource(project: LiveProject) -> None:
    command = f"while ! test -e {project.root}/go; do sleep 0.01; done; cp {{source}} {{products_dir}}"
    baker = f"]}}, {{name: bake, patterns: ['*.bake'], command: '{command}', resources: [card]}}]\nresources: {{card: 1}}"
    project.config(COPIES.replace("]}]", baker))

    def uses() -> list[str]:
        status = project.ask(port.ReadStatus()).answered
        assert status is not None
        return [resource_line(use) for use in msgspec.to_builtins(status["resources"])]

    with project.running():
        for name in "ab":
            project.write(f"assets/{name}.bake", name)
        project.until(lambda: uses() == ["card  1 of 1 in use, by a.bake@linux:bake; 1 job could run without this limit"])
        project.write("go", "")
        project.until(lambda: project.is_idle)
        assert uses() == ["card  0 of 1"]


def test_progress_reports_failed_jobs_across_restarts(project: LiveProject) -> None:
    project.config(COPIES.replace("]}]", "]}, {name: tables, uses: json, patterns: ['*.json']}]"))
    project.edit({"assets/bad.json": "{", "assets/worse.json": "["})

    def failing() -> int:
        progress = project.live.latest_progress
        return progress.failing_count if progress is not None else -1

    with project.running():
        project.until(lambda: failing() == 2)
    with project.running():
        project.until(lambda: project.is_idle and failing() == 2)
        project.write("assets/bad.json", "{}")
        project.until(lambda: failing() == 1)
        project.delete("assets/worse.json")
        project.until(lambda: failing() == 0)


def test_request_for_the_next_or_a_named_job_starts_only_one_paused_job(project: LiveProject) -> None:
    with project.running() as live:
        project.forget()
        assert project.ask(port.PauseJobs()).answered == {"is_paused": True}
        assert project.ask(port.RunNext()).answered == {"job_id": 0}, "no job is pending"
        for name in "abc":
            project.write(f"assets/{name}.txt", f"{name} again")
        engine = live.engine
        assert engine is not None
        project.until(lambda: len(engine.pipeline.jobs.ready) == 3)
        assert project.ask(port.ReadStatus()).answered["state"] == "paused"

        answer = project.ask(port.RunNext()).answered
        assert answer is not None
        expected = Counter({f"{answer['source']}:data": 1})
        project.until(lambda: project.runs == expected)
        last = max(engine.pipeline.jobs.ready, key=lambda job: job.source.rel)
        project.ask(port.RunNext(last.id))
        expected[f"{last.source.rel}:data"] += 1
        project.until(lambda: project.runs == expected)

        project.ask(port.ResumeJobs())
        project.until_idle()
        assert sum(project.runs.values()) == 3


def test_drained_engine_ignores_changes_until_resume_or_stops(project: LiveProject) -> None:
    with project.running() as live:
        assert project.ask(port.Drain()).answered == {}
        project.forget()
        project.write("assets/a.txt", "later")
        project.until(lambda: live.watching._paths)
        assert live.health.is_draining
        assert not project.runs
        project.ask(port.ResumeJobs())
        project.until_product("linux/a.txt", "later")

        project.ask(port.Drain(stops=True))
        assert live.is_stopping


def test_request_to_stop_when_idle_waits_for_pending_work(project: LiveProject) -> None:
    with project.running() as live:
        project.ask(port.PauseJobs())
        project.write("assets/a.txt", "owed")
        project.until(lambda: live.engine is not None and len(live.engine.pipeline.jobs.ready))
        project.ask(port.StopEngine(is_when_idle=True))
        assert not live.is_stopping
        project.ask(port.ResumeJobs())
        project.until(lambda: live.is_stopping)

        assert project.product("linux/a.txt") == b"owed"


def test_reprocess_request_accepts_names_patterns_and_job_ids(project: LiveProject) -> None:
    with project.running() as live:
        project.forget()
        assert project.ask(port.ReprocessJobs(keys=("a.txt", "b*"))).answered == {"count": 2}
        project.until_idle()

        assert project.runs == Counter({"a.txt:data": 1, "b.txt:data": 1})
        assert live.engine is not None
        job = live.engine.archive.owners(["linux/b.txt"])["linux/b.txt"][0]
        project.forget()
        project.ask(port.ReprocessJobs(job_ids=(job,)))
        project.until_idle()

        assert project.runs == Counter({"b.txt:data": 1})


def test_cancelled_job_does_not_run_until_its_source_changes(project: LiveProject) -> None:
    with project.running() as live:
        project.ask(port.PauseJobs())
        project.write("assets/a.txt", "unwanted")
        engine = live.engine
        assert engine is not None
        project.until(lambda: len(engine.pipeline.jobs.ready))
        (job,) = list(engine.pipeline.jobs.ready)
        project.forget()
        project.ask(port.Cancel((job.id,)))
        project.ask(port.ResumeJobs())
        project.until_idle()
        assert project.product("linux/a.txt") == b"a"
        project.save("a.txt", "wanted")


class Ears:
    """A server without clients that ignores subscriptions."""

    publish = subscribe = disconnect = flush = next_deadline = poll = close = staticmethod(lambda *_, **__: None)

    def connections(self) -> tuple[object, ...]:
        return ()


def test_subscription_reports_run_times_of_running_jobs(project: LiveProject) -> None:
    command = f"while ! test -e {project.root}/go; do sleep 0.01; done; cp {{source}} {{products_dir}}"
    project.config(COPIES.replace("]}]", f"]}}, {{name: slow, patterns: ['*.slow'], command: '{command}'}}]"))
    with project.running() as live:
        live.server = Ears()  # type: ignore[assignment]
        project.write("assets/a.slow", "a")

        def reported() -> list[int]:
            reply = project.ask(port.Subscribe(wants_all=False)).answered
            assert reply is not None
            assert len(reply["running"]) == len(reply["running_ms"])
            return list(reply["running_ms"])

        project.until(lambda: any(for_ms >= 100 for for_ms in reported()))
        project.write("go", "")
        project.until_idle()
        assert reported() == []


def test_engine_publishes_job_states_while_a_client_subscribes_to_all_jobs(project: LiveProject) -> None:
    with project.running() as live:
        live.server = Ears()  # type: ignore[assignment]
        project.ask(port.Subscribe(wants_all=False), client=1)
        assert not live.is_followed
        project.ask(port.Subscribe(is_coalesced=True), client=2)
        project.ask(port.Subscribe(), client=3)
        engine = live.engine
        assert engine is not None
        assert engine.pipeline.jobs.reports.is_followed

        seen = []
        for client in (3, 2):
            project.handler.forget_client(client)
            seen.append(engine.pipeline.jobs.reports.is_followed)

        assert seen == [True, False]
        assert not engine.pipeline.jobs.reports.reports_every_step


def test_queued_jobs_do_not_run_after_they_were_cancelled(project: LiveProject) -> None:
    command = f"while ! test -e {project.root}/go; do sleep 0.01; done; cp {{source}} {{products_dir}}"
    project.config(COPIES.replace("]}]", f"]}}, {{name: slow, patterns: ['*.slow'], command: '{command}'}}]"))

    def jobs() -> list[JobChanged]:
        return [news for news in project.news if isinstance(news, JobChanged) and news.job_id and news.source.endswith(".slow")]

    def reported(status: str) -> list[str]:
        return [str(news.source) for news in jobs() if news.status == status]

    def reported_counts() -> tuple[int, int] | None:
        latest = next((news for news in reversed(project.news) if isinstance(news, Progress)), None)
        return (latest.jobs_running, latest.jobs_waiting) if latest else None

    with project.running() as live:
        assert live.engine is not None
        live.engine.pipeline.jobs.reports.reports_every_step = True
        for name in "abcd":
            project.write(f"assets/{name}.slow", name)
        project.until(lambda: len(set(reported("pending"))) == 4 and reported("processing"), "4 jobs")
        project.until(lambda: reported_counts() == (1, 3), "one running and three waiting jobs")
        assert len(reported("processing")) == 1

        project.ask(port.Cancel(tuple({news.job_id for news in jobs()})))
        project.until(lambda: sorted(reported("cancelled")) == [f"{name}.slow" for name in "abcd"])
        assert len(reported("processing")) == 1
        project.write("go", "")
        project.until_idle()
        assert project.product("linux/a.slow") is None


@pytest.mark.parametrize("verb", [port.EscalateJobs(keys=("c.txt",)), port.NoteInterest(("c.txt",))])
def test_escalated_job_or_job_of_a_shown_source_starts_first(project: LiveProject, verb: port.Verb) -> None:
    with project.running() as live:
        project.ask(port.PauseJobs())
        for name in "abc":
            project.write(f"assets/{name}.txt", f"{name} again")
        engine = live.engine
        assert engine is not None
        project.until(lambda: len(engine.pipeline.jobs.ready) == 3)
        project.ask(verb)
        project.until(lambda: (job := engine.pipeline.jobs.ready.peek()) is not None and job.source.rel == "c.txt")


def test_request_to_settle_is_answered_after_earlier_changes_are_processed(project: LiveProject) -> None:
    with project.running():
        project.write("assets/a.txt", "just now")
        answer = project.ask(port.Settle()).answered

        assert answer is not None
        assert (answer["run"], answer["failed"]) == (1, 0)
        assert project.product("linux/a.txt") == b"just now"


def test_answer_to_settle_counts_the_runs_that_the_client_requested(project: LiveProject) -> None:
    with project.running():
        project.ask(port.ReprocessJobs(keys=("a.txt", "b.txt")), client=7)
        project.until_idle()

        assert project.ask(port.Settle(), client=8).answered["run"] == 0
        assert project.ask(port.Settle(), client=7).answered["run"] == 2
        assert project.ask(port.Settle(), client=7).answered["run"] == 0


def test_failed_jobs_run_again_only_if_a_settle_request_retries_them(project: LiveProject) -> None:
    gate = f"{{name: gate, patterns: ['*.gate'], command: 'cp {project.root}/go {{products_dir}}'}}]"
    project.config(COPIES.replace("]}]", f"]}}, {gate}"))
    project.write("assets/a.gate", "")
    with project.running():
        project.write("go", "open")
        assert project.ask(port.Settle()).answered["run"] == 0

        assert project.ask(port.Settle(retries=True)).answered["run"] == 1
        assert project.product("linux/go") == b"open"
        assert project.ask(port.Settle(retries=True)).answered["run"] == 0


def test_settle_request_with_a_full_scan_retries_failed_jobs_in_this_scan(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.config(COPIES.replace("]}]", "]}, {name: broken, patterns: ['*.broken'], command: 'false {products_dir}'}]"))
    project.write("assets/a.broken", "")
    with project.running():
        scans = note_scans(monkeypatch)
        answered = project.ask(port.Settle(is_full_scan=True, retries=True)).answered

        assert answered["failed"] == 1
        assert scans == [(True, True)]


@pytest.mark.parametrize("verb", [port.Settle(is_full_scan=True), port.RescanSources(is_full=True)])
def test_full_scan_requested_during_another_scan_follows_it(
    project: LiveProject, monkeypatch: pytest.MonkeyPatch, verb: port.Verb
) -> None:
    with project.running() as live:
        assert live.engine is not None
        live.engine.start_scan(retries=False)
        scans = note_scans(monkeypatch)
        assert project.ask(verb).answered is not None
        project.until(lambda: scans and project.is_idle)

        assert scans == [(True, True)]


def test_settle_request_is_refused_if_the_engine_has_other_options(project: LiveProject) -> None:
    with project.running():
        assert "platforms linux" in project.ask(port.Settle(platforms=("server",))).refused
        assert "--set workers=1" in project.ask(port.Settle(sets=("workers=1",))).refused
        assert "debug output" in project.ask(port.Settle(debug_output=True)).refused


def test_reload_reports_changes_and_refuses_an_invalid_configuration(project: LiveProject) -> None:
    with project.running():
        assert project.ask(port.ReloadConfig()).answered == {"is_changed": False}
        project.config(COPIES + "nonsense: 1\n")
        assert "nonsense" in project.ask(port.ReloadConfig()).refused


def test_debug_output_can_be_switched_on_and_off(project: LiveProject) -> None:
    with project.running() as live:
        project.ask(port.SetOption("debug_output", value=True))
        project.until(lambda: live.config.project.debug_output and project.is_idle)
        project.config(COPIES + "# read again\n")
        assert project.ask(port.ReloadConfig()).answered == {"is_changed": False}
        assert live.config.project.debug_output
        project.ask(port.SetOption("debug_output", value=False))
        project.until(lambda: not live.config.project.debug_output and project.is_idle)
        assert "'colour' does not exist" in project.ask(port.SetOption("colour", value=True)).refused


def test_rescans_read_every_file_while_faster_scanning_is_off(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = note_scans(monkeypatch)

    def rescan() -> bool:
        scans.clear()
        project.ask(port.RescanSources())
        project.until(lambda: scans and project.is_idle)
        return scans[-1][1]

    with project.running() as live:
        assert [is_full for _retries, is_full in scans] == [False]
        assert not rescan()
        assert project.ask(port.SetOption("fast_scan", value=False)).answered == {"name": "fast_scan", "value": False}
        assert rescan()
        live.watching.rescan(retries=False)  # the engine calls this method after it lost notifications
        scans.clear()
        project.until(lambda: scans and project.is_idle)
        assert [is_full for _retries, is_full in scans] == [False]
        project.config(COPIES + 'ignore: ["*.tmp"]\n')
        scans.clear()
        project.ask(port.ReloadConfig())
        project.until(lambda: scans and project.is_idle)
        assert [is_full for _retries, is_full in scans] == [True]  # `fast_scan` stays off in the new engine that the reload opens
        project.ask(port.SetOption("fast_scan", value=True))
        assert not rescan()
        options = project.ask(port.ReadStatus()).answered["options"]  # type: ignore[index]
        assert options == {"debug_output": False, "fast_scan": True}


def test_settle_request_is_answered_after_another_client_has_disconnected(project: LiveProject) -> None:
    with project.running():
        request = Request(port.Settle(), client=9)
        project.handler.handle(request)
        project.handler.forget_client(9)
        project.settle()

        assert not request.is_over

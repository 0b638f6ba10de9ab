"""`aptui batch`: the reporter with fakes, a batch that a running engine answers, and runs of tiny real projects."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from homes import own_project
from msgspec.structs import replace
from verb_project import Run, runner
from waiting import TIMEOUT_S, Clock, until

from aptui import __version__
from aptui.batch import run as batch_run
from aptui.batch.options import RunOptions
from aptui.batch.reporter import Reporter, format_time_left
from aptui.batch.run import exit_code
from aptui.batch.summary import Summary
from aptui.config import load
from aptui.core.model import RelPath, RunKey
from aptui.core.notices import EngineMessage, JobChanged, LogLevel, Progress
from aptui.link.engine_client import EngineClient, EngineWelcome
from aptui.shared.errors import UserError

pytestmark = pytest.mark.real

CONFIG = """
platforms:
  linux: {tags: [tools]}
  server: {tags: [server]}
scan_folders:
  - {name: game, path: assets}
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: tables, uses: json, patterns: ["*.json"]}
  - name: upper
    patterns: ["*.up"]
    version: 1
    command: "tr a-z A-Z < {source} > {products_dir}/{stem}.txt"
    products: ["*.txt"]
  - name: slow
    patterns: ["*.slow"]
    command: "sleep 3600 && cp {source} {products_dir}/out"
workers: 2
"""


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_project(tmp_path, monkeypatch, {"aptui.yaml": CONFIG, "assets/a.txt": "a", "assets/b.up": "b"})


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


# ------------------------------------------------------------------------------------------------------------------- batch


def test_second_batch_processes_nothing(run: Run, project: Path) -> None:
    code, out, _ = run("batch", "--json")
    again, out_again, _ = run("batch", "--json")

    first, second = json.loads(out), json.loads(out_again)
    assert (code, again) == (0, 0)
    assert (first["sources"], first["jobs_run"], first["jobs_skipped"], first["products"]) == (2, 4, 0, 4)
    assert (second["sources"], second["jobs_run"], second["jobs_skipped"], second["products"]) == (2, 0, 4, 4)
    assert (project / "Cache" / "server" / "b.txt").read_text() == "B"


def test_json_output_is_one_object_and_progress_goes_to_stderr(run: Run, project: Path) -> None:
    (project / "assets" / "bad.json").write_text('{"a": 1,\n oops}')

    code, out, err = run("batch", "--json")

    answer = json.loads(out)
    assert code == 1
    assert set(answer) >= {
        "sources",
        "jobs_run",
        "jobs_skipped",
        "jobs_failed",
        "jobs_not_retried",
        "warnings",
        "errors",
        "products",
        "seconds",
        "failures",
    }
    assert [(failure["source"], failure["platform"], failure["builder"]) for failure in answer["failures"]] == [
        ("bad.json", "linux", "tables"),
        ("bad.json", "server", "tables"),
    ]
    assert all(Path(failure["log"]).is_file() and "bad.json" in failure["first_error"] for failure in answer["failures"])
    assert "failed: bad.json@linux:tables: " in err
    assert "\r" not in err
    assert "\x1b" not in err


def test_each_batch_reports_a_failure_until_the_source_is_fixed(run: Run, project: Path) -> None:
    bad = project / "assets" / "bad.json"
    bad.write_text("{oops}")
    first = run("batch", "--json")[0]
    second, out, _ = run("batch", "--json")
    bad.write_text("{}")
    third, healed, _ = run("batch", "--json")

    assert (first, second, third) == (1, 1, 0)
    assert json.loads(out)["jobs_failed"] == 2
    assert json.loads(healed)["failures"] == []


@pytest.mark.parametrize(("fail_on", "expected"), [(None, 0), ("error", 0), ("warning", 1)])
def test_repeated_batch_returns_the_exit_code_of_the_first(run: Run, project: Path, fail_on: str | None, expected: int) -> None:
    (project / "assets" / "twice.json").write_text('{"a": 1, "a": 2}')
    gate = ["--fail-on", fail_on] if fail_on else []

    codes = [run("batch", *gate)[0] for _ in range(2)]

    assert codes == [expected, expected]


def test_retried_job_is_flaky_in_every_batch(run: Run, project: Path) -> None:
    (project / "assets" / "a.odd").write_text("x")
    odd = f"""
  - name: odd
    patterns: ["*.odd"]
    command: "mkdir {{params.once}}-{{platform}} && exit 75; cp {{source}} {{products_dir}}"
    params: {{once: {project / "once"}}}
    retry: {{times: 1, on: [75]}}
workers:"""
    (project / "aptui.yaml").write_text(CONFIG.replace("\nworkers:", odd))

    code, out, _ = run("batch", "--junit", "report.xml")
    again, listed, _ = run("batch", "--json", "--fail-on", "flaky", "--platforms", "linux")

    suite = ET.parse(project / "report.xml").getroot()[0]
    flaky = {case.get("name"): [(each.get("type"), each.get("message")) for each in case.iter("flakyFailure")] for case in suite}
    reported = [("exit 75", "an earlier run of this job failed: exit 75")]
    assert {name: runs for name, runs in flaky.items() if runs} == {"a.odd@linux:odd": reported, "a.odd@server:odd": reported}
    assert (suite.get("flakes"), suite.get("failures")) == ("2", "0")
    found = {"source": "a.odd", "platform": "linux", "job_key": "odd", "builder": "odd", "failed_of": "exit 75"}
    assert (code, again) == (0, 1)
    assert "flaky: they succeeded only after a failed run:\n  a.odd@linux:odd  exit 75\n  a.odd@server:odd  exit 75\n" in out
    assert json.loads(listed)["flaky"] == [found]
    assert json.loads(run("status", "--json")[1])["flaky_jobs"] == 2


def test_jobs_with_the_same_resource_do_not_run_at_the_same_time(run: Run, project: Path) -> None:
    command = f"mkdir {project}/lock && cp {{source}} {{products_dir}} && rmdir {project}/lock"
    lone = f"""
  - {{name: one, patterns: ["*.one"], command: "{command}", resources: [card]}}
  - {{name: two, patterns: ["*.two"], command: "{command}", resources: [card]}}
resources: {{card: 1}}
workers: 4
"""
    (project / "aptui.yaml").write_text(CONFIG.replace("\nworkers: 2\n", lone))
    for number in range(10):
        (project / "assets" / f"{number}.{'one' if number % 2 else 'two'}").write_text(f"{number}")

    code, out, _ = run("batch", "--json")

    assert (code, json.loads(out)["failures"]) == (0, [])


def test_batch_with_platforms_counts_only_jobs_of_these_platforms(run: Run, project: Path) -> None:
    (project / "assets" / "bad.json").write_text("{oops}")
    run("batch")

    code, out, _ = run("batch", "--json", "--platforms", "linux")

    answer = json.loads(out)
    assert code == 1
    assert {failure["platform"] for failure in answer["failures"]} == {"linux"}
    assert (answer["jobs_failed"], answer["products"]) == (1, 2)
    assert (project / "Cache" / "server" / "a.txt").is_file()


def test_text_summary_names_failures_and_logs(run: Run, project: Path) -> None:
    (project / "assets" / "bad.json").write_text("{oops}")

    code, out, _ = run("batch")

    assert code == 1
    assert "  bad.json@server:tables\n" in out
    assert "JobLogs/bad.json-" in out
    assert out.splitlines()[-1].startswith("6 jobs run, 0 skipped, 2 failed, ")


def test_control_characters_in_names_are_replaced_on_terminal(run: Run, project: Path) -> None:
    (project / "assets" / "evil\x1b]0;x\x07\u202e.json").write_text("{oops}")
    (project / "assets" / os.fsdecode(b"caf\xe9.json")).write_text("{oops}")

    _, out, err = run("batch")

    assert "\x1b" not in out + err
    assert "\u202e" not in out + err
    assert "caf\\xe9.json" in out


def test_junit_lists_all_jobs(run: Run, project: Path) -> None:
    (project / "assets" / "bad.json").write_text("{oops\x01}")

    code, _, _ = run("batch", "--junit", "report.xml")

    suite = ET.parse(project / "report.xml").getroot()[0]
    assert code == 1
    assert (suite.get("tests"), suite.get("failures")) == ("6", "2")
    assert sorted(case.get("name", "") for case in suite if case.find("failure") is not None) == [
        "bad.json@linux:tables",
        "bad.json@server:tables",
    ]


@pytest.mark.real
def test_junit_contains_errors_and_end_of_log_of_failed_job(run: Run, project: Path) -> None:
    (project / "aptui.yaml").write_text(
        "scan_folders: [{name: game, path: assets}]\n"
        "builders: [{name: tool, patterns: ['*.txt'], command: 'cat {source}; false', errors: '^error:.*'}]\n"
    )
    (project / "assets" / "a.txt").write_text("first\nerror: <no> \x01 such & thing\nlast\n")

    run("batch", "--junit", "report.xml")

    (case,) = ET.parse(project / "report.xml").getroot()[0]
    failure, output = case.find("failure"), case.find("system-out")
    assert failure is not None
    assert output is not None
    assert "error: <no>" in (failure.text or "")
    assert "such & thing" in (failure.text or "")
    assert (output.text or "").startswith("0 warnings, ")
    assert "first" in (output.text or "")
    assert "last" in (output.text or "")
    assert "errors, 0 warnings" not in (output.text or ""), "the first line has these counts"


def test_junit_lists_jobs_with_warnings_whose_logs_were_deleted(run: Run, project: Path) -> None:
    (project / "assets" / "twice.json").write_text('{"a": 1, "a": 2}')
    run("batch")
    shutil.rmtree(project / "Cache/.aptui/logs")

    code, _, err = run("batch", "--junit", "report.xml")

    assert (code, err) == (0, "")
    outputs = [output.text or "" for output in ET.parse(project / "report.xml").iter("system-out")]
    assert sum(text.startswith("1 warning, 0 errors; ") for text in outputs) == 2


def test_unwritable_report_is_refused_before_the_run(run: Run, project: Path) -> None:
    code, _, err = run("batch", "--junit", "no/such/folder/report.xml")

    assert code == 3
    assert "cannot be written" in err
    assert not (project / "Cache").exists()


def test_unknown_platforms_are_a_mistake(run: Run) -> None:
    assert run("batch", "--platforms", "linus")[0] == 3
    assert run("batch", "--platforms", ",")[0] == 3


def test_mistake_in_folder_settings_has_exit_code_3(run: Run, project: Path) -> None:
    (project / "assets" / "a.json").write_text("{}")
    settings = project / "assets" / ".aptui.yaml"
    settings.write_text("builders:\n  tables:\n    params: {fromat: x}\n")

    code, _, err = run("batch")
    again, out, _ = run("batch", "--json")
    settings.write_text("{}")
    mended, _, _ = run("batch")

    assert (code, again, mended) == (3, 3, 0)
    assert "aptui: .aptui.yaml:3:14: unknown parameter 'fromat'" in err
    assert json.loads(out)["configuration"][0].startswith(".aptui.yaml:3:14: ")
    assert json.loads(out)["jobs_failed"] == 3  # only the jobs below the broken settings fail; existing products stay


def test_batch_with_mistake_in_settings_of_empty_folder_exits_with_3(run: Run, project: Path) -> None:
    (project / "assets" / "none").mkdir()
    (project / "assets" / "none" / ".aptui.yaml").write_text("builders: {tabels: {}}\n")

    code, _, err = run("batch")
    again, _, _ = run("batch")

    assert (code, again) == (3, 3)
    assert "aptui: none/.aptui.yaml:1:12: 'tabels' is not a builder; did you mean 'tables'?" in err


def test_full_scan_runs_no_job_for_unchanged_content(run: Run, project: Path) -> None:
    run("batch")
    source = project / "assets" / "a.txt"
    old = time.time() - 3600
    os.utime(source, (old, old))
    run("batch")

    code, out, _ = run("batch", "--full-scan", "--json")

    assert code == 0
    assert json.loads(out)["jobs_run"] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_batch_cleanly_with_exit_code_130(project: Path, number: signal.Signals) -> None:
    (project / "assets" / "a.slow").write_text("a")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    engine = subprocess.Popen(
        [sys.executable, "-m", "aptui", "batch", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    try:
        until((project / "Cache" / "linux" / "a.txt").exists, "the first product")
        engine.send_signal(number)
        out, err = engine.communicate(timeout=TIMEOUT_S)
    finally:
        engine.kill()

    answer = json.loads(out)
    assert engine.returncode == 130
    assert answer["interrupted"]
    assert answer["jobs_pending"] >= 1
    assert answer["jobs_skipped"] == 0, "pending jobs do not count as skipped"
    assert b"stopping" in err


def test_batch_on_a_locked_cache_has_exit_code_4(run: Run, project: Path) -> None:
    (project / "assets" / "a.slow").write_text("a")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    engine = subprocess.Popen(
        [sys.executable, "-m", "aptui", "batch"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        until((project / "Cache" / "linux" / "a.txt").exists, "the first product")
        code, _, err = run("batch")
        _, status, _ = run("status", "--json")
    finally:
        engine.terminate()
        engine.wait(TIMEOUT_S)

    assert code == 4
    assert f"process {engine.pid}" in err
    assert json.loads(status)["engine_pid"] in (engine.pid, None)


@pytest.mark.parametrize(
    ("summary", "fail_on", "code"),
    [
        (Summary(), None, 0),
        (Summary(jobs_failed=1), None, 1),
        (Summary(warnings=1, errors=1), None, 0),
        (Summary(errors=1), "error", 1),
        (Summary(warnings=1), "error", 0),
        (Summary(warnings=1), "warning", 1),
        (Summary(jobs_failed=1, is_interrupted=True), "warning", 130),
    ],
)
def test_exit_code_depends_on_the_summary_and_the_failure_criterion(summary: Summary, fail_on: str | None, code: int) -> None:
    assert exit_code(summary, fail_on) == code


# ---------------------------------------------------------------------------------------------------------------- reporter


def job(name: str, status: str = "completed", *, error: str = "", duration_ms: int = 1, job_id: int = 1) -> JobChanged:
    return JobChanged(0, job_id, RelPath(name), 1, "linux", "key", "builder", status, "", error, 0, 0, duration_ms, "", RunKey(1))


def progress(done: int, *, waiting: int = 0, failed: int = 0, is_scanning: bool = False) -> Progress:
    return Progress(0, 7, 0, 0, waiting, 1, done, failed, is_scanning)


def test_progress_on_a_pipe_is_plain_lines_at_intervals() -> None:
    stream, clock = io.StringIO(), Clock()
    reporter = Reporter(stream, clock)
    for second in range(25):
        clock.now = float(second)
        reporter(progress(second * 10, waiting=100))
    reporter(job("x\x1b[31m.png", "failed", error="broken\nbadly"))
    reporter(EngineMessage(0, LogLevel.WARNING, "a link"))
    reporter.close()

    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("100 of 201 jobs, 1 running, 10.0/s" if "10.0/s" in lines[0] else "100 of 201 jobs, 1 running, 10/s")
    assert lines[2] == "failed: x.png@linux:key: broken␊badly"
    assert "\r" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_progress_counts_only_jobs_of_the_present_session_of_the_engine() -> None:
    stream, clock = io.StringIO(), Clock()
    reporter = Reporter(stream, clock)
    for second in range(11):
        clock.now = float(second)
        reporter(replace(progress(70_300 + second * 10, waiting=100, failed=8), done_before=70_000, failed_before=7))

    assert stream.getvalue().splitlines() == ["401 of 502 jobs, 1 failed, 1 running, 10/s"]


def test_progress_line_fits_the_terminal_and_changes_ten_times_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.shared.printing.width", lambda _stream: 30)
    monkeypatch.setenv("NO_COLOR", "1")
    stream, clock = Terminal(), Clock()
    reporter = Reporter(stream, clock)
    for step in range(1000):
        clock.now = step / 100
        reporter(progress(step, waiting=1000 - step))
    reporter(job("x.png", "failed", error="broken"))
    reporter.close()

    drawn = re.findall(r"\r([^\r\n]*?)\x1b\[K", stream.getvalue())
    lines = [text for text in drawn if text]
    assert 50 < len(lines) <= 102
    assert max(map(len, lines)) < 30
    assert "\r\x1b[Kfailed: x.png@linux:key: broken\n" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_quick_batch_prints_no_progress() -> None:
    stream, clock = Terminal(), Clock()
    reporter = Reporter(stream, clock)
    reporter(progress(1))
    clock.now = 0.2
    reporter(progress(2))
    reporter.close()

    assert stream.getvalue() == ""


def test_time_left_is_estimated_after_the_scan() -> None:
    stream, clock = io.StringIO(), Clock()
    reporter = Reporter(stream, clock)
    clock.now = 10.0
    reporter(progress(100, waiting=100, is_scanning=True))
    clock.now = 20.0
    reporter(replace(progress(200, waiting=99), eta_ms=10_000))
    scanning, known = stream.getvalue().splitlines()

    assert "scanning: 7 files so far" in scanning
    assert "left" not in scanning
    assert known.endswith("about 10.0 s left")


@pytest.mark.parametrize(
    ("least_ms", "text"),
    [(0, "about 10.0 s left"), (9_000, "about 10.0 s left, at least 9.0 s"), (9_999, "about 10.0 s left")],
)
def test_remaining_time_shows_its_minimum_if_rounded_values_differ(least_ms: int, text: str) -> None:
    assert format_time_left(10_000, least_ms) == text


def test_reporter_counts_a_job_once_and_records_the_slowest_jobs() -> None:
    reporter = Reporter(io.StringIO())
    for number in range(1, 21):
        reporter(job(f"{number}.png", duration_ms=number, job_id=number * 997))
    reporter(job("20.png", duration_ms=2, job_id=20 * 997))
    reporter(job("a.png", "pending", job_id=5))
    reporter(job("b.png", "", job_id=6))

    assert reporter.jobs_run == 20
    assert reporter.builders == {"builder": (21, sum(range(21)) + 2)}
    assert sorted(duration for duration, _ in reporter.slowest) == [16, 17, 18, 19, 20]


def test_closed_stream_does_not_stop_the_batch() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream)
    stream.close()

    reporter(job("x.png", "failed"))
    reporter.close()


def test_products_of_a_disabled_platform_stay_without_the_remove_option(run: Run, project: Path) -> None:
    product = project / "Cache" / "server" / "a.txt"
    (project / "aptui.yaml").write_text(CONFIG.replace("server: {tags: [server]}", "server: {tags: [server], enabled: false}"))
    run("batch")
    assert not product.parent.exists()
    assert run("batch", "--platforms", "linux,server")[0] == 0
    assert product.exists()

    assert "0 jobs run" in run("batch")[1]
    assert product.exists()
    assert "not processed now: server" in run("status")[1]

    assert "0 jobs run" in run("batch", "--remove")[1]
    assert not product.exists()
    assert "0 jobs run, 2 skipped" in run("batch")[1]
    assert "0 jobs run, 2 skipped" in run("batch", "--remove")[1]


def test_trace_option_writes_the_spans_of_the_engine(run: Run, project: Path) -> None:
    assert run("batch", "--trace", "t.json")[0] == 0

    events = [event for event in json.loads((project / "t.json").read_text()) if event]
    spans = {event["name"] for event in events if event["ph"] == "X"}
    assert spans >= {"turn", "scan", "FolderSeen", "StartRuns", "RunsFinished", "commit", "transaction", "sync", "settle"}
    runs = [(event["ph"], event["args"].get("source")) for event in events if event.get("name") == "run"]
    assert sorted(source for phase, source in runs if phase == "b") == ["a.txt", "a.txt", "b.up", "b.up"]
    assert sum(phase == "e" for phase, _source in runs) == 4


def test_junit_report_counts_warnings_as_failures_if_requested(run: Run, project: Path) -> None:
    (project / "assets" / "twice.json").write_text('{"a": 1, "a": 2}')
    assert run("batch", "--platforms", "linux")[0] == 0

    code, out, _ = run("batch", "--platforms", "linux", "--fail-on", "warning", "--junit", "report.xml")

    assert code == 1
    assert "twice.json@linux:tables\n      1 warning, 0 errors in its log\n" in out
    suite = ET.fromstring((project / "report.xml").read_text())[0]
    failures = [case.get("name") for case in suite if case.find("failure") is not None]
    assert (suite.get("failures"), failures) == ("1", ["twice.json@linux:tables"])
    report = json.loads(run("batch", "--platforms", "linux", "--fail-on", "warning", "--json")[1])
    assert [complaint["source"] for complaint in report["complaints"]] == ["twice.json"]


# ------------------------------------------------------------------------------------------------------ jobs without retry


HANGING = """
scan_folders: [{name: game, path: assets}]
local_store: {enabled: false}
builders:
  - {name: slow, patterns: ["*.slow"], command: "sleep 1.5 && cp {source} {products_dir}/o", products: ["o"], time_limit: LIMIT}
  - {name: tables, uses: json, patterns: ["*.json"]}
"""


def test_summary_reports_that_a_job_is_not_retried_after_its_time_limit(run: Run, project: Path) -> None:
    config = project / "aptui.yaml"
    config.write_text(HANGING.replace("LIMIT", "100ms"))
    (project / "assets" / "a.slow").write_text("")
    (project / "assets" / "bad.json").write_text("{")

    first = run("batch")
    second = run("batch")
    as_json = json.loads(run("batch", "--json")[1])
    config.write_text(HANGING.replace("LIMIT", "100ms") + "retry_failed: changed\n")
    third = run("batch")
    config.write_text(HANGING.replace("LIMIT", "1m"))
    fourth = run("batch")

    assert "not run again" not in first[1]
    assert [code for code, *_ in (first, second, third, fourth)] == [1, 1, 1, 1]
    assert "1 failed job not run again: it reached its time limit; 'aptui reprocess a.slow' runs it" in second[1]
    assert "1 job run, 1 skipped, 2 failed" in second[1]
    assert (as_json["jobs_failed"], as_json["jobs_not_retried"]) == (2, 1)
    assert "2 failed jobs not run again: nothing changed since they failed; 'aptui reprocess PATH' runs them" in third[1]
    assert "0 jobs run" in third[1]
    assert "not run again" not in fourth[1]
    assert "2 jobs run, 0 skipped, 1 failed" in fourth[1]


ENDLESS = """
sandbox: off
scan_folders: [{name: game, path: assets}]
local_store: {enabled: false}
builders:
  - name: growing
    patterns: ["*.log"]
    command: "echo more >> {source} && cp {source} {products_dir}/o"
    products: ["o"]
"""


def test_summary_reports_no_retry_of_a_job_that_writes_its_own_source(run: Run, project: Path) -> None:
    (project / "aptui.yaml").write_text(ENDLESS)
    (project / "assets" / "a.log").write_text("")

    first, second = run("batch"), run("batch")

    assert "check whether the job itself writes it" in first[1]
    assert "1 failed job not run again: it reached its limit on consecutive runs; 'aptui reprocess a.log' runs it" in second[1]
    assert "0 jobs run" in second[1]


def test_error_of_a_source_is_in_no_report_after_the_source_was_changed_back(run: Run, project: Path) -> None:
    source = project / "assets" / "x.json"
    source.write_text("{}")
    run("batch")
    source.write_text("{")
    broken, *_ = run("batch")

    source.write_text("{}")
    code, out, _ = run("batch", "--fail-on", "error", "--junit", "report.xml", "--json")

    assert (broken, code) == (1, 0)
    assert (json.loads(out)["errors"], json.loads(out)["jobs_run"]) == (0, 0)
    assert "1 error" not in Path("report.xml").read_text()
    assert "error" not in run("log", "x.json@linux")[1]
    assert run("status", "--json")[0] == 0


def test_failed_analysis_has_its_builder_name_in_all_reports(run: Run, project: Path) -> None:
    for name in ("Case.json", "case.json"):
        (project / "assets" / name).write_text("{}")

    _, out, err = run("batch", "--junit", "report.xml")

    name = "case.json@all:analysis:tables"
    assert f"failed: {name}: " in err
    assert f"  {name}\n" in out
    assert f'name="{name}"' in Path("report.xml").read_text()
    assert "analysis:tables" in run("jobs", "--status", "failed")[1]
    assert "all: analysis:tables: failed" in run("why", "case.json")[1]
    logs = [run("log", f"case.json@all:{key}") for key in ("analysis", "analysis:tables", "ANALYSIS")]
    assert [(code, "differs only in case" in log) for code, log, _ in logs] == [(0, True)] * 3
    assert run("log", "case.json@all:analysis:other")[0] == 3
    assert not any(
        "CreateJobs_" in text for text in (out, err, run("jobs")[1], run("why", "case.json")[1].replace("_createJobs", ""))
    )


def settle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object], settings: str = "") -> Summary:
    """Return the summary of `aptui batch` if the running engine answers `answer`."""
    (tmp_path / "aptui.yaml").write_text(f"scan_folders: [{{name: game, path: .}}]\n{settings}\n")
    monkeypatch.setattr(batch_run, "_follow", lambda *_all: answer)
    monkeypatch.setattr(batch_run, "collect", lambda *_all: Summary())
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as channel:
        client = EngineClient(channel)
        client.hello = EngineWelcome(version=__version__)
        return batch_run.settle(client, load.load(tmp_path), RunOptions(), Reporter(io.StringIO()))


@pytest.mark.parametrize(
    ("shared", "store", "account"),
    [
        (
            {"local_hits": 96, "misses": 4, "built_ms": 2_640_000, "fetch_ms": 180_000, "of a later version": 7},
            "",
            "96 of 100 results from cache: 41 min saved, 3 min fetching",
        ),
        ({}, "", ""),
        (None, "", ""),
        ({"misses": 3}, "", ""),
        ({"misses": 3}, "shared_cache: {mode: client, store: /share}", "0 of 3 results from cache"),
    ],
)
def test_restored_results_are_summarised_only_after_hits_or_with_a_shared_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: object, store: str, account: str
) -> None:
    assert settle(tmp_path, monkeypatch, {"run": 2, "shared": shared}, store).account == account


def test_summary_lists_folder_mistakes_that_a_running_engine_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = settle(tmp_path, monkeypatch, {"run": 0, "folder_mistakes": ["a/.aptui.yaml:1:2: wrong"]})

    assert summary.mistakes == ("a/.aptui.yaml:1:2: wrong",)


def test_jobs_that_a_running_engine_finished_before_the_subscription_are_not_counted_as_skipped(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("batch")
    monkeypatch.setattr(batch_run, "_follow", lambda *_all: {"run": 3})
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as channel:
        client = EngineClient(channel)
        client.hello = EngineWelcome(version=__version__)
        summary = batch_run.settle(client, load.load(project), RunOptions(), Reporter(io.StringIO()))

    assert (summary.jobs_run, summary.jobs_skipped) == (3, 1)


def test_configuration_that_the_running_engine_refuses_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"aptui\.yaml:3:60: unknown parameter 'fromat'"):
        settle(tmp_path, monkeypatch, {"run": 0, "configuration": "aptui.yaml:3:60: unknown parameter 'fromat'"})


def test_running_engine_of_another_version_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch_run, "__version__", "9.9")

    settle(tmp_path, monkeypatch, {"run": 2})

    assert "this is version 9.9; run 'aptui start' to replace the engine" in capsys.readouterr().err

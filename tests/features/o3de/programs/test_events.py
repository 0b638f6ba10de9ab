"""The lines that an asset processor prints for the engine's events."""

import io
import itertools
from pathlib import Path

import pytest

from aptui.core.model import RelPath, RunKey
from aptui.core.notices import EngineMessage, JobChanged, LogLevel, LogRecord, Notice, Progress
from aptui.core.state.graph import CYCLE_PROBLEM, JOIN
from aptui.features.o3de.programs.events import EventPrinter, Stat, duration, human_line, machine_line, report
from aptui.features.o3de.programs.phrases import BATCH, LIVE, ProgramConsole
from aptui.features.o3de.project_facts import StatsForm
from aptui.store import joblog

NOW_MS = 1_000_000


def changed(status: str = "completed", **fields: object) -> JobChanged:
    """Return the event of a job that ended now."""
    usual: dict[str, object] = {
        "cause": 1, "job_id": 1, "source": RelPath("a.txt"), "scan_folder": 1, "platform": "linux", "job_key": "txt",
        "builder": "copy", "status": status, "reason": "new", "error": "", "warnings": 0, "errors": 0, "duration_ms": 5,
        "log_file": "", "run_key": RunKey(9), "completed_ms": NOW_MS,
    }  # fmt: skip
    return JobChanged(**{**usual, **fields})  # type: ignore[arg-type]


class Harness:
    """An `EventPrinter` and its output."""

    def __init__(self, folder: Path) -> None:
        self.stream = io.StringIO()
        self.folder = folder
        self.console = ProgramConsole(self.stream, lambda: NOW_MS)
        self.printer = EventPrinter(self.console, folder, {1: "/p"}.__getitem__, lambda name: f"{{{name}}}")

    def handle(self, *notices: Notice) -> list[str]:
        for notice in notices:
            self.printer(notice)
        return [line.removeprefix("AssetProcessor: ") for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_job_start_and_end_are_printed(harness: Harness) -> None:
    lines = harness.handle(changed("pending"), changed("processing"), changed(warnings=2, errors=1))

    assert lines == ["Processing a.txt (linux)...", 'Processed "/p/a.txt" ("linux")... ']
    assert (harness.printer.processed_count, harness.printer.warnings, harness.printer.errors) == (1, 2, 1)
    assert list(harness.printer.stats) == ["ProcessJob,/p,a.txt,txt,linux,{copy}"]
    assert harness.printer.processed_by == {"{copy}": ["/p/a.txt"]}


def test_event_printer_ignores_the_result_of_an_earlier_run(harness: Harness) -> None:
    assert harness.handle(changed(completed_ms=NOW_MS - 1)) == []
    assert harness.printer.processed_count == 0


def test_failed_job_is_printed_once_with_its_log(harness: Harness) -> None:
    records = [LogRecord(LogLevel.INFO, "w", "about to", NOW_MS), LogRecord(LogLevel.ERROR, "w", "broken", NOW_MS)]
    joblog.write(harness.folder / "JobLogs" / "a.log", records, 0, 1)
    failure = changed("failed", log_file="JobLogs/a.log", error="broken", errors=1)

    lines = harness.handle(failure, failure)

    assert lines[0] == "Failed /p/a.txt, (linux)... "
    assert [line.rpartition("origin: ")[2] for line in lines[1:]] == ["w | about to", "w | broken", "aptui | 1 errors, 0 warnings"]
    assert harness.printer.errors == 1


def test_error_of_a_failed_job_without_a_log_is_printed(harness: Harness) -> None:
    lines = harness.handle(changed("failed", error="another source has already produced the same product"))

    assert lines[1].endswith("| ERROR | origin: AssetProcessor | another source has already produced the same product")


def test_failed_analysis_is_printed_as_a_line_of_its_own(harness: Harness) -> None:
    analysis = changed("failed", job_key="CreateJobs_{00}", platform="all", error="no", run_key=RunKey(0))

    lines = harness.handle(changed("processing", job_key="CreateJobs_{00}"), analysis)

    assert lines[0] == "Createjobs Failed: /p/a.txt."
    assert list(harness.printer.stats) == ["CreateJobs,a.txt,copy"]
    assert harness.printer.processed_count == 0


def test_end_of_a_scan_is_printed_once(harness: Harness) -> None:
    harness.printer.begin_scan()
    progress = Progress(1, 12, 0, 0, 0, 0, 0, 0, is_scanning=False)

    lines = harness.handle(Progress(1, 4, 0, 0, 0, 0, 0, 0, is_scanning=True), progress, progress)
    harness.printer.end_scan()
    harness.printer.end_analysis(10)

    assert lines[1:] == [
        "File system scan done.",
        "Analyzing scanned files for changes...",
        "Received 12 files from the scanner.  Assessing...",
        "Initial Scan complete, checking for missing files...",
    ]
    assert harness.handle()[-1].startswith("Builder optimization: 0 / 12 files required full analysis, 2 sources found")
    assert not harness.printer.is_scan_open


def test_engine_messages_are_printed_and_counted(harness: Harness) -> None:
    lines = harness.handle(
        EngineMessage(1, LogLevel.ERROR, "the disk is full"),
        EngineMessage(1, LogLevel.INFO, "the engine goes on"),
        EngineMessage(1, LogLevel.WARNING, "a link is not followed"),
    )

    assert lines[1:4] == ["System: Trace::Error", "System:  aptui(0): 'AssetProcessor'", "the disk is full"]
    assert "the engine goes on" in lines
    assert lines[-2] == "a link is not followed"
    assert "System: Trace::Warning" in lines
    assert (harness.printer.errors, harness.printer.warnings) == (1, 1)


@pytest.mark.parametrize("is_verbose", [True, False])
def test_pending_job_is_written_only_to_a_verbose_log(harness: Harness, is_verbose: bool) -> None:
    harness.console.open_log(harness.folder, BATCH)
    harness.console.is_verbose = is_verbose

    assert harness.handle(changed("pending")) == []

    harness.console.close()
    assert ("~~0~~" in (harness.folder / "AP_Batch.log").read_text()) == is_verbose


def test_log_includes_lines_that_were_printed_before_the_log_was_opened(harness: Harness) -> None:
    harness.console.say("early")
    harness.console.open_log(harness.folder, BATCH)
    harness.console.close()

    assert (harness.folder / "AP_Batch.log").read_text().splitlines()[-1].endswith("~~AssetProcessor~~early")


def test_unwritable_log_is_reported_once(harness: Harness) -> None:
    (harness.folder / "file").write_text("")
    harness.console.open_log(harness.folder / "file", BATCH)

    harness.console.say("one")
    harness.console.say("two")

    assert harness.stream.getvalue().count("cannot be written") == 1


def test_broken_stdout_does_not_stop_the_run(tmp_path: Path) -> None:
    class Broken(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    console = ProgramConsole(Broken())

    console.say("one")
    console.say("two")
    console.open_log(tmp_path, BATCH)
    console.close()

    assert (tmp_path / "AP_Batch.log").read_text().count("~~AssetProcessor~~") == 2


def test_every_run_begins_with_three_records(tmp_path: Path) -> None:
    for _ in range(2):
        console = ProgramConsole(io.StringIO(), lambda: 1_001)
        console.open_log(tmp_path, BATCH)
        console.say("Listening Port: 7")
        console.close()

    records = [line.split("~~") for line in (tmp_path / "AP_Batch.log").read_text().splitlines()]
    assert [record[4] for record in records] == ["none", "none", "none", "AssetProcessor"] * 2
    assert records[1][5] == records[5][5] == "AzFramework File Logging New Run"
    assert (records[3][1], records[3][2], records[3][5]) == ("1001", "1", "Listening Port: 7")


def test_log_severities_equal_those_of_o3de(tmp_path: Path) -> None:
    console = ProgramConsole(io.StringIO(), window="w")
    console.is_verbose = True
    console.open_log(tmp_path, LIVE)
    for write in (console.note, console.say, console.warn, console.complain):
        write("said")
    console.close()

    records = [line.split("~~") for line in (tmp_path / "AP_GUI.log").read_text().splitlines()[3:]]
    assert [(record[2], record[5]) for record in records] == [
        ("0", "said"),
        ("1", "said"),
        ("2", "W: w: said"),
        ("3", "E: w: said"),
    ]


def test_full_log_is_rotated_and_at_most_five_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblog, "ENGINE_LOG_BYTES", 300)
    console = ProgramConsole(io.StringIO(), itertools.count(1_000_000, 1000).__next__)
    console.open_log(tmp_path, BATCH)
    for _ in range(40):
        console.say("x" * 100)
    console.close()

    rolled = sorted(path.name for path in tmp_path.iterdir() if path.name != "AP_Batch.log")
    assert len(rolled) == 4
    assert all(name.removeprefix("AP_Batch.").removesuffix(".log").isdigit() for name in rolled)


def test_preload_cycle_is_printed_for_each_product(harness: Harness) -> None:
    lines = harness.handle(EngineMessage(1, LogLevel.ERROR, f"{CYCLE_PROBLEM}linux/a.slice{JOIN}linux/b.slice{JOIN}linux/a.slice"))

    printed = [line for line in lines if line.startswith("Preload circular dependency detected while processing asset (")]
    assert len(printed) == 2
    assert "(linux/a.slice). Preload hierarchy is linux/a.slice -> linux/b.slice -> linux/a.slice " in printed[0]
    assert "(linux/b.slice). Preload hierarchy is linux/b.slice -> linux/a.slice -> linux/b.slice " in printed[1]
    assert lines.count("System: Trace::Error") == 2
    assert (harness.printer.errors, harness.printer.warnings) == (2, 0)


GUID = "{31B74BFD-7046-47AC-A7DA-7D5167E9B2F8}"
STATS = {
    "CreateJobs,a.txt,Copy": Stat(10),
    "CreateJobs,b.txt,Copy": Stat(30),
    f"ProcessJob,/p,a.txt,txt,linux,{GUID}": Stat(100),
    f"ProcessJob,/p,x, y.txt,txt,mac,{GUID}": Stat(300),
    f"ProcessJob,/p,c.ini,ini,linux,{GUID}": Stat(50),
}


@pytest.mark.parametrize(
    ("total_ms", "text"),
    [
        (0, "         000ms"),
        (999, "         999ms"),
        (12_345, "      12s345ms"),
        (61_001, "   01m01s001ms"),
        (3_600_000, "01h00m00s000ms"),
        (360_000_000, "100h00m00s000ms"),
    ],
)
def test_durations_in_the_times_report_are_aligned(total_ms: int, text: str) -> None:
    assert duration(total_ms) == text


def test_times_report_has_rows_in_the_format_of_o3de() -> None:
    assert human_line("AssetScanning", Stat(12_345)) == "    Time:       12s345ms, EventName: AssetScanning"
    assert human_line("X", Stat(90, 3)) == "    Time:          090ms, Count:    3, Average:          030ms, EventName: X"
    assert machine_line("a:b", Stat(90, 4)) == "MachineReadableStat:90:4:22:a:b"


def test_times_report_has_sums_by_builder_and_job_key_and_platform() -> None:
    lines = report(STATS, StatsForm(is_human=False, is_machine=True))

    assert "MachineReadableStat:40:2:20:CreateJobsTotal" in lines
    assert "MachineReadableStat:40:2:20:CreateJobsByBuilder,Copy" in lines
    assert "MachineReadableStat:450:3:150:ProcessJobsTotal" in lines
    assert "MachineReadableStat:400:2:200:ProcessJobsByJobKey,txt" in lines
    assert "MachineReadableStat:300:1:300:ProcessJobsByPlatform,mac" in lines
    assert all(line.startswith("MachineReadableStat:") for line in lines)


def test_times_report_lists_only_the_longest_jobs() -> None:
    lines = report(STATS, StatsForm(individual=1, cumulative=1))

    assert "Top 1 longest individual ProcessJob" in lines
    assert [line.partition("EventName: ")[2] for line in lines if "ProcessJob," in line] == [
        f"ProcessJob,/p,x, y.txt,txt,mac,{GUID}"
    ]
    assert not any("MachineReadableStat" in line for line in lines)


def test_times_report_has_rows_in_the_order_of_o3de() -> None:
    lines = report(STATS, StatsForm(is_human=False, is_machine=True, individual=0, cumulative=0))

    assert [line.rpartition(":")[2] for line in lines] == [
        "LoadingGems",
        "AssetScanning",
        "WarmingFileCache",
        "InitialFileAssessment",
        "HashFileTotal",
        "CreateJobsTotal",
        "ProcessJobsTotal",
        "ComputeStatsTime",
    ]


def test_times_report_is_empty_if_both_of_its_forms_are_disabled() -> None:
    assert report(STATS, StatsForm(is_human=False, is_machine=False)) == []

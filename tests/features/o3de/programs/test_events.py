"""The lines that an asset processor prints for the engine's events."""

import io
from pathlib import Path

import pytest

from aptui.core.model import RelPath, RunKey
from aptui.core.notices import EngineMessage, JobChanged, LogLevel, LogRecord, Notice, Progress
from aptui.core.state.graph import CYCLE_PROBLEM, JOIN
from aptui.features.o3de.programs.events import EventPrinter
from aptui.features.o3de.programs.phrases import BATCH, ProgramConsole, ProgramLog
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


class Room:
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
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_job_start_and_end_are_printed(room: Room) -> None:
    lines = room.handle(changed("pending"), changed("processing"), changed(warnings=2, errors=1))

    assert lines == ["Processing a.txt (linux)...", 'Processed "/p/a.txt" ("linux")... ']
    assert (room.printer.processed_count, room.printer.warnings, room.printer.errors) == (1, 2, 1)
    assert list(room.printer.stats) == ["ProcessJob,/p,a.txt,txt,linux,{copy}"]
    assert room.printer.processed_by == {"{copy}": ["/p/a.txt"]}


def test_event_printer_ignores_the_result_of_an_earlier_run(room: Room) -> None:
    assert room.handle(changed(completed_ms=NOW_MS - 1)) == []
    assert room.printer.processed_count == 0


def test_failed_job_is_printed_once_with_its_log(room: Room) -> None:
    records = [LogRecord(LogLevel.INFO, "w", "about to", NOW_MS), LogRecord(LogLevel.ERROR, "w", "broken", NOW_MS)]
    joblog.write(room.folder / "JobLogs" / "a.log", records, 0, 1)
    failure = changed("failed", log_file="JobLogs/a.log", error="broken", errors=1)

    lines = room.handle(failure, failure)

    assert lines[0] == "Failed /p/a.txt, (linux)... "
    assert [line.rpartition("origin: ")[2] for line in lines[1:]] == ["w | about to", "w | broken", "aptui | 1 errors, 0 warnings"]
    assert room.printer.errors == 1


def test_error_of_a_failed_job_without_a_log_is_printed(room: Room) -> None:
    lines = room.handle(changed("failed", error="another source has already produced the same product"))

    assert lines[1].endswith("| ERROR | origin: AssetProcessor | another source has already produced the same product")


def test_failed_analysis_is_printed_as_a_line_of_its_own(room: Room) -> None:
    analysis = changed("failed", job_key="CreateJobs_{00}", platform="all", error="no", run_key=RunKey(0))

    lines = room.handle(changed("processing", job_key="CreateJobs_{00}"), analysis)

    assert lines[0] == "Createjobs Failed: /p/a.txt."
    assert list(room.printer.stats) == ["CreateJobs,a.txt,copy"]
    assert room.printer.processed_count == 0


def test_end_of_a_scan_is_printed_once(room: Room) -> None:
    room.printer.begin_scan()
    progress = Progress(1, 12, 0, 0, 0, 0, 0, 0, is_scanning=False)

    lines = room.handle(Progress(1, 4, 0, 0, 0, 0, 0, 0, is_scanning=True), progress, progress)
    room.printer.end_scan()
    room.printer.end_analysis(10)

    assert lines[1:] == [
        "File system scan done.",
        "Analyzing scanned files for changes...",
        "Received 12 files from the scanner.  Assessing...",
        "Initial Scan complete, checking for missing files...",
    ]
    assert room.handle()[-1].startswith("Builder optimization: 0 / 12 files required full analysis, 2 sources found")
    assert not room.printer.is_scan_open


def test_engine_messages_are_printed_and_counted(room: Room) -> None:
    lines = room.handle(
        EngineMessage(1, LogLevel.ERROR, "the disk is full"),
        EngineMessage(1, LogLevel.INFO, "the engine goes on"),
        EngineMessage(1, LogLevel.WARNING, "a link is not followed"),
    )

    assert lines[1:4] == ["System: Trace::Error", "System:  aptui(0): 'AssetProcessor'", "the disk is full"]
    assert "the engine goes on" in lines
    assert lines[-2] == "a link is not followed"
    assert "System: Trace::Warning" in lines
    assert (room.printer.errors, room.printer.warnings) == (1, 1)


@pytest.mark.parametrize("is_verbose", [True, False])
def test_pending_job_is_written_only_to_a_verbose_log(room: Room, is_verbose: bool) -> None:
    room.console.keep(ProgramLog(room.folder, BATCH, NOW_MS))
    room.console.is_verbose = is_verbose

    assert room.handle(changed("pending")) == []

    room.console.close()
    assert ("~~0~~" in (room.folder / "AP_Batch.log").read_text()) == is_verbose


def test_log_includes_lines_that_were_printed_before_the_log_was_opened(room: Room) -> None:
    room.console.say("early")
    room.console.keep(ProgramLog(room.folder, BATCH, NOW_MS))
    room.console.close()

    assert (room.folder / "AP_Batch.log").read_text().splitlines()[-1].endswith("~~AssetProcessor~~early")


def test_unwritable_log_is_reported_once(room: Room) -> None:
    (room.folder / "file").write_text("")
    room.console.keep(ProgramLog(room.folder / "file", BATCH, NOW_MS))

    room.console.say("one")
    room.console.say("two")

    assert room.stream.getvalue().count("cannot be written") == 1


def test_broken_stdout_does_not_stop_the_run(tmp_path: Path) -> None:
    class Broken(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    console = ProgramConsole(Broken())

    console.say("one")
    console.say("two")
    console.keep(ProgramLog(tmp_path, BATCH, 0))
    console.close()

    assert (tmp_path / "AP_Batch.log").read_text().count("~~AssetProcessor~~") == 2


def test_preload_cycle_is_printed_for_each_product(room: Room) -> None:
    lines = room.handle(EngineMessage(1, LogLevel.ERROR, f"{CYCLE_PROBLEM}linux/a.slice{JOIN}linux/b.slice{JOIN}linux/a.slice"))

    said = [line for line in lines if line.startswith("Preload circular dependency detected while processing asset (")]
    assert len(said) == 2
    assert "(linux/a.slice). Preload hierarchy is linux/a.slice -> linux/b.slice -> linux/a.slice " in said[0]
    assert "(linux/b.slice). Preload hierarchy is linux/b.slice -> linux/a.slice -> linux/b.slice " in said[1]
    assert lines.count("System: Trace::Error") == 2
    assert (room.printer.errors, room.printer.warnings) == (2, 0)

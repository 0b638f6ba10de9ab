"""`AssetProcessorBatch` on a small O3DE project: lines, totals, exit codes, logs, and every switch with an effect."""

import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from lytesttools import PLATFORMS, RULES, Driven, O3deProject, Run, read_log, read_output

from aptui.features.o3de.programs import asset_processor_batch

pytestmark = pytest.mark.real


class Batch(O3deProject):
    """A project and the batch program, which runs in this process."""

    capture: pytest.CaptureFixture[str]
    output = ""

    def run(self, *more: str, code: int = 0, is_fast: bool = True) -> Run:
        return self.run_plain(*self.arguments(*more, is_fast=is_fast), code=code)

    def run_plain(self, *arguments: str, code: int = 0) -> Run:
        self.capture.readouterr()
        ended = asset_processor_batch.main(list(arguments))
        self.output = self.capture.readouterr().out
        assert ended == code, self.output
        return read_output(self.output)


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Batch:
    project = Batch(tmp_path, monkeypatch)
    project.capture = capsys
    return project


def failing(batch: Batch, count: int) -> None:
    """Let `count` sources fail: two rules make the same product of each."""
    batch.settings({**PLATFORMS, **RULES, "RC txt again": {"glob": "*/bad*.txt", "params": "copy"}})
    for number in range(count):
        batch.source(f"bad{number:02}.txt", "text")


# --------------------------------------------------------------------------------------------------------- successful runs


def test_batch_prints_the_lines_and_totals_that_tools_parse(batch: Batch) -> None:
    batch.source("Some/Name.txt", "text")
    batch.source("other.ini", "x=1")
    batch.source("nobodys.xyz", "?")

    run = batch.run()

    assert batch.product("linux/some/name.txt") == "text"
    assert (run.numbers["Successes"], run.numbers["Failures"], run.numbers["Warnings"], run.numbers["Errors"]) == (2, 0, 0, 0)
    port = next(at for at, line in enumerate(run.lines) if line == f"Listening Port: {run.numbers['Listening Port']}")
    assert port < run.lines.index("Asset Processor Batch Processing Started.")
    assert run.numbers["Full Analysis"] == (2, 4)
    assert isinstance(run.numbers["Time"], float)
    name = batch.project / "Some" / "Name.txt"
    order = [
        "Asset Processor Batch Processing Started.",
        "-" * 41,
        "Scanning file system for changes...",
        "File system scan done.",
        "Analyzing scanned files for changes...",
        "Received 4 files from the scanner.  Assessing...",
        "Initial Scan complete, checking for missing files...",
        "No assets remain in the build queue.  Saving the catalog, and then shutting down.",
        "Asset Processor Batch Processing complete",
        "Number of Assets Successfully Processed: 2.",
        "Asset Processor Batch Processing Completed.",
    ]
    assert [line for line in run.lines if line in order] == [*order[:-3], "-" * 41, *order[-3:]]
    assert run.lines.index("Processing Some/Name.txt (linux)...") < run.lines.index(f'Processed "{name}" ("linux")... ')
    assert any(re.fullmatch(r"Saved linux catalog containing 2 assets in \d+\.\d{6}s", line) for line in run.lines)
    assert all(re.match(r"(AssetProcessor|System): ", line) for line in batch.output.splitlines())


def test_second_batch_runs_no_job(batch: Batch) -> None:
    batch.source("a.txt", "text")
    batch.run()
    assert b"a.txt" in (batch.cache / "linux" / "assetcatalog.xml").read_bytes()

    fast, full = batch.run(), batch.run(is_fast=False)

    for run in (fast, full):
        assert run.numbers["Successes"] == 0
        assert not any(line.startswith(("Processing ", "Processed ", "Saved ")) for line in run.lines)


def test_batch_without_fast_scan_counts_unchanged_files_as_analysed(batch: Batch) -> None:
    batch.source("a.txt", "text")
    batch.run()

    assert batch.run().numbers["Full Analysis"] == (0, 2)
    assert batch.run(is_fast=False).numbers["Full Analysis"] == (2, 2)


def test_unknown_platform_is_a_fatal_error(batch: Batch) -> None:
    batch.run("--platforms=amiga", code=1)

    start = "AssetProcessor: Error: The list of enabled platforms in the settings registry does not contain platform"
    assert f'{start} "amiga"' in batch.output


def test_reprocessing_renews_the_time_of_a_product_with_equal_bytes(batch: Batch) -> None:
    source, product = batch.source("a.txt", "text"), batch.cache / "linux" / "a.txt"
    batch.run()
    os.utime(product, (1, 1))
    listed = batch.write("list.txt", str(source))

    batch.run(f"--reprocessFileList={listed}")
    assert product.stat().st_mtime > 1

    os.utime(product, (1, 1))
    batch.settings({**PLATFORMS, **RULES, "RC txt": {"glob": "*.txt", "params": "copy", "version": "2"}})
    batch.run()
    assert product.stat().st_mtime > 1


def test_requested_platform_may_be_written_in_upper_case(batch: Batch) -> None:
    batch.source("a.txt", "text")

    assert batch.run("--platforms=PC,pc").numbers["Successes"] == 1
    assert (batch.cache / "pc" / "a.txt").exists()


def test_batch_creates_the_job_log_folder_and_reports_an_invalid_server(batch: Batch) -> None:
    batch.source("a.txt", "text")
    server = "/O3DE/AssetProcessor/Settings/Server"

    batch.run(f' --regset="{server}/cacheServerAddress=InvalidAddress" ', f'--regset="{server}/assetCacheServerMode=Server"')

    assert (batch.logs / "JobLogs").is_dir()
    assert "(InvalidAddress) is invalid" in batch.output


def test_batch_log_has_the_totals_of_every_run(batch: Batch) -> None:
    batch.source("a.txt", "text")
    batch.run()
    batch.run()

    first, second = read_log(batch.logs / "AP_Batch.log")

    assert (first.numbers["Successes"], second.numbers["Successes"]) == (1, 0)
    assert first.numbers["Listening Port"]


def test_command_line_overrides_settings_and_platforms_and_adds_scan_folders(batch: Batch) -> None:
    batch.source("a.txt", "text")
    batch.write("elsewhere/b.txt", "more")
    batch.write("more.setreg", json.dumps({"RC txt": {"glob": "*.txt", "params": "skip", "pc": "copy"}}))

    batch.run(
        "/platforms=pc,linux",
        f"--scanfolders={batch.root}/elsewhere",
        f"--regset-file={batch.root}/more.setreg::/Amazon/AssetProcessor/Settings",
        '--regremove="/Amazon/AssetProcessor/Settings/RC ini"',
        '--regset="f/Amazon/AssetProcessor/Settings/Platforms/pc=enabled"',
    )

    assert batch.product("pc/a.txt") == "text"
    assert batch.product("pc/b.txt") == "more"
    assert not (batch.cache / "linux" / "a.txt").exists()


@pytest.mark.parametrize("words", [["/gamefolder=Samples"], ["--project-path=Samples"]])
def test_error_without_a_project_suggests_the_project_path_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert asset_processor_batch.main(["/platforms=pc", *words]) != 0

    printed = capsys.readouterr().out
    assert f"no 'project.json' in '{tmp_path / 'Samples'}'; name the folder of the project: --project-path=DIR" in printed


def test_batch_accepts_the_older_switches_that_name_the_project(batch: Batch) -> None:
    batch.source("a.txt", "text")

    run = batch.run_plain(
        "/gamefolder=AutomatedTesting", f"/assetroot={batch.root}", f"-SCANFOLDERS={batch.project}", "/noConfigScanFolders"
    )

    assert run.numbers["Successes"] == 1
    assert (batch.project / "user" / "log" / "AP_Batch.log").exists()


def test_batch_finds_the_project_around_the_current_folder(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    batch.source("below/a.txt", "text")
    monkeypatch.chdir(batch.project / "below")

    run = batch.run_plain("--scanfolders", ".", "--noConfigScanFolders", "--noGemScanFolders", f"--engine-path={batch.root}")

    assert run.numbers["Successes"] == 1
    assert batch.product("linux/a.txt") == "text"


# ------------------------------------------------------------------------------------------------------------------- failures


def test_failed_asset_is_printed_and_listed_and_counted_in_every_run(batch: Batch) -> None:
    failing(batch, 1)
    path = batch.project / "bad00.txt"

    for _ in range(2):
        run = batch.run(code=1)

        assert run.numbers["Failures"] == 1
        at = run.lines.index("---------------FAILED ASSETS-------------")
        assert run.lines[at + 1 : at + 3] == [str(path), "-" * 41]
    assert f"Failed {path}, (linux)... " in run.lines
    assert any(line.startswith("JOB LOG: ") for line in run.lines)


def test_batch_prints_the_logs_of_the_first_nine_failures(batch: Batch) -> None:
    failing(batch, 12)

    run = batch.run(code=1)

    assert run.numbers["Failures"] == 12
    assert run.lines.count("Too Many Compile Errors - not printing out full logs for remaining errors") == 1
    replays = sum(
        after.startswith("JOB LOG: ") and before.startswith("Failed ")
        for before, after in zip(run.lines, run.lines[1:], strict=False)
    )
    assert replays == 9


def test_asset_that_no_longer_fails_is_not_listed_as_failed(batch: Batch) -> None:
    failing(batch, 1)
    batch.run(code=1)
    batch.settings({**PLATFORMS, **RULES})

    run = batch.run()

    assert run.numbers["Failures"] == 0
    assert "---------------FAILED ASSETS-------------" not in run.lines


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--platforms=linux,xbox"], 'registry does not contain platform "xbox" entries - check command line'),
        (["--regset=/Amazon/AssetProcessor/Settings/Platforms/xbox=enabled"], 'does not contain platform "xbox" entries'),
        (["--warningLevel=3"], "--warningLevel must be 1 or 2, not 3"),
        (["--port=no"], "--port expects a number, not 'no'"),
        (["--project-path"], "--project-path needs a value"),
        (["--regset-file=/nowhere.setreg"], "the file '/nowhere.setreg' does not exist"),
    ],
)
def test_invalid_option_exits_with_1(batch: Batch, more: list[str], text: str) -> None:
    batch.run(*more, code=1)

    assert "System: Trace::Error" in batch.output
    assert text in batch.output


def test_batch_writes_the_error_about_a_missing_project_to_its_log(batch: Batch) -> None:
    run = batch.run_plain(f"--project-path={batch.root}/nowhere", f"--logDir={batch.logs}", code=1)

    assert any("nowhere" in line for line in run.lines)
    assert any("nowhere" in line for line in read_log(batch.logs / "AP_Batch.log")[0].lines)


@pytest.mark.parametrize(("level", "code"), [("", 0), ("--warningLevel=1", 0), ("--warningLevel=2", 1)])
def test_batch_fails_because_of_warnings_only_at_warning_level_2(batch: Batch, level: str, code: int) -> None:
    batch.source("a.txt", "text")
    batch.run()
    with closing(sqlite3.connect(batch.cache / "assetdb.sqlite")) as database:
        database.execute("UPDATE Jobs SET WarningCount = 1")
        database.commit()

    run = batch.run(*([level] if level else []), code=code)

    assert run.numbers["Failures"] == code


# -------------------------------------------------------------------------------------------------------------- other switches


@pytest.mark.parametrize("spelling", ["--help", "-h", "/help", "--HELP"])
def test_help_lists_switches_and_processes_nothing(batch: Batch, spelling: str) -> None:
    run = batch.run(spelling)

    assert run.lines[0] == "Asset Processor Command Line Flags:"
    assert not batch.cache.exists()


def test_regdump_switches_print_registry_values_as_json(batch: Batch) -> None:
    batch.run("--regdump=/Amazon/AssetProcessor/Settings/RC txt", '--regset="/some/key=0x10"')
    part = batch.output[: batch.output.index("AssetProcessor:")]
    batch.run("--regdumpall", '--regset="/some/key=0x10"')
    whole = batch.output[: batch.output.index("AssetProcessor:")]

    assert json.loads(part) == {"glob": "*.txt", "params": "copy"}
    assert json.loads(whole)["some"] == {"key": 16}


def test_batch_reprocesses_the_files_of_a_list_in_the_order_of_the_list(batch: Batch) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        batch.source(name, name)
    batch.run()
    listed = batch.write("list.txt", f"\ufeffc.txt\n\n{batch.project}/a.txt\n/etc/elsewhere.txt\n")

    run = batch.run("--reprocessFileList", str(listed))

    assert run.numbers["Successes"] == 2
    done = [line for line in run.lines if line.startswith(("Processing", "Processed"))]
    assert [re.sub(r".*[/ ]([abc]).txt.*", r"\1", line) for line in done] == ["c", "c", "a", "a"]
    assert "'/etc/elsewhere.txt' of the reprocess file list is not in a scan folder." in batch.output


@pytest.mark.parametrize(
    ("text", "complaint"), [(None, "Unable to open reprocess file list with path"), ("\n", "No files listed to reprocess")]
)
def test_empty_reprocess_list_is_reported(batch: Batch, text: str | None, complaint: str) -> None:
    listed = batch.root / "list.txt"
    if text is not None:
        listed.write_text(text)

    batch.run("--reprocessFileList", str(listed))

    assert complaint in batch.output


def test_debug_output_lists_sources_by_builder(batch: Batch) -> None:
    batch.source("a.txt", "text")

    batch.run("--debugOutput")

    found = re.search(r"BuilderManager: Builder (\{[0-9A-F-]{36}\}) processed these assets:\n(.*)", batch.output)
    assert found
    assert found[2] == f"BuilderManager: Builder with ID {found[1]} processed {batch.project / 'a.txt'}"


def test_settings_choose_the_format_of_the_printed_statistics(batch: Batch) -> None:
    batch.source("a.txt", "text")
    stats = "/Amazon/AssetProcessor/Settings/Stats"

    people = batch.run()
    machines = batch.run(f"--regset={stats}/HumanReadable=false", f"--regset={stats}/MachineReadable=true")

    assert any(re.match(r" +Time: .*EventName: AssetScanning", line) for line in people.lines)
    assert any(re.match(r"MachineReadableStat:\d+:\d+:\d+:AssetScanning", line.lstrip()) for line in machines.lines)
    assert not any("EventName" in line for line in machines.lines)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_newer_database_is_deleted_only_on_request(batch: Batch, is_wanted: bool) -> None:
    batch.source("a.txt", "text")
    batch.run()
    with closing(sqlite3.connect(batch.cache / "assetdb.sqlite")) as database:
        database.execute("UPDATE dbinfo SET version = 99")
        database.commit()

    run = batch.run(*(["--ignoreFutureAssetDatabaseVersionError"] if is_wanted else []), code=0 if is_wanted else 1)

    assert "has version 99" in batch.output
    assert run.numbers.get("Successes", 0) == is_wanted


def test_batch_reports_switches_without_effect_and_unknown_arguments_once(batch: Batch) -> None:
    batch.run("--start-hidden", "-ap_disableAssetTreeView=true", "--noSuchThing=1", "/somewhere")

    printed = [line for line in batch.output.splitlines() if "ignored" in line]
    assert [re.split(r" (?:is|belongs) ", line.removeprefix("AssetProcessor: "))[0] for line in printed] == [
        "--start-hidden",
        "--ap_disableAssetTreeView",
        "--noSuchThing=1",
        "'/somewhere'",
    ]


def test_wait_on_launch_switch_waits_before_the_start(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("aptui.features.o3de.programs.run_request.time.sleep", slept.append)

    batch.run("--waitOnLaunch")

    assert slept == [20.0]


def test_acceptinput_switch_prints_the_control_port(batch: Batch) -> None:
    run = batch.run("--acceptInput")

    assert run.numbers["Control Port"]


# --------------------------------------------------------------------------------------------------------- control channel


@pytest.fixture
def driven(batch: Batch) -> Iterator[Driven]:
    """A batch run in a separate process, with one job that ends when the file `gate` exists."""
    gate = batch.root / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.02; done; cp {{source}} {{products_dir}}/out.bin"
    batch.source("aptui.yaml", f'builders: [{{name: slow, patterns: ["*.slow"], command: "{command}"}}]')
    batch.source("a.slow", "text")
    driven = Driven(batch, module="asset_processor_batch", log="AP_Batch.log")
    driven.connect()
    driven.until_logged("Processing a.slow (linux)...")
    yield driven
    driven.close()


@pytest.mark.real
def test_batch_replies_to_requests_on_the_control_channel(batch: Batch, driven: Driven) -> None:
    assert driven.ask("ping") == "pong"
    assert driven.ask("isidle") == "false"
    driven.send("waitforidle")
    batch.write("gate", "")

    assert driven.receive() == "idle"
    assert driven.end() == 0
    assert batch.product("linux/out.bin") == "text"


@pytest.mark.parametrize("is_signal", [True, False])
def test_interrupted_batch_exits_with_1(batch: Batch, driven: Driven, is_signal: bool) -> None:
    if is_signal:
        driven.process.send_signal(signal.SIGTERM)
    else:
        driven.send("quit")

    assert driven.end() == 1
    run = read_log(batch.logs / "AP_Batch.log")[-1]
    assert run.numbers["Successes"] == 0
    assert ("Asset Processor Batch Processing Interrupted. Quitting." in run.lines) == is_signal
    assert "No assets remain in the build queue.  Saving the catalog, and then shutting down." not in run.lines


# ------------------------------------------------------------------------------------------------------- moving and deleting


def test_move_without_confirm_is_a_preview(batch: Batch) -> None:
    batch.source("a.txt", "text")

    run = batch.run("--move=a.txt,moved/b.txt")

    assert (batch.project / "a.txt").exists()
    at = next(index for index, line in enumerate(run.lines) if "RELOCATION REPORT" in line)
    assert run.lines[at + 1 : at + 4] == [
        "Move Source: a.txt, Destination: moved/b.txt",
        "SETTING: Preview file move.  Run again with --confirm to actually make changes",
        "FILE REPORT:",
    ]
    assert re.fullmatch(
        r"SOURCEID: \d+, CURRENT PATH: a.txt, NEW PATH: moved/b.txt, CURRENT GUID: \{[0-9A-F-]{36}\}, NEW GUID: \{[0-9A-F-]{36}\}",
        run.lines[at + 4],
    )
    assert "MOVE COMPLETE" not in run.lines


@pytest.mark.parametrize(
    ("switches", "lines"),
    [
        (
            ["--move=a.txt,b.txt", "--confirm"],
            ["Performing real file move", "Deleting empty folders", "MOVE COMPLETE", "TOTAL FILES: 1", "SUCCESS COUNT: 1"],
        ),
        (
            ["--delete", "a.txt", "--confirm", "--leaveEmptyFolders"],
            ["Delete Source: a.txt", "Performing real file delete", "Leaving empty folders", "DELETE COMPLETE", "FAILURE COUNT: 0"],
        ),
    ],
)
def test_confirmed_move_or_deletion_removes_the_source_and_is_reported(batch: Batch, switches: list[str], lines: list[str]) -> None:
    batch.source("a.txt", "text")

    run = batch.run(*switches)

    assert [line for line in run.lines if line in lines] == lines
    assert not (batch.project / "a.txt").exists()


@pytest.mark.parametrize(
    ("switches", "line"),
    [
        (["--confirm"], "Command --confirm must be used with command --move or --delete"),
        (["--updateReferences", "--delete=a.txt"], "Command --updateReferences must be used with command "),
        (["--move=a.txt"], "Invalid format for move command.  Expected format is move=<source>,<destination>"),
        (["--move=/etc/passwd,b.txt"], "Path /etc/passwd points to a file outside the current project's scan folders."),
        (["--move=a.txt,/etc/b.txt"], "Destination must exist within a scanfolder."),
    ],
)
def test_refusal_of_an_invalid_move_has_the_wording_of_o3de(batch: Batch, switches: list[str], line: str) -> None:
    batch.source("a.txt", "text")

    run = batch.run(*switches)

    assert any(printed.startswith(line) for printed in run.lines)
    assert (batch.project / "a.txt").exists()


def test_relocation_switches_are_refused_without_move_or_delete(batch: Batch) -> None:
    printed = [line for line in batch.run("--updateReferences", "--confirm").lines if line.startswith("Command ")]
    assert printed == ["Command --updateReferences must be used with command --move"]

    printed = [
        line
        for line in batch.run("--allowBrokenDependencies", "--leaveEmptyFolders", "--confirm").lines
        if line.startswith("Command ")
    ]
    assert printed == [
        f"Command --{name} must be used with command --move or --delete"
        for name in ("confirm", "leaveEmptyFolders", "allowBrokenDependencies")
    ]


def test_batch_prints_report_and_totals_of_a_refused_move(batch: Batch) -> None:
    batch.source("a.txt", "text").chmod(0o466)

    run = batch.run("--move=a.txt,b.txt", "--confirm")

    assert "SourceFileRelocator: Error: operation failed for file" in batch.output
    wanted = ["FILE REPORT:", "TOTAL FILES: 1", "SUCCESS COUNT: 0", "FAILURE COUNT: 1"]
    assert [line for line in run.lines if line in wanted] == wanted
    assert (batch.project / "a.txt").exists()


def test_missing_dependency_scan_prints_matches(batch: Batch) -> None:
    batch.source("a.txt", "it needs b.ini to work")
    batch.source("b.ini", "x=1")

    run = batch.run("--dsp=%a.txt", "--dependencyScanMaxIteration=10")

    lines = [line.strip() for line in batch.output.splitlines() if "issing dependenc" in line]
    assert lines[0] == f"AssetProcessor: Scanning for missing dependencies:\t{batch.cache}/linux/a.txt"
    assert re.search(r'Missing dependency: String "b.ini" matches asset: \{[0-9A-F-]{36}\}:0\Z', lines[1])
    assert len(lines) == 2
    assert run.numbers["Failures"] == 0

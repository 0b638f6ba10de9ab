"""The exact form of every line that tools search for."""

import re

import pytest

from aptui.core.notices import LogLevel
from aptui.features.o3de.programs import phrases


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (phrases.STARTED, "Asset Processor Batch Processing Started."),
        (phrases.RULER, "-----------------------------------------"),
        (phrases.LISTENING_PORT.format(45644), "Listening Port: 45644"),
        (phrases.CONTROL_PORT.format(1), "Control Port: 1"),
        (phrases.SCANNING, "Scanning file system for changes..."),
        (phrases.SCANNED, "File system scan done."),
        (phrases.ANALYZING, "Analyzing scanned files for changes..."),
        (phrases.RECEIVED.format(12), "Received 12 files from the scanner.  Assessing..."),
        (phrases.CHECKING_MISSING, "Initial Scan complete, checking for missing files..."),
        (
            phrases.optimization(1, 22, 3),
            (
                "Builder optimization: 1 / 22 files required full analysis, 3 sources found but not processed by anyone. 0 "
                "override collisions."
            ),
        ),
        (phrases.PROCESSING.format("a/B.txt", "linux"), "Processing a/B.txt (linux)..."),
        (phrases.PROCESSED.format("/p/a/B.txt", "linux"), 'Processed "/p/a/B.txt" ("linux")... '),
        (phrases.JOB_FAILED.format("/p/a/B.txt", "linux"), "Failed /p/a/B.txt, (linux)... "),
        (phrases.CREATE_JOBS_FAILED.format("/p/a/B.txt"), "Createjobs Failed: /p/a/B.txt."),
        (phrases.TOO_MANY_ERRORS, "Too Many Compile Errors - not printing out full logs for remaining errors"),
        (phrases.MISSING_SCAN.format("linux/a.txt"), "Scanning for missing dependencies:\tlinux/a.txt"),
        (
            phrases.MISSING_DEPENDENCY.format("a/b.txt", "{E68A85B0-131D-5A82-B2D5-BC58EE4062AE}", 0x1F),
            '\t\tMissing dependency: String "a/b.txt" matches asset: {E68A85B0-131D-5A82-B2D5-BC58EE4062AE}:1f',
        ),
        (phrases.SHUTTING_DOWN, "No assets remain in the build queue.  Saving the catalog, and then shutting down."),
        (phrases.SAVED_CATALOG.format("linux", 7, 0.25), "Saved linux catalog containing 7 assets in 0.250000s"),
        (phrases.COMPLETE, "Asset Processor Batch Processing complete"),
        (phrases.COMPLETED, "Asset Processor Batch Processing Completed."),
        (
            phrases.UNKNOWN_PLATFORM.format("x"),
            (
                'The list of enabled platforms in the settings registry does not contain platform "x" entries'
                " - check command line and settings registry files for errors!"
            ),
        ),
    ],
)
def test_log_phrases_equal_those_of_o3de(line: str, expected: str) -> None:
    assert line == expected


def test_printed_totals_have_the_text_that_lytesttools_parses() -> None:
    text = [phrases.physical(phrases.WINDOW, line)[0] for line in phrases.totals(3, 2, 1, 0, 1.5)]

    assert text == [
        "AssetProcessor: Number of Assets Successfully Processed: 3.",
        "AssetProcessor: Number of Assets Failed to Process: 2.",
        "AssetProcessor: Number of Warnings Reported: 1.",
        "AssetProcessor: Number of Errors Reported: 0.",
        "AssetProcessor: Total Assets Processing Time: 1.500000s",
    ]


def test_failed_assets_are_listed_in_one_block() -> None:
    assert phrases.format_failed_assets([]) == []
    assert phrases.format_failed_assets(["/b", "/a"]) == ["---------------FAILED ASSETS-------------", "/a", "/b", "-" * 41]


def test_each_line_of_a_message_begins_with_the_window_name() -> None:
    assert phrases.physical("BuilderManager", "one\r\ntwo\rthree\n") == [
        "BuilderManager: one",
        "BuilderManager: two",
        "BuilderManager: three",
    ]


def test_control_characters_are_removed() -> None:
    line = phrases.physical(phrases.WINDOW, phrases.PROCESSING.format("a\x1b[2Jb\tc", "linux"))

    assert line == ["AssetProcessor: Processing ab\tc (linux)..."]


def test_error_is_printed_between_two_separator_lines() -> None:
    ruler = f"System: {'=' * 66}"

    assert phrases.format_traced(LogLevel.ERROR, "no platform\nis enabled", "/p/a.setreg:3:7") == [
        ruler,
        "System: Trace::Error",
        "System:  /p/a.setreg(3): 'AssetProcessor'",
        "AssetProcessor: no platform",
        "AssetProcessor: is enabled",
        ruler,
    ]
    assert phrases.format_traced(LogLevel.WARNING, "x")[1:3] == ["System: Trace::Warning", "System:  aptui(0): 'AssetProcessor'"]


@pytest.mark.parametrize(
    ("level", "word"), [(LogLevel.DEBUG, "DEBUG"), (LogLevel.INFO, "Info"), (LogLevel.WARNING, "Warn"), (LogLevel.ERROR, "ERROR")]
)
def test_job_log_line_has_time_level_and_origin(level: LogLevel, word: str) -> None:
    assert re.fullmatch(
        rf"JOB LOG: .+ \| {word} \| origin: window \| the text", phrases.job_log(1_700_000_000_000, level, "window", "the text")
    )


def test_idle_line_has_the_text_that_tools_search_for() -> None:
    assert "currently idle" in phrases.IDLE.format(1.0)


def test_assets_of_a_builder_are_printed_in_the_given_order() -> None:
    assert phrases.builder_list("{A}", ["/b", "/a"]) == [
        "Builder {A} processed these assets:",
        "Builder with ID {A} processed /b",
        "Builder with ID {A} processed /a",
    ]

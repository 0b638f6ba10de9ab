"""O3DE's RELOCATION REPORT, line by line."""

import os
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from aptui.features.o3de.programs import final_tasks, program_switches
from aptui.features.o3de.programs.final_tasks import DELIMITER, closing_lines, opening_lines, refusal_lines, report_lines
from aptui.features.relocation.relocation_records import (
    Dependant,
    Relocate,
    RelocationAction,
    RelocationItem,
    RelocationReport,
    SkippedFile,
    Update,
    count_report,
)

GUID, NEW_GUID = "{E68A85B0-131D-5A82-B2D5-BC58EE4062AE}", "{A2482826-053D-5634-A27B-084B1326AAE5}"
MOVE = Relocate("a.txt", "b.txt")
SOURCE = Dependant("c.txt", "/p/c.txt", GUID, "source", 1, by_uuid=True)
PRODUCT = Dependant("c.txt", "/p/c.txt", GUID, "product", 0, by_uuid=False, product="linux/c.txt", needs="linux/a.txt")
ITEM = RelocationItem("a.txt", "/p/a.txt", "P", "b.txt", "/p/b.txt", "P", source_id=7, uuid=GUID, new_uuid=NEW_GUID)


@pytest.mark.parametrize(
    ("order", "lines"),
    [
        (
            MOVE,
            [
                "Move Source: a.txt, Destination: b.txt",
                "SETTING: Preview file move.  Run again with --confirm to actually make changes",
            ],
        ),
        (
            Relocate("a", is_delete=True),
            ["Delete Source: a", "SETTING: Preview file delete.  Run again with --confirm to actually make changes"],
        ),
        (
            Relocate("a", "b", is_confirmed=True, updates_references=True),
            [
                "Move Source: a, Destination: b",
                "Performing real file move",
                "Deleting empty folders",
                "Attempting to perform reference fix-up",
            ],
        ),
        (
            Relocate("a", is_delete=True, is_confirmed=True, leaves_empty_folders=True),
            ["Delete Source: a", "Performing real file delete", "Leaving empty folders"],
        ),
    ],
)
def test_relocation_report_begins_with_the_requested_move_or_deletion(order: Relocate, lines: list[str]) -> None:
    assert opening_lines(order) == ["--------------------------- RELOCATION REPORT  ---------------------------", *lines]


def test_relocation_report_lists_old_and_new_names() -> None:
    metadata = RelocationItem("a.txt.meta", "/p/a.txt.meta", "P", "b.txt.meta", is_metadata=True)
    report = RelocationReport(MOVE, (ITEM, metadata), skipped=(SkippedFile("x.md", "no source"),))

    assert list(report_lines(report)) == [
        "File `x.md` was found/matched but is not a source asset.  Skipping.",
        "FILE REPORT:",
        f"SOURCEID: 7, CURRENT PATH: a.txt, NEW PATH: b.txt, CURRENT GUID: {GUID}, NEW GUID: {NEW_GUID}",
        "Metadata file CURRENT PATH: a.txt.meta, NEW PATH: b.txt.meta",
    ]


def test_deleted_file_has_no_new_name() -> None:
    report = RelocationReport(Relocate("a.txt", is_delete=True), (ITEM,))

    assert list(report_lines(report)) == ["FILE REPORT:", f"SOURCEID: 7, CURRENT PATH: a.txt, CURRENT GUID: {GUID}"]


@pytest.mark.parametrize(
    ("is_mended", "words"),
    [(False, " and will break:"), (True, ", we will attempt to fix the references but they may still break:")],
)
def test_relocation_report_lists_dependants_below_the_file_they_need(is_mended: bool, words: str) -> None:
    item = RelocationItem("a.txt", "/p/a.txt", "P", dependants=(SOURCE, PRODUCT))

    lines = list(report_lines(RelocationReport(Relocate("a.txt", "b.txt", updates_references=is_mended), (item,))))[2:]

    assert [line.startswith("\t") and line.endswith(words) for line in lines] == [True, False, True, False]
    assert lines[1] == "\t\tUUID: c.txt, TYPE: 1, AssetId-based"
    assert lines[3] == f"\t\tPATH: linux/c.txt, DEPENDS ON PRODUCT: linux/a.txt, ASSETID: {GUID}, TYPE: 0, Path-based"


def test_relocation_report_lists_updates_and_failures() -> None:
    items = (RelocationItem("a.txt", "/p/a.txt", "P", action=RelocationAction.FAILED, problem="File is read-only."),)
    updates = (
        Update("c.txt", "/p/c.txt", action=RelocationAction.DONE),
        Update("d.txt", "/p/d.txt", action=RelocationAction.FAILED, possible=(("a", "b"),)),
        Update("e.txt", "/p/e.txt"),
    )

    assert list(report_lines(RelocationReport(MOVE, items, updates)))[2:] == [
        "Updated /p/c.txt - SUCCESS",
        "Updated /p/d.txt - FAIL",
        "UPDATE FAILURE REPORT:",
        "The following files have a dependency on file(s) that were moved which could not be updated automatically:",
        "\t/p/d.txt",
        "\t\ta -> b",
        "SourceFileRelocator: Error: operation failed for file /p/a.txt.  Note: File is read-only.",
    ]


def test_relocation_report_ends_with_totals() -> None:
    items = (
        RelocationItem("a", "/p/a", "P", action=RelocationAction.DONE),
        RelocationItem("b", "/p/b", "P", action=RelocationAction.FAILED),
        RelocationItem("c", "/p/c", "P", action=RelocationAction.LEFT),
    )
    updates = (Update("d", "/p/d", action=RelocationAction.DONE), Update("e", "/p/e", action=RelocationAction.FAILED))
    moved = count_report(RelocationReport(MOVE, items, updates, is_performed=True))
    deleted = count_report(RelocationReport(Relocate("a", is_delete=True), items, is_performed=True))

    assert closing_lines(moved) == [
        "MOVE COMPLETE",
        "TOTAL DEPENDENCIES FOUND: 2",
        "SUCCESSFULLY UPDATED: 1",
        "FAILED TO UPDATE: 1",
        "TOTAL FILES: 3",
        "SUCCESS COUNT: 1",
        "FAILURE COUNT: 2",
        DELIMITER,
    ]
    assert closing_lines(deleted) == ["DELETE COMPLETE", "TOTAL FILES: 3", "SUCCESS COUNT: 1", "FAILURE COUNT: 2", DELIMITER]
    assert closing_lines(RelocationReport(MOVE, items)) == [DELIMITER]
    refused = count_report(RelocationReport(replace(MOVE, is_confirmed=True), items[:1], refusals=("no",)))
    assert closing_lines(refused)[1:] == ["TOTAL FILES: 1", "SUCCESS COUNT: 0", "FAILURE COUNT: 1", DELIMITER]


@pytest.mark.parametrize(
    ("is_delete", "lines"),
    [
        (
            False,
            [
                "Move failed.  There are files that have dependencies that may break as a result of being moved/renamed.",
                (
                    "To ignore and continue anyway, re-run this command with the --allowBrokenDependencies option "
                    "OR re-run this command with the --updateReferences option to attempt to fix-up references"
                ),
            ],
        ),
        (True, ["Delete failed.  There are files that have dependencies that may break as a result of being deleted."]),
    ],
)
def test_reason_is_printed_if_a_relocation_would_break_dependants(is_delete: bool, lines: list[str]) -> None:
    item = RelocationItem("a.txt", "/p/a.txt", "P", dependants=(SOURCE,))

    report = RelocationReport(
        Relocate("a.txt", is_delete=is_delete, is_confirmed=True), (item,), refusals=("something depends on it",)
    )

    assert refusal_lines(report) == lines


def test_known_refusal_is_printed_in_the_words_of_o3de() -> None:
    locked = RelocationItem("a.txt", "/p/a.txt", "P", problem="the file is read-only")
    report = RelocationReport(MOVE, (locked,), refusals=("'a.txt': the file is read-only", "something else"))

    assert refusal_lines(report) == [
        "SourceFileRelocator: Error: operation failed for file /p/a.txt.  Note: File is read-only.",
        "something else",
    ]
    assert refusal_lines(RelocationReport(MOVE, (ITEM,))) == []


def test_pipe_in_an_additional_folder_is_not_searched(tmp_path: Path) -> None:
    """A reader of the pipe would wait for a writer forever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.txt").write_text("")
    start = mock.Mock(given=program_switches.parse([f"--additionalScanFolders={tmp_path}"]))
    start.config.project_dir = tmp_path

    assert list(final_tasks._files(start)) == [str(tmp_path / "a.txt")]

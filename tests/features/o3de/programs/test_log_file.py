"""The logs of the asset processors: AP_Batch.log and AP_GUI.log."""

from pathlib import Path

import pytest

from aptui.core.notices import LogLevel
from aptui.features.o3de.programs.phrases import BATCH, LIVE, ProgramLog
from aptui.store import joblog


def test_every_run_begins_with_three_records(tmp_path: Path) -> None:
    for _ in range(2):
        log = ProgramLog(tmp_path, BATCH, 1_000)
        log.append(LogLevel.INFO, "AssetProcessor", "Listening Port: 7", 1_001)
        log.close()

    records = [line.split("~~") for line in (tmp_path / "AP_Batch.log").read_text().splitlines()]
    assert [record[4] for record in records] == ["none", "none", "none", "AssetProcessor"] * 2
    assert records[1][5] == records[5][5] == "AzFramework File Logging New Run"
    assert (records[3][1], records[3][2], records[3][5]) == ("1001", "1", "Listening Port: 7")


def test_log_severities_equal_those_of_o3de(tmp_path: Path) -> None:
    log = ProgramLog(tmp_path, LIVE, 0)
    for level in (LogLevel.DEBUG, LogLevel.INFO, LogLevel.WARNING, LogLevel.ERROR):
        log.append(level, "w", "said", 1)
    log.close()

    records = [line.split("~~") for line in (tmp_path / "AP_GUI.log").read_text().splitlines()[3:]]
    assert [(record[2], record[5]) for record in records] == [
        ("0", "said"),
        ("1", "said"),
        ("2", "W: w: said"),
        ("3", "E: w: said"),
    ]


def test_full_log_is_rotated_and_at_most_five_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblog, "ENGINE_LOG_BYTES", 300)
    log = ProgramLog(tmp_path, BATCH, 0)
    for number in range(40):
        log.append(LogLevel.INFO, "AssetProcessor", "x" * 100, 1_000_000 + number * 1000)
    log.close()

    rolled = sorted(path.name for path in tmp_path.iterdir() if path.name != "AP_Batch.log")
    assert len(rolled) == 4
    assert all(name.removeprefix("AP_Batch.").removesuffix(".log").isdigit() for name in rolled)


def test_unwritable_folder_disables_only_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")

    log = ProgramLog(tmp_path / "log", BATCH, 0)
    log.append(LogLevel.INFO, "w", "said", 1)
    log.close()

    assert "cannot be written" in log.trouble

"""The report of job durations."""

import pytest

from aptui.features.o3de.programs.events import Stat, duration, human_line, machine_line, report
from aptui.features.o3de.project_facts import StatsForm

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
def test_times_report_aligns_durations(total_ms: int, text: str) -> None:
    assert duration(total_ms) == text


def test_times_report_has_rows_in_the_format_of_o3de() -> None:
    assert human_line("AssetScanning", Stat(12_345)) == "    Time:       12s345ms, EventName: AssetScanning"
    assert human_line("X", Stat(90, 3)) == "    Time:          090ms, Count:    3, Average:          030ms, EventName: X"
    assert machine_line("a:b", Stat(90, 4)) == "MachineReadableStat:90:4:22:a:b"


def test_times_report_has_sums_by_builder_job_key_and_platform() -> None:
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


def test_times_report_omits_the_header_of_an_empty_list() -> None:
    assert not any("file hashes" in line for line in report({"AssetScanning": Stat(5)}, StatsForm()))

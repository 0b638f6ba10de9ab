"""Texts about a job, and reading the database and log files for these texts."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from msgspec.structs import replace

from aptui.core.notices import LogLevel
from aptui.shared.errors import HostError
from aptui.shared.files.replacing import read_regular
from aptui.store import joblog
from aptui.store.db.schema import VERSION_KEY
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.pane import PANES
from aptui.tui.screens.jobs import job_details
from aptui.tui.screens.jobs import job_texts as texts
from aptui.tui.screens.jobs.event_log import LogColumns, LogSearch, search
from aptui.tui.screens.jobs.job_details import LARGEST_BYTES, DetailsReader, DetailsRequest, JobDetails, draw_records, read_log
from aptui.tui.widgets.log_sources import LogPaneLine, MemoryLines
from tests.store.conftest import job_row, source_row
from tests.tui.database import database
from tests.tui.jobs_harness import NOW_MS, Session
from tests.tui.shell_harness import in_shell, text, until

from .jobs_pane_harness import INFO, details_of, on_jobs, sees

pytestmark = pytest.mark.real


def test_exit_code_of_a_command_does_not_repeat_its_error_message():
    shown = ("no dialogue", "command exited with status 3: no dialogue", "command exited with status 3: other")

    drawn = [line.text for line in draw_records(joblog.JobLogLine(LogLevel.ERROR, "", text, 0) for text in shown)]

    assert drawn == ["no dialogue", "exit status 3", "command exited with status 3: other"]


@on_jobs()
async def test_running_job_shows_facts_of_its_previous_run_as_last_run(app, pilot, pane):
    await details_of(pilot, pane, 1)
    job_details = pane.event_log.job_details
    ended = texts.job_facts(job_details)
    infos = {status: replace(job_details.info, status=status, reason="asked for") for status in ("processing", "pending")}
    now = {status: texts.job_facts(replace(job_details, info=info)) for status, info in infos.items()}

    assert {"Ran because", "Ended", "Took", "Error"} <= dict(ended).keys()
    assert not {"Ran because", "Ended", "Took", "Error"} & (dict(now["processing"]) | dict(now["pending"])).keys()
    assert dict(now["processing"])["Runs because"] == dict(now["pending"])["Waits because"] == "asked for"
    assert dict(now["processing"])["Last run"] == f"{dict(ended)['Ended']}, 1.42 s"


@on_jobs()
async def test_explanation_shows_the_reason_the_inputs_and_earlier_runs(app, pilot, pane):
    await pilot.press("x")
    await until(pilot, lambda: "Inputs of the last" in text(app))
    for part in (
        "its last run failed; it ran because: the source changed", "IDAT chunk is broken", "0000000000000abc",
        "linux/textures/rock_01.dds",
        "textures/sand.png  (source)", "source  a.png  00ff", "new source",
    ):  # fmt: skip
        await sees(pilot, app, part)
    await pilot.press("escape")
    await until(pilot, lambda: app.focused is pane.table)


def test_explanation_of_a_job_aligns_the_names_of_inputs():
    inputs = [("source", "a.wav", "00ff"), ("additional fingerprint", "soxr 1.1", "01ff")]
    lines = ["".join(part.text for part in parts) for parts in texts._inputs(inputs)]

    assert lines[2:] == ["   source                  a.wav  00ff", "   additional fingerprint  soxr 1.1  01ff"]


def test_explanation_counts_the_products_that_are_left_out():
    lines = [
        "".join(part.text for part in parts) for parts in texts._pairs("Products", [f"{at}.dds" for at in range(1_300)], "path")
    ]

    assert [lines[0], lines[199:]] == [" Products      0.dds", [f"{'':15}199.dds", f"{'':15}and 1,100 more"]]


@on_jobs(size=(44, 30))
async def test_explanation_of_a_job_wraps_long_lines(app, pilot):
    await pilot.press("x")
    await until(pilot, lambda: "Inputs of the last" in text(app))
    shown = " ".join(text(app).split())
    assert "its last run failed; it ran because: the source changed" in shown
    assert "IDAT chunk is broken" in shown


def test_only_the_last_of_many_requested_jobs_is_read(tmp_path):
    with database(tmp_path) as store:
        store.put(
            put_source=[source_row(at, f"a/{at:04}.png") for at in range(1, 201)],
            put_job=[job_row(at, at, completed_ms=at, last_log="") for at in range(1, 201)],
        )
        arrived: list[int] = []
        last = threading.Event()

        def deliver(job_details: JobDetails) -> None:
            arrived.append(job_details.info.key)
            if job_details.info.key == 200:
                last.set()

        reader = DetailsReader(store.path, tmp_path, deliver)
        with patch.object(reader, "read", wraps=reader.read) as read:
            for key in range(1, 201):
                reader.request(DetailsRequest(replace(INFO, key=key)))
            assert last.wait(20)
            reader.close()

        assert read.call_count <= 3
        assert arrived[-1] == 200


def test_bug_report_fences_logs_with_backticks_and_removes_escape_sequences():
    line = joblog.JobLogLine(LogLevel.ERROR, "x", "```\x1b[31m", NOW_MS, (("k", "v"),))
    report = texts.bug_report(JobDetails(INFO, records=(line,)))

    assert "````\n" in report
    assert "\x1b" not in report
    assert "* Error: `` boom `x` ``" in report


def test_search_term_made_from_a_message_matches_exactly_this_message():
    columns = LogColumns([joblog.JobLogLine(1, "w", words, NOW_MS) for words in ('a.b "c" (x)', 'aXb "c" (x)')])

    assert search(texts.term("error", 'a.b "c" (x)'), columns).hits == [0]
    assert search("!a.b", columns).hits == []


def test_search_of_a_replaced_log_does_not_change_the_search_of_the_next_log():
    host, shown = Mock(), [joblog.JobLogLine(1, "w", "rock", NOW_MS)] * 3
    host.app.in_ui = lambda then, *values: then(*values)
    log_search = LogSearch(host, lambda: shown, Mock())
    begun = lambda: host.run_worker.call_args.args[0]

    log_search.search("rock")
    first = begun()
    log_search.forget(is_other=True)
    shown = [joblog.JobLogLine(1, "w", "sand", NOW_MS)]
    log_search.search_again()
    begun()()
    first()  # the thread that searches in the first log ends last
    log_search.search("sand")
    begun()()

    assert log_search.parts()[1].text == " 1 hit  "


def test_lines_of_a_filtered_log_are_found_by_level_and_position():
    source = MemoryLines([LogPaneLine("", level, "", level) for level in "IDEWI"])
    source.show_only([0, 2, 4])

    assert [source.line(index).level for index in range(source.line_count())] == ["I", "E", "I"]
    assert (source.index_of(2), source.index_of(3), source.key(2)) == (1, None, 4)
    assert source.of_levels("E") == [1]
    assert (source.next_of(0, "E", 1), source.next_of(2, "E", -1), source.next_of(1, "E", 1)) == (1, 1, None)


def test_large_log_is_read_from_its_end(tmp_path: Path):
    file = tmp_path / "large.log"
    with file.open("wb") as stream:
        stream.truncate(LARGEST_BYTES)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\n~~1~~3~~0~~w~~E: w: the end\n")

    found = read_log(str(file))
    assert "left out" in found[0].text
    assert found[-1].text == "the end"


def test_log_that_grows_while_it_is_read_has_all_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "a.log"
    file.write_text("~~1~~3~~0~~w~~E: w: one\n~~1~~3~~0~~w~~E: w: two\n")

    def read_and_grow(*values: Any, **options: Any) -> bytes:
        data = read_regular(*values, **options)
        with file.open("a") as stream:
            stream.write("~~1~~3~~0~~w~~E: w: three\n")
        return data

    monkeypatch.setattr(job_details, "read_regular", read_and_grow)

    assert [line.text for line in read_log(str(file))] == ["one", "two"]


def test_pipe_in_place_of_a_log_is_reported(tmp_path: Path):
    os.mkfifo(tmp_path / "a.log")

    with pytest.raises(HostError, match="not a regular file"):
        read_log(str(tmp_path / "a.log"))


def test_missing_database_is_reported_in_details(tmp_path: Path):
    reader = DetailsReader(tmp_path / "assetdb.sqlite", tmp_path, lambda _job_details: None)

    assert "there is no asset database" in reader.read(DetailsRequest(INFO)).nothing


def test_unreadable_database_is_reported_in_place_of_rows(tmp_path: Path):
    cache = tmp_path / "cache"
    cache.mkdir()
    with database(cache) as made, closing(sqlite3.connect(made.path)) as connection, connection:
        connection.execute("UPDATE aptui_state SET value = '1' WHERE key = ?", (VERSION_KEY,))

    async def script(app, pilot, _session):
        await until(pilot, lambda: "was written by an older aptui" in " ".join(text(app).split()))
        await until(pilot, lambda: "moves the database aside and rebuilds it" in " ".join(text(app).split()))
        assert "reading the jobs" not in text(app)

    in_shell(tmp_path, script, panes=[PANES[0]], session=Session(cache))


def test_refused_job_shows_its_reason_only_once():
    why = "product 'a.webp' is also made by 'b.png'"
    info = JobRowInfo(1, "a.png", "game", "linux", "images", "images", "failed", 0, 1, 1, 0, why, why, "", 1, 1)

    assert [name for name, value in texts.job_facts(JobDetails(info)) if value == why] == ["Error"]

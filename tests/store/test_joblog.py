"""Job logs in O3DE's record format: written records are read back, and records of other programs are understood."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aptui.core.notices import LogLevel, LogRecord
from aptui.shared.errors import HostError
from aptui.shared.files.replacing import read_regular
from aptui.store import joblog
from aptui.store.joblog import (
    EngineLog,
    JobLogLine,
    analysis_log_name,
    is_tally,
    log_name,
    name_of,
    parse,
    parse_end,
    parse_text,
    remove_superseded,
    spoken,
    write,
)
from tests.store.conftest import BUILDER

NOW = 99
CHARACTERS = st.characters(exclude_categories=["Cs"])
# Each text begins with `x`, so that the parser does not read its beginning as the prefix of a log line.
PLAIN = st.text(CHARACTERS, max_size=20).map(lambda text: f"x{text}").filter(lambda text: "\n" not in text and "\r" not in text)
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20)
WINDOWS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="~"), max_size=79).filter(
    lambda text: not text.strip()[:1].isdecimal()
)
NAME = {"scan_folder": "project", "rel": "Textures/a.png", "platform": "linux", "key": "Image", "builder": BUILDER, "run_key": 1}


def record(text: str, level: int = LogLevel.INFO, window: str = "Builder", **context: str) -> LogRecord:
    return LogRecord(level, window, text, 5, tuple(context.items()))


def line(text: str, level: int = LogLevel.INFO, window: str = "Builder", time_ms: int = 5, **context: str) -> JobLogLine:
    return JobLogLine(level, window, text, time_ms, tuple(context.items()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "JobLogs" / "deep" / "a.log"


def written(path: Path, *records: LogRecord) -> list[JobLogLine]:
    """Write a log with `records`; return its parsed lines except the last line, which counts the warnings and errors."""
    assert write(path, records, 0, 0)
    *lines, counts = parse(path)
    assert counts.window == "aptui"
    return lines


def test_record_without_a_time_gets_the_current_time(path: Path) -> None:
    (found,) = written(path, LogRecord(LogLevel.ERROR, "Builder", "it cannot run", 0))

    assert abs(found.time_ms - path.stat().st_mtime_ns // 1_000_000) < 60_000


def parsed(message: str, severity: int = 1, window: str = "Builder") -> list[JobLogLine]:
    return parse_text(f"~~5~~{severity}~~1f~~{window}~~{message}\n", NOW)


# ------------------------------------------------------------------------------------------------------ written and read back


@given(st.integers(0, 1 << 50), st.sampled_from([LogLevel.WARNING, LogLevel.ERROR]), WINDOWS, LINE)
@example(5, LogLevel.ERROR, "Builder", "starts at 10:45 and ends at 11:00")
@example(5, LogLevel.ERROR, "", "")
@example(5, LogLevel.WARNING, "Builder", "C: [a] = b")
def test_written_warnings_and_errors_are_read_back_unchanged(time_ms: int, level: LogLevel, window: str, text: str) -> None:
    lines = "\n".join(joblog._record_lines(LogRecord(level, window, text, time_ms)))

    assert parse_text(f"{lines}\n", NOW) == [JobLogLine(level, window, text.rstrip(), time_ms)]


@given(st.sampled_from([LogLevel.DEBUG, LogLevel.INFO]), WINDOWS, PLAIN)
def test_written_plain_message_is_read_back_unchanged(level: LogLevel, window: str, text: str) -> None:
    lines = "\n".join(joblog._record_lines(LogRecord(level, window, text, 5)))

    assert parse_text(f"{lines}\n", NOW) == [JobLogLine(level, window, text.rstrip(), 5)]


@given(st.text(CHARACTERS, max_size=120))
@example("x" * 78 + "~y")
@example("a~~b")
@example("~a~")
@example("a\nb\r\nc")
def test_record_with_any_window_name_is_read_back(window: str) -> None:
    (written_line,) = joblog._record_lines(LogRecord(LogLevel.INFO, window, "text", 5))

    (read,) = parse_text(written_line, NOW)

    assert (read.text, read.time_ms) == ("text", 5)
    assert len(read.window) < 80


def test_each_line_of_a_record_becomes_a_log_line_of_the_same_level(path: Path) -> None:
    lines = written(path, record("one\ntwo\r\nthree\rfour", LogLevel.ERROR), record("five\n\nsix"))

    assert [(item.level, item.text) for item in lines] == [
        *((LogLevel.ERROR, text) for text in ("one", "two", "three", "four")),
        *((LogLevel.INFO, text) for text in ("five", "", "six")),
    ]


def test_context_of_a_record_applies_to_each_line_of_the_record(path: Path) -> None:
    lines = written(path, record("one\ntwo", LogLevel.WARNING, file="a.png", line="3"), record("three"))

    context = {"file": "a.png", "line": "3"}
    assert lines == [line("one", LogLevel.WARNING, **context), line("two", LogLevel.WARNING, **context), line("three")]


def test_line_breaks_in_context_become_blanks(path: Path) -> None:
    context = (("[a\nb]", "c\r\nd"), ("", "no key"), ("no value", ""))

    (read,) = written(path, LogRecord(LogLevel.INFO, "Builder", "text", 5, context))

    assert read.context == (("(a b)", "c d"), ("?", "no key"), ("no value", ""))


def test_log_file_has_the_record_format_of_the_reference(path: Path) -> None:
    write(path, [record("no such file", LogLevel.ERROR, file="a.png")], 2, 1)

    physical = path.read_text().splitlines()

    assert [[*item.split("~~")[:3], *item.split("~~")[4:]] for item in physical] == [
        ["", "5", "1", "Builder", "C: [file] = a.png"],
        ["", "5", "3", "Builder", "E: Builder: no such file"],
        ["", "5", "1", "aptui", "S: 1 errors, 2 warnings"],
    ]
    assert all(int(item.split("~~")[3], 16) for item in physical)


def test_last_line_has_the_counts_of_errors_and_warnings(path: Path) -> None:
    write(path, [record("text")], 2, 1)

    assert parse(path)[-1] == line("1 errors, 2 warnings", window="aptui")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 errors, 2 warnings", "1 error, 2 warnings"),
        ("0 errors, 1 warnings", "0 errors, 1 warning"),
        ("1234 errors, 0 warnings", "1,234 errors, 0 warnings"),
        ("1 errors, 2 warnings in all", "1 errors, 2 warnings in all"),
    ],
)
def test_counts_in_the_last_line_are_displayed_in_plain_words(text: str, expected: str) -> None:
    assert spoken(text) == expected
    assert is_tally(text) == (expected != text)


def test_empty_log_creates_no_file(path: Path) -> None:
    assert not write(path, [], 0, 0)
    assert not path.parent.exists()


def test_second_log_replaces_the_first_and_leaves_no_other_file(path: Path) -> None:
    written(path, record("first"))

    assert written(path, record("second")) == [line("second")]
    assert list(path.parent.iterdir()) == [path]


def test_text_that_cannot_be_encoded_is_written_escaped(path: Path) -> None:
    assert written(path, record("a\ud800b")) == [line("a\\ud800b")]


def test_unwritable_job_log_is_a_host_error_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").mkdir()
    (tmp_path / "file").touch()

    for path in (tmp_path / "a.log", tmp_path / "file" / "a.log"):
        with pytest.raises(HostError, match="cannot be written"):
            write(path, [record("text")], 0, 0)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.log", "file"]


def test_missing_log_is_a_host_error(path: Path) -> None:
    with pytest.raises(HostError, match="no longer exists"):
        parse(path)


# ------------------------------------------------------------------------------------------------ records of other programs


@pytest.mark.parametrize(
    "text",
    [
        "printed by a tool",
        "~~5~~1~~1f~~no message",
        "~~soon~~1~~1f~~Builder~~text",
        "~~5~~bad~~1f~~Builder~~text",
        f"~~5~~1~~1f~~{'w' * 80}~~text",
        f"~~5~~1~~{'f' * 80}~~Builder~~text",
        f"~~{'5' * 80}~~1~~1f~~Builder~~text",
        f"~~5~~{'1' * 80}~~1f~~Builder~~text",
    ],
)
def test_line_that_is_not_a_record_is_a_message(text: str) -> None:
    assert parse_text(f"{text} \t\n", NOW) == [line(text, window="Message", time_ms=NOW)]


def test_window_name_of_79_characters_is_accepted_in_a_record() -> None:
    window = "w" * 79

    assert parsed("text", window=window) == [line("text", window=window)]


def test_message_may_contain_the_field_separator() -> None:
    assert parsed("a~~b~~") == [line("a~~b~~")]


@pytest.mark.parametrize(("severity", "level"), [(-1, 0), (0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 3)])
def test_unknown_severity_becomes_the_nearest_known_level(severity: int, level: int) -> None:
    assert parsed("text", severity) == [line("text", level)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_is_accepted(end: str) -> None:
    assert [item.text for item in parse_text(f"one{end}{end}two{end}", NOW)] == ["one", "", "two"]


def test_an_empty_log_has_no_lines() -> None:
    assert parse_text("", NOW) == []


def test_invalid_bytes_are_replaced_and_valid_text_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"~~5~~1~~1f~~Builder~~a\xff\xfeb\n\xc3\n~~5~~1~~1f~~Builder~~\xc3\xa4\n")

    assert [(item.window, item.text) for item in parse(path)] == [
        ("Builder", "a\ufffd\ufffdb"),
        ("Message", "\ufffd"),
        ("Builder", "ä"),
    ]


def test_line_without_a_time_gets_the_modification_time_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("text\n")

    assert parse(path)[0].time_ms == path.stat().st_mtime_ns // 1_000_000


@pytest.mark.parametrize(
    ("message", "level", "text"),
    [
        ("W: Builder: text", LogLevel.WARNING, "text"),
        ("warn: text", LogLevel.WARNING, "text"),
        ("WARNING:text", LogLevel.WARNING, "text"),
        ("E: text", LogLevel.ERROR, "text"),
        ("Err: text", LogLevel.ERROR, "text"),
        ("error: text", LogLevel.ERROR, "text"),
        ("E:  0:00 text", LogLevel.ERROR, "text"),
        ("W: 12:34 text", LogLevel.WARNING, "text"),
        ("E: Builder: at 12:34 text", LogLevel.ERROR, "at 12:34 text"),
        ("E: Builder:", LogLevel.ERROR, ""),
        ("S: 0 errors, 0 warnings", LogLevel.INFO, "0 errors, 0 warnings"),
        ("w: text", LogLevel.INFO, "w: text"),
        ("e: text", LogLevel.INFO, "e: text"),
        ('<p><span severity="err">text</span></p>', LogLevel.ERROR, "<p>text</p>"),
        ('<SPAN severity="Warn" >text</span> more', LogLevel.WARNING, "text more"),
        ('<span severity="err">cut of', LogLevel.ERROR, "cut of"),
        ('E: Builder: <span severity="warn">text</span>', LogLevel.ERROR, "text"),
        ("E:  9:59 text", LogLevel.ERROR, "text"),
        ("E: 120:07 text", LogLevel.ERROR, "text"),
        ("text with an error: inside", LogLevel.INFO, "text with an error: inside"),
        ("C:\\Program Files\\tool.exe", LogLevel.INFO, "C:\\Program Files\\tool.exe"),
        ("C:/tools/tool.exe", LogLevel.INFO, "C:/tools/tool.exe"),
    ],
)
def test_prefix_of_a_message_sets_its_level(message: str, level: LogLevel, text: str) -> None:
    assert parsed(message) == [line(text, level)]


@pytest.mark.parametrize("form", ["C: [key] = value", "C:[key]=value", "ctx: [key] = value", "Context:  [key]  =  value"])
def test_context_line_of_a_job_log_applies_only_to_the_next_line(form: str) -> None:
    assert parse_text(f"{form}\ntext\nmore\n", NOW) == [
        line("text", window="Message", time_ms=NOW, key="value"),
        line("more", window="Message", time_ms=NOW),
    ]


def test_last_context_value_of_a_key_wins_and_invalid_context_is_dropped() -> None:
    text = "C: [b] = 1\nC: [a] = 2\nC: nonsense\nC: [b] = 3\ntext\nC: [c] = nothing follows\n"

    assert parse_text(text, NOW) == [line("text", window="Message", time_ms=NOW, b="3", a="2")]


# ------------------------------------------------------------------------------------------------------------------- names


def test_log_names_of_two_runs_of_a_job_differ_only_in_the_run_key() -> None:
    name, second = log_name(**NAME), log_name(**NAME | {"run_key": 2})

    assert name.startswith("JobLogs/Textures/a.png-")
    assert name.endswith("-1.log")
    assert second == f"{name.removesuffix('-1.log')}-2.log"


@pytest.mark.parametrize(
    "change",
    [
        {"scan_folder": "gem"},
        {"rel": "Textures/b.png"},
        {"rel": "textures/a.png"},
        {"platform": "windows"},
        {"key": "Other"},
        {"builder": b"C" * 16},
        {"run_key": 2},
    ],
)
def test_log_names_differ_for_different_jobs_and_runs(change: dict[str, object]) -> None:
    assert log_name(**NAME | change) != log_name(**NAME)


def test_log_name_distinguishes_where_the_platform_ends_and_the_key_begins() -> None:
    assert log_name(**NAME | {"platform": "ab", "key": "c"}) != log_name(**NAME | {"platform": "a", "key": "bc"})


@pytest.mark.parametrize("letter", ["a", "ä", "\U0010ff80"])
@pytest.mark.parametrize("length", [200, 237, 255])
def test_log_name_of_a_long_path_fits_into_the_file_system_with_any_letters(tmp_path: Path, letter: str, length: int) -> None:
    rel = "/".join((letter * length, letter * length, letter * length))

    for name in (log_name(**NAME | {"rel": rel, "run_key": (1 << 63) - 1}), analysis_log_name(rel, BUILDER)):
        assert max(len(part.encode()) for part in name.split("/")) <= 255
        assert len(name.split("/")) == 4
        assert write(tmp_path / name, [record("text")], 0, 0)


@pytest.mark.parametrize("folder", ["f" * 255, "/".join("d" * 200 + str(number) for number in range(15))])
def test_long_and_deep_folder_names_are_unchanged_in_a_log_name(folder: str) -> None:
    assert log_name(**NAME | {"rel": f"{folder}/a.png"}).startswith(f"JobLogs/{folder}/a.png-")


@pytest.mark.parametrize("where", ["{}", "{}/a.png"])
def test_long_paths_that_differ_only_at_the_end_get_different_log_names(where: str) -> None:
    one, other = (where.format("ä" * 200 + end) for end in "xy")

    assert analysis_log_name(one, BUILDER) != analysis_log_name(other, BUILDER)
    assert log_name(**NAME | {"rel": one}) != log_name(**NAME | {"rel": other})


def test_the_log_of_an_analysis_is_named_after_its_builder() -> None:
    name = analysis_log_name("Textures/a.png", BUILDER)

    assert name == "JobLogs/Textures/a.png-{42424242-4242-4242-4242-424242424242}_createJobs.log"


# --------------------------------------------------------------------------------------------------------- the engine's log


def logs(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_each_start_of_the_engine_log_appends_three_records(tmp_path: Path) -> None:
    for started_ms in (1, 2):
        log = EngineLog(tmp_path / "logs", "AP", started_ms)
        log.append(record("text", LogLevel.WARNING))
        log.close()

    lines = parse(tmp_path / "logs" / "AP.log")

    assert [(item.window, item.time_ms) for item in lines] == [
        *[("none", 1)] * 3,
        ("Builder", 5),
        *[("none", 2)] * 3,
        ("Builder", 5),
    ]
    assert [item.text for item in lines].count("AzFramework File Logging New Run") == 2
    assert lines[3] == line("text", LogLevel.WARNING)


def test_appended_records_can_be_read_immediately(tmp_path: Path) -> None:
    log = EngineLog(tmp_path, "AP", 1)

    log.append(record("one"), record("two"))

    assert [item.text for item in parse(tmp_path / "AP.log")[3:]] == ["one", "two"]
    log.close()


def test_full_engine_log_is_renamed_and_only_the_newest_logs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblog, "ENGINE_LOG_BYTES", 400)
    (tmp_path / "AP.other.log").touch()
    log = EngineLog(tmp_path, "AP", 1)

    for second in range(1, 10):
        log.append(LogRecord(LogLevel.INFO, "Builder", f"{second}" * 350, second * 1000))
    log.close()

    assert logs(tmp_path) == ["AP.6.log", "AP.7.log", "AP.8.log", "AP.9.log", "AP.log", "AP.other.log"]
    assert [item.text[0] for name in logs(tmp_path)[:5] for item in parse(tmp_path / name)] == ["5", "6", "7", "8", "9"]


def test_logs_filled_in_the_same_second_do_not_replace_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblog, "ENGINE_LOG_BYTES", 100)
    log = EngineLog(tmp_path, "AP", 1)

    for number in range(3):
        log.append(LogRecord(LogLevel.INFO, "Builder", f"{number}" * 90, 7_000))
    log.close()

    assert logs(tmp_path) == ["AP.7.log", "AP.8.log", "AP.9.log", "AP.log"]


def test_new_engine_appends_to_a_log_below_the_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    EngineLog(tmp_path, "AP", 1).close()
    monkeypatch.setattr(joblog, "ENGINE_LOG_BYTES", 2 * (tmp_path / "AP.log").stat().st_size)

    EngineLog(tmp_path, "AP", 1).close()
    assert logs(tmp_path) == ["AP.log"]

    EngineLog(tmp_path, "AP", 3_000).close()
    assert logs(tmp_path) == ["AP.3.log", "AP.log"]


def test_record_longer_than_the_size_limit_is_completely_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblog, "ENGINE_LOG_BYTES", 10)
    log = EngineLog(tmp_path, "AP", 1)
    log.append(record("x" * 500))
    log.close()

    assert parse(tmp_path / "AP.log") == [line("x" * 500)]


def test_engine_log_that_cannot_be_written_is_a_host_error(tmp_path: Path) -> None:
    (tmp_path / "AP.log").mkdir()
    (tmp_path / "file").touch()

    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(HostError, match="cannot be written"):
            EngineLog(folder, "AP", 1)


def test_job_log_is_named_after_its_run_and_analysis_log_after_its_builder():
    source = SimpleNamespace(rel="a/b.png", scan_folder=7)
    job = SimpleNamespace(source=source, is_analysis=False, platform="linux", key="k", builder=BUILDER, run_key=3)

    assert name_of(job, {7: "game"}) == log_name("game", "a/b.png", "linux", "k", BUILDER, 3)
    job.is_analysis = True
    assert name_of(job, {7: "game"}) == analysis_log_name("a/b.png", BUILDER)


def test_logs_of_runs_that_are_no_longer_listed_are_deleted(tmp_path: Path) -> None:
    names = {
        key: [log_name("game", "a/b-1.png", "linux", "k", builder, key) for builder in (BUILDER, bytes(16))] for key in range(20)
    }
    remaining = [
        "JobLogs/a/notes.txt",
        "JobLogs/a/b-1.png-no.log",
        analysis_log_name("a/b-1.png", BUILDER),
        *names[19],
        names[0][1],
    ]
    for name in [*remaining, *(name for key in range(19) for name in names[key])]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "JobLogs/link").symlink_to(tmp_path)
    listed = [names[2][0], names[18][0], "JobLogs/gone/x-00000000-5.log", "JobLogs/link/x-00000000-5.log", f"{tmp_path}/x-5.log"]

    remove_superseded(tmp_path, ["JobLogs/a", "JobLogs/gone", "JobLogs/link"], lambda: listed)

    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if path.is_file()}
    assert left == {*remaining, names[2][0], names[18][0], *(names[key][1] for key in range(19))}


def test_rows_of_runs_are_not_read_while_no_job_has_many_logs(tmp_path: Path) -> None:
    names = [log_name("game", "a.png", "linux", "k", BUILDER, key) for key in range(16)]
    for name in names:
        write(tmp_path / name, [record("x")], 0, 0)

    remove_superseded(tmp_path, ["JobLogs"], lambda: pytest.fail("read"))

    assert all((tmp_path / name).exists() for name in names)


@pytest.mark.parametrize("line_count", [1, 7, 39, 40, 41, 100, 1000])
def test_end_of_a_log_equals_the_end_of_the_whole_log(path: Path, line_count: int) -> None:
    write(path, [record(f"{number} " + "x" * 97 * number, asset=f"{number}.png") for number in range(40)], 0, 0)

    assert parse_end(path, line_count) == parse(path)[-line_count:]


def test_end_of_a_log_can_have_more_lines_than_fit_into_memory(path: Path) -> None:
    write(path, [record("only line")], 0, 0)

    assert parse_end(path, 10**12) == parse(path)


def test_beginning_of_a_long_log_is_not_read_for_its_last_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, [record(f"line {number}") for number in range(20_000)], 0, 0)
    read: list[int] = []

    def read_part(file: Path, limit: int = -1, *, is_tail: bool = False) -> bytes:
        read.append(len(data := read_regular(file, limit, is_tail=is_tail)))
        return data

    monkeypatch.setattr(joblog, "read_regular", read_part)

    assert [line.text for line in parse_end(path, 3)] == ["line 19998", "line 19999", "0 errors, 0 warnings"]
    assert sum(read) < 10_000

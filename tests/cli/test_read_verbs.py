"""The verbs `jobs`, `log`, `status`, `builders` and `why` on a processed project; only the fixture starts an engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from unittest.mock import MagicMock, Mock

import pytest
import verb_project
from disk_project import Project
from homes import own_project
from verb_project import CONFIG, Run, runner

from aptui.cli import main, read_access, read_verbs, screen_verb, why_verb
from aptui.shared import printing
from aptui.shared.errors import BusyError

pytestmark = pytest.mark.real

HIDDEN_CONFIG = """
scan_folders: [{name: game, path: assets, order: 0}, {name: shared, path: shared, order: 10}]
builders:
  - name: glue
    patterns: ["*.src"]
    depfile: d
    command: "cat part.inc > {products_dir}/{stem}.out 2> /dev/null; echo out: $(dirname {source})/part.inc > {depfile}"
"""


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("read")
    with pytest.MonkeyPatch.context() as patch:
        project = verb_project.write(folder, patch)
        assert main.main(["batch"]) == 1
    return project


def sources(out: str) -> list[str]:
    return sorted({row["source"] for row in json.loads(out)})


# -------------------------------------------------------------------------------------------------------------------- jobs


def test_jobs_json_has_documented_keys(run: Run, processed: Path) -> None:
    code, out, _ = run("jobs", "--json")

    rows = json.loads(out)
    keys = {
        "source",
        "scan_folder",
        "platform",
        "job_key",
        "builder",
        "status",
        "reason",
        "completed",
        "duration_s",
        "warnings",
        "errors",
        "log",
    }
    assert code == 0
    assert all(keys <= set(row) for row in rows)
    by_name = {(row["source"], row["platform"]): row for row in rows}
    assert by_name["sub/b.up", "linux"]["builder"] == "upper"
    assert by_name["a.txt", "linux"]["scan_folder"] == "game"
    assert by_name["x.words", "server"]["builder"] == "words"
    assert by_name["tables/bad.json", "server"]["status"] == "failed"
    assert Path(by_name["tables/bad.json", "server"]["log"]).is_file()


@pytest.mark.parametrize("verb", ["jobs", "status", "why a.txt"])
def test_read_verb_works_while_the_engine_has_too_many_clients(run: Run, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    def refuse(*_words: object, **_named: object) -> NoReturn:
        raise BusyError("the engine already has 64 connections, its maximum")

    monkeypatch.setattr("aptui.cli.read_access.EngineClient.of", refuse)

    assert run(*verb.split())[0] == 0


def test_jobs_reports_an_engine_of_another_version(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = MagicMock(ask=Mock(side_effect=BusyError("the engine uses protocol 1", hint="restart the engine")))
    client.__enter__.return_value = client
    client.__exit__.return_value = False
    monkeypatch.setattr("aptui.cli.read_access.EngineClient.of", lambda *_words, **_named: client)

    code, _, errors = run("jobs")

    assert (code, "restart the engine" in errors) == (4, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--status", "failed"], ["tables/bad.json"]),
        (["--status", "warnings"], ["tables/twice.json"]),
        (["--status", "warnings", "--status", "failed"], ["tables/bad.json", "tables/twice.json"]),
        (["--filter", "tables/ !bad"], ["tables/twice.json"]),
        (["--filter", r"\.up$"], ["sub/b.up"]),
        (["--filter", "builder:upper"], ["sub/b.up"]),
        (["--filter", "!builder:data !failed !source:^tables/"], ["sub/b.up", "x.words"]),
        (["--filter", "folder:shared"], ["c.txt"]),
        (["--filter", "platform:server key:tables"], ["tables/bad.json", "tables/twice.json"]),
        (["--filter", "reason:nonsense"], []),
        (["--filter", "(a+)+$"], []),
        (["--platform", "server", "--filter", r"\.up$"], []),
    ],
)
def test_jobs_filter_selects_jobs(run: Run, words: list[str], expected: list[str]) -> None:
    code, out, _ = run("jobs", "--json", *words)

    assert code == 0
    assert sources(out) == expected


@pytest.mark.parametrize(
    ("text", "column"), [('"open', 1), ("tables/ b[ad", 10), ("!*.up", 2), ("statsu:failed", 1), ("slower:1.5x", 8)]
)
def test_invalid_filter_is_a_mistake_with_column(run: Run, text: str, column: int) -> None:
    code, _, err = run("jobs", "--filter", text)

    assert code == 3
    assert f"--filter:{column}: " in err
    assert f", at '{text[column - 1 :]}'" in err


def test_jobs_table_is_aligned_and_fits_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = run("jobs")[1].splitlines()
    monkeypatch.setattr(printing, "width", lambda _stream: 100)
    narrow = run("jobs")[1].splitlines()

    assert len({line.index("linux") for line in wide if "linux" in line}) == 1
    assert max(map(len, narrow)) <= 100 < max(map(len, wide))


# --------------------------------------------------------------------------------------------------------------------- log


def test_printed_log_has_no_control_sequences(run: Run) -> None:
    code, out, _ = run("log", "x.words@linux")

    assert code == 0
    assert "hello\n    colour = red\n" in out  # details of a message are indented below the message
    assert "\x1b" not in out


def test_raw_log_has_the_bytes_of_the_log_file(run: Run, processed: Path) -> None:
    (row,) = json.loads(run("jobs", "--json", "--filter", "x.words platform:linux")[1])

    _, out, _ = run("log", f"#{row['job_id']}", "--raw")

    assert out.encode() == Path(row["log"]).read_bytes()
    assert "\x1b" in out


def test_raw_log_is_refused_if_it_is_a_pipe(run: Run, processed: Path) -> None:
    (row,) = json.loads(run("jobs", "--json", "--filter", "x.words platform:linux")[1])
    away = Path(row["log"]).rename(processed / "away.log")
    os.mkfifo(row["log"])
    try:
        assert "cannot be read: it is not a regular file" in run("log", f"#{row['job_id']}", "--raw")[2]
    finally:
        away.replace(row["log"])


def test_a_raw_log_is_refused_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "is_terminal", lambda _stream: True)

    assert run("log", "x.words@linux", "--raw")[0] == 3


def test_log_verb_prints_json_or_the_log_of_a_numbered_run(run: Run) -> None:
    first = json.loads(run("log", "x.words@linux", "--json")[1])
    again = json.loads(run("log", "x.words@linux", "--json", "--run", "1")[1])
    code, _, err = run("log", "x.words@linux", "--run", "7")

    assert first == again
    assert first[0]["context"] == {"colour": "red"}
    assert code == 3
    assert "run 7 of this job does not exist" in err


def test_unreadable_log_folder_is_reported_by_the_logs_verb(run: Run, processed: Path, tmp_path: Path) -> None:
    logs = (processed / "Cache/.aptui/logs").rename(tmp_path / "logs")
    in_place = processed / "Cache/.aptui/logs"
    in_place.write_text("")
    code, _, err = run("logs")
    in_place.unlink()
    logs.rename(in_place)

    assert code == 2
    assert "cannot be read: Not a directory" in err


def test_empty_log_of_a_job_is_reported(run: Run) -> None:
    code, out, err = run("log", "a.txt@linux")

    assert (code, out) == (0, "")
    assert "logged nothing" in err


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda log: log.write_bytes(b""), "is damaged: it is empty; the next run of the job writes a log"),
        (lambda log: log.unlink(), "no longer exists; the next run of the job writes a log"),
        (lambda log: (log.unlink(), log.mkdir()), "cannot be read: it is not a regular file; remove it"),
    ],
    ids=["empty", "deleted", "not a file"],
)
def test_unreadable_log_of_a_job_exits_with_code_2(run: Run, damage: Callable[[Path], object], error: str) -> None:
    (row,) = json.loads(run("jobs", "--json", "--filter", "x.words platform:linux")[1])
    log = Path(row["log"])
    whole = log.read_bytes()
    damage(log)

    code, out, err = run("log", "x.words@linux")
    log.rmdir() if log.is_dir() else None
    log.write_bytes(whole)

    assert (code, out) == (2, "")
    assert f"the log '{log}' {error}" in err


# -------------------------------------------------------------------------------------------------------------- naming jobs


@pytest.mark.parametrize(
    "name",
    [
        "sub/b.up", "SUB/B.UP", "assets/sub/b.up", "./assets/sub/b.up", "sub/b.up@linux", "sub/b.up:upper", "sub/b.up@linux:upper",
        "{0}/assets/sub/b.up@linux",
    ],
)  # fmt: skip
def test_a_job_can_be_named_in_many_ways(run: Run, processed: Path, name: str) -> None:
    assert run("log", name.format(processed))[0] == 0


def test_an_ambiguous_name_lists_the_candidates(run: Run) -> None:
    code, _, err = run("log", "a.txt")

    assert code == 3
    assert err.startswith("aptui: 'a.txt' has 2 jobs; expected the name or number of one of them:\n")
    assert "a.txt@linux:data  #" in err
    assert "a.txt@server:data  #" in err


@pytest.mark.parametrize("name", ["a.txt@mac", "a.txt:nokey", "#99999", "no/such.txt"])
def test_log_of_an_unknown_job_name_exits_with_code_3(run: Run, name: str) -> None:
    assert run("log", name)[0] == 3


# -------------------------------------------------------------------------------------------------------- status, builders


def test_status_counts_jobs_and_products(run: Run) -> None:
    answer = json.loads(run("status", "--json")[1])
    output = run("status")[1]

    assert answer["jobs"]["failed"] == 2
    assert answer["products"] == 9
    assert answer["engine_pid"] in (0, None)
    assert "failed     2" in output


def test_status_reports_an_engine_in_trouble_without_a_lock(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    health = {"roots": [], "holds": [], "disk": "the disk is full", "database": "", "pool": "", "configuration": ""}
    answer = {"pid": 77, "state": "in trouble", "uptime_s": 1.0, "rss_bytes": 1, "health": health, "progress": None}
    monkeypatch.setattr(read_verbs, "engine_process", lambda _config: 0)
    monkeypatch.setattr(read_verbs, "engine_answer", lambda _config: answer)

    output = run("status")[1]

    assert json.loads(run("status", "--json")[1])["engine_pid"] == 77
    assert "process 77, in trouble" in output
    assert "the disk is full" in output


@pytest.mark.parametrize(("state", "is_shown"), [("idle", False), ("working", True)])
def test_status_of_an_idle_engine_has_no_remaining_time(
    run: Run, monkeypatch: pytest.MonkeyPatch, state: str, is_shown: bool
) -> None:
    health = dict.fromkeys(("disk", "database", "pool", "configuration"), "") | {"roots": [], "holds": []}
    progress = {"eta_ms": 3_000, "least_ms": -1}
    answer = {"pid": 77, "state": state, "uptime_s": 1.0, "rss_bytes": 1, "health": health, "progress": progress}
    monkeypatch.setattr(read_verbs, "engine_answer", lambda _config: answer)

    assert ("left       about 3.0 s" in run("status")[1]) == is_shown


def test_running_jobs_of_a_process_that_answers_no_requests_count_as_pending(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_verbs, "engine_process", lambda _config: 77)

    assert "process 77 uses the cache; its running jobs count as pending" in run("status")[1]
    assert "process 77 uses the cache and answers no requests" in run("jobs", "--status", "processing")[2]
    assert not run("jobs")[2]


def test_why_of_a_job_that_runs_now_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = json.loads(run("why", "x.words@linux", "--json")[1])["jobs"]
    monkeypatch.setattr(why_verb, "running_jobs", lambda _config: {job["job_id"]: 40})

    (running,) = json.loads(run("why", "x.words@linux", "--json")[1])["jobs"]

    assert (running["status"], running["said"]) == ("processing", "it runs now, because: new source")


def test_deleted_database_of_a_running_engine_is_reported_as_gone(
    run: Run, processed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = next(processed.rglob("assetdb.sqlite"))
    away = database.rename(database.with_name("away"))
    answer = {"pid": 77, "health": {"disk": ""}}
    try:
        assert "nothing was processed yet" in run("status")[2]
        monkeypatch.setattr(read_access, "engine_answer", lambda _config: answer)
        code, _, output = run("status")
    finally:
        away.rename(database)

    assert code != 0
    assert "was deleted, but the engine (process 77) still uses it; restore the file, or run 'aptui rescan'" in output


def test_builders_are_listed_with_job_counts(run: Run) -> None:
    rows = {row["name"]: row for row in json.loads(run("builders", "--json")[1])}
    output = run("builders")[1]

    assert rows["upper"]["kind"] == "command"
    assert (rows["data"]["jobs"], rows["words"]["analyses"], rows["words"]["jobs"]) == (4, 1, 2)
    assert "words" in output


# --------------------------------------------------------------------------------------------------------------------- why


def test_verb_why_explains_the_last_run_of_a_job(run: Run) -> None:
    answer = json.loads(run("why", "x.words@linux", "--json")[1])
    output = run("why", "x.words@linux")[1]

    (job,) = answer["jobs"]
    assert answer["is"] == "source"
    assert job["said"].startswith("it last ran because: ")
    assert {"target": "a.txt", "type": "source"} in job["depends_on"]
    assert job["products"] == ["linux/out.idx"]
    assert "dependency a.txt" in output


@pytest.mark.parametrize("name", ["Cache/linux/out.idx", "linux/out.idx", "linux/OUT.idx"])
def test_verb_why_prints_the_source_of_a_product(run: Run, name: str) -> None:
    answer = json.loads(run("why", name, "--json")[1])

    assert (answer["path"], answer["is"], answer["said"]) == ("linux/out.idx", "product", "it was made from 'x.words'")
    assert [(job["source"], job["platform"]) for job in answer["jobs"]] == [("x.words", "linux")]


def test_why_reports_that_no_job_made_a_cache_file(run: Run) -> None:
    answer = json.loads(run("why", "Cache/assetdb.sqlite", "--json")[1])

    assert (answer["is"], answer["said"]) == ("outside", "it is in the cache, but no job made it")


def test_verb_why_reports_source_changes_that_are_not_scanned_yet(run: Run, processed: Path) -> None:
    path = processed / "assets" / "x.words"
    text = path.read_text()
    try:
        os.utime(path, (1, 1))
        assert json.loads(run("why", "x.words", "--json")[1])["unprocessed"] == ""
        path.write_text("other")
        assert json.loads(run("why", "x.words", "--json")[1])["unprocessed"].startswith("its file changed since")
        path.unlink()
        assert "its file was deleted since the last scan" in run("why", "x.words")[1]
    finally:
        path.write_text(text)


def test_verb_why_prints_the_error_of_a_failed_job(run: Run) -> None:
    output = run("why", "tables/bad.json@linux")[1]

    assert "failed" in output
    assert "error: " in output
    assert "JobLogs/tables/bad.json-" in output


@pytest.mark.parametrize(
    ("name", "is_what", "message"),
    [
        ("assets/odd.jsn", "unwanted", "no builder has a pattern that matches it"),
        ("plain", "unwanted", "no builder has a pattern that matches it"),
        ("notes.tmp", "ignored", "it is ignored by the rule '*.tmp' ("),
        ("raw/scan.txt", "ignored", "it is ignored by the rule 'raw/' ("),
        ("aptui.yaml", "outside", "it is not in a scan folder"),
        ("assets/sub", "folder", "it is a folder"),
    ],
)
def test_why_names_the_cause_if_a_file_has_no_jobs(run: Run, name: str, is_what: str, message: str) -> None:
    code, out, _ = run("why", name, "--json")

    answer = json.loads(out)
    assert code == 0
    assert (answer["is"], answer["jobs"]) == (is_what, [])
    assert message in answer["said"]


def test_why_names_the_pattern_that_almost_matches(run: Run) -> None:
    assert "similar pattern: 'tables/*.json' of builder 'tables'" in run("why", "odd.jsn")[1]


def test_why_reports_that_a_new_file_is_not_scanned_yet(run: Run, processed: Path) -> None:
    new = processed / "assets" / "new.txt"
    new.touch()
    try:
        answer = json.loads(run("why", "new.txt", "--json")[1])
    finally:
        new.unlink()

    assert answer["is"] == "not yet"


@pytest.mark.parametrize("name", ["{project}/shared/a.txt", "shared/a.txt"])
def test_why_verb_of_an_overridden_file_names_the_overriding_file(run: Run, processed: Path, name: str) -> None:
    answer = json.loads(run("why", name.format(project=processed), "--json")[1])

    assert answer["is"] == "overridden"
    assert f"{processed}/assets/a.txt" in answer["said"]


def test_why_verb_lists_the_sources_that_read_an_overridden_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project(tmp_path / "project", HIDDEN_CONFIG)
    for rel, text in (("assets/part.inc", "counts"), ("shared/a.src", "part.inc")):
        project.write(rel, text)
    monkeypatch.chdir(project.root)
    run = runner(capsys)
    run("batch")
    part = project.path("shared/part.inc")

    (missing,) = [entry for entry in json.loads(run("why", "a.src", "--json")[1])["jobs"][0]["inputs"] if "part" in entry["name"]]
    project.write("shared/part.inc", "hidden")
    run("batch")
    (job,) = json.loads(run("why", "a.src", "--json")[1])["jobs"]
    hidden = json.loads(run("why", str(part), "--json")[1])

    assert (missing["name"], missing["digest"]) == (str(part), "missing")
    assert job["said"] == f"it last ran because: dependency '{part}' (found while processing) is new"
    assert hidden["dependents"] == ["a.src"]


def test_why_verb_of_an_unknown_path_names_the_nearest_path(run: Run) -> None:
    code, _, err = run("why", "sub/c.up")

    assert code == 3
    assert "did you mean 'sub/b.up'" in err


def test_reading_verbs_without_a_database_report_that_nothing_is_processed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb_project.write(tmp_path, monkeypatch)

    assert main.main(["jobs"]) == 3
    assert "nothing was processed yet" in capsys.readouterr().err
    assert main.main(["builders"]) == 0
    assert not os.path.exists("Cache")


def test_why_accepts_the_source_name_that_json_prints(tmp_path, run, monkeypatch):
    root = tmp_path / "odd"
    (root / "assets").mkdir(parents=True)
    (root / "aptui.yaml").write_text('scan_folders: [{name: game, path: assets}]\nbuilders: [{name: data, copy: ["*.txt"]}]\n')
    for name in (b"\xff.txt", b"a\\b.txt"):
        (root / "assets" / os.fsdecode(name)).write_text("x")
    run("batch", "--project", str(root))

    for row in json.loads(run("jobs", "--json", "--project", str(root))[1]):
        assert run("why", row["source"], "--project", str(root))[0] == 0


def test_why_names_the_jobs_that_made_an_intermediate(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path / "chains", "builders: []\nscan_folders: [{name: game, path: assets}]\n")
    project.write("builders/chained.py", (Path(__file__).parents[1] / "stories/chained.py").read_text())
    project.write("assets/Deep.top", "one")
    project.engine_run()
    monkeypatch.chdir(project.root)

    answer = json.loads(run("why", "deep.low", "--json")[1])
    output = run("why", "deep.low")[1]

    assert [(job["source"], job["said"]) for job in answer["made_by"]] == [
        ("deep.mid", "it last ran because: new source"),
        ("Deep.top", "it last ran because: new source"),
    ]
    assert "made by deep.mid, common: chained: it last ran because: new source" in output
    assert json.loads(run("why", "Deep.top", "--json")[1])["made_by"] == []


@pytest.mark.real
def test_configuration_warnings_are_printed_only_by_verbs_that_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "aptui.yaml").write_text(
        "scan_folders: [{name: a, path: assets, order: 0}]\n"
        "builders:\n  - {name: u, patterns: ['*.x'], version: 1, command: 'sqush {source}'}\n  - {name: t, copy: ['*.txt']}\n"
    )
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)

    assert main.main(["batch"]) == 0
    assert "sqush" in capsys.readouterr().err
    for looking in (["status"], ["jobs"], ["why", "a.txt"], ["explain", "a.txt"]):
        assert main.main(looking) == 0
        assert "sqush" not in capsys.readouterr().err, looking


def test_doctor_counts_folders_of_unprocessed_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = own_project(tmp_path, monkeypatch, {"aptui.yaml": CONFIG, "assets/a/b/x.txt": "", "shared/c.txt": ""})

    main.main(["doctor", "-C", str(project)])

    assert "the project has 4" in capsys.readouterr().out


def test_open_verb_accepts_a_project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = own_project(tmp_path, monkeypatch, {"aptui.yaml": "scan_folders: [{name: a, path: assets}]\ncache: Here\n"})
    shown: list[Path] = []
    monkeypatch.setattr(screen_verb, "_run", lambda _config, session, _arguments: shown.append(session.cache_dir) or 0)
    assert main.main(["batch", "-C", str(project)]) == 0

    assert main.main(["open", str(project)]) == 0

    assert shown == [project / "Here"]


@pytest.mark.parametrize(
    "words", ["--history --follow", "--compare 1 2 --raw", "--history --compare 1 2", "--raw --json", "--history --run 1"]
)
def test_log_refuses_options_that_would_have_no_effect(run: Run, words: str) -> None:
    assert run("log", "a.txt@linux", *words.split())[0] == 3

"""`log`: print the log of a job's run, or list the job's runs; only `--follow` needs an engine.

Tests: `tests/cli/test_read_verbs.py`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from aptui.batch.options import load_last_config, refuse_ignored
from aptui.batch.summary import log_path
from aptui.cli.naming import find_job, jobs_named, refuse_unknown_run, unknown
from aptui.cli.read_access import OpenedProject, log_file, open_for_reading
from aptui.config.configuration import Config
from aptui.config.dirs import DATABASE, refuse_other_user
from aptui.core.fingerprint import MISSING, Entry
from aptui.core.model import describe_key
from aptui.core.notices import LogLevel
from aptui.core.orders import Outcome
from aptui.core.paths import os_path
from aptui.core.rows import Made, RunStep
from aptui.link import port
from aptui.link.engine_client import EngineClient, NoAnswer
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.shared.files.replacing import read_regular
from aptui.store import joblog
from aptui.store.joblog import JobLogLine, engine_logs, lines_of
from aptui.store.queries.logs import RunLogSoFar, make_run_log
from aptui.store.queries.reader import JobRow, RunRow, open_reader

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_ENGINE_LINES = 50
"""Number of lines of the engine's log that are printed by default."""
LEVEL_FORMS: dict[int, tuple[str, str]] = {LogLevel.WARNING: ("warning: ", "yellow"), LogLevel.ERROR: ("error: ", "red")}
"""{level: (prefix, colour) of a printed line of a log}; lines of other levels have no prefix."""
_LEVEL_NAMES = {0: "debug", 1: "info", 2: "warning", 3: "error"}


_JOINT_OPTIONS = (("history", "json"), ("compare", "json"), ("raw", "run"), ("run", "json"))
"""Options of `log` that can be used together; every other combination is refused."""


def log_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `log`."""
    parser.add_argument("job", metavar="JOB", help="#<number>, or PATH[@PLATFORM][:JOB KEY]")
    parser.add_argument("--raw", action="store_true", help="print the log file unchanged; the output must go to a file or a pipe")
    parser.add_argument(
        "--run", type=int, metavar="N", help="print the log of run N: 1 is the last run, 2 the run before, and so on"
    )
    parser.add_argument("--history", action="store_true", help="list the runs of the job instead of printing a log")
    parser.add_argument(
        "--compare", type=int, nargs=2, metavar=("N", "N"), help="print the differences between two runs instead of a log"
    )
    parser.add_argument(
        "--follow", action="store_true", help="print each line of a running job as it is logged, until the run ends"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list of lines")


def log(arguments: Namespace) -> int:
    """Show the log of a job's run, or list the job's runs."""
    given = [
        name
        for name in ("history", "compare", "follow", "raw", "run", "json")
        if (value := getattr(arguments, name)) is not None and value is not False
    ]
    if len(given) > 1 and tuple(given) not in _JOINT_OPTIONS:
        raise UserError(f"--{given[0]} cannot be used with --{' or --'.join(given[1:])}", hint="use only one of these options")
    if arguments.history or arguments.compare:
        return compare(arguments) if arguments.compare else history(arguments)
    if arguments.raw and (printing.is_terminal(sys.stdout) or isinstance(sys.stdout, printing.LineOutput)):
        raise UserError(
            "--raw cannot print to a terminal, because a log may contain control sequences",
            hint="redirect the output to a file or a pipe",
        )
    with open_for_reading(arguments) as project:
        row, config = find_job(arguments.job, project.config, project.database), project.config
        file = _log_of_run(row, project, arguments.run)
    if arguments.follow and row.job_id and follow(config, row.job_id, _say):
        return 0
    if file is None:
        return _without_log(row, arguments)
    if arguments.raw:
        return _copy_raw(file)
    lines = joblog.parse(file)
    if not lines:  # the engine ends each log with the numbers of errors and warnings
        raise HostError(f"the log '{file}' is damaged: it is empty", hint="the next run of the job writes a log")
    if arguments.json:
        printing.say_json_list(
            {
                "level": _LEVEL_NAMES.get(line.level, "error"),
                "window": line.window,
                "text": line.text,
                "time": printing.iso(line.time_ms),
                "context": dict(line.context),
            }
            for line in lines
        )
        return 0
    _say(lines)
    return 0


def logs_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `logs`."""
    parser.add_argument("--lines", type=int, metavar="N", help=f"print the last N lines; {_ENGINE_LINES} by default")
    parser.add_argument("--path", action="store_true", help="print only the paths of the log files, the newest first")


def logs(arguments: Namespace) -> int:
    """Show the end of the engine's own log, or list the paths of its logs."""
    line_count = _ENGINE_LINES if arguments.lines is None else arguments.lines
    if line_count < 1:
        raise UserError(f"--lines: {line_count} is not a valid number of lines", hint="give a number above 0")
    if arguments.path:
        refuse_ignored(arguments, ["lines"], "has no effect with '--path'")
    config = load_last_config(arguments)
    refuse_other_user(config.cache_dir)
    files = engine_logs(config.log_dir)
    if not files:
        _refuse_unreadable(config.log_dir)
        raise UserError(f"there is no engine log in '{config.log_dir}'", hint="'aptui start' and 'aptui batch' write one")
    if arguments.path:
        for file in files:
            printing.say(printing.line(str(file)))
        return 0
    _say(joblog.parse_end(files[0], line_count))
    return 0


def _refuse_unreadable(folder: Path) -> None:
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        return
    except OSError as error:
        raise HostError(f"'{folder}' cannot be read: {error.strerror}", hint="check its permissions") from error


def _say(lines: Sequence[JobLogLine]) -> None:
    for line in lines:
        prefix, colour = LEVEL_FORMS.get(line.level, ("", "dim" if line.level == LogLevel.DEBUG else ""))
        printing.say(prefix + printing.line(joblog.spoken(line.text)), colour)
        for key, value in line.context:
            printing.say(f"    {printing.line(key)} = {printing.line(value)}", "dim")
    sys.stdout.flush()


def _log_of_run(row: JobRow, project: OpenedProject, run: int | None) -> Path | None:
    if run is None or (run == 1 and row.job_id == 0):
        return log_file(row, project.config) if row.log else None
    runs = project.database.runs_of(row.job_id)
    refuse_unknown_run(run, len(runs))
    name = runs[run - 1].log_file
    return Path(project.config.log_dir, os_path(name)) if name else None


def _without_log(row: JobRow, arguments: Namespace) -> int:
    if arguments.json:
        printing.say_json_list(())
        return 0
    name = printing.line(f"{row.source}@{row.platform}:{describe_key(row.job_key)}")
    ran = f"{name} logged nothing" + (f", because its result was {printing.line(row.origin)}" if row.origin else "")
    printing.complain(f"aptui: {ran}" if row.completed_ms else f"aptui: {name} has not run yet")
    if row.error:
        printing.say(f"error: {printing.line(row.error)}")
    return 0


def _copy_raw(file: Path) -> int:
    try:
        data = read_regular(file)
    except OSError as error:
        raise UserError(f"the log '{file}' cannot be read: {error.strerror}", hint="check its permissions") from error
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0


# `log --follow`: prints a job's log line by line until its run has ended, then the rest of the log.

_EVERY_S = 0.5
"""Interval of the queries for new lines of a running job, in seconds."""
_LIMIT_S = 10.0
"""Timeout of one query for new lines, in seconds."""
_RECORDED_S, _POLL_S = 10.0, 0.1
"""Timeout (seconds) for the engine to store an ended run in the database. `_POLL_S`: interval (seconds) of the checks."""

Say = Callable[[Sequence[JobLogLine]], None]


class Followed(Struct):
    """The state of `--follow`: the run whose log is printed, and the lines that were printed already.

    `run_key` is 0 if the job is not running.
    """

    run_key: int = 0
    lines: list[JobLogLine] = field(default_factory=list)


def follow(config: Config, job_id: int, say: Say) -> bool:
    """Print a job's log until its run has ended and the whole log is printed; return whether the job was running.

    The database is closed while this function waits, because a long read transaction blocks SQLite's checkpoints.
    """
    followed = Followed()
    try:
        with EngineClient.of(config.cache_dir) as client:
            _print_until_ended(client, job_id, followed, say)
    except NoAnswer:
        raise
    except HostError:
        pass  # without an engine no job runs, so the stored log is complete
    if followed.run_key and (file := _log_of(config, job_id, followed.run_key)):
        print_new(followed, joblog.parse(file), say)
    return followed.run_key != 0


def _print_until_ended(client: EngineClient, job_id: int, followed: Followed, say: Say) -> None:
    known = RunLogSoFar()
    while True:
        log = make_run_log(client.ask(port.ReadRunLog(job_id, known.run_key, known.stamp), _LIMIT_S))
        if not log.run_key or followed.run_key not in (0, log.run_key):
            return
        known, followed.run_key = log, log.run_key
        if log.records is not None:
            print_new(followed, lines_of(log.records), say)
        time.sleep(_EVERY_S)


def print_new(followed: Followed, lines: list[JobLogLine], say: Say) -> None:
    """Print the lines of a run that are not printed yet."""
    before = followed.lines
    count = len(before)
    if lines[:count] != before:
        is_longer = lines[: count - 1] == before[:-1]  # equal except for the last line, which was printed while it was incomplete
        last = next((at for at in reversed(range(len(lines))) if lines[at] == before[-1]), -1)
        count = count - 1 if is_longer else last + 1
    followed.lines = lines
    say(lines[count:])


def _log_of(config: Config, job_id: int, run_key: int) -> Path | None:
    """Wait until an ended run is stored, and return its log file. None = not stored within the time limit, or without a log."""
    end_s = time.monotonic() + _RECORDED_S
    while time.monotonic() < end_s:
        with closing(open_reader(config.cache_dir / DATABASE)) as reader:
            names = [run.log_file for run in reader.runs_of(job_id) if run.run_key == run_key]
        if names:
            return Path(config.log_dir, os_path(names[0])) if names[0] else None
        time.sleep(_POLL_S)
    return None


# `log --history` lists the runs of an asset's jobs with their inputs and products. `log --compare` prints how two runs differ.

_SHORT = 12
"""Number of displayed characters of a digest."""
OUTCOMES = {Outcome.SUCCEEDED: "completed", Outcome.FAILED: "failed", Outcome.CANCELLED: "cancelled"}


class _HistoryRun(Struct, frozen=True):
    """A run with its number (1 is the last run), its inputs and its products."""

    number: int
    row: RunRow
    moment: RunStep

    @property
    def outcome(self) -> str:
        return OUTCOMES.get(Outcome(self.row.outcome), "lost")


def history(arguments: Namespace) -> int:
    """Show the runs of all jobs that belong to a path."""
    with open_for_reading(arguments) as project:
        rows = [row for row in _jobs(arguments.job, project) if row.job_id]
        found = [(row, _runs(row, project)) for row in rows]
        if arguments.json:
            printing.say_json_list(_history_json(row, runs, project) for row, runs in found)
            return 0
        for row, runs in found:
            printing.say(_title(row), "bold")
            _print_runs(row, runs, project)
    if not found:
        printing.complain("aptui: the source has no jobs")
    return 0


def _jobs(word: str, project: OpenedProject) -> list[JobRow]:
    if word.startswith("#"):
        return [find_job(word, project.config, project.database)]
    rows = jobs_named(word, project.config, project.database)
    if rows is None:
        raise unknown(word, project.database)
    return rows


def _runs(row: JobRow, project: OpenedProject) -> list[_HistoryRun]:
    """Return the stored runs, the last run first."""
    database = project.database
    states = zip(database.runs_of(row.job_id), database.moments_of(row.job_id), strict=True)
    return [_HistoryRun(number, run, state) for number, (run, state) in enumerate(states, 1)]


def _title(row: JobRow) -> str:
    return printing.line(f"{row.source}@{row.platform}:{row.job_key}") + f"  #{row.job_id}"


def _print_runs(row: JobRow, runs: list[_HistoryRun], project: OpenedProject) -> None:
    builder = project.builder_of(row.builder)
    cells = (
        [
            str(run.number), printing.when(run.row.completed_ms), run.outcome, printing.duration(run.row.duration_ms / 1000),
            f"{builder} {run.row.version}".strip(), run.row.products.hex()[:_SHORT], run.row.error or run.row.reason,
        ]
        for run in runs
    )  # fmt: skip
    header = ("run", "ended", "outcome", "duration", "builder", "products", "reason")
    printing.table(header, cells, right=(0, 3), spare=(4, 5, 3))


def _history_json(row: JobRow, runs: list[_HistoryRun], project: OpenedProject) -> dict[str, Any]:
    names = {"source": row.source, "platform": row.platform, "job_key": row.job_key, "job_id": row.job_id}
    return {**names, "builder": project.builder_of(row.builder), "runs": [_run_json(run, project) for run in runs]}


def _run_json(run: _HistoryRun, project: OpenedProject) -> dict[str, Any]:
    row = run.row
    return {
        "run": run.number,
        "completed": printing.iso(row.completed_ms),
        "outcome": run.outcome,
        "reason": row.reason,
        "error": row.error,
        "duration_s": row.duration_ms / 1000,
        "builder_version": row.version,
        "fingerprint": f"{row.fingerprint:016x}" if row.fingerprint else "",
        "products_digest": row.products.hex(),
        "products": [{"name": name, "digest": digest, "size": size} for name, digest, size in sorted(run.moment.products)],
        "inputs": [{"kind": kind, "name": name, "digest": digest} for kind, name, digest in run.moment.inputs],
        "log": log_path(row.log_file, project.config.log_dir),
    }


# ----------------------------------------------------------------------------------------------------------------- compare


def compare(arguments: Namespace) -> int:
    """Show the differences between two runs of a job."""
    with open_for_reading(arguments) as project:
        row = find_job(arguments.job, project.config, project.database)
        runs = _runs(row, project)
        for number in arguments.compare:
            refuse_unknown_run(number, len(runs))
        old, new = (runs[number - 1] for number in arguments.compare)
        answer = _difference(old, new)
        if arguments.json:
            both = {"old": _run_json(old, project), "new": _run_json(new, project)}
            printing.say_json({"source": row.source, "platform": row.platform, "job_key": row.job_key, **both, **answer})
            return 0
    printing.say(_title(row), "bold")
    for run in (old, new):
        printing.say(
            f"run {run.number}: {printing.when(run.row.completed_ms)}, {run.outcome}, "
            f"{printing.duration(run.row.duration_ms / 1000)}, "
            f"builder version {printing.line(run.row.version) or 'unknown'}: {printing.line(run.row.reason)}"
        )
    _print_part("inputs", answer["inputs"])
    if old.outcome == new.outcome == "completed":
        _print_part("products", answer["products"])
    else:
        printing.say("a failed run has no products to compare")
    return 0


def _difference(old: _HistoryRun, new: _HistoryRun) -> dict[str, Any]:
    return {
        "duration_s": (new.row.duration_ms - old.row.duration_ms) / 1000,
        "inputs": _changes(_name_inputs(old.moment.inputs), _name_inputs(new.moment.inputs)),
        "products": _changes(_name_products(old.moment.products), _name_products(new.moment.products)),
    }


def _name_inputs(entries: tuple[Entry, ...]) -> dict[str, str]:
    return {f"{kind} {name}": digest for kind, name, digest in entries}


def _name_products(products: tuple[Made, ...]) -> dict[str, str]:
    return {name: f"{digest[:_SHORT]}, {printing.size(size)}" for name, digest, size in products}


def _changes(old: dict[str, str], new: dict[str, str]) -> list[dict[str, str]]:
    found = []
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name, ""), new.get(name, "")
        if was != now:
            found.append(
                {"change": "changed" if was and now else "added" if now else "removed", "name": name, "old": was, "new": now}
            )
    return found


def _print_part(title: str, changes: list[dict[str, str]]) -> None:
    if not changes:
        printing.say(f"{title}: no differences")
        return
    printing.say(f"{title}:")
    for change in changes:
        values = " -> ".join(_value(change[key]) for key in ("old", "new") if change[key])
        printing.say(f"  {change['change']}  {printing.line(change['name'])}  {values}")


def _value(text: str) -> str:
    return text if text == MISSING or "," in text else text[:_SHORT]

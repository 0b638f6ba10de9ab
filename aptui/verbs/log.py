"""`log`: what a job's run said, or which runs there were; an engine is needed for a run that goes on alone.

Tests: `tests/verbs/test_read.py`.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.batch.options import load_last_config
from aptui.config.dirs import refuse_other_user
from aptui.core.model import describe_key
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.logs.logs import engine_logs
from aptui.store.queries.reader import JobRow
from aptui.verbs.naming import find_job
from aptui.verbs.opening import OpenedProject, log_file, open_for_reading, os_path

if TYPE_CHECKING:
    from aptui.store.logs.joblog import JobLogLine

_ENGINE_LINES = 50
_LEVEL_COLOURS = {0: "dim", 2: "yellow", 3: "red"}
_LEVEL_NAMES = {0: "debug", 1: "info", 2: "warning", 3: "error"}


def log_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `log`."""
    parser.add_argument("job", metavar="JOB", help="#<number>, or PATH[@PLATFORM][:JOB KEY]")
    parser.add_argument("--raw", action="store_true", help="the file as it is; only into a pipe or a file")
    parser.add_argument("--run", type=int, metavar="N", help="an earlier run: 1 is the last one, 2 the one before, …")
    parser.add_argument("--history", action="store_true", help="list the runs of all jobs that JOB names, instead of a log")
    parser.add_argument("--compare", type=int, nargs=2, metavar=("N", "N"), help="show what two runs differ in, instead of a log")
    parser.add_argument("--follow", action="store_true", help="of a job that runs: each line as it is logged, until the run ends")
    parser.add_argument("--json", action="store_true", help="print a JSON list of lines")


def log(arguments: Namespace) -> int:
    """Show the log of a job's run, or its runs."""
    if arguments.history or arguments.compare:
        from aptui.verbs import history

        return history.compare(arguments) if arguments.compare else history.history(arguments)
    if arguments.raw and printing.is_terminal(sys.stdout):
        raise UserError("--raw is not for a terminal: a log may hold what commands it", hint="send it into a file or a pipe")
    if arguments.follow and (arguments.raw or arguments.json or arguments.run is not None):
        raise UserError("--follow is of the run that goes on, for people to read", hint="leave out --raw, --json and --run")
    with open_for_reading(arguments) as project:
        row, config = find_job(arguments.job, project.config, project.database), project.config
        file = _log_of_run(row, project, arguments.run)
    if arguments.follow and row.job_id:
        from aptui.verbs import following  # only who follows talks to an engine

        if following.follow(config, row.job_id, _say):
            return 0
    if file is None:
        return _without_log(row, arguments)
    if arguments.raw:
        return _copy_raw(file)
    from aptui.store.logs import joblog

    lines = joblog.parse(file)
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
    parser.add_argument(
        "--lines", type=int, default=_ENGINE_LINES, metavar="N", help=f"the last N lines; {_ENGINE_LINES} by default"
    )
    parser.add_argument("--path", action="store_true", help="print where the logs are instead, the newest first")


def logs(arguments: Namespace) -> int:
    """Show the end of the engine's own log, or where its logs are."""
    config = load_last_config(arguments)
    refuse_other_user(config.cache_dir)
    files = engine_logs(config.log_dir)
    if not files:
        raise UserError(f"there is no log of an engine in '{config.log_dir}'", hint="an engine or 'aptui batch' writes one")
    if arguments.path:
        for file in files:
            printing.say(printing.line(str(file)))
        return 0
    from aptui.store.logs import joblog

    lines = joblog.parse(files[0])
    _say(lines[-max(1, arguments.lines) :])
    return 0


def _say(lines: Sequence[JobLogLine]) -> None:
    from aptui.store.logs import joblog

    for line in lines:
        mark = {2: "warning: ", 3: "error: "}.get(line.level, "")
        printing.say(mark + printing.line(joblog.spoken(line.text)), _LEVEL_COLOURS.get(line.level, ""))
        for key, value in line.context:
            printing.say(f"    {printing.line(key)} = {printing.line(value)}", "dim")
    sys.stdout.flush()


def _log_of_run(row: JobRow, project: OpenedProject, run: int | None) -> Path | None:
    if run is None or (run == 1 and row.job_id == 0):
        return log_file(row, project.config) if row.log else None
    runs = project.database.runs_of(row.job_id)
    if not 1 <= run <= len(runs):
        known = f"there are {len(runs)}" if runs else "none is recorded"
        raise UserError(f"there is no run {run} of this job", hint=f"{known}; 1 is the last one")
    name = runs[run - 1].log_file
    return Path(project.config.log_dir, os_path(name)) if name else None


def _without_log(row: JobRow, arguments: Namespace) -> int:
    if arguments.json:
        printing.say_json_list(())
        return 0
    name = printing.line(f"{row.source}@{row.platform}:{describe_key(row.job_key)}")
    ran = f"{name} logged nothing" + (f"; its result is {printing.line(row.origin)}" if row.origin else "")
    printing.complain(f"aptui: {ran}" if row.completed_ms else f"aptui: {name} did not run yet")
    if row.error:
        printing.say(f"error: {printing.line(row.error)}")
    return 0


def _copy_raw(file: Path) -> int:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"the log '{file}' cannot be read: {error.strerror}", hint="check its permissions") from error
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0

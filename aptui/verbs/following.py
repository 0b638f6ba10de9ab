"""`log --follow`: what a job logs while it runs, line by line, until its run has ended; then the rest of its log.

Tests: `tests/verbs/test_following.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct, field

from aptui.config.dirs import DATABASE
from aptui.config.model import Config
from aptui.link import port
from aptui.link.client import EngineClient, NoAnswer
from aptui.link.run_log import RunLogSoFar, make_run_log
from aptui.shared.errors import HostError
from aptui.store.logs import joblog
from aptui.store.logs.joblog import JobLogLine, lines_of
from aptui.store.queries.reader import open_reader
from aptui.verbs.opening import os_path

_EVERY_S = 0.5
_LIMIT_S = 10.0
_RECORDED_S, _POLL_S = 10.0, 0.1
"""A run has ended before it is in the database: so long we wait for that."""

Say = Callable[[Sequence[JobLogLine]], None]


class Followed(Struct):
    """The run that was followed, 0 = the job does not run; and the lines that were said of it."""

    run_key: int = 0
    lines: list[JobLogLine] = field(default_factory=list)


def follow(config: Config, job_id: int, say: Say) -> bool:
    """Say what a job logs until its run has ended and all of its log was said; return whether it ran at all.

    The database is not open meanwhile: who looks at one moment of it for long keeps others from tidying it.
    """
    followed = Followed()
    try:
        with EngineClient.of(config.cache_dir) as client:
            _take_news(client, job_id, followed, say)
    except NoAnswer:
        raise
    except HostError:
        pass  # nothing runs, then; what is in the database is all there is
    if followed.run_key and (file := _log_of(config, job_id, followed.run_key)):
        print_new(followed, joblog.parse(file), say)
    return followed.run_key != 0


def _take_news(client: EngineClient, job_id: int, followed: Followed, say: Say) -> None:
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
    """Say those of the lines of a run that were not said yet."""
    before = followed.lines
    count = len(before)
    if lines[:count] != before:
        is_longer = lines[: count - 1] == before[:-1]  # the last one had not ended
        last = next((at for at in reversed(range(len(lines))) if lines[at] == before[-1]), -1)
        count = count - 1 if is_longer else last + 1
    followed.lines = lines
    say(lines[count:])


def _log_of(config: Config, job_id: int, run_key: int) -> Path | None:
    """Return the log of a run that has ended, as soon as it is recorded; None = it is not, for its result was of no use."""
    end_s = time.monotonic() + _RECORDED_S
    while time.monotonic() < end_s:
        with closing(open_reader(config.cache_dir / DATABASE)) as reader:
            names = [run.log_file for run in reader.runs_of(job_id) if run.run_key == run_key]
        if names:
            return Path(config.log_dir, os_path(names[0])) if names[0] else None
        time.sleep(_POLL_S)
    return None

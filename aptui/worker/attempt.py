"""One step of a run, however the builder ends it: an exception, a call of `sys.exit`, a process left behind is a `RunEnding`.

Tests: `tests/worker/test_run.py`.
"""

from __future__ import annotations

import os
import resource
import traceback
from collections.abc import Callable

from msgspec import Struct

from aptui.core.notices import LogLevel
from aptui.core.orders import Outcome
from aptui.core.paths import to_text
from aptui.core.results.retry import EXIT, FailureKind
from aptui.sdk import Cancelled, Result
from aptui.worker.answers import AnswerRefused
from aptui.worker.log import RunLog, one_line, valid_text
from aptui.worker.log_answers import ADDRESS_BYTES
from aptui.worker.processes import end_children


class Stale(Exception):
    """A file is not any more what it was when the run began: the source, or those at `paths`."""

    def __init__(self, text: str, *paths: str) -> None:
        super().__init__(text)
        self.paths = tuple(to_text(os.fsencode(path)) for path in paths)


class RunEnding(Struct):
    """How a step of a run ended: `error` is one line for people, `kind` a `FailureKind`, `changed` the paths that made it stale."""

    outcome: Outcome
    error: str = ""
    kind: str = ""
    changed: tuple[str, ...] = ()


def guard(log: RunLog, step: Callable[[], None]) -> RunEnding:
    """Take a step of a run and say how it ended; no child process survives it."""
    pid = os.getpid()
    try:
        ending = _attempt(log, step)
    finally:
        if os.getpid() != pid:
            os._exit(1)  # a forked child of the builder came back into our code: it must not answer for its parent
    left = end_children()
    if left:
        names = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        return failure(log, f"builder left a process behind: {names}; killed")
    return ending


def _attempt(log: RunLog, step: Callable[[], None]) -> RunEnding:
    try:
        step()
    except AnswerRefused as error:
        return failure(log, str(error), kind=error.kind)
    except Stale as error:
        return RunEnding(Outcome.STALE, str(error), changed=error.paths)
    except Cancelled:
        return RunEnding(Outcome.CANCELLED, "cancelled")
    except SystemExit as error:
        return failure(log, f"builder called sys.exit({error.code!r})", kind=FailureKind.ERROR)
    except MemoryError as error:
        text = f": {error}" if str(error) else ""
        return failure(log, f"out of memory{text}{_memory_limit()}", kind=FailureKind.MEMORY)
    except Exception as error:  # noqa: BLE001 - a builder may raise anything, and a failing builder is a result
        text = one_line(str(error))
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return failure(log, text, traceback.format_exc(), kind=FailureKind.ERROR)
    return RunEnding(Outcome.SUCCEEDED)


def failure(log: RunLog, text: str, trace: str = "", *, kind: str = "") -> RunEnding:
    """Log why a run failed, unless it is what its log says first, and return that ending."""
    text = one_line(valid_text(text))
    is_silent = kind.startswith(EXIT) and not log.records()
    if not (log.first_error and text == log.first_error):
        log.write(LogLevel.ERROR, text, (("Traceback", trace),) if trace else ())
    if kind != FailureKind.MEMORY:
        log.note_sandbox(is_silent=is_silent)
    return RunEnding(Outcome.FAILED, text, kind)


def check_result(result: object, error: object, log: RunLog) -> None:
    """Take a builder at its word.

    Raises:
        Cancelled: the builder says that it was cancelled.
        AnswerRefused: it says that it failed.
    """
    if result == Result.SUCCESS:
        return
    if result == Result.CANCELLED:
        raise Cancelled
    raise AnswerRefused(str(error) if error else log.first_error or "builder reported failure")


def _memory_limit() -> str:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if limit == resource.RLIM_INFINITY else f" (limit {(limit - ADDRESS_BYTES) >> 20} MiB)"

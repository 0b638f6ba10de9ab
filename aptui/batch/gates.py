"""What a run is judged by beside its failures: `--fail-on slower:2x` and `flaky`, `--stop-after 20:same-cause`.

Tests: `tests/batch/test_gates.py`.
"""

from __future__ import annotations

import math
from argparse import Action, ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from aptui.shared import printing
from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.core.notices import Notice
    from aptui.core.pipeline.pipeline import PipelineStatus

STOPPED_EARLY = 5
"""The exit code of a run that `--stop-after` ended."""
_LEVELS = ("warning", "error")
_SLOWER = "slower:"
_FLAKY = "flaky"
_SAME_CAUSE = "same-cause"
_QUOTES = "'\"`"


class FailOn(Action):
    """`--fail-on`: a level goes to `fail_on`, a factor to `fail_slower`, a word to `fail_flaky`; all may be given."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, _option: str | None = None) -> None:
        """Take one value."""
        if values in _LEVELS:
            namespace.fail_on = values
        elif values.startswith(_SLOWER):
            namespace.fail_slower = _factor(values.removeprefix(_SLOWER))
        elif values == _FLAKY:
            namespace.fail_flaky = True
        else:
            parser.error(f"argument --fail-on: '{values}' is not warning, error, flaky or slower:FACTOR (such as slower:2x)")


def _factor(text: str) -> float:
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = math.nan
    if not 1.0 < factor < math.inf:
        raise UserError(f"--fail-on: '{_SLOWER}{text}' has no factor above 1", hint="for example --fail-on slower:2x")
    return factor


class StopAfter(Struct, frozen=True):
    """So many failures end a run; `is_same_cause`: so many of one cause."""

    count: int
    is_same_cause: bool = False


def stop_after(text: str) -> StopAfter:
    """Return what `--stop-after` says: a count, and `:same-cause` behind it.

    Raises:
        UserError: it says something else.
    """
    number, colon, rest = text.partition(":")
    is_number = number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 0
    if not is_number or (colon and rest != _SAME_CAUSE):
        raise UserError(f"--stop-after: '{text}' is no count of failures", hint="for example --stop-after 20, or 20:same-cause")
    return StopAfter(int(number), bool(colon))


class FailureCounter:
    """A listener of the engine that has it stopped after so many failures.

    Args:
        limit: how many.
        stop: called once.
    """

    def __init__(self, limit: StopAfter, stop: Callable[[], object]) -> None:
        self.why = ""
        """Why the run was stopped, "" while it was not."""
        self._limit = limit
        self._stop = stop
        self._failed: set[tuple[int, str, str, str]] = set()
        self._causes: Counter[tuple[str, str]] = Counter()

    def __call__(self, notice: Notice) -> None:
        """Take one piece of news."""
        from aptui.core.notices import JobChanged

        if not isinstance(notice, JobChanged) or notice.status != "failed" or self.why:
            return
        job = notice.job_id, notice.source, notice.platform, notice.job_key
        if job in self._failed:
            return
        self._failed.add(job)
        cause = (notice.builder, mask_error(notice.error)) if self._limit.is_same_cause else ("", "")
        self._causes[cause] += 1
        if self._causes[cause] >= self._limit.count:
            failures = printing.count(self._limit.count, "failure")
            self.why = f"{failures} of one cause: {cause[1]}" if self._limit.is_same_cause else failures
            self._stop()


def knows_all_jobs(status: PipelineStatus) -> bool:
    """Whether every source was looked at, read and analysed: then what is pending is all there is."""
    return status.is_scanned and not status.reading and not status.is_analysing


def mask_error(error: str) -> str:
    """Return an error without what differs from job to job: paths, numbers and what is in quotes."""
    words = ("…" if any(char.isdigit() or char in "/\\" or char in _QUOTES for char in word) else word for word in error.split())
    return " ".join(words)

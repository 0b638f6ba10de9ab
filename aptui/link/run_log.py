"""The answer to `port.ReadRunLog`, for clients. It has its own module, so that clients without logs do not import its records.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from aptui.core.notices import LogRecord
from aptui.link.port import Answer
from aptui.shared.forms import prepare_form


class RunLogSoFar(Struct, frozen=True):
    """The log of a run so far. `run_key` 0 = the job does not run; `records` None = nothing came since `stamp`."""

    run_key: int = 0
    stamp: int = -1
    records: tuple[LogRecord, ...] | None = None


def make_run_log(answer: Answer) -> RunLogSoFar:
    """Return the record of an answer.

    Raises:
        msgspec.ValidationError: the answer has another form.
    """
    return msgspec.convert(answer, prepare_form(RunLogSoFar))

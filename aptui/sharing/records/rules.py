"""Which results may be shared: of runs that saw one state of their inputs, ended well, and would end so again.

Tests: `tests/sharing/test_service.py`.
"""

from __future__ import annotations

import re

from aptui.core.notices import LogLevel
from aptui.core.orders import Outcome, RunResult
from aptui.sharing.records.record import Record

_IS_FULL = re.compile(
    r"no space left on device|\bENOSPC\b|\bdisk (?:is )?full\b|not enough (?:disk )?space|quota exceeded|\bEDQUOT\b|write error",
    re.IGNORECASE,
)


def obstacle(result: RunResult, source_digest: bytes) -> str:
    """Say why the result of a run is not shared, "" when it may be.

    `source_digest` is that of the source as the job was planned.
    """
    if result.outcome != Outcome.SUCCEEDED:
        return "the run did not succeed"
    if result.source_digest and result.source_digest != source_digest:
        return "the source changed during the run"
    return ""


def doubt(record: Record) -> str:
    """Say why a record is not shared, "" when it may be: what a full disk may have cut short looks like a success (Bazel #4276)."""
    for line in record.log:
        if line.level >= LogLevel.WARNING and _IS_FULL.search(line.text):
            return f"the log speaks of a full disk: '{line.text[:100]}'"
    return ""

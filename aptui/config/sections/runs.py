"""What is said of runs beside what they make: which failures are tried again (`retry:`).

Tests: `tests/config/sections/test_runs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aptui.core.retry import EXIT, FailureKind, RetryRule

_USUAL = (FailureKind.CRASH.value, FailureKind.TIMEOUT.value)


def retry_rule(given: Mapping[str, Any] | None) -> RetryRule | None:
    """Return what the checked mapping `retry:` means, None when nothing is said."""
    if not given:
        return None
    kinds = given.get("on", _USUAL)
    return RetryRule(given["times"], tuple(f"{EXIT}{kind}" if isinstance(kind, int) else kind for kind in kinds))


def restored_rule(data: Mapping[str, Any] | None) -> RetryRule | None:
    """Return the record that `config.packing` and JSON made `data` of."""
    return RetryRule(data["times"], tuple(data["on"])) if data else None

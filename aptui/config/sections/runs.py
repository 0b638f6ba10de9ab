"""What is said of runs: which failures are tried again (`retry:`), what is scarce (`resources:`), of what quality they are.

Tests: `tests/config/sections/test_runs.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aptui.core.quality import Quality
from aptui.core.retry import EXIT, FailureKind, RetryRule
from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node

_USUAL = (FailureKind.CRASH.value, FailureKind.TIMEOUT.value)


def retry_rule(given: Mapping[str, Any] | None) -> RetryRule | None:
    """Return what the checked mapping `retry:` means, None when nothing is said."""
    if not given:
        return None
    kinds = given.get("on", _USUAL)
    return RetryRule(given["times"], tuple(f"{EXIT}{kind}" if isinstance(kind, int) else kind for kind in kinds))


def restore_rule(data: Mapping[str, Any] | None) -> RetryRule | None:
    """Return the record that `config.packing` and JSON made `data` of."""
    return RetryRule(data["times"], tuple(data["on"])) if data else None


def find_resources(builder: Node) -> tuple[str, ...]:
    """Return the resources that the runs of a builder hold."""
    listed = builder.get("resources")
    return tuple(sorted({item.value for item in (listed.value if listed else ())}))


def has_drafts(builder: Node) -> bool:
    """Whether a builder makes a draft before its final."""
    listed = builder.get("quality")
    return listed is not None and Quality.DRAFT in listed.plain()


def mistakes(resources: Node | None, builders: Iterable[Node]) -> list[UserError]:
    """Return what is wrong with the resources that builders name, each with its place."""
    from aptui.config.yaml import nodes

    known = set(resources.value) if resources else set()
    found = []
    for builder in builders:
        listed = builder.get("resources")
        for item in listed.value if listed else ():
            if item.value not in known:
                hint = nodes.nearest(item.value, known) if known else "say how many there are: resources: {gpu: 1}"
                found.append(UserError(f"there is no resource '{item.value}'", where=item.where, hint=hint))
    return found

"""Remote workers as the engine knows them: which may do which job, what they are sent, and what they ask for.

Tests: `tests/engine/cluster/test_pool.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from aptui.core.orders import ProcessOrder
from aptui.core.project import Builder
from aptui.engine.cluster import messages

FIRST_NUMBER = 1000
"""The scheduler's number among workers; those of the cluster have the next ones, each its own as long as the engine lives."""
MEMORY = "memory"
"""The resource of workers that say how many bytes their jobs may take together."""
_MOST_NAMED = 5


class RemoteWorker(Struct, frozen=True):
    """A worker of the cluster, by the `number` that people call it.

    `builders` are those whose jobs it may get, None = it has not said yet what it is; `jobs` names what it is at. It is there since
    `since_s` (monotonic).
    """

    address: str
    slots: int
    resources: Mapping[str, float]
    memory_bytes: int = 0
    host: str = ""
    pid: int = 0
    builders: frozenset[str] | None = None
    jobs: tuple[str, ...] = ()
    number: int = 0
    since_s: float = 0.0

    def can(self, builder: str, needs: Iterable[str]) -> bool:
        """Whether it may get jobs of a builder that needs these tags."""
        return self.builders is not None and builder in self.builders and all(self.resources.get(tag, 0) >= 1 for tag in needs)


class RemoteTask(Struct, frozen=True):
    """One run on its way: an order and what it takes along; `sent_s`: when it left."""

    order: ProcessOrder
    builder: Builder
    inputs: tuple[messages.TaskInput, ...]
    needs: tuple[str, ...]
    memory_bytes: int
    name: str
    sent_s: float = 0.0


def resources_of(task: RemoteTask, fit: Iterable[RemoteWorker]) -> dict[str, float]:
    """Return what a task asks of a worker: its tags, and room in memory where all that may do it say how much they have."""
    asked = dict.fromkeys(task.needs, 1.0)
    sizes = [worker.memory_bytes for worker in fit]
    if all(sizes):
        asked[MEMORY] = float(min(task.memory_bytes, max(sizes)))
    return asked


def departure(gone: Sequence[RemoteWorker], left: int) -> str:
    """Say that workers have gone."""
    names = ", ".join(sorted(f"{worker.number} on '{worker.host}'" for worker in gone)[:_MOST_NAMED])
    more = f" and {len(gone) - _MOST_NAMED} more" if len(gone) > _MOST_NAMED else ""
    rest = f"{left} are left" if left > 1 else "1 is left" if left else "none is left"
    return f"workers have left the cluster: {names}{more}; {rest}"

"""Which jobs run now: a running engine alone knows, for the database holds what settled.

Tests: `tests/daemon/test_engine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from aptui.link import port
from aptui.link.client import EngineClient
from aptui.shared import printing
from aptui.shared.errors import HostError
from aptui.shared.forms import prepare_form

if TYPE_CHECKING:
    from aptui.config.model import Config
    from aptui.store.queries.reader import JobRow, Reader

STATUS = "processing"
_LIMIT_S = 2.0
_MOST_HOLDERS = 3


def running_ids(config: Config) -> frozenset[int]:
    """Return the ids of the jobs that run, none where no engine answers; ask before the database is opened."""
    try:
        with EngineClient.of(config.cache_dir, timeout_s=1.0) as client:
            answer = client.ask(port.Subscribe(wants_all=False), timeout_s=_LIMIT_S)
            return msgspec.convert(answer["running"], prepare_form(frozenset[int]))
    except HostError:
        return frozenset()


def as_running(rows: Iterator[JobRow], running: frozenset[int]) -> Iterator[JobRow]:
    """Yield rows, those of running jobs as such."""
    return (replace(row, status=STATUS) if row.job_id in running else row for row in rows)


def counts(database: Reader, jobs: dict[str, int], running: frozenset[int]) -> dict[str, int]:
    """Return {status: number of jobs}, with those that run counted as such."""
    found = dict(jobs)
    for row in filter(None, map(database.job, running)):
        found[row.status] -= 1
        found[STATUS] += 1
    return found


def resource_line(use: Mapping[str, Any]) -> str:
    """Return in one line who holds a resource (`core.planning.resources.ResourceUse`), and how many wait for it."""
    holders = use["holders"]
    held = f", held by {', '.join(holders[:_MOST_HOLDERS])}" if holders else ""
    more = f" and {len(holders) - _MOST_HOLDERS} more" if len(holders) > _MOST_HOLDERS else ""
    waits = f"; {printing.count(use['waiting_count'], 'job')} could run but for it" if use["waiting_count"] else ""
    return printing.line(f"{use['name']}  {len(holders)} of {use['limit']}{held}{more}{waits}")

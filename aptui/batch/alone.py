"""Runs jobs outside an engine: builds their orders from the database, and starts workers for them.

The products in the cache and the rows in the database stay unchanged.

Tests: `tests/cli/test_rebuild.py`.
"""

from __future__ import annotations

import itertools
import os
import selectors
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.configuration import Config
from aptui.config.folder import find_spelling
from aptui.core.fingerprint import MISSING
from aptui.core.model import Job
from aptui.core.orders import AnalyseOrder, AnalyseResult, CopyOrder, Outcome, PlannedInput, ProcessOrder, RunResult
from aptui.core.paths import from_text
from aptui.core.project import INTERMEDIATES, Builder, UndeclaredReads
from aptui.core.quality import quality_of
from aptui.core.state.working_set import list_declared
from aptui.shared.errors import HostError, UserError

_POLL_S = 0.1
"""Interval (seconds) between two checks of the workers' time limits."""
_GRACE_S = 1.0
"""Timeout (seconds) for the workers to end; then they are killed."""


class RerunOptions(Struct, frozen=True):
    """Options of a run outside an engine; the fields have the same meaning as in `ProcessOrder`."""

    settings: str = ""
    debug_output: bool = False
    keeps_temp: bool = False


def new_folder(config: Config, prefix: str) -> str:
    """Create a temporary folder for products on the disk of the cache. The engine does not delete files in this folder.

    Raises:
        HostError: the folder cannot be created.
    """
    try:
        config.temp_dir.mkdir(parents=True, exist_ok=True)
        return tempfile.mkdtemp(prefix=prefix, dir=config.temp_dir)
    except OSError as error:
        raise HostError(
            f"no temporary folder can be created in '{config.temp_dir}': {error.strerror}",
            hint="check its permissions and the free space on its disk",
        ) from error


def scan_paths(config: Config) -> list[str]:
    """Return the paths of the scan folders in the order of their precedence, followed by the intermediates folder."""
    return [*(folder.path for folder in config.project.scan_folders), f"{config.cache_dir}/{INTERMEDIATES}"]


def find_inputs(job: Job, roots: Sequence[str]) -> tuple[PlannedInput, ...]:
    """Return those source dependencies of a stored job for which a file exists.

    Each dependency is searched in the scan folders `roots`, in this order; the first match is used.
    """
    found = []
    for kind, name, digest in job.inputs:
        if kind == "dependency" and digest != MISSING:
            places = ((root, path) for root in roots if (path := find_spelling(root, name)))
            found += [PlannedInput(root, path[len(root) + 1 :], digest) for root, path in itertools.islice(places, 1)]
    return tuple(found)


def order_for(
    job: Job, root: str, scan_folders: Sequence[str], builder: Builder, staging: str, run_key: int, manner: RerunOptions
) -> ProcessOrder | CopyOrder:
    """Return an order that runs one stored job.

    Args:
        root: path of the source's scan folder.
        scan_folders: paths of all scan folders, in the order of their precedence.
        staging: path of the folder for the products, which must not exist yet; if the builder only copies, path of the copy.

    Raises:
        UserError: the source cannot be read.
    """
    source = job.source
    path = f"{root}/{source.rel}"
    if builder.is_plain_copy:
        return CopyOrder(run_key, path, staging)
    try:
        facts = os.stat(from_text(path))
    except OSError as error:
        raise UserError(f"the source '{path}' cannot be read: {error.strerror}", hint="check its permissions") from error
    return ProcessOrder(
        run_key=run_key,
        builder=builder.name,
        root=root,
        rel=source.rel,
        source_uuid=source.uuid,
        platform=job.platform,
        job_key=job.key,
        params=job.plan.params if job.plan else "{}",
        additional_fingerprint=job.plan.additional_fingerprint if job.plan else "",
        priority=job.priority,
        is_critical=job.is_critical,
        expected=(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino),
        source_digest=b"",
        staging=staging,
        limit_s=builder.process_limit_s,
        memory_limit_bytes=builder.memory_limit_bytes,
        debug_output=manner.debug_output,
        quality=quality_of(job.inputs).value,
        keeps_temp=manner.keeps_temp,
        settings=manner.settings,
        declared=list_declared(job),
        inputs=find_inputs(job, scan_folders),
    )


class Workers:
    """Worker processes with the same limits as those of an engine; their output is captured, and its size is limited.

    They end at the end of the `with` block.

    Args:
        environment: variables added to the environment of the workers.
        writes: folders outside the cache that the workers may write to.
    """

    def __init__(
        self,
        config: Config,
        builders: Iterable[Builder],
        count: int,
        environment: Mapping[str, str] | None = None,
        writes: Iterable[str] = (),
    ) -> None:
        from aptui.engine.pool.pool import Pool
        from aptui.engine.pool.worker_processes import settings_for

        self._results: list[RunResult | AnalyseResult] = []
        self._selector = selectors.DefaultSelector()
        self._pool = Pool(
            tuple(replace(builder, undeclared_reads=UndeclaredReads.IGNORE) for builder in builders),
            config.project.platforms,
            count,
            self._selector,
            lambda found: self._results.extend(item for item in found if isinstance(item, RunResult | AnalyseResult)),
            settings=settings_for(config, environment, (str(config.temp_dir), *writes)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        with ExitStack() as closing:
            closing.callback(self._selector.close)
            closing.callback(self._pool.close, _GRACE_S)

    def run(self, orders: Iterable[ProcessOrder | CopyOrder]) -> dict[int, RunResult]:
        """Run all these orders and return their results by run key."""
        return {key: result for key, result in self._do(orders).items() if isinstance(result, RunResult)}

    def analyse(self, orders: Iterable[AnalyseOrder]) -> dict[int, AnalyseResult]:
        """Run analyses and return their results by run key."""
        return {key: result for key, result in self._do(orders).items() if isinstance(result, AnalyseResult)}

    def _do(self, orders: Iterable[AnalyseOrder | ProcessOrder | CopyOrder]) -> dict[int, RunResult | AnalyseResult]:
        by_key = {order.run_key: order for order in orders}
        waiting = deque(by_key.values())
        done: dict[int, RunResult | AnalyseResult] = {}
        while len(done) < len(by_key):
            while waiting and self._pool.free > 0:
                self._pool.send([waiting.popleft()])
            for key, mask in self._selector.select(_POLL_S):
                key.data(mask)
            self._pool.poll(time.monotonic())
            for result in self._results:
                if result.outcome == Outcome.RETURNED:
                    waiting.append(by_key[result.run_key])
                else:
                    done[result.run_key] = result
            self._results.clear()
        return done

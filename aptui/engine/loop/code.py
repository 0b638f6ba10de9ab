"""Describes builders again if runs used code or tools that differ from the description.

A run's result is valid only for the code that the run used. If the builders are unchanged, new workers are enough, because they
load the present code; otherwise another pipeline over the same cache plans all jobs again.

Tests: `tests/engine/loop/test_after_runs.py`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from aptui.config import packing
from aptui.config.configuration import Config
from aptui.config.dirs import builders_record
from aptui.core.project import Builder, Project
from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.core.pipeline.pipeline import Pipeline
    from aptui.engine.loop.dispatch import RunDispatcher
    from aptui.engine.loop.scans import Scans

MOST_TIMES = 10
"""Number of times in a row that the code of a builder may change during runs before the jobs of these runs fail."""
ENDLESS = f"it changed {MOST_TIMES} times in a row while its jobs ran"
_WINDING_DOWN_S = 10.0
"""Time limit for running jobs of other builders to end."""


class DescribedEngine(Protocol):
    """The attributes and methods of an engine that `CodeWatch` uses."""

    config: Config
    project: Project
    pipeline: Pipeline
    runs: RunDispatcher
    scans: Scans

    def start_scan(self, *, retries: bool = True) -> None:
        """Begin to scan all scan folders; `retries`: failed jobs are tried again."""
        ...

    def reopen(self, config: Config) -> None:
        """Close the engine, and open it over the same cache with another pipeline."""
        ...


class CodeWatch:
    """Describes builders again if runs used code that differs from the description; used by an engine that ends when it is idle."""

    def __init__(self) -> None:
        self._times = 0
        self._since_s: float | None = None

    def go_on(self, engine: DescribedEngine) -> None:
        """Describe builders again if a run used other code, as soon as running jobs have ended."""
        if not engine.pipeline.jobs.is_outdated:
            return
        now_s = time.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if engine.pipeline.jobs.running and now_s < self._since_s + _WINDING_DOWN_S:
            return
        self._since_s = None
        self._times += 1
        config, builders = describe_again(engine.config)
        if code_of(builders) == code_of(engine.project.builders):
            resume(engine)
        else:
            engine.reopen(config)
        if self._times >= MOST_TIMES:
            engine.pipeline.jobs.code_problem = ENDLESS


def describe_again(config: Config) -> tuple[Config, tuple[Builder, ...]]:
    """Return the configuration with the present state of its tools, and its builders, described by the bytes of their files.

    Raises:
        UserError: a tool is gone, or a builder cannot be loaded.
    """
    from aptui.engine import registry  # imported here, because projects without Python builders do not need the module

    memory = builders_record(config.cache_dir)
    registry.distrust(memory)
    now = packing.refresh_tools(config)
    if now is None:
        raise UserError("a tool of a builder was removed", hint="check 'tools' in aptui.yaml")
    return now, registry.complete(now, memory)


def code_of(builders: tuple[Builder, ...]) -> dict[str, tuple[bytes, tuple[tuple[str, str], ...]]]:
    """Return {builder: (digest of its code, (path, digest) of its files)}."""
    return {builder.name: (builder.code_digest, builder.code_files) for builder in builders}


def note_described(engine: DescribedEngine, error: str) -> None:
    """Note that builders were described again for an engine that stays open.

    The new descriptions equal the old ones or, if `error` is not empty, could not be made.
    """
    if engine.pipeline.jobs.is_outdated:
        resume(engine, error)
    elif engine.pipeline.jobs.code_problem and not error:
        resume(engine)
        if not engine.scans.is_scanning:
            engine.start_scan(retries=True)  # some jobs failed only because of the code


def resume(engine: DescribedEngine, problem: str = "") -> None:
    """Keep the present descriptions of builders, and use new workers.

    Args:
        problem: why builders cannot be described again, "" if they can. With a problem, runs that use other code fail.
    """
    engine.pipeline.jobs.code_problem = problem
    engine.pipeline.jobs.is_outdated = False
    if engine.runs.pool_if_any is not None:
        engine.runs.pool_if_any.reconfigure(engine.project.builders, engine.project.platforms)

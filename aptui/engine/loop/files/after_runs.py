"""The engine's own check of files after runs: whether they are still those that the job was planned with.

Not every open of a builder is observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui.core.orders import AnalyseResult, Outcome, RunResult
from aptui.core.results.run_report import Stamp, UsedFile
from aptui.worker.files import os_path

if TYPE_CHECKING:
    from aptui.core.pipeline.pipeline import Pipeline

Result = AnalyseResult | RunResult
_SPEAKING = frozenset({int(Outcome.SUCCEEDED), int(Outcome.FAILED)})


def complete_results(pipeline: Pipeline, results: Sequence[Result]) -> list[Result]:
    """Return results whose reports hold the present stamps of their jobs' files; a file of many jobs is looked at once."""
    stamps: dict[str, Stamp] = {}
    return [_complete_result(pipeline, result, stamps) for result in results]


def _complete_result(pipeline: Pipeline, result: Result, stamps: dict[str, Stamp]) -> Result:
    job = pipeline.running.get(result.run_key)
    if job is None or job.ties is None or not job.ties.known or result.outcome not in _SPEAKING or _is_fetched(result):
        return result
    from aptui.worker.inputs.reads import stamp_of  # for start-up: most runs report nothing that is asked for

    for path in job.ties.known:
        if path not in stamps:
            stamps[path] = stamp_of(os_path(path))
    now = tuple(UsedFile(path, stamps[path]) for path in job.ties.known)
    return replace(result, used=replace(result.used, files=(*result.used.files, *now)))


def _is_fetched(result: Result) -> bool:
    """Whether nothing was read for it: the result was fetched, for just these bytes."""
    return isinstance(result, RunResult) and bool(result.origin)

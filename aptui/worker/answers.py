"""Checks the answers of a builder's `create_jobs`, and converts them to the core's records.

Tests: `tests/worker/outputs/test_workspace.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from aptui.core.model import DependencyKind, EdgeKind, JobDependency, JobPlan, PathKey, SourceEdge
from aptui.core.orders import AnalyseOrder
from aptui.core.paths import as_text, is_below, key_of, normalize
from aptui.core.project import Builder
from aptui.core.retry import FailureKind
from aptui.sdk import CreateJobsResponse, JobDescriptor, SourceDependency, SourceDependencyKind, canonical_json

_SHOWN = 100
"""Maximum characters of a path or job key in a message."""
_LONGEST_KEY = 4096
"""Maximum characters of a job key; paths have the same limit.

The key is limited, because every row, log line and screen line of a job contains it.
"""


class AnswerRefused(Exception):
    """The call of a builder failed, or its answer, its products or its declarations are refused.

    The text is the reason in one line; `kind` is the kind of failure (`core.retry`).
    """

    def __init__(self, text: str, kind: str = FailureKind.ERROR) -> None:
        super().__init__(text)
        self.kind = kind


def plans_and_edges(
    response: CreateJobsResponse, order: AnalyseOrder, builder: Builder
) -> tuple[tuple[JobPlan, ...], tuple[SourceEdge, ...]]:
    """Return the jobs and the source dependencies of a builder's answer.

    If two jobs have the same key and platform, the later job is used. The engine drops jobs for platforms that it does not make.

    Raises:
        AnswerRefused: an additional fingerprint without an analysis fingerprint, or values of wrong types.
    """
    plans: dict[tuple[str, str], JobPlan] = {}
    try:
        for job in response.jobs:
            if job.additional_fingerprint and not builder.analysis_fingerprint:
                raise AnswerRefused(
                    f"builder '{builder.name}' gives a job an additional fingerprint, but its class has no analysis_fingerprint; "
                    "add an analysis_fingerprint that changes with it, so that the engine repeats the analysis"
                )
            plans.pop((job.job_key, job.platform), None)
            plans[job.job_key, job.platform] = _plan(job, order.root)
        edges = edges_of(response.source_dependencies)
    except (TypeError, AttributeError, ValueError) as error:
        raise AnswerRefused(f"create_jobs returned a value of the wrong type: {error}") from error
    return tuple(plans.values()), edges


def _plan(job: JobDescriptor, root: str) -> JobPlan:
    if not isinstance(job.job_key, str) or not job.job_key:
        raise TypeError("job_key must be text")
    if len(job.job_key) > _LONGEST_KEY:
        begin = f"{job.job_key[:_SHOWN]!r}…"
        raise ValueError(f"the job key {begin} has {len(job.job_key):,} characters; the limit is {_LONGEST_KEY:,}")
    if not isinstance(job.platform, str):
        raise TypeError("the platform of a job must be text, such as request.platforms[0].id")
    dependencies = [
        JobDependency(
            _source_key(edge.source, root) if edge.uuid is None else PathKey(edge.uuid.hex),
            _text_of(edge.job_key),
            _text_of(edge.platform),
            DependencyKind(edge.kind),
            tuple(sorted({int(sub_id) for sub_id in edge.sub_ids})),
            is_uuid=edge.uuid is not None,
        )
        for edge in job.job_dependencies
        if edge.source or edge.uuid is not None
    ]
    return JobPlan(
        key=as_text(job.job_key),
        platform=job.platform,
        priority=int(job.priority),
        is_critical=bool(job.is_critical),
        additional_fingerprint=as_text(str(job.additional_fingerprint)),
        params=as_text(canonical_json({str(key): _param(value) for key, value in job.params.items()})),
        job_dependencies=tuple(sorted(set(dependencies))),
    )


def edges_of(dependencies: Iterable[SourceDependency]) -> tuple[SourceEdge, ...]:
    """Return one dependency edge for each distinct source dependency."""
    return tuple(dict.fromkeys(_edges(dependencies)))


def _edges(dependencies: Iterable[SourceDependency]) -> Iterable[SourceEdge]:
    for dependency in dependencies:
        if dependency.uuid is not None:
            yield SourceEdge(EdgeKind.UUID, dependency.uuid.hex)
        elif dependency.path:
            kind = EdgeKind.WILDCARD if dependency.kind == SourceDependencyKind.WILDCARD else EdgeKind.PATH
            yield SourceEdge(kind, _path(dependency.path))


def _source_key(source: str, root: str) -> PathKey:
    path = _path(source)
    return key_of(path[len(root) + 1 :] if is_below(path, root) else path)


def _path(path: str) -> str:
    """Return a path that a builder named. A path with a NUL (from a damaged file) is refused, because no system call accepts it."""
    if "\0" in path:
        raise ValueError(f"the path {path[:_SHOWN]!r} contains a NUL character")
    return as_text(normalize(path))


def _param(value: Any) -> Any:
    # Keep a value that JSON supports, so that `job_params` returns the value that the builder gave.
    return value if isinstance(value, str | int | float | bool | list | dict | tuple) or value is None else str(value)


def _text_of(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError("job_key and platform of a job dependency must be text")
    return as_text(text)


MOST_CHARS = 16 << 20
"""Maximum characters of an answer file that a command writes; 100,000 dependencies fit into it."""


def read_answer_text(path: str) -> str:
    """Return the text of an answer file that a command wrote.

    Raises:
        AnswerRefused: it is too long or is not text. FileNotFoundError: the file does not exist.
    """
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read(MOST_CHARS + 1)
    if len(text) > MOST_CHARS or "\0" in text:
        what = "is not text, because it contains a NUL character" if "\0" in text else f"has more than {MOST_CHARS:,} characters"
        raise AnswerRefused(f"the file {os.path.basename(path)!r} that the command wrote {what}")
    return text

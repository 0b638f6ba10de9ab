"""Check a built-in builder's parameters against its `params_schema`, and answer `create_jobs` for builders of one job per platform.

The configuration is checked against the same schema before anything runs (`engine.registry_params`); what comes here is wrong only
in what a schema cannot say.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from aptui.sdk import CreateJobsRequest, CreateJobsResponse, JobDescriptor, ParamError, Result, param_mistakes

__all__ = [
    "Contradiction",
    "ParamError",
    "Schema",
    "check_params",
    "describe_damage",
    "library_versions",
    "no_contradiction",
    "one_job_per_platform",
    "one_line",
]

Schema = Mapping[str, Any]
_LONGEST_SHOWN = 60
Contradiction = Callable[[Mapping[str, Any]], str]
"""Says in one line which given parameters contradict each other, or ""."""


def no_contradiction(_params: Mapping[str, Any]) -> str:
    """Find nothing: for builders whose parameters are independent."""
    return ""


def check_params(schema: Schema, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return `params` with the defaults of `schema` for what is missing.

    Raises:
        ParamError: naming the first wrong parameter and the nearest known one.
    """
    for mistake in param_mistakes(schema, params):
        raise mistake
    return {name: params.get(name, rule.get("default")) for name, rule in schema["properties"].items()}


def one_job_per_platform(
    request: CreateJobsRequest,
    kind: str,
    schema: Schema,
    additional_fingerprint: str = "",
    contradiction: Contradiction = no_contradiction,
) -> CreateJobsResponse:
    """Return one job for each platform of `request`, keyed by the builder's configured name; or why its parameters are wrong."""
    named = f"builder {_show_value(request.builder_name)}" + (f" ({kind})" if kind != request.builder_name else "")
    jobs = []
    for platform in request.platforms:
        if reason := _wrong(schema, request.params_for(platform.id), contradiction):
            where = f", platform {_show_value(platform.id)}" if request.platform_params.get(platform.id) else ""
            return CreateJobsResponse(error=f"{named}{where}: {reason}")
        jobs.append(JobDescriptor(request.builder_name, platform.id, additional_fingerprint=additional_fingerprint))
    return CreateJobsResponse(Result.SUCCESS, jobs)


def library_versions(*names: str) -> str:
    """Return `name version, …` of installed distributions, without importing them: their upgrade may change products."""
    return ", ".join(f"{name} {_version(name)}" for name in names)


def one_line(error: BaseException | str) -> str:
    """Return the text of a library's error in one line, never empty."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def describe_damage(error: BaseException) -> str:
    """Return in plain words why a library could not read some bytes; its own words help nobody who made the file."""
    if isinstance(error, struct.error | IndexError | EOFError | AssertionError) or "not enough" in str(error):
        return "it ends too early, or refers to what is not in it"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if isinstance(error, UnicodeError):
        return "its text is in no known encoding"
    return "what it says of itself does not fit together"


def _wrong(schema: Schema, params: Mapping[str, Any], contradiction: Contradiction) -> str:
    try:
        check_params(schema, params)
    except ParamError as error:
        return str(error)
    return contradiction(params)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def _show_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"

"""Check a built-in builder's parameters against its `params_schema`, and answer `create_jobs` for builders of one job per platform.

Only the few words of JSON Schema that these builders use are understood: `jsonschema` itself takes 100 ms to import, and its
messages do not name the nearest known key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from aptui.sdk import CreateJobsRequest, CreateJobsResponse, JobDescriptor, Result

Schema = Mapping[str, Any]
Contradiction = Callable[[Mapping[str, Any]], str]
"""Says in one line which given parameters contradict each other, or ""."""

_LONGEST_SHOWN = 60


class ParamError(ValueError):
    """A parameter is unknown, or its value is; the text is one line."""


def no_contradiction(_params: Mapping[str, Any]) -> str:
    """Find nothing: for builders whose parameters are independent."""
    return ""


def checked(schema: Schema, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return `params` with the defaults of `schema` for what is missing.

    Raises:
        ParamError: naming the first wrong parameter and the nearest known one.
    """
    known: Mapping[str, Schema] = schema["properties"]
    for name, value in params.items():
        if name not in known:
            raise ParamError(f"unknown parameter {_shown(name)}, {_nearest(str(name), [*known])}")
        if not _fits(known[name], value):
            raise ParamError(
                f"parameter '{name}' must be {_expected(known[name])}, not {_shown(value)}{_guess(known[name], value)}"
            )
    return {name: params.get(name, rule.get("default")) for name, rule in known.items()}


def one_job_per_platform(
    request: CreateJobsRequest,
    kind: str,
    schema: Schema,
    additional_fingerprint: str = "",
    contradiction: Contradiction = no_contradiction,
) -> CreateJobsResponse:
    """Return one job for each platform of `request`, keyed by the builder's configured name, or the reason why its parameters are wrong."""
    named = f"builder {_shown(request.builder_name)}" + (f" ({kind})" if kind != request.builder_name else "")
    jobs = []
    for platform in request.platforms:
        if reason := _wrong(schema, request.params_for(platform.id), contradiction):
            where = f", platform {_shown(platform.id)}" if request.platform_params.get(platform.id) else ""
            return CreateJobsResponse(error=f"{named}{where}: {reason}")
        jobs.append(JobDescriptor(request.builder_name, platform.id, additional_fingerprint=additional_fingerprint))
    return CreateJobsResponse(Result.SUCCESS, jobs)


def library_versions(*names: str) -> str:
    """Return `name version, …` of installed distributions, without importing them: their upgrade may change products."""
    return ", ".join(f"{name} {_version(name)}" for name in names)


def one_line(error: BaseException | str) -> str:
    """Return the text of a library's error in one line, never empty."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _wrong(schema: Schema, params: Mapping[str, Any], contradiction: Contradiction) -> str:
    try:
        checked(schema, params)
    except ParamError as error:
        return str(error)
    return contradiction(params)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def _fits(rule: Schema, value: object) -> bool:
    if "anyOf" in rule:
        return any(_fits(each, value) for each in rule["anyOf"])
    if "enum" in rule:
        return any(value == each and type(value) is type(each) for each in rule["enum"])
    match rule["type"]:
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "string":
            return isinstance(value, str) and re.fullmatch(rule.get("pattern", ".*"), value, re.DOTALL) is not None
        case "array":
            return isinstance(value, list) and all(_fits(rule["items"], each) for each in value)
        case "object":
            return isinstance(value, Mapping) and all(_fits(rule["additionalProperties"], each) for each in value.values())
        case "integer":
            is_number = isinstance(value, int) and not isinstance(value, bool)
        case _:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and rule["minimum"] <= value <= rule["maximum"]


def _expected(rule: Schema) -> str:
    if "anyOf" in rule:
        return " or ".join(_expected(each) for each in rule["anyOf"])
    if "enum" in rule:
        return ("one of " if len(rule["enum"]) > 1 else "") + ", ".join(map(str, rule["enum"]))
    match rule["type"]:
        case "boolean":
            return "true or false"
        case "null":
            return "null"
        case "string":
            return str(rule.get("title", "text"))
        case "array":
            return f"a list, each {_expected(rule['items'])}"
        case "object":
            return f"a mapping, each value {_expected(rule['additionalProperties'])}"
        case kind:
            return f"{'an integer' if kind == 'integer' else 'a number'} from {rule['minimum']} to {rule['maximum']}"


def _guess(rule: Schema, value: object) -> str:
    """Return `, did you mean 'webp'?` when a known value is near."""
    words = [str(word) for each in rule.get("anyOf", [rule]) for word in each.get("enum", [])]
    near = difflib.get_close_matches(str(value).lower(), words, n=1)
    return f", did you mean '{near[0]}'?" if near else ""


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"

"""Overrides of `BuilderConfig.ini` for builders of scripts and their jobs; `project.builder_config` reads that file.

Tests: `tests/features/o3de/scripts/test_azlmbr_project.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from aptui import sdk
from aptui.core.patterns import wildcard_regex
from aptui.core.project import Builder, Pattern, PatternKind
from aptui.features.o3de.scripts.azlmbr.math import crc_of

if TYPE_CHECKING:
    from aptui.features.o3de.facts import JobOverride

DELETES_ON_FAILURE = 2
"""Bit of a builder's flags, `BF_DeleteLastKnownGoodProductOnFailure` in O3DE."""
_ONE_END = re.compile(r"\*[^*?/]+")
"""A wildcard pattern that says only how a name ends: it means the same on relative paths, where it is looked up faster."""


def to_text(builders: Sequence[JobOverride], jobs: Sequence[JobOverride]) -> str:
    """Return overrides in the form in which scripts' surroundings hold them, "" for none."""
    if not builders and not jobs:
        return ""
    return json.dumps(
        {"builders": [to_builtins(each) for each in builders], "jobs": [to_builtins(each) for each in jobs]}, sort_keys=True
    )


def override_builder(builder: Builder, overrides: str) -> Builder:
    """Return a builder as the file changes it.

    What is said about jobs is part of the analysis fingerprint: it is laid over jobs when their sources are analysed.
    """
    known = _index_overrides(overrides)
    if known["jobs"]:
        text = json.dumps(known["jobs"], sort_keys=True)
        builder = replace(builder, analysis_fingerprint=f"{builder.analysis_fingerprint} {crc_of(text):08x}".strip())
    found = known["builders"].get(builder.name.lower())
    if found is None:
        return builder
    flags = found["flags"]
    return replace(
        builder,
        version=found["version"] or builder.version,
        analysis_fingerprint=found["fingerprint"] or builder.analysis_fingerprint,
        patterns=tuple(map(_pattern, found["patterns"])) or builder.patterns,
        deletes_products_on_failure=builder.deletes_products_on_failure if flags is None else bool(flags & DELETES_ON_FAILURE),
    )


def override_job(job: sdk.JobDescriptor, overrides: str) -> sdk.JobDescriptor:
    """Return a job as the file changes it."""
    found = _index_overrides(overrides)["jobs"].get(job.job_key.lower())
    if found is None:
        return job
    pairs = (text.partition("=") for text in found["params"].split(",") if "=" in text)
    return replace(
        job,
        priority=job.priority if found["priority"] is None else found["priority"],
        is_critical=job.is_critical if found["is_critical"] is None else found["is_critical"],
        additional_fingerprint=f"{job.additional_fingerprint} {found['fingerprint']}".strip(),
        params={**job.params, **{param_key(name.strip()): value.strip() for name, _, value in pairs}},
    )


def param_key(name: object) -> str:
    """Return how a parameter is called in our jobs: by its checksum."""
    return f"0x{crc_of(name):08x}"


def pattern_of(text: str, *, is_regex: bool) -> Pattern:
    """Return a pattern of O3DE's, which is for absolute paths.

    Raises:
        re.error: it is none.
    """
    if is_regex:
        return Pattern(PatternKind.REGEX, text, re.compile(text).pattern, is_absolute=True)
    return Pattern(PatternKind.GLOB, text, wildcard_regex(text), is_absolute=_ONE_END.fullmatch(text) is None)


def _pattern(text: str) -> Pattern:
    pattern, equals, kind = text.rpartition("=")
    return pattern_of(pattern if equals else text, is_regex=bool(equals) and kind.strip().lower() == "regex")


@lru_cache(maxsize=4)
def _index_overrides(overrides: str) -> dict[str, dict[str, Any]]:
    """Return {"builders" or "jobs": {name in lower case: what is said}}."""
    overrides_by_kind: dict[str, list[dict[str, Any]]] = json.loads(overrides) if overrides else {"builders": [], "jobs": []}
    return {kind: {each["name"].lower(): each for each in entries} for kind, entries in overrides_by_kind.items()}

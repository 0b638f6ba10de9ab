"""Records of the configuration as plain JSON, and digests over that.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aptui import __version__
from aptui.config.dirs import data_dir, host_platform
from aptui.core.project import Project

FORM = 17
"""Version of the compiled form; increase it when the form changes."""


def digest_of(value: object) -> str:
    """Return the SHA-256 of plain data, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def canonical(value: object) -> str:
    """Return `value` as canonical JSON: equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def pack(value: Any) -> Any:
    """Return a record as plain JSON data."""
    if isinstance(value, Struct):
        return {name: pack(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [pack(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Path) else value


def frozen(value: Any) -> Any:
    """Return plain JSON data with its lists as tuples."""
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


# One digest over everything in a configuration that decides about products: with equal signatures no job needs a check.


def environment(project_dir: Path) -> list[object]:
    """Return the inputs of a compiled form besides its layers."""
    return [FORM, __version__, sys.version_info[:3], str(project_dir), str(data_dir()), host_platform(), os.path.expanduser("~")]


# ── signatures ────────────────────────────────────────────────────────────────────────────────────────────────────────

_UNDECISIVE = (
    "analyse_limit_s", "process_limit_s", "memory_limit_bytes", "undeclared_reads", "traces_reads", "code_files", "params_schema",
    "retry", "resources",
)  # fmt: skip
"""Fields of a builder that do not affect products."""
_ONLY_IF_TRUE = ("reads_debug_output", "takes_pointers", "has_drafts", "fault", "rules", "exclude", "steps")
"""Fields of a builder that are omitted if unset, so that adding a field does not change existing signatures."""


def sign_project(project: Project, project_dir: Path | None = None) -> Project:
    """Return `project` with its `signature` (Python code is the engine's to add) and, given its folder, `scan_signature`."""
    builders = [{key: value for key, value in pack(rule).items() if key not in _UNDECISIVE} for rule in project.builders]
    for rule in builders:
        for key in _ONLY_IF_TRUE:
            if not rule[key]:
                del rule[key]
        rule["patterns"] = [(pattern["kind"], pattern["text"], *([True] * pattern["is_absolute"])) for pattern in rule["patterns"]]
    folders = [(folder.name, folder.order, folder.recursive, folder.platforms) for folder in project.scan_folders]
    companions = [(rule.source.text, rule.suffix, rule.replaces, rule.file) for rule in project.companions]
    is_bound = any(pattern.is_absolute for rule in project.builders for pattern in rule.patterns)
    roots = [folder.path for folder in project.scan_folders] if is_bound else []
    blocking = [pack(project.checks)] if project.checks else []
    signature = digest_of(
        [
            pack(project.platforms),
            folders,
            builders,
            companions,
            roots,
            project.metadata_types,
            project.unlisted_builder.variables,
            *blocking,
        ]
    )
    if project_dir is None:
        return replace(project, signature=signature)
    paths = [os.path.relpath(folder.path, project_dir) for folder in project.scan_folders]
    scanned = [folders, paths, project.ignore_regex, project.metadata_types, *filter(None, [project.linked_folders])]
    return replace(project, signature=signature, scan_signature=digest_of(scanned))

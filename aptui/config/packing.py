"""Converts records of the configuration to plain JSON, computes digests, and stores the compiled form for the next start.

The digests are those of records, of environment variables, and of the programs of commands.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aptui import __version__
from aptui.config import configuration, settings
from aptui.config.configuration import Config, ToolSettings
from aptui.config.dirs import data_dir, host_platform, xdg
from aptui.core import asset_checks, project, retry
from aptui.core.project import Builder, Project
from aptui.shared.connections import peers
from aptui.shared.errors import KnownError
from aptui.shared.files import clocks
from aptui.shared.files.replacing import replace_bytes

FORM = 19
"""Version of the compiled form; increase it when the values of unchanged fields are computed in another way.

A change of the records needs no increase, because `_seal` covers their fields and types.
"""


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


# The signature of a project is a digest of all settings that affect products. If the signature is unchanged, no job is checked.


def environment(project_dir: Path) -> list[object]:
    """Return the inputs of a compiled configuration other than its layers."""
    return [FORM, __version__, sys.version_info[:3], str(project_dir), str(data_dir()), host_platform(), os.path.expanduser("~")]


# ── signatures ────────────────────────────────────────────────────────────────────────────────────────────────────────

_UNDECISIVE = (
    "analyse_limit_s", "process_limit_s", "memory_limit_bytes", "undeclared_reads", "traces_reads", "code_files", "params_schema",
    "retry", "resources",
)  # fmt: skip
"""Fields of a builder that do not affect products, so they are not part of the signature."""
_ONLY_IF_TRUE = ("reads_debug_output", "takes_pointers", "has_drafts", "fault", "rules", "exclude", "steps")
"""Fields of a builder that are omitted if unset, so that adding a field does not change existing signatures."""


def sign_project(project: Project, project_dir: Path | None = None) -> Project:
    """Return `project` with its `signature`, and with its `scan_signature` if the folder is given.

    The engine adds digests of Python code to the signature.
    """
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


# Tools are programs that commands need. A tool is identified by the digest of its bytes.


def identify(
    builder: str,
    name: str,
    where: str,
    project_dir: Path,
    known: ToolSettings | None = None,
    *,
    is_file: bool = False,
    version: str = "",
) -> ToolSettings:
    """Find a program (below the project if `name` has a slash, else in PATH), and compute its digest.

    If the earlier result `known` is up to date, return it. If the program is missing, path and digest of the result are empty.

    With `is_file`, `name` may be any readable file, executable or not.
    """
    missing = ToolSettings(builder, name, "", (), "", where, is_file, version)
    path = _which(name, project_dir, os.R_OK if is_file else os.X_OK)
    if path is None:
        return missing
    try:
        facts = os.stat(path)
        stamp = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
        if known and known.path == path and known.stamp == stamp:
            return known
        read_ns = time.time_ns()
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return missing
    return replace(missing, path=path, stamp=clocks.stamp_read_at(stamp, read_ns), digest=digest)


def _which(name: str, project_dir: Path, access: int) -> str | None:
    folders = [str(project_dir)] if "/" in name else os.get_exec_path()
    for folder in folders:
        path = os.path.join(project_dir, folder, os.path.expanduser(name))
        if os.path.isfile(path) and os.access(path, access):
            return os.path.normpath(path)
    return None


def with_tools(builder: Builder, tools: Sequence[ToolSettings]) -> Builder:
    """Return a command builder with the digests of its tools. If a tool is missing, the jobs of this builder fail."""
    found = [tool for tool in tools if tool.path]
    missing = next((tool for tool in tools if not tool.path), None)
    return replace(
        builder,
        code_digest=_tools_digest(found),
        code_files=tuple((tool.path, tool.digest) for tool in found),
        fault=_describe_missing(missing) if missing is not None else "",
    )


def _describe_missing(tool: ToolSettings) -> str:
    if "/" not in tool.name:
        what = f"the program '{tool.name}' was not found in the PATH that aptui was started with; install it"
    else:
        kind, why = ("file", "does not exist") if tool.is_file else ("program", "does not exist or cannot be run")
        what = f"the {kind} '{tool.name}' {why}; install it, or correct its path in 'tools'"
    return f"builder '{tool.builder}': {what}"


def _tools_digest(tools: Iterable[ToolSettings]) -> bytes:
    """Return the part of a builder's fingerprint that depends on its tools, b"" without tools.

    If a tool is given by a path, only that path as written and the content are used, so that the project's location does not
    matter.
    """
    identities = [(tool.name, "" if "/" in tool.name else tool.path, tool.stamp[0], tool.digest) for tool in tools]
    return hashlib.sha256(canonical(identities).encode()).digest() if identities else b""


def without_stamps(tools: Iterable[ToolSettings]) -> tuple[ToolSettings, ...]:
    """Return the tools without the times in their stamps, so that tools with equal content compare equal."""
    return tuple(replace(tool, stamp=tool.stamp[:1]) for tool in tools)


def refresh_tools(config: Config) -> Config:
    """Return `config` with the current stamps and digests of its tools."""
    tools = tuple(
        identify(tool.builder, tool.name, tool.where, config.project_dir, tool, is_file=tool.is_file, version=tool.version)
        for tool in config.tools
    )
    if tools == config.tools:
        return config
    builders = []
    for rule in config.project.builders:
        own = [tool for tool in tools if tool.builder == rule.name]
        builders.append(with_tools(rule, own) if own else rule)
    return replace(config, tools=tools, project=sign_project(replace(config.project, builders=tuple(builders))))


# The configuration names environment variables that builders receive, so the values of these variables may affect products.
#
# The values at the start of this process are used. Only digests of the values are stored and compared, because a value may be a
# secret.


def digests_of(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return (name, digest of its value) of variables, each once, sorted; the digest is "" if the variable is not set."""
    values = {name: os.environb.get(name.encode()) for name in sorted(set(names))}
    return tuple((name, "" if value is None else hashlib.sha256(value).hexdigest()[:32]) for name, value in values.items())


def refresh_variables(config: Config) -> Config:
    """Return `config` with the digests of the variables' values in this process."""
    project = config.project
    if not any(builder.variables for builder in (project.unlisted_builder, *project.builders)):
        return config
    unlisted, *builders = (
        replace(builder, variables=digests_of(dict(builder.variables))) for builder in (project.unlisted_builder, *project.builders)
    )
    now = replace(project, unlisted_builder=unlisted, builders=tuple(builders))
    return config if now == project else replace(config, project=sign_project(now))


def variables_of(config: Config) -> dict[str, str]:
    """Return {name: digest of its value} of all variables that the configuration names; "" = the variable is not set."""
    project = config.project
    return dict(sorted(pair for builder in (project.unlisted_builder, *project.builders) for pair in builder.variables))


def differing(config: Config, other: Mapping[str, object]) -> list[str]:
    """Return the names of variables whose digests differ from those in `other` {name: digest}."""
    return [name for name, digest in variables_of(config).items() if name in other and other[name] != digest]


# The compiled form of a configuration is stored, so that the next start reads no YAML; a damaged file is ignored.


def find_compiled_file(*asked: object) -> str:
    """Return the path of a compiled configuration in the user's cache folder.

    `asked` has the project and the options, which identify the configuration.
    """
    return os.path.join(xdg("XDG_CACHE_HOME", "~/.cache"), "config", f"{digest_of([str(each) for each in asked])}.json")


_MODULES = (configuration, settings, asset_checks, project, retry, peers)
"""Modules that define the classes of the objects in a compiled configuration."""
_KINDS: dict[str, Callable[..., Any]] = {
    **{name: kind for module in _MODULES for name, kind in vars(module).items() if isinstance(kind, type)},
    "bytes": bytes.fromhex,
    "dict": lambda *pairs: dict(pairs),
    type(Path()).__name__: Path,
}


def dump(value: Any) -> Any:
    """Return a record as plain JSON data: {name of its class: arguments that make it}. Tuples are lists.

    msgspec can do the same, but reading the annotations of all records would take 4 ms at each start.
    """
    if isinstance(value, tuple):
        return [dump(item) for item in value]
    if isinstance(value, Struct):
        return {type(value).__name__: [dump(getattr(value, name)) for name in value.__struct_fields__]}
    if isinstance(value, Enum):
        return {type(value).__name__: [value.value]}
    if isinstance(value, bytes | Path):
        return {type(value).__name__: [value.hex() if isinstance(value, bytes) else str(value)]}
    return {"dict": [[*pair] for pair in value.items()]} if isinstance(value, dict) else value


def restore(text: str) -> Config:
    """Return the configuration in `text`, the JSON of the data that `dump` returned."""
    config: Config = json.loads(text, object_hook=_restore)
    return config


def _restore(data: dict[str, list[Any]]) -> Any:
    ((name, arguments),) = data.items()
    return _KINDS[name](*map(frozen, arguments))


def _seal(text: str) -> str:
    """Return the digest that is stored with a compiled form.

    The digest also covers the records: the names and types of their fields, and the members of enumerations. A form has only the
    values of the fields, in their order, so other records could not be made from it.
    """
    return hashlib.sha256(f"{_describe_kinds()}\n{text}".encode()).hexdigest()


def _describe_kinds() -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, kind in _KINDS.items():
        if isinstance(kind, type) and issubclass(kind, Enum):
            found.append((name, [member.value for member in kind]))
        elif isinstance(kind, type) and issubclass(kind, Struct):
            # `vars` has only the record's own types; a record that it inherits from has an entry of its own
            found.append((name, (kind.__struct_fields__, vars(kind).get("__annotations__"))))
    return found


def recall(file: str, key: str) -> Config | None:
    """Return the stored configuration if nothing that it depends on changed; a damaged file is ignored."""
    config = read_compiled(file, key)
    if config is None or not all(os.path.isdir(folder.path) for folder in config.project.scan_folders):
        return None
    return refresh_tools(refresh_variables(config))


def read_compiled(file: str, key: str | None = None) -> Config | None:
    """Return the compiled form in `file` if it was stored with `key` (None = any key), else None; a damaged file is ignored."""
    try:
        with open(file, encoding="ascii") as stream:
            stored_key, digest, text = stream.read().split("\n", 2)
        if key not in (None, stored_key) or digest != _seal(text):
            return None
        return restore(text)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def store_config(file: str, key: str, config: Config) -> None:
    """Store the compiled form of a configuration, so that `recall` can return it."""
    text = canonical(dump(config))
    write_compiled(file, f"{key}\n{_seal(text)}\n{text}")


def write_compiled(file: str, text: str) -> None:
    """Write a file of the user's cache folder atomically.

    Errors are ignored, because without the file the next start only takes longer.
    """
    with suppress(OSError, KnownError):
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        replace_bytes(Path(file), text.encode("ascii"), is_synced=False)

"""Programs that commands need: finds them, and identifies them by the digest of their bytes.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from aptui.config.configuration import Config, ToolSettings
from aptui.config.packing import canonical, sign_project
from aptui.core.project import Builder
from aptui.shared.files import clocks

# ── tools: programs that are inputs of a command builder's jobs ───────────────────────────────────────────────────────


def identify(
    builder: str, name: str, where: str, project_dir: Path, known: ToolSettings | None = None, *, is_file: bool = False
) -> ToolSettings | None:
    """Find a program (a path below the project if it has a slash, else by PATH) and digest it, unless `known` is up to date.

    With `is_file`, `name` may be any readable file, executable or not.
    """
    path = _which(name, project_dir, os.R_OK if is_file else os.X_OK)
    if path is None:
        return None
    try:
        facts = os.stat(path)
        stamp = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
        if known and known.path == path and known.stamp == stamp:
            return known
        read_ns = time.time_ns()
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
    return ToolSettings(builder, name, path, clocks.stamp_read_at(stamp, read_ns), digest, where, is_file)


def _which(name: str, project_dir: Path, access: int) -> str | None:
    folders = [str(project_dir)] if "/" in name else os.get_exec_path()
    for folder in folders:
        path = os.path.join(project_dir, folder, os.path.expanduser(name))
        if os.path.isfile(path) and os.access(path, access):
            return os.path.normpath(path)
    return None


def tools_digest(tools: Iterable[ToolSettings]) -> bytes:
    """Return the part of a builder's fingerprint that depends on its tools, b"" without tools.

    A tool given by a path enters with its name and content, so that the project's folder does not matter.
    """
    identities = [(tool.name, "" if "/" in tool.name else tool.path, tool.stamp[0], tool.digest) for tool in tools]
    return hashlib.sha256(canonical(identities).encode()).digest() if identities else b""


def with_tools(builder: Builder, tools: Sequence[ToolSettings]) -> Builder:
    """Return a command builder with the tools that it names."""
    return replace(builder, code_digest=tools_digest(tools), code_files=tuple((tool.path, tool.digest) for tool in tools))


def without_stamps(tools: Iterable[ToolSettings]) -> tuple[ToolSettings, ...]:
    """Return the tools without their times: only a changed path, size or digest matters."""
    return tuple(replace(tool, stamp=tool.stamp[:1]) for tool in tools)


def refresh_tools(config: Config) -> Config | None:
    """Return `config` with every tool as it is now; None if one is missing, which only a full load can report."""
    if not config.tools:
        return config
    now = [identify(tool.builder, tool.name, tool.where, config.project_dir, tool, is_file=tool.is_file) for tool in config.tools]
    tools = tuple(tool for tool in now if tool is not None)
    if len(tools) < len(now) or tools == config.tools:
        return None if len(tools) < len(now) else config
    by_name = {name: [tool for tool in tools if tool.builder == name] for name in {tool.builder for tool in tools}}
    builders = tuple(with_tools(rule, by_name[rule.name]) if rule.name in by_name else rule for rule in config.project.builders)
    return replace(config, tools=tools, project=sign_project(replace(config.project, builders=builders)))

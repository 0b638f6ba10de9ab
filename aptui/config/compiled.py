"""The compiled form of a configuration, stored so that the next start reads no YAML; a damaged file is ignored.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from aptui.config import settings
from aptui.config import settings as config_cluster
from aptui.config.configuration import Config, ResourceLimits, SharedCachePattern, SharedCacheSettings, ToolSettings
from aptui.config.dirs import xdg
from aptui.config.merge import refresh_variables
from aptui.config.packing import canonical, digest_of, frozen, pack, refresh_tools
from aptui.config.settings import restore_gateway, restore_rule
from aptui.core.asset_checks import Check, Limit
from aptui.core.project import (
    Builder,
    BuilderKind,
    BuilderStep,
    CommandRule,
    Companion,
    FileRule,
    Pattern,
    PatternKind,
    Platform,
    Project,
    ReferenceRule,
    RetryFailed,
    ScanFolder,
    UndeclaredReads,
)
from aptui.shared.errors import KnownError
from aptui.shared.files.replacing import replace_bytes


def find_compiled_file(*asked: object) -> str:
    """Return the path of a compiled configuration in the user's cache folder.

    `asked` has the project and the options, which identify the configuration.
    """
    return os.path.join(xdg("XDG_CACHE_HOME", "~/.cache"), "config", f"{digest_of([str(each) for each in asked])}.json")


_PATHS = ("project_dir", "cache_dir", "log_dir", "temp_dir")


def _plain(data: dict[str, Any], *special: str) -> dict[str, Any]:
    return {key: frozen(value) for key, value in data.items() if key not in special}


def _unpack(data: dict[str, Any]) -> Config:
    return Config(
        **_plain(data, *_PATHS, "project", "limits", "tools", "sharing", "serve", "on", "cluster", "checks"),
        project_dir=Path(data["project_dir"]),
        cache_dir=Path(data["cache_dir"]),
        log_dir=Path(data["log_dir"]),
        temp_dir=Path(data["temp_dir"]),
        project=_unpack_project(data["project"]),
        limits=ResourceLimits(**data["limits"]),
        serve=restore_gateway(data["serve"]),
        on=settings.restore_alerts(data["on"]),
        cluster=config_cluster.restore_cluster(data["cluster"]),
        checks=_unpack_checks(data["checks"]),
        tools=tuple(ToolSettings(**_plain(tool)) for tool in data["tools"]),
        sharing=_unpack_sharing(data["sharing"]),
    )


def _unpack_sharing(data: dict[str, Any]) -> SharedCacheSettings:
    patterns = (SharedCachePattern(each["name"], _unpack_pattern(each["pattern"]), each["is_enabled"]) for each in data["patterns"])
    return SharedCacheSettings(patterns=tuple(patterns), **_plain(data, "patterns"))


def _unpack_project(data: dict[str, Any]) -> Project:
    companions = [Companion(source=_unpack_pattern(rule["source"]), **_plain(rule, "source")) for rule in data["companions"]]
    return Project(
        platforms=tuple(Platform(**_plain(platform)) for platform in data["platforms"]),
        scan_folders=tuple(ScanFolder(**_plain(folder)) for folder in data["scan_folders"]),
        builders=tuple(_unpack_builder(rule) for rule in data["builders"]),
        companions=tuple(companions),
        undeclared_reads=UndeclaredReads(data["undeclared_reads"]),
        checks=_unpack_checks(data["checks"]),
        retry=restore_rule(data["retry"]),
        retry_failed=RetryFailed(data["retry_failed"]),
        unlisted_builder=_unpack_builder(data["unlisted_builder"]),
        **_plain(
            data,
            "platforms",
            "scan_folders",
            "builders",
            "companions",
            "undeclared_reads",
            "checks",
            "retry",
            "retry_failed",
            "unlisted_builder",
        ),
    )


def _unpack_builder(data: dict[str, Any]) -> Builder:
    return Builder(
        **_plain(
            data,
            "uuid",
            "code_digest",
            "asset_type",
            "kind",
            "patterns",
            "command",
            "undeclared_reads",
            "references",
            "retry",
            "rules",
            "exclude",
            "steps",
        ),
        uuid=bytes.fromhex(data["uuid"]),
        code_digest=bytes.fromhex(data["code_digest"]),
        asset_type=bytes.fromhex(data["asset_type"]),
        kind=BuilderKind(data["kind"]),
        undeclared_reads=UndeclaredReads(data["undeclared_reads"]) if data["undeclared_reads"] else None,
        patterns=tuple(_unpack_pattern(pattern) for pattern in data["patterns"]),
        rules=tuple(FileRule(tuple(map(_unpack_pattern, rule["patterns"])), rule["params"]) for rule in data["rules"]),
        exclude=tuple(map(_unpack_pattern, data["exclude"])),
        steps=tuple(
            BuilderStep(step["name"], step["origin"], tuple(map(_unpack_pattern, step["patterns"]))) for step in data["steps"]
        ),
        command=CommandRule(**_plain(data["command"])) if data["command"] else None,
        references=tuple(ReferenceRule(**rule) for rule in data["references"]),
        retry=restore_rule(data["retry"]),
    )


def _unpack_checks(data: list[dict[str, Any]]) -> tuple[Check, ...]:
    limits = (tuple(Limit(**limit) for limit in each["limits"]) for each in data)
    return tuple(Check(**_plain(each, "limits"), limits=found) for each, found in zip(data, limits, strict=True))


def _unpack_pattern(data: dict[str, Any]) -> Pattern:
    return Pattern(PatternKind(data["kind"]), data["text"], data["regex"], data["is_absolute"])


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
        if key not in (None, stored_key) or digest != hashlib.sha256(text.encode()).hexdigest():
            return None
        return _unpack(json.loads(text))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def keep(file: str, key: str, config: Config) -> None:
    """Store the compiled form of a configuration, so that `recall` can return it."""
    text = canonical(pack(config))
    write_compiled(file, f"{key}\n{hashlib.sha256(text.encode()).hexdigest()}\n{text}")


def write_compiled(file: str, text: str) -> None:
    """Write a file of the user's cache folder atomically.

    Errors are ignored, because without the file the next start only takes longer.
    """
    with suppress(OSError, KnownError):
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        replace_bytes(Path(file), text.encode("ascii"), is_synced=False)

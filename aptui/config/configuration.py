"""`Config`: the compiled configuration, as the rest of the program reads it.

An unchanged configuration is loaded without reading YAML: its compiled form is stored as JSON in the user's cache folder, under a
digest of the inputs of the configuration. So this module must not import anything heavy at its top.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from aptui.config.settings import AlertSettings, ClusterSettings, GatewaySettings
from aptui.core.asset_checks import Check
from aptui.core.project import SHARE_OF_MEMORY, BuilderKind, Pattern, Project
from aptui.shared.errors import UserError

SANDBOX_VARIABLE = "APTUI_SANDBOX"
"""The environment variable with which a user disables `sandbox: auto`."""


class MissingFolderError(UserError):
    """A scan folder does not exist; `path` is its absolute path."""

    def __init__(self, what: str, *, where: str, path: str) -> None:
        super().__init__(what, where=where)
        self.path = path


class ConfigErrors(UserError):
    """All mistakes of a configuration; the text of the error has a line for each mistake.

    `missing_folders` do not exist; if one of them is made, the configuration may be correct.
    """

    def __init__(self, errors: Sequence[UserError]) -> None:
        self.missing_folders = tuple(each.path for each in errors if isinstance(each, MissingFolderError))
        self.errors = tuple(UserError(escape(each.what), where=escape(each.where), hint=escape(each.hint)) for each in errors)
        first = self.errors[0]
        super().__init__(first.what, where=first.where, hint=first.hint)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def escape(text: str) -> str:
    """Return `text` with unprintable characters as escapes: names and values are not trusted."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class ResourceLimits(Struct, frozen=True):
    """Default limits of one run; a builder may set its own limits.

    `memory_bytes`: 0 = no limit; `SHARE_OF_MEMORY` = a share of the machine's memory. `all_memory_bytes` limits all runs together;
    0 = the free memory of the machine. `shipped_process_s` is for the builders that come with aptui, which take seconds for an
    ordinary file.
    """

    analyse_s: float = 120.0
    process_s: float = 3600.0
    shipped_process_s: float = 600.0
    memory_bytes: int = SHARE_OF_MEMORY
    all_memory_bytes: int = 0


class SharedCachePattern(Struct, frozen=True):
    """A pattern of sources whose results are shared."""

    name: str
    pattern: Pattern
    is_enabled: bool = True


class SharedCacheSettings(Struct, frozen=True):
    """Places besides the cache where results of jobs are stored.

    `mode` is inactive, client (reads) or server (reads and writes); `store` an absolute folder or a URL. `builders` are (name,
    whether the jobs of this builder are shared). `is_unsealed`: the store is trusted without a key, even if other users can
    write to it. `waits_for_uploads`: a batch ends only when all its uploads are complete. `local_store` is the folder of this
    machine's own store, "" = none; `local_limit_bytes` 0 = no limit; `links`: products may be hard links into it.
    """

    mode: str = "inactive"
    store: str = ""
    namespace: str = "trusted"
    team_key_file: str = ""
    signing_key_file: str = ""
    writers: tuple[str, ...] = ()
    patterns: tuple[SharedCachePattern, ...] = ()
    builders: tuple[tuple[str, bool], ...] = ()
    deadline_s: float = 5.0
    is_unsealed: bool = False
    waits_for_uploads: bool = False
    local_store: str = ""
    local_limit_bytes: int = 0
    links: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether a shared store is used, and not only this machine's own store."""
        return self.mode != "inactive" and bool(self.store)

    @property
    def needs_own_store(self) -> bool:
        """Whether the store must be one that only this user can write to, because neither a key nor `trust: unsealed` is set."""
        return self.is_remote and not (self.is_unsealed or self.team_key_file or self.writers)

    @property
    def writes(self) -> bool:
        """Whether results are uploaded for other users."""
        return self.mode == "server" and bool(self.store)


class ToolSettings(Struct, frozen=True):
    """A program that a command builder names; with `is_file`, a file that belongs to a program.

    `digest` (SHA-256, hex) is valid while `stamp` (size, mtime_ns, ctime_ns, inode) does not change. If the program is missing,
    `path`, `stamp` and `digest` are empty. `version` is a command that prints the version of the program.
    """

    builder: str
    name: str
    path: str
    stamp: tuple[int, ...]
    digest: str
    where: str
    is_file: bool = False
    version: str = ""


class Config(Struct, frozen=True):
    """A project's configuration, checked and compiled; all paths are absolute.

    `workers` is the number of worker processes (never 0). `layers` are (file, SHA-256 in hex). `places` has positions
    (`file:line:column`) for messages that are made after the load: it maps the name of a builder to the position of its `uses`
    or its entry, and the `place_key` of a step, a rule or a parameter to the position of that value. `warnings` are lines for
    users. `meta_delay_ms` is how long a live engine waits for the `.meta` file of a new source. `foreign` are the settings of
    another program's project, such as an O3DE project, "" = none; only the feature for that program reads them.
    `settings_folders` are further folders in which a layer may appear. `missing_folders` do not exist; if one of them is made, it
    may become a scan folder. `sandbox` is auto, require or off.
    """

    project_dir: Path
    name: str
    cache_dir: Path
    log_dir: Path
    temp_dir: Path
    project: Project
    limits: ResourceLimits = ResourceLimits()
    workers: int = 1
    layers: tuple[tuple[str, str], ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    tools: tuple[ToolSettings, ...] = ()
    meta_delay_ms: int = 0
    foreign: str = ""
    settings_folders: tuple[str, ...] = ()
    missing_folders: tuple[str, ...] = ()
    sharing: SharedCacheSettings = SharedCacheSettings()
    serve: GatewaySettings = GatewaySettings()
    on: AlertSettings = AlertSettings()
    cluster: ClusterSettings = ClusterSettings()
    sandbox: str = "auto"
    sandbox_paths: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def may_use_sandbox(self) -> bool:
        """Whether workers use the sandbox if it is available: neither the project nor the user disabled it."""
        return self.sandbox == "require" or (self.sandbox == "auto" and os.environ.get(SANDBOX_VARIABLE) != "off")

    @property
    def has_code(self) -> bool:
        """Whether `engine.registry` must load the Python class of any builder, or run version commands of its tools."""
        return self.has_code_at_start or any(builder.kind is BuilderKind.PYTHON for builder in self.project.builders)

    @property
    def has_code_at_start(self) -> bool:
        """Whether an engine runs code of the project before it runs any job: builders to find, or version commands of tools."""
        return self.has_builders_to_find or any(tool.version for tool in self.tools)

    @property
    def has_builders_to_find(self) -> bool:
        """Whether there may be builders that are not in `project`, and that only `engine.registry` finds."""
        return (self.project_dir / "builders").is_dir() or any(builder.adapter for builder in self.project.builders)

"""The records of the configuration: platforms, scan folders, builders and their rules; made by `config`, read everywhere.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from msgspec import Struct

from aptui.core.asset_checks import Check
from aptui.core.retry import RetryRule

COMMON_PLATFORM = "common"
"""The platform of jobs that make intermediates, as O3DE names it. No scan folder has this platform."""
COMMON_PREFIX = f"{COMMON_PLATFORM}/"
"""Beginning of the product names of intermediates; the relative path follows."""
SHARE_OF_MEMORY = -1
"""Memory limit that workers compute from the memory of their machine; only for Python builders."""
INTERMEDIATES = "Intermediate Assets"
"""Name of the scan folder of intermediates, and of its folder in the cache."""


class Platform(Struct, frozen=True):
    """A platform that products are made for; `tags` are in lower case and sorted."""

    id: str
    tags: tuple[str, ...] = ()


class ScanFolder(Struct, frozen=True):
    """A folder whose files are sources. `id` is the row in ScanFolders; `path` is absolute, without a trailing slash.

    If two scan folders have a file at the same relative path, the folder with the lower `order` wins. `is_intermediate`: the folder
    of intermediates, which is the last scan folder of the project, and whose files override no other files.
    """

    id: int
    name: str
    path: str
    order: int = 0
    recursive: bool = True
    platforms: tuple[str, ...] = ()
    is_intermediate: bool = False


class PatternKind(IntEnum):
    """Syntax of a pattern; both kinds ignore case and match the whole path."""

    GLOB = 0
    REGEX = 1


class Pattern(Struct, frozen=True):
    """A pattern of relative paths: `text` as the user wrote it, and its translation `regex` for `re.fullmatch` with IGNORECASE.

    `is_absolute`: the regex is matched with the absolute path, as O3DE does for its builders.
    """

    kind: PatternKind
    text: str
    regex: str
    is_absolute: bool = False


class BuilderKind(StrEnum):
    """Kind of a builder: `copy` needs no code, `command` runs a program, and `python` is a class."""

    COPY = "copy"
    COMMAND = "command"
    PYTHON = "python"


class UndeclaredReads(StrEnum):
    """Handling of a source that a run read without declaring it: ignore, warn in the log, or add it as a dependency."""

    IGNORE = "ignore"
    WARN = "warn"
    ADD = "add"


class RetryFailed(StrEnum):
    """Whether failed jobs run again at the next start or `aptui batch`, although their inputs and settings did not change.

    ALWAYS: yes, except after an expensive failure such as a time limit (`JobFailure.is_expensive`). CHANGED: only if the cause was
    outside the job (`FailureKind.OBSTACLE`), and is not a conflict of product names that still exists.
    """

    ALWAYS = "always"
    CHANGED = "changed"


class CommandRule(Struct, frozen=True):
    """The `command:` form of a builder (config/builders.yaml documents each key). `batch` 1 = one start per file."""

    command: str
    products: tuple[str, ...] = ()
    depfile: str = ""
    dependency_regex: str = ""
    warning_regex: str = ""
    error_regex: str = ""
    links_file: str = ""
    is_persistent: bool = False
    batch: int = 1


class ReferenceRule(Struct, frozen=True):
    """How the text of a product, or of its source, names other assets (config/builders.yaml documents each key of `references`).

    `path` is a template for the asset's path, with groups of the match in braces, for example "textures/{name}.png". If `path` is
    "", the asset's path is the group `path` of the match, or its only group. `kind` and `load` are those of a `ProductLink`. If
    `is_beside` is set, the asset's path is relative to the folder of the source.
    """

    regex: str
    path: str = ""
    kind: int = 0
    load: int = 1
    is_beside: bool = False
    is_in_source: bool = False


class FileRule(Struct, frozen=True):
    """A rule of a builder: `params`, as canonical JSON, apply to sources that match one of `patterns`."""

    patterns: tuple[Pattern, ...]
    params: str


class BuilderStep(Struct, frozen=True):
    """One entry of a builder's `steps`. `name` is the prefix of the step's parameters; `origin` and `patterns` as in `Builder`."""

    name: str
    origin: str
    patterns: tuple[Pattern, ...] = ()


class Builder(Struct, frozen=True):
    """One enabled builder.

    `uuid` is the name UUID of `aptui:builder:<name>`; `code_digest` covers its code and tools (b"" for none); `origin` says where
    the code is: "entry:<name>", "file:<absolute path>:<class>", or "". `params` is canonical JSON (sorted keys) of
    the parameters common to all platforms; `platform_params` maps a platform id to canonical JSON that overrides `params` key
    by key; `platforms` are the enabled platform ids of its jobs, in order. `needs_analysis` is false for rules whose single job
    per platform is known without an analysis (copy, command). `references` are searched for in its products; a copy with
    references is an ordinary job, not a plain copy (`is_plain_copy`). `undeclared_reads` None = the setting of the project.
    `makes_intermediates`: its products are sources of other builders, made once for all platforms. `traces_reads`:
    a command runs under `strace`, which reports its reads (reads of Python builders are always reported).

    `adapter` is set if the code at `origin` is not a builder class of aptui but, for example, a builder of O3DE: workers call
    this "module:function" with the record to get a builder. `environment` is a text that only this function uses. Without an
    `origin`, this record stands for all builders that the function finds (`engine.registry`). `code_files` are the files of its
    code and its tools: (absolute path, SHA-256 in hex); a run reports the files that it really used (`core.run_report`).
    `params_schema` is the parameter schema of its class as JSON, "" = none; it does not affect products. `trusted_params` are
    parameters that name programs, commands or places outside the project: a folder's `.aptui.yaml` must not set them.
    `variables` are the configured environment variables: (name, digest of the value, "" = not set); its runs get them, and they
    affect products. `retry` None = that of the project. `resources` are the names of the resources that each of its runs holds
    (`Project.resources`), sorted. `has_drafts`: it makes a draft first, and its final products when nothing else is pending
    (`core.quality`). `rules` set parameters by file; a later rule wins. Files that match `exclude` are not its sources. They
    are already excluded from configured `patterns`; they are excluded from the patterns of its class when the class is loaded.
    With `steps` it is a chain of builders in one job; its parameters are named `step.parameter` (`worker.step_chain`). `fault`
    says why its code cannot be imported, or which file of its `tools` is missing, "" = neither: its analyses and jobs fail with
    that text.
    """

    uuid: bytes
    name: str
    kind: BuilderKind
    version: str = "1"
    analysis_fingerprint: str = ""
    patterns: tuple[Pattern, ...] = ()
    platforms: tuple[str, ...] = ()
    origin: str = ""
    code_digest: bytes = b""
    params: str = "{}"
    platform_params: tuple[tuple[str, str], ...] = ()
    command: CommandRule | None = None
    priority: int = 0
    is_critical: bool = False
    deletes_products_on_failure: bool = False
    analyse_limit_s: float = 120.0
    process_limit_s: float = 3600.0
    memory_limit_bytes: int = 0
    asset_type: bytes = b""
    undeclared_reads: UndeclaredReads | None = None
    traces_reads: bool = False
    makes_intermediates: bool = False
    references: tuple[ReferenceRule, ...] = ()
    adapter: str = ""
    environment: str = ""
    code_files: tuple[tuple[str, str], ...] = ()
    params_schema: str = ""
    trusted_params: tuple[str, ...] = ()
    reads_debug_output: bool = False
    takes_pointers: bool = False
    variables: tuple[tuple[str, str], ...] = ()
    retry: RetryRule | None = None
    resources: tuple[str, ...] = ()
    has_drafts: bool = False
    fault: str = ""
    rules: tuple[FileRule, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    steps: tuple[BuilderStep, ...] = ()

    @property
    def needs_analysis(self) -> bool:
        """Whether a worker has to call `create_jobs` to find the jobs of this builder."""
        return self.kind is BuilderKind.PYTHON

    @property
    def is_plain_copy(self) -> bool:
        """Whether the products of this builder are only copies of the sources."""
        return self.kind is BuilderKind.COPY and not self.references


class Companion(Struct, frozen=True):
    """Rule for companions: files with metadata of a source (O3DE: `MetaDataTypes`). They are inputs of the source's jobs.

    The rule applies to sources whose path matches the pattern `source`. If `file` (a relative path) is set, this file is the
    companion of all of them. Otherwise the companion's path is the source's path + "." + `suffix`. If the source's extension is
    `replaces` (without a dot), `suffix` replaces this extension instead.
    """

    source: Pattern
    suffix: str
    replaces: str = ""
    file: str = ""


class Project(Struct, frozen=True):
    """The part of the configuration that the core needs; the paths of cache and logs are in the engine's configuration.

    `builders` are in the order of the configuration. `signature` changes with every setting that affects jobs, `scan_signature`
    with the scan folders and ignore rules. `ignore_regex` matches (fullmatch, IGNORECASE) relative paths of files and folders
    that are not scanned; "" = none. `resting_platforms` are configured but not requested for this run: their jobs stay
    unchanged. They include the `disabled_platforms` (disabled in the configuration) that have products. `declared_builders` are
    the names in the configuration, `declared_platforms` its ids and tags, enabled or not. `metadata_types` are extensions
    (lower case, with their dot) of files that a `.meta` file identifies, so that they do not override each other.
    `touches_unchanged`: a product that was made again with equal bytes gets a new time. `unlisted_builder` is the configuration
    of Python builders that have no entry; `checks` are the blocking checks. `retry` applies to builders without a rule of their
    own; `resources` are (name, number of runs that may hold it at a time). Without `makes_finals` jobs keep their drafts.
    `run_settings` are the engine's settings that can make any run fail, `memory_settings` the settings that can make a run fail
    for lack of memory, as in `core.pipeline.failures`.
    """

    platforms: tuple[Platform, ...]
    host_platform: str
    scan_folders: tuple[ScanFolder, ...]
    builders: tuple[Builder, ...]
    ignore_regex: str = ""
    companions: tuple[Companion, ...] = ()
    signature: str = ""
    scan_signature: str = ""
    workers: int = 2
    debug_output: bool = False
    resting_platforms: tuple[str, ...] = ()
    disabled_platforms: tuple[str, ...] = ()
    declared_builders: tuple[str, ...] = ()
    declared_platforms: tuple[str, ...] = ()
    undeclared_reads: UndeclaredReads = UndeclaredReads.WARN
    metadata_types: tuple[str, ...] = ()
    touches_unchanged: bool = False
    linked_folders: tuple[str, ...] = ()
    unlisted_builder: Builder = Builder(b"", "", BuilderKind.PYTHON)
    checks: tuple[Check, ...] = ()
    retry: RetryRule | None = None
    resources: tuple[tuple[str, int], ...] = ()
    makes_finals: bool = True
    retry_failed: RetryFailed = RetryFailed.ALWAYS
    run_settings: tuple[tuple[str, str, str], ...] = ()
    memory_settings: tuple[tuple[str, str, str], ...] = ()

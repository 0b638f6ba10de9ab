"""Everything a builder author imports: the `Builder` protocol, its requests and responses, and the job's log.

A builder answers two questions. `create_jobs` (analyse): which jobs does this source need, and on which other sources do they
depend? `process_job` (process): do one of them, and say which products it made. The meanings are those of O3DE's `AssetBuilderSDK`
(`CreateJobs`, `ProcessJob`). Builders run in worker processes: one call at a time, killed when they overrun their limit.

Tests: `tests/worker/test_run.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Protocol, runtime_checkable
from uuid import UUID

from msgspec import Struct, field

from aptui.core.model import DependencyKind
from aptui.shared.files.named_files import MOST_BYTES, ForbiddenNameError, NamedFileError, located, placed_name, read_named
from aptui.shared.param_schema import ParamError
from aptui.shared.param_schema import mistakes as param_mistakes

__all__ = [
    "AssetType",
    "Builder",
    "Cancelled",
    "CreateJobsRequest",
    "CreateJobsResponse",
    "DependencyKind",
    "ForbiddenNameError",
    "JobDependency",
    "JobDescriptor",
    "JobLog",
    "JobProduct",
    "LoadBehavior",
    "NamedFileError",
    "ParamError",
    "PathDependency",
    "PathDependencyKind",
    "ProcessJobRequest",
    "ProcessJobResponse",
    "ProductDependency",
    "ProductFlag",
    "Result",
    "SourceDependency",
    "SourceDependencyKind",
    "located",
    "param_mistakes",
    "placed_name",
    "read_named",
    "trusted_params",
]

AssetType = UUID
"""The type of a product, as the runtime knows it."""


class Result(IntEnum):
    """How a call ended; the default of a response is FAILED, so that a builder must say that it succeeded."""

    SUCCESS = 0
    FAILED = 1
    CRASHED = 2
    CANCELLED = 3
    NETWORK_ISSUE = 4


class ProductFlag(IntEnum):
    """What a product is for; a product is exactly one of the first two."""

    PRODUCT = 1
    INTERMEDIATE = 2


class SourceDependencyKind(IntEnum):
    """ABSOLUTE names one file (relative to its scan folder, or absolute); WILDCARD is a path with `*`."""

    ABSOLUTE = 0
    WILDCARD = 1


class Cancelled(Exception):
    """Raised by `ProcessJobRequest.check_cancelled` when the job is to stop."""


class PlatformInfo(Struct, frozen=True):
    """A platform and its tags (lower case)."""

    id: str
    tags: tuple[str, ...] = ()


class SourceDependency(Struct):
    """This source's jobs depend on another source: its bytes enter their fingerprints, and its change re-analyses this source.

    `uuid` wins over `path`. The file need not exist yet.
    """

    path: str = ""
    kind: SourceDependencyKind = SourceDependencyKind.ABSOLUTE
    uuid: UUID | None = None


class JobDependency(Struct):
    """A job depends on another job: the one with `job_key` of `source` on `platform` (that of the job itself, or `common`).

    `uuid` wins over `source`. `*` in `source` is any text, `/` included: the jobs of all sources that match, as they come and go.
    """

    source: str
    job_key: str
    platform: str
    kind: DependencyKind = DependencyKind.ORDER
    sub_ids: tuple[int, ...] = ()
    uuid: UUID | None = None


class JobDescriptor(Struct):
    """One job that a source needs.

    `job_key` is its name, of 4,096 characters at most. `additional_fingerprint` is text that re-runs the job when it changes;
    `params` are handed back to `process_job` and enter the fingerprint too. Higher `priority` runs first.
    """

    job_key: str
    platform: str
    priority: int = 0
    is_critical: bool = False
    additional_fingerprint: str = ""
    params: dict[str, str] = field(default_factory=dict)
    job_dependencies: list[JobDependency] = field(default_factory=list)


class CreateJobsResponse(Struct):
    """Answer of `create_jobs`. With `result` FAILED, `error` says why in one line."""

    result: Result = Result.FAILED
    jobs: list[JobDescriptor] = field(default_factory=list)
    source_dependencies: list[SourceDependency] = field(default_factory=list)
    error: str = ""


class LoadBehavior(IntEnum):
    """When the runtime loads what a product depends on: before the product is ready, right after it, or when somebody asks for it.

    It is what the low bits of a dependency's flags say.
    """

    PRE_LOAD = 0
    QUEUE_LOAD = 1
    NO_LOAD = 2


class PathDependencyKind(IntEnum):
    """What the path of a `PathDependency` names: a source (all that is made of it is meant), or a product without its platform."""

    SOURCE_FILE = 0
    PRODUCT_FILE = 1


class ProductDependency(Struct):
    """A product needs another product at run time, known by its asset id: the UUID of its source, and its sub id there.

    It re-runs nothing, and the other product need not exist. `load` may also be a whole number of flags (64 bits).
    """

    source_uuid: UUID
    sub_id: int = 0
    load: LoadBehavior | int = LoadBehavior.NO_LOAD


class PathDependency(Struct):
    """A product needs others at run time, known by a path; it re-runs nothing, and nothing of that path need exist yet.

    `path` is relative to the scan folders (a source's may be absolute too), or to the folder of the product's own platform; case
    does not count. In it `*` is any text, `/` included, and a leading `!` takes what the path names away from what this product's
    paths with `*` name. A PRODUCT_FILE with the extension of an image (`.png`, `.tif` ...) is taken for a SOURCE_FILE, as builders
    name images by what artists made. `load` is as in `ProductDependency`.
    """

    path: str
    kind: PathDependencyKind = PathDependencyKind.SOURCE_FILE
    load: LoadBehavior | int = LoadBehavior.NO_LOAD


class JobProduct(Struct):
    """A product of a job.

    `path`: relative to `request.products_dir` or absolute below it (moved), or an absolute path elsewhere (copied). Only its file
    name enters the product's name: `<platform>/<folder of the source>/<file name>`, in lower case. `sub_id` names the product among
    those of its source, must be stable and unique there; `legacy_sub_ids` are those it had in earlier versions of the builder.

    `dependencies` and `path_dependencies` are the products that it needs at run time. `dependencies_handled` says that they are all
    of them: a job that declares some without saying so for any product gets a warning.

    `folder` is for intermediates alone: a folder, relative to the scan folders, that stands in place of the source's.

    `facts` are for filters and checks: `width` and `height` in pixels, `format` (in lower case), `seconds`, `triangles`, `rate`
    (samples a second); they decide about nothing else.
    """

    path: str
    sub_id: int = 0
    asset_type: UUID = UUID(int=0)
    flags: int = ProductFlag.PRODUCT
    dependencies: list[ProductDependency] = field(default_factory=list)
    path_dependencies: list[PathDependency] = field(default_factory=list)
    dependencies_handled: bool = False
    legacy_sub_ids: tuple[int, ...] = ()
    folder: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class ProcessJobResponse(Struct):
    """Answer of `process_job`.

    `dependencies` are files it read that nobody declared (absolute, or relative to their scan folder).
    """

    result: Result = Result.FAILED
    products: list[JobProduct] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    sources_to_reprocess: list[str] = field(default_factory=list)
    keep_temp: bool = False
    error: str = ""


class JobLog:
    """The log of one run. Each call takes key/value context, shown with the line.

    Args:
        write: receives (severity 0 debug … 3 error, text, context).
    """

    def __init__(self, write: Callable[[int, str, tuple[tuple[str, str], ...]], None]) -> None:
        self._write = write

    def debug(self, text: str, **context: object) -> None:
        """Say something only developers want."""
        self._write(0, text, _pairs(context))

    def info(self, text: str, **context: object) -> None:
        """Say something worth keeping."""
        self._write(1, text, _pairs(context))

    def warning(self, text: str, **context: object) -> None:
        """Warn; counted on the job."""
        self._write(2, text, _pairs(context))

    def error(self, text: str, **context: object) -> None:
        """Report an error; counted on the job, and does not fail it by itself."""
        self._write(3, text, _pairs(context))


def _pairs(context: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(value)) for key, value in context.items())


class CreateJobsRequest(Struct):
    """Question to `create_jobs`. `scan_folder` is absolute, `source` relative to it in its real case.

    `builder_name` is the name of the configured builder; use it as job key unless there is a better one. `params` are the builder's
    parameters common to all platforms; `platform_params` {platform id: what differs there}; both as the `.aptui.yaml` above the
    source adjust them. `project.scan_folders` are all of the project (absolute): the files that a source names lie below them, or
    are refused (`read_named`).
    """

    builder_name: str
    scan_folder: str
    source: str
    source_uuid: UUID
    platforms: tuple[PlatformInfo, ...]
    params: Mapping[str, Any]
    platform_params: Mapping[str, Mapping[str, Any]]
    log: JobLog
    scan_folders: tuple[str, ...] = ()

    @property
    def full_path(self) -> str:
        """Absolute path of the source."""
        return os.path.join(self.scan_folder, self.source)

    def params_for(self, platform: str) -> dict[str, Any]:
        """Return the builder's parameters as they are for `platform`."""
        return {**self.params, **self.platform_params.get(platform, {})}

    def read_named(self, path: str, *, named_by: str = "", most_bytes: int = MOST_BYTES) -> bytes:
        """Return the bytes of a file that content names, never of one outside the project's scan folders.

        Args:
            path: what it names, as `placed_name` returns it: relative to `scan_folder`, or absolute.
            named_by: the file that names it, for messages; the source unless given.
            most_bytes: a larger file is refused.

        Raises:
            NamedFileError: it cannot be used; its kind ForbiddenNameError: the job should fail.
        """
        return read_named(self.scan_folder, path, self.scan_folders, named_by=named_by or self.source, most_bytes=most_bytes)

    def read_source(self) -> bytes:
        """Return the bytes of the source."""
        with open(self.full_path, "rb") as file:
            return file.read()


class ProcessJobRequest(Struct):
    """Question to `process_job`. `products_dir` is an empty folder of this run's own; `temp_dir` another, for anything else.

    `params` are the builder's parameters for `platform`; `job_params` those of the job descriptor. `progress` takes a fraction 0 …
    1. `quality` is "final", or "draft" where the configuration says `quality: [draft, final]` for the builder: something that
    serves at once, until its final follows.
    """

    builder_name: str
    scan_folder: str
    source: str
    source_uuid: UUID
    platform: PlatformInfo
    job_key: str
    params: Mapping[str, Any]
    job_params: Mapping[str, str]
    additional_fingerprint: str
    products_dir: str
    temp_dir: str
    log: JobLog
    debug_output: bool = False
    progress: Callable[[float], None] = lambda _fraction: None
    is_cancelled: Callable[[], bool] = lambda: False
    read_digest: str = ""
    scan_folders: tuple[str, ...] = ()
    quality: str = "final"

    @property
    def full_path(self) -> str:
        """Absolute path of the source."""
        return os.path.join(self.scan_folder, self.source)

    @property
    def stem(self) -> str:
        """File name of the source without its last extension."""
        return os.path.splitext(os.path.basename(self.source))[0]

    def read_source(self) -> bytes:
        """Return the bytes of the source and remember their digest, so that the run is known to be of exactly these bytes."""
        with open(self.full_path, "rb") as file:
            data = file.read()
        self.read_digest = hashlib.sha256(data).hexdigest()
        return data

    def read_named(self, path: str, *, named_by: str = "", most_bytes: int = MOST_BYTES) -> bytes:
        """Return the bytes of a file that content names, never of one outside the project's scan folders.

        Args:
            path: what it names, as `placed_name` returns it: relative to `scan_folder`, or absolute.
            named_by: the file that names it, for messages; the source unless given.
            most_bytes: a larger file is refused.

        Raises:
            NamedFileError: it cannot be used; its kind ForbiddenNameError: the job should fail.
        """
        return read_named(self.scan_folder, path, self.scan_folders, named_by=named_by or self.source, most_bytes=most_bytes)

    def product_path(self, name: str) -> str:
        """Return the absolute path for a product named `name` in `products_dir`."""
        return os.path.join(self.products_dir, name)

    def check_cancelled(self) -> None:
        """Raise `Cancelled` when the job is to stop; call it between the steps of long work."""
        if self.is_cancelled():
            raise Cancelled


@runtime_checkable
class Builder(Protocol):
    """What a builder is: a class without constructor arguments that answers the two questions.

    Class attributes: `name` (unique), `version` (text; a change re-runs all its jobs), `patterns` (globs on the relative path),
    `analysis_fingerprint` (text; a change re-analyses all its sources). Optional: `flags`, a set of
    "delete_products_on_failure" and "reads_debug_output" (its products differ with debug output: they are made anew then),
    `params_schema`, a JSON Schema for its parameters (they are checked against it before anything runs), and a method `shutdown()`,
    called before its process ends in peace.

    A parameter that names a program, a command, the environment of one, or a place outside the project has `"is_trusted_only":
    True` in the schema: it may be set in the project's `aptui.yaml` alone, never by an `.aptui.yaml` that came with a folder of
    assets.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    patterns: ClassVar[tuple[str, ...]]

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return the jobs that `request.source` needs; must be fast and deterministic."""
        ...

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Do one job and return its products; must be deterministic: equal inputs, equal bytes."""
        ...


def trusted_params(builder: type[Any]) -> tuple[str, ...]:
    """Return the parameters that a builder class marks `is_trusted_only` in its `params_schema`, sorted."""
    schema = getattr(builder, "params_schema", None)
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    rules = properties.items() if isinstance(properties, Mapping) else ()
    return tuple(sorted(str(name) for name, rule in rules if isinstance(rule, Mapping) and rule.get("is_trusted_only")))


def canonical_json(value: object) -> str:
    """Return `value` as JSON with sorted keys and no blanks, the form in which parameters enter fingerprints."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

"""Everything that the author of a builder imports. `BUILDERS.md` explains it with examples.

A builder has two methods. `create_jobs` returns the jobs that a source needs, and the other files that these jobs depend on.
`process_job` does one of these jobs and returns its products. `SimpleBuilder` implements `create_jobs` for builders with one job
per platform. The names follow O3DE's `AssetBuilderSDK`. Builders run in worker processes, one call at a time. The engine kills a
worker whose run exceeds a limit, is cancelled, or has a source that changed: the worker gets SIGTERM, which raises an exception in
the builder's code at the next line of Python, and SIGKILL half a second later.

`aptui.sdk.testing` runs builders in tests, without an engine.

Tests: `tests/sdk/test_kit.py`, `tests/worker/test_builder_run.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from msgspec import Struct, field

from aptui.core.model import DependencyKind
from aptui.sdk.parameters import check_params, library_versions, read_options, schema_of, trusted_params
from aptui.shared.files.confinement import MOST_BYTES, ForbiddenNameError, NamedFileError, located, placed_name, read_named
from aptui.shared.param_schema import ParamError
from aptui.shared.param_schema import mistakes as param_mistakes

if TYPE_CHECKING:
    from aptui.sdk.programs import (
        MissingError,
        ProgramResult,
        TooLongError,
        find_missing_need,
        find_program,
        has_library,
        library,
        program_digest,
        run_program,
    )

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
    "JobError",
    "JobLog",
    "JobProduct",
    "LoadBehavior",
    "MatchedFile",
    "MissingError",
    "NamedFileError",
    "ParamError",
    "PathDependency",
    "PathDependencyKind",
    "PlatformInfo",
    "ProcessJobRequest",
    "ProcessJobResponse",
    "ProductDependency",
    "ProductFlag",
    "ProgramResult",
    "Result",
    "SimpleBuilder",
    "SourceDependency",
    "SourceDependencyKind",
    "TooLongError",
    "check_params",
    "find_missing_need",
    "find_program",
    "has_library",
    "is_same_for_all_sources",
    "library",
    "library_versions",
    "located",
    "param_mistakes",
    "placed_name",
    "program_digest",
    "read_named",
    "run_program",
    "same_for_all_sources",
    "schema_of",
    "trusted_params",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aptui.sdk import programs  # imported here, because most builders start no program

    return getattr(programs, name)


AssetType = UUID
"""The type of a product, as the runtime knows it."""


class Result(IntEnum):
    """How a call ended. The default of a response is FAILED, so a builder must set SUCCESS explicitly."""

    SUCCESS = 0
    FAILED = 1
    CRASHED = 2
    CANCELLED = 3
    NETWORK_ISSUE = 4


class ProductFlag(IntEnum):
    """Use of a product: exactly one of PRODUCT (for the runtime) and INTERMEDIATE (a source of other builders)."""

    PRODUCT = 1
    INTERMEDIATE = 2


class SourceDependencyKind(IntEnum):
    """ABSOLUTE is the path of one file, relative to its scan folder or absolute; WILDCARD is a path with `*`."""

    ABSOLUTE = 0
    WILDCARD = 1


class Cancelled(Exception):
    """A builder raises this error to end a call as cancelled, with the same effect as `Result.CANCELLED`."""


_LONGEST_NAME_BYTES = 255
"""Maximum length of the name of a file on the file systems of Linux."""


class JobError(Exception):
    """Fails the analysis or the job. Its text is the error that users see: one line, without a traceback."""


class MatchedFile(NamedTuple):
    """A file that a pattern matches: its path below the scan folders, its absolute path, and the digest of its bytes (hex)."""

    path: str
    full_path: str
    digest: str


class PlatformInfo(Struct, frozen=True):
    """A platform and its tags (tags in lower case)."""

    id: str
    tags: tuple[str, ...] = ()


class SourceDependency(Struct):
    """Declares that the jobs of a source depend on another source.

    The bytes of the other source are part of the fingerprints of the jobs. If the other source changes, the analysis is repeated.
    If `uuid` is set, `path` is ignored. The file need not exist yet.
    """

    path: str = ""
    kind: SourceDependencyKind = SourceDependencyKind.ABSOLUTE
    uuid: UUID | None = None


class JobDependency(Struct):
    """Declares that a job depends on the job with `job_key` of `source` on `platform`.

    `platform` must be the platform of the job itself, or `common`. If `uuid` is set, `source` is ignored. `*` in `source` stands
    for any text, also `/`: the dependency is on the jobs of all matching sources, also of sources that are added later.
    """

    source: str
    job_key: str
    platform: str
    kind: DependencyKind = DependencyKind.ORDER
    sub_ids: tuple[int, ...] = ()
    uuid: UUID | None = None


class JobDescriptor(Struct):
    """One job that a source needs.

    `job_key` is its name, at most 4,096 characters. If the text `additional_fingerprint` changes, the job runs again. `params` are
    passed to `process_job`, and are part of the fingerprint, too. Jobs with a higher `priority` run first.
    """

    job_key: str
    platform: str
    priority: int = 0
    is_critical: bool = False
    additional_fingerprint: str = ""
    params: dict[str, str] = field(default_factory=dict)
    job_dependencies: list[JobDependency] = field(default_factory=list)


class CreateJobsResponse(Struct):
    """Result of `create_jobs`. With `result` FAILED, `error` says why in one line."""

    result: Result = Result.FAILED
    jobs: list[JobDescriptor] = field(default_factory=list)
    source_dependencies: list[SourceDependency] = field(default_factory=list)
    error: str = ""


class LoadBehavior(IntEnum):
    """The time when the runtime loads a dependency of a product: before the product is ready, right after the product or on demand.

    The low bits of a dependency's flags contain this value.
    """

    PRE_LOAD = 0
    QUEUE_LOAD = 1
    NO_LOAD = 2


class PathDependencyKind(IntEnum):
    """Kind of the path of a `PathDependency`: a source (it stands for all its products), or a product without its platform."""

    SOURCE_FILE = 0
    PRODUCT_FILE = 1


class ProductDependency(Struct):
    """Declares that a product needs another product at run time, by asset id.

    An asset id is the UUID of the other product's source, and its sub id. If the other product changes, no job runs again; the
    other product need not exist. In place of a `LoadBehavior`, `load` may be an integer with flags (at most 63 bits).
    """

    source_uuid: UUID
    sub_id: int = 0
    load: LoadBehavior | int = LoadBehavior.NO_LOAD


class PathDependency(Struct):
    """Declares that a product needs other products at run time, by a path.

    If these products change, no job runs again; the path need not exist yet.

    `path` is relative to the scan folders (the path of a source may be absolute, too), or to the folder of the product's own
    platform; case is ignored. In `path`, `*` stands for any text, also `/`. A path that begins with `!` is an exception:
    products at this path do not match the paths with `*` that the same product declares. A PRODUCT_FILE with the extension of an
    image (`.png`, `.tif` ...) counts as a SOURCE_FILE, because builders name images by their sources. `load` is as in
    `ProductDependency`.
    """

    path: str
    kind: PathDependencyKind = PathDependencyKind.SOURCE_FILE
    load: LoadBehavior | int = LoadBehavior.NO_LOAD


class JobProduct(Struct):
    """A product of a job.

    `path` is relative to `request.products_dir`, or absolute. A file below `products_dir` is moved into the cache; any other file
    is copied. Only the file name of `path` is part of the product's name: `<platform>/<folder of the source>/<file name>`, in lower
    case. `sub_id` identifies the product among the products of its source; it must be unique there, and must not change. The
    default is 0 for the only product of a job, otherwise the CRC-32 of the file name. `legacy_sub_ids` are the sub ids of the
    product in earlier versions of the builder.

    `dependencies` and `path_dependencies` are the products that the product needs at run time. `dependencies_handled` declares that
    both lists are complete. A job that declares dependencies but never sets this for any product gets a warning.

    `folder` is only for intermediate products: a folder, relative to the scan folders, that replaces the folder of the source.

    `facts` are {name: number or text}, and are used only by filters and checks. Filters support `width` and `height` in pixels,
    `format` (in lower case), `seconds`, `triangles` and `rate` (samples per second). A name consists of lower-case letters, digits
    and _.
    """

    path: str
    sub_id: int | None = None
    asset_type: UUID = UUID(int=0)
    flags: int = ProductFlag.PRODUCT
    dependencies: list[ProductDependency] = field(default_factory=list)
    path_dependencies: list[PathDependency] = field(default_factory=list)
    dependencies_handled: bool = False
    legacy_sub_ids: tuple[int, ...] = ()
    folder: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class ProcessJobResponse(Struct):
    """Result of `process_job`.

    `dependencies` are files that the job read and that `create_jobs` did not declare (absolute, or relative to their scan folder).
    """

    result: Result = Result.FAILED
    products: list[JobProduct] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    sources_to_reprocess: list[str] = field(default_factory=list)
    keep_temp: bool = False
    error: str = ""


class JobLog:
    """The log of one run. The keyword arguments of each method are shown as context with the line.

    Args:
        write: receives (severity 0 debug … 3 error, text, context).
    """

    def __init__(self, write: Callable[[int, str, tuple[tuple[str, str], ...]], None]) -> None:
        self._write = write

    def debug(self, text: str, **context: object) -> None:
        """Log a message for developers only."""
        self._write(0, text, _pairs(context))

    def info(self, text: str, **context: object) -> None:
        """Log a message for users."""
        self._write(1, text, _pairs(context))

    def warning(self, text: str, **context: object) -> None:
        """Log a warning; the job counts it."""
        self._write(2, text, _pairs(context))

    def error(self, text: str, **context: object) -> None:
        """Log an error; the job counts it, but does not fail because of it."""
        self._write(3, text, _pairs(context))


def _pairs(context: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(value)) for key, value in context.items())


class _KeywordFields(Struct, kw_only=True):
    """Optional fields of `_Request`. They are in a base class of their own, so that subclasses may add required fields."""

    scan_folders: tuple[str, ...] = ()
    fallback_folders: tuple[str, ...] = ()
    params_schema: Any = None
    find_matches: Callable[[str], Sequence[MatchedFile] | None] = lambda _pattern: None


class _Request(_KeywordFields):
    """Fields that `CreateJobsRequest` and `ProcessJobRequest` share.

    `builder_name` is the name of the configured builder. `scan_folder` is absolute; `source` is relative to it, in its real case.
    `scan_folders` has the absolute paths of all scan folders of the project. In the second and later steps of `steps:`,
    `scan_folder` is the folder with the products of the previous step, and `read_named` also searches `fallback_folders`.
    `params_schema` is the schema of the builder's class. `find_matches` returns the files that a pattern matches, None if no
    earlier analysis declared the pattern.
    """

    builder_name: str
    scan_folder: str
    source: str
    source_uuid: UUID

    @property
    def full_path(self) -> str:
        """Absolute path of the source."""
        return os.path.join(self.scan_folder, self.source)

    @property
    def stem(self) -> str:
        """File name of the source without its last extension."""
        return os.path.splitext(os.path.basename(self.source))[0]

    def read_named(self, path: str, *, named_by: str = "", most_bytes: int = MOST_BYTES) -> bytes:
        """Return the bytes of a file that is named in the content of a source; refuse files outside the project's scan folders.

        Args:
            path: the name in the content, as `placed_name` returns it: relative to `scan_folder`, or absolute.
            named_by: the file that names it, for messages; the source by default.
            most_bytes: a larger file is refused.

        Raises:
            ForbiddenNameError: the file is outside the scan folders, is not a regular file, or is too large: the job should fail.
            NamedFileError: the file is missing or cannot be read.
        """
        folder = self.scan_folder
        if self.fallback_folders:
            places = (folder, *self.fallback_folders)
            folder = next((place for place in places if os.path.exists(os.path.join(place, path))), folder)
        return read_named(folder, path, self.scan_folders, named_by=named_by or self.source, most_bytes=most_bytes)


class CreateJobsRequest(_Request):
    """Argument of `create_jobs`. Use `builder_name` as job key, unless a source has several jobs.

    `params` are the builder's parameters for all platforms; `platform_params` is {platform id: parameters that differ on this
    platform}. Both include the changes of the `.aptui.yaml` files above the source. `source_dependencies` are the dependencies that
    `depends_on` and `matching` declared; the worker adds them to the response. A builder sets `is_same_for_all_sources` if its
    answer depends only on the platforms and parameters; see the function `same_for_all_sources`.
    """

    platforms: tuple[PlatformInfo, ...]
    params: Mapping[str, Any]
    platform_params: Mapping[str, Mapping[str, Any]]
    log: JobLog
    source_dependencies: list[SourceDependency] = field(default_factory=list)
    unknown_patterns: list[str] = field(default_factory=list)
    """Patterns that the builder requested and that no earlier analysis declared.

    The engine repeats this analysis with the files that match the patterns.
    """
    is_same_for_all_sources: bool = False

    def params_for(self, platform: str) -> dict[str, Any]:
        """Return the configured parameters of the builder for `platform`, without the defaults of the schema."""
        return {**self.params, **self.platform_params.get(platform, {})}

    def options_for(self, platform: str) -> Any:
        """Return the builder's parameters for `platform` with their defaults, as `ProcessJobRequest.options` does.

        Raises:
            ParamError: a parameter is unknown or has a wrong value.
        """
        return read_options(self.params_schema, self.params_for(platform))

    def read_source(self) -> bytes:
        """Return the bytes of the source."""
        with open(self.full_path, "rb") as file:
            return file.read()

    def depends_on(self, path: str) -> None:
        """Declare that the jobs depend on a file, which may be missing: relative to the scan folders, or absolute."""
        self.source_dependencies.append(SourceDependency(path))

    def matching(self, pattern: str) -> list[MatchedFile]:
        """Declare a dependency on all files that match `pattern`, and return them, sorted by path.

        The pattern is relative to the scan folders: `*` is any text, also across `/`; `**/` any folders; `?` one character. The
        rules of the engine decide which files count: order of scan folders, hidden files, case, `ignore`. A plain path is a
        pattern, too.

        The engine does not know a new pattern yet. Then the list is empty, the result of `create_jobs` is dropped, and
        `create_jobs` is called again with the files.
        """
        kind = SourceDependencyKind.WILDCARD if "*" in pattern or "?" in pattern else SourceDependencyKind.ABSOLUTE
        self.source_dependencies.append(SourceDependency(pattern, kind))
        found = self.find_matches(pattern)
        if found is None:
            self.unknown_patterns.append(pattern)
        return list(found or ())


class ProcessJobRequest(_Request):
    """Argument of `process_job`.

    `products_dir` is an empty folder of this run; `temp_dir` is another empty folder, for all other files.

    `params` are the builder's parameters for `platform`; `job_params` those of the job descriptor. `quality` is "final", or "draft"
    if the configuration has `quality: [draft, final]` for the builder: a fast first version, which a run with quality
    "final" replaces later.

    `threads` is the maximum number of threads for the run; if each run uses that many, all workers together use each core once.

    `progress(fraction)` reports the progress of the run (0 … 1); the screen, `aptui jobs` and the gateway show it.

    `products` are those that `write_product` and `add_product` recorded, and `dependencies` the files that the run read and that
    `create_jobs` did not declare (absolute, or relative to their scan folder): `SimpleBuilder` returns both.
    """

    platform: PlatformInfo
    job_key: str
    params: Mapping[str, Any]
    job_params: Mapping[str, str]
    additional_fingerprint: str
    products_dir: str
    temp_dir: str
    log: JobLog
    debug_output: bool = False
    read_digest: str = ""
    quality: str = "final"
    threads: int = 1
    progress: Callable[[float], None] = lambda _fraction: None
    products: list[JobProduct] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)

    @property
    def options(self) -> Any:
        """The builder's parameters with their defaults: a record if `params_schema` is a record type, otherwise a dict.

        Raises:
            ParamError: a parameter is unknown or has a wrong value.
        """
        return read_options(self.params_schema, self.params)

    def read_source(self) -> bytes:
        """Return the bytes of the source, and record their digest, so that the engine can check which bytes the run has used."""
        with open(self.full_path, "rb") as file:
            data = file.read()
        self.read_digest = hashlib.sha256(data).hexdigest()
        return data

    def matching(self, pattern: str) -> list[MatchedFile]:
        """Return the files that matched `pattern` when `create_jobs` planned the job, sorted by path.

        Raises:
            JobError: `create_jobs` did not declare the pattern.
        """
        found = self.find_matches(pattern)
        if found is None:
            raise JobError(
                f"create_jobs did not declare the pattern '{pattern}'; call request.matching('{pattern}') in create_jobs, too"
            )
        return list(found)

    def product_path(self, name: str) -> str:
        """Return the absolute path for a product named `name` in `products_dir`.

        Raises:
            JobError: a part of the name is longer than file systems allow.
        """
        size = max(len(os.fsencode(part)) for part in name.split("/"))
        if size > _LONGEST_NAME_BYTES:
            raise JobError(
                f"the name of the product is too long: {size} bytes, but at most {_LONGEST_NAME_BYTES} are allowed: '{name}'"
            )
        return os.path.join(self.products_dir, name)

    def add_product(self, name: str, **fields: Any) -> JobProduct:
        """Record a product that is, or will be, at `product_path(name)`; `fields` are other fields of `JobProduct`."""
        self.products.append(JobProduct(name, **fields))
        return self.products[-1]

    def write_product(self, name: str, data: bytes | str, **fields: Any) -> JobProduct:
        """Write a product and record it; text is encoded as UTF-8; `fields` are other fields of `JobProduct`."""
        with open(self.product_path(name), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        return self.add_product(name, **fields)

    def run_program(self, arguments: Sequence[str], folder: str = "", **limits: int) -> ProgramResult:
        """Run a program until it ends; the job's log gets the output of the program, line by line.

        Args:
            arguments: the program, by name (found in PATH) or absolute path, and its arguments.
            folder: the folder in which the program runs, `temp_dir` by default.
            limits: as in `aptui.sdk.run_program`.

        Raises:
            JobError: the program is missing, reached a limit, or ended with another status than 0.
        """
        from aptui.sdk.programs import run_logged

        return run_logged(arguments, folder or self.temp_dir, self.log, **limits)


@runtime_checkable
class Builder(Protocol):
    """Interface of a builder: a class without constructor arguments that has the methods `create_jobs` and `process_job`.

    Class attributes:
        name: the unique name of the builder.
        version: text; if it changes, all jobs of the builder run again.
        patterns: globs on the relative path.
        analysis_fingerprint: optional text; if it changes, the analysis of all sources of the builder is repeated. It is required
            if its jobs have an `additional_fingerprint`: the analysis computes the additional fingerprint, so the engine must know
            when to repeat the analysis.
        params_schema: optional; the form of its parameters, which are checked before anything runs: a record type of msgspec with
            types, defaults and `Annotated` bounds, or a JSON Schema.
        requires: optional; Python packages that it imports: `("etcpak>=0.9",)`. Their versions are part of the fingerprints of its
            jobs. If a package is missing, its jobs fail, and their error has the command line that installs the package.
        tools: optional; programs that it starts: `("gltfpack",)`. Their bytes are part of the fingerprints of its jobs. If a
            program is not in the PATH, its jobs fail, and their error names the program.
        flags: optional; a set of "delete_products_on_failure" and "reads_debug_output" (its products differ with debug output).

    An optional method `shutdown()` is called before its process ends.

    A parameter that names a program, a command, an environment variable, or a place outside the project has `is_trusted_only` in
    the schema (`Meta(extra_json_schema={"is_trusted_only": True})` in a record): only the project's `aptui.yaml` may set it,
    never an `.aptui.yaml` in a folder of assets. A parameter that only `create_jobs` reads has `is_planning_only`; `process_job`
    does not get it. When only parameters of this kind change, a job runs again only if its plan is new or differs.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    patterns: ClassVar[tuple[str, ...]]

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return the jobs that `request.source` needs; must be fast and deterministic."""

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Do one job and return its products; must be deterministic: equal inputs give products with equal bytes."""


class SimpleBuilder:
    """Base class of a builder with one job per platform: override `build`, and `analyse` if the jobs depend on other files.

    Its attributes are those of `Builder`.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ()
    params_schema: ClassVar[Any] = None

    def analyse(self, request: CreateJobsRequest) -> None:
        """Declare the files that the jobs depend on, with `request.depends_on` and `request.matching`."""

    def build(self, request: ProcessJobRequest) -> None:
        """Do one job; record its products with `request.write_product` or `request.add_product`; raise `JobError` to fail."""
        raise NotImplementedError

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform, with the builder's configured name as job key."""
        for platform in request.platforms:
            request.options_for(platform.id)
        self.analyse(request)
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor(request.builder_name, each.id) for each in request.platforms])

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Call `build` and return the products that it recorded."""
        self.build(request)
        return ProcessJobResponse(Result.SUCCESS, request.products, request.dependencies)


_same_for_all_sources: set[object] = set()
_Method = TypeVar("_Method", bound=Callable[..., CreateJobsResponse])


def same_for_all_sources(create_jobs: _Method) -> _Method:
    """Decorate a `create_jobs` whose answer depends only on the platforms and parameters of the request, not on its source.

    The engine calls it for one source, and uses the answer for all sources with the same platforms and parameters. A subclass that
    overrides the method is called for every source again, unless the override is decorated, too.
    """
    _same_for_all_sources.add(create_jobs)
    return create_jobs


def is_same_for_all_sources(builder: Any) -> bool:
    """Whether `create_jobs` of this builder returns the same answer for all sources.

    This is so if `create_jobs` is decorated with `same_for_all_sources`, or if the builder inherits both `create_jobs` and
    `analyse` from `SimpleBuilder`.
    """
    method = getattr(builder.create_jobs, "__func__", None)
    if method is SimpleBuilder.create_jobs:
        return getattr(builder.analyse, "__func__", None) is SimpleBuilder.analyse
    return method in _same_for_all_sources


def canonical_json(value: object) -> str:
    """Return `value` as JSON with sorted keys and no blanks, the form in which parameters enter fingerprints."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

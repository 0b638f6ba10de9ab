"""Calls of builders: `analyse` and `process`.

The calls run in a worker process, or in the process of `aptui rerun`, but never in the engine.

Every failure becomes a result: an exception, a missing product, a process left running. Only a builder that kills this process
leaves no result.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Struct

from aptui.core.fingerprint import planning_params
from aptui.core.model import EdgeKind, JobPlan, SourceEdge
from aptui.core.notices import LogLevel
from aptui.core.orders import AnalyseOrder, AnalyseResult, Outcome, ProcessOrder, Read, RunResult, StagedProduct
from aptui.core.paths import as_text, normalize, os_path, to_text
from aptui.core.patterns import WILDCARDS, wildcard
from aptui.core.project import COMMON_PLATFORM, Builder, BuilderKind, Platform, UndeclaredReads
from aptui.core.retry import EXIT, FailureKind
from aptui.core.run_report import Used, UsedFile
from aptui.core.settings import merge_params
from aptui.sdk import (
    Cancelled,
    CreateJobsRequest,
    CreateJobsResponse,
    JobError,
    JobProduct,
    MatchedFile,
    NamedFileError,
    ParamError,
    PlatformInfo,
    ProcessJobRequest,
    ProcessJobResponse,
    ProductFlag,
    Result,
    is_same_for_all_sources,
)
from aptui.shared.files import clocks, lfs
from aptui.worker import builder_import, file_access, reads
from aptui.worker.answers import AnswerRefused, edges_of, plans_and_edges
from aptui.worker.commands.batch import group_key
from aptui.worker.commands.command_job import BatchSharing, run_command, values_of
from aptui.worker.log import ADDRESS_BYTES, RunLog, first_line, noting_warnings, valid_text
from aptui.worker.outputs.declared_dependencies import add_references, with_links
from aptui.worker.outputs.products import StagingFolders, discard, remove_tree, stage_products
from aptui.worker.processes import end_children

if TYPE_CHECKING:
    import traceback

# The steps of a run. Each step ends with a `RunEnding`, even after an exception, `sys.exit`, or if a process was left running.


class Stale(Exception):
    """The source, or the files at `paths`, changed since the run began."""

    def __init__(self, text: str, *paths: str) -> None:
        super().__init__(text)
        self.paths = tuple(as_text(path) for path in paths)


class RunEnding(Struct):
    """How a step of a run ended.

    `error` is one line for users, `kind` is a `FailureKind`, `changed` has the paths of changed files that made the run stale.
    """

    outcome: Outcome
    error: str = ""
    kind: str = ""
    changed: tuple[str, ...] = ()


_WITHOUT_REASON = "builder reported failure"
"""The error of a run whose builder failed without a text."""


def guard(log: RunLog, step: Callable[[], None]) -> RunEnding:
    """Run a step and return how it ended; kill child processes that still run."""
    pid = os.getpid()
    try:
        ending = _attempt(log, step)
    finally:
        if os.getpid() != pid:
            os._exit(1)  # the builder forked this process: only the parent may answer
    left = end_children()
    if left:
        names = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        return failure(log, f"builder left a process running, which was killed: {names}")
    return ending


def _attempt(log: RunLog, step: Callable[[], None]) -> RunEnding:
    try:
        step()
    except AnswerRefused as error:
        return failure(log, str(error), kind=error.kind)
    except Stale as error:
        return RunEnding(Outcome.STALE, str(error), changed=error.paths)
    except Cancelled:
        return RunEnding(Outcome.CANCELLED, "cancelled")
    except (JobError, NamedFileError, ParamError) as error:
        return failure(log, str(error), kind=FailureKind.ERROR)
    except SystemExit as error:
        return failure(log, f"builder called sys.exit({error.code!r})", kind=FailureKind.ERROR)
    except MemoryError as error:
        text = f": {error}" if str(error) else ""
        return failure(log, f"out of memory{text}{_memory_limit()}", kind=FailureKind.MEMORY)
    except (Terminated, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - a builder may raise anything (native code: panics), and its failure is a result
        return failure(log, *describe_error(error), kind=FailureKind.ERROR)
    return RunEnding(Outcome.SUCCEEDED)


def failure(log: RunLog, text: str, trace: Iterable[str] = (), *, kind: str = "") -> RunEnding:
    """Return the ending of a failed run. Also log the reason, unless the first logged error has the same text.

    `trace` has the lines of a traceback.
    """
    text = first_line(valid_text(text)) or _WITHOUT_REASON
    is_silent = kind.startswith(EXIT) and not log.records()
    if not (log.first_error and text == log.first_error):
        log.write(LogLevel.ERROR, text)
    if kind != FailureKind.MEMORY:
        # called before the traceback is logged, because paths in the traceback would look like errors of the sandbox
        log.note_sandbox(is_silent=is_silent)
    for line in trace:
        log.write(LogLevel.INFO, line)
    return RunEnding(Outcome.FAILED, text, kind)


def check_result(result: object, error: object, log: RunLog) -> None:
    """Raise if a builder reported that it did not succeed.

    Raises:
        Cancelled: the builder reported that it was cancelled.
        AnswerRefused: the builder reported a failure.
    """
    if result == Result.SUCCESS:
        return
    if result == Result.CANCELLED:
        raise Cancelled
    raise AnswerRefused(str(error) if error else log.first_error or _WITHOUT_REASON)


def _fail_over_pointer(log: RunLog, ending: RunEnding, path: str) -> RunEnding:
    """Return the failure of a step that read the Git LFS pointer at `path`; the error of the step, if any, stays."""
    absent = f"{path!r} is {lfs.NOT_HERE}"
    text = f"{ending.error}; {absent}" if ending.error and lfs.NOT_HERE not in ending.error else ending.error or absent
    return failure(log, text, kind=FailureKind.OBSTACLE)


def describe_error(error: BaseException) -> tuple[str, list[str]]:
    """Return an exception in one line, with the place in the builder's code, and the lines of its traceback.

    The traceback shows only frames of the builder's code.
    """
    import traceback  # imported here, because only failed runs need it

    try:
        text = first_line(str(error))
    except Exception:  # noqa: BLE001 - an exception of a builder may fail to describe itself
        text = ""
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    text = "".join(f"{note}: " for note in getattr(error, "__notes__", ()) if note.startswith("step ")) + text
    shown = traceback.TracebackException.from_exception(error)
    _cut_traceback(shown)
    own = [frame for frame in shown.stack if reads.is_code_of_builder(frame.filename)]
    place = f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""
    return f"{text}{place}", [line for part in shown.format() for line in part.splitlines()]


def _cut_traceback(shown: traceback.TracebackException) -> None:
    """Remove the frames of aptui from the tracebacks of an exception and of its causes, unless no other frames are left."""
    frames = [frame for frame in shown.stack if not reads.is_code_of_aptui(frame.filename)]
    shown.stack[:] = frames or shown.stack
    for other in (shown.__cause__, shown.__context__):
        if other is not None:
            _cut_traceback(other)


def _memory_limit() -> str:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if limit == resource.RLIM_INFINITY else f" (limit {(limit - ADDRESS_BYTES) >> 20} MiB)"


Load = Callable[[Builder], Any]
"""Function that returns the instance of a builder's class; the first call imports the builder's code."""


def start_together(orders: Iterable[ProcessOrder], builder: Builder, sharing: BatchSharing) -> None:
    """Start one command for the sources of the first order and of all orders that differ from it only in their sources."""
    first, *others = orders
    group = [first, *(order for order in others if group_key(order) == group_key(first))]
    params, platform_params = merge_params(builder, first.settings)
    all_params = {**params, **platform_params.get(first.platform, {}), **_json(first.params)}
    values = values_of(first.rel, first.platform, ("", ""), first.rel, all_params)
    with suppress(OSError):  # on an error, each order starts the command itself and reports its own error
        sharing.starts.start(group, builder, values | {"quality": first.quality}, sharing.environment(builder.name))


class Terminated(BaseException):
    """SIGTERM arrived. It is a BaseException, so that no `except Exception` of a builder catches it."""


# ----------------------------------------------------------------------------------------------------------------- analysis


def analyse(
    order: AnalyseOrder, builder: Builder, platforms: Mapping[str, Platform], load: Load, log: RunLog | None = None
) -> AnalyseResult:
    """Ask a builder which jobs a source needs; `log` receives its records."""
    started_ns, began_ns = time.perf_counter_ns(), time.time_ns()
    log = log or RunLog(builder.name)
    root = os_path(order.root)
    params, platform_params = merge_params(builder, order.settings)
    asked = (COMMON_PLATFORM,) if builder.makes_intermediates and order.platforms else order.platforms
    request = CreateJobsRequest(
        builder_name=builder.name,
        scan_folder=root,
        source=os_path(order.rel),
        source_uuid=UUID(bytes=order.source_uuid) if order.source_uuid else UUID(int=0),
        platforms=tuple(_platform_info(name, platforms) for name in asked),
        params=params,
        platform_params=platform_params,
        log=log.for_builder(),
        scan_folders=reads.scan_folders(),
        find_matches=lambda pattern: find_matches(order, pattern),
    )
    answers: list[CreateJobsResponse] = []
    code = builder_import.code_of(builder)
    seen = reads.Reads(request.full_path)
    is_pointer = os.path.isfile(request.full_path) and file_access.is_pointer(request.full_path, os.path.getsize(request.full_path))
    seen_or_none = seen if is_pointer or _records_reads(builder) else None
    ending = guard(log, lambda: answers.append(_create_jobs(load(builder), request, log, seen_or_none)))
    edges: list[SourceEdge] = []
    if request.unknown_patterns and ending.outcome in (Outcome.SUCCEEDED, Outcome.FAILED):
        ending = _attempt(log, lambda: edges.extend(edges_of(request.source_dependencies)))
        if ending.outcome is Outcome.SUCCEEDED:
            return AnalyseResult(order.run_key, Outcome.SUCCEEDED, edges=tuple(edges), log=log.records(), is_unfinished=True)
    if is_pointer and seen.is_source_read:  # the builder read a Git LFS pointer in place of the file, so its answer is not used
        ending = failure(log, lfs.NOT_HERE, kind=FailureKind.OBSTACLE)
    plans: list[JobPlan] = []
    if ending.outcome is Outcome.SUCCEEDED:

        def read_answer() -> None:
            found_plans, found_edges = plans_and_edges(answers[0], order, builder)
            plans.extend(found_plans)
            edges.extend(found_edges)

        ending = _attempt(log, read_answer)
        if ending.outcome is Outcome.SUCCEEDED and (absent := seen.pointer()):
            ending = _fail_over_pointer(log, ending, absent)
        elif ending.outcome is Outcome.SUCCEEDED and (outside_read := seen.find_outside_read()):
            ending = failure(log, outside_read)
    elif ending.outcome is Outcome.FAILED and (absent := seen.pointer()):
        ending = _fail_over_pointer(log, ending, absent)
    duration_ms = (time.perf_counter_ns() - started_ns) // 1_000_000
    is_done = ending.outcome is Outcome.SUCCEEDED
    found = _find_reads(seen, builder) if ending.outcome in (Outcome.SUCCEEDED, Outcome.FAILED) else ()
    try:
        found = (*found, *_find_ignored(edges, root, found)) if is_done else found
    except Stale as error:
        used = Used(code(), began_ns, seen.list_used(), changed=error.paths)
        return AnalyseResult(order.run_key, Outcome.STALE, "a file changed while it was analysed", used=used)
    found = tuple(read for read in found if is_done or read.is_hidden)  # a failed analysis may have declared only some reads
    used = Used(code(), began_ns, seen.list_used(), changed=seen.find_changed())
    if used.changed and ending.outcome in (Outcome.SUCCEEDED, Outcome.FAILED):
        return AnalyseResult(order.run_key, Outcome.STALE, "a file changed while it was analysed", used=used)
    is_for_all = is_done and (request.is_same_for_all_sources or is_same_for_all_sources(load(builder)))
    is_for_all = is_for_all and not (seen.is_source_read or used.files or found)
    return AnalyseResult(
        order.run_key, ending.outcome, ending.error, tuple(plans), tuple(edges), log.records(), duration_ms, found, used,
        ending.kind, is_for_all_sources=is_for_all,
    )  # fmt: skip


def _find_ignored(edges: Iterable[SourceEdge], root: str, found: Iterable[Read]) -> Iterator[Read]:
    """Yield the declared dependencies on ignored files. They become reads of the run, because ignored files are not sources."""
    known = {read.path for read in found}
    for edge in edges:
        if edge.kind is not EdgeKind.UUID and not WILDCARDS.intersection(edge.target):
            rel = os_path(edge.target)
            for folder in (root, *reads.scan_folders()):
                rel = rel.removeprefix(f"{folder}/")
            for path in reads.find_ignored(rel, root):
                if (text := as_text(path)) not in known:
                    yield Read(text, "declared", _dependency_digest(path), is_hidden=True)


def _create_jobs(instance: Any, request: CreateJobsRequest, log: RunLog, seen: reads.Reads | None) -> CreateJobsResponse:
    request.params_schema = getattr(instance, "params_schema", None)
    with reads.listening(seen), noting_warnings(log):
        response = instance.create_jobs(request)
    if not isinstance(response, CreateJobsResponse):
        raise AnswerRefused(f"create_jobs returned {type(response).__name__}, not a CreateJobsResponse")
    check_result(response.result, response.error, log)
    if request.source_dependencies is not response.source_dependencies:
        response.source_dependencies = [*response.source_dependencies, *request.source_dependencies]
    return response


# --------------------------------------------------------------------------------------------------------------- processing


def process(
    order: ProcessOrder,
    builder: Builder,
    platforms: Mapping[str, Platform],
    load: Load,
    sharing: BatchSharing | None = None,
    log: RunLog | None = None,
    threads: int = 1,
) -> RunResult:
    """Perform one job: call the builder, check and hash its products.

    Args:
        sharing: state that several runs share; None = the run uses separate folders.
        threads: maximum number of threads of a Python builder.
    """
    started_ns, began_ns = time.perf_counter_ns(), time.time_ns()
    code = builder_import.code_of(builder)
    log = log or RunLog(builder.name)
    run = _BuilderRun(order, builder, platforms, load, log, sharing, threads)
    ending = guard(log, run.enter)
    try:
        if ending.outcome is Outcome.SUCCEEDED:
            ending = guard(log, run.call)
        if ending.outcome is Outcome.SUCCEEDED:
            ending = guard(log, run.finish)
        run.note_reads(ending.outcome)
        ending = run.check_ending(ending)
    finally:
        run.leave(ending.outcome)
    is_done = ending.outcome is Outcome.SUCCEEDED
    return RunResult(
        run_key=order.run_key,
        outcome=ending.outcome,
        error=ending.error,
        products=run.products if is_done else (),
        source_digest=run.read_digest or order.source_digest,
        discovered=run.discovered,
        log=log.records(),
        warnings=log.warnings,
        errors=log.errors,
        duration_ms=(time.perf_counter_ns() - started_ns) // 1_000_000 + run.share_ms,
        peak_rss_bytes=run.peak_rss_bytes,
        command_line=valid_text(run.command_line),
        reprocess=run.reprocess if is_done else (),
        reads=run.reads,
        probed=run.probed if len(run.probed) <= reads.MOST_PROBED else (),
        is_private=len(run.probed) > reads.MOST_PROBED,
        used=Used(code(), began_ns, run.used_files, run.found, run.changed),
        kind=ending.kind,
    )


class _BuilderRun:
    """State of a run during its steps: enter, call, finish, leave."""

    def __init__(
        self,
        order: ProcessOrder,
        builder: Builder,
        platforms: Mapping[str, Platform],
        load: Load,
        log: RunLog,
        sharing: BatchSharing | None,
        threads: int,
    ) -> None:
        self.order, self.builder, self.load, self.log, self.sharing = order, builder, load, log, sharing
        self.threads = threads
        self.platform = _platform_info(order.platform, platforms)
        self.keeps_temp = order.keeps_temp
        self.staging = os_path(order.staging)
        reusable = sharing.folders.for_run(self.staging, order.run_key) if sharing and not self.keeps_all else None
        self.reused = sharing.folders if sharing and reusable else None
        self.folders = reusable or StagingFolders(self.staging)
        self.root = os_path(order.root)
        self.source = os.path.join(self.root, os_path(order.rel))
        self.products: tuple[StagedProduct, ...] = ()
        self.discovered: tuple[tuple[str, str], ...] = ()
        self.reprocess: tuple[str, ...] = ()
        self.reads: tuple[Read, ...] = ()
        self.probed: tuple[tuple[str, str], ...] = ()
        self.used_files: tuple[UsedFile, ...] = ()
        self.found: tuple[UsedFile, ...] = ()
        self.changed: tuple[str, ...] = ()
        self.read_digest = b""
        self.command_line = ""
        self.peak_rss_bytes = self.share_ms = 0
        self._made: list[Any] = []
        self._found: list[str] = []
        self._seen = reads.Reads(self.source, self.folders.staging)
        self._environment = ""

    @property
    def keeps_all(self) -> bool:
        """Whether the run keeps its temporary files, so that the user can inspect them."""
        return self.keeps_temp or self.order.debug_output

    def enter(self) -> None:
        if self.reused is not None:
            self.reused.prepare(self.folders)
        else:
            self.folders.make()
        os.chdir(self.folders.temp)
        if self.builder.kind is BuilderKind.PYTHON:
            self._environment = os.environ.get("TMPDIR", "")
            _set_temp(self.folders.temp)
        self._check_source()
        if file_access.is_pointer(self.source, self.order.expected[0]):
            raise AnswerRefused(lfs.NOT_HERE, FailureKind.OBSTACLE)

    def call(self) -> None:
        if self.builder.kind is BuilderKind.COMMAND:
            self._call_command()
        elif self.builder.kind is BuilderKind.COPY:
            self._copy()
        else:
            self._call_python()

    def finish(self) -> None:
        """Check and hash the products; then check once more that the source did not change."""
        staged = stage_products(self._made, self.folders, self.order)
        add_references(self.builder, staged, self._made, self.order, self.source, self.log)
        self.products = with_links(staged, self._made, self.order, self.log)
        self.discovered = self._hash_dependencies()
        self._check_source()

    def note_reads(self, outcome: Outcome) -> None:
        """Report the files that the run read.

        A failed run may have stopped before it declared all its reads, so only reads that need no declaration are reported.
        """
        if outcome in (Outcome.SUCCEEDED, Outcome.FAILED):
            adds = self.builder.undeclared_reads is UndeclaredReads.ADD
            found = _find_reads(self._seen, self.builder)
            self.reads = tuple(read for read in found if adds or read.is_hidden or outcome is Outcome.SUCCEEDED)
            self.probed = self._seen.find_probed()

    def check_ending(self, ending: RunEnding) -> RunEnding:
        """Return how the run ended: STALE instead of success or failure if a file that the run read has changed."""
        if not _records_reads(self.builder):
            return ending
        self.used_files, self.changed = self._seen.list_used(), ending.changed
        if ending.outcome in (Outcome.SUCCEEDED, Outcome.FAILED) and (changed := self._seen.find_changed()):
            self.changed = changed
            return RunEnding(Outcome.STALE, f"{changed[0]!r} changed while the job ran")
        if ending.outcome in (Outcome.SUCCEEDED, Outcome.FAILED) and (absent := self._seen.pointer()):
            return _fail_over_pointer(self.log, ending, absent)
        if ending.outcome is Outcome.SUCCEEDED and (outside_read := self._seen.find_outside_read()):
            return failure(self.log, outside_read)
        return ending

    def leave(self, outcome: Outcome) -> None:
        os.chdir("/")
        if self.builder.kind is BuilderKind.PYTHON:
            _set_temp(self._environment)
        if self.reused is not None:
            self.reused.release()
            if outcome is not Outcome.SUCCEEDED:
                discard(self.staging)
        if self.reused is not None or self.keeps_all:
            return
        remove_tree(self.folders.temp if outcome is Outcome.SUCCEEDED else self.folders.staging)

    def _call_command(self) -> None:
        if self.builder.fault:
            raise JobError(self.builder.fault)
        params = {**self._params(), **_json(self.order.params)}
        job = run_command(self.order, self.builder, self.folders, self.source, params, self.log, self._seen, self.sharing)
        self.command_line, self.peak_rss_bytes, self.share_ms = job.command_line, job.peak_rss_bytes, job.share_ms
        if job.error:
            raise AnswerRefused(job.error, job.kind)
        self._made, self._found = job.products, job.dependencies

    def _copy(self) -> None:
        """Copy the source as the product."""
        copy = os.path.join(self.folders.products, os.path.basename(self.source))
        try:
            file_access.copy_into(self.source, copy)
        except file_access.FileChanged as error:
            raise Stale(f"source: {error}") from error
        except OSError as error:
            raise AnswerRefused(f"the source cannot be copied: {file_access.reason(error)}") from error
        self._made = [JobProduct(copy, 0, UUID(bytes=self.builder.asset_type or bytes(16)))]

    def _call_python(self) -> None:
        instance = self.load(self.builder)
        request = ProcessJobRequest(
            builder_name=self.builder.name,
            scan_folder=self.root,
            source=os_path(self.order.rel),
            source_uuid=UUID(bytes=self.order.source_uuid) if self.order.source_uuid else UUID(int=0),
            platform=self.platform,
            job_key=self.order.job_key,
            params=self._params(),
            job_params=_json(self.order.params),
            additional_fingerprint=self.order.additional_fingerprint,
            products_dir=self.folders.products,
            temp_dir=self.folders.temp,
            log=self.log.for_builder(),
            debug_output=self.order.debug_output,
            quality=self.order.quality,
            threads=self.threads,
            progress=self.log.note_progress,
            scan_folders=reads.scan_folders(),
            params_schema=getattr(instance, "params_schema", None),
            find_matches=lambda pattern: find_matches(self.order, pattern),
        )
        peak = _Peak()
        with reads.listening(self._seen), noting_warnings(self.log):
            response = instance.process_job(request)
        self.peak_rss_bytes = peak.read_peak_bytes()
        if not isinstance(response, ProcessJobResponse):
            raise AnswerRefused(f"process_job returned {type(response).__name__}, not a ProcessJobResponse")
        self.keeps_temp = self.keeps_temp or response.keep_temp
        self._made, self._found = response.products, response.dependencies
        for product in self._made if self.builder.makes_intermediates else ():
            product.flags = ProductFlag.INTERMEDIATE
        self.reprocess = tuple(to_text(os.fsencode(path)) for path in response.sources_to_reprocess)
        if request.read_digest:
            self.read_digest = bytes.fromhex(request.read_digest)
        check_result(response.result, response.error, self.log)
        if self.read_digest and self.order.source_digest and self.read_digest != self.order.source_digest:
            raise Stale("the source changed before it was read")

    def _params(self) -> dict[str, Any]:
        params, platform_params = merge_params(self.builder, self.order.settings)
        found = {**params, **platform_params.get(self.order.platform, {})}
        return {name: value for name, value in found.items() if name not in planning_params(self.builder)}

    def _check_source(self) -> None:
        try:
            found = os.stat(self.source)
            is_changed = file_access.stat_key(found) != tuple(self.order.expected)
            is_blind = clocks.is_coarse(found.st_ctime_ns) and not clocks.is_settled(file_access.stat_key(found), time.time_ns())
            if self.order.source_digest and is_blind:  # file times are too coarse to show every change, so the digest is compared
                is_changed = is_changed or file_access.hash_file(self.source, sees_through=True)[0][0] != self.order.source_digest
        except (OSError, file_access.FileChanged) as error:
            raise Stale(f"the source cannot be read: {getattr(error, 'strerror', error)}") from error
        if is_changed:
            raise Stale("the source changed while the job ran")

    def _hash_dependencies(self) -> tuple[tuple[str, str], ...]:
        paths = dict.fromkeys(os.path.normpath(os.path.join(self.root, path)) for path in self._found)
        paths.pop(self.source, None)
        wanted = [path for path in paths if not path.startswith(f"{self.folders.staging}/")]
        for path in wanted:
            if os.path.isfile(path) and file_access.is_pointer(path, os.path.getsize(path)):
                raise AnswerRefused(f"dependency {path!r} is {lfs.NOT_HERE}", FailureKind.OBSTACLE)
        names = [as_text(path) for path in wanted]
        before = [reads.stamp_of(path) for path in wanted]
        digests = [_dependency_digest(path) for path in wanted]
        for path, stamp in zip(wanted, before, strict=True):
            if reads.stamp_of(path) != stamp:
                raise Stale(f"the dependency {path!r} changed while the job ran", path)
        self.found = tuple(map(UsedFile, names, before))
        return tuple(zip(names, digests, strict=True))


def _dependency_digest(path: str) -> str:
    """Return the digest of a file in hex, "" if no regular file is at the path."""
    try:
        return file_access.digest_file(path, sees_through=True)
    except file_access.FileChanged:
        if os.path.exists(path) and not os.path.isdir(path):
            raise Stale(f"the dependency {path!r} changed while the job ran", path) from None
        return ""
    except OSError:
        return ""


# --------------------------------------------------------------------------------------------------------- shared functions


class _Peak:
    """Measures the peak memory of this process, or of its ended children, since this object was created."""

    def __init__(self) -> None:
        self._children_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        try:
            with open("/proc/self/clear_refs", "wb", buffering=0) as file:
                file.write(b"5")  # proc_pid_clear_refs(5): otherwise the peak would include all earlier runs of this worker
        except OSError:
            pass

    def read_peak_bytes(self) -> int:
        # `ru_maxrss` is not used, because its value survives exec: a worker would report the peak memory of the engine that started
        # it.
        with open("/proc/self/status", "rb", buffering=0) as file:
            _, _, rest = file.read().partition(b"VmHWM:")
        own_kib = int(rest.split(None, 1)[0]) if rest else 0
        children_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        return max(own_kib, children_kib if children_kib > self._children_kib else 0) * 1024


def _records_reads(builder: Builder) -> bool:
    return builder.undeclared_reads is not UndeclaredReads.IGNORE


def _find_reads(seen: reads.Reads, builder: Builder) -> tuple[Read, ...]:
    try:
        return seen.find_read(_dependency_digest, adds=builder.undeclared_reads is UndeclaredReads.ADD)
    except Stale:
        return ()  # a dependency is changing now; the engine will check it again anyway


def find_matches(order: AnalyseOrder | ProcessOrder, pattern: str) -> list[MatchedFile] | None:
    """Return the planned inputs that match `pattern`. None = the analysis of this run did not declare the pattern."""
    pattern = as_text(normalize(pattern))
    if pattern.lower() not in order.declared:
        return None
    match = wildcard(pattern).fullmatch
    found = [each for each in order.inputs if match(each.rel)]
    return [MatchedFile(os_path(each.rel), os_path(f"{each.root}/{each.rel}"), each.digest) for each in found]


def _platform_info(name: str, platforms: Mapping[str, Platform]) -> PlatformInfo:
    found = platforms.get(name)
    return PlatformInfo(name, found.tags if found else ())


def _json(text: str) -> dict[str, Any]:
    return dict(json.loads(text)) if text not in ("", "{}") else {}


def _set_temp(path: str) -> None:
    if path:
        os.environ["TMPDIR"] = path
    else:
        os.environ.pop("TMPDIR", None)
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        vars(tempfile)["tempdir"] = None  # `tempfile` caches the first folder that it finds

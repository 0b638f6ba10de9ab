"""Adapts builders of O3DE's scripts (`azlmbr.asset.builder`) to the SDK; their code runs only in workers.

A configuration has one record for all these builders. `scripts_builder` makes this record without running the scripts; its field
`environment` names the scripts. `find` runs them in a separate process for the builder registry (`engine.registry`), and returns a
record for each builder. A worker calls `load` to get one of these builders.

Tests: `tests/features/o3de/scripts/test_azlmbr_answers.py`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

from msgspec import to_builtins
from msgspec.structs import replace

from aptui import sdk
from aptui.core.fingerprint import short
from aptui.core.paths import name_uuid
from aptui.core.patterns import wildcard_regex
from aptui.core.project import Builder, Pattern, PatternKind
from aptui.features.o3de.project_facts import DELETES_ON_FAILURE, JobOverride
from aptui.features.o3de.scripts import script_runner
from aptui.features.o3de.scripts.azlmbr.asset import builder as azlmbr
from aptui.features.o3de.scripts.azlmbr.math import crc_of, uuid_of
from aptui.features.o3de.scripts.azlmbr.reflected import Registered, registrations
from aptui.features.o3de.scripts.script_runner import Surroundings

# The functions below apply `BuilderConfig.ini`, which `project.o3de_settings` reads, to builders of scripts and to their jobs.

_ONE_END = re.compile(r"\*[^*?/]+")
"""Recognizes wildcards such as `*.png`, which test only the end of a path.

These wildcards are matched with the relative path, which is faster. Other wildcards are matched with the absolute path.
"""


def override_builder(builder: Builder, around: Surroundings) -> Builder:
    """Return a builder with the overrides of `BuilderConfig.ini` applied.

    Overrides of jobs are part of the analysis fingerprint, because they are applied when sources are analysed.
    """
    if around.job_overrides:
        text = json.dumps({each.name.lower(): to_builtins(each) for each in around.job_overrides}, sort_keys=True)
        builder = replace(builder, analysis_fingerprint=f"{builder.analysis_fingerprint} {short(text.encode())}".strip())
    found = _override_of(builder.name, around.builder_overrides)
    if found is None:
        return builder
    return replace(
        builder,
        version=found.version or builder.version,
        analysis_fingerprint=found.fingerprint or builder.analysis_fingerprint,
        patterns=tuple(map(_pattern, found.patterns)) or builder.patterns,
        deletes_products_on_failure=(
            builder.deletes_products_on_failure if found.flags is None else bool(found.flags & DELETES_ON_FAILURE)
        ),
    )


def override_job(job: sdk.JobDescriptor, overrides: Sequence[JobOverride]) -> sdk.JobDescriptor:
    """Return a job with the overrides of `BuilderConfig.ini` applied."""
    found = _override_of(job.job_key, overrides)
    if found is None:
        return job
    pairs = (text.partition("=") for text in found.params.split(",") if "=" in text)
    return replace(
        job,
        priority=job.priority if found.priority is None else found.priority,
        is_critical=job.is_critical if found.is_critical is None else found.is_critical,
        additional_fingerprint=f"{job.additional_fingerprint} {found.fingerprint}".strip(),
        params={**job.params, **{param_key(name.strip()): value.strip() for name, _, value in pairs}},
    )


def _override_of(name: str, overrides: Sequence[JobOverride]) -> JobOverride | None:
    return next((each for each in reversed(overrides) if each.name.lower() == name.lower()), None)


def param_key(name: object) -> str:
    """Return the key of a script's job parameter in the SDK: the checksum of the parameter's name."""
    return f"0x{crc_of(name):08x}"


def pattern_of(text: str, *, is_regex: bool) -> Pattern:
    """Return a pattern of O3DE, which matches absolute paths.

    Raises:
        re.error: it is not a regular expression.
    """
    if is_regex:
        return Pattern(PatternKind.REGEX, text, re.compile(text).pattern, is_absolute=True)
    return Pattern(PatternKind.GLOB, text, wildcard_regex(text), is_absolute=_ONE_END.fullmatch(text) is None)


def _pattern(text: str) -> Pattern:
    pattern, equals, kind = text.rpartition("=")
    return pattern_of(pattern if equals else text, is_regex=bool(equals) and kind.strip().lower() == "regex")


# A script answers with objects of `azlmbr.asset.builder`. The functions below translate these objects to objects of aptui's SDK.

_EXCLUSION = ":"
"""Prefix of an excluding path in O3DE; the SDK uses `!`."""


class ScriptAnswerError(Exception):
    """The answer of a script is not valid. The text of the exception is the reason."""


def plans(answer: Any, overrides: Sequence[JobOverride], log: sdk.JobLog) -> sdk.CreateJobsResponse:
    """Return a script's analysis of a source, with the overrides of `BuilderConfig.ini`."""
    if answer is None:
        raise ScriptAnswerError("the script returned nothing from 'OnCreateJobsRequest'")
    if answer.result == azlmbr.CreateJobsResponse_ResultShuttingDown:
        raise sdk.Cancelled
    if answer.result != azlmbr.CreateJobsResponse_ResultSuccess:
        return sdk.CreateJobsResponse()
    return sdk.CreateJobsResponse(
        sdk.Result.SUCCESS,
        [override_job(_plan(job, log), overrides) for job in answer.createJobOutputs],
        [_source_dependency(dependency) for dependency in answer.sourceFileDependencyList],
    )


def _plan(job: Any, log: sdk.JobLog) -> sdk.JobDescriptor:
    return sdk.JobDescriptor(
        job_key=str(job.jobKey),
        platform=str(job.get_platform_identifier()),
        priority=int(job.priority),
        additional_fingerprint=str(job.additionalFingerprintInfo),
        params={param_key(key): value for key, value in azlmbr.JobParameters(job.jobParameters).items()},
        job_dependencies=[each for edge in job.jobDependencyList if (each := _job_dependency(edge, log)) is not None],
    )


def _job_dependency(edge: Any, log: sdk.JobLog) -> sdk.JobDependency | None:
    source = edge.sourceFile
    path, uuid = (source, None) if isinstance(source, str) else (source.sourceFileDependencyPath, _uuid_of(source))
    if not path and uuid is None:
        log.warning(f"a job dependency on {edge.jobKey!r} is ignored, because it has neither the path nor the UUID of a source")
        return None
    return sdk.JobDependency(
        str(path),
        str(edge.jobKey),
        str(edge.platformIdentifier),
        sdk.DependencyKind(edge.type),
        tuple(int(sub_id) for sub_id in edge.productSubIds),
        uuid,
    )


def _source_dependency(dependency: Any) -> sdk.SourceDependency:
    return sdk.SourceDependency(
        str(dependency.sourceFileDependencyPath),
        sdk.SourceDependencyKind(dependency.sourceDependencyType),
        _uuid_of(dependency),
    )


def _uuid_of(dependency: Any) -> UUID | None:
    uuid = uuid_of(dependency.sourceFileDependencyUUID)
    return None if uuid.is_null() else UUID(bytes=uuid.bytes)


def make_response(answer: Any, request: sdk.ProcessJobRequest) -> sdk.ProcessJobResponse:
    """Translate the answer of a script that processed a job to a response of the SDK."""
    if answer is None:
        raise ScriptAnswerError("the script returned nothing from 'OnProcessJobRequest'")
    result = sdk.Result(answer.resultCode)
    if result is not sdk.Result.SUCCESS:
        return sdk.ProcessJobResponse(result, keep_temp=bool(answer.keepTempFolder), error=_RESULTS.get(result, ""))
    return sdk.ProcessJobResponse(
        result,
        [_product(product, request) for product in answer.outputProducts],
        sources_to_reprocess=[str(path) for path in answer.sourcesToReprocess],
        keep_temp=bool(answer.keepTempFolder),
    )


_RESULTS = {
    sdk.Result.CRASHED: "the script reported a crash",
    sdk.Result.NETWORK_ISSUE: "the script reported a network failure",
}


def _product(product: Any, request: sdk.ProcessJobRequest) -> sdk.JobProduct:
    path = str(product.productFileName).replace("\\", "/")
    if not product.dependenciesHandled:
        request.log.warning(f"product {path!r}: the script did not say that its dependencies are handled")
    return sdk.JobProduct(
        os.path.join(request.temp_dir, path),
        int(product.productSubID) & 0xFFFFFFFF,
        UUID(bytes=uuid_of(product.productAssetType).bytes),
        int(product.outputFlags),
        [_product_dependency(each) for each in product.productDependencies],
        [_path_dependency(each) for each in product.pathDependencies],
        dependencies_handled=bool(product.dependenciesHandled),
        folder=str(product.outputPathOverride),
    )


def _product_dependency(dependency: Any) -> sdk.ProductDependency:
    asset = dependency.dependencyId
    return sdk.ProductDependency(UUID(bytes=uuid_of(asset.guid).bytes), int(asset.subId), int(dependency.flags))


def _path_dependency(dependency: Any) -> sdk.PathDependency:
    path = str(dependency.dependencyPath)
    if path.startswith(_EXCLUSION):
        path = f"!{path.removeprefix(_EXCLUSION)}"
    return sdk.PathDependency(path, sdk.PathDependencyKind(dependency.dependencyType))


# While a script handles a request, each line that the script prints is written to the log of its job.


class _Lines(io.TextIOBase):
    """A text stream that passes each complete line to the function `say`."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._say(line)
        return len(text)

    def finish(self) -> None:
        """Log the last line if no line end follows it."""
        if self._rest:
            self._say(self._rest)
            self._rest = ""


@contextlib.contextmanager
def capture_output(log: sdk.JobLog) -> Iterator[None]:
    """Capture a script's output in the job's log, in order. As in O3DE, lines of `stderr` are logged as errors."""
    out, errors = _Lines(log.info), _Lines(log.error)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            yield
    finally:
        out.finish()
        errors.finish()


_NAME = "scripts of O3DE"
_MODULE = "aptui.features.o3de.scripts.python_builder"
_Answer = TypeVar("_Answer")


# ------------------------------------------------------------------------------------------------------------- discovery


def scripts_builder(around: Surroundings, platforms: tuple[str, ...], unlisted: Builder) -> Builder:
    """Return one `Builder` for the configuration that stands for all builders of scripts.

    Args:
        platforms: the enabled platforms.
        unlisted: settings for builders without an entry in the configuration (`Project.unlisted_builder`).
    """
    uuid = name_uuid(f"aptui:builder:{_NAME}".encode())
    adapter = f"{_MODULE}:find"
    return replace(unlisted, uuid=uuid, name=_NAME, platforms=platforms, adapter=adapter, environment=around.to_json())


def find(stand_in: Builder) -> tuple[list[tuple[Builder, tuple[str, ...]]], list[tuple[str, str, bool]]]:
    """Run all scripts; return the builders that they register, each with the files of its code, and the problems.

    A problem is (script, message, whether it lasts until the script's code changes).
    """
    around = script_runner.surroundings(stand_in.environment)
    script_sandbox = script_runner.enter(around)
    problems = [(problem.script, problem.text, problem.is_lasting) for problem in script_sandbox.problems]
    found: dict[str, tuple[Builder, tuple[str, ...]]] = {}
    for registered in registrations.builders.values():
        try:
            builder = _describe(registered, stand_in, around)
        except (TypeError, ValueError, AttributeError, re.error) as error:
            problems.append((registered.script, f"'{registered.script}': its builder cannot be used: {error}", True))
            continue
        if builder.name in found:
            problems.append(
                (
                    registered.script,
                    f"'{registered.script}': another builder has the name {builder.name!r}; this one is ignored",
                    True,
                )
            )
            continue
        found[builder.name] = builder, script_sandbox.code[registered.script]
    return list(found.values()), problems


def _describe(registered: Registered, stand_in: Builder, around: Surroundings) -> Builder:
    description = registered.description
    builder = replace(
        stand_in,
        uuid=registered.bus_id,
        name=str(description.name),
        version=str(description.version),
        analysis_fingerprint=str(description.analysisFingerprint),
        patterns=tuple(
            pattern_of(str(each.pattern), is_regex=each.type == azlmbr.AssetBuilderPattern_Regex) for each in description.patterns
        ),
        origin=f"file:{registered.script}:{uuid_of(registered.bus_id)}",
        adapter=f"{_MODULE}:load",
        deletes_products_on_failure=bool(int(description.flags) & DELETES_ON_FAILURE),
    )
    return override_builder(builder, around)


# --------------------------------------------------------------------------------------------------------------- builder


def load(builder: Builder) -> ScriptBuilder:
    """Return the script's builder that has the given builder's UUID; the first call in a process runs all scripts.

    Raises:
        LookupError: no script registers a builder with this UUID.
    """
    script_sandbox = script_runner.enter(script_runner.surroundings(builder.environment))
    if builder.uuid not in registrations.builders:
        script = builder.origin.removeprefix("file:").rpartition(":")[0]
        why = next(
            (problem.text for problem in script_sandbox.problems if problem.script == script),
            "its script did not register this builder",
        )
        raise LookupError(why)
    return ScriptBuilder(builder)


class ScriptBuilder:
    """A builder (`sdk.Builder`) that a script registered. Passes the SDK's requests to the script, and returns its answers."""

    def __init__(self, builder: Builder) -> None:
        self.name, self.version = builder.name, builder.version
        self.patterns = tuple(pattern.text for pattern in builder.patterns)
        self._bus_id = builder.uuid
        self._overrides = script_runner.surroundings(builder.environment).job_overrides if builder.environment else ()

    def create_jobs(self, request: sdk.CreateJobsRequest) -> sdk.CreateJobsResponse:
        """Call the script's analysis of a source."""
        question = _fill(
            azlmbr.CreateJobsRequest(),
            builderId=uuid_of(self._bus_id),
            watchFolder=request.scan_folder,
            sourceFile=request.source,
            sourceFileUUID=uuid_of(request.source_uuid),
            enabledPlatforms=[azlmbr.PlatformInfo(platform.id, list(platform.tags)) for platform in request.platforms],
        )
        failed = sdk.CreateJobsResponse
        return self._call_script(
            "OnCreateJobsRequest",
            question,
            lambda answer: plans(answer, self._overrides, request.log),
            failed,
            request.log,
        )

    def process_job(self, request: sdk.ProcessJobRequest) -> sdk.ProcessJobResponse:
        """Call the script to process a job."""
        job = azlmbr.JobDescriptor(request.additional_fingerprint, request.job_key, request.platform.id)
        question = _fill(
            azlmbr.ProcessJobRequest(),
            sourceFile=request.source,
            watchFolder=request.scan_folder,
            fullPath=request.full_path,
            builderGuid=uuid_of(self._bus_id),
            jobDescription=_fill(
                job, jobParameters=azlmbr.JobParameters({int(key, 16): value for key, value in request.job_params.items()})
            ),
            tempDirPath=request.temp_dir,
            platformInfo=azlmbr.PlatformInfo(request.platform.id, list(request.platform.tags)),
            sourceFileUUID=uuid_of(request.source_uuid),
        )
        failed = sdk.ProcessJobResponse
        return self._call_script(
            "OnProcessJobRequest", question, lambda answer: make_response(answer, request), failed, request.log
        )

    def shutdown(self) -> None:
        """Notify the script that this process ends."""
        self._report("OnShutdown")

    def _call_script(
        self, name: str, question: Any, translate: Callable[[Any], _Answer], failed: Callable[..., _Answer], log: sdk.JobLog
    ) -> _Answer:
        """Call the script; return its answer in the SDK's form, or, if it fails, a failure with the reason."""
        callback = registrations.callback(self._bus_id, name)
        if callback is None:
            return failed(error=f"the script has no callback {name!r}")
        try:
            with capture_output(log):
                return translate(callback([question]))
        except sdk.Cancelled:
            raise
        except ScriptAnswerError as error:
            return failed(error=str(error))
        except Exception as error:  # noqa: BLE001  # a script may raise anything, and that is a result
            text = _first_line(error)
            log.error("\n".join((text, *_trace_lines(error))))  # noqa: TRY400  # `log` is a job's log, not a logger of `logging`
            return failed(error=text)
        except BaseException:
            self._report("OnCancel")  # the worker process must end, so request that the script cancels the job
            raise

    def _report(self, name: str) -> None:
        callback = registrations.callback(self._bus_id, name)
        if callback is not None:
            with contextlib.suppress(Exception):
                callback([])


def _fill(thing: Any, **values: object) -> Any:
    for name, value in values.items():
        setattr(thing, name, value)
    return thing


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _trace_lines(error: Exception) -> Iterator[str]:
    frames = error.__traceback__
    own = frames.tb_next if frames else None  # leave out the first frame, in which aptui calls the script
    for line in traceback.format_exception(type(error), error, own):
        yield from line.rstrip("\n").split("\n")

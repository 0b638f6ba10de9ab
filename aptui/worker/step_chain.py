"""A builder with `steps:`: several builders run in one job, and each builder processes the products of the previous step.

The first step analyses the source, like a builder without steps. Later steps analyse their sources during the job, because these
sources are products of earlier steps. The scan folder of later steps is the temporary folder of the run. A product that no later
step processes is a product of the job.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.core.patterns import matches, wildcard
from aptui.core.project import BuilderStep
from aptui.sdk import (
    Cancelled,
    CreateJobsRequest,
    CreateJobsResponse,
    JobDescriptor,
    JobError,
    JobLog,
    JobProduct,
    MatchedFile,
    NamedFileError,
    ParamError,
    PathDependency,
    PathDependencyKind,
    ProcessJobRequest,
    ProcessJobResponse,
    ProductDependency,
    ProductFlag,
    Result,
    SourceDependencyKind,
)
from aptui.worker.file_access import digest_file
from aptui.worker.outputs.products import fill_sub_ids


class _Made(Struct):
    """A product of a step, with its absolute path.

    `made_of` has the file names of the products of earlier steps from which it was made.

    `needs` has the file names of the products of its step on which it depends. File names are used, because sub ids change at the
    end of the chain.
    """

    product: JobProduct
    path: str
    made_of: tuple[str, ...] = ()
    needs: list[tuple[str, ProductDependency]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


class _Run(Struct):
    """State of one job: `products` of the latest step, and `others`: earlier products that no later step processes."""

    request: ProcessJobRequest
    answer: ProcessJobResponse
    log: JobLog
    first_errors: list[str] = field(default_factory=list)
    products: list[_Made] = field(default_factory=list)
    others: list[_Made] = field(default_factory=list)


class StepChain:
    """A builder that runs its `steps` one after another. Each step has one instance of its builder class."""

    def __init__(self, steps: Sequence[tuple[BuilderStep, Any]]) -> None:
        self._steps = steps

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job for each platform. It replaces all jobs of the first step for that platform."""
        step, builder = self._steps[0]
        answer: CreateJobsResponse
        with _naming(step):
            answer = builder.create_jobs(
                replace(
                    request,
                    params=_params_of(step, request.params),
                    platform_params={name: _params_of(step, params) for name, params in request.platform_params.items()},
                    params_schema=getattr(builder, "params_schema", None),
                )
            )
        if not isinstance(answer, CreateJobsResponse) or answer.result != Result.SUCCESS:
            return answer
        jobs: dict[str, list[JobDescriptor]] = {}
        for job in answer.jobs:
            jobs.setdefault(job.platform, []).append(job)
        answer.jobs = [_join_jobs(request.builder_name, platform, found) for platform, found in jobs.items()]
        return answer

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Run all steps; the job's products are those of the last step, and those that no later step processes."""
        run = _Run(request, ProcessJobResponse(Result.SUCCESS), request.log)
        run.log = JobLog(lambda level, text, context: _write(run, level, text, context))
        for number, (step, builder) in enumerate(self._steps):
            run.log.info(f"step {number + 1} of {len(self._steps)}: {step.name}")
            with _naming(step):
                self._run_step(run, number, step, builder)
        found = [*run.others, *run.products]
        if len({made.name.lower() for made in found}) < len(found):
            names = sorted(made.name for made in found)
            raise JobError(f"two steps made products with the same name: {', '.join(names)}")
        for made in found:
            product = made.product
            product.path, product.sub_id, product.legacy_sub_ids, product.flags = made.path, None, (), ProductFlag.PRODUCT
            product.path_dependencies = [new for each in product.path_dependencies for new in _follow(each, found)]
        fill_sub_ids([made.product for made in found])
        for made in found:
            for name, need in made.needs:
                ids = [each.product.sub_id for each in found if name == each.name or name in each.made_of]
                made.product.dependencies += [replace(need, sub_id=each) for each in ids]
        run.answer.products = [made.product for made in found]
        return run.answer

    def shutdown(self) -> None:
        """Shut down the builders of the steps, if they have a `shutdown` method."""
        for _step, builder in self._steps:
            getattr(builder, "shutdown", lambda: None)()

    def _run_step(self, run: _Run, number: int, step: BuilderStep, builder: Any) -> None:
        request = run.request
        folder = f"{request.temp_dir}/step-{number}" if number else request.scan_folder
        products_dir = request.products_dir
        if number + 1 < len(self._steps):
            products_dir = f"{request.temp_dir}/step-{number + 1}/{os.path.dirname(request.source)}".rstrip("/")
        temp_dir = f"{request.temp_dir}/temp-{number + 1}"
        for path in (products_dir, temp_dir):
            os.makedirs(path, exist_ok=True)
        sources: dict[str, tuple[str, ...]] = {request.source: ()}
        if number:
            sources = _choose_sources(run, step, self._steps[number - 1][0], folder)
        before, run.products = run.products, []
        width = 1 / len(sources) / len(self._steps)
        for at, (source, made_of) in enumerate(sources.items()):
            asked = replace(
                request,
                builder_name=step.name if number else request.builder_name,
                scan_folder=folder,
                source=source,
                params=_params_of(step, request.params),
                products_dir=products_dir,
                temp_dir=temp_dir,
                log=run.log,
                progress=partial(_note_progress, request, (number * len(sources) + at) * width, width),
                scan_folders=(folder, *request.scan_folders) if number else request.scan_folders,
                fallback_folders=request.scan_folders if number else (),
                params_schema=getattr(builder, "params_schema", None),
            )
            if number:
                asked = replace(asked, find_matches=partial(_match, before, folder))
            for job in _list_jobs(run, asked, builder) if number else _split_jobs(request):
                self._run_job(run, asked, job, builder, made_of)

    @staticmethod
    def _run_job(run: _Run, asked: ProcessJobRequest, job: JobDescriptor, builder: Any, made_of: tuple[str, ...]) -> None:
        asked = replace(
            asked,
            job_key=job.job_key,
            job_params=job.params,
            additional_fingerprint=job.additional_fingerprint,
            products=[],
            dependencies=[],
            read_digest="",
        )
        response = builder.process_job(asked)
        if not isinstance(response, ProcessJobResponse):
            raise JobError(f"process_job returned {type(response).__name__}, not a ProcessJobResponse")
        _check_result(response, run)
        is_first = asked.scan_folder == run.request.scan_folder
        if is_first:
            run.request.read_digest = asked.read_digest
        run.answer.dependencies += response.dependencies if is_first else _find_outside(response.dependencies, asked)
        run.answer.sources_to_reprocess += response.sources_to_reprocess
        run.answer.keep_temp |= response.keep_temp
        names = {each.sub_id: os.path.basename(each.path) for each in response.products if each.sub_id is not None}
        for product in response.products:
            inner = [each for each in product.dependencies if each.source_uuid == asked.source_uuid and each.sub_id in names]
            product.dependencies = [each for each in product.dependencies if each not in inner]
            made = _Made(product, _place_product(product, asked), made_of, [(names[each.sub_id], each) for each in inner])
            if any(made.path == other.path for other in run.products):
                raise JobError(f"two products have the name '{made.name}'")
            run.products.append(made)


# -------------------------------------------------------------------------------------------------------- jobs of the steps


def _join_jobs(key: str, platform: str, jobs: Sequence[JobDescriptor]) -> JobDescriptor:
    """Return the single job of the chain for a platform.

    It runs all of `jobs`, the jobs of the first step for this platform.
    """
    plain = len(jobs) == 1 and jobs[0].job_key == key and not jobs[0].params and not jobs[0].additional_fingerprint
    return JobDescriptor(
        key,
        platform,
        max(job.priority for job in jobs),
        any(job.is_critical for job in jobs),
        "\n".join(filter(None, (job.additional_fingerprint for job in jobs))),
        {} if plain else {"jobs": [[job.job_key, job.params, job.additional_fingerprint] for job in jobs]},  # type: ignore[dict-item]
        [each for job in jobs for each in job.job_dependencies],
    )


def _split_jobs(request: ProcessJobRequest) -> list[JobDescriptor]:
    listed: Any = request.job_params.get("jobs", [[request.job_key, {}, ""]])
    platform = request.platform.id
    return [JobDescriptor(key, platform, params=params, additional_fingerprint=text) for key, params, text in listed]


def _list_jobs(run: _Run, asked: ProcessJobRequest, builder: Any) -> list[JobDescriptor]:
    """Ask the builder of a later step which jobs process a product of the previous step.

    The dependencies of these jobs become dependencies of the run.
    """
    request = CreateJobsRequest(
        builder_name=asked.builder_name,
        scan_folder=asked.scan_folder,
        source=asked.source,
        source_uuid=asked.source_uuid,
        platforms=(asked.platform,),
        params=asked.params,
        platform_params={},
        log=asked.log,
        scan_folders=asked.scan_folders,
        fallback_folders=asked.fallback_folders,
        params_schema=asked.params_schema,
        find_matches=asked.find_matches,
    )
    answer = builder.create_jobs(request)
    if not isinstance(answer, CreateJobsResponse):
        raise JobError(f"create_jobs returned {type(answer).__name__}, not a CreateJobsResponse")
    _check_result(answer, run)
    declared = (*answer.source_dependencies, *request.source_dependencies)
    wildcards = [each.path for each in answer.source_dependencies if each.kind == SourceDependencyKind.WILDCARD]
    if wildcards and answer.source_dependencies is not request.source_dependencies:
        raise JobError(f"depends on all files that match '{wildcards[0]}', but only the first step can have such dependencies")
    if any(each.uuid is not None for each in declared) or any(job.job_dependencies for job in answer.jobs):
        raise JobError("depends on another job or on a UUID, but only the first step can have such dependencies")
    if other := next((job.platform for job in answer.jobs if job.platform != asked.platform.id), ""):
        raise JobError(f"has a job for the platform '{other}', but this job is for '{asked.platform.id}'")
    paths = [each.path for each in declared if each.kind == SourceDependencyKind.ABSOLUTE]
    run.answer.dependencies += _find_outside(paths, asked)
    return answer.jobs


def _check_result(answer: CreateJobsResponse | ProcessJobResponse, run: _Run) -> None:
    if answer.result == Result.CANCELLED:
        raise Cancelled
    if answer.result != Result.SUCCESS:
        raise JobError(answer.error or next(iter(run.first_errors), "builder reported failure"))


# ------------------------------------------------------------------------------------------------------- files of the steps


def _choose_sources(run: _Run, step: BuilderStep, before: BuilderStep, folder: str) -> dict[str, tuple[str, ...]]:
    """Return the products of the step `before` that are sources of `step`; add its other products to `run.others`.

    The result is {relative path of a product: file names of this product and of the products from which it was made}.
    """
    sources = {}
    for made in run.products:
        rel = os.path.relpath(made.path, folder)
        if any(matches(pattern, rel, folder) for pattern in step.patterns):
            sources[rel] = (*made.made_of, made.name)
        else:
            run.others.append(made)
    if not sources:
        listed = ", ".join(pattern.text for pattern in step.patterns)
        names = ", ".join(sorted(made.name for made in run.products)) or "none"
        raise JobError(f"no product of step '{before.name}' matches {listed}: {names}")
    return dict(sorted(sources.items()))


def _place_product(product: JobProduct, asked: ProcessJobRequest) -> str:
    """Return the absolute path of a step's product; a product outside the step's `products_dir` is copied into it."""
    path = os.path.normpath(os.path.join(asked.products_dir, product.path))
    if os.path.islink(path) or not os.path.isfile(path):
        raise JobError(f"the product '{os.path.basename(path)}' is not a file")
    if path.startswith(f"{asked.products_dir}/"):
        return path
    return shutil.copyfile(path, os.path.join(asked.products_dir, os.path.basename(path)))


def _find_outside(paths: Sequence[str], asked: ProcessJobRequest) -> Iterator[str]:
    """Yield the dependencies of a later step that are files of the project, not products of the previous step."""
    for path in paths:
        if os.path.exists(os.path.join(asked.scan_folder, path)) and not os.path.isabs(path):
            continue
        if not path.startswith(f"{asked.scan_folder}/"):
            places = [os.path.join(folder, path) for folder in asked.fallback_folders]
            yield next((place for place in places if os.path.exists(place)), path)
        else:
            yield path.removeprefix(f"{asked.scan_folder}/")


def _match(products: Sequence[_Made], folder: str, pattern: str) -> list[MatchedFile]:
    match = wildcard(pattern).fullmatch
    found = sorted((os.path.relpath(made.path, folder), made.path) for made in products)
    return [MatchedFile(rel, path, digest_file(path)) for rel, path in found if match(rel)]


def _follow(dependency: PathDependency, products: Sequence[_Made]) -> list[PathDependency]:
    """Replace a dependency on a product of an earlier step by dependencies on the products that later steps made from it."""
    folder, _, name = dependency.path.rpartition("/")
    made = [each.name for each in products if name in each.made_of]
    if dependency.kind != PathDependencyKind.PRODUCT_FILE or not made:
        return [dependency]
    return [replace(dependency, path=f"{folder}/{each}" if folder else each) for each in made]


# ----------------------------------------------------------------------------------------------------------- shared helpers


@contextmanager
def _naming(step: BuilderStep) -> Iterator[None]:
    """Add the name of the step to the errors of its builder."""
    try:
        yield
    except (JobError, NamedFileError, ParamError) as error:
        raise JobError(f"step '{step.name}': {error}") from None
    except Cancelled:
        raise
    except Exception as error:
        error.add_note(f"step '{step.name}'")
        raise


def _note_progress(request: ProcessJobRequest, begin: float, width: float, fraction: float) -> None:
    request.progress(begin + fraction * width)


def _params_of(step: BuilderStep, params: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{step.name}."
    return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}


def _write(run: _Run, level: int, text: str, context: tuple[tuple[str, str], ...]) -> None:
    log = run.request.log
    write = (log.debug, log.info, log.warning, log.error)[level]
    if level == 3:
        run.first_errors.append(text)
    write(text, **dict(context))

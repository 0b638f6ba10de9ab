"""What scripts of O3DE answer (the classes of `azlmbr.asset.builder`), in the terms of our SDK.

Tests: `tests/o3de/scripts/test_azlmbr_answers.py`.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

from aptui import sdk
from aptui.o3de.scripts.azlmbr.asset import builder as azlmbr
from aptui.o3de.scripts.azlmbr.math import uuid_of
from aptui.o3de.scripts.overrides import override_job, param_key

_EXCLUSION = ":"
"""Leads a path of O3DE's that takes away from what the others name; ours have `!` there."""


class ScriptAnswerError(Exception):
    """What a script answered cannot be done; the text says why."""


def plans(answer: Any, overrides: str, log: sdk.JobLog) -> sdk.CreateJobsResponse:
    """Return what a script said about the jobs of a source, as `BuilderConfig.ini` changes it."""
    if answer is None:
        raise ScriptAnswerError("the script answered nothing to 'OnCreateJobsRequest'")
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
        log.warning(f"a job dependency on {edge.jobKey!r} names no source, neither by path nor by UUID; left out")
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
    """Return what a script said that it made."""
    if answer is None:
        raise ScriptAnswerError("the script answered nothing to 'OnProcessJobRequest'")
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
    sdk.Result.CRASHED: "the script says that it crashed",
    sdk.Result.NETWORK_ISSUE: "the script says that the network failed",
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

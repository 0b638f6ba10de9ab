"""`azlmbr.asset.builder`: the classes, constants and buses of asset builders.

Tests: `tests/features/o3de/scripts/test_azlmbr_answers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from aptui.features.o3de.scripts.azlmbr.math import Uuid, crc_of, uuid_of
from aptui.features.o3de.scripts.azlmbr.reflected import (
    Callback,
    MissingName,
    Outcome,
    Reflected,
    Registered,
    refusing,
    registrations,
)

_NO_PROGRAMS = "aptui runs without O3DE's own programs"

# ------------------------------------------------------------------------------------------------------------- constants

AssetBuilderPattern_Wildcard = 0
AssetBuilderPattern_Regex = 1
SourceFileDependency_Absolute = 0
SourceFileDependency_Wildcards = 1
JobDependency_Fingerprint = 0
JobDependency_Order = 1
JobDependency_OrderOnce = 2
JobDependency_OrderOnly = 3
CreateJobsResponse_ResultSuccess = 0
CreateJobsResponse_ResultFailed = 1
CreateJobsResponse_ResultShuttingDown = 2
ProductPathDependency_SourceFile = 0
ProductPathDependency_ProductFile = 1
JobProduct_ProductAsset = 1
JobProduct_IntermediateAsset = 2
ProcessJobResponse_Success = 0
ProcessJobResponse_Failed = 1
ProcessJobResponse_Crashed = 2
ProcessJobResponse_Cancelled = 3
ProcessJobResponse_NetworkIssue = 4


class JobParameters(dict[int, str]):
    """Parameters of a job, by the checksum of each parameter's name. A name or a `Crc32` can be used as a key, too."""

    def __init__(self, values: Mapping[Any, Any] | None = None) -> None:
        super().__init__()
        for key, value in (values or {}).items():
            self[key] = value

    def __setitem__(self, key: object, value: object) -> None:
        super().__setitem__(crc_of(key), str(value))

    def __getitem__(self, key: object) -> str:
        return super().__getitem__(crc_of(key))

    def __delitem__(self, key: object) -> None:
        super().__delitem__(crc_of(key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(crc_of(key))

    def get(self, key: object, default: Any = None) -> Any:
        """Return a parameter, or `default`."""
        return super().get(crc_of(key), default)


# --------------------------------------------------------------------------------------------------------------- classes


class AssetBuilderPattern(Reflected):
    """A pattern for the sources of a builder; it matches the absolute path."""

    _properties: ClassVar = {"pattern": str, "type": int}
    _forms: ClassVar = (("pattern", "type"),)
    Wildcard, Regex = AssetBuilderPattern_Wildcard, AssetBuilderPattern_Regex


class AssetBuilderDesc(Reflected):
    """The description of a builder. `flags`: 1 emits no dependencies, 2 deletes the last good product on failure."""

    _properties: ClassVar = {"analysisFingerprint": str, "busId": Uuid, "flags": int, "name": str, "patterns": list, "version": int}


class PlatformInfo(Reflected):
    """A platform and its tags."""

    _properties: ClassVar = {"identifier": str, "tags": list}
    _forms: ClassVar = (("identifier", "tags"),)


class CreateJobsRequest(Reflected):
    """The request for an analysis."""

    _properties: ClassVar = {
        "builderId": Uuid, "watchFolder": str, "sourceFile": str, "sourceFileUUID": Uuid, "enabledPlatforms": list,
    }  # fmt: skip


class SourceFileDependency(Reflected):
    """A dependency on a source, which is given by path or UUID."""

    _properties: ClassVar = {"sourceFileDependencyPath": str, "sourceFileDependencyUUID": Uuid, "sourceDependencyType": int}
    _forms: ClassVar = (
        ("sourceFileDependencyPath", "sourceFileDependencyUUID"),
        ("sourceFileDependencyPath", "sourceFileDependencyUUID", "sourceDependencyType"),
    )
    Absolute, Wildcards = SourceFileDependency_Absolute, SourceFileDependency_Wildcards


class JobDependency(Reflected):
    """A dependency on another job."""

    _properties: ClassVar = {
        "sourceFile": SourceFileDependency, "jobKey": str, "platformIdentifier": str, "productSubIds": list, "type": int,
    }  # fmt: skip
    _forms: ClassVar = (("jobKey", "platformIdentifier", "type", "sourceFile"),)
    Fingerprint, Order = JobDependency_Fingerprint, JobDependency_Order
    OrderOnce, OrderOnly = JobDependency_OrderOnce, JobDependency_OrderOnly


class JobDescriptor(Reflected):
    """One job for a source, as a script's analysis of the source describes it."""

    _properties: ClassVar = {
        "jobParameters": JobParameters, "additionalFingerprintInfo": str, "jobKey": str, "priority": lambda: -1,
        "checkExclusiveLock": bool, "checkServer": bool, "jobDependencyList": list, "failOnError": bool, "platform": str,
    }  # fmt: skip
    _forms: ClassVar = (("additionalFingerprintInfo", "jobKey", "platform"),)

    def set_platform_identifier(self, platform: str) -> None:
        """Set the platform of the job."""
        self.platform = platform

    def get_platform_identifier(self) -> str:
        """Return the platform of the job."""
        return self.platform


class CreateJobsResponse(Reflected):
    """The result of an analysis; it is a failure unless the script sets another result."""

    _properties: ClassVar = {
        "result": lambda: CreateJobsResponse_ResultFailed, "sourceFileDependencyList": list, "createJobOutputs": list,
    }  # fmt: skip
    ResultSuccess, ResultFailed = CreateJobsResponse_ResultSuccess, CreateJobsResponse_ResultFailed
    ResultShuttingDown = CreateJobsResponse_ResultShuttingDown


class ProcessJobRequest(Reflected):
    """The request to process a job."""

    _properties: ClassVar = {
        "sourceFile": str, "watchFolder": str, "fullPath": str, "builderGuid": Uuid, "jobDescription": JobDescriptor,
        "tempDirPath": str, "platformInfo": PlatformInfo, "sourceFileDependencyList": list, "sourceFileUUID": Uuid, "jobId": int,
    }  # fmt: skip


class ProductDependency(Reflected):
    """A run-time dependency of a product on another product."""

    _properties: ClassVar = {"dependencyId": lambda: None, "flags": int}
    _forms: ClassVar = (("dependencyId", "flags"),)


class ProductPathDependency(Reflected):
    """A run-time dependency of a product on a path."""

    _properties: ClassVar = {"dependencyPath": str, "dependencyType": lambda: ProductPathDependency_ProductFile}
    _forms: ClassVar = (("dependencyPath", "dependencyType"),)
    SourceFile, ProductFile = ProductPathDependency_SourceFile, ProductPathDependency_ProductFile


class JobProduct(Reflected):
    """A file that the job made; its name is absolute, or relative to the temporary folder."""

    _properties: ClassVar = {
        "productFileName": str, "productAssetType": Uuid, "productSubID": int, "productDependencies": list,
        "pathDependencies": list, "dependenciesHandled": bool, "outputFlags": lambda: JobProduct_ProductAsset,
        "outputPathOverride": str,
    }  # fmt: skip
    _forms: ClassVar = (
        ("productFileName",),
        ("productFileName", "productAssetType"),
        ("productFileName", "productAssetType", "productSubID"),
    )
    ProductAsset, IntermediateAsset = JobProduct_ProductAsset, JobProduct_IntermediateAsset


class ProcessJobResponse(Reflected):
    """The result of a job; it is a failure unless the script sets another result."""

    _properties: ClassVar = {
        "outputProducts": list, "resultCode": lambda: ProcessJobResponse_Failed, "requiresSubIdGeneration": lambda: True,
        "sourcesToReprocess": list, "keepTempFolder": bool,
    }  # fmt: skip
    Success, Failed, Crashed = ProcessJobResponse_Success, ProcessJobResponse_Failed, ProcessJobResponse_Crashed
    Cancelled, NetworkIssue = ProcessJobResponse_Cancelled, ProcessJobResponse_NetworkIssue


# ----------------------------------------------------------------------------------------------------------------- buses


class PythonBuilderNotificationBusHandler:
    """Receives requests for the UUID of a script's builder, and calls the script's callbacks."""

    def __init__(self) -> None:
        self._bus_id: bytes | None = None
        self._callbacks: dict[str, Callback] = {}

    def connect(self, bus_id: object) -> bool:
        """Receive the requests for the builder with this UUID."""
        self._bus_id = uuid_of(bus_id).bytes
        registrations.callbacks[self._bus_id] = self._callbacks
        return True

    def add_callback(self, name: str, callback: Callback) -> None:
        """Use `callback` for requests with this name."""
        self._callbacks[name] = callback

    def disconnect(self) -> None:
        """Stop receiving requests."""
        if self._bus_id is not None and registrations.callbacks.get(self._bus_id) is self._callbacks:
            del registrations.callbacks[self._bus_id]
        self._bus_id = None

    def is_connected(self) -> bool:
        """Whether this handler receives the requests of its builder."""
        return self._bus_id is not None


def _register(description: Any) -> str:
    """Register a builder; return an error, "" on success."""
    bus_id = uuid_of(description.busId)
    if bus_id.is_null():
        return f"the builder {description.name!r} has no bus id"
    if not description.name:
        return f"the builder {bus_id} has no name"
    if bus_id.bytes in registrations.builders:
        return f"another builder has the bus id {bus_id}"
    registrations.builders[bus_id.bytes] = Registered(bus_id.bytes, description, registrations.script)
    return ""


def _request(_way: int, event: str, *values: Any) -> Outcome:
    match event:
        case "RegisterAssetBuilder":
            return Outcome(value=True, error=_register(*values))
        case "GetExecutableFolder":
            return Outcome(error=_NO_PROGRAMS)
    raise MissingName(f"azlmbr.asset.builder.PythonAssetBuilderRequestBus.{event}")


PythonAssetBuilderRequestBus = _request


__getattr__ = refusing("azlmbr.asset.builder")

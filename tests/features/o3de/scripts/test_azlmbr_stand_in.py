"""The stand-in for `azlmbr` in scripts: every class, property, constant and constructor form of O3DE's table."""

from __future__ import annotations

import pytest

from aptui.features.o3de.scripts.azlmbr import bus, math
from aptui.features.o3de.scripts.azlmbr.asset import AssetId, AssetId_CreateString, builder
from aptui.features.o3de.scripts.azlmbr.reflected import MissingName
from aptui.features.o3de.scripts.azlmbr.reflected import registrations as scripts_registry

ID = "{7B1F0E52-6C3D-4A8E-9D27-51C0A2E4B6F8}"
PROPERTIES = {
    "AssetBuilderPattern": "pattern type",
    "AssetBuilderDesc": "analysisFingerprint busId flags name patterns version",
    "PlatformInfo": "identifier tags",
    "CreateJobsRequest": "builderId watchFolder sourceFile sourceFileUUID enabledPlatforms",
    "SourceFileDependency": "sourceFileDependencyPath sourceFileDependencyUUID sourceDependencyType",
    "JobDependency": "sourceFile jobKey platformIdentifier productSubIds type",
    "JobDescriptor": "jobParameters additionalFingerprintInfo jobKey priority checkExclusiveLock checkServer jobDependencyList "
    "failOnError",
    "CreateJobsResponse": "result sourceFileDependencyList createJobOutputs",
    "ProcessJobRequest": "sourceFile watchFolder fullPath builderGuid jobDescription tempDirPath platformInfo "
    "sourceFileDependencyList"
    " sourceFileUUID jobId",
    "ProductDependency": "dependencyId flags",
    "ProductPathDependency": "dependencyPath dependencyType",
    "JobProduct": "productFileName productAssetType productSubID productDependencies pathDependencies dependenciesHandled "
    "outputFlags"
    " outputPathOverride",
    "ProcessJobResponse": "outputProducts resultCode requiresSubIdGeneration sourcesToReprocess keepTempFolder",
}
CONSTANTS = {
    "AssetBuilderPattern": {"Wildcard": 0, "Regex": 1},
    "SourceFileDependency": {"Absolute": 0, "Wildcards": 1},
    "JobDependency": {"Fingerprint": 0, "Order": 1, "OrderOnce": 2, "OrderOnly": 3},
    "CreateJobsResponse": {"ResultSuccess": 0, "ResultFailed": 1, "ResultShuttingDown": 2},
    "ProductPathDependency": {"SourceFile": 0, "ProductFile": 1},
    "JobProduct": {"ProductAsset": 1, "IntermediateAsset": 2},
    "ProcessJobResponse": {"Success": 0, "Failed": 1, "Crashed": 2, "Cancelled": 3, "NetworkIssue": 4},
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_stand_in_class_has_the_properties_of_o3de_and_accepts_new_ones(name):
    thing = getattr(builder, name)()
    assert set(PROPERTIES[name].split()) <= set(vars(thing))

    thing.dependenciesHandledToo = True

    assert thing.dependenciesHandledToo
    with pytest.raises(AttributeError, match="no property 'nothing'"):
        _ = thing.nothing


@pytest.mark.parametrize("name", CONSTANTS)
def test_o3de_constants_exist_under_both_of_their_names(name):
    made = getattr(builder, name)

    assert {key: getattr(builder, f"{name}_{key}") for key in CONSTANTS[name]} == CONSTANTS[name]
    assert {key: getattr(made, key) for key in CONSTANTS[name]} == CONSTANTS[name]


def test_stand_in_objects_do_not_share_their_default_lists():
    builder.CreateJobsResponse().createJobOutputs.append("mine")

    assert builder.CreateJobsResponse().createJobOutputs == []


def test_responses_of_scripts_report_failure_by_default():
    assert builder.CreateJobsResponse().result == builder.CreateJobsResponse_ResultFailed
    assert builder.ProcessJobResponse().resultCode == builder.ProcessJobResponse_Failed


def test_constructor_arguments_set_properties_in_order():
    job = builder.JobDescriptor("info", "key", "linux")
    product = builder.JobProduct("a.x", math.Uuid(ID), 7)
    dependency = builder.SourceFileDependency("a", math.Uuid(ID), 1)

    assert (job.additionalFingerprintInfo, job.jobKey, job.get_platform_identifier()) == ("info", "key", "linux")
    assert (product.productFileName, str(product.productAssetType), product.productSubID) == ("a.x", ID, 7)
    assert (dependency.sourceFileDependencyPath, dependency.sourceDependencyType) == ("a", 1)
    assert job.priority == -1
    with pytest.raises(TypeError, match="JobDescriptor takes 0, 3 arguments, not 2"):
        builder.JobDescriptor("info", "key")


def test_platform_of_a_job_descriptor_can_be_set_and_read():
    job = builder.JobDescriptor()

    job.set_platform_identifier("pc")

    assert job.get_platform_identifier() == "pc"


def test_job_parameter_is_found_by_its_name_or_the_checksum_of_its_name():
    parameters = builder.JobParameters({"DebugFlag": "true"})

    assert parameters["debugflag"] == parameters[math.Crc32("DEBUGFLAG")] == parameters[math.Crc32("DebugFlag").value] == "true"
    assert "debugFlag" in parameters
    assert parameters.get("other") is None
    del parameters["debugflag"]
    assert not parameters


def test_uuid_text_has_braces_and_invalid_text_is_null():
    made = math.Uuid_CreateString(ID.lower().strip("{}"), 0)

    assert made.ToString() == str(made) == ID
    assert made == math.Uuid_CreateString(ID)
    assert not made.IsNull()
    assert math.Uuid_CreateString("nonsense", 0).IsNull()
    assert math.Uuid_CreateNull().IsNull()
    assert math.Uuid_CreateName("testassets/invalidassetidnoreport.txt").ToString() == "{E68A85B0-131D-5A82-B2D5-BC58EE4062AE}"


def test_asset_id_text_has_hex_sub_id():
    made = AssetId(ID, 0x1F)

    assert made.ToString() == f"{ID}:1f"
    assert AssetId_CreateString(f"{ID}:1f").IsEqual(made)
    assert not AssetId().IsValid()


@pytest.fixture
def registry():
    scripts_registry.clear()
    yield scripts_registry
    scripts_registry.clear()


def description(name="Mock", bus_id=ID):
    made = builder.AssetBuilderDesc()
    made.name, made.busId = name, math.Uuid_CreateString(bus_id, 0)
    return made


def request(event, *values):
    return builder.PythonAssetBuilderRequestBus(bus.Broadcast, event, *values)


@pytest.mark.usefixtures("registry")
def test_second_builder_with_the_same_bus_id_is_not_registered():
    first, second = request("RegisterAssetBuilder", description()), request("RegisterAssetBuilder", description("Other"))

    assert (first.IsSuccess(), first.GetValue(), first.GetError()) == (True, True, "")
    assert not second.IsSuccess()
    assert second.GetError() == f"another builder has the bus id {ID}"


@pytest.mark.usefixtures("registry")
def test_builder_without_a_bus_id_or_name_is_refused():
    assert "no bus id" in request("RegisterAssetBuilder", description(bus_id="nonsense")).GetError()
    assert "no name" in request("RegisterAssetBuilder", description(name="")).GetError()


def test_script_handler_is_registered_only_between_connect_and_disconnect(registry):
    handler = builder.PythonBuilderNotificationBusHandler()
    handler.add_callback("OnCancel", print)
    uuid = math.Uuid(ID).bytes
    assert registry.callback(uuid, "OnCancel") is None

    handler.connect(math.Uuid(ID))
    assert (handler.is_connected(), registry.callback(uuid, "OnCancel")) == (True, print)
    handler.disconnect()

    assert (handler.is_connected(), registry.callback(uuid, "OnCancel")) == (False, None)


def test_script_request_for_the_executable_folder_fails():
    outcome = request("GetExecutableFolder")

    assert not outcome.IsSuccess()
    assert "without O3DE's own programs" in outcome.GetError()


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda: builder.SceneBuilder, "azlmbr.asset.builder.SceneBuilder"),
        (lambda: math.Vector3, "azlmbr.math.Vector3"),
        (lambda: request("Explode"), "azlmbr.asset.builder.PythonAssetBuilderRequestBus.Explode"),
    ],
)
def test_use_of_a_missing_azlmbr_name_is_refused(ask, name):
    with pytest.raises(MissingName, match=f"needs '{name}'"):
        ask()

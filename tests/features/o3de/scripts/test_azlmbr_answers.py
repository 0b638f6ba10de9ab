"""Answers of scripts in the SDK's form: every property of O3DE's classes, without a process."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from aptui import sdk
from aptui.core.project import Builder, BuilderKind
from aptui.features.o3de.project_facts import JobOverride
from aptui.features.o3de.scripts.azlmbr import math
from aptui.features.o3de.scripts.azlmbr.asset import AssetId, builder
from aptui.features.o3de.scripts.azlmbr.reflected import registrations
from aptui.features.o3de.scripts.python_builder import ScriptBuilder, override_builder
from aptui.features.o3de.scripts.script_runner import Surroundings

ID = UUID("7b1f0e52-6c3d-4a8e-9d27-51c0a2e4b6f8")
RECORD = Builder(ID.bytes, "Mock", BuilderKind.PYTHON)


class Reports:
    def __init__(self):
        self.lines = []

    def log(self):
        return sdk.JobLog(lambda level, text, _context: self.lines.append((level, text)))


@pytest.fixture
def reported():
    return Reports()


@pytest.fixture
def script():
    """Return a function that makes a builder with the given callbacks."""
    registrations.clear()

    def made(**callbacks):
        handler = builder.PythonBuilderNotificationBusHandler()
        handler.connect(math.Uuid(ID))
        for name, callback in callbacks.items():
            handler.add_callback(name, callback)
        return ScriptBuilder(RECORD)

    yield made
    registrations.clear()


def create_request(reported):
    platforms = (sdk.PlatformInfo("linux", ("tools", "renderer")), sdk.PlatformInfo("android"))
    return sdk.CreateJobsRequest("Mock", "/game", "Tex/A.mock", UUID(int=5), platforms, {}, {}, reported.log())


def process_request(reported, tmp_path, **more):
    fields = {
        "builder_name": "Mock", "scan_folder": "/game", "source": "Tex/A.mock", "source_uuid": UUID(int=5),
        "platform": sdk.PlatformInfo("linux", ("tools",)), "job_key": "key", "params": {}, "job_params": {},
        "additional_fingerprint": "info", "products_dir": str(tmp_path / "products"), "temp_dir": str(tmp_path / "temp"),
        "log": reported.log(),
    }  # fmt: skip
    return sdk.ProcessJobRequest(**{**fields, **more})


def jobs(*made, dependencies=()):
    response = builder.CreateJobsResponse()
    response.result = builder.CreateJobsResponse_ResultSuccess
    response.createJobOutputs, response.sourceFileDependencyList = list(made), list(dependencies)
    return response


def products(*made, **more):
    response = builder.ProcessJobResponse()
    response.resultCode, response.outputProducts = builder.ProcessJobResponse_Success, list(made)
    for name, value in more.items():
        setattr(response, name, value)
    return response


def handled(*arguments):
    product = builder.JobProduct(*arguments)
    product.dependenciesHandled = True
    return product


def test_create_jobs_request_keeps_the_case_of_the_source(script, reported):
    seen = []
    script(OnCreateJobsRequest=lambda args: seen.append(args[0])).create_jobs(create_request(reported))

    (request,) = seen
    assert (request.watchFolder, request.sourceFile) == ("/game", "Tex/A.mock")
    assert request.builderId.ToString() == "{7B1F0E52-6C3D-4A8E-9D27-51C0A2E4B6F8}"
    assert request.sourceFileUUID.bytes == UUID(int=5).bytes
    assert [(each.identifier, each.tags) for each in request.enabledPlatforms] == [
        ("linux", ["tools", "renderer"]),
        ("android", []),
    ]


def test_job_descriptor_of_a_script_is_translated(script, reported):
    edge = builder.JobDependency()
    edge.sourceFile = builder.SourceFileDependency("b.mock", math.Uuid())
    edge.jobKey, edge.platformIdentifier, edge.productSubIds, edge.type = "other", "linux", [3, 1], builder.JobDependency_OrderOnce
    job = builder.JobDescriptor("info", "key", "linux")
    job.jobParameters = {"Alpha": "1", math.Crc32("Beta"): "2"}
    job.jobDependencyList, job.priority, job.checkExclusiveLock = [edge], 7, True

    answer = script(OnCreateJobsRequest=lambda _args: jobs(job)).create_jobs(create_request(reported))

    assert answer.result is sdk.Result.SUCCESS
    assert answer.jobs == [
        sdk.JobDescriptor(
            "key", "linux", 7, additional_fingerprint="info",
            params={f"0x{math.crc_of('alpha'):08x}": "1", f"0x{math.crc_of('beta'):08x}": "2"},
            job_dependencies=[sdk.JobDependency("b.mock", "other", "linux", sdk.DependencyKind.ORDER_ONCE, (3, 1))],
        )
    ]  # fmt: skip


def test_builder_config_overrides_priority_fingerprint_and_parameters_of_a_job(script, reported):
    job = builder.JobDescriptor("info", "Key", "linux")
    override = JobOverride("key", fingerprint="x", priority=4, is_critical=True, params="Depth=3,Width = 4")
    around = Surroundings((), job_overrides=(override,)).to_json()
    script(OnCreateJobsRequest=lambda _args: jobs(job))

    (planned,) = ScriptBuilder(replace(RECORD, environment=around)).create_jobs(create_request(reported)).jobs

    assert (planned.priority, planned.is_critical, planned.additional_fingerprint) == (4, True, "info x")
    assert planned.params == {f"0x{math.crc_of(name):08x}": value for name, value in (("depth", "3"), ("width", "4"))}


@pytest.mark.parametrize(
    ("old", "new"), [({"fingerprint": "Fast"}, {"fingerprint": "fast"}), ({"params": "a=X"}, {"params": "a=x"})]
)
def test_job_override_that_changes_only_in_case_changes_the_analysis_fingerprint(old, new):
    around = [Surroundings((), job_overrides=(JobOverride("key", **values),)) for values in (old, new)]

    one, other = (override_builder(RECORD, each).analysis_fingerprint for each in around)

    assert one != other


def test_script_declares_source_dependencies_by_path_or_wildcard_or_uuid(script, reported):
    declared = [
        builder.SourceFileDependency("a.txt", math.Uuid()),
        builder.SourceFileDependency("*.txt", math.Uuid(), builder.SourceFileDependency_Wildcards),
        builder.SourceFileDependency("", math.Uuid(ID)),
    ]

    answer = script(OnCreateJobsRequest=lambda _args: jobs(dependencies=declared)).create_jobs(create_request(reported))

    assert answer.source_dependencies == [
        sdk.SourceDependency("a.txt"), sdk.SourceDependency("*.txt", sdk.SourceDependencyKind.WILDCARD),
        sdk.SourceDependency("", uuid=ID),
    ]  # fmt: skip


def test_script_declares_a_job_dependency_by_path_or_uuid(script, reported):
    job = builder.JobDescriptor("", "key", "linux")
    job.jobDependencyList = [
        builder.JobDependency("main", "linux", builder.JobDependency_Order, builder.SourceFileDependency("a.txt", math.Uuid())),
        builder.JobDependency("main", "linux", builder.JobDependency_Fingerprint, builder.SourceFileDependency("", math.Uuid(ID))),
    ]

    answer = script(OnCreateJobsRequest=lambda _args: jobs(job)).create_jobs(create_request(reported))

    assert answer.jobs[0].job_dependencies == [
        sdk.JobDependency("a.txt", "main", "linux", sdk.DependencyKind.ORDER),
        sdk.JobDependency("", "main", "linux", sdk.DependencyKind.FINGERPRINT, uuid=ID),
    ]
    assert reported.lines == []


def test_job_dependency_without_source_is_skipped_with_a_warning(script, reported):
    job = builder.JobDescriptor("", "key", "linux")
    job.jobDependencyList = [builder.JobDependency()]

    answer = script(OnCreateJobsRequest=lambda _args: jobs(job)).create_jobs(create_request(reported))

    assert answer.jobs[0].job_dependencies == []
    assert [level for level, _ in reported.lines] == [2]


def test_script_that_reports_its_shutdown_cancels_the_analysis(script, reported):
    response = builder.CreateJobsResponse()
    response.result = builder.CreateJobsResponse_ResultShuttingDown

    with pytest.raises(sdk.Cancelled):
        script(OnCreateJobsRequest=lambda _args: response).create_jobs(create_request(reported))


def test_script_receives_the_parameters_of_a_job_by_name(script, reported, tmp_path):
    seen = []
    request = process_request(reported, tmp_path, job_params={f"0x{math.crc_of('alpha'):08x}": "1"})
    script(OnProcessJobRequest=lambda args: seen.append(args[0])).process_job(request)

    (asked,) = seen
    assert (asked.fullPath, asked.tempDirPath, asked.platformInfo.tags) == ("/game/Tex/A.mock", str(tmp_path / "temp"), ["tools"])
    assert asked.jobDescription.jobParameters["Alpha"] == "1"
    assert asked.jobDescription.get_platform_identifier() == asked.platformInfo.identifier == "linux"
    assert (asked.jobDescription.jobKey, asked.jobDescription.additionalFingerprintInfo) == ("key", "info")
    assert asked.builderGuid.bytes == ID.bytes


def test_products_of_a_script_are_translated_to_sdk_products(script, reported, tmp_path):
    product = handled("sub\\a.x", math.Uuid(ID), -1)
    product.productDependencies = [builder.ProductDependency(AssetId(math.Uuid(ID), 4), 2)]
    product.pathDependencies = [
        builder.ProductPathDependency("A.txt", builder.ProductPathDependency_SourceFile),
        builder.ProductPathDependency(":b.txt", builder.ProductPathDependency_ProductFile),
    ]
    middle = handled("/elsewhere/b.y")
    middle.outputFlags = builder.JobProduct_IntermediateAsset
    answered = products(product, middle, sourcesToReprocess=["c.txt"], keepTempFolder=True)

    answer = script(OnProcessJobRequest=lambda _args: answered).process_job(process_request(reported, tmp_path))

    assert answer.products == [
        sdk.JobProduct(
            f"{tmp_path}/temp/sub/a.x", 0xFFFF_FFFF, ID, 1, [sdk.ProductDependency(ID, 4, 2)],
            [sdk.PathDependency("A.txt"), sdk.PathDependency("!b.txt", sdk.PathDependencyKind.PRODUCT_FILE)],
            dependencies_handled=True,
        ),
        sdk.JobProduct("/elsewhere/b.y", 0, flags=sdk.ProductFlag.INTERMEDIATE, dependencies_handled=True),
    ]  # fmt: skip
    assert (answer.sources_to_reprocess, answer.keep_temp, reported.lines) == (["c.txt"], True, [])


def test_warning_names_a_product_whose_dependencies_are_not_handled(script, reported, tmp_path):
    script(OnProcessJobRequest=lambda _args: products(builder.JobProduct("a.x"))).process_job(process_request(reported, tmp_path))

    assert reported.lines == [(2, "product 'a.x': the script did not say that its dependencies are handled")]


def test_script_can_override_the_output_folder_of_a_product(script, reported, tmp_path):
    product = handled("a.x")
    product.outputFlags = builder.JobProduct_IntermediateAsset
    product.outputPathOverride = "Some/Other"

    answer = script(OnProcessJobRequest=lambda _args: products(product)).process_job(process_request(reported, tmp_path))

    assert [(each.folder, each.flags) for each in answer.products] == [("Some/Other", sdk.ProductFlag.INTERMEDIATE)]


@pytest.mark.parametrize(("code", "result"), list(enumerate(sdk.Result)))
def test_result_codes_of_scripts_are_translated_as_in_o3de(script, reported, tmp_path, code, result):
    answer = script(OnProcessJobRequest=lambda _args: products(resultCode=code)).process_job(process_request(reported, tmp_path))

    assert answer.result is result


def test_script_answer_of_the_wrong_type_fails_the_job(script, reported, tmp_path):
    answer = script(OnProcessJobRequest=lambda _args: 5).process_job(process_request(reported, tmp_path))

    assert answer.result is sdk.Result.FAILED
    assert "AttributeError" in answer.error


def test_job_fails_if_the_script_lacks_the_callback(script, reported, tmp_path):
    mute = script()

    assert mute.create_jobs(create_request(reported)).error == "the script has no callback 'OnCreateJobsRequest'"
    assert mute.process_job(process_request(reported, tmp_path)).error == "the script has no callback 'OnProcessJobRequest'"
    mute.shutdown()


def test_line_that_a_script_prints_is_logged_when_it_is_complete(script, reported, tmp_path, capsys):
    def process(_args):
        print("one\ntwo", end="")
        assert (1, "one") in reported.lines
        assert (1, "two") not in reported.lines
        return products()

    script(OnProcessJobRequest=process).process_job(process_request(reported, tmp_path))

    assert reported.lines == [(1, "one"), (1, "two")]
    assert capsys.readouterr() == ("", "")


def test_script_receives_the_cancel_and_shutdown_callbacks(script, reported, tmp_path):
    class Ended(BaseException):
        pass

    received = []

    def process(_args):
        raise Ended

    made = script(
        OnProcessJobRequest=process,
        OnCancel=lambda args: received.append(("cancel", args)),
        OnShutdown=lambda _args: received.append("shutdown"),
    )

    with pytest.raises(Ended):
        made.process_job(process_request(reported, tmp_path))
    made.shutdown()

    assert received == [("cancel", []), "shutdown"]

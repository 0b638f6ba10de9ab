"""One call of a builder: valid answers, invalid answers, and failures."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import warnings
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace
from run_harness import PLATFORMS, PYTHON, Instance, jobs, made, write

from aptui.core.model import DependencyKind, EdgeKind
from aptui.core.model import JobDependency as PlannedDependency
from aptui.core.notices import LogLevel
from aptui.core.orders import Outcome
from aptui.sdk import (
    Cancelled,
    CreateJobsResponse,
    JobDependency,
    JobDescriptor,
    JobError,
    JobProduct,
    PlatformInfo,
    ProcessJobResponse,
    ProductFlag,
    Result,
    SimpleBuilder,
    SourceDependency,
    SourceDependencyKind,
    same_for_all_sources,
)
from aptui.worker import builder_run as worker_run
from aptui.worker import file_access, reads
from aptui.worker.log import RunLog
from aptui.worker.wire import FrameKind, decode, encode

pytestmark = pytest.mark.real


def product(request, name="a.out", data=b"data", **more):
    write(request.product_path(name), data)
    return JobProduct(name, **more)


# ------------------------------------------------------------------------------------------------------------------ analysis


class Alike(SimpleBuilder):
    name = "alike"


class Reads(Alike):
    @same_for_all_sources
    def create_jobs(self, request):
        request.read_source()
        return super().create_jobs(request)


class Overrides(Reads):
    def create_jobs(self, request):
        return super().create_jobs(request)


class Decorated(Alike):
    @same_for_all_sources
    def create_jobs(self, request):
        return super().create_jobs(request)


class Analyses(Alike):
    def analyse(self, request):
        """Read nothing."""


class Says(Alike):
    def analyse(self, request):
        request.is_same_for_all_sources = True


class SaysAndReads(Says):
    def analyse(self, request):
        super().analyse(request)
        request.read_source()


@pytest.mark.parametrize(
    ("builder", "is_for_all"),
    [
        (Alike, True), (Decorated, True), (Says, True),
        (Analyses, False), (Overrides, False), (Reads, False), (SaysAndReads, False),
    ],
)  # fmt: skip
def test_analysis_is_valid_for_all_sources_if_declared_and_no_source_was_read(harness, builder, is_for_all):
    reads.watch((str(harness.root),))
    harness.source()

    result = worker_run.analyse(harness.analyse_order(), PYTHON, PLATFORMS, lambda _builder: builder())
    reads.watch(())

    assert (result.outcome, result.is_for_all_sources) == (Outcome.SUCCEEDED, is_for_all)


def test_analysis_receives_the_configuration_and_returns_job_plans(harness):
    asked = []

    def create_jobs(request):
        asked.append(request)
        request.log.info("looked", at=request.source)
        job = JobDescriptor("k", "linux", 3, True, "more", {"b": "2", "a": "1"})
        job.job_dependencies = [
            JobDependency("Other/B.txt", "k", "common", DependencyKind.ORDER, (2, 1, 2)),
            JobDependency("", "k", "linux", uuid=UUID(int=5)),
        ]
        return jobs(job)

    builder = replace(PYTHON, params='{"x":1,"y":1}', platform_params=(("linux", '{"y":2}'),))

    result = harness.analyse(create_jobs, builder)

    (request,), (plan,) = asked, result.plans
    assert (request.full_path, request.read_source()) == (str(harness.root / "a.txt"), b"hello")
    assert request.source_uuid == UUID(bytes=bytes(range(16)))
    assert request.params_for("linux") == {"x": 1, "y": 2}
    assert [(platform.id, platform.tags) for platform in request.platforms] == [("linux", ("tools",))]
    assert (plan.key, plan.platform, plan.priority, plan.is_critical) == ("k", "linux", 3, True)
    assert (plan.additional_fingerprint, plan.params) == ("more", '{"a":"1","b":"2"}')
    assert plan.job_dependencies == (
        PlannedDependency(UUID(int=5).hex, "k", "linux", DependencyKind.ORDER, is_uuid=True),
        PlannedDependency("other/b.txt", "k", "common", DependencyKind.ORDER, (1, 2)),
    )
    assert [(record.text, record.context) for record in result.log] == [("looked", (("at", "a.txt"),))]


def test_source_dependencies_of_a_plan_are_unique_and_have_a_kind(harness):
    uuid = UUID(int=7)
    dependencies = [
        SourceDependency("./x/../b.txt"),
        SourceDependency("b.txt"),
        SourceDependency("*.h", SourceDependencyKind.WILDCARD),
        SourceDependency("ignored.txt", uuid=uuid),
        SourceDependency(),
    ]

    result = harness.analyse(lambda _request: jobs(source_dependencies=dependencies))

    assert [(edge.kind, edge.target) for edge in result.edges] == [
        (EdgeKind.PATH, "b.txt"),
        (EdgeKind.WILDCARD, "*.h"),
        (EdgeKind.UUID, uuid.hex),
    ]


def test_job_for_an_unknown_platform_is_passed_to_the_engine(harness):
    result = harness.analyse(lambda _request: jobs(JobDescriptor("k", "mars"), JobDescriptor("k", "common")))

    assert [plan.platform for plan in result.plans] == ["mars", "common"]


def test_a_plan_uses_the_later_of_two_jobs_with_the_same_key(harness):
    result = harness.analyse(lambda _request: jobs(JobDescriptor("k", "linux", 1), JobDescriptor("k", "linux", 2)))

    assert [plan.priority for plan in result.plans] == [2]


def raising(error):
    def raises(_request):
        raise error

    return raises


@pytest.mark.parametrize(
    ("create_jobs", "outcome", "error"),
    [
        (raising(ValueError("bad header\nmore")), Outcome.FAILED, "ValueError: bad header"),
        (raising(KeyError()), Outcome.FAILED, "KeyError"),
        (raising(SystemExit(3)), Outcome.FAILED, "builder called sys.exit(3)"),
        (raising(MemoryError()), Outcome.FAILED, "out of memory"),
        (raising(MemoryError("too large")), Outcome.FAILED, "out of memory: too large"),
        (raising(Cancelled()), Outcome.CANCELLED, "cancelled"),
        (lambda _: CreateJobsResponse(error="no good"), Outcome.FAILED, "no good"),
        (lambda _: CreateJobsResponse(), Outcome.FAILED, "builder reported failure"),
        (lambda _: CreateJobsResponse(Result.CANCELLED), Outcome.CANCELLED, "cancelled"),
        (lambda _: None, Outcome.FAILED, "create_jobs returned NoneType, not a CreateJobsResponse"),
        (lambda _: jobs("job"), Outcome.FAILED, "create_jobs returned a value of the wrong type"),
        (
            lambda _: CreateJobsResponse(Result.SUCCESS, source_dependencies=[SourceDependency("a\0.h")]),
            Outcome.FAILED,
            "the path 'a\\x00.h' contains a NUL character",
        ),
        (lambda _: jobs(JobDescriptor("", "linux")), Outcome.FAILED, "job_key must be text"),
        (lambda _: jobs(JobDescriptor(5, "linux")), Outcome.FAILED, "job_key must be text"),
        (lambda _: jobs(JobDescriptor("k" * 4097, "linux")), Outcome.FAILED, "has 4,097 characters; the limit is 4,096"),
        (lambda _: jobs(JobDescriptor("k", "linux", "high")), Outcome.FAILED, "value of the wrong type"),
        (lambda _: jobs(JobDescriptor("k", PlatformInfo("linux"))), Outcome.FAILED, "the platform of a job must be text, such as"),
        (
            lambda _: jobs(JobDescriptor("k", "linux", job_dependencies=[JobDependency("b", 5, "linux")])),
            Outcome.FAILED,
            "value of the wrong type",
        ),
        (
            lambda _: jobs(JobDescriptor("k", "linux", job_dependencies=[JobDependency("b", "k", None)])),
            Outcome.FAILED,
            "value of the wrong type",
        ),
        (
            lambda _: jobs(JobDescriptor("k", "linux", job_dependencies=[JobDependency("b", "k", "linux", 99)])),
            Outcome.FAILED,
            "value of the wrong type",
        ),
    ],
)
def test_failed_analysis_has_a_one_line_error_and_no_plans(harness, create_jobs, outcome, error):
    result = harness.analyse(create_jobs)

    assert result.outcome == outcome
    assert error in result.error
    assert (result.plans, result.edges) == ((), ())
    assert decode(FrameKind.ANALYSED, encode(FrameKind.ANALYSED, result)[5:]) == result


def list_jobs_and_fail():
    yield JobDescriptor("k", "linux")
    raise KeyError("texture")


@pytest.mark.parametrize(
    ("listed", "error"),
    [
        ([JobDescriptor("k", "linux", float("inf"))], "OverflowError"),
        (list_jobs_and_fail(), "KeyError: 'texture'"),
    ],
)
def test_analysis_whose_answer_cannot_be_read_fails(harness, listed, error):
    result = harness.analyse(lambda _: CreateJobsResponse(Result.SUCCESS, listed))

    assert (result.outcome, result.plans) == (Outcome.FAILED, ())
    assert result.error.startswith(error)


def test_analysis_that_asks_for_matches_and_names_an_impossible_path_fails(harness):
    def create_jobs(request):
        request.source_dependencies.append(SourceDependency("a\0.h"))
        request.matching("*.h")

    result = harness.analyse(create_jobs)

    assert result.outcome == Outcome.FAILED
    assert "contains a NUL character" in result.error


def test_analysis_is_stale_if_an_ignored_dependency_changes_while_it_is_read(harness, monkeypatch):
    def change(_path, **_options):
        raise file_access.FileChanged("the file changed while it was read")

    (harness.root / "a.ignored").write_text("text")
    reads.watch((str(harness.root),), r".*\.ignored")
    monkeypatch.setattr(file_access, "digest_file", change)

    result = harness.analyse(lambda _: CreateJobsResponse(Result.SUCCESS, [], [SourceDependency("a.ignored")]))
    reads.watch(())

    assert result.outcome == Outcome.STALE


def test_additional_fingerprint_without_an_analysis_fingerprint_is_refused(harness):
    result = harness.analyse(
        lambda _: jobs(JobDescriptor("k", "linux", additional_fingerprint="x")), replace(PYTHON, analysis_fingerprint="")
    )

    assert result.outcome == Outcome.FAILED
    assert "analysis_fingerprint" in result.error


def test_error_of_a_failure_without_a_text_is_the_first_logged_error(harness):
    def create_jobs(request):
        request.log.error("line 3 is odd\nvery")
        return CreateJobsResponse()

    assert harness.analyse(create_jobs).error == "line 3 is odd"


def test_builder_answers_with_undecodable_names_reach_the_engine(harness):
    odd = os.fsdecode(b"caf\xe9")

    result = harness.analyse(
        lambda _: jobs(
            JobDescriptor(odd, "linux", 0, False, odd, {odd: odd}, [JobDependency(odd, odd, "linux")]),
            source_dependencies=[SourceDependency(odd)],
        )
    )

    assert result.outcome == Outcome.SUCCEEDED
    assert decode(FrameKind.ANALYSED, encode(FrameKind.ANALYSED, result)[5:]) == result


# ---------------------------------------------------------------------------------------------------------------- processing


def test_folders_of_a_job_are_removed_after_the_run(harness):
    asked = []

    def process_job(request):
        asked.append(
            (os.getcwd(), request.temp_dir, os.environ["TMPDIR"], os.listdir(request.products_dir), dict(request.job_params))
        )
        write(os.path.join(request.temp_dir, "scratch"))
        return made(product(request))

    order = harness.order(params='{"p":"1"}')

    result = harness.process(process_job, order)

    assert asked == [(f"{order.staging}/temp", f"{order.staging}/temp", f"{order.staging}/temp", [], {"p": "1"})]
    assert result.outcome == Outcome.SUCCEEDED
    assert os.listdir(order.staging) == ["products"]
    assert os.environ["TMPDIR"] == str(harness.root.parent)


def test_process_job_does_not_receive_planning_parameters(harness):
    asked = []

    def process_job(request):
        asked.append(request.params)
        return made(product(request))

    schema = '{"properties": {"x": {"is_planning_only": true}}}'
    harness.process(process_job, builder=replace(PYTHON, params='{"x":1,"y":1}', params_schema=schema))

    assert asked == [{"y": 1}]


def test_staging_folder_of_a_failed_run_is_removed(harness):
    order = harness.order()

    harness.process(raising(ValueError()), order)

    assert not os.path.exists(order.staging)


@pytest.mark.parametrize("how", ["keeps_temp", "debug_output", "keep_temp"])
def test_temporary_files_of_a_run_are_kept_if_the_engine_or_the_builder_requests_it(harness, how):
    def process_job(request):
        write(os.path.join(request.temp_dir, "scratch"))
        return made(product(request), keep_temp=how == "keep_temp")

    order = harness.order(**({} if how == "keep_temp" else {how: True}))

    harness.process(process_job, order)

    assert os.path.exists(f"{order.staging}/temp/scratch")


def test_products_are_named_after_their_source_in_lower_case_and_hashed(harness):
    result = harness.process(
        lambda request: made(product(request, "Deep/A.OUT", b"bytes", sub_id=4, asset_type=UUID(int=9))), harness.order("Dir/A.txt")
    )

    (staged,) = result.products
    assert (staged.name, staged.sub_id, staged.asset_type, staged.flags) == ("dir/a.out", 4, UUID(int=9).bytes, 1)
    assert (staged.digest, staged.size) == (hashlib.sha256(b"bytes").digest(), 5)
    assert Path(staged.staged).read_bytes() == b"bytes"


def test_a_product_in_the_temporary_folder_is_moved(harness):
    result = harness.process(lambda request: made(JobProduct(write(f"{request.temp_dir}/sub/t.out", b"temp"))))

    (staged,) = result.products
    assert Path(staged.staged).read_bytes() == b"temp"
    assert "/temp/" not in staged.staged


@pytest.mark.parametrize(("made_with", "staged_with"), [(0, 0o644), (0o7777, 0o775)])
def test_product_becomes_readable_and_is_never_setuid_or_writable_by_others(harness, made_with, staged_with):
    def process_job(request):
        os.chmod(write(request.product_path("a.out")), made_with)
        return made(JobProduct("a.out"))

    (staged,) = harness.process(process_job).products
    assert os.stat(staged.staged).st_mode & 0o7777 == staged_with


def test_product_outside_the_folders_of_the_run_is_copied(harness, tmp_path):
    elsewhere = write(tmp_path / "shared.out", b"shared")

    result = harness.process(lambda _request: made(JobProduct(elsewhere)))

    (staged,) = result.products
    assert Path(staged.staged).read_bytes() == Path(elsewhere).read_bytes() == b"shared"


def test_a_product_with_a_second_hard_link_is_copied(harness):
    def process_job(request):
        os.link(write(f"{request.scan_folder}/b.txt"), request.product_path("a.out"))
        return made(JobProduct("a.out"))

    result = harness.process(process_job)

    (staged,) = result.products
    assert os.stat(staged.staged).st_nlink == 1
    assert Path(staged.staged).read_bytes() == b"data"


def linked(request, target, name="l.out"):
    os.symlink(target, request.product_path(name))


LIES = {
    "missing": (lambda r: [JobProduct("never.out")], "product 'never.out' does not exist"),
    "below a file": (lambda r: [product(r, "x"), JobProduct("x/y.out", 1)], "product 'x/y.out' does not exist"),
    "outside": (lambda r: [JobProduct("../../../x.out")], "product '../../../x.out' is outside the folder for products"),
    "link": (
        lambda r: [linked(r, "/etc/hostname")] and [JobProduct("l.out")],
        "product 'l.out' is a link, or in a folder behind a link",
    ),
    "dangling link": (
        lambda r: [linked(r, "nowhere")] and [JobProduct("l.out")],
        "product 'l.out' is a link, or in a folder behind a link",
    ),
    "behind a link": (
        lambda r: [linked(r, "/etc", "d")] and [JobProduct("d/hostname")],
        "product 'd/hostname' is a link, or in a folder behind a link",
    ),
    "folder": (lambda r: [os.mkdir(r.product_path("d"))] and [JobProduct("d")], ("product 'd' is not a regular file")),  # type: ignore[list-item]
    "fifo": (lambda r: [os.mkfifo(r.product_path("f"))] and [JobProduct("f")], ("product 'f' is not a regular file")),  # type: ignore[list-item]
    "no name": (lambda r: [JobProduct("d/..")], "product 'd/..' has no file name"),
    "control": (lambda r: [product(r, "a\x1b[2J")], r"product 'a\x1b[2J' has control characters in its name"),
    "long": (lambda r: [JobProduct("x" * 256)], "has a name longer than 255 bytes"),
    "same name": (
        lambda r: [product(r, "a.out", sub_id=1), product(r, "x/A.OUT", sub_id=2)],
        "products 'a.out' and 'x/A.OUT' have the same name 'a.out'",
    ),
    "same sub id": (
        lambda r: [product(r, "a", sub_id=7), product(r, "b", sub_id=7)],
        "products 'a' and 'b' have the same sub id 7",
    ),
    "negative": (lambda r: [product(r, sub_id=-1)], "has the sub id -1, which is not a number of 32 bits"),
    "33 bits": (lambda r: [product(r, sub_id=1 << 32)], "has the sub id 4294967296"),
    "text as sub id": (lambda r: [product(r, sub_id="1")], "has the sub id '1'"),
    "both flags": (lambda r: [product(r, flags=3)], "must be flagged either PRODUCT or INTERMEDIATE"),
    "no flag": (lambda r: [product(r, flags=0)], "must be flagged either PRODUCT or INTERMEDIATE"),
    "intermediate": (lambda r: [product(r, flags=ProductFlag.INTERMEDIATE)], "intermediate products need the platform 'common'"),
    "folder of its own": (
        lambda r: [product(r, folder="x")],
        "sets the folder 'x', but only intermediate products can set a folder",
    ),
    "climbing folder": (
        lambda r: [product(r, flags=ProductFlag.INTERMEDIATE, folder="../x")],
        "'../x' is not a folder relative to",
    ),
    "absolute folder": (lambda r: [product(r, flags=ProductFlag.INTERMEDIATE, folder="/x")], "'/x' is not a folder relative to"),
    "no folder": (lambda r: [product(r, flags=ProductFlag.INTERMEDIATE, folder="./.")], "'./.' is not a folder relative to"),
    "text": (lambda r: ["a.out"], "the builder returned str as a product, not a JobProduct"),
    "number as path": (lambda r: [JobProduct(5)], "TypeError"),
}


@pytest.mark.parametrize("lie", LIES)
def test_error_about_an_invalid_product_names_its_file(harness, lie):
    make, error = LIES[lie]

    result = harness.process(lambda request: made(*make(request)))

    assert result.outcome == Outcome.FAILED
    assert error in result.error
    assert result.products == ()
    assert result.log[-1].text == result.error


def test_only_intermediates_may_belong_to_the_common_platform(harness):
    good = harness.process(lambda r: made(product(r, flags=ProductFlag.INTERMEDIATE)), harness.order(platform="common"))
    bad = harness.process(lambda r: made(product(r)), harness.order(platform="common"))

    assert (good.outcome, good.products[0].flags) == (Outcome.SUCCEEDED, 2)
    assert (bad.outcome, "only intermediate products can have" in bad.error) == (Outcome.FAILED, True)


def test_builder_may_choose_the_folder_of_an_intermediate(harness):
    def process(request):
        first = product(request, "x/A.Out", flags=ProductFlag.INTERMEDIATE, folder="Some\\Other/./Place")
        return made(first, product(request, "b.out", sub_id=1, flags=ProductFlag.INTERMEDIATE))

    result = harness.process(process, harness.order(platform="common"))

    assert [item.name for item in result.products] == ["some/other/place/a.out", "b.out"]


def test_run_is_stale_if_its_source_changed_after_the_order(harness):
    order = harness.order()
    harness.source("a.txt", b"other")
    called = []

    result = harness.process(called.append, order)

    assert (result.outcome, result.error, called) == (Outcome.STALE, "the source changed while the job ran", [])


def test_run_is_stale_if_its_source_changes_during_the_run(harness):
    def process_job(request):
        harness.source("a.txt", b"other")
        return made(product(request))

    result = harness.process(process_job)

    assert (result.outcome, result.products) == (Outcome.STALE, ())


def test_progress_of_a_builder_reaches_its_log_while_it_runs(harness):
    found = []

    def process_job(request):
        request.progress(0.5)
        found.append(log.so_far()[1][-1].text)
        return made(product(request))

    log = RunLog("tool")
    result = worker_run.process(harness.order(), PYTHON, PLATFORMS, lambda _builder: Instance(process_job=process_job), log=log)

    assert (result.outcome, found, result.log) == (Outcome.SUCCEEDED, ["[50 %]"], ())


def test_a_run_is_stale_if_its_source_was_deleted(harness):
    order = harness.order()
    os.unlink(harness.root / "a.txt")

    result = harness.process(lambda _request: made(), order)

    assert (result.outcome, result.error) == (Outcome.STALE, "the source cannot be read: No such file or directory")


def test_a_run_is_stale_if_its_source_has_another_digest_than_the_engine_expects(harness):
    def process_job(request):
        request.read_source()
        return made(product(request))

    result = harness.process(process_job, harness.order(source_digest=bytes(32)))

    assert (result.outcome, result.error) == (Outcome.STALE, "the source changed before it was read")
    assert result.source_digest == hashlib.sha256(b"hello").digest()


@pytest.mark.parametrize("process_job", [raising(Cancelled()), lambda _: ProcessJobResponse(Result.CANCELLED)])
def test_builder_may_report_that_it_was_cancelled(harness, process_job):
    result = harness.process(process_job)

    assert (result.outcome, result.error, result.errors) == (Outcome.CANCELLED, "cancelled", 0)


def test_an_exception_leaves_its_traceback_in_the_log(harness):
    result = harness.process(raising(ValueError("bad header\nsecond line")))

    record, *trace = result.log
    assert (result.outcome, result.errors) == (Outcome.FAILED, 1)
    assert re.fullmatch(r"ValueError: bad header \(test_builder_run\.py:\d+\)", result.error)
    assert (record.level, record.text) == (LogLevel.ERROR, result.error)
    assert trace[0].text == "Traceback (most recent call last):"
    assert [line.text for line in trace[-2:]] == ["ValueError: bad header", "second line"]
    assert not any("aptui/worker" in line.text or "\n" in line.text for line in trace)


def test_exception_with_lone_surrogates_is_encoded(harness):
    result = harness.process(raising(ValueError("lone \ud800")))

    assert result.error.startswith(r"ValueError: lone \ud800 (test_builder_run.py:")
    assert decode(FrameKind.RAN, encode(FrameKind.RAN, result)[5:]) == result


class Unprintable(Exception):
    def __str__(self):
        return str(self.args[1])


@pytest.mark.parametrize(
    ("process_job", "error"),
    [
        (lambda _: "yes", "process_job returned str, not a ProcessJobResponse"),
        (lambda _: ProcessJobResponse(), "builder reported failure"),
        (lambda _: ProcessJobResponse(error="too\nbad"), "too"),
        (lambda _: ProcessJobResponse(Result.SUCCESS, dependencies=[5]), "TypeError"),  # type: ignore[list-item]
        (lambda _: ProcessJobResponse(Result.SUCCESS, sources_to_reprocess=[5]), "TypeError"),  # type: ignore[list-item]
        (raising(SystemExit("bye")), "builder called sys.exit('bye')"),
        (raising(JobError("")), "builder reported failure"),
        (lambda _: ProcessJobResponse(error=" \n"), "builder reported failure"),
        (raising(Unprintable("x")), "Unprintable"),
        (raising(BaseException("a panic of native code")), "BaseException: a panic of native code"),
    ],
)
def test_failed_run_has_a_one_line_error_that_is_also_logged(harness, process_job, error):
    result = harness.process(process_job)

    assert result.outcome == Outcome.FAILED
    assert result.error.startswith(error)
    assert any(record.level == LogLevel.ERROR for record in result.log)


def test_engine_gets_the_dependencies_and_the_sources_to_reprocess(harness, tmp_path):
    header = write(tmp_path / "shared/b.h", b"header")
    harness.source("c.h", b"c")

    def process_job(request):
        found = [header, "c.h", "./c.h", "gone.h", "a.txt", str(tmp_path), f"{request.temp_dir}/own"]
        return made(product(request), dependencies=found, sources_to_reprocess=["other.txt", os.fsdecode(b"caf\xe9")])

    result = harness.process(process_job)

    assert result.discovered == (
        (header, hashlib.sha256(b"header").hexdigest()),
        (str(harness.root / "c.h"), hashlib.sha256(b"c").hexdigest()),
        (str(harness.root / "gone.h"), ""),
        (str(tmp_path), ""),
    )
    assert result.reprocess == ("other.txt", "caf\U0010ffe9")


def test_failed_run_does_not_reprocess_other_sources(harness):
    result = harness.process(lambda _: made(JobProduct("never"), sources_to_reprocess=["other.txt"]))

    assert (result.outcome, result.reprocess) == (Outcome.FAILED, ())


def test_a_run_fails_if_a_process_is_left_and_the_process_is_killed(harness):
    pids = []

    def process_job(request):
        pids.append(subprocess.Popen(["sleep", "3600"]))
        return made(product(request))

    result = harness.process(process_job)

    (child,) = pids
    assert result.error == f"builder left a process running, which was killed: sleep (pid {child.pid})"
    assert not os.path.exists(f"/proc/{child.pid}")
    child.wait()


@pytest.mark.filterwarnings("default")
def test_python_warning_of_a_builder_is_logged_in_every_run(harness):
    def process_job(request):
        warnings.warn("this\nis odd", stacklevel=1)
        warnings.warn(RuntimeWarning("worse"), stacklevel=1)
        return made(product(request))

    for _run in range(2):
        result = harness.process(process_job)

        assert (result.outcome, result.warnings, result.errors, result.reads) == (Outcome.SUCCEEDED, 2, 0, ())
        line = process_job.__code__.co_firstlineno + 1
        assert [record.text for record in result.log] == [
            f"UserWarning: this\nis odd (test_builder_run.py:{line})", f"RuntimeWarning: worse (test_builder_run.py:{line + 1})",
        ]  # fmt: skip


@pytest.mark.filterwarnings("default")
def test_python_warning_during_analysis_is_logged_as_a_warning(harness):
    def create_jobs(_request):
        warnings.warn("odd", stacklevel=1)
        return CreateJobsResponse(Result.SUCCESS)

    result = harness.analyse(create_jobs)

    assert [(record.level, record.text.partition(" (")[0]) for record in result.log] == [(2, "UserWarning: odd")]


def test_warnings_and_errors_are_counted_and_do_not_fail_a_run(harness):
    def process_job(request):
        request.log.warning("w")
        request.log.error("e")
        request.log.debug("d", key=1)
        return made(product(request))

    result = harness.process(process_job)

    assert (result.outcome, result.error, result.warnings, result.errors) == (Outcome.SUCCEEDED, "", 1, 1)
    assert [record.level for record in result.log] == [2, 3, 0]


def test_long_log_is_truncated_in_the_middle(harness):
    def process_job(request):
        for number in range(10_000):
            request.log.warning(f"w{number}")
        return made(product(request))

    result = harness.process(process_job)

    texts = [record.text for record in result.log]
    assert (len(texts), texts[0], texts[-1]) == (4001, "w0", "w9999")
    assert texts[2000] == "[… 6000 records left out …]"
    assert result.warnings == 10_000

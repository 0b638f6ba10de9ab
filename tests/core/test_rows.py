"""Rows of the database: packed values can be unpacked without loss, and unfinished jobs are stored as pending."""

from __future__ import annotations

import pytest
from fakes import sha
from hypothesis import given
from hypothesis import strategies as st

from aptui.core import rows
from aptui.core.model import (
    ANALYSIS_KEY,
    DependencyKind,
    EdgeKind,
    FileFact,
    Job,
    JobDependency,
    JobPlan,
    JobState,
    PathKey,
    Product,
    RelPath,
    Source,
    SourceEdge,
    SourceUuid,
    with_origin,
)
from aptui.core.rows import ROW_OPERATIONS

TEXT = st.text(max_size=8)
DEPENDENCIES = st.builds(
    JobDependency,
    TEXT,
    TEXT,
    TEXT,
    st.sampled_from(DependencyKind),
    st.lists(st.integers(0, 9), max_size=2).map(tuple),
    st.booleans(),
)
PLANS = st.builds(
    JobPlan, TEXT, TEXT, st.integers(-9, 9), st.booleans(), TEXT, st.just('{"a":1}'), st.lists(DEPENDENCIES, max_size=2).map(tuple)
)


def source() -> Source:
    fact = FileFact(1, RelPath("A.s"), 1, 2, 3, 4, sha("x"), 5)
    return Source(PathKey("a.s"), RelPath("A.s"), 1, SourceUuid(b"u" * 16), 7, fact)


def width(operation: str) -> int:
    return len(ROW_OPERATIONS[operation].split(", "))


@given(plan=PLANS, discovered=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple))
def test_unpacked_plan_equals_the_packed_plan(plan: JobPlan, discovered: tuple[tuple[str, str], ...]) -> None:
    text = rows.pack_plan(plan, discovered)

    assert rows.unpack_plan(text, plan.key, plan.platform) == (plan, discovered)


def test_plan_with_only_default_values_is_stored_as_empty_text() -> None:
    plan = JobPlan("data", "linux")

    assert rows.pack_plan(plan, ()) == rows.pack_plan(None, ()) == ""
    assert rows.unpack_plan("", "data", "linux") == (plan, ())
    assert rows.pack_plan(plan, (("x", "1"),)) != ""


@given(
    plans=st.lists(PLANS, max_size=3).map(tuple),
    edges=st.lists(st.builds(SourceEdge, st.sampled_from(EdgeKind), TEXT), max_size=3).map(tuple),
)
def test_unpacked_analysis_equals_the_packed_analysis(plans: tuple[JobPlan, ...], edges: tuple[SourceEdge, ...]) -> None:
    job = Job(source(), b"b", "", ANALYSIS_KEY, plans=plans, edges=edges)

    assert rows.unpack_analysis(rows.pack_analysis(job)) == (plans, edges)


def test_empty_text_is_unpacked_as_an_analysis_without_plans() -> None:
    assert rows.unpack_analysis("") == ((), ())


@pytest.mark.parametrize("state", [None, *JobState])
def test_job_in_progress_is_stored_as_pending(state: JobState | None) -> None:
    job = Job(source(), b"b", "linux", "main", 3, state)
    is_settled = state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)

    operation, row = rows.job_row(job)

    assert (operation, len(row)) == ("put_job", width("put_job"))
    assert row[16] == (state.value if is_settled and state else "waiting")
    assert row[6] == {JobState.COMPLETED: 4, JobState.FAILED: 2, JobState.CANCELLED: 2}.get(state, 0)  # type: ignore[call-overload]


def test_row_of_a_job_can_be_made_for_a_given_state() -> None:
    job = Job(source(), b"b", "linux", "main", 3, JobState.COMMITTING)

    assert rows.job_row(job, JobState.COMPLETED)[1][16] == "completed"


def test_failed_analysis_is_stored_without_a_fingerprint() -> None:
    job = Job(source(), b"b", "", ANALYSIS_KEY, state=JobState.FAILED)
    absent = Job(source(), b"b", "", ANALYSIS_KEY)

    operation, row = rows.job_row(job)

    assert (operation, len(row)) == ("put_analysis", width("put_analysis"))
    assert row[2:4] == ("failed", None)
    assert rows.job_row(absent)[1][2] == "waiting"


def test_source_row_has_no_digest_if_the_file_does_not_exist() -> None:
    here, gone = source(), source()
    gone.fact = None

    assert rows.source_row(here) == (7, 1, "A.s", b"u" * 16, "a.s", sha("x"), "", 0, 5)
    assert rows.source_row(gone)[5] == b""


def test_hashes_are_stored_as_signed_integers() -> None:
    job = Job(source(), b"b", "linux", "main", 3)
    product = Product("linux/a.out", 0, bytes(16), 1, sha("p"), (1 << 64) - 1, 9)

    _operation, row = next(rows.product_rows(5, job, product))

    assert row == (5, 3, "linux/a.out", 0, bytes(16), -1, 1, sha("p"), 9)
    edges = [0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    assert [rows.to_signed(value) for value in edges] == [0, (1 << 63) - 1, -(1 << 63), -1]
    assert [rows.to_unsigned(rows.to_signed(value)) for value in edges] == edges


def test_each_edge_is_written_once_with_the_bits_of_its_dependencies() -> None:
    here = source()
    analysis = Job(here, b"b", "", ANALYSIS_KEY)
    analysis.edges = (SourceEdge(EdgeKind.PATH, "x"), SourceEdge(EdgeKind.WILDCARD, "*.y"), SourceEdge(EdgeKind.UUID, "0" * 32))
    main = Job(here, b"b", "linux", "main", discovered=(("z", ""),))
    after = JobDependency(PathKey("c.s"), "main", "linux", DependencyKind.ORDER, (1, 2))
    named = JobDependency(PathKey("1" * 32), "main", "linux", DependencyKind.ORDER, is_uuid=True)
    main.plan = JobPlan("main", "linux", job_dependencies=(after, after, named))
    other = Job(here, b"other", "linux", "main", discovered=(("not mine", ""),))
    here.jobs = {(job.builder, job.platform, job.key): job for job in (analysis, main, other)}

    written = rows.edge_rows(here, b"b")

    assert {(row[2], row[3], row[4], row[5], row[6]) for row in written} == {
        (0, "x", 1, "", 0), (1, "*.y", 5, "", 0), (2, "0" * 32, 1, "", 1), (3, "c.s", 2, "1,2", 0), (2, "1" * 32, 2, "", 1),
        (4, "z", 1, "", 0),
    }  # fmt: skip
    assert len(written) == 6
    assert all(len(row) == width("put_edge") for row in written)


@pytest.mark.parametrize(
    ("reason", "origin", "expected"),
    [
        ("new source", "", "new source"),
        ("new source", "from here", "new source; its result is from here"),
        ("", "from here", "its result is from here"),
        ("", "", ""),
    ],
)
def test_origin_of_a_result_is_appended_to_the_reason_of_its_job(reason: str, origin: str, expected: str) -> None:
    assert with_origin(reason, origin) == expected

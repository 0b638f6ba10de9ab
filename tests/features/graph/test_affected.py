"""A change affects dependants through every kind of dependency.

Several builders may have jobs for a dependent source. Only the jobs of the builder that declared the dependency are affected.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aptui.core.model import DependencyKind, Job, JobDependency, JobPlan, PathKey
from aptui.core.paths import path_uuid
from aptui.core.rows import pack_analysis
from aptui.features.graph.affected import Spreading
from aptui.store.queries.reader import open_reader
from tests.store.graph_rows import BUILDER, FOUND, JOB, UUID, WILDCARD, Rows

OTHER = b"O" * 16
Spread = Callable[..., set[str]]


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    return Rows(tmp_path / "assetdb.sqlite", 5)


@pytest.fixture
def spread(rows: Rows) -> Spread:
    """Return the sources whose jobs would run."""

    def spread(*changed: str, through_products: bool = True) -> set[str]:
        with closing(open_reader(rows.path)) as reader:
            spreading = Spreading(reader, through_products=through_products)
            spreading.find_affected(dict.fromkeys(changed, "it changed"))
            return {job.source for job in spreading.jobs()}

    return spread


def test_change_of_a_file_affects_sources_that_declare_the_file(rows: Rows, spread: Spread) -> None:
    rows.depend(1, "S0")
    rows.depend(2, path_uuid("s1").hex(), UUID)
    rows.depend(3, "?2", WILDCARD)

    assert spread("s0") == {"s0", "s1", "s2", "s3"}
    assert spread("s2") == {"s2", "s3"}


def test_changed_source_affects_only_direct_discovered_dependants(rows: Rows, spread: Spread) -> None:
    rows.depend(1, "s0", FOUND)
    rows.depend(2, "s1")

    assert spread("s0") == {"s0", "s1"}


def test_change_spreads_through_job_dependencies(rows: Rows, spread: Spread) -> None:
    rows.depend(1, "s0", JOB)
    rows.depend(2, "s1", JOB)
    rows.depend(3, "s1")

    assert spread("s0") == {"s0", "s1", "s2"}


def plan(rows: Rows, owner: int, *dependencies: JobDependency, platform: str = "linux") -> None:
    """Store an analysis of source `owner` that plans one job with these job dependencies."""
    packed = pack_analysis(Job(None, BUILDER, "", "", plans=(JobPlan("main", platform, job_dependencies=dependencies),)))
    with closing(sqlite3.connect(rows.path)) as database, database:
        database.execute(
            "INSERT INTO aptui_analyses VALUES (?, ?, 'completed', 1, '', 0, 0, 0, 0, '', '', ?, '')", (owner + 1, BUILDER, packed)
        )
    for dependency in dependencies:
        rows.depend(owner, dependency.source, JOB)


@pytest.mark.parametrize(
    ("kind", "is_possible", "is_certain"),
    [
        (DependencyKind.FINGERPRINT, True, True),
        (DependencyKind.ORDER, True, False),
        (DependencyKind.ORDER_ONCE, False, False),
        (DependencyKind.ORDER_ONLY, False, False),
    ],
)
def test_kind_of_a_job_dependency_decides_whether_a_change_spreads(
    rows: Rows, spread: Spread, kind: DependencyKind, is_possible: bool, is_certain: bool
) -> None:
    plan(rows, 1, JobDependency(PathKey("s0"), "main", "linux", kind))
    rows.depend(2, "s1", JOB)

    assert ("s1" in spread("s0")) is is_possible
    assert ("s2" in spread("s0")) is is_possible  # the kind of this dependency is unknown, because `s2` has no plan
    assert ("s1" in spread("s0", through_products=False)) is is_certain
    assert "s2" not in spread("s0", through_products=False)


@pytest.mark.parametrize(("key", "platform"), [("main", "server"), ("other", "linux")])
def test_change_does_not_spread_to_dependants_of_another_job_of_the_source(
    rows: Rows, spread: Spread, key: str, platform: str
) -> None:
    plan(rows, 1, JobDependency(PathKey("s0"), "main", "linux", DependencyKind.ORDER))
    plan(rows, 2, JobDependency(PathKey("s1"), key, platform, DependencyKind.ORDER))

    assert spread("s0") == {"s0", "s1"}


def test_change_runs_only_jobs_of_the_builder_that_declared_the_dependency(rows: Rows) -> None:
    rows.depend(1, "s0", builder=OTHER)

    with closing(open_reader(rows.path)) as reader:
        spreading = Spreading(reader)
        spreading.find_affected({"s0": "it changed"})

        assert spreading.found.which[2] == {OTHER}
        assert [job.source for job in spreading.jobs()] == ["s0"]  # s1 has no job of the builder OTHER.


def test_change_of_a_file_without_jobs_affects_sources_that_declare_it(rows: Rows, spread: Spread) -> None:
    rows.depend(1, "base.hlsl")
    rows.depend(2, "*.hlsl", WILDCARD)

    assert spread("base.hlsl") == {"s1", "s2"}
    assert spread("nothing.txt") == set()


def test_change_spreads_through_intermediate_products(rows: Rows, spread: Spread) -> None:
    with closing(sqlite3.connect(rows.path)) as database, database:
        rows.product(database, 11, 1, "common/s1", path_uuid("s0"), "common", 5, flags=2)
    rows.depend(2, "s1")

    assert spread("s0") == {"s0", "s1", "s2"}


def test_intermediate_products_of_a_job_that_would_not_run_are_not_affected(rows: Rows, spread: Spread) -> None:
    with closing(sqlite3.connect(rows.path)) as database, database:
        rows.product(database, 11, 2, "common/s2", path_uuid("s1"), "common", 5, flags=2)
    rows.depend(1, "s0", builder=OTHER)  # The job of s1 that made s2 has another builder.

    assert spread("s0") == {"s0"}


def test_changed_builder_runs_its_jobs_and_their_dependants(rows: Rows) -> None:
    with closing(sqlite3.connect(rows.path)) as database, database:
        database.execute("UPDATE Jobs SET BuilderGuid = ? WHERE JobID > 1", (OTHER,))
    rows.depend(3, "s0", JOB, OTHER)

    with closing(open_reader(rows.path)) as reader:
        spreading = Spreading(reader)
        spreading.touch_builders([BUILDER], "its builder changed")

        assert {job.source for job in spreading.jobs()} == {"s0", "s3"}
        assert spreading.products(spreading.jobs()) == ["linux/p0", "linux/p3"]


COUNT = 5
PAIRS = st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1)), max_size=8)


@settings(max_examples=10, deadline=None)
@given(sources=PAIRS, jobs=PAIRS, changed=st.integers(0, COUNT - 1))
def test_affected_jobs_equal_those_of_a_simple_reference_implementation(
    tmp_path_factory: pytest.TempPathFactory, sources: list[tuple[int, int]], jobs: list[tuple[int, int]], changed: int
) -> None:
    rows = Rows(tmp_path_factory.mktemp("oracle") / "assetdb.sqlite", COUNT)
    for owner, other in sources:
        rows.depend(owner, f"s{other}")
    for owner, other in jobs:
        rows.depend(owner, f"s{other}", JOB)
    reached, touched = {changed}, {changed}
    for _step in range(COUNT):
        reached |= {owner for owner, other in sources if other in reached}
        touched |= reached | {owner for owner, other in jobs if other in touched | reached}

    with closing(open_reader(rows.path)) as reader:
        spreading = Spreading(reader)
        spreading.find_affected({f"s{changed}": "it changed"})
        found = {job.source for job in spreading.jobs()}

    assert found == {f"s{at}" for at in touched}

"""The core's queries to a real database: they return the rows that were written, and only the requested rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from aptui.core import rows
from aptui.core.model import (
    ANALYSIS_KEY,
    UNKNOWN_SIZE,
    DependencyKind,
    Digest,
    EdgeKind,
    Job,
    JobDependency,
    JobPlan,
    JobState,
    PathKey,
    Product,
    RelPath,
    RunKey,
    Source,
    SourceEdge,
    SourceUuid,
)
from aptui.core.orders import Outcome
from aptui.core.state.ledger import RUN_KEY_STATE
from aptui.shared.errors import HostError, UserError
from aptui.store.db import archive as archive_module
from aptui.store.db.archive import DatabaseArchive
from aptui.store.db.schema import DamagedError
from aptui.store.db.writer import Intent
from tests.store.conftest import (
    BUILDER,
    DIGEST,
    Store,
    analysis_row,
    edge_row,
    fact,
    job_row,
    product_row,
    put_folder,
    source_row,
    two_jobs,
    uuid_of,
    with_gem,
)  # fmt: skip

KEY = PathKey("textures/ärger.png")
OTHER_BUILDER = b"C" * 16
TARGET = PathKey("shared/größe.json")
PLAN = JobPlan(
    "Image", "linux", 7, True, "more", '{"size":2}', (JobDependency(TARGET, "Json", "linux", DependencyKind.ORDER, (3, 4)),)
)
EDGES = (SourceEdge(EdgeKind.PATH, "Shared/Größe.json"), SourceEdge(EdgeKind.WILDCARD, "Shared/*.JSON"))
STORED = (
    "builder", "platform", "key", "id", "state", "fingerprint", "planned", "run_key", "plan", "priority", "is_critical",
    "escalation",
    "reason", "error", "inputs", "products", "discovered", "warnings", "errors", "log_file", "first_fail_ms", "last_fail_ms",
    "last_log_ms", "first_fail_log", "last_fail_log", "failure_cause", "duration_ms", "completed_ms", "plans", "edges",
)  # fmt: skip


def full_source() -> Source:
    """Return a source with one job and one analysis; every stored field is set."""
    source = Source(KEY, RelPath("Textures/Ärger.png"), 1, SourceUuid(uuid_of(1)), 1, fact("Textures/Ärger.png"))
    product = Product("linux/textures/ärger.png", 3, b"T" * 16, 1, Digest(DIGEST), (1 << 64) - 2, 10)
    job = Job(
        source, BUILDER, "linux", "Image", 4, JobState.FAILED, 7, 8, RunKey(9), PLAN, 7, True, 5, reason="new source",
        error="broken",
        inputs=(("source", "ä.png", "00ff"),), products=(product,), discovered=(("Shared/Gefunden.h", "aa"),), warnings=1, errors=2,
        log_file="JobLogs/a", first_fail_ms=10, last_fail_ms=11, last_log_ms=12, first_fail_log="JobLogs/b",
        last_fail_log="JobLogs/c", failure_cause="its dependency", duration_ms=13, completed_ms=14,
    )  # fmt: skip
    analysis = Job(
        source, OTHER_BUILDER, "", ANALYSIS_KEY, 0, JobState.COMPLETED, 21, 21, reason="new builder", warnings=3, errors=4,
        log_file="JobLogs/d", duration_ms=15, completed_ms=16, plans=(PLAN,), edges=EDGES,
    )  # fmt: skip
    source.jobs = {(item.builder, item.platform, item.key): item for item in (analysis, job)}
    return source


def put_source(store: Store, source: Source) -> None:
    """Save a source with all its rows by the command that the core sends."""
    jobs = [job for job in source.jobs.values() if not job.is_analysis]
    store.put(
        put_source=[rows.source_row(source)],
        put_analysis=[rows.job_row(job)[1] for job in source.jobs.values() if job.is_analysis],
        put_job=[rows.job_row(job)[1] for job in jobs],
        put_product=[
            next(rows.product_rows(number, job, product))[1] for job in jobs for number, product in enumerate(job.products, 1)
        ],
        put_edge=[row for builder in {key[0] for key in source.jobs} for row in rows.edge_rows(source, builder)],
    )


# ----------------------------------------------------------------------------------------------------------------- sources


def test_loaded_source_has_every_stored_field_of_its_jobs(store: Store) -> None:
    source = full_source()
    put_source(store, source)
    put_folder(store, "textures", fact("Textures/Ärger.png"))

    found = store.archive().sources([KEY])[KEY]

    fields = ("key", "rel", "scan_folder", "uuid", "id", "fact")
    assert {name: getattr(found, name) for name in fields} == {name: getattr(source, name) for name in fields}
    assert found.is_stored
    assert found.jobs.keys() == source.jobs.keys()
    for key, job in source.jobs.items():
        assert found.jobs[key].source is found
        assert {name: getattr(found.jobs[key], name) for name in STORED} == {name: getattr(job, name) for name in STORED}


def test_source_is_read_back_with_the_digest_of_its_last_plan(store: Store) -> None:
    source = full_source()
    assert source.fact is not None
    put_folder(store, "textures", source.fact)
    planned = replace(source.fact, digest=Digest(b"2" * 32))
    source.fact = planned
    put_source(store, source)

    found = store.archive().sources([KEY])[KEY].fact

    assert found == replace(planned, size=UNKNOWN_SIZE), (
        "the digest is read from the row of the source, not from the row of its folder"
    )


def test_plan_with_default_values_is_read_back(store: Store) -> None:
    source = full_source()
    job = source.jobs[BUILDER, "linux", "Image"]
    job.plan, job.discovered = JobPlan("Image", "linux"), ()
    put_source(store, source)

    found = store.archive().sources([KEY])[KEY].jobs[BUILDER, "linux", "Image"]

    assert found.plan == job.plan


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.COMMITTING])
def test_queued_or_running_job_is_read_back_as_waiting(store: Store, state: JobState) -> None:
    source = full_source()
    for job in source.jobs.values():
        job.state = state
    put_source(store, source)

    found = store.archive().sources([KEY])[KEY]

    assert {job.state for job in found.jobs.values()} == {JobState.WAITING}


def test_failed_analysis_has_no_stored_plan(store: Store) -> None:
    store.put(put_source=[source_row()], put_analysis=[analysis_row(state="failed")])

    analysis = store.archive().sources([KEY])[KEY].jobs[BUILDER, "", ANALYSIS_KEY]

    assert (analysis.fingerprint, analysis.planned) == (3, None)


def test_products_are_read_back_in_the_order_of_their_creation(store: Store) -> None:
    products = [product_row(number, 1, f"linux/{name}") for number, name in ((1, "z"), (2, "a"), (3, "m"))]
    store.put(put_source=[source_row()], put_job=[job_row()], put_product=products)

    job = store.archive().sources([KEY])[KEY].jobs[BUILDER, "linux", "Image"]

    assert [product.name for product in job.products] == ["linux/z", "linux/a", "linux/m"]


def test_source_without_a_folder_row_is_read_without_its_file_state(store: Store) -> None:
    store.put(put_source=[source_row(1, "a.png"), source_row(2, "b.png")])

    found = store.archive().sources([PathKey("a.png"), PathKey("missing.png")])

    assert list(found) == ["a.png"]
    assert found[PathKey("a.png")].fact is None
    assert store.archive().sources([]) == store.archive().sources([PathKey("missing.png")]) == {}


def test_archive_returns_all_sources_if_one_query_cannot_have_all_keys(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "CHUNK", 3)
    keys = [PathKey(f"{number}.png") for number in range(1, 11)]
    store.put(
        put_source=[source_row(number, key) for number, key in enumerate(keys, 1)],
        put_job=[job_row(number, number) for number in range(1, 11)],
    )

    archive = store.archive()

    assert list(archive.sources(keys)) == keys
    assert archive.key_of_jobs(list(range(1, 11))) == dict(enumerate(keys, 1))


def test_current_owner_of_a_uuid_is_listed_before_the_earlier_owners(store: Store) -> None:
    store.put(put_source=[source_row(number, f"{number}.png") for number in (1, 2, 3, 4)])
    store.put(put_legacy=[(uuid_of(3), 1, 20), (uuid_of(3), 2, 10), (uuid_of(3), 4, 20)])

    assert store.archive().keys_of(SourceUuid(uuid_of(3))) == ["3.png", "2.png", "1.png", "4.png"]


def test_source_keys_are_found_by_uuid_and_by_job(store: Store) -> None:
    store.put(put_source=[source_row(), source_row(2, "b.png")], put_job=[job_row(7, 2)])

    archive = store.archive()

    assert archive.keys_of(SourceUuid(uuid_of(1))) == [KEY]
    assert archive.keys_of(SourceUuid(uuid_of(9))) == []
    assert archive.key_of_jobs([7, 8]) == {7: "b.png"}


def test_row_that_cannot_be_unpacked_is_reported_as_damage(store: Store) -> None:
    store.put(put_source=[source_row()], put_job=[job_row(inputs="[no json")])

    with pytest.raises(DamagedError, match="start again"):
        store.archive().sources([KEY])


def test_opening_a_missing_database_is_a_host_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="permissions"):
        DatabaseArchive(tmp_path / "missing.sqlite", {})


# -------------------------------------------------------------------------------------------- unfinished jobs and analyses


@pytest.mark.parametrize(
    ("state", "status", "is_listed"),
    [("waiting", 0, True), ("failed", 2, True), ("cancelled", 2, False), ("completed", 4, False)],
)
def test_a_job_is_unfinished_until_it_is_completed_or_cancelled(store: Store, state: str, status: int, is_listed: bool) -> None:
    store.put(put_source=[source_row()], put_job=[job_row(state=state, status=status)])

    assert store.archive().list_unfinished() == [KEY] * is_listed


@pytest.mark.parametrize(
    ("state", "fingerprint", "is_listed"),
    [
        ("waiting", 3, True),
        ("failed", 3, True),
        ("cancelled", 3, False),
        ("cancelled", None, True),
        ("completed", 3, False),
        ("completed", None, True),
    ],
)
def test_analysis_without_a_fingerprint_is_unfinished(store: Store, state: str, fingerprint: int | None, is_listed: bool) -> None:
    store.put(put_source=[source_row()], put_analysis=[analysis_row(state=state, fingerprint=fingerprint)])

    assert store.archive().list_unfinished() == [KEY] * is_listed


def test_unfinished_sources_are_listed_once_and_in_the_order_of_their_keys(store: Store) -> None:
    store.put(
        put_source=[source_row(1, "b.png"), source_row(2, "A.png")],
        put_job=[job_row(number, 1 + number // 3, state="failed", status=2, job_key=str(number)) for number in (1, 2, 3)],
        put_analysis=[analysis_row(1, state="failed")],
    )

    assert store.archive().list_unfinished() == ["a.png", "b.png"]


def test_reason_and_origin_of_a_job_are_from_its_last_successful_run(store: Store) -> None:
    def run(key: int, outcome: Outcome, reason: str, origin: str = "") -> tuple[object, ...]:
        return (1, key, 0, 0, int(outcome), reason, "", "", 0, "", b"", "", origin)

    store.put(put_source=[source_row(1, "a.png")], put_job=[job_row(1, 1)])
    nothing = store.archive().reason_of(1)
    store.put(put_run=[run(5, Outcome.SUCCEEDED, "first"), run(7, Outcome.SUCCEEDED, "edited", "from the store")])
    store.put(put_run=[run(9, Outcome.FAILED, "edited again")])

    assert nothing == ("", "")
    assert store.archive().reason_of(1) == ("edited", "from the store")


def test_completed_job_with_an_unsaved_dependency_change_is_unfinished(store: Store) -> None:
    store.put(put_source=[source_row()], put_job=[job_row()])

    store.put(doubt_job=[(1,)])

    assert store.archive().list_unfinished() == [KEY]
    job = store.archive().sources([KEY])[KEY].jobs[BUILDER, "linux", "Image"]
    assert (job.state, job.fingerprint, job.planned) == (JobState.WAITING, 0, None)


def test_completed_analysis_with_an_unsaved_dependency_change_is_unfinished(store: Store) -> None:
    store.put(put_source=[source_row()], put_analysis=[analysis_row(1)])
    assert store.archive().list_unfinished() == []

    store.put(doubt_analysis=[(1, BUILDER)])

    assert store.archive().list_unfinished() == [KEY]


# ------------------------------------------------------------------------------------------------------------------- edges


def test_dependents_are_found_by_path_regardless_of_unicode_letter_case(store: Store) -> None:
    put_source(store, full_source())

    found = store.archive().dependents(["SHARED/GRÖSSE.json", "Shared/GRÖßE.json", "shared/gefunden.H", "shared/*.json"])

    assert found == {"Shared/GRÖßE.json": {KEY}, "shared/gefunden.H": {KEY}}


@pytest.mark.parametrize("kind", [EdgeKind.PATH, EdgeKind.UUID, EdgeKind.JOB, EdgeKind.DISCOVERED])
def test_dependents_are_found_for_each_kind_of_dependency_except_wildcards(store: Store, kind: EdgeKind) -> None:
    store.put(put_source=[source_row()], put_edge=[edge_row(kind, "ÄBC"), edge_row(EdgeKind.WILDCARD, "other")])

    assert store.archive().dependents(["äbc", "other"]) == {"äbc": {KEY}}


def test_dependents_of_a_target_are_returned_for_each_requested_spelling(store: Store) -> None:
    store.put(
        put_source=[source_row(1, "a.png"), source_row(2, "b.png")],
        put_edge=[edge_row(0, "X.h", source_id=1), edge_row(0, "x.H", source_id=2)],
    )

    assert store.archive().dependents(["x.h", "X.H"]) == {"x.h": {"a.png", "b.png"}, "X.H": {"a.png", "b.png"}}


def test_wildcards_are_listed_in_lower_case_with_their_sources(store: Store) -> None:
    put_source(store, full_source())
    store.put(put_source=[source_row(2, "b.png")], put_edge=[edge_row(EdgeKind.WILDCARD, "Ä*.PNG", bits=5, source_id=2)])

    assert store.archive().wildcards() == [("shared/*.json", KEY), ("ä*.png", "b.png")]


def test_has_edges_is_false_until_a_dependency_is_stored(store: Store) -> None:
    archive = store.archive()
    assert not archive.has_edges()

    store.put(put_source=[source_row()], put_edge=[edge_row(0, "a")])

    assert archive.has_edges()


# ---------------------------------------------------------------------------------------------------------------- products


def test_product_owners_are_returned_under_the_requested_names(store: Store) -> None:
    two_jobs(store)

    found = store.archive().owners(["linux/tex/a", "linux/tex/deep/b", "linux/nothing"])

    assert found == {"linux/tex/a": (1, "ä.png"), "linux/tex/deep/b": (2, "b.png")}


def test_conflicts_are_grouped_by_product_name_and_sorted(store: Store) -> None:
    two_jobs(store)
    store.put(put_conflict=[("linux/y", 2), ("linux/x", 2), ("linux/x", 1)])

    archive = store.archive()

    assert archive.conflicts() == {"linux/x": [(1, "ä.png"), (2, "b.png")], "linux/y": [(2, "b.png")]}


# ----------------------------------------------------------------------------------------------------------- single values


def test_new_ids_begin_with_one(store: Store) -> None:
    assert store.archive().next_ids() == (1, 1, 1, 1)


def test_next_ids_follow_the_highest_stored_id(store: Store) -> None:
    store.put(
        put_source=[source_row(7), source_row(3, "b.png")], put_job=[job_row(12, 7, run_key=30)], put_product=[product_row(20, 12)]
    )

    assert store.archive().next_ids() == (8, 13, 21, 31)


@pytest.mark.parametrize(("of_job", "of_intent", "reserved"), [(50, 7, 9), (5, 50, 9), (5, 7, 50)])
def test_next_run_key_exceeds_keys_of_jobs_intents_and_reservations(
    store: Store, of_job: int, of_intent: int, reserved: int
) -> None:
    store.put(put_source=[source_row()], put_job=[job_row(run_key=of_job)], put_state=[(RUN_KEY_STATE, str(reserved))])
    store.writer.record_intents([Intent(of_intent, 1, "linux/a", DIGEST, 1, "[]")])()

    assert store.archive().next_ids()[3] == 51


def test_reserved_run_key_that_is_not_numeric_is_reported_as_damage(store: Store) -> None:
    store.put(put_state=[(RUN_KEY_STATE, "many")])

    with pytest.raises(DamagedError):
        store.archive().next_ids()


def test_intents_are_stored_until_their_runs_are_finished(store: Store) -> None:
    archive = store.archive()
    assert not archive.has_intents()

    store.writer.record_intents([Intent(5, 1, "linux/a", DIGEST, 1, "[]")])()
    assert archive.has_intents()

    store.writer.finish({}, [5])
    assert not archive.has_intents()


def test_scan_folders_are_named_in_lower_case(store: Store) -> None:
    gem = with_gem(store)

    assert store.archive().scan_folder_ids() == {"project": store.scan_folder, "gem": gem}


def test_stored_state_value_is_read_back(store: Store) -> None:
    store.put(put_state=[("epoch", "3")])

    archive = store.archive()

    assert (archive.state("epoch"), archive.state("missing")) == ("3", None)


def test_database_connection_of_an_archive_is_read_only(store: Store) -> None:
    with pytest.raises(Exception, match="readonly"):
        store.archive()._database.execute("DELETE FROM Sources")


def test_brackets_in_a_source_pattern_are_literal_and_its_length_is_limited(store: Store) -> None:
    store.put(put_source=[source_row(1, "a/b.png"), source_row(2, "a/[b].png")])

    archive = store.archive()

    assert archive.keys_like("a/[b]*") == ["a/[b].png"]
    assert sorted(archive.keys_like("?/*.png")) == ["a/[b].png", "a/b.png"]
    with pytest.raises(UserError, match="1024"):
        archive.keys_like("*" + "a" * 60_000)


def test_products_in_a_folder_exclude_products_in_its_subfolders(store: Store) -> None:
    two_jobs(store)

    archive = store.archive().products

    assert archive.products_in("linux/tex") == {"linux/tex/a": DIGEST}
    assert archive.products_in("linux") == {"linux/text": DIGEST}
    assert archive.products_in("windows") == {}


def test_products_in_a_folder_with_a_non_ascii_name_are_listed(store: Store) -> None:
    store.put(
        put_source=[source_row()], put_job=[job_row()], put_product=[product_row(name="linux/größe/a"), product_row(2, 1, "x")]
    )

    assert store.archive().products.products_in("linux/größe") == {"linux/größe/a": DIGEST}


def test_recorded_digest_of_a_product_is_returned(store: Store) -> None:
    two_jobs(store)

    archive = store.archive().products

    assert archive.product_digest("linux/text") == DIGEST
    assert archive.product_digest("linux/missing") is None


def test_products_below_a_folder_exclude_products_of_neighbour_folders(store: Store) -> None:
    two_jobs(store)

    assert sorted(store.archive().products.products_below("linux/tex")) == ["linux/tex/a", "linux/tex/deep/b"]


def test_cache_folders_are_read_back_with_their_times(store: Store) -> None:
    store.put(put_cache_folder=[("linux/ä", 1 << 60)])

    assert store.archive().products.cache_folders() == {"linux/ä": 1 << 60}

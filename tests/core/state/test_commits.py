"""Cases of unsaved rows and of commits that `tests/core/pipeline` does not cover, for example a row that is put and dropped."""

from __future__ import annotations

import copy
from itertools import count

from fake_world import World
from fakes import FakeArchive, Setup, scripter, sha

from aptui.core import rows
from aptui.core.messages import SaveRows
from aptui.core.model import Job, JobState, PathKey, Product, RelPath, RunKey, Source, SourceUuid
from aptui.core.orders import Outcome, RunResult, StagedProduct
from aptui.core.pipeline.jobs import Jobs
from aptui.core.state.commits import Commits
from aptui.core.state.ledger import RUN_KEY_STATE, Ledger


def new_ledger(run_key: int = 1) -> Ledger:
    return Ledger(count(1), count(1), count(1), run_key)


def saved(ledger: Ledger) -> dict[str, list[tuple[object, ...]]]:
    ledger.flush_rows()
    commands, _notices = ledger.finish()
    return {name: rows for command in commands if isinstance(command, SaveRows) for name, rows in command.rows.items() if rows}


def test_drop_of_a_job_removes_its_unsaved_rows() -> None:
    ledger = new_ledger()
    for job_id in (1, 2):
        ledger.put("put_job", (job_id, 9))
        ledger.put("put_product", (job_id * 10, job_id))
        ledger.put("put_conflict", ("name", job_id))
        ledger.put("put_run", (job_id, 5))

    ledger.drop("drop_job", (1,))

    assert saved(ledger) == {
        "put_job": [(2, 9)], "put_product": [(20, 2)], "put_conflict": [("name", 2)], "put_run": [(2, 5)], "drop_job": [(1,)],
    }  # fmt: skip


def test_drop_of_many_jobs_does_not_compare_each_job_with_all_unsaved_rows() -> None:
    class JobId(int):
        comparisons = 0

        def __eq__(self, other: object) -> bool:
            JobId.comparisons += 1
            return int(self) == other

        __hash__ = int.__hash__

    ledger = new_ledger()
    for number in range(100):
        ledger.drop("drop_products", (JobId(number),))
        ledger.put("put_product", (1000 + number, JobId(number), "linux/a"))
    ledger.drop("drop_products", (JobId(7),))

    assert [row[1] for row in ledger.rows["put_product"]] == [number for number in range(100) if number != 7]
    assert JobId.comparisons < 1000


def test_row_written_to_the_ledger_after_a_deletion_is_saved() -> None:
    ledger = new_ledger()
    ledger.drop("drop_products", (1,))
    ledger.put("put_product", (10, 1))

    assert saved(ledger) == {"drop_products": [(1,)], "put_product": [(10, 1)]}


def test_analysis_rows_are_identified_by_source_and_builder() -> None:
    ledger = new_ledger()
    ledger.put("put_analysis", (1, b"a", "x"))
    ledger.put("put_analysis", (1, b"b", "x"))
    ledger.put("put_source", (1, "x"))

    ledger.drop("drop_analysis", (1, b"a"))
    ledger.drop("drop_source", (2,))

    assert saved(ledger)["put_analysis"] == [(1, b"b", "x")]
    assert saved(ledger) == {}


def test_flush_of_a_ledger_without_rows_keeps_its_ticket_number() -> None:
    ledger = new_ledger()

    ledger.flush_rows()

    assert ledger.ticket == 1
    assert ledger.finish() == ([], [])


def test_new_run_keys_are_reserved_before_they_are_used() -> None:
    ledger = new_ledger(41)

    keys = [ledger.next_run_keys(1)[0] for _key in range(3)]

    assert keys == [41, 42, 43]
    ((name, reserved),) = saved(ledger)["put_state"]
    assert name == RUN_KEY_STATE
    assert int(str(reserved)) > 43


def test_claims_of_product_names_survive_a_restart() -> None:
    world = World().apply({"a.s": "make same.bin\nmake own.bin", "b.s": "make same.bin"})
    world.restart()

    claims = world.pipeline.jobs.conflicts._claims

    assert {name: len(claimants) for name, claimants in claims.items()} == {
        "linux/same.bin": 2, "linux/own.bin": 1, "linux/a.out": 1, "linux/b.out": 1,
    }  # fmt: skip


def test_product_that_another_job_took_over_stays_when_its_former_job_is_deleted() -> None:
    world = World(Setup(builders=(scripter(),))).apply({"a.s": "make same.bin"})

    assert world.reconfigure(builders=(scripter("twin"),)).cache == world.clean().cache


def test_two_jobs_that_make_the_same_two_products_keep_neither() -> None:
    world = World().apply({"a.s": "make x.bin\nmake y.bin"}).apply({"b.s": "make x.bin\nmake y.bin"})

    names = sorted(str(row[2]) for row in world.archive.tables.products.values())
    assert names == ["linux/a.out"]
    assert sorted(world.cache) == names


def running_job(jobs: Jobs, rel: str, job_id: int, products: tuple[Product, ...] = ()) -> Job:
    """Return a running job whose earlier run made `products`."""
    source = Source(PathKey(rel), RelPath(rel), 1, SourceUuid(rel.encode().ljust(16)), id=job_id)
    job = Job(source, scripter().uuid, "linux", "main", job_id, state=JobState.RUNNING, run_key=RunKey(job_id + 100))
    job.products, job.fingerprint, job.planned = products, 5 if products else 0, 6
    job.planned_inputs, job.reason = (("source", rel, "1"),), "new source"
    job.first_fail_ms, job.last_fail_ms, job.failure_cause = 3, 4, "b.s@linux:main"
    source.jobs[job.builder, "linux", "main"] = job
    jobs.memory.add(source)
    return job


def result_of(job: Job, *names: str) -> RunResult:
    products = tuple(StagedProduct(f"/staging/{name}", name, at, b"", 1, sha(name), 7, 8) for at, name in enumerate(names))
    return RunResult(job.run_key, Outcome.SUCCEEDED, products=products, duration_ms=40, warnings=2)


def some_jobs() -> Jobs:
    return Jobs(Setup(builders=(scripter(),)).project({"game": 1}), FakeArchive(), lambda _job, _builder: "log")


def seen(jobs: Jobs, *all_jobs: Job) -> object:
    """Return a copy of all records that the preparation of a commit could change."""
    states = [{name: copy.copy(getattr(job, name)) for name in Job.__slots__ if name != "source"} for job in all_jobs]
    return states, copy.deepcopy((jobs.ledger.rows, jobs.ledger.commands, repr(jobs.ledger.product_ids), jobs.conflicts._claims))


def test_preparation_of_a_commit_changes_no_job_or_row() -> None:
    jobs = some_jobs()
    had = Product("linux/same.bin", 0, bytes(16), 1, sha("old"), 7, 8)
    one, two, three = running_job(jobs, "a.s", 1, (had,)), running_job(jobs, "b.s", 2), running_job(jobs, "c.s", 3)
    finished = [(one, result_of(one, "same.bin")), (two, result_of(two, "same.bin")), (three, result_of(three, "own.bin"))]
    before = seen(jobs, one, two, three)

    prepared = jobs.commits.prepare(finished, 9)

    assert seen(jobs, one, two, three) == before
    assert [commit.job for commit in prepared.commits] == [three]
    assert [job for job, _result, _text in prepared.lost] == [one, two]
    assert prepared.deletes == ("linux/same.bin",)
    assert prepared.verdict.left == {one: ()}


def test_row_that_a_commit_saves_equals_the_row_of_the_committed_job() -> None:
    jobs = some_jobs()
    job = running_job(jobs, "a.s", 1)
    prepared = jobs.commits.prepare([(job, result_of(job, "own.bin"))], 9)
    jobs.commits.begin(prepared)
    (row,) = [row for row in jobs.commits.rows_of(prepared.commits[0]) if row[0] == "put_job"]

    Commits.note_committed(prepared.commits[0], job)

    assert row == rows.job_row(job, JobState.COMPLETED)
    assert (job.fingerprint, job.first_fail_ms, job.failure_cause) == (6, 0, "")


def test_job_with_a_failed_commit_keeps_its_products_and_first_failure() -> None:
    jobs = some_jobs()
    had = Product("linux/own.bin", 0, bytes(16), 1, sha("old"), 7, 8)
    job = running_job(jobs, "a.s", 1, (had,))
    prepared = jobs.commits.prepare([(job, result_of(job, "own.bin", "new.bin"))], 9)
    jobs.commits.begin(prepared)

    Commits.note_failed(prepared.commits[0])

    assert (job.products, job.inputs, job.fingerprint) == ((had,), (), 0)
    assert (job.first_fail_ms, job.last_fail_ms) == (3, 4)
    assert prepared.commits[0].unrecorded == ("linux/new.bin",)

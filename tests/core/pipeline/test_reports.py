"""Reports for polling clients: the latest state of each job, without intermediate states."""

from __future__ import annotations

from fake_world import World
from fakes import scripter

from aptui.core.messages import StartRuns
from aptui.core.notices import JobChanged, Notice

ANALYSIS = f"CreateJobs_{{{scripter().uuid.hex()}}}"


def steps(notices: list[Notice]) -> list[tuple[str, str]]:
    return [(notice.job_key, notice.status) for notice in notices if isinstance(notice, JobChanged)]


def followed(world: World) -> World:
    world.pipeline.jobs.reports.follow(is_followed=True)
    return world


def latest(world: World, *, are_begun: bool = False) -> list[tuple[str, str]]:
    at_work = list(world.pipeline.jobs.running) if are_begun else []
    return steps([*world.pipeline.jobs.reports.latest(at_work)])


def started(world: World, name: str) -> World:
    """Add a source and send its job to a simulated worker; return `world`. The job runs until the test releases it."""
    world.write(name)
    world.held = {f"{name}@linux:data"}
    world.process()
    return world


def test_ended_job_is_reported_only_with_its_final_status(world: World) -> None:
    followed(world).write("a.txt", "x")

    world.settle()

    assert steps(world.notices) == [("data", "completed")]
    assert not len(world.pipeline.jobs.reports.moved)
    assert latest(world) == []


def test_polling_client_does_not_prevent_copies_while_files_are_read(world: World) -> None:
    world.boot(copies_on_reading=True)
    followed(world).write("a.txt", "x")

    world.settle()

    assert steps(world.notices) == [("data", "completed")]
    assert not world.commands_of(StartRuns)


def test_waiting_job_is_reported_again_only_after_its_status_changes(world: World) -> None:
    world.slots = 0
    followed(world).write("a.txt", "x")
    world.process()

    assert latest(world) == [("data", "pending")]
    assert not len(world.pipeline.jobs.reports.moved)
    assert latest(world) == []
    world.slots = 1
    world.settle()
    assert steps(world.notices) == [("data", "completed")]


def test_job_sent_to_a_worker_is_pending_until_the_worker_begins_the_run(world: World) -> None:
    started(followed(world), "a.txt")

    assert latest(world) == [("data", "pending")]
    assert world.pipeline.jobs.reports.list_unreported_ids() == {job.id for job in world.pipeline.jobs.running.values()}
    assert len(world.pipeline.jobs.reports.moved)
    assert latest(world) == []
    assert latest(world, are_begun=True) == [("data", "processing")]
    assert world.pipeline.jobs.reports.list_unreported_ids() == set()
    assert not len(world.pipeline.jobs.reports.moved)
    assert latest(world) == []


def test_notice_of_a_job_names_the_event_that_changed_the_job(world: World) -> None:
    started(followed(world), "a.txt")
    before = world.pipeline.jobs.ledger.cause
    world.process()

    (notice,) = world.pipeline.jobs.reports.latest(list(world.pipeline.jobs.running))

    assert 0 < notice.cause <= before < world.pipeline.jobs.ledger.cause


def test_cancelled_job_that_is_reprocessed_is_reported_as_pending(world: World) -> None:
    started(followed(world), "a.txt")
    assert latest(world) == [("data", "pending")]
    world.ask("cancel", names=("a.txt@linux:data",))
    assert steps(world.notices)[-1:] == [("data", "cancelled")]
    assert latest(world) == []

    world.ask("reprocess", keys=("a.txt",))

    assert latest(world) == [("data", "pending")]


def test_pending_analysis_and_removed_source_are_reported(world: World) -> None:
    world.slots = 0
    followed(world).write("a.s")
    world.process()
    assert latest(world) == [(ANALYSIS, "pending")]

    world.slots = 9
    world.run()
    assert (ANALYSIS, "completed") in steps(world.notices)
    world.notices.clear()
    world.apply({"a.s": None})

    assert ("main", "") in steps(world.notices)
    assert latest(world) == []


def test_client_that_follows_every_step_gets_each_status_once(world: World) -> None:
    world.pipeline.jobs.reports.reports_every_step = True
    followed(world).write("a.txt", "x")

    world.settle()

    assert steps(world.notices) == [("data", "pending"), ("data", "processing"), ("data", "completed")]
    assert latest(world) == []


def run_key(world: World) -> int:
    (key,) = world.pipeline.jobs.running
    return key


def test_job_cancelled_before_its_run_begins_is_never_reported_as_running(world: World) -> None:
    world.pipeline.jobs.reports.reports_every_step = True
    key = run_key(started(world, "a.txt"))

    world.ask("cancel", names=("a.txt@linux:data",))

    assert steps(world.notices) == [("data", "pending"), ("data", "cancelled")]
    assert world.pipeline.jobs.reports.list_started([key]) == []


def test_start_of_a_cancelled_run_is_not_reported_for_the_next_run(world: World) -> None:
    world.pipeline.jobs.reports.reports_every_step = True
    first = run_key(started(world, "a.txt"))
    world.ask("cancel", names=("a.txt@linux:data",))
    world.ask("reprocess", keys=("a.txt",))
    second = run_key(world)
    assert first != second

    assert world.pipeline.jobs.reports.list_started([first]) == []
    assert steps(list(world.pipeline.jobs.reports.list_started([first, second]))) == [("data", "processing")]
    assert world.pipeline.jobs.reports.list_started([second]) == []


def test_changes_of_jobs_are_not_collected_after_all_clients_disconnected(world: World) -> None:
    started(followed(world), "a.txt")
    latest(world)

    world.pipeline.jobs.reports.follow(is_followed=False)

    assert latest(world) == []
    assert world.pipeline.jobs.reports.list_unreported_ids() == set()


def test_start_of_a_run_is_reported_once(world: World) -> None:
    world.pipeline.jobs.reports.reports_every_step = True
    started(world, "a.txt")
    (run_key,) = world.pipeline.jobs.running
    assert steps(world.notices) == [("data", "pending")]
    assert world.pipeline.jobs.reports.list_started([]) == []

    assert steps([*world.pipeline.jobs.reports.list_started([run_key])]) == [("data", "processing")]
    assert world.pipeline.jobs.reports.list_started([run_key]) == []
    world.held.clear()
    world.settle()

    assert steps(world.notices) == [("data", "pending"), ("data", "completed")]

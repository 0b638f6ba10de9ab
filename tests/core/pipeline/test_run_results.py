"""Runs: how they end, which job fails if two jobs make the same product, and requests of users."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from fake_world import World, settled
from fakes import Setup, copier, scripter, sha
from msgspec.structs import replace

from aptui.core.messages import (
    CommitProducts,
    DeleteProducts,
    DropLogs,
    KillRuns,
    RecheckFiles,
    RequestReceived,
    RunsFinished,
    SaveRows,
    SlotsFree,
    StartRuns,
    WriteLog,
)
from aptui.core.model import JobState, PathKey, Source
from aptui.core.notices import EngineMessage, JobChanged, LogLevel, ProductsChanged
from aptui.core.orders import CopyOrder, Outcome, ProcessOrder, RunResult
from aptui.core.state.working_set import WorkingSet

# ---------------------------------------------------------------------------------------------------------- stale results


def test_late_result_of_a_killed_run_is_ignored(world: World) -> None:
    settled(world, a_txt="old")
    world.held.add("a.txt@linux:data")
    world.apply({"a.txt": "middle"})
    world.apply({"a.txt": "new"})
    assert len(world.commands_of(KillRuns)) == 1

    world.deliver_killed()
    assert world.statuses() == {"a.txt@linux:data": "processing"}
    world.release()

    assert world.cache == {"linux/a.txt": sha("new")}
    assert not world.staging


def test_rows_of_failures_and_successes_in_one_answer_are_saved_in_order(world: World) -> None:
    world.fates["bad/a.txt@linux:data"] = [Outcome.FAILED]
    world.edit({rel: rel for rel in ("bad/a.txt", "good/b.txt")})
    world.scan()
    world.run_scan_only()

    world.run()

    assert world.statuses() == {"bad/a.txt@linux:data": "failed", "good/b.txt@linux:data": "completed"}
    tickets = [order.ticket for order in world.commands_of(SaveRows)]
    assert tickets == sorted(tickets)


def test_job_runs_once_if_its_source_is_touched_before_the_run_ends(world: World) -> None:
    world.held.add("a.txt@linux:data")
    world.apply({"a.txt": "x"})
    world.touch("a.txt")
    world.settle(is_full=True)
    world.release()

    assert world.ran() == ["a.txt@linux:data"]
    assert not world.commands_of(KillRuns)


def test_job_runs_once_if_its_source_is_saved_again_before_the_start(world: World) -> None:
    world.slots = 0
    world.apply({"a.txt": "x"})
    world.apply({"a.txt": "y"})
    world.slots = 1

    world.run()

    assert world.ran() == ["a.txt@linux:data"]
    assert world.cache == {"linux/a.txt": sha("y")}


def test_run_result_is_ignored_if_a_simultaneous_analysis_drops_the_job(world: World) -> None:
    settled(world, a_s="job two")
    world.held = {"a.s@linux:two", "a.s:analyse", "a.s@linux:main"}
    world.ask("reprocess", keys=("a.s",))
    world.write("a.s", "")
    world.process()
    world.release()

    assert world.statuses() == {"a.s@linux:main": "completed"}
    assert world.cache == world.clean().cache


def test_result_with_unknown_run_key_is_ignored(world: World) -> None:
    commands, notices = world.pipeline.handle(RunsFinished(1, (RunResult(999, Outcome.SUCCEEDED),)))

    assert [type(command).__name__ for command in commands] == ["DiscardStaging"]
    assert notices == []


# -------------------------------------------------------------------------------------------------- runs without a result


def test_job_whose_worker_died_once_is_retried(world: World) -> None:
    world.fates["a.s@linux:main"] = [Outcome.LOST]
    world.apply({"a.s": ""})

    assert world.runs["a.s@linux:main"] == 2
    assert world.statuses() == {"a.s@linux:main": "completed"}


@pytest.mark.parametrize("name", ["a.s@linux:main", "a.s:analyse"])
def test_job_whose_worker_died_twice_fails_until_the_next_start(world: World, name: str) -> None:
    world.fates[name] = [Outcome.LOST, Outcome.LOST]
    assert world.apply({"a.s": ""}).statuses() == {name: "failed"}
    assert world.job(name).error == "its worker process died twice: it was LOST"

    assert world.settle(restart=True).statuses() == {"a.s@linux:main": "completed"}


def test_change_of_a_job_allows_one_more_retry_after_a_lost_worker(world: World) -> None:
    world.fates["a.s@linux:main"] = [Outcome.LOST, Outcome.RETURNED]
    world.held.add("a.s@linux:main")
    world.apply({"a.s": ""})
    world.held.clear()
    world._finish_runs()
    world.run()
    world.fates["a.s@linux:main"] = [Outcome.LOST]
    assert world.apply({"a.s": "x"}).statuses() == {"a.s@linux:main": "completed"}


def test_job_that_no_worker_has_begun_is_retried_without_a_limit(world: World) -> None:
    world.fates["a.s@linux:main"] = [Outcome.RETURNED] * 9
    assert world.apply({"a.s": ""}).statuses() == {"a.s@linux:main": "completed"}


@pytest.mark.parametrize("name", ["a.s@linux:main", "a.s:analyse"])
def test_job_whose_source_changed_during_its_run_is_planned_again(world: World, name: str) -> None:
    world.fates[name] = [Outcome.STALE, Outcome.STALE]
    world.apply({"a.s": ""})

    assert [command.keys for command in world.commands_of(RecheckFiles)] == [("a.s",), ("a.s",)]
    assert world.statuses() == {"a.s@linux:main": "completed"}


def test_job_fails_if_its_source_changes_during_each_of_its_runs(world: World) -> None:
    world.fates["a.s@linux:main"] = [Outcome.STALE] * 10
    world.apply({"a.s": ""})
    statuses, runs = world.statuses(), len(world.commands_of(RecheckFiles))
    world.settle()
    world.apply({"a.s": "info changed by a person"})

    assert (statuses, runs) == ({"a.s@linux:main": "failed"}, 10)
    assert world.statuses() == {"a.s@linux:main": "completed"}


def test_critical_slots_accept_only_critical_jobs_and_urgent_analyses(world: World) -> None:
    world.configure(builders=(copier(is_critical=True), copier("plain", "*.dat"), scripter()))
    world.slots = 0
    world.apply({"a.txt": "critical", "b.dat": "may wait", "c.s": ""}, restart=True)

    world.pipeline.handle(RequestReceived(1_000_000, "analyse", value=200))
    world.pipeline.handle(SlotsFree(1_000_001, 0, critical=5))

    assert {job.source.key for job in world.pipeline.jobs.running.values()} == {"a.txt", "c.s"}


def test_result_made_from_other_bytes_than_planned_is_not_committed(world: World) -> None:
    settled(world, a_txt="x")
    world.held.add("a.txt@linux:data")
    world.apply({"a.txt": "y"})
    world.held.clear()
    world.write("a.txt", "z")

    world.run()

    assert world.cache == {"linux/a.txt": sha("z")}
    assert world.commands_of(RecheckFiles)


# ------------------------------------------------------------------------------------------------------------- failures


def test_a_failed_job_keeps_its_last_good_products_and_log(world: World) -> None:
    settled(world, a_s="x")
    before = dict(world.cache)
    world.apply({"a.s": "FAIL"})

    job = world.job("a.s@linux:main")
    assert world.cache == before
    assert (job.state, job.error, job.errors) == (JobState.FAILED, "it says FAIL", 1)
    assert world.log_text("a.s@linux:main") == "it says FAIL"
    assert job.fingerprint != 0
    assert job.first_fail_ms == job.last_fail_ms > 0
    assert job.first_fail_log == job.last_fail_log == job.log_file


def test_products_are_deleted_on_failure_if_configured(world: World) -> None:
    world.configure(builders=(scripter(deletes_products_on_failure=True),))
    world.restart()
    settled(world, a_s="", b_s="after a.s:main")
    world.apply({"a.s": "FAIL"})
    assert "linux/a.out" not in world.cache
    assert not world.job("a.s@linux:main").products

    assert world.apply({"a.s": ""}).cache == world.clean().cache


@pytest.mark.parametrize("restart", [True, False])
def test_failed_job_is_retried_once_at_every_scan(world: World, restart: bool) -> None:
    settled(world, a_s="FAIL", b_s="FAIL ANALYSIS", c_s="", d_txt="")

    world.settle(restart=restart)

    assert world.runs == {"a.s@linux:main": 1}
    assert world.analyses == {"b.s": 1}
    assert world.job("a.s@linux:main").reason == "its previous run failed"


def test_reason_of_a_failed_job_names_its_changed_source(world: World) -> None:
    settled(world, a_s="FAIL", z_s="")

    world.apply({"a.s": "FAIL # otherwise"})

    assert world.job("a.s@linux:main").reason.startswith("source 'a.s' changed (")


def test_reason_of_a_failed_job_names_its_changed_builder(world: World) -> None:
    settled(world, a_s="FAIL", z_s="")

    world.reconfigure(builders=(scripter(version="2"),))

    assert world.runs["a.s@linux:main"] == 1
    assert world.job("a.s@linux:main").reason == "the builder's version changed from '1' to '2'"


def test_repaired_source_clears_the_failure_of_its_job(world: World) -> None:
    settled(world, a_s="FAIL")
    world.apply({"a.s": ""})

    job = world.job("a.s@linux:main")
    assert (job.state, job.error, job.errors) == (JobState.COMPLETED, "", 0)
    assert (job.first_fail_ms, job.first_fail_log, job.last_fail_ms, job.last_fail_log) == (0, "", 0, "")


def test_failed_job_runs_again_when_its_source_is_reverted(world: World) -> None:
    settled(world, a_s="x")
    world.apply({"a.s": "FAIL"})

    assert world.apply({"a.s": "x"}).statuses() == {"a.s@linux:main": "completed"}
    assert world.cache == world.clean().cache


def test_failed_analysis_keeps_the_jobs_of_the_last_success(world: World) -> None:
    settled(world, a_s="job two")
    before = dict(world.cache)
    assert world.apply({"a.s": "FAIL ANALYSIS"}).statuses() == {
        "a.s:analyse": "failed",
        "a.s@linux:main": "completed",
        "a.s@linux:two": "completed",
    }
    assert world.job("a.s:analyse").error == "it cannot be analysed"
    assert world.log_text("a.s:analyse") == "it cannot be analysed"
    assert world.cache == before


def test_pending_job_runs_as_last_planned_when_its_analysis_fails(world: World) -> None:
    settled(world, a_s="x")
    world.held.add("a.s@linux:main")
    world.apply({"a.s": "y"})
    world.crash()
    world.held.clear()
    assert world.apply({"a.s": "FAIL ANALYSIS"}).statuses() == {"a.s:analyse": "failed", "a.s@linux:main": "completed"}
    assert world.is_idle()


@pytest.mark.parametrize("is_changed", [False, True])
def test_failed_job_is_retried_at_the_next_start_unless_its_analysis_fails(world: World, is_changed: bool) -> None:
    settled(world, a_s="FAIL")
    world.commands.clear()
    if is_changed:
        world.write("a.s", "FAIL ANALYSIS")

    world.settle(restart=True)

    orders = [order for command in world.commands_of(StartRuns) for order in command.orders]
    assert sum(isinstance(order, ProcessOrder) for order in orders) == (not is_changed)
    assert world.statuses()["a.s@linux:main"] == "failed"
    assert world.is_idle()


def test_failed_result_without_an_error_gets_a_default_error(world: World) -> None:
    world.held = {"a.s:analyse", "a.s@linux:main"}
    world.apply({"a.s": ""})
    (key,) = world.running
    order, _text = world.running.pop(key)
    assert not isinstance(order, (CopyOrder, ProcessOrder))
    world._post(RunsFinished(world._next(), (type(world._analyse(order, ""))(key, Outcome.FAILED),), 5))
    world.run()
    assert world.job("a.s:analyse").error == "its analysis failed without a reason"

    world.settle()
    world.held = {"a.s@linux:main"}
    world.run()
    (key,) = world.running
    world.running.clear()
    world._post(RunsFinished(world._next(), (RunResult(key, Outcome.FAILED),), 5))
    world.run()

    assert world.job("a.s@linux:main").error == "it failed without a reason"


def test_job_for_an_undeclared_platform_fails_the_analysis(world: World) -> None:
    world.apply({"a.s": "job two phone"})
    statuses, error = world.statuses(), world.job("a.s:analyse").error
    world.apply({"a.s": "job two"})

    assert statuses == {"a.s:analyse": "failed"}
    assert error == (
        "job 'two' of 'a.s' (builder 'script') is for platform 'phone', which the configuration does not "
        "declare; the platforms are: linux"
    )
    assert world.statuses() == {"a.s@linux:main": "completed", "a.s@linux:two": "completed"}


def test_job_of_an_adapted_builder_for_an_undeclared_platform_is_left_out() -> None:
    world = World(Setup(builders=(replace(scripter(), adapter="some:adapter"),))).apply({"a.s": "job two phone"})

    [message] = [notice for notice in world.notices if isinstance(notice, EngineMessage)]
    assert world.statuses() == {"a.s@linux:main": "completed"}
    assert message.text == world.log_text("a.s:analyse")
    assert (message.level, message.text.endswith("; the platforms are: linux; the job is left out")) == (LogLevel.ERROR, True)


def test_builder_that_requests_an_unknown_source_causes_a_warning(world: World) -> None:
    world.apply({"a.s": "reprocess nowhere.s"})

    assert "'a.s' (script) requests that 'nowhere.s' is processed again, but this file is not a source" in [
        notice.text for notice in world.notices if isinstance(notice, EngineMessage)
    ]


def test_job_for_a_disabled_platform_is_left_out_with_a_warning(world: World) -> None:
    world.configure(resting=("phone",))
    world.restart()
    assert world.apply({"a.s": "job two phone"}).statuses() == {"a.s@linux:main": "completed"}
    assert world.log_text("a.s:analyse") == "job 'two' is left out, because its platform 'phone' is not enabled"
    assert world.job("a.s:analyse").warnings == 1


def test_warnings_of_a_run_are_counted_and_stored_with_the_job(world: World) -> None:
    settled(world, a_s="WARN")

    world.settle(restart=True)

    assert world.job("a.s@linux:main").warnings == 1
    assert world.log_text("a.s@linux:main") == "it says WARN"
    assert world.ran() == []


def test_job_whose_run_logged_nothing_has_no_log_file(world: World) -> None:
    settled(world, a_s="", b_txt="")

    assert not world.logs
    assert world.job("a.s@linux:main").log_file == ""


def test_log_of_a_removed_job_is_deleted(world: World) -> None:
    settled(world, a_s="WARN")
    world.apply({"a.s": None})

    assert world.commands_of(DropLogs)
    assert not world.logs


def test_duration_and_outcome_of_each_run_are_recorded(world: World) -> None:
    world.duration_ms = 7
    settled(world, a_s="FAIL", b_txt="x")
    world.apply({"a.s": ""})

    outcomes = sorted((row[4], row[5]) for row in world.archive.tables.runs.values())
    assert outcomes[0] == (0, "new source")
    assert [outcome for outcome, _reason in outcomes] == [0, 0, 1]
    assert {name.partition(",")[0]: value for name, (value, _time) in world.archive.tables.stats.items()} == {"CreateJobs": 7}
    assert {row[22] for row in world.archive.tables.jobs.values()} == {7}, "the durations come from the rows of O3DE's table Stats"
    assert world.pipeline.jobs.reports.counts == {"run": 3, "failed": 1, "analysed": 2, "done": 2}


# -------------------------------------------------------------------------------------------------------------- products


def test_products_that_are_no_longer_made_are_deleted(world: World) -> None:
    settled(world, a_s="extra 1\nextra 2")
    world.apply({"a.s": "extra 2"})

    assert world.cache.keys() == {"linux/a.out", "linux/a.2"}
    assert ("linux/a.1", "") in [item for news in world.notices if isinstance(news, ProductsChanged) for item in news.products]
    assert world.cache == world.clean().cache


def test_only_changed_products_are_moved_and_reported(world: World) -> None:
    settled(world, a_txt="x")

    world.reconfigure(builders=(copier(version="2"), scripter()))

    (order,) = [order for command in world.commands_of(StartRuns) for order in command.orders]
    assert order.present_digest == sha("x")
    assert [commit.products for command in world.commands_of(CommitProducts) for commit in command.commits] == [()]
    assert not [news for news in world.notices if isinstance(news, ProductsChanged)]


def test_commit_that_failed_between_two_products_is_repeated_by_the_next_engine(world: World) -> None:
    settled(world, a_s="extra 1", b_s="after a.s:main#0,1")
    world.commit_fates["a.s@linux:main"] = [1]
    assert world.apply({"a.s": "extra 1\nextra 2\nx"}).job("a.s@linux:main").error == "product 'linux/a.1' cannot be placed"
    assert "cannot be placed" in world.log_text("a.s@linux:main")
    assert "linux/a.2" not in world.cache

    assert world.settle(restart=True).cache == world.clean().cache
    assert world.statuses() == world.clean().statuses()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("placed", [1, 2])
def test_job_that_used_products_of_a_failed_commit_reruns_after_a_revert(world: World, placed: int, restarts: bool) -> None:
    settled(world, a_s="extra 1\nextra 2", b_s="after a.s:main#0,1")
    world.commit_fates["a.s@linux:main"] = [placed]
    assert world.apply({"a.s": "extra 1\nextra 2\nx", "b.s": "after a.s:main#0,1\ny"}).statuses() == {
        "a.s@linux:main": "failed",
        "b.s@linux:main": "completed",
    }
    assert world.apply({"a.s": "extra 1\nextra 2"}, restart=restarts).cache == world.clean().cache
    assert world.statuses() == world.clean().statuses()


def test_source_deleted_after_a_failed_first_commit_leaves_no_products(world: World) -> None:
    world.commit_fates["a.s@linux:main"] = [1]
    assert world.apply({"a.s": "extra 1"}).cache == {}
    assert world.apply({"a.s": None}).cache == {}
    assert world.statuses() == {}


def test_job_of_a_reverted_source_runs_again_after_a_failed_commit(world: World) -> None:
    settled(world, a_txt="x")
    world.commit_fates["a.txt@linux:data"] = [0]
    world.apply({"a.txt": "y"})

    world.write("a.txt", "x")
    world.cache["linux/a.txt"] = sha("y")
    assert world.settle().cache == {"linux/a.txt": sha("x")}


# ------------------------------------------------------------------------------------------------------------- conflicts


def failed_by(world: World, name: str) -> str:
    job = world.job(name)
    return job.error if job.state is JobState.FAILED else ""


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_sources_that_make_the_same_product_fail_until_one_source_stops(world: World, together: bool, restart: bool) -> None:
    world.write("a.s", "make same.bin")
    if not together:
        world.settle()
    world.apply({"b.s": "make same.bin"})
    assert failed_by(world, "a.s@linux:main") == "product 'linux/same.bin' is also made by 'b.s' (job key 'main')"
    assert failed_by(world, "b.s@linux:main") == "product 'linux/same.bin' is also made by 'a.s' (job key 'main')"
    assert "linux/same.bin" not in world.cache
    assert "is also made by" in world.log_text("a.s@linux:main")

    assert world.apply({"b.s": ""}, restart=restart).statuses() == {"a.s@linux:main": "completed", "b.s@linux:main": "completed"}
    assert world.cache == world.clean().cache
    assert not world.archive.tables.conflicts


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize(("first", "second"), [("x", "x/y/z"), ("x/y/z", "x")])
def test_product_with_the_name_of_a_folder_conflicts_with_products_in_it(
    world: World, together: bool, restart: bool, first: str, second: str
) -> None:
    world.write("a.s", f"make {first}")
    if not together:
        world.settle()
    world.apply({"b.s": f"make {second}"})
    assert f"product 'linux/{first}' conflicts with 'linux/{second}', which 'b.s'" in failed_by(world, "a.s@linux:main")
    assert f"product 'linux/{second}' conflicts with 'linux/{first}', which 'a.s'" in failed_by(world, "b.s@linux:main")
    assert not {"linux/x", "linux/x/y/z"} & world.cache.keys()

    assert world.apply({"b.s": ""}, restart=restart).statuses() == {"a.s@linux:main": "completed", "b.s@linux:main": "completed"}
    assert world.cache == world.clean().cache
    assert not world.archive.tables.conflicts


def test_product_is_deleted_before_a_folder_with_its_name_is_created(world: World) -> None:
    settled(world, a_s="make x")
    assert world.apply({"a.s": "make x/y"}).statuses() == {"a.s@linux:main": "completed"}
    deleted = [number for number, command in enumerate(world.commands) if isinstance(command, DeleteProducts)]
    placed = [number for number, command in enumerate(world.commands) if isinstance(command, CommitProducts)]
    assert deleted[0] < placed[-1]
    assert world.cache == world.clean().cache


def test_product_conflict_ends_when_one_of_the_sources_is_deleted(world: World) -> None:
    settled(world, a_s="make same.bin", b_s="make same.bin")
    assert world.apply({"b.s": None}).cache == world.clean().cache
    assert world.statuses() == {"a.s@linux:main": "completed"}


def test_conflict_of_three_sources_lasts_until_each_product_has_one_source(world: World) -> None:
    settled(world, a_s="make same.bin", b_s="make same.bin\nmake other.bin", c_s="make other.bin")
    assert set(world.statuses().values()) == {"failed"}
    world.apply({"a.s": None})
    assert set(world.statuses().values()) == {"failed"}

    world.apply({"b.s": "make same.bin"})

    assert set(world.statuses().values()) == {"completed"}
    assert world.cache == world.clean().cache


@pytest.mark.parametrize("seed", range(4))
def test_job_that_lost_one_product_name_still_claims_its_other_names(world: World, seed: int) -> None:
    world.rng = random.Random(seed)
    settled(world, a_s="make x.bin\nmake y.bin", b_s="make x.bin", c_s="make y.bin")

    assert set(world.statuses().values()) == {"failed"}
    assert not [name for name in world.cache if name.endswith(".bin")]


def test_job_that_fails_for_another_reason_claims_no_product_name(world: World) -> None:
    settled(world, a_s="make same.bin", b_s="make same.bin")
    assert world.apply({"b.s": "make same.bin\nFAIL"}).statuses() == {"a.s@linux:main": "completed", "b.s@linux:main": "failed"}
    assert "linux/same.bin" in world.cache


def test_product_may_move_from_one_source_to_another(world: World) -> None:
    settled(world, a_s="make same.bin", b_s="")
    assert world.apply({"a.s": "", "b.s": "make same.bin"}).statuses() == {
        "a.s@linux:main": "completed",
        "b.s@linux:main": "completed",
    }
    assert world.cache == world.clean().cache


def test_first_job_of_a_source_keeps_a_product_that_two_jobs_make(world: World) -> None:
    assert world.apply({"a.s": "job two\nmake same.bin"}).statuses() == {"a.s@linux:main": "completed", "a.s@linux:two": "failed"}
    assert world.job("a.s@linux:two").error == "product 'linux/same.bin' is also made by 'a.s' (job key 'main')"


def test_product_conflict_of_many_jobs_needs_few_source_lookups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    count, load, lookups = 150, WorkingSet.load, 0

    def counted(memory: WorkingSet, keys: Iterable[PathKey]) -> list[Source]:
        nonlocal lookups
        lookups += 1
        return load(memory, keys)

    monkeypatch.setattr(WorkingSet, "load", counted)
    world.apply({"a.s": "\n".join(["make same.bin", *(f"job other{number}" for number in range(count))])})

    statuses = world.statuses()
    assert statuses.pop("a.s@linux:main") == "completed"
    assert list(statuses.values()) == ["failed"] * count
    assert lookups < 12 * count


@pytest.mark.parametrize("order", [("twin", "script"), ("script", "twin")])
@pytest.mark.parametrize("slow", ["twin", "script"])
def test_builder_listed_first_keeps_a_product_that_two_builders_make(order: tuple[str, str], slow: str) -> None:
    names = {"script": "a.s@linux:main", "twin": "a.s@linux:main!twin"}
    world = World(Setup(builders=tuple(scripter(name, version=name) for name in order)))
    world.held.add(names[slow])
    world.apply({"a.s": "extra 1"})
    world.release()

    winner, loser = (names[name] for name in order)
    assert world.statuses() == {winner: "completed", loser: "failed"}
    assert world.cache == world.clean().cache
    assert {product.name for product in world.job(winner).products} == {"linux/a.out", "linux/a.1"}
    assert not world.job(loser).products


def test_second_builder_gets_the_product_when_the_first_builder_is_removed() -> None:
    world = World(Setup(builders=(scripter(), scripter("twin")))).apply({"a.s": ""})

    assert world.reconfigure(builders=(scripter("twin"),)).statuses() == {"a.s@linux:main!twin": "completed"}
    assert world.cache == world.clean().cache


def test_crash_during_a_product_conflict_does_not_change_the_result() -> None:
    for fuse in range(0, 60, 2):
        world = World().apply({"a.s": "make same.bin"})
        world.write("b.s", "make same.bin\nextra 1")
        world.fuse = fuse
        assert world.settle().statuses() == {"a.s@linux:main": "failed", "b.s@linux:main": "failed"}, fuse
        assert not {name for name in world.cache if "same" in name}, fuse


# --------------------------------------------------------------------------------------------------- requests of users


def test_reprocessed_source_runs_its_jobs_and_no_unchanged_dependents(world: World) -> None:
    settled(world, a_s="job two", b_s="print a.s:main", c_txt="")

    world.ask("reprocess", keys=("a.s", "gone.s"))

    assert world.ran() == ["a.s@linux:main", "a.s@linux:two"]
    assert world.job("a.s@linux:main").reason == "requested by a user"
    assert world.cache == world.clean().cache


def test_reprocessed_job_runs_without_the_other_jobs_of_its_source(world: World) -> None:
    settled(world, a_s="job two", c_txt="")

    analysed = world.pipeline.jobs.reports.counts["analysed"]
    world.ask("reprocess", names=("a.s@linux:two", "a.s:analyse"))

    assert world.ran() == ["a.s@linux:two"]
    assert world.pipeline.jobs.reports.counts["analysed"] == analysed
    assert world.job("a.s@linux:two").reason == "requested by a user"
    assert world.cache == world.clean().cache


def test_damaged_product_is_replaced_when_its_source_is_reprocessed(world: World) -> None:
    settled(world, a_txt="x")
    world.cache["linux/a.txt"] = sha("damaged")

    world.ask("reprocess", keys=("a.txt",))

    assert world.cache == {"linux/a.txt": sha("x")}


@pytest.mark.parametrize("held", ["a.s@linux:main", "a.s:analyse"])
def test_cancelled_job_stays_cancelled_until_its_source_changes(world: World, held: str) -> None:
    world.held.add(held)
    world.apply({"a.s": ""})
    world.post_request("cancel", names=(held,))
    if held.endswith("analyse"):
        # A request to cancel this analysis by its job id must do nothing, because analyses have no job id.
        world.pipeline.requests.cancel([world.pipeline.jobs.memory.sources["a.s"].jobs.popitem()[1].id])
        return
    world.run()
    assert world.statuses()[held] == "cancelled"
    assert [item.status for item in world.notices if isinstance(item, JobChanged)][-1:] == ["cancelled"]
    assert len(world.commands_of(KillRuns)) == 1
    world.held.clear()
    world.deliver_killed()
    for restart in (False, True):
        world.settle(restart=restart)
        assert world.statuses()[held] == "cancelled"

    assert world.apply({"a.s": "x"}).statuses() == {"a.s@linux:main": "completed"}


def test_cancelled_job_runs_when_requested(world: World) -> None:
    world.slots = 0
    world.apply({"a.txt": "x"})
    world.ask("cancel", names=("a.txt@linux:data",))
    assert [item.status for item in world.notices if isinstance(item, JobChanged)][-1] == "cancelled", (
        "the cancelled status is reported before the next run"
    )
    world.slots = 1
    world.post_request("reprocess", keys=("a.txt",))

    world.run()

    assert world.statuses() == {"a.txt@linux:data": "completed"}


def test_cancelling_a_settled_job_has_no_effect(world: World) -> None:
    settled(world, a_txt="x")

    world.ask("cancel", names=("a.txt@linux:data",))

    assert world.statuses() == {"a.txt@linux:data": "completed"}


def test_job_runs_after_its_dependency_was_cancelled(world: World) -> None:
    world.held.add("b.s@linux:main")
    world.apply({"a.s": "after b.s:main", "b.s": ""})

    world.ask("cancel", names=("b.s@linux:main",))

    assert world.statuses() == {"a.s@linux:main": "completed", "b.s@linux:main": "cancelled"}


def test_interrupted_run_is_repeated_at_the_next_start(world: World) -> None:
    settled(world, a_txt="x")
    world.held.add("a.txt@linux:data")
    world.apply({"a.txt": "y"})
    world.held.clear()
    world.forget_runs()

    assert world.settle(restart=True).ran() == ["a.txt@linux:data"]
    assert world.cache == {"linux/a.txt": sha("y")}


@pytest.mark.parametrize("verb", ["stop", "escalate"])
def test_idle_pipeline_ignores_stop_and_escalate_requests(world: World, verb: str) -> None:
    assert world.pipeline.handle(RequestReceived(1, verb)) == ([], [])


def test_backlog_counts_pending_work(world: World) -> None:
    world.slots = 1
    world.held = {"a.txt@linux:data"}
    world.apply({"a.txt": "x", "b.s": ""})

    assert world.pipeline.jobs.backlog == 2


def test_reprocessed_copy_is_made_even_if_its_product_exists(world: World) -> None:
    settled(world, a_txt="x")
    world.post_request("reprocess", keys=("a.txt",))

    world.run()

    assert [order.present_digest for command in world.commands_of(StartRuns) for order in command.orders] == [b""]


def test_process_order_contains_all_fields_that_a_worker_needs(world: World) -> None:
    world.configure(builders=(scripter(process_limit_s=9.0, memory_limit_bytes=5),), debug_output=True)
    world.restart()
    world.apply({"sub/A.s": "info x\npriority 3\ncritical"})

    _analysis, order = (order for command in world.commands_of(StartRuns) for order in command.orders)
    file = world.disk.files["game"]["sub/A.s"]
    assert (order.builder, order.root, order.rel, order.platform, order.job_key) == (
        "script",
        "/disk/game",
        "sub/A.s",
        "linux",
        "main",
    )
    assert (order.additional_fingerprint, order.priority, order.is_critical, order.params) == ("x", 3, True, "{}")
    assert order.expected == (len(file.text), file.version, file.version, file.version)
    assert order.source_digest == sha(file.text)
    assert order.staging == f"/staging/{order.run_key}"
    assert (order.limit_s, order.memory_limit_bytes, order.debug_output) == (9.0, 5, True)


def test_many_copies_are_sent_in_one_message(world: World) -> None:
    world.edit({f"{n:03}.txt": str(n) for n in range(300)})
    world.slots = 2

    world.settle()

    sizes = [len(command.orders) for command in world.commands_of(StartRuns)]
    assert 1 < max(sizes) <= 256
    assert len(sizes) < 30
    assert sum(sizes) == 300


def test_log_of_a_run_contains_its_messages(world: World) -> None:
    world.apply({"a.s": "WARN"})

    (log,) = world.commands_of(WriteLog)
    assert [record.text for record in log.records] == ["it says WARN"]


def statuses_of(world: World, rel: str) -> list[str]:
    """Return the statuses in all notices about jobs of the source `rel`; analyses are left out. Delete all notices."""
    found = [notice.status for notice in world.notices if isinstance(notice, JobChanged) and notice.source == rel and notice.job_id]
    world.notices.clear()
    return found


def test_failed_job_whose_source_is_reverted_is_reported_without_a_run(world: World) -> None:
    world.apply({"a.s": "info 1"})
    world.fates["a.s@linux:main"] = [Outcome.FAILED]
    world.apply({"a.s": "info 2"})
    statuses_of(world, "a.s")
    world.apply({"a.s": "info 1"})

    assert statuses_of(world, "a.s") == ["completed"]


def test_deletion_of_a_failed_job_is_reported(world: World) -> None:
    world.fates["a.s@linux:main"] = [Outcome.FAILED]
    world.apply({"a.s": "info 1"})
    statuses_of(world, "a.s")
    world.apply({"a.s": None})

    assert statuses_of(world, "a.s") == [""]

"""Failed jobs: when they run again, and how the database row of a job loses a failure that no longer applies."""

from __future__ import annotations

from typing import Any

import pytest
from fake_world import World
from fakes import Setup, copier, scripter

from aptui.core.asset_checks import Check, CheckLevel, Limit
from aptui.core.model import JobState
from aptui.core.project import RetryFailed, UndeclaredReads
from aptui.core.retry import RetryRule

NAME = "a.s@linux:main"
OTHER = "b.s@linux:main"
SANDBOX = ("sandbox", "auto", "auto")
PATH = ("sandbox path", "/opt/tool", "/opt/tool")
CRASHES = RetryRule(1, ("exit 75",))
SMALL = Check("small", CheckLevel.BLOCK, limits=(Limit("bytes", "<= 1", 0, 2),))


def with_scripter(**changes: Any) -> dict[str, Any]:
    """Return the arguments for a `Setup` whose script builder has these fields."""
    return {"builders": (copier(), scripter(**changes))}


SETTINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "time limit": ("timeout", with_scripter(process_limit_s=2.0), with_scripter(process_limit_s=5.0)),
    "memory limit": ("memory", with_scripter(memory_limit_bytes=1 << 20), with_scripter(memory_limit_bytes=0)),
    "memory limit of a tool": ("exit 137", with_scripter(memory_limit_bytes=1 << 20), with_scripter(memory_limit_bytes=0)),
    "memory of all": ("memory", {"memory_settings": (("memory of all", "0", "0"),)}, {"memory_settings": ()}),
    "sandbox": ("exit 1", {"run_settings": (SANDBOX,)}, {"run_settings": (("sandbox", "off", "off"),)}),
    "sandbox path": ("error", {"run_settings": (SANDBOX,)}, {"run_settings": (SANDBOX, PATH)}),
    "sandbox path, and the tool hung": ("timeout", {"run_settings": (SANDBOX,)}, {"run_settings": (SANDBOX, PATH)}),
    "pool": ("error", {"run_settings": (SANDBOX, ("pool", "dask", "x"))}, {"run_settings": (SANDBOX,)}),
    "retry of the project": ("exit 75", {}, {"retry": CRASHES}),
    "retry of the builder": ("exit 75", {}, with_scripter(retry=CRASHES)),
    "resource": ("error", {}, {**with_scripter(resources=("gpu",)), "resources": (("gpu", 1),)}),
    "limit of a resource": (
        "error",
        {**with_scripter(resources=("gpu",)), "resources": (("gpu", 2),)},
        {**with_scripter(resources=("gpu",)), "resources": (("gpu", 1),)},
    ),
    "read tracing": ("exit 1", with_scripter(traces_reads=True), with_scripter()),
    "check removed": ("", {"checks": (SMALL,)}, {"checks": ()}),
    "check relaxed": ("", {"checks": (SMALL,)}, {"checks": (Check("small", CheckLevel.BLOCK),)}),
    "check for other files": ("", {"checks": (SMALL,)}, {"checks": (Check("small", CheckLevel.BLOCK, files=("x",)),)}),
    "parameters": ("error", with_scripter(params='{"strict":true}'), with_scripter(params='{"strict":false}')),
    "environment": ("error", with_scripter(variables=(("HOME", "0" * 8),)), with_scripter(variables=(("HOME", "1" * 8),))),
    "debug output": (
        "error",
        {**with_scripter(reads_debug_output=True), "debug_output": True},
        {**with_scripter(reads_debug_output=True), "debug_output": False},
    ),
    "platform tags": ("error", {"tags": ("a",)}, {"tags": ("b",)}),
    "version": ("error", with_scripter(), with_scripter(version="2")),
}
"""Changes of the configuration after which a failed run may succeed.

{name of the change: (kind of failure, configuration before the change, configuration after the change)}
"""
UNRELATED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "time limit": ("error", with_scripter(process_limit_s=2.0), with_scripter(process_limit_s=5.0)),
    "memory limit": ("error", with_scripter(memory_limit_bytes=1 << 20), with_scripter(memory_limit_bytes=0)),
    "check": ("error", {}, {"checks": (Check("small", CheckLevel.BLOCK),)}),
    "retry of another kind": ("error", {}, {"retry": CRASHES}),
    "time limit of analyses": ("timeout", {}, with_scripter(analyse_limit_s=9.0)),
    "resource of another builder": ("error", {}, {"resources": (("gpu", 1),)}),
    "sandbox, and a check failed it": (
        "", {"checks": (SMALL,), "run_settings": (SANDBOX,)}, {"checks": (SMALL,), "run_settings": (SANDBOX, PATH)},
    ),
    "undeclared reads": ("error", {}, with_scripter(undeclared_reads=UndeclaredReads.ADD)),
}  # fmt: skip


def failed_world(kind: str, setup: dict[str, Any]) -> World:
    """Return a simulated engine with a completed job and a failed job.

    `kind` is the kind of failure to inject; "" = inject nothing, because `setup` itself makes the run fail.
    """
    world = World(Setup(**setup))
    world.edit({"a.s": "long enough for no check that wants a byte", "b.txt": ""})
    if kind:
        world.fates[NAME] = [kind] * 9
    world.settle()
    assert world.statuses()[NAME] == "failed"
    world.fates.clear()
    world.forget_runs()
    return world


@pytest.mark.parametrize("is_live", [True, False], ids=["under a running engine", "in a batch"])
@pytest.mark.parametrize(("kind", "before", "after"), SETTINGS.values(), ids=SETTINGS)
def test_failed_job_runs_again_when_a_setting_that_made_it_fail_changes(
    kind: str, before: dict[str, Any], after: dict[str, Any], *, is_live: bool
) -> None:
    world = failed_world(kind, {**before, "retry_failed": RetryFailed.CHANGED})

    world.settle(restart=True, retries=not is_live)
    unchanged = world.ran()
    world.setup = Setup(**after, retry_failed=RetryFailed.CHANGED)
    world.settle(restart=True, retries=not is_live)

    assert unchanged == []
    assert [name for name in world.ran() if name == NAME] == [NAME]
    assert world.statuses()[NAME] == "completed"
    assert "failed before" not in world.job(NAME).reason


@pytest.mark.parametrize(("kind", "before", "after"), UNRELATED.values(), ids=UNRELATED)
def test_failed_job_does_not_run_again_when_an_unrelated_setting_changes(
    kind: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    world = failed_world(kind, before)

    world.setup = Setup(**after)
    assert world.settle(restart=True, retries=False).ran() == []
    assert world.statuses()[NAME] == "failed"


@pytest.mark.parametrize("kind", ["timeout", "memory"])
def test_job_that_exceeded_a_limit_is_retried_only_if_changed_or_requested(kind: str) -> None:
    world = failed_world(kind, {})

    world.settle(restart=True)
    unchanged = world.ran()
    world.fates[NAME] = [kind]
    world.apply({"a.s": "edited"}, restart=True)
    edited = world.ran()
    world.forget_runs()
    world.ask("reprocess", keys=("a.s",))

    assert (unchanged, edited) == ([], [NAME])
    assert world.ran() == [NAME]
    assert world.statuses()[NAME] == "completed"


@pytest.mark.parametrize(("policy", "runs"), [(RetryFailed.ALWAYS, [NAME]), (RetryFailed.CHANGED, [])])
def test_retry_policy_decides_whether_a_failed_job_runs_again(policy: RetryFailed, runs: list[str]) -> None:
    world = failed_world("error", {"retry_failed": policy})

    assert world.settle(restart=True).ran() == runs
    if runs:
        assert world.job(NAME).reason == "its previous run failed"


def test_job_that_failed_for_an_outside_cause_is_always_retried() -> None:
    world = failed_world("obstacle", {"retry_failed": RetryFailed.CHANGED})

    assert world.settle(restart=True).ran() == [NAME]


CONFLICTS: dict[str, tuple[dict[str, str], dict[str, str | None], set[str]]] = {
    "two sources": ({"a.s": "make same.bin", "b.s": "make same.bin"}, {"b.s": ""}, {NAME, OTHER}),
    "a folder": ({"a.s": "make x", "b.s": "make x/y"}, {"b.s": ""}, {NAME, OTHER}),
    "a deleted source": ({"a.s": "make same.bin", "b.s": "make same.bin"}, {"b.s": None}, {NAME, OTHER}),
    "one source": ({"a.s": "job two\nextra 1\nmake same.bin"}, {"a.s": "job two"}, {"a.s@linux:two"}),
    "the path of a source": ({"a.s": "stage m.s=y", "m.s": "x"}, {"m.s": None}, {"a.s@common:chain"}),
}
"""{what conflicts: (sources, a change that ends the conflict, the jobs that lose a product name)}."""


@pytest.mark.parametrize("is_live", [True, False], ids=["under a running engine", "in a batch"])
@pytest.mark.parametrize(("sources", "change", "losers"), CONFLICTS.values(), ids=CONFLICTS)
def test_job_that_lost_a_product_name_runs_again_only_if_the_conflict_has_ended(
    sources: dict[str, str], change: dict[str, str | None], losers: set[str], *, is_live: bool
) -> None:
    world = World(Setup(retry_failed=RetryFailed.CHANGED)).apply(sources)
    failed = {name for name, status in world.statuses().items() if status == "failed"}
    world.forget_runs()

    for _ in range(2):
        world.settle(restart=True)
    unchanged = world.ran()
    world.apply(change, restart=not is_live)

    assert failed == losers
    assert unchanged == []
    assert set(world.statuses().values()) == {"completed"}
    assert world.cache == world.clean().cache


def test_product_conflict_error_is_updated_if_the_named_job_drops_the_product() -> None:
    same = "make same.bin"
    world = World(Setup(retry_failed=RetryFailed.CHANGED)).apply({"a.s": same, "b.s": same, "c.s": same})

    world.apply({"b.s": ""}, restart=True)
    world.forget_runs()
    world.settle(restart=True)

    assert "is also made by 'c.s'" in world.job("a.s@linux:main").error
    assert "is also made by 'a.s'" in world.job("c.s@linux:main").error
    assert world.ran() == []


def test_second_conflict_of_a_job_is_reported_after_the_first_ends() -> None:
    texts = {"m.s": "real", "a.s": "stage m.s=y\nstage n.txt=a", "b.s": "stage n.txt=b"}
    world = World(Setup(retry_failed=RetryFailed.CHANGED)).apply(texts)
    state = world.job("b.s@common:chain").state

    world.apply({"m.s": None}, restart=True)

    assert state is JobState.COMPLETED
    assert {name for name, status in world.statuses().items() if status == "failed"} == {"a.s@common:chain", "b.s@common:chain"}
    assert world.cache == world.clean().cache


@pytest.mark.parametrize("wins", [True, False], ids=["the loser is listed first", "the order is the same"])
def test_job_that_lost_a_product_name_reruns_if_the_builder_order_is_reversed(*, wins: bool) -> None:
    order = (scripter(), scripter("twin"))
    world = World(Setup(builders=order, retry_failed=RetryFailed.CHANGED)).apply({"a.s": ""})
    world.forget_runs()

    world.reconfigure(builders=order[::-1] if wins else order)

    assert set(world.ran()) == ({"a.s@linux:main", "a.s@linux:main!twin"} if wins else set())
    assert world.cache == world.clean().cache


@pytest.mark.parametrize("kind", ["timeout", "error"])
def test_analysis_is_repeated_when_the_setting_that_made_it_fail_changes(kind: str) -> None:
    world = World(Setup(**with_scripter(analyse_limit_s=1.0), run_settings=(SANDBOX,), retry_failed=RetryFailed.CHANGED))
    world.fates["a.s:analyse"] = [kind]
    assert world.apply({"a.s": ""}).statuses() == {"a.s:analyse": "failed"}
    counts = [dict(world.analyses)]

    for _ in range(2):
        world.settle(restart=True)
        world.settle(restart=True, retries=False)
    counts.append(dict(world.analyses))
    world.configure(**with_scripter(analyse_limit_s=5.0), run_settings=(SANDBOX, PATH))
    world.settle(restart=True, retries=False)

    assert counts[0] == counts[1]
    assert world.statuses() == {NAME: "completed"}


# The next tests undo the change after which a job failed. They compare the job's database row with its row before the failure.


def described(world: World) -> dict[str, object]:
    """Return the stored description of the job, without the reason and times of failures."""
    job = world.job(NAME)
    names = (
        "warnings", "errors", "log_file", "error", "duration_ms", "completed_ms", "failure_cause", "state",
        "first_fail_ms", "first_fail_log", "last_fail_ms", "last_fail_log", "last_log_ms", "failure",
    )  # fmt: skip
    return {name: getattr(job, name) for name in names}


@pytest.mark.parametrize("restarts", [True, False], ids=["another engine", "the same engine"])
@pytest.mark.parametrize("times", [1, 3])
def test_reverted_source_restores_the_job_row_of_its_last_successful_run(times: int, *, restarts: bool) -> None:
    world = World().apply({"a.s": "WARN"})
    before = described(world)
    world.forget_runs()
    for at in range(times):
        world.fates[NAME] = ["error"]
        world.apply({"a.s": f"FAIL {at}"}, restart=restarts)
    failed = described(world)

    world.apply({"a.s": "WARN"}, restart=restarts)

    assert failed["errors"] == 1
    assert world.runs[NAME] == times
    assert described(world) == before


def test_settings_that_were_broken_and_repaired_leave_no_failed_job() -> None:
    world = World().apply({"a.s": "WARN", "b.txt": ""})
    before = described(world)
    world.apply({"a.s": "other", ".aptui.yaml": "{"})

    assert world.apply({"a.s": "WARN", ".aptui.yaml": None}).statuses() == {NAME: "completed", "b.txt@linux:data": "completed"}
    assert described(world) == before
    assert [row[6] for row in world.archive.tables.analyses.values()] == [0]


def test_retry_that_is_no_longer_needed_leaves_no_errors_on_the_job() -> None:
    world = World(Setup(retry=RetryRule(3, ("error",)))).apply({"a.s": "WARN"})
    before = described(world)
    world.write("a.s", "other")
    world.fates[NAME] = ["error"]
    world.scan()
    world.held.add(NAME)
    world.run()
    world.held.clear()
    world.apply({"a.s": "WARN"})

    assert described(world) == before


@pytest.mark.parametrize("had_products", [True, False], ids=["with products", "without products"])
@pytest.mark.parametrize("restarts", [True, False], ids=["another engine", "the same engine"])
def test_retry_of_an_unchanged_failed_job_always_has_the_same_reason(*, had_products: bool, restarts: bool) -> None:
    world = World()
    if had_products:
        world.apply({"a.s": "right"})
    world.apply({"a.s": "FAIL"})
    reasons = []
    for _ in range(3):
        world.settle(restart=restarts)
        reasons.append(world.job(NAME).reason)

    assert reasons == ["its previous run failed"] * 3


@pytest.mark.parametrize("had_products", [True, False], ids=["with products", "without products"])
@pytest.mark.parametrize("change", ["source", "dependency", "missing dependency", "builder", "limit"])
def test_new_run_of_a_failed_job_names_the_input_that_changed(change: str, *, had_products: bool) -> None:
    world = World(Setup(run_settings=(SANDBOX,)))
    world.write("d.inc", "1")
    if had_products:
        world.apply({"a.s": "include d.inc"})
    world.apply({"a.s": "include d.inc\ninclude e.inc\nFAIL"})
    expected = "source 'a.s' changed ("
    match change:
        case "source":
            world.write("a.s", "include d.inc\ninclude e.inc\nFAIL 2")
        case "dependency":
            world.write("d.inc", "2")
            expected = "dependency 'd.inc' changed ("
        case "missing dependency":
            world.write("e.inc", "")
            expected = "dependency 'e.inc' is new"
        case "builder":
            world.configure(builders=(copier(), scripter(version="2")))
            expected = "the builder's version changed from '1' to '2'"
        case _:
            world.configure(run_settings=(SANDBOX, PATH))
            expected = "sandbox path '/opt/tool' is new"

    world.settle(restart=True)

    assert world.job(NAME).reason.startswith(expected)


def test_failed_analysis_of_a_source_with_jobs_names_the_changed_input() -> None:
    world = World().apply({"d.inc": "1", "a.s": "include d.inc"})
    world.fates["a.s:analyse"] = ["error"]
    world.apply({"d.inc": "2"}, restart=True)

    (row,) = world.archive.tables.analyses.values()
    assert row[2] == "failed"
    assert str(row[10]).startswith("dependency 'd.inc' changed (")


def test_reason_of_a_run_says_whether_a_declared_file_is_missing() -> None:
    world = World().apply({"a.s": ""}).apply({"a.s": "include d.inc"})
    declared = world.job(NAME).reason
    world.apply({"a.s": ""})
    dropped = world.job(NAME).reason

    assert "dependency 'd.inc' is now declared, but missing" in declared
    assert "dependency 'd.inc' was missing, and is no longer declared" in dropped

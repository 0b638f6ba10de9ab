"""Dependencies: the jobs that wait for other jobs, and the jobs that run again after a change."""

from __future__ import annotations

import sys

import pytest
from fake_world import World, settled
from fakes import Setup, scripter, sha
from msgspec.structs import replace

from aptui.core.messages import KillRuns, RequestReceived, StartRuns
from aptui.core.model import Job, PathKey
from aptui.core.orders import Outcome, ProcessOrder, RunResult
from aptui.core.paths import path_uuid
from aptui.core.state.graph import Assembly, Graph


def runs_of(world: World) -> list[str]:
    """Return the sources of the runs that made products, in the order in which the runs started."""
    return [name.partition("@")[0] for name in world.order if "@" in name]


def only_changes(world: World, rel: str, sub_ids: tuple[int, ...]) -> None:
    """Let the next runs of a source change only the products with these sub ids."""
    made = world._process
    old = {product.sub_id: product.digest for product in world.job(f"{rel}@linux:main").products}

    def process(order: ProcessOrder, text: str) -> RunResult:
        result = made(order, text)
        if order.rel != rel:
            return result
        products = [item if item.sub_id in sub_ids else replace(item, digest=old[item.sub_id]) for item in result.products]
        world.staging.update((item.staged, item.digest) for item in products)
        return replace(result, products=tuple(products))

    world._process = process  # type: ignore[method-assign]


def analysed_before_anything_runs(world: World) -> None:
    """Complete all analyses first, then run the jobs one after the other."""
    world.duration_ms = 1_000
    world.held = {f"{rel}:analyse" for rel in world.disk.files["game"]} | {f"{rel}@linux:data" for rel in world.disk.files["game"]}
    world.slots = 100
    world.settle()
    world.slots = 1
    world.release()


# ---------------------------------------------------------------------------------------------------------- order of runs


@pytest.mark.parametrize("word", ["after", "only", "once", "print"])
@pytest.mark.parametrize("slots", [1, 4])
def test_jobs_of_a_chain_run_once_each_after_their_dependencies(world: World, word: str, slots: int) -> None:
    world.slots = slots
    world.apply({"a.s": f"{word} b.s:main", "b.s": f"{word} c.s:main", "c.s": f"{word} d.txt:data", "d.txt": "x"})

    assert runs_of(world) == ["d.txt", "c.s", "b.s", "a.s"]


@pytest.mark.parametrize("word", ["after", "print"])
def test_changed_jobs_of_a_chain_run_once_each_after_their_dependencies(world: World, word: str) -> None:
    settled(world, a_s=f"{word} b.s:main\ninclude d.bin", b_s=f"{word} c.s:main\ninclude d.bin", c_s="include d.bin", d_bin="1")
    world.apply({"d.bin": "2"})

    assert runs_of(world) == ["c.s", "b.s", "a.s"]


def show_source(world: World, name: str, number: int) -> None:
    world._post(RequestReceived(world._next(), "interest", (PathKey(name),), (), number))


def held_up(world: World, files: dict[str, str]) -> None:
    """Write these files and analyse all of them, but run no job."""
    world.duration_ms, world.slots = 1_000, 100
    world.held = {f"{name}:analyse" for name in files}
    world.apply(files)
    world.slots = 0
    world.release()


def test_escalating_a_source_also_escalates_its_dependencies(world: World) -> None:
    held_up(world, {"a.s": "", "b.s": "", "x.s": "", "y.s": "after x.s:main", "z.s": "after y.s:main"})
    world._post(RequestReceived(world._next(), "escalate", (PathKey("z.s"),), (), 200))

    world.slots = 1
    world.run()

    assert runs_of(world) == ["x.s", "y.s", "z.s", "a.s", "b.s"]


def test_boost_of_a_source_includes_all_its_dependencies(world: World) -> None:
    held_up(world, {"a.s": "", "b.s": "", "c.s": "", "x.s": "", "y.s": "after x.s:main", "z.s": "after y.s:main"})
    show_source(world, "z.s", 1)
    show_source(world, "c.s", 2)

    world.slots = 1
    world.run()

    assert runs_of(world) == ["c.s", "x.s", "y.s", "z.s", "a.s", "b.s"]


@pytest.mark.parametrize("unknown", [f"uuid {'0' * 32}", f"include {'z' * 32}"])
def test_boost_follows_a_uuid_to_its_source_and_ignores_unknown_targets(world: World, unknown: str) -> None:
    held_up(world, {"a.s": "", "b.s": "", "x.s": "", "z.s": f"after uuid={path_uuid('x.s').hex()}:main\n{unknown}"})
    show_source(world, "z.s", 1)

    world.slots = 1
    world.run()

    assert runs_of(world)[:2] == ["x.s", "z.s"]


def test_expired_boost_has_no_effect(world: World) -> None:
    held_up(world, {"a.s": "", "b.s": "", "y.s": "", "z.s": ""})
    show_source(world, "z.s", 1)
    show_source(world, "y.s", 7)
    world._post(RequestReceived(world._next(), "expire", (), (), 6))

    world.slots = 1
    world.run()

    assert runs_of(world) == ["y.s", "a.s", "b.s", "z.s"]


def test_boost_of_a_missing_source_applies_when_the_source_appears(world: World) -> None:
    show_source(world, "z.s", 1)
    held_up(world, {"a.s": "", "x.s": "", "z.s": "after x.s:main"})

    world.slots = 1
    world.run()

    assert runs_of(world) == ["x.s", "z.s", "a.s"]


def test_queued_job_waits_when_its_dependency_is_planned_again(world: World) -> None:
    settled(world, a_s="after b.s:main", b_s="")
    world.slots = 0
    world.apply({"a.s": "after b.s:main\n"})
    world.apply({"b.s": "x"})

    world.slots = 1
    world.run()

    assert runs_of(world) == ["b.s", "a.s"]


def test_running_job_is_killed_when_its_dependency_is_planned_again(world: World) -> None:
    settled(world, a_s="after b.s:main", b_s="")
    world.held.add("a.s@linux:main")
    world.apply({"a.s": "after b.s:main\n"})
    world.apply({"b.s": "x"})
    world.release()
    world.deliver_killed()

    assert world.cache == world.clean().cache
    assert runs_of(world) == ["a.s", "b.s", "a.s"]


@pytest.mark.parametrize(("word", "is_killed"), [("after", True), ("print", True), ("only", False)])
def test_reprocessed_dependency_runs_before_running_dependents(world: World, word: str, is_killed: bool) -> None:
    settled(world, a_s=f"{word} b.s:main", b_s="", c_s=f"{word} b.s:main")
    world.held = {"a.s@linux:main", "c.s@linux:main"}
    world.slots = 2
    world.apply({"a.s": f"{word} b.s:main\nx", "c.s": f"{word} b.s:main\nx"})
    world.slots = 3
    world.ask("reprocess", keys=("b.s",))

    assert bool(world.commands_of(KillRuns)) is is_killed
    world.release()
    world.deliver_killed()
    assert world.cache == world.clean().cache


def test_reprocessed_dependency_runs_before_a_queued_dependent(world: World) -> None:
    settled(world, a_s="only b.s:main", b_s="")
    world.slots = 1
    world.write("a.s", "only b.s:main\nx")
    world.scan()
    world.run_until(lambda: world.statuses()["a.s@linux:main"] == "pending")
    world.run_until(lambda: len(world.pipeline.jobs.ready))
    world.slots = 0
    world.ask("reprocess", keys=("b.s",))
    world.slots = 1
    world.forget_runs()

    world.run()

    assert runs_of(world) == ["b.s", "a.s"]


@pytest.mark.slow
def test_chain_of_jobs_longer_than_the_recursion_limit_is_processed() -> None:
    world = World()
    world.slots = 64
    count = sys.getrecursionlimit() + 100

    world.apply({f"{n:04}.s": f"only {n + 1:04}.s:main" if n + 1 < count else "" for n in range(count)})

    assert runs_of(world) == [f"{n:04}.s" for n in reversed(range(count))]


def test_changed_source_runs_each_of_its_many_dependents_once(world: World) -> None:
    settled(world, hub_s="", **{f"d{n}_s": "after hub.s:main" for n in range(300)})
    world.apply({"hub.s": "x"})

    assert len(world.ran()) == 301


def test_failed_dependency_blocks_no_job_and_is_named_if_a_dependent_fails(world: World) -> None:
    settled(world, a_s="after b.s:main\nFAIL", b_s="FAIL", c_s="after b.s:main")

    assert world.statuses() == {"a.s@linux:main": "failed", "b.s@linux:main": "failed", "c.s@linux:main": "completed"}
    assert world.job("a.s@linux:main").failure_cause == "b.s@linux:main"
    assert world.job("b.s@linux:main").failure_cause == ""


# ----------------------------------------------------------------------------------------------------------------- cycles


CYCLE = ("b.s@linux:main", "a.s@linux:main", "c.s@linux:main")


@pytest.mark.parametrize("word", ["after", "only", "once", "print"])
@pytest.mark.parametrize("restart", [True, False])
def test_each_job_of_a_cycle_runs_once_and_its_warning_names_the_cycle(world: World, word: str, restart: bool) -> None:
    world.apply({"b.s": f"{word} a.s:main", "a.s": f"{word} c.s:main", "c.s": f"{word} b.s:main", "d.s": f"{word} a.s:main"})

    text = (
        "circular job dependencies; these jobs do not wait for each other, and do not run again when "
        "another of these jobs changes: "
    ) + " -> ".join(sorted(CYCLE))
    for name in CYCLE:
        assert world.runs[name] == 1
        assert world.log_text(name) == text
        assert world.job(name).warnings == 1
    assert runs_of(world)[-1] == "d.s"
    assert world.job("d.s@linux:main").warnings == 0
    world.forget_runs()
    assert world.settle(restart=restart).ran() == []


def test_job_has_no_warning_after_its_cycle_is_broken(world: World) -> None:
    settled(world, a_s="after b.s:main", b_s="after a.s:main")
    world.apply({"b.s": ""})

    assert world.log_text("a.s@linux:main") == ""
    assert world.job("a.s@linux:main").warnings == 0
    assert world.cache == world.clean().cache


def test_job_that_depends_on_itself_has_a_cycle_warning(world: World) -> None:
    settled(world, a_s="after a.s:main")

    assert world.statuses() == {"a.s@linux:main": "completed"}
    assert "a.s@linux:main" in world.log_text("a.s@linux:main")


def test_cycle_of_includes_is_allowed(world: World) -> None:
    settled(world, a_s="include b.s", b_s="include c.s", c_s="include a.s", d_s="include a.s")
    assert world.apply({"b.s": "include c.s\nx"}).ran() == [f"{name}.s@linux:main" for name in "abcd"]
    assert world.job("a.s@linux:main").warnings == 0


# --------------------------------------------------------------------------------------------------------- repeated runs


def test_job_with_an_order_dependency_runs_again_when_products_change(world: World) -> None:
    settled(world, a_s="after b.s:main", b_s="")
    assert world.apply({"b.s": "x"}).ran() == ["a.s@linux:main", "b.s@linux:main"]
    assert world.job("a.s@linux:main").reason.startswith("the products of job 'b.s@linux:main' changed")


def test_job_with_an_order_dependency_does_not_rerun_for_equal_products(world: World) -> None:
    settled(world, a_s="after b.s:main", b_s="")
    only_changes(world, "b.s", ())
    assert world.apply({"b.s": "x"}).ran() == ["b.s@linux:main"]
    assert world.statuses()["a.s@linux:main"] == "completed"


@pytest.mark.parametrize(("wanted", "changed", "runs"), [("1", "1", True), ("1", "2", False), ("1,2", "2", True), ("", "2", True)])
def test_dependency_with_sub_ids_covers_only_products_with_these_sub_ids(
    world: World, wanted: str, changed: str, runs: bool
) -> None:
    settled(world, a_s=f"after b.s:main{'#' + wanted if wanted else ''}", b_s="extra 1\nextra 2")
    only_changes(world, "b.s", (int(changed),))
    world.apply({"b.s": "extra 1\nextra 2\nx"})

    assert ("a.s@linux:main" in world.runs) is runs


def test_job_with_a_fingerprint_dependency_runs_again_when_inputs_change(world: World) -> None:
    settled(world, a_s="print b.s:main", b_s="include c.bin", c_bin="1")
    world.apply({"c.bin": "2"})

    assert runs_of(world) == ["b.s", "a.s"]
    assert world.job("a.s@linux:main").reason.startswith("the fingerprint of job 'b.s@linux:main' changed")


def test_second_failure_of_a_changed_job_reruns_its_fingerprint_dependents(world: World) -> None:
    settled(world, a_s="print b.s:main", b_s="FAIL")
    world.apply({"b.s": "FAIL\nx"})

    assert runs_of(world) == ["b.s", "a.s"]


@pytest.mark.parametrize("word", ["once", "only"])
def test_job_does_not_rerun_if_dependency_type_is_orderonce_or_orderonly(world: World, word: str) -> None:
    settled(world, a_s=f"{word} b.s:main", b_s="")
    assert world.apply({"b.s": "x"}).ran() == ["b.s@linux:main"]


def test_job_waits_for_a_changed_orderonly_dependency_but_not_for_orderonce(world: World) -> None:
    settled(world, a_s="once b.s:main", b_s="", c_s="only b.s:main")
    world.held.add("b.s@linux:main")
    for name in "abc":
        world.touch(f"{name}.s")
    world.apply({"a.s": "once b.s:main\nx", "b.s": "x", "c.s": "only b.s:main\nx"})

    assert runs_of(world) == ["a.s", "b.s"]
    assert world.statuses()["c.s@linux:main"] == "pending"
    world.release()
    assert runs_of(world) == ["a.s", "b.s", "c.s"]


def test_job_waits_for_the_first_success_of_its_orderonce_dependency(world: World) -> None:
    settled(world, a_s="once b.s:main", b_s="FAIL")
    world.forget_runs()
    world.apply({"a.s": "once b.s:main\nx", "b.s": ""})

    assert runs_of(world) == ["b.s", "a.s"]


# --------------------------------------------------------------------------------------------------- missing dependencies


def test_job_dependency_on_another_platform_fails_the_job() -> None:
    setup = Setup(platforms=("linux", "server"), builders=(scripter(platforms=("linux", "server")),))
    world = World(setup).apply({"a.s": "after b.s:main@server", "b.s": ""})

    assert world.statuses()["a.s@server:main"] == "completed"
    assert world.statuses()["a.s@linux:main"] == "failed"
    error = "its job dependency on 'b.s' has platform 'server'; it can only have 'linux' or 'common'"
    assert world.job("a.s@linux:main").error == error
    assert world.log_text("a.s@linux:main") == error
    assert world.runs["a.s@linux:main"] == 0
    world.forget_runs()
    assert world.settle(restart=True).ran() == []


def test_job_with_a_missing_dependency_runs_last(world: World) -> None:
    world.write("a.s", "after gone.s:main\ncritical")
    world.edit({"b.s": "after c.s:unknown", "c.s": "priority -9", "d.s": "priority 3"})

    analysed_before_anything_runs(world)

    assert runs_of(world) == ["a.s", "d.s", "c.s", "b.s"]
    # The database does not store `misses_dependency`, so the engine computes it after each load of the job.
    assert world.job("b.s@linux:main").misses_dependency is False
    assert set(world.statuses().values()) == {"completed"}


@pytest.mark.parametrize(("word", "runs"), [("after", True), ("print", True), ("once", False), ("only", False)])
def test_job_runs_again_when_its_missing_job_dependency_appears(world: World, word: str, runs: bool) -> None:
    settled(world, a_s=f"{word} b.s:main")
    world.apply({"b.s": ""})

    assert runs_of(world) == (["b.s", "a.s"] if runs else ["b.s"])


def test_job_runs_again_when_its_job_dependency_is_deleted(world: World) -> None:
    settled(world, a_s="after b.s:main", b_s="")
    assert world.apply({"b.s": None}).ran() == ["a.s@linux:main"]


def test_job_runs_again_when_its_job_dependency_is_no_longer_planned(world: World) -> None:
    settled(world, a_s="after b.s:two", b_s="job two")
    assert world.apply({"b.s": ""}).ran() == ["a.s@linux:main", "b.s@linux:main"]
    assert "linux/b.two.out" not in world.cache


# ---------------------------------------------------------------------------------------------------- source dependencies


@pytest.mark.parametrize("target", ["x.bin", "X.BIN", "./y/../x.bin", "/disk/game/x.bin", "\\disk\\game\\x.bin"])
def test_included_file_is_found_by_any_spelling_of_its_path(world: World, target: str) -> None:
    settled(world, a_s=f"include {target}", x_bin="1")
    assert world.apply({"x.bin": "2"}).ran() == ["a.s@linux:main"]
    assert world.job("a.s@linux:main").reason.startswith("dependency 'x.bin' changed")


def test_dependency_outside_all_scan_folders_is_dropped_with_a_warning(world: World) -> None:
    settled(world, a_s="include /etc/passwd\nafter /etc/shadow:main")

    assert world.statuses() == {"a.s@linux:main": "completed"}
    assert world.job("a.s:analyse").warnings == 1
    assert world.log_text("a.s:analyse") == "dependency '/etc/passwd' is left out, because it is outside all scan folders"
    assert not world.archive.tables.edges


def test_job_runs_again_when_a_missing_included_file_appears(world: World) -> None:
    settled(world, a_s="include x.bin", b_s="include a.s")
    assert world.apply({"x.bin": "1"}).ran() == ["a.s@linux:main", "b.s@linux:main"]
    assert world.job("a.s@linux:main").reason == "dependency 'x.bin' is new"


def test_uuid_dependency_reruns_the_job_when_the_source_appears_or_changes(world: World) -> None:
    uuid = path_uuid("x.s").hex()
    settled(world, a_s=f"uuid {uuid}")
    assert world.apply({"x.s": "1"}).ran() == ["a.s@linux:main", "x.s@linux:main"]

    assert world.apply({"x.s": "2"}).ran() == ["a.s@linux:main", "x.s@linux:main"]
    assert world.job("a.s@linux:main").reason.startswith("dependency 'x.s' changed")


@pytest.mark.parametrize("word", ["print", "after", "once", "only"])
def test_job_dependency_may_name_its_source_by_uuid(world: World, word: str) -> None:
    world.slots = 1
    world.apply({"a.s": f"{word} uuid={path_uuid('z.s').hex()}:main", "z.s": "x"})
    assert runs_of(world) == ["z.s", "a.s"]
    world.forget_runs()
    world.apply({"z.s": "y"}, restart=True)

    assert runs_of(world) == ["z.s", *(["a.s"] if word in ("print", "after") else [])]


def test_job_dependency_on_unknown_uuid_applies_when_its_source_appears(world: World) -> None:
    settled(world, a_s=f"after uuid={path_uuid('z.s').hex()}:main")

    assert world.apply({"z.s": "x"}).ran() == ["a.s@linux:main", "z.s@linux:main"]
    world.delete("z.s")
    world.forget_runs()
    assert world.settle().ran() == ["a.s@linux:main"]


@pytest.mark.parametrize("restart", [True, False])
def test_wildcard_dependency_reruns_the_job_once_for_each_changed_match(world: World, restart: bool) -> None:
    settled(world, a_s="glob sub/*.bin\nglob sub/x*")
    for change in (
        lambda: world.write("sub/x.bin", "1"),
        lambda: world.write("sub/x.bin", "2"),
        lambda: world.delete("sub/x.bin"),
    ):
        change()
        assert world.settle(restart=restart).ran() == ["a.s@linux:main"]

    assert world.apply({"x.bin": "1"}, restart=restart).ran() == []


def test_job_with_many_dependencies_is_not_evaluated_after_each_of_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []
    assemble = Graph.job

    def count(graph: Graph, job: Job) -> Assembly:
        evaluated.append(job.source.key)
        return assemble(graph, job)

    monkeypatch.setattr(Graph, "job", count)
    names = [f"sub/{number:03}.s" for number in range(200)]
    world.held = {f"{name}:analyse" for name in names}
    world.slots = 1_000
    world.apply({"a.s": "glob sub/*.s", **dict.fromkeys(names, "x")})
    for name in names:
        world.held.discard(f"{name}:analyse")
        world.run()

    assert world.ran().count("a.s@linux:main") == 1
    assert 1 < evaluated.count("a.s") < 30


def test_wildcard_dependency_without_a_star_matches_only_the_equal_path(world: World) -> None:
    settled(world, a_s="glob x.bin")
    world.forget_runs()

    assert world.apply({"x.bin": "1"}).ran() == ["a.s@linux:main"]


def test_duplicate_dependencies_are_stored_once(world: World) -> None:
    settled(world, a_s="include x.bin\ninclude ./x.bin\nafter b.s:main\nafter b.s:main\ninclude b.s", b_s="")

    edges = sorted((name, kind) for name, _owner, _builder, kind in world.archive.tables.edges)
    assert edges == [("b.s", 0), ("b.s", 3), ("x.bin", 0)]


def test_source_that_includes_itself_does_not_depend_on_itself(world: World) -> None:
    settled(world, a_s="include a.s\nread a.s")

    assert not world.archive.tables.edges


def test_edges_are_deleted_with_the_source_that_declared_them(world: World) -> None:
    settled(world, a_s="include x.bin\nglob *.bin\nread y.bin", b_s="include x.bin")
    world.configure(builders=(scripter("other", "a.s"),))
    world.apply({"a.s": ""}, restart=True)

    assert not world.archive.tables.edges


def test_analysis_is_repeated_when_a_file_that_it_read_changes(world: World) -> None:
    settled(world, a_s="jobs-from list.bin", list_bin="one two")
    world.apply({"list.bin": "two three"})

    assert world.statuses().keys() == {f"a.s@linux:{key}" for key in ("main", "from-two", "from-three")}
    assert world.cache == world.clean().cache


def test_only_a_changed_source_and_its_dependents_are_analysed_again(world: World) -> None:
    settled(world, a_s="include b.s", b_s="", c_s="")
    world.apply({"b.s": "x"})

    assert world.analyses == {"a.s": 1, "b.s": 1}


# ------------------------------------------------------------------------------------ dependencies found while processing


def test_job_runs_again_when_a_file_that_its_run_discovered_changes(world: World) -> None:
    settled(world, a_s="read x.bin", x_bin="1")
    assert world.job("a.s@linux:main").discovered == (("x.bin", sha("1").hex()[:32]),)
    assert world.apply({"x.bin": "2"}).ran() == ["a.s@linux:main"]
    assert world.job("a.s@linux:main").reason.startswith("dependency 'x.bin' (found while processing) changed")
    assert not world.analyses


@pytest.mark.parametrize("restart", [True, False])
def test_job_reruns_when_a_missing_input_file_appears(world: World, restart: bool) -> None:
    settled(world, a_s="read x.bin")
    assert world.apply({"x.bin": "1"}, restart=restart).ran() == ["a.s@linux:main"]
    assert world.settle(restart=restart).ran() == []


def test_failed_job_runs_again_when_a_file_that_its_run_read_changes(world: World) -> None:
    settled(world, a_s="read x.bin\nFAIL", x_bin="1")
    world.held.clear()
    world.write("x.bin", "2")
    world.process()

    assert world.job("a.s@linux:main").discovered == (("x.bin", sha("2").hex()[:32]),)
    assert world.ran() == ["a.s@linux:main"]


def test_job_does_not_depend_on_a_file_that_only_an_earlier_run_has_read(world: World) -> None:
    settled(world, a_s="read x.bin", x_bin="1")
    settled(world, a_s="")
    assert world.apply({"x.bin": "2"}).ran() == []
    assert not world.archive.tables.edges


def test_job_depends_on_a_file_that_it_reads_outside_all_scan_folders(world: World) -> None:
    settled(world, a_s="read ../../etc/passwd\nread ../../etc/gone")

    assert [name for name, _digest in world.job("a.s@linux:main").discovered] == ["/etc/gone", "/etc/passwd"]
    assert world.settle(restart=True, is_full=True).ran() == []


# ---------------------------------------------------------------------------------------------------------------- urgency


def test_dependencies_of_a_critical_job_start_first(world: World) -> None:
    world.edit({f"{name}.s": "priority 9" for name in "abcd"})
    world.edit({"x.s": "critical\nafter y.s:main", "y.s": "priority -9\nafter z.s:main", "z.s": "priority -9"})

    analysed_before_anything_runs(world)

    assert runs_of(world)[:3] == ["z.s", "y.s", "x.s"]


def test_job_waits_until_the_lost_run_of_its_dependency_is_repeated(world: World) -> None:
    world.fates["b.s@linux:main"] = [Outcome.LOST, Outcome.RETURNED, Outcome.RETURNED]
    world.apply({"a.s": "after b.s:main\ncritical", "b.s": ""})

    assert runs_of(world) == ["b.s"] * 4 + ["a.s"]


def test_quick_jobs_of_one_builder_are_sent_in_one_message(world: World) -> None:
    world.edit({f"{n:02}.s": "" for n in range(40)})
    world.slots = 2

    world.settle()

    sizes = [len(command.orders) for command in world.commands_of(StartRuns)]
    assert max(sizes) > 1
    assert sum(sizes) == 80


def test_source_deleted_while_its_dependency_is_read_leaves_no_analysis(world: World) -> None:
    world.apply({"sub/x.bin": "1"})
    world.shy["sub/x.bin"] = 99
    world.write("a.s", "include sub/x.bin")
    world.scan()
    while world.shy["sub/x.bin"] > 90:
        (world._moves() or [world._check_again])[0]()
    world.delete("a.s")
    world.shy.clear()

    assert world.settle().statuses() == {}
    assert world.is_idle()


def test_job_that_is_cancelled_while_it_waits_does_not_start(world: World) -> None:
    world.held.add("b.s@linux:main")
    world.apply({"a.s": "after b.s:main", "b.s": ""})
    world.ask("cancel", names=("a.s@linux:main",))
    world.release()

    assert world.statuses() == {"a.s@linux:main": "cancelled", "b.s@linux:main": "completed"}
    assert "a.s@linux:main" not in world.runs


def test_builder_can_request_the_jobs_of_another_source(world: World) -> None:
    settled(world, a_s="x", b_s="reprocess a.s\nreprocess b.s\nreprocess /etc/passwd\nreprocess gone.s", c_s="")
    assert world.apply({"b.s": "reprocess a.s"}).ran() == ["a.s@linux:main", "b.s@linux:main"]
    assert world.job("a.s@linux:main").reason == "requested by 'b.s'"


@pytest.mark.slow
def test_dependents_of_a_changed_source_are_up_to_date_after_a_crash() -> None:
    for word in ("after", "print", "include", "glob *"):
        for fuse in range(45):
            world = World().apply(
                {"a.s": "glob *.s" if "*" in word else f"{word} z/b.s{'' if word == 'include' else ':main'}", "z/b.s": ""}
            )
            world.write("z/b.s", "x")
            world.fuse = fuse
            assert world.settle().cache == world.clean().cache, (word, fuse)


@pytest.mark.parametrize("is_batch", [False, True])
def test_request_of_a_builder_to_rerun_a_job_survives_a_crash(is_batch: bool) -> None:
    for fuse in range(60):
        world = settled(World(), a_s="x", b_s="")
        before = world.job("a.s@linux:main").completed_ms
        world.write("b.s", "reprocess a.s")
        if is_batch:
            world.write("a.s", "x")  # `a.s` keeps its text, but its run now ends together with the run of `b.s`
        world.fuse = fuse
        world.settle()
        assert world.job("a.s@linux:main").completed_ms > before, fuse
        assert world.cache == world.clean().cache, fuse


@pytest.mark.parametrize("is_blocked", [False, True])
def test_request_of_a_user_to_rerun_jobs_survives_a_crash(world: World, is_blocked: bool) -> None:
    settled(world, a_s="after b.s:main" if is_blocked else "x", b_s="x")
    world.held |= {"b.s@linux:main", "a.s@linux:main"}
    world.ask("reprocess", keys=("a.s", "b.s"))
    world.crash()
    world.held.clear()
    before = world.job("a.s@linux:main").completed_ms, world.job("b.s@linux:main").completed_ms

    world.settle()

    assert world.job("a.s@linux:main").completed_ms > before[0]
    assert world.job("b.s@linux:main").completed_ms > before[1]
    assert world.cache == world.clean().cache


def test_job_that_is_requested_during_its_own_commit_runs_again(world: World) -> None:
    settled(world, a_s="", b_s="x")
    world.apply({"a.s": "reprocess b.s", "b.s": "y"})

    assert world.runs["b.s@linux:main"] == 2


def test_dependents_of_a_deleted_source_are_up_to_date_after_a_crash() -> None:
    for fuse in range(45):
        world = World().apply({"a.s": "", "z/b.s": "include a.s", "z/c.s": "read a.s", "y/d.s": "after a.s:main"})
        world.delete("a.s")
        world.fuse = fuse
        assert world.settle().cache == world.clean().cache, fuse


def test_source_without_dependents_has_an_empty_set_of_dependents(world: World) -> None:
    settled(world, a_txt="x")

    assert world.pipeline.jobs.memory.dependents((PathKey("a.txt"),)) == set()


def test_source_dependency_and_job_dependency_on_one_file_both_apply(world: World) -> None:
    settled(world, a_s="include b.s\nafter b.s:main", b_s="info one")
    assert not any("b.s" in world.log_text(name) for name in ("a.s:analyse", "a.s@linux:main"))

    world.apply({"b.s": "info two"})
    assert runs_of(world) == ["b.s", "a.s"]

    world.forget_runs()
    only_changes(world, "b.s", ())
    world.apply({"b.s": "info three"})

    assert runs_of(world) == ["b.s", "a.s"], "the changed bytes of b.s run the dependent although the products are equal"

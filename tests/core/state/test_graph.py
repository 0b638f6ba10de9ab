"""The graph: relative paths, strongly connected components, and cycles of jobs and of preloaded products."""

from __future__ import annotations

from itertools import permutations

import pytest
from fake_world import World
from fakes import Setup
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aptui.core.model import Source
from aptui.core.project import ScanFolder
from aptui.core.settings import SettingsTree
from aptui.core.state.graph import Graph, components, find_cycles
from aptui.core.state.working_set import WorkingSet


@pytest.mark.parametrize(
    ("path", "rel"),
    [
        ("a/../b.s", "b.s"),
        ("\\a\\b.s", None),
        ("/disk/game/a/B.s", "a/B.s"),
        ("/disk/shared/x", "x"),
        ("/disk/gamex/x", None),
        ("/disk/game/../shared/x", "x"),
        ("//disk//game/x", "x"),
    ],
)
def test_absolute_path_becomes_relative_to_its_scan_folder(path: str, rel: str | None) -> None:
    world = World(Setup(folders=("game", "shared"))).apply({"a.s": ""})
    (source,) = world.archive.reopen().sources(["a.s"]).values()  # type: ignore[list-item]
    assert isinstance(source, Source)

    assert world.pipeline.jobs.graph.relative(path) == rel


def test_subfolder_is_outside_a_scan_folder_that_is_not_recursive() -> None:
    folders = (ScanFolder(1, "game", "/disk/game", recursive=False), ScanFolder(2, "inner", "/disk/game/inner", 1))
    project = replace(World().project, scan_folders=folders)
    graph = Graph(project, WorkingSet(World().archive), SettingsTree(project))

    assert graph.relative("/disk/game/x") == "x"
    assert graph.relative("/disk/game/inner/x") == "x"
    assert graph.relative("/disk/game/other/x") is None


def cycle_of(world: World, name: str) -> str:
    return world.log_text(name).rpartition(": ")[2]


def test_cycles_that_share_a_job_are_reported_as_one_cycle() -> None:
    world = World().apply(
        {
            "a.s": "only b.s:main",
            "b.s": "only a.s:main\nonly c.s:main",
            "c.s": "only b.s:main\nonly d.s:main",
            "d.s": "only e.s:main\nonly f.s:main",
            "e.s": "only f.s:main",
            "f.s": "",
        }
    )

    names = [cycle_of(world, f"{name}.s@linux:main") for name in "abc"]
    assert names == ["a.s@linux:main -> b.s@linux:main -> c.s@linux:main"] * 3
    assert [world.job(f"{name}.s@linux:main").warnings for name in "def"] == [0, 0, 0]
    assert world.order.index("d.s@linux:main") < world.order.index("c.s@linux:main")


def test_cycle_that_a_later_change_closes_is_found() -> None:
    world = World().apply({"a.s": "only b.s:main", "b.s": "only c.s:main"})

    world.apply({"c.s": "only a.s:main"})

    assert cycle_of(world, "c.s@linux:main") == "a.s@linux:main -> b.s@linux:main -> c.s@linux:main"


def test_job_that_depends_on_jobs_of_a_cycle_is_not_part_of_the_cycle() -> None:
    world = World().apply({"a.s": "job two\nonly b.s:main", "b.s": "only a.s:two"})

    assert cycle_of(world, "b.s@linux:main") == "a.s@linux:two -> b.s@linux:main"
    assert world.job("a.s@linux:main").warnings == 0


# -------------------------------------------------------------------------------------------- strongly connected components


EDGES = st.dictionaries(st.integers(0, 6), st.lists(st.integers(0, 6), max_size=3, unique=True), max_size=7)


@given(EDGES)
def test_nodes_of_one_component_reach_each_other(edges: dict[int, list[int]]) -> None:
    nodes = {*edges, *(other for ways in edges.values() for other in ways)}
    reach = {node: {node} for node in nodes}
    for _step in nodes:
        reach = {node: {far for near in seen for far in (near, *edges.get(near, ()))} for node, seen in reach.items()}

    found = [set(component) for component in components(edges, lambda node: edges.get(node, ()))]

    part = {node: index for index, component in enumerate(found) for node in component}
    assert len(part) == sum(map(len, found))
    assert nodes - {node for node in nodes if node in part} == set()
    for one, other in permutations(nodes, 2):
        assert (part[one] == part[other]) == (other in reach[one] and one in reach[other])
        assert one not in part or other not in reach[one] or part[other] <= part[one]


def test_component_search_handles_a_chain_of_50000_nodes() -> None:
    found = list(components([0], lambda node: [node + 1] if node < 50_000 else []))

    assert len(found) == 50_001
    assert found[0] == [50_000]


def test_only_components_reachable_from_the_roots_are_yielded() -> None:
    edges = {1: [2], 2: [1], 3: [1]}

    assert [sorted(component) for component in components([2], edges.__getitem__)] == [[1, 2]]


# ---------------------------------------------------------------------------------------------- cycles of preloaded products


NAMES = {number: "gfedcba"[number] for number in range(7)}


def test_description_of_a_cycle_begins_with_its_alphabetically_first_name() -> None:
    edges = {1: [2], 2: [3], 3: [1], 4: [1]}
    names = {1: "m", 2: "a", 3: "z", 4: "b"}

    assert [find_cycles(edges, names, [wanted]) for wanted in (1, 2, 3)] == [[("a", "z", "m", "a")]] * 3
    assert find_cycles(edges, names, [4]) == []


def test_shortest_cycle_of_a_component_is_reported() -> None:
    assert find_cycles({0: [1, 2], 1: [2], 2: [0]}, NAMES, [0]) == [("e", "g", "e")]


def test_cycle_longer_than_the_recursion_limit_is_found() -> None:
    count = 50_000
    edges = {number: [(number + 1) % count] for number in range(count)}

    (chain,) = find_cycles(edges, {number: f"{number:06}" for number in range(count)}, [7])

    assert (chain[0], len(chain)) == ("000000", count + 1)

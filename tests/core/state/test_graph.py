"""The graph: inputs of a job, relative paths and cycles, queried directly."""

from __future__ import annotations

import pytest
from fake_world import World
from fakes import Setup
from msgspec.structs import replace

from aptui.core.model import Source
from aptui.core.project import ScanFolder
from aptui.core.state.graph import Graph
from aptui.core.state.working_set import WorkingSet


def graph_of(setup: Setup) -> Graph:
    world = World(setup)
    return Graph(world.project, WorkingSet(world.archive))


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
    graph = Graph(replace(World().project, scan_folders=folders), WorkingSet(World().archive))

    assert graph.relative("/disk/game/x") == "x"
    assert graph.relative("/disk/game/inner/x") == "x"
    assert graph.relative("/disk/game/other/x") is None


def cycle_of(world: World, name: str) -> str:
    return world.log_text(name).rpartition(": ")[2]


def test_cycles_that_share_a_job_are_one_cycle() -> None:
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

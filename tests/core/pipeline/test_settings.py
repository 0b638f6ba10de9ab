"""Folder settings: which jobs run when an `.aptui.yaml` file appears, changes, becomes invalid or is deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from fake_world import World
from fakes import Setup, copier, scripter

from aptui.core.messages import FoldersUnchanged, StartRuns
from aptui.core.orders import AnalyseOrder, ProcessOrder
from aptui.core.run_report import SETTINGS_STATE

BOTH = ("linux", "server")
SETTINGS = {"script": {"params": {"look": 1}}}
NO_SERVER = {"script": {"platforms": {"server": "skip"}}, "data": {"platforms": {"server": "skip"}}}
NEVER = {"script": {"platforms": {"*": "skip"}}, "data": {"platforms": {"*": "skip"}}}


def world_of(*, platforms: tuple[str, ...] = ("linux",), folders: tuple[str, ...] = ("game",)) -> World:
    """Return an idle simulated engine that has built `a.s`, three sources below `one` and one source below `two`."""
    builders = (copier(platforms=platforms), scripter(platforms=platforms))
    world = World(Setup(builders=builders, platforms=platforms, folders=folders))
    world.apply({rel: rel for rel in ("a.s", "one/b.s", "one/c.txt", "one/deep/d.s", "two/e.s")}).forget_runs()
    return world


def say(world: World, folder: str, sections: Mapping[str, object] | str, root: str = "game") -> None:
    """Write a settings file; a string instead of a mapping makes an invalid file."""
    text = sections if isinstance(sections, str) else json.dumps(sections)
    world.write(f"{folder}/.aptui.yaml" if folder else ".aptui.yaml", text, root)


def same_as_clean(world: World) -> bool:
    """Whether the settled cache equals that of a clean build."""
    clean = world.clean()
    return (world.statuses(), world.cache) == (clean.statuses(), clean.cache)


def test_folder_settings_apply_below_and_rerun_only_affected_builders() -> None:
    world = world_of()
    say(world, "one", SETTINGS)

    world.settle()

    assert dict(world.analyses) == {"one/b.s": 1, "one/deep/d.s": 1}
    assert world.ran() == ["one/b.s@linux:main", "one/deep/d.s@linux:main"]
    assert world.job("one/deep/d.s@linux:main").reason == "folder setting 'one/.aptui.yaml:script' is new"
    assert same_as_clean(world)


def test_unchanged_settings_run_no_job() -> None:
    world = world_of()
    say(world, "one", SETTINGS)
    world.settle().forget_runs()

    world.settle()
    world.settle(restart=True)
    world.settle(is_full=True)
    world.touch("one/.aptui.yaml")
    assert world.settle().ran() == []
    assert not world.analyses


def test_worker_orders_contain_the_folder_settings() -> None:
    world = world_of()
    say(world, "one", SETTINGS)

    world.settle()

    orders = [order for command in world.commands_of(StartRuns) for order in command.orders]
    assert {type(order) for order in orders} == {AnalyseOrder, ProcessOrder}
    assert {order.settings for order in orders} == {'{"params":{"look":1},"platforms":{}}'}  # type: ignore[union-attr]


def test_change_of_folder_settings_does_not_affect_subfolders_that_override_it() -> None:
    world = world_of()
    say(world, "one", SETTINGS)
    say(world, "one/deep", {"script": {"params": {"look": 2}}})
    world.settle().forget_runs()

    say(world, "one", {"script": {"params": {"look": 3}}})
    assert world.settle().ran() == ["one/b.s@linux:main"]
    assert world.job("one/b.s@linux:main").reason.startswith("folder setting 'one/.aptui.yaml:script' changed (")
    assert same_as_clean(world)


def test_settings_in_the_top_folder_apply_to_all_folders() -> None:
    world = world_of()
    say(world, "", SETTINGS)

    assert world.settle(restart=True).ran() == [
        "a.s@linux:main",
        "one/b.s@linux:main",
        "one/deep/d.s@linux:main",
        "two/e.s@linux:main",
    ]
    assert same_as_clean(world)


def test_deleted_settings_restore_the_defaults() -> None:
    world = world_of()
    before = dict(world.cache)
    say(world, "one", SETTINGS)
    world.settle().forget_runs()

    assert world.apply({"one/.aptui.yaml": None}).ran() == ["one/b.s@linux:main", "one/deep/d.s@linux:main"]
    assert world.cache == before
    assert world.job("one/b.s@linux:main").reason == "folder setting 'one/.aptui.yaml:script' was removed"


def test_deleted_folder_removes_its_settings() -> None:
    world = world_of()
    say(world, "three", SETTINGS)
    world.settle()

    world.apply({"three/.aptui.yaml": None})
    world.apply({"three/f.s": ""})

    assert world.pipeline.jobs.settings.text("three") == ""
    assert same_as_clean(world)


def test_setting_of_one_platform_reruns_only_jobs_of_the_platform() -> None:
    world = world_of(platforms=BOTH)
    say(world, "one", {"script": {"platforms": {"server": {"look": 1}}}})

    assert world.settle().ran() == ["one/b.s@server:main", "one/deep/d.s@server:main"]
    assert same_as_clean(world)


def test_products_of_a_skipped_platform_are_deleted() -> None:
    world = world_of(platforms=BOTH)
    say(world, "one", NO_SERVER)

    assert world.settle().ran() == []
    assert sorted(name for name in world.cache if "/one/" in name) == [
        "linux/one/b.out",
        "linux/one/c.txt",
        "linux/one/deep/d.out",
    ]
    assert same_as_clean(world)


def test_skipped_sources_run_again_after_their_settings_are_removed() -> None:
    world = world_of()
    before = dict(world.cache)
    say(world, "one", NEVER)
    world.settle()
    assert not any("/one/" in name for name in world.cache)
    world.forget_runs()

    assert world.apply({"one/.aptui.yaml": None}, restart=True).ran() == [
        "one/b.s@linux:main",
        "one/c.txt@linux:data",
        "one/deep/d.s@linux:main",
    ]
    assert world.cache == before


def test_skipped_jobs_run_if_the_engine_crashes_after_settings_are_removed() -> None:
    world = world_of()
    before = dict(world.cache)
    say(world, "one", NEVER)
    world.settle()
    world.delete("one/.aptui.yaml")
    world.scan()
    while SETTINGS_STATE + "one" not in {key for key, text in world.archive.tables.state.items() if not text}:
        world._moves()[0]()  # continue until the row of the removed settings is saved

    assert world.crash().settle().cache == before


def test_sources_below_broken_settings_fail_until_the_settings_are_corrected() -> None:
    world = world_of()
    before = dict(world.cache)
    say(world, "one", "not yaml")

    assert world.settle().ran() == []
    assert {name: status for name, status in world.statuses().items() if status == "failed"} == {
        "one/b.s:analyse": "failed",
        "one/c.txt:analyse": "failed",
        "one/deep/d.s:analyse": "failed",
    }
    assert world.job("one/c.txt:analyse").error == "one/.aptui.yaml:1:1: not valid YAML"
    assert world.cache == before

    say(world, "one", {})
    world.settle()
    assert "failed" not in world.statuses().values()
    assert world.ran() == []
    assert same_as_clean(world)


def test_source_below_broken_settings_runs_after_the_settings_are_removed() -> None:
    world = world_of()
    say(world, "one", "not yaml")
    world.settle()
    world.write("one/b.s", "other")
    world.post_request("reprocess", keys=("one/c.txt",))
    world.apply({"one/new.s": ""}, restart=True)
    world.post_request("reprocess", keys=("one/c.txt",))
    assert world.settle().ran() == []
    assert world.statuses()["one/c.txt@linux:data"] == "failed"
    world.delete("one/.aptui.yaml")
    world.settle()
    # `one/c.txt` does not run, because its products are up to date.
    assert world.ran() == ["one/b.s@linux:main", "one/new.s@linux:main"]
    assert same_as_clean(world)


@pytest.mark.parametrize("restart", [False, True])
def test_lost_product_does_not_rerun_a_job_in_a_folder_with_invalid_settings(restart: bool) -> None:
    world = world_of()
    say(world, "one", "not yaml")
    world.settle()
    world.post_request("reprocess", keys=("one/c.txt",))
    world.settle()
    world.lose("linux/one/c.txt")

    world.settle(restart=restart)
    world.restart()

    assert world.statuses()["one/c.txt@linux:data"] == "failed"
    assert world.job("one/c.txt@linux:data").reason == "its source or its declaration has an error"
    world.apply({"one/.aptui.yaml": None})
    assert same_as_clean(world)


def test_running_job_fails_when_its_folder_settings_become_invalid() -> None:
    world = world_of()
    world.held.add("one/b.s@linux:main")
    world.apply({"one/b.s": "other"})
    say(world, "one", "not yaml")
    world.scan()
    world.run_scan_only()
    world.release()

    assert world.statuses()["one/b.s@linux:main"] == "failed"
    assert world.job("one/b.s@linux:main").error == "one/.aptui.yaml:1:1: not valid YAML"


def test_changed_dependency_reruns_no_job_in_a_folder_with_invalid_settings() -> None:
    world = world_of().apply({"one/b.s": "after a.s:main"})
    say(world, "one", "not yaml")
    world.settle().forget_runs()

    assert world.apply({"a.s": "other"}).ran() == ["a.s@linux:main"]
    assert world.statuses()["one/b.s:analyse"] == "failed"


def test_settings_file_of_the_winning_scan_folder_applies() -> None:
    world = world_of(folders=("game", "shared"))
    world.write("one/s.s", "", "shared")
    say(world, "one", {"script": {"params": {"look": "shared"}}}, "shared")
    world.settle().forget_runs()

    say(world, "one", SETTINGS)
    assert world.settle().ran() == ["one/b.s@linux:main", "one/deep/d.s@linux:main", "one/s.s@linux:main"]
    world.reconfigure(folders=("shared", "game"))
    assert "shared" in world.pipeline.jobs.settings.text("one")
    assert same_as_clean(world)


def test_unknown_builder_in_settings_is_valid_after_the_project_adds_it() -> None:
    world = world_of()
    say(world, "one", {"twin": {"params": {"look": 1}}})
    assert (
        world.settle().job("one/b.s:analyse").error
        == "one/.aptui.yaml:2:3: 'twin' is not a builder; the known names are: data, script"
    )

    world.reconfigure(builders=(*world.setup.builders, scripter("twin", "*.never")))

    assert "failed" not in world.statuses().values()


@pytest.mark.parametrize("fuse", range(0, 24, 3))
def test_next_engine_recovers_from_a_crash_at_any_moment(fuse: int) -> None:
    world = world_of(platforms=BOTH)
    say(world, "", SETTINGS)
    say(world, "one", NO_SERVER)
    world.fuse = fuse

    world.settle()
    say(world, "one", NEVER)
    world.delete(".aptui.yaml")
    world.fuse = fuse
    world.settle()
    world.delete("one/.aptui.yaml")
    world.fuse = fuse
    world.settle(restart=True)

    assert same_as_clean(world)


def test_stored_settings_without_a_file_are_dropped() -> None:
    world = world_of()
    world.archive.tables.state[SETTINGS_STATE + "one"] = json.dumps(
        {"file": "one/.aptui.yaml", "builders": {"script": {"params": {"look": 1}, "platforms": {}}}}
    )
    world.settle(restart=True)

    assert world.pipeline.jobs.settings.text("one") == ""
    assert same_as_clean(world)


def test_settings_that_change_while_files_are_read_are_applied() -> None:
    world = world_of()
    world.write("one/b.s", "other")
    world.scan()
    world.run_scan_only()
    say(world, "one", SETTINGS)
    world.scan()
    world.run_scan_only()

    assert world.settle().ran() == ["one/b.s@linux:main", "one/deep/d.s@linux:main"]
    assert same_as_clean(world)


def test_a_folder_settings_file_is_never_a_source() -> None:
    world = World(Setup(builders=(copier(pattern="*"),)))
    say(world, "one", {})

    assert world.settle().statuses() == {}


def test_report_of_unchanged_folders_with_settings_causes_no_commands() -> None:
    world = world_of()
    say(world, "one", SETTINGS)
    world.settle().forget_runs()

    world._post(FoldersUnchanged(world._next(), ("one", "one/deep")))
    world.run()

    assert world.commands == []


def test_jobs_of_a_removed_platform_are_dropped_despite_broken_folder_settings() -> None:
    world = world_of(platforms=BOTH)
    say(world, "one", NO_SERVER)
    say(world, "two", {"script": {"platforms": {"server": {"look": 1}}}})
    world.settle()

    world.reconfigure(builders=(copier(), scripter()), platforms=("linux",))

    assert "'server' is neither a platform nor a tag" in world.job("two/e.s:analyse").error
    assert not any(name.startswith("server/") for name in world.cache)


def test_analysis_is_repeated_when_settings_change_during_its_run() -> None:
    world = World().apply({".aptui.yaml": '{"script": {"params": {"job": "two"}}}', "a.s": "x"})
    world.delete(".aptui.yaml")
    world.post_request("reprocess", keys=("a.s",))
    world.held.add("a.s:analyse")
    world.run()
    world.scan(is_full=True)
    world.run_scan_only()
    world.release()

    assert set(world.statuses()) == {"a.s@linux:main"}

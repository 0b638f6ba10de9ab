"""Identities: a source keeps the UUID of its `.meta` file, UUIDs are unique, and dependencies by UUID follow the source."""

from __future__ import annotations

import random

import pytest
from fake_world import World, settled
from fakes import Setup, copier, meta, meta_uuid, scripter

from aptui.core.identity import path_uuids
from aptui.core.messages import ProductsLost
from aptui.core.model import JobState, RelPath
from aptui.core.notices import EngineMessage

DUPLICATES_ALLOWED = Setup(builders=(copier(), scripter()), folders=("game", "shared"), metadata_types=(".s", ".txt"))


@pytest.fixture
def world() -> World:
    return settled(World(), {"a.s": "x", "a.s.meta": meta("one", "a.s"), "user.s": f"uuid {meta_uuid('one').hex()}"})


def uuids(world: World) -> dict[str, bytes]:
    """Return {source: UUID}; the name of a duplicate path includes its scan folder."""
    sources = {job.source.key: job.source for job in world.live_jobs().values()}
    return {f"{item.rel}~{item.scan_folder}" if item.is_duplicate else str(item.rel): item.uuid for item in sources.values()}


def errors(world: World) -> dict[str, str]:
    return {name: job.error for name, job in world.live_jobs().items() if job.state is JobState.FAILED}


# ------------------------------------------------------------------------------------------------------- uuids of sources


def test_source_of_any_type_gets_the_uuid_of_its_meta_file(world: World) -> None:
    assert uuids(world)["a.s"] == meta_uuid("one")
    assert uuids(world)["user.s"] == path_uuids(RelPath("user.s"))[0]


def test_path_in_two_scan_folders_is_two_sources_only_for_metadata_types() -> None:
    for types, count in (((), 1), ((".s",), 2)):
        world = World(Setup(folders=("game", "shared"), metadata_types=types))
        world.write("a.s", "x", "game")
        world.write("a.s", "y", "shared")
        world.settle()
        assert len(set(uuids(world).values())) == count


def test_source_moved_with_its_meta_file_keeps_uuid_and_dependents(world: World) -> None:
    for name in ("a.s", "a.s.meta"):
        text = world.disk.files["game"][name].text
        world.edit({name: None, f"sub/{name}": text})

    world.settle()

    assert uuids(world)["sub/a.s"] == meta_uuid("one")
    assert world.ran() == ["sub/a.s@linux:main", "user.s@linux:main"]
    world.apply({"sub/a.s": "z"})
    assert "user.s@linux:main" in world.ran()


@pytest.mark.parametrize("seed", range(50))
def test_uuid_dependency_resolves_to_the_original_and_not_to_its_copy(seed: int) -> None:
    world = World(Setup(builders=(copier(), scripter()), metadata_types=(".txt",)), rng=random.Random(seed))
    for name, text in (("plain.txt", ""), ("user.s", f"uuid {meta_uuid('one').hex()}"), ("sub/b.txt", "original")):
        world.write(name, text)
    world.settle()
    world.write("aa.txt", "copied")
    for name in ("sub/b.txt", "aa.txt"):
        world.write(f"{name}.meta", meta("one", "sub/b.txt"))

    world.settle()

    assert world.job("user.s@linux:main").inputs == world.clean().job("user.s@linux:main").inputs


@pytest.mark.parametrize("fuse", range(0, 40, 3))
def test_move_with_a_crash_at_any_point_gives_the_uuids_of_a_clean_build(world: World, fuse: int) -> None:
    for name in ("a.s", "a.s.meta"):
        text = world.disk.files["game"][name].text
        world.edit({name: None, f"sub/{name}": text})
    world.fuse = fuse

    world.settle()

    world.fuse = None
    assert uuids(world) == uuids(world.clean())


def test_changed_uuid_reruns_the_source_and_the_dependents_of_the_uuid(world: World) -> None:
    world.apply({"a.s.meta": meta("two", "a.s")})

    assert uuids(world)["a.s"] == meta_uuid("two")
    assert world.ran() == ["a.s@linux:main", "user.s@linux:main"]


def test_earlier_uuid_resolves_to_its_source_until_another_source_claims_it(world: World) -> None:
    settled(world, {"a.s.meta": meta("two", "a.s", "one")})
    world.apply({"a.s": "changed"})
    assert "user.s@linux:main" in world.ran(), "the dependency on the earlier UUID of `a.s` still leads to `a.s`"

    settled(world, {"c.s": "x", "c.s.meta": meta("one", "c.s")})
    assert world.apply({"c.s": "changed"}).ran() == ["c.s@linux:main", "user.s@linux:main"]
    assert world.apply({"a.s": "changed again"}).ran() == ["a.s@linux:main"]


@pytest.mark.parametrize("uuid", [meta_uuid("one"), meta_uuid("old"), *path_uuids(RelPath("Z.s"))])
def test_job_dependency_finds_its_source_by_any_of_its_uuids(uuid: bytes) -> None:
    world = settled(World(), {"Z.s": "x", "Z.s.meta": meta("one", "Z.s", "old"), "a.s": f"print uuid={uuid.hex()}:main"})

    assert world.apply({"Z.s": "y"}, restart=True).ran() == ["Z.s@linux:main", "a.s@linux:main"]


def test_source_without_meta_file_is_found_by_the_uuid_of_its_path() -> None:
    world = World()
    uuid = path_uuids(RelPath("Z.s"))[1].hex()
    settled(world, {"Z.s": "x", "a.s": f"print uuid={uuid}:main\nuuid {uuid}"})

    assert world.apply({"Z.s": "y"}).ran() == ["Z.s@linux:main", "a.s@linux:main"]


def test_source_gets_the_uuid_of_its_path_when_its_meta_file_is_deleted(world: World) -> None:
    world.apply({"a.s.meta": None})

    assert uuids(world)["a.s"] == path_uuids(RelPath("a.s"))[0]
    assert world.ran() == ["a.s@linux:main", "user.s@linux:main"]


def test_meta_file_that_changes_and_keeps_its_uuid_reruns_its_source(world: World) -> None:
    world.apply({"a.s.meta": meta("one", "a.s", "three")})

    assert "a.s@linux:main" in world.ran()
    assert uuids(world)["a.s"] == meta_uuid("one")


# ------------------------------------------------------------------------------------- invalid and contested identities


def test_damaged_meta_file_fails_its_source_until_it_is_repaired(world: World) -> None:
    world.apply({"a.s.meta": "damaged"})

    assert errors(world) == {"a.s:analyse": "its identity file is damaged"}
    assert world.cache == {name: digest for name, digest in world.cache.items() if digest}, "the products of the source stay"
    assert "linux/a.out" in world.cache
    world.apply({"a.s.meta": ""})
    assert errors(world) == {}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("rel", "text"), [("a.txt.meta", "damaged"), ("a.s", "make a.txt\nFAIL ANALYSIS")])
def test_source_with_a_failed_analysis_releases_its_product_names(rel: str, text: str, restart: bool) -> None:
    world = World(Setup(folders=("game", "shared")))
    loser = "a.txt" if rel.startswith("a.txt") else "a.s"
    world.write("a.txt/b.txt", "below")  # its product needs a folder `a.txt`, which conflicts with the product file `a.txt`
    world.write(loser, "at it" if loser == "a.txt" else "make a.txt", "shared")
    world.settle()
    assert len(errors(world)) == 2

    world.write(rel, text, "shared")
    world.settle(restart=restart)

    assert not any("b.txt" in name for name in errors(world))
    assert "linux/a.txt/b.txt" in world.cache
    world.write(*(("a.txt.meta", "") if loser == "a.txt" else ("a.s", "make a.txt")), "shared")
    world.settle(restart=restart)
    assert len(errors(world)) == 2


@pytest.mark.parametrize("names", [("a.s", "copy.s"), ("copy.s", "a.s")])
def test_original_keeps_its_uuid_when_a_copy_claims_the_uuid(names: tuple[str, str]) -> None:
    world = World()
    for name in names:
        world.apply({name: "x", f"{name}.meta": meta("one", "a.s")})

    assert uuids(world)["a.s"] == meta_uuid("one")
    assert list(errors(world)) == ["copy.s:analyse"]
    assert "is also the UUID of 'a.s'" in errors(world)["copy.s:analyse"]

    world.apply({"a.s": None, "a.s.meta": None})
    assert errors(world) == {}
    assert uuids(world)["copy.s"] == meta_uuid("one")


def test_uuid_of_a_deleted_source_passes_to_the_next_source_that_claims_it() -> None:
    world = World()
    for name in ("c.s", "b.s", "a.s"):
        world.edit({name: "x", f"{name}.meta": meta("one", "elsewhere.s")})
    world.settle()
    for name in ("a.s", "b.s"):
        assert uuids(world)[name] == meta_uuid("one")
        world.apply({name: None})
    assert errors(world) == {}
    assert uuids(world)["c.s"] == meta_uuid("one")


def test_case_clash_of_meta_files_affects_no_other_source() -> None:
    for types in ((), (".s",)):
        world = World(Setup(folders=("game", "shared"), metadata_types=types))
        for folder in ("game", "shared"):
            for name in ("a.s", "A.s"):
                world.write(name, name, folder)
                world.write(f"{name}.meta", meta("one", name), folder)
        world.apply({"b.s": "x"})

        assert world.job("b.s@linux:main").state is JobState.COMPLETED
        assert all("differs only in case" in text for text in errors(world).values() if "UUID" not in text)
        for folder in ("game", "shared"):
            world.delete("A.s", folder)
            world.delete("A.s.meta", folder)
        world.settle()
        assert uuids(world) == uuids(world.clean())


# ---------------------------------------------------------------------------------------------------------- duplicate paths


@pytest.mark.parametrize("names", [("game", "shared"), ("shared", "game")])
def test_same_path_in_two_scan_folders_makes_two_products(names: tuple[str, str]) -> None:
    world = World(DUPLICATES_ALLOWED)
    for folder in names:
        world.write("sub/a.txt", folder, folder)
        world.settle()

    assert set(world.cache) == {"linux/sub/a.txt", "linux/sub/(shared)a.txt"}
    world.delete("sub/a.txt", "game")
    world.settle()
    assert set(world.cache) == {"linux/sub/a.txt"}


def test_new_scan_folder_changes_product_names_of_duplicate_paths() -> None:
    world = World(DUPLICATES_ALLOWED)
    for folder in ("game", "shared", "front"):
        world.write("a.txt", folder, folder)
    world.settle()

    world.reconfigure(folders=("front", "game", "shared"))

    clean = World(world.setup)  # its scan folders have other ids than those of `world`, whose configuration has changed
    clean.boot(disk=world.disk.copy())
    clean.settle()
    assert world.cache == clean.cache
    assert set(clean.cache) == {"linux/a.txt", "linux/(game)a.txt", "linux/(shared)a.txt"}


def test_duplicate_path_adds_its_scan_folder_to_intermediate_names() -> None:
    world = World(DUPLICATES_ALLOWED)
    for folder in ("game", "shared"):
        world.write("a.s", f"stage m.txt={folder}", folder)

    world.settle()

    assert errors(world) == {}
    assert {"common/m.txt", "linux/m.txt", "common/(shared)m.txt", "linux/(shared)m.txt"} <= set(world.cache)


def test_source_whose_name_begins_with_a_scan_folder_in_parentheses_keeps_its_product_name() -> None:
    world = World(DUPLICATES_ALLOWED)
    world.write("(shared)b.txt", "x", "game")
    world.write("a.txt", "game", "game")
    world.write("a.txt", "shared", "shared")

    world.settle()

    assert set(world.cache) == {"linux/(shared)b.txt", "linux/a.txt", "linux/(shared)a.txt"}


def test_source_with_a_duplicate_path_uses_the_identity_file_beside_it() -> None:
    world = World(DUPLICATES_ALLOWED)
    for folder in ("game", "shared"):
        world.write("a.s", folder, folder)
        world.write("a.s.meta", meta(folder, "a.s"), folder)
    world.settle()
    assert uuids(world) == {"a.s": meta_uuid("game"), "a.s~2": meta_uuid("shared")}
    world.forget_runs()

    world.write("a.s.meta", meta("other", "a.s"), "shared")
    assert world.settle().ran() == ["a.s~2@linux:main"]
    assert uuids(world)["a.s~2"] == meta_uuid("other")


def test_duplicate_paths_are_separate_sources_only_if_configured() -> None:
    world = World(DUPLICATES_ALLOWED)
    for folder in ("game", "shared"):
        world.write("a.txt", folder, folder)
    world.settle()
    for types in ((), (".txt",), ()):
        world.reconfigure(metadata_types=types)
        assert set(world.cache) == {"linux/a.txt"} | ({"linux/(shared)a.txt"} if types else set())


# ---------------------------------------------------------------------------------------------- chains and moved sources


def test_intermediate_keeps_its_uuid_when_its_source_moves() -> None:
    world = World().apply({"a.s": "stage m.s=x", "a.s.meta": meta("one", "a.s")})
    before = uuids(world)["m.s"]
    assert before != path_uuids(RelPath("m.s"))[0]

    for name in ("a.s", "a.s.meta"):
        text = world.disk.files["game"][name].text
        world.edit({name: None, f"sub/{name}": text})
    world.settle()

    assert uuids(world)["m.s"] == before
    world.apply({"sub/a.s.meta": None})
    assert uuids(world)["m.s"] == path_uuids(RelPath("m.s"))[0]
    assert uuids(world) == uuids(world.clean())


def test_intermediate_keeps_its_uuid_when_it_was_deleted_by_hand_and_its_dependency_changes() -> None:
    """The changed dependency is read before the row of the deleted product is dropped."""
    world = World().apply({"a.s": "stage m.s=include d.txt\nstage n.s=y", "a.s.meta": meta("one", "a.s"), "d.txt": "1"})
    before = uuids(world)

    assert world.save_alone("d.txt", "2")
    world._handle(world.inbox.popleft())
    world._handle(ProductsLost(world._next(), ("common/m.s",)))
    world._hash()
    world._handle(world.inbox.popleft())
    world.run()

    assert uuids(world) == before == uuids(world.clean())
    assert world.cache == world.clean().cache


def test_source_moved_with_its_meta_file_is_not_reported_as_removed(world: World) -> None:
    """`a.s` had the same bytes as `b.s` and was deleted without its identity file. The move of `b.s` is still recognised."""
    world.apply({"b.s": "x", "b.s.meta": meta("two", "b.s")})
    world.apply({"a.s": None})
    for name in ("b.s", "b.s.meta"):
        text = world.disk.files["game"][name].text
        world.edit({name: None, f"sub/{name}": text})

    world.settle()

    messages = [notice.text for notice in world.notices if isinstance(notice, EngineMessage)]
    assert not any("was probably moved from" in text for text in messages)
    world.apply({"c.s": "x"})
    messages = [notice.text for notice in world.notices if isinstance(notice, EngineMessage)]
    assert any("'c.s' was probably moved from 'a.s'" in text for text in messages)


def test_source_moved_without_its_meta_file_is_reported(world: World) -> None:
    world.apply({"a.s": None, "moved.s": "x"})

    messages = [notice.text for notice in world.notices if isinstance(notice, EngineMessage)]
    assert any("'moved.s' was probably moved from 'a.s'" in text for text in messages)
    assert world.archive.read_removed(), "the database records the path and the UUID of the removed source"
    world.apply({"a.s.meta": None, "moved.s.meta": meta("one", "a.s")})
    assert uuids(world)["moved.s"] == meta_uuid("one")


def test_source_deleted_with_its_meta_file_is_not_reported_as_moved() -> None:
    world = World(DUPLICATES_ALLOWED)
    world.write("a.s.meta", meta("other", "a.s"), "game")
    world.write("a.s", "x", "shared")
    world.write("a.s.meta", meta("one", "a.s"), "shared")
    world.settle()

    for name in ("a.s", "a.s.meta"):
        world.delete(name, "shared")
    world.write("copy.s", "x", "shared")
    world.settle()

    assert not [notice.text for notice in world.notices if isinstance(notice, EngineMessage) and "a move" in notice.text]


@pytest.mark.parametrize("names", [("old", "young", "far"), ("far", "young", "old"), ("young", "far", "old")])
@pytest.mark.parametrize("restart", [False, True])
def test_shared_earlier_uuid_resolves_to_the_oldest_source_in_the_first_folder(names: tuple[str, ...], restart: bool) -> None:
    # A scan folder gets its id when the engine first sees it, so here the order of the ids differs from the order of the folders.
    world = World(Setup(folders=("far", "near")))
    world.configure(folders=("near", "far"))
    world.restart()
    world.write("user.s", f"uuid {meta_uuid('once').hex()}", "near")
    for name in names:
        folder = "far" if name == "far" else "near"
        world.write(f"{name}.s", "x", folder)
        created_ms = {"old": 20, "young": 30, "far": 10}[name]
        world.write(f"{name}.s.meta", meta(name, f"{name}.s", "once", created_ms=created_ms), folder)
        world.settle(restart=restart)

    for gone, heir in ((None, "old"), ("old", "young"), ("young", "far")):
        if gone:
            world.delete(f"{gone}.s", "near")
            world.delete(f"{gone}.s.meta", "near")
            world.settle(restart=restart)
        named = [name for kind, name, _digest in world.job("user.s@linux:main").inputs if kind == "dependency"]
        assert named == [f"{heir}.s"]

"""Companions: the files that belong to a source by the rules of the project, and the sources that own a given file."""

from __future__ import annotations

import pytest
from fake_world import World
from fakes import Setup, glob

from aptui.core.model import PathKey, RelPath
from aptui.core.planner import Companions
from aptui.core.project import Companion


def companions_of(setup: Setup) -> Companions:
    return Companions(World(setup).project)


COMPANIONS = (
    Companion(glob("*.fbx"), "assetinfo"),
    Companion(glob("*.fbx"), "meta", replaces="FBX"),
    Companion(glob("*.png"), "assetinfo"),
)


def test_source_has_the_companions_of_every_rule_that_matches_the_source() -> None:
    companions = companions_of(Setup(companions=COMPANIONS))

    assert companions.find(RelPath("Sub/A.Fbx")) == ["sub/a.fbx.assetinfo", "sub/a.meta"]
    assert companions.find(RelPath("a.txt")) == []


@pytest.mark.parametrize(
    ("rel", "owners"),
    [
        ("a.fbx.assetinfo", ["a.fbx"]),
        ("A.PNG.AssetInfo", ["a.png"]),
        ("a.meta", ["a.fbx"]),
        ("a.txt.assetinfo", []),
        ("a.fbx", []),
    ],
)
def test_companion_path_leads_to_the_sources_that_may_own_the_companion(rel: str, owners: list[str]) -> None:
    assert companions_of(Setup(companions=COMPANIONS)).find_owners(RelPath(rel)) == owners


@pytest.mark.parametrize("rel", ["a.fbx", "a.txt", "sub/a.b.txt", "a", ".fbx"])
def test_companion_of_a_source_without_the_replaced_extension_leads_back_to_the_source(rel: str) -> None:
    companions = companions_of(Setup(companions=(Companion(glob("*"), "assetinfo", replaces="fbx"),)))

    (companion,) = companions.find(RelPath(rel))

    assert rel in companions.find_owners(RelPath(companion))


def test_one_file_may_be_the_companion_of_many_sources() -> None:
    companions = companions_of(Setup(companions=(Companion(glob("*.s"), "", file="Lists/All.xml"), *COMPANIONS)))

    assert companions.find(RelPath("sub/a.s")) == ["lists/all.xml"]
    assert companions.find_owners(RelPath("Lists/All.xml")) == []
    assert [companions.is_shared(PathKey(key)) for key in ("lists/all.xml", "all.xml")] == [True, False]
    assert [companions.is_shared_with(PathKey("lists/all.xml"), rel) for rel in ("b.S", "b.fbx")] == [True, False]


def test_source_has_no_companions_without_companion_rules() -> None:
    assert companions_of(Setup()).find(RelPath("a.fbx")) == []

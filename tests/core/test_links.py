"""Product dependencies by path: the meaning of a path, duplicates, and paths both included and excluded."""

from __future__ import annotations

import pytest

from aptui.core.links import path_link, settle_links
from aptui.core.model import LinkKind, ProductLink

SOURCE, PRODUCT, ASSET = LinkKind


@pytest.mark.parametrize(
    "written", ["Meshes/Rock.FBX", "meshes\\Rock.fbx", "meshes//rock.fbx", "./meshes/x/../rock.fbx", "/game/Meshes/rock.fbx"]
)
def test_every_spelling_of_a_path_has_the_same_normal_form(written: str) -> None:
    assert path_link(written, SOURCE, 1, "/game") == ProductLink(SOURCE, "meshes/rock.fbx", 1)


def test_path_of_a_source_outside_the_scan_folder_stays_absolute() -> None:
    assert path_link("/Gamers/a.fbx", SOURCE, 2, "/game").path == "/gamers/a.fbx"


def test_link_that_begins_with_an_exclamation_mark_is_an_exclusion() -> None:
    assert path_link("!A/*.x", PRODUCT, 2) == ProductLink(PRODUCT, "a/*.x", 2, is_exclusion=True)


@pytest.mark.parametrize("end", ["tif", "tiff", "bmp", "gif", "jpg", "JPEG", "tga", "png"])
def test_link_to_an_image_path_is_a_source_dependency(end: str) -> None:
    assert path_link(f"a.{end}", PRODUCT, 2).kind is SOURCE
    assert path_link(f"a.{end}.x", PRODUCT, 2).kind is PRODUCT


@pytest.mark.parametrize(
    ("written", "why"), [("", "is empty"), ("!", "is empty"), ("../a", "leads out"), (":a", "begins with"), ("/a", "is absolute")]
)
def test_link_with_an_invalid_path_is_refused(written: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        path_link(written, PRODUCT, 2)


def test_first_of_several_duplicate_links_is_kept() -> None:
    first, again, other = path_link("a", SOURCE, 0), path_link("A", SOURCE, 2), path_link("a", PRODUCT, 2)

    assert settle_links([first, again, other]) == ((first, other), ())


def test_link_is_dropped_if_its_path_is_both_included_and_excluded() -> None:
    links = [path_link(text, SOURCE, 2) for text in ("a/*", "b", "!b", "!c")]

    assert settle_links(links) == ((links[0], links[3]), ("b",))

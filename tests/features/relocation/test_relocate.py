"""Moving and deleting sources on disk: metadata, dependants, references, refusals, the report, and repaired UUIDs."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from homes import own_project
from relocation_harness import RelocationHarness, edges, fates, item_of, pairs, relocation_harness, uuid_hex
from verb_project import Run, runner

from aptui.config.dirs import TRUST_VARIABLE
from aptui.core.model import EdgeKind
from aptui.core.paths import path_uuid, to_text
from aptui.features.relocation import moved_files as relocate_files
from aptui.features.relocation import relocate, verbs
from aptui.features.relocation.moved_files import DiskTree
from aptui.features.relocation.plan import dependants_of, needs_of, sources_in
from aptui.features.relocation.relocation_patterns import RelocationError
from aptui.features.relocation.relocation_records import RelocationAction, shorten_report
from aptui.shared.errors import BusyError, UserError
from aptui.store.db.schema import uuid_text
from tests.store.conftest import Store, edge_row, job_row, source_row, uuid_of


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RelocationHarness]:
    with relocation_harness(tmp_path) as harness:
        yield harness


def refusal(harness: RelocationHarness, source: str, destination: str = "") -> RelocationError:
    with pytest.raises(RelocationError) as caught:
        harness.ask(source, destination)
    return caught.value


# ----------------------------------------------------------------------------------------------------------------- effects


def test_relocation_preview_changes_no_file(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")

    report = harness.ask("a.png", "new/a.png")

    assert pairs(report) == [("a.png", "new/a.png")]
    assert not report.is_performed
    assert harness.files() == ["a.png"]


def test_file_can_be_moved_into_a_subfolder_or_out_of_a_subfolder(harness: RelocationHarness) -> None:
    harness.source("assets/a.png", "A")
    harness.source("assets/sub/b.png", "B")

    assert harness.do("a.png", "sub/deep/c.png").is_whole
    assert harness.do("sub/b.png", "d.png").is_whole

    assert harness.files() == ["d.png", "sub/deep/c.png"]
    assert harness.text("assets/sub/deep/c.png") == "A"


def test_moved_folder_is_complete_and_its_old_folder_is_removed(harness: RelocationHarness) -> None:
    for name in ("art/a.png", "art/deep/b.png", "art/deep/er/c.png"):
        harness.source(f"assets/{name}")

    report = harness.do("art/*", "pictures/*")

    assert harness.files() == ["pictures/a.png", "pictures/deep/b.png", "pictures/deep/er/c.png"]
    assert not (harness.root / "assets/art").exists()
    assert [os.path.basename(path) for path in report.removed] == ["er", "deep", "art"]
    assert (report.counts.sources, report.counts.done) == (3, 3)


def test_move_keeps_empty_folders_if_the_user_requests_it(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")

    harness.do("art/*", "pictures/*", leaves_empty_folders=True)

    assert (harness.root / "assets/art").is_dir()


def test_scan_folder_is_never_removed(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")

    assert harness.do("a.png").is_whole

    assert (harness.root / "assets").is_dir()


def test_files_that_do_not_match_the_pattern_are_not_deleted(harness: RelocationHarness) -> None:
    for name in ("a.png", "b.png", "sub/a.png"):
        harness.source(f"assets/{name}")

    report = harness.do("*.png")

    assert harness.files() == ["sub/a.png"]
    assert report.counts.done == 2


@pytest.mark.parametrize(("folder", "other"), [("a?b", "acb"), ("a*b", "axxb"), ("art", "Art")])
def test_pattern_with_the_exact_name_of_a_folder_matches_only_this_folder(
    harness: RelocationHarness, folder: str, other: str
) -> None:
    for name in (folder, other):
        harness.source(f"assets/{name}/deep/{name}.png")

    assert pairs(harness.do(f"{folder}/*")) == [(f"{folder}/deep/{folder}.png", "")]

    assert harness.files() == [f"{other}/deep/{other}.png"]


def test_absolute_destination_may_be_another_scan_folder(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")

    report = harness.do("a.png", f"{harness.root}/shared/sub/")

    assert (report.items[0].new, report.items[0].new_folder) == ("sub/a.png", "shared")
    assert harness.files("shared") == ["sub/a.png"]


def test_file_that_is_already_at_its_destination_is_skipped(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")

    report = harness.do("art/*", "art/*")

    assert report.items == ()
    assert [skipped.why for skipped in report.skipped] == ["the file is already at its destination"]
    assert harness.files() == ["art/a.png"]


def test_move_skips_matched_files_that_are_not_sources(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    harness.write("assets/art/notes.doc")

    report = harness.do("art/*", "new/*")

    assert [(skipped.path, skipped.why) for skipped in report.skipped] == [("art/notes.doc", "it is not a source: it has no jobs")]
    assert harness.files() == ["art/notes.doc", "new/a.png"]


def test_files_that_are_not_sources_are_moved_with_their_metadata_if_requested(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    for name in ("notes.doc", "notes.doc.meta"):
        harness.write(f"assets/art/{name}")

    report = harness.do("art/*", "new/*", allows_other_files=True)

    assert harness.files() == ["new/a.png", "new/notes.doc", "new/notes.doc.meta"]
    assert (report.is_whole, report.skipped, report.warnings) == (True, (), ())
    assert harness.do("new/notes.doc", allows_other_files=True).is_whole
    assert harness.files() == ["new/a.png"]


def test_file_whose_name_is_not_utf8_can_be_moved(harness: RelocationHarness) -> None:
    name = to_text(b"\xff\xfe.png")
    harness.source("assets/other.png")
    (harness.root / "assets" / os.fsdecode(b"\xff\xfe.png")).write_bytes(b"!")
    harness.numbers[f"assets/{name}"] = 2
    harness.store.put(put_source=[(2, harness.ids["game"], name, uuid_hex(2).encode()[:16], name.lower(), b"D" * 32, "", 0, 0)])

    assert harness.do(name, "sub/").is_whole

    assert harness.files() == ["other.png", f"sub/{name}"]


# ---------------------------------------------------------------------------------------------------------------- refusals


def test_move_of_a_file_that_is_not_a_source_is_refused(harness: RelocationHarness) -> None:
    harness.write("assets/art/notes.doc")

    assert refusal(harness, "art/notes.doc").reference.startswith("Search matched an existing file but it is not a source asset.")
    assert refusal(harness, "art/*").reference.startswith("Wildcard search matched one or more files but none are source assets")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("assets/art/rock.bin", "'art/rock.bin' in scan folder 'game' is not a source: it has no jobs"),
        ("assets/a.tmp", "'a.tmp' in scan folder 'game' is not a source: the configuration ignores this path"),
        ("shared/a.png", "'a.png' in scan folder 'shared' is not a source: it is overridden by '{}/assets/a.png'"),
    ],
)
@pytest.mark.parametrize("destination", ["new/", ""])
def test_refusal_names_the_reason_why_a_file_is_not_a_source(harness, destination, path, why) -> None:
    harness.source("assets/a.png")
    harness.write(path)

    error = refusal(harness, f"{harness.root}/{path}", destination)

    assert error.what == why.format(harness.root)
    assert "move or delete such a file without aptui" in error.hint


def test_empty_source_of_a_deletion_is_refused_without_the_word_move(harness: RelocationHarness) -> None:
    error = refusal(harness, "")

    assert error.what == "the path of the source is empty"


def test_no_file_is_moved_if_one_of_the_files_cannot_be_moved(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    harness.source("assets/art/b.png").chmod(0o466)  # A file is read-only if its owner may not write to it.

    report = harness.do("art/*", "new/*")

    assert report.refusals == ("'art/b.png': the file is read-only",)
    assert not report.is_performed
    assert harness.files() == ["art/a.png", "art/b.png"]
    assert harness.do("art/b.png").refusals == ("'art/b.png': the file is read-only",)


def test_destination_that_exists_in_upper_or_lower_case_is_refused(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    harness.write("assets/sub/B.png")

    assert harness.do("a.png", "sub/B.png").items[0].problem == "the destination exists"
    assert "exists as" in harness.do("a.png", "sub/b.PNG").items[0].problem
    assert "is a folder" in harness.do("a.png", "sub").items[0].problem
    assert harness.files() == ["a.png", "sub/B.png"]


def test_move_that_changes_only_the_case_of_a_name_is_refused(harness: RelocationHarness) -> None:
    harness.source("assets/sub/a.png")

    assert "more than case" in harness.do("sub/a.png", "sub/A.png").items[0].problem
    assert "more than case" in harness.do("sub/*", "Sub/*").items[0].problem


def test_move_of_two_files_to_the_same_destination_is_refused(harness: RelocationHarness) -> None:
    harness.source("assets/a1.png")
    harness.source("assets/a2.png")

    report = harness.do("a?.png", "b.png")

    assert report.refusals == ("'a2.png': 'a1.png' would be moved to the same new path as this file",)
    assert harness.files() == ["a1.png", "a2.png"]


def test_relocation_does_not_follow_links(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    outside = harness.write("outside/x.png").parent
    (harness.root / "assets/link").symlink_to(outside)
    harness.store.put(put_source=[(9, harness.ids["game"], "link/x.png", b"9" * 16, "link/x.png", b"D" * 32, "", 0, 0)])

    assert "leads over the link" in harness.do("a.png", "link/a.png").items[0].problem
    assert "is a link" in harness.do("link/x.png", "b.png").items[0].problem
    assert refusal(harness, "link/*").reference == "Wildcard search did not match any files."
    assert os.listdir(outside) == ["x.png"]


def test_destination_in_the_cache_or_outside_scan_folders_is_refused(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")

    for place in (f"{harness.root}/Cache/", f"{harness.root}/a.png"):
        assert refusal(harness, "a.png", place).reference == "Destination must exist within a scanfolder."
    assert refusal(harness, f"{harness.root}/Cache/assetdb.sqlite").reference.startswith("Path ")


def test_move_warns_if_the_source_would_no_longer_be_processed(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    harness.source("assets/b.png")
    harness.source("shared/c.png")
    harness.write("assets/sub/d.png")

    assert harness.ask("a.png", "raw/").warnings == (
        "'raw/a.png': the configuration ignores this path, so the file is no longer a source",
    )
    assert harness.ask("a.png", "a.bin").warnings == ("'a.bin': no builder matches this path, so the file is no longer a source",)
    assert "overridden by" in harness.ask("c.png", "sub/d.png").warnings[0]


def test_relocation_without_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "aptui.yaml").write_text(
        "scan_folders: [{name: game, path: assets}]\nbuilders: [{name: data, copy: ['*']}]\ncache: Cache\n"
    )

    from aptui.config import load
    from aptui.features.relocation.relocation_records import Relocate

    with pytest.raises(UserError, match="nothing was processed"):
        relocate.relocate(Relocate("a", "b"), load.load(tmp_path))


# ---------------------------------------------------------------------------------------------------------------- metadata


def test_metadata_file_is_moved_and_renamed_with_its_source(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    for name in ("A.PNG.meta", "a.png.Info", "a.settings"):
        harness.write(f"assets/{name}", name)

    report = harness.do("a.png", "new/b.png")

    assert report.is_whole
    assert harness.files() == ["new/b.png", "new/b.png.Info", "new/b.png.meta", "new/b.settings"]
    assert harness.text("assets/new/b.settings") == "a.settings"
    assert report.counts.metadata == 3
    assert item_of(report, "a.settings").owner == "a.png"


def test_metadata_file_is_deleted_with_its_source(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    harness.write("assets/a.png.meta")
    harness.source("assets/b.png")
    harness.write("assets/b.png.meta")

    assert harness.do("a.png").is_whole

    assert harness.files() == ["b.png", "b.png.meta"]


def test_excluded_metadata_file_is_not_moved(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    harness.write("assets/art/a.png.meta")

    report = harness.do("art/*", "new/*", excludes_metadata=True)

    assert harness.files() == ["art/a.png.meta", "new/a.png"]
    assert [skipped.path for skipped in report.skipped] == ["art/a.png.meta"]


def test_move_of_a_wildcard_moves_each_metadata_file_once(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    harness.write("assets/art/a.png.meta")
    harness.write("assets/art/lost.info")

    report = harness.do("art/*", "new/*")

    assert sorted(pairs(report)) == [
        ("art/a.png", "new/a.png"),
        ("art/a.png.meta", "new/a.png.meta"),
        ("art/lost.info", "new/lost.info"),
    ]
    assert report.skipped == ()
    assert harness.do("/".join([str(harness.root), "assets/new/lost.info"]), "x.info").is_whole


def test_source_moved_with_its_meta_file_keeps_its_uuid(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    harness.source("assets/b.png")
    braced = uuid_text(bytes.fromhex(uuid_hex(1)))
    meta = harness.write("assets/a.png.meta", f'{{"UUID": "{braced}"}}').read_bytes()

    report = harness.do("*.png", "new/*.png")

    assert item_of(report, "a.png").new_uuid == item_of(report, "a.png").uuid == braced
    assert item_of(report, "b.png").new_uuid == uuid_text(path_uuid("new/b.png"))
    assert (harness.root / "assets/new/a.png.meta").read_bytes() == meta


def test_source_moved_without_its_meta_file_gets_the_uuid_of_its_new_path(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    harness.write("assets/a.png.meta", uuid_hex(1))

    report = harness.ask("a.png", "new/", excludes_metadata=True)

    assert report.items[0].new_uuid == uuid_text(path_uuid("new/a.png"))


# -------------------------------------------------------------------------------------------------------------- dependants


def test_report_lists_sources_that_name_the_moved_file_or_its_uuid_or_its_product(harness: RelocationHarness) -> None:
    harness.source("assets/a.png", product="linux/a.dds")
    for name in ("path", "uuid", "job", "asset", "unmet"):
        harness.source(f"assets/{name}.scene", product=f"linux/{name}.scene")
    harness.depend("assets/path.scene", "a.png")
    harness.depend("assets/uuid.scene", uuid_hex(1), EdgeKind.UUID)
    harness.depend("assets/job.scene", "a.png", EdgeKind.JOB)
    harness.need("assets/asset.scene", "assets/a.png")
    harness.need("assets/unmet.scene", "assets/a.png", by_uuid=False, path="A.dds")

    report = harness.ask("a.png", "new/")

    reported = {edge.path: (edge.kind, edge.type_bits, edge.by_uuid, edge.needs) for edge in edges(report)}
    assert reported == {
        "path.scene": ("source", 1, False, ""),
        "uuid.scene": ("source", 1, True, ""),
        "job.scene": ("job", 2, False, ""),
        "asset.scene": ("product", 0, True, "linux/a.dds"),
        "unmet.scene": ("product", 0, False, "a.dds"),
    }
    assert report.counts.breaking == 5


def test_source_that_depends_on_itself_can_be_moved(harness: RelocationHarness) -> None:
    harness.source("assets/a.scene", product="linux/a.scene")
    harness.depend("assets/a.scene", "a.scene")
    harness.need("assets/a.scene", "assets/a.scene")

    assert harness.do("a.scene", "b.scene").is_whole


@pytest.mark.parametrize("destination", ["new/", ""])
def test_move_that_breaks_dependants_is_refused_by_default(harness: RelocationHarness, destination: str) -> None:
    harness.source("assets/a.png")
    harness.source("assets/a.scene", "a.png")
    harness.depend("assets/a.scene", "a.png")

    refused = harness.do("a.png", destination)
    files = harness.files()
    done = harness.do("a.png", destination, allows_broken=True)

    assert "one file depends" in refused.refusals[0]
    assert files == ["a.png", "a.scene"]
    assert done.is_whole
    assert fates(done) == {"a.scene": "breaks"}
    assert harness.text("assets/a.scene") == "a.png"


def test_source_can_be_deleted_together_with_its_dependant(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    harness.source("assets/art/a.scene")
    harness.depend("assets/art/a.scene", "art/a.png")

    assert harness.do("art/*").is_whole

    assert harness.files() == []


def test_reference_by_uuid_stays_valid_if_the_meta_file_is_moved_too(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    harness.write("assets/a.png.meta", uuid_hex(1))
    harness.source("assets/a.scene", uuid_hex(1))
    harness.depend("assets/a.scene", uuid_hex(1), EdgeKind.UUID)

    report = harness.do("a.png", "new/")

    assert report.is_whole
    assert fates(report) == {"a.scene": "holds"}


def test_relative_references_stay_valid_if_both_files_move_together(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    harness.source("assets/art/a.scene", '(image "a.png")')
    harness.depend("assets/art/a.scene", "art/a.png")

    report = harness.do("art/*", "new/place/*")

    assert fates(report) == {"art/a.scene": "holds"}
    assert report.is_whole


# -------------------------------------------------------------------------------------------------------------- references


def test_move_rewrites_references_and_keeps_all_other_bytes(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    old = harness.with_path_uuid("assets/art/a.png")
    body = f"\ufeffart/a.png\r\nArt\\A.png {{{old}}} art/a.png.bak \r".encode() + b"\xff"
    scene = harness.source("assets/a.scene", body)
    harness.depend("assets/a.scene", "art/a.png")

    report = harness.do("art/a.png", "new/b.png", updates_references=True)

    new = path_uuid("new/b.png").hex()
    assert scene.read_bytes() == f"\ufeffnew/b.png\r\nnew\\b.png {{{new}}} art/a.png.bak \r".encode() + b"\xff"
    assert report.is_whole
    assert (report.counts.updated, report.updates[0].count, fates(report)) == (1, 3, {"a.scene": "mended"})


def test_reference_to_a_file_whose_name_ends_with_the_moved_name_stays(harness: RelocationHarness) -> None:
    for name in ("rock.png", "Big rock.png"):
        harness.source(f"assets/art/{name}")
    harness.source("assets/art/a.scene", '"Big rock.png" "rock.png" "art/big rock.png" "./big rock.png"')
    for name in ("rock.png", "Big rock.png"):
        harness.depend("assets/art/a.scene", f"art/{name.lower()}")

    assert harness.do("art/rock.png", "art/stone.png", updates_references=True).is_whole

    assert harness.text("assets/art/a.scene") == '"Big rock.png" "stone.png" "art/big rock.png" "./big rock.png"'


def test_folder_of_many_referenced_files_is_listed_once_for_a_file_that_refers_to_them(
    harness: RelocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    monkeypatch.setattr(DiskTree, "names_with_blanks", lambda _tree, _folder, rel: listed.append(rel) or [])
    for number in range(5):
        harness.source(f"assets/art/{number}.png")
    harness.source("assets/a.scene", "art/0.png art/1.png art/2.png art/3.png art/4.png")
    for number in range(5):
        harness.depend("assets/a.scene", f"art/{number}.png")

    harness.ask("art/*", "new/*", updates_references=True)

    assert listed == ["art"]


def test_reference_to_a_product_path_is_rewritten(harness: RelocationHarness) -> None:
    harness.source("assets/Art/Rock.png", product="linux/art/rock.png.dds")
    harness.source("assets/a.scene", "art/rock.png.dds", product="linux/a.scene")
    harness.need("assets/a.scene", "assets/Art/Rock.png")

    harness.do("Art/Rock.png", "new/Stone.png", updates_references=True)

    assert harness.text("assets/a.scene") == "new/stone.png.dds"


def test_references_in_a_moved_dependant_are_updated_at_its_new_path(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    harness.source("assets/art/a.scene", "art/a.png")
    harness.depend("assets/art/a.scene", "art/a.png")

    report = harness.do("art/*", "new/*", updates_references=True)

    assert report.is_whole
    assert harness.text("assets/new/a.scene") == "new/a.png"


def test_relative_reference_in_a_moved_file_is_updated(harness: RelocationHarness) -> None:
    harness.source("assets/art/a.png")
    harness.source("assets/art/a.scene", '"a.png" "art/a.png"')
    harness.depend("assets/art/a.scene", "art/a.png")

    preview = harness.ask("art/a.scene", "scenes/")
    report = harness.do("art/a.scene", "scenes/", updates_references=True)

    assert "paths relative to its folder" in preview.warnings[0]
    assert report.is_whole
    assert harness.text("assets/scenes/a.scene") == '"../art/a.png" "art/a.png"'


def test_relative_reference_to_a_file_that_is_not_a_source_is_updated(harness: RelocationHarness) -> None:
    harness.write("assets/Art/Hero Ü.bin")
    harness.source("assets/Art/hero.gltf", '"uri": "Hero Ü.bin", "uri": "Hero%20%C3%9C.bin"')
    harness.depend("assets/Art/hero.gltf", "art/hero ü.bin")
    harness.depend("assets/Art/hero.gltf", "art/missing.bin")

    preview = harness.ask("Art/*", "new/*")
    report = harness.do("Art/*", "new/*", updates_references=True)

    assert "paths relative to its folder" in preview.warnings[0]
    assert report.is_whole
    assert harness.text("assets/new/hero.gltf") == '"uri": "../Art/Hero Ü.bin", "uri": "../Art/Hero%20%C3%9C.bin"'


def test_move_warns_if_the_moved_file_depends_on_a_pattern_in_its_old_folder(harness: RelocationHarness) -> None:
    harness.source("assets/UI/hud.atlas", '{"sprites": ["./*.png"]}')
    harness.depend("assets/UI/hud.atlas", "ui/*.png", EdgeKind.WILDCARD)
    harness.depend("assets/UI/hud.atlas", "icons/*.png", EdgeKind.WILDCARD)

    report = harness.ask("UI/hud.atlas", "new/")

    assert report.warnings == ("'UI/hud.atlas' depends on all files that match 'ui/*.png'; check its patterns after the move",)


def test_dependant_whose_text_has_no_reference_is_reported(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    harness.source("assets/a.scene", "images: [a]")
    harness.depend("assets/a.scene", "a.png")

    report = harness.do("a.png", "new/", updates_references=True)

    assert report.counts.done == 1
    assert report.updates[0].possible == (("a.png", "new/a.png"),)
    assert report.updates[0].action is RelocationAction.FAILED
    assert (report.is_whole, report.counts.update_failures) == (False, 1)
    assert harness.text("assets/a.scene") == "images: [a]"


def test_write_protected_dependant_prevents_the_move(harness: RelocationHarness) -> None:
    harness.source("assets/a.png")
    harness.source("assets/a.scene", "a.png").chmod(0o444)
    harness.depend("assets/a.scene", "a.png")

    report = harness.do("a.png", "new/", updates_references=True)

    assert report.refusals == ("'a.scene': the file is read-only",)
    assert harness.files() == ["a.png", "a.scene"]


# ------------------------------------------------------------------------------------------------------ failures half-way


def test_failed_move_prints_the_result_of_each_file(harness: RelocationHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        harness.source(f"assets/art/{name}.png")
    harness.source("assets/x.scene", "art/a.png art/c.png")
    harness.depend("assets/x.scene", "art/a.png")
    harness.depend("assets/x.scene", "art/c.png")
    really = relocate_files.move
    monkeypatch.setattr(relocate_files, "move", lambda old, new: full() if old.endswith("b.png") else really(old, new))

    report = harness.do("art/*", "new/*", updates_references=True)

    assert [item.action for item in report.items] == [RelocationAction.DONE, RelocationAction.FAILED, RelocationAction.LEFT]
    assert report.items[1].problem == "No space left on device"
    assert (report.counts.done, report.counts.failed, report.counts.left, report.is_whole) == (1, 1, 1, False)
    assert harness.files() == ["art/b.png", "art/c.png", "new/a.png", "x.scene"]
    assert harness.text("assets/x.scene") == "new/a.png art/c.png"


def full() -> None:
    raise OSError(28, os.strerror(28))


def test_metadata_is_moved_back_if_its_source_cannot_be_moved(harness: RelocationHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.source("assets/a.png")
    harness.write("assets/a.png.meta")
    really = relocate_files.move
    monkeypatch.setattr(relocate_files, "move", lambda old, new: full() if old.endswith("a.png") else really(old, new))

    report = harness.do("a.png", "new/")

    assert harness.files() == ["a.png", "a.png.meta"]
    assert {item.old: item.action for item in report.items} == {
        "a.png": RelocationAction.FAILED,
        "a.png.meta": RelocationAction.LEFT,
    }


def test_failed_move_overwrites_no_file_and_leaves_no_new_folders(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")

    with pytest.raises(FileExistsError):
        relocate_files.move(f"{tmp_path}/a", f"{tmp_path}/b")
    with pytest.raises(FileNotFoundError):
        relocate_files.move(f"{tmp_path}/none", f"{tmp_path}/new/deep/none")

    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_file_is_moved_to_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "a").chmod(0o640)
    really = Path.rename

    def rename(path: Path, target: str) -> Path:
        if path.name == "a":
            raise OSError(18, os.strerror(18))
        return really(path, target)

    monkeypatch.setattr(Path, "rename", rename)

    relocate_files.move(f"{tmp_path}/a", f"{tmp_path}/b")

    assert os.listdir(tmp_path) == ["b"]
    assert ((tmp_path / "b").stat().st_mode & 0o777, (tmp_path / "b").read_text()) == (0o640, "a")


def test_file_that_cannot_leave_its_file_system_has_no_copy_at_the_destination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_text("a")
    rename, unlink = Path.rename, Path.unlink

    def rename_below(self: Path, target: str) -> Path:
        if not self.name.endswith(relocate_files.BEGUN):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    def refuse(self: Path, *, missing_ok: bool = False) -> None:
        if self.name == "a.png":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "rename", rename_below)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError):
        relocate_files.move(str(tmp_path / "a.png"), str(tmp_path / "b" / "c.png"))

    assert list(tmp_path.iterdir()) == [tmp_path / "a.png"]


def test_engine_cannot_start_during_a_move(harness: RelocationHarness) -> None:
    from aptui.config import load

    settings = load.load(harness.root)
    with relocate.hold_engines_off(settings), pytest.raises(BusyError), relocate.hold_engines_off(settings):
        pass


def test_shortened_relocation_report_keeps_the_total_counts(harness: RelocationHarness) -> None:
    for at in range(5):
        harness.source(f"assets/art/{at}.png").chmod(0o444 if at == 4 else 0o644)

    report = shorten_report(harness.ask("art/*", "new/*"), 2)

    assert [item.old for item in report.items] == ["art/4.png", "art/0.png"]
    assert report.counts.sources == 5


# --------------------------------------------------------------------------------------------------------- version control


@pytest.fixture
def git(harness: RelocationHarness) -> RelocationHarness:
    harness.source("assets/a.png")
    harness.source("assets/b.png")
    run_git(harness, "init", "--quiet")
    run_git(harness, "add", "assets/a.png")
    run_git(harness, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "a")
    return harness


def run_git(harness: RelocationHarness, *words: str) -> str:
    return subprocess.run(["git", "-C", str(harness.root), *words], check=True, capture_output=True, text=True).stdout


@pytest.mark.real
def test_git_moves_and_deletes_tracked_files_on_request(git: RelocationHarness) -> None:
    assert git.do("*.png", "new/*.png", uses_scm=True).is_whole
    moved = run_git(git, "status", "--short")
    assert git.files() == ["new/a.png", "new/b.png"]

    assert "R  assets/a.png -> assets/new/a.png" in moved


@pytest.mark.real
def test_git_also_moves_tracked_metadata_back_if_its_source_cannot_be_moved(
    git: RelocationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    git.write("assets/a.png.meta")
    run_git(git, "add", "assets/a.png.meta")
    run_git(git, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "b")
    really = relocate_files.Git.move
    monkeypatch.setattr(
        relocate_files.Git, "move", lambda self, old, new: full() if old.endswith("/a.png") else really(self, old, new)
    )

    report = git.do("a.png", "new/", uses_scm=True)

    assert {item.action for item in report.items} == {RelocationAction.FAILED, RelocationAction.LEFT}
    assert git.files() == ["a.png", "a.png.meta", "b.png"]
    assert run_git(git, "status", "--short", "assets/a.png.meta", "assets/new") == ""


@pytest.mark.real
def test_relocation_does_not_use_git_by_default(git: RelocationHarness) -> None:
    git.do("a.png")

    assert run_git(git, "status", "--short").startswith(" D assets/a.png")


@pytest.mark.real
def test_error_of_git_during_a_move_is_reported(git: RelocationHarness) -> None:
    (git.root / "assets/a.png").write_text("changed")

    report = git.do("a.png", uses_scm=True)

    assert report.items[0].action is RelocationAction.FAILED
    assert "local modifications" in report.items[0].problem
    assert git.files() == ["a.png", "b.png"]


@pytest.mark.real
@pytest.mark.parametrize("target", ["new/*.png", ""])
def test_git_runs_no_filter_of_an_untrusted_project(
    git: RelocationHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str
) -> None:
    monkeypatch.delenv(TRUST_VARIABLE)
    (git.root / ".git/info/attributes").write_text("*.png filter=x\n")
    run_git(git, "config", "filter.x.clean", f"sh -c 'touch {tmp_path}/canary; cat'")
    os.utime(git.root / "assets/a.png", (1e9, 1e9))

    assert git.do("*.png", target, uses_scm=True).is_whole
    assert not (tmp_path / "canary").exists()


def filled(store: Store) -> Store:
    names = ["Ä/Rock.png", "a.scene", "b.scene", "c.scene"]
    store.put(
        put_source=[source_row(at, name, store.scan_folder) for at, name in enumerate(names, 1)],
        put_job=[job_row(at, at) for at in range(1, 5)],
        put_product=[(at, at, f"linux/{names[at - 1].lower()}", at, b"T" * 16, 0, 1, b"D" * 32, 1) for at in range(1, 5)],
        put_edge=[
            edge_row(EdgeKind.PATH, "ä/rock.png", source_id=2),
            edge_row(EdgeKind.UUID, uuid_of(1).hex(), source_id=3),
            edge_row(EdgeKind.WILDCARD, "ä/*.png", source_id=4),
            edge_row(EdgeKind.PATH, "nowhere.png", source_id=2),
        ],
    )
    with closing(sqlite3.connect(store.path)) as database:
        database.execute(
            "INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags,"
            " UnresolvedPath, FromAssetId) VALUES (4, ?, 1, 'linux', 0, '', 1), (1, ?, 1, 'linux', 0, '', 1)",
            (uuid_of(1), uuid_of(1)),
        )
        database.commit()
    return store


def test_database_query_finds_the_named_sources_with_their_products(store: Store) -> None:
    reader = filled(store).reader()

    known = sources_in(reader, "project", "/moved/since", ["Ä/Rock.png", "ä/rock.png", "none.png"])

    assert list(known) == ["Ä/Rock.png"]
    assert [product.name for product in known["Ä/Rock.png"].products] == ["linux/ä/rock.png"]
    assert sources_in(reader, "another", "/somewhere", ["a.scene"]) == {}


def test_database_query_finds_dependants_by_path_or_uuid_or_product(store: Store) -> None:
    reader = filled(store).reader()

    found = dependants_of(reader, sources_in(reader, "project", "", ["Ä/Rock.png"]).values())

    assert {(each.path, each.kind, each.by_uuid, each.needs) for each in found[1]} == {
        ("a.scene", "source", False, ""),
        ("b.scene", "source", True, ""),
        ("c.scene", "product", True, "linux/ä/rock.png"),
    }


def test_path_dependency_on_a_source_keeps_its_spelling(store: Store) -> None:
    reader = filled(store).reader()

    assert needs_of(reader, [2, 3, 4]) == {2: ["nowhere.png", "Ä/Rock.png"]}


OLD, NEW = "{11111111-2222-4333-8444-555555555555}", "{AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE}"


def document(uuid: str, *legacy: str) -> str:
    return json.dumps({"UUID": {"uuid": uuid, "originalPath": "a.txt", "legacyUuids": list(legacy), "creationUnixEpochMS": 1}})


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = own_project(tmp_path, monkeypatch)
    (folder / "aptui.yaml").write_text(
        'scan_folders: [{name: game, path: assets}]\nbuilders: [{name: data, copy: ["*.txt"]}]\nmetadata_types: [.txt]\n'
    )
    return folder / "assets"


@pytest.mark.real
def test_repair_restores_the_uuid_of_a_source_moved_without_its_meta_file(assets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run: Run = runner(capsys)
    (assets / "a.txt").write_text("the bytes by which it is known")
    (assets / "a.txt.meta").write_text(document(OLD))
    assert run("batch")[0] == 0
    code, out, _ = run("identities", "--json")
    assert (code, [(row["source"], row["uuid"], row["problem"]) for row in json.loads(out)["identities"]]) == (
        0,
        [("a.txt", OLD, "")],
    )

    (assets / "a.txt").rename(assets / "b.txt")
    run("batch")
    code, out, _ = run("identities", "--json")
    assert (code, [(move["source"], move["was"]) for move in json.loads(out)["moves"]]) == (1, [("b.txt", "a.txt")])
    assert "was probably moved from 'a.txt'" in run("identities")[1]

    assert run("identities", "--repair")[0] == 0
    assert (assets / "b.txt.meta").read_text() == document(OLD)
    assert not (assets / "a.txt.meta").exists()
    assert run("batch")[0] == 0
    code, out, _ = run("identities", "--json")
    assert (code, [row["uuid"] for row in json.loads(out)["identities"]]) == (0, [OLD])


def test_uuids_of_a_newer_identity_file_become_legacy_uuids(tmp_path: Path) -> None:
    left, belongs = tmp_path / "a.txt.meta", tmp_path / "b.txt.meta"
    left.write_text(document(OLD, NEW[:-2] + "F}"))
    belongs.write_text(document(NEW, NEW[:-2] + "E}", OLD))

    verbs._repair(verbs.Move("b.txt", "a.txt", str(left), str(belongs)))

    stored = json.loads(belongs.read_text())["UUID"]
    assert (stored["uuid"], stored["legacyUuids"]) == (OLD, [NEW[:-2] + "F}", NEW, NEW[:-2] + "E}"])
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt.meta"]


@pytest.mark.parametrize("text", ["", "[]", '{"UUID": 3}', '{"UUID": {}}'])
def test_invalid_identity_file_is_left_unchanged(tmp_path: Path, text: str) -> None:
    left, belongs = tmp_path / "a.txt.meta", tmp_path / "b.txt.meta"
    left.write_text(document(OLD))
    belongs.write_text(text)

    with pytest.raises(UserError, match="is not an identity file"):
        verbs._repair(verbs.Move("b.txt", "a.txt", str(left), str(belongs)))

    assert (left.read_text(), belongs.read_text()) == (document(OLD), text)

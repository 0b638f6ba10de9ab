"""The panel beside the tree shows facts about a source or a product."""

import os
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from disk_project import Project

from aptui.config import load
from aptui.store.queries.reader import JobRow, open_reader
from aptui.tui.data.assets_store import Kind
from aptui.tui.screens.assets.asset_panel import AssetPlaces, _file_facts, _job_ref, find, moment, read_panel
from tests.store.conftest import job_row, product_row, source_row
from tui.database import database


def test_asset_panel_shows_the_time_of_the_file_if_no_time_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"12345")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    known: Any = SimpleNamespace(size=7, mtime_ns=0)

    fresh = dict(_file_facts(SimpleNamespace(file=lambda _path: known), "a.png", b"", str(file)))  # type: ignore[arg-type]
    gone = dict(_file_facts(SimpleNamespace(file=lambda _path: known), "a.png", b"", str(tmp_path / "b.png")))  # type: ignore[arg-type]
    new = dict(_file_facts(SimpleNamespace(file=lambda _path: None), "a.png", b"", str(file)))  # type: ignore[arg-type]

    assert fresh["Changed"] == new["Changed"] == moment(1_700_000_000)
    assert fresh["Size"].startswith("7 ")
    assert "Changed" not in gone or not gone["Changed"]


def test_time_after_the_year_9999_is_not_shown() -> None:
    assert moment(1e12) == ""


def test_asset_panel_marks_a_draft_beside_the_job_status() -> None:
    row: Any = SimpleNamespace(**dict.fromkeys(JobRow.__struct_fields__, ""))
    row.__dict__.update(status="completed", errors=0, warnings=0, duration_s=0, is_draft=True)
    draft, warned = _job_ref(row), _job_ref(SimpleNamespace(**{**row.__dict__, "warnings": 2}))  # type: ignore[arg-type]
    row.is_draft = False

    assert draft.note.endswith("completed, draft")
    assert warned.note.endswith("2 warnings, draft")
    assert _job_ref(row).note.endswith("completed")


SETTINGS = """\
scan_folders: [{name: game, path: assets}]
platforms: {linux: {}, server: {}}
builders:
  - name: up
    patterns: ['*.txt']
    command: 'tr a-z {params.to} < {source} > {products_dir}/{stem}.up'
    params: {to: A-Z, size: 1}
    rules: [{files: ['ui/*'], params: {size: 2}}]
    platforms: {server: {size: 3}}
"""


@pytest.mark.real
def test_asset_panel_of_a_source_lists_each_parameter_with_its_origin(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", SETTINGS)
    project.write("assets/ui/.aptui.yaml", "files: {'a*': {up: {params: {to: X}}}}\n")
    project.engine_run({"assets/ui/a.txt": "a", "assets/b.txt": "b"})
    with closing(open_reader(project.cache / "assetdb.sqlite")) as reader:
        places = AssetPlaces(str(project.cache), config=load.load(project.root))
        keys = [find(reader, path, places) for path in ("ui/a.txt", "b.txt")]
        panels = [read_panel(reader, *key, places) for key in keys if key is not None]

    ui, plain = (
        [(ref.text, ref.note) for group in panel.groups if group.title == "Parameters" for ref in group.refs]
        for panel in panels
        if panel is not None
    )
    assert ui == [
        ("up.size = 2 (linux)", "aptui.yaml:8:40"),
        ("up.size = 3 (server)", "aptui.yaml:9:26"),
        ('up.to = "X"', "ui/.aptui.yaml:1:30"),
    ]
    assert plain == [
        ("up.size = 1 (linux)", "aptui.yaml:7:23"),
        ("up.size = 3 (server)", "aptui.yaml:9:26"),
        ('up.to = "A-Z"', "aptui.yaml:7:14"),
    ]


def test_asset_panel_lists_overridden_files_of_later_scan_folders(tmp_path: Path) -> None:
    roots = tuple((name, str(tmp_path / name)) for name in ("engine", "game", "shared", "more"))
    for name, _ in roots:
        (tmp_path / name / "maps").mkdir(parents=True)
    for file in ("engine/maps/a.txt", "game/maps/a.txt", "shared/maps/A.TXT", "more/maps/b.txt"):
        (tmp_path / file).write_text(file)
    with database(tmp_path) as made:
        ids, _ = made.writer.sync_scan_folders([(name, path, order) for order, (name, path) in enumerate(roots)])
        made.put(put_source=[source_row(1, "maps/a.txt", ids["game"]), source_row(2, "maps/b.txt", ids["more"])])
        reader, places = open_reader(made.path), AssetPlaces(str(tmp_path), roots=roots)

        hides, alone = (read_panel(reader, Kind.SOURCES, number, places) for number in (1, 2))
        reader.close()

    assert hides is not None
    assert alone is not None
    assert [value for name, value in hides.facts if name == "Hides"] == [str(tmp_path / "shared/maps/A.TXT")]
    assert "Hides" not in dict(alone.facts)


def test_asset_panel_of_a_product_shows_the_facts_from_its_builder(tmp_path: Path) -> None:
    facts = (1, 1, 64, 32, 0, 0, 0.0, "png", '{"bones":12}')
    with database(tmp_path) as made:
        ids, _ = made.writer.sync_scan_folders([("game", str(tmp_path), 0)])
        made.put(
            put_source=[source_row(1, "a.txt", ids["game"])],
            put_job=[job_row(1, 1)],
            put_product=[product_row(1, 1, "linux/a.png"), product_row(2, 1, "linux/b.png")],
            put_facts=[facts],
        )
        with closing(open_reader(made.path)) as reader:
            panels = [read_panel(reader, Kind.PRODUCTS, number, AssetPlaces(str(tmp_path))) for number in (1, 2)]

    shown = [dict(panel.facts).get("Facts") for panel in panels if panel is not None]
    assert shown == ["width 64, height 32, format png, bones 12", None]

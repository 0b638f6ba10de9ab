"""The search for missing product dependencies over a real database and real files: findings, and repeated reads."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from unittest import mock

import pytest
from live_project import LiveProject, Request, own_live_project
from waiting import until

from aptui.core.notices import MissingScan
from aptui.features.shipping.missing_rows import (
    NO_UUID,
    NOTHING,
    PARTIAL,
    UNREADABLE,
    ClearMissing,
    FoundName,
    ScanMissing,
    choose_scanned,
    results,
)
from aptui.features.shipping.missing_search import MissingSearch, Readers, Reading, SearchedProject, Tally, read_rules
from aptui.features.shipping.name_scanner import LINE_LIMIT
from aptui.features.shipping.requests import MissingScanRequests
from aptui.link import port
from aptui.store.db import schema
from aptui.store.db.writer import Writer
from aptui.store.queries.reader import open_reader
from tests.store.conftest import edge_row, job_row, source_row, uuid_of

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt", "*.png"]}]
"""


@dataclass
class Harness:
    """A cache, a scan folder and a database; `add` makes a source with one product of the same name per platform."""

    root: Path
    writer: Writer
    scan_folder: int
    count: int = 0

    @property
    def place(self) -> SearchedProject:
        return SearchedProject(self.root / "assetdb.sqlite", self.root / "cache", (str(self.root / "assets"),))

    def add(
        self, name: str, data: bytes | str = "", *, platforms: tuple[str, ...] = ("linux",), product: str = "", sub_ids: int = 1
    ) -> bytes:
        """Add a source with its products, and return its UUID."""
        self.count += 1
        source, data = self.count, data.encode() if isinstance(data, str) else data
        rows: dict[str, list[tuple[object, ...]]] = {"put_source": [source_row(source, name)], "put_job": [], "put_product": []}
        for at, platform in enumerate(platforms):
            rows["put_job"].append(job_row(10 * source + at, source, platform=platform))
            for sub_id in range(sub_ids):
                path = f"{platform}/{(product or name).lower()}" + (f".{sub_id}" if sub_id else "")
                file = self.root / "cache" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
                number = 100 * source + 10 * at + sub_id
                rows["put_product"].append(
                    (number, 10 * source + at, path, sub_id, b"T" * 16, 0, 1, sha256(data).digest(), len(data))
                )
        self.writer.run(rows, durable=False)
        return uuid_of(source)

    def declare(self, product: str, uuid: bytes = bytes(16), sub_id: int = 0, path: str = "") -> None:
        sql = """INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags,
            UnresolvedPath)
            SELECT ProductID, ?, ?, 'linux', 0, ? FROM Products WHERE ProductName = ?"""
        with closing(sqlite3.connect(self.root / "assetdb.sqlite", isolation_level=None)) as database:
            database.execute(sql, (uuid, sub_id, path, product))

    def scan(self, *patterns: str, limit: int = LINE_LIMIT) -> Tally:
        with closing(open_reader(self.place.database)) as reader:
            wanted = choose_scanned(reader, patterns)
        return MissingSearch(self.place, limit).products(wanted, lambda rows: self.writer.run(rows, durable=False))

    def missing(self, product: str = "") -> list[tuple[str, str]]:
        """Return the findings as (text, the product that the text names)."""
        return [(row.text, row.meant) for row in self._results(product) if row.uuid != NO_UUID]

    def says(self, product: str = "") -> list[str]:
        return [row.text for row in self._results(product) if row.uuid == NO_UUID]

    def _results(self, product: str) -> list[FoundName]:
        with closing(open_reader(self.place.database)) as reader:
            return results(reader, [each.product_id for each in choose_scanned(reader, [product] if product else [])])


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    schema.prepare(tmp_path / "assetdb.sqlite")
    (tmp_path / "assets").mkdir()
    writer = Writer(tmp_path / "assetdb.sqlite", lambda _ticket: None)
    ids, _ = writer.sync_scan_folders([("game", str(tmp_path / "assets"), 0)])
    yield Harness(tmp_path, writer, ids["game"])
    writer.close()


# --------------------------------------------------------------------------------------------------------------- findings


def test_search_finds_paths_and_uuids_in_text(harness: Harness) -> None:
    uuid = harness.add("textures/my-rock-01.png")
    tree = harness.add("textures/tree.png")
    text = (
        f"self levels/one-a.txt and ONE-A.TXT, a textures\\my-rock-01.png, {tree.hex()}, {uuid_of(3).hex()}:0 none.png {uuid.hex()}"
    )
    harness.add("levels/one-a.txt", text)

    tally = harness.scan("levels/*")

    assert (tally.done, tally.flawed, tally.hits) == (1, 1, 2)
    assert {meant for _, meant in harness.missing("levels/one-a.txt")} == {
        "linux/textures/tree.png",
        "linux/textures/my-rock-01.png",
    }


@pytest.mark.parametrize(
    "name",
    ["sounds/bang.wav", "Sounds\\Bang.WAV", "/sounds//bang.wav", "./sounds/bang.wav", "sounds/bang.ogg", "bang.ogg",
     "linux/sounds/bang.ogg", "../sounds/bang.ogg"]
)  # fmt: skip
def test_path_in_a_text_refers_to_a_source_or_a_product(harness: Harness, name: str) -> None:
    harness.add("sounds/bang.wav", product="sounds/bang.ogg")
    harness.add("scripts/door.lua", f'play("{name}")')

    harness.scan("scripts/*")

    assert [meant for _, meant in harness.missing("scripts/door.lua")] == ["linux/sounds/bang.ogg"]


def test_relative_paths_in_one_text_are_resolved_separately(harness: Harness) -> None:
    for name in "abc":
        harness.add(f"sprites/bag/{name}.png")
    harness.add("sprites/bag/bag.txt", "a.png b.png c.png sub/a.png")

    harness.scan("*.txt")

    assert [text for text, _ in harness.missing("*.txt")] == ["a.png", "b.png", "c.png"]


def test_uuid_in_a_text_file_refers_to_every_product_of_its_source(harness: Harness) -> None:
    uuid = harness.add("mesh/rock.fbx", platforms=("linux", "server"), sub_ids=2)
    harness.add("a.txt", uuid.hex())

    harness.scan("a.txt")

    assert [meant for _, meant in harness.missing("a.txt")] == ["linux/mesh/rock.fbx", "linux/mesh/rock.fbx.1"]


def test_asset_id_in_a_text_file_refers_to_one_product(harness: Harness) -> None:
    uuid = harness.add("mesh/rock.fbx", sub_ids=2)
    harness.add("a.txt", f"{{{uuid.hex()}}}:[1] {{{uuid.hex()}}}:[12345]")

    harness.scan("a.txt")

    assert [meant for _, meant in harness.missing("a.txt")] == ["linux/mesh/rock.fbx.1"]


@pytest.mark.parametrize("how", ["asset id", "path", "wildcard", "other product of the source"])
def test_declared_dependency_is_not_missing(harness: Harness, how: str) -> None:
    uuid = harness.add("mesh/rock.fbx")
    harness.add("a.txt", f"mesh/rock.fbx and {uuid.hex()}")
    uuid, sub_id, path = {
        "asset id": (uuid, 0, ""), "path": (bytes(16), 0, "Mesh/Rock.fbx"), "wildcard": (bytes(16), 0, "mesh/*"),
        "other product of the source": (uuid, 7, ""),
    }[how]  # fmt: skip
    harness.declare("linux/a.txt", uuid, sub_id, path)

    harness.scan("a.txt")

    assert (harness.missing("a.txt"), harness.says("a.txt")) == ([], [NOTHING])


def test_undeclared_reference_is_missing_although_another_one_is_declared(harness: Harness) -> None:
    harness.add("one.png")
    harness.add("two.png")
    harness.add("a.txt", "one.png two.png")
    harness.declare("linux/a.txt", path="one.png")

    harness.scan("a.txt")

    assert [text for text, _ in harness.missing("a.txt")] == ["two.png"]


# ---------------------------------------------------------------------------------------------------------------- results


def test_unreadable_file_is_reported_and_scanned_later(harness: Harness) -> None:
    harness.add("a.txt", "b.txt")
    harness.add("b.txt")
    file = harness.root / "cache" / "linux" / "a.txt"
    data = file.read_bytes()
    file.unlink()

    assert harness.scan("a.txt").failed == 1
    assert harness.says("a.txt") == [UNREADABLE]

    file.write_bytes(data)
    harness.scan("a.txt")
    assert (harness.missing("a.txt"), harness.says("a.txt")) == ([("b.txt", "linux/b.txt")], [])


def test_file_with_too_many_names_in_a_line_is_marked_as_partially_scanned(harness: Harness) -> None:
    harness.add("b.png")
    harness.add("a.txt", " ".join(["x.png"] * 5 + ["b.png"]))

    tally = harness.scan("a.txt", limit=5)
    assert (tally.partial, harness.missing("a.txt"), harness.says("a.txt")) == (1, [], [PARTIAL])

    harness.scan("a.txt", limit=0)
    assert (harness.missing("a.txt"), harness.says("a.txt")) == ([("b.png", "linux/b.png")], [])


def begin_stuck_read(readers: Readers, file: Path) -> tuple[subprocess.Popen[bytes], Future[Reading]]:
    """Begin to read a file in a process that is stopped, as if its disk did not answer; return this process too."""
    assert not readers.read(str(file)).result(20).is_broken
    (process,) = readers._processes
    process.send_signal(signal.SIGSTOP)
    stuck = readers.read(str(file))
    until(stuck.running, "the file is being read")
    return process, stuck


def test_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with closing(Readers(1, ["txt"], 0)) as readers:
        reading = readers.read(str(tmp_path / "pipe")).result(20)

    assert (reading.names, reading.is_broken) == (None, False)
    assert "it is not a regular file" in reading.error


def test_killed_reader_process_affects_only_the_file_that_it_was_reading(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("a.txt")
    with closing(Readers(1, ["txt"], 0)) as readers:
        process, stuck = begin_stuck_read(readers, tmp_path / "good.txt")
        process.kill()
        broken, good = stuck.result(20), readers.read(str(tmp_path / "good.txt")).result(20)

    assert broken.is_broken
    assert good.names is not None
    assert list(good.names.paths) == ["a.txt"]


def test_closed_readers_leave_no_process(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("a.txt")
    readers = Readers(1, ["txt"], 0)
    process, stuck = begin_stuck_read(readers, tmp_path / "good.txt")

    readers.close()

    assert process.returncode is not None
    assert stuck.result(1).is_broken


# ------------------------------------------------------------------------------------------------------------------- reads


def test_unchanged_product_is_not_read_again(harness: Harness) -> None:
    harness.add("a.txt", "b.txt later.txt")
    harness.add("b.txt")
    assert harness.scan("a.txt").read == 1

    harness.add("later.txt")
    tally = harness.scan("a.txt")

    assert (tally.read, [text for text, _ in harness.missing("a.txt")]) == (0, ["b.txt", "later.txt"])


@pytest.mark.parametrize("change", ["digest", "limit", "extension"])
def test_file_is_read_again_if_its_bytes_or_the_scan_settings_change(harness: Harness, change: str) -> None:
    harness.add("a.txt", "b.txt c.new")
    harness.add("b.txt")
    harness.scan("a.txt")
    match change:
        case "digest":
            with closing(sqlite3.connect(harness.place.database, isolation_level=None)) as database:
                database.execute("UPDATE aptui_products SET digest = x'00' WHERE product_id = 100")
        case "extension":
            harness.add("c.new")

    assert harness.scan("a.txt", limit=7 if change == "limit" else LINE_LIMIT).read == 1


def test_file_whose_bytes_differ_from_the_database_is_read_again(harness: Harness) -> None:
    harness.add("a.txt", "b.txt")
    harness.add("b.txt")
    (harness.root / "cache" / "linux" / "a.txt").write_text("something else, on its way")

    harness.scan("a.txt")

    assert harness.scan("a.txt").read == 1


# ------------------------------------------------------------------------------------------------------------------- rules

TAGS = """<ObjectStream version="3"><Class name="FileTagAsset">
<Class field="value1" value="{pattern}"/><Class field="FilePatternType" value="{form}"/>
<Class field="FileTags"><Class field="element" value="{tag}"/></Class>
<Class field="value1" value="*.other"/><Class field="FilePatternType" value="1"/><Class field="element" value="ignore"/>
</Class></ObjectStream>"""


@pytest.mark.parametrize(
    ("pattern", "form", "tag", "is_skipped"),
    [
        ("*.txt", 1, "editoronly", True), ("sub/a.txt", 0, "Shader", True), (".*/a[.]txt", 2, "shader", True),
        ("*.txt", 1, "ignore", False),
        ("*.lua", 1, "shader", False),
    ],
)  # fmt: skip
def test_file_tags_exclude_products(harness: Harness, pattern: str, form: int, tag: str, is_skipped: bool) -> None:
    (harness.root / "assets" / "exclude.filetag").write_text(TAGS.format(pattern=pattern, form=form, tag=tag))
    harness.add("sub/a.txt", "b.txt")
    harness.add("b.txt")

    tally = harness.scan("sub/a.txt")

    assert tally.ignored == is_skipped
    assert harness.missing("sub/a.txt") == ([] if is_skipped else [("b.txt", "linux/b.txt")])
    assert harness.says("sub/a.txt") == ([f"Ignored by its file tags: {tag.lower()}"] if is_skipped else [])


def test_engine_dependency_files_are_never_reported_as_missing(harness: Harness) -> None:
    (harness.root / "assets" / "Own_Dependencies.xml").write_text(
        '<EngineDependencies versionnumber="1.0.0"><Dependency path="libs\\*.XML" optional="true"/></EngineDependencies>'
    )
    harness.add("libs/sub/a.xml")
    harness.add("other/b.xml")
    harness.add("a.txt", "libs/sub/a.xml other/b.xml")

    harness.scan("a.txt")

    assert [text for text, _ in harness.missing("a.txt")] == ["other/b.xml"]


def test_unreadable_rules_are_reported(harness: Harness) -> None:
    (harness.root / "assets" / "Bad_Dependencies.xml").write_text("<oops")
    (harness.root / "assets" / "exclude.filetag").write_text(TAGS.format(pattern="(", form=2, tag="shader"))

    rules = read_rules([str(harness.root / "assets"), str(harness.root / "nowhere")])

    assert (rules.shipped, rules.excluded, len(rules.complaints)) == ([], [], 2)


@pytest.mark.parametrize(("regex", "form"), [("(a|aa)*(a|aa)*b", 2), ("*?" * 60 + "!", 1)])
def test_hostile_regex_in_scan_rules_takes_linear_time(harness: Harness, regex: str, form: int) -> None:
    (harness.root / "assets" / "exclude.filetag").write_text(TAGS.format(pattern=regex, form=form, tag="shader"))
    began = time.process_time()

    rules = read_rules([str(harness.root / "assets")])

    assert rules.complaints == []
    assert rules.tags_of("a" * 400, is_product=True) == ()
    assert time.process_time() - began < 5


# ------------------------------------------------------------------------------------------------------------- other files


def test_text_files_that_are_not_products_are_searched(harness: Harness) -> None:
    harness.add("used.png")
    harness.add("shown.png")
    harness.add("a.txt")
    harness.writer.run({"put_edge": [edge_row(0, "used.png", source_id=3)]}, durable=False)
    source = harness.root / "assets" / "a.txt"
    source.write_text("a.txt used.png shown.png")
    elsewhere = harness.root / "readme.md"
    elsewhere.write_text("look at used.png")

    found, tally = MissingSearch(harness.place).files([str(source), str(elsewhere), str(harness.root / "gone")])

    assert {os.path.basename(file.path): [hit.text for hit in file.hits] or file.says for file in found} == {
        "a.txt": ["shown.png"], "readme.md": ["used.png"], "gone": UNREADABLE
    }  # fmt: skip
    assert (tally.done, tally.read, tally.flawed, tally.failed) == (3, 2, 2, 1)


def test_file_tags_exclude_files_that_are_not_products(harness: Harness) -> None:
    (harness.root / "assets" / "exclude.filetag").write_text(
        TAGS.format(pattern="*.log", form=1, tag="ignore").replace(
            '"ignore"/></Class>', '"ignore"/><Class field="element" value="ProductDependency"/></Class>'
        )
    )
    harness.add("b.txt")
    (harness.root / "assets" / "a.log").write_text("b.txt")

    found, tally = MissingSearch(harness.place).files([str(harness.root / "assets" / "a.log")])

    assert (found, tally.ignored) == ([], 1)


# ------------------------------------------------------------------------------------------------------- beside the engine


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    return own_live_project(tmp_path, monkeypatch, SETTINGS, {"assets/a.txt": "sub/b.png", "assets/sub/b.png": "b"})


def found_by(project: LiveProject) -> list[str]:
    with closing(open_reader(project.load().cache_dir / "assetdb.sqlite")) as reader:
        return [row.text for row in results(reader, [each.product_id for each in choose_scanned(reader)]) if row.uuid != NO_UUID]


def test_running_engine_searches_and_reports_progress(project: LiveProject) -> None:
    with project.running():
        project.until(lambda: project.live.watching.is_quiet)
        answer = project.ask(ScanMissing(name="everything")).answered

        assert answer is not None
        assert (answer["files"], answer["flawed"], answer["hits"]) == (2, 1, 1)
        assert found_by(project) == ["sub/b.png"]
        scans = [notice for notice in project.news if isinstance(notice, MissingScan)]
        assert [(scans[0].name, scans[0].file_count, scans[0].is_over), (scans[-1].hit_count, scans[-1].is_over)] == [
            ("everything", 2, False), (1, True)
        ]  # fmt: skip

        assert project.ask(ClearMissing(("a.txt",))).answered == {"count": 1}
        assert found_by(project) == []


def test_busy_engine_refuses_a_search(project: LiveProject) -> None:
    with project.running() as live:
        project.until(lambda: live.watching.is_quiet)
        first, second = Request(ScanMissing()), Request(ScanMissing())
        project.handler.handle(first)
        project.handler.handle(second)
        project.until(lambda: first.is_over)
        assert "is running" in second.refused
        assert first.answered is not None

        project.ask(port.PauseJobs())
        project.write("assets/new.txt", "new")
        project.until(lambda: live.engine is not None and not live.engine.is_idle)
        third = Request(ScanMissing())
        project.handler.handle(third)
        assert "while work is pending" in third.refused
        project.ask(port.ResumeJobs())
        project.until_idle()


def test_search_ends_when_its_client_disconnects_or_the_engine_stops(project: LiveProject) -> None:
    with project.running() as live:
        project.until(lambda: live.watching.is_quiet)
        request = Request(ScanMissing(), client=5)
        project.handler.handle(request)
        project.handler.forget_client(5)
        project.until(lambda: request.is_over)
        assert found_by(project) in ([], ["sub/b.png"])

        project.handler.handle(Request(ScanMissing()))

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("aptui-missing")]


def test_search_begins_after_one_for_which_no_thread_could_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = MissingScanRequests(mock.MagicMock())
    start = mock.Mock(side_effect=[RuntimeError("can't start new thread"), None])
    monkeypatch.setattr(threading.Thread, "start", start)

    with pytest.raises(RuntimeError):
        requests.handle(mock.Mock(), ScanMissing())
    requests.close()
    requests.handle(mock.Mock(), ScanMissing())

    assert start.call_count == 2


def test_internal_error_ends_only_the_search(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.features.shipping.missing_search.read_rules", lambda _roots: 1 / 0)
    with project.running() as live:
        project.until(lambda: live.watching.is_quiet)

        assert "ZeroDivisionError" in project.ask(ScanMissing()).refused
        assert live.engine is not None


def test_hanging_search_can_be_cancelled(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Readers.read
    monkeypatch.setattr(Readers, "read", lambda self, path: Future() if path.endswith("a.txt") else read(self, path))
    harness.add("a.txt", "b.txt")
    with closing(open_reader(harness.place.database)) as reader:
        wanted = choose_scanned(reader)

    tally = MissingSearch(harness.place, is_given_up=lambda: True).products(wanted, lambda _rows: None)

    assert (tally.is_given_up, tally.failed) == (True, 1)

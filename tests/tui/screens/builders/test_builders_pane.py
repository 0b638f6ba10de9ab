"""The Builders screen: the list, and patterns, details and metrics of the selected builder, with and without a configuration."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace
from textual import events

from aptui.config.configuration import Config, ToolSettings
from aptui.core.notices import HealthChanged, JobChanged
from aptui.core.project import Builder, BuilderKind, CommandRule, Pattern, PatternKind, Platform, Project
from aptui.shared.errors import UserError
from aptui.shared.health import Health
from aptui.store.queries.metrics import BuilderSpent, Entry, Spent
from aptui.tui.pane import PANES
from aptui.tui.screens.builders import builder_facts
from aptui.tui.screens.builders import builders_pane as reading
from aptui.tui.screens.builders.builder_facts import KnownBuilder, metrics_columns, row_of
from aptui.tui.terminal import driver
from aptui.tui.widgets.cells import Cell, share_bar
from aptui.tui.widgets.listing import ListedRow
from aptui.tui.widgets.table import fit_columns, lay_out
from tests.store.conftest import BUILDER, analysis_row, job_row, source_row
from tests.tui.database import database
from tui.fake_panes import FAKE_JOBS, FakeSession
from tui.shell_harness import LARGE, in_shell, lines, script_test, text, until
from tui.widget_zoo import PAYLOADS

pytestmark = pytest.mark.real

OTHER, THIRD = b"o" * 16, b"t" * 16
WIDE = (190, 40)


HERE = [FAKE_JOBS, next(spec for spec in PANES if spec.id == "builders")]


def glob(words: str) -> Pattern:
    return Pattern(PatternKind.GLOB, words, "x")


IMAGES = Builder(
    BUILDER, "Image", BuilderKind.PYTHON, "7", "Pillow 13", (glob("*.png"), Pattern(PatternKind.REGEX, r".*\.tga", "x")),
    ("linux", "pc"),
    "entry:image:aptui.builders.image_builder:ImageBuilder", b"\xab" * 32, '{"size":64}', (("pc", '{"size":32}'),), priority=3,
    is_critical=True, memory_limit_bytes=2_000_000_000, asset_type=b"a" * 16,
)  # fmt: skip
UPPER = Builder(
    OTHER, "upper", BuilderKind.COMMAND, "2", patterns=(glob("*.up"),), platforms=("linux",),
    command=CommandRule("tr a-z A-Z", ("{stem}.txt",), warning_regex="warn"), deletes_products_on_failure=True,
)  # fmt: skip


def config_of(folder: Path, *builders: Builder) -> Config:
    project = Project((Platform("linux"), Platform("pc")), "linux", (), builders)
    tool = ToolSettings("upper", "tr", "/usr/bin/tr", (1, 2), "ffee", "aptui.yaml:9:3")
    places = {"Image": "/game/aptui.yaml:4:11", "upper": f"{folder}/aptui.yaml:9:3"}
    return Config(folder, "game", folder / "cache", folder / "logs", folder / "temp", project, places=places, tools=(tool,))


@pytest.fixture(autouse=True)
def _frames_are_fast(monkeypatch):
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 0.003)  # With the default, the pilot sleeps 40 ms after each key.
    monkeypatch.setattr("aptui.tui.drawing.FRAME_S", 0.01)
    monkeypatch.setattr(reading, "READ_AGAIN_S", 0.05)


@pytest.fixture
def store(tmp_path):
    """A database with jobs of three builders; the configuration does not contain the third builder."""
    (tmp_path / "cache").mkdir()
    with database(tmp_path / "cache") as made:
        made.put(
            put_source=[source_row(at, f"textures/rock_{at}.png") for at in range(1, 4)],
            put_analysis=[analysis_row(1, duration_ms=20), analysis_row(2, duration_ms=40)],
            put_job=[
                job_row(1, 1, duration_ms=100), job_row(2, 2, duration_ms=3000),
                job_row(3, 3, duration_ms=50, platform="pc", job_key="Mips of all levels"),
                job_row(4, 3, builder=OTHER, duration_ms=9, platform="pc"), job_row(5, 3, builder=THIRD, duration_ms=1),
            ],
        )  # fmt: skip
        yield made


def visit(tmp_path, do: Callable, *, size=LARGE, builders=(IMAGES, UPPER), complete=None, has_config=True, opens=True):
    """Open the app and run a script; if `opens`, first open the Builders screen and wait until the builders are read."""

    async def main(app, pilot, session):
        app.copied = []
        app.copy_text = lambda words, **_: app.copied.append(words)
        if opens:
            await pilot.press("5")
            await until(pilot, lambda: app.pane.reading.is_known)
            await pilot.pause()
        await do(app, pilot, session, app.pane)
        app.pane.deactivate()
        app.memory.save()

    def before(app):
        app.config = config_of(tmp_path, *builders) if has_config else None
        app.all_builders = complete

    return in_shell(tmp_path, main, size=size, panes=HERE, before=before, session=FakeSession(tmp_path / "cache"))


on_builders = partial(script_test, visit, ("app", "pilot", "session", "pane"))


def names(pane) -> list[str]:
    return [row.data.name for row in pane.rows.records]


def tree_names(pane) -> list[str]:
    """Return the texts in the first column of the metrics."""
    pane.spent.refresh_model()
    return [pane.spent.model.cell(at, "name").text.strip() for at in range(pane.spent.model.row_count())]


@on_builders()
async def test_builders_are_listed_by_cost(app, pane, store):
    assert names(pane)[:2] == ["Image", "upper"]
    assert len(names(pane)) == 3
    row = next(line for line in lines(app) if line.startswith("▌Image")).split()
    assert row[:6] == ["▌Image", "python", "7", "*.png,", r".*\.tga", "3"]
    assert row[-3:-1] == ["3.21", "s"]
    assert set(row[-1]) <= {"━", "╸"}  # the builder's share of all time


@pytest.fixture
def may_read(monkeypatch):
    """Return an event; the screen cannot read the builders until the test sets it."""
    event, find = threading.Event(), builder_facts.find
    monkeypatch.setattr(reading, "find", lambda *places: event.wait(20) and find(*places))
    return event


@on_builders(opens=False)
async def test_builder_list_shows_that_the_first_read_is_running(app, pilot, store, may_read):
    await pilot.press("5", "m")
    await until(pilot, lambda: "reading the builders" in text(app) and "reading its metrics" in text(app))
    assert "this builder has not run" not in text(app)
    assert "no builder" not in text(app)
    may_read.set()
    await until(pilot, lambda: "▌Image" in text(app) and "reading" not in text(app))


@on_builders(opens=False)
async def test_filter_typed_before_the_first_read_applies_to_the_first_rows(app, pilot, store, may_read):
    await pilot.press("5")
    await until(pilot, lambda: "reading the builders" in text(app))
    await pilot.press("slash")

    async def type_at_once() -> None:
        for key in (*"upper", "enter", "p", "enter", "y", "y"):
            await driver._handle(app, events.Key(key, key if len(key) == 1 else None))

    typing = asyncio.create_task(type_at_once())
    await until(pilot, lambda: typing.done() or (app.focused is app.pane.list and app.keyboard.name_awaited("p")))
    may_read.set()
    await typing
    await until(pilot, lambda: app.copied)
    assert app.copied == ["*.up\tglob\taptui.yaml:9:3"]


def test_patterns_name_their_file_relative_to_project(tmp_path):
    rows = [
        builder_facts.pattern_rows(builder_facts.KnownBuilder(each.uuid, each.name, each), config_of(tmp_path, UPPER, IMAGES))
        for each in (UPPER, IMAGES)
    ]

    assert [found[0].cell("place").text for found in rows] == ["aptui.yaml:9:3", "/game/aptui.yaml:4:11"]


def test_origin_of_a_pattern_takes_the_remaining_width():
    place = "entry:mesh:aptui.builders.mesh_builder"
    row = ListedRow(0, {"text": Cell("*.obj"), "kind": Cell("glob"), "place": Cell(place)})

    wide = {column.id: width for column, width in lay_out(fit_columns(builder_facts.PATTERNS, [row]), 76)}

    assert wide["place"] >= len(place)


def test_builders_screen_does_not_cut_texts_that_fit(tmp_path, store):
    name = "a_name_longer_than_the_list_had_room"
    patterns = ("stone/*.png", "textures/*.tga")
    long = structs.replace(UPPER, uuid=b"L" * 16, name=name, patterns=tuple(glob(each) for each in patterns))

    async def script(app, pilot, _session, _pane):
        await until(pilot, lambda: name in text(app) and ", ".join(patterns) in text(app))

    async def open_narrow_metrics(app, pilot, _session, _pane):
        await pilot.press("m", "m")
        await until(pilot, lambda: "pc Mips of" in text(app) and "textures/rock_3.png " in text(app))
        shown = next(line for line in lines(app) if "rock_3.png" in line)
        assert "rock_3.png  pc Mips" in shown, "a column that is cut is followed by one blank"

    async def open_metrics(app, pilot, session, pane):
        await script(app, pilot, session, pane)
        await pilot.press("m", "m")
        await until(pilot, lambda: "pc Mips of all levels" in text(app))

    visit(tmp_path, open_narrow_metrics, size=(80, 24), builders=(IMAGES, long))
    visit(tmp_path, script, size=(200, 60), builders=(IMAGES, long))
    visit(tmp_path, open_metrics, size=(160, 40), builders=(IMAGES, long))


def test_metrics_table_drops_averages_and_bars_before_it_cuts_names():
    name = "images/creatures/iceblock.sprite"
    entry = Entry(name, "textures", "linux", 4, 0, 1, 1)

    columns = {column.id: width for column, width in lay_out(metrics_columns([entry], "textures"), 76)}

    assert columns["name"] >= len(name)
    assert {"total", "slowest"} <= set(columns)


def test_builder_list_grows_if_the_pattern_list_is_short(tmp_path, store):
    many = [replace(UPPER, uuid=bytes([at]) * 16, name=f"upper{at}") for at in range(16)]

    async def script(_app, pilot, _session, pane):
        await until(pilot, lambda: pane.list.size.height >= 14)
        before = pane.list.size.height
        await pilot.press("m")
        await until(pilot, lambda: pane.list.size.height < before)
        await pilot.press("p", "j", "j")
        await until(pilot, lambda: pane.list.size.height == before)

    visit(tmp_path, script, size=(80, 24), builders=many)


def test_cursor_in_the_builder_list_selects_patterns_details_and_metrics(tmp_path, store):
    async def walk(app, pilot, _session, pane):
        for part in ("*.png", "glob", r".*\.tga", "regex", "/game/aptui.yaml:4:11", " Patterns (2)▾"):
            await until(pilot, lambda part=part: part in text(app))
        assert text(app).count("▌") == 1
        await pilot.press("d")
        for part in (
            "Pillow 13",
            "abab",
            "critical: its jobs run before all other jobs",
            "2m an analysis, 1h a job, 1.9 GiB of memory",
            "size: 32",
        ):
            await until(pilot, lambda part=part: part in text(app))
        await pilot.press("j")
        await until(pilot, lambda: "tr a-z A-Z" in text(app))
        await until(pilot, lambda: "/usr/bin/tr" in text(app))
        await until(pilot, lambda: "deletes the old products" in text(app))
        await pilot.press("k", "m")
        await until(pilot, lambda: len(tree_names(pane)) == 7)
        await until(pilot, lambda: tree_names(pane)[4].endswith("Analysis jobs"))
        await until(pilot, lambda: tree_names(pane)[1:4] == ["textures/rock_2.png", "textures/rock_1.png", "textures/rock_3.png"])
        await until(pilot, lambda: "pc Mips" in text(app))
        await until(pilot, lambda: "━" in text(app).partition("Metrics")[2])

    app = visit(tmp_path, walk)
    assert app.memory.get("builders.part", "") == "metrics"


@on_builders(size=(200, 60))
async def test_large_screen_shows_patterns_details_and_metrics_together(app, pilot, pane, store):
    shown = ("── Patterns (2) ──", "*.png", "── Details ──", "Pillow 13", "── Metrics ──", "textures/rock_2.png")
    for part in shown:
        await until(pilot, lambda part=part: part in text(app))
    assert "▾ " not in text(app).partition("Details")[0]
    await pilot.press("m")
    await until(pilot, lambda: app.focused is pane.spent)
    await pilot.press("d")
    await until(pilot, lambda: app.focused is pane.details)
    await pilot.press("escape", "j")
    await until(pilot, lambda: "/usr/bin/tr" in text(app))
    await pilot.resize_terminal(200, 30)
    await until(pilot, lambda: "Details▾" in text(app))


@on_builders()
async def test_metrics_are_filtered_and_sorted(app, pilot, pane, store):
    await pilot.press("m", "m")
    await until(pilot, lambda: len(tree_names(pane)) == 7)
    await pilot.press("S", "1")
    await until(pilot, lambda: tree_names(pane)[1:4] == [f"textures/rock_{at}.png" for at in (1, 2, 3)])
    await pilot.click("#builders-metrics", offset=(4, 0))
    await until(pilot, lambda: tree_names(pane)[1:4] == [f"textures/rock_{at}.png" for at in (3, 2, 1)])
    await pilot.press("slash")
    pane.box.text = "mips"
    await until(pilot, lambda: len(tree_names(pane)) == 3)
    await until(pilot, lambda: "1 of the slowest 1,000" in text(app))
    await pilot.press("enter")
    await until(pilot, lambda: pane.spent.has_focus)


def test_metrics_can_be_sorted_by_count_or_by_average(tmp_path, store):
    more = [job_row(6 + at, 1, duration_ms=10 * at, platform=platform) for at, platform in enumerate(("pc", "mac"))]
    store.put(put_job=more)
    by_count, by_average = [f"textures/rock_{at}.png" for at in (1, 2, 3)], [f"textures/rock_{at}.png" for at in (2, 3, 1)]

    async def sort(app, pilot, _session, pane):
        await pilot.press("m", "m")
        await until(pilot, lambda: len(tree_names(pane)) == 7)
        await pilot.press("S", "2")
        await until(pilot, lambda: tree_names(pane)[1:4] == by_count)
        await until(pilot, lambda: "3 110 ms 37 ms 100 ms" in " ".join(text(app).split()))
        await pilot.press("S", "4")
        await until(pilot, lambda: tree_names(pane)[1:4] == by_average and "Average ↓" in text(app))
        await pilot.press("g", *"jjj", "enter")
        await until(pilot, lambda: app.pane.name_of_pane == "jobs")
        assert app.pane.revealed == [r'source:"^textures/rock_1\.png$" builder:"^Image$"']

    visit(tmp_path, sort)


def test_average_in_the_builder_list_excludes_analyses(tmp_path, store):
    spent = BuilderSpent(BUILDER, Spent(98, 0, 0), Spent(2, 300, 200))

    row = row_of(1, KnownBuilder(BUILDER, "Image", IMAGES, spent), "", 300)

    assert (row.cells["average"].text, row.order["average"]) == ("150 ms", 150.0)


@on_builders()
async def test_builder_filter_applies_while_typing_and_a_mistake_keeps_the_rows(app, pilot, pane, store):
    await pilot.press("slash", *"up$")
    await until(pilot, lambda: names(pane) == ["upper"])
    await until(pilot, lambda: "1 of 3" in text(app))
    pane.box.text = "up("
    await until(pilot, lambda: "unclosed group" in text(app))
    await until(pilot, lambda: names(pane) == ["upper"])
    pane.box.text = "png"
    await until(pilot, lambda: names(pane) == ["Image"])
    await pilot.press("enter", "escape")
    await until(pilot, lambda: len(names(pane)) == 3)


def test_chosen_order_of_the_builder_list_is_remembered(tmp_path, store):
    async def sort(app, pilot, _session, pane):
        await pilot.press("S", "1")
        await until(pilot, lambda: names(pane)[0] == "Image")
        await pilot.click("#builders-list", offset=(4, 0))
        await until(pilot, lambda: names(pane)[-1] == "Image")

    async def script(_app, pilot, _session, pane):
        assert names(pane)[-1] == "Image"

    visit(tmp_path, sort)
    visit(tmp_path, script)


@on_builders()
async def test_keys_show_the_jobs_of_the_builder_or_of_the_selected_metric(app, pilot, pane, store):
    await pilot.press("J")
    await until(pilot, lambda: app.pane.name_of_pane == "jobs" and app.pane.revealed == ['builder:"^Image$"'])
    jobs = app.pane
    await pilot.press("5", "m")
    await until(pilot, lambda: len(tree_names(pane)) == 7)
    await pilot.press("enter", *"jjjjj", "enter")
    await until(pilot, lambda: jobs.revealed[1:] == [r'source:"^textures/rock_2\.png$"'])
    await pilot.press("5", "g", *"jjj", "enter")
    await until(pilot, lambda: jobs.revealed[2:] == ["#3"])
    await until(pilot, lambda: pane.spent.cursor == 3)


@on_builders()
async def test_other_screens_can_reveal_a_builder_in_the_list(app, pilot, pane, store):
    await pilot.press("slash", *"png", "enter")
    pane.reveal("upper")
    await until(pilot, lambda: pane.current.name == "upper")
    await until(pilot, lambda: pane.list.has_focus)
    pane.reveal("nobody")
    await until(pilot, lambda: "no builder 'nobody'" in text(app))
    pane.reload()
    pane.reveal("Image")
    await until(pilot, lambda: pane.current.name == "Image")


@on_builders(opens=False)
async def test_revealing_a_builder_waits_until_the_builders_are_read(app, pilot, store):
    await app.show("builders")
    app.pane.reveal("upper")
    await until(pilot, lambda: app.pane.current is not None and app.pane.current.name == "upper")


@on_builders()
async def test_ended_jobs_are_counted_while_the_builders_screen_is_visible(app, pilot, session, pane, store):
    store.put(put_job=[job_row(6, 1, builder=OTHER, duration_ms=5000)])
    news = JobChanged(0, 6, "a", 1, "pc", "Image", "upper", "completed", "", "", 0, 0, 3, "", 1)
    app.feed.read()
    session.say(news)
    await until(pilot, lambda: pane.reading.found.builders[1].spent.jobs.count == 2)
    await pilot.press("1")
    await until(pilot, lambda: not pane.reading.is_busy)
    read_s = pane.reading.read_s
    session.say(news, 2)
    await pilot.pause(0.3)
    assert pane.reading.read_s == read_s
    await pilot.press("5")
    await until(pilot, lambda: pane.reading.read_s > read_s)


@on_builders()
async def test_broken_builder_shows_the_reason_of_its_failure(app, pilot, session, store):
    session.latest_health = Health(broken_builders=(("Image", "its worker died 3 times"),))
    session.say(HealthChanged(0, session.latest_health))
    await pilot.press("d")
    await until(pilot, lambda: "✗ Image" in text(app) and "its worker died 3 times" in text(app))


def test_builders_of_the_configuration_get_details_from_their_code(tmp_path, store):
    bare = Builder(BUILDER, "Image", BuilderKind.PYTHON, origin="entry:image")

    async def script(app, pilot, _session, _pane):
        await until(pilot, lambda: "*.png" in text(app))
        await until(pilot, lambda: "aptui.builders.image_builder" in text(app))

    visit(tmp_path, script, builders=(bare,), complete=lambda: (IMAGES,))


def test_builder_that_cannot_be_loaded_is_reported_and_others_are_shown(tmp_path, store):
    def complete():
        raise UserError("the builder cannot be loaded: [/oops]")

    async def script(app, pilot, _session, pane):
        await until(pilot, lambda: "cannot be loaded: [/oops]" in text(app))
        await until(pilot, lambda: "Image" in names(pane))

    visit(tmp_path, script, complete=complete)


@on_builders(has_config=False)
async def test_builders_of_the_database_are_shown_without_a_configuration(app, pilot, pane, store):
    assert len(names(pane)) == 3
    await until(pilot, lambda: "this builder is only in the database" in text(app))
    await pilot.press("d")
    await until(pilot, lambda: "only the asset database" in text(app))


@on_builders()
async def test_builders_of_the_configuration_are_shown_without_a_database(app, pilot, pane):
    assert names(pane) == ["Image", "upper"]
    await pilot.press("m")
    await until(pilot, lambda: "this builder has not run yet" in text(app))


@on_builders()
async def test_builders_screen_handles_the_keys_for_copying_zoom_and_going_back(app, pilot, pane, store):
    await pilot.press("y", "y", "y", "n", "y", "a")
    await until(pilot, lambda: app.copied[0].startswith("Image\tpython\t7\t*.png, .*\\.tga\t3"))
    await until(pilot, lambda: app.copied[1] == "Image")
    await until(pilot, lambda: "[Version] = 7" in app.copied[2])
    await pilot.press("d", "d", "j", "y", "k", "y", "v", "z")
    await until(pilot, lambda: app.copied[3:] == ["Type", "python: a Python class that workers run"])
    await until(pilot, lambda: not pane.list.display)
    await pilot.press("escape")
    await until(pilot, lambda: pane.list.has_focus)
    await pilot.press("z", "full_stop", "p")
    await until(pilot, lambda: pane.part == "patterns")
    await pilot.click("#builders-list", offset=(4, 1), button=3)
    await pilot.press("escape", "i")
    await until(pilot, lambda: "3 builders" in text(app))
    await pilot.press("escape")
    for name, rest in (("builder", "upper"), ("jobs-of", "")):
        next(command for command in pane.commands() if command.name == name).run(rest)
    await until(pilot, lambda: app.pane.name_of_pane == "jobs" and app.pane.revealed == ['builder:"^upper$"'])


@pytest.mark.parametrize("size", [(80, 24), (1, 1), WIDE])
def test_builders_screen_shows_hostile_text_safely_at_every_size(tmp_path, store, size):
    evil = tuple(
        Builder(
            bytes([at]) * 16, words, BuilderKind.COMMAND, words, words, (glob(words),), (words,), words,
            command=CommandRule(words, (words,)), params='{"x":"\\u001b]0;x"}',
        )
        for at, words in enumerate(PAYLOADS)
    )  # fmt: skip

    async def press(app, pilot, _session, pane):
        await pilot.press("G", "d", "m", "tab", "z", "p", "escape")

        await until(pilot, lambda: pane.has_class("-beside") == (size == WIDE))
        assert all(line.isprintable() for line in lines(app))

    visit(tmp_path, press, size=size, builders=evil)


def test_share_bar_rounds_to_half_a_cell():
    assert [share_bar(share, 8) for share in (0, 0.001, 0.05, 0.5, 1)] == ["", "", "╸", "━" * 4, "━" * 8]


@pytest.mark.parametrize(
    ("spent", "expected"),
    [(Spent(), ("—", "—")), (Spent(3), ("0 ms", "0 ms")), (Spent(3, 1), ("0 ms", "1 ms")), (Spent(2, 90), ("45 ms", "90 ms"))],
)
def test_builder_without_runs_has_a_dash_for_its_durations(spent, expected):
    known = KnownBuilder(OTHER, "upper", spent=BuilderSpent(OTHER, Spent(), spent))
    cells = row_of(1, known, "", 0).cells
    assert (cells["average"].text, cells["total"].text) == expected


@pytest.mark.parametrize(
    ("version", "shown"),
    [("1", "1"), ("1 (etcpak 0.9.15, Pillow 13)", "1"), ("atlas 1 (Pillow 13), gpu 2 (etcpak 0.9)", "atlas 1, gpu 2")],
)
def test_version_in_the_builder_list_has_no_packages(version, shown):
    known = KnownBuilder(BUILDER, "art", replace(IMAGES, version=version))
    assert row_of(1, known, "", 0).cells["version"].text == shown
    assert ("Version", version) in builder_facts.details(known, None, "")


@pytest.mark.parametrize(
    ("limit_s", "duration_text"), [(45, "45 s"), (0.5, "0.5 s"), (120, "2m"), (150, "2m 30s"), (3600, "1h"), (5400, "1h 30m")]
)
def test_time_limits_of_a_builder_are_formatted_as_durations(limit_s, duration_text):
    assert builder_facts._limit(limit_s) == duration_text

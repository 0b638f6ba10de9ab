"""The keys of the Logs screen, and new lines of the engine."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from functools import partial

import pytest
from textual.widgets import Input

from aptui.core.notices import EngineMessage, LogLevel, LogRecord
from aptui.store.joblog import EngineLog
from aptui.tui.pane import PANES
from aptui.tui.screens.logs import log_reader as logs_lines
from aptui.tui.screens.logs.log_reader import LogReader, LogView, RecordLines
from aptui.tui.screens.logs.log_tabs import STANDARD, LogTab, mistake_in, parse_filter, tab_of, tabs_of, values_of
from aptui.tui.widgets.log_sources import FileLines
from tui.fake_panes import PROBES
from tui.shell_harness import LARGE, SMALL, in_shell, layouts_of, lines, script_test, text, until

pytestmark = pytest.mark.real

HERE = [PROBES[0], next(spec for spec in PANES if spec.id == "logs")]
NOW_MS = 1_790_000_000_000
E, W, I, D = LogLevel.ERROR, LogLevel.WARNING, LogLevel.INFO, LogLevel.DEBUG  # noqa: E741  # as the screen calls them  # as the screen calls them


@pytest.fixture(autouse=True)
def _frames_are_fast(monkeypatch):
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 0.003)  # With the default, the pilot sleeps 40 ms after each key.
    monkeypatch.setattr("aptui.tui.drawing.FRAME_S", 0.01)


def record(level: int, words: str, window: str = "aptui", context=()) -> LogRecord:
    return LogRecord(level, window, words, NOW_MS, context)


def folder_of(tmp_path):
    return tmp_path / "cache" / ".aptui" / "logs"


@pytest.fixture
def log(tmp_path):
    """A log of an engine with messages of every level."""
    made = EngineLog(folder_of(tmp_path), "aptui", NOW_MS)
    made.append(
        record(I, "the first line", "scan"),
        record(W, "a link to a folder is not followed"),
        record(E, "failed textures/rock.png", context=(("Chunk", "IDAT"), ("Offset", "0x12"))),
        record(D, "looked at 12 folders", "scan"),
        record(W, "no colour profile", "images"),
        record(I, "the last line"),
    )
    yield made
    made.close()


def visit(tmp_path, do: Callable, *, size=LARGE, before=None):
    """Open the Logs screen, wait for its lines, and call `do`."""

    async def main(app, pilot, session):
        await pilot.press("3")
        app.copied = []
        app.copy_text = lambda words, **_: app.copied.append(words)
        pane = app.pane
        await until(pilot, lambda: pane.pane.source.line_count() or not pane.files.path)
        await pilot.pause()
        await do(app, pilot, session, pane)
        app.pane.deactivate()  # The app does this when the user leaves the screen.
        app.memory.save()

    return in_shell(tmp_path, main, size=size, panes=HERE, before=before)


on_logs = partial(script_test, visit, ("app", "pilot", "session", "pane"))


def say(pane, name: str, rest: str = "") -> None:
    """Run a command of the screen."""
    next(command for command in pane.commands() if command.name == name).run(rest)


async def find(pilot, pane, words: str) -> None:
    """Type a filter."""
    await pilot.press("slash")
    pane.box.text = words
    await until(pilot, lambda: pane.search.text == words)


def shown(pane) -> list[str]:
    """Return the texts of the visible lines."""
    lines_here = pane.pane
    return [lines_here.source.line(lines_here._place(at)).text for at in range(lines_here.count_rows())]


async def count_is(pilot, pane, count: int) -> None:
    await until(pilot, lambda: pane.pane.count_rows() == count)


def test_standard_tabs_show_their_levels_and_the_chosen_tab_is_remembered(tmp_path, log):
    async def walk(app, pilot, _session, pane):
        assert len(shown(pane)) == 8
        await pilot.press("less_than_sign")
        await count_is(pilot, pane, 9)
        await until(pilot, lambda: "looked at 12 folders" in text(app))
        await pilot.press("greater_than_sign", "greater_than_sign")
        await count_is(pilot, pane, 3)
        await until(pilot, lambda: " Warnings/Errors▾" in lines(app)[3])
        await until(pilot, lambda: "aptui.log" in lines(app)[3])

    app = visit(tmp_path, walk)
    assert app.memory.get("logs.tab", 0) == 2


@on_logs()
async def test_click_selects_a_tab_of_the_logs_screen(app, pilot, pane, log):
    await pilot.click("#logs-tabs", offset=(lines(app)[3].index("Debug"), 0))
    await count_is(pilot, pane, 9)


@on_logs()
async def test_new_messages_appear_at_once_and_are_followed(app, pilot, session, pane, log):
    log.append(record(W, "the disk is nearly full"))
    session.say(EngineMessage(0, W, "the disk is nearly full"))
    await until(pilot, lambda: "the disk is nearly full" in text(app))
    await until(pilot, lambda: pane.pane.cursor == 8)
    await pilot.press("k", "ctrl+s")
    log.append(record(I, "one"), record(I, "two"))
    session.say(EngineMessage(0, I, "two"))
    await until(pilot, lambda: "paused, 2 new" in text(app))
    await until(pilot, lambda: "two" not in shown(pane))
    await pilot.press("ctrl+s", "f")
    await until(pilot, lambda: pane.pane.current().text == "two")


@on_logs()
async def test_pause_continues_in_another_tab_and_ends_in_another_log(app, pilot, pane, tmp_path, log):
    (folder_of(tmp_path) / "aptui.1.log").write_bytes((folder_of(tmp_path) / "aptui.log").read_bytes() * 2)
    await pilot.press("ctrl+s", "greater_than_sign")
    await count_is(pilot, pane, 3)
    await pilot.press("j", "k")
    assert pane.pane.modes().endswith("paused, 0 new")
    await pilot.press("left_square_bracket")
    await until(pilot, lambda: pane.files.path.name == "aptui.1.log" and pane.asked is None)
    assert "paused" not in pane.pane.modes()


@on_logs()
async def test_new_log_lines_cause_no_layout_of_the_screen(app, pilot, session, log):
    layouts = layouts_of(app)
    await pilot.press("j", "k")
    for word in ("one", "two", "three"):
        log.append(record(W, f"line {word}"))
        session.say(EngineMessage(0, W, f"line {word}"))
        await until(pilot, lambda word=word: f"line {word}" in text(app))
    assert layouts == []


@on_logs()
async def test_incomplete_log_line_is_completed_by_a_later_read(pilot, session, pane, tmp_path, log):
    with (folder_of(tmp_path) / "aptui.log").open("ab") as stream:
        stream.write(f"~~{NOW_MS}~~1~~1~~none~~half a ".encode())
        stream.flush()
        session.say(EngineMessage(0, I, ""))
        await until(pilot, lambda: shown(pane)[-1].startswith("half a"))
        stream.write(b"line\n")
    session.say(EngineMessage(0, I, ""))
    await until(pilot, lambda: shown(pane)[-1] == "half a line")
    await until(pilot, lambda: len(shown(pane)) == 9)


@on_logs()
async def test_rotated_log_is_replaced_by_the_new_log(app, pilot, session, pane, log):
    log._roll(NOW_MS // 1000)
    log.append(record(W, "a new file"))
    session.say(EngineMessage(0, W, "a new file"))
    await until(pilot, lambda: shown(pane) == ["a new file"])
    await pilot.press("left_square_bracket")
    await count_is(pilot, pane, 8)
    await until(pilot, lambda: "aptui.1790000000.log (1 older)" in lines(app)[3])
    await pilot.press("left_square_bracket")
    await until(pilot, lambda: "there is no older stored log" in text(app))
    await pilot.press("right_square_bracket")
    await count_is(pilot, pane, 1)
    await pilot.press("L", "j", "enter")
    await count_is(pilot, pane, 8)


@on_logs()
async def test_truncated_log_is_read_again(pilot, session, pane, tmp_path, log):
    os.truncate(folder_of(tmp_path) / "aptui.log", 0)
    session.say(EngineMessage(0, W, "x"))
    await count_is(pilot, pane, 0)


def test_logs_screen_has_keys_for_levels_errors_and_line_wrapping(tmp_path, log):
    async def jump(app, pilot, _session, pane):
        at = lambda: pane.pane.current().text  # a short name for a long expression
        await pilot.press("E")
        await until(pilot, lambda: at() == "failed textures/rock.png")
        await pilot.press("e")
        await until(pilot, lambda: at() == "failed textures/rock.png")
        await pilot.press("W")
        await until(pilot, lambda: at() == "a link to a folder is not followed")
        await pilot.press("w")
        await until(pilot, lambda: at() == "no colour profile")
        await pilot.press("I")
        await count_is(pilot, pane, 3)
        await pilot.press("I", "ctrl+w")
        await until(pilot, lambda: "wrapped" in lines(app)[3])

    app = visit(tmp_path, jump)
    assert app.memory.get("logs.wrap", False)


@on_logs()
async def test_log_search_finds_all_matches_and_keys_move_between_them(app, pilot, pane, log):
    await find(pilot, pane, "line$")
    await until(pilot, lambda: "2 of 8" in text(app))
    await until(pilot, lambda: len(shown(pane)) == 8)
    await pilot.press("enter")
    await until(pilot, lambda: pane.pane.current().text == "the last line")
    await pilot.press("N")
    await until(pilot, lambda: pane.pane.current().text == "the first line")
    await pilot.press("n", "ampersand")
    await count_is(pilot, pane, 2)
    await pilot.press("escape")
    await count_is(pilot, pane, 8)
    await until(pilot, lambda: not pane.box.display)
    await pilot.press("slash", "up")
    await until(pilot, lambda: pane.query_one(Input).value == "line$")


@on_logs()
async def test_invalid_filter_keeps_view_and_shows_position(app, pilot, pane, log):
    await find(pilot, pane, "ro(")
    await pilot.press("enter")
    await until(pilot, lambda: "unclosed group" in text(app))
    await until(pilot, lambda: len(shown(pane)) == 8)
    await pilot.press("escape")
    await until(pilot, lambda: "unclosed group" not in text(app))
    await pilot.press("slash")
    pane.box.text = "platform:pc"
    await until(pilot, lambda: "lines of a log do not have this field" in text(app))


def test_search_of_the_logs_screen_is_remembered(tmp_path, log):
    async def begin(_app, pilot, _session, pane):
        await find(pilot, pane, "rock")
        await pilot.press("enter")

    async def script(app, pilot, _session, pane):
        assert pane.box.text == "rock"
        await until(pilot, lambda: "1 of 8" in text(app))

    visit(tmp_path, begin)
    visit(tmp_path, script)


@on_logs()
async def test_context_of_line_is_shown_and_copied(app, pilot, pane, tmp_path, log):
    await pilot.press("E")
    await until(pilot, lambda: "IDAT" in text(app))
    await pilot.press("y", "y")
    await until(pilot, lambda: len(app.copied) == 1)
    await until(pilot, lambda: app.copied[0].endswith("| ERROR | origin: aptui | failed textures/rock.png"))
    await pilot.press("y", "d")
    await until(pilot, lambda: len(app.copied) == 2)
    await until(pilot, lambda: app.copied[1].endswith("rock.png\n[Chunk] = IDAT\n[Offset] = 0x12"))
    await pilot.press("tab", "j", "y", "k", "y", "y", "y", "a", "escape", "y", "p")
    await until(pilot, lambda: len(app.copied) == 6)
    await until(pilot, lambda: app.copied[2:5] == ["Offset", "0x12", "[Chunk] = IDAT\n[Offset] = 0x12"])
    await until(pilot, lambda: app.copied[5] == str(folder_of(tmp_path) / "aptui.log"))
    await until(pilot, lambda: pane.pane.has_focus)
    await pilot.press("k")
    await until(pilot, lambda: "IDAT" not in text(app))


@on_logs(size=SMALL)
async def test_line_that_is_cut_off_is_shown_whole_below_the_log(app, pilot, pane, log):
    log.append(record(I, f"{'word ' * 30}the end"))
    pane.reload()
    await pilot.press("G")
    await until(pilot, lambda: "the end" in text(app))
    assert not pane.pane.is_wrapped
    await pilot.press("ctrl+w")
    await until(pilot, lambda: not pane.query_one("#logs-details").display)
    await pilot.press("ctrl+w")
    await until(pilot, lambda: pane.query_one("#logs-details").display)
    assert next(line for line in lines(app) if "This line" in line).startswith(" ── This line ──"), (
        "the title is indented like other titles"
    )
    await pilot.press("k")
    await until(pilot, lambda: "the end" not in text(app))


@on_logs()
async def test_marked_lines_and_all_lines_are_copied(app, pilot, log):
    await pilot.press("g", "j", "j", "j", "space", "space", "y", "y")
    await until(pilot, lambda: app.copied)
    await until(
        pilot,
        lambda: (
            [row.rpartition("| ")[2] for row in app.copied[0].splitlines()]
            == [
                "the first line",
                "a link to a folder is not followed",
            ]
        ),
    )
    await pilot.press("y", "a")
    await until(pilot, lambda: len(app.copied) == 2)
    await until(pilot, lambda: len(app.copied[1].splitlines()) == 8 + 2)


def test_tabs_that_the_user_changes_on_the_logs_screen_are_remembered(tmp_path, log):
    async def make(app, pilot, _session, pane):
        await pilot.press("t", "a", *"scan", "tab", *"^scan(", "enter")
        await until(pilot, lambda: "unclosed group" in text(app))
        await pilot.press("backspace", "enter")
        await count_is(pilot, pane, 2)
        await until(pilot, lambda: " scan▾" in lines(app)[3])
        await pilot.press("t", "a", *"own", "down", "down", *"colour", "up", "up", "enter")
        await until(pilot, lambda: shown(pane) == ["no colour profile"])
        await pilot.press("t", "c", "x", "up", "backspace", "enter")
        await until(pilot, lambda: " ownx▾" in lines(app)[3])
        await until(pilot, lambda: pane.tabs.tabs[4].levels == "EWI")
        await pilot.press("t")
        await until(pilot, lambda: any(re.search(r"Move left +< ", line) for line in lines(app)))
        await pilot.press("less_than_sign")
        await until(pilot, lambda: [tab.name for tab in pane.tabs.tabs[3:]] == ["ownx", "scan"])

    async def remove(app, pilot, _session, pane):
        assert shown(pane) == ["no colour profile"]
        await pilot.press("t", "d")
        await until(pilot, lambda: "ownx" not in lines(app)[3])
        await pilot.press("t", "1")
        await count_is(pilot, pane, 9)

    visit(tmp_path, make)
    app = visit(tmp_path, remove)
    assert app.memory.get("logs.tabs", []) == [{"name": "scan", "levels": "EWID", "source": "^scan", "text": ""}]


@on_logs()
async def test_tab_form_refuses_a_used_name_and_closes_with_escape(app, pilot, pane, log):
    await pilot.press("t", "a", *"Debug", "enter")
    await until(pilot, lambda: "another tab has this name" in text(app))
    await pilot.press("s", "shift+tab", "x", "enter")
    await until(pilot, lambda: "write only the letters E, W, I and D" in text(app))
    await pilot.press("escape")
    await until(pilot, lambda: pane.pane.has_focus)
    await until(pilot, lambda: len(pane.tabs.tabs) == 3)


@on_logs()
async def test_engine_messages_are_shown_while_there_is_no_log_file(app, pilot, session, pane, tmp_path):
    await until(pilot, lambda: "no log yet in" in text(app))
    session.say(EngineMessage(0, E, "[/oops]\x1b]0;x\x07 the disk is full"))
    await until(pilot, lambda: "the disk is full" in text(app))
    await until(pilot, lambda: "\x1b" not in text(app))
    await pilot.press("y", "y")
    await until(pilot, lambda: app.copied)
    await until(pilot, lambda: "ERROR" in app.copied[0])
    EngineLog(folder_of(tmp_path), "aptui", NOW_MS).close()
    session.say(EngineMessage(0, I, "x"))
    await count_is(pilot, pane, 3)


def test_too_large_log_is_shown_unparsed_and_cannot_be_searched(tmp_path, log, monkeypatch):
    monkeypatch.setattr(logs_lines, "LARGEST_BYTES", 100)

    async def script(app, pilot, session, pane):
        await until(pilot, lambda: isinstance(pane.pane.source, FileLines))
        await until(pilot, lambda: "the last line" in text(app))
        log.append(record(I, "one more"))
        session.say(EngineMessage(0, I, "one more"))
        await until(pilot, lambda: "one more" in text(app))
        await pilot.press("y", "y")
        await until(pilot, lambda: app.copied)
        await find(pilot, pane, "x")
        await until(pilot, lambda: "too large to search here" in text(app))

    visit(tmp_path, script)


@on_logs()
async def test_menu_and_commands_of_the_logs_screen_do_the_same_as_its_keys(app, pilot, pane, log):
    await pilot.press("full_stop", "slash")
    pane.box.text = "rock"
    await pilot.press("enter", "full_stop", "ampersand")
    await count_is(pilot, pane, 1)
    say(pane, "tab", "Debug")
    await pilot.press("escape")
    await count_is(pilot, pane, 9)
    say(pane, "new-tab")
    await pilot.press("escape")
    say(pane, "older-log")
    await pilot.press("escape", "o")
    await until(pilot, lambda: "cannot be started in this terminal" in text(app))
    await pilot.press("i")
    await until(pilot, lambda: "aptui.log" in text(app))
    await pilot.press("escape", "ctrl+l")
    await count_is(pilot, pane, 9)


@pytest.mark.parametrize("size", [(80, 24), (1, 1)])
@on_logs()
async def test_logs_screen_works_at_every_size(pilot, pane, log, size):
    await pilot.press("E", "slash", "r", "enter", "t", "escape", "ctrl+w", "y", "escape")

    await until(pilot, pane.pane.count_rows)


# ── tests without a screen ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "hits"),
    [
        ("rock", [1]), ("ROCK", [1]), ("(?-i)Rock", []),
        ("!rock", [0, 2]), ("source:scan", [0]), ("status:err", [1]), ("error", [1]),
        ("failed", [1, 2]),
        ('"a b"', [2]), ("rock source:scan", []), ("warning", [2]),
    ],
)  # fmt: skip
def test_filter_language_matches_text_source_and_level(words, hits):
    mask = parse_filter(words).masks(["a scan", "rock failed", "failed a b"], ["scan", "aptui", "aptui"], "IEW")

    assert [at for at, is_hit in enumerate(mask.tolist()) if is_hit] == hits


def test_filter_on_an_empty_list_of_texts_has_no_match():
    found = parse_filter("data -warn source:game")

    assert found.passing([]) == []
    assert found.masks([], [], "").tolist() == []


def test_spans_of_filter_matches_count_characters():
    assert parse_filter("ö !x").spans_of("für öde Öfen") == ((4, 5),)
    assert parse_filter("source:x").spans_of("x") == ()


def test_invalid_remembered_tabs_are_dropped():
    own = LogTab("mine", "WE", "scan", "rock", is_own=True)

    valid_tabs = tabs_of(
        [*values_of([*STANDARD, own]), {"name": 1}, "x", {"name": "bad", "levels": "E", "source": "(", "text": ""}]
    )

    assert valid_tabs == [own]
    assert mistake_in(tab_of({"name": "a" * 25, "levels": "", "source": "", "text": ""}))[0] == "name"
    assert mistake_in(LogTab("a", "", "", ""))[0] == "levels"
    assert mistake_in(LogTab("a", "E", "", "x("))[0] == "text"
    assert mistake_in(LogTab("a", "E", 'say "x"', "")) is None


@on_logs()
async def test_key_after_search_waits_for_the_search_result(app, pilot, pane, log):
    continues_run, serve = threading.Event(), pane._reader._serve
    pane._reader._serve = lambda *wanted, **how: continues_run.wait(20) and serve(*wanted, **how)
    assert app.keyboard.name_awaited("y") == ""
    await pilot.press("slash", *"first")
    assert app.keyboard.name_awaited("y") == "", "a key typed into the search field waits for nothing"
    await pilot.press("enter")
    assert pane.pane.has_focus
    assert (app.keyboard.name_awaited("y"), app.keyboard.name_awaited("q")) == ("the search", "")
    continues_run.set()
    await until(pilot, lambda: app.keyboard.name_awaited("y") == "")
    assert pane.pane.current().text == "the first line"
    await pilot.press("slash", *"first(", "enter")
    await until(pilot, lambda: app.keyboard.name_awaited("y") == "")


def test_end_of_a_long_log_is_delivered_before_the_whole_log(tmp_path):
    path = tmp_path / "aptui.log"
    path.write_bytes(b"".join(b"~~%d~~%d~~1~~aptui~~line %d of many\r\n" % (NOW_MS, at % 4, at) for at in range(20_000)))
    reader = LogReader(lambda: None)
    rows = RecordLines()
    pieces = []

    reader._serve(logs_lines._ParsedView(LogView(path), parse_filter(""), parse_filter("7777")), is_new=True)
    for piece in reader.pop():
        pieces.append(piece.is_whole)
        rows.add(piece)
    reader.close()

    assert pieces == [False, True]
    assert rows.line_count() == 20_000
    assert rows.line(7777).text == "line 7777 of many"
    assert list(rows.hits) == [rows.key(at) for at in (7777, 17777)]
    assert rows.next_of(5, "E", 1) == 7
    assert rows.next_of(5, "EW", -1) == 3
    assert rows.of_levels("E")[:2] == [3, 7]
    assert rows.index_of(rows.key(19_999)) == 19_999
    assert rows.index_of(1) is None

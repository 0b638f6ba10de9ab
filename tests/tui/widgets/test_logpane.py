"""Logs: levels, follow, wrapping, hits, and the sources of lines."""

import os

import pytest

from aptui.tui.widgets.log_sources import BLOCK_BYTES, LINE_BYTES, FileLines, LogPaneLine, MemoryLines
from aptui.tui.widgets.logpane import LogPane
from tests.tui.widgets.widgets_harness import lines_of, play

from .views_harness import log

pytestmark = pytest.mark.real


@pytest.fixture
def big(tmp_path):
    path = tmp_path / "big.log"
    lines = [f"{at} {'x' * (at * 7919 % 300)}" for at in range(9000)]
    path.write_text("\n".join(lines) + "\n")
    return path, lines


def test_error_and_warning_keys_move_cursor():
    pane = LogPane(MemoryLines(log(*"IEIWIEW")))

    async def script(app, pilot):
        assert pane.go_to_first_error()
        at = []
        for key in ("e", "e", "E", "E", "w", "w", "W"):
            await pilot.press(key)
            at.append(pane.cursor)
        assert at == [5, 5, 1, 1, 3, 6, 3]
        assert pane.current().has_details

    play(pane, script)


def test_hiding_other_levels_keeps_the_cursor_on_its_line():
    source = MemoryLines(log(*"IDEIDW"))
    pane = LogPane(source)

    async def script(app, pilot):
        await pilot.press("j", "j", "H", "I")
        assert (pane.count_rows(), pane.cursor, pane.current().level) == (2, 0, "E")
        assert pane.modes() == "without infos and debug lines"
        await pilot.press("I", "H")
        assert (pane.count_rows(), pane.cursor) == (6, 2)

    play(pane, script)


def test_cursor_follows_new_log_lines_but_pause_hides_new_lines():
    source = MemoryLines(log(*"I" * 50))
    pane = LogPane(source)

    async def script(app, pilot):
        await pilot.press("f")
        source.add(log(*"I" * 10))
        pane.refresh_source()
        assert pane.cursor == 59
        await pilot.press("k", "ctrl+s")
        source.add(log(*"IE"))
        pane.refresh_source()
        assert pane.count_rows() == 60
        assert pane.modes() == "paused, 2 new"
        await pilot.press("ctrl+s", "G")
        assert pane.current().level == "E"

    play(pane, script)


def test_pause_hides_only_lines_that_are_newer_than_its_start():
    source = MemoryLines(log(*"IIIEIIIE"))
    pane = LogPane(source)

    async def script(app, pilot):
        await pilot.press("I", "ctrl+s")
        assert pane.modes() == "without infos  paused, 0 new"
        source.add(log(*"IEI"))
        pane.refresh_source()
        assert (pane.count_rows(), pane.modes()) == (2, "without infos  paused, 1 new")
        await pilot.press("I")
        assert (pane.count_rows(), pane.modes()) == (8, "paused, 3 new")

    play(pane, script)


def test_paused_log_accepts_keys_after_lines_were_removed():
    source = MemoryLines(log(*"I" * 60))
    pane = LogPane(source)

    async def script(app, pilot):
        await pilot.press("G", "ctrl+s")
        source.show_only([1, 2, 3])
        pane.refresh_source()
        await pilot.press("k")
        assert (pane.count_rows(), pane.cursor_key) == (3, 2)

    play(pane, script)


def test_wrapped_lines_show_all_text_and_keep_cursor_visible():
    source = MemoryLines(LogPaneLine("", "E", "", f"{at} " + "word " * (at * 7 % 60)) for at in range(60))
    pane = LogPane(source)

    async def script(app, pilot):
        await pilot.press("ctrl+w")
        for key in ["j"] * 6 + ["pagedown", "G", "k", "pageup", "g", "G"]:
            await pilot.press(key)
            rows = [index for index, _ in pane.row_lines.lay_out()]
            assert pane.cursor in rows, key
        assert any(line.startswith("▌") for line in lines_of(pane))
        await pilot.press("ctrl+w")
        assert pane.cursor == 59

    play(pane, script, size=(40, 10))


def test_line_that_is_cut_ends_with_an_ellipsis():
    pane = LogPane(MemoryLines([LogPaneLine("", "E", "", "x" * 16_384), LogPaneLine("", "E", "", "x" * 16_384 + "end")]))

    async def script(app, pilot):
        assert pane.cut_text() == "x" * 16_384
        await pilot.press("j")
        assert pane.cut_text() == "x" * 16_384 + "…"
        await pilot.press("ctrl+w")
        assert "xxx…" in "".join(lines_of(pane))

    play(pane, script, size=(200, 100))


def test_long_line_of_wide_characters_in_a_file_ends_with_an_ellipsis(tmp_path):
    (tmp_path / "long.log").write_text("\U0001f600" * 70_000)
    pane = LogPane(source := FileLines(tmp_path / "long.log"))
    source.index()

    async def script(app, pilot):
        assert pane.cut_text().endswith("\U0001f600…")

    play(pane, script)
    source.close()


def test_log_search_highlights_hits_and_steps_through_them():
    pane = LogPane(MemoryLines(log(*"I" * 30)))

    async def script(app, pilot):
        pane.set_search(lambda text: ((0, 4),) if text.endswith("2") else (), [2, 12, 22])
        at = []
        for key in ("n", "n", "n", "n", "N"):
            await pilot.press(key)
            at.append(pane.cursor)
        assert at == [2, 12, 22, 22, 12]
        await pilot.press("v", "j", "v")
        assert len(pane.marks.list_selected()) == 2

    play(pane, script)


def test_log_file_shows_its_end_before_all_lines(big):
    path, lines = big
    assert path.stat().st_size > 4 * BLOCK_BYTES
    source = FileLines(path)
    tail = source.line_count()
    key = source.key(tail - 3)
    assert 0 < tail < len(lines)
    assert [source.line(tail - at).text for at in (1, 2, 3)] == lines[-1:-4:-1]

    assert source.index()

    assert source.line_count() == len(lines)
    assert source.index_of(key) == len(lines) - 3
    for index in [*range(0, 9000, 97), 8999]:
        assert source.line(index).text == lines[index]
        assert source.index_of(source.key(index)) == index
    assert len(source._counts) * 8 < 100
    source.close()


def test_growing_or_truncated_log_file_is_followed(big):
    path, lines = big
    source = FileLines(path)
    source.index()
    assert not source.has_changed()

    with path.open("a") as stream:
        stream.write("one more\nand an open one")
    assert source.has_changed()
    source.index()
    assert [source.line(source.line_count() - at).text for at in (2, 1)] == ["one more", "and an open one"]
    assert source.line(17).text == lines[17]

    os.truncate(path, 10)
    assert source.line(8000).text == ""
    assert source.has_changed()
    source.index()
    assert source.line_count() == len(path.read_text().splitlines())
    source.close()


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "\n\n\n", "a\nb", "x" * BLOCK_BYTES + "\n" + "y", ("z" * 63 + "\n") * 8192])
def test_unusual_log_files_have_the_expected_lines(tmp_path, text):
    path = tmp_path / "odd"
    path.write_text(text)
    source = FileLines(path)
    source.index()

    assert source.line_count() == len(text.splitlines())
    for index in {0, source.line_count() // 2, source.line_count() - 1} if text else ():
        assert source.raw(index).decode() == text.splitlines()[index][:LINE_BYTES] or len(text.splitlines()[index]) > LINE_BYTES
        assert source.index_of(source.key(index)) == index
    source.close()

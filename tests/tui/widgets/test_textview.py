"""Previews of texts and binary files."""

import os

import pytest

from aptui.tui.widgets.textview import LINE_CHARS, TextView, make_preview, read_preview
from tests.tui.widgets.widgets_harness import lines_of, play

pytestmark = pytest.mark.real


def test_preview_of_code_is_coloured_and_numbered_and_has_a_maximum_size(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("# [/oops]\nimport os\n" + "x = 1\n" * 100_000)
    view = TextView()

    async def script(app, pilot):
        view.show_preview(read_preview(path))
        await pilot.pause()
        assert "1  # [/oops]" in lines_of(view)[0]
        assert view.title().startswith("python  the first ")
        assert 20_000 < view.count_rows() < 50_000
        assert view.text_of(1) == "import os"
        assert {role for _, role in view._preview.lines[1]} >= {"accent"}
        await pilot.press("G", "right", "left", "g")

    play(view, script)


def test_preview_shows_binary_as_hex_and_explains_unreadable_file(tmp_path):
    assert make_preview(b"\x89PNG\r\n\x1a\n\0\0", "a.png").kind == "binary"
    assert make_preview(b"\x89PNG\r\n\x1a\n\0\0", "a.png").lines[0][2][0] == ".PNG......"
    assert make_preview("caf\xe9".encode("latin-1"), "a.txt").lines[0][0][0] == "caf\\xe9"
    assert make_preview("ä".encode("utf-16"), "a.xyz").lines[0][0][0] == "ä"
    assert make_preview(b"", "a").kind == "empty"
    assert "no such file" in read_preview(tmp_path / "none").lines[0][0][0]
    os.mkfifo(tmp_path / "pipe")
    assert read_preview(tmp_path / "pipe").kind in {"empty", "not readable"}


@pytest.mark.parametrize("name", ["a.json", "a.unknown"])
def test_line_that_is_too_long_is_cut_at_its_end_with_an_ellipsis(name):
    line = '{"data": "' + "A" * LINE_CHARS + '", "x": 1}'

    (pieces, second) = make_preview(f"{line}\n[]\n".encode(), name).lines

    assert "".join(text for text, _ in pieces) == f"{line[:LINE_CHARS]}…"
    assert "".join(text for text, _ in second) == "[]"

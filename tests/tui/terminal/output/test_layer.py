"""Frames are sent when the line is free; other output passes, and changed cells are repaired."""

import pytest
from rich.segment import Segment
from rich.style import Style

from aptui.tui.terminal import safety
from tests.tui.terminal.output.room import SideBySide, picture


def text(*lines: str):
    return picture([[Segment(line.ljust(12))] for line in lines])


def draw(screen: SideBySide, *lines: str) -> str:
    """Draw without replies of the terminal; return the output."""
    screen.sent.clear()
    screen.layer.show(text(*lines), screen.console, screen.size, (0, 0))
    return "".join(screen.sent)


def test_frames_are_merged_while_the_line_is_busy():
    screen = SideBySide(12, 2)
    screen.show(text("one", ""))
    assert "two" in draw(screen, "two", "")
    assert [draw(screen, f"news {number}", "") for number in range(50)] == [""] * 50

    screen.answer()

    assert "".join(screen.sent).count("\x1b[6n") == 1
    assert screen.ours.display[0].startswith("news 49")


def test_key_is_echoed_while_an_update_is_under_way():
    screen = SideBySide(12, 2)
    screen.show(text("", ""))
    draw(screen, "news", "")

    screen.layer.note_key()

    assert "key" in draw(screen, "news", "key")
    assert draw(screen, "more", "key") == ""


def test_lost_reply_delays_frames_only_until_a_timeout():
    screen = SideBySide(12, 1)
    screen.show(text("one"))
    draw(screen, "two")
    screen.ours.answers.clear()
    assert draw(screen, "three") == ""

    screen.loop.run(2.5)

    assert screen.ours.display[0].startswith("three")


def test_no_frame_is_sent_while_the_terminal_is_blocked():
    screen = SideBySide(12, 1, answers=False)
    draw(screen, "one")
    screen.is_taken = False
    assert draw(screen, "two") == ""

    screen.is_taken = True
    screen.layer.wake()
    screen.loop.run()

    assert screen.ours.display[0].startswith("two")


def test_idle_output_layer_sends_nothing():
    screen = SideBySide(12, 1)
    screen.show(text("one"))
    screen.sent.clear()

    for _ in range(5):
        screen.loop.run(60)

    assert (screen.sent, screen.loop.timers) == ([], 0)


@pytest.mark.parametrize(
    "data",
    [
        "\x1b]52;c;QUJD\x07",
        "\x1b]0;title\x1b\\",
        "\x07",
        "\x1b[?1000h\x1b[?1002h\x1b[?1006h",
        "\x1b[?25l",
        "\x1b[>1u",
        "\x1b[?2026$p",
        "\x1bP\x1b]52;c;QUJD\x1b\\\x1bP\x07\x1b\\",
    ],
)
def test_output_that_cannot_change_cells_causes_no_redraw(data):
    screen = SideBySide(12, 1)
    screen.show(text("one"))

    screen.layer.beside(data)
    screen.loop.run()

    assert "".join(screen.sent).count("one") <= 1
    assert screen.show(text("one")) == ""


@pytest.mark.parametrize("data", ["\x1b[2J", "oops", "\x1b[5;5Hx", "\x1b_Ga=T;AAAA\x1b\\", "\x1bPq#0~\x1b\\"])
def test_output_that_may_change_cells_causes_a_full_redraw(data):
    screen = SideBySide(12, 1)
    screen.show(text("one"))
    screen.sent.clear()

    screen.layer.beside(data)
    screen.loop.run()

    assert "one" in "".join(screen.sent)


def test_reopened_terminal_is_redrawn_and_left_with_a_plain_pen():
    screen = SideBySide(12, 1)
    screen.show(picture([[Segment("red".ljust(12), Style(color="red"))]]))
    screen.sent.clear()

    screen.layer.close()

    assert screen.sent == ["\x1b[m"]
    assert not screen.layer.show(text("away"), screen.console, screen.size, (0, 0))
    screen.layer.open()
    screen.layer.show(text("back"), screen.console, screen.size, (0, 0))
    screen.answer()
    assert screen.ours.display[0].startswith("back")


def test_synchronized_output_is_used_if_supported():
    screen = SideBySide(12, 1)
    screen.layer.is_synchronized = True

    sent = screen.show(text("one"))

    assert sent.startswith("\x1b[?2026h")
    assert sent.endswith("\x1b[?2026l\x1b[6n")


def test_layer_sends_hostile_text_in_a_harmless_form():
    safety.install(safety.TerminalFacts())
    screen = SideBySide(40, 1)

    evil = "\x1b]52;c;QQ==\x07\x9d0;a\x9c\u202e\x7f"
    sent = screen.show(picture([[Segment(evil.ljust(30)), Segment(evil, Style(link=f"https://a/{evil}"))]]))

    assert "␛\x1b[2G]52;c;QQ==␇" in sent
    assert "\x1b]" not in sent
    assert not set("\x07\x9d\x9c\u202e\x7f") & set(sent)


def test_output_layer_refuses_an_update_of_an_unknown_type():
    screen = SideBySide(12, 1)

    assert not screen.layer.show("text", screen.console, screen.size, (0, 0))

"""Frames are sent when the connection is free. If other output may have changed cells, the whole screen is drawn again."""

import pytest
from rich.segment import Segment
from rich.style import Style

from aptui.tui.terminal import safety
from aptui.tui.terminal.pixels import PixelPicture, placeholder
from tests.tui.terminal.output.harness import SideBySide, picture, pieces


def text(*lines: str):
    return picture([[Segment(line.ljust(12))] for line in lines])


def draw(screen: SideBySide, *lines: str) -> str:
    """Draw without replies of the terminal; return the output."""
    screen.sent.clear()
    screen.layer.show(text(*lines), screen.console, screen.size, (0, 0))
    return "".join(screen.sent)


def test_frames_are_merged_while_the_connection_is_busy():
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

    screen.layer.pace.note_key()

    assert "key" in draw(screen, "news", "key")
    assert draw(screen, "more", "key") == ""


def test_lost_reply_of_the_terminal_delays_frames_only_until_a_timeout():
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
def test_bytes_that_cannot_change_cells_cause_no_redraw(data):
    screen = SideBySide(12, 1)
    screen.show(text("one"))

    screen.layer.note_other_output(data)
    screen.loop.run()

    assert "".join(screen.sent).count("one") <= 1
    assert screen.show(text("one")) == ""


@pytest.mark.parametrize("data", ["\x1b[2J", "oops", "\x1b[5;5Hx", "\x1b_Ga=T;AAAA\x1b\\", "\x1bPq#0~\x1b\\"])
def test_bytes_that_may_change_cells_cause_a_full_redraw(data):
    screen = SideBySide(12, 1)
    screen.show(text("one"))
    screen.sent.clear()

    screen.layer.note_other_output(data)
    screen.loop.run()

    assert "one" in "".join(screen.sent)


def test_closing_the_output_layer_resets_the_text_style_and_reopening_redraws():
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


def test_update_of_an_unknown_type_is_refused_by_the_output_layer():
    screen = SideBySide(12, 1)

    assert not screen.layer.show("text", screen.console, screen.size, (0, 0))


# The tests below are about pictures that are sent as pixels.

SIXEL, KITTY = PixelPicture(20, 3, 2, "\x1bPqA\x1b\\"), PixelPicture(30, 3, 2, "\x1b_Gi=30;A\x1b\\", "\x1b_Ga=d\x1b\\")


def with_picture(shown, above: str = "", y: int = 1, lines: int = 5):
    """Return an update with a picture in the first columns."""
    rows = {y + row: row for row in range(shown.rows)}
    cells = "".join(chr(safety.FIRST_COLUMN + column) for column in range(shown.columns))
    styles = [Style.parse("red on #101418") + Style.from_meta({safety.PICTURE: (shown.number, row)}) for row in range(2)]
    return picture([
        [Segment(cells, styles[rows[at]]), Segment("."), Segment(" " * 8)] if at in rows else [Segment(above.ljust(12))]
        for at in range(lines)
    ])  # fmt: skip


def test_sixel_is_sent_again_after_its_cells_were_covered():
    screen = SideBySide(12, 5)
    screen.layer.add_picture(SIXEL)

    screen.layer.show(with_picture(SIXEL), screen.console, screen.size, (5, 0))
    assert screen.ours.pixels == [(0, 1, SIXEL.data)]
    assert screen.ours.display[1:3] == ["   .        "] * 2
    assert screen.ours.cursor == (5, 0)
    screen.answer()
    screen.layer.show(with_picture(SIXEL, "news"), screen.console, screen.size, (5, 0))
    assert len(screen.ours.pixels) == 1, "the picture is not sent again if only other cells change"
    screen.answer()
    screen.layer.show(pieces(5, 12, [(2, 1, [Segment("menu")])]), screen.console, screen.size, (5, 0))
    assert screen.ours.display[2] == " menu       "
    assert len(screen.ours.pixels) == 1, "a covered picture is not sent"
    screen.answer()
    screen.layer.show(with_picture(SIXEL, "news"), screen.console, screen.size, (5, 0))
    assert screen.ours.pixels[1:] == [(0, 1, SIXEL.data)]
    screen.answer()
    screen.layer.forget()
    screen.loop.run()
    assert len(screen.ours.pixels) == 3, "redrawing the whole screen sends the picture again"


def test_sixel_in_the_last_line_is_not_sent_because_the_screen_would_scroll():
    screen = SideBySide(12, 5)
    screen.layer.add_picture(SIXEL)

    screen.layer.show(with_picture(SIXEL, y=3), screen.console, screen.size, (0, 0))

    assert screen.ours.pixels == []


def test_lines_are_not_scrolled_while_a_sixel_is_shown():
    lines = [f"line {number} with a text" for number in range(30)]
    counts = []
    for shown in (None, SIXEL):
        screen = SideBySide(24, 20)
        if shown is not None:
            screen.layer.add_picture(shown)
        for first in (0, 1):
            screen.sent.clear()
            screen.layer.show(
                picture([[Segment(each.ljust(24))] for each in lines[first : first + 20]]), screen.console, screen.size, (0, 0)
            )
            screen.answer()
        counts.append("".join(screen.sent).count("\x1b[r"))

    assert counts == [1, 0]


def test_kitty_picture_is_stored_before_its_placeholders_and_removed_at_the_end():
    screen = SideBySide(12, 5)

    screen.layer.add_picture(KITTY)
    assert screen.ours.pixels == [(0, 0, KITTY.data)]
    screen.answer()
    sent = "".join(screen.sent)
    screen.layer.show(with_picture(KITTY), screen.console, screen.size, (0, 0))
    frame = "".join(screen.sent)[len(sent) :]
    assert [placeholder(row, column) in frame for row in range(2) for column in range(3)] == [True] * 6
    assert "38;5;30;48;2;16;20;24m" in frame, "kitty reads the number of the picture from the text colour"
    screen.layer.restore_pictures()
    assert [data for *_, data in screen.ours.pixels] == [KITTY.data] * 2
    screen.layer.close()
    assert screen.ours.pixels[-1][2] == KITTY.removal
    screen.layer.open()
    assert screen.ours.pixels[-1][2] == KITTY.data, "the picture is sent again, because another program may have used the terminal"
    screen.layer.remove_picture(30)
    assert screen.ours.pixels[-1][2] == KITTY.removal
    screen.layer.close()
    assert len(screen.ours.pixels) == 5


def test_picture_numbers_are_valid_colours_and_consecutive():
    layer = SideBySide(12, 5).layer
    numbers = [layer.new_number() for _ in range(300)]

    assert len(set(numbers)) == 240
    assert (min(numbers), max(numbers)) == (16, 255)


def test_picture_placeholders_in_foreign_text_are_made_harmless():
    screen = SideBySide(12, 1)
    evil = f"{chr(safety.FIRST_COLUMN)}{placeholder(0, 0)}x"

    sent = screen.show(picture([[Segment(evil), Segment(evil, Style(bold=True))]]))

    assert not any(ord(each) >= safety.FIRST_COLUMN for each in sent)

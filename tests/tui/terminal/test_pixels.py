"""Pixels are used only if the terminal's answers allow them. The escape sequences that are sent contain the picture."""

import base64
import os
import pty
import re
import zlib
from contextlib import closing
from fcntl import ioctl
from struct import pack
from termios import TIOCSWINSZ

import numpy as np
import pytest

from aptui.tui.terminal.pixels import NUMBERS, PixelQuestion, PixelScreen, Protocol, encode, placeholder, read_cell

XTERM = {"TERM": "xterm-256color"}
CELL, KIND, SIXEL_KIND = "\x1b[6;18;9t", "\x1b[?62;22c", "\x1b[?62;4;22c"
KITTY_OK = "\x1b_Gi=31;OK\x1b\\"
KITTY, SIXEL = PixelScreen(Protocol.KITTY, (9, 18)), PixelScreen(Protocol.SIXEL, (9, 18))


def name(text: str) -> str:
    return f"\x1bP>|{text}\x1b\\"


def found(*pieces: str, environ=XTERM, window=(0, 0)):
    question = PixelQuestion(environ)
    for piece in pieces:
        assert question.take_answers(piece) == ("", "")
    return question.find_screen(window)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (KITTY_OK + name("kitty(0.35.2)") + CELL + KIND, KITTY),
        (KITTY_OK + name("ghostty 1.1.3") + CELL + KIND, KITTY),
        (KITTY_OK + name("kitty(0.26.5)") + CELL + KIND, None),  # this version of kitty has no placeholders
        (KITTY_OK + name("WezTerm 20240203-110809-5046fc22") + CELL + SIXEL_KIND, SIXEL),
        (name("foot(1.16.2)") + CELL + "\x1b[?1;0;1024S" + SIXEL_KIND, SIXEL),
        (name("XTerm(379)") + CELL + "\x1b[?1;0;16S" + SIXEL_KIND, PixelScreen(Protocol.SIXEL, (9, 18), 16)),
        (name("XTerm(379)") + CELL + "\x1b[?1;3S" + SIXEL_KIND, SIXEL),
        (
            name("kitty(0.35.2)") + CELL + KIND,
            None,
        ),  # the name alone is not enough: the terminal did not confirm the kitty protocol
        ("\x1b_Gi=31;ENOTSUP\x1b\\" + name("kitty(0.35.2)") + CELL + KIND, None),
        (CELL + KIND, None),
        (SIXEL_KIND, None),  # the size of a cell is unknown
        ("", None),
    ],
)
def test_terminal_answers_decide_whether_pixels_are_used(answers, expected):
    assert found(answers) == expected


def test_window_size_has_precedence_over_the_answer_about_the_cell_size():
    assert found(SIXEL_KIND, window=(9, 18)) == SIXEL
    assert found(CELL, SIXEL_KIND, window=(1, 1)) == SIXEL


def test_cell_size_is_computed_from_the_window_size():
    one, other = pty.openpty()
    with closing(os.fdopen(one, "rb")), closing(os.fdopen(other, "rb")):
        assert read_cell(other) == (0, 0)
        ioctl(other, TIOCSWINSZ, pack("HHHH", 40, 100, 900, 720))
        assert read_cell(other) == (9, 18)
    assert read_cell(other) == (0, 0)


def test_replies_of_the_terminal_in_pieces_are_not_typed_keys():
    question = PixelQuestion(XTERM)

    assert question.take_answers(f"j{KITTY_OK}k{CELL}") == ("jk", "")
    assert question.take_answers("x\x1bP>|kit") == ("x", "\x1bP>|kit")
    assert question.take_answers("\x1bP>|kitty(0.35.2)\x1b") == ("", "\x1bP>|kitty(0.35.2)\x1b")
    assert not question.is_answered
    assert question.take_answers(f"{name('kitty(0.35.2)')}{KIND[1:]}q") == ("q", "")
    assert question.is_answered
    assert question.find_screen() == KITTY


@pytest.mark.parametrize(
    "environ", [{"TERM": "screen", "STY": "1.tty"}, {"TERM": "linux"}, {"TERM": "dumb"}, {}, {"TERM": "tmux-256color"}]
)
def test_terminal_that_cannot_answer_is_not_asked(environ):
    assert not PixelQuestion(environ).is_possible


def test_tmux_is_asked_only_questions_that_it_answers_itself():
    question = PixelQuestion({"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0"})

    assert question.is_possible
    assert PixelQuestion(XTERM).text.endswith(question.text)
    assert "_G" not in question.text, "tmux would read this sequence as a title"


@pytest.mark.real
@pytest.mark.parametrize(
    ("clients", "passes_on", "kind", "expected"),
    [
        ("kitty(0.35.2)\tRGB", "on", KIND, PixelScreen(Protocol.KITTY, (9, 18), is_wrapped=True)),
        ("kitty(0.35.2)\tRGB", "off", KIND, None),
        ("kitty(0.35.2)\tRGB\nXTerm(379)\t256", "all", KIND, None),  # tmux has two clients; XTerm has no pixels
        ("XTerm(379)\t256,sixel", "off", SIXEL_KIND, SIXEL),
        ("XTerm(379)\t256", "off", SIXEL_KIND, None),
        ("XTerm(379)\t256,sixel", "off", KIND, None),
        ("", "on", SIXEL_KIND, None),
    ],
)
def test_terminals_of_tmux_clients_decide_whether_pixels_are_used(tmp_path, clients, passes_on, kind, expected):
    program = tmp_path / "tmux"
    program.write_text(f"#!/bin/sh\ncase $1 in list-clients) printf '{clients}\\n';; *) echo {passes_on};; esac\n")
    program.chmod(0o755)
    environ = {"TERM": "tmux-256color", "TMUX": "x", "TMUX_PANE": "%1", "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    assert found(CELL + kind, environ=environ) == expected


# The tests below decode the output of the encoders with small decoders.

COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [0, 0, 0]], np.uint8)


def image(height: int = 36, width: int = 27) -> np.ndarray:
    """Return a picture in five colours: horizontal bands on the left, noise on the right."""
    down, across = np.mgrid[:height, :width]
    return COLOURS[np.where(across < 12, down // 7, down * 7 + across * across * 3) % 5]


def decode_sixel(text: str) -> np.ndarray:
    head = re.fullmatch(r'\x1bP0;1;0q"1;1;(\d+);(\d+)(.*)\x1b\\', text, re.DOTALL)
    assert head
    pixels = np.full((-(-int(head[2]) // 6) * 6, int(head[1]), 3), 99, np.uint8)
    palette, colour, x, y = {}, 0, 0, 0
    for set_colour, number, red, green, blue, count, data in re.findall(
        r"(#)(\d+)(?:;2;(\d+);(\d+);(\d+))?|(?:!(\d+))?([?-~$-])", head[3]
    ):
        if set_colour:
            colour = int(number)
            if red:
                palette[colour] = [round(int(each) * 2.55) for each in (red, green, blue)]
        elif data == "$":
            x = 0
        elif data == "-":
            x, y = 0, y + 6
        else:
            end = x + int(count or 1)
            for bit in range(6):
                if ord(data) - 63 >> bit & 1:
                    pixels[y + bit, x:end] = palette[colour]
            x = end
    return pixels[: int(head[2])]


def test_decoded_sixel_equals_the_picture():
    picture = encode(image(), 20, SIXEL)

    assert (picture.columns, picture.rows, picture.removal) == (3, 2, "")
    assert (decode_sixel(picture.data) == image()).all()
    assert "!" in picture.data, "equal pixels are encoded as runs"
    assert picture.data.isprintable() is False
    assert re.fullmatch(r"\x1bP[ -~]*\x1b\\", picture.data)


def test_sixel_with_few_colours_is_dithered():
    smooth = np.repeat(np.linspace(0, 255, 27).astype(np.uint8)[None, :, None], 36, 0).repeat(3, 2)

    shown = decode_sixel(encode(smooth, 20, PixelScreen(Protocol.SIXEL, (9, 18), 4)).data)

    assert len(np.unique(shown.reshape(-1, 3), axis=0)) <= 4
    assert abs(float(shown.mean()) - float(smooth.mean())) < 12


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_kitty_stores_the_picture_for_placeholders(is_wrapped):
    noise = np.random.default_rng(1).integers(0, 255, (180, 90, 3), np.uint8)

    picture = encode(noise, 77, PixelScreen(Protocol.KITTY, (9, 18), is_wrapped=is_wrapped))

    data, removal = picture.data, picture.removal
    if is_wrapped:
        parts = re.findall(r"\x1bPtmux;((?:[^\x1b]|\x1b\x1b)*)\x1b\\", data + removal)
        *data, removal = (part.replace("\x1b\x1b", "\x1b") for part in parts)
        assert len(data) > 10, "each part of the picture is wrapped for tmux separately"
        data = "".join(data)
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", data)
    keys = dict(each.split("=") for each in parts[0][0].split(","))
    assert keys == {
        "a": "T",
        "U": "1",
        "i": "77",
        "c": "10",
        "r": "10",
        "f": "24",
        "s": "90",
        "v": "180",
        "o": "z",
        "q": "2",
        "m": "1",
    }
    assert [each.split(",")[0] for each, _ in parts[1:]] == ["m=1"] * (len(parts) - 2) + ["m=0"]
    assert max(len(part) for _, part in parts) == 4096
    assert zlib.decompress(base64.b64decode("".join(part for _, part in parts))) == noise.tobytes()
    assert removal == "\x1b_Ga=d,d=I,i=77,q=2\x1b\\"


def test_placeholder_contains_its_row_and_column():
    assert (len(NUMBERS), len(set(NUMBERS))) == (297, 297)
    assert placeholder(0, 1) == "\U0010eeee\u0305\u030d"
    assert placeholder(255, 0) == "\U0010eeee\ua8e5\u0305"

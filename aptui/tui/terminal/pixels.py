"""Pictures as pixels: asks the terminal whether it can show them, and makes the sequences of its protocol.

Two protocols are used: sixel, and the kitty graphics protocol with Unicode placeholders. The terminal's answers select the
protocol, not the name in TERM. A placeholder is a text cell that shows a part of a picture. Therefore menus, scrolling and tmux
move and cover a picture in the same way as text. tmux passes the picture itself on if its option `allow-passthrough` is set.
"""

from __future__ import annotations

import base64
import fcntl
import re
import struct
import subprocess
import termios
import zlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.tui.terminal.safety import prepare_terminal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Image = NDArray[np.uint8]
    """Red, green and blue as (height, width, 3)."""


class Protocol(StrEnum):
    """The protocols for pixels."""

    KITTY = "kitty"
    SIXEL = "sixel"


class PixelScreen(Struct, frozen=True):
    """A terminal that shows pixels.

    Args:
        cell: width and height of a cell (pixels).
        colours: maximum number of colours of a sixel picture.
        is_wrapped: whether sequences are wrapped so that tmux passes them on.
    """

    protocol: Protocol
    cell: tuple[int, int]
    colours: int = 256
    is_wrapped: bool = False


# ----------------------------------------------------------------------------------- queries about pixels and their answers

_PROBE = 31
"""Number of the test picture that asks the terminal whether it supports kitty graphics; the terminal does not store it."""
_KITTY_QUESTION = f"\x1b_Gi={_PROBE},s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[>q"
_CELL_QUESTION, _COLOUR_QUESTION, _LAST_QUESTION = "\x1b[16t", "\x1b[?1;1;0S", "\x1b[c"
"""Questions for the size of a cell, the number of colours, and the kind of terminal. Every terminal answers the last one."""
_ANSWERS = re.compile(
    r"\x1b?(?:_G(?P<kitty>[^\x1b]*)\x1b\\|P>\|(?P<name>[^\x1b]*)\x1b\\|\[6;(?P<high>\d{1,4});(?P<wide>\d{1,4})t"
    r"|\[\?1;0;(?P<colours>\d{1,9})S|\[\?1;[1-9][\d;]*S|\[\?(?P<kind>[\d;]*)c)"
)
"""Matches a terminal's answer to one of these questions.

The first byte, Esc, is optional: if the other bytes arrive late, Esc has already been handled as a key.
"""
_BEGUN = re.compile(r"\x1b[_P][^\x1b]*\x1b?\Z")
"""Matches the first piece of an answer that is not a control sequence."""
_SIXEL = "4"
"""Number in a terminal's reply to `_LAST_QUESTION` (device attributes) that means "supports sixel pictures"."""
_PLACEHOLDERS_SINCE = ("kitty", (0, 28)), ("ghostty", (1, 0))
"""(name, version) of the terminals with Unicode placeholders.

Other terminals also report kitty graphics, but show the placeholders as boxes.
"""
_TMUX_LIMIT_S = 2.0
_MOST_CELL = 128


class PixelQuestion:
    """The questions to one terminal about pixels, and its answers so far."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        facts = prepare_terminal(environ)
        self._multiplexer = facts.multiplexer
        is_unknown = re.match("linux|screen|tmux", environ.get("TERM", "")) and facts.multiplexer != "tmux"
        self.is_possible = not (is_unknown or facts.is_dumb or facts.multiplexer == "screen")
        """Whether the questions may be sent to the terminal.

        GNU screen and the Linux console would print a part of them. A tmux on another machine cannot report the names of its
        terminals.
        """
        self.is_answered = False
        self._found: dict[str, str] = {}

    @property
    def text(self) -> str:
        """The questions to send. Within tmux, the question about kitty graphics is omitted: tmux would treat it as a title."""
        return ("" if self._multiplexer else _KITTY_QUESTION) + _CELL_QUESTION + _COLOUR_QUESTION + _LAST_QUESTION

    def take_answers(self, text: str) -> tuple[str, str]:
        """Store the answers in the input; return the pair (input without answers, beginning of an answer at the end of the input).

        The second value is "" unless the rest of an answer has not arrived yet.
        """

        def note(found: re.Match[str]) -> str:
            self._found |= {name: value for name, value in found.groupdict().items() if value is not None}
            return ""

        text = _ANSWERS.sub(note, text)
        self.is_answered = "kind" in self._found
        begun = _BEGUN.search(text)
        return (text[: begun.start()], begun[0]) if begun else (text, "")

    def find_screen(self, window: tuple[int, int] = (0, 0)) -> PixelScreen | None:
        """Return the abilities of the terminal, None = it does not show pixels. Asks tmux; call this method in a thread.

        Args:
            window: (width, height) of a cell, computed from the size of the window, for terminals that do not report the size of a
                cell; (0, 0) = unknown.
        """
        found = self._found
        wide, high = int(found.get("wide", window[0])), int(found.get("high", window[1]))
        if not (0 < wide <= _MOST_CELL and 0 < high <= _MOST_CELL):
            return None
        has_sixel = _SIXEL in found.get("kind", "").split(";")
        if self._multiplexer:
            clients, passes_on = self._ask_tmux()
            if passes_on and clients and all(map(_has_placeholders, (name for name, _ in clients))):
                return PixelScreen(Protocol.KITTY, (wide, high), is_wrapped=True)
            has_sixel = has_sixel and bool(clients) and all("sixel" in features for _, features in clients)
        elif found.get("kitty", "").endswith(";OK") and _has_placeholders(found.get("name", "")):
            return PixelScreen(Protocol.KITTY, (wide, high))
        return PixelScreen(Protocol.SIXEL, (wide, high), min(256, int(found.get("colours", 256)))) if has_sixel else None

    def _ask_tmux(self) -> tuple[list[tuple[str, str]], bool]:
        """Return ((name, features) of the terminals that show this pane, whether tmux passes sequences on)."""
        pane = self._environ.get("TMUX_PANE", "")
        clients = self._run_tmux("list-clients", "-t", pane, "-F", "#{client_termtype}\t#{client_termfeatures}")
        passes_on = self._run_tmux("display-message", "-p", "-t", pane, "#{allow-passthrough}").strip()
        found = [line.partition("\t") for line in clients.splitlines()]
        return [(name, features) for name, _, features in found], passes_on in {"1", "2", "on", "all"}

    def _run_tmux(self, *words: str) -> str:
        try:
            done = subprocess.run(["tmux", *words], capture_output=True, timeout=_TMUX_LIMIT_S, check=False, env=self._environ)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def read_cell(terminal: int) -> tuple[int, int]:
    """Return (width, height) of a cell in pixels, computed from the kernel's window size of a terminal; (0, 0) = unknown."""
    try:
        rows, columns, width, height = struct.unpack("HHHH", fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return 0, 0
    return (width // columns, height // rows) if columns and rows else (0, 0)


def _has_placeholders(name: str) -> bool:
    """Return whether a terminal of this name and version, such as "kitty(0.35.2)", has Unicode placeholders."""
    words = re.match(r"(\w+)\W+(\d+)\.(\d+)", name)
    return words is not None and any(
        words[1].lower() == known and (int(words[2]), int(words[3])) >= least for known, least in _PLACEHOLDERS_SINCE
    )


# --------------------------------------------------------------------------------------------- sequences that show pictures

PLACEHOLDER = "\U0010eeee"
_MARKS = (
    "0305 030D-030E 0310 0312 033D-033F 0346 034A-034C 0350-0352 0357 035B 0363-036F 0483-0487 0592-0595 0597-0599 "
    "059C-05A1 05A8-05A9 05AB-05AC 05AF 05C4 0610-0617 0657-065B 065D-065E 06D6-06DC 06DF-06E2 06E4 06E7-06E8 06EB-06EC "
    "0730 0732-0733 0735-0736 073A 073D 073F-0741 0743 0745 0747 0749-074A 07EB-07F1 07F3 0816-0819 081B-0823 0825-0827 "
    "0829-082D 0951 0953-0954 0F82-0F83 0F86-0F87 135D-135F 17DD 193A 1A17 1A75-1A7C 1B6B 1B6D-1B73 1CD0-1CD2 1CDA-1CDB "
    "1CE0 1DC0-1DC1 1DC3-1DC9 1DCB-1DCC 1DD1-1DE6 1DFE 20D0-20D1 20D4-20D7 20DB-20DC 20E1 20E7 20E9 20F0 2CEF-2CF1 "
    "2DE0-2DFF A66F A67C-A67D A6F0-A6F1 A8E0-A8F1 AAB0 AAB2-AAB3 AAB7-AAB8 AABE-AABF AAC1 FE20-FE26 10A0F 10A38 "
    "1D185-1D189 1D1AA-1D1AD 1D242-1D244"
)
"""Ranges of the combining characters that encode row and column numbers, from the specification of the protocol."""
NUMBERS = "".join(
    chr(code) for each in _MARKS.split() for code in range(int(each.split("-")[0], 16), int(each.split("-")[-1], 16) + 1)
)
MOST_CELLS = len(NUMBERS)
"""Maximum number of columns or rows of a picture."""
_CHUNK = 4096
"""Maximum size of a part of a picture (bytes), from the specification of the protocol."""


class PixelPicture(Struct, frozen=True):
    """A picture that is ready for the terminal; it fills `columns` × `rows` cells.

    Args:
        number: identifies the picture, 16 to 255; it is the colour of its placeholders.
        data: the sequence that shows the picture (sixel) or that stores it in the terminal (kitty).
        removal: the sequence that deletes a stored picture, or "".
    """

    number: int
    columns: int
    rows: int
    data: str
    removal: str = ""


def placeholder(row: int, column: int) -> str:
    """Return the text of a cell that shows a part of a picture.

    Cells of sixel pictures contain this text too, but are sent as blanks.
    """
    return PLACEHOLDER + NUMBERS[row] + NUMBERS[column]


def encode(image: Image, number: int, screen: PixelScreen) -> PixelPicture:
    """Return a picture for a terminal. Takes up to a second. The image must fill a whole number of cells."""
    height, width = image.shape[:2]
    columns, rows = width // screen.cell[0], height // screen.cell[1]
    if screen.protocol is Protocol.SIXEL:
        return PixelPicture(number, columns, rows, _encode_sixel(image, screen.colours))
    parts = list(_upload(image, number, columns, rows))
    removal = f"\x1b_Ga=d,d=I,i={number},q=2\x1b\\"
    if screen.is_wrapped:
        parts, removal = [_wrap(part) for part in parts], _wrap(removal)
    return PixelPicture(number, columns, rows, "".join(parts), removal)


def _upload(image: Image, number: int, columns: int, rows: int) -> Iterator[str]:
    """Yield the kitty graphics sequences that store a picture in the terminal, to be shown in cells with Unicode placeholders."""
    data = base64.standard_b64encode(zlib.compress(image.tobytes(), 6)).decode()
    head = f"a=T,U=1,i={number},c={columns},r={rows},f=24,s={image.shape[1]},v={image.shape[0]},o=z,q=2,"
    for at in range(0, len(data), _CHUNK):
        is_last = at + _CHUNK >= len(data)
        yield f"\x1b_G{'' if at else head}m={int(not is_last)}{',q=2' if at else ''};{data[at : at + _CHUNK]}\x1b\\"


def _wrap(sequence: str) -> str:
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def _encode_sixel(image: Image, colours: int) -> str:
    """Return a sixel picture; it is dithered if it has more colours than the terminal."""
    import numpy as np
    from PIL import Image as Pillow

    picture = Pillow.fromarray(image)
    few = picture.quantize(max(2, colours), Pillow.Quantize.MEDIANCUT)
    has_more = picture.getcolors(max(2, colours)) is None
    indices = np.asarray(picture.quantize(palette=few, dither=Pillow.Dither.FLOYDSTEINBERG) if has_more else few)
    palette = few.getpalette() or []
    height, width = indices.shape
    out = [f'\x1bP0;1;0q"1;1;{width};{height}']
    out += [
        f"#{at};2;{';'.join(str(round(value * 100 / 255)) for value in palette[3 * at : 3 * at + 3])}"
        for at in np.unique(indices).tolist()
    ]
    weights = (1 << np.arange(6, dtype=np.uint8))[:, None]
    for top in range(0, height, 6):
        band = indices[top : top + 6]
        lines = [
            f"#{colour}{_shorten(((band == colour) * weights[: len(band)]).sum(0, dtype=np.uint8))}" for colour in np.unique(band)
        ]
        out += ["$".join(lines), "-"]
    return "".join(out[:-1]) + "\x1b\\"


def _shorten(bits: NDArray[np.uint8]) -> str:
    """Return the characters for columns of six pixels, without the empty columns at the end; runs of four or more are shortened."""
    import numpy as np

    starts = np.flatnonzero(np.diff(bits, prepend=bits[:1] ^ 1))
    lengths = np.diff(starts, append=len(bits)).tolist()
    runs = list(zip((bits[starts] + 63).tolist(), lengths, strict=True))
    if runs[-1][0] == 63:
        runs.pop()
    return "".join(chr(code) * count if count < 4 else f"!{count}{chr(code)}" for code, count in runs)

"""What a terminal does with the sequences that save bytes; what it might not know is not sent.

From the name in TERM, as terminfo has it, without reading that: it need not know the person's terminal on a build box. Whether REP
works no name tells (mosh says it is xterm and drops it); `layer` asks the terminal.

Tests: `tests/tui/terminal/output/test_abilities.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

_ERASES_IN_COLOUR = re.compile(
    r"(xterm|linux|rxvt|konsole|vte|gnome|st|putty|foot|alacritty|kitty|wezterm|ghostty|contour|mlterm|iterm2?)(?![a-z])"
)
_BEFORE_1983 = re.compile(r"vt(52|1\d\d)")


class Abilities(Struct, frozen=True):
    """What may be sent.

    Args:
        erases_in_colour: erasing (and scrolling) leaves the background that is set: terminfo's `bce`. Where it is not so, blanks
            on a coloured background are written out.
        is_modern: knows the sequences of VT220 and ECMA-48: erase characters, go to a column, turn one attribute off.
    """

    erases_in_colour: bool = True
    is_modern: bool = True


def abilities_of(environ: Mapping[str, str]) -> Abilities:
    """Return what the terminal of this environment does."""
    term = environ.get("TERM", "")
    # tmux keeps the background whatever it calls itself; screen does so only when told to, which does not show.
    return Abilities(
        erases_in_colour=bool(environ.get("TMUX") or _ERASES_IN_COLOUR.match(term)),
        is_modern=not _BEFORE_1983.match(term),
    )

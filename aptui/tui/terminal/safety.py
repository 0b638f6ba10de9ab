"""Makes text from outside aptui safe for the terminal, finds out what the terminal can show, and chooses the glyphs.

Text is made safe twice. First, every widget calls `make_safe` for the text that it receives. Second, the wall (the last check
before output) makes remaining control characters visible and keeps the width of the strip. The wall is a hook in `Strip.render`,
the function that turns segments into output. `install` verifies that the hook sees all text that Textual writes. If the hook
misses text, as may happen with a new version of Textual, foreign text is hidden.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.shared.errors import InternalError
from aptui.shared.printing import sanitize
from aptui.tui.terminal.skeleton import shows_utf8

if TYPE_CHECKING:
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.segment import Segment
    from rich.style import Style
    from textual.strip import Strip

TRUECOLOUR = 1 << 24
_WITHHELD = "(text hidden: the check for unsafe characters does not work)"

GLYPHS: dict[str, tuple[str, str]] = {
    "failed": ("✗", "x"),
    "error": ("✗", "x"),
    "warning": ("!", "!"),
    "completed": ("✓", "+"),
    "processing": ("▶", ">"),
    "pending": ("·", "."),
    "info": ("·", "."),
    "debug": (" ", " "),
    "cancelled": ("–", "-"),
    "cursor": ("▌", ">"),
    "cursor_marked": ("█", "#"),
    "mark": ("•", "*"),
    "open": ("▾", "v"),
    "closed": ("▸", ">"),
    "ellipsis": ("…", "~"),
    "ascending": ("↑", "^"),
    "descending": ("↓", "v"),
    "to": ("→", ">"),
    "from": ("←", "<"),
    "none": ("—", "-"),
    "rule": ("─", "-"),
    "upright": ("│", "|"),
    "full": ("█", "#"),
    "empty": ("░", "."),
    "dot": ("●", "*"),
    "hollow": ("○", "o"),
    "details": ("≡", "="),
    "critical": ("⇡", "^"),
    "wrapped": ("↪", "\\"),
    "bar": ("━", "="),
    "bar_failed": ("×", "x"),
    "bar_running": ("╍", ">"),
}
"""{name: (glyph for UTF-8, glyph for ASCII)}; both glyphs are one cell wide, so that the layout does not depend on the choice."""


class TerminalFacts(Struct, frozen=True):
    """Facts about the terminal, from the environment.

    Args:
        colours: 0 (attributes only), 16, 256 or 16,777,216.
        is_utf8: whether it shows more than ASCII.
        multiplexer: the innermost terminal multiplexer: "tmux", "screen" or "".
        is_dumb: whether it cannot place a cursor, so that a full screen is not possible.
    """

    colours: int = TRUECOLOUR
    is_utf8: bool = True
    multiplexer: str = ""
    is_dumb: bool = False


def prepare_terminal(environ: Mapping[str, str]) -> TerminalFacts:
    """Return the facts about the terminal of an environment.

    `NO_COLOR` (no-color.org: set and not empty) leaves only attributes; `APTUI_GLYPHS=ascii|utf8` selects the glyphs.
    """
    term = environ.get("TERM", "")
    multiplexer = "tmux" if environ.get("TMUX") else "screen" if environ.get("STY") else ""
    is_dumb = term in {"", "dumb", "unknown"}
    colours = 0 if environ.get("NO_COLOR") or is_dumb else _colours(term, environ.get("COLORTERM", "").lower())
    if multiplexer == "screen":
        colours = min(colours, 256)
    return TerminalFacts(colours, shows_utf8(environ), multiplexer, is_dumb)


def _colours(term: str, color_term: str) -> int:
    if color_term in {"truecolor", "24bit"} or re.search("direct|kitty|alacritty|ghostty|foot|wezterm", term):
        return TRUECOLOUR
    if "256" in term:
        return 256
    return 0 if re.match(r"vt\d|.*-m(ono)?$", term) else 16


# ── the last check of text before the terminal gets it ────────────────────────────────────────────────────────────────


class _Wall(Struct):
    """State of the hook in `Strip.render`; a process has one hook."""

    facts: TerminalFacts = TerminalFacts()
    is_sound: bool = True
    strip_count: int = 0


_wall = _Wall()


def glyph(name: str) -> str:
    """Return a glyph as UTF-8 or ASCII, whichever the terminal can show."""
    return GLYPHS[name][0 if _wall.facts.is_utf8 else 1]


def facts() -> TerminalFacts:
    """Return the facts about the terminal that `install` has stored."""
    return _wall.facts


def make_safe(text: str) -> str:
    r"""Return foreign text as one safe line: without escape sequences, controls made visible, invalid UTF-8 as `\xNN`."""
    if not _wall.is_sound:
        return _WITHHELD
    return text if text.isprintable() else sanitize(text)


def install(terminal: TerminalFacts) -> None:
    """Make `Strip.render` remove unsafe characters from all output; call this before the app runs. It can be called again.

    Raises:
        InternalError: Textual writes text that bypasses this check. From then on, `make_safe` hides all foreign text.
    """
    from textual.strip import Strip  # imported here to start faster

    _wall.facts = terminal
    Strip.render = _render  # type: ignore[method-assign, assignment]
    _clean.cache_clear()
    _wall.is_sound = verify()
    if not _wall.is_sound:
        raise InternalError(
            "the check for unsafe characters does not see all output of the screen", hint="install the required version of Textual"
        )


def verify() -> bool:
    """Return whether hostile text in one of Textual's updates becomes harmless output."""
    from rich.console import Console  # imported here to start faster
    from rich.segment import Segment
    from rich.style import Style
    from textual._compositor import ChopsUpdate, LayoutUpdate  # imported here to start faster
    from textual.geometry import Region
    from textual.strip import Strip

    evil = "\x1b]52;c;QQ==\x07\x9d0;a\x9c\u202e\x7f"
    strips = [
        Strip([Segment(evil, style)])
        for style in (None, Style(bold=True), Style(link=f"https://a/{evil}"), Style(link="file:///a"))
    ]
    console, before = Console(), _wall.strip_count
    out = LayoutUpdate([[strip] for strip in strips[:2]], Region(0, 0, 9, 2)).render_segments(console)
    chops = [{0: strip} for strip in strips[2:]]
    out += ChopsUpdate(chops, [(0, 0, 9), (1, 0, 9)], [[9], [9]]).render_segments(console)
    picture = "␛" if _wall.facts.is_utf8 else "^"
    harmless = re.sub(r"\x1b\[[0-9;]*[Hm]|\n", "", out)
    return (
        _wall.strip_count == before + len(strips)
        and picture in out
        and re.search("[\x00-\x1f\x7f-\x9f\u202e]|file:", harmless) is None
    )


def _render(strip: Strip, console: Console) -> str:
    if strip._render_cache is None:  # noqa: SLF001  # the same cache as the original's
        _wall.strip_count += 1
        strip._render_cache = _output(strip, console)  # noqa: SLF001  # see above
    return strip._render_cache  # noqa: SLF001  # see above


PICTURE = "picture"
"""Metadata key in the style of cells that show a picture as pixels; the value is (number of the picture, row of the picture)."""
FIRST_COLUMN = 0x100000
"""A picture's cells contain a code point for their column: this one for the first column, the next ones for the next columns.

Foreign text never contains these code points.
"""


def picture_row(text: str, style: Style | None) -> tuple[int, int] | None:
    """Return (number of the picture, row of the picture) for cells that show a part of a picture, else None."""
    if not text or ord(text[0]) < FIRST_COLUMN or style is None:
        return None
    found: tuple[int, int] | None = style.meta.get(PICTURE)
    return found


def safe_segments(strip: Strip) -> Iterable[Segment]:
    """Return the safe segments of a strip, for code that does not call `Strip.render`."""
    segments = strip._segments  # noqa: SLF001  # there is no other way without a copy
    only_ascii = not _wall.facts.is_utf8
    if all(text.isprintable() and (text.isascii() or not only_ascii) for text, _, _ in segments):
        return segments
    return _map(segments)


def sgr_and_link(style: Style | None, console: Console) -> tuple[str, str]:
    """Return (SGR parameters, address of the link or "") of a style on this terminal."""
    from textual.strip import Strip  # imported here to start faster

    if style is None:
        return "", ""
    style = _safe_style(style, _wall.facts.colours)
    return Strip.render_ansi(style, _system(console)), style.link or ""


def _output(strip: Strip, console: Console) -> str:
    from textual.strip import Strip  # imported here to start faster

    system, render = _system(console), Strip.render_style
    return "".join(
        [
            text if style is None else render(_safe_style(style, _wall.facts.colours), text, system)
            for text, style, _ in safe_segments(strip)
        ]
    )


def _system(console: Console) -> ColorSystem:
    from rich.color import ColorSystem  # imported here to start faster

    known = {16: ColorSystem.STANDARD, 256: ColorSystem.EIGHT_BIT, TRUECOLOUR: ColorSystem.TRUECOLOR}
    return known.get(_wall.facts.colours) or console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001  # as the original does


def _map(segments: Iterable[Segment]) -> list[Segment]:
    """Make control characters visible and keep the width that Textual calculated; otherwise the rest of the line would move."""
    from rich.cells import cell_len, set_cell_size  # imported here to start faster
    from rich.segment import Segment

    left = sum(cell_len(text) for text, _, _ in segments)
    mapped = []
    for text, style, _ in segments:
        clean = text if picture_row(text, style) else _clean(text)
        width = cell_len(clean)
        if width > left:
            clean, width = set_cell_size(clean, left), left
        mapped.append(Segment(clean, style))
        left -= width
    if left > 0:
        mapped.append(Segment(" " * left, mapped[-1].style if mapped else None))
    return mapped


_C0_AND_DELETE = {**{code: 0x2400 + code for code in range(0x20)}, 0x7F: 0x2421}
_BOXES = {
    **dict.fromkeys(map(ord, "─═╌┄┅┈┉▔▁▂▃▄▀"), "-"),
    **dict.fromkeys(map(ord, "│┃║╎╏┆┇┊┋▏▎▍▐▕"), "|"),
    **dict.fromkeys(map(ord, "┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝╠╣╦╩╬┏┓┗┛┣┫┳┻╋"), "+"),
    ord("␛"): "^",
    **{ord(wide): narrow for wide, narrow in GLYPHS.values()},
}


@lru_cache(maxsize=2048)
def _clean(text: str) -> str:
    """Return text with every control character replaced by a visible one; unlike `sanitize`, this function drops nothing."""
    text = sanitize(text.translate(_C0_AND_DELETE).replace("\xa0", " "))
    if _wall.facts.is_utf8 or text.isascii():
        return text
    from rich.cells import cell_len  # imported here to start faster

    text = text.translate(_BOXES)
    return "".join(character if character.isascii() else "?" * cell_len(character) for character in text)


@lru_cache(maxsize=4096)
def _safe_style(style: Style, colours: int) -> Style:
    """Remove colours on a terminal without colours, and all links except web links: foreign text must not open local files."""
    link = style.link
    if link is not None and (not link.isprintable() or not link.startswith(("http://", "https://"))):
        style = style.update_link(None)
    return style if colours else style.without_color


def terminal_facts() -> TerminalFacts:
    """Return the facts about the terminal of this process."""
    return prepare_terminal(os.environ)

"""How a cell looks, as a terminal is told it: attributes, two colours, a link; and the shortest way from one look to another.

Pens are made once each by a `PenCase`, so that two cells look alike when they have the same pen: no comparison of styles is needed
where thousands of cells are compared. A blank shows little of its pen; all pens that look alike on blanks share one, `blank`.

Tests: `tests/tui/terminal/output/test_pens.py`.
"""

from __future__ import annotations

import zlib

_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
_SEEN_ON_BLANKS = frozenset({"4", "6", "7", "9", "21", "51", "52", "53"})
"""Lines, frames and reversed colours show on a blank; bold, italic and the like do not."""
_MOST_PENS = 4096


class Pen:
    """A look; made by a `PenCase` alone.

    Args:
        attributes: parameters of SGR, sorted.
        foreground, background: parameters of SGR, "" = the terminal's own.
        link: an address, or "".
    """

    __slots__ = ("attributes", "background", "blank", "foreground", "is_bare", "link", "sgr")

    def __init__(self, attributes: tuple[str, ...], foreground: str, background: str, link: str) -> None:
        self.attributes, self.foreground, self.background, self.link = attributes, foreground, background, link
        self.sgr = ";".join(filter(None, (*attributes, foreground, background)))
        self.blank = self
        self.is_bare = not link and _SEEN_ON_BLANKS.isdisjoint(attributes)
        """Whether a blank shows the background alone: then erasing does for writing one."""


class PenCase:
    """All pens of one screen."""

    def __init__(self) -> None:
        self._pens: dict[tuple[str, str], Pen] = {}
        self._changes: dict[tuple[Pen | None, Pen, bool], str] = {}
        self.plain = self.pen("")

    def pen(self, sgr: str, link: str = "") -> Pen:
        """Return the pen with these parameters of SGR."""
        found = self._pens.get((sgr, link))
        if found is None:
            if len(self._pens) > _MOST_PENS:  # whose links never end; a pen made twice costs bytes, nothing else
                self._pens.clear()
                self._changes.clear()
            attributes, foreground, background = _part_sgr(sgr)
            found = Pen(attributes, foreground, background, link)
            if found.is_bare and found.sgr != background:
                found.blank = self.pen(background)
            self._pens[sgr, link] = found
        return found

    def change(self, old: Pen | None, new: Pen, *, one_by_one: bool = True) -> str:
        """Return what makes a terminal that writes in `old` (None = nobody knows) write in `new`.

        Args:
            old: what it writes in.
            new: what it shall write in.
            one_by_one: whether it can turn off one attribute and keep the others.
        """
        found = self._changes.get((old, new, one_by_one))
        if found is None:
            found = self._changes[old, new, one_by_one] = _sgr_change(old, new, one_by_one=one_by_one) + _link_change(old, new)
        return found


def _link_change(old: Pen | None, new: Pen) -> str:
    if new.link == ("" if old is None else old.link):
        return ""
    # Of one id, or the parts of a link that goes over two lines would be two links.
    return f"\x1b]8;id={zlib.crc32(new.link.encode())};{new.link}\x1b\\" if new.link else "\x1b]8;;\x1b\\"


def _sgr_change(old: Pen | None, new: Pen, *, one_by_one: bool) -> str:
    if old is not None and old.sgr == new.sgr:
        return ""
    if not new.sgr:
        return "\x1b[m"
    whole = f"\x1b[0;{new.sgr}m"
    gone = set(old.attributes).difference(new.attributes) if old is not None else set()
    if old is None or (gone and not one_by_one) or not gone.issubset(_OFF):
        return whole
    off = {_OFF[each] for each in gone}
    on = [each for each in new.attributes if each not in old.attributes or _OFF.get(each) in off]
    parts = sorted(off) + on
    if new.foreground != old.foreground:
        parts.append(new.foreground or "39")
    if new.background != old.background:
        parts.append(new.background or "49")
    return min(f"\x1b[{';'.join(parts)}m", whole, key=len)


def _part_sgr(sgr: str) -> tuple[tuple[str, ...], str, str]:
    """Return attributes, foreground and background of parameters as Rich writes them."""
    attributes, foreground, background = set(), "", ""
    parts = sgr.split(";") if sgr else []
    while parts:
        code = parts.pop(0)
        if code in {"38", "48"}:
            count = 2 if parts[0] == "5" else 4
            code = ";".join([code, *parts[:count]])
            del parts[:count]
        if code.startswith("48;") or (code.isdecimal() and (40 <= int(code) <= 47 or 100 <= int(code) <= 107)):
            background = code
        elif code.startswith("38;") or (code.isdecimal() and (30 <= int(code) <= 37 or 90 <= int(code) <= 97)):
            foreground = code
        elif code not in {"39", "49"}:
            attributes.add(code)
    return tuple(sorted(attributes)), foreground, background

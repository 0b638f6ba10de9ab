"""Colours as terminals show them: with 256 or 16, and legible on what is behind them. Which colours there are, themes say."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.color import Color
    from rich.color_triplet import ColorTriplet

LEAST_CONTRAST = 4.5
"""WCAG 2.2, 1.4.3: text on its background."""
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_STEPS = (0, 95, 135, 175, 215, 255)
PALETTE = tuple(
    [(red, green, blue) for red in _STEPS for green in _STEPS for blue in _STEPS]
    + [(level, level, level) for level in range(8, 248, 10)]
)
_MIXES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0)


def fit_colours(text: str, colours: int) -> str:
    """Return a style or a colour with the nearest of 256 colours in the place of each, where the terminal has so many.

    Rich takes the nearest of the colour cube for all that is not nearly grey: a slate bar becomes teal.
    """
    return _HEX.sub(lambda found: _nearest(found[0].lower()), text) if colours == 256 else text


@lru_cache(maxsize=512)
def _nearest(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))

    def distance(other: tuple[int, int, int]) -> float:
        mean = (red + other[0]) / 2  # the eye's weights, nearly
        weights = (2 + mean / 256, 4, 2 + (255 - mean) / 256)
        return sum(weight * (mine - theirs) ** 2 for weight, mine, theirs in zip(weights, (red, green, blue), other, strict=True))

    return "#{:02x}{:02x}{:02x}".format(*min(PALETTE, key=distance))


def show_colour(colour: Color, colours: int, *, is_foreground: bool = True) -> ColorTriplet:
    """Return what a terminal of so many colours shows for a colour, by the palette that most have."""
    from rich.color import ColorSystem  # for start-up
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME

    systems = {16: ColorSystem.STANDARD, 256: ColorSystem.EIGHT_BIT}
    downgraded = colour.downgrade(systems[colours]) if colours in systems else colour
    return downgraded.get_truecolor(DEFAULT_TERMINAL_THEME, foreground=is_foreground)


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    """Return the contrast of two colours after WCAG, 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(triplet: ColorTriplet) -> float:
    def linear(value: int) -> float:
        part = value / 255
        return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)

    return 0.2126 * linear(triplet.red) + 0.7152 * linear(triplet.green) + 0.0722 * linear(triplet.blue)


def legible(colour: Color, behind: Color, colours: int) -> Color:
    """Return a colour that can be read on `behind`: this one, or one that is lighter or darker as little as needed."""
    from rich.color import Color  # for start-up

    ground, own = show_colour(behind, colours, is_foreground=False), show_colour(colour, colours)
    goal = max(
        (Color.from_rgb(255, 255, 255), Color.from_rgb(0, 0, 0)), key=lambda aim: contrast(show_colour(aim, colours), ground)
    )
    aim = show_colour(goal, colours)
    for share in _MIXES:
        mixed = Color.from_rgb(*(round(mine + (theirs - mine) * share) for mine, theirs in zip(own, aim, strict=True)))
        found = mixed if share else colour
        if contrast(show_colour(found, colours), ground) >= LEAST_CONTRAST:
            return found
    return goal

"""Text on the row of the cursor is legible in every theme, with 16, 256 and all colours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.color import Color
from rich.color_triplet import ColorTriplet
from rich.style import Style

from aptui.tui.preferences import theming
from aptui.tui.preferences.theming import LEAST_CONTRAST, contrast, fit_colours, legible, show_colour
from aptui.tui.terminal import safety
from aptui.tui.widgets.cells import Painter

THEMES = theming.load_themes().by_name
DEPTHS = (16, 256, safety.TRUECOLOUR)


@pytest.fixture
def _facts() -> Iterator[None]:
    yield
    safety.install(safety.TerminalFacts())


def colours_of(style: Style, *, is_dark: bool, colours: int) -> float:
    """Return the contrast of a style on a terminal that is white on black, or black on white."""
    own = (
        (Color.from_rgb(229, 229, 229), Color.from_rgb(0, 0, 0))
        if is_dark
        else (Color.from_rgb(0, 0, 0), Color.from_rgb(255, 255, 255))
    )
    front, back = (
        fallback if colour is None or colour.is_default else colour
        for colour, fallback in zip((style.color, style.bgcolor), own, strict=True)
    )
    return contrast(show_colour(front, colours), show_colour(back, colours, is_foreground=False))


@pytest.mark.usefixtures("_facts")
@pytest.mark.parametrize("colours", DEPTHS)
@pytest.mark.parametrize("name", THEMES)
def test_text_of_every_colour_role_is_legible_on_the_selected_row(name: str, colours: int) -> None:
    safety.install(safety.TerminalFacts(colours=colours))
    theme = THEMES[name]
    styles = theming.Roles(theme.roles)
    ground = theming.rich_style(f"{styles.text('value') or 'ansi_default'} on {fit_colours(theme.colors['background'], colours)}")
    painter = Painter(styles, ground)

    poor = {
        (role, is_match): round(found, 1)
        for role in (*theming.ROLES, "")
        for is_match in (False, True)
        if (found := colours_of(painter.style(role, is_cursor=True, is_match=is_match), is_dark=theme.is_dark, colours=colours))
        < LEAST_CONTRAST
    }
    assert poor == {}


@pytest.mark.usefixtures("_facts")
@pytest.mark.parametrize("name", THEMES)
def test_muted_text_has_no_more_contrast_than_plain_text_with_16_colours(name: str) -> None:
    """Many terminals show text in the default colour as light or dark grey instead of pure white or black."""
    safety.install(safety.TerminalFacts(colours=16))
    theme = THEMES[name]
    grey, ground = (170, 0) if theme.is_dark else (85, 255)
    styles = [theming.rich_style(theme.roles[role]) for role in ("muted", "value")]
    muted, plain = (
        ColorTriplet(grey, grey, grey) if style.color is None or style.color.is_default else show_colour(style.color, 16)
        for style in styles
    )
    behind = ColorTriplet(ground, ground, ground)

    assert styles[0].dim or contrast(muted, behind) <= contrast(plain, behind)


def test_legible_colour_differs_from_the_given_colour_only_as_needed() -> None:
    bar = Color.parse("#2b3647")
    red = Color.parse("#ef6f6c")

    assert legible(Color.parse("#ffffff"), bar, safety.TRUECOLOUR) == Color.parse("#ffffff")
    moved = show_colour(legible(red, bar, safety.TRUECOLOUR), safety.TRUECOLOUR)
    assert moved.red > moved.green
    assert contrast(moved, show_colour(bar, safety.TRUECOLOUR)) >= LEAST_CONTRAST
    black = Color.parse("#000000")
    assert show_colour(legible(red, Color.parse("#b0b0b0"), safety.TRUECOLOUR), safety.TRUECOLOUR) != show_colour(
        black, safety.TRUECOLOUR
    )


@pytest.mark.parametrize(("colour", "nearest"), [("#2b3647", "#3a3a3a"), ("#14171c", "#1c1c1c"), ("#ef6f6c", "#ff5f5f")])
def test_in_256_colours_slate_becomes_grey_and_red_stays_red(colour: str, nearest: str) -> None:
    assert fit_colours(f"bold {colour}", 256) == f"bold {nearest}"
    assert fit_colours(colour, 16) == fit_colours(colour, safety.TRUECOLOUR) == colour

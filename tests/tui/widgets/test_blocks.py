"""Pictures are drawn as coloured cells that fill the area; transparent pixels differ from opaque pixels."""

import pytest
from rich.color import ColorType
from rich.console import Console
from rich.style import Style

from aptui.tui.pictures.decoder import Pixels, fit_size
from aptui.tui.preferences.theming import PALETTE
from aptui.tui.widgets.picture_drawing import Ground, Manner, bytes_of, draw_picture

DARK = Ground(Style.parse("#c0c0c0 on #101418"), (16, 20, 24), True)
LIGHT = Ground(Style.parse("#202020 on #f8f8f8"), (248, 248, 248), False)
RED, BLUE, WHITE, GREY, BLACK, CLEAR = (
    bytes(each) for each in ((255, 0, 0, 255), (0, 0, 255, 255), (255,) * 4, (128, 128, 128, 255), (0, 0, 0, 255), (9, 9, 9, 0))
)


def shown(pixels, columns=40, rows=20, manner=Manner.COLOURS, ground=DARK, **more):
    """Return (character, colour, background) of every cell."""
    found = []
    for line in draw_picture(pixels, columns, rows, manner, ground, **more):
        cells = []
        for text, style, _ in line:
            styles = [tuple(each.triplet) if each else None for each in (style.color, style.bgcolor)]
            cells += [(letter, *styles) for letter in text]
        found.append(cells)
    return found


def text(pixels, columns=40, rows=20, manner=Manner.SHADES, ground=DARK, **more):
    return ["".join(text for text, _, _ in line) for line in draw_picture(pixels, columns, rows, manner, ground, **more)]


@pytest.mark.parametrize(
    ("picture", "area", "expected"),
    [
        ((640, 320), (80, 60), (80, 40)),
        ((320, 640), (80, 60), (30, 60)),
        ((16, 16), (80, 60), (48, 48)),
        ((1, 1), (5, 9), (5, 5)),
        ((1000, 1), (80, 60), (80, 1)),
        ((64, 64), (0, 60), (0, 0)),
        ((64, 64), (64, 64), (64, 64)),
    ],
)
def test_picture_fills_its_area_and_keeps_its_aspect_ratio(picture, area, expected):
    assert fit_size(*picture, *area) == expected


def test_two_different_pixels_are_a_half_block_and_two_equal_pixels_a_blank():
    cells = shown(Pixels(2, 2, RED + RED + BLUE + RED), 2, 1)

    assert cells == [[("▀", (255, 0, 0), (0, 0, 255)), (" ", (192, 192, 192), (255, 0, 0))]]


def test_odd_last_line_of_pixels_is_half_a_cell_on_the_background():
    assert shown(Pixels(1, 1, RED), 1, 5) == [[("▀", (255, 0, 0), (16, 20, 24))]]


def test_transparent_pixels_show_a_checker():
    fields = {cell[2] for line in shown(Pixels(16, 16, CLEAR * 256), 16, 8) for cell in line}

    assert len(fields) == 2
    assert all(max(abs(mine - ground) for mine, ground in zip(each, (16, 20, 24), strict=True)) < 30 for each in fields)


def test_reduced_picture_is_an_average_weighted_by_alpha():
    [[one]] = shown(Pixels(2, 4, (WHITE + BLACK) * 4), 1, 1)
    [[other]] = shown(Pixels(4, 4, (BLUE + BLUE + bytes((255, 0, 0, 0)) * 2) * 4), 1, 1)

    assert one[1] == one[2] or one[0] == " "
    assert abs(one[2][0] - 128) < 3
    assert other[2][0] < 30, "invisible pixels add no red"


def test_picture_uses_at_most_256_colours():
    gradient = Pixels(64, 32, b"".join(bytes((x * 4, y * 8, 90, 255)) for y in range(32) for x in range(64)))
    console = Console(color_system="256", force_terminal=True)

    colours = {each for line in shown(gradient, 64, 16, Manner.PALETTE) for _, *styles in line for each in styles}

    assert colours <= {*PALETTE, (192, 192, 192)}
    assert len(colours) > 20
    for line in draw_picture(gradient, 64, 16, Manner.PALETTE, DARK):
        for _, style, _ in line:
            assert style.bgcolor.downgrade(console._color_system).type is ColorType.EIGHT_BIT
    assert {cell[2] for cell in shown(Pixels(1, 2, GREY * 2), 1, 1, Manner.PALETTE)[0]} == {(128, 128, 128)}, (
        "a grey pixel is drawn in neutral grey"
    )


def test_shades_are_inverted_on_a_light_background():
    steps = Pixels(6, 2, (b"".join(bytes((level,) * 3 + (255,)) for level in (0, 64, 128, 191, 255)) + CLEAR) * 2)

    assert text(steps, 6, 1) == [" ░▒▓█ "]
    assert text(steps, 6, 1, ground=LIGHT) == ["█▓▒░  "]
    assert text(steps, 6, 1, is_utf8=False) == [" .:+# "]


def test_shades_are_stretched_unless_the_picture_is_uniform():
    assert text(Pixels(2, 2, (bytes((100, 100, 100, 255)) + bytes((180, 180, 180, 255))) * 2), 2, 1) == [" █"]
    assert text(Pixels(2, 2, (GREY + bytes((130, 130, 130, 255))) * 2), 2, 1) == ["▒▒"]


def test_cells_have_one_colour_if_the_terminal_lacks_half_blocks():
    assert shown(Pixels(1, 2, WHITE + BLACK), 1, 1, is_utf8=False) == [[(" ", (192, 192, 192), (126, 126, 126))]]


def test_picture_with_fewer_colours_needs_fewer_bytes():
    noise = Pixels(40, 40, bytes(each for at in range(1600) for each in (at * 7 % 256, at * 13 % 256, at * 29 % 256, 255)))

    counts = [bytes_of(draw_picture(noise, 40, 20, manner, DARK)) for manner in Manner]

    assert counts[0] >= counts[1] > 4 * counts[2]
    assert counts[2] <= 40 * 20 * 3 + 20 * 40


def drawing(*rows: str) -> Pixels:
    """Return a drawing: `#` is red, a blank is transparent."""
    data = b"".join(RED if letter == "#" else bytes(4) for row in rows for letter in row)
    return Pixels(len(rows[0]), len(rows), data, is_drawing=True)


def test_lines_of_a_drawing_are_shown_as_dots_in_their_colour():
    cells = shown(drawing("##  ", "#   ", "#   ", "#   ", "#   "), 2, 2)

    assert [[cell[:2] for cell in line] for line in cells] == [
        [("⡏", (255, 0, 0)), (" ", (192, 192, 192))], [("⠁", (255, 0, 0)), (" ", (192, 192, 192))],
    ]  # fmt: skip
    assert text(drawing("#"), 1, 1) == ["⠛"], "enlarged"
    assert text(drawing("#"), 1, 1, is_utf8=False) == ["."], (
        "without UTF-8, a drawing uses the same ASCII characters as other pictures"
    )
    assert draw_picture(drawing("#"), 0, 1, Manner.COLOURS, DARK) == []


def test_thin_lines_of_a_reduced_drawing_stay_visible():
    upright = drawing(*["   #    "] * 16)

    assert {letter for line in text(upright, 2, 2, Manner.COLOURS) for letter in line} == {"⢸", " "}

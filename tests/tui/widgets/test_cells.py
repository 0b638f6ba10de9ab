"""Cells: fitting, wrapping, matches."""

import pytest

from aptui.tui.widgets.cells import fit, wrap


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("textures/stone/rock_01.png", 20, "textures…rock_01.png"),
        ("a/averyveryverylongname.png", 12, "a/av…name.png"[:4] + "…ame.png"),
        ("Image Compile", 8, "Image C…"),
        ("岩石岩石岩石", 8, "岩石岩… "),
        ("岩石", 6, "岩石  "),
        ("x", 1, "x"),
        ("xyz", 1, "…"),
        ("xyz", 0, ""),
        ("a\x1b[31mb\u202e", 5, "ab\ufffd  "),
    ],
)
def test_shortened_text_fits_exactly_into_its_cells(text, width, shown):
    from rich.cells import cell_len

    fitted = fit(text, width).text

    assert cell_len(fitted) == width
    if not text.startswith("a/"):
        assert fitted == (shown if "/" not in text else fitted)
    if text.startswith("textures/"):
        assert fitted.endswith("/rock_01.png")
        assert fitted.startswith("tex")


@pytest.mark.parametrize("width", range(12, 30))
def test_cut_tree_names_keep_their_indent(width):
    fitted = fit("    textures/stone/rock_01.png", width, spans=((19, 23),))

    assert fitted.text.startswith("    ")
    assert fitted.text[4] != " "
    assert len(fitted.text) == width
    if width > 16:
        assert [fitted.text[start:end] for start, end in fitted.spans] == ["rock"]


@pytest.mark.parametrize("width", [24, 31, 33])
@pytest.mark.parametrize("sign", ["▸ ", "  ▾ "])
def test_shortened_path_keeps_the_tree_arrow_at_its_beginning(sign, width):
    shown = fit(f"{sign}images/icecrusher/moss_crusher_recovering_2.png", width).text

    assert shown.startswith(sign)
    assert len(shown) == width


def test_long_name_of_a_file_keeps_its_number_and_extension():
    assert fit("bonus-earth_flower-12.png", 15, is_name=True).text == "bonus-e…-12.png"
    assert fit("    bonus-earth_flower-12.png", 19, is_name=True).text == "    bonus-e…-12.png"
    assert fit("rock", 15, is_name=True).text == "rock           "


@pytest.mark.parametrize("width", range(1, 30))
def test_spans_of_matches_stay_on_the_matched_text_after_cutting(width):
    text = "textures/岩/stone/rock_01.png"
    start = text.index("rock")

    fitted = fit(text, width, spans=((0, 3), (start, start + 4)))

    assert all(0 <= a < b <= len(fitted.text) for a, b in fitted.spans)
    if width > 16:
        assert fitted.text[fitted.spans[-1][0] : fitted.spans[-1][1]] == "rock"


def test_wrapped_rows_contain_the_whole_text_and_break_at_blanks():
    text = "Unexpected end of data in IDAT chunk 岩石岩石岩石岩石 " + "x" * 50
    from rich.cells import cell_len

    for width in range(2, 40):
        rows = wrap(text, width)
        assert "".join(text[a:b] for a, b in rows) == text
        assert all(cell_len(text[a:b].rstrip()) <= width for a, b in rows)
    assert text[slice(*wrap(text, 20)[0])] == "Unexpected end of "


def test_paths_wrap_after_slash_and_names_stay_whole_if_they_fit():
    def rows(text: str, width: int) -> list[str]:
        return [text[start:end] for start, end in wrap(text, width)]

    assert rows("product 'server/sounds/splash.wav' is made by another", 32) == [
        "product ", "'server/sounds/splash.wav' is ", "made by another",
    ]  # fmt: skip
    assert rows("product 'linux/images/engine/console.mip9.webp' again", 32) == [
        "product 'linux/images/engine/", "console.mip9.webp' again",
    ]  # fmt: skip
    assert rows("images/background/ice_cave/darkcave-top_and_bottom.png", 30) == [
        "images/background/ice_cave/", "darkcave-top_and_bottom.png",
    ]  # fmt: skip
    assert rows("levels/world2/tux_own_horror_show.stl", 35) == ["levels/world2/", "tux_own_horror_show.stl"]
    assert rows(f"a/{'x' * 12}", 5) == ["a/xxx", "xxxxx", "xxxx"]
    assert rows("x" * 12, 5) == ["xxxxx", "xxxxx", "xx"]
    assert rows("  " + "x" * 12, 5) == ["  xxx", "xxxxx", "xxxx"]

"""The README's pictures exist, contain the required words, and load nothing from the network."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.pictures import CAST, FOLDER, PICTURES, _plain


def words_in(svg: str) -> str:
    return "".join(ET.fromstring(svg).itertext()).replace("\xa0", " ")


@pytest.mark.parametrize("name", PICTURES)
def test_readme_picture_contains_its_words_and_loads_no_other_file(name):
    svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")

    assert PICTURES[name][2] in words_in(svg)
    assert "✓" in words_in(svg)
    assert not {word for word in ("url(http", "@font-face", "@import", "<image", "<script", "/tmp/") if word in svg}


def test_pictures_do_not_load_a_font_from_the_network():
    drawn = (
        '@font-face { font-family: "Fira Code"; src: url("https://x/y.woff2"); }\n'
        ".terminal-42-matrix { font-family: Fira Code, monospace; }"
    )

    assert _plain(drawn).startswith(".aptui-matrix { font-family: ui-monospace, ")


def test_readme_shows_every_file_of_the_pictures_folder():
    readme = (FOLDER.parent.parent / "README.md").read_text(encoding="utf-8")

    assert {path.stem for path in FOLDER.iterdir()} == {CAST, *PICTURES}
    assert all(f"tests/pictures/{name}.svg" in readme for name in (CAST, *PICTURES))

"""Conversion of pictures with an ICC profile to sRGB, for every file format that may contain a profile."""

import io
import zlib

import icc_samples
import pytest
from PIL import Image, ImageCms
from png_samples import chunk, png, samples_of

from aptui.builders.image_builder import ImageBuilder

BUILDER = ImageBuilder
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
LINEAR = icc_samples.rgb(1.0, name="linear light")
SWAPPED = icc_samples.rgb(2.2, (icc_samples.SRGB_PRIMARIES[1], icc_samples.SRGB_PRIMARIES[0], icc_samples.SRGB_PRIMARIES[2]))
"""A profile that exchanges red and green."""


def encoded(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, format=kind, **options)
    return stream.getvalue()


def made(bench, source, data, **params):
    (product,) = bench.build(bench.write(source, data), **params).values()
    assert "icc_profile" not in Image.open(io.BytesIO(product)).info
    return Image.open(io.BytesIO(product))


@pytest.mark.parametrize(
    ("kind", "source", "options"),
    [("PNG", "a.png", {}), ("TIFF", "a.tif", {}), ("WEBP", "a.webp", {"lossless": True}), ("JPEG", "a.jpg", {"quality": 100})],
)
def test_colours_with_a_linear_profile_become_srgb_in_every_source_format(bench, kind, source, options):
    data = encoded(Image.new("RGB", (16, 16), (128, 128, 128)), kind, icc_profile=LINEAR, **options)

    picture = made(bench, source, data)

    assert all(abs(value - 188) <= 1 for value in picture.convert("RGB").getpixel((8, 8)))  # 0.5 in linear light is 188 in sRGB
    assert not bench.warnings
    assert any("from the profile 'linear light' to sRGB" in text for _, text in bench.lines)


def test_alpha_is_unchanged_when_a_profile_converts_the_colours(bench):
    picture = made(bench, "a.png", encoded(Image.new("RGBA", (2, 2), (255, 0, 0, 77)), "PNG", icc_profile=SWAPPED))

    red, green, blue, alpha = picture.getpixel((0, 0))
    assert (alpha, red < 60, green > 240, blue < 60) == (77, True, True, True)


@pytest.mark.parametrize("transparent", [False, True])
def test_palette_colours_with_a_profile_are_converted_to_srgb(bench, transparent):
    image = Image.new("P", (2, 2))
    image.putpalette([255, 0, 0, 0, 0, 255])
    options = {"transparency": 1} if transparent else {}

    picture = made(bench, "a.png", encoded(image, "PNG", icc_profile=SWAPPED, **options))

    assert (picture.mode, picture.getpixel((0, 0))[1] > 240) == ("RGBA" if transparent else "RGB", True)


@pytest.mark.parametrize("mode", ["L", "LA"])
def test_grey_profile_is_applied_to_a_grey_picture(bench, mode):
    picture = made(bench, "a.png", encoded(Image.new("L", (2, 2), 128).convert(mode), "PNG", icc_profile=icc_samples.grey(1.0)))

    assert picture.mode == mode
    assert abs(picture.convert("L").getpixel((0, 0)) - 188) <= 1


@pytest.mark.parametrize(("kind", "source"), [("JPEG", "a.jpg"), ("TIFF", "a.tif")])
def test_cmyk_profile_is_applied_to_cmyk_pictures(bench, kind, source):
    data = encoded(Image.new("CMYK", (16, 16), (255, 255, 0, 0)), kind, icc_profile=icc_samples.cmyk())

    red, green, blue = made(bench, source, data).convert("RGB").getpixel((8, 8))

    assert abs(red - 119) < 12  # a grey of 119 in sRGB has half the lightness of white
    assert max(red, green, blue) - min(red, green, blue) < 12
    assert not bench.warnings


def test_colours_with_an_srgb_profile_stay_unchanged(bench):
    rows = [[(value, 255 - value, value // 2) for value in range(256)]]
    near = icc_samples.rgb(2.2)  # a gamma of 2.2 differs from the curve of sRGB, so the colours are converted
    for profile, is_same in ((SRGB, True), (near, False)):
        (product,) = bench.build(bench.write("a.png", png(rows, 8, 2, chunk(b"iCCP", b"x\0\0" + zlib.compress(profile))))).values()
        assert (samples_of(product)[2] == rows) == is_same
    assert not bench.warnings


@pytest.mark.parametrize("profile", [b"junk", b"\0" * 200, SRGB[:200], SRGB[:400] + b"\xff" * 400, LINEAR[:128] + b"\xff" * 99])
def test_damaged_profile_warns_and_does_not_change_the_colours(bench, profile):
    image = Image.new("RGB", (2, 2), (10, 20, 30))

    picture = made(bench, "a.png", encoded(image, "PNG", icc_profile=profile))

    assert picture.getpixel((0, 0)) == (10, 20, 30)
    assert bench.warnings == ["a.png: the damaged colour profile is ignored"]


@pytest.mark.parametrize(
    ("mode", "profile", "words"),
    [
        ("L", SWAPPED, "'test' is ignored, because it is for RGB pictures and this picture is grey"),
        ("RGB", icc_samples.grey(1.0), "'test grey' is ignored, because it is for grey pictures and this picture is RGB"),
        ("CMYK", SWAPPED, "'test' is ignored, because it is for RGB pictures and this picture is CMYK"),
    ],
)
def test_profile_for_another_pixel_mode_is_ignored_with_a_warning(bench, mode, profile, words):
    made(bench, "a.tif", encoded(Image.new(mode, (2, 2)), "TIFF", icc_profile=profile))

    assert bench.warnings == [f"a.tif: the colour profile {words}"]


def test_srgb_profile_of_a_grey_picture_does_not_warn(bench):
    made(bench, "a.jpg", encoded(Image.new("L", (8, 8), 7), "JPEG", icc_profile=SRGB))

    assert not bench.warnings


@pytest.mark.parametrize(
    ("kind", "profile"), [(2, LINEAR), (6, LINEAR), (0, icc_samples.grey(1.0)), (0, icc_samples.profile(b"GRAY", {}))]
)
def test_profile_of_a_16_bit_picture_is_not_applied_and_warns(bench, kind, profile):
    rows = [[(1000,) * {0: 1, 2: 3, 6: 4}[kind]]]
    source = bench.write("a.png", png(rows, 16, kind, chunk(b"iCCP", b"x\0\0" + zlib.compress(profile))))

    (product,) = bench.build(source).values()

    assert samples_of(product) == (16, kind, rows)
    (warning,) = bench.warnings
    assert warning.endswith("is ignored, because the picture has 16 bits per channel; save it in sRGB, or with 8 bits")


def test_srgb_profile_of_a_16_bit_picture_does_not_warn(bench):
    bench.build(bench.write("a.png", png([[(1, 2, 3)]], 16, 2, chunk(b"iCCP", b"x\0\0" + zlib.compress(SRGB)))))

    assert not bench.warnings


def test_profile_name_is_logged_as_one_printable_line(bench):
    profile = icc_samples.rgb(1.0, name="a\x1b[31m\nb" + "c" * 500)

    made(bench, "a.png", encoded(Image.new("RGB", (2, 2)), "PNG", icc_profile=profile))

    (note,) = [text for _, text in bench.lines if "from the profile" in text]
    assert note.isprintable()
    assert len(note) < 140

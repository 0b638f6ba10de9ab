import io
import random
import struct

import pytest
from PIL import Image, ImageOps

from aptui.builders.image_builder import IMAGE_ASSET_TYPE, ImageBuilder
from aptui.sdk import Result

BUILDER = ImageBuilder


def picture(mode="RGB", size=(40, 20)):
    if mode == "I;16":
        return Image.frombytes(mode, size, random.Random(1).randbytes(size[0] * size[1] * 2))
    noise = Image.frombytes("RGBA", size, random.Random(1).randbytes(size[0] * size[1] * 4))
    return noise.convert("RGB").convert(mode) if mode == "P" else noise.convert(mode)


def encoded(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, format=kind, **options)
    return stream.getvalue()


def opened(data):
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def only(products):
    ((_, data),) = products.items()
    return opened(data)


def test_png_product_has_the_same_pixels_as_its_source(bench):
    image = picture("RGBA")

    products = bench.build(bench.write("art/a.b.tif", encoded(image, "TIFF")))

    assert list(products) == ["a.b.png"]
    assert only(products).tobytes() == image.tobytes()


@pytest.mark.parametrize("expected", ["png", "webp", "jpeg"])
@pytest.mark.parametrize(
    ("kind", "source"), [("PNG", "a.png"), ("JPEG", "a.JPG"), ("TGA", "a.tga"), ("BMP", "a.bmp"), ("GIF", "a.gif")]
)
def test_every_source_format_is_converted_to_every_product_format(bench, kind, source, expected):
    image = only(bench.build(bench.write(source, encoded(picture(), kind)), format=expected))

    assert (image.format, image.size) == (expected.upper(), (40, 20))


MODES = [
    ("1", "PNG", "L"),
    ("L", "PNG", "L"),
    ("LA", "PNG", "LA"),
    ("P", "PNG", "RGB"),
    ("RGB", "PNG", "RGB"),
    ("RGBA", "PNG", "RGBA"),
    ("CMYK", "JPEG", "RGB"),
    ("CMYK", "TIFF", "RGB"),
    ("LAB", "TIFF", "RGB"),
    ("YCbCr", "JPEG", "RGB"),
    ("I;16", "PNG", "I;16"),
    ("I;16", "TIFF", "I;16"),
]


@pytest.mark.parametrize("expected", ["png", "webp", "jpeg"])
@pytest.mark.parametrize(("mode", "kind", "png_mode"), MODES)
def test_picture_of_every_pixel_mode_is_converted_to_every_format(bench, mode, kind, png_mode, expected):
    image = only(bench.build(bench.write("a.tif", encoded(picture(mode), kind)), format=expected, max_size=10))

    assert image.size == (10, 5)
    if expected == "png":
        assert image.mode == png_mode


def test_big_endian_16_bit_grey_keeps_its_values(bench):
    grey = picture("I;16")
    pixels = grey.tobytes()
    swapped = bytes(byte for at in range(0, len(pixels), 2) for byte in (pixels[at + 1], pixels[at]))
    data = encoded(Image.frombytes("I;16B", grey.size, swapped), "TIFF")

    assert only(bench.build(bench.write("a.tif", data))).tobytes() == pixels


@pytest.mark.parametrize("mode", ["I", "F"])
def test_picture_with_32_bits_a_channel_is_refused(bench, mode):
    data = encoded(Image.new(mode, (4, 4), 7), "TIFF")

    assert (
        bench.fail(bench.write("a.tif", data))
        == "a.tif: pictures with 32 bits per channel are not supported; save the picture with 8 or 16 bits"
    )


@pytest.mark.parametrize("transparency", [0, b"\x00\x80\xff"])
def test_palette_picture_with_transparency_gets_an_alpha_channel(bench, transparency):
    image = Image.new("P", (3, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.putdata([0, 1, 2])

    made = only(bench.build(bench.write("a.png", encoded(image, transparency=transparency))))

    assert made.mode == "RGBA"
    assert made.getpixel((0, 0))[3] == 0
    assert not bench.warnings


def test_transparent_colour_of_a_png_becomes_alpha(bench):
    data = encoded(Image.new("RGB", (2, 2), (1, 2, 3)), transparency=(1, 2, 3))

    assert only(bench.build(bench.write("a.png", data))).getpixel((0, 0)) == (1, 2, 3, 0)


SIZES = [
    ({}, (40, 20)),
    ({"max_size": 40}, (40, 20)),
    ({"max_size": 10}, (10, 5)),
    ({"max_size": 1}, (1, 1)),
    ({"scale": 0.5}, (20, 10)),
    ({"scale": 0.5, "max_size": 30}, (20, 10)),
    ({"scale": 0.001}, (1, 1)),
    ({"power_of_two": True}, (32, 16)),
    ({"power_of_two": True, "max_size": 31}, (16, 16)),
]


@pytest.mark.parametrize(("params", "size"), SIZES)
def test_product_has_the_requested_size(bench, params, size):
    assert only(bench.build(bench.write("a.png", encoded(picture())), **params)).size == size


@pytest.mark.parametrize(("mode", "grey"), [("RGB", "L"), ("RGBA", "LA"), ("I;16", "I;16")])
def test_grayscale_keeps_alpha_and_depth(bench, mode, grey):
    assert only(bench.build(bench.write("a.png", encoded(picture(mode))), grayscale=True)).mode == grey


def test_mips_end_at_one_pixel_and_the_sub_id_contains_the_level(bench):
    source = bench.write("rock.png", encoded(picture(size=(20, 5))))

    response = bench.process(source, mips=True)

    assert response.result is Result.SUCCESS
    found = [
        (product.path, product.sub_id, opened((bench.products_dir / product.path).read_bytes()).size)
        for product in response.products
    ]
    assert found == [
        ("rock.png", 0, (20, 5)),
        ("rock.mip1.png", 0x10000, (10, 2)),
        ("rock.mip2.png", 0x20000, (5, 1)),
        ("rock.mip3.png", 0x30000, (2, 1)),
        ("rock.mip4.png", 0x40000, (1, 1)),
    ]
    assert {product.asset_type for product in response.products} == {IMAGE_ASSET_TYPE}


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "I;16"])
def test_mips_are_made_for_every_pixel_mode(bench, mode):
    assert len(bench.build(bench.write("a.png", encoded(picture(mode))), mips=True)) == 6


def test_picture_with_too_many_mip_levels_fails(bench):
    source = bench.write("a.png", encoded(Image.new("1", (65536, 1))))

    assert bench.fail(source, mips=True) == "a.png: a picture of 65536x1 pixels needs more than 15 mip levels; set max_size"
    assert len(bench.build(source, mips=True, max_size=32768)) == 16


@pytest.mark.parametrize(("expected", "longest"), [("webp", 16383), ("jpeg", 65500)])
def test_picture_with_a_side_too_long_for_the_format_fails(bench, expected, longest):
    source = bench.write("a.png", encoded(Image.new("1", (longest + 1, 1))))

    assert (
        bench.fail(source, format=expected) == f"a.png: {longest + 1}x1 pixels are too large for {expected}, "
        f"which supports up to {longest} pixels per side; set max_size"
    )


PARAMS = [
    {"format": "png", "mips": True, "max_size": 17},
    {"format": "webp", "quality": 60, "scale": 0.7},
    {"format": "webp", "lossless": True},
    {"format": "jpeg", "quality": 80, "grayscale": True},
]


@pytest.mark.real
@pytest.mark.parametrize("params", PARAMS)
def test_equal_sources_give_equal_bytes_across_processes(bench, made_elsewhere, digests_of, params):
    source = bench.write("a.png", encoded(picture("RGBA")))

    first = bench.build(source, **params)

    assert bench.build(source, **params) == first
    assert made_elsewhere(bench, source, **params) == digests_of(first)


def test_lower_quality_gives_fewer_bytes_and_lossless_keeps_the_pixels(bench):
    source = bench.write("a.png", encoded(picture()))

    for expected in ("jpeg", "webp"):
        (low,), (high,) = (bench.build(source, format=expected, quality=quality).values() for quality in (10, 95))
        assert len(low) < len(high)
    assert only(bench.build(source, format="webp", lossless=True)).tobytes() == picture().tobytes()


def test_lossless_webp_keeps_the_colours_of_transparent_pixels(bench):
    pixels = Image.frombytes("RGBA", (2, 1), bytes((200, 100, 50, 0, 1, 2, 3, 255)))

    made = only(bench.build(bench.write("a.png", encoded(pixels)), format="webp", lossless=True))

    assert made.tobytes() == pixels.tobytes()


def test_exif_orientation_is_applied_and_metadata_is_removed(bench):
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "secret place"
    data = encoded(picture(), "JPEG", exif=exif, comment=b"secret comment", icc_profile=b"secret profile", dpi=(300, 300))

    for expected in ("png", "jpeg", "webp"):
        (made,) = bench.build(bench.write("a.jpg", data), format=expected).values()
        assert opened(made).size == (20, 40)
        assert b"secret" not in made
        assert not {"exif", "comment", "icc_profile"} & set(opened(made).info)


def test_broken_exif_is_ignored(bench):
    data = encoded(picture(), exif=b"Exif\x00\x00II*\x00\xff\xff\xff\x7f")

    assert only(bench.build(bench.write("a.png", data))).size == (40, 20)


def test_exif_data_that_pillow_cannot_read_warns(bench, monkeypatch):
    def stumble(_picture, *, in_place):
        raise struct.error("unpack requires\na buffer")

    monkeypatch.setattr(ImageOps, "exif_transpose", stumble)
    bench.build(bench.write("a.png", PNG))

    assert bench.warnings == ["a.png: the damaged EXIF orientation is ignored"]


@pytest.mark.parametrize(("mode", "is_warned"), [("RGBA", True), ("LA", True), ("RGB", False)])
def test_warning_reports_alpha_that_the_format_cannot_store(bench, mode, is_warned):
    bench.build(bench.write("a.png", encoded(picture(mode))), format="jpeg")

    assert bench.warnings == (
        ["a.png: jpeg does not support transparency; the picture was put on a white background"] if is_warned else []
    )


def test_opaque_alpha_channel_is_dropped_without_a_warning(bench):
    bench.build(bench.write("a.png", encoded(Image.new("RGBA", (8, 8), (9, 9, 9, 255)))), format="jpeg")

    assert not bench.warnings


def test_transparent_pixels_become_white_in_a_jpeg(bench):
    made = only(bench.build(bench.write("a.png", encoded(Image.new("RGBA", (8, 8), (9, 9, 9, 0)))), format="jpeg"))

    assert made.getpixel((4, 4)) == (255, 255, 255)


@pytest.mark.parametrize(("kind", "source"), [("GIF", "a.gif"), ("PNG", "a.png"), ("WEBP", "a.webp"), ("TIFF", "a.tif")])
def test_animation_is_reduced_to_its_first_frame_with_a_warning(bench, kind, source):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "lime")]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {}))

    made = only(bench.build(bench.write(source, data)))

    assert made.convert("RGB").getpixel((0, 0)) == (255, 0, 0)
    assert getattr(made, "n_frames", 1) == 1
    assert bench.warnings == [f"{source}: only the first of 3 frames is used"]


PNG = encoded(picture())


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


SUPPORTED = "the supported formats of pictures are PNG, JPEG, BMP, GIF, TIFF, WebP"
DAMAGED = [
    ("empty", "a.png", b"", "a.png: the file is empty"),
    ("text", "a.png", b"hello", f"a.png: the file is a text file; {SUPPORTED}"),
    ("text as tga", "a.tga", b"hello", f"a.tga: the file is a text file; {SUPPORTED}, TGA"),
    (
        "postscript",
        "a.png",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        f"a.png: the file is a PostScript file; {SUPPORTED}",
    ),
    ("truncated", "a.png", PNG[: len(PNG) // 2], "a.png: damaged PNG: the file ends too early"),
    ("header only", "a.png", PNG[:20], "a.png: damaged PNG: the file ends too early"),
    ("header bits", "a.png", flipped(PNG, 18), "a.png: damaged PNG: the checksum of the header (chunk IHDR) is wrong"),
    ("data bits", "a.png", flipped(PNG, 300), "a.png: damaged PNG: the checksum of the pixel data (chunk IDAT) is wrong"),
    ("jpeg", "a.jpg", encoded(picture(), "JPEG")[:400], "a.jpg: damaged JPEG: "),
    ("jpeg data", "a.jpg", encoded(picture(size=(200, 200)), "JPEG")[:5000], "a.jpg: damaged JPEG: the file ends too early"),
    ("bmp", "a.bmp", encoded(picture(), "BMP")[:900], "a.bmp: damaged BMP: the file ends too early"),
    ("gif", "a.gif", encoded(picture(), "GIF")[:600], "a.gif: damaged GIF: "),
    ("webp", "a.webp", encoded(picture(), "WEBP")[:200], "a.webp: damaged WebP: "),
    ("tiff", "a.tif", encoded(picture(), "TIFF")[:300], "a.tif: damaged TIFF: "),
    ("tga", "a.tga", encoded(picture(), "TGA")[:700], "a.tga: damaged TGA: the file ends too early"),
]


@pytest.mark.parametrize(("source", "data", "error"), [case[1:] for case in DAMAGED], ids=[case[0] for case in DAMAGED])
def test_damaged_picture_fails_with_the_reason(bench, source, data, error):
    found = bench.fail(bench.write(source, data))

    assert found.startswith(error)
    assert "0x" not in found


def test_truncated_picture_is_read_or_fails_with_a_message_of_one_line(bench):
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "TGA"):
        data = encoded(picture(size=(12, 9)), kind)
        source = f"a.{kind.lower()}"
        chance = random.Random(3)
        for _ in range(40):
            bench.write(source, flipped(data, chance.randrange(len(data)))[: chance.randrange(1, len(data) + 1)])
            response = bench.process(source)
            assert (response.result is Result.SUCCESS) == (not response.error)
            assert "\n" not in response.error


@pytest.mark.slow
def test_project_can_allow_more_pixels_than_the_limit_of_pillow(bench):
    source = bench.write("a.png", encoded(Image.new("1", (15000, 15000))))

    assert only(bench.build(source, max_size=16, max_megapixels=1000)).size == (16, 16)
    assert bench.fail(source, max_megapixels=100).startswith(
        "a.png: the picture is too large: 225 million are more than 100 million pixels, "
    )
    assert Image.MAX_IMAGE_PIXELS == 89478485


@pytest.mark.slow
def test_decompression_bomb_fails(bench):
    bomb = encoded(Image.new("1", (20000, 20000)))

    assert bench.fail(bench.write("a.png", bomb)).startswith(
        "a.png: the picture is too large: 400 million are more than 64 million pixels, "
    )


@pytest.mark.slow
def test_picture_between_the_two_limits_of_pillow_does_not_warn(bench):
    source = bench.write("a.png", encoded(Image.new("1", (9600, 9600))))

    assert only(bench.build(source, max_size=16, max_megapixels=100)).size == (16, 16)
    assert not bench.warnings
    assert bench.fail(source, max_size=16) == (
        "a.png: the picture is too large: 9600x9600 are more than 64 million pixels, which is the limit (max_megapixels)"
    )


def test_error_of_a_source_whose_name_has_a_line_break_is_one_line(bench):
    assert bench.fail(bench.write("new\nline.png", b"")) == "new\\nline.png: the file is empty"


def test_source_name_that_is_not_utf8_is_accepted(bench):
    source = bench.write("caf\udce9.png", PNG)

    assert list(bench.build(source, format="webp")) == ["caf\udce9.webp"]


@pytest.mark.real
def test_analysis_does_not_import_pillow():
    import subprocess
    import sys

    code = (
        "import sys; from aptui.builders import image_builder, audio_builder, json_builder;"
        "sys.exit(bool({'PIL', 'numpy', 'soundfile', 'soxr', 'jsonschema'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_width_and_height_of_a_picture_are_recorded_with_its_product(bench):
    response = bench.process(bench.write("a.png", encoded(picture(size=(40, 20)))), format="webp", mips=True)

    assert [product.facts for product in response.products][:2] == [
        {"width": 40, "height": 20, "format": "webp"}, {"width": 20, "height": 10, "format": "webp"},
    ]  # fmt: skip

import struct
from io import BytesIO

import pytest
from PIL import Image
from texture import Texture

from aptui.sdk.testing import BuilderBench

pytest.importorskip("etcpak", reason="the Python package etcpak is not installed")
decoder = pytest.importorskip("texture2ddecoder", reason="the Python package texture2ddecoder is not installed")


@pytest.fixture
def bench(tmp_path):
    bench = BuilderBench(Texture(), tmp_path)
    for name, colour in (("red.png", (200, 40, 40, 255)), ("half.png", (200, 40, 40, 128)), ("flat.png", (128, 128, 255, 255))):
        file = BytesIO()
        Image.new("RGBA", (20, 12), colour).save(file, "PNG")
        bench.write(name, file.getvalue())
    return bench


def levels_of(data):
    """Return (VkFormat, size, [level, largest first]) of a KTX2 file."""
    assert data[:12] == b"\xabKTX 20\xbb\r\n\x1a\n"
    vk_format, _, width, height, *_, count, _ = struct.unpack_from("<9I", data, 12)
    places = [struct.unpack_from("<3Q", data, 80 + 24 * level) for level in range(count)]
    return vk_format, (width, height), [data[at : at + size] for at, size, _ in places]


@pytest.mark.parametrize(
    ("source", "params", "vk_format", "decode"),
    [
        ("red.png", {}, 146, decoder.decode_bc7),
        ("flat.png", {"usage": "normal"}, 141, decoder.decode_bc5),
        ("half.png", {"family": "etc2"}, 152, decoder.decode_etc2a8),
        ("red.png", {"family": "astc", "effort": 0}, 166, lambda data, w, h: decoder.decode_astc(data, w, h, 6, 6)),
    ],
)
def test_texture_holds_all_mips_in_the_format_of_its_family(bench, source, params, vk_format, decode):
    (data,) = bench.build(source, **params).values()

    found, size, levels = levels_of(data)
    assert (found, size, len(levels)) == (vk_format, (20, 12), 5)
    for level, encoded in enumerate(levels[:3]):
        width, height = 20 >> level, 12 >> level
        picture = Image.frombytes("RGBA", (width, height), decode(encoded, width, height), "raw", "BGRA")
        wanted = Image.open(bench.folder / "assets" / source).getpixel((0, 0))
        channels = 2 if params.get("usage") == "normal" else 3
        assert all(abs(picture.getpixel((1, 1))[at] - wanted[at]) < 12 for at in range(channels))
    assert bench.progress == sorted(bench.progress)
    assert bench.progress[-1] <= 1


def test_texture_is_the_same_twice(bench):
    assert bench.build("red.png") == bench.build("red.png")

"""The `texture` builder: formats by platform and usage, right pixels in every level, files that independent readers accept."""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import astc_encoder
import numpy as np
import pytest
import texture2ddecoder
from PIL import Image

from aptui.builders import texture_builder
from aptui.builders.files.mips import make_mips, premultiply, resize
from aptui.builders.files.texture_file import FORMATS
from aptui.builders.texture_builder import TextureBuilder, TextureParams, choose_format, choose_usage
from aptui.sdk import JobError, PlatformInfo
from aptui.sdk.testing import BuilderBench

DECODERS: dict[str, Callable[[bytes, int, int], bytes]] = {
    "bc1": texture2ddecoder.decode_bc1, "bc3": texture2ddecoder.decode_bc3, "bc4": texture2ddecoder.decode_bc4,
    "bc5": texture2ddecoder.decode_bc5, "bc7": texture2ddecoder.decode_bc7, "etc2_rgb": texture2ddecoder.decode_etc2,
    "etc2_rgba": texture2ddecoder.decode_etc2a8, "eac_r": texture2ddecoder.decode_eacr, "eac_rg": texture2ddecoder.decode_eacrg,
    **{name: lambda data, w, h, form=form: texture2ddecoder.decode_astc(data, w, h, *form.block)
       for name, form in FORMATS.items() if name.startswith("astc")},
}  # fmt: skip


class Ktx2:
    """A reader of KTX2 files that is written only from the specification."""

    def __init__(self, data: bytes) -> None:
        assert data[:12] == b"\xabKTX 20\xbb\r\n\x1a\n"
        self.format, self.type_size, self.width, self.height, depth, self.layers, self.faces, count, scheme = struct.unpack_from(
            "<9I", data, 12
        )
        assert (depth, scheme) == (0, 0)
        dfd_at, dfd_size, kvd_at, kvd_size = struct.unpack_from("<4I", data, 48)
        self.dfd, self.values = data[dfd_at : dfd_at + dfd_size], data[kvd_at : kvd_at + kvd_size]
        index = [struct.unpack_from("<3Q", data, 80 + 24 * level) for level in range(count)]
        assert all(size == raw for _at, size, raw in index)
        assert [at for at, _, _ in index] == sorted((at for at, _, _ in index), reverse=True), "the smallest level is stored first"
        assert index[0][0] + index[0][1] == len(data)
        self.levels = [data[at : at + size] for at, size, _raw in index]

    def decode(self, name: str, level: int = 0) -> np.ndarray:
        """Return the pixels (height, width, RGBA) of one level as another library decodes them."""
        width, height = max(1, self.width >> level), max(1, self.height >> level)
        if name == "rgba8":
            return np.frombuffer(self.levels[level], np.uint8).reshape(height, width, 4)
        decoded = np.frombuffer(DECODERS[name](self.levels[level], width, height), np.uint8)
        return decoded.reshape(height, width, 4)[..., [2, 1, 0, 3]]


def draw_photo(width: int = 128, height: int = 96) -> np.ndarray:
    """Return a smooth picture with edges and some noise, as a photograph has them; opaque."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    noise = np.random.default_rng(1).normal(0, 2, (height, width, 3))
    colour = np.dstack([128 + 90 * np.sin(x / 40), 128 + 90 * np.cos(y / 30), 128 + 60 * np.sin((x + y) / 50)])
    colour[(x - 64) ** 2 + (y - 48) ** 2 < 400] = (230, 40, 30)
    return np.dstack([np.clip(colour + noise, 0, 255), np.full((height, width), 255)]).astype(np.uint8)


def draw_normals(size: int = 64) -> np.ndarray:
    y, x = np.mgrid[0:size, 0:size] / size * 6
    vector = np.dstack([0.6 * np.sin(x), 0.6 * np.cos(y), np.ones_like(x)])
    vector /= np.linalg.norm(vector, axis=2, keepdims=True)
    return np.dstack([np.round((vector + 1) * 127.5), np.full((size, size), 255)]).astype(np.uint8)


def png(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def psnr(first: np.ndarray, second: np.ndarray) -> float:
    error = ((first.astype(float) - second.astype(float)) ** 2).mean()
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


@pytest.fixture
def bench(tmp_path: Path) -> BuilderBench:
    return BuilderBench(TextureBuilder(), tmp_path)


def test_one_astc_encoder_is_reused_for_all_levels_and_textures(bench: BuilderBench, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    context = astc_encoder.ASTCContext
    monkeypatch.setattr(astc_encoder, "ASTCContext", lambda config: made.append(config) or context(config))
    texture_builder._make_astc_context.cache_clear()
    bench.write("photo.png", png(draw_photo()))

    first, second = (bench.build("photo.png", format="astc_6x6", usage="color")["photo.ktx2"] for _ in range(2))

    assert first == second
    assert len(made) == 1


@pytest.mark.parametrize(
    ("name", "channels", "least"),
    [
        ("bc1", 3, 30), ("bc3", 3, 29), ("bc4", 1, 38), ("bc5", 2, 38), ("bc7", 3, 40), ("etc2_rgb", 3, 32), ("etc2_rgba", 3, 32),
        ("eac_r", 1, 38), ("eac_rg", 2, 38), ("astc_4x4", 3, 43), ("astc_5x5", 3, 39), ("astc_6x6", 3, 36), ("astc_8x8", 3, 32),
        ("rgba8", 4, 90),
    ],
)  # fmt: skip
def test_decoded_texture_resembles_its_source_in_every_level(bench: BuilderBench, name: str, channels: int, least: float) -> None:
    pixels = draw_photo()
    bench.write("photo.png", png(pixels))

    file = Ktx2(bench.build("photo.png", format=name, usage="color")["photo.ktx2"])

    assert (file.width, file.height, len(file.levels)) == (128, 96, 8)
    expected = make_mips(pixels, "color", has_mips=True, bleeds=True, coverage=None)
    for level in (0, 1, 2):
        assert psnr(file.decode(name, level)[..., :channels], expected[level][..., :channels]) >= least - 5 * level, (name, level)
    assert file.format == (FORMATS[name].vulkan_srgb or FORMATS[name].vulkan)


@pytest.mark.parametrize("name", ["bc1", "bc3"])
def test_more_encoder_effort_makes_no_block_of_a_texture_worse(bench: BuilderBench, name: str) -> None:
    noise = np.random.default_rng(3).integers(0, 256, (32, 128, 4), np.uint8)
    pixels = np.vstack([draw_photo(), np.full((32, 128, 4), (9, 120, 200, 255)), noise | (0, 0, 0, 255)]).astype(np.uint8)
    bench.write("photo.png", png(pixels))

    errors = []
    for effort in (0, 30, 100):
        file = Ktx2(bench.build("photo.png", format=name, effort=effort, mips=False)["photo.ktx2"])
        gap = file.decode(name)[..., :3].astype(int) - pixels[..., :3]
        errors.append((gap**2).reshape(40, 4, 32, 4, 3).sum(axis=(1, 3, 4)))

    draft, usual, best = errors
    assert (usual <= draft).all()
    assert (best <= usual).all()
    assert draft.sum() > 1.15 * usual.sum()


@pytest.mark.parametrize(
    ("platform_id", "tags", "usage", "has_alpha", "expected"),
    [
        ("linux", ("desktop",), "color", True, "bc7"),
        ("linux", (), "normal", False, "bc5"), ("pc", (), "mask", False, "bc4"),
        ("android", ("mobile",), "color", False, "astc_6x6"), ("ios", (), "normal", False, "astc_4x4"),
        ("x", ("mobile",), "mask", False, "astc_8x8"),
        ("web", (), "color", False, "etc2_rgb"), ("web", (), "color", True, "etc2_rgba"), ("web", (), "normal", False, "eac_rg"),
    ],
)  # fmt: skip
def test_texture_format_is_chosen_by_platform_and_usage(
    platform_id: str, tags: tuple[str, ...], usage: str, has_alpha: bool, expected: str
) -> None:
    assert choose_format(TextureParams(), PlatformInfo(platform_id, tags), usage, has_alpha=has_alpha) == expected


def test_texture_format_for_a_platform_tag_overrides_the_default_format() -> None:
    options = TextureParams(formats={"desktop": "bc1", "android": "etc2"}, format="none")

    names = [
        choose_format(options, PlatformInfo(*each), "color", has_alpha=True)
        for each in (("linux", ("desktop",)), ("android",), ("ios",))
    ]

    assert names == ["bc1", "etc2_rgba", "rgba8"]
    with pytest.raises(JobError, match="'bc9' is not a known texture format; use one of bc, astc"):
        choose_format(TextureParams(format="bc9"), PlatformInfo("linux"), "color", has_alpha=False)


@pytest.mark.parametrize(
    ("stem", "usage"), [("rock", "color"), ("rock_N", "normal"), ("rock-normal", "normal"), ("T_Tree_ORM", "data"),
        ("Rock035_1K_NormalGL", "normal"), ("rock_nor_gl_4k", "normal"), ("rock_arm_1k", "data"), ("Rock_AmbientOcclusion", "mask"),
        ("icon_ui@2x", "ui"), ("wall_n_02", "normal"), ("Helmet_metallicRoughness", "data"), ("hero_idle_02", "color"),
     ("rock_ao", "mask"), ("rock_orm", "data"), ("n", "normal")]
)  # fmt: skip
def test_texture_usage_is_chosen_by_the_end_of_the_file_name(stem: str, usage: str) -> None:
    assert choose_usage("auto", stem) == usage
    assert choose_usage("ui", stem) == "ui"


def test_normal_map_stores_x_and_y_in_two_channels(bench: BuilderBench) -> None:
    pixels = draw_normals()
    bench.write("rock_n.png", png(pixels))

    desktop = Ktx2(bench.build("rock_n.png")["rock_n.ktx2"])
    mobile = Ktx2(bench.build("rock_n.png", format="astc")["rock_n.ktx2"])

    assert desktop.format == FORMATS["bc5"].vulkan
    assert psnr(desktop.decode("bc5")[..., :2], pixels[..., :2]) > 38
    assert psnr(mobile.decode("astc_4x4")[..., [0, 3]], pixels[..., :2]) > 38
    assert b"KTXswizzle\0ra01\0" in mobile.values
    vector = make_mips(pixels, "normal", has_mips=True, bleeds=True, coverage=None)[2][..., :3].astype(float) / 127.5 - 1
    assert np.abs(np.linalg.norm(vector, axis=2) - 1).max() < 0.02, "each pixel of a mip is a unit vector"


@pytest.mark.parametrize("blue", [0, 255])
def test_normal_map_with_only_x_and_y_keeps_both(bench: BuilderBench, blue: int) -> None:
    pixels = draw_normals()
    stored = np.dstack([pixels[..., :2], np.full_like(pixels[..., 2], blue), pixels[..., 3]])

    made = make_mips(stored, "normal", has_mips=False, bleeds=True, coverage=None)[0]

    assert np.abs(made[..., :3].astype(int) - pixels[..., :3]).max() <= 2


def test_texture_in_a_format_without_alpha_warns_that_its_transparency_is_lost(bench: BuilderBench) -> None:
    pixels = draw_photo()
    pixels[0, 0, 3] = 0
    bench.write("a.png", png(pixels))

    bench.build("a.png", format="bc1")

    assert bench.warnings == ["a.png: the format bc1 does not store the transparency of the picture"]
    bench.build("a.png", format="bc3")
    assert len(bench.warnings) == 1


def test_colours_are_averaged_in_linear_light_and_weighted_by_alpha() -> None:
    board = np.zeros((2, 2, 4), np.uint8)
    board[..., 3] = 255
    board[0, 0, :3] = board[1, 1, :3] = 255
    half_clear = np.array([[[255, 0, 0, 255], [0, 255, 0, 0]]] * 2, np.uint8)

    assert make_mips(board, "color", has_mips=True, bleeds=True, coverage=None)[1].tolist() == [[[188, 188, 188, 255]]]
    assert make_mips(board, "data", has_mips=True, bleeds=True, coverage=None)[1].tolist() == [[[128, 128, 128, 255]]]
    assert make_mips(half_clear, "color", has_mips=True, bleeds=True, coverage=None)[1].tolist() == [[[255, 0, 0, 128]]]


def test_mip_of_an_image_with_an_odd_side_averages_all_pixels() -> None:
    row = np.array([[[0, 0, 0, 255], [30, 0, 0, 255], [90, 0, 0, 255]]], np.uint8)

    assert make_mips(row, "data", has_mips=True, bleeds=True, coverage=None)[1].tolist() == [[[40, 0, 0, 255]]]


@pytest.mark.parametrize("usage", ["color", "normal", "data"])
@pytest.mark.parametrize("height", [512, 514])
def test_mips_of_a_picture_with_an_even_height_are_computed_in_bands_and_need_little_memory(usage: str, height: int) -> None:
    pixels = np.random.default_rng(4).integers(0, 256, (height, 64, 4), np.uint8)
    make_mips(pixels[:2, :2], usage, has_mips=True, bleeds=True, coverage=None)  # fills caches that are not to be measured

    tracemalloc.start()
    levels = [premultiply(level) for level in make_mips(pixels, usage, has_mips=True, bleeds=True, coverage=None)]
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert levels[1].shape == (height // 2, 32, 4)
    assert peak_bytes < 30 * height * 64


def test_transparent_pixels_get_the_colour_of_their_neighbours() -> None:
    pixels = np.zeros((4, 4, 4), np.uint8)
    pixels[:, :2] = (200, 100, 50, 255)

    bled = make_mips(pixels, "color", has_mips=False, bleeds=True, coverage=None)
    plain = make_mips(pixels, "color", has_mips=False, bleeds=False, coverage=None)

    assert (bled[0][..., :3] == (200, 100, 50)).all()
    assert (bled[0][..., 3] == pixels[..., 3]).all()
    assert (plain[0] == pixels).all()


def test_mips_keep_the_share_of_pixels_above_the_alpha_threshold() -> None:
    pixels = np.full((64, 64, 4), 255, np.uint8)
    pixels[..., 3] = (np.random.default_rng(2).random((64, 64)) < 0.3) * 255
    wanted = (pixels[..., 3] > 127).mean()

    with_coverage = make_mips(pixels, "color", has_mips=True, bleeds=True, coverage=0.5)
    lost = make_mips(pixels, "color", has_mips=True, bleeds=True, coverage=None)

    assert abs((with_coverage[3][..., 3] > 127).mean() - wanted) < 0.1
    assert (lost[3][..., 3] > 127).mean() < wanted / 2


def test_opaque_picture_stays_opaque_in_every_mip_with_an_alpha_threshold() -> None:
    levels = make_mips(np.full((8, 8, 4), 255, np.uint8), "color", has_mips=True, bleeds=True, coverage=0.5)

    assert [int(level[..., 3].min()) for level in levels] == [255] * 4


def test_astc_mask_stores_only_the_red_channel(bench: BuilderBench) -> None:
    pixels = np.dstack([draw_photo()[..., 0], np.roll(draw_photo(), 40, axis=1)[..., :3]])

    found = Ktx2(bench.build(bench.write("a.png", png(pixels)), usage="mask", format="astc_8x8")["a.ktx2"]).decode("astc_8x8")

    assert (found[..., 0] == found[..., 1]).all()
    assert (found[..., 3] == 255).all()
    assert psnr(found[..., 0], pixels[..., 0]) > 30


def test_premultiplied_texture_has_the_flag_of_premultiplied_alpha(bench: BuilderBench) -> None:
    pixels = np.full((4, 4, 4), (200, 100, 50, 128), np.uint8)
    bench.write("a.png", png(pixels))

    file = Ktx2(bench.build("a.png", format="none", premultiply=True)["a.ktx2"])

    assert file.decode("rgba8")[0, 0].tolist() == premultiply(pixels)[0, 0].tolist() == [100, 50, 25, 128]
    assert file.dfd[4 + 8 + 3] == 1, "the data format descriptor has the flag for premultiplied alpha"


def test_premultiplied_mips_equal_the_plain_mips_multiplied_by_alpha(bench: BuilderBench) -> None:
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0] = (255, 0, 0, 255)
    pixels[1] = (0, 255, 0, 51)
    bench.write("a.png", png(pixels))

    file = Ktx2(bench.build("a.png", format="none", premultiply=True)["a.ktx2"])

    straight = make_mips(pixels, "color", has_mips=True, bleeds=True, coverage=None)
    assert [file.decode("rgba8", level).tolist() for level in (0, 1)] == [premultiply(level).tolist() for level in straight]


def test_premultiplication_does_not_change_normal_maps(bench: BuilderBench) -> None:
    bench.write("rock_n.png", png(draw_normals()))

    assert bench.build("rock_n.png", premultiply=True) == bench.build("rock_n.png")


@pytest.mark.parametrize("name", ["bc1", "bc3", "bc7", "rgba8"])
def test_pillow_reads_a_dds_product(bench: BuilderBench, name: str) -> None:
    pixels = draw_photo()
    bench.write("photo.png", png(pixels))

    data = bench.build("photo.png", format=name, container="dds", usage="color" if name == "bc7" else "data")["photo.dds"]
    picture = Image.open(BytesIO(data))

    assert picture.size == (128, 96)
    assert psnr(np.asarray(picture.convert("RGB")), pixels[..., :3]) > 33


def test_channels_of_other_files_are_packed_into_one_texture(bench: BuilderBench) -> None:
    for at, part in enumerate(("ao", "rough", "metal")):
        bench.write(f"rock/{part}_{part}.png", png(np.full((8, 8, 4), 50 * (at + 1), np.uint8)))
        bench.write(f"rock/wall_{part}.png", png(np.full((8, 8, 4), (60 * (at + 1), 1, 2, 255), np.uint8)))
    channels = {"g": "{name}_rough.png", "b": "1-{name}_metal.png:r", "a": "1"}

    file = Ktx2(bench.build("rock/wall_ao.png", format="none", usage="data", channels=channels)["wall_ao.ktx2"])

    assert file.decode("rgba8")[0, 0].tolist() == [60, 120, 255 - 180, 255]
    assert bench.dependencies("rock/wall_ao.png", channels=channels) == ["rock/wall_metal.png", "rock/wall_rough.png"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"channels": {"g": "gone.png"}}, "gone.png"),
        ({"channels": {"x": "r"}}, "the channels are r, g, b and a"),
        ({"faces": ["a.png"] * 5}, "a cube map has 6 faces, but the parameter 'faces' names 5 files"),
        ({"faces": ["a.png"]}, "a cube map has 6 faces, but the parameter 'faces' names 1 file"),
        ({"faces": ["small.png"] * 6, "layers": ["a.png"]}, "only one of the parameters 'faces' and 'layers' can be set"),
        ({"layers": ["a.png", "small.png"]}, "all faces or layers must have the same size"),
        ({"format": "astc", "container": "dds"}, "a DDS file cannot contain the format astc_6x6"),
        ({"usage": "colour"}, "usage"),
    ],
)
def test_wrong_texture_parameter_fails_with_an_explanation(bench: BuilderBench, params: dict[str, object], message: str) -> None:
    bench.write("a.png", png(draw_photo(16, 12)))
    bench.write("small.png", png(draw_photo(8, 8)))

    assert message in bench.fail("a.png", **params)


def test_damaged_picture_fails_in_plain_words(bench: BuilderBench) -> None:
    bench.write("a.png", png(draw_photo(16, 16))[:200])

    assert bench.fail("a.png") == "a.png: damaged PNG: the file ends too early"


def test_cube_map_and_array_contain_all_their_images(bench: BuilderBench) -> None:
    for at, face in enumerate(("px", "nx", "py", "ny", "pz", "nz")):
        bench.write(f"sky_{face}.png", png(np.full((8, 8, 4), (40 * at, 0, 0, 255), np.uint8)))
    names = [f"{{name}}_{face}.png" for face in ("px", "nx", "py", "ny", "pz", "nz")]

    cube = Ktx2(bench.build("sky_px.png", format="none", faces=names)["sky_px.ktx2"])
    array = Ktx2(bench.build("sky_px.png", format="none", layers=names[:3])["sky_px.ktx2"])

    assert (cube.faces, cube.layers, len(cube.levels)) == (6, 0, 4)
    assert np.frombuffer(cube.levels[0], np.uint8).reshape(6, 8, 8, 4)[:, 0, 0, 0].tolist() == [0, 40, 80, 120, 160, 200]
    assert (array.faces, array.layers) == (1, 3)
    dds = bench.build("sky_px.png", format="bc7", container="dds", faces=names)["sky_px.dds"]
    assert struct.unpack_from("<5I", dds, 128)[2:4] == (4, 1)


@pytest.mark.parametrize(("rule", "size"), [("any", (50, 38)), ("multiple_of_four", (48, 36)), ("power_of_two", (32, 32))])
def test_texture_sides_are_limited_and_rounded(bench: BuilderBench, rule: str, size: tuple[int, int]) -> None:
    bench.write("photo.png", png(draw_photo(100, 75)))

    file = Ktx2(bench.build("photo.png", format="none", max_size=50, sides=rule)["photo.ktx2"])

    assert (file.width, file.height) == size
    assert psnr(file.decode("rgba8"), resize(draw_photo(100, 75), size[::-1], "color")) > 90


def test_bc_texture_whose_side_is_not_divisible_by_four_warns(bench: BuilderBench) -> None:
    bench.write("photo.png", png(draw_photo(30, 20)))

    bench.build("photo.png")

    assert "the sides of 30x20 pixels are not multiples of 4" in bench.warnings[0]


def test_progress_rises_to_one_and_a_draft_differs_from_the_final_texture(bench: BuilderBench) -> None:
    bench.write("photo.png", png(draw_photo(128, 160)))

    final = bench.build("photo.png")
    progress = list(bench.progress)
    bench.process("photo.png", is_draft=True)
    draft = {"photo.ktx2": (bench.products_dir / "photo.ktx2").read_bytes()}

    assert progress == sorted(progress)
    assert progress[-1] == 1
    assert final != draft


@pytest.mark.real
def test_equal_sources_give_equal_bytes_across_processes(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(png(draw_photo(64, 48)))
    code = """
import sys; from pathlib import Path
from aptui.builders.texture_builder import TextureBuilder, _load_etcpak; from aptui.sdk.testing import BuilderBench
bench = BuilderBench(TextureBuilder(), sys.argv[1]); bench.write("photo.png", Path(sys.argv[2]).read_bytes())
for name in ("bc1", "bc3", "bc5", "bc7", "etc2_rgb", "eac_r", "astc_6x6"):
    import hashlib; print(name, hashlib.sha256(bench.build("photo.png", format=name)["photo.ktx2"]).hexdigest())
print(_load_etcpak().__spec__.name)
"""
    made = []
    for run in ("1", "2"):
        (tmp_path / run).mkdir()
        arguments = [sys.executable, "-c", code, str(tmp_path / run), str(tmp_path / "photo.png")]
        made.append(
            subprocess.run(arguments, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": run}).stdout
        )

    assert made[0] == made[1]
    assert platform.machine() != "x86_64" or made[0].splitlines()[-1] == "_etcpak_sse41", (
        "all x86-64 machines use the same build of etcpak"
    )

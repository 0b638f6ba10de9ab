"""First builds of two trees, compared with a script that makes the same library calls in two bare processes.

* `real-tree` has pictures, sounds and other files, which are copied. The folder is `APTUI_BENCH_TREE`, by default that of Debian's
  supertux-data. If the folder does not exist, the tree is generated.
* `textures` has pictures from which textures are made. The folder is `APTUI_BENCH_TEXTURES`. By default, pictures with sides of 64
  to 2048 pixels are generated.
"""

from __future__ import annotations

import filecmp
import os
import random
import shutil
import sys
import wave
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.measure import Cost, median, run, say, settle, spread

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench

SUPERTUX = Path("/usr/share/games/supertux2")
CONFIG = """\
platforms: {{linux: {{}}}}
scan_folders: [{{name: game, path: {tree}}}]
workers: 2
builders:
  - {{name: image, uses: image, patterns: ["*.png"]}}
  - {{name: audio, uses: audio, patterns: ["*.wav"]}}
  - {{name: all, copy: ["*"], exclude: ["*.png", "*.wav"]}}
cache: Cache
local_store: {{enabled: false}}
"""
BARE = """\
import io, os, shutil, sys
from multiprocessing import get_context
import numpy
from PIL import Image

def picture(source, stem):
    with open(source, "rb") as file:
        data = file.read()
    with Image.open(io.BytesIO(data)) as found:
        found.load()
        kind = "L" if found.mode in ("1", "L", "LA", "La") else "RGB"
        made = found.convert(kind + "A" * found.has_transparency_data)
    made.info = {}
    with open(stem + ".png", "wb") as file:
        made.save(file, format="PNG")

def sound(source, stem):
    import soundfile
    with soundfile.SoundFile(source) as found:
        rate, channels = found.samplerate, found.channels
        with soundfile.SoundFile(stem + ".wav", "w", rate, channels, "PCM_16", format="WAV") as made:
            while len(block := found.read(65536, dtype="float64", always_2d=True)):
                made.write(numpy.clip(numpy.rint(block * 32768), -32768, 32767).astype(numpy.int32) << 16)

def make(job):
    source, target = job
    stem, extension = os.path.splitext(target)
    if extension == ".png":
        picture(source, stem)
    elif extension == ".wav":
        sound(source, stem)
    else:
        shutil.copyfile(source, target)

jobs = []
for folder, _folders, names in os.walk(sys.argv[1]):
    made = os.path.join(sys.argv[2], os.path.relpath(folder, sys.argv[1])).lower()
    os.makedirs(made, exist_ok=True)
    jobs += [(os.path.join(folder, name), os.path.join(made, name.lower())) for name in names]
with get_context("fork").Pool(2) as pool:
    for _each in pool.imap_unordered(make, [job for job in jobs if not os.path.islink(job[0])]):
        pass
"""


TEXTURES = """\
platforms: {{linux: {{}}}}
scan_folders: [{{name: game, path: {tree}}}]
workers: 2
builders: [{{name: texture, uses: texture, patterns: ["*.png"], params: {{format: bc7, usage: color}}}}]
cache: Cache
local_store: {{enabled: false}}
"""
BARE_TEXTURES = """\
import io, os, sys
from multiprocessing import get_context
import numpy
from PIL import Image
from aptui.builders.files.mips import make_mips
from aptui.builders.files.texture_file import Texture, encode_ktx2
from aptui.builders.texture_builder import _encode_band

def make(job):
    source, target = job
    with open(source, "rb") as file:
        pixels = numpy.array(Image.open(io.BytesIO(file.read())).convert("RGBA"))
    levels = []
    for level in make_mips(pixels, "color", has_mips=True, bleeds=True, coverage=None):
        bands = (level[top : top + 64] for top in range(0, len(level), 64))
        levels.append([b"".join(_encode_band(band, "bc7", "color", 30) for band in bands)])
    with open(target, "wb") as file:
        file.write(encode_ktx2(Texture("bc7", pixels.shape[1], pixels.shape[0], levels, is_srgb=True)))

jobs = []
for folder, _folders, names in os.walk(sys.argv[1]):
    made = os.path.join(sys.argv[2], os.path.relpath(folder, sys.argv[1])).lower()
    os.makedirs(made, exist_ok=True)
    names = [name for name in names if name.endswith(".png")]
    jobs += [(os.path.join(folder, name), os.path.join(made, name.lower()[:-3] + "ktx2")) for name in names]
with get_context("fork").Pool(2) as pool:
    for _each in pool.imap_unordered(make, jobs):
        pass
"""
_SIDES = {64: 120, 128: 90, 256: 70, 512: 40, 1024: 14, 2048: 4}
"""{side (pixels): number of generated pictures with this side}."""


def generate(root: Path, count: int) -> None:
    """Write `count` files, the same every time: two of three are pictures, one in 60 is a sound, the others are texts."""
    from PIL import Image

    rng = random.Random(5)
    for number in range(count):
        folder = root / f"set{number // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        if number % 60 == 1:
            with wave.open(str(folder / f"{number}.wav"), "wb") as sound:
                sound.setparams((1, 2, 22050, 0, "NONE", ""))
                sound.writeframes(rng.randbytes(20_000))
        elif number % 3 == 2:
            (folder / f"{number}.txt").write_bytes(rng.randbytes(2000).hex().encode())
        else:
            side = rng.choice((32, 32, 48, 64, 64, 96, 128, 256))
            small = Image.frombytes("RGBA", (side // 8, side // 8), rng.randbytes(side * side // 16))
            small.resize((side, side), Image.Resampling.BICUBIC).save(folder / f"{number}.png")


def generate_textures(root: Path) -> None:
    """Write square pictures with the detail of photographs, the same every time: the sum of noise at all scales."""
    import numpy as np
    from PIL import Image

    for side, count in _SIDES.items():
        for number in range(count):
            (root / f"{side}").mkdir(parents=True, exist_ok=True)
            rng, values = np.random.default_rng(number), np.zeros((side, side, 3), np.float32)
            for cells in (2 << shift for shift in range(0, side.bit_length() - 1, 2)):
                noise = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), np.uint8))
                values += np.asarray(noise.resize((side, side), Image.Resampling.BICUBIC), np.float32) / cells**0.7
            values -= values.min()
            Image.fromarray((values * (255 / values.max())).astype(np.uint8)).save(root / f"{side}" / f"{number}.png")


def real_tree(bench: Bench) -> None:
    """A cold build: all files of a tree of pictures, sounds and copies are new."""
    tree = Path(os.environ.get("APTUI_BENCH_TREE", SUPERTUX))
    if not tree.is_dir():
        tree = bench.base / "tree"
        if not tree.is_dir():
            generate(tree, 2000)
    wall, cpu, text = _compare(bench, tree, BARE, CONFIG)
    say("real tree", f"{text}; {wall:.2f} × the time (target ≤ 1.15), {cpu:.2f} × the processor time (target ≤ 1.10)")


def textures(bench: Bench) -> None:
    """A cold build of GPU textures (BC7) compared with decoding, mips and encoding in two bare processes."""
    tree = Path(os.environ.get("APTUI_BENCH_TEXTURES", bench.base / "pictures"))
    if not tree.is_dir():
        generate_textures(tree)
    wall, cpu, text = _compare(bench, tree, BARE_TEXTURES, TEXTURES)
    say("textures", f"{text}; {1 / wall:.2f} × the throughput (target ≥ 0.9), by processor time {1 / cpu:.2f} ×")


def _compare(bench: Bench, tree: Path, bare_code: str, config: str) -> tuple[float, float, str]:
    """Build a tree by aptui and by a script, in turns; return the ratios of wall and of processor time, and a description."""
    script, out = bench.base / "bare_tree.py", bench.base / "bare-tree"
    script.write_text(bare_code, encoding="utf-8")
    ours: list[Cost] = []
    bare: list[Cost] = []
    did: dict[str, int] = {}
    for _run in range(bench.runs):
        shutil.rmtree(out, ignore_errors=True)
        settle()
        bare.append(run([sys.executable, str(script), str(tree), str(out)]))
        project = bench.project("tree-project", config.format(tree=tree))
        cost, did = bench.build(project)
        ours.append(cost)
    made = [path for path in out.rglob("*") if path.is_file()]
    products = project / "Cache" / "linux"
    different = [path for path in made if not filecmp.cmp(path, products / path.relative_to(out), shallow=False)]
    if different:
        raise SystemExit(f"'{different[0]}' and {len(different) - 1} more differ from their products: no ratio")
    wall = median(ours).wall_s / median(bare).wall_s
    cpu_s, bare_s = (min(cost.cpu_s for cost in costs) for costs in (ours, bare))
    text = f"{did['jobs_run']:,} jobs of '{tree.name}' {spread(ours)}, two bare processes {spread(bare)}; "
    return wall, cpu_s / bare_s, f"{text}CPU at least {cpu_s:.2f} s against {bare_s:.2f} s"


ROWS = {"real-tree": real_tree, "textures": textures}

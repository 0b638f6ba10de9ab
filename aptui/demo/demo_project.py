"""Writes the demo project: generated sources that show every kind of builder. The verb (`cli`) processes it.

Its products, `count_expected_products()` in all:

| sources                        | builder                  | linux                  | server               | products |
|--------------------------------|--------------------------|------------------------|----------------------|---------:|
| 4 `textures/*.png`             | `textures` (image)       | WebP, 64 px, 7 levels  | skipped              |       28 |
| 1 `sprites/*.png`              | `sprites` (image)        | PNG                    | PNG, 64 px           |        2 |
| 6 `icons/*.png`                | `icons` (image)          | PNG                    | PNG, 16 px, grey     |       12 |
| 1 `sprites/*.atlas`            | `hud` (atlas)            | page and frames        | page and frames      |        4 |
| 5 `sounds/*.wav`               | `sounds` (audio)         | Opus, 48,000 Hz        | WAV, mono, 11,025 Hz |       10 |
| 5 `data/*.json`, one warns     | `data` (json)            | minified               | indented             |       10 |
| 1 `data/broken.json`           | `data` (json)            | fails                  | fails                |        0 |
| 2 `levels/*.yaml`              | `levels` (yaml)          | JSON, minified         | JSON, indented       |        4 |
| 1 `dialogue/*.xml`             | `dialogue` (xml)         | minified               | as it is             |        2 |
| 2 `languages/*.po`             | `languages` (locale)     | JSON                   | JSON                 |        4 |
| 1 `models/*.gltf`              | `models` (model)         | GLB                    | GLB, no images       |        2 |
| 3 `scripts/*.lua`              | `texts` (copy), or `scripts` (lua) | copied, or bytecode | copied       |        6 |
| 3 `docs/*.txt`, one of `shared`| `texts` (copy)           | copied                 | copied               |        6 |
| 2 `signs/*.up`                 | `upper` (command)        | in capitals            | in capitals          |        4 |
| 2 `words/*.words`              | `wordlist` (the project's own) | indexed          | indexed              |        4 |
| 1 `words/stopwords.list`       | none: read by `wordlist` |                        |                      |        0 |
| `moth.bin`, `level.schema`     | none: dependencies       |                        |                      |        0 |
|                                |                          |                        |                      |   **98** |
| 1 `models/lamp.gltf`           | `models` (model)         | 3 levels of detail     | 3 levels of detail   |        6 |
| 1 `models/*.obj`               | `meshes` (model)         | GLB, half as large     | without normals      |        2 |
| 1 `shaders/*.frag`             | `shaders` (shader)       | SPIR-V, interface      | SPIR-V for OpenGL, interface |        4 |
| 1 `fonts/*.ttf`                | `fonts` (font)           | WOFF2                  | TTF of four letters  |        2 |
| 1 `sprites/*.png`              | `gpu` (texture)          | BC7                    | ASTC                 |        2 |
|                                |                          |                        |                      |  **114** |

The products below the first total (98), and the builder `scripts`, exist only if this host has the programs and libraries that
they need (`demo.demo_assets`). Without `scripts`, the builder `texts` copies the Lua files.
"""

from __future__ import annotations

import io
import math
import random
import sys
import wave
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.demo import demo_assets
from aptui.demo.demo_assets import EXTRAS, FILES, Extra, moth_buffer, moth_model
from aptui.shared.errors import HostError, UserError

if TYPE_CHECKING:
    from PIL import Image

MARKER = "# aptui demo project: made by `aptui demo`, which rewrites its files when it runs again."
"""First line of the demo's `aptui.yaml`. If the `aptui.yaml` of a folder begins with this line, the demo may replace its files."""

INTENDED_FAILURES = ("data/broken.json",)
"""Sources whose jobs fail on every platform; paths are relative to the scan folder."""

INTENDED_WARNINGS = ("data/palette.json",)
"""Sources whose jobs complete with warnings on every platform."""

_BASE_PRODUCT_COUNT = 98

_KINDS = (
    ("GPU textures", "*.ktx2", "sprites/moth.ktx2: BC7 for linux, ASTC for the server"),
    ("atlas", "*/hud.*", "sprites/hud.png and hud.json: all icons on one page"),
    ("pictures", "*.png *.webp", "textures/ as WebP with mips; icons/ and sprites/ as PNG"),
    ("sounds", "*/sounds/*", "Opus for linux; small mono WAV for the server"),
    ("LODs", "*.lod?.glb", "models/lamp.lod1.glb, lamp.lod2.glb: fewer triangles"),
    ("models", "*/models/*", "GLB with its buffers inside; for linux also with its textures"),
    ("shaders", "*/shaders/*", "SPIR-V, and its interface as JSON"),
    ("fonts", "*/fonts/*", "WOFF2 for linux; for the server a TTF with only four letters"),
    ("languages", "*/languages/*", "languages/de.json and fr.json: tables of texts"),
    ("data", "*/data/* */levels/* */dialogue/*", "JSON, YAML and XML, checked; for linux also minified"),
    ("texts", "*", "docs/, scripts/; signs/ by 'tr', words/ by wordlist.py"),
)
"""(kind of products, patterns of their paths, description); for each product the first pattern that matches is used."""

SAMPLE_RATE_HZ = 44100

_CONFIG = f"""{MARKER}
# The platform of this machine is always enabled. `server` has no screen; its products are smaller.
platforms:
  linux:  {{tags: [tools, renderer]}}
  server: {{tags: [server], enabled: true}}

# If both folders have a file at the same relative path, the folder with the lower order wins:
# assets/docs/credits.txt hides shared/docs/credits.txt.
scan_folders:
  - {{name: game, path: assets, order: 0}}
  - {{name: shared, path: shared, order: 100}}

ignore: ["*.tmp"]

builders:
  # Shipped builders, with parameters per platform.
  - name: textures
    uses: image
    patterns: ["textures/*.png"]
    params: {{format: webp, lossless: true, max_size: 64, mips: true}}
    platforms: {{server: skip}}
  - name: sprites
    uses: image
    patterns: ["sprites/*.png"]
    platforms: {{server: {{max_size: 64}}}}
  - name: icons
    uses: image
    patterns: ["icons/*.png"]
    platforms: {{server: {{max_size: 16, grayscale: true}}}}
  - {{name: hud, uses: atlas}}
  - name: sounds
    uses: audio
    patterns: ["sounds/*.wav"]
    params: {{format: opus}}
    platforms: {{server: {{format: wav, channels: mono, sample_rate: 11025}}}}
  - name: data
    uses: json
    patterns: ["data/*.json"]
    platforms: {{server: {{indent: 2}}}}

  - name: levels
    uses: yaml
    params: {{output: min, schema: levels/level.schema}}
    platforms: {{server: {{output: json}}}}
  - name: dialogue
    uses: xml
    params: {{output: min}}
    platforms: {{server: {{output: copy}}}}
  - {{name: languages, uses: locale}}
  - name: models
    uses: model
    patterns: ["*.gltf", "*.glb"]
    platforms: {{server: {{textures: files}}}}
@EXTRAS@
  # These files are copied unchanged.
  - {{name: texts, copy: [@COPIED@]}}

  # A builder can be any program.
  - name: upper
    patterns: ["*.up"]
    version: 1
    command: "tr a-z A-Z < {{source}} > {{products_dir}}/{{stem}}.txt"
    products: ["*.txt"]

  # This builder belongs to the project: builders/wordlist.py.
  - {{name: wordlist, uses: wordlist, patterns: ["*.words"]}}

cache: Cache
"""

_WORDLIST_BUILDER = '''"""A builder of this project's own: an index of the words of a text, without the stop words."""

import json
import os
from uuid import UUID

from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result, SourceDependency

STOP_WORDS = "words/stopwords.list"
WORD_INDEX = UUID("5c1f0a52-2f0e-4c7e-9f6b-7d3b6a1e1e04")


class WordListBuilder:
    """Makes `<stem>.index`: each word and the numbers of its lines."""

    name = "wordlist"
    version = "1"
    patterns = ("*.words",)
    analysis_fingerprint = "1"

    def create_jobs(self, request):
        """Ask for one job per platform; when the stop words change, all of them run again."""
        jobs = [JobDescriptor(request.builder_name, platform.id) for platform in request.platforms]
        return CreateJobsResponse(Result.SUCCESS, jobs, [SourceDependency(STOP_WORDS)])

    def process_job(self, request):
        """Write the index in alphabetical order, so that equal sources give equal bytes."""
        with open(os.path.join(request.scan_folder, STOP_WORDS), encoding="utf-8") as file:
            stop_words = set(file.read().split())
        index = {}
        for number, line in enumerate(request.read_source().decode().splitlines(), 1):
            for word in set(line.lower().split()) - stop_words:
                index.setdefault(word, []).append(number)
        request.log.info(f"{len(index)} words", left_out=len(stop_words))
        name = f"{request.stem}.index"
        with open(request.product_path(name), "w", encoding="utf-8") as file:
            json.dump(index, file, sort_keys=True)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(name, 0, WORD_INDEX)])
'''

_TEXTS = {
    "builders/wordlist.py": _WORDLIST_BUILDER,
    "assets/sprites/hud.atlas": '{"sprites": ["icons/*.png"]}\n',
    "assets/data/settings.json": '{\n  "title": "Lantern Hill",\n  "width": 320,\n  "height": 180,\n  "fullscreen": false\n}\n',
    "assets/data/enemies.json": '[\n  {"name": "moth", "health": 2, "speed": 1.5},\n'
    '  {"name": "beetle", "health": 5, "speed": 0.75}\n]\n',
    "assets/data/dialogue.json": '{\n  "greeting": ["Good evening.", "Is it late?"],\n  "farewell": "It is hot \\u2013 mind."\n}\n',
    "assets/data/seed.json": '{\n  "world": 170141183460469231731687303715884105727,\n  "gravity": 9.80665\n}\n',
    # This file gives a warning, because the key "night" is given twice.
    "assets/data/palette.json": '{\n  "day": "#ffe9b0",\n  "night": "#101830",\n  "dusk": "#b0607a",\n  "night": "#0a1020"\n}\n',
    # This file fails, because the comma after the second line is missing.
    "assets/data/broken.json": '{\n  "level": 3\n  "name": "The Unlit Stair"\n}\n',
    "assets/scripts/main.lua": 'local lamp = require("lamp")\n\nfunction update(dt)\n  lamp.flicker(dt)\nend\n',
    "assets/scripts/lamp.lua": (
        "local lamp = { light = 1.0 }\n\nfunction lamp.flicker(dt)\n  lamp.light = 0.9 + 0.1 * math.sin(dt)\nend\n\nreturn lamp\n"
    ),
    "assets/scripts/moth.lua": "function moth_towards(x, y, lamp)\n  return lamp.x - x, lamp.y - y\nend\n",
    "assets/docs/readme.txt": "Lantern Hill: a demo project without a game. Edit a file, run `aptui batch` again, and see what "
    "runs.\n",
    "assets/docs/credits.txt": "Everything here was drawn and played by demo.py.\n",
    "shared/docs/credits.txt": "This file is not used: assets/docs/credits.txt hides it.\n",
    "shared/docs/license.txt": "Generated content; do with it what you like.\n",
    "assets/signs/entrance.up": "mind the step\n",
    "assets/signs/exit.up": "thank you for looking after the lantern\n",
    "assets/words/poem.words": "the moth and the lantern\nthe lantern and the hill\na light on the hill\n",
    "assets/words/names.words": "moth beetle lantern\nstair hill and dale\n",
    "assets/words/stopwords.list": "a and of on the\n",
}


def write_project(folder: Path, *, has_page: bool = False) -> None:
    """Write the demo project into `folder`, which may be missing, empty, or a demo project; correct files are not written again.

    Args:
        has_page: whether to add the model that the demo's page in the browser shows.

    Raises:
        UserError: `folder` contains other files.
        HostError: a file cannot be written.
    """
    try:
        _refuse_foreign(folder)
        _write_files(folder, has_page=has_page)
    except OSError as error:
        what = f"the demo cannot be written to {str(folder)!r}: {(error.strerror or str(error)).lower()}"
        raise HostError(what, hint="name another folder: aptui demo DIR") from None


def _write_files(folder: Path, *, has_page: bool) -> None:
    # aptui.yaml is written first, because the demo may replace the files of a folder only if it finds the aptui.yaml of a demo.
    _write(folder / "aptui.yaml", _config().encode())
    for path, text in _TEXTS.items():
        _write(folder / path, text.encode())
    for path, made in _assets():
        _write(folder / "assets" / path, made)
    for path, made in demo_assets.lamp_files().items() if has_page else ():
        _write(folder / "assets" / path, made)
    for path, picture in _pictures():
        _write(folder / path, _png(picture))
    for path, samples in _sounds():
        _write(folder / path, _wav(samples))


def count_expected_products() -> int:
    """Return the number of products that the demo makes on this host."""
    return _BASE_PRODUCT_COUNT + sum(extra.product_count for extra in possible_extras())


def possible_extras() -> list[Extra]:
    """Return the optional groups of demo sources that this host can build."""
    return [extra for extra in EXTRAS if extra.is_possible()]


def explain(products: Iterable[str]) -> str:
    """Return the explanation of the demo for the user.

    It lists the products by kind, deliberate mistakes in the sources, and parts that are left out.

    Args:
        products: paths of the products, which begin with the platform.
    """
    counts = Counter(
        next(kind for kind, globs, _text in _KINDS if any(fnmatch(path, glob) for glob in globs.split())) for path in products
    )
    return "\n".join(
        [
            "The demo has generated sources for two platforms, linux and server. Products:",
            *(f"{counts[kind]:>4} {kind:<12} {text}" for kind, _globs, text in _KINDS if counts[kind]),
            f"Intended mistakes: {INTENDED_FAILURES[0]} (no comma), {INTENDED_WARNINGS[0]} (key twice).",
            *_list_gaps(),
        ]
    )


def _list_gaps() -> list[str]:
    """Return a line for each missing requirement, with the products that the demo leaves out for lack of it."""
    missing: dict[str, list[str]] = {}
    for extra in EXTRAS:
        if not extra.is_possible():
            missing.setdefault(extra.needs, []).append(extra.makes)
    return [f"Left out: {', '.join(makes)}. Missing: {needs}" for needs, makes in missing.items()]


def _config() -> str:
    possible = possible_extras()
    sections = "".join(extra.config for extra in possible)
    copied = '"*.txt"' if any(extra.name == "lua" for extra in possible) else '"*.lua", "*.txt"'
    return _CONFIG.replace("@EXTRAS@\n", f"{sections}\n" if sections else "\n").replace("@COPIED@", copied)


def _assets() -> Iterator[tuple[str, bytes]]:
    """Yield (path below the assets folder, bytes) of models, shaders, fonts and data."""
    for path, text in FILES.items():
        yield path, text.encode()
    yield "models/moth.gltf", moth_model().encode()
    yield "models/moth.bin", moth_buffer()
    for extra in possible_extras():
        for path, made in extra.files.items():
            yield path, made.encode() if isinstance(made, str) else made()


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{str(folder)!r} is not a folder", hint="name a new folder for the demo")
    if any(folder.iterdir()) and not _is_demo(folder / "aptui.yaml"):
        raise UserError(f"{str(folder)!r} is not empty and not a demo project", hint="name a new or empty folder for the demo")


def _is_demo(config: Path) -> bool:
    if not config.is_file():
        return False
    with config.open("rb") as file:
        return file.readline(len(MARKER) + 2).rstrip(b"\r\n") == MARKER.encode()


def _write(path: Path, data: bytes) -> None:
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _pictures() -> Iterator[tuple[str, Image.Image]]:
    from PIL import Image

    yield "assets/textures/checker.png", _checkerboard(128, 16, (236, 226, 198), (70, 58, 80))
    yield "assets/textures/floor.png", _checkerboard(64, 8, (120, 92, 70), (96, 72, 56))
    yield "assets/textures/sky.png", Image.merge("RGB", [_gradient(), _gradient().rotate(90), Image.new("L", (256, 256), 160)])
    yield "assets/textures/grain.png", _noise(96)
    yield "assets/sprites/moth.png", _sprite_sheet()
    for number, name in enumerate(("lamp", "moth", "key", "map", "coin", "door")):
        yield f"assets/icons/{name}.png", _icon(number)


def _gradient() -> Image.Image:
    from PIL import Image

    return Image.linear_gradient("L")


def _checkerboard(side: int, square: int, light: tuple[int, int, int], dark: tuple[int, int, int]) -> Image.Image:
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (side, side), light)
    draw = ImageDraw.Draw(picture)
    for row in range(side // square):
        for column in range(row % 2, side // square, 2):
            draw.rectangle((column * square, row * square, (column + 1) * square - 1, (row + 1) * square - 1), fill=dark)
    return picture


def _noise(side: int) -> Image.Image:
    from PIL import Image

    return Image.frombytes("L", (side, side), random.Random(7).randbytes(side * side))


def _sprite_sheet() -> Image.Image:
    """Draw four frames of a moth that flaps its wings, 32 x 32 pixels each."""
    from PIL import Image, ImageDraw

    sheet = Image.new("RGBA", (128, 32), (0, 0, 0, 0))
    draw = ImageDraw.Draw(sheet)
    for frame, wing in enumerate((14, 10, 5, 10)):
        middle = frame * 32 + 16
        draw.ellipse((middle - wing, 8, middle, 22), fill=(214, 196, 160, 230))
        draw.ellipse((middle, 8, middle + wing, 22), fill=(214, 196, 160, 230))
        draw.ellipse((middle - 2, 6, middle + 2, 26), fill=(80, 60, 50, 255))
    return sheet


def _icon(number: int) -> Image.Image:
    """Draw a polygon with three or more corners."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGBA", (48, 48), (0, 0, 0, 0))
    colour = (60 + 30 * number, 200 - 20 * number, 120, 255)
    ImageDraw.Draw(picture).regular_polygon((24, 24, 20), 3 + number, fill=colour)
    return picture


def _png(picture: Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, format="PNG")
    return stream.getvalue()


def _sounds() -> Iterator[tuple[str, array[int]]]:
    """Yield (path, samples) of all sounds."""
    chance = random.Random(11)
    yield "assets/sounds/chime.wav", _render_sound(0.8, lambda t: math.exp(-4 * t) * math.sin(2 * math.pi * 880 * t))
    yield "assets/sounds/hum.wav", _render_sound(1.0, lambda t: 0.5 * math.sin(2 * math.pi * 55 * t))
    yield "assets/sounds/sweep.wav", _render_sound(1.0, lambda t: 0.6 * math.sin(2 * math.pi * (200 + 900 * t) * t))
    yield "assets/sounds/rain.wav", _render_sound(0.5, lambda _t: chance.uniform(-0.3, 0.3))
    yield "assets/sounds/step.wav", _render_sound(0.2, lambda t: math.exp(-30 * t) * chance.uniform(-0.8, 0.8))


def _render_sound(seconds: float, loudness: Callable[[float], float]) -> array[int]:
    return array("h", (round(24000 * loudness(frame / SAMPLE_RATE_HZ)) for frame in range(round(seconds * SAMPLE_RATE_HZ))))


def _wav(samples: array[int]) -> bytes:
    if sys.byteorder == "big":
        samples.byteswap()
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(samples.tobytes())
    return stream.getvalue()

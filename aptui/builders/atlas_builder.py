"""The `atlas` builder: sprites of an `.atlas` file become pages and a list of frames that engines read.

An `.atlas` file is JSON: `{"sprites": ["ui/*.png"], "frames": {"ui/button.png": {"slice": [8, 8, 8, 8], "pivot": [0.5, 1]}}}`.
`sprites` are patterns relative to the scan folders, or to the file's own folder if they begin with `./`. If a sprite is added,
changed or removed, the one job of the atlas runs. A pattern may match Aseprite's JSON of a sprite sheet: its frames are sprites,
its tags become lists of frames, and its slices give 9-slice borders and pivots.

Equal pictures are stored once. Sprites are sorted by size and name before they are packed, so equal sprites give equal pages.

Memory: at most `max_size` squared times 8 bytes, and the sprites. Time grows with the square of the number of sprites; the
maximum is 10,000.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from aptui.builders.common import ATLAS_MARK, SourceBuilder, one_line, show_count
from aptui.builders.files.json_text import BrokenTextError, decode_text, read_json
from aptui.builders.files.pictures import MOST_MEGAPIXELS, PictureError
from aptui.builders.files.references import place_parameter
from aptui.builders.image_builder import ImageParams, PictureJob, decode_rgba
from aptui.sdk import (
    CreateJobsRequest,
    JobError,
    MatchedFile,
    NamedFileError,
    ProcessJobRequest,
    ProductDependency,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
    from collections.abc import Iterable


FRAMES_ASSET_TYPE = UUID("3c9d5c1e-7f0b-5b64-8f0e-2a4c9d7e1e0c")
"""Asset type of the list of frames, in JSON."""

PAGE_ASSET_TYPE = UUID("3c9d5c1e-7f0b-5b64-8f0e-2a4c9d7e1e02")
"""Asset type of an atlas page (a picture with many sprites); the pictures of the `image` builder have the same asset type."""

MOST_SPRITES = 10_000
_MOST_EMPTY = 1 << 22
"""Maximum number of pixels by which a frame may be larger than its sheet. It can be larger, because a sheet lacks the transparent
borders of its frames."""
_LEAST_RATIO = 1.02
"""Minimum ratio of a page's area to the area of its sprites. Smaller pages are not tried, because packing hardly ever succeeds."""
_SMALLEST_SIDE, _STEP = 16, 8
"""Side of the smallest tried page, and minimum step from one tried side to the next (pixels).

Neither is used if sides must be powers of two.
"""
Side = Annotated[int, Meta(ge=0, le=16384)]
Position = Annotated[int, Meta(ge=-16384, le=16384)]
Ratio = Annotated[float, Meta(ge=-1e6, le=1e6)]
PageTextures = Annotated[
    Literal["files", "webp", "ktx2", "dds"],
    Meta(
        description="page names in the product that lists the sprites or characters; files: the .png files; webp, ktx2, dds: the "
        "pictures or textures that a later step makes from the pages"
    ),
]


class AtlasParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    max_size: Annotated[int, Meta(ge=16, le=16384, description="maximum width and height of a page in pixels")] = 2048
    power_of_two: Annotated[bool, Meta(description="make the sides of pages powers of two; false: multiples of 4")] = True
    padding: Annotated[int, Meta(ge=0, le=64, description="transparent pixels between sprites")] = 2
    extrude: Annotated[
        int, Meta(ge=0, le=16, description="number of pixels by which the edge of each sprite is repeated outwards")
    ] = 1
    trim: Annotated[bool, Meta(description="cut off transparent borders; the list still gives the original size")] = True
    rotate: Annotated[bool, Meta(description="allow the packer to turn sprites by 90 degrees clockwise")] = False
    format: Annotated[
        Literal["hash", "array", "phaser", "godot"],
        Meta(
            description="format of the list: TexturePacker's (frames by name, or as a list), Phaser's multi-atlas, or Godot's "
            "<stem>.tpsheet"
        ),
    ] = "hash"
    textures: PageTextures = "files"
    max_megapixels: Annotated[
        float,
        Meta(
            gt=0,
            le=100_000,
            description="maximum size of a sprite in millions of pixels",
            extra_json_schema={"is_trusted_only": True},
        ),
    ] = MOST_MEGAPIXELS


class FrameSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a frame in the `.atlas` file: 9-slice borders (left, top, right, bottom; pixels) and a pivot (0 to 1)."""

    slice: tuple[Side, Side, Side, Side] | None = None
    pivot: tuple[Ratio, Ratio] | None = None


class AtlasFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an `.atlas` file."""

    sprites: Annotated[list[str], Meta(min_length=1)]
    frames: dict[str, FrameSettings] = {}


class Box(Struct, frozen=True):
    """A rectangle in pixels."""

    x: Position
    y: Position
    w: Side
    h: Side


class Size(Struct, frozen=True):
    """A size in pixels."""

    w: Side
    h: Side


class SheetFrame(Struct, frozen=True, rename="camel"):
    """A frame of Aseprite's JSON: its rectangle on the sheet and in the sprite before trimming, and its time in milliseconds."""

    frame: Box
    filename: str = ""
    rotated: bool = False
    sprite_source_size: Box | None = None
    source_size: Size | None = None
    duration: int | None = None


class SheetTag(Struct, frozen=True):
    """A tag of Aseprite's JSON: an animation from one frame to another, both included."""

    name: str
    first: int = msgspec.field(name="from")
    last: int = msgspec.field(name="to")
    direction: str = "forward"


class Point(Struct, frozen=True):
    """A position in pixels."""

    x: Position
    y: Position


class SliceKey(Struct, frozen=True):
    """The state of a slice from one frame on; `bounds` is its rectangle in the sprite.

    `center` (of a 9-slice) and `pivot` are relative to the rectangle.
    """

    bounds: Box
    center: Box | None = None
    pivot: Point | None = None


class Slice(Struct, frozen=True):
    """A slice of Aseprite's JSON: a named rectangle that may change from frame to frame; only its first key is used."""

    keys: list[SliceKey]


class SheetMeta(Struct, frozen=True, rename="camel"):
    """The object `meta` of Aseprite's JSON; `image` is the path of the sheet's picture, relative to the JSON file."""

    image: str
    frame_tags: list[SheetTag] = []
    slices: list[Slice] = []


class SpriteSheet(Struct, frozen=True):
    """A sprite sheet that Aseprite exported."""

    frames: dict[str, SheetFrame] | list[SheetFrame]
    meta: SheetMeta


class Sprite(Struct):
    """A sprite: its trimmed pixels (height, width, 4), its original size and the left top corner of the trimmed part.

    The packer sets `page` (its number), `place` (left, top on the page) and `is_rotated`. If the sprite is a frame of an animation,
    `duration` is its time in milliseconds.
    """

    name: str
    pixels: Any
    size: tuple[int, int]
    corner: tuple[int, int]
    page: int = 0
    place: tuple[int, int] = (0, 0)
    is_rotated: bool = False
    duration: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Width and height of the trimmed part."""
        return self.pixels.shape[1], self.pixels.shape[0]


class Contents(Struct):
    """The sprites of an atlas, their settings {name: settings}, and its animations {name: names of frames}."""

    sprites: list[Sprite] = []
    frames: dict[str, FrameSettings] = {}
    animations: dict[str, list[str]] = {}


class AtlasBuilder(SourceBuilder):
    """Makes `<stem>.json` and the pages `<stem>.png`, `<stem>-1.png` … of an `.atlas` file."""

    name: ClassVar[str] = "atlas"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.atlas",)
    params_schema: ClassVar[Any] = AtlasParams
    requires: ClassVar[tuple[str, ...]] = ("Pillow",)

    def analyse(self, request: CreateJobsRequest) -> None:
        """Declare all sprites that the patterns match, and the pictures of sheets, as dependencies."""
        for platform in request.platforms:
            options: AtlasParams = request.options_for(platform.id)
            if options.format == "godot" and options.rotate:
                raise JobError("an atlas for Godot cannot have turned sprites; set rotate: false")
        for pattern in _list_patterns(request.read_source(), request.source):
            for file in request.matching(pattern):
                with suppress(JobError):  # errors are ignored here, because the job reports them
                    if _is_sheet(file.path):
                        request.depends_on(_read_sheet(file)[1])

    def build(self, request: ProcessJobRequest) -> None:
        """Pack one atlas."""
        options: AtlasParams = request.options
        data = request.read_source()
        patterns = _list_patterns(data, request.source)
        found = {each.path: each for pattern in patterns for each in request.matching(pattern)}
        if not found:
            raise JobError(f"{request.source}: no file matches {', '.join(patterns)}")
        contents = _read_contents([found[path] for path in sorted(found)], options, request)
        sprites, settings = contents.sprites, read_atlas_file(data, request.source).frames
        if unknown := sorted(settings.keys() - {each.name for each in sprites}):
            request.log.warning(f"{request.source}: 'frames' has settings for {unknown[0]}, but no sprite has this name")
        sizes = pack(sprites, options, request.source)
        pages = [_draw_page(size, [each for each in sprites if each.page == number], options) for number, size in enumerate(sizes)]
        names = write_pages(pages, options.textures, request)
        contents.frames.update(settings)
        _refuse_slices(contents, request.source)
        text = describe_frames(contents, names, sizes, options)
        extension = "tpsheet" if options.format == "godot" else "json"
        write_page_list(f"{request.stem}.{extension}", text, FRAMES_ASSET_TYPE, len(pages), request)
        used = sum(width * height for width, height in {id(each.pixels): each.shape for each in sprites}.values())
        share = 100 * used // sum(width * height for width, height in sizes)
        request.log.info(f"packed {show_count(len(sprites), 'sprite')} on {show_count(len(pages), 'page')}, filled to {share} %")


def write_pages(pages: Sequence[Any], textures: PageTextures, request: ProcessJobRequest) -> list[str]:
    """Write the pictures of pages as `<stem>.png`, `<stem>-1.png` …; return their names for a list of frames or glyphs.

    These names are in lower case, as the cache stores products. A text in each page has the extension of its name, so that later
    builders can compare it with their products.
    """
    from PIL.PngImagePlugin import PngInfo

    names, extension = [], "png" if textures == "files" else textures
    for number, page in enumerate(pages):
        stem = f"{request.stem}-{number}" if number else request.stem
        text = PngInfo()
        text.add_text(ATLAS_MARK, extension)
        page.save(request.product_path(f"{stem}.png"), pnginfo=text)
        facts = {"width": page.width, "height": page.height, "format": "png"}
        request.add_product(f"{stem}.png", sub_id=number + 1, asset_type=PAGE_ASSET_TYPE, facts=facts)
        names.append(f"{stem}.{extension}".lower())
    return names


def write_page_list(name: str, text: str | bytes, asset_type: UUID, page_count: int, request: ProcessJobRequest) -> None:
    """Write the list of frames or glyphs as a product that depends on the pages (the products with sub ids from 1).

    Raises:
        JobError: the list contains the name of a file that is not UTF-8.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise JobError(f"{request.source}: {name} would contain a file name that is not UTF-8; rename the file") from None
    # A dependency on an atlas page is declared by its asset id, because the path of a picture would name a source, not a product.
    needs = [ProductDependency(request.source_uuid, number + 1) for number in range(page_count)]
    request.write_product(name, data, sub_id=0, asset_type=asset_type, dependencies=needs, dependencies_handled=True)


def read_atlas_file(data: bytes, source: str) -> AtlasFile:
    """Return the content of an `.atlas` file.

    Raises:
        JobError: the file is not JSON, or not an atlas.
    """
    try:
        return msgspec.convert(read_json(decode_text(data)).value, AtlasFile)
    except BrokenTextError as error:
        raise JobError(error.explain(source)) from None
    except msgspec.ValidationError as error:
        raise JobError(f"{source}: {one_line(error)}") from None


def _list_patterns(data: bytes, source: str) -> list[str]:
    """Return the sprite patterns of an `.atlas` file, relative to the scan folders."""
    return [place_parameter(each, source) for each in read_atlas_file(data, source).sprites]


def _is_sheet(path: str) -> bool:
    return path.lower().endswith(".json")


def _read_sheet(file: MatchedFile) -> tuple[SpriteSheet, str]:
    """Return a sprite sheet and the path of its picture."""
    try:
        with open(file.full_path, "rb") as opened:
            data = opened.read()
    except OSError as error:
        raise JobError(f"{file.path}: {one_line(error)}") from None
    try:
        sheet = msgspec.json.decode(data, type=SpriteSheet)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JobError(f"{file.path}: the file is not a sprite sheet that Aseprite exported as JSON: {one_line(error)}") from None
    return sheet, posixpath.normpath(posixpath.join(posixpath.dirname(file.path), sheet.meta.image.replace("\\", "/")))


def _read_contents(files: list[MatchedFile], options: AtlasParams, request: ProcessJobRequest) -> Contents:
    """Return the decoded sprites; sprites with equal pixels share one array.

    If a sprite sheet is among the files, its frames become sprites, and its whole picture does not.
    """
    import numpy as np

    made = Contents()
    sheets = {file.path: _read_sheet(file) for file in files if _is_sheet(file.path)}
    drawn = {picture for _sheet, picture in sheets.values()}
    files = [file for file in files if file.path not in drawn]
    known: dict[tuple[tuple[int, ...], bytes], Pixels] = {}
    for number, file in enumerate(files):
        for name, picture, duration in _read_file(file, sheets.get(file.path), made, options, request):
            box = (picture.getbbox(alpha_only=True) or (0, 0, 1, 1)) if options.trim else (0, 0, *picture.size)
            pixels = np.asarray(picture.crop(box))
            pixels = known.setdefault((pixels.shape, hashlib.sha256(pixels.tobytes()).digest()), pixels)
            made.sprites.append(Sprite(name, pixels, picture.size, box[:2], duration=duration))
            _refuse_larger(made.sprites[-1], options, request.source)  # checked here, before more pictures fill the memory
            if len(made.sprites) > MOST_SPRITES:
                raise JobError(f"{request.source}: the atlas has more than {MOST_SPRITES:,} sprites, which is the limit")
        request.progress((number + 1) / len(files) / 2)
    if not made.sprites:
        raise JobError(f"{request.source}: the sprite sheets of this atlas have no frames")
    return made


def _read_file(
    file: MatchedFile, sheet: tuple[SpriteSheet, str] | None, made: Contents, options: AtlasParams, request: ProcessJobRequest
) -> Iterator[tuple[str, Any, int | None]]:
    """Yield (name, picture, duration) of the sprites of a file; add the settings and animations of a sheet to `made`."""
    reading = ImageParams(max_megapixels=options.max_megapixels)
    path = sheet[1] if sheet else file.path
    try:
        if sheet:
            data = request.read_named(path, named_by=file.path)
        else:
            with open(file.full_path, "rb") as opened:
                data = opened.read()
        picture = decode_rgba(data, PictureJob(request, reading, name=path))
    except NamedFileError as error:
        raise JobError(f"{file.path}: {error}") from None
    except (PictureError, OSError) as error:
        raise JobError(f"{path}: {one_line(error)}") from None
    if sheet:
        yield from _cut_sheet(file.path, sheet[0], picture, made)
    else:
        yield path, picture, None


def _cut_sheet(path: str, sheet: SpriteSheet, picture: Any, made: Contents) -> Iterator[tuple[str, Any, int | None]]:
    """Yield (name, picture, duration) of the frames of a sheet."""
    from PIL import Image

    stem = posixpath.splitext(path)[0]
    listed = sheet.frames.items() if isinstance(sheet.frames, dict) else [(each.filename, each) for each in sheet.frames]
    names = [f"{stem}/{name.removesuffix('.aseprite').removesuffix('.ase')}" for name, _frame in listed]
    if len(set(names)) < len(names):
        raise JobError(f"{path}: two frames have the same name; export the sheet with {{frame}} in its item names")
    for name, (_, frame) in zip(names, listed, strict=True):
        place, size = frame.frame, frame.source_size or Size(frame.frame.w, frame.frame.h)
        width, height = (place.h, place.w) if frame.rotated else (place.w, place.h)
        if min(place.x, place.y) < 0 or place.x + width > picture.width or place.y + height > picture.height:
            raise JobError(
                f"{path}: frame '{name}' lies outside of the picture {sheet.meta.image}, which has "
                f"{picture.width}x{picture.height} pixels"
            )
        part = picture.crop((place.x, place.y, place.x + width, place.y + height))
        if frame.rotated:
            part = part.transpose(Image.Transpose.ROTATE_90)
        if min(size.w, size.h) == 0 or size.w * size.h > picture.width * picture.height + _MOST_EMPTY:
            raise JobError(f"{path}: frame '{name}' has an impossible size of {size.w}x{size.h} pixels")
        whole = Image.new("RGBA", (size.w, size.h))
        corner = frame.sprite_source_size or Box(0, 0, *part.size)
        if min(part.size) > 0 and not (-part.width < corner.x < size.w and -part.height < corner.y < size.h):
            raise JobError(f"{path}: frame '{name}' lies outside of its own size of {size.w}x{size.h} pixels")
        whole.paste(part, (corner.x, corner.y))
        made.frames[name] = _read_slices(sheet.meta.slices, size)
        yield name, whole, frame.duration
    for tag in sheet.meta.frame_tags:
        if not 0 <= tag.first <= tag.last < len(names):
            count = show_count(len(names), "frame")
            raise JobError(f"{path}: tag '{tag.name}' names frames {tag.first} to {tag.last}, but the sheet has {count}")
        if f"{stem}/{tag.name}" in made.animations:
            raise JobError(f"{path}: two tags have the same name '{tag.name}'; rename one of them")
        made.animations[f"{stem}/{tag.name}"] = _order_frames(names[tag.first : tag.last + 1], tag.direction)


def _order_frames(names: list[str], direction: str) -> list[str]:
    """Return the frames of an animation in the order in which they are shown.

    A ping-pong animation shows its first and last frame once.
    """
    shown = list(reversed(names)) if "reverse" in direction else names
    return shown + shown[-2:0:-1] if direction.startswith("pingpong") else shown


def _read_slices(slices: list[Slice], size: Size) -> FrameSettings:
    """Return the first pivot of a sheet, and the borders of its first 9-slice."""
    borders, pivot = None, None
    for key in (each.keys[0] for each in reversed(slices) if each.keys):
        if key.center is not None:
            left, top = key.bounds.x + key.center.x, key.bounds.y + key.center.y
            borders = (left, top, max(0, size.w - left - key.center.w), max(0, size.h - top - key.center.h))
        if key.pivot is not None:
            pivot = ((key.bounds.x + key.pivot.x) / size.w, (key.bounds.y + key.pivot.y) / size.h)
    return FrameSettings(borders, pivot)


def pack(sprites: list[Sprite], options: AtlasParams, source: str) -> list[tuple[int, int]]:
    """Place all sprites on pages, and return the sizes (width, height) of the pages.

    The result is the smallest page that holds all sprites. If even the largest page is too small, several pages are used.

    Raises:
        JobError: a sprite is larger than a page.
    """
    distinct = {id(each.pixels): each for each in sorted(sprites, key=lambda each: (-max(each.shape), -min(each.shape), each.name))}
    margin = 2 * options.extrude + options.padding
    boxes = [Item(each.shape[0] + margin, each.shape[1] + margin, key) for key, each in distinct.items()]
    # Each box includes the padding at its right and lower side. Sprites at the right and lower edges of the page do not need it, so
    # boxes are placed on an area (`page_size`) that is wider and higher than the page by one padding.
    for each in distinct.values():
        _refuse_larger(each, options, source)
    sizes = _list_sizes(options)
    area = sum(width * height for width, height, _key in boxes)
    for size in sizes:
        page_size = size[0] + options.padding, size[1] + options.padding
        if page_size[0] * page_size[1] < area * _LEAST_RATIO:
            continue
        placed, left = place_items(boxes, page_size, can_rotate=options.rotate, is_all_needed=True)
        if not left:
            pages = [placed]
            break
    else:
        pages, left = [], boxes
        while left:
            placed, left = place_items(left, page_size, can_rotate=options.rotate)
            pages.append(placed)
    at = {place.key: (page, place) for page, placed in enumerate(pages) for place in placed}
    for each in sprites:
        each.page, place = at[id(each.pixels)]
        each.place = (place.x + options.extrude, place.y + options.extrude)
        each.is_rotated = place.width != each.shape[0] + margin
    last = max(each.page for each in sprites)
    return [size] * last + [_shrink([each for each in sprites if each.page == last], size, options)]


def _refuse_larger(sprite: Sprite, options: AtlasParams, source: str) -> None:
    """Refuse a sprite that is larger than the largest page."""
    (width, height), largest = sprite.shape, options.max_size
    if options.power_of_two:
        largest = 1 << (largest.bit_length() - 1)
    if max(width, height) + 2 * options.extrude > largest:
        raise JobError(f"{source}: sprite {sprite.name} has {width}x{height} pixels, but a page has at most {largest} (max_size)")


def _refuse_slices(contents: Contents, source: str) -> None:
    """Refuse 9-slices whose borders are negative, or larger than their sprite."""
    for each in contents.sprites:
        settings, (width, height) = contents.frames.get(each.name, FrameSettings()), each.size
        left, top, right, bottom = settings.slice or (0, 0, 0, 0)
        if min(left, top, right, bottom) < 0 or left + right > width or top + bottom > height:
            raise JobError(f"{source}: the 9-slice of sprite {each.name} does not fit into its {width}x{height} pixels")


def _list_sizes(options: AtlasParams) -> list[tuple[int, int]]:
    """Return the possible sizes of a page, the smallest area first."""
    if options.power_of_two:
        sides = [1 << bit for bit in range(4, options.max_size.bit_length())]
        found = [(width, height) for width in sides for height in sides if height in (width, width // 2)]
        return sorted(found, key=lambda size: (size[0] * size[1], size))
    sides, side = [], _SMALLEST_SIDE
    while side < options.max_size:
        sides.append(side)
        side += max(_STEP, side // 64 // _STEP * _STEP)
    return [(side, side) for side in [*sides, options.max_size]]


def _shrink(sprites: list[Sprite], size: tuple[int, int], options: AtlasParams) -> tuple[int, int]:
    """Return the smallest size that the last page can have without moving any of its sprites."""
    needed = [0, 0]
    for each in sprites:
        shape = each.shape[::-1] if each.is_rotated else each.shape
        for axis in (0, 1):
            needed[axis] = max(needed[axis], each.place[axis] + shape[axis] + options.extrude)
    if options.power_of_two:
        return min(size[0], 1 << (needed[0] - 1).bit_length()), min(size[1], 1 << (needed[1] - 1).bit_length())
    return min(size[0], -(-needed[0] // 4) * 4), min(size[1], -(-needed[1] // 4) * 4)


def _draw_page(size: tuple[int, int], sprites: list[Sprite], options: AtlasParams) -> Any:
    import numpy as np
    from PIL import Image

    page = np.zeros((size[1], size[0], 4), np.uint8)
    edge = options.extrude
    for each in sprites:
        pixels = np.rot90(each.pixels, -1) if each.is_rotated else each.pixels
        grown = np.pad(pixels, ((edge, edge), (edge, edge), (0, 0)), mode="edge")
        x, y = each.place[0] - edge, each.place[1] - edge
        page[y : y + grown.shape[0], x : x + grown.shape[1]] = grown
    return Image.fromarray(page, "RGBA")


def describe_frames(contents: Contents, names: list[str], sizes: list[tuple[int, int]], options: AtlasParams) -> str:
    """Return the list of frames, written for the engine that `format` names."""
    frames = {each.name: _describe_frame(each, contents.frames.get(each.name, FrameSettings())) for each in contents.sprites}
    pages: list[dict[str, Any]] = [{"image": name, "size": _size(size)} for name, size in zip(names, sizes, strict=True)]
    by_page = [[each for each in contents.sprites if each.page == number] for number in range(len(names))]
    meta: dict[str, Any] = {"app": ATLAS_MARK}
    made: dict[str, Any]
    if options.format == "godot":
        made = {
            "textures": [
                {**page, "sprites": list(map(_describe_region, found))} for page, found in zip(pages, by_page, strict=True)
            ]
        }
    elif options.format == "phaser":
        texels = {"format": "RGBA8888", "scale": 1}
        made = {
            "textures": [
                {**page, **texels, "frames": [{"filename": each.name, **frames[each.name]} for each in found]}
                for page, found in zip(pages, by_page, strict=True)
            ]
        }
    else:
        meta |= {"format": "RGBA8888", "image": names[0], "scale": "1", "size": pages[0]["size"]}
        if len(names) > 1:
            meta["pages"] = pages
            for each in contents.sprites:
                frames[each.name]["page"] = names[each.page]
        is_hash = options.format == "hash"
        made = {"frames": frames if is_hash else [{"filename": name, **frame} for name, frame in frames.items()]}
    if contents.animations:
        made["animations"] = contents.animations
    return json.dumps({**made, "meta": meta}, indent=1, ensure_ascii=False) + "\n"


def _describe_frame(sprite: Sprite, extra: FrameSettings) -> dict[str, Any]:
    width, height = sprite.shape
    frame: dict[str, Any] = {
        "frame": _box(*sprite.place, width, height),
        "rotated": sprite.is_rotated,
        "trimmed": sprite.shape != sprite.size,
        "spriteSourceSize": _box(*sprite.corner, width, height),
        "sourceSize": _size(sprite.size),
    }
    if sprite.duration is not None:
        frame["duration"] = sprite.duration
    if extra.pivot is not None:
        frame["pivot"] = {"x": extra.pivot[0], "y": extra.pivot[1]}
    if extra.slice is not None:
        left, top, right, bottom = extra.slice
        frame["scale9Borders"] = _box(left, top, sprite.size[0] - left - right, sprite.size[1] - top - bottom)
    return frame


def _describe_region(sprite: Sprite) -> dict[str, Any]:
    """Return a sprite as Godot stores it: its region of the page, and the trimmed margin (left, top, whole width, whole height)."""
    (width, height), (whole_width, whole_height) = sprite.shape, sprite.size
    margin = _box(*sprite.corner, whole_width - width, whole_height - height)
    return {"filename": sprite.name, "region": _box(*sprite.place, width, height), "margin": margin}


def _box(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _size(size: tuple[int, int]) -> dict[str, int]:
    return {"w": size[0], "h": size[1]}


# ----------------------------------------------------------------------------------------------------- places of rectangles

# `place_items` places rectangles on pages by the MaxRects method (Jylänki, "A Thousand Ways to Pack the Bin", 2010), best short
# side first.
#
# The free space of a page is a list of rectangles that may overlap; none of them contains another. A placed rectangle cuts each
# free rectangle that it overlaps into at most four smaller ones. The package `rectpack` compares all pairs of free rectangles in
# Python after each placement: a page of 1,000 sprites took 11 s, and one of 2,400 two minutes. This code computes with numpy
# arrays, and packs either page in under a second.

_NO_FIT = 1 << 62
_LONG_SIDE = 1 << 20
"""Weight of the shorter gap in the score of a place.

An item in a free rectangle leaves two gaps: one in width, one in height. The longer gap has the weight 1. `_LONG_SIDE` exceeds
every length, so the longer gap only decides between places with equal shorter gaps.
"""


class Item(NamedTuple):
    """A rectangle to place."""

    width: int
    height: int
    key: int


class Place(NamedTuple):
    """A placed rectangle; if it is rotated, its width and height are exchanged."""

    x: int
    y: int
    width: int
    height: int
    key: int


def place_items(
    items: Iterable[Item], size: tuple[int, int], *, can_rotate: bool = False, is_all_needed: bool = False
) -> tuple[list[Place], list[Item]]:
    """Place items on a page in their order; return the placed rectangles, and the items that did not fit.

    Args:
        size: width and height of the page.
        can_rotate: an item may be turned by 90° if it fits better.
        is_all_needed: stop at the first item that does not fit; the results are then incomplete.
    """
    import numpy as np

    free = np.array([[0, 0, *size]], np.int64)  # columns: left, top, right, bottom
    placed: list[Place] = []
    left: list[Item] = []
    for item in items:
        at = _find_place(free, item, can_rotate=can_rotate)
        if at is None:
            left.append(item)
            if is_all_needed:
                break
            continue
        placed.append(at)
        free = _cut(free, at)
    return placed, left


def _find_place(free: Any, item: Item, *, can_rotate: bool) -> Place | None:
    """Return the place that leaves the shortest gap beside the item; of equally good places, the first."""
    import numpy as np

    best, found = _NO_FIT, None
    shapes = [(item.width, item.height)]
    if can_rotate and item.width != item.height:
        shapes.append((item.height, item.width))
    for shape in shapes:
        rest = free[:, 2:] - free[:, :2] - shape
        short = rest.min(axis=1)
        scores = np.where(short >= 0, short * _LONG_SIDE + rest.max(axis=1), _NO_FIT)
        index = int(scores.argmin()) if len(scores) else -1
        if index >= 0 and scores[index] < best:
            best, found = int(scores[index]), Place(int(free[index, 0]), int(free[index, 1]), *shape, item.key)
    return found


def _cut(free: Any, at: Place) -> Any:
    """Return the free rectangles that remain when the rectangle `at` is occupied."""
    import numpy as np

    right, bottom = at.x + at.width, at.y + at.height
    is_hit = (free[:, 0] < right) & (free[:, 2] > at.x) & (free[:, 1] < bottom) & (free[:, 3] > at.y)
    hit, others = free[is_hit], free[~is_hit]
    parts = []
    for column, edge, has_rest in (
        (2, at.x, hit[:, 0] < at.x),
        (0, right, hit[:, 2] > right),
        (3, at.y, hit[:, 1] < at.y),
        (1, bottom, hit[:, 3] > bottom),
    ):
        part = hit[has_rest].copy()
        part[:, column] = edge
        parts.append(part)
    new = np.unique(np.concatenate(parts), axis=0)
    known = np.concatenate([others, new])
    # Only the new rectangles are checked, because none of the earlier free rectangles is inside another rectangle.
    is_inside = (
        (known[None, :, 0] <= new[:, None, 0])
        & (known[None, :, 1] <= new[:, None, 1])
        & (known[None, :, 2] >= new[:, None, 2])
        & (known[None, :, 3] >= new[:, None, 3])
    )
    return np.concatenate([others, new[is_inside.sum(axis=1) == 1]])

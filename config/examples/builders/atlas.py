"""`atlas`: a `NAME.atlas` (JSON: {"sprites": ["sprites/ui/*.png"]}) becomes one page and its frames in TexturePacker's JSON."""

import json
from typing import Annotated

from msgspec import Meta, Struct

from aptui.sdk import JobError, ProductDependency, SimpleBuilder


class Options(Struct):
    padding: Annotated[int, Meta(ge=0, le=64, description="empty pixels between sprites")] = 2
    extrude: Annotated[int, Meta(ge=0, le=16, description="pixels by which edges are repeated")] = 1
    trim: Annotated[bool, Meta(description="cut transparent edges off")] = True
    max_size: Annotated[int, Meta(ge=64, le=16384, description="longest side of the page")] = 2048


class Atlas(SimpleBuilder):
    name = "atlas"
    patterns = ("*.atlas",)
    params_schema = Options
    requires = ("Pillow>=12",)

    def analyse(self, request):
        for pattern in json.loads(request.read_source())["sprites"]:
            request.matching(pattern)

    def build(self, request):
        from PIL import Image

        options, sprites = request.options, []
        files = {
            match.path: match for pattern in json.loads(request.read_source())["sprites"] for match in request.matching(pattern)
        }
        for name, match in sorted(files.items()):
            image = Image.open(match.full_path).convert("RGBA")
            box = (image.getbbox(alpha_only=True) or (0, 0, 1, 1)) if options.trim else (0, 0, *image.size)
            sprites.append((name, image.size, box, image.crop(box)))
        if not sprites:
            raise JobError("no sprite matches")
        margin = options.extrude * 2 + options.padding
        size, places = pack([(image.width + margin, image.height + margin) for *_, image in sprites], options.max_size)
        page, frames = Image.new("RGBA", size), {}
        for (name, original, box, image), (left, top) in zip(sprites, places, strict=True):
            x, y, (w, h) = left + options.extrude, top + options.extrude, image.size
            for out in range(options.extrude, 0, -1):
                page.paste(image.resize((w + 2 * out, h + 2 * out), Image.Resampling.NEAREST), (x - out, y - out))
            page.paste(image, (x, y))
            frames[name] = {"frame": {"x": x, "y": y, "w": w, "h": h}, "rotated": False, "trimmed": box != (0, 0, *original)}
            frames[name]["spriteSourceSize"] = {"x": box[0], "y": box[1], "w": w, "h": h}
            frames[name]["sourceSize"] = {"w": original[0], "h": original[1]}
        page.save(request.product_path(f"{request.stem}.png"))
        request.add_product(f"{request.stem}.png", sub_id=1, facts={"width": size[0], "height": size[1], "format": "png"})
        meta = {"image": f"{request.stem}.png", "size": {"w": size[0], "h": size[1]}, "format": "RGBA8888", "scale": 1}
        needs = [ProductDependency(request.source_uuid, 1)]  # by asset id, because the path of a picture names a source
        text = json.dumps({"frames": frames, "meta": meta}, indent=1, sort_keys=True)
        request.write_product(f"{request.stem}.json", text, sub_id=0, dependencies=needs, dependencies_handled=True)


def pack(sizes, most):
    """Return the size of the smallest page with rows of sprites, the highest sprites first, and the place of each."""
    width = 64
    while width <= most:
        places, x, y, row = [(0, 0)] * len(sizes), 0, 0, 0
        for at in sorted(range(len(sizes)), key=lambda at: (-sizes[at][1], -sizes[at][0], at)):
            if x + sizes[at][0] > width:
                x, y, row = 0, y + row, 0
            places[at], x, row = (x, y), x + sizes[at][0], max(row, sizes[at][1])
        if y + row <= width and max(wide for wide, _high in sizes) <= width:
            return (width, 1 << (y + row - 1).bit_length()), places
        width *= 2
    raise JobError(f"the sprites need more than a page of {most}x{most}")

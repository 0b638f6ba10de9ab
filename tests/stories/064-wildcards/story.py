"""A wildcard dependency matches files that the scan finds: `*` stands for any text, and ignored files never count.
A pattern without a wildcard is a path."""

from scripted_source import SCRIPTED

CONFIG = """
scan_folders:
  - {name: flat, path: ../flat, order: 0, recursive: false}
  - {name: game, path: ., order: 1}
ignore: ["*.tmp", "attic", /builders]
builders: []
"""
FILES = {
    "builders/scripted.py": SCRIPTED,
    "any.scr": "glob *.bin\ntext any",
    "below.scr": "glob parts/*.bin\ntext below",
    "inside.scr": "glob p*s/x*.bin\ntext inside",
    "tmp.scr": "glob *.tmp\nglob attic/*\ntext ignored",
    "cache.scr": "glob *.out\nglob *cache/*\ntext products",
    "flat.scr": "glob f/*.bin\ntext flat",
    "plain.scr": "glob parts/x.bin\ntext without a star",
    "../flat/top.txt": "",
}
ALL = ("any", "below", "inside", "tmp", "cache", "flat", "plain", "far", "near")
CHECKS_CLEAN_BUILD = False  # the result differs from a clean build, because the builder also reads ignored files


def play(story):
    story.write("far.scr", f"glob {story.root.parent}/outside/*.bin\ntext outside every scan folder")
    story.write("near.scr", f"glob {story.root}/parts/*.bin\ntext absolute")
    story.run(*(f"{name}.scr:scripted" for name in ALL))

    for written, names in (
        (("Parts/X.BIN",), ("any", "below", "inside", "plain", "near")),
        (("parts/deep/x.bin", "deep/parts/x.bin"), ("any", "below", "near")),
        (("deep/x.bin", "old cache/x.out"), ("any", "cache")),
        (("x.tmp", "attic/x.bin", "Cache/linux/x.out", "../flat/f/x.bin", "../outside/x.bin"), ()),
    ):
        for path in written:
            story.write(path, "1")
        story.run(*(f"{name}.scr:scripted" for name in names))
    story.delete("Parts/X.BIN")
    story.run(*(f"{name}.scr:scripted" for name in ("any", "below", "inside", "plain", "near")))
    story.run(is_full_scan=True)

"""An override with equal bytes makes no new products; the two files may be deleted in either order."""

CONFIG = """
scan_folders: [{name: game, path: assets, order: 0}, {name: shared, path: shared, order: 10}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {"shared/f/x.txt": "same"}


def play(story):
    story.run("f/x.txt:data")

    story.write("assets/f/x.txt", "same")
    story.run()
    story.delete("shared/f")
    story.run()
    assert story.texts() == {"f/x.txt": "same"}

    story.write("shared/f/x.txt", "same")
    story.delete("assets/f")
    story.run()
    assert story.texts() == {"f/x.txt": "same"}
    story.run()

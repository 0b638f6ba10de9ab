"""A file in one scan folder and a folder of the same name in another make products that cannot both exist.

Both jobs fail, whichever runs first. When one of the two sources is deleted, the other job succeeds.
"""

CONFIG = """
scan_folders: [{name: game, path: assets, order: 0}, {name: shared, path: shared, order: 10}]
builders: [{name: data, copy: ["*"]}]
"""
CHECKS_CLEAN_BUILD = True
FILES = {"shared/x/in.txt": "inside"}


def play(story):
    story.run("x/in.txt:data")
    story.write("assets/x", "file")
    story.run("x:data!", "x/in.txt:data!")
    assert story.texts() == {}
    story.delete("shared/x")
    story.run("x:data")
    assert story.texts() == {"x": "file"}

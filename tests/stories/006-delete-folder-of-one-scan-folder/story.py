"""Deleting a folder in one scan folder does not affect the folder of the same path in the other scan folder."""

CONFIG = """
scan_folders: [{name: game, path: assets}, {name: shared, path: shared, order: 10}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {"assets/f/a.txt": "a", "shared/f/b.txt": "b", "shared/f/sub/c.txt": "c", "assets/f/sub/d.txt": "d"}


def play(story):
    story.run("f/a.txt:data", "f/b.txt:data", "f/sub/c.txt:data", "f/sub/d.txt:data")

    story.delete("shared/f")
    story.run()
    assert story.texts() == {"f/a.txt": "a", "f/sub/d.txt": "d"}

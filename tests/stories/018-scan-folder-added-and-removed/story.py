"""Removing a scan folder from the configuration deletes its products and reveals the files that it hid."""

ONE = """
builders: [{name: data, copy: ["*.txt"]}]
scan_folders: [{name: shared, path: shared, order: 10}]
"""
TWO = """
builders: [{name: data, copy: ["*.txt"]}]
scan_folders: [{name: game, path: assets}, {name: shared, path: shared, order: 10}]
"""
CONFIG = TWO
FILES = {"assets/a.txt": "game", "assets/f/own.txt": "own", "shared/a.txt": "shared", "shared/b.txt": "b"}


def play(story):
    story.run("a.txt:data", "f/own.txt:data", "b.txt:data")

    story.config(ONE)
    story.run("a.txt:data")
    assert story.texts() == {"a.txt": "shared", "b.txt": "b"}
    story.run()

    story.config(TWO)
    story.run("a.txt:data", "f/own.txt:data")
    assert story.texts() == {"a.txt": "game", "f/own.txt": "own", "b.txt": "b"}
    story.run()

"""Paths in different scan folders that differ only in case are the same path.

The file in the scan folder of higher priority overrides the other. When it is deleted, the other file is processed.
"""

CONFIG = """
scan_folders: [{name: game, path: assets, order: 0}, {name: shared, path: shared, order: 10}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {"shared/Folder/Readme.txt": "shared"}


def play(story):
    story.run("Folder/Readme.txt:data")

    story.write("assets/folder/README.txt", "game")
    story.run("folder/README.txt:data")
    assert story.texts() == {"folder/readme.txt": "game"}
    story.run()

    story.delete("assets/folder")
    story.run("Folder/Readme.txt:data")
    assert story.texts() == {"folder/readme.txt": "shared"}
    story.run()

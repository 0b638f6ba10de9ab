"""Across scan folders names that differ only in case are one path.

The file in the folder of higher priority wins, and deleting it reveals the other.
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

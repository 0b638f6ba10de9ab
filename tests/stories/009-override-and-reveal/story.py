"""A file in the scan folder with the lower order overrides a file of the same path.

Deleting the overriding file reveals the hidden file.
"""

CONFIG = """
scan_folders: [{name: game, path: assets, order: 0}, {name: shared, path: shared, order: 10}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {"shared/x.txt": "shared", "shared/f/y.txt": "shared y"}


def play(story):
    story.path("assets").mkdir(exist_ok=True)
    story.run("x.txt:data", "f/y.txt:data")

    story.write("assets/x.txt", "game")
    story.run("x.txt:data")
    assert story.texts()["x.txt"] == "game"
    story.run()

    story.write("shared/x.txt", "shared, edited while it was hidden")
    story.run()
    assert story.texts()["x.txt"] == "game"

    story.delete("assets/x.txt")
    story.run("x.txt:data")
    assert story.texts()["x.txt"] == "shared, edited while it was hidden"
    story.run()

    story.delete("shared/x.txt")
    story.run()
    assert "x.txt" not in story.texts()

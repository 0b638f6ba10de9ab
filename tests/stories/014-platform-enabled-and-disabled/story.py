"""Enabling a platform runs its jobs alone; disabling it takes its products away."""

ONE = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
CONFIG = ONE
FILES = {"assets/a.txt": "a", "assets/f/b.txt": "b"}


def play(story):
    story.run("a.txt:data", "f/b.txt:data")

    story.config(ONE + "platforms: {server: {tags: [server]}}\n")
    story.run("a.txt:data@server", "f/b.txt:data@server")
    assert story.texts()["server/f/b.txt"] == "b"
    story.run()

    story.config(ONE + "platforms: {server: {tags: [server], enabled: false}}\n")
    story.run()
    assert story.texts() == {"a.txt": "a", "f/b.txt": "b"}
    assert story.folders() == {"linux", "linux/f"}

"""Enabling a platform runs only its jobs; disabling it keeps its products; removing it from the list deletes them."""

ONE = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
CONFIG = ONE
FILES = {"assets/a.txt": "a", "assets/f/b.txt": "b"}


def play(story):
    story.run("a.txt:data", "f/b.txt:data")

    on = ONE + "platforms: {server: {tags: [server]}}\n"
    off = ONE + "platforms: {server: {tags: [server], enabled: false}}\n"
    story.config(on)
    story.run("a.txt:data@server", "f/b.txt:data@server")
    assert story.texts()["server/f/b.txt"] == "b"
    story.run()

    story.config(off)
    story.run()
    assert story.texts()["server/f/b.txt"] == "b"
    story.write("assets/a.txt", "other")
    story.run("a.txt:data")
    assert story.texts()["server/a.txt"] == "a"
    story.delete("assets/f")
    story.run()
    assert "server/f/b.txt" not in story.texts()
    story.config(on)
    story.run("a.txt:data@server")

    story.config(ONE)
    story.run()
    assert story.texts() == {"a.txt": "other"}
    assert story.folders() == {"linux"}

"""An edit that is taken back runs again; one that is taken back before a scan saw it runs nothing."""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {"assets/a.txt": "alpha"}


def play(story):
    story.run("a.txt:data")
    story.write("assets/a.txt", "other")
    story.run("a.txt:data")
    story.write("assets/a.txt", "alpha")
    story.run("a.txt:data")
    assert story.texts() == {"a.txt": "alpha"}

    story.write("assets/a.txt", "other")
    story.write("assets/a.txt", "alpha")
    story.run()

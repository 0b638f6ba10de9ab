"""A deleted cache is rebuilt, whole or by platform."""

CONFIG = """
platforms: {server: {}}
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {"assets/a.txt": "a", "assets/f/b.txt": "b"}


def play(story):
    every = ("a.txt:data", "f/b.txt:data", "a.txt:data@server", "f/b.txt:data@server")
    story.run(*every)

    story.delete("Cache")
    story.run(*every)
    story.delete("Cache/server")
    story.run("a.txt:data@server", "f/b.txt:data@server")
    story.run()

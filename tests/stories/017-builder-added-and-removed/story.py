"""An added builder runs for its sources; the products of a removed builder are deleted."""

HEAD = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
"""
UPPER = '  - {name: upper, patterns: ["*.txt", "*.up"], command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out"}\n'
CONFIG = HEAD
FILES = {"assets/a.txt": "a", "assets/b.up": "b"}


def play(story):
    story.run("a.txt:data")
    story.config(HEAD + UPPER)
    story.run("a.txt:upper", "b.up:upper")
    assert story.texts() == {"a.txt": "a", "a.out": "A", "b.out": "B"}

    story.config(HEAD)
    story.run()
    assert story.texts() == {"a.txt": "a"}
    story.run()

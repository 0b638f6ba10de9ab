"""The path of a project can contain blanks, quotes and letters outside ASCII."""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: upper, patterns: ["*.up"], command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out"}
"""
ROOT = "caf\u00e9 'quoted' \"$HOME\"".encode()
FILES = {"assets/a.txt": "a", "assets/b.up": "b"}


def play(story):
    story.run("a.txt:data", "b.up:upper")
    story.run()
    story.write("assets/a.txt", "aa")
    story.run("a.txt:data")
    assert story.texts() == {"a.txt": "aa", "b.out": "B"}

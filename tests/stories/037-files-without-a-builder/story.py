"""Files that no builder matches are not read; they become sources when a builder matches them."""

HEAD = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
"""
CONFIG = HEAD
FILES = {"assets/a.txt": "a", "assets/b.bin": "b", "assets/f/c.bin": "c"}


def play(story):
    story.run("a.txt:data")
    story.write("assets/b.bin", "bb")
    story.write("assets/f/d.bin", "d")
    story.delete("assets/f/c.bin")
    story.run()
    assert story.texts() == {"a.txt": "a"}

    story.config(HEAD + '  - {name: bins, copy: ["*.bin"]}\n')
    story.run("b.bin:bins", "f/d.bin:bins")
    story.run()

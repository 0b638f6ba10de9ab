"""A scan folder inside another scan folder owns the files that it contains if it is listed before the outer folder.

A non-recursive scan folder owns only the files directly in it.
"""

CONFIG = """
scan_folders:
  - {name: inner, path: assets/inner, order: 0}
  - {name: flat, path: assets/flat, order: 1, recursive: false}
  - {name: outer, path: assets, order: 10}
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {
    "assets/a.txt": "a",
    "assets/inner/b.txt": "b",
    "assets/inner/f/c.txt": "c",
    "assets/flat/d.txt": "d",
    "assets/flat/f/e.txt": "e",
}


def play(story):
    story.run("a.txt:data", "b.txt:data", "f/c.txt:data", "d.txt:data", "flat/f/e.txt:data")
    story.run()

    story.write("assets/inner/a.txt", "inner wins")
    story.run("a.txt:data")
    assert story.texts()["a.txt"] == "inner wins"
    story.delete("assets/inner/a.txt")
    story.run("a.txt:data")
    assert story.texts()["a.txt"] == "a"
    story.run()

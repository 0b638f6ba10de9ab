"""A new order of scan folders changes which files win, and only the jobs of these files run."""

TEXT = """
builders: [{{name: data, copy: ["*.txt"]}}]
scan_folders: [{{name: one, path: one, order: {one}}}, {{name: two, path: two, order: 5}}]
"""
CONFIG = TEXT.format(one=0)
FILES = {"one/a.txt": "one", "two/a.txt": "two", "one/same.txt": "same", "two/same.txt": "same", "two/b.txt": "b"}


def play(story):
    story.run("a.txt:data", "same.txt:data", "b.txt:data")
    story.config(TEXT.format(one=10))
    story.run("a.txt:data")
    assert story.texts()["a.txt"] == "two"
    story.run()

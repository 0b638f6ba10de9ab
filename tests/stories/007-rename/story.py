"""Renaming a file or folder deletes its sources and creates new sources.

A rename that changes only the case replaces the source.
"""

FILES = {"assets/a.txt": "alpha", "assets/f/b.txt": "beta"}


def play(story):
    story.run("a.txt:data", "f/b.txt:data")

    story.move("assets/a.txt", "assets/z.txt")
    story.run("z.txt:data")
    assert sorted(story.texts()) == ["f/b.txt", "z.txt"]

    story.move("assets/f", "assets/g/h")
    story.run("g/h/b.txt:data")
    assert story.folders() == {"linux", "linux/g", "linux/g/h"}

    story.move("assets/z.txt", "assets/Z.txt")
    story.run("Z.txt:data")
    assert story.texts()["z.txt"] == "alpha"
    story.run()

    story.move("assets/g", "assets/G")
    story.run("G/h/b.txt:data")
    assert story.texts()["g/h/b.txt"] == "beta"
    story.run()

"""A change of a dependency's dependency runs the job again, also in cycles, until an edge between them is removed."""

from scripted_source import SCRIPTED

FILES = {
    "builders/scripted.py": SCRIPTED,
    "assets/a.scr": "text a\nuse b.scr",
    "assets/b.scr": "text b\nuse c.scr",
    "assets/c.scr": "text c\nuse leaf.txt",
    "assets/x.scr": "text x\nuse y.scr",
    "assets/y.scr": "text y\nuse x.scr",
    "assets/leaf.txt": "leaf",
}


def play(story):
    story.run(*(f"{name}.scr:scripted" for name in "abcxy"))
    story.run(analysed=0)

    story.write("assets/leaf.txt", "other leaf")
    story.run(*(f"{name}.scr:scripted" for name in "abc"))

    story.write("assets/x.scr", "text new\nuse y.scr")
    story.run("x.scr:scripted", "y.scr:scripted")
    story.run(analysed=0)

    story.write("assets/b.scr", "text b alone")
    story.run("a.scr:scripted", "b.scr:scripted")
    story.write("assets/leaf.txt", "third leaf")
    story.run("c.scr:scripted")
    story.run(analysed=0)

"""If a dependency of a dependency of a job changes, the job runs again, even if the dependencies form a cycle.

If a source between the two drops its dependency, later changes of the file no longer run the job.
"""

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

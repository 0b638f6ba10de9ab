"""If two files swap names, the jobs of both run, unless their bytes are equal."""

FILES = {"assets/a.txt": "aaaaa", "assets/b.txt": "bbbbb", "assets/c.txt": "same", "assets/d.txt": "same"}


def play(story):
    story.run("a.txt:data", "b.txt:data", "c.txt:data", "d.txt:data")

    for one, other in ("ab", "cd"):
        story.move(f"assets/{one}.txt", "assets/parked")
        story.move(f"assets/{other}.txt", f"assets/{one}.txt")
        story.move("assets/parked", f"assets/{other}.txt")
    story.run("a.txt:data", "b.txt:data")

    assert story.texts() == {"a.txt": "bbbbb", "b.txt": "aaaaa", "c.txt": "same", "d.txt": "same"}

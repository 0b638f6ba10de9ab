"""A failed job keeps its last good product. It runs once at each start, and again when a file that it reads changes."""

from scripted_source import SCRIPTED

FILES = {"builders/scripted.py": SCRIPTED, "assets/a.scr": "text good", "assets/b.scr": "need part.txt", "assets/part.txt": "part"}


def play(story):
    story.run("a.scr:scripted", "b.scr:scripted")

    story.write("assets/a.scr", "fail")
    story.delete("assets/part.txt")
    story.run("a.scr:scripted!", "b.scr:scripted!")
    assert story.texts() == {"a.out": "good", "b.out": "part"}
    assert story.errors() == {"a.scr:scripted": "told to fail", "b.scr:scripted": "part.txt is missing"}
    story.run("a.scr:scripted!", "b.scr:scripted!", analysed=0)

    story.write("assets/part.txt", "new part")
    story.run("a.scr:scripted!", "b.scr:scripted")
    assert story.texts() == {"a.out": "good", "b.out": "new part"}

    story.write("assets/a.scr", "text good")
    story.run()  # the source has the bytes of its last successful run again, so no job runs
    story.write("assets/a.scr", "text better")
    story.run("a.scr:scripted")
    story.run(analysed=0)

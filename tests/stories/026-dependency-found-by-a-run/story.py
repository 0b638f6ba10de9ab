"""A file that a run reports as read, though the analysis did not declare it, is a dependency from then on."""

from scripted_source import SCRIPTED

FILES = {"builders/scripted.py": SCRIPTED, "assets/a.scr": "read part.bin", "assets/part.bin": "one", "assets/b.scr": "text b"}


def play(story):
    story.run("a.scr:scripted", "b.scr:scripted")
    story.run(analysed=0)
    story.write("assets/part.bin", "two")
    story.run("a.scr:scripted")
    assert story.texts()["a.out"] == "two"
    story.run(analysed=0)

    story.write("assets/a.scr", "text no more")
    story.run("a.scr:scripted")
    story.write("assets/part.bin", "three")
    story.run(analysed=0)

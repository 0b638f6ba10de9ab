"""A failed analysis keeps the jobs and products of the last good analysis. It runs again at each start and after an edit."""

from scripted_source import SCRIPTED

FILES = {"builders/scripted.py": SCRIPTED, "assets/a.scr": "text good", "assets/b.scr": "refuse"}


def play(story):
    story.run("a.scr:scripted", failed=("b.scr:analysis",), analysed=2)
    assert story.errors() == {"b.scr:analysis": "it refuses"}
    story.run(failed=("b.scr:analysis",), analysed=1)

    story.write("assets/b.scr", "text now good")
    story.run("b.scr:scripted", analysed=1)
    story.run(analysed=0)

"""When a declared dependency changes, the jobs that depend on it run again.

The dependency is an absolute path, a wildcard, or a file that did not exist when it was declared.
"""

from scripted_source import SCRIPTED

FILES = {
    "builders/scripted.py": SCRIPTED,
    "assets/one.scr": "use part.txt",
    "assets/many.scr": "glob parts/*.txt",
    "assets/missing.scr": "use later.txt",
    "assets/alone.scr": "text alone",
    "assets/part.txt": "part",
    "assets/parts/a.txt": "A",
}
ALL = ("one.scr:scripted", "many.scr:scripted", "missing.scr:scripted", "alone.scr:scripted")


def play(story):
    story.run(*ALL, analysed=4)
    assert story.texts() == {"one.out": "part", "many.out": "A", "missing.out": "(missing)", "alone.out": "alone"}
    story.run(analysed=0)

    story.write("assets/part.txt", "other")
    story.run("one.scr:scripted")
    assert story.texts()["one.out"] == "other"

    story.write("assets/parts/b.txt", "B")
    story.run("many.scr:scripted")
    assert story.texts()["many.out"] == "A\nB"

    story.write("assets/later.txt", "here now")
    story.run("missing.scr:scripted")
    assert story.texts()["missing.out"] == "here now"

    story.delete("assets/parts/a.txt")
    story.run("many.scr:scripted")
    assert story.texts()["many.out"] == "B"

    story.delete("assets/later.txt")
    story.run("missing.scr:scripted")
    assert story.texts()["missing.out"] == "(missing)"
    story.run(analysed=0)

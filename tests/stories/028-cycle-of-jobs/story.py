"""A cycle of job dependencies blocks no job; each member warns once, and nothing runs twice."""

from scripted_source import SCRIPTED

FILES = {
    "builders/scripted.py": SCRIPTED,
    "assets/a.scr": "text a\nfingerprint b.scr",
    "assets/b.scr": "text b\norder c.scr",
    "assets/c.scr": "text c\norder a.scr",
    "assets/d.scr": "text d\norder d.scr",
}


def play(story):
    story.run(*(f"{name}.scr:scripted" for name in "abcd"))
    story.run(analysed=0)
    story.write("assets/b.scr", "text other b\norder c.scr")
    story.run("b.scr:scripted")
    story.run(analysed=0)

    story.write("assets/c.scr", "text c")
    ran = story.run("c.scr:scripted", "b.scr:scripted", "a.scr:scripted")
    assert list(ran.runs) == ["c.scr:scripted", "b.scr:scripted", "a.scr:scripted"]
    story.run(analysed=0)

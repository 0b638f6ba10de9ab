"""`*` in a job dependency stands for the jobs of all matching sources, which may be added, changed and deleted.

The wildcard never matches the source of the job itself.
"""

from scripted_source import SCRIPTED

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {
    "builders/scripted.py": SCRIPTED,
    "assets/all.scr": "text all\norder *.scr",
    "assets/some.scr": "text some\nfingerprint parts/*",
    "assets/parts/one.scr": "text 1",
    "assets/parts/two.scr": "text 2",
    "assets/parts/other.txt": "no such job",
}


def play(story):
    first = ("parts/one.scr:scripted", "parts/two.scr:scripted", "some.scr:scripted", "all.scr:scripted")
    ran = story.run(*first, "parts/other.txt:data")
    order = [name for name in ran.runs if name in first]
    assert order.index("all.scr:scripted") == 3
    assert order.index("some.scr:scripted") == 2
    story.run(analysed=0)

    story.write("assets/parts/one.scr", "text other")
    story.run("parts/one.scr:scripted", "some.scr:scripted", "all.scr:scripted")
    story.write("assets/parts/three.scr", "text 3")
    story.run("parts/three.scr:scripted", "some.scr:scripted", "all.scr:scripted")
    story.delete("assets/parts/two.scr")
    story.run("some.scr:scripted", "all.scr:scripted")
    story.write("assets/parts/other.txt", "no such job, still")
    story.run("parts/other.txt:data")
    story.run(analysed=0)

    story.write("assets/parts/one.scr", "text other\norder all*")
    story.run("parts/one.scr:scripted", "some.scr:scripted", "all.scr:scripted")
    story.run(analysed=0)

"""Jobs that need an intermediate wait until it exists or no pending job can make it, and run again when it changes."""

from pathlib import Path

from scripted_source import SCRIPTED

FILES = {
    "builders/scripted.py": SCRIPTED,
    "builders/chained.py": (Path(__file__).parent.parent / "chained.py").read_text(),
    "assets/aa.scr": "use m.low\ntext uses the lower stage",
    "assets/m.top": "one",
    "assets/z.top": "read m.low\nzed",
    "assets/other.txt": "x",
}


def play(story):
    chain = ("m.top:chained@common", "m.mid:chained@common", "m.low:chained")
    z = ("z.top:chained@common", "z.mid:chained@common", "z.low:chained")
    ran = story.run(*chain, "aa.scr:scripted", *z)
    order = list(ran.runs)
    assert order.index("m.mid:chained@common") < order.index("aa.scr:scripted")
    story.run(analysed=0)

    story.write("assets/m.top", "another")
    story.run(*chain, "aa.scr:scripted", "z.top:chained@common")
    story.delete("assets/m.top")
    story.run("aa.scr:scripted", "z.top:chained@common")
    story.write("assets/m.top", "back again")
    story.run(*chain, "aa.scr:scripted", "z.top:chained@common")

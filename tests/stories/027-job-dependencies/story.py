"""Jobs run after the jobs that they depend on.

Depending on the kind of dependency, they run again after a changed fingerprint, after changed products, or never.
"""

from scripted_source import SCRIPTED

FILES = {
    "builders/scripted.py": SCRIPTED,
    "assets/a.scr": "text a\nfingerprint b.scr",
    "assets/b.scr": "text b\norder c.scr",
    "assets/c.scr": "text c",
    "assets/once.scr": "text once\norder_once c.scr",
    "assets/only.scr": "text only\norder_only c.scr",
}


def play(story):
    ran = story.run(*(f"{name}.scr:scripted" for name in ("a", "b", "c", "once", "only")))
    order = list(ran.runs)
    assert order.index("c.scr:scripted") < order.index("b.scr:scripted") < order.index("a.scr:scripted")
    assert order.index("c.scr:scripted") < min(order.index("once.scr:scripted"), order.index("only.scr:scripted"))
    story.run(analysed=0)

    story.write("assets/c.scr", "# other bytes, same product\ntext c")
    story.run("c.scr:scripted")

    story.write("assets/c.scr", "text another c")
    ran = story.run("c.scr:scripted", "b.scr:scripted", "a.scr:scripted")
    assert list(ran.runs) == ["c.scr:scripted", "b.scr:scripted", "a.scr:scripted"]
    story.run(analysed=0)

    story.write("assets/b.scr", "# a new fingerprint, the same product\ntext b\norder c.scr")
    story.run("b.scr:scripted", "a.scr:scripted")

    story.delete("assets/c.scr")
    story.run("b.scr:scripted", "a.scr:scripted")
    story.run(analysed=0)
    story.write("assets/c.scr", "text c again")
    story.run("c.scr:scripted", "b.scr:scripted", "a.scr:scripted")
    story.run(analysed=0)

    story.write("builders/scripted.py", SCRIPTED.replace('version = "1"', 'version = "2"'))
    ran = story.run(*(f"{name}.scr:scripted" for name in ("a", "b", "c", "once", "only")))
    order = list(ran.runs)
    assert order.index("c.scr:scripted") < order.index("b.scr:scripted") < order.index("a.scr:scripted")
    story.run(analysed=0)

"""A source that cannot be read fails with the reason and keeps its product; it succeeds once it can be read."""

import os

FILES = {"assets/a.txt": "a", "assets/b.txt": "b"}


def play(story):
    story.run("a.txt:data", "b.txt:data")
    if os.geteuid() == 0:
        return  # root reads everything; tests/engine/loop/test_engine.py injects the error instead
    story.write("assets/a.txt", "aa")
    story.path("assets/a.txt").chmod(0)
    ran = story.engine_run()
    assert "cannot be read" in str(story.errors())
    assert story.texts() == {"a.txt": "a", "b.txt": "b"}
    assert "b.txt:data" not in ran.runs
    story.path("assets/a.txt").chmod(0o644)
    story.engine_run()
    assert story.texts()["a.txt"] == "aa"

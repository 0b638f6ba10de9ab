"""If two sources make the same intermediate, both jobs fail, and no other job uses the intermediate.

When one source no longer makes the intermediate, the job of the other source succeeds.
"""

from pathlib import Path

FILES = {
    "builders/chained.py": (Path(__file__).parent.parent / "chained.py").read_text(),
    "assets/a.top": "as same.low\na",
    "assets/b.top": "b",
}


def play(story):
    story.run("a.top:chained@common", "same.low:chained", "b.top:chained@common", "b.mid:chained@common", "b.low:chained")
    story.write("assets/b.top", "as same.low\nb")
    ran = story.engine_run()
    assert set(ran.runs) >= {"a.top:chained@common!", "b.top:chained@common!"}
    # The failed job of b.top keeps the products of its last good run.
    assert story.texts() == {
        "common/b.mid": "b",
        "common/b.low": "b",
        "b.end": "b",
    }

    story.delete("assets/a.top")
    story.run("b.top:chained@common", "same.low:chained")
    assert story.texts() == {"common/same.low": "b", "same.end": "b"}

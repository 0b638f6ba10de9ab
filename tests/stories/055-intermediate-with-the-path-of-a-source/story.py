"""An intermediate never overrides a source.

The job that makes the intermediate fails, in any order of events, and runs again when the source is deleted.
"""

from pathlib import Path

FILES = {
    "builders/chained.py": (Path(__file__).parent.parent / "chained.py").read_text(),
    "assets/a.top": "made",
    "assets/A.mid": "real",
}
REAL = ("A.mid:chained@common", "a.low:chained")


def play(story):
    story.run("a.top:chained@common!", *REAL)
    assert "'A.mid'" in story.errors()["a.top:chained@common"]
    assert story.texts() == {"common/a.low": "real", "a.end": "real"}
    story.run("a.top:chained@common!")  # failed jobs run again at each start

    story.delete("assets/A.mid")
    story.run("a.top:chained@common", "a.mid:chained@common", "a.low:chained")
    assert story.texts()["a.end"] == "made"

    # a source appears at the path of an intermediate: the job that made the intermediate fails until the source is deleted
    story.write("assets/A.low", "real")
    story.run("a.mid:chained@common!", "A.low:chained")
    assert "has the path of an existing source" in story.errors()["a.mid:chained@common"]
    assert story.texts() == {"common/a.mid": "made", "a.end": "real"}
    story.delete("assets/A.low")
    story.run("a.mid:chained@common", "a.low:chained")

    story.write("assets/A.mid", "real")
    story.run("a.top:chained@common!", *REAL)
    story.delete("assets/a.top")
    story.run()
    assert story.texts() == {"common/a.low": "real", "a.end": "real"}

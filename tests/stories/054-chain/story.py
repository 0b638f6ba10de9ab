"""Intermediates are sources of other builders, stage by stage.

The products of later stages are deleted with their source, and an unchanged intermediate runs no further jobs.
"""

from pathlib import Path

FILES = {
    "builders/chained.py": (Path(__file__).parent.parent / "chained.py").read_text(),
    "assets/sub/A.top": "one",
    "assets/b.top": "two",
}
A = ("sub/A.top:chained@common", "sub/a.mid:chained@common", "sub/a.low:chained")
B = ("b.top:chained@common", "b.mid:chained@common", "b.low:chained")


def play(story):
    story.run(*A, *B)
    assert story.texts() == {
        **{f"common/sub/a.{end}": "one" for end in ("mid", "low")},
        **{f"common/b.{end}": "two" for end in ("mid", "low")},
        "sub/a.end": "one",
        "b.end": "two",
    }
    story.run(analysed=0)

    story.write("assets/sub/A.top", "# another first line, the same intermediate\none")
    story.run(A[0])
    story.write("assets/sub/A.top", "three")
    story.run(*A)
    assert story.texts()["sub/a.end"] == "three"

    # An intermediate that a user deleted is made again, with all products that depend on it.
    story.delete("Cache/Intermediate Assets/sub/a.mid")
    story.run(*A)
    story.delete("Cache/linux/sub/a.end")
    story.run(A[2])
    # A user changes an intermediate: it is made again before dependent jobs run. This holds even if its size stays the same.
    for text in ("changed by hand", "THREE"):
        story.write("Cache/Intermediate Assets/sub/a.mid", text)
        story.run(A[0], analysed=0)
        assert story.texts()["common/sub/a.mid"] == "three"
        assert story.texts()["sub/a.end"] == "three"
        story.run(analysed=0)
    # an unknown file in the folder of intermediates is not a source
    story.write("Cache/Intermediate Assets/sub/stray.low", "stray")
    story.run(analysed=0)
    assert "common/sub/stray.low" not in story.texts()

    # the job no longer makes its intermediate: the products of all later stages are deleted, and no job fails
    story.write("assets/b.top", "none")
    story.run(B[0])
    assert [name for name in story.texts() if "b." in name] == []
    story.write("assets/b.top", "two")
    story.run(*B)

    # a stage fails: the last good products of this stage and of later stages stay
    story.write("assets/b.top", "fail")
    story.run(f"{B[0]}!")
    assert story.texts()["b.end"] == "two"
    story.delete("assets/b.top")
    story.run()
    assert story.statuses().keys() == set(A)

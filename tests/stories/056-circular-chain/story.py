"""A job fails if its intermediate is an earlier stage of its own chain; no chain runs in an endless cycle."""

from pathlib import Path

FILES = {
    "builders/chained.py": (Path(__file__).parent.parent / "chained.py").read_text(),
    "assets/self.top": "as self.top",
    "assets/back.top": "back",
    "assets/ring.top": "ring",
}


def play(story):
    story.write(
        "builders/chained.py",
        (Path(__file__).parent.parent / "chained.py")
        .read_text()
        .replace(
            "texts = [line",
            'names = {"back.mid": ["back.top"], "ring.low": ["ring.mid"]}.get(request.source, names)\n        texts = [line',
        )
        .replace('request.source.endswith(".low")', 'request.source == "never"'),
    )
    story.run(
        "self.top:chained@common!",
        "back.top:chained@common",
        "back.mid:chained@common!",
        "ring.top:chained@common",
        "ring.mid:chained@common",
        "ring.low:chained@common!",
    )
    errors = story.errors()
    assert "self.top -> self.top" in errors["self.top:chained@common"]
    assert "back.top -> back.mid -> back.top" in errors["back.mid:chained@common"]
    message = "'ring.mid' (made from 'ring.top') would be made from itself: ring.mid -> ring.low -> ring.mid"
    assert message in errors["ring.low:chained@common"]
    assert set(story.texts()) == {"common/back.mid", "common/ring.mid", "common/ring.low"}
    story.delete("assets/ring.top")
    ran = story.engine_run()  # the failed job of `ring.low` may run again before `ring.low` is removed
    assert ran.runs.keys() - {"ring.low:chained@common!"} == {"self.top:chained@common!", "back.mid:chained@common!"}
    story.check_rest()

"""When a later stage fails, earlier products stay; deleting the top source deletes all. The failed stage is not tried again."""

from pathlib import Path

CHAINED = (Path(__file__).parent.parent / "chained.py").read_text()
FILES = {
    "builders/chained.py": CHAINED.replace('if "fail" in lines', 'if "fail " + extension_of(request) in lines')
    + "\n\ndef extension_of(request):\n    return os.path.splitext(request.source)[1]\n",
    "assets/a.top": "good",
}
TOP, MID, LOW = "a.top:chained@common", "a.mid:chained@common", "a.low:chained"


def play(story):
    story.run(TOP, MID, LOW)

    story.write("assets/a.top", "fail .low")
    story.run(TOP, MID, f"{LOW}!")
    assert story.texts() == {"common/a.mid": "fail .low", "common/a.low": "fail .low", "a.end": "good"}
    story.write("assets/a.top", "fail .mid")
    story.run(TOP, f"{MID}!", f"{LOW}!")  # failed jobs run again at each start
    assert story.texts() == {"common/a.mid": "fail .mid", "common/a.low": "fail .low", "a.end": "good"}

    story.delete("assets/a.top")
    ran = story.engine_run()
    assert ran.runs.keys() <= {f"{LOW}!"}  # failed jobs run again at each start, unless their source is removed first
    story.check_rest()
    assert story.texts() == {}
    assert story.statuses() == {}

"""A source with a `.meta` file keeps its UUID when it moves; mistakes in a `.meta` file are reported until they are corrected."""

import json

from disk_project import database
from scripted_source import SCRIPTED

CONFIG = """
scan_folders: [{name: game, path: assets}]
metadata_types: [.txt]
builders:
  - {name: copies, uses: copy, patterns: ["*.txt"]}
"""
ONE = "11111111-2222-4333-8444-555555555555"
TWO = "99999999-2222-4333-8444-555555555555"


def meta(uuid: str, original: str = "a.txt", **more: object) -> str:
    document = {"uuid": f"{{{uuid}}}", "legacyUuids": [], "originalPath": original, "creationUnixEpochMS": 1, **more}
    return json.dumps({"FileVersion": 1, "UUID": document})


FILES = {
    "builders/scripted.py": SCRIPTED,
    "assets/a.txt": "a",
    "assets/a.txt.meta": meta(ONE),
    "assets/plain.txt": "plain",
    "assets/user.scr": f"uuid {ONE}\ntext x",
}


def uuids(story) -> dict[str, str]:
    with database(story.cache) as connection:
        return {name: guid.hex() for name, guid in connection.execute("SELECT SourceName, SourceGuid FROM Sources")}


def play(story):
    one, two = ONE.replace("-", ""), TWO.replace("-", "")
    story.run("a.txt:copies", "plain.txt:copies", "user.scr:scripted")
    assert uuids(story)["a.txt"] == one
    assert uuids(story)["plain.txt"] != one  # a batch writes no `.meta` files
    assert not story.path("assets/plain.txt.meta").exists()
    story.run(analysed=0)

    # a source that moves with its `.meta` file keeps its UUID, and sources that depend on this UUID run again
    story.move("assets/a.txt", "assets/sub/b.txt")
    story.move("assets/a.txt.meta", "assets/sub/b.txt.meta")
    story.run("sub/b.txt:copies", "user.scr:scripted")
    assert uuids(story)["sub/b.txt"] == one
    story.write("assets/sub/b.txt", "other bytes")
    story.run("sub/b.txt:copies", "user.scr:scripted")

    # the `.meta` file gets the UUID TWO: then the UUID ONE finds the source only if ONE is one of its `legacyUuids`
    story.write("assets/sub/b.txt.meta", meta(TWO))
    story.run("sub/b.txt:copies", "user.scr:scripted")
    assert uuids(story)["sub/b.txt"] == two
    story.write("assets/sub/b.txt.meta", meta(TWO, legacyUuids=[f"{{{ONE}}}"]))
    story.run("sub/b.txt:copies", "user.scr:scripted")
    story.write("assets/sub/b.txt", "a third time")
    story.run("sub/b.txt:copies", "user.scr:scripted")

    # the `.meta` file is damaged, then has no UUID, then is empty
    story.write("assets/sub/b.txt.meta", '{"FileVersion": 1, "UUID": {"uuid": ')
    story.run("user.scr:scripted", failed=("sub/b.txt:analysis",))
    assert "is damaged: line 1" in story.errors()["sub/b.txt:analysis"]
    story.write("assets/sub/b.txt.meta", '{"FileVersion": 1}')
    story.run(failed=("sub/b.txt:analysis",))
    assert "has no UUID" in story.errors()["sub/b.txt:analysis"]
    story.write("assets/sub/b.txt.meta", "")
    story.run("sub/b.txt:copies")
    assert uuids(story)["sub/b.txt"] not in (one, two)

    # if a source is copied with its `.meta` file, the original keeps the UUID, in any order of notices
    story.write("assets/sub/b.txt.meta", meta(ONE, "sub/b.txt"))
    story.write("assets/aa.txt", "copied")
    story.write("assets/aa.txt.meta", meta(ONE, "sub/b.txt"))
    story.run("sub/b.txt:copies", "user.scr:scripted", failed=("aa.txt:analysis",))
    assert "also the UUID of 'sub/b.txt'" in story.errors()["aa.txt:analysis"]
    assert uuids(story)["sub/b.txt"] == one
    story.delete("assets/sub/b.txt")
    story.delete("assets/sub/b.txt.meta")
    story.run("aa.txt:copies", "user.scr:scripted")
    assert uuids(story)["aa.txt"] == one

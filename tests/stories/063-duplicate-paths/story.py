"""Files of a metadata type do not override each other.

Each file is processed, and the product names of files in later scan folders contain their scan folder.
"""

import json

from disk_project import database

CONFIG = """
scan_folders: [{name: high, path: high}, {name: low, path: low}]
metadata_types: [.top]
builders:
  - {name: copies, uses: copy, patterns: ["*.top", "*.dat"]}
"""


def meta(uuid: str, original: str) -> str:
    document = {
        "uuid": f"{{{uuid * 8}-{uuid * 4}-4{uuid * 3}-8{uuid * 3}-{uuid * 12}}}",
        "legacyUuids": ["{11111111-0000-0000-0000-000000000000}"],
    }
    return json.dumps({"FileVersion": 1, "UUID": {**document, "originalPath": original, "creationUnixEpochMS": 1}})


FILES = {
    "high/x.txt": "",
    "low/d/a.top": "low",
    "low/d/a.dat": "low",
}


def uuids(story) -> dict[tuple[int, str], str]:
    with database(story.cache) as connection:
        rows = connection.execute("SELECT ScanFolderPK, SourceName, SourceGuid FROM Sources")
        return {(folder, name): guid.hex() for folder, name, guid in rows}


def play(story):
    story.run("d/a.top:copies", "d/a.dat:copies")
    assert story.texts() == {"d/a.top": "low", "d/a.dat": "low"}
    plain = uuids(story)[2, "d/a.top"]

    # a file in a scan folder of higher priority overrides an ordinary file of the same path, but not a file of a metadata type
    story.write("high/d/a.top", "high")
    story.write("high/d/a.dat", "high")
    ran = story.engine_run()
    assert set(ran.runs) == {"d/a.top:copies", "d/a.dat:copies"}
    assert story.texts() == {"d/a.top": "high", "d/(low)a.top": "low", "d/a.dat": "high"}
    assert len(set(uuids(story).values())) == 3
    story.run()

    # each of the two files with this path has its own identity file; a change of one file runs only its own job
    story.write("low/d/a.top.meta", meta("b", "d/a.top"))
    story.write("high/d/a.top.meta", meta("c", "d/a.top"))
    story.run("d/a.top:copies", "d/a.top:copies")
    assert uuids(story)[2, "d/a.top"].startswith("bbbbbbbb")
    assert uuids(story)[1, "d/a.top"].startswith("cccccccc")
    story.write("low/d/a.top", "low again")
    story.run("d/a.top:copies")
    assert story.texts()["d/(low)a.top"] == "low again"
    story.run()

    story.delete("high/d/a.top")
    story.delete("high/d/a.top.meta")
    story.engine_run()
    assert story.texts() == {"d/a.top": "low again", "d/a.dat": "high"}
    assert uuids(story).get((2, "d/a.top"), "").startswith("bbbbbbbb")
    assert plain

"""An intermediate of a type that is enabled for metadata has a `.meta` file.

The `.meta` file is made and deleted with the intermediate. It is an input of the jobs whose source is the intermediate.
"""

import json
from pathlib import Path
from uuid import UUID

from disk_project import database

from aptui.core.identity import intermediate_uuid, path_uuids
from aptui.core.model import PathKey, RelPath, Source, SourceUuid

CONFIG = """
scan_folders: [{name: game, path: assets}]
metadata_types: [.top]
builders: []
"""
ONE = "11111111-2222-4333-8444-555555555555"
BY_HAND = "99999999-2222-4333-8444-555555555555"
MID, LOW = "Cache/Intermediate Assets/sub/a.mid", "Cache/Intermediate Assets/sub/a.low"


def meta(uuid: str, original: str, **more: object) -> str:
    document = {
        "__version": 0,
        "uuid": f"{{{uuid}}}",
        "legacyUuids": [],
        "originalPath": original,
        "creationUnixEpochMS": 5,
        **more,
    }
    return json.dumps({"FileVersion": 1, "UUID": document})


FILES = {
    "builders/chained.py": (Path(__file__).parent.parent / "chained.py").read_text(),
    "assets/sub/A.top": "a",
    "assets/sub/A.top.meta": meta(ONE, "sub/A.top"),
    "assets/plain.top": "no identity file: a batch makes none",
}
CHAIN = ("sub/A.top:chained@common", "sub/a.mid:chained@common", "sub/a.low:chained")
PLAIN = ("plain.top:chained@common", "plain.mid:chained@common", "plain.low:chained")


def uuid_of(story, rel: str) -> str:
    with database(story.cache) as connection:
        return connection.execute("SELECT SourceGuid FROM Sources WHERE SourceName = ?", (rel,)).fetchone()[0].hex()


def expected_uuid(story) -> SourceUuid:
    with database(story.cache) as connection:
        (builder,) = connection.execute("SELECT BuilderGuid FROM Jobs JOIN Sources ON SourceID = SourcePK").fetchone()
    source = Source(PathKey("sub/a.top"), RelPath("sub/A.top"), 1, SourceUuid(UUID(ONE).bytes), 1)
    return intermediate_uuid(source, builder, 0, RelPath("sub/a.mid"))


def identity_files(story) -> list[str]:
    return sorted(path.name for path in (story.cache / "Intermediate Assets").rglob("*.meta"))


def play(story):
    story.run(*CHAIN, *PLAIN)
    assert identity_files(story) == ["a.mid.meta"]
    made = story.path(f"{MID}.meta").read_bytes()
    assert json.loads(made) == {
        "FileVersion": 1,
        "UUID": {
            "__version": 0,
            "uuid": f"{{{str(UUID(bytes=expected_uuid(story))).upper()}}}",
            "legacyUuids": [f"{{{str(UUID(bytes=path_uuids(RelPath('sub/a.mid'))[0])).upper()}}}"],
            "originalPath": "sub/a.mid",
            "creationUnixEpochMS": 5,
        },
    }
    assert uuid_of(story, "sub/a.mid") == expected_uuid(story).hex()
    story.run(analysed=0)
    story.run(is_full_scan=True)
    assert story.path(f"{MID}.meta").read_bytes() == made

    # the `.meta` file is deleted by hand: the identity stays, and the next run of the job makes the file
    story.delete(f"{MID}.meta")
    story.run("sub/a.mid:chained@common")
    story.write("assets/sub/A.top", "b")
    story.run(*CHAIN)
    assert story.path(f"{MID}.meta").read_bytes() == made

    # a user changes the `.meta` file: the change is kept, also after the job has run again
    story.write(f"{MID}.meta", meta(BY_HAND, "sub/a.mid"))
    story.run("sub/a.mid:chained@common", "sub/a.low:chained")
    assert uuid_of(story, "sub/a.mid") == BY_HAND.replace("-", "")
    story.write("assets/sub/A.top", "c")
    story.run(*CHAIN)
    assert uuid_of(story, "sub/a.mid") == BY_HAND.replace("-", "")

    # the `.meta` file is deleted with its intermediate
    story.write("assets/sub/A.top", "as other.mid\nd")
    story.run("sub/A.top:chained@common", "sub/other.mid:chained@common", "sub/other.low:chained")
    assert identity_files(story) == ["other.mid.meta"]
    story.delete("assets/sub/A.top")
    story.run()
    assert identity_files(story) == []

    # the `.meta` file is written again; a `.meta` file without a product beside it has no owner
    story.write("assets/sub/A.top", "e")
    story.write("Cache/Intermediate Assets/gone.mid.meta", meta(BY_HAND, "gone.mid"))
    story.run(*CHAIN)
    assert identity_files(story) == ["a.mid.meta"]
    assert story.path(f"{MID}.meta").read_bytes() == made

    # a `.meta` file that a user adds beside an intermediate of another type is used, too
    story.write(f"{LOW}.meta", meta(BY_HAND, "sub/a.low"))
    story.run("sub/a.low:chained")
    assert uuid_of(story, "sub/a.low") == BY_HAND.replace("-", "")
    story.delete(f"{LOW}.meta")
    story.run("sub/a.low:chained")

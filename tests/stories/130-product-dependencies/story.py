"""Product dependencies do not run jobs again; a dependency is met while its product exists, in any order of events."""

import sqlite3
from contextlib import closing
from pathlib import Path

from aptui.core.paths import path_uuid

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: linked, uses: linked}
  - {name: copies, copy: ["*.png", "*.bin"]}
"""
FILES = {
    "builders/linked.py": (Path(__file__).parents[1] / "linked.py").read_text(),
    "assets/level.lnk": "source Meshes\\Rock.lnk 1\nproduct textures/*.bin\nsource !textures/old.bin\nasset " + "7" * 32 + " 9\n",
    "assets/meshes/rock.lnk": "product Textures//Rock.PNG\ntext rock",
    "assets/textures/sky.bin": "sky",
    "assets/textures/old.bin": "old",
}
LEVEL, ROCK, SKY, IMAGE = (
    path_uuid(rel).hex() for rel in ("level.lnk", "meshes/rock.lnk", "textures/sky.bin", "textures/rock.png")
)
ASSET = ("7" * 32, 9, 2, "", 1)


def dependencies(story, name, cache=None):
    """Return rows of a product's dependencies: (UUID, sub id, flags, unresolved path, whether an asset id was given)."""
    sql = """SELECT lower(hex(d.DependencySourceGuid)), d.DependencySubID, d.DependencyFlags, d.UnresolvedPath, d.FromAssetId
        FROM ProductDependencies d JOIN Products p ON p.ProductID = d.ProductPK WHERE p.ProductName LIKE '%/' || ?"""
    with closing(sqlite3.connect((cache or story.cache) / "assetdb.sqlite")) as database:
        return sorted(database.execute(sql, (name,)))


def unmet(path):
    return ("0" * 32, 0, 2, path, 0)


def resolved(uuid, flags=2):
    return (uuid, 0, flags, "", 0)


def play(story):
    story.run("level.lnk:linked", "meshes/rock.lnk:linked", "textures/sky.bin:copies", "textures/old.bin:copies")
    stay = [unmet(":textures/old.bin"), unmet("textures/*.bin")]
    assert dependencies(story, "level.out") == sorted([*stay, resolved(ROCK, 1), resolved(SKY), ASSET])
    assert dependencies(story, "meshes/rock.out") == [unmet("textures/rock.png")]

    story.write("assets/textures/rock.png", "a picture")
    story.run("textures/rock.png:copies")
    assert dependencies(story, "meshes/rock.out") == [resolved(IMAGE)]

    story.delete("assets/meshes/rock.lnk")
    story.delete("assets/textures/sky.bin")
    story.run()
    assert dependencies(story, "level.out") == sorted([*stay, ("0" * 32, 0, 1, "meshes/rock.lnk", 0), ASSET])

    story.write("assets/meshes/rock.lnk", "text rock")
    story.write("assets/textures/fog.bin", "fog")
    story.run("meshes/rock.lnk:linked", "textures/fog.bin:copies")
    fog = path_uuid("textures/fog.bin").hex()
    assert dependencies(story, "level.out") == sorted([*stay, resolved(ROCK, 1), resolved(fog), ASSET])

    story.write("assets/level.lnk", "source meshes/rock.lnk 0")  # the new product has the same bytes, but other dependencies
    story.write("assets/meshes/rock.lnk", "source level.lnk 0\ntext rock")
    ran = story.run("level.lnk:linked", "meshes/rock.lnk:linked")
    assert dependencies(story, "level.out") == [resolved(ROCK, 0)]
    (message,) = ran.messages
    assert message.split(": ")[1] == "{0}/level.out -> {0}/meshes/rock.out -> {0}/level.out".format(
        message.split(": ")[1].partition("/")[0]
    )
    story.write("assets/textures/fog.bin", "more fog")
    assert story.run("textures/fog.bin:copies").messages == []

    work = story.root / "elsewhere"
    story.engine_run(sets=[f"cache={work}"])
    assert dependencies(story, "level.out", work) == dependencies(story, "level.out")
    assert (work / "linux.catalog.jsonl").read_bytes() == (story.cache / "linux.catalog.jsonl").read_bytes()
    story.run(analysed=0)

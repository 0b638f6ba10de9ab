"""Builders without Python code declare dependencies of their products: by paths in a text, or in a file that a command writes."""

import sqlite3
from contextlib import closing

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: levels, copy: ["*.lvl"], references: ['tile "([^"]+)"']}
  - {name: data, uses: json, references: [{regex: '"mesh":"(?P<name>\\w+)"', path: "meshes/{name}.*", load: pre}]}
  - name: scenes
    patterns: ["*.scene"]
    command: "cp {source} {products_dir}/{stem}.bin; sed -n 's/^needs //p' {source} > {product_dependencies}"
  - {name: copies, copy: ["*.obj", "*.png"]}
"""
FILES = {
    "assets/a.lvl": 'tile "grass.png"\ntile "Sky.PNG"\n',
    "assets/b.json": '{"mesh": "rock"}',
    "assets/c.scene": "needs a.lvl\nneeds b.json\n",
    "assets/grass.png": "grass",
    "assets/meshes/rock.obj": "rock",
}


def needs(story, name):
    """Return the dependencies of a product: names of products, and paths without a product; `!` marks preloaded dependencies."""
    sql = """SELECT COALESCE(o.ProductName, d.UnresolvedPath), d.DependencyFlags FROM Products p
        JOIN ProductDependencies d ON d.ProductPK = p.ProductID
        LEFT JOIN Sources s ON s.SourceGuid = d.DependencySourceGuid
        LEFT JOIN Jobs j ON j.SourcePK = s.SourceID LEFT JOIN Products o ON o.JobPK = j.JobID AND o.SubID = d.DependencySubID
        WHERE p.ProductName LIKE '%/' || ?"""
    with closing(sqlite3.connect(story.cache / "assetdb.sqlite")) as database:
        return {("!" if flags == 0 else "") + found.partition("/")[2] if "/" in found else found: flags
                for found, flags in database.execute(sql, (name,))}.keys()  # fmt: skip


def play(story):
    ran = ("a.lvl:levels", "b.json:data", "c.scene:scenes")
    story.run(*ran, "grass.png:copies", "meshes/rock.obj:copies")
    assert needs(story, "a.lvl") == {"grass.png", "sky.png"}
    assert needs(story, "b.json") == {"!meshes/rock.obj", "!rock.*"}
    assert needs(story, "c.bin") == {"a.lvl", "b.json"}
    story.run(analysed=0)

    # a file that a product depends on appears and changes: no job runs again
    story.write("assets/sky.png", "sky")
    story.write("assets/grass.png", "other grass")
    story.run("sky.png:copies", "grass.png:copies")
    assert needs(story, "a.lvl") == {"grass.png", "sky.png"}

    # the rule of a builder changes: its jobs run again, though their products stay the same
    story.config(CONFIG.replace('tile "([^"]+)"', 'tile "(gr[^"]+)"'))
    story.run("a.lvl:levels")
    assert story.reasons()["a.lvl:levels"].startswith("the builder's references")
    assert needs(story, "a.lvl") == {"grass.png"}
    story.run()

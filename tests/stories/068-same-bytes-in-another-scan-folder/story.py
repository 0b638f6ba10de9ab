"""A builder reads files beside its source. After a move to another scan folder or a change of case, it reads other files."""

from scripted_source import SCRIPTED

CONFIG = """
scan_folders: [{name: game, path: assets, order: 0}, {name: shared, path: shared, order: 10}]
builders:
  - name: glue
    patterns: ["*.src"]
    depfile: d
    command: >-
      cd $(dirname {source}); cat $(cat {source}) > {products_dir}/{stem}.glue 2> /dev/null;
      echo out: $PWD/$(cat {source}) > {depfile}
"""
FILES = {
    "builders/scripted.py": SCRIPTED,
    "assets/a.src": "part.inc",
    "assets/b.scr": "use part.inc",
    "assets/part.inc": "part",
    "assets/plain.scr": "text plain",
    "shared/other.inc": "",
}
BOTH = ("a.src:glue", "b.scr:scripted")


def play(story):
    story.run(*BOTH, "plain.scr:scripted")
    assert story.texts() == {"a.glue": "part", "b.out": "part", "plain.out": "plain"}

    story.move("assets/part.inc", "shared/part.inc")
    story.run(*BOTH)
    assert story.texts() == {"a.glue": "", "b.out": "(missing)", "plain.out": "plain"}
    assert "scan folder 'shared'" in story.reasons()["b.scr:scripted"]
    story.run(analysed=0)

    for name in ("a.src", "b.scr", "plain.scr"):
        story.move(f"assets/{name}", f"shared/{name}")
    story.run(*BOTH)
    assert story.texts() == {"a.glue": "part", "b.out": "part", "plain.out": "plain"}
    story.run(analysed=0)

    story.write("assets/part.inc", "part")
    story.run(*BOTH)
    story.write("assets/part.inc", "another")
    story.run("b.scr:scripted")
    assert story.texts() == {"a.glue": "part", "b.out": "part", "plain.out": "plain"}

    story.delete("assets/part.inc")
    story.run("b.scr:scripted")
    story.move("shared/part.inc", "shared/PART.inc")
    assert set(story.engine_run().runs) == set(BOTH)  # a job also counts as run if its result is fetched
    assert story.texts() == {"a.glue": "", "b.out": "(missing)", "plain.out": "plain"}

    story.config(CONFIG + "ignore: ['*.none']\n")  # another configuration makes the next scan check every file
    story.run(analysed=0)

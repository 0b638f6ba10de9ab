"""The files that a command names in its depfile are inputs: the job runs again when one of them is changed, deleted or restored."""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - name: glue
    patterns: ["*.src"]
    command: "cat {source} $(cat {source}) > {products_dir}/{stem}.out 2>/dev/null; echo out: {source} $(cat {source}) > {depfile}"
    depfile: "{stem}.d"
"""


def play(story):
    part = story.write("assets/part.inc", "one")
    story.write("assets/a.src", str(part))
    story.write("assets/b.src", str(story.write("assets/other.inc", "other")))
    story.run("a.src:glue", "b.src:glue")
    assert story.texts()["a.out"] == f"{part}one"

    story.write("assets/part.inc", "two")
    story.run("a.src:glue")
    assert story.texts()["a.out"] == f"{part}two"
    assert "part.inc" in story.reasons()["a.src:glue"]

    story.touch("assets/part.inc")
    story.run()
    story.delete("assets/part.inc")
    story.run("a.src:glue")
    story.run()
    story.write("assets/part.inc", "three")
    story.run("a.src:glue")
    assert story.texts()["a.out"] == f"{part}three"
    story.run()


FILES = {}

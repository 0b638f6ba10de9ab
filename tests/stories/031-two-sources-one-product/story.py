"""If two sources make the same product, both jobs fail and the product is not placed.

When one source is deleted, the job of the other source succeeds.
"""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: upper, patterns: ["*.up", "*.op"], command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out"}]
"""
FILES = {"assets/a.up": "up", "assets/b.up": "b"}


def play(story):
    story.run("a.up:upper", "b.up:upper")

    story.write("assets/a.op", "op")
    ran = story.engine_run()
    assert set(ran.runs) == {"a.up:upper!", "a.op:upper!"}
    assert story.texts() == {"b.out": "B"}
    story.run("a.up:upper!", "a.op:upper!")
    errors = story.errors()
    assert "a.op" in errors["a.up:upper"]
    assert "a.up" in errors["a.op:upper"]

    story.delete("assets/a.up")
    story.run("a.op:upper")
    assert story.texts() == {"a.out": "OP", "b.out": "B"}
    story.run()

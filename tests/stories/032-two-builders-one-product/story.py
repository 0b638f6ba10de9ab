"""If two builders make the same product from one source, the builder that is listed first keeps the product.

This holds even if the other builder is faster.
"""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: first, patterns: ["*.up"], command: "sleep 0.05; echo first > {products_dir}/{stem}.out"}
  - {name: second, patterns: ["*.up"], command: "echo second > {products_dir}/{stem}.out"}
"""
FILES = {"assets/a.up": "up"}


def play(story):
    ran = story.engine_run(workers=2)
    assert ran.runs["a.up:first"] == 1
    assert story.statuses() == {"a.up:first": "completed", "a.up:second": "failed"}
    assert story.texts() == {"a.out": "first\n"}
    story.run("a.up:second!")
    assert story.texts() == {"a.out": "first\n"}

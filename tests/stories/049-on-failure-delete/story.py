"""With `on_failure: delete` the products of a failed job are deleted, and exist again when the job succeeds."""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: check, patterns: ["*.up"], on_failure: delete, command: "grep -q good {source} && cp {source} {products_dir}/{stem}.out"}
"""
FILES = {"assets/a.up": "good", "assets/b.up": "good too"}


def play(story):
    story.run("a.up:check", "b.up:check")
    story.write("assets/a.up", "bad")
    story.run("a.up:check!")
    assert story.texts() == {"b.out": "good too"}
    story.write("assets/a.up", "good")
    story.run("a.up:check")
    assert story.texts() == {"a.out": "good", "b.out": "good too"}
    story.run()

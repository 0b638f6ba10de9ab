"""A builder's new version, parameters or patterns run its own jobs again, and no other jobs."""

TEXT = """
scan_folders: [{{name: game, path: assets}}]
builders:
  - {{name: data, copy: ["*.txt"]}}
  - {{name: upper, patterns: {patterns}, version: {version}, params: {{letters: {letters}}},
     command: "tr a-z {{params.letters}} < {{source}} > {{products_dir}}/{{stem}}.out"}}
"""
CONFIG = TEXT.format(patterns='["*.up"]', version=1, letters="A-Z")
FILES = {"assets/a.txt": "a", "assets/b.up": "b", "assets/c.up": "c"}


def play(story):
    story.run("a.txt:data", "b.up:upper", "c.up:upper")

    story.config(TEXT.format(patterns='["*.up"]', version=2, letters="A-Z"))
    story.run("b.up:upper", "c.up:upper")
    assert "version changed from '1' to '2'" in story.reasons()["b.up:upper"]

    story.config(TEXT.format(patterns='["*.up"]', version=2, letters="0-9"))
    story.run("b.up:upper", "c.up:upper")

    story.config(TEXT.format(patterns='["b.up", "*.txt"]', version=2, letters="0-9"))
    story.run("a.txt:upper")
    assert story.texts() == {"a.txt": "a", "a.out": "0", "b.out": "1"}
    story.run()

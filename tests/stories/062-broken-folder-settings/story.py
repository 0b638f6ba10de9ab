"""If the settings of a folder are broken, the sources below the folder fail.

The error names file, line and column, and the last good products stay. The jobs run again when the file is corrected.
"""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: tables, uses: json, patterns: ["*.json"], params: {minify: true}}
"""
FILES = {"assets/a.txt": "a", "assets/one/b.txt": "b", "assets/one/c.json": '{"c": 1}'}
FAILED = ("one/b.txt:analysis", "one/c.json:analysis")


def error(story):
    return story.errors()["one/b.txt:analysis"]


def play(story):
    story.run("a.txt:data", "one/b.txt:data", "one/c.json:tables")
    first = story.products()

    story.write("assets/one/.aptui.yaml", "builders:\n  tables: {parms: {minify: false}}\n")
    story.run(failed=FAILED)
    assert error(story) == "one/.aptui.yaml:2:12: unknown key 'parms' in 'builders.tables'; did you mean 'params'?"
    assert story.products() == first
    story.write("assets/one/b.txt", "other")
    story.run(failed=FAILED)
    assert story.products() == first

    story.write("assets/one/.aptui.yaml", "builders:\n  tabels: {}\n")
    story.run(failed=FAILED)
    assert error(story) == "one/.aptui.yaml:2:3: 'tabels' is not a builder; did you mean 'tables'?"
    story.write("assets/one/.aptui.yaml", "builders: {tables: {platforms: {sever: skip}}}\n")
    story.run(failed=FAILED)
    assert error(story).startswith("one/.aptui.yaml:1:33: 'sever' is neither a platform nor a tag")
    story.write("assets/one/.aptui.yaml", "builders: &a [*a]")
    story.run(failed=FAILED)
    assert (
        error(story)
        == "one/.aptui.yaml:1:11: anchors and aliases (& and *) are not allowed; repeat the full value in place of each alias"
    )
    story.write("assets/one/.aptui.yaml", "- no mapping")
    story.run(failed=FAILED)
    assert error(story).startswith("one/.aptui.yaml:1:1: folder settings must be a mapping")

    story.write("assets/one/.aptui.yaml", "")
    story.run("one/b.txt:data")
    assert story.texts()["one/b.txt"] == "other"

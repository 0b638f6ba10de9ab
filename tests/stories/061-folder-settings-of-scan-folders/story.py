"""A settings file is overridden like any file: the file in the winning scan folder applies to the sources of all scan folders."""

CONFIG = """
scan_folders: [{name: game, path: assets}, {name: shared, path: shared, order: 1}]
builders:
  - name: mark
    patterns: ["*.up"]
    command: "printf '%s' {params.mark} | cat {source} - > {products_dir}/{stem}.out"
    params: {mark: "."}
"""
FILES = {
    "assets/one/a.up": "a",
    "shared/One/b.up": "b",
    "shared/One/.aptui.yaml": "builders: {mark: {params: {mark: s}}}",
    "shared/two/.aptui.yaml": "builders: {mark: {params: {mark: t}}}",
    "shared/two/c.up": "c",
}


def play(story):
    story.run("one/a.up:mark", "One/b.up:mark", "two/c.up:mark")
    assert story.texts() == {"one/a.out": "as", "one/b.out": "bs", "two/c.out": "ct"}

    story.write("assets/one/.aptui.yaml", "builders: {mark: {params: {mark: g}}}")
    story.run("one/a.up:mark", "One/b.up:mark")
    assert story.texts() == {"one/a.out": "ag", "one/b.out": "bg", "two/c.out": "ct"}

    story.delete("assets/one/.aptui.yaml")
    story.run("one/a.up:mark", "One/b.up:mark")
    story.config(CONFIG + "ignore: ['/one/.aptui.yaml']")
    story.run("one/a.up:mark", "One/b.up:mark")
    assert story.texts() == {"one/a.out": "a.", "one/b.out": "b.", "two/c.out": "ct"}

    story.delete("shared/two/.aptui.yaml")
    story.write("shared/two/.APTUI.yaml", "builders: {mark: {params: {mark: T}}}")
    story.run("two/c.up:mark")
    story.write("shared/two/.aptui.yaml", "builders: {mark: {params: {mark: x}}}")
    ran = story.run("two/c.up:mark")
    assert any("differ only in case, so none of these files is used" in text for text in ran.messages)
    story.delete("shared/two")
    story.run()

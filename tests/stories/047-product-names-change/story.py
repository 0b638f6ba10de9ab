"""When a job makes other products than before, the old products are deleted."""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: split, patterns: ["*.list"],
            command: "cd {products_dir} && for name in $(cat {source}); do echo $name > $name; done"}]
"""
FILES = {"assets/f/a.list": "one two three"}


def play(story):
    story.run("f/a.list:split")
    assert sorted(story.texts()) == ["f/one", "f/three", "f/two"]
    story.write("assets/f/a.list", "three four")
    story.run("f/a.list:split")
    assert story.texts() == {"f/three": "three\n", "f/four": "four\n"}
    story.run()

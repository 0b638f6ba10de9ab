"""When a metadata companion is added, changed or removed, its source is processed again; both ways of naming companions work."""

CONFIG = """
scan_folders: [{name: game, path: assets}]
companions: {"*.abc": {suffix: cbc, replaces: abc}, "*.hero": assetinfo}
builders: [{name: data, copy: ["*.abc", "*.hero"]}]
"""
FILES = {"assets/walk.abc": "walk", "assets/run.abc": "run", "assets/f/x.hero": "x"}


def play(story):
    story.run("walk.abc:data", "run.abc:data", "f/x.hero:data")

    story.write("assets/walk.cbc", "1")
    story.write("assets/f/X.hero.assetinfo", "1")
    story.run("walk.abc:data", "f/x.hero:data")
    story.run()

    story.write("assets/walk.cbc", "2")
    story.run("walk.abc:data")
    assert "companion 'walk.cbc' changed" in story.reasons()["walk.abc:data"]
    story.touch("assets/walk.cbc")
    story.run()

    story.delete("assets/walk.cbc")
    story.delete("assets/f/X.hero.assetinfo")
    story.run("walk.abc:data", "f/x.hero:data")
    story.run()

"""--platforms leaves the jobs of other platforms alone, products and all."""

CONFIG = """
platforms: {server: {}, tv: {}}
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {"assets/a.txt": "a"}


def play(story):
    story.run("a.txt:data", "a.txt:data@server", "a.txt:data@tv")
    story.config(CONFIG.replace("tv: {}", "tv: {enabled: false}"))
    story.run()
    assert sorted(story.texts()) == ["a.txt", "server/a.txt"]
    story.config(CONFIG)
    story.run("a.txt:data@tv")

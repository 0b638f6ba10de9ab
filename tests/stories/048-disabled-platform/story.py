"""A disabled platform keeps its products unchanged.

Enabling the platform again runs the jobs of all sources changed in the meantime.
"""

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
    assert sorted(story.texts()) == ["a.txt", "server/a.txt", "tv/a.txt"]
    story.config(CONFIG)
    story.run()

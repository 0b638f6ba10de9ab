"""A scan folder that excludes a platform, by id or tag, has no products for it; other products stay unchanged."""

HEAD = """
platforms: {server: {tags: [headless]}}
builders: [{name: data, copy: ["*.txt"]}]
"""
CONFIG = HEAD + "scan_folders: [{name: game, path: assets}, {name: shared, path: shared, order: 10}]\n"
FILES = {"assets/a.txt": "a", "shared/b.txt": "b"}


def play(story):
    story.run("a.txt:data", "b.txt:data", "a.txt:data@server", "b.txt:data@server")

    story.config(
        HEAD + "scan_folders: [{name: game, path: assets}, {name: shared, path: shared, order: 10, exclude: [headless]}]\n"
    )
    story.run()
    assert sorted(story.texts()) == ["a.txt", "b.txt", "server/a.txt"]

    story.config(HEAD + "scan_folders: [{name: game, path: assets, include: [server]}, {name: shared, path: shared, order: 10}]\n")
    story.run("b.txt:data@server")
    assert sorted(story.texts()) == ["b.txt", "server/a.txt", "server/b.txt"]
    story.run()

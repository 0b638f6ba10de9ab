"""A product deleted by hand is made again at the next start; an unknown file in the cache is deleted."""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]},
           {name: upper, patterns: ["*.up"], command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out"}]
"""
FILES = {"assets/a.txt": "a", "assets/f/b.txt": "b", "assets/f/c.up": "c"}


def play(story):
    story.run("a.txt:data", "f/b.txt:data", "f/c.up:upper")

    story.delete("Cache/linux/f/c.out")
    story.run("f/c.up:upper")
    story.run()

    story.delete("Cache/linux/f")
    story.run("f/b.txt:data", "f/c.up:upper")
    story.run()

    story.write("Cache/linux/f/stranger.txt", "who")
    ran = story.run()
    assert any("stranger.txt" in text for text in ran.messages)

    story.delete("Cache/linux/a.txt")
    story.delete("assets/a.txt")
    story.run()

"""A file with a new time and the same bytes is read once, and no job runs."""

FILES = {"assets/a.txt": "alpha", "assets/b.txt": "beta"}


def play(story):
    story.run("a.txt:data", "b.txt:data")

    story.touch("assets/a.txt", 1_000_000_000)
    story.run()
    database = story.path("Cache/assetdb.sqlite").read_bytes()
    story.run()

    assert story.path("Cache/assetdb.sqlite").read_bytes() == database

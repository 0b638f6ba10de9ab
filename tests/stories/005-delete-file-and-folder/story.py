"""Deleting files and folders deletes their products, and cache folders that become empty."""

FILES = {
    "assets/a.txt": "a",
    "assets/one/b.txt": "b",
    "assets/one/two/c.txt": "c",
    "assets/one/two/d.txt": "d",
    "assets/three/e.txt": "e",
}


def play(story):
    story.run("a.txt:data", "one/b.txt:data", "one/two/c.txt:data", "one/two/d.txt:data", "three/e.txt:data")

    story.delete("assets/one/two/c.txt")
    story.run()
    assert sorted(story.texts()) == ["a.txt", "one/b.txt", "one/two/d.txt", "three/e.txt"]

    story.delete("assets/one")
    story.run()
    assert story.folders() == {"linux", "linux/three"}

    story.delete("assets/a.txt")
    story.delete("assets/three")
    story.run()
    assert story.folders() == set()
    story.run()

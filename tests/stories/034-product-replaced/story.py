"""A product that was replaced by a folder or a link is made again."""

FILES = {"assets/f/a.txt": "a", "assets/f/b.txt": "b"}


def play(story):
    story.run("f/a.txt:data", "f/b.txt:data")

    story.delete("Cache/linux/f/b.txt")
    story.path("Cache/linux/f/b.txt").symlink_to("a.txt")
    story.run("f/b.txt:data")
    assert not story.path("Cache/linux/f/b.txt").is_symlink()

    story.delete("Cache/linux/f/b.txt")
    story.write("Cache/linux/f/b.txt/inner", "x")
    story.run("f/b.txt:data")
    assert story.texts() == {"f/a.txt": "a", "f/b.txt": "b"}
    story.run()

"""A reverted edit runs the jobs again; an edit that is reverted before the next scan runs no job."""

FILES = {"assets/a.txt": "alpha"}


def play(story):
    story.run("a.txt:data")
    story.write("assets/a.txt", "other")
    story.run("a.txt:data")
    story.write("assets/a.txt", "alpha")
    story.run("a.txt:data")
    assert story.texts() == {"a.txt": "alpha"}

    story.write("assets/a.txt", "other")
    story.write("assets/a.txt", "alpha")
    story.run()

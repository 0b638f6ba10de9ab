"""A source becomes a folder of the same name, and a file again; the cache follows."""

FILES = {"assets/x.txt": "file", "assets/y.txt/in.txt": "inside"}


def play(story):
    story.run("x.txt:data", "y.txt/in.txt:data")

    story.delete("assets/x.txt")
    story.write("assets/x.txt/in.txt", "inside")
    story.delete("assets/y.txt")
    story.write("assets/y.txt", "file")
    story.run("x.txt/in.txt:data", "y.txt:data")
    assert story.texts() == {"x.txt/in.txt": "inside", "y.txt": "file"}
    story.run()

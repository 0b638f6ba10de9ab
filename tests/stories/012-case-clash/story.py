"""If the names of two files of a folder differ only in case, both files fail without products.

After one file is renamed, both succeed.
"""

FILES = {"assets/a.txt": "small", "assets/b.txt": "b"}


def play(story):
    story.run("a.txt:data", "b.txt:data")

    story.write("assets/A.txt", "capital")
    both = ("a.txt:analysis", "A.txt:analysis")
    story.run(failed=both)
    errors = story.errors()
    assert "'A.txt'" in errors["a.txt:analysis"]
    assert "'a.txt'" in errors["A.txt:analysis"]
    assert story.texts() == {"b.txt": "b"}
    story.run(failed=both)

    story.move("assets/A.txt", "assets/c.txt")
    story.run("a.txt:data", "c.txt:data")
    assert story.texts() == {"a.txt": "small", "b.txt": "b", "c.txt": "capital"}
    story.run()

    story.write("assets/B.txt", "another b")
    story.run(failed=("b.txt:analysis", "B.txt:analysis"))
    story.delete("assets/b.txt")
    story.run("B.txt:data")
    assert story.texts()["b.txt"] == "another b"
    story.run()

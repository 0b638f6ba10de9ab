"""Folders that differ only in case are one folder; only files in them may clash."""

FILES = {"assets/Dir/a.txt": "1", "assets/dir/b.txt": "2"}


def play(story):
    story.run("Dir/a.txt:data", "dir/b.txt:data")
    assert story.texts() == {"dir/a.txt": "1", "dir/b.txt": "2"}
    story.run()

    story.write("assets/dir/a.txt", "3")
    story.run(failed=("Dir/a.txt:analysis", "dir/a.txt:analysis"))
    story.delete("assets/Dir")
    story.run("dir/a.txt:data")
    assert story.texts() == {"dir/a.txt": "3", "dir/b.txt": "2"}
    story.run()

"""A file replaced by a copy with the same size and time is noticed by its inode; the content decides whether its job runs."""

import os
import shutil

FILES = {"assets/a.txt": "alpha", "assets/b.txt": "beta_"}


def play(story):
    story.run("a.txt:data", "b.txt:data")

    shutil.copy2(story.path("assets/a.txt"), story.path("copy"))
    story.move("copy", "assets/a.txt")
    story.run()

    times = story.path("assets/b.txt").stat()
    story.write("assets/b.txt", "BETA_")
    os.utime(story.path("assets/b.txt"), ns=(times.st_atime_ns, times.st_mtime_ns))
    story.run("b.txt:data")
    assert story.texts() == {"a.txt": "alpha", "b.txt": "BETA_"}
    story.run()

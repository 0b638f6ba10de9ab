"""FIFOs, sockets and devices are not sources and never block the engine."""

import os
import socket

FILES = {"assets/a.txt": "a"}


def play(story):
    os.mkfifo(story.path("assets/fifo.txt"))
    story.path("assets/null.txt").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(story.path("assets/s.txt")))
    story.run("a.txt:data")
    story.run()

    story.delete("assets/a.txt")
    os.mkfifo(story.path("assets/a.txt"))
    story.run()
    assert story.texts() == {}

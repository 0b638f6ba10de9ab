"""Links to files are read if their target is allowed, links to folders are reported and not followed.

Dangling links are reported.
"""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {"assets/real/a.txt": "a", "elsewhere/target.txt": "target"}


def play(story):
    story.path("assets/link.txt").symlink_to(story.path("elsewhere/target.txt"))
    story.path("assets/folder").symlink_to("real")
    story.path("assets/loop").symlink_to("..")
    story.path("assets/dangling.txt").symlink_to("nowhere")
    story.path("assets/self.txt").symlink_to("self.txt")
    ran = story.run("real/a.txt:data")
    assert sum("link.txt' leads out of the scan folders" in text for text in ran.messages) == 1

    story.config(f"{CONFIG}linked_folders: [elsewhere]\n")
    ran = story.run("link.txt:data")
    assert sum("are not sources" in text for text in ran.messages) == 2
    assert sum("its target does not exist" in text for text in ran.messages) == 2
    assert not story.path("Cache/linux/link.txt").is_symlink()
    story.run()

    story.write("elsewhere/target.txt", "edited")
    story.run("link.txt:data")
    assert story.texts() == {"real/a.txt": "a", "link.txt": "edited"}
    story.delete("elsewhere/target.txt")
    story.run()
    assert story.texts() == {"real/a.txt": "a"}

"""A path of more than 3,500 bytes and 120 folders is a source like any other."""

DEEP = "/".join(f"folder-number-{number:03}-{'x' * 10}" for number in range(120)) + "/a.txt"
FILES = {f"assets/{DEEP}": "deep"}


def play(story):
    story.run(f"{DEEP}:data")
    story.run()
    story.write(f"assets/{DEEP}", "edited")
    story.run(f"{DEEP}:data")
    story.delete("assets/folder-number-000-xxxxxxxxxx")
    story.run()
    assert story.folders() == set()

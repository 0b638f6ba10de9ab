"""A product is made again if it is deleted after an engine was killed before it became idle."""

FILES = {"assets/f/a.txt": "a", "assets/f/b.txt": "b"}


def play(story):
    from aptui.engine.loop.engine import Engine

    settle = Engine.settle
    Engine.settle = lambda _self: None
    try:
        story.run("f/a.txt:data", "f/b.txt:data")
    finally:
        Engine.settle = settle
    story.run()

    story.delete("Cache/linux/f/a.txt")
    story.run("f/a.txt:data")
    story.run()

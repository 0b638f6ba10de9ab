"""An engine is killed before it becomes idle. Later a product is deleted: the next run makes the product again."""

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

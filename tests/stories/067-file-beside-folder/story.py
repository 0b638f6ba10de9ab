"""A product `a` and one in a folder `a/` cannot both be in the cache: both jobs fail and name each other, in any order.

If one of the two sources is deleted, the other job succeeds.
"""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: flat, patterns: ["*.flat"], command: "cp {source} {products_dir}/a"}
  - {name: deep, patterns: ["*.deep"], command: "cp {source} {products_dir}/$(cat {source})"}
"""
FILES = {"assets/a/x.deep": "x.out", "assets/b.deep": "b.out"}


def play(story):
    story.run("a/x.deep:deep", "b.deep:deep")

    story.write("assets/one.flat", "one")
    ran = story.engine_run()
    assert set(ran.runs) == {"a/x.deep:deep!", "one.flat:flat!"}
    assert story.texts() == {"b.out": "b.out"}
    errors = story.errors()
    assert "product 'linux/a' conflicts with 'linux/a/x.out', which 'a/x.deep'" in errors["one.flat:flat"]
    assert "product 'linux/a/x.out' conflicts with 'linux/a', which 'one.flat'" in errors["a/x.deep:deep"]
    story.run("a/x.deep:deep!", "one.flat:flat!")

    story.delete("assets/a")
    story.run("one.flat:flat")
    assert story.texts() == {"a": "one", "b.out": "b.out"}

    story.write("assets/a/x.deep", "x.out")
    assert set(story.engine_run().runs) == {"a/x.deep:deep!", "one.flat:flat!"}
    assert story.texts() == {"b.out": "b.out"}

    story.delete("assets/one.flat")
    story.run("a/x.deep:deep")
    assert story.texts() == {"a/x.out": "x.out", "b.out": "b.out"}
    story.run()

"""When the bytes of a tool change, the jobs of the builder that uses the tool run again."""

import os

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: tool, patterns: ["*.txt"], tools: [bin/tool], command: "PROJECT/bin/tool {source} > {products_dir}/{stem}.out"}
"""
FILES = {"assets/a.txt": "a"}


def put_tool(story, text):
    path = story.write("bin/tool.new", f"#!/bin/sh\necho {text}\n")
    os.chmod(path, 0o755)
    story.move("bin/tool.new", "bin/tool")


def play(story):
    put_tool(story, "one")
    story.config(CONFIG.replace("PROJECT", str(story.root)))
    story.run("a.txt:data", "a.txt:tool")
    assert story.texts()["a.out"] == "one\n"

    put_tool(story, "two")
    story.run("a.txt:tool")
    assert story.texts()["a.out"] == "two\n"
    story.touch("bin/tool")
    story.run()

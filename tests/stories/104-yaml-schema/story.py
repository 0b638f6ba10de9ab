"""Data is checked again when its schema changes; parameters differ by platform."""

import json

CONFIG = """
platforms: {server: {tags: [server]}}
scan_folders: [{name: game, path: assets}]
builders:
  - {name: levels, uses: yaml, params: {schema: level.schema}, platforms: {server: {output: min}}}
  - {name: texts, uses: xml}
"""


def schema(*required):
    return json.dumps({"required": required})


FILES = {"assets/level.schema": schema("name"), "assets/hill.yaml": "name: hill\n", "assets/a.xml": "<a/>\n"}
HILL = ("hill.yaml:levels", "hill.yaml:levels@server")


def play(story):
    story.run(*HILL, "a.xml:texts", "a.xml:texts@server")
    assert story.products()["server/hill.json"] == b'{"name":"hill"}\n'
    story.run()

    story.write("assets/level.schema", schema("name", "size"))
    story.run(*(f"{job}!" for job in HILL))
    assert set(story.errors().values()) == {"hill.yaml:1:1: 'size' is a required property"}

    story.write("assets/hill.yaml", "name: hill\nsize: 3\n")
    story.run(*HILL)
    story.write("assets/a.xml", "<a>\n<b></a>\n")
    story.run("a.xml:texts!", "a.xml:texts@server!")
    assert set(story.errors().values()) == {"a.xml:2:6: mismatched tag"}

"""The cache and the logs below a scan folder are never sources."""

CONFIG = """
scan_folders: [{name: game, path: .}]
logs: logs
builders: [{name: data, copy: ["*.txt", "*.log", "*.sqlite", "*.yaml"]}]
"""
CHECKS_CLEAN_BUILD = False  # a clean build has another cache, and would treat the cache of this project as sources
FILES = {"assets/a.txt": "a", "logs/x.txt": "log", "a.txt": "top"}


def play(story):
    story.run("assets/a.txt:data", "a.txt:data")
    story.run()

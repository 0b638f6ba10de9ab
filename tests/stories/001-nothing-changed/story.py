"""If nothing changed, no job runs, and no byte is written below the cache."""

import os
from pathlib import Path

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: upper, patterns: ["*.up"], command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out"}
"""
FILES = {"assets/a.txt": "alpha", "assets/deep/b.txt": "beta", "assets/c.up": "gamma", "assets/unwanted.bin": "x"}


def cache_state(story):
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for folder, _below, names in os.walk(story.cache)
        for path in (Path(folder, name) for name in names)
        if path.name not in ("lock", "assetdb.sqlite-shm", "assetdb.sqlite-wal")
    }


def play(story):
    story.run("a.txt:data", "deep/b.txt:data", "c.up:upper")
    before = cache_state(story)
    assert story.texts() == {"a.txt": "alpha", "deep/b.txt": "beta", "c.out": "GAMMA"}

    story.run()
    assert cache_state(story) == before

    story.run(is_full_scan=True)
    story.run()

"""A source tree of any size, the same in every run: about 100 files a folder, five folders deep, mean size about 8 KiB."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

AREAS = ("Characters", "Levels", "Props", "Audio", "Weapons")
WORDS = ("mesh", "Rock", "door", "Lamp", "tree", "Wolf", "panel", "road")
_PER_FOLDER = 100


def make(root: Path, count: int, mean: int = 8192, seed: int = 3) -> list[str]:
    """Write `count` files below `root`; return their relative paths."""
    rng = random.Random(seed)
    noise = rng.randbytes(1 << 20)
    paths: list[str] = []
    for serial in range(count):
        folder = _folder(serial // _PER_FOLDER)
        if serial % _PER_FOLDER == 0:
            (root / folder).mkdir(parents=True, exist_ok=True)
        size = int(min(131072, max(200, rng.lognormvariate(8.6, 0.9) * mean / 8192)))
        kind = rng.random()
        name = f"{rng.choice(WORDS)}_{serial:07d}"
        start = rng.randrange(len(noise) - 131072)
        if kind < 0.4:
            name, body = name + ".json", json.dumps({"id": serial, "data": noise[start : start + size // 2].hex()}).encode()
        elif kind < 0.7:
            name, body = name + ".txt", b"asset %d\n" % serial + noise[start : start + size].hex().encode()[:size]
        else:
            name, body = name + ".bin", serial.to_bytes(8) + noise[start : start + size]
        path = f"{folder}/{name}"
        with open(os.path.join(root, path), "wb") as file:
            file.write(body)
        paths.append(path)
    return paths


def _folder(index: int) -> str:
    area = AREAS[index % len(AREAS)]
    index //= len(AREAS)
    return f"{area}/Set{index // 100}/Group{index // 10 % 10}/Kind{index % 10}/Leaf"

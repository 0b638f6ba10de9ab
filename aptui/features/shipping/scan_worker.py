"""The reader process of the search for missing dependencies: a path comes in, names come out; no database.

It speaks JSON Lines over its standard streams, and ends when its input is closed, so none outlives an engine that was killed.

Tests: `tests/features/shipping/test_name_scanner.py`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection
from typing import BinaryIO

from aptui.features.shipping.missing_records import MissingScanResult, Names, specialist

_PIECE_BYTES = 1 << 20


def read_names(path: str, extensions: Collection[str], line_limit: int) -> tuple[bytes, Names]:
    """Return the SHA-256 of a file's bytes, and what in them looks like a name of an asset.

    Raises:
        OSError: it cannot be read.
    """
    digest, scan = hashlib.sha256(), MissingScanResult(extensions, line_limit)
    with open(path, "rb", buffering=0) as file:
        data = file.read(_PIECE_BYTES)
        expert = specialist(path, data)
        translate = expert.translator() if expert else None
        while data:
            digest.update(data)
            scan.feed(translate(data, False) if translate else data)
            data = file.read(_PIECE_BYTES)
        if translate:
            scan.feed(translate(b"", True))
    return digest.digest(), scan.finish()


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer until `source` ends: first come the extensions and the limit, then paths."""
    extensions, line_limit = json.loads(source.readline() or b"[[], 0]")
    for line in source:
        target.write(json.dumps(_answer(json.loads(line), frozenset(extensions), line_limit)).encode() + b"\n")
        target.flush()


def _answer(path: str, extensions: Collection[str], line_limit: int) -> dict[str, object]:
    try:
        digest, names = read_names(path, extensions, line_limit)
    except OSError as error:
        return {"error": error.strerror or str(error)}
    return {
        "digest": digest.hex(),
        "assets": [[uuid.hex(), sub_id, text] for (uuid, sub_id), text in names.assets.items()],
        "uuids": [[uuid.hex(), text] for uuid, text in names.uuids.items()],
        "paths": list(names.paths.items()),
        "is_partial": names.is_partial,
    }


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)

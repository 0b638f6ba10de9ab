"""Files outside of every scan folder that runs read; no scan visits them, so runs and re-stats report what they are.

What they were when they were last digested is stored in `aptui_state`, one row each: the next engine can tell by a `stat`
whether they are that still.

Tests: `tests/core/test_simulation.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec import Struct

from aptui.core.results.run_report import NO_FILE, Stamp
from aptui.shared.files.clocks import stamp_read_at

OUTSIDE_STATE = "outside:"
"""Before the absolute path in the key of such a row."""
_DIGEST_HEX = 32


class OutsideFile(Struct, frozen=True):
    """What a file outside was: the digest as manifests have it, "" = it was missing, and the stamp that goes with it."""

    digest: str = ""
    stamp: Stamp = NO_FILE


def outside_file(digest: str, stamp: Stamp, read_ns: int) -> OutsideFile:
    """Return what a file with this SHA-256 (hex) and stamp is; its reading began at `read_ns` or later."""
    return OutsideFile(digest[:_DIGEST_HEX], stamp_read_at(stamp, read_ns))


def dump(file: OutsideFile) -> str:
    """Return the form in which it is stored."""
    return json.dumps([file.digest, file.stamp])


def load(rows: Iterable[tuple[str, str]]) -> dict[str, OutsideFile]:
    """Return {absolute path: what it was} of rows ((path, text), ...)."""
    found = {}
    for path, text in rows:
        digest, stamp = json.loads(text)
        found[path] = OutsideFile(digest, tuple(stamp))
    return found

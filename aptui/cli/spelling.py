"""References that differ from the file's name in letter case: they work here or on Windows, but not on Linux.

`lint` and `deps` report them.

Tests: `tests/features/shipping/test_findings.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from aptui.config.folder import find_spelling
from aptui.core.paths import from_text
from aptui.store.queries.source_edges import NamedSource

_LARGEST_TEXT = 16 << 20
_BINARY_SAMPLE = 8192


class Misspelling(Struct, frozen=True):
    """A file whose text spells the file `needed` differently; `what` describes the difference."""

    named_by: str
    needed: str
    what: str


def find_misspelt(item: NamedSource) -> Iterator[Misspelling]:
    """Yield misspelt references in the text of a source, or of a file that it needs, as an .mtl that names pictures."""
    places = [(item.root, item.source), *((each.root, each.path) for each in item.needs)]
    places += ((item.root, find_spelling(item.root, file).removeprefix(f"{item.root}/")) for file in item.files)
    for needed in item.needs:
        wanted = os.fsencode(from_text(needed.path))
        texts = (place for place in places if place != (needed.root, needed.path))
        found = ((path, spelling(_text_of(root, path), wanted)) for root, path in texts)
        named_by, written = next((each for each in found if each[1] is not None), ("", None))
        if written is not None and written != wanted[-len(written) :]:
            what = f"names '{written.decode('utf-8', 'backslashreplace')}', the file is '{needed.path}'"
            yield Misspelling(named_by, needed.path, what)


def _text_of(root: str, path: str) -> bytes:
    """Return the bytes of a text file, b"" if it is binary or cannot be read."""
    try:
        with open(os.path.join(os.fsdecode(from_text(root)), os.fsdecode(from_text(path))), "rb") as stream:
            data = stream.read(_BINARY_SAMPLE)
            return b"" if b"\0" in data else data + stream.read(_LARGEST_TEXT)
    except OSError:
        return b""


def spelling(data: bytes, path: bytes) -> bytes | None:
    """Find a path in a text, ignoring case, and return it as the text writes it, or its longest ending; None if it does not occur.

    The longest end of the path that the text contains, ignoring case, wins.
    """
    lowered = data.lower()
    steps = path.split(b"/")
    for first in range(len(steps)):
        wanted = b"/".join(steps[first:])
        if wanted in data:
            return wanted
        at = lowered.find(wanted.lower())
        if at >= 0:
            return data[at : at + len(wanted)]
    return None

"""Files outside the project that a call opened because content names them: the job must fail, whichever process opened them.

Builders of aptui ask for such files through the SDK, which refuses. Others just open what they are told. What they open for
reasons of their own (their libraries, their settings) is none of our business: only a path that stands in the source, or in a file
of the project that was read with it, was chosen by content.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence

_OWN = tuple(f"{path.rstrip('/')}/" for path in {"/usr", "/lib", "/lib64", "/sys", sys.prefix, sys.base_prefix})
_MOST_BYTES = 4 << 20
"""So much of a file is searched for names."""
_LONGEST = 4096
_MOST_NAMES = 10_000
_QUOTES = tuple(bytes([mark]) for mark in b"\r\n\0\"'`<>|")
_ENDS = (_QUOTES, (*_QUOTES, *(bytes([mark]) for mark in b" \t()[]{},;=")))
"""Where the name of a file begins: names may be bare, or quoted with blanks in them."""


def is_of_the_system(path: str) -> bool:
    """Whether a file belongs to the system, or to Python and its packages: content that names it learns nothing."""
    return path.startswith(_OWN)


def find_named_by_content(opened: Iterable[str], content: Sequence[str], roots: Sequence[str]) -> tuple[str, str]:
    """Return (a path of `opened`, the file that names it), ("", "") when content names none of them.

    Args:
        opened: absolute paths outside the project.
        content: absolute paths of the source and of what was read with it.
        roots: folders that a name may be relative to, besides that of the file which holds it.
    """
    wanted = dict.fromkeys(os.path.normpath(path) for path in opened)
    if not wanted:
        return "", ""
    for file in content:
        texts = list(_texts(file))
        for path in wanted:
            bases = (os.path.dirname(file), *roots)
            if any(_means(name, path, bases) for text in texts for name in _names(text, os.fsencode(os.path.basename(path)))):
                return path, file
    return "", ""


def _texts(file: str) -> Iterator[bytes]:
    try:
        with open(file, "rb") as found:
            data = found.read(_MOST_BYTES)
    except OSError:
        return
    data = data.replace(b"\\", b"/")
    yield data
    if b"%" in data:
        from urllib.parse import unquote_to_bytes

        yield unquote_to_bytes(data).replace(b"\\", b"/")


def _names(text: bytes, last: bytes) -> Iterator[bytes]:
    """Yield what may be a name that ends with `last`, each once."""
    for ends in _ENDS:
        known: set[bytes] = set()
        begin = seen = 0
        at = text.find(last)
        while last and at >= 0 and len(known) < _MOST_NAMES:
            end = at + len(last)
            begin = max((text.rfind(mark, seen, at) + 1 for mark in ends), default=0) or begin
            seen = at
            if (end == len(text) or text[end] in b"".join(ends)) and at - begin < _LONGEST:
                name = text[begin:end]
                if name not in known:
                    known.add(name)
                    yield name
            at = text.find(last, at + 1)


def _means(name: bytes, path: str, bases: Sequence[str]) -> bool:
    """Whether `name`, seen from one of `bases`, is `path`."""
    text = os.fsdecode(name).strip()
    if text.lower().startswith("file:"):
        text = text[5:]
        text = text[2:] if text.startswith("///") else text
    return any(os.path.normpath(os.path.join(base, text)) == path for base in bases)

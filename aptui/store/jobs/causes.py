"""What failures have in common: an error without the paths, names and numbers that are each job's own."""

from __future__ import annotations

import re
from functools import lru_cache

_PARTS = re.compile(
    r"""
    (?P<quoted> '[^'\n]{1,300}' | "[^"\n]{1,300}" | `[^`\n]{1,300}` )
    | (?P<id> \{?\b[0-9A-Fa-f]{8}(?:-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}\b\}?
        | \b0x[0-9A-Fa-f]+ | \b(?=[0-9a-f]{0,15}\d)[0-9a-f]{12,64}\b )
    | (?P<path> (?:\b[A-Za-z]:)? [^\s'"`:,;()\[\]/\\]* [/\\] [^\s'"`:,;()\[\]]+ (?::\d+)* | [\w.+@-]+ \. [A-Za-z]\w{0,7} (?::\d+)+ )
    | (?P<number> \d+(?:[.,:_]\d+)* )
    """,
    re.VERBOSE,
)
_LONGEST = 500


@lru_cache(maxsize=1024)
def cause_of(error: str) -> str:
    """Return the first line of an error with what is each job's own masked: paths, places in files, numbers, ids, quoted names."""
    line = error.strip().partition("\n")[0][:_LONGEST].rstrip()
    return _PARTS.sub(_mask, line)


def _mask(found: re.Match[str]) -> str:
    if found["quoted"]:
        return f"{found[0][0]}…{found[0][0]}"
    return "…" if found["path"] else "#"

r"""Sanitizing: untrusted text (of builders, file names, logs) is made safe for a terminal.

Escape sequences are removed, in 7-bit and 8-bit form, finished or not. Remaining control characters are *shown* instead of obeyed,
so that the remains cannot form a new sequence: C0 as its picture (`␛`), C1, bidirectional and zero-width controls as U+FFFD. Bytes
of a file name that are not UTF-8 (`core.paths.to_text`) appear as `\xNN`. The raw text stays unchanged in the log file and in the
database.
"""

from __future__ import annotations

import re

TAB = "    "
_PICTURES = 0x2400
_DELETE = 0x7F

# The pattern is not compiled at the import, because most text is plain and `batch` without work must not spend time on compiling.
# `re` caches the compiled pattern.
# The pattern has one alternative for each kind of sequence. Each part of an alternative excludes the first characters of the next
# part, so that the time to match is linear in the length of any text.
# An unterminated string sequence (OSC, DCS, APC, PM, SOS) ends at the end of its line, so that it does not hide the rest of a log.
_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI
    r"|(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x18\x1a\x1b\x9c\r\n]*(?:\x07|\x18|\x1a|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]+[0-~]?"  # choice of character sets, as in `tput sgr0`
)
_C0 = r"[\x00-\x1f\x7f]"
_HIDDEN = (
    "[\x80-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udc7f\udd00-\udfff\U000e0000-\U000e0fff]"
)
_BYTES = "[\udc80-\udcff\U0010ff80-\U0010ffff]"


def sanitize(text: str) -> str:
    """Return one line that no terminal acts on; line breaks become pictures."""
    if text.isprintable():
        return text
    text = re.sub(_SEQUENCE, "", text).replace("\t", TAB)
    text = re.sub(_C0, _picture, text)
    text = re.sub(_HIDDEN, "\ufffd", text)
    return re.sub(_BYTES, lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text)


def sanitize_lines(text: str) -> str:
    r"""Return text that no terminal acts on, with its line breaks (`\n`, `\r\n`) kept as `\n`."""
    return "\n".join(sanitize(line) for line in text.replace("\r\n", "\n").split("\n"))


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return "\u2421" if code == _DELETE else chr(_PICTURES + code)

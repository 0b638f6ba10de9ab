"""What comes from the terminal, as text that Textual understands: with any bytes, and also where a bad line splits them.

The pieces of an answer, a mouse report or the end of a paste are put together again, however late the second one is: Textual would
take them for keys after a tenth of a second. Esc and the key that came with it are two keys.

Tests: `tests/tui/terminal/test_input_decoder.py`.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable

_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_ESCAPED = re.compile(r"\x1b([\r !-NQ-WYZ\\`ac-eg-~])")
"""Esc and a key with which no sequence begins; of Alt, which looks the same, the terminals' own ^← and ^→ are left (b, f)."""
_ESCAPED_CTRL = re.compile(r"\x1b([\x01-\x07\x0b\x0c\x0e-\x1a])")
"""Esc and a key with Ctrl, which Textual would take for that key alone; not Tab, Enter and Backspace, which are keys themselves."""
_TORN = re.compile(r"\x1b\[[0-9;:<=>?]+[ -/]*\Z")
"""What nobody types: the first piece of what a terminal says."""
_BEGUN, _BEGUN_PASTE_END = re.compile(r"\x1b\[\Z"), re.compile(r"\x1b\[?\Z")
"""The same where the terminal was asked something, and within a paste."""
_ESC_TAKEN_S = 0.15
"""So long after an Esc Textual has made a key of it."""
_ANSWER_WITHOUT_ESC = re.compile(r"\[\d[\d;]*(R|\Z)")
"""The rest of an answer whose Esc came, was taken for a key, and is undone no more: nothing else of it shall be."""


def apart(text: str) -> str:
    """Return input in which Esc and the key after it, which came together, are one key with Alt, as its own sequence.

    Textual would read on for the rest of a sequence, and make "^" of Esc in the end.
    """
    text = _ESCAPED_CTRL.sub(lambda found: f"\x1b[27u{_with_ctrl(found[1])}", text)
    return _ESCAPED.sub(lambda found: f"\x1b[{ord(found[1])};3u", text)


def _with_ctrl(letter: str) -> str:
    """Return the sequence of a key with Ctrl."""
    return f"\x1b[{ord(letter) + 96};5u"


class InputDecoder:
    """Decodes input, whatever its bytes, and tells Esc from the key that came with it; what is pasted stays as it is.

    Args:
        decoder: of characters.
        is_asked: whether the terminal owes an answer.
        clock: for tests.
    """

    def __init__(
        self, decoder: codecs.IncrementalDecoder, is_asked: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._decoder, self._is_asked, self._clock = decoder, is_asked, clock
        self._is_pasting = self._is_escape = False
        self._escape_s, self._torn = 0.0, ""

    def decode(self, data: bytes, final: bool = False) -> str:  # noqa: FBT002  # as decoders are called
        """Decode what came; the first piece of something waits for the second."""
        text, self._torn = self._torn + self._decoder.decode(data, final), ""
        if (
            self._is_escape
            and self._is_asked()
            and _ANSWER_WITHOUT_ESC.match(text)
            and self._clock() > self._escape_s + _ESC_TAKEN_S
        ):
            text, self._is_escape = f"\x1b{text}", False
        was_pasting, is_raw = self._is_pasting, self._is_pasting or _PASTE_BEGINS in text
        self._is_pasting = text.rfind(_PASTE_BEGINS) > text.rfind(_PASTE_ENDS) or (was_pasting and _PASTE_ENDS not in text)
        if not final:
            text = self._without_torn(text)
        was_escape, self._is_escape = self._is_escape, text.endswith("\x1b") or (self._is_escape and not text)
        self._escape_s = self._clock() if text else self._escape_s
        if is_raw:
            return text
        if was_escape and _ESCAPED.match(f"\x1b{text[:1]}"):
            # Whether Textual still waits for more of that Esc nobody knows; either way this is the key alone.
            return f"\x1b[{ord(text[0])}u{apart(text[1:])}"
        if was_escape and _ESCAPED_CTRL.match(f"\x1b{text[:1]}"):
            return _with_ctrl(text[0]) + apart(text[1:])
        return apart(text)

    def _without_torn(self, text: str) -> str:
        begun = _BEGUN_PASTE_END if self._is_pasting else _BEGUN if self._is_asked() else _TORN
        torn = _TORN.search(text) or begun.search(text)
        if torn is None:
            return text
        self._torn = torn[0]
        return text[: torn.start()]


def input_decoder(encoding: str, is_asked: Callable[[], bool] = lambda: False) -> Callable[[], InputDecoder]:
    """Return what makes a decoder, in the place of one of the module `codecs`."""
    return lambda: InputDecoder(codecs.getincrementaldecoder(encoding)(errors="replace"), is_asked)

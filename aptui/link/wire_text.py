"""What both JSON wires (the engine's socket and the gateway's) say of messages that they refuse, and how text gets through JSON.

Tests: `tests/link/test_codec.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN_CHARACTERS = 40


def shorten(text: str) -> str:
    """Return the beginning of a client's word, for a message about it."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def suggest(word: str, words: Iterable[str]) -> str:
    """Return the hint for an unknown name: the nearest of the known ones, or all of them."""
    from difflib import get_close_matches

    known = sorted(words)
    near = get_close_matches(word[:_SHOWN_CHARACTERS], known, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"there are: {', '.join(known)}" if known else "it has none"


def explain(error: Exception) -> str:
    """Return why a message cannot be decoded, with the field where msgspec names one."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "not valid UTF-8"
    text, _, place = str(error).partition(" - at `$")
    if text[1:2].islower():  # "JSON is malformed" keeps its letters
        text = text[0].lower() + text[1:]
    text = text.replace("`", "'")
    field = place.strip(".`")
    return f"'{field}': {text}" if field else text


def replace_surrogates(value: object) -> object:
    """Return plain data with what UTF-8 cannot hold replaced: lone surrogates of names and logs."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [replace_surrogates(item) for item in value]
    return value

"""What builders say of their products besides their bytes: how wide, how long, how many triangles; pure values.

Filters and checks ask for them by these names. A product without facts has no record, and no row in the database.

Tests: `tests/worker/test_facts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import astuple

WHOLE_FACTS = ("width", "height", "triangles", "rate")
"""Facts that are whole numbers; `seconds` is the other number, `format` a word."""
NUMBER_FACTS = (*WHOLE_FACTS, "seconds")
FACTS = (*NUMBER_FACTS, "format")
MOST = (1 << 53) - 1
"""The highest whole number, which every reader of JSON has exactly."""
LONGEST_FORMAT = 32


class ContentFacts(Struct, frozen=True):
    """Facts of one product, 0 and "" where nothing is said: pixels, triangles, sample rate in Hz, duration, format."""

    width: int = 0
    height: int = 0
    triangles: int = 0
    rate: int = 0
    seconds: float = 0.0
    format: str = ""


NO_FACTS = ContentFacts()


def fault_of(name: str, value: object) -> str:
    """Say what a value is that the fact `name` cannot have, "" when it can."""
    if name == "format":
        is_word = isinstance(value, str) and value.isprintable() and value == value.lower() and 0 < len(value) <= LONGEST_FORMAT
        return "" if is_word else f"no word in lower case of at most {LONGEST_FORMAT} characters"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "no number"
    if name in WHOLE_FACTS:
        return "" if isinstance(value, int) and 0 <= value <= MOST else "no whole number from 0 to 2⁵³"
    return "" if 0 <= value <= MOST else "no number from 0 to 2⁵³"


def together(products: Iterable[ContentFacts | None]) -> ContentFacts | None:
    """Return what a job is said to have made: the most of each of its products' facts, None where nothing is said."""
    present = [facts for facts in products if facts is not None]
    if len(present) <= 1:
        return present[0] if present else None
    return ContentFacts(*(max(values) for values in zip(*map(astuple, present), strict=True)))

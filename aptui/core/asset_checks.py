"""Checks on assets (`checks:` in `aptui.yaml`): rules for products and for the names of sources.

The pipeline runs the checks with `block` before it commits a result; `store.queries.checks` runs all of them on stored
products. Budgets, commands and findings of `aptui lint` concern more than one job and cannot block.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache

from msgspec import Struct

from aptui.core.run_report import NO_FACTS, ContentFacts

# A check gives the allowed range of a number in one of these forms: `4096`, `>4096`, `<= 512`, `1..64`.

_SIGN = re.compile(r"\s*(<=|>=|<|>|=)?\s*(.*?)\s*", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
FORMS = "4096, >4096, <=512 or 1..64"
"""The forms of a range, for error messages."""
_FARTHEST = sys.float_info.max
"""End of a range without a limit: checks are stored as JSON, which has no infinity."""


def plain_number(text: str) -> float:
    """Return `text` as a number.

    Raises:
        ValueError: the text has a sign, or any character besides digits and one point.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def between(text: str, number_of: Callable[[str], float] = plain_number) -> tuple[float, float]:
    """Return (minimum, exclusive maximum) of a range; the range `1..64` contains both 1 and 64.

    Raises:
        ValueError: the text is not a range.
    """
    least, most = _ends_of(text, number_of)
    return max(-_FARTHEST, min(least, _FARTHEST)), min(most, _FARTHEST)


def _ends_of(text: str, number_of: Callable[[str], float]) -> tuple[float, float]:
    first, dots, last = text.partition("..")
    if dots:
        if not first.strip() and not last.strip():
            raise ValueError(text)
        most = math.nextafter(number_of(last.strip()), math.inf) if last.strip() else math.inf
        return (number_of(first.strip()) if first.strip() else -math.inf), most
    found = _SIGN.fullmatch(text)
    assert found is not None  # `_SIGN` matches any text, because each of its parts may match nothing
    sign, number = found[1] or "=", number_of(found[2])
    after = math.nextafter(number, math.inf)
    ranges = {">": (after, math.inf), ">=": (number, math.inf), "<": (-math.inf, number), "<=": (-math.inf, after)}
    return ranges.get(sign, (number, after))


OTHER = "facts."
"""Prefix of `Limit.field` if the field is a fact of the product: `facts.<name>`."""
BLOCKED_BY = "check '"
"""Beginning of the error of a job that a check blocks; the name of the check follows."""


class CheckLevel(StrEnum):
    """Effect of a check's finding.

    WARN: the finding is reported. FAIL: a batch also ends with exit status 1. BLOCK: the job fails, and keeps its earlier products.
    """

    WARN = "warn"
    FAIL = "fail"
    BLOCK = "block"


class Limit(Struct, frozen=True):
    """A limit of a product: the value of `field` must be at least `least` and less than `most`. `text` is the limit as written.

    `field` is bytes, pixels, a fact or `facts.<name>`. `words`: the allowed values, one on each line; if set, `least` and `most`
    are not used.
    """

    field: str
    text: str
    least: float = 0.0
    most: float = 0.0
    words: str = ""


class Check(Struct, frozen=True):
    """One check. `files` are regular expressions for the whole relative path of a source, () = all sources.

    `file_name` is a regular expression for the name of the file, "" = any. `lint` names checks of `aptui lint`; `command` is a
    program with its arguments.
    """

    name: str
    level: str = CheckLevel.WARN
    files: tuple[str, ...] = ()
    file_name: str = ""
    limits: tuple[Limit, ...] = ()
    formats: tuple[str, ...] = ()
    power_of_two: bool = False
    budget_bytes: int = 0
    lint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def wants(self, rel: str) -> bool:
        """Whether the check applies to this source."""
        return not self.files or any(_compile(regex, re.IGNORECASE).fullmatch(rel) for regex in self.files)


class CheckedProduct(Struct, frozen=True):
    """The attributes of a product that asset checks read. `name` is used only in messages."""

    name: str
    size: int
    facts: ContentFacts | None


def flaws_of_name(check: Check, rel: str) -> Iterator[str]:
    """Yield the flaws of a source's name."""
    name = rel.rpartition("/")[2]
    # The regex is case-sensitive, because a rule for names may forbid capital letters.
    if check.file_name and not _compile(check.file_name).fullmatch(name):
        yield f"the name '{name}' does not match '{check.file_name}'"


def flaws_of_product(check: Check, product: CheckedProduct) -> Iterator[str]:
    """Yield the flaws of a product; facts that its builder did not report are not checked."""
    facts = product.facts or NO_FACTS
    for limit in check.limits:
        value = _value(limit.field, product.size, facts)
        if value is not None and not _keeps_to(value, limit):
            shown = value if isinstance(value, str) else f"{value:,}"
            yield f"{limit.field.removeprefix(OTHER)} is {shown}, wanted: {limit.text}"
    if check.formats and facts.format and facts.format not in check.formats:
        yield f"format is {facts.format}, wanted: {', '.join(check.formats)}"
    if check.power_of_two and facts.width and facts.height and not (_is_power(facts.width) and _is_power(facts.height)):
        yield f"width and height must be powers of two, but are {facts.width}x{facts.height}"


def find_block(checks: Sequence[Check], rel: str, products: Iterable[CheckedProduct]) -> str:
    """Return why the products of a job must not be published, "" if they may be."""
    wanted = [check for check in checks if check.wants(rel)]
    if not wanted:
        return ""
    listed = list(products)
    for check in wanted:
        for flaw in flaws_of_name(check, rel):
            return f"{BLOCKED_BY}{check.name}': {flaw}"
        for product in listed:
            for flaw in flaws_of_product(check, product):
                return f"{BLOCKED_BY}{check.name}': {product.name.rpartition('/')[2]}: {flaw}"
    return ""


def _keeps_to(value: float | str, limit: Limit) -> bool:
    if limit.words:
        return str(value) in limit.words.split("\n")
    return not isinstance(value, str) and limit.least <= value < limit.most


def _value(field: str, size: int, facts: ContentFacts) -> float | str | None:
    if field == "bytes":
        return size
    if field.startswith(OTHER):
        return facts.all.get(field.removeprefix(OTHER))
    value: float = facts.width * facts.height if field == "pixels" else getattr(facts, field)
    return value or None


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


@cache
def _compile(regex: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(regex, flags)

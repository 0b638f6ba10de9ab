"""Checks of `aptui.yaml` on what is in the database: names of sources, sizes and facts of products, budgets.

Commands and what `aptui lint` finds are the verb's (`verbs.shipping.checks`).

Tests: `tests/verbs/shipping/test_checks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from aptui.core.checks import Check, CheckedProduct, flaws_of_name, flaws_of_product
from aptui.core.facts import ProductFacts
from aptui.store.queries.reader import Reader

_PRODUCTS_SQL = """SELECT s.SourceName, j.Platform, j.JobID, p.ProductName, COALESCE(o.size, 0),
    f.width, f.height, f.triangles, f.rate, f.seconds, f.format
FROM Sources s JOIN Jobs j ON j.SourcePK = s.SourceID JOIN Products p ON p.JobPK = j.JobID
LEFT JOIN aptui_products o ON o.product_id = p.ProductID LEFT JOIN aptui_facts f ON f.product_id = p.ProductID
ORDER BY s.SourceName, p.ProductName"""
_SOURCES_SQL = "SELECT SourceName FROM Sources ORDER BY SourceName"


class CheckFinding(Struct, frozen=True):
    """What a check found: `product` "" = it is about the source's name, `source` "" too = about all that it looks at."""

    check: str
    level: str
    source: str
    product: str
    what: str
    job_id: int = 0


class ProductToCheck(Struct, frozen=True):
    """A product with the source that it is made of."""

    source: str
    job_id: int
    product: CheckedProduct


def products_to_check(reader: Reader) -> Iterator[ProductToCheck]:
    """Yield every product, by source; a second at 300,000."""
    for source, _platform, job_id, name, size, width, *others in reader.ask(_PRODUCTS_SQL):
        facts = None if width is None else ProductFacts(width, *others)
        yield ProductToCheck(source, job_id, CheckedProduct(name, size, facts))


def findings(reader: Reader, checks: Sequence[Check]) -> list[CheckFinding]:
    """Return what these checks find, in their order."""
    if not checks:
        return []
    found: dict[str, list[CheckFinding]] = {check.name: [] for check in checks}
    _look_at_names(reader, [check for check in checks if check.file_name], found)
    of_products = [check for check in checks if check.limits or check.formats or check.power_of_two or check.budget_bytes]
    if of_products:
        _look_at_products(products_to_check(reader), of_products, found)
    return [finding for check in checks for finding in found[check.name]]


def _look_at_names(reader: Reader, checks: Sequence[Check], found: dict[str, list[CheckFinding]]) -> None:
    for (source,) in reader.ask(_SOURCES_SQL) if checks else ():
        for check in checks:
            if check.wants(source):
                flaws = flaws_of_name(check, source)
                found[check.name] += (CheckFinding(check.name, check.level, source, "", flaw) for flaw in flaws)


def _look_at_products(products: Iterable[ProductToCheck], checks: Sequence[Check], found: dict[str, list[CheckFinding]]) -> None:
    taken = dict.fromkeys((check.name for check in checks), 0)
    wanting: tuple[str, list[Check]] = "", []
    for each in products:
        if each.source != wanting[0]:
            wanting = each.source, [check for check in checks if check.wants(each.source)]
        for check in wanting[1]:
            taken[check.name] += each.product.size
            for flaw in flaws_of_product(check, each.product):
                finding = CheckFinding(check.name, check.level, each.source, each.product.name, flaw, each.job_id)
                found[check.name].append(finding)
    for check in checks:
        if check.budget_bytes and taken[check.name] > check.budget_bytes:
            what = f"its products take {taken[check.name]:,} bytes, {taken[check.name] - check.budget_bytes:,} over the budget"
            found[check.name].append(CheckFinding(check.name, check.level, "", "", what))

"""Checks of `aptui.yaml` on the database: names of sources, sizes and facts of products, budgets.

Checks by commands, and the findings of `aptui lint`, are in `features.shipping`.

Tests: `tests/features/shipping/test_check_verb.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from aptui.core.asset_checks import BLOCKED_BY, Check, CheckedProduct, CheckLevel, flaws_of_name, flaws_of_product
from aptui.core.run_report import ContentFacts
from aptui.store.queries.reader import SHOWN, Reader

# Finds the sources with jobs that are failed, cancelled or waiting, or have errors or warnings, and counts these jobs.
#
# Two indexes contain only these jobs, so the cost of a query depends only on their number.

UNWELL = ("failed", "errors", "warnings", "cancelled", "pending")
"""Problems of jobs, the worst first; running jobs count as waiting ("pending")."""
_CODES = {word: code for code, word in enumerate(UNWELL)} | {"processing": UNWELL.index("pending")}
_STATE = " ".join(f"WHEN '{state}' THEN {_CODES[shown]}" for state, shown in SHOWN.items() if shown in _CODES)
_SQL = f"""SELECT source, code, COUNT(*) FROM (
    SELECT j.SourcePK source, CASE o.state {_STATE} ELSE CASE WHEN j.Status < 2 THEN {_CODES["pending"]} ELSE 0 END END code
        FROM Jobs j LEFT JOIN aptui_jobs o ON o.job_id = j.JobID WHERE j.Status <> 4
    UNION ALL SELECT SourcePK, CASE WHEN ErrorCount > 0 THEN {_CODES["errors"]} ELSE {_CODES["warnings"]} END
        FROM Jobs WHERE (WarningCount > 0 OR ErrorCount > 0) AND +Status = 4
    UNION ALL SELECT source_id, 0 FROM aptui_analyses
        WHERE (state <> 'completed' OR fingerprint IS NULL) AND state = 'failed'
) GROUP BY source, code"""


def unwell_sources(reader: Reader) -> list[tuple[int, int, int]]:
    """Return (source id, index in `UNWELL`, number of jobs); takes 0.1 s if 100,000 jobs wait, else a few milliseconds."""
    return reader.ask(_SQL).fetchall()


_PRODUCTS_SQL = """SELECT s.SourceName, j.Platform, j.JobID, p.ProductName, COALESCE(o.size, 0),
    f.width, f.height, f.triangles, f.rate, f.seconds, f.format
FROM Sources s JOIN Jobs j ON j.SourcePK = s.SourceID JOIN Products p ON p.JobPK = j.JobID
LEFT JOIN aptui_products o ON o.product_id = p.ProductID LEFT JOIN aptui_facts f ON f.product_id = p.ProductID"""
_SOURCES_SQL = "SELECT SourceName FROM Sources ORDER BY SourceName"
_JOBS_OF_SQL = "SELECT j.JobID FROM Jobs j JOIN Sources s ON s.SourceID = j.SourcePK WHERE s.SourceName = ?"
_BLOCKED_SQL = """SELECT o.job_id, o.error FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID
WHERE j.Status <> 4 AND o.state = 'failed' AND o.error GLOB ?"""
_MOST_SENTENCES = 5
"""Maximum number of listed findings of one job."""


class CheckFinding(Struct, frozen=True):
    """A finding of a check: without `product` it concerns the source's name, and without `source` all checked files."""

    check: str
    level: str
    source: str
    product: str
    what: str
    job_id: int = 0


class ProductToCheck(Struct, frozen=True):
    """A product with its source."""

    source: str
    job_id: int
    product: CheckedProduct


class CheckMark(Struct, frozen=True):
    """Findings of one job: the worst level, their number, and their text: `large: bytes is 900, wanted: <512`."""

    level: str
    count: int
    text: str


def check_marks(reader: Reader, checks: Sequence[Check]) -> dict[int, CheckMark]:
    """Return {job id: its findings}: about its products, about its source's name, and from a check that blocks its commit."""
    found: dict[int, list[tuple[str, str]]] = {}
    for finding in findings(reader, checks):
        jobs = [finding.job_id] if finding.job_id else [job for (job,) in reader.ask(_JOBS_OF_SQL, (finding.source,))]
        for job_id in jobs:
            found.setdefault(job_id, []).append((finding.level, f"{finding.check}: {finding.what}"))
    for job_id, error in reader.ask(_BLOCKED_SQL, (f"{BLOCKED_BY}*",)) if checks else ():
        what = error.partition("\n")[0].removeprefix(BLOCKED_BY).replace("'", "", 1)
        found.setdefault(job_id, []).insert(0, (CheckLevel.BLOCK, what))
    return {job_id: _mark(findings) for job_id, findings in found.items()}


def _mark(findings: Sequence[tuple[str, str]]) -> CheckMark:
    levels = list(CheckLevel)
    worst = max((level for level, _what in findings), key=lambda level: levels.index(CheckLevel(level)))
    more = f"; and {len(findings) - _MOST_SENTENCES:,} more" if len(findings) > _MOST_SENTENCES else ""
    return CheckMark(worst, len(findings), "; ".join(what for _level, what in findings[:_MOST_SENTENCES]) + more)


def findings_of(reader: Reader, checks: Sequence[Check], source: str) -> list[CheckFinding]:
    """Return the findings about one source: its name and its products. Budgets are left out: they concern many sources."""
    wanting = [check for check in checks if check.wants(source)]
    found = [CheckFinding(check.name, check.level, source, "", flaw) for check in wanting for flaw in flaws_of_name(check, source)]
    for each in products_to_check(reader, source) if wanting else ():
        for check in wanting:
            flaws = flaws_of_product(check, each.product)
            found += (CheckFinding(check.name, check.level, source, each.product.name, flaw, each.job_id) for flaw in flaws)
    return found


def products_to_check(reader: Reader, source: str = "") -> Iterator[ProductToCheck]:
    """Yield all products, or the products of one source, by source; takes a second for 300,000 products."""
    sql = f"{_PRODUCTS_SQL} WHERE s.SourceName = ?" if source else _PRODUCTS_SQL
    rows = reader.ask(f"{sql} ORDER BY s.SourceName, p.ProductName", (source,) if source else ())
    for rel, _platform, job_id, name, size, width, *others in rows:
        facts = None if width is None else ContentFacts(width, *others)
        yield ProductToCheck(rel, job_id, CheckedProduct(name, size, facts))


def findings(reader: Reader, checks: Sequence[Check]) -> list[CheckFinding]:
    """Return the findings of these checks, in the order of the checks."""
    if not checks:
        return []
    found: dict[str, list[CheckFinding]] = {check.name: [] for check in checks}
    _check_names(reader, [check for check in checks if check.file_name], found)
    of_products = [check for check in checks if check.limits or check.formats or check.power_of_two or check.budget_bytes]
    if of_products:
        _check_products(products_to_check(reader), of_products, found)
    return [finding for check in checks for finding in found[check.name]]


def _check_names(reader: Reader, checks: Sequence[Check], found: dict[str, list[CheckFinding]]) -> None:
    for (source,) in reader.ask(_SOURCES_SQL) if checks else ():
        for check in checks:
            if check.wants(source):
                flaws = flaws_of_name(check, source)
                found[check.name] += (CheckFinding(check.name, check.level, source, "", flaw) for flaw in flaws)


def _check_products(products: Iterable[ProductToCheck], checks: Sequence[Check], found: dict[str, list[CheckFinding]]) -> None:
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

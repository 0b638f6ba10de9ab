"""Checks on the database: rules of `aptui.yaml`, and missing, damaged or orphaned products.

`features.shipping` has the checks that run commands, and the findings of `aptui lint`.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from aptui.core.asset_checks import BLOCKED_BY, Check, CheckedProduct, CheckLevel, flaws_of_name, flaws_of_product
from aptui.core.identity import find_identified
from aptui.core.model import SHOWN
from aptui.core.paths import cache_path, from_text, os_path, to_text
from aptui.core.run_report import ContentFacts
from aptui.shared.errors import KnownError
from aptui.shared.files.replacing import open_regular
from aptui.store.queries.reader import PRODUCTS_SQL, ProductRow, Reader, open_reader

# These functions check the version of SQLite and the integrity of the asset database, its products and the files in the cache.
#
# The checks change nothing; only `mark_for_check` sets the times of folders.

_MOST_FAULTS = 5


def sqlite_version() -> tuple[int, ...]:
    """Return the version of the SQLite library, such as (3, 40, 1)."""
    return sqlite3.sqlite_version_info


def has_wal_reset_bug() -> bool:
    """Whether SQLite has the WAL-reset bug (3.7.0 to 3.51.2): simultaneous writes or checkpoints may damage a database."""
    return (3, 7, 0) <= sqlite_version() < (3, 51, 3)


def faults(path: Path) -> list[str]:
    """Return the errors that `quick_check` finds in a database."""
    try:
        with closing(open_reader(path)) as reader:
            rows = reader.ask(f"PRAGMA quick_check({_MOST_FAULTS})").fetchall()
    except (sqlite3.Error, KnownError) as error:
        return [str(error)]
    return [text for (text,) in rows if text != "ok"]


def product_bytes(reader: Reader) -> int:
    """Return the total size of all products in bytes."""
    return int(reader.ask("SELECT COALESCE(SUM(size), 0) FROM aptui_products").fetchone()[0])


def last_completed_ms(reader: Reader) -> int:
    """Return the time at which a job last ended (ms since 1970), 0 = never."""
    return int(reader.ask("SELECT COALESCE(MAX(completed_ms), 0) FROM aptui_jobs").fetchone()[0])


def folder_count(reader: Reader) -> int:
    """Return the number of scanned folders."""
    return int(reader.ask("SELECT COUNT(DISTINCT folder) FROM aptui_folders").fetchone()[0])


_PAGE_ROWS = 500
"""Number of product rows that are read by one query. An open query stops SQLite from moving its log into the database."""
_NAMES_SQL = """SELECT ProductName FROM Products WHERE ProductName > :folder || '/' AND ProductName < :folder || '0'
AND instr(substr(ProductName, length(:folder) + 2), '/') = 0"""
_DIGEST_SQL = """SELECT COALESCE(o.digest, x'') FROM Products p LEFT JOIN aptui_products o ON o.product_id = p.ProductID
WHERE p.ProductName = ?"""


class Finding(Struct, frozen=True):
    """A product whose file in the cache does not match its row in the database; `problem` is "missing" or "damaged"."""

    product: str
    problem: str
    source: str
    job_id: int


class OrphanFile(Struct, frozen=True):
    """A file in the cache that is not a product.

    `is_watched`: its folder belongs to the engine, which deletes the file when it checks the folder.
    """

    name: str
    size_bytes: int
    is_watched: bool


def amount(reader: Reader) -> tuple[int, int]:
    """Return (number of products, their total size in bytes)."""
    sql = "SELECT COUNT(*), COALESCE(SUM(o.size), 0) FROM Products p LEFT JOIN aptui_products o ON o.product_id = p.ProductID"
    count, size = reader.ask(sql).fetchone()
    return count, size


def examine_products(reader: Reader, cache_dir: Path) -> Iterator[tuple[ProductRow, Finding | None]]:
    """Read all bytes of each product; yield it with its `Finding` (None = no problem). An engine may run at the same time."""
    root, last = os.fsencode(cache_dir), 0
    while rows := reader.ask(f"{PRODUCTS_SQL} WHERE p.ProductID > ? ORDER BY p.ProductID LIMIT ?", (last, _PAGE_ROWS)).fetchall():
        for row in rows:
            product = ProductRow(*row)
            yield product, _finding(product, reader, root)
        last = product.product_id


def _finding(product: ProductRow, reader: Reader, root: bytes) -> Finding | None:
    if not _problem(root, product.name, product.digest):
        return None
    # The digest is queried again, because the product may have been replaced after its row was read.
    row = reader.ask(_DIGEST_SQL, (product.name,)).fetchone()
    problem = _problem(root, product.name, row[0]) if row else ""
    if not problem:
        return None
    job = reader.job(product.job_id)
    return Finding(product.name, problem, job.source if job else "", product.job_id)


def _problem(root: bytes, name: str, recorded: bytes) -> str:
    try:
        with open_regular(root + b"/" + from_text(cache_path(name))) as file:
            found = hashlib.file_digest(file, "sha256").digest()
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:  # it cannot be read, or is a folder, a pipe or a device
        return "damaged"
    return "damaged" if recorded and found != recorded else ""


def orphans(reader: Reader, cache_dir: Path, platforms: Sequence[str] = ()) -> Iterator[tuple[str, list[OrphanFile]]]:
    """Yield (folder, its files that have no row) for each platform's folder in the cache and all folders below it.

    Other folders of the cache are skipped, because they do not belong to aptui.

    While an engine works, check the found files again (`still_orphans`), because a product is placed before its row is saved.
    """
    watched = {name for (name,) in reader.ask("SELECT name FROM aptui_cache_folders")}
    tops = sorted({*platforms, *(name.partition("/")[0] for name in watched)})
    folders = [top for top in reversed(tops) if os.path.isdir(cache_dir / os_path(cache_path(top)))]
    root = os.fsencode(cache_dir)
    while folders:
        folder = folders.pop()
        below, found = _check_folder(folder, root, reader, is_watched=folder in watched)
        folders += sorted(below, reverse=True)
        yield folder, found


def _check_folder(folder: str, root: bytes, reader: Reader, *, is_watched: bool) -> tuple[list[str], list[OrphanFile]]:
    below: list[str] = []
    found: list[OrphanFile] = []
    known = {name for (name,) in reader.ask(_NAMES_SQL, {"folder": folder})}
    try:
        with os.scandir(root + b"/" + from_text(cache_path(folder))) as entries:
            for entry in entries:
                name = f"{folder}/{to_text(entry.name)}"
                if entry.is_dir(follow_symlinks=False):
                    below.append(name)
                elif entry.is_symlink() or not (name in known or find_identified(name) in known or _is_catalog(name)):
                    found.append(OrphanFile(name, entry.stat(follow_symlinks=False).st_size, is_watched))
    except OSError:
        pass  # the folder was deleted, or cannot be read
    return below, sorted(found, key=lambda orphan: orphan.name)


def still_orphans(found: Sequence[OrphanFile], reader: Reader, cache_dir: Path) -> list[OrphanFile]:
    """Return the files of `found` that still exist and are still not products."""
    sql, remaining = "SELECT 1 FROM Products WHERE ProductName IN (?, ?)", []
    for orphan in found:
        path = os.fsencode(cache_dir) + b"/" + from_text(cache_path(orphan.name))
        is_product = reader.ask(sql, (orphan.name, find_identified(orphan.name))).fetchone() is not None
        if os.path.islink(path) or (os.path.lexists(path) and not is_product):
            remaining.append(orphan)
    return remaining


def mark_for_check(found: Sequence[OrphanFile], cache_dir: Path) -> int:
    """Set the times of the folders of `found`, so that the engine checks them at its next scan; return the number of folders."""
    root, folders = os.fsencode(cache_dir), {orphan.name.rpartition("/")[0] for orphan in found if orphan.is_watched}
    for folder in folders:
        try:
            os.utime(root + b"/" + from_text(cache_path(folder)))
        except OSError:
            continue  # the folder was deleted together with its files
    return len(folders)


def _is_catalog(name: str) -> bool:
    return name.count("/") == 1 and name.rpartition("/")[2].startswith("assetcatalog.")


# These queries find sources with jobs that failed, were cancelled, wait, or have errors or warnings, and count these jobs.
#
# Two indexes contain only these jobs, so the cost of a query depends only on their number.

UNWELL = ("failed", "errors", "warnings", "cancelled", "pending")
"""Problems of jobs, the worst problem first; a running job is counted as waiting ("pending")."""
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
    """Return (source id, index of a job problem in `UNWELL`, number of the source's jobs with this problem).

    This takes 0.1 s if 100,000 jobs wait, else a few milliseconds.
    """
    return reader.ask(_SQL).fetchall()


_PRODUCTS_SQL = """SELECT s.SourceName, j.Platform, j.JobID, p.ProductName, COALESCE(o.size, 0),
    f.width, f.height, f.triangles, f.rate, f.seconds, f.format, f.more
FROM Sources s JOIN Jobs j ON j.SourcePK = s.SourceID JOIN Products p ON p.JobPK = j.JobID
LEFT JOIN aptui_products o ON o.product_id = p.ProductID LEFT JOIN aptui_facts f ON f.product_id = p.ProductID"""
_SOURCES_SQL = "SELECT SourceName FROM Sources ORDER BY SourceName"
_JOBS_OF_SQL = "SELECT j.JobID FROM Jobs j JOIN Sources s ON s.SourceID = j.SourcePK WHERE s.SourceName = ?"
_BLOCKED_SQL = """SELECT o.job_id, o.error FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID
WHERE j.Status <> 4 AND o.state = 'failed' AND o.error GLOB ?"""
_MOST_SENTENCES = 5
"""Maximum number of check findings whose text is shown for one job; further findings are only counted."""


class CheckFinding(Struct, frozen=True):
    """A violation of a check in `aptui.yaml`; `what` says what is wrong.

    The finding is about `product`. If `product` is "", it is about the name of `source`. If `source` is "" too, it is about all
    checked files together (a budget).
    """

    check: str
    level: str
    source: str
    product: str
    what: str
    job_id: int = 0


class ProductToCheck(Struct, frozen=True):
    """A product to check, with its source and its job."""

    source: str
    job_id: int
    product: CheckedProduct


class CheckMark(Struct, frozen=True):
    """The check findings about one job: the worst level, their number, and their texts: `large: bytes is 900, wanted: <512`."""

    level: str
    count: int
    text: str


def check_marks(reader: Reader, checks: Sequence[Check]) -> dict[int, CheckMark]:
    """Return {job id: its findings} for the jobs that have findings.

    A job has the findings about its products and about the name of its source, and the finding that prevented its commit.
    """
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
    """Return the findings about a source's name and its products; budgets are left out, because they concern many sources."""
    wanting = [check for check in checks if check.wants(source)]
    found = [CheckFinding(check.name, check.level, source, "", flaw) for check in wanting for flaw in flaws_of_name(check, source)]
    for each in products_to_check(reader, source) if wanting else ():
        for check in wanting:
            flaws = flaws_of_product(check, each.product)
            found += (CheckFinding(check.name, check.level, source, each.product.name, flaw, each.job_id) for flaw in flaws)
    return found


def products_to_check(reader: Reader, source: str = "", left_out: Collection[str] = ()) -> Iterator[ProductToCheck]:
    """Yield all products, or those of `source`, in the order of their sources; skip products of the platforms in `left_out`.

    A call takes a second for 300,000 products.
    """
    sql = f"{_PRODUCTS_SQL} WHERE s.SourceName = ?" if source else _PRODUCTS_SQL
    rows = reader.ask(f"{sql} ORDER BY s.SourceName, p.ProductName", (source,) if source else ())
    for rel, platform, job_id, name, size, width, *others in rows:
        if platform not in left_out:
            facts = None if width is None else ContentFacts(width, *others)
            yield ProductToCheck(rel, job_id, CheckedProduct(name, size, facts))


def findings(reader: Reader, checks: Sequence[Check], left_out: Collection[str] = ()) -> list[CheckFinding]:
    """Return the findings of these checks, in the order of the checks; skip products of the platforms in `left_out`."""
    if not checks:
        return []
    found: dict[str, list[CheckFinding]] = {check.name: [] for check in checks}
    _check_names(reader, [check for check in checks if check.file_name], found)
    of_products = [check for check in checks if check.limits or check.formats or check.power_of_two or check.budget_bytes]
    if of_products:
        _check_products(products_to_check(reader, left_out=left_out), of_products, found)
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

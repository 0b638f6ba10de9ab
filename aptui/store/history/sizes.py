"""How large the products are, by what they come from or for whom they are made, and what they grew by since a session ended."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from aptui.store.history.sessions import WorkSession, runs_until
from aptui.store.queries.reader import Reader

_PRODUCTS_SQL = """SELECT s.SourceName, p.ProductName, j.BuilderGuid, j.Platform, COALESCE(o.size, 0)
FROM Products p JOIN Jobs j ON j.JobID = p.JobPK JOIN Sources s ON s.SourceID = j.SourcePK
LEFT JOIN aptui_products o ON o.product_id = p.ProductID"""


class SizeBy(StrEnum):
    """What products are counted together by: the folder of their source, their file extension, their builder, their platform."""

    FOLDER = "folder"
    TYPE = "type"
    BUILDER = "builder"
    PLATFORM = "platform"


class SizeRow(Struct):
    """One group; `grew` is None where nothing is compared."""

    name: str
    count: int = 0
    size: int = 0
    grew: int | None = None


def sizes(reader: Reader, by: SizeBy, name_of: Callable[[bytes], str], depth: int = 1) -> list[SizeRow]:
    """Return the groups, the largest first; two seconds at a million products.

    Args:
        by: what stands together.
        name_of: a builder's name by its UUID.
        depth: so many folders of a source's path tell it from another.
    """
    found: dict[str, SizeRow] = {}
    for source, product, builder, platform, size in reader.ask(_PRODUCTS_SQL):
        match by:
            case SizeBy.FOLDER:
                name = folder_of(source, depth)
            case SizeBy.TYPE:
                name = posixpath.splitext(product)[1].lower() or "(none)"
            case SizeBy.BUILDER:
                name = name_of(builder)
            case SizeBy.PLATFORM:
                name = platform
        row = found.setdefault(name, SizeRow(name))
        row.count += 1
        row.size += size
    return rank_sizes(found.values())


def add_growth(
    reader: Reader, rows: Iterable[SizeRow], by: SizeBy, name_of: Callable[[bytes], str], depth: int, since: WorkSession
) -> list[SizeRow]:
    """Return the groups with what they grew by since a session ended, the most grown first; groups that went are there, empty.

    What a session knows is how large all products of a job were together, so there is no growth by type.
    """
    gone = {
        job_id for (job_id,) in reader.ask("SELECT job_id FROM aptui_gone_jobs WHERE gone_ms <= ?", (since.ended_ms,))
    }  # fmt: skip
    before: dict[str, int] = {}
    for run in runs_until(reader, since.number):
        if run.job_id not in gone:
            name = (
                folder_of(run.source, depth)
                if by is SizeBy.FOLDER
                else run.platform
                if by is SizeBy.PLATFORM
                else name_of(run.builder)
            )
            before[name] = before.get(name, 0) + run.size
    found = {row.name: row for row in rows}
    for name in before.keys() - found.keys():
        found[name] = SizeRow(name)
    for row in found.values():
        row.grew = row.size - before.get(row.name, 0)
    return sorted(found.values(), key=lambda row: (-abs(row.grew or 0), -row.size, row.name))


def rank_sizes(rows: Iterable[SizeRow]) -> list[SizeRow]:
    """Return groups by size, the largest first."""
    return sorted(rows, key=lambda row: (-row.size, row.name))


def folder_of(source: str, depth: int) -> str:
    """Return the first folders of a path, "." for none."""
    return "/".join(source.split("/")[:-1][:depth]) or "."

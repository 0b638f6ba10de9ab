"""Which sources need which others, in the spelling of the disk; `verbs.spelling` compares it with their texts.

Tests: `tests/features/shipping/test_findings.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from msgspec import Struct

from aptui.store.queries.reader import Reader

_NEEDS_SQL = """
SELECT f.ScanFolder, s.SourceName, nf.ScanFolder, n.SourceName FROM aptui_edges e
    JOIN Sources s ON s.SourceID = e.source_id JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
    JOIN aptui_sources o ON o.path_key = e.target JOIN Sources n ON n.SourceID = o.source_id
    JOIN ScanFolders nf ON nf.ScanFolderID = n.ScanFolderPK
WHERE ? IN ('', s.SourceName)
UNION
SELECT f.ScanFolder, s.SourceName, nf.ScanFolder, n.SourceName FROM ProductDependencies d
    JOIN Products p ON p.ProductID = d.ProductPK JOIN Jobs j ON j.JobID = p.JobPK
    JOIN Sources s ON s.SourceID = j.SourcePK JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
    JOIN Sources n ON n.SourceGuid = d.DependencySourceGuid JOIN ScanFolders nf ON nf.ScanFolderID = n.ScanFolderPK
WHERE d.UnresolvedPath = '' AND ? IN ('', s.SourceName)
UNION
SELECT f.ScanFolder, s.SourceName, '', e.target FROM aptui_edges e
    JOIN Sources s ON s.SourceID = e.source_id JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
    LEFT JOIN aptui_sources o ON o.path_key = e.target
WHERE e.kind = 0 AND o.source_id IS NULL AND ? IN ('', s.SourceName)
ORDER BY 1, 2, 4, 3"""
_SAME_BUT_FOR_CASE_SQL = """
SELECT p.ProductName, s.SourceName FROM Products p JOIN Jobs j ON j.JobID = p.JobPK JOIN Sources s ON s.SourceID = j.SourcePK
WHERE lower(p.ProductName) IN (SELECT lower(ProductName) FROM Products GROUP BY lower(ProductName) HAVING COUNT(*) > 1)
ORDER BY lower(p.ProductName), p.ProductName"""


class NeededSource(Struct, frozen=True):
    """A source that another needs: `root` is the path of its scan folder, `path` is in real case."""

    root: str
    path: str


class NamedSource(Struct, frozen=True):
    """A source that needs others: `root` is the path of its scan folder, `needs` are the others, `files` what is no source.

    Paths of `files` are in lower case.
    """

    root: str
    source: str
    needs: tuple[NeededSource, ...]
    files: tuple[str, ...]


def find_named_sources(reader: Reader, only: str = "") -> Iterator[NamedSource]:
    """Yield every source that needs others, as sources or through its products; `only` those of this path."""
    for (root, source), rows in groupby(reader.ask(_NEEDS_SQL, (only,) * 3), key=itemgetter(0, 1)):
        others = [row[2:] for row in rows if row[3] != source]
        needs = tuple(NeededSource(folder, path) for folder, path in others if folder)
        if needs:
            yield NamedSource(root, source, needs, tuple(path for folder, path in others if not folder))


def list_same_but_for_case(reader: Reader) -> list[tuple[str, str]]:
    """Return (product, source) of products whose names differ in case alone."""
    return [(name, source) for name, source in reader.ask(_SAME_BUT_FOR_CASE_SQL)]

"""Metrics: the cost of builders and the contents of the cache, for two screens.

Each query reads a whole table, so call it in a thread.

Tests: `tests/store/db/test_foreign.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from aptui.core import fingerprint
from aptui.store.db.foreign import job_stat_sql
from aptui.store.queries.reader import Reader

_DURATION = (
    f"COALESCE(o.duration_ms, (SELECT t.StatValue FROM Stats t JOIN Sources s ON s.SourceID = j.SourcePK JOIN ScanFolders f "
    f"ON f.ScanFolderID = s.ScanFolderPK WHERE t.StatName = {job_stat_sql()}), 0)"
)
_ANALYSES_SQL = """SELECT builder, COUNT(*), COALESCE(SUM(duration_ms), 0), COALESCE(MAX(duration_ms), 0)
FROM aptui_analyses GROUP BY builder"""
_JOBS_SQL = f"""SELECT j.BuilderGuid, COUNT(*), COALESCE(SUM({_DURATION}), 0), COALESCE(MAX({_DURATION}), 0)
FROM Jobs j LEFT JOIN aptui_jobs o ON o.job_id = j.JobID GROUP BY j.BuilderGuid"""
_NAMES_SQL = """SELECT j.BuilderGuid, o.inputs, MAX(j.JobID) FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID
WHERE substr(o.inputs, 1, 8) = '[["rule"' GROUP BY j.BuilderGuid"""
_ANALYSIS_ENTRIES_SQL = """SELECT s.SourceName, '', 'all', a.duration_ms, a.completed_ms, 0, s.SourceID
FROM aptui_analyses a JOIN Sources s ON s.SourceID = a.source_id WHERE a.builder = ? ORDER BY a.duration_ms DESC, 1 LIMIT ?"""
_JOB_ENTRIES_SQL = f"""SELECT SourceName, GROUP_CONCAT(DISTINCT JobKey), GROUP_CONCAT(DISTINCT Platform), SUM(d), MAX(ended),
CASE COUNT(*) WHEN 1 THEN MAX(JobID) ELSE 0 END, SourceID, COUNT(*), MAX(d) FROM (
    SELECT s.SourceName, j.JobKey, j.Platform, j.JobID, s.SourceID, COALESCE(o.completed_ms, j.LastLogTime) ended,
        {_DURATION.replace("JOIN Sources s ON s.SourceID = j.SourcePK ", "")} d FROM Jobs j
    JOIN Sources s ON s.SourceID = j.SourcePK LEFT JOIN aptui_jobs o ON o.job_id = j.JobID WHERE j.BuilderGuid = ?
) GROUP BY SourceID ORDER BY 4 DESC, 1 LIMIT ?"""


class Spent(Struct, frozen=True):
    """Number and total duration of analyses or jobs, and the slowest of them."""

    count: int = 0
    total_ms: int = 0
    slowest_ms: int = 0

    @property
    def average_ms(self) -> float:
        """Return the average duration, 0 if `count` is 0."""
        return self.total_ms / self.count if self.count else 0.0

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of two costs."""
        return Spent(self.count + other.count, self.total_ms + other.total_ms, max(self.slowest_ms, other.slowest_ms))


class BuilderSpent(Struct, frozen=True):
    """The cost of a builder: its analyses and its jobs."""

    builder: bytes
    analyses: Spent = Spent()
    jobs: Spent = Spent()


class Entry(Struct, frozen=True):
    """The last measured duration of a builder for a source: of the analysis, or of all jobs of the builder and source together.

    `job_key` and `platform` list the values of these jobs, separated by commas. `job_id` is the id of the job; 0 if the entry is an
    analysis, or has several jobs.
    """

    source: str
    job_key: str
    platform: str
    duration_ms: int
    completed_ms: int
    job_id: int
    source_id: int
    count: int = 1
    slowest_ms: int = 0

    @property
    def is_analysis(self) -> bool:
        """Whether this entry is the duration of an analysis, and not of jobs."""
        return self.platform == "all"

    @property
    def spent(self) -> Spent:
        """Number and total duration of the runs that this entry sums up."""
        return Spent(self.count, self.duration_ms, self.slowest_ms or self.duration_ms)


class Amount(Struct, frozen=True):
    """Number of products, and their total size; `name` is the platform or folder that contains them, or the single product."""

    name: str
    count: int
    size_bytes: int


class CacheContents(Struct, frozen=True):
    """Contents of the cache, by platform and by builder.

    `folders` are the largest top folders of the products' paths; `grown` has the new products of each platform; `largest` has the
    largest products.
    """

    platforms: tuple[Amount, ...]
    folders: tuple[Amount, ...]
    builders: tuple[tuple[bytes, Amount], ...]
    grown: tuple[Amount, ...]
    largest: tuple[Amount, ...]

    @property
    def total(self) -> Amount:
        """Number and total size of all products."""
        return Amount("", sum(item.count for item in self.platforms), sum(item.size_bytes for item in self.platforms))


def builder_names(reader: Reader, known: Mapping[bytes, str] = MappingProxyType({})) -> dict[bytes, str]:
    """Return {UUID: name} of the known builders, and of unknown builders, which are named after their newest jobs."""
    return {uuid: fingerprint.load(inputs)[0][1] for uuid, inputs, _job_id in reader.ask(_NAMES_SQL)} | dict(known)


def builders_spent(reader: Reader) -> list[BuilderSpent]:
    """Return the cost of each builder, the most expensive first; takes 1 s with a million jobs."""
    analyses = {builder: Spent(*row) for builder, *row in reader.ask(_ANALYSES_SQL)}
    jobs = {builder: Spent(*row) for builder, *row in reader.ask(_JOBS_SQL)}
    found = [BuilderSpent(uuid, analyses.get(uuid, Spent()), jobs.get(uuid, Spent())) for uuid in analyses.keys() | jobs.keys()]
    return sorted(found, key=lambda item: (-(item.analyses + item.jobs).total_ms, item.builder))


def analysis_entries(reader: Reader, builder: bytes, limit: int = 1000) -> list[Entry]:
    """Return a builder's slowest analyses."""
    return [Entry(*row) for row in reader.ask(_ANALYSIS_ENTRIES_SQL, (builder, limit))]


def job_entries(reader: Reader, builder: bytes, limit: int = 1000) -> list[Entry]:
    """Return the sources whose jobs of a builder took longest."""
    return [Entry(*row) for row in reader.ask(_JOB_ENTRIES_SQL, (builder, limit))]


def cache_contents(reader: Reader, since_ms: int, limit: int = 100) -> CacheContents:
    """Return the contents of the cache and the products made after `since_ms`; takes some seconds with a million products."""
    after = "instr(p.ProductName, '/')"
    rest = f"substr(p.ProductName, {after} + 1)"
    folder = f"CASE instr({rest}, '/') WHEN 0 THEN '' ELSE substr({rest}, 1, instr({rest}, '/') - 1) END"
    platform = f"substr(p.ProductName, 1, max({after} - 1, 0))"
    owned = "Products p LEFT JOIN aptui_products o ON o.product_id = p.ProductID"
    sizes = "COUNT(*), COALESCE(SUM(o.size), 0)"
    rows = reader.ask(f"SELECT {platform} a, {folder} b, {sizes} FROM {owned} GROUP BY a, b").fetchall()
    made = f"{owned} JOIN Jobs j ON j.JobID = p.JobPK"
    builders = reader.ask(f"SELECT j.BuilderGuid, {sizes} FROM {made} GROUP BY 1 ORDER BY 3 DESC").fetchall()
    grown = reader.ask(
        f"""SELECT {platform} a, {sizes} FROM {made} LEFT JOIN aptui_jobs w ON w.job_id = j.JobID
        WHERE COALESCE(w.completed_ms, j.LastLogTime) >= ? AND j.Status = 4 GROUP BY a ORDER BY a""",
        (since_ms,),
    )
    largest = reader.ask(f"SELECT p.ProductName, 1, o.size FROM {owned} WHERE o.size > 0 ORDER BY 3 DESC, 1 LIMIT ?", (limit,))
    platforms, folders = _sum_up((name, count, size) for name, _, count, size in rows), _sum_up(row[1:] for row in rows)
    return CacheContents(
        tuple(sorted(platforms, key=lambda item: item.name)),
        tuple(sorted(folders, key=lambda item: (-item.size_bytes, item.name))[:limit]),
        tuple((uuid, Amount("", count, size)) for uuid, count, size in builders),
        tuple(Amount(*row) for row in grown),
        tuple(Amount(*row) for row in largest),
    )


def _sum_up(rows: Iterable[tuple[str, int, int]]) -> list[Amount]:
    found: dict[str, tuple[int, int]] = {}
    for name, count, size in rows:
        known = found.get(name, (0, 0))
        found[name] = known[0] + count, known[1] + size
    return [Amount(name, *values) for name, values in found.items()]

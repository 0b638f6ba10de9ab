"""What changed files make run again, through source dependencies, intermediates and job dependencies as in `core.state.graph`.

It only reads.

A source that changed needs all its jobs run. Who declared it needs the jobs of the builder that did so, and so does who
declared that one in
turn: a manifest holds the whole closure, whoever declared its parts. What was found while processing is the run's own and
leads no further. A job that runs again concerns the jobs that depend on it by fingerprint or by its products; order alone
concerns nobody.

Nobody knows beforehand whether products come out equal, and what depends on products alone stays settled then: without
`through_products` such steps are not taken, and what is found runs for certain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from aptui.core.model import DependencyKind, EdgeKind, JobPlan
from aptui.core.patterns import wildcard
from aptui.core.project import COMMON_PLATFORM
from aptui.core.records.rows import unpack_analysis
from aptui.store.graph.source_edges import DeclaredEdge, SourceEdges
from aptui.store.queries.assets import INTERMEDIATE_FLAG
from aptui.store.queries.reader import Reader

_JOBS_SQL = """SELECT j.JobID, s.SourceID, s.SourceName, j.Platform, j.JobKey, j.BuilderGuid FROM json_each(?) k
CROSS JOIN Sources s ON s.SourceID = k.value CROSS JOIN Jobs j ON j.SourcePK = s.SourceID
    ORDER BY s.SourceName, j.Platform, j.JobKey"""
_PRODUCTS_SQL = """SELECT p.ProductName FROM json_each(?) k CROSS JOIN Products p ON p.JobPK = k.value ORDER BY 1"""
_KEYS_SQL = "SELECT BuilderGuid, Platform, JobKey FROM Jobs WHERE SourcePK = ?"
_PLANS_SQL = """SELECT a.source_id, a.builder, a.plans FROM json_each(?) k CROSS JOIN aptui_analyses a ON a.source_id = k.value"""
_INTERMEDIATES_SQL = f"""SELECT p.ProductName FROM json_each(?) k CROSS JOIN Jobs j ON j.SourcePK = k.value
CROSS JOIN Products p ON p.JobPK = j.JobID WHERE p.Flags & {INTERMEDIATE_FLAG} ORDER BY 1"""


class AffectedJob(Struct, frozen=True):
    """A job that would run again."""

    job_id: int
    source_id: int
    source: str
    platform: str
    job_key: str
    builder: bytes


JobName = tuple[bytes, str, str]
"""Builder, platform and job key."""
Which = bytes | JobName
"""All jobs of a builder on a source, or one of them."""


class Affected(Struct):
    """What would be touched: `sources` {source id: why}, and of each of them which jobs would run, None = all."""

    sources: dict[int, str] = field(default_factory=dict)
    which: dict[int, set[Which] | None] = field(default_factory=dict)

    def touch(self, source: int, which: Which | None, why: str) -> None:
        """Note that some jobs (None = all) on a source would run."""
        known = self.which.get(source, set())
        if known is not None and (which is None or which not in known):
            self.which[source] = None if which is None else known | {which}
            self.sources.setdefault(source, why)

    def covers(self, source: int, builder: bytes, platform: str, job_key: str) -> bool:
        """Whether a job is among those that would run."""
        known = self.which.get(source, set())
        return known is None or builder in known or (builder, platform, job_key) in known


class Spreading:
    """Follows changes through one database.

    Args:
        through_products: also to what stays settled where the products that it depends on come out equal.
    """

    def __init__(self, reader: Reader, *, through_products: bool = True) -> None:
        self._ask = reader.ask
        self._kinds = (DependencyKind.FINGERPRINT, DependencyKind.ORDER)[: 1 + through_products]
        self._through_products = through_products
        self.edges = SourceEdges(reader)
        self.found = Affected()
        self._followed: dict[int, set[Which] | None] = {}
        self._seen: set[str] = set()

    def spread(self, changed: Mapping[str, str]) -> Affected:
        """Return what changes of these files lead to.

        Args:
            changed: {path in lower case: why it counts as changed}; sources or not, there or gone.
        """
        todo = dict(changed)
        for path, ids in self.edges.by_path(todo).items():
            for number in ids:
                self.found.touch(number, None, todo[path])
        while todo:
            self._touch_declared(todo)
            self._jobs()
            todo = self._intermediates()
        return self.found

    def touch_builders(self, builders: Iterable[bytes], why: str) -> None:
        """Note that all jobs of some builders would run, and go on from there."""
        marks = list(builders)
        sql = f"SELECT DISTINCT SourcePK, BuilderGuid FROM Jobs WHERE BuilderGuid IN ({', '.join('?' * len(marks))})"
        for number, builder in self._ask(sql, marks).fetchall():
            self.found.touch(number, builder, why)
        self._jobs()
        self.spread(self._intermediates())

    def touch_sources(self, sources: Mapping[str, str]) -> None:
        """Note that jobs of some sources (in lower case, with why) would run although their bytes are the same, and follow them."""
        for path, ids in self.edges.by_path(sources).items():
            for number in ids:
                self.found.touch(number, None, sources[path])
        self._jobs()
        self.spread(self._intermediates())

    # ---------------------------------------------------------------------------------------------------------------- steps

    def _touch_declared(self, changed: Mapping[str, str]) -> None:
        """Touch who depends on changed files, and on those who do."""
        frontier = self._with_uuids(changed)
        while frontier:
            self._seen.update(frontier)
            ahead: dict[int, str] = {}
            for edge, path in self._onto(frontier):
                if edge.kind is EdgeKind.JOB:
                    continue
                self.found.touch(edge.source_id, edge.builder, _why(edge, path))
                if edge.kind is not EdgeKind.DISCOVERED:
                    ahead.setdefault(edge.source_id, "")
            frontier = {name: names[0] for names in self.edges.names_of(ahead).values() for name in names if name not in self._seen}

    def _with_uuids(self, changed: Mapping[str, str]) -> dict[str, str]:
        """Return {name under which others depend on it: path} of changed files."""
        ids = [number for found in self.edges.by_path(changed).values() for number in found]
        names = {name: names[0] for names in self.edges.names_of(ids).values() for name in names}
        names.update((path, path) for path in changed)
        return {name: path for name, path in names.items() if name not in self._seen}

    def _onto(self, frontier: Mapping[str, str]) -> list[tuple[DeclaredEdge, str]]:
        """Return the dependencies on these names, each with the path that is meant."""
        found = [(edge, frontier[edge.target]) for edge in self.edges.read_declared_on(frontier)]
        paths = dict.fromkeys(frontier.values())
        matching: dict[str, str | None] = {}
        for edge in self.edges.patterns():
            if edge.target not in matching:
                match = wildcard(edge.target).fullmatch
                matching[edge.target] = next((path for path in paths if match(path)), None)
            path = matching[edge.target]
            if path is not None:
                found.append((edge, path))
        return found

    def _jobs(self) -> None:
        """Touch the jobs that depend on jobs touched since the last time."""
        while fresh := [number for number, which in self.found.which.items() if self._followed.get(number, set()) != which]:
            self._followed = dict(self.found.which)
            ids = {name: number for number, names in self.edges.names_of(fresh).items() for name in names}
            waiting = [edge for edge in self.edges.read_declared_on(ids) if edge.kind is EdgeKind.JOB]
            plans = self._plans({edge.source_id for edge in waiting})
            for edge in waiting:
                for which in self._find_concerned(edge, ids[edge.target], plans.get((edge.source_id, edge.builder), ())):
                    self.found.touch(edge.source_id, which, f"a job of '{edge.target}' would run")

    def _plans(self, ids: Iterable[int]) -> dict[tuple[int, bytes], tuple[JobPlan, ...]]:
        """Return what the analyses of sources said; nothing where O3DE wrote the database."""
        if not self.edges.is_ours:
            return {}
        rows = self._ask(_PLANS_SQL, (json.dumps(list(ids)),))
        return {(source, builder): unpack_analysis(packed)[0] for source, builder, packed in rows}

    def _find_concerned(self, edge: DeclaredEdge, other: int, plans: Iterable[JobPlan]) -> Iterator[Which]:
        """Yield which jobs a dependency on jobs of the source `other` makes run; all of its builder where the plans do not say."""
        is_known = False
        for plan in plans:
            for dependency in plan.job_dependencies:
                if dependency.source == edge.target:
                    is_known = True
                    if dependency.kind in self._kinds and self._runs(other, dependency.platform, dependency.key):
                        yield edge.builder, plan.platform, plan.key
        if not is_known and self._through_products:
            yield edge.builder

    def _runs(self, source: int, platform: str, job_key: str) -> bool:
        if self.found.which.get(source, set()) is None:
            return True
        rows = self._ask(_KEYS_SQL, (source,)).fetchall()
        return any(row[1:] == (platform, job_key) and self.found.covers(source, *row) for row in rows)

    def _intermediates(self) -> dict[str, str]:
        """Touch the sources that products of touched jobs are, and return those not followed yet."""
        if not self._through_products:
            return {}
        names = [name for (name,) in self._ask(_INTERMEDIATES_SQL, (json.dumps(list(self.found.sources)),))]
        paths = [str(name)[len(COMMON_PLATFORM) + 1 :].lower() for name in names]
        fresh = {}
        for path, ids in self.edges.by_path(paths).items():
            why = f"intermediate '{path}' would be made again"
            for number in ids:
                self.found.touch(number, None, why)
            if path not in self._seen:
                fresh[path] = why
        return fresh

    # -------------------------------------------------------------------------------------------------------------- answers

    def jobs(self) -> list[AffectedJob]:
        """Return the jobs that would run, by source."""
        rows = (AffectedJob(*row) for row in self._ask(_JOBS_SQL, (json.dumps(list(self.found.sources)),)))
        return [job for job in rows if self.found.covers(job.source_id, job.builder, job.platform, job.job_key)]

    def products(self, jobs: Iterable[AffectedJob]) -> list[str]:
        """Return the products that these jobs made last time."""
        return [name for (name,) in self._ask(_PRODUCTS_SQL, (json.dumps([job.job_id for job in jobs]),))]


def _why(edge: DeclaredEdge, path: str) -> str:
    words = {EdgeKind.WILDCARD: f"'{edge.target}' matches '{path}'", EdgeKind.DISCOVERED: f"a run of it read '{path}'"}
    return words.get(edge.kind, f"it depends on '{path}'")

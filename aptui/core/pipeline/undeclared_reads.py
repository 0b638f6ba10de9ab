"""The undeclared-read check: a file that a run read without declaring it becomes a warning or a dependency."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from aptui.core.model import ANALYSIS_KEY, SETTLED, EdgeKind, FileFact, Job, JobPlan, PathKey, RelPath, SourceEdge
from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import Read, RunResult
from aptui.core.paths import key_of, normalize
from aptui.core.project import Builder, BuilderKind, Project, UndeclaredReads
from aptui.core.settings import is_settings
from aptui.core.state.graph import Graph
from aptui.core.state.working_set import WorkingSet

_MOST_REPORTED = 20
Log = tuple[LogRecord, ...]
Answer = tuple[tuple[JobPlan, ...], tuple[SourceEdge, ...], Log]
"""The checked answer of an analysis."""
UndeclaredRead = tuple[str, Read]
"""(Relative path of the file, the read of this file)."""


def with_default(builders: Iterable[Builder], undeclared_reads: UndeclaredReads) -> tuple[Builder, ...]:
    """Return `builders`; builders without their own setting get that of the project."""
    return tuple(
        builder if builder.undeclared_reads else replace(builder, undeclared_reads=undeclared_reads) for builder in builders
    )


class UndeclaredReadCheck:
    """Finds the reads of a call that were not declared."""

    def __init__(self, project: Project, graph: Graph, memory: WorkingSet) -> None:
        self._project, self._graph, self._memory = project, graph, memory

    def of_run(self, job: Job, builder: Builder, result: RunResult, now_ms: int) -> RunResult:
        """Return the result with warnings for undeclared reads, or with these reads among the discovered dependencies.

        An added read does not count as declared: if a later run does not read the file, the dependency ends.
        """
        declared: set[str] = {name for kind, name, _digest in job.planned_inputs if kind != "discovered"}
        declared.update(filter(None, map(self._graph.source_of, job.plan.job_dependencies if job.plan else ())))
        declared.update(key_of(rel) for path, _digest in result.discovered if (rel := self._graph.relative(path)))
        undeclared = self._find_undeclared(job, builder, declared, result.reads)
        if builder.undeclared_reads is not UndeclaredReads.ADD:
            is_private = result.is_private or any(self._find_undeclared_path(job, declared, read) for read in result.reads)
            result = replace(result, is_private=is_private)
        result = self._with_hidden(builder, result, now_ms)
        if not undeclared or builder.undeclared_reads is UndeclaredReads.IGNORE:
            return result
        warnings = _warn_of(builder, undeclared, now_ms)
        if builder.undeclared_reads is UndeclaredReads.ADD:
            found = tuple((read.path, read.digest) for _rel, read in undeclared)
            return replace(result, discovered=(*result.discovered, *found), log=(*result.log, *warnings))
        return replace(result, log=(*result.log, *warnings), warnings=result.warnings + len(warnings))

    def _with_hidden(self, builder: Builder, result: RunResult, now_ms: int) -> RunResult:
        """Add files that a run read, or did not find, and that the file of another scan folder hides.

        A declared dependency with the path of a hidden file means the hiding file.
        """
        known = {path for path, _digest in result.discovered}
        hidden = [item for item in self._find_hidden(result.reads) if item[0].path not in known]
        if not hidden:
            return result
        found = tuple((read.path, read.digest) for read, _hider in hidden)
        log = self._describe_hidden(builder, hidden, now_ms)
        return replace(result, discovered=(*result.discovered, *found), log=(*result.log, *log))

    def _find_hidden(self, reads: Iterable[Read]) -> list[tuple[Read, FileFact | None]]:
        """Return (read, hiding file, None = the file is ignored) of reads of files that are not sources, existing or not."""
        return [
            (read, self._graph.hider(read.path)) for read in reads if read.is_hidden and self._graph.counting(read.path) is None
        ]

    def _describe_hidden(self, builder: Builder, hidden: Sequence[tuple[Read, FileFact | None]], now_ms: int) -> Log:
        names = {folder.id: folder.name for folder in self._project.scan_folders}
        roots = {folder.path: folder.name for folder in self._project.scan_folders}
        descriptions = []
        for read, hider in hidden[:_MOST_REPORTED]:
            if hider is None:
                what = f"'{self._graph.relative(read.path)}', which an ignore rule of the project leaves out ({read.where})"
                action = "reads" if read.digest else "does not find"
                descriptions.append(f"{action} {what}: it counts as a dependency from now on")
                continue
            own = next(name for root, name in roots.items() if read.path.startswith(f"{root}/"))
            what = f"'{self._graph.relative(read.path)}' {'of' if read.digest else 'in'} the scan folder '{own}'"
            action = f"reads {what}, which" if read.digest else f"does not find {what}, where"
            hides = f"that of '{names[hider.scan_folder]}' {'hides' if read.digest else 'would hide it'} ({read.where})"
            descriptions.append(f"{action} {hides}: it counts as a dependency from now on")
        return tuple(LogRecord(LogLevel.INFO, builder.name, text, now_ms) for text in descriptions)

    def of_analysis(
        self, job: Job, builder: Builder, reads: Sequence[Read], answer: Answer, now_ms: int
    ) -> tuple[tuple[SourceEdge, ...], Log]:
        """Return the edges and the log of an analysis, with its undeclared reads, and its reads of hidden files.

        A builder need not declare the dependencies of its dependencies. While those are unknown, no warning is given.
        """
        plans, edges, log = answer
        if hidden := self._find_hidden(reads):
            edges = tuple(sorted({*edges, *(SourceEdge(EdgeKind.DISCOVERED, normalize(read.path)) for read, _hider in hidden)}))
            log = (*log, *self._describe_hidden(builder, hidden, now_ms))
        declared, is_all = self._list_declared(job, edges)
        declared.update(key for plan in plans for item in plan.job_dependencies if (key := self._graph.source_of(item)))
        undeclared = self._find_undeclared(job, builder, declared, reads)
        if builder.undeclared_reads is UndeclaredReads.ADD:
            edges = tuple(sorted({*edges, *(SourceEdge(EdgeKind.PATH, rel) for rel, _read in undeclared)}))
        elif not is_all:
            return edges, log
        return edges, (*log, *_warn_of(builder, undeclared, now_ms))

    def _list_declared(self, job: Job, edges: tuple[SourceEdge, ...]) -> tuple[set[str], bool]:
        """Return the keys that an analysis with these edges depends on, and whether the set is complete."""
        asked = Job(job.source, job.builder, "", ANALYSIS_KEY, edges=edges)
        assembly = self._graph.analysis(asked, ())
        names: set[str] = {name for _kind, name, _digest in assembly.manifest}
        is_all = not assembly.waits
        for kind, name, _digest in assembly.manifest:
            other = self._memory.view(PathKey(name)) if kind == "dependency" else None
            if other and any(item.is_analysis and item.state not in SETTLED for item in other.jobs.values()):
                is_all = False
        return names, is_all

    def _find_undeclared(self, job: Job, builder: Builder, declared: set[str], reads: Sequence[Read]) -> list[UndeclaredRead]:
        adds = builder.undeclared_reads is UndeclaredReads.ADD
        found = []
        for read in reads:
            rel = self._find_undeclared_path(job, declared, read)
            if rel is None:
                continue
            is_source = self._memory.file(key_of(rel)) is not None
            # An existing file without a source is ignored, or part of the cache; only a dependency can wait for a missing one.
            if (is_source or (adds and not read.digest)) and not self._graph.is_ignored(rel):
                found.append((rel, read))
        return found

    def _find_undeclared_path(self, job: Job, declared: set[str], read: Read) -> str | None:
        """Return the relative path of a read, None if it is declared, the source itself, or hidden."""
        rel = self._graph.counting(read.path)
        is_known = rel is None or key_of(RelPath(rel)) in declared or rel.lower() == job.source.rel.lower() or is_settings(rel)
        return None if is_known else rel


def _warn_of(builder: Builder, undeclared: Sequence[UndeclaredRead], now_ms: int) -> Log:
    if builder.undeclared_reads is UndeclaredReads.ADD:
        level, ending = LogLevel.INFO, "it counts as a dependency from now on"
    else:
        how = "name it in the depfile" if builder.kind is BuilderKind.COMMAND else "declare it as a source dependency"
        level, ending = LogLevel.WARNING, f"a change of it is not noticed; {how}"
    warnings = [f"reads '{rel}' without declaring it ({read.where}): {ending}" for rel, read in undeclared[:_MOST_REPORTED]]
    if len(undeclared) > _MOST_REPORTED:
        warnings.append(f"reads {len(undeclared) - _MOST_REPORTED} more sources without declaring them")
    return tuple(LogRecord(level, builder.name, text, now_ms) for text in warnings)

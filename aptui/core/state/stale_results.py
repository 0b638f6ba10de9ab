"""Finds stale results: a file that a run used changed during the run. The job of a stale result is planned again.

`core.pipeline.run_results` uses this module before it commits a result. A committed result cannot be stale: `core.pipeline.plans`
compares fingerprints to find out whether a job must run again.

The report of a run is compared with the known state of files at the start of the run. Five rules cover files that were known
before, files that were reported when they were opened, and files that were found only at the end:

* A file of the manifest, and the source of an analysis, must have the same stamp at the start of the run, when the run opened it
  (if this was observed), and at the end of the run. Workers check the sources of jobs themselves.
* A file of the manifest that was missing at the start must be missing at the end, and the run must not have opened it.
* A file whose opening by the run was observed must have the same stamp at that time, at the end of the run, and in the engine's
  records.
  If a pattern of the source matches the file and the manifest does not contain it, the file is new, and the result is stale.
* At the start of the run, the digest in the manifest may be unconfirmed: the engine was still reading the file, or the file had
  changed and the analysis of the job was not repeated yet. At the end, this file must have the digest in the manifest, and the
  same stamp as at the start. The stamp is needed because a file that changed and changed back may have had other bytes when the
  run read it.
* Any other file is checked once, at the end: it must equal the engine's records, and be older than the run. If the clock of a
  file server is ahead of ours, a file can look newer than each run. So it is also accepted if it has the same stamp after two
  runs.

`UndeclaredReadCheck` compares the same report with the dependencies of the source, and finds files that the run did not declare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from aptui.core import fingerprint
from aptui.core.fingerprint import Manifest
from aptui.core.model import ANALYSIS_KEY, SETTLED, EdgeKind, FileFact, Job, JobPlan, PathKey, RelPath, SourceEdge
from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import Read, RunResult
from aptui.core.paths import key_of, normalize
from aptui.core.patterns import wildcard
from aptui.core.project import Builder, BuilderKind, Project, UndeclaredReads
from aptui.core.run_report import NO_FILE, NOTHING_USED, Stamp, Ties, Used, is_other, is_young
from aptui.core.settings import is_settings
from aptui.core.state.graph import Graph
from aptui.core.state.working_set import Unsettled, WorkingSet


class StaleResultCheck:
    """Compares the files that a run reports as used with the engine's records, to find files that changed during the run."""

    def __init__(self, project: Project, graph: Graph, memory: WorkingSet) -> None:
        self._graph, self._memory = graph, memory
        self._roots = {folder.id: folder.path for folder in project.scan_folders}
        self._intermediates = next((folder.id for folder in project.scan_folders if folder.is_intermediate), None)

    def begin(self, job: Job) -> None:
        """Record the input files of `job`, whose run begins."""
        stamps = tuple(self._list_stamps(job.planned_inputs))
        known, unproven = {path: stamp for path, stamp, _is_proven in stamps}, self._unproven_of(stamps)
        known.update(dict.fromkeys(self._places_of_missing(job), NO_FILE))
        if job.is_analysis and job.source.fact is not None:
            path, stamp = self._place_of(job.source.fact)
            known[path] = stamp
        if job.ties is not None:
            job.ties.known, job.ties.report, job.ties.unproven = known, NOTHING_USED, unproven
        elif known:
            job.ties = Ties(known, unproven=unproven)

    def find_changed(self, job: Job, used: Used) -> tuple[str, ...]:
        """Return the paths of files that changed during the run; () means that the result of the run is valid."""
        if not (used.files or used.found):
            return ()  # a copy reads only its source, which its worker has checked; a second check would take time for each copy
        known = job.ties.known if job.ties is not None else {}
        bad = [file.path for file in used.files if known.get(file.path) and is_other(known[file.path], file.stamp)]
        bad += self._find_appeared(job, known, used)
        if job.ties is not None and job.ties.unproven:
            now = {path: stamp for path, stamp, is_proven in self._list_stamps(job.planned_inputs) if is_proven}
            bad += [path for path in job.ties.unproven if is_other(known[path], now.get(path, ()))]
        used_stamps = {file.path: file.stamp for file in used.files}
        seen = dict(self._find_known(tuple(("discovered", str(key), "") for key in self.keys(file.path for file in used.found))))
        for file in used.found:
            expected = known.get(file.path) or seen.get(file.path)
            if (expected and is_other(expected, file.stamp)) or (
                file.path not in known
                and used_stamps.get(file.path) != file.stamp
                and self._is_doubtful(job, used, file.path, file.stamp)
            ):
                bad.append(file.path)
        return tuple(dict.fromkeys(bad))

    def _find_appeared(self, job: Job, known: Mapping[str, Stamp], used: Used) -> list[str]:
        """Return the paths of files that exist although the manifest of a run says that they are missing.

        A file with the same stamp after a second run is left out. The engine would have recorded it after the first run, unless the
        project ignores it.
        """
        present = {file.path: file.stamp for file in (*used.files, *used.found) if file.stamp and not known.get(file.path)}
        if not present:
            return []
        keys = {path: key for path in present if (key := self.key(path)) is not None}
        missing = {self.key(path) for path, stamp in known.items() if not stamp}
        found = [path for path, key in keys.items() if key in missing or self._is_matched(job, key)]
        return [path for path in found if self._is_new(job, path, present[path])]

    @staticmethod
    def _is_matched(job: Job, key: PathKey) -> bool:
        """Whether a dependency pattern of the job's source matches this file, but the job's manifest does not contain it."""
        patterns = [edge.target for item in job.source.jobs.values() for edge in item.edges if edge.kind is EdgeKind.WILDCARD]
        is_known = any(name == key and kind in _DECLARED for kind, name, _digest in job.planned_inputs)
        return not is_known and any(wildcard(pattern).fullmatch(key) for pattern in patterns)

    def _places_of_missing(self, job: Job) -> Iterable[str]:
        """Yield the paths at which the missing files of the manifest may appear: one in each scan folder."""
        missing = [
            PathKey(name)
            for kind, name, digest in job.planned_inputs
            if digest == fingerprint.MISSING
            and kind in _DECLARED
            and not name.startswith("/")
            and self._last_known(PathKey(name)) is None
        ]
        if not missing:
            return
        spelled = {key_of(RelPath(edge.target)): edge.target for item in job.source.jobs.values() for edge in item.edges}
        for key in missing:
            for name in {spelled.get(key, key), key}:
                yield from (f"{root}/{name}" for root in self._roots.values())

    def unread(self, discovered: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Return the paths of discovered dependencies with bytes that the engine is still reading; () = the result is valid.

        If a result with such a file were committed, the engine would not notice that the run and the engine read different bytes.
        """
        if not (self._memory.hashing or self._memory.unstable):
            return ()
        return tuple(path for path, digest in discovered if self._is_unread(path, digest))

    def _is_unread(self, path: str, digest: str) -> bool:
        key = self.key(path)
        if key is None or not (key in self._memory.hashing or key in self._memory.unstable):
            return False
        source = self._memory.view(key)
        return source is not None and source.fact is not None and source.fact.digest.hex() != digest

    def find_differing(self, job: Job, discovered: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Return the paths of the files that have another digest in a fetched result than on this machine.

        If such files exist, the fetched result must not be used, and the job is marked to run on this machine.
        """
        bad = []
        for path, digest in discovered:
            fact = self._last_known(key_of(RelPath(rel))) if (rel := self._graph.counting(path)) is not None else None
            if fact is not None and fact.digest and fact.digest.hex()[: len(digest) or 1] != digest:
                bad.append(self._place_of(fact)[0])
        if bad:
            job.ties = job.ties or Ties()
            job.ties.runs_here = True
        return tuple(bad)

    def find_hiders(self, job: Job, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths of the files that hide a file in `paths`; `paths` are the files that a run read.

        A file hides files with equal paths in later scan folders. The hiding file may have appeared after the run read the hidden
        file. If its stamp is the same after two runs of the job, it is left out, so that the job does not run again forever.
        """
        before = {name for name, _digest in job.discovered}
        hiders = [hider for path in paths if normalize(path) not in before and (hider := self._graph.hider(path)) is not None]
        return tuple(path for path, stamp in map(self._place_of, hiders) if self._is_new(job, path, stamp))

    @staticmethod
    def _unproven_of(stamps: Iterable[tuple[str, Stamp, bool]]) -> tuple[str, ...]:
        return tuple(path for path, _stamp, is_proven in stamps if not is_proven)

    def find_unsealed(self, job: Job, manifest: Manifest) -> tuple[str, ...]:
        """Return the paths of files that this analysis named for the first time, and that changed since the analysis read them.

        () means that the analysis is valid.
        """
        if job.ties is None or not job.ties.report.began_ns:
            return ()
        used, known = job.ties.report, job.ties.known
        used_stamps = {file.path: file.stamp for file in used.files}
        bad = []
        for path, stamp in self._find_known(manifest):
            if path in used_stamps:
                bad += [path] if is_other(used_stamps[path], stamp) else []
            elif not known.get(path) and self._is_doubtful(job, used, path, stamp):
                bad.append(path)
        appeared = [path for path, stamp in used_stamps.items() if stamp and self._is_missing(path, manifest)]
        bad += [path for path in appeared if self._is_new(job, path, used_stamps[path])]
        return tuple(dict.fromkeys(bad))

    def _is_missing(self, path: str, manifest: Manifest) -> bool:
        """Whether the manifest names the file at `path`, but the engine's records say that the file does not exist."""
        key = self.key(path)
        return key is not None and self._memory.file(key) is None and any(name == key for _kind, name, _digest in manifest)

    def keys(self, paths: Iterable[str]) -> list[PathKey]:
        """Return the keys of these absolute paths; paths outside all scan folders are left out."""
        return [key for path in paths if (key := self.key(path)) is not None]

    def key(self, path: str) -> PathKey | None:
        """Return the key of an absolute path, None if the path is outside all scan folders."""
        rel = self._graph.relative(path)
        return None if rel is None else key_of(RelPath(rel))

    def _find_known(self, manifest: Manifest) -> Iterable[tuple[str, Stamp]]:
        return ((path, stamp) for path, stamp, _is_proven in self._list_stamps(manifest))

    def _list_stamps(self, manifest: Manifest) -> Iterable[tuple[str, Stamp, bool]]:
        """Yield the path and the stamp of each file of a manifest, and whether its bytes are confirmed.

        Intermediates always count as confirmed. Otherwise, a job that reads an intermediate that it makes would wait for itself.
        """
        for kind, name, digest in manifest:
            if kind not in _FILES or name.startswith("/"):
                continue
            fact, last = self._memory.file(PathKey(name)), self._last_known(PathKey(name))
            is_proven = isinstance(fact, FileFact) and fingerprint.file_digest(fact.digest) == digest
            if last is not None:
                yield *self._place_of(last), is_proven or last.scan_folder == self._intermediates

    def _last_known(self, key: PathKey) -> FileFact | None:
        """Return the file at a path that no other file hides. While its state is unknown, return its last known state."""
        fact = self._memory.file(key)
        return self._memory.last_seen(key) if isinstance(fact, Unsettled) else fact

    def _place_of(self, fact: FileFact) -> tuple[str, Stamp]:
        """Return the path and the stamp of a file."""
        # The ctime of an intermediate is ignored, because the result store of this machine makes hard links to it, which changes
        # the ctime.
        ctime_ns = 0 if fact.scan_folder == self._intermediates else fact.ctime_ns
        return f"{self._roots[fact.scan_folder]}/{fact.rel}", (fact.size, fact.mtime_ns, ctime_ns, fact.inode)

    @staticmethod
    def _is_doubtful(job: Job, used: Used, path: str, stamp: Stamp) -> bool:
        return is_young(used, stamp) and StaleResultCheck._is_new(job, path, stamp)

    @staticmethod
    def _is_new(job: Job, path: str, stamp: Stamp) -> bool:
        """Record the stamp of a file for `job`. Return False if the previously recorded stamp of this file is equal, else True."""
        job.ties = job.ties or Ties()
        previous = job.ties.doubted.get(path)
        job.ties.doubted[path] = stamp
        return previous != stamp


# If a run reads a file without declaring it, `UndeclaredReadCheck` adds a warning or a dependency to the result.

_MOST_REPORTED = 20
Log = tuple[LogRecord, ...]
Answer = tuple[tuple[JobPlan, ...], tuple[SourceEdge, ...], Log]
"""The checked answer of an analysis."""
UndeclaredRead = tuple[str, Read]
"""(Relative path of a file, the `Read` that reports its opening)."""


def with_default(builders: Iterable[Builder], undeclared_reads: UndeclaredReads) -> tuple[Builder, ...]:
    """Return `builders`; a builder without its own setting for undeclared reads gets the project's setting."""
    return tuple(
        builder if builder.undeclared_reads else replace(builder, undeclared_reads=undeclared_reads) for builder in builders
    )


class UndeclaredReadCheck:
    """Finds undeclared reads: a run or an analysis has read a file on which its source does not depend."""

    def __init__(self, project: Project, graph: Graph, memory: WorkingSet) -> None:
        self._project, self._graph, self._memory = project, graph, memory

    def of_run(self, job: Job, builder: Builder, result: RunResult, now_ms: int) -> RunResult:
        """Return `result` after its undeclared reads were handled as the builder is configured.

        They are ignored, reported as warnings, or added as dependencies.

        A dependency that was added in this way ends when a later run of the job does not read the file.
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
        """Add dependencies on hidden or ignored files that a run read, or that it tried to open although they do not exist.

        A declared dependency on the same path is not enough, because it applies to the hiding file and not to the hidden file.
        """
        known = {path for path, _digest in result.discovered}
        hidden = [item for item in self._find_hidden(result.reads) if item[0].path not in known]
        if not hidden:
            return result
        found = tuple((read.path, read.digest) for read, _hider in hidden)
        log = self._describe_hidden(builder, hidden, now_ms)
        return replace(result, discovered=(*result.discovered, *found), log=(*result.log, *log))

    def _find_hidden(self, reads: Iterable[Read]) -> list[tuple[Read, FileFact | None]]:
        """Return the pair (read, hiding file) for each read of a hidden or ignored file.

        A file of another scan folder hides a file with the same path. If the project ignores the read file, no file hides it: None.
        """
        return [
            (read, self._graph.hider(read.path)) for read in reads if read.is_hidden and self._graph.counting(read.path) is None
        ]

    def _describe_hidden(self, builder: Builder, hidden: Sequence[tuple[Read, FileFact | None]], now_ms: int) -> Log:
        names = {folder.id: folder.name for folder in self._project.scan_folders}
        roots = {folder.path: folder.name for folder in self._project.scan_folders}
        descriptions = []
        for read, hider in hidden[:_MOST_REPORTED]:
            if hider is None:
                what = f"'{self._graph.relative(read.path)}', which the project ignores ({read.where})"
                action = "reads" if read.digest else "does not find"
                descriptions.append(f"{action} {what}: this file is a dependency from now on")
                continue
            own = next(name for root, name in roots.items() if read.path.startswith(f"{root}/"))
            what = f"'{self._graph.relative(read.path)}' {'of' if read.digest else 'in'} the scan folder '{own}'"
            action = f"reads {what}, which" if read.digest else f"does not find {what}, where"
            hides = f"the file of '{names[hider.scan_folder]}' {'hides' if read.digest else 'would hide it'} ({read.where})"
            descriptions.append(f"{action} {hides}: this file is a dependency from now on")
        return tuple(LogRecord(LogLevel.INFO, builder.name, text, now_ms) for text in descriptions)

    def of_analysis(
        self, job: Job, builder: Builder, reads: Sequence[Read], answer: Answer, now_ms: int
    ) -> tuple[tuple[SourceEdge, ...], Log]:
        """Return the edges and the log of an analysis, with its undeclared reads, and its reads of hidden files.

        A builder need not declare the dependencies of its dependencies. While these indirect ones are unknown, no warning is given.
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
            # A file that exists but is not a source cannot become a dependency. A missing file can become a dependency that waits
            # until the file exists, but only if the builder's `undeclared_reads` is ADD.
            if (is_source or (adds and not read.digest)) and not self._graph.is_ignored(rel):
                found.append((rel, read))
        return found

    def _find_undeclared_path(self, job: Job, declared: set[str], read: Read) -> str | None:
        """Return the relative path of a file that was read without a declaration.

        None for declared files, and for files that need no declaration: the source itself, settings, hidden and ignored files.
        """
        rel = self._graph.counting(read.path)
        is_known = rel is None or key_of(RelPath(rel)) in declared or rel.lower() == job.source.rel.lower() or is_settings(rel)
        return None if is_known else rel


def _warn_of(builder: Builder, undeclared: Sequence[UndeclaredRead], now_ms: int) -> Log:
    if builder.undeclared_reads is UndeclaredReads.ADD:
        level, ending = LogLevel.INFO, "it is a dependency from now on"
    else:
        how = "add it to the depfile" if builder.kind is BuilderKind.COMMAND else "declare it as a source dependency"
        level, ending = LogLevel.WARNING, f"aptui does not notice when it changes; {how}"
    warnings = [f"reads '{rel}' without declaring it ({read.where}): {ending}" for rel, read in undeclared[:_MOST_REPORTED]]
    if len(undeclared) > _MOST_REPORTED:
        warnings.append(f"reads {len(undeclared) - _MOST_REPORTED} more sources without declaring them")
    return tuple(LogRecord(level, builder.name, text, now_ms) for text in warnings)


_FILES = frozenset({"dependency", "companion", "discovered"})
_DECLARED = frozenset({"dependency", "companion"})

"""The stale-result check: whether files stayed unchanged while a run used them.

Reports of runs are compared with the known state of files at their start. Five rules cover files that were known before, files
that were reported when they were opened, and files that were found only at the end:

* A file of the manifest, and the source of an analysis, must have the stamp from the start of the run: at its opening, if that
  was observed, and at its end. (Workers check the sources of jobs themselves.)
* A file of the manifest that was missing at the start must be missing at the end, without an observed opening.
* A file whose opening was observed must have one stamp: at its opening, at the end, and in the engine's records. If a pattern of
  the source matches it and the manifest does not contain it, it is new, and the result is stale.
* The bytes of a file of the manifest may be unconfirmed at the start: it was being read then, or it changed and the analysis of
  the job is not repeated yet. Such a file must have the manifest's digest at the end, and still be the file of the start. A file
  that changed back in between may have had other bytes for the run.
* Any other file is checked once, at the end: it must equal the engine's records, and be older than the run. If it is never
  older, because a server's clock is ahead of ours, the same stamp after two runs counts, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aptui.core import fingerprint
from aptui.core.fingerprint import Manifest
from aptui.core.model import EdgeKind, FileFact, Job, PathKey, RelPath
from aptui.core.paths import key_of, normalize
from aptui.core.patterns import wildcard
from aptui.core.project import Project
from aptui.core.run_report import NO_FILE, NOTHING_USED, Stamp, Ties, Used, is_other, is_young
from aptui.core.state.graph import Graph
from aptui.core.state.working_set import Unsettled, WorkingSet

_FILES = frozenset({"dependency", "companion", "discovered"})
_DECLARED = frozenset({"dependency", "companion"})


class StaleResultCheck:
    """Compares the files that runs used with the known files."""

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
        """Return the paths of files that changed during the run; () = its result counts."""
        if not (used.files or used.found):
            return ()  # a copy has no other inputs, and there may be thousands of copies
        known = job.ties.known if job.ties is not None else {}
        bad = [file.path for file in used.files if known.get(file.path) and is_other(known[file.path], file.stamp)]
        bad += self._came(job, known, used)
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

    def _came(self, job: Job, known: Mapping[str, Stamp], used: Used) -> list[str]:
        """Return the paths of files that exist although the manifest of a run says that they are missing.

        A file that is still unknown to the engine after a second run is ignored by the project, and does not count.
        """
        there = {file.path: file.stamp for file in (*used.files, *used.found) if file.stamp and not known.get(file.path)}
        if not there:
            return []
        keys = {path: key for path in there if (key := self.key(path)) is not None}
        missing = {self.key(path) for path, stamp in known.items() if not stamp}
        found = [path for path, key in keys.items() if key in missing or self._is_matched(job, key)]
        return [path for path in found if self._is_new(job, path, there[path])]

    @staticmethod
    def _is_matched(job: Job, key: PathKey) -> bool:
        """Whether a pattern of the job's source matches a file that the manifest does not have."""
        patterns = [edge.target for item in job.source.jobs.values() for edge in item.edges if edge.kind is EdgeKind.WILDCARD]
        is_known = any(name == key and kind in _DECLARED for kind, name, _digest in job.planned_inputs)
        return not is_known and any(wildcard(pattern).fullmatch(key) for pattern in patterns)

    def _places_of_missing(self, job: Job) -> Iterable[str]:
        """Yield the paths, in every scan folder, of the missing files of a manifest."""
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
        """Return the paths of files that a run found while their bytes are being read; () when the result counts.

        Otherwise the file might later be found unchanged, and the other bytes that the run read would go unnoticed.
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

    def other_here(self, job: Job, discovered: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Return the paths of files for which a fetched result has other digests than known here; if any, the job runs here."""
        bad = []
        for path, digest in discovered:
            fact = self._last_known(key_of(RelPath(rel))) if (rel := self._graph.counting(path)) is not None else None
            if fact is not None and fact.digest and fact.digest.hex()[: len(digest) or 1] != digest:
                bad.append(self._place_of(fact)[0])
        if bad:
            job.ties = job.ties or Ties()
            job.ties.runs_here = True
        return tuple(bad)

    def hiding(self, job: Job, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths of files that hide what a run read, because they may have been missing for a moment.

        A file that has the same stamp after two runs is left out.
        """
        before = {name for name, _digest in job.discovered}
        hiders = [hider for path in paths if normalize(path) not in before and (hider := self._graph.hider(path)) is not None]
        return tuple(path for path, stamp in map(self._place_of, hiders) if self._is_new(job, path, stamp))

    @staticmethod
    def _unproven_of(stamps: Iterable[tuple[str, Stamp, bool]]) -> tuple[str, ...]:
        return tuple(path for path, _stamp, is_proven in stamps if not is_proven)

    def find_unsealed(self, job: Job, manifest: Manifest) -> tuple[str, ...]:
        """Return the files that an analysis named for the first time and that changed since it read them; () = it counts."""
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
        came = [path for path, stamp in used_stamps.items() if stamp and self._is_missing(path, manifest)]
        bad += [path for path in came if self._is_new(job, path, used_stamps[path])]
        return tuple(dict.fromkeys(bad))

    def _is_missing(self, path: str, manifest: Manifest) -> bool:
        """Whether a file that existed when it was opened is missing in the manifest."""
        key = self.key(path)
        return key is not None and self._memory.file(key) is None and any(name == key for _kind, name, _digest in manifest)

    def keys(self, paths: Iterable[str]) -> list[PathKey]:
        """Return the keys of these files, except those outside every scan folder."""
        return [key for path in paths if (key := self.key(path)) is not None]

    def key(self, path: str) -> PathKey | None:
        """Return the key of an absolute path."""
        rel = self._graph.relative(path)
        return None if rel is None else key_of(RelPath(rel))

    def _find_known(self, manifest: Manifest) -> Iterable[tuple[str, Stamp]]:
        return ((path, stamp) for path, stamp, _is_proven in self._list_stamps(manifest))

    def _list_stamps(self, manifest: Manifest) -> Iterable[tuple[str, Stamp, bool]]:
        """Yield the path and the stamp of each file of a manifest, and whether its bytes are confirmed.

        Intermediates count as confirmed: the job that makes one may read it, and would wait for itself.
        """
        for kind, name, digest in manifest:
            if kind not in _FILES or name.startswith("/"):
                continue
            fact, last = self._memory.file(PathKey(name)), self._last_known(PathKey(name))
            is_proven = isinstance(fact, FileFact) and fingerprint.file_digest(fact.digest) == digest
            if last is not None:
                yield *self._place_of(last), is_proven or last.scan_folder == self._intermediates

    def _last_known(self, key: PathKey) -> FileFact | None:
        """Return the file that wins a path; while that is unknown, the last known winner."""
        fact = self._memory.file(key)
        return self._memory.last_seen(key) if isinstance(fact, Unsettled) else fact

    def _place_of(self, fact: FileFact) -> tuple[str, Stamp]:
        """Return the path and the stamp of a file."""
        # The store of this machine links intermediate products into itself; that changes the inode's ctime alone.
        ctime_ns = 0 if fact.scan_folder == self._intermediates else fact.ctime_ns
        return f"{self._roots[fact.scan_folder]}/{fact.rel}", (fact.size, fact.mtime_ns, ctime_ns, fact.inode)

    @staticmethod
    def _is_doubtful(job: Job, used: Used, path: str, stamp: Stamp) -> bool:
        return is_young(used, stamp) and StaleResultCheck._is_new(job, path, stamp)

    @staticmethod
    def _is_new(job: Job, path: str, stamp: Stamp) -> bool:
        """Whether the file differs from its state after the last run; a state seen twice is accepted."""
        job.ties = job.ties or Ties()
        is_as_before = job.ties.doubted.get(path) == stamp
        job.ties.doubted[path] = stamp
        return not is_as_before

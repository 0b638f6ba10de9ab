"""The stale-result check: whether files stayed what they were while a run used them.

What runs report is compared with what was known when they began. Four rules, for a file may be known before, be heard when
it is opened, or be found at the end alone:

* A file of the manifest has the stamp that it had when the run began: at its opening, where that was observed, and at its
  end.
* A file whose opening was observed has one stamp, at its opening, at the end, and in what the engine knows of it.
* A file of the manifest that did not have, for all that is known, its bytes of the manifest when the run began (it was being
  read then, or it is another since and the job's analysis is not done anew) has them at the end, and is still the file that
  the run began with: one that went back to them was another for the run.
* Of any other file there is only one look, at the end: it has to be as the engine knows it, and older than the run. Where
  it never is, because a server's clock is ahead of ours, the same stamp after two runs is as good.
"""

from __future__ import annotations

from collections.abc import Iterable

from aptui.core import fingerprint
from aptui.core.fingerprint import Manifest
from aptui.core.model import FileFact, Job, PathKey, Project, RelPath
from aptui.core.paths import key_of
from aptui.core.run_report import NOTHING_USED, Stamp, Ties, Used, is_other, is_young
from aptui.core.state.graph import Graph
from aptui.core.state.working_set import Unsettled, WorkingSet

_FILES = frozenset({"dependency", "companion", "discovered"})


class Witness:
    """Compares what runs used with what is known of files."""

    def __init__(self, project: Project, graph: Graph, memory: WorkingSet) -> None:
        self._graph, self._memory = graph, memory
        self._roots = {folder.id: folder.path for folder in project.scan_folders}
        self._intermediates = next((folder.id for folder in project.scan_folders if folder.is_intermediate), None)

    def begin(self, job: Job) -> None:
        """A run of `job` begins: take note of the files that it is made of."""
        known = dict(self._known(job.planned_inputs))
        if job.ties is not None:
            job.ties.known, job.ties.report = known, NOTHING_USED
        elif known:
            job.ties = Ties(known)
        if job.ties is not None:
            job.ties.unproven = self._unproven_of(job.planned_inputs)

    def changed(self, job: Job, used: Used) -> tuple[str, ...]:
        """Return the paths of files that were not, all the time, what they were when the run began; () when it counts."""
        if not (used.files or used.found):
            return ()  # copies, by the thousand
        known = job.ties.known if job.ties is not None else {}
        bad = [file.path for file in used.files if file.path in known and is_other(known[file.path], file.stamp)]
        if job.ties is not None and job.ties.unproven:
            others, now = self._others_of(job.planned_inputs, job.ties.unproven), dict(self._known(job.planned_inputs))
            for path in known:
                key = self.key(path)
                if key in others or (key in job.ties.unproven and is_other(known[path], now.get(path, ()))):
                    bad.append(path)
        heard = {file.path: file.stamp for file in used.files}
        seen = dict(self._known(tuple(("discovered", str(key), "") for key in self.keys(file.path for file in used.found))))
        for file in used.found:
            expected = known.get(file.path) or seen.get(file.path)
            if (expected and is_other(expected, file.stamp)) or (
                file.path not in known
                and heard.get(file.path) != file.stamp
                and self._is_doubtful(job, used, file.path, file.stamp)
            ):
                bad.append(file.path)
        return tuple(dict.fromkeys(bad))

    def unread(self, discovered: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Return the paths of files that a run found with bytes that nobody knows yet, for they are being read; () when it counts.

        They may be found to be what their sources are known as, and nobody would hear that the run had others.
        """
        if not (self._memory.hashing or self._memory.unstable):
            return ()
        return tuple(path for path, digest in discovered if self._is_unread(path, digest))

    def _is_unread(self, path: str, digest: str) -> bool:
        key = self.key(path)
        if key is None or not self._is_being_read(key):
            return False
        source = self._memory.view(key)
        return source is not None and source.fact is not None and source.fact.digest.hex() != digest

    def _unproven_of(self, manifest: Manifest) -> tuple[str, ...]:
        """Return the keys of the files of a manifest that are being read at present, or are known to have other bytes.

        Intermediates are left out: who makes one may read it, and would wait for itself.
        """
        names = [name for kind, name, digest in manifest if kind in _FILES and self._is_unproven(name, digest)]
        facts = {name: self._memory.last_seen(PathKey(name)) for name in names}
        return tuple(name for name, fact in facts.items() if fact is not None and fact.scan_folder != self._intermediates)

    def _is_unproven(self, name: str, digest: str) -> bool:
        if name.startswith("/"):
            return False
        fact = self._memory.file(PathKey(name))
        return isinstance(fact, Unsettled) or (fact is not None and fingerprint.file_digest(fact.digest) != digest)

    def _others_of(self, manifest: Manifest, keys: Iterable[str]) -> frozenset[str]:
        """Return those of `keys` that have other bytes than the manifest says, or of which nobody knows it yet."""
        planned = {name: digest for kind, name, digest in manifest if kind in _FILES}
        facts = {key: self._memory.file(PathKey(key)) for key in keys}
        return frozenset(
            key
            for key, fact in facts.items()
            if not isinstance(fact, FileFact) or fingerprint.file_digest(fact.digest) != planned.get(key)
        )

    def _is_being_read(self, key: str) -> bool:
        return key in self._memory.hashing or key in self._memory.unstable

    def unsealed(self, job: Job, manifest: Manifest) -> tuple[str, ...]:
        """Return the files that an analysis named for the first time and that changed since it read them; () = it counts."""
        if job.ties is None or not job.ties.report.began_ns:
            return ()
        used, known = job.ties.report, job.ties.known
        heard = {file.path: file.stamp for file in used.files}
        bad = []
        for path, stamp in self._known(manifest):
            if path in heard:
                bad += [path] if is_other(heard[path], stamp) else []
            elif path not in known and self._is_doubtful(job, used, path, stamp):
                bad.append(path)
        bad += [path for path, stamp in heard.items() if stamp and self._is_missing(path, manifest)]
        return tuple(dict.fromkeys(bad))

    def _is_missing(self, path: str, manifest: Manifest) -> bool:
        """Whether a file that was there when it was opened is one that the manifest has as missing."""
        key = self.key(path)
        return key is not None and self._memory.file(key) is None and any(name == key for _kind, name, _digest in manifest)

    def keys(self, paths: Iterable[str]) -> list[PathKey]:
        """Return the keys of these files, those left out that lie outside every scan folder."""
        return [key for path in paths if (key := self.key(path)) is not None]

    def key(self, path: str) -> PathKey | None:
        """Return the key of an absolute path."""
        rel = self._graph.relative(path)
        return None if rel is None else key_of(RelPath(rel))

    def _known(self, manifest: Manifest) -> Iterable[tuple[str, Stamp]]:
        for kind, name, _digest in manifest:
            if kind not in _FILES or name.startswith("/"):
                continue
            fact = self._memory.file(PathKey(name))
            if isinstance(fact, Unsettled):
                fact = self._memory.last_seen(PathKey(name))
            if fact is not None:
                # The store of this machine links what lies there, and that is a change of the inode alone.
                ctime_ns = 0 if fact.scan_folder == self._intermediates else fact.ctime_ns
                yield f"{self._roots[fact.scan_folder]}/{fact.rel}", (fact.size, fact.mtime_ns, ctime_ns, fact.inode)

    @staticmethod
    def _is_doubtful(job: Job, used: Used, path: str, stamp: Stamp) -> bool:
        if not is_young(used, stamp):
            return False
        job.ties = job.ties or Ties()
        is_as_before = job.ties.doubted.get(path) == stamp
        job.ties.doubted[path] = stamp
        return not is_as_before

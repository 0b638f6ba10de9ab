"""Freshness: how long after a change a file may change again without a new time.

File times come from a clock that advances in ticks. If a file changes twice within one tick, the second change does not alter its
times. So a file that was checked between the two changes looks unchanged from then on. A file whose last change is older than a
tick at its check is safe: a later change gives the file a later time, and no program can set the ctime back.

File systems of this kernel use the kernel's own coarse clock, which ticks 100 to 1,000 times a second. Others may use a server's
clock, or store times in steps of one or two seconds (FAT).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from aptui.core.model import FileFact
from aptui.core.paths import key_of, parent
from aptui.engine.watch import limits
from aptui.shared.files.clocks import RACY_NS, is_coarse

FINE_RACY_NS = 100_000_000
"""Ten times the longest tick of the kernel's own clock."""
_Stamp = tuple[int, ...]
"""(size, mtime_ns, ctime_ns, inode)."""


class FileClocks:
    """Tick lengths of the clocks that give the files of the scan folders their times.

    Args:
        roots: {scan folder id: absolute path}.
        mountinfo: the contents of `/proc/self/mountinfo`; None = the file is read when it is needed.
        longest_ns: the longest tick to assume.
    """

    def __init__(self, roots: Mapping[int, str], mountinfo: Callable[[], bytes] | None = None, longest_ns: int = RACY_NS) -> None:
        self._roots, self._mountinfo, self._longest_ns = roots, mountinfo, longest_ns
        self._are_fine: dict[int, bool] = {}

    def are_any_fresh(self, scan_folder: int, facts: Iterable[FileFact], checked_ns: int) -> bool:
        """Whether any of these files was checked within one tick after its last change.

        If so, one more change may not show in the file's times.

        Args:
            scan_folder: id of the scan folder of the files.
            checked_ns: when the check of these files began (nanoseconds since 1970).
        """
        racy_ns = checked_ns - self._longest_ns
        return any(
            (fact.mtime_ns >= racy_ns or fact.ctime_ns >= racy_ns) and self.is_fresh(scan_folder, fact, checked_ns)
            for fact in facts
        )

    def is_fresh(self, scan_folder: int, fact: FileFact, checked_ns: int) -> bool:
        """Whether this file was checked within one tick after its last change; the arguments are those of `are_any_fresh`."""
        is_fine = not is_coarse(fact.ctime_ns) and self._is_fine(scan_folder)
        racy_ns = min(self._longest_ns, FINE_RACY_NS) if is_fine else self._longest_ns
        return max(fact.mtime_ns, fact.ctime_ns) >= checked_ns - racy_ns

    def _is_fine(self, scan_folder: int) -> bool:
        """Whether all files of a scan folder are on file systems that use the kernel's clock."""
        if scan_folder not in self._are_fine:
            self._are_fine[scan_folder] = self._probe(self._roots.get(scan_folder, ""))
        return self._are_fine[scan_folder]

    def _probe(self, root: str) -> bool:
        path = os.path.realpath(os.fsencode(root))
        mounts = limits.mounts((self._mountinfo or limits.mountinfo)())
        kinds = {limits.kind_of(path, mounts), *(mount.kind for mount in limits.mounts_below(path, mounts))}
        return kinds <= limits.NATIVE_KINDS


class FreshReads:
    """Files whose bytes were read so soon after their last change that one more change may not show in their times.

    These files are read again later, even if their times did not change. The second reading is trusted if it begins more than a
    tick after the first reading and the times are still equal. A later change then has another time, even if the clock of a file
    server is ahead of this machine's clock.

    Args:
        clocks: tick lengths of the clocks of the scan folders.
    """

    def __init__(self, clocks: FileClocks) -> None:
        self._clocks = clocks
        self._by_folder: dict[str, dict[tuple[int, str], tuple[_Stamp, float]]] = {}
        """{relative folder in lower case: {(scan folder id, relative path): (stamp, when it was first read, monotonic)}}."""
        self._noted: set[str] = set()

    @property
    def folders(self) -> Iterable[str]:
        """The relative folders (lower case) with files that have to be read again."""
        return self._by_folder.keys()

    def note(self, fact: FileFact, read_ns: int, read_s: float) -> None:
        """Record a file that was read; the reading began at `read_ns` (since 1970), `read_s` (monotonic), or later."""
        is_fresh = self._clocks.are_any_fresh(fact.scan_folder, (fact,), read_ns)
        if not is_fresh and not self._by_folder:
            return
        folder, file, stamp = parent(key_of(fact.rel)), (fact.scan_folder, str(fact.rel)), fact.stamp
        files = self._by_folder.get(folder, {})
        before, first_s = files.get(file, ((), read_s))
        if before != stamp:
            first_s = read_s
        if is_fresh and read_s - first_s < RACY_NS / 1e9:
            self._by_folder.setdefault(folder, files)[file] = stamp, first_s
            self._noted.add(folder)
        elif files.pop(file, None) and not files:
            del self._by_folder[folder]

    def holds(self, fact: FileFact) -> bool:
        """Whether the stored digest of a file may be out of date although its times are unchanged."""
        known = self._by_folder.get(parent(key_of(fact.rel)), {}).get((fact.scan_folder, str(fact.rel)))
        return known is not None and known[0] == fact.stamp

    def pop_noted(self) -> Iterable[str]:
        """Return the folders in which `note` recorded a file since the last call."""
        noted, self._noted = self._noted, set()
        return noted

"""Freshness: until when a file may have changed once more without its times telling so.

A time is that of a clock which stands still between two ticks. Of two changes within one tick the second leaves no trace in
the times; so a file that was looked at between them looks unchanged ever after. A file whose last change is older than a
tick when it is looked at is safe: whatever changes it later gives it a later time, and its ctime cannot be set back.

File systems of this kernel have the kernel's own coarse clock, which ticks 100 to 1,000 times a second. Others may have a
server's clock, or count in seconds, or in twos (FAT).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from aptui.core.model import FileFact
from aptui.engine.watch import limits

RACY_NS = 2_000_000_000
"""The longest tick of any file system (FAT)."""
FINE_RACY_NS = 100_000_000
"""Ten times the longest tick of the kernel's own clock."""
_MILLISECOND_NS = 1_000_000


class FileClocks:
    """How coarse the clocks of the scan folders are.

    Args:
        roots: {scan folder id: absolute path}.
        mountinfo: what is mounted where, as `/proc/self/mountinfo` says it; None: it is asked for when it is needed.
    """

    def __init__(self, roots: Mapping[int, str], mountinfo: Callable[[], bytes] | None = None) -> None:
        self._roots, self._mountinfo = roots, mountinfo
        self._are_fine: dict[int, bool] = {}

    def are_any_fresh(self, scan_folder: int, facts: Iterable[FileFact], checked_ns: int, longest_ns: int = RACY_NS) -> bool:
        """Whether any of these files may change again, or has, within the tick in which it was looked at.

        Args:
            scan_folder: where they lie.
            checked_ns: when the check of these files began (nanoseconds since 1970).
            longest_ns: the longest tick that is reckoned with.
        """
        racy_ns = checked_ns - longest_ns
        return any(
            (fact.mtime_ns >= racy_ns or fact.ctime_ns >= racy_ns) and self.is_fresh(scan_folder, fact, checked_ns, longest_ns)
            for fact in facts
        )

    def is_fresh(self, scan_folder: int, fact: FileFact, checked_ns: int, longest_ns: int = RACY_NS) -> bool:
        """Whether this file may change again, or has, within the tick in which it was looked at."""
        is_fine = fact.ctime_ns % _MILLISECOND_NS and self._is_fine(scan_folder)
        return max(fact.mtime_ns, fact.ctime_ns) >= checked_ns - (min(longest_ns, FINE_RACY_NS) if is_fine else longest_ns)

    def _is_fine(self, scan_folder: int) -> bool:
        """Whether all of a scan folder lies on file systems that have the kernel's clock."""
        if scan_folder not in self._are_fine:
            self._are_fine[scan_folder] = self._probe(self._roots.get(scan_folder, ""))
        return self._are_fine[scan_folder]

    def _probe(self, root: str) -> bool:
        path = os.path.realpath(os.fsencode(root))
        mounts = limits.mounts((self._mountinfo or limits.mountinfo)())
        kinds = {limits.kind_of(path, mounts), *(mount.kind for mount in limits.mounts_below(path, mounts))}
        return kinds <= limits.NATIVE_KINDS

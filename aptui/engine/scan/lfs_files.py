"""Git LFS pointers among a job's inputs besides its source.

No job may run on the few lines that stand where a file should be.

Tests: `tests/engine/scan/test_verification.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aptui.core.model import FileFact, Job, PathKey
from aptui.shared.files import lfs
from aptui.worker import files

_KINDS = frozenset({"dependency", "companion", "discovered"})
_MOST_KNOWN = 100_000


class Pointers:
    """Tells pointers by their bytes alone: attributes may lie in any folder, or in none that is checked out.

    Args:
        roots: {scan folder id: absolute path}.
    """

    def __init__(self, roots: Mapping[int, str]) -> None:
        self._roots = roots
        self._known: dict[tuple[int, str, int, int], bool] = {}

    def among(self, job: Job, file_of: Callable[[PathKey], object]) -> str:
        """Say which dependency of a job is a pointer, "" when none is."""
        for kind, name, _digest in job.planned_inputs:
            fact = file_of(PathKey(name)) if kind in _KINDS else None
            if isinstance(fact, FileFact) and fact.size < lfs.LONGEST_POINTER_BYTES and self._is_pointer(fact):
                return f"dependency '{name}' is {lfs.NOT_HERE}"
        return ""

    def _is_pointer(self, fact: FileFact) -> bool:
        slot = (fact.scan_folder, fact.rel, fact.mtime_ns, fact.ctime_ns)
        if slot not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[slot] = files.is_pointer(files.os_path(f"{self._roots[fact.scan_folder]}/{fact.rel}"), fact.size)
        return self._known[slot]

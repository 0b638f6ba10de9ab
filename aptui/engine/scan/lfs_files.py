"""Git LFS pointers among what a job is made of besides its source: nobody may run on the few lines that stand where a file should be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from aptui.core.model import FileFact, Job, PathKey
from aptui.shared import lfs

_ATTRIBUTES = ".gitattributes"
_KINDS = frozenset({"dependency", "companion", "discovered"})
_MOST_KNOWN = 100_000


class Pointers:
    """Looks for pointers, in repositories that use Git LFS.

    Args:
        roots: {scan folder id: absolute path}.
    """

    def __init__(self, project_dir: Path, roots: Mapping[int, str]) -> None:
        self._roots = roots
        self._known: dict[tuple[int, str, int, int], bool] = {}
        self._is_used = any(map(_uses_lfs, _folders(project_dir, roots.values())))

    def among(self, job: Job, file_of: Callable[[PathKey], object]) -> str:
        """Say which dependency of a job is a pointer, "" when none is."""
        if not self._is_used:
            return ""
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
            from aptui.worker import files  # what reads bytes is not paid for by who reads none

            self._known[slot] = files.is_pointer(files.os_path(f"{self._roots[fact.scan_folder]}/{fact.rel}"), fact.size)
        return self._known[slot]


def _folders(project_dir: Path, roots: Iterable[str]) -> set[Path]:
    """Return the project, the scan folders, and what is above them up to the top of their repository."""
    found: set[Path] = set()
    for start in (project_dir, *map(Path, roots)):
        for folder in (start, *start.parents):
            found.add(folder)
            if os.path.lexists(folder / ".git"):
                break
    return found


def _uses_lfs(folder: Path) -> bool:
    try:
        return b"filter=lfs" in (folder / _ATTRIBUTES).read_bytes()
    except OSError:
        return False

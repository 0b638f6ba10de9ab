"""Recognises operations of Git and other version-control systems that are in progress in the sources.

Only names and times of a repository's files are read. Tests: `tests/engine/scan/test_vcs.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from aptui.shared.files.git_commits import read_worktree_link

_LOCKS = {
    ".git": ("index.lock",),
    ".hg": ("wlock", "store/lock"),
    ".svn": ("lock",),
    ".jj": ("working_copy/working_copy.lock",),
}
_OPERATIONS = {".git": ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "sequencer")}
"""Files and folders that exist during an operation of several steps, also while it waits for the user."""
_PULSE = {".git": ("index", "HEAD", "ORIG_HEAD", "logs/HEAD", "rebase-merge", "rebase-apply")}
QUIET_S = 1.0
"""If no file changed for this time (seconds) during an operation of several steps, the operation waits for the user.

The engine then continues.
"""
STALE_S = 60.0
"""A lock file older than this (seconds) was left by a program that died."""


class Repositories:
    """The version-control repositories that contain the scan folders.

    Args:
        roots: absolute paths of the scan folders.
        now_s: returns the time of the file system's clock.
    """

    def __init__(self, roots: Iterable[str], now_s: Callable[[], float] = time.time) -> None:
        found = {found for root in roots if (found := _repository_of(root)) is not None}
        self._kinds = sorted(found)
        self._now_s = now_s

    def busy(self) -> str:
        """Return the path of a file or folder that shows a held lock or an operation in progress.

        The result is "" if no lock is held and no operation is in progress.
        """
        for kind, folder in self._kinds:
            for name in _LOCKS[kind]:
                path = os.path.join(folder, name)
                age_s = self._age_s(path)
                if age_s is not None and age_s < STALE_S:
                    return path
            for name in _OPERATIONS.get(kind, ()):
                path = os.path.join(folder, name)
                if os.path.lexists(path) and self._is_changing(kind, folder):
                    return path
        return ""

    def _is_changing(self, kind: str, folder: str) -> bool:
        ages = (self._age_s(os.path.join(folder, name)) for name in _PULSE[kind])
        return any(age_s is not None and age_s < QUIET_S for age_s in ages)

    def _age_s(self, path: str) -> float | None:
        try:
            return self._now_s() - os.lstat(path).st_mtime
        except OSError:
            return None


def _repository_of(root: str) -> tuple[str, str] | None:
    """Return (kind, its control folder) of the repository that holds `root`."""
    folder = os.path.abspath(root)
    while True:
        for kind in _LOCKS:
            path = os.path.join(folder, kind)
            if os.path.isdir(path):
                return kind, path
            if kind == ".git" and os.path.isfile(path) and (control := read_worktree_link(path)):
                return kind, control
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above

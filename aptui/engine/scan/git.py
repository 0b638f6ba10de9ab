"""Reads from Git's files, without running Git, which commit is checked out and which command moved HEAD there.

If a file of Git is malformed, the commit is unknown: a session without a commit is reported as well.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable

from msgspec import Struct

_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")
_TAIL_BYTES = 4096
_SECONDS_DIGITS = 12
_TEXT_BYTES = 64 * 1024
_PACKED_BYTES = 16 << 20


class CheckoutHead(Struct, frozen=True):
    """A commit in hex, "" when none is known; `is_made_here`: HEAD moved there by a commit, so files did not change.

    `left` is the commit from which HEAD moved there at `moved_ms`; both are from the log of HEAD, which has whole seconds.
    """

    commit: str = ""
    is_made_here: bool = False
    left: str = ""
    moved_ms: int = 0


def head(folder: str) -> CheckoutHead:
    """Return the commit that is checked out in the repository of `folder`."""
    control = _control_folder(folder)
    if not control:
        return CheckoutHead()
    text = _read(os.path.join(control, "HEAD"), _TEXT_BYTES).strip()
    if text.startswith("ref: "):
        text = _resolve_branch(control, text.removeprefix("ref: "))
    if not _COMMIT.match(text):
        return CheckoutHead()
    move, _tab, message = _last_move(control).partition("\t")
    left, moved_s = move.partition(" ")[0], move.rpartition(">")[2].split()
    is_known = bool(_COMMIT.match(left)) and bool(moved_s) and moved_s[0].isdigit() and len(moved_s[0]) < _SECONDS_DIGITS
    return CheckoutHead(text, message.startswith("commit"), left if is_known else "", int(moved_s[0]) * 1000 if is_known else 0)


def _control_folder(folder: str) -> str:
    folder = os.path.abspath(folder)
    while True:
        path = os.path.join(folder, ".git")
        if os.path.isdir(path):
            return path
        if os.path.isfile(path):
            name, _colon, target = _read(path, _TEXT_BYTES).partition(":")
            return os.path.normpath(os.path.join(folder, target.strip())) if name == "gitdir" else ""
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def _resolve_branch(control: str, name: str) -> str:
    """Return the commit of a branch; the branches of a linked worktree lie in the folder that all worktrees share."""
    shared = _read(os.path.join(control, "commondir"), _TEXT_BYTES).strip()
    folders = [control, *([os.path.normpath(os.path.join(control, shared))] if shared else [])]
    for folder in folders:
        if text := _read(os.path.join(folder, name), _TEXT_BYTES).strip():
            return text
    for folder in folders:
        for line in _read(os.path.join(folder, "packed-refs"), _PACKED_BYTES).splitlines():
            commit, _blank, ref = line.partition(" ")
            if ref == name:
                return commit
    return ""


def _last_move(control: str) -> str:
    """Return the last line of the log of HEAD: `<from> <to> <who> <seconds> <zone>`, a tab, `checkout: moving from …`."""
    try:
        with open(os.path.join(control, "logs", "HEAD"), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _read(path: str, most_bytes: int) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(most_bytes)
    except OSError:
        return ""


# Version-control operations under way in the sources, seen by their lock files.
#
# Only names and times of a repository's files are read.

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
"""An operation of several steps without a changed file for this long waits for the user, and the engine continues (seconds)."""
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
        """Return the path of a lock that is held, or of an operation under way; "" without one."""
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
            if kind == ".git" and os.path.isfile(path) and (control := _worktree_of(path)) is not None:
                return kind, control
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _worktree_of(file: str) -> str | None:
    """Return where the `.git` file of a work tree or submodule points."""
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as stream:
            text = stream.read(4096)
    except OSError:
        return None
    name, _colon, path = text.partition(":")
    return os.path.normpath(os.path.join(os.path.dirname(file), path.strip())) if name == "gitdir" and path.strip() else None

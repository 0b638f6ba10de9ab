"""Reads repositories: the commit that is checked out, authors and contents of commits, and operations that are in progress.

The commit is read from Git's files without running Git; authors and contents are read by running Git. If one of Git's files is
malformed, the commit counts as unknown, and sessions are reported without a commit. Operations (a rebase, a checkout) are
recognised by the names and times of a repository's files, also for other version-control systems.

Tests: `tests/shared/files/test_git.py`, `tests/shared/files/test_repositories.py`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.shared.files.replacing import read_regular

if TYPE_CHECKING:
    import subprocess

_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")
_TAIL_BYTES = 4096
"""Number of bytes that are read at the end of the log of HEAD, to find its last line."""
_SECONDS_DIGITS = 12
"""A time (seconds) with this number of digits or more is regarded as malformed."""
_TEXT_BYTES, _PACKED_BYTES = 64 * 1024, 16 << 20
"""Maximum number of bytes that are read of a small file of Git, and of its list of packed branches."""


class CheckoutHead(Struct, frozen=True):
    """The commit that is checked out, in hex; "" = unknown.

    `is_made_here`: HEAD moved because the user committed, so no file changed. `left` is the commit that HEAD had before, and
    `moved_ms` is the time of the move; both are from the log of HEAD, which has times in seconds.
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
            return read_worktree_link(path)
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def read_worktree_link(file: str) -> str:
    """Return the control folder that the `.git` file of a work tree or submodule names, "" if the file names none."""
    name, _colon, target = _read(file, _TEXT_BYTES).partition(":")
    return os.path.normpath(os.path.join(os.path.dirname(file), target.strip())) if name == "gitdir" and target.strip() else ""


def _resolve_branch(control: str, name: str) -> str:
    """Return the commit of a branch; the branches of a linked worktree are in the folder that all worktrees share."""
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
    lines = _read(os.path.join(control, "logs", "HEAD"), _TAIL_BYTES, is_tail=True).splitlines()
    return lines[-1] if lines else ""


def _read(path: str, most_bytes: int, *, is_tail: bool = False) -> str:
    """Return the text of a file, or of its end; "" if it cannot be read, or is a pipe or device."""
    try:
        return read_regular(path, most_bytes, is_tail=is_tail).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):  # ValueError: the path contains a NUL
        return ""


_GIT = (
    "git", "--literal-pathspecs", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false",
)  # fmt: skip
"""Beginning of every command line of git; it disables hooks, the monitor of file changes, and the check of signatures."""
_ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "LC_ALL": "C"}
"""Environment variables, so that git does not refresh the index, does not fetch objects, and writes messages in English."""
_GIT_LIMIT_S = 5.0
"""Default timeout of a run of git (seconds)."""


def run_git(
    folder: str | bytes | Path,
    *words: str,
    limit_s: float | None = _GIT_LIMIT_S,
    runs_filters: bool = True,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder. Git then runs no hook of the repository, and does not refresh the index.

    Args:
        limit_s: timeout in seconds; None = no timeout.
        runs_filters: whether git may run filters, which the configuration of the repository can name. Only commands that read or
            write files of the work tree need filters.
        environment: more variables of git.

    Raises:
        OSError, subprocess.TimeoutExpired: git is missing, cannot be run, or did not end within `limit_s`.
    """
    import subprocess  # imported here for a faster start: an engine usually does not run git, but reads the repository's files

    variables = {**os.environ, **_ENVIRONMENT, **(environment or {})}
    if not runs_filters:
        listed = [*_GIT, "config", "-z", "--name-only", "--get-regexp", r"^filter\."]
        found = subprocess.run(listed, cwd=folder, capture_output=True, check=False, timeout=limit_s, env=variables)
        variables |= _disable_filters(os.fsdecode(found.stdout))
    return subprocess.run([*_GIT, *words], cwd=folder, capture_output=True, check=False, timeout=limit_s, env=variables)


def _disable_filters(keys: str) -> dict[str, str]:
    """Return variables of git that disable filters, given their NUL-separated configuration keys.

    Variables are used because the name of a filter may contain `=`, which ends a key after `-c`.
    """
    names = sorted({key.removeprefix("filter.").rpartition(".")[0] for key in keys.split("\0") if key})
    values = {"clean": "", "smudge": "", "process": "", "required": "false"}
    settings = [(f"filter.{name}.{part}", value) for name in names for part, value in values.items()]
    given = os.environ.get("GIT_CONFIG_COUNT", "")
    start = int(given) if given.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(start + len(settings))}
    for number, (key, value) in enumerate(settings, start):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def ask_git(folder: Path, *words: str) -> str | None:
    """Return the output of git as text, None if git fails or is missing."""
    output = read_git(folder, *words)
    return None if output is None else output.decode("utf-8", "replace").strip()


def read_git(folder: Path, *words: str) -> bytes | None:
    """Return the output of git as bytes, None if git fails or is missing."""
    import subprocess

    try:
        done = run_git(folder, *words)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def author_of(folder: Path, commit: str) -> str:
    """Return the name of a commit's author, "" if git does not know it. Starts git: call it in a thread, once for each commit."""
    return (ask_git(folder, "log", "-1", "--format=%an", commit, "--") or "") if _COMMIT.match(commit) else ""


# ------------------------------------------------------------------------------------------------- operations in progress

_LOCKS = {
    ".git": ("index.lock",),
    ".hg": ("wlock", "store/lock"),
    ".svn": ("lock",),
    ".jj": ("working_copy/working_copy.lock",),
}
_OPERATIONS = {".git": ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "sequencer")}
"""Files and folders that exist during an operation of several steps, for example a rebase.

They also exist while the operation waits for the user.
"""
_PULSE = {".git": ("index", "HEAD", "ORIG_HEAD", "logs/HEAD", "rebase-merge", "rebase-apply")}
"""Files and folders that the program keeps changing while it works on an operation, but not while it waits for the user."""
QUIET_S = 1.0
"""If no file in `_PULSE` changed for this time (seconds), a version-control operation is considered to wait for the user.

The engine then no longer holds back the changes of files.
"""
STALE_S = 60.0
"""Age (seconds) from which a lock file is considered to be left by a program that died."""


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
        """Return the path of a lock file, or of a file or folder that exists only during an operation.

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

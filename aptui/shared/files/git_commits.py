"""Finds the commit that is checked out, from Git's files without running Git, and the authors of commits, by running Git.

If a file of Git is malformed, the commit is unknown: a session without a commit is reported as well.

Tests: `tests/shared/files/test_git_commits.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from msgspec import Struct

_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")
_TAIL_BYTES = 4096
_SECONDS_DIGITS = 12
_TEXT_BYTES = 64 * 1024
_PACKED_BYTES = 16 << 20


class CheckoutHead(Struct, frozen=True):
    """A commit in hex, "" = unknown. `is_made_here`: HEAD moved because a commit was made, so no file changed.

    `left` is the previous commit of HEAD, and `moved_ms` the time of the move. The log of HEAD has both, with times in seconds.
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
    try:
        with open(os.path.join(control, "logs", "HEAD"), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _read(path: str, most_bytes: int) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(most_bytes)
    except OSError:
        return ""


_GIT = (
    "git", "--literal-pathspecs", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false",
)  # fmt: skip
_ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "LC_ALL": "C"}
"""Command line of git that disables all programs that a repository's configuration can name, and does not fetch missing objects."""
_GIT_LIMIT_S = 5.0


def run_git(folder: str | bytes | Path, *words: str, limit_s: float = _GIT_LIMIT_S) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder. Git then runs no program that the repository names, and does not refresh the index.

    Raises:
        OSError, subprocess.TimeoutExpired: git is missing, cannot be run, or did not end within `limit_s`.
    """
    environment = {**os.environ, **_ENVIRONMENT}
    return subprocess.run([*_GIT, *words], cwd=folder, capture_output=True, check=False, timeout=limit_s, env=environment)


def ask_git(folder: Path, *words: str) -> str | None:
    """Return the output of git as text, None if git fails or is missing."""
    output = read_git(folder, *words)
    return None if output is None else output.decode("utf-8", "replace").strip()


def read_git(folder: Path, *words: str) -> bytes | None:
    """Return the output of git as bytes, None if git fails or is missing."""
    try:
        done = run_git(folder, *words)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def author_of(folder: Path, commit: str) -> str:
    """Return the name of a commit's author, "" if git does not know it. Starts git: call it in a thread, once for each commit."""
    return (ask_git(folder, "log", "-1", "--format=%an", commit, "--") or "") if _COMMIT.match(commit) else ""

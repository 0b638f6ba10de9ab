"""The files of the scan folders for relocations: names in folders, renames, deletions, empty folders, Git.

Nothing outside the scan folders is changed.

Tests: `tests/features/relocation/test_relocate.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aptui.config.configuration import Config
from aptui.config.own_files import own_paths
from aptui.core.paths import from_text, is_below, to_text
from aptui.core.patterns import ignore_matcher
from aptui.core.project import ScanFolder
from aptui.features.relocation.text_references import is_read_only
from aptui.shared.errors import UserError

BEGUN = ".aptui-tmp"
"""Suffix of a file that is being moved to another file system."""


def native(path: str) -> str:
    """Return a path in text form as Python's file functions expect it."""
    return os.fsdecode(from_text(path))


class DiskTree:
    """The scan folders of a project (`relocation_patterns.Tree`).

    Scan folders in the cache and aptui's own files cannot be moved.
    """

    def __init__(self, config: Config) -> None:
        self._own = (str(config.cache_dir), str(config.log_dir), *own_paths(config))
        self._folders = tuple(folder for folder in config.project.scan_folders if not self._is_ours(folder.path))
        self.is_ignored = ignore_matcher(config.project.ignore_regex)
        self._listed: dict[str, tuple[list[str], list[str]]] = {}

    @property
    def folders(self) -> Sequence[ScanFolder]:
        """The project's scan folders without those in the cache, in order of priority."""
        return self._folders

    def _is_ours(self, path: str) -> bool:
        return any(path == own or is_below(path, own) for own in self._own)

    def owner(self, path: str) -> tuple[ScanFolder, str] | None:
        """Return the scan folder of an absolute path and the relative path in it; None if no scan folder contains it."""
        if self._is_ours(path) or ".." in path.split("/"):
            return None
        for folder in self._folders:
            rel = path[len(folder.path) + 1 :]
            if is_below(path, folder.path) and (folder.recursive or "/" not in rel):
                return folder, rel
        return None

    def exists(self, path: str) -> bool:
        """Whether an absolute path exists; links are not followed."""
        return os.path.lexists(native(path))

    def is_folder(self, path: str) -> bool:
        """Whether an absolute path is a folder or a link to a folder."""
        return os.path.isdir(native(path))

    def names(self, folder: ScanFolder, rel: str) -> tuple[Sequence[str], Sequence[str]]:
        """Return the names of (folders, files) directly in a relative folder of `folder`; links to folders are omitted."""
        path = f"{folder.path}/{rel}" if rel else folder.path
        folders, files = self._list(path)
        owned = [
            name for name in folders if not self._is_ours(f"{path}/{name}") and not self.is_ignored(f"{rel}/{name}".lstrip("/"))
        ]
        return owned, [name for name in files if (found := self.owner(f"{path}/{name}")) is not None and found[0] is folder]

    def like(self, path: str) -> list[str]:
        """Return the files in the same folder whose absolute path is `path` or differs only in case."""
        above, _, name = path.rpartition("/")
        folders, files = self._list(above)
        return [f"{above}/{other}" for other in (*files, *folders) if other.lower() == name.lower()]

    def _list(self, path: str) -> tuple[list[str], list[str]]:
        known = self._listed.get(path)
        if known is None:
            known = self._listed[path] = ([], [])
            with contextlib.suppress(OSError), os.scandir(native(path)) as found:
                for entry in sorted(found, key=lambda entry: entry.name):
                    if entry.is_dir(follow_symlinks=False):
                        known[0].append(to_text(os.fsencode(entry.name)))
                    elif not (entry.is_symlink() and entry.is_dir()):
                        known[1].append(to_text(os.fsencode(entry.name)))
        return known

    # ------------------------------------------------------------------------------------------------------------- objections

    def why_not_ours(self, path: str) -> str:
        """Return why an absolute path is not a movable file of a scan folder, "" if it is."""
        found = self.owner(path)
        if found is None:
            return "it is outside the scan folders"
        link = _link_above(found[0].path, found[1])
        return f"'{link}' is a link" if link else ""

    def why_not_from(self, path: str, *, ignores_mode: bool = False) -> str:
        """Return why a file cannot be moved or deleted, "" if it can."""
        why = self.why_not_ours(path)
        if why:
            return why
        name = native(path)
        try:
            seen = os.lstat(name)
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        if not (stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode)):
            return "it is not a file"
        if stat.S_ISREG(seen.st_mode) and not ignores_mode and is_read_only(name, seen):
            return "the file is read-only"
        return "" if os.access(os.path.dirname(name), os.W_OK) else f"the folder '{os.path.dirname(path)}' is read-only"

    def why_not_to(self, old: str, new: str) -> str:
        """Return why the file `old` cannot be moved to `new`, "" if it can."""
        found = self.owner(new)
        if found is None:
            return "the destination is outside the scan folders"
        link = _link_above(found[0].path, found[1])
        if link:
            return f"'{link}' in the destination is a link"
        there = self.like(new)
        if there and self.is_folder(there[0]):
            return "the destination is a folder; end it with '/' to move the file into it"
        if there:
            return "the destination exists" if new in there else f"the destination exists as '{there[0]}'"
        name = native(old)
        if os.path.islink(name) and not os.path.isabs(Path(name).readlink()) and os.path.dirname(old) != os.path.dirname(new):
            return "it is a link relative to its folder"
        return self._why_not_in(os.path.dirname(new))

    def _why_not_in(self, folder: str) -> str:
        while not os.path.lexists(native(folder)):
            folder = os.path.dirname(folder)
        if not os.path.isdir(native(folder)):
            return f"'{folder}' is not a folder"
        return "" if os.access(native(folder), os.W_OK) else f"the folder '{folder}' is read-only"

    def is_ignored_at(self, rel: str) -> bool:
        """Whether the scan would ignore a file with this relative path."""
        parts = rel.split("/")
        return any(self.is_ignored("/".join(parts[: at + 1])) for at in range(len(parts)))

    def overridden_by(self, folder: ScanFolder, rel: str) -> str:
        """Return the file of a scan folder with higher priority that overrides `rel` of `folder`, "" if none does."""
        for other in self._folders:
            if other is folder:
                return ""
            found = [path for path in self.like(f"{other.path}/{rel}") if (owner := self.owner(path)) and owner[0] is other]
            if found:
                return found[0]
        return ""


def _link_above(root: str, rel: str) -> str:
    """Return the first folder between a scan folder and a file in it that is a link, "" if all are real folders."""
    path = root
    for part in rel.split("/")[:-1]:
        path = f"{path}/{part}"
        if os.path.islink(native(path)):
            return path
    return ""


# ----------------------------------------------------------------------------------------------------------------- actions


def move(old: str, new: str) -> list[str]:
    """Move one file to a free path; return the folders that were created for it.

    Raises:
        OSError: the file was not moved.
    """
    source, target = native(old), native(new)
    made = _make_folders(os.path.dirname(target))
    try:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        try:
            Path(source).rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _carry(source, target)
    except OSError:
        for folder in made:
            with contextlib.suppress(OSError):
                Path(native(folder)).rmdir()
        raise
    return made


def _carry(source: str, target: str) -> None:
    """Move a file to another file system; the target never exists with only a part of the content."""
    temporary = f"{target}{BEGUN}"
    try:
        shutil.copy2(source, temporary, follow_symlinks=False)
        Path(temporary).rename(target)
        Path(source).unlink()
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def _make_folders(folder: str) -> list[str]:
    made: list[str] = []
    while not os.path.isdir(folder):
        made.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(made):
        Path(path).mkdir(exist_ok=True)
    return [to_text(os.fsencode(path)) for path in made]


def delete(path: str) -> None:
    """Delete one file.

    Raises:
        OSError: the file was not deleted.
    """
    Path(native(path)).unlink()


def remove_empty(folder: str, root: str, keeps: Sequence[str]) -> list[str]:
    """Remove a folder and its parents below `root` while they are empty, except `keeps` (scan folders); return the removed ones."""
    gone: list[str] = []
    while is_below(folder, root) and folder not in keeps:
        try:
            Path(native(folder)).rmdir()
        except OSError:
            break
        gone.append(folder)
        folder = os.path.dirname(folder)
    return gone


# Relocations of files that Git tracks: `git mv`, `git rm`, if the user requests them.

_LIMIT_S = 120.0


class Git:
    """The work tree that contains a folder; without a work tree no file is tracked.

    Raises:
        UserError: the program `git` is not installed.
    """

    def __init__(self, folder: str) -> None:
        self._folder = native(folder)
        code, output = self._run("rev-parse", "--show-toplevel")
        self.top = "" if code else output.rstrip("\n")

    def list_tracked(self) -> set[str]:
        """Return the absolute paths of all tracked files in the folder."""
        code, output = self._run("ls-files", "-z") if self.top else (1, "")
        folder = to_text(os.fsencode(self._folder))
        return set() if code else {f"{folder}/{to_text(os.fsencode(name))}" for name in output.split("\0") if name}

    def move(self, old: str, new: str) -> None:
        """Move a tracked file.

        Raises:
            OSError: Git refuses; the file was not moved.
        """
        os.makedirs(os.path.dirname(native(new)), exist_ok=True)
        self._do("mv", "--", native(old), native(new))

    def delete(self, path: str) -> None:
        """Delete a tracked file.

        Raises:
            OSError: Git refuses; the file was not deleted.
        """
        self._do("rm", "--quiet", "--", native(path))

    def _do(self, *words: str) -> None:
        code, output = self._run(*words)
        if code:
            raise OSError(code, f"git reports: {' '.join(output.split())}")

    def _run(self, *words: str) -> tuple[int, str]:
        environ = {**os.environ, "GIT_LITERAL_PATHSPECS": "1", "LC_ALL": "C"}
        try:
            done = subprocess.run(  # fixed program; the arguments are constants and paths
                ["git", "-C", self._folder, *words],
                capture_output=True, timeout=_LIMIT_S, check=False, env=environ,
            )  # fmt: skip
        except FileNotFoundError:
            raise UserError("'git' is not installed", hint="install it, or omit the switch for version control") from None
        except subprocess.TimeoutExpired:
            return 1, "timeout"
        return done.returncode, os.fsdecode(done.stdout if not done.returncode else done.stderr)

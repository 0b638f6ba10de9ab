"""Files and folders of a cache on the disk: refuse links and devices at their paths; stamp, place and remove files.

`cache` decides which files are products. Tests: `tests/engine/cache/test_cache.py`, `test_places.py`.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.config.dirs import OWN_FOLDER
from aptui.core.paths import as_text, cache_path, from_text
from aptui.shared.errors import UserError
from aptui.shared.files.confinement import ConfinedTree

if TYPE_CHECKING:
    import socket

    from aptui.core.messages import JobCommit


# Checks whether aptui may use a cache folder: none of its folders may be a link or made by another program. Also removes trees of
# files.
#
# Nothing here writes or deletes a product.

_OWN_FOLDERS = frozenset(("staging", "trash", "logs", "temp"))
"""Names of the folders in `.aptui`, aptui's own folder in the cache."""
_ELSEWHERE = "set 'cache' (or 'logs') to that folder, or mount that folder here"


def refuse_other_kinds(root: Path, folders: Iterable[str], files: Iterable[str]) -> None:
    """Raise UserError if a link, a device, a pipe or a socket is at the path of a file or folder of the cache.

    A link leads to files outside the cache. Those files are not products, and the engine must not write or delete them.

    Args:
        folders: names of folders in the cache; those in `.aptui` are checked too.
        files: names of files in the cache.
    """
    for name in (OWN_FOLDER, *folders):
        _refuse_other_kind(root / cache_path(name), is_folder=True)
    for name in files:
        _refuse_other_kind(root / name, is_folder=False)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root / OWN_FOLDER) as found:
        for entry in found:
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name in _OWN_FOLDERS or not (is_folder or entry.is_file(follow_symlinks=False)):
                _refuse_other_kind(Path(entry.path), is_folder=entry.name in _OWN_FOLDERS)


def _refuse_other_kind(path: Path, *, is_folder: bool) -> None:
    try:
        found = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(found):
        raise UserError(
            f"'{path}' is a link to '{os.readlink(path)}', and aptui does not write or delete files behind links",
            hint=f"remove the link; to store the files in another folder, {_ELSEWHERE}",
        )
    if not (stat.S_ISDIR(found) if is_folder else stat.S_ISREG(found)):
        raise UserError(
            f"'{path}' is not a {'folder' if is_folder else 'file'}", hint="move it away; aptui then creates what it needs"
        )


def refuse_foreign(root: Path, platforms: Iterable[str]) -> None:
    """Raise UserError if a new cache folder already contains a non-empty folder with a platform's name."""
    for platform in platforms:
        folder = root / cache_path(platform)
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(
                f"'{root}' contains a folder '{platform}' that aptui did not make",
                hint="choose another 'cache', or move that folder away",
            )


def empty_in_background(folder: int) -> None:
    """Remove all contents of an open folder without waiting: the shell starts `rm` in the background and ends."""
    names = os.listdir(folder)
    if not names:
        return
    import subprocess

    subprocess.run(
        ["/bin/sh", "-c", 'rm -rf -- "$@" </dev/null >/dev/null 2>&1 &', "sh", *(f"./{name}" for name in names)],
        # the folder is given by its descriptor, because another folder or a link may be at its path by now
        cwd=f"/proc/self/fd/{folder}",
        start_new_session=True,
        check=False,
    )


Stamp = tuple[int, int, int]
"""(size, mtime_ns, inode): none of them changes when this machine's result store adds a hard link to the file."""


def close_to_others(path: Path) -> None:
    """Remove other users' access to a file or folder if this user owns it."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


NO_FOLDER = -1
"""Used instead of a ctime if the folder does not exist, or its path leads to something other than a folder."""


def read_ctime_ns(path: bytes) -> int:
    """Return the ctime of a folder (ns since 1970), or `NO_FOLDER`. Unlike the mtime, no program can set the ctime back."""
    try:
        found = os.lstat(path)
    except OSError:
        return NO_FOLDER
    return found.st_ctime_ns if stat.S_ISDIR(found.st_mode) else NO_FOLDER


_FEWEST_APART, _MOST_HELD = 8, 250
"""Minimum and maximum number of held files that are passed to a thread in one message.

For fewer files, starting a thread costs more than it saves. One message can carry at most 253 descriptors (SCM_MAX_FD).
"""


class ReplacedFiles:
    """Files that are about to lose their last name, held open so that commits do not wait for the disk to free their blocks.

    A call that removes a file's last name also frees the file's blocks, unless the file is open. On a file system with `discard`,
    each such call waits for the disk, and a rename blocks all other renames during the wait. To avoid this, the files are held
    open: their descriptors are sent in a socket message that nothing reads. Later a thread closes the socket, which frees all
    held files in one call and without the interpreter lock.
    """

    def __init__(self, count: int) -> None:
        self._is_worth_it = count >= _FEWEST_APART
        self._held: list[int] = []
        self._sockets: tuple[socket.socket, ...] = ()

    def hold(self, name: bytes, folder: int) -> None:
        """Open the file `name` in the folder with the descriptor `folder`, if it exists, so that its blocks are not freed yet."""
        if self._is_worth_it:
            with contextlib.suppress(OSError):
                self._held.append(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder))
            if len(self._held) >= _MOST_HELD:
                self._send()

    def close(self) -> None:
        """Close the held files. If there are many, a thread does this, because freeing their blocks may take long."""
        self._send()
        if self._sockets:
            threading.Thread(target=_close_all, args=(self._sockets,), name="freeing").start()
            self._sockets = ()

    def _send(self) -> None:
        held, self._held = self._held, []
        try:
            if len(held) >= _FEWEST_APART:
                import socket  # imported here, because small commits do not need the module

                self._sockets = self._sockets or socket.socketpair()
                self._sockets[0].setblocking(False)  # a full socket would wait forever, because nothing reads from it
                socket.send_fds(self._sockets[0], [b"-"], held)
        except OSError:
            pass  # too many descriptors are open or queued in sockets, so this thread closes the files
        finally:
            for descriptor in held:
                os.close(descriptor)


class Placement:
    """The renames of one commit.

    A rename from outside the folder `staging` or through a link is refused, even if a worker reports such a path.
    """

    def __init__(self, staging: Path, root: bytes, replaced: ReplacedFiles) -> None:
        self._staging = str(staging)
        self._prefixes = {f"{staging}/", f"{as_text(str(staging))}/"}
        self._sources, self._targets, self._replaced = ConfinedTree(os.fsencode(staging)), ConfinedTree(root), replaced

    def make_folder(self, path: bytes) -> bool:
        """Make a folder of the cache and the folders above it; return False if it exists. Raises OSError."""
        return self._targets.make_folder(path)

    def move(self, staged: str, path: bytes) -> None:
        """Rename a staged file to a path in the cache; raises OSError."""
        folder, _, name = path.rpartition(b"/")
        self._replaced.hold(name, self._targets.descriptor_of(folder))
        self._sources.move(self._below(staged), self._targets, path)

    def sync(self, commits: Iterable[JobCommit]) -> dict[int, str]:
        """Make the staged products of commits durable; return {run key: reason} for each commit that failed."""
        from aptui.worker.file_access import (
            SYNC_EACH_BELOW,
            sync_file_system,
            sync_open,
        )  # imported here, because an engine without work does not need the module

        staged = [(commit.run_key, path, product.name) for commit in commits for path, product in commit.products]
        opened: list[tuple[int, int, str]] = []
        failed: dict[int, str] = {}

        def fail(run_key: int, name: str, why: str | None) -> None:
            failed.setdefault(run_key, f"product '{name}' cannot be saved on the disk: {why}")

        try:
            if len(staged) >= SYNC_EACH_BELOW:
                sync_file_system(self._staging)
                return {}
            for run_key, path, name in staged:
                try:
                    opened.append((self._sources.open_file(self._below(path)), run_key, name))
                except OSError as error:
                    fail(run_key, name, error.strerror)
            unsynced = sync_open([descriptor for descriptor, _run_key, _name in opened])
            for descriptor, run_key, name in opened:
                if descriptor in unsynced:
                    fail(run_key, name, unsynced[descriptor])
        except OSError as error:
            for run_key, _path, name in staged:
                fail(run_key, name, error.strerror)
        finally:
            for descriptor, _run_key, _name in opened:
                os.close(descriptor)
        return failed

    def _below(self, staged: str) -> bytes:
        """Return the path of a reported file relative to `staging`; b"", which is refused, if the file is not in `staging`."""
        return from_text(next((staged[len(prefix) :] for prefix in self._prefixes if staged.startswith(prefix)), ""))

    def close(self) -> None:
        """Close all open folders; the next rename opens its folders again."""
        self._sources.close()
        self._targets.close()


def _close_all(sockets: tuple[socket.socket, ...]) -> None:
    for each in sockets:
        each.close()


def stamp_of(path: bytes) -> Stamp | None:
    """Return the stamp of a file, None if it does not exist."""
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns, seen.st_ino

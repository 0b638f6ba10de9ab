"""Files and folders of a cache as they lie on the disk: opened without following a link, closed to others, stamped, removed.

Which of them are products is the business of `cache`. Tests: `tests/engine/cache/test_cache.py`, `test_places.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.core.paths import cache_path, from_text, to_text
from aptui.shared.errors import UserError

if TYPE_CHECKING:
    import socket


# Whether a cache folder may be ours: no links in the place of our folders, no folders that others made; and removing old trees.
#
# Nothing here writes or deletes a product.


def refuse_links(root: Path, names: Iterable[str]) -> None:
    """Raise UserError for a link in the place of a folder of ours.

    It leads to files of others: they are no products, and not ours to delete.
    """
    for name in names:
        folder = root / cache_path(name)
        if folder.is_symlink():
            raise UserError(
                f"'{folder}' is a link to '{os.readlink(folder)}': products are not written or deleted behind links",
                hint="remove the link; to have products elsewhere, set 'cache' to that place or mount it there",
            )


def refuse_foreign(root: Path, platforms: Iterable[str]) -> None:
    """Raise UserError for a platform's folder that has something in it, in a folder that is no cache yet."""
    for platform in platforms:
        folder = root / cache_path(platform)
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(
                f"'{root}' holds a folder '{platform}' that aptui did not make",
                hint="choose another 'cache', or move that folder away",
            )


def remove_in_background(paths: Sequence[str]) -> None:
    """Remove trees without holding anybody up: the shell leaves `rm` behind."""
    if not paths:
        return
    import subprocess

    subprocess.run(
        ["/bin/sh", "-c", 'rm -rf -- "$@" </dev/null >/dev/null 2>&1 &', "sh", *paths],
        start_new_session=True,
        check=False,
    )


Stamp = tuple[int, int, int]
"""(size, mtime_ns, inode): what stays as it is when another name is given to a file, as the store of this machine does."""


def close_to_others(path: Path) -> None:
    """Take other users' access to a file or folder of ours away; what is somebody else's stays as it is."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
            path.chmod(stat.S_IMODE(found.st_mode) & 0o700)


@contextlib.contextmanager
def open_folder(root: bytes, folder: str) -> Iterator[int]:
    """Open a folder of the cache `root` without following a link on the way (ELOOP)."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in from_text(cache_path(folder)).split(b"/") if folder else ():
            try:
                inner = os.open(name, flags, dir_fd=descriptor)
            except NotADirectoryError as error:  # what O_DIRECTORY says of a link
                if stat.S_ISLNK(os.lstat(name, dir_fd=descriptor).st_mode):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from error
                raise
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


NO_FOLDER = -1
"""In place of the ctime of a folder that does not exist, or in whose place something else lies."""


def read_ctime_ns(path: bytes) -> int:
    """Return the ctime of a folder (ns since 1970), or `NO_FOLDER`. No program can set it back, unlike the mtime."""
    try:
        found = os.lstat(path)
    except OSError:
        return NO_FOLDER
    return found.st_ctime_ns if stat.S_ISDIR(found.st_mode) else NO_FOLDER


_FOLDERS_OPEN = 16
"""More than there are platforms, nearly always."""


class OpenFolders:
    """The folders of the cache `root` that were opened last, kept open.

    Of the products of a commit many lie in one, and those of one source in one for each platform, turn and turn about.
    """

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._open: dict[str, tuple[int, contextlib.ExitStack]] = {}
        """{folder: its descriptor, and what closes it}, the one that was asked for longest ago first."""

    def descriptor_of(self, folder: str) -> int:
        """Return a descriptor of a folder that was opened as `open_folder` does; it counts until the next call."""
        found = self._open.pop(folder, None)
        if found is None:
            if len(self._open) >= _FOLDERS_OPEN:
                self._open.pop(next(iter(self._open)))[1].close()
            held = contextlib.ExitStack()
            found = held.enter_context(open_folder(self._root, folder)), held
        self._open[folder] = found
        return found[0]

    def close(self) -> None:
        """Let go of them; whoever asks then has a folder opened anew."""
        while self._open:
            self._open.popitem()[1][1].close()


_FEWEST_APART, _MOST_HELD = 8, 250
"""A thread costs as much as some files; one message takes 253 descriptors (SCM_MAX_FD)."""


class ReplacedFiles:
    """Files that are about to lose their names, held open so that a commit need not wait until the disk has freed their blocks.

    A call that takes a file's last name frees it before it returns; on a file system with `discard` it waits for the disk each
    time, and a rename keeps all other renames waiting meanwhile. A thread frees all that were held with one call, for which it
    does not need the interpreter: they are in a message that nobody reads, and the socket is closed.
    """

    def __init__(self, count: int) -> None:
        self._is_worth_it = count >= _FEWEST_APART
        self._held: list[int] = []
        self._sockets: tuple[socket.socket, ...] = ()

    def hold(self, name: bytes, folder: int) -> None:
        """Hold the file of this name in an open folder, if there is one."""
        if self._is_worth_it:
            with contextlib.suppress(OSError):
                self._held.append(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder))
            if len(self._held) >= _MOST_HELD:
                self._send()

    def close(self) -> None:
        """Let go of them."""
        self._send()
        if self._sockets:
            threading.Thread(target=_close_all, args=(self._sockets,), name="freeing").start()
            self._sockets = ()

    def _send(self) -> None:
        held, self._held = self._held, []
        try:
            if len(held) >= _FEWEST_APART:
                import socket  # where little is placed nobody pays for it

                self._sockets = self._sockets or socket.socketpair()
                socket.send_fds(self._sockets[0], [b"-"], held)
        except OSError:
            pass  # no descriptors, or too many on their way: then they are freed here
        finally:
            for descriptor in held:
                os.close(descriptor)


class Placement:
    """The renames of one commit: out of the folder `staging` alone, over no link, whatever place a worker reports for a product."""

    def __init__(self, staging: Path, root: bytes, replaced: ReplacedFiles) -> None:
        self._prefixes = {f"{staging}/", f"{to_text(os.fsencode(staging))}/"}
        self._sources, self._targets, self._replaced = OpenFolders(os.fsencode(staging)), OpenFolders(root), replaced

    def move(self, staged: str, folder: str, file: bytes) -> None:
        """Rename a staged file to `file` in a folder of the cache; raises OSError."""
        below = next((staged[len(prefix) :] for prefix in self._prefixes if staged.startswith(prefix)), "")
        place, _, name = below.rpartition("/")
        if not {"", ".", ".."}.isdisjoint((*place.split("/"), name) if place else (name,)):
            raise PermissionError(errno.EPERM, "it was not staged")
        target = self._targets.descriptor_of(folder)
        self._replaced.hold(file, target)
        os.replace(from_text(name), file, src_dir_fd=self._sources.descriptor_of(place), dst_dir_fd=target)

    def close(self) -> None:
        """Let go of all folders; the next move opens its own."""
        self._sources.close()
        self._targets.close()


def _close_all(sockets: tuple[socket.socket, ...]) -> None:
    for each in sockets:
        each.close()


def remove_staged(path: str | bytes) -> None:
    """Remove what a run staged; nearly always that is two empty folders by now."""
    if os.path.isdir(path) and not os.path.islink(path):
        try:
            os.rmdir(os.path.join(os.fsencode(path), b"products"))
            os.rmdir(path)
        except OSError:
            import shutil

            shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)


def stamp_of(path: bytes) -> Stamp | None:
    """Return the stamp of a file, None when there is none."""
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns, seen.st_ino

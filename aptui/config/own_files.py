"""The files and folders that aptui itself stores or writes: they are never sources, in any folder.

There are two kinds: files and folders that the configuration or the environment names (cache, logs, stores, keys), and files
that a verb wrote for its user (`--junit FILE`, `--json > FILE`). A file of the second kind is recognized by its inode, size and
modification time, so it becomes a source when it is edited.

This module must be cheap to import, because even runs without work import it.

Tests: `tests/engine/test_own_files.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.config.dirs import xdg
from aptui.core.paths import is_below
from aptui.shared import printing
from aptui.shared.errors import KnownError
from aptui.shared.files.replacing import PRIVATE, replace_bytes

if TYPE_CHECKING:
    from aptui.config.configuration import Config

_LARGEST_LIST_BYTES = 32_768
"""When the list of written files reaches this size, its older half is dropped."""
_PRINTING = "printing "
"""Start of a file's state in the list of written files: "printing 123" = the process 123 redirects its output to the file.

For all other files, the state is their size and time.
"""
_being_written: set[str] = set()
"""Real paths of the files that this process is writing for its user."""


def own_paths(config: Config) -> tuple[str, ...]:
    """Return the absolute paths of aptui's files: in scan folders as a walk spells them, elsewhere with links resolved."""
    sharing, cluster = config.sharing, config.cluster
    places = (
        *map(str, (config.cache_dir, config.log_dir, config.temp_dir)),
        *(each for each in (sharing.local_store, sharing.store, cluster.store) if os.path.isabs(each)),
        *(sharing.team_key_file, sharing.signing_key_file, config.serve.tls_key, cluster.tls_key),
        *(xdg("XDG_CACHE_HOME", "~/.cache"), xdg("XDG_STATE_HOME", "~/.local/state"), xdg("XDG_CONFIG_HOME", "~/.config")),
    )
    roots = [(folder.path, os.path.realpath(folder.path)) for folder in config.project.scan_folders]
    found: dict[str, None] = {}
    for path in filter(None, places):
        real = os.path.realpath(path)
        if not any(is_below(real_root, real) for _root, real_root in roots):
            found[real] = None  # a link in a scan folder may lead to this path
        for root, real_root in roots:
            if is_below(path, root):
                found[path] = None
            if is_below(real, real_root):
                found[root + real[len(real_root) :]] = None
    return tuple(found)


class OwnFiles:
    """Distinguishes aptui's own files from sources.

    Args:
        paths: absolute paths of own folders and files (`own_paths`).
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self.paths = frozenset(paths)
        self._list_stamp = ""
        self._written: frozenset[str] = frozenset()
        self._written_inodes: frozenset[int] = frozenset()
        self._printing: list[tuple[int, int, int]] = []
        """(inode, device, process id) of each listed file to which a process writes its output.

        Processes that ended before the list was read are left out.
        """
        self.names: set[str] = set()
        self.inodes: set[int] = set()
        """Inodes of files that verbs wrote, and of files to which output is redirected.

        A scan calls `is_own_file` only for files whose name is in `names` or whose inode is in `inodes`, because a call for each
        file would be slow.
        """
        self._printed: set[tuple[int, int]] = set()

    def refresh(self) -> None:
        """Read the list of written files again if it changed.

        Also find the files to which processes of aptui redirect their output.
        """
        path = _list_path()
        with suppress(OSError):
            now = _stamp(os.stat(path))
            if now != self._list_stamp:
                with open(path, encoding="ascii", errors="replace") as stream:
                    self._read_list(stream.read().split("\n"))
                self._list_stamp = now
        self.names = {os.path.basename(path) for path in (*self.paths, *_being_written)}
        self._printed = {(seen.st_ino, seen.st_dev) for _descriptor, seen in printing.find_redirected()}
        self._printed.update((inode, device) for inode, device, process in self._printing if _is_alive(process))
        self.inodes = {*self._written_inodes, *(inode for inode, _device in self._printed)}

    def _read_list(self, lines: list[str]) -> None:
        self._written, self._printing = frozenset(lines), []
        inodes: set[int] = set()
        for line in self._written:
            with suppress(ValueError):  # an incomplete line is ignored
                inode, device, state = line.split(" ", 2)
                inodes.add(int(inode))
                if state.startswith(_PRINTING) and _is_alive(process := int(state[len(_PRINTING) :])):
                    self._printing.append((int(inode), int(device), process))
        self._written_inodes = frozenset(inodes)

    def is_own_folder(self, path: str) -> bool:
        """Whether a folder is one of aptui's own folders, for example the cache."""
        return path in self.paths

    def is_own_file(self, path: str, seen: os.stat_result) -> bool:
        """Whether a file is one of aptui's own files.

        Args:
            seen: its status, links followed.
        """
        if seen.st_ino in self.inodes and ((seen.st_ino, seen.st_dev) in self._printed or _stamp(seen) in self._written):
            return True
        is_named = path.rpartition("/")[2] in self.names
        return is_named and (path in self.paths or os.path.realpath(path) in _being_written)


def is_own(path: str, config: Config) -> bool:
    """Return whether a file of a scan folder (absolute path), or a folder above it, is aptui's."""
    own = OwnFiles(own_paths(config))
    own.refresh()
    with suppress(OSError):
        if own.is_own_file(path, os.stat(path)):
            return True
    return any(path == each or is_below(path, each) for each in own.paths)


def note_written(path: str | int) -> None:
    """Record that aptui wrote a file (path or descriptor) for its user. The file is not a source until it is changed."""
    with suppress(OSError):
        _append(_stamp(os.stat(path)))


def note_printing(*, is_over: bool = False) -> None:
    """Record the files to which standard output and standard error are redirected, at the start of this process and at its end."""
    for descriptor, seen in printing.find_redirected():
        if is_over:
            note_written(descriptor)
        else:
            _append(f"{seen.st_ino} {seen.st_dev} {_PRINTING}{os.getpid()}")


@contextmanager
def writing(path: str | None) -> Iterator[None]:
    """Do not treat the file at `path`, which the block writes for the user, as a source. If `path` is None, do nothing.

    The file is not a source during the block, and after the block until the file is changed.
    """
    if path is None:
        yield
        return
    real = os.path.realpath(path)
    _being_written.add(real)
    try:
        yield
    finally:
        _being_written.discard(real)
        note_written(path)


def _append(line: str) -> None:
    # If the list of files that aptui wrote cannot be saved, the next scan treats the written file as a source.
    with suppress(OSError, KnownError):
        path = _list_path()
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            _shorten(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)


def _shorten(path: str) -> None:
    if os.stat(path).st_size > _LARGEST_LIST_BYTES:
        with open(path, encoding="ascii", errors="replace") as stream:
            lines = stream.read().splitlines()
        text = "".join(f"{line}\n" for line in lines[len(lines) // 2 :])
        replace_bytes(Path(path), text.encode("ascii", "replace"), mode=PRIVATE, is_synced=False)


def _stamp(seen: os.stat_result) -> str:
    return f"{seen.st_ino} {seen.st_dev} {seen.st_size} {seen.st_mtime_ns}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _list_path() -> str:
    return os.path.join(xdg("XDG_STATE_HOME", "~/.local/state"), "written-files")

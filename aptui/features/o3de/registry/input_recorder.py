"""Reads files and records each read. A later start repeats the reads to detect whether the configuration has changed.

Tests: `tests/features/o3de/registry/test_settings_registry.py`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable

from aptui.shared.errors import UserError

MAX_BYTES = 1 << 24
_LFS = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")
_FILE, _FOLDER, _NAMES = "file", "folder", "names"

Probe = tuple[str, str]
"""A recorded read: (its kind, absolute path)."""


class InputRecorder:
    """Reads files and folders, and records each read with a digest of its result ("" = the file or folder does not exist)."""

    def __init__(self) -> None:
        self.seen: dict[Probe, str] = {}

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, None if it does not exist.

        Raises:
            UserError: the file cannot be read, is not a regular file, is too large, or is a Git LFS pointer.
        """
        data = _read(path)
        self.seen[_FILE, path] = "" if data is None else hashlib.sha256(data).hexdigest()
        if data is not None and data.startswith(_LFS):
            raise UserError("the file is only a Git LFS pointer", where=path, hint="run 'git lfs pull' to download the content")
        if data is not None and len(data) > MAX_BYTES:
            raise UserError(f"the file is larger than {MAX_BYTES >> 20} MiB", where=path, hint="check that this is a settings file")
        return data

    def is_folder(self, path: str) -> bool:
        """Whether a folder exists."""
        found = os.path.isdir(path)
        self.seen[_FOLDER, path] = "yes" if found else ""
        return found

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder, [] if it does not exist."""
        found = _names(path)
        self.seen[_NAMES, path] = "" if found is None else _digest_of(found)
        return found or []

    def layers(self) -> tuple[tuple[str, str], ...]:
        """Return (file, SHA-256 in hex) of each file that was read, in order."""
        return tuple((path, digest) for (kind, path), digest in self.seen.items() if kind == _FILE and digest)

    def missing_folders(self) -> tuple[str, ...]:
        """Return the folders that did not exist."""
        return tuple(path for (kind, path), digest in self.seen.items() if kind == _FOLDER and not digest)

    def folders(self) -> tuple[str, ...]:
        """Return the folders that were listed."""
        return tuple(path for (kind, path), digest in self.seen.items() if kind == _NAMES and digest)


def probe_again(probes: Iterable[Probe]) -> dict[Probe, str]:
    """Repeat the reads of an earlier `InputRecorder`, and return their digests."""
    recorder = InputRecorder()
    for kind, path in probes:
        try:
            {_FILE: recorder.read, _FOLDER: recorder.is_folder, _NAMES: recorder.names}[kind](path)
        except UserError as error:
            recorder.seen[kind, path] = error.what
    return recorder.seen


def _read(path: str) -> bytes | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UserError("the path is not a regular file", where=path)
            return stream.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: the path contains a NUL, so the file cannot exist
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # a file with such a long name cannot exist
            return None
        raise UserError(f"the file cannot be read: {(error.strerror or str(error)).lower()}", where=path) from None


def _names(path: str) -> list[str] | None:
    try:
        return sorted(os.listdir(path))
    except (OSError, ValueError):
        return None


def _digest_of(names: list[str]) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()

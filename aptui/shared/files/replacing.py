"""Files that are written whole or not at all: beside their place under a hidden name, then put there in one step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from aptui.shared.errors import HostError, KnownError, UserError

PRIVATE = 0o600
"""Mode of what is its user's alone."""


@contextmanager
def replacing(path: Path, *, mode: int = 0o666, is_synced: bool = True, what: str = "") -> Iterator[BinaryIO]:
    """Give out a file to write to; when all went well it becomes `path`, else it goes and `path` is as it was.

    Args:
        mode: of the new file, less the process's umask.
        is_synced: it outlives a power cut.
        what: the file in messages; "" = its path.

    Raises:
        UserError: its folder is not there. HostError: it cannot be written.
    """
    begun = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(begun, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, mode)) as stream:
            yield stream
            stream.flush()
            if is_synced:
                os.fsync(stream.fileno())
        begun.replace(path)
    except OSError as error:
        raise not_written(what or f"'{path}'", error) from error
    finally:
        with suppress(OSError):
            begun.unlink()


def not_written(what: str, error: OSError) -> KnownError:
    """Return what to raise when a file that somebody named cannot be written."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return UserError(f"{what} cannot be written: its folder is not there", hint="create the folder, or name another file")
    reason = error.strerror or str(error)
    return HostError(f"{what} cannot be written: {reason}", hint="check its permissions and the free space on its disk")


def replace_bytes(path: Path, data: bytes, *, mode: int = 0o666, is_synced: bool = True) -> None:
    """Write a whole file; see `replacing`."""
    with replacing(path, mode=mode, is_synced=is_synced) as stream:
        stream.write(data)

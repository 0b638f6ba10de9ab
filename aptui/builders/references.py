"""Files that a source names: where they lie, and how they are declared as dependencies; what they hold is not here."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable

from aptui.builders import lfs
from aptui.sdk import LoadBehavior, PathDependency, PathDependencyKind, SourceDependency


class UnusableError(Exception):
    """A file that a source names cannot be used; the text is one line."""


def placed(source: str, path: str) -> str:
    r"""Return `path` as it is written in `source`, relative to the scan folder of that; one that climbs out begins with `..`.

    An absolute path stays absolute. `\` separates folders too: exporters on Windows write it.
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path.replace("\\", "/")))


def declared(scan_folder: str, paths: Iterable[str]) -> list[SourceDependency]:
    """Return dependencies on `paths` (relative to `scan_folder`, or absolute), each once, in their order.

    One that climbs out is made absolute: the engine finds the scan folder that it lies in, or warns.
    """
    return [SourceDependency(path) for path in _whole(scan_folder, paths)]


def needed(scan_folder: str, paths: Iterable[str], load: LoadBehavior) -> list[PathDependency]:
    """Return product dependencies on whatever is made of the sources at `paths`, told as in `declared`."""
    written = (f"./{path}" if path.startswith("!") else path for path in _whole(scan_folder, paths))  # "!" would exclude it
    return [PathDependency(path, PathDependencyKind.SOURCE_FILE, load) for path in written]


def _whole(scan_folder: str, paths: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(
        posixpath.normpath(posixpath.join(scan_folder, path)) if path.startswith("../") else path for path in paths
    )


def read(scan_folder: str, path: str) -> bytes:
    """Return the bytes of the file at `path`, relative to `scan_folder`.

    Raises:
        UnusableError: it is missing, cannot be read, or is a Git LFS pointer.
    """
    try:
        with open(os.path.join(scan_folder, path), "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise UnusableError(f"the file '{path}' is missing") from None
    except (OSError, ValueError) as error:
        raise UnusableError(f"the file '{path}' cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if lfs.is_pointer(data):
        raise UnusableError(lfs.pointer_error(path))
    return data

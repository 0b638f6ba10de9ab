"""Resolves the paths of files that a source names, and declares these files as dependencies. Their content is not parsed here."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from aptui.builders.files.kinds import is_pointer
from aptui.sdk import (
    CreateJobsRequest,
    ForbiddenNameError,
    LoadBehavior,
    NamedFileError,
    PathDependency,
    PathDependencyKind,
    ProcessJobRequest,
    SourceDependency,
    located,
)


def filter_allowed(request: CreateJobsRequest, paths: Iterable[str]) -> Iterator[str]:
    """Yield the `paths` that are inside the project.

    Paths outside the project are not opened; the job reports them (`check_names`).
    """
    for path in paths:
        try:
            located(request.scan_folder, path, request.scan_folders)
        except ForbiddenNameError:
            continue
        yield path


def check_names(request: ProcessJobRequest, paths: Iterable[str]) -> None:
    """Raise an error if the source names a path outside the project, even if the job does not read that file.

    Raises:
        ForbiddenNameError: a path is outside the project; the error names the first one.
    """
    for path in paths:
        located(request.scan_folder, path, request.scan_folders, request.source)


def place_parameter(path: str, source: str) -> str:
    """Return a path or pattern from a parameter, relative to the scan folder.

    A path that begins with `./` or `../` is relative to the source's folder; all other paths are returned unchanged.
    """
    is_beside = path.startswith(("./", "../"))
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if is_beside else path


def declare_sources(scan_folder: str, paths: Iterable[str]) -> list[SourceDependency]:
    """Return dependencies on `paths` (relative to `scan_folder`, or absolute), each once, in the order of `paths`.

    A path that leads out of the scan folder becomes absolute. The engine finds the scan folder that contains this path, or warns.
    """
    return [SourceDependency(path) for path in _whole(scan_folder, paths)]


def declare_needed(scan_folder: str, paths: Iterable[str], load: LoadBehavior) -> list[PathDependency]:
    """Return product dependencies on all products of the sources at `paths` (as in `declare_sources`)."""
    # `./` is put before a path that begins with "!", because a path dependency with a leading "!" would exclude files.
    written = (f"./{path}" if path.startswith("!") else path for path in _whole(scan_folder, paths))
    return [PathDependency(path, PathDependencyKind.SOURCE_FILE, load) for path in written]


def _whole(scan_folder: str, paths: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(
        posixpath.normpath(posixpath.join(scan_folder, path)) if path.startswith("../") else path for path in paths
    )


def read(request: CreateJobsRequest | ProcessJobRequest, path: str, named_by: str = "") -> bytes:
    """Return the bytes of the file at `path`, relative to the scan folder.

    `named_by` is the file that names `path`, by default the source.

    Raises:
        ForbiddenNameError: the file is outside the project, so the job must fail.
        NamedFileError: the file is missing, cannot be read, or is a Git LFS pointer.
    """
    data = request.read_named(path, named_by=named_by)
    if is_pointer(data):
        raise NamedFileError(f"{path}: the file is only a Git LFS pointer; run `git lfs pull` to download the content")
    return data

"""Recognises Git LFS pointer files, which stand in place of the real source. The callers decide how to handle a pointer file."""

from __future__ import annotations

import os

from aptui.sdk import ProcessJobRequest

LONGEST_POINTER_BYTES = 1024
"""A pointer file is smaller than this (git-lfs docs/spec.md, "The Pointer")."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ADVICE = "the file is only a Git LFS pointer; run `git lfs pull` to download the content"
_FIRST_LINES = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")


class PointerError(OSError):
    """The file is a Git LFS pointer: its content was not fetched."""


def source_bytes(request: ProcessJobRequest) -> bytes:
    """Return the bytes of the source.

    Raises:
        PointerError: the source is a Git LFS pointer. OSError: the source cannot be read.
    """
    data = request.read_source()
    if is_pointer(data):
        raise PointerError(_ADVICE)
    return data


def is_pointer(data: bytes) -> bool:
    """Return whether `data`, all bytes of a file, are a Git LFS pointer."""
    return len(data) < LONGEST_POINTER_BYTES and data.removeprefix(_BYTE_ORDER_MARK).startswith(_FIRST_LINES) and b"\noid " in data


def is_pointer_file(path: str) -> bool:
    """Return whether the file at `path` is a Git LFS pointer; at most 1 KiB is read."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size >= LONGEST_POINTER_BYTES:
            return False
        return is_pointer(file.read(LONGEST_POINTER_BYTES))


def pointer_error(source: str) -> str:
    """Return the error of a `source` that is a pointer, with the remedy."""
    return f"{source}: {_ADVICE}"

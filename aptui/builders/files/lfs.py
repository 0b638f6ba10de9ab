"""Recognise Git LFS pointer files, which stand where the real source should be; what else to do about them is not here."""

from __future__ import annotations

import os

LONGEST_POINTER_BYTES = 1024
"""A pointer is smaller than this (git-lfs docs/spec.md, "The Pointer")."""

_FIRST_LINES = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")


def is_pointer(data: bytes) -> bool:
    """Return whether `data`, all bytes of a file, are a Git LFS pointer."""
    return len(data) < LONGEST_POINTER_BYTES and data.startswith(_FIRST_LINES) and b"\noid " in data


def is_pointer_file(path: str) -> bool:
    """Return whether the file at `path` is a Git LFS pointer, reading no more of it than that takes."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size >= LONGEST_POINTER_BYTES:
            return False
        return is_pointer(file.read(LONGEST_POINTER_BYTES))


def pointer_error(source: str) -> str:
    """Return the line that says what is wrong with `source` and what to do."""
    return f"{source}: is a Git LFS pointer; run git lfs pull"

"""What a run reports of what it used: the digest of its code and tools, when it began, the files it read; and what that says of its result.

A result is tied to what the run really read, not to what was planned: the pipeline compares both before anything of it is committed, kept or
shared. What nobody can know is what a library in C, or a program, reads on its own: such files are covered where they are declared, or
found while processing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from aptui.core.model import Builder

Stamp = tuple[int, int, int, int]
"""(size, mtime_ns, ctime_ns, inode) of a file; () stands for a file that is not there."""
NO_FILE: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class UsedFile:
    """A file that a run used: its absolute path in text form, and its stamp when it was opened, () = it was not there."""

    path: str
    stamp: tuple[int, ...] = NO_FILE


@dataclass(frozen=True, slots=True)
class Used:
    """What a run used.

    Args:
        code: `code_digest` of the files of the builder's code and tools as this run had them, b"" where there are none to speak of.
        began_ns: when the run began, nanoseconds since the epoch; 0 = nobody knows.
        files: files that it was heard to open, and those that the engine looked at after it.
        changed: absolute paths of files that changed while it ran, so that its result is of no use.
    """

    code: bytes = b""
    began_ns: int = 0
    files: tuple[UsedFile, ...] = ()
    changed: tuple[str, ...] = ()


NOTHING_USED = Used()


def code_digest(files: Iterable[tuple[str, str]]) -> bytes:
    """Return one digest over files of code, (path, SHA-256 in hex) each.

    Names count without their folders, so that a project may move; they are sorted, so that only bytes count.
    """
    digest = hashlib.sha256()
    for name, code in sorted((os.path.basename(path), code) for path, code in files):
        digest.update(f"{name}\0{code}\n".encode("utf-8", "surrogateescape"))
    return digest.digest()


def is_of_other_code(builder: Builder, used: Used) -> bool:
    """Whether a run had other code, or other tools, than `builder` was described with."""
    return bool(used.code and builder.code_files) and used.code != _described(builder.code_files)


@lru_cache(maxsize=256)
def _described(files: tuple[tuple[str, str], ...]) -> bytes:
    return code_digest(files)

"""Git LFS pointers: small text files in place of large files; each contains the digest of its large file.

Tests: `tests/worker/test_file_access.py`.
"""

from __future__ import annotations

import re

LONGEST_POINTER_BYTES = 1024
"""Pointer files are smaller than this size (bytes), as git-lfs docs/spec.md, "The Pointer", says."""
NOT_HERE = "not fetched from Git LFS: run 'git lfs pull'"
OR_COPY = ", or set 'lfs_pointers: copy' in aptui.yaml"
"""Second advice in the error of a job that copies its source, if the source is only a pointer; it follows `NOT_HERE`."""
_FIRST_LINES = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")
_OID = re.compile(rb"\noid sha256:([0-9a-f]{64})\n")


def read_pointed(data: bytes) -> bytes:
    """Return the SHA-256 of the file that the pointer `data` (all bytes of a file) names; b"" if it is not a pointer."""
    if len(data) >= LONGEST_POINTER_BYTES or not data.startswith(_FIRST_LINES):
        return b""
    oid = _OID.search(data)
    return bytes.fromhex(oid[1].decode()) if oid else b""

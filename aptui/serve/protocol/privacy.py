"""Answers for clients that may not learn where this machine has its folders: the same without absolute paths.

Tests: `tests/serve/ws/answers/test_routing.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from aptui.serve.protocol import requests
from aptui.serve.protocol.notices import Show


def without_places(record: object) -> object:
    """Return an answer or a notification without absolute paths; one that was not found keeps what was asked."""
    match record:
        case requests.SourceFacts():
            return replace(record, scan_folder_path="")
        case requests.ProductFacts() | Show():
            return replace(record, source_file="")
        case requests.ResolvedPath(is_found=True):
            return replace(record, file="")
        case requests.ScanFolderList():
            return replace(record, folders=tuple(replace(folder, path="") for folder in record.folders))
        case _:
            return record

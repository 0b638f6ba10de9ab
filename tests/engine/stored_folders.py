"""The stored state of folders for tests of the scanner, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from aptui.core.messages import FolderSeen, FoldersUnchanged
from aptui.core.model import FileFact


class StoredFolders:
    """The state that the last scan stored (`engine.scan.walk.RememberedFolders`)."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], tuple[bytes, tuple[FileFact, ...]]] = {}

    def folder_digests(self) -> dict[str, tuple[tuple[int, bytes], ...]]:
        found: dict[str, list[tuple[int, bytes]]] = {}
        for (folder, part), (digest, _) in self.rows.items():
            found.setdefault(folder, []).append((part, digest))
        return {folder: tuple(parts) for folder, parts in found.items()}

    def folder_parts(self, folder: str) -> dict[int, tuple[bytes, Sequence[FileFact]]]:
        return {part: row for (name, part), row in self.rows.items() if name == folder}

    def store(self, events: Sequence[FolderSeen | FoldersUnchanged]) -> None:
        for event in events:
            if isinstance(event, FolderSeen):
                for key in [key for key in self.rows if key[0] == event.folder]:
                    del self.rows[key]
                self.rows.update({(event.folder, part): (digest, facts) for part, digest, facts in event.rows if facts})

"""Files that were read by themselves, without their folders: what is known of them is newer than their folders' rows.

Tests: `tests/core/state/test_working_set.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from aptui.core.model import FileFact, PathKey
from aptui.core.paths import parent
from aptui.core.records.archive import Archive
from aptui.core.state.pending import PendingFolder

Parts = Mapping[int, tuple[bytes, Sequence[FileFact]]]
"""{scan folder id: (digest of a relative folder, its files)}."""


class NewerFacts:
    """Facts of files that were read by themselves.

    Args:
        folders: {relative folder: what is pending of it}, of the working set.
    """

    def __init__(self, archive: Archive, folders: Mapping[str, PendingFolder]) -> None:
        self._archive, self._folders = archive, folders
        self.facts: dict[PathKey, FileFact] = {}
        """Those files, as they are now."""
        self.learned: set[PathKey] = set()
        """Those of them that are as their folders' rows say, but for their digests, which nobody wanted before."""

    def give_to(self, pending: PendingFolder, changed: set[PathKey]) -> None:
        """A folder was reported: what was read of its files meanwhile belongs to it now, unless they are `changed`."""
        for key in [key for key in self.facts if parent(key) == pending.folder]:
            fact = self.facts.pop(key)
            if key in pending.winners and key not in changed:
                pending.winners[key] = fact
                pending.parts[fact.scan_folder][1][fact.rel] = fact

    def list_learned_rows(self, parts_of: Callable[[str], Parts]) -> list[tuple[int, str, bytes, tuple[FileFact, ...]]]:
        """Return the rows that lack digests which are known by now; asked at rest, so that they come after the rows of all plans.

        Else each later engine would read those files again, and look at all that depends on them.
        """
        rows = []
        for folder in sorted({parent(key) for key in self.learned} - self._folders.keys()):
            for part, (digest, facts) in parts_of(folder).items():
                now = tuple(map(self._with_digest, facts))
                if now != tuple(facts):
                    rows.append((part, folder, digest, now))
        return rows

    def _with_digest(self, fact: FileFact) -> FileFact:
        now = self.facts.get(fact.key) if fact.key in self.learned else None
        return now if now is not None and replace(now, digest=fact.digest, hash64=fact.hash64) == fact else fact

    def forget_learned(self) -> None:
        """Those rows are saved: their files need not be kept here."""
        saved = {key for key in self.learned if parent(key) not in self._folders}
        for folder in {parent(key) for key in saved}:
            self._archive.forget(folder)
        for key in saved:
            if self.facts.get(key) == self._archive.files((key,)).get(key):
                self.facts.pop(key, None)
        self.learned -= saved

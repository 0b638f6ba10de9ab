"""The scanner: reports differences from the stored state, folder by folder.

If several scan folders have a file of the same relative path, the scanner determines which file is the source. It makes no decision
about jobs. `walk` lists one relative folder of all scan folders at a time, so the scanner also finds files whose paths differ only
in case. A folder whose entries all have their stored size, times and inode costs one comparison and no object per file. Folders
that `scan.up_to_date` has walked are not walked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from aptui.core.identity import META_SUFFIX
from aptui.core.messages import FolderSeen, FoldersUnchanged
from aptui.core.model import FileFact, PathKey, RelPath, SourceIdentity
from aptui.core.paths import is_below, key_of, merge_folder, os_path, parent
from aptui.core.project import Project
from aptui.core.settings import FILE_NAME as SETTINGS_NAME
from aptui.core.settings import file_key
from aptui.engine.scan.metadata import Metadata
from aptui.engine.scan.up_to_date import UpToDateCheck
from aptui.engine.scan.walk import Entry, FolderPart, RememberedFolders, Walk, digests_of, text_of

IdentityFiles = Mapping[tuple[int, str], FileFact]
"""{(scan folder id, relative path): identity file}.

Each file has two keys: its path as it is spelled, and its path in lower case.
"""
_FOLDERS_PER_STEP = 64
_FILES_PER_STEP = 512
_FILES_PER_SETTINGS = 128
"""Checking one settings file takes as long (up to 5 ms) as checking this number of other files."""


class SettingsNotReadError(Exception):
    """Raised if a folder cannot be checked yet, because its settings file is still being compiled."""


class Scanner:
    """One scan. Iterate over `steps`; each item has the events of a slice of the work.

    Args:
        check: the result of the up-to-date check; folders that it has walked are not walked again. None = no check was made.
        is_full: read the bytes of every file, and trust no remembered digest.
        reassess: report every file, changed or not, because the configuration changed.
        unfinished: previous facts of files that another process is writing now (`loop.context.ChangeSource`). These facts are used
            while the files are in this mapping.
        metadata: reads identity files, and may make missing ones.
        read_settings: called with the path (text form) and the relative path of a settings file; returns its text. None = the text
            is not known yet, and the scan asks again later.
    """

    def __init__(
        self,
        project: Project,
        walk: Walk,
        remembered: RememberedFolders,
        next_seq: Callable[[], int],
        *,
        check: UpToDateCheck | None = None,
        is_full: bool = False,
        reassess: bool = False,
        unfinished: Mapping[PathKey, FileFact | None] = MappingProxyType({}),
        metadata: Metadata | None = None,
        read_settings: Callable[[str, str], str | None] | None = None,
    ) -> None:
        self._metadata = metadata or Metadata(project.metadata_types, {folder.id: folder.path for folder in project.scan_folders})
        self._metadata_types = project.metadata_types
        self._rank = {folder.id: rank for rank, folder in enumerate(project.scan_folders)}
        self._roots = {folder.id: folder.path for folder in project.scan_folders}
        self._walk = walk
        self._remembered = remembered
        self._next_seq = next_seq
        is_enough = check is not None and (check.is_of_bytes or not is_full)
        self._check = check if is_enough and not reassess else None
        self._walked_before = walk.files_seen
        self._checked_count = walk.files_seen if self._check is not None else 0
        self._is_full = is_full
        self._reassess = reassess
        self._unfinished = unfinished
        self._read_settings = read_settings or _compile_settings
        self._settings_read: dict[str, str] = {}
        """{path: text} of the settings files of the folder that is being checked."""

    @property
    def files_seen(self) -> int:
        """Number of files that the scan has found so far."""
        return self._checked_count or self._walk.files_seen - self._walked_before

    def steps(self, below: str = "") -> Iterator[list[FolderSeen | FoldersUnchanged]]:
        """Walk the scan folders; yield the events of each slice, and at the end the events of folders that are gone.

        A slice has no events while a settings file is being compiled.

        Args:
            below: the relative folder (lower case) to walk with everything under it; "" = all.
        """
        digests = self._remembered.folder_digests()
        if below:
            digests = {folder: known for folder, known in digests.items() if folder == below or is_below(folder, below)}
        seen: set[str] = set()
        events: list[FolderSeen | FoldersUnchanged] = []
        unchanged: list[str] = []
        changed_count = 0
        if self._check is not None:
            seen.update(self._check.unchanged)
        for folder, entries in self._list_folders(below):
            seen.add(folder)
            current, event = digests_of(entries), None
            if self._is_full or self._reassess or dict(digests.get(folder, ())) != current:
                while not self._read_all_settings(entries):
                    yield []
                event = self._report(folder, entries, current)
            if event is None:
                unchanged.append(folder)
            else:
                events.append(event)
                changed_count += len(event.facts) + (_FILES_PER_SETTINGS if event.settings else 1)
            if len(unchanged) >= _FOLDERS_PER_STEP or changed_count >= _FILES_PER_STEP:
                yield self._slice(events, unchanged)
                events, unchanged, changed_count = [], [], 0
        for folder in sorted(digests.keys() - seen):
            events.append(self._report_vanished(folder))
        if self._check is not None:
            unchanged.extend(self._check.unchanged)
        yield self._slice(events, unchanged)

    def _list_folders(self, below: str) -> Iterator[tuple[str, list[tuple[FolderPart, list[Entry]]]]]:
        """Yield (relative folder, [(folder in one scan folder, files), ...]) for the folders to compare with the stored state."""
        if self._check is None or below:
            parts = self._parts_of(below)
            yield from self._walk.folders([(below, parts)] if parts else [])
            return
        for folder, parts in self._check.differing:
            yield folder, self._walk.read_folders(parts)[0]

    def _slice(self, events: list[FolderSeen | FoldersUnchanged], unchanged: list[str]) -> list[FolderSeen | FoldersUnchanged]:
        """Return the events of one slice. Changed folders come first, because their settings affect sources in other folders."""
        return [*events, FoldersUnchanged(self._next_seq(), tuple(unchanged))] if unchanged else events

    # ------------------------------------------------------------------------------------ comparison with the stored state

    def _report(
        self,
        folder: str,
        entries: list[tuple[FolderPart, list[Entry]]],
        digests: dict[int, bytes],
        again: frozenset[PathKey] | None = None,
        remembered: Mapping[int, tuple[bytes, Sequence[FileFact]]] | None = None,
    ) -> FolderSeen | None:
        """Return an event with the differences of a folder from its stored state, None if the folder is unchanged.

        `remembered` is the stored state if it was read already. `again`: keys of files that are read even if unchanged. If `again`
        has keys, the result is never None.
        """
        remembered = self._remembered.folder_parts(folder) if remembered is None else remembered
        before = {part: facts for part, (_digest, facts) in remembered.items()}
        old = {
            (scan_folder, fact.rel): fact
            for scan_folder, facts in before.items()
            for fact in facts
            if not again or key_of(fact.rel) not in again or key_of(fact.rel) in self._unfinished
        }
        if self._metadata.creates and self._make_identities(entries):
            entries, _below = self._walk.read_folders([part for part, _files in entries])
            digests = digests_of(entries)
        facts_of: dict[int, list[FileFact]] = {}
        for part, files in entries:
            facts_of.setdefault(part.scan_folder.id, []).extend(self._facts(part, files, old))
            if self._unfinished and any(self._key(part, name) in self._unfinished for name, *_stat in files):
                digests = {**digests, part.scan_folder.id: b""}
        if self._unfinished:
            digests = self._keep_unfinished(folder, facts_of, old, digests)
        unknown = [part for part in before if self._walk.is_unknown(part, folder)]
        facts_of.update((part, list(before[part])) for part in unknown)
        digests = {**digests, **dict.fromkeys(unknown, b"")}
        if self._metadata.held:
            digests = self._hold_back(facts_of, before, digests)
        if again is None and not before and not digests:
            return None
        was, was_clashing = self._merge(before)
        now, clashing = self._merge(facts_of)
        metas_before, metas = _identity_files(before), _identity_files(facts_of)
        named = _find_reidentified(now, metas_before, metas)
        changed = tuple(fact for key, fact in now.items() if key in named or self._is_reported(was.get(key), fact, again, key))
        gone = {*was.keys(), *(PathKey(fact.rel) for fact, _others in was_clashing)}
        if self._reassess:  # an earlier configuration may have classified or ordered files differently
            gone.update(replace(fact, is_duplicate=True).key for facts in before.values() for fact in facts)
        gone -= {*now.keys(), *(PathKey(fact.rel) for fact, _others in clashing)}
        gone |= {key_of(fact.rel) for fact, _others in clashing if key_of(fact.rel) in was}
        rows = tuple((scan_folder, digests.get(scan_folder, b""), tuple(facts)) for scan_folder, facts in facts_of.items())
        settings = None if unknown else self._settings(folder, now, clashing)
        identities = tuple(self._identities(changed, metas))
        return FolderSeen(self._next_seq(), folder, changed, tuple(sorted(gone)), tuple(clashing), rows, settings, identities)

    # ------------------------------------------------------------------------------------------------------ identity files

    def _identities(self, facts: Iterable[FileFact], metas: IdentityFiles) -> Iterator[tuple[PathKey, SourceIdentity]]:
        """Yield (key, identity) of each source in `facts` that has an identity file."""
        for fact in facts if metas else ():
            meta = _meta_of(fact, metas)
            identity = self._metadata.read(meta, fact) if meta is not None else None
            if identity is not None:
                yield fact.key, identity

    def _make_identities(self, entries: list[tuple[FolderPart, list[Entry]]]) -> bool:
        """Create the missing identity files whose waiting time has ended; return whether any was created."""
        is_any_new = False
        for part, files in entries:
            names = {name.lower(): size for name, size, *_stat in files}
            for name, *_stat in files:
                key = self._key(part, name)
                if part.scan_folder.is_intermediate or not self._metadata.wants(key) or key in self._unfinished:
                    continue
                rel = part.rel_of(name)
                source = FileFact(part.scan_folder.id, rel, 0, 0, 0, 0)
                if self._walk.is_ignored(rel):
                    continue
                if names.get(name.lower() + META_SUFFIX):
                    self._metadata.release(source)
                elif not self._metadata.is_held(source):
                    is_any_new = self._metadata.make(source) or is_any_new
        return is_any_new

    def _keep_unfinished(
        self,
        folder: str,
        facts_of: dict[int, list[FileFact]],
        old: Mapping[tuple[int, RelPath], FileFact],
        digests: dict[int, bytes],
    ) -> dict[int, bytes]:
        """Add the stored facts of files in `folder` that another process is rewriting and that do not exist at the moment.

        Some programs delete a file before they write it again.
        """
        waited = {key for key in self._unfinished if parent(key) == folder}
        present = {key_of(fact.rel) for facts in facts_of.values() for fact in facts} if waited else set()
        for fact in old.values() if waited - present else ():
            if key_of(fact.rel) in waited - present:
                facts_of.setdefault(fact.scan_folder, []).append(fact)
                digests = {**digests, fact.scan_folder: b""}
        return digests

    def _hold_back(
        self, facts_of: dict[int, list[FileFact]], before: Mapping[int, Sequence[FileFact]], digests: dict[int, bytes]
    ) -> dict[int, bytes]:
        """Let each source that waits for an identity file keep the facts that the database has of both files.

        `before` has these stored facts. A waiting source without stored facts is left out of `facts_of`.
        """
        held = self._metadata.held
        for part, facts in facts_of.items():
            if not any((part, fact.rel) in held for fact in facts):
                continue
            old = {fact.rel: fact for fact in before.get(part, ())}
            present = {fact.rel for fact in facts}
            metas = [RelPath(fact.rel + META_SUFFIX) for fact in facts if (part, fact.rel) in held]
            facts[:] = [
                old[fact.rel] if (part, fact.rel) in held else fact
                for fact in facts
                if (part, fact.rel) not in held or fact.rel in old
            ]
            facts += [old[meta] for meta in metas if meta in old and meta not in present]
            digests = {**digests, part: b""}
        return digests

    def _settings(
        self, folder: str, winners: Mapping[PathKey, FileFact], clashes: Sequence[tuple[FileFact, tuple[RelPath, ...]]]
    ) -> str | None:
        """Return the text of the folder's own settings file (`core.settings`)."""
        key = file_key(folder)
        if key in self._unfinished:
            return None
        fact = winners.get(key)
        if fact is None:
            names = sorted(item.rel for item, _others in clashes if key_of(item.rel) == key)
            if names:
                self._walk.sentences.append(f"{', '.join(map(repr, names))} differ only in case, so none of these files is used")
            return ""
        path = f"{self._roots[fact.scan_folder]}/{fact.rel}"
        text = self._settings_read.pop(path, None)
        return _compile_settings(path, fact.rel) if text is None else text

    def _read_all_settings(self, entries: list[tuple[FolderPart, list[Entry]]]) -> bool:
        """Read the settings files among the files of one folder; return False while one of them is being compiled."""
        self._settings_read = {}
        for part, files in entries:
            for name, *_stat in files:
                if (
                    len(name) == len(SETTINGS_NAME)
                    and name.lower() == SETTINGS_NAME
                    and self._key(part, name) not in self._unfinished
                ):
                    rel = part.rel_of(name)
                    path = f"{self._roots[part.scan_folder.id]}/{rel}"
                    text = self._read_settings(path, rel)
                    if text is None:
                        return False
                    self._settings_read[path] = text
        return True

    def _merge(
        self, parts: Mapping[int, Sequence[FileFact]]
    ) -> tuple[dict[PathKey, FileFact], list[tuple[FileFact, tuple[RelPath, ...]]]]:
        last = len(self._rank)
        ranked = sorted(parts, key=lambda item: self._rank.get(item, last))
        return merge_folder([parts[scan_folder] for scan_folder in ranked], self._metadata_types)

    def _facts(self, part: FolderPart, files: list[Entry], old: Mapping[tuple[int, RelPath], FileFact]) -> Iterator[FileFact]:
        prefix, scan_folder = (f"{part.rel}/" if part.rel else ""), part.scan_folder.id
        for name, size, mtime_ns, ctime_ns, inode in files:
            rel = RelPath(prefix + text_of(name))
            if self._walk.is_ignored(rel):
                continue
            known = old.get((scan_folder, rel))
            if self._unfinished and key_of(rel) in self._unfinished:
                last = self._unfinished[key_of(rel)]
                # the stored facts belong to this file, not to a file of the same path in another scan folder
                if last is not None and (last.scan_folder, last.rel) == (scan_folder, rel):
                    known = last
                if known is not None:
                    yield known
                continue
            is_same = known is not None and known.stamp == (size, mtime_ns, ctime_ns, inode)
            if is_same and known is not None and not (self._is_full and known.digest):
                yield known
            else:
                yield FileFact(scan_folder, rel, size, mtime_ns, ctime_ns, inode)

    @staticmethod
    def _key(part: FolderPart, name: str) -> PathKey:
        return key_of(part.rel_of(name))

    def _is_reported(self, old: FileFact | None, new: FileFact, again: frozenset[PathKey] | None, key: PathKey) -> bool:
        return self._reassess or self._is_full or _differs(old, new) or (again is not None and key in again)

    def check_folder(self, folder: str, again: frozenset[PathKey]) -> FolderSeen | None:
        """Check one relative folder (lower case) now; its files in `again` are read even if their stored state matches.

        Return None if the folder equals its stored state.

        Raises:
            SettingsNotReadError: the folder's settings file is still being compiled; the caller has to try again later.
        """
        entries, _below = self._walk.read_folders(self._parts_of(folder))
        digests = digests_of(entries)
        remembered = self._remembered.folder_parts(folder)
        if not again and {part: digest for part, (digest, _facts) in remembered.items()} == digests:
            return None
        if not self._read_all_settings(entries):
            raise SettingsNotReadError
        return self._report(folder, entries, digests, again, remembered)

    def _parts_of(self, folder: str) -> list[FolderPart]:
        """Return the folders on the disk, in all scan folders, whose relative path in lower case is `folder`."""
        parts = self._walk.roots()
        for name in folder.split("/") if folder else ():
            parts = [part for part in self._below(parts) if part.rel.rpartition("/")[2].lower() == name]
        return parts

    def _below(self, parts: Iterable[FolderPart]) -> list[FolderPart]:
        return [part for found in self._walk.folders_in(parts).values() for part in found]

    def _report_vanished(self, folder: str) -> FolderSeen:
        before = {part: facts for part, (_digest, facts) in self._remembered.folder_parts(folder).items()}
        if any(self._walk.is_unknown(part, folder) for part in before):
            event = self._report(folder, [], {}, frozenset())
            assert event is not None
            return event
        was, clashing = self._merge(before)
        gone = {*was.keys(), *(PathKey(fact.rel) for fact, _others in clashing)}
        return FolderSeen(self._next_seq(), folder, (), tuple(sorted(gone)), (), (), "")


def _compile_settings(path: str, rel: str) -> str:
    from aptui.config import folder as config_folder  # imported here, because only projects with settings files need YAML

    return config_folder.read(os_path(path), rel)


def _identity_files(facts_of: Mapping[int, Sequence[FileFact]]) -> IdentityFiles:
    """Return {(scan folder id, path): identity file} of a folder; every file has its real path and its lower-case path as keys.

    If several paths differ only in case, the lower-case key has the file with the lower-case path. If this file does not exist, it
    has the first of these files in sort order.
    """
    found = [fact for facts in facts_of.values() for fact in facts if fact.rel.lower().endswith(META_SUFFIX)]
    found.sort(key=lambda fact: fact.rel, reverse=True)
    return {(fact.scan_folder, spelled(fact.rel)): fact for spelled in (str.lower, str) for fact in found}


def _meta_of(source: FileFact, metas: IdentityFiles) -> FileFact | None:
    """Return the identity file of a source in the source's scan folder.

    If several names differ only in case, the file that is spelled like the source is returned.
    """
    rel = source.rel + META_SUFFIX
    return metas.get((source.scan_folder, rel)) or metas.get((source.scan_folder, rel.lower()))


def _find_reidentified(now: Mapping[PathKey, FileFact], metas_before: IdentityFiles, metas: IdentityFiles) -> set[PathKey]:
    """Return the keys of sources whose identity file changed."""
    if not metas_before and not metas:
        return set()
    return {key for key, fact in now.items() if _differs(_meta_of(fact, metas_before), _meta_of(fact, metas))}


def _differs(old: FileFact | None, new: FileFact | None) -> bool:
    if old is None or new is None or old is new:
        return old is not new
    return (old.scan_folder, old.rel, old.stamp) != (new.scan_folder, new.rel, new.stamp)

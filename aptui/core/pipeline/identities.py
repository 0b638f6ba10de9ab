"""Gives each source its UUID, from its `.meta` file, producer or path.

If two sources claim a UUID, this module decides which source keeps the UUID.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aptui.core.identity import (
    META_SUFFIX,
    REMOVED_SOURCE_STATE,
    duplicate_uuid,
    format_braced,
    intermediate_uuid,
    legacy_of,
    make_contested_uuid,
    path_uuids,
)
from aptui.core.model import FileFact, Job, PathKey, Product, ProductFlag, RelPath, Source, SourceIdentity, SourceUuid
from aptui.core.notices import EngineMessage, LogLevel, SourcesChanged
from aptui.core.paths import parent
from aptui.core.pipeline.jobs import Jobs, PipelinePart
from aptui.core.project import COMMON_PREFIX
from aptui.core.state.chains import intermediates


class Identities(PipelinePart):
    """Gives sources their UUIDs, and remembers which sources have to be evaluated again because UUIDs changed."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(jobs)
        self._folder_names = {folder.id: folder.name for folder in jobs.project.scan_folders}
        self._removed = jobs.memory.archive.read_removed()
        self._renamed: set[str] = set()
        self._pending: dict[PathKey, None] = {}

    @property
    def has_renamed(self) -> bool:
        """Whether any UUID has passed from one source to another."""
        return bool(self._renamed)

    def pop_renamed(self) -> set[str]:
        """Return the UUIDs (hex) that have passed from one source to another, and clear the list.

        The caller plans their dependents again.
        """
        renamed, self._renamed = self._renamed, set()
        return renamed

    def pop_pending(self) -> list[PathKey]:
        """Return the sources whose UUID may have to change, and clear the list."""
        pending, self._pending = self._pending, {}
        return list(pending)

    def note_renamed(self, uuids: Iterable[SourceUuid]) -> None:
        """Record that these UUIDs may have passed from one source to another."""
        self._renamed.update(uuid.hex() for uuid in uuids)

    def new_source(self, key: PathKey, fact: FileFact) -> Source:
        """Create a source for the file `fact`, give it a UUID, save it, and return it."""
        source = Source(key, fact.rel, fact.scan_folder, SourceUuid(b""), next(self._ledger.source_ids), fact)
        source.identity = self.metadata_identity(source)
        source.uuid = self._own_uuid(source)
        self._memory.add(source)
        self._jobs.save_source(source)
        self._put_legacy(source, legacy_of(source))
        self._compare_with_removed(source)
        if self._reports.reports_every_step or self._reports.is_followed:
            self._ledger.notices.append(SourcesChanged(self._ledger.cause, ((source.rel, True),)))
        return source

    def metadata_identity(self, source: Source) -> SourceIdentity | None:
        """Return the content that the `.meta` file of `source` had when its folder was last scanned."""
        pending = self._memory.folders.get(parent(source.key))
        return pending.identities.get(source.key, source.identity) if pending is not None else source.identity

    def identify(self, source: Source) -> bool:
        """Set the UUID of `source`, or set `misidentity` to the reason why it cannot have the UUID that it claims.

        Return whether anything changed.
        """
        if not (self._memory.has_identities or source.is_duplicate or source.misidentity):
            return False
        before = (source.uuid, source.misidentity)
        wanted = self._own_uuid(source)
        source.misidentity = source.identity.problem if source.identity else ""
        rival = None if source.misidentity else self._rival(source, wanted)
        if rival is not None and _standing(rival) > _standing(source):
            self._pending[rival.key] = None
        elif rival is not None:
            source.misidentity = (
                f"its UUID {format_braced(wanted)} is also the UUID of '{rival.rel}'; if the file is a copy, "
                "delete its '.meta' file"
            )
        uuid = make_contested_uuid(source.key) if source.misidentity else wanted
        if uuid != source.uuid:
            self._rename(source, uuid)
        return before != (source.uuid, source.misidentity)

    def _rename(self, source: Source, uuid: SourceUuid) -> None:
        for builder in {job.builder for job in source.jobs.values()}:
            self._ledger.put("drop_edges", (source.uuid, builder))
            self._jobs.schedule_edges(source, builder)
        freed = source.uuid
        self._renamed.update((freed.hex(), uuid.hex()))
        self._memory.rename(source, uuid)
        self.save_legacy(source)
        self._pending.update((key, None) for key in intermediates(source.jobs.values()))
        self.release_uuid(freed, source.key)

    def save_legacy(self, source: Source) -> None:
        """Save the additional UUIDs of `source`, in place of the additional UUIDs that are stored for it."""
        legacy = legacy_of(source)
        if legacy or source.is_stored:
            self._ledger.drop("drop_legacy", (source.id,))
        self._put_legacy(source, legacy)

    def _put_legacy(self, source: Source, legacy: Collection[SourceUuid]) -> None:
        self._memory.set_legacy(source, legacy)
        created_ms = source.identity.created_ms if source.identity else 0
        self._ledger.put_all("put_legacy", ((uuid, source.id, created_ms) for uuid in legacy))

    def _own_uuid(self, source: Source) -> SourceUuid:
        """Return the UUID that `source` gets if no other source claims this UUID."""
        if source.identity is not None and not source.identity.problem:
            return source.identity.uuid
        if source.is_duplicate:
            return duplicate_uuid(self._folder_names[source.scan_folder], source.rel)
        made = self._find_made(source)
        if made is None:
            return path_uuids(source.rel)[0]
        maker, product = made
        return intermediate_uuid(maker.source, maker.builder, product.sub_id, source.rel)

    def _find_made(self, source: Source) -> tuple[Job, Product] | None:
        """Return the job that makes the intermediate `source`, and the intermediate as a product of this job.

        While a run replaces a lost intermediate, the intermediate is only in `Job.lost`.
        """
        if source.fact is None or not self._chains.is_intermediate(source.fact) or not self._memory.has_identities:
            return None
        makers, name = self._chains.producers((source.key,)), COMMON_PREFIX + source.key
        made = ((job, item) for job in makers for item in (*job.products, *job.lost) if item.name == name)
        return next(((job, item) for job, item in made if item.flags & ProductFlag.INTERMEDIATE), None)

    def note_departure(self, source: Source) -> None:
        """Remember the digest of a source that was removed without its identity file, because the file may reappear elsewhere."""
        identity, pending = source.identity, self._memory.folders.get(parent(source.key))
        if identity is None or identity.problem or source.fact is None or pending is None:
            return
        _digest, beside = pending.parts.get(source.scan_folder, (b"", {}))
        if RelPath(source.rel + META_SUFFIX) in beside:
            self._removed[source.fact.digest] = (source.rel, identity.uuid)
            self._ledger.put("put_state", (REMOVED_SOURCE_STATE + identity.uuid.hex(), f"{source.fact.digest.hex()} {source.rel}"))

    def _compare_with_removed(self, source: Source) -> None:
        """Warn if a new source has the bytes of a source removed without its identity file; forget sources that came back."""
        if not self._removed or source.fact is None:
            return
        rel, uuid = self._removed.get(source.fact.digest, ("", b""))
        if rel and rel != source.rel and source.uuid != uuid and not _brought_identity(source):
            text = f"'{source.rel}' was probably moved from '{rel}', but without its '{META_SUFFIX}' file; see 'aptui identities'"
            self._ledger.notices.append(EngineMessage(self._ledger.cause, LogLevel.WARNING, text))
        elif rel and (rel == source.rel or source.uuid == uuid):
            del self._removed[source.fact.digest]
            self._ledger.put("put_state", (REMOVED_SOURCE_STATE + uuid.hex(), ""))

    def _rival(self, source: Source, uuid: SourceUuid) -> Source | None:
        """Return the other source with the best claim to this UUID; None if no other source claims the UUID."""
        others = [key for key in self._memory.keys_of(uuid) if key != source.key]
        claims = [other for other in self._memory.load(others) if self._own_uuid(other) == uuid and self._is_there(other)]
        return min(claims, key=_standing, default=None)

    def _is_there(self, source: Source) -> bool:
        return self._memory.file(source.key) is not None

    def release_uuid(self, uuid: SourceUuid, key: PathKey) -> None:
        """Give `uuid`, which no source has any longer, to the next source that claims it."""
        if self._memory.has_identities:
            self._pending.update((other, None) for other in self._memory.keys_of(uuid) if other != key)


def _brought_identity(source: Source) -> bool:
    """Whether a source was moved together with its identity file; the identity file then names another path as its origin."""
    identity = source.identity
    return identity is not None and not identity.problem and identity.original not in ("", source.rel)


def _standing(source: Source) -> tuple[bool, bool, PathKey]:
    """Return the rank of a source's claim to a UUID; the claim with the lowest rank wins.

    A source at the path where its identity was made comes first, then a source with an identity file; then the path decides.
    """
    identity = source.identity
    return (identity is None or identity.original.lower() != source.rel.lower(), identity is None, source.key)

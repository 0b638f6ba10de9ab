"""The spread of a change: which sources are planned again because files, names or settings are not what they were.

Tests: `tests/core/pipeline/test_configuration.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from aptui.core.identity import legacy_of
from aptui.core.model import PathKey, RelPath, SourceUuid
from aptui.core.paths import is_below, path_uuid
from aptui.core.pipeline.identities import Identities
from aptui.core.pipeline.jobs import Jobs
from aptui.core.pipeline.plans import Plans
from aptui.core.results import run_report
from aptui.core.results.run_report import OUTSIDE_STATE, OutsideFile


class Spread:
    """Follows dependencies upstream and has what it finds planned."""

    def __init__(self, jobs: Jobs, plans: Plans, identities: Identities) -> None:
        self._plans = plans
        self._identities = identities
        self._memory = jobs.memory
        self._ledger = jobs.ledger
        self._companions = jobs.graph.companions
        self._planner = jobs.planner

    def _sharers(self, keys: set[PathKey]) -> set[PathKey]:
        """Return what has one of these files as a companion that it shares with others."""
        shared = [key for key in keys if self._companions.is_shared(key)]
        if not shared:
            return set()
        facts = {fact.key: fact for fact in self._memory.archive.files_below(PathKey(""))}
        for pending in self._memory.folders.values():
            facts.update(pending.winners)
        return {key for key, fact in facts.items() if any(self._companions.is_shared_with(each, fact.rel) for each in shared)}

    def spread(self, keys: set[PathKey]) -> None:
        """These files are not what they were: plan all that depends on them, however far."""
        owners = {owner for key in keys for owner in self._companions.find_owners(RelPath(key))} | self._sharers(keys)
        affected: set[PathKey] = set(owners)
        edge = set(keys) | owners
        while (edge or self._identities.has_renamed) and self._memory.edges.has_any:
            uuids = (uuid.hex() for key in edge for uuid in self._uuids_of(key))
            targets = [*edge, *uuids, *self._identities.take_renamed()]
            edge = self._memory.dependents(targets) - affected - keys
            affected |= edge
        self._plans.plan_all(affected)

    def outside_seen(self, files: Iterable[tuple[str, OutsideFile]]) -> None:
        """Re-plan what depends on files outside all scan folders whose bytes changed; forget the files that nobody needs."""
        changed = set()
        for path, file in files:
            before = self._memory.outside.get(path)
            if before == file:
                continue
            if before is not None and not self._memory.dependents((path,)):
                del self._memory.outside[path]
                self._ledger.put("put_state", (OUTSIDE_STATE + path, ""))
                continue
            self._memory.outside[path] = file
            self._ledger.put("put_state", (OUTSIDE_STATE + path, run_report.dump(file)))
            if before is not None and before.digest != file.digest:
                changed.add(PathKey(path))
        if changed:
            self.spread(changed)

    def _uuids_of(self, key: PathKey) -> tuple[SourceUuid, ...]:
        """Return the UUIDs by which others may depend on `key`."""
        source = self._memory.view(key) if self._memory.has_identities else None
        return (path_uuid(key),) if source is None else (path_uuid(key), source.uuid, *legacy_of(source))

    def evaluate_identities(self) -> None:
        """Plan the sources whose identity may have changed, and all that depends on them."""
        while pending := self._identities.take_pending():
            for source in self._memory.load(pending):
                self._plans.plan(source)
        if self._identities.has_renamed:
            self.spread(set())

    def spread_settings(self, folder: str, builders: frozenset[bytes]) -> None:
        """Plan all sources below `folder` that one of `builders` wants."""
        if not builders:
            return
        facts = {fact.key: fact for fact in self._memory.archive.files_below(PathKey(f"{folder}/" if folder else ""))}
        for pending in self._memory.folders.values():
            facts.update((key, fact) for key, fact in pending.winners.items() if is_below(key, folder))
        self._plans.plan_all(
            key
            for key, fact in facts.items()
            if any(builder.uuid in builders for builder in self._planner.builders_for(fact.rel, fact.scan_folder))
        )

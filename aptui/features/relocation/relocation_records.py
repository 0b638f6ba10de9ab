"""Relocations of sources: what is requested, and what came, or would come, of it.

Plain records that travel; `engine.relocate` makes them.

Tests: `tests/features/relocation/test_requests.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.link.port import FeatureRequest


class Relocate(FeatureRequest, frozen=True):
    """Move or delete sources; a preview unless `is_confirmed`. Answered with the fields of `RelocationReport`.

    `source` and `destination` are paths in text form (`core.paths`), absolute or relative to a scan folder, and may hold
    `*` and `?`. Without a destination, `is_delete` said, they are deleted.
    """

    wire_name: ClassVar = "relocate"

    source: str = ""
    destination: str = ""
    is_delete: bool = False
    is_confirmed: bool = False
    updates_references: bool = False
    allows_broken: bool = False
    leaves_empty_folders: bool = False
    excludes_metadata: bool = False
    uses_scm: bool = False


class RelocationAction(StrEnum):
    """How far a file is."""

    PLANNED = "planned"
    DONE = "done"
    FAILED = "failed"
    LEFT = "left"
    """Nobody tried: something before it failed."""


class Fate(StrEnum):
    """What becomes of a dependency on a file that moves or goes."""

    BREAKS = "breaks"
    HOLDS = "holds"
    """It names the file in a way that stays true, or goes with it."""
    MENDED = "mended"
    """The dependant's text is made to name the new place."""


class Dependant(Struct, frozen=True):
    """A source that depends on a file that moves or goes.

    Args:
        path: its relative path; `file`: its absolute one, both as they were.
        kind: "source", "job" or "product".
        type_bits: of the row: `TypeOfDependency` (1 source, 2 job, 4 wildcard), or `UnresolvedDependencyType` of a product.
        by_uuid: whether it named an asset id, not a path.
        product: its product that depends, `sub_id` that one's sub id, `needs` the product it depends on; "" for source and job
            dependencies.
    """

    path: str
    file: str
    uuid: str
    kind: str
    type_bits: int
    by_uuid: bool
    product: str = ""
    needs: str = ""
    sub_id: int = 0
    fate: Fate = Fate.BREAKS


class RelocationItem(Struct, frozen=True):
    """A file that moves or goes. Of metadata `owner` is the relative path of its source ("" = it was named itself), ids are empty.

    `old`, `new` are relative to the scan folders `folder`, `new_folder` (names); `old_file`, `new_file` absolute. New ones
    are "" when it is deleted. UUIDs in O3DE's form.
    """

    old: str
    old_file: str
    folder: str
    new: str = ""
    new_file: str = ""
    new_folder: str = ""
    is_metadata: bool = False
    owner: str = ""
    source_id: int = 0
    uuid: str = ""
    new_uuid: str = ""
    dependants: tuple[Dependant, ...] = ()
    action: RelocationAction = field(default=RelocationAction.PLANNED, name="deed")
    problem: str = ""
    """What stands against it, or why it failed."""


class Update(Struct, frozen=True):
    """A dependant whose text names, or may name, what moved.

    `count` is how many places are (or would be) rewritten; `possible` are (old, new) spellings that were looked for and not found.
    """

    path: str
    file: str
    count: int = 0
    possible: tuple[tuple[str, str], ...] = ()
    action: RelocationAction = field(default=RelocationAction.PLANNED, name="deed")
    problem: str = ""


class SkippedFile(Struct, frozen=True):
    """A file that was matched and is left alone."""

    path: str
    why: str


class RelocationCounts(Struct, frozen=True):
    """How many: all of the operation, also where the lists of a report were cut."""

    sources: int = 0
    metadata: int = 0
    done: int = 0
    failed: int = 0
    left: int = 0
    skipped: int = 0
    dependencies: int = 0
    breaking: int = 0
    mended: int = 0
    updates: int = 0
    updated: int = 0
    update_failures: int = 0


class RelocationReport(Struct, frozen=True):
    """What came of it (`is_performed`), or would come of it.

    `refusals` say why nothing was done, or nothing would be: then all items are still planned. `removed` are folders that
    were empty afterwards.
    """

    order: Relocate
    items: tuple[RelocationItem, ...] = ()
    updates: tuple[Update, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_performed: bool = False
    counts: RelocationCounts = RelocationCounts()

    @property
    def is_whole(self) -> bool:
        """Whether all that was to be done is done."""
        return self.is_performed and not (self.counts.failed or self.counts.left or self.counts.update_failures)


def count_report(report: RelocationReport) -> RelocationReport:
    """Return the report with its counts."""
    items, edges = report.items, [edge for item in report.items for edge in item.dependants]
    actions, updates = [item.action for item in items], [update.action for update in report.updates]
    return replace(
        report,
        counts=RelocationCounts(
            sources=sum(not item.is_metadata for item in items),
            metadata=sum(item.is_metadata for item in items),
            done=actions.count(RelocationAction.DONE),
            failed=actions.count(RelocationAction.FAILED),
            left=actions.count(RelocationAction.LEFT),
            skipped=len(report.skipped),
            dependencies=len(edges),
            breaking=sum(edge.fate is Fate.BREAKS for edge in edges),
            mended=sum(edge.fate is Fate.MENDED for edge in edges),
            updates=len(updates),
            updated=updates.count(RelocationAction.DONE),
            update_failures=updates.count(RelocationAction.FAILED) + updates.count(RelocationAction.LEFT),
        ),
    )


def shorten_report(report: RelocationReport, limit: int) -> RelocationReport:
    """Return a report whose lists have `limit` entries at most, what went wrong first; its counts are those of all."""
    items = sorted(
        report.items, key=lambda item: item.action not in (RelocationAction.FAILED, RelocationAction.LEFT) and not item.problem
    )[:limit]
    return replace(
        report,
        items=tuple(replace(item, dependants=item.dependants[: max(1, limit // len(items))]) for item in items),
        updates=tuple(sorted(report.updates, key=lambda update: update.action is RelocationAction.DONE)[:limit]),
        skipped=report.skipped[:limit],
        refusals=report.refusals[:limit],
        warnings=report.warnings[:limit],
        removed=report.removed[:limit],
    )

"""Relocations of sources: requests and reports, and the lines of a report.

`relocate` creates the reports, which are sent to clients.

Tests: `tests/features/relocation/test_requests.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.link.port import FeatureRequest
from aptui.shared.printing import count, line


class Relocate(FeatureRequest, frozen=True):
    """Request to move or delete sources; the result is a preview unless `is_confirmed`.

    Answered with the fields of `RelocationReport`.

    `source` and `destination` are paths in text form (`core.paths`), absolute or relative to a scan folder, and may contain `*` and
    `?`. With `is_delete` and without a destination, the sources are deleted.
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
    allows_other_files: bool = False
    """Whether files that are not sources are moved or deleted, too."""


class RelocationAction(StrEnum):
    """The state of a file in a relocation."""

    PLANNED = "planned"
    DONE = "done"
    FAILED = "failed"
    LEFT = "left"
    """The file was not moved, deleted or rewritten, because another step of the relocation failed."""


class Fate(StrEnum):
    """The consequence of a file's move or deletion for a source that depends on the file."""

    BREAKS = "breaks"
    HOLDS = "holds"
    """The dependency stays valid, or the dependant is deleted together with the file."""
    MENDED = "mended"
    """The dependant's text is updated to the new path."""


class Dependant(Struct, frozen=True):
    """A source that depends on a moved or deleted file.

    Args:
        path: its relative path before the move.
        file: its absolute path before the move.
        kind: "source", "job" or "product".
        type_bits: `TypeOfDependency` of the row (1 source, 2 job, 4 wildcard), or `UnresolvedDependencyType` of a product.
        by_uuid: whether the dependency names an asset id, not a path.
        product: the dependent product, with its sub id `sub_id`; `needs` is the product that it depends on.
            These fields are empty for source and job dependencies.
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
    """A file that is moved or deleted.

    For a metadata file, `owner` is the path of its source ("" = the request names the metadata file, not its source), and the ids
    are empty.

    `old`, `new` are relative to the scan folders `folder`, `new_folder` (names); `old_file`, `new_file` are absolute. The new paths
    are "" for a deletion. UUIDs are in O3DE's form.
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
    """Why the file cannot be moved or deleted, or why moving or deleting it failed."""


class Update(Struct, frozen=True):
    """A dependant whose text names, or may name, a moved file.

    `count` is the number of references that are (or would be) rewritten. `possible` has the (old, new) names of moved files for
    which the text contains no reference.
    """

    path: str
    file: str
    count: int = 0
    possible: tuple[tuple[str, str], ...] = ()
    action: RelocationAction = field(default=RelocationAction.PLANNED, name="deed")
    problem: str = ""


class SkippedFile(Struct, frozen=True):
    """A file that matches the source pattern but is not moved or deleted."""

    path: str
    why: str


class RelocationCounts(Struct, frozen=True):
    """Totals of the whole operation. They include entries that were cut from the lists of a report."""

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
    """The result of a relocation (`is_performed`), or its preview.

    `refusals` has the reasons why no file was changed, or why none would be changed. `items` has all planned files, even if the
    relocation was refused.
    `removed` has the folders that were removed because they became empty.
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
        """Whether every step was completed."""
        return self.is_performed and not (self.counts.failed or self.counts.left or self.counts.update_failures)


def count_report(report: RelocationReport) -> RelocationReport:
    """Return the report with its totals."""
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
    """Return a report whose lists have at most `limit` entries, failures first; the totals are unchanged."""
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


# The report of a relocation consists of lines. Each part of a line has a role, which the terminal and the screen show as a colour.

Line = tuple[str, str]
"""A styled text within a line: (text without control characters, role).

A role is "" (plain), "dim", "bold", "green", "yellow" or "red".
"""
_FATES = {Fate.BREAKS: ("breaks", "red"), Fate.HOLDS: ("holds", "dim"), Fate.MENDED: ("is mended", "green")}
_MARKS = {
    RelocationAction.DONE: ("", ""),
    RelocationAction.PLANNED: ("", ""),
    RelocationAction.FAILED: ("failed", "red"),
    RelocationAction.LEFT: ("not done", "yellow"),
}


def describe_report(report: RelocationReport, *, arrow: str = "→") -> Iterator[Line]:
    """Yield the whole report: files, their dependants, skipped files, and the summary."""
    for item in report.items:
        yield from _item(item, report, arrow)
    listed = sum(len(item.dependants) for item in report.items)
    yield from _more(report.counts.sources + report.counts.metadata - len(report.items), "file")
    yield from _more(report.counts.dependencies - listed, "dependency", "dependencies")
    yield from _updates(report, arrow)
    for skipped in report.skipped:
        yield f"skipped: {line(skipped.path)}: {line(skipped.why)}", "dim"
    yield from _more(report.counts.skipped - len(report.skipped), "skipped file")
    for folder in report.removed:
        yield f"empty folder removed: {line(folder)}", "dim"
    for warning in report.warnings:
        yield f"warning: {line(warning)}", "yellow"
    yield from summarize_report(report)


def summarize_report(report: RelocationReport) -> Iterator[Line]:
    """Yield the summary, and the reasons for refusal."""
    yield _summary(report)
    for refusal in report.refusals:
        yield f"refused: {line(refusal)}", "red"


def _more(number: int, one: str, many: str = "") -> Iterator[Line]:
    """Yield the line about list entries that were cut from the report, if there are any."""
    if number > 0:
        yield f"and {number:,} more {one if number == 1 else many or one + 's'}", "dim"


def _item(item: RelocationItem, report: RelocationReport, arrow: str) -> Iterator[Line]:
    indent = "    " if item.owner else ""
    text = f"{indent}{line(item.old)}"
    if item.new:
        text += f" {arrow} {line(item.new)}" + (f" in {line(item.new_folder)}" if item.new_folder != item.folder else "")
    word, role = _MARKS[item.action]
    yield text + (f"  {word}" if word else ""), role or ("dim" if item.owner else "")
    if item.problem:
        yield f"{indent}    {line(item.problem)}", "red"
    if not report.order.is_delete and report.counts.sources == 1 and item.uuid != item.new_uuid:
        yield f"    {item.uuid} {arrow} {item.new_uuid}", "dim"
    for dependant in item.dependants:
        yield _dependant(dependant)


def _dependant(dependant: Dependant) -> Line:
    word, role = _FATES[dependant.fate]
    way = "by UUID" if dependant.by_uuid else "by path"
    needs = f" on {line(dependant.needs)}" if dependant.needs else ""
    return f"    {line(dependant.path)}: {dependant.kind} dependency{needs}, {way}: {word}", role


def _updates(report: RelocationReport, arrow: str) -> Iterator[Line]:
    for update in report.updates:
        if update.count and not update.problem:
            verb = "rewritten" if update.action is RelocationAction.DONE else "would be rewritten"
            yield f"{line(update.path)}: {count(update.count, 'reference')} {verb}", "green"
        elif update.problem:
            yield f"{line(update.path)}: not rewritten: {line(update.problem)}", "yellow"
        for old, new in update.possible:
            yield f"    {line(update.path)}: a reference was not found and not rewritten: {line(old)} {arrow} {line(new)}", "yellow"
    yield from _more(report.counts.updates - len(report.updates), "rewritten file")


def _summary(report: RelocationReport) -> Line:
    counts, is_delete = report.counts, report.order.is_delete
    files = count(counts.sources, "source")
    if counts.metadata:
        files += f" and {count(counts.metadata, 'metadata file')}"
    verb = "deleted" if is_delete else "moved"
    if not report.is_performed:
        return f"{files} would be {verb}{_uuids(report)}{_dependencies(report)}", "bold"
    parts = [f"{counts.done:,} of {count(counts.sources + counts.metadata, 'file')} {verb}"]
    parts += [f"{counts.failed:,} failed"] if counts.failed else []
    parts += [f"{counts.left:,} not done"] if counts.left else []
    if counts.updates:
        parts.append(f"{counts.updated:,} of {count(counts.updates, 'dependant')} rewritten")
    return f"{', '.join(parts)}{_dependencies(report)}", "green" if report.is_whole else "red"


def _uuids(report: RelocationReport) -> str:
    anew = sum(item.uuid != item.new_uuid for item in report.items) if not report.order.is_delete else 0
    return f", {anew:,} get new UUIDs" if anew > 1 else ", and gets a new UUID" if anew else ""


def _dependencies(report: RelocationReport) -> str:
    counts = report.counts
    if not counts.dependencies:
        return "; nothing depends on them" if counts.sources + counts.metadata > 1 else "; nothing depends on it"
    text = "1 dependency" if counts.dependencies == 1 else f"{counts.dependencies:,} dependencies"
    breaking, holding = counts.breaking, counts.dependencies - counts.breaking - counts.mended
    words = {
        "breaks" if breaking == 1 else "break": breaking,
        "mended": counts.mended,
        "holds" if holding == 1 else "hold": holding,
    }
    return f"; {text}: {', '.join(f'{number:,} {word}' for word, number in words.items() if number)}"

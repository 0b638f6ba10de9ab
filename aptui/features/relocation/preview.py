"""The report of a relocation as people read it, in the terminal and on the screen: lines with roles, no colour yet.

Tests: `tests/features/relocation/test_screen.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aptui.features.relocation.relocation_records import Dependant, Fate, RelocationAction, RelocationItem, RelocationReport
from aptui.shared.printing import count, line

Line = tuple[str, str]
"""(safe text, role): "" = plain, "dim", "bold", "green", "yellow", "red"."""
_FATES = {Fate.BREAKS: ("breaks", "red"), Fate.HOLDS: ("holds", "dim"), Fate.MENDED: ("is mended", "green")}
_MARKS = {
    RelocationAction.DONE: ("", ""),
    RelocationAction.PLANNED: ("", ""),
    RelocationAction.FAILED: ("failed", "red"),
    RelocationAction.LEFT: ("not done", "yellow"),
}


def lines(report: RelocationReport, *, arrow: str = "→") -> Iterator[Line]:
    """Yield the whole report: files, what depends on them, what is left alone, what came of it."""
    for item in report.items:
        yield from _item(item, report, arrow)
    listed = sum(len(item.dependants) for item in report.items)
    yield from _more(report.counts.sources + report.counts.metadata - len(report.items), "file")
    yield from _more(report.counts.dependencies - listed, "dependency", "dependencies")
    yield from _updates(report, arrow)
    for skipped in report.skipped:
        yield f"left alone: {line(skipped.path)}: {line(skipped.why)}", "dim"
    yield from _more(report.counts.skipped - len(report.skipped), "file is left alone", "files are left alone")
    for folder in report.removed:
        yield f"empty folder removed: {line(folder)}", "dim"
    for warning in report.warnings:
        yield f"warning: {line(warning)}", "yellow"
    yield from summary(report)


def summary(report: RelocationReport) -> Iterator[Line]:
    """Yield what it comes to, and why it is refused if it is."""
    yield _summary(report)
    for refusal in report.refusals:
        yield f"refused: {line(refusal)}", "red"


def _more(number: int, one: str, many: str = "") -> Iterator[Line]:
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
            yield f"    {line(update.path)}: nothing found for {line(old)} {arrow} {line(new)}", "yellow"
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
    return f", {anew:,} get another UUID" if anew > 1 else ", and gets another UUID" if anew else ""


def _dependencies(report: RelocationReport) -> str:
    counts = report.counts
    if not counts.dependencies:
        return "; nothing depends on them" if counts.sources + counts.metadata > 1 else "; nothing depends on it"
    text = "1 dependency" if counts.dependencies == 1 else f"{counts.dependencies:,} dependencies"
    fates = [
        f"{number:,} {word}"
        for number, word in _fates(counts.breaking, counts.mended, counts.dependencies - counts.breaking - counts.mended)
    ]
    return f"; {text}: {', '.join(fates)}"


def _fates(breaking: int, mended: int, holding: int) -> Iterable[tuple[int, str]]:
    words = ("breaks" if breaking == 1 else "break", "mended", "holds" if holding == 1 else "hold")
    return [(number, word) for number, word in zip((breaking, mended, holding), words, strict=True) if number]

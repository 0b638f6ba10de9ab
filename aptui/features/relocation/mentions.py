"""Dependants of moved or deleted files, what becomes of them, and the renames that repair their texts.

Tests: `tests/features/relocation/test_relocate.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.paths import parent
from aptui.features.relocation import references
from aptui.features.relocation.dependants import KnownSource, dependants_of, needs_of
from aptui.features.relocation.model import Mention
from aptui.features.relocation.moved_files import native
from aptui.features.relocation.references import Rename, UnreadableError
from aptui.features.relocation.relocation_records import Dependant, Fate, RelocationItem, Update

if TYPE_CHECKING:
    from aptui.features.relocation.model import Plan
    from aptui.store.queries.reader import Reader

OWN = -1
"""Target of what a file that moves itself names by a path seen from its folder."""


def add(plan: Plan, reader: Reader, known: Mapping[str, KnownSource]) -> None:
    """Note the dependants of what moves or goes, what becomes of them, and which texts are to be repaired."""
    wanted = {item.source_id for item in plan.items}
    edges = dependants_of(reader, [item for item in known.values() if item.source.source_id in wanted])
    places = {item.old_file: item for item in plan.items}
    targets: dict[str, list[int]] = {}
    dependants: dict[str, Dependant] = {}
    for at, item in enumerate(plan.items):
        for edge in edges.get(item.source_id, ()) if item.source_id else ():
            targets.setdefault(edge.file, []).append(at)
            dependants[edge.file] = edge
    names: dict[str, _MentionResult] = {}
    if not plan.order.is_delete:
        _note_own(plan, reader)
    for file in dict.fromkeys((*targets, *plan.own)):
        mover = places.get(file)
        path = mover.old if mover else dependants[file].path
        mention = Mention(
            path, file, mover.new if mover else path, mover.new_file if mover else file, tuple(dict.fromkeys(targets.get(file, ())))
        )
        plan.mentions.append(mention)
        if not plan.order.is_delete and (plan.order.updates_references or mover is not None):
            names[file] = _search_names(plan, mention)
    for at, item in enumerate(plan.items):
        found = edges.get(item.source_id, ()) if item.source_id else ()
        plan.items[at] = replace(item, dependants=tuple(replace(edge, fate=_fate(plan, at, edge, places, names)) for edge in found))
    if plan.order.is_delete:
        return
    if not plan.order.updates_references:
        plan.warnings += [
            f"'{mention.path}' names others by paths seen from its folder, which will lead elsewhere"
            for mention in plan.mentions
            if mention.file in names and OWN in names[mention.file].changed
        ]
    else:
        plan.updates = [update for mention in plan.mentions if (update := _update(plan, mention, names[mention.file])) is not None]


def _note_own(plan: Plan, reader: Reader) -> None:
    """Note the dependencies that files moved to another folder leave behind.

    They may name them by a path relative to their old folder.
    """
    # At the top of a scan folder a path seen from there is the path itself, which stays true.
    movers = {
        item.source_id: item
        for item in plan.items
        if item.source_id and item.folder == item.new_folder and parent(item.old) not in ("", parent(item.new))
    }
    moved = {item.old for item in plan.items}
    for source_id, paths in needs_of(reader, list(movers)).items():
        stay = [path for path in paths if path not in moved]
        if stay:
            plan.own[movers[source_id].old_file] = stay


class _MentionResult(Struct, frozen=True):
    """What was found in a dependant's text."""

    changed: frozenset[int] = frozenset()
    same: frozenset[int] = frozenset()
    count: int = 0
    problem: str = ""


def _search_names(plan: Plan, mention: Mention) -> _MentionResult:
    outside = plan.tree.why_not_ours(mention.file)
    if outside:
        return _MentionResult(problem=outside)
    try:
        data = references.read(native(mention.file))
        mended = references.mend(data, renames(plan, mention, mention.targets), prefixes(plan))
    except UnreadableError as error:
        return _MentionResult(problem=str(error))
    problem = references.why_not_writable(native(mention.file)) if mended.count else ""
    return _MentionResult(mended.changed, mended.same, mended.count, problem)


def prefixes(plan: Plan) -> list[str]:
    """Return what may stand before a relative path: the scan folders, as they are called everywhere and in the project."""
    project = str(plan.config.project_dir)
    paths = [folder.path for folder in plan.tree.folders]
    return [f"{path}/" for path in paths] + [
        f"{os.path.relpath(path, project)}/" for path in paths if path.startswith(f"{project}/")
    ]


def renames(plan: Plan, mention: Mention, targets: Iterable[int]) -> list[Rename]:
    """Return what is called otherwise for one dependant, as soon as `targets` have moved."""
    chosen = [(at, plan.items[at]) for at in targets]
    found = [Rename(item.old, item.new, at) for at, item in chosen]
    found += [
        Rename(item.uuid.strip("{}").replace("-", "").lower(), item.new_uuid.strip("{}").replace("-", "").lower(), at, is_uuid=True)
        for at, item in chosen
        if item.uuid != item.new_uuid
    ]
    found += [
        Rename(old, new, at) for at, item in chosen for old, new in plan.products.get(at, ()) if (old, new) != (item.old, item.new)
    ]
    here, there = parent(mention.path), parent(mention.new_path)
    found += [
        Rename(references.write_as_seen_from(here, path), references.write_as_seen_from(there, path), OWN, is_seen_from_here=True)
        for path in plan.own.get(mention.file, ())
        if here != there
    ]
    for at, item in chosen:
        if item.folder == item.new_folder:
            old, new = references.write_as_seen_from(here, item.old), references.write_as_seen_from(there, item.new)
            found.append(Rename(old, new, at, is_seen_from_here=True))
    return found


def _fate(plan: Plan, at: int, edge: Dependant, places: Mapping[str, RelocationItem], names: Mapping[str, _MentionResult]) -> Fate:
    if plan.order.is_delete:
        return Fate.HOLDS if edge.file in places else Fate.BREAKS
    item, named = plan.items[at], names.get(edge.file, _MentionResult())
    if edge.by_uuid and item.uuid == item.new_uuid:
        return Fate.HOLDS
    if at in named.changed:
        return Fate.MENDED if plan.order.updates_references and not named.problem else Fate.BREAKS
    return Fate.HOLDS if at in named.same else Fate.BREAKS


def _update(plan: Plan, mention: Mention, named: _MentionResult) -> Update | None:
    """Return what is to be done about a dependant's text, None where nothing is."""
    missing = [at for at in mention.targets if at not in named.changed and at not in named.same and _breaks(plan, at, mention)]
    if not (named.count or missing):
        return None
    possible = tuple((plan.items[at].old, plan.items[at].new) for at in missing)
    return Update(mention.new_path, mention.new_file, named.count, possible, problem=named.problem)


def _breaks(plan: Plan, at: int, mention: Mention) -> bool:
    return any(edge.file == mention.file and edge.fate is Fate.BREAKS for edge in plan.items[at].dependants)

"""The plan of a move or a deletion: files with their metadata, all dependants, and reasons for refusal; nothing is changed.

Tests: `tests/features/relocation/test_relocate.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.config import trust
from aptui.config.configuration import Config
from aptui.core.model import EdgeKind
from aptui.core.paths import is_below, os_path, parent, path_uuid
from aptui.core.patterns import PatternSet
from aptui.core.project import Companion, ScanFolder
from aptui.features.relocation import moved_files, relocation_patterns
from aptui.features.relocation.moved_files import DiskTree, Git, Rename, UnreadableError
from aptui.features.relocation.relocation_patterns import Destination, FoundSource, RelocationError
from aptui.features.relocation.relocation_records import (
    Dependant,
    Fate,
    Relocate,
    RelocationItem,
    RelocationReport,
    SkippedFile,
    Update,
    count_report,
)
from aptui.store.db.schema import uuid_text
from aptui.store.queries.dependencies import SourceEdges
from aptui.store.queries.reader import ProductRow, Reader, SourceRow

# The dependants of a source are the sources, jobs and products that depend on it by path or UUID. The functions below find the
# dependants of many sources with a few queries.

_BY_PATH = frozenset({EdgeKind.PATH, EdgeKind.JOB, EdgeKind.DISCOVERED})
_SOURCE_TO_SOURCE, _JOB_TO_JOB = 1, 2
"""O3DE's numbers for `TypeOfDependency`."""
_SOURCES_SQL = """SELECT s.SourceID, s.SourceName, s.SourceGuid, f.ScanFolderID, f.DisplayName, f.ScanFolder, x''
FROM json_each(?) k CROSS JOIN Sources s ON {condition} JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK"""
_DEPENDENTS_SQL = """SELECT d.DependencySourceGuid, d.DependencySubID, lower(d.UnresolvedPath), d.UnresolvedDependencyType,
    d.FromAssetId,
p.ProductName, p.SubID, s.SourceID, s.SourceName, s.SourceGuid, f.ScanFolder
FROM ProductDependencies d JOIN Products p ON p.ProductID = d.ProductPK JOIN Jobs j ON j.JobID = p.JobPK
JOIN Sources s ON s.SourceID = j.SourcePK JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK"""


class KnownSource(Struct, frozen=True):
    """A source that is to be moved or deleted, with its products."""

    source: SourceRow
    products: tuple[ProductRow, ...]


def sources_in(reader: Reader, folder: str, root: str, paths: Collection[str]) -> dict[str, KnownSource]:
    """Return {path: source} for the `paths` that are sources of the scan folder with this name or root."""
    sql = _SOURCES_SQL.format(condition="s.SourceName = k.value")
    wanted = set(paths)
    rows = (SourceRow(*row) for row in reader.ask(sql, (json.dumps(sorted(wanted)),)))
    mine = {row.source: row for row in rows if row.source in wanted and (row.root == root or row.scan_folder == folder)}
    products = _products(reader, [row.source_id for row in mine.values()])
    return {path: KnownSource(row, tuple(products.get(row.source_id, ()))) for path, row in mine.items()}


def _products(reader: Reader, ids: Sequence[int]) -> Mapping[int, list[ProductRow]]:
    sql = """SELECT j.SourcePK, p.ProductName, x'', -1, p.JobPK, p.SubID, p.AssetType, p.Flags, p.ProductID
        FROM json_each(?) k CROSS JOIN Jobs j ON j.SourcePK = k.value JOIN Products p ON p.JobPK = j.JobID"""
    found: dict[int, list[ProductRow]] = {}
    for source_id, *row in reader.ask(sql, (json.dumps(ids),)):
        found.setdefault(source_id, []).append(ProductRow(*row))
    return found


def dependants_of(reader: Reader, known: Iterable[KnownSource]) -> dict[int, list[Dependant]]:
    """Return {source id: its dependants}; a dependency of a source on itself is omitted."""
    moved = list(known)
    found: dict[int, dict[Dependant, None]] = {}
    for source_id, dependant in (*_by_edges(reader, moved), *_by_products(reader, moved)):
        found.setdefault(source_id, {})[dependant] = None
    return {source_id: list(dependants) for source_id, dependants in found.items()}


def needs_of(reader: Reader, ids: Collection[int]) -> dict[int, list[str]]:
    """Return {source id: paths of its declared dependencies by path}; a path that is not a source is in lower case."""
    edges = SourceEdges(reader)
    declared = [edge for edge in edges.read_declared_by(ids) if edge.kind in _BY_PATH]
    targets = edges.by_path({edge.target for edge in declared})
    sql = _SOURCES_SQL.format(condition="s.SourceID = k.value")
    rows = reader.ask(sql, (json.dumps(sorted({number for numbers in targets.values() for number in numbers})),))
    names = {row[0]: str(row[1]) for row in rows}
    found: dict[int, dict[str, None]] = {}
    for edge in declared:
        numbers = targets.get(edge.target, ())
        for path in [names[number] for number in numbers] or [edge.target]:
            found.setdefault(edge.source_id, {})[path] = None
    return {source_id: list(paths) for source_id, paths in found.items()}


def _by_edges(reader: Reader, moved: Sequence[KnownSource]) -> Iterator[tuple[int, Dependant]]:
    targets = {target: item.source for item in moved for target in (item.source.source.lower(), item.source.uuid.hex())}
    declared = SourceEdges(reader).read_declared_on(list(targets))
    rows = reader.ask(_SOURCES_SQL.format(condition="s.SourceID = k.value"), (json.dumps(sorted({edge[0] for edge in declared})),))
    sources = {row[0]: SourceRow(*row) for row in rows}
    for edge in declared:
        needed, source = targets.get(edge.target), sources.get(edge.source_id)
        if needed is None or source is None or source.source_id == needed.source_id:
            continue
        is_job = edge.kind is EdgeKind.JOB
        yield needed.source_id, Dependant(
            source.source, f"{source.root}/{source.source}", uuid_text(source.uuid), "job" if is_job else "source",
            _JOB_TO_JOB if is_job else _SOURCE_TO_SOURCE, edge.target == needed.uuid.hex(),
        )  # fmt: skip


def _find_needed(products: Sequence[ProductRow], sub_id: int, platform: str) -> str:
    """Return the name of the product with this sub id, preferably the product of `platform`; "" if no product has this sub id."""
    names = [row.name for row in products if row.sub_id == sub_id]
    return next((name for name in names if name.startswith(f"{platform}/")), names[0] if names else "")


def _by_products(reader: Reader, moved: Sequence[KnownSource]) -> Iterator[tuple[int, Dependant]]:
    by_uuid = {item.source.uuid: item for item in moved}
    by_path: dict[str, KnownSource] = {}
    for item in moved:
        for product in item.products:
            by_path.setdefault(product.name.partition("/")[2].lower(), item)
        by_path[item.source.source.lower()] = item
    # The query reads the whole table once, because neither of the two columns in its WHERE clause has an index.
    sql = f"""{_DEPENDENTS_SQL} WHERE hex(d.DependencySourceGuid) IN (SELECT value FROM json_each(?))
        OR (d.UnresolvedPath <> '' AND lower(d.UnresolvedPath) IN (SELECT value FROM json_each(?)))"""
    uuids = [uuid.hex().upper() for uuid in by_uuid]
    for guid, sub_id, path, type_bits, by_id, name, own_sub_id, source_id, source, uuid, root in reader.ask(
        sql, (json.dumps(uuids), json.dumps(list(by_path)))
    ):
        needed = by_path.get(path) if path else by_uuid.get(bytes(guid))
        if needed is None or source_id == needed.source.source_id:
            continue
        needs = path or _find_needed(needed.products, sub_id, str(name).partition("/")[0])
        yield needed.source.source_id, Dependant(
            source, f"{root}/{source}", uuid_text(uuid), "product", type_bits, bool(by_id), name, needs, own_sub_id
        )  # fmt: skip


# `make_plan` creates these records, which describe a relocation: the files to move, the texts to update, and the problems.


class Mention(Struct, frozen=True):
    """A dependant whose text may contain moved paths. `targets` are the indices of the items that it depends on."""

    path: str
    file: str
    new_path: str
    new_file: str
    targets: tuple[int, ...]


class Plan(Struct):
    """The report of a planned relocation, and the data needed to perform it."""

    order: Relocate
    tree: DiskTree
    config: Config
    items: list[RelocationItem] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    products: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """{index of an item: (old, new) paths of its products, without platform}."""
    own: dict[str, list[str]] = field(default_factory=dict)
    """{moved file: paths of its dependencies that are not moved}."""
    git: Git | None = None
    tracked: set[str] = field(default_factory=set)

    def report(self) -> RelocationReport:
        """Return the plan as a report."""
        return count_report(
            RelocationReport(
                self.order, tuple(self.items), tuple(self.updates), tuple(self.skipped), tuple(self.refusals), tuple(self.warnings)
            )
        )


# For each moved or deleted file, the plan lists the file's dependants, whether they would break, and how their texts are updated.

OWN = -1
"""Value of `Rename.target` for a relative reference inside a moved file to a file that is not moved."""


def note_dependants(plan: Plan, reader: Reader, known: Mapping[str, KnownSource]) -> None:
    """Record the dependants of moved or deleted files, the effect on the dependants, and the texts to update."""
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
            f"'{mention.path}' contains paths relative to its folder; after the move they lead to other files"
            for mention in plan.mentions
            if mention.file in names and OWN in names[mention.file].changed
        ]
    else:
        plan.updates = [update for mention in plan.mentions if (update := _update(plan, mention, names[mention.file])) is not None]


def _note_own(plan: Plan, reader: Reader) -> None:
    """For each source that moves to another folder of its scan folder, record its dependencies that are not moved.

    The moved source may name these dependencies by paths relative to its old folder.
    """
    # A file that lies directly in a scan folder is omitted. The paths that it names are relative to the scan folder, and a builder
    # can still resolve them after the move.
    movers = {
        item.source_id: item
        for item in plan.items
        if item.source_id and item.folder == item.new_folder and parent(item.old) not in ("", parent(item.new))
    }
    moved = {item.old for item in plan.items}
    for source_id, paths in needs_of(reader, list(movers)).items():
        stay = [found for path in paths if path not in moved and (found := plan.tree.spell(path))]
        if stay:
            plan.own[movers[source_id].old_file] = stay
    edges = SourceEdges(reader).read_declared_by(movers)
    patterns = {(movers[edge.source_id].old, edge.target): None for edge in edges if edge.kind is EdgeKind.WILDCARD}
    plan.warnings += [
        f"'{path}' depends on all files that match '{pattern}'; check its patterns after the move"
        for path, pattern in patterns
        if is_below(pattern, parent(path).lower())
    ]


class _MentionResult(Struct, frozen=True):
    """The references found in a dependant's text."""

    changed: frozenset[int] = frozenset()
    same: frozenset[int] = frozenset()
    count: int = 0
    problem: str = ""


def _search_names(plan: Plan, mention: Mention) -> _MentionResult:
    outside = plan.tree.why_not_ours(mention.file)
    if outside:
        return _MentionResult(problem=outside)
    try:
        data = moved_files.read(os_path(mention.file))
        mended = moved_files.replace_names(data, renames_for(plan, mention, mention.targets), prefixes_of(plan))
    except UnreadableError as error:
        return _MentionResult(problem=str(error))
    problem = moved_files.why_not_writable(os_path(mention.file)) if mended.count else ""
    return _MentionResult(mended.changed, mended.same, mended.count, problem)


def prefixes_of(plan: Plan) -> list[str]:
    """Return the prefixes that may precede a relative path in a text: each scan folder, absolute and relative to the project."""
    project = str(plan.config.project_dir)
    paths = [folder.path for folder in plan.tree.folders]
    return [f"{path}/" for path in paths] + [
        f"{os.path.relpath(path, project)}/" for path in paths if path.startswith(f"{project}/")
    ]


def renames_for(plan: Plan, mention: Mention, targets: Iterable[int]) -> list[Rename]:
    """Return the renames for one dependant after `targets` have moved."""
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
        Rename(
            moved_files.write_as_seen_from(here, path),
            moved_files.write_as_seen_from(there, path),
            OWN,
            is_seen_from_here=True,
        )
        for path in plan.own.get(mention.file, ())
        if here != there
    ]
    for at, item in chosen:
        if item.folder == item.new_folder:
            old, new = moved_files.write_as_seen_from(here, item.old), moved_files.write_as_seen_from(there, item.new)
            found.append(Rename(old, new, at, is_seen_from_here=True))
    names = dict.fromkeys(_list_longer(plan.tree, [item for _, item in chosen]))
    found += [Rename(path, path, OWN) for path in names]
    found += [
        Rename(path, path, OWN, is_seen_from_here=True) for path in (moved_files.write_as_seen_from(here, name) for name in names)
    ]
    return found


def _list_longer(tree: DiskTree, items: Iterable[RelocationItem]) -> Iterator[str]:
    """Yield the files beside the moved files whose name ends with a blank and the name of a moved file.

    A text with such a name does not refer to the moved file: "big rock.png" is not "rock.png".
    """
    moved: dict[tuple[str, str], set[str]] = {}
    for item in items:
        folder, _, name = item.old.rpartition("/")
        moved.setdefault((item.folder, folder), set()).add(name.lower())
    scan_folders = {each.name: each for each in tree.folders}
    for (scan_folder, folder), names in moved.items():
        if scan_folder in scan_folders:
            for other in tree.names_with_blanks(scan_folders[scan_folder], folder):
                words = other.lower().split(" ")
                if any(" ".join(words[at:]) in names for at in range(1, len(words))):
                    yield f"{folder}/{other}" if folder else other


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
    """Return the update of a dependant: its references to rewrite, and the moved files to which no reference was found.

    None = there are neither such references nor such files.
    """
    missing = [
        at
        for at in mention.targets
        if at not in named.changed | named.same
        and any(edge.file == mention.file and edge.fate is Fate.BREAKS for edge in plan.items[at].dependants)
    ]
    if not (named.count or missing):
        return None
    possible = tuple((plan.items[at].old, plan.items[at].new) for at in missing)
    return Update(mention.new_path, mention.new_file, named.count, possible, problem=named.problem)


META = "meta"
"""Suffix of the file that stores a source's UUID."""


def make_plan(order: Relocate, config: Config, reader: Reader) -> Plan:
    """Check a request and return its plan.

    Raises:
        RelocationError: the source or the destination is not valid.
    """
    plan = Plan(order, DiskTree(config), config)
    source, destination = (_with_slashes(text, plan.tree) for text in (order.source, order.destination))
    found = relocation_patterns.find(source, plan.tree)
    known = sources_in(reader, found.folder.name, found.folder.path, found.files)
    _add_sources(plan, found, known)
    target = None if order.is_delete else relocation_patterns.read_destination(found, destination, plan.tree)
    if order.uses_scm:
        plan.git = Git(found.folder.path, runs_filters=trust.is_trusted(config))
        plan.tracked = plan.git.list_tracked()
    if target is not None:
        _set_destinations(plan, found, target)
        _set_new_names(plan, known)
    note_dependants(plan, reader, known)
    _check_plan(plan)
    return plan


def _with_slashes(text: str, tree: DiskTree) -> str:
    r"""Return a path with every `\` replaced by `/`, unless a file has exactly this name. A leading `./` is removed."""
    if "\\" in text and not any(tree.exists(os.path.join(folder.path, text)) for folder in tree.folders):
        text = text.replace("\\", "/")
    while text.startswith("./"):
        text = text[2:].lstrip("/")
    return re.sub("//+", "/", text)


# ------------------------------------------------------------------------------------------------------------------- files


def _add_sources(plan: Plan, found: FoundSource, known: Mapping[str, KnownSource]) -> None:
    """Record the matched sources, each followed by its metadata, and metadata files that matched without their source.

    Record other matched files as skipped.
    """
    companions = _Companions(plan, found.folder)
    chosen = {rel: known[rel].source for rel in found.files if rel in known}
    others = {rel for rel in found.files if rel not in known and plan.order.allows_other_files and not companions.is_metadata(rel)}
    owned = {name: rel for rel in (*known, *others) for name in companions.of(rel)}
    for rel in found.files:
        if rel in chosen or rel in others:
            row = chosen.get(rel)
            plan.items.append(
                _item(found.folder, rel, source_id=row.source_id, uuid=uuid_text(row.uuid)) if row else _item(found.folder, rel)
            )
            plan.items += [
                _item(found.folder, name, is_metadata=True, owner=rel)
                for name in companions.of(rel)
                if name not in known and owned[name] == rel
            ]
        elif rel in owned and not plan.order.excludes_metadata:
            continue
        elif not companions.is_metadata(rel):
            plan.skipped.append(SkippedFile(rel, f"it is not a source: {_why_no_source(plan, found.folder, rel)}"))
        elif plan.order.excludes_metadata:
            plan.skipped.append(SkippedFile(rel, "metadata files are left out, as requested"))
        else:
            plan.items.append(_item(found.folder, rel, is_metadata=True))
    if plan.items:
        return
    if found.is_plain:
        raise RelocationError(
            f"'{found.pattern}' in scan folder '{found.folder.name}' is not a source: "
            f"{_why_no_source(plan, found.folder, found.pattern)}",
            "Search matched an existing file but it is not a source asset.  This utility only handles source assets.",
            hint=_NO_SOURCE_HINT,
        )
    raise RelocationError(
        f"'{found.pattern}' matches files, but no sources",
        "Wildcard search matched one or more files but none are source assets.  This utility only handles source assets.",
        hint=_NO_SOURCE_HINT,
    )


_NO_SOURCE_HINT = (
    "'aptui why FILE' shows why a file has no jobs and which sources need it; move or delete such a file without aptui"
)


def _why_no_source(plan: Plan, folder: ScanFolder, rel: str) -> str:
    """Return why an existing file that the database does not know as a source is not a source."""
    return plan.tree.why_not_scanned(folder, rel) or "it has no jobs"


def _item(
    folder: ScanFolder, rel: str, *, is_metadata: bool = False, owner: str = "", source_id: int = 0, uuid: str = ""
) -> RelocationItem:
    return RelocationItem(
        rel, f"{folder.path}/{rel}", folder.name, is_metadata=is_metadata, owner=owner, source_id=source_id, uuid=uuid
    )


class _Companions:
    """The metadata files of sources: files that the configuration declares, and `.meta` files."""

    def __init__(self, plan: Plan, folder: ScanFolder) -> None:
        self._tree, self._folder, self._is_excluded = plan.tree, folder, plan.order.excludes_metadata
        self._rules = [(rule, re.compile(rule.source.regex, re.IGNORECASE)) for rule in plan.config.project.companions]
        self._suffixes = tuple({f".{META}", *(f".{rule.suffix.lower()}" for rule, _ in self._rules)})
        self._names: dict[str, dict[str, list[str]]] = {}

    def is_metadata(self, rel: str) -> bool:
        """Whether a file has the name of a metadata file."""
        return rel.lower().endswith(self._suffixes)

    def of(self, rel: str) -> list[str]:
        """Return the existing metadata files of a source; their names are compared without case."""
        if self._is_excluded:
            return []
        wanted = [f"{rel}.{META}"]
        wanted += [companion_path(rule, rel) for rule, regex in self._rules if regex.fullmatch(rel)]
        found = [name for path in wanted for name in self._in(parent(rel)).get(path.lower(), []) if name != rel]
        return list(dict.fromkeys(found))

    def _in(self, folder: str) -> dict[str, list[str]]:
        known = self._names.get(folder)
        if known is None:
            known = self._names[folder] = {}
            prefix = f"{folder}/" if folder else ""
            for name in self._tree.names(self._folder, folder)[1]:
                known.setdefault(f"{prefix}{name}".lower(), []).append(f"{prefix}{name}")
        return known


def companion_path(rule: Companion, rel: str) -> str:
    """Return the path of the metadata file of `rel` according to the configured rule; `rel` must match the rule."""
    stem, dot, extension = rel.rpartition(".")
    is_replaced = rule.replaces and dot and extension.lower() == rule.replaces.lower()
    return f"{stem if is_replaced else rel}.{rule.suffix}"


# ------------------------------------------------------------------------------------------------------------- destinations


def _set_destinations(plan: Plan, found: FoundSource, target: Destination) -> None:
    """Set the destination of each file; a file that is already at its destination is skipped."""
    sent: dict[str, RelocationItem] = {}
    remaining: list[RelocationItem] = []
    for item in plan.items:
        owner = sent.get(item.owner) if item.owner else None
        if item.owner and owner is None:
            continue  # the source of this metadata file is already at its destination
        new = _destination_beside(item, owner) if owner is not None else _absolute(found.folder, target.of(item.old))
        place = plan.tree.owner(new)
        if new == item.old_file:
            plan.skipped.append(SkippedFile(item.old, "the file is already at its destination"))
            continue
        moved = replace(item, new_file=new, new=place[1] if place else "", new_folder=place[0].name if place else "")
        sent[item.old] = moved
        remaining.append(moved)
    plan.items = remaining


def _absolute(folder: ScanFolder, path: str) -> str:
    return path if path.startswith("/") else f"{folder.path}/{path}"


def _destination_beside(item: RelocationItem, owner: RelocationItem) -> str:
    """Return the destination of a metadata file: beside the source, with the source's new name."""
    old_name = owner.old.rpartition("/")[2]
    folder, _, new_name = owner.new_file.rpartition("/")
    name = item.old.rpartition("/")[2]
    if name.lower().startswith(f"{old_name.lower()}."):
        return f"{folder}/{new_name}{name[len(old_name) :]}"
    return f"{folder}/{new_name.rpartition('.')[0] or new_name}{name[len(old_name.rpartition('.')[0]) :]}"


def _set_new_names(plan: Plan, known: Mapping[str, KnownSource]) -> None:
    """Set the new UUIDs of the sources and the new names of their products."""
    travelling = {item.owner: item.old_file for item in plan.items if item.is_metadata and item.old.lower().endswith(f".{META}")}
    for at, item in enumerate(plan.items):
        if not item.source_id:
            continue
        uuid = known[item.old].source.uuid
        keeps_identity = item.old in travelling and _has_uuid(travelling[item.old], uuid)
        plan.items[at] = replace(item, new_uuid=item.uuid if keeps_identity else uuid_text(path_uuid(item.new)))
        plan.products[at] = list(_product_names(item, known[item.old]))


def _has_uuid(meta_file: str, uuid: bytes) -> bool:
    try:
        text = moved_files.read(os_path(meta_file))
    except UnreadableError:
        return False
    return uuid.hex().encode() in text.lower().replace(b"-", b"")


def _product_names(item: RelocationItem, known: KnownSource) -> Iterator[tuple[str, str]]:
    """Yield (old, new) paths of products as references spell them: lower case, without platform.

    Products whose new name is not known are omitted.
    """
    old_name, new_name = (path.rpartition("/")[2].lower() for path in (item.old, item.new))
    old_stem, new_stem = (name.rpartition(".")[0] or name for name in (old_name, new_name))
    for product in known.products:
        path = product.name.partition("/")[2].lower()
        name = path.rpartition("/")[2]
        if old_name == new_name:
            renamed = name
        elif name.startswith(old_stem):
            renamed = new_stem + name[len(old_stem) :]
        else:
            continue
        folder = parent(item.new).lower()
        yield path, f"{folder}/{renamed}" if folder else renamed


# --------------------------------------------------------------------------------------------------------------- objections


def _check_plan(plan: Plan) -> None:
    """Record every reason to refuse the plan."""
    order = plan.order
    seen: dict[str, RelocationItem] = {}
    for at, item in enumerate(plan.items):
        problem = _problem(plan, item)
        other = seen.setdefault(item.new_file.lower(), item) if item.new_file else item
        if not problem and other is not item:
            problem = f"'{other.old}' would be moved to the same new path as this file"
        if problem:
            plan.items[at] = replace(item, problem=problem)
            plan.refusals.append(f"'{item.old}': {problem}")
    if not order.is_delete:
        _warn(plan, [item for item in plan.items if not item.problem and item.source_id])
    breaking = {edge.path for item in plan.items for edge in item.dependants if edge.fate is Fate.BREAKS}
    if breaking and not order.allows_broken and not order.updates_references:
        action = "deleted" if order.is_delete else "moved"
        files = "one file depends" if len(breaking) == 1 else f"{len(breaking):,} files depend"
        plan.refusals.append(f"{files} on files that would be {action}, and would then have missing dependencies")
    if not order.allows_broken:
        plan.refusals += [f"'{update.path}': {update.problem}" for update in plan.updates if update.problem and update.count]


def _problem(plan: Plan, item: RelocationItem) -> str:
    tree = plan.tree
    why = tree.why_not_from(item.old_file, ignores_mode=item.old_file in plan.tracked)
    if why or plan.order.is_delete:
        return why
    if relocation_patterns.differ_in_case_only(item.old_file, item.new_file):
        return "the new name must differ in more than case, because some systems ignore case"
    if not item.new:
        return "the destination is outside the scan folders"
    return tree.why_not_to(item.old_file, item.new_file)


def _warn(plan: Plan, items: Iterable[RelocationItem]) -> None:
    """Record warnings about sources that will be ignored, overridden, or without a builder at their new path."""
    folders = {folder.name: folder for folder in plan.tree.folders}
    builders = PatternSet([builder.patterns for builder in plan.config.project.builders])
    doubts: dict[str, list[str]] = {}
    for item in items:
        why = plan.tree.why_not_scanned(folders[item.new_folder], item.new)
        if not why and builders.builders_for(item.old) and not builders.builders_for(item.new):
            why = "no builder matches this path"
        if why:
            doubts.setdefault(why, []).append(item.new)
    for why, paths in doubts.items():
        more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        plan.warnings.append(f"'{paths[0]}'{more}: {why}, so the file is no longer a source")


def group_items(items: Sequence[RelocationItem]) -> Iterator[list[int]]:
    """Yield, for each source, the indices of the source and its metadata."""
    group: list[int] = []
    for at, item in enumerate(items):
        if group and not item.owner:
            yield group
            group = []
        group.append(at)
    if group:
        yield group

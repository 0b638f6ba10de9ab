"""Facts about builders for the Builders screen: rows, patterns, details, and the metrics as a tree.

The facts come from the configuration and the database. Nothing is drawn here. The entries of the metrics are read in a thread when
the user opens a group.

Tests: `tests/tui/screens/builders/test_builders_pane.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.project import Builder, BuilderKind, PatternKind
from aptui.shared.errors import KnownError
from aptui.shared.printing import count
from aptui.store.db.schema import translate_errors, uuid_text
from aptui.store.queries.metrics import BuilderSpent, Entry, Spent, analysis_entries, builder_names, builders_spent, job_entries
from aptui.store.queries.reader import open_reader
from aptui.tui.background import run_in_background
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import BAR_CELLS, Cell, share_bar, width_of
from aptui.tui.widgets.listing import ListedRow
from aptui.tui.widgets.table import Column
from aptui.tui.widgets.tree import Branch, LazyTree
from aptui.tui.words import duration_text, size_text

if TYPE_CHECKING:
    from aptui.config.configuration import Config


TABS = ("patterns", "details", "metrics")
BUILDERS = (
    Column("name", "Builder", 0, 16),
    Column("kind", "Kind", 7, drop_rank=1),
    Column("version", "Version", 0, 7, drop_rank=4, is_prose=True),
    Column("patterns", "Patterns", 0, 8, drop_rank=2, weight=3, is_prose=True),
    Column("jobs", "Jobs", 9, align="right"),
    Column("average", "Avg. job", 10, align="right", drop_rank=3),
    Column("total", "Time", 8, align="right"),
    Column("share", "Share", BAR_CELLS, drop_rank=5),
)
PATTERNS = (Column("text", "Pattern", 0, 16, weight=2), Column("kind", "Kind", 8), Column("place", "From", 0, 12, drop_rank=1))
DESCENDING = frozenset({"jobs", "average", "total", "share"})
_NARROWEST_NAME, _WIDEST_NAME = 10, 32
_PACKAGES = re.compile(r" \([^()]*\)")
"""Matches the list of packages, in parentheses, in a builder's version. The table omits it to save room; the details show it."""
_FLAGS = (
    ("is_critical", "critical: its jobs run before all other jobs"),
    ("deletes_products_on_failure", "deletes the old products when a job fails"),
)


class KnownBuilder(Struct, frozen=True):
    """A builder and the time that it has taken; `builder` is None if the database has a builder that is not configured."""

    uuid: bytes
    name: str
    builder: Builder | None = None
    spent: BuilderSpent | None = None

    @property
    def all_spent(self) -> Spent:
        """The time of the builder's analyses and jobs together."""
        return self.spent.analyses + self.spent.jobs if self.spent else Spent()


class FoundBuilders(Struct, frozen=True):
    """All builders; `trouble` is the error if the read failed."""

    builders: tuple[KnownBuilder, ...] = ()
    trouble: str = ""


def find(database: Path, config: Config | None, complete: Callable[[], Sequence[Builder]] | None) -> FoundBuilders:
    """Return all builders. The call may start a process, and takes a second with a million jobs, so make it in a thread.

    Args:
        config: configuration of the project, None = only a database exists.
        complete: returns the configured builders, completed by the facts in their code.
    """
    troubles: list[str] = []
    builders: Sequence[Builder] = config.project.builders if config else ()
    names: Mapping[bytes, str] = {each.uuid: each.name for each in builders}
    if complete is not None:
        try:
            builders = complete()
        except KnownError as error:
            troubles.append(str(error))
    spent: dict[bytes, BuilderSpent] = {}
    try:
        with translate_errors(database), closing(open_reader(database)) as reader:
            spent = {each.builder: each for each in builders_spent(reader)}
            if spent.keys() - names.keys() - {each.uuid for each in builders}:
                names = builder_names(reader, names)
    except KnownError as error:
        troubles.append(error.what)
    known = [KnownBuilder(each.uuid, each.name, each, spent.pop(each.uuid, None)) for each in builders]
    known += [KnownBuilder(uuid, names.get(uuid) or uuid_text(uuid), None, each) for uuid, each in spent.items()]
    return FoundBuilders(tuple(known), "; ".join(troubles))


def columns_for(builders: Sequence[KnownBuilder]) -> tuple[Column, ...]:
    """Return the columns of the list; the columns of names and patterns are as wide as their texts, if there is room."""
    longest = max((width_of(each.name) for each in builders), default=0) + len("✗ ")
    least = max(_NARROWEST_NAME, min(_WIDEST_NAME, longest))
    patterns = max((width_of(_patterns_text(each.builder)) for each in builders if each.builder), default=0)
    of_text = {"name": (least, max(least, longest)), "patterns": (BUILDERS[3].min_width, max(BUILDERS[3].min_width, patterns))}
    return tuple(
        replace(each, min_width=of_text[each.id][0], needs=of_text[each.id][1]) if each.id in of_text else each for each in BUILDERS
    )


def _patterns_text(builder: Builder) -> str:
    return ", ".join(pattern.text for pattern in builder.patterns)


def duration_cell(took_ms: float, count: int) -> Cell:
    """Return a cell with a duration, or with a dash if the number of runs (`count`) is 0."""
    return Cell(duration_text(round(took_ms))) if count else Cell(glyph("none"), "muted")


def join_searched(known: KnownBuilder) -> str:
    """Return the text in which a filter of builders searches: the name and the patterns."""
    return f"{known.name} {' '.join(pattern.text for pattern in known.builder.patterns) if known.builder else ''}"


def row_of(key: int, known: KnownBuilder, broken: str, all_ms: int) -> ListedRow:
    """Return the row of a builder; `broken` is why the builder is not used, "" = used; `all_ms` is the time of all builders."""
    builder, spent = known.builder, known.all_spent
    of_jobs = known.spent.jobs if known.spent else Spent()
    jobs = of_jobs.count
    name = f"{glyph('failed')} {known.name}" if broken else known.name
    nothing = Cell(glyph("none"), "muted")
    cells = {
        "name": Cell(name, "failed" if broken else ""),
        "kind": Cell(builder.kind.value, "muted") if builder else nothing,
        "version": Cell(_PACKAGES.sub("", builder.version), "muted") if builder else nothing,
        "patterns": Cell(_patterns_text(builder), "muted") if builder else nothing,
        "jobs": Cell(f"{jobs:,}") if jobs else nothing,
        "average": duration_cell(of_jobs.average_ms, jobs),
        "total": duration_cell(spent.total_ms, spent.count),
        "share": Cell(share_bar(spent.total_ms / all_ms) if all_ms else "", "accent"),
    }
    order = {
        "name": known.name.lower(),
        "jobs": jobs,
        "average": of_jobs.average_ms,
        "total": spent.total_ms,
        "share": spent.total_ms,
    }
    return ListedRow(key, cells, order, known)


def pattern_rows(known: KnownBuilder, config: Config | None) -> list[ListedRow]:
    """Return one row for each pattern of a builder."""
    if known.builder is None:
        return []
    place = _place(known, config).removeprefix(f"{config.project_dir}{os.sep}" if config else "")
    declared = config is not None and any(each.name == known.name and each.patterns for each in config.project.builders)
    origin = (
        place
        if declared or not known.builder.origin
        else known.builder.origin.removeprefix("file:").rpartition(":")[0] or "its code"
    )
    return [
        ListedRow(
            at,
            {
                "text": Cell(pattern.text, "path"),
                "kind": Cell("regex" if pattern.kind is PatternKind.REGEX else "glob", "muted"),
                "place": Cell(origin, "muted"),
            },
        )
        for at, pattern in enumerate(known.builder.patterns)
    ]


def _place(known: KnownBuilder, config: Config | None) -> str:
    return config.places.get(known.name, "") if config else ""


def details(known: KnownBuilder, config: Config | None, broken: str) -> list[tuple[str, str]]:
    """Return the facts about a builder, except patterns and metrics, as (key, value)."""
    builder = known.builder
    if builder is None:
        return [("Name", known.name), ("Id", uuid_text(known.uuid)), ("Known from", "only the asset database")]
    flags = [text for name, text in _FLAGS if getattr(builder, name)]
    rows = [
        ("Name", builder.name),
        ("Broken", broken),
        ("Type", _type(builder)),
        ("Version", builder.version),
        ("Fingerprint", builder.analysis_fingerprint),
        ("Code digest", builder.code_digest.hex()),
        ("Id", uuid_text(builder.uuid)),
        ("Platforms", ", ".join(builder.platforms)),
        ("Flags", "\n".join(flags) or "none"),
        ("Priority", f"{builder.priority}" if builder.priority else ""),
        ("Limits", _limits(builder)),
        ("Retries", _retries(builder, config)),
        ("Holds", _resources(builder, config)),
        ("Asset type", uuid_text(builder.asset_type) if builder.asset_type else ""),
        ("Configured", _place(known, config)),
        ("Code", builder.origin),
        *_command(builder),
        *(
            (f"Tool {tool.name}", f"{tool.path}\n{tool.digest}" if tool.path else "missing")
            for tool in (config.tools if config else ())
            if tool.builder == known.name
        ),
        *_params(builder),
    ]
    return [(key, value) for key, value in rows if value]


def _type(builder: Builder) -> str:
    words = {BuilderKind.COPY: "copy: copies files unchanged", BuilderKind.COMMAND: "command: runs a program"}
    return words.get(builder.kind, "python: a Python class that workers run")


def _limits(builder: Builder) -> str:
    parts = [f"{_limit(builder.analyse_limit_s)} an analysis"] if builder.needs_analysis else []
    parts.append(f"{_limit(builder.process_limit_s)} a job")
    parts += [f"{size_text(builder.memory_limit_bytes)} of memory"] if builder.memory_limit_bytes > 0 else []
    return ", ".join(parts)


def _limit(limit_s: float) -> str:
    """Return a time limit as short text, such as "45 s", "2m" or "1h 30m"."""
    return f"{limit_s:g} s" if limit_s < 60 else duration_text(round(limit_s * 1000)).removesuffix(" 00s").removesuffix(" 00m")


def _retries(builder: Builder, config: Config | None) -> str:
    rule = builder.retry or (config.project.retry if config else None)
    return f"at most {count(rule.times, 'time')}, after {', '.join(rule.on)}" if rule and rule.times else ""


def _resources(builder: Builder, config: Config | None) -> str:
    limits = dict(config.project.resources) if config else {}
    return ", ".join(f"{name} ({limits[name]} in all)" if name in limits else name for name in builder.resources)


def _command(builder: Builder) -> list[tuple[str, str]]:
    rule = builder.command
    if rule is None:
        return []
    named = (("Dependencies", "dependency_regex"), ("Warnings", "warning_regex"), ("Errors", "error_regex"), ("Depfile", "depfile"))
    return [
        ("Command", rule.command),
        ("Products", "\n".join(rule.products)),
        *((title, getattr(rule, name)) for title, name in named),
    ]


def _params(builder: Builder) -> list[tuple[str, str]]:
    rows = []
    for title, text in (("Params", builder.params), *((f"Params {platform}", text) for platform, text in builder.platform_params)):
        try:
            values = json.loads(text)
        except ValueError:
            values = {}
        lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
        rows.append((title, "\n".join(lines)))
    return rows


def is_descending_next(sort: tuple[str, bool] | None, column_id: str, descending: frozenset[str]) -> bool:
    """Return whether the column that the user chose must be sorted in descending order.

    If the rows are already sorted by this column, the order is reversed. Otherwise the order is descending if the column is in
    `descending`.
    """
    return not sort[1] if sort is not None and sort[0] == column_id else column_id in descending


METRICS = (
    Column("name", "Name", 0, 16, weight=3),
    Column("platform", "Platform", 0, 10, drop_rank=2, is_prose=True),
    Column("count", "Count", 7, align="right", drop_rank=1),
    Column("total", "Total", 8, align="right"),
    Column("average", "Average", 9, align="right", drop_rank=4),
    Column("slowest", "Slowest", 9, align="right", drop_rank=3),
    Column("bar", "Share", BAR_CELLS, drop_rank=5),
)
MOST = 1000
"""Maximum number of entries that are read for each group; the slowest entries are read."""
SORTED_BY = ("name", "count", "total", "average", "slowest")
LARGEST_FIRST = frozenset(SORTED_BY[1:])
_MOST_NAME = 32
"""Maximum width of a name that is shown in full (cells); less important columns are dropped to make room for it."""
_INDENT = 4
"""Cells before the name of an entry in the tree."""
_TITLES = ("Analysis jobs", "Processing jobs")


class MetricsGroup(Struct):
    """A group of entries in the metrics: the analyses (0) or the jobs (1) of a builder. `entries` is None until they are read."""

    which: int
    spent: Spent
    entries: list[Entry] | None = None
    is_asked: bool = False


class Metrics:
    """The metrics of one builder as a tree.

    Args:
        in_ui: calls a function in the app's thread.
        changed: called in the app's thread when entries arrived.
    """

    def __init__(self, database: Path, in_ui: Callable[..., None], changed: Callable[[str], None]) -> None:
        self._database, self._in_ui, self._changed = database, in_ui, changed
        self.tree = LazyTree(self._children)
        self._known: KnownBuilder | None = None
        self._groups: list[MetricsGroup] = []
        self._sort = ("total", True)
        self._passes: Callable[[Sequence[Entry]], Sequence[Entry]] = lambda entries: entries

    def show(self, known: KnownBuilder | None) -> bool:
        """Show another builder; return whether the tree changed."""
        if known == self._known:
            return False
        self._known = known
        spent = {1: known.spent.jobs, 0: known.spent.analyses} if known and known.spent else {}  # jobs take most of the time
        self._groups = [MetricsGroup(which, each) for which, each in spent.items() if each.count]
        self._put_roots()
        return True

    def sort_by(self, column_id: str, is_descending: bool) -> None:
        """Set the order of entries."""
        self._sort = (column_id, is_descending)
        self._grow_all()

    def narrow(self, passes: Callable[[Sequence[Entry]], Sequence[Entry]]) -> None:
        """Show only the entries that match the filter."""
        self._passes = passes
        self._grow_all()

    def entry(self, key: int | None) -> Entry | None:
        """Return the entry that the tree shows under this key, None if the key does not belong to an entry."""
        branch = None if key is None else self.tree.branch(key)
        return branch.data if branch is not None and isinstance(branch.data, Entry) else None

    def columns(self) -> tuple[Column, ...]:
        """Return the columns, as wide as the texts of the entries that were read."""
        entries = [entry for group in self._groups for entry in group.entries or ()]
        return metrics_columns(entries, self._known.name if self._known else "")

    def group_keys(self) -> list[int]:
        """Return the keys of the groups."""
        return [self.tree.key(node) for node in range(self.tree.node_count) if self.tree.parent[node] < 0]

    @property
    def entry_count(self) -> int:
        """Number of visible entries in all groups."""
        return self.tree.node_count - len(self.group_keys())

    def _put_roots(self) -> None:
        most = max((group.spent.total_ms for group in self._groups), default=0)
        self.tree.set_roots([Branch(_group_cells(group, most), group, has_children=True) for group in self._groups])
        self._grow_all()

    def _grow_all(self) -> None:
        for key in self.group_keys():
            branch = self.tree.branch(key)
            if branch is not None and branch.data.entries is not None:
                self.tree.grow(branch, self._leaves(branch.data))

    def _children(self, branch: Branch) -> Sequence[Branch] | None:
        group: MetricsGroup = branch.data
        if group.entries is None and not group.is_asked and self._known is not None:
            group.is_asked = True
            run_in_background("aptui-metrics", self._read, self._known, group)
        return None if group.entries is None else self._leaves(group)

    def _read(self, known: KnownBuilder, group: MetricsGroup) -> None:
        try:
            with translate_errors(self._database), closing(open_reader(self._database)) as reader:
                found = (job_entries if group.which else analysis_entries)(reader, known.uuid, MOST)
        except KnownError as error:
            self._in_ui(self._accept_entries, group, [], error.what)
        else:
            self._in_ui(self._accept_entries, group, found, "")

    def _accept_entries(self, group: MetricsGroup, entries: list[Entry], trouble: str) -> None:
        group.entries = entries
        if group in self._groups:
            self._grow_all()
        self._changed(trouble)

    def _leaves(self, group: MetricsGroup) -> list[Branch]:
        column_id, is_descending = self._sort
        entries = list(self._passes(group.entries or ()))
        entries.sort(key=_order(column_id), reverse=is_descending)
        slowest = max((entry.duration_ms for entry in entries), default=0)
        return [Branch(_entry_cells(entry, slowest, self._known.name if self._known else ""), entry) for entry in entries]


def _order(column_id: str) -> Callable[[Entry], tuple[object, ...]]:
    if column_id == "name":
        return lambda entry: (entry.source.lower(), entry.platform, entry.job_key)
    field = {"count": "count", "average": "average_ms", "slowest": "slowest_ms"}.get(column_id, "total_ms")
    return lambda entry: (getattr(entry.spent, field), entry.duration_ms, entry.source.lower())


def _group_cells(group: MetricsGroup, most_ms: int) -> dict[str, Cell]:
    spent = group.spent
    return {
        "name": Cell(_TITLES[group.which], "title"),
        **_spent_cells(spent),
        "bar": Cell(share_bar(spent.total_ms / most_ms if most_ms else 0), "accent"),
    }


def _spent_cells(spent: Spent) -> dict[str, Cell]:
    return {
        "count": Cell(f"{spent.count:,}"),
        "total": duration_cell(spent.total_ms, spent.count),
        "average": duration_cell(spent.average_ms, spent.count),
        "slowest": duration_cell(spent.slowest_ms, spent.count),
    }


def metrics_columns(entries: Sequence[Entry], builder: str) -> tuple[Column, ...]:
    """Return the columns of the metrics, with the widths of the sources and platforms."""
    needs = {
        "name": max((width_of(entry.source) + _INDENT for entry in entries), default=0),
        "platform": max((width_of(_where(entry, builder)) for entry in entries), default=0),
    }
    name, *others = METRICS
    name = replace(name, min_width=max(name.min_width, min(_MOST_NAME, needs["name"])))
    return tuple(replace(each, needs=max(each.min_width, needs[each.id])) if each.id in needs else each for each in (name, *others))


def _where(entry: Entry, builder: str) -> str:
    """Return the platforms of a job, and its job key unless the key is equal to the builder's name."""
    where = entry.platform if entry.job_key in {"", builder} else f"{entry.platform} {entry.job_key}"
    return "" if entry.is_analysis else where.replace(",", ", ")


def _entry_cells(entry: Entry, slowest_ms: int, builder: str) -> dict[str, Cell]:
    return {
        "name": Cell(entry.source, "path"),
        "platform": Cell(_where(entry, builder), "muted"),
        **_spent_cells(entry.spent),
        "bar": Cell(share_bar(entry.duration_ms / slowest_ms if slowest_ms else 0), "muted"),
    }

"""The planner: finds the builders of a source, and the jobs that need no analysis. It keeps no state of jobs.

Tests: `tests/core/test_priority.py`.
"""

from __future__ import annotations

import re

from msgspec import Struct

from aptui.core.model import FileFact, JobPlan, PathKey, RelPath, Source
from aptui.core.paths import key_of
from aptui.core.patterns import PatternSet, matches
from aptui.core.project import COMMON_PLATFORM, Builder, BuilderKind, Companion, Project
from aptui.core.settings import SettingsTree, is_settings

_ASKED_SIZE = 1 << 15
"""Maximum number of cached paths. The pipeline asks for a path several times until its bytes are read, and then never again."""


class MatchedBuilders(Struct, frozen=True):
    """The builders that process a path: a pattern matches the path, and a platform of the scan folder is enabled.

    `copies`: if all jobs for the path only copy the file, the number of these jobs, otherwise 0; folder settings are not
    considered. `kind` is equal for all paths of one scan folder that match the same patterns.
    """

    builders: tuple[Builder, ...]
    copies: int
    kind: tuple[int, ...]


class Planner:
    """Finds the builders, platforms and jobs of a source; uses only the configuration and the folder settings."""

    def __init__(self, project: Project, settings: SettingsTree) -> None:
        self._builders = project.builders
        self._settings = settings
        self._patterns = PatternSet([builder.patterns for builder in project.builders])
        self._platforms = {folder.id: frozenset(folder.platforms) for folder in project.scan_folders}
        self._roots = {folder.id: folder.path for folder in project.scan_folders}
        self._asked: dict[tuple[str, int], MatchedBuilders] = {}
        self._wanted: dict[tuple[int, ...], MatchedBuilders] = {}
        """{(scan folder, indexes of the builders whose patterns match): the record that all paths with this key share}."""
        self._enabled: dict[tuple[bytes, int], tuple[str, ...]] = {}
        self._inline: dict[tuple[bytes, tuple[str, ...]], tuple[JobPlan, ...]] = {}
        self._order = {builder.uuid: index for index, builder in enumerate(project.builders)}

    def builders_for(self, rel: RelPath, scan_folder: int) -> tuple[Builder, ...]:
        """Return the builders that process `rel`, in the order of the configuration."""
        return self.find(rel, scan_folder).builders

    def find(self, rel: RelPath, scan_folder: int) -> MatchedBuilders:
        """Return the builders that process `rel`, as a record."""
        found = self._asked.get((rel, scan_folder))
        if found is None:
            matching = () if is_settings(rel) else self._patterns.builders_for(rel, self._roots.get(scan_folder, ""))
            index = (scan_folder, *matching)
            found = self._wanted.get(index) or self._wanted.setdefault(index, self._make_wanted(index))
            if len(self._asked) >= _ASKED_SIZE:
                self._asked.clear()
            self._asked[rel, scan_folder] = found
        return found

    def _make_wanted(self, kind: tuple[int, ...]) -> MatchedBuilders:
        scan_folder, *matching = kind
        enabled = self._platforms.get(scan_folder, frozenset())
        builders = [self._builders[index] for index in matching]
        builders = [builder for builder in builders if any(platform in enabled for platform in builder.platforms)]
        are_copies = all(builder.is_plain_copy and not builder.makes_intermediates for builder in builders)
        copies = sum(len(self._list_enabled(builder, scan_folder)) for builder in builders) if are_copies else 0
        return MatchedBuilders(tuple(builders), copies, kind)

    def wants(self, rel: RelPath, scan_folder: int) -> bool:
        """Whether any builder processes `rel`."""
        return bool(self.find(rel, scan_folder).builders)

    def platforms_of(self, builder: Builder, source: Source | FileFact) -> tuple[str, ...]:
        """Return the platforms for which `builder` processes this source, in the order of the configuration."""
        platforms = self._list_enabled(builder, source.scan_folder)
        if not self._settings.folders:
            return platforms
        skips = self._settings.adjustment(source.key, builder).skips
        return tuple(platform for platform in platforms if platform not in skips) if skips else platforms

    def _list_enabled(self, builder: Builder, scan_folder: int) -> tuple[str, ...]:
        platforms = self._enabled.get((builder.uuid, scan_folder))
        if platforms is None:
            enabled = self._platforms.get(scan_folder, frozenset())
            platforms = tuple(platform for platform in builder.platforms if platform in enabled)
            self._enabled[builder.uuid, scan_folder] = platforms
        return platforms

    def copy_count(self, file: FileFact) -> int:
        """Return the number of jobs of this file if all its jobs are plain copies without dependencies, else 0."""
        found = self.find(file.rel, file.scan_folder)
        if not found.copies or not self._settings.folders:
            return found.copies
        return sum(len(self.platforms_of(builder, file)) for builder in found.builders)

    def inline_plans(self, builder: Builder, source: Source | FileFact) -> tuple[JobPlan, ...]:
        """Return the jobs of a rule that needs no analysis: one per platform, or one for `common`.

        The key of these jobs is the builder's name.
        """
        platforms = self.platforms_of(builder, source)
        plans = self._inline.get((builder.uuid, platforms))
        if plans is None:
            made_for = (COMMON_PLATFORM,) if platforms and builder.makes_intermediates else platforms
            is_critical = builder.is_critical or builder.makes_intermediates
            plans = tuple(JobPlan(builder.name, platform, _priority(builder), is_critical) for platform in made_for)
            self._inline[builder.uuid, platforms] = plans
        return plans

    def describe_overlap(self, source: Source, one: bytes, other: bytes) -> str:
        """Return a sentence with both patterns and advice if both builders match the source, "" if they do not."""
        found = []
        for builder in (self._builders[self._order[uuid]] for uuid in (one, other) if uuid in self._order and one != other):
            root = self._roots.get(source.scan_folder, "")
            found += [(pattern.text, builder.name) for pattern in builder.patterns if matches(pattern, source.rel, root)][:1]
        if len(found) < 2:
            return ""
        (wide, loser), (narrow, winner) = sorted(found, key=lambda each: len(each[0]))
        advice = f"add exclude: ['{narrow}'] to '{loser}'" if narrow != wide else "give one of these builders another pattern"
        return f"; the pattern '{wide}' of builder '{loser}' and '{narrow}' of builder '{winner}' both match the source: {advice}"

    def order_of(self, builder: bytes) -> int:
        """Return the position of a builder in the configuration; unknown builders come last."""
        return self._order.get(builder, len(self._order))


def _priority(builder: Builder) -> int:
    if builder.kind is BuilderKind.COPY and builder.priority == 0:
        return 1  # as in O3DE, copy jobs without a priority of their own start before other jobs
    return builder.priority


# A metadata companion is a file beside a source, or one file for many sources. It is an input of the jobs of its sources.


class Companions:
    """The companion rules of a project: they map the path of a source to the paths of its companions, and back. No file is read."""

    def __init__(self, project: Project) -> None:
        self._suffixes = tuple("." + companion.suffix.lower() for companion in project.companions if not companion.file)
        sources = "|".join(f"(?:{companion.source.regex})" for companion in project.companions)
        self._may_have_some = re.compile(sources, re.IGNORECASE).fullmatch
        self._rules = [(companion, re.compile(companion.source.regex, re.IGNORECASE)) for companion in project.companions]
        self._files = frozenset(key_of(RelPath(companion.file)) for companion in project.companions if companion.file)

    def __bool__(self) -> bool:
        """Whether any file can be a companion of another."""
        return bool(self._rules)

    def find(self, rel: RelPath) -> list[PathKey]:
        """Return the keys of the companions that `rel` may have, existing or not."""
        if not self._rules or not self._may_have_some(rel):
            return []
        return [companion_key(companion, rel) for companion, regex in self._rules if regex.fullmatch(rel)]

    def find_owners(self, rel: RelPath) -> list[PathKey]:
        """Return the keys of the sources that may have `rel` as a companion."""
        key = key_of(rel)
        if not key.endswith(self._suffixes):
            return []
        found: list[PathKey] = []
        for companion, regex in self._rules:
            suffix = "." + companion.suffix.lower()
            if companion.file or not key.endswith(suffix):
                continue
            stem = key[: -len(suffix)]
            # `replaces` applies only to sources with this extension; the suffix is appended to the name of any other source.
            owners = (f"{stem}.{companion.replaces.lower()}", stem) if companion.replaces else (stem,)
            found += [
                PathKey(owner) for owner in owners if regex.fullmatch(owner) and companion_key(companion, RelPath(owner)) == key
            ]
        return found

    def is_shared(self, key: PathKey) -> bool:
        """Whether `key` is a file that many sources share as a companion (`Companion.file`)."""
        return key in self._files

    def is_shared_with(self, key: PathKey, rel: str) -> bool:
        """Whether the file `key`, which several sources share as their companion (`Companion.file`), is a companion of `rel`."""
        return any(
            regex.fullmatch(rel) is not None
            for companion, regex in self._rules
            if companion.file and key_of(RelPath(companion.file)) == key
        )


def companion_key(companion: Companion, rel: RelPath) -> PathKey:
    """Return the key of the companion of `rel`, which matches `companion.source`; the companion need not exist."""
    if companion.file:
        return key_of(RelPath(companion.file))
    stem, dot, extension = rel.rpartition(".")
    if companion.replaces and dot and extension.lower() == companion.replaces.lower():
        return key_of(RelPath(f"{stem}.{companion.suffix}"))
    return key_of(RelPath(f"{rel}.{companion.suffix}"))

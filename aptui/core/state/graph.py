"""The dependency graph: computes a job's present manifest, or the keys that the job still waits for.

This module does not change the state of a job.

Cycles never block. Sources may depend on each other in a cycle: the search for indirect dependencies visits each source once. A job
does not wait for a job dependency that is part of a cycle. Such a dependency is in the manifest only by name, so that the manifest
does not depend on the order of the runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.core import fingerprint
from aptui.core.fingerprint import FOUND, Entry, Manifest, planning_entries
from aptui.core.identity import duplicate_prefix
from aptui.core.model import (
    SETTLED,
    DependencyKind,
    EdgeKind,
    FileFact,
    Job,
    JobDependency,
    JobState,
    PathKey,
    RelPath,
    Source,
    SourceEdge,
    SourceUuid,
)
from aptui.core.paths import key_of, normalize, path_uuid
from aptui.core.patterns import below_matcher, is_like
from aptui.core.planner import Companions
from aptui.core.project import Builder, Project
from aptui.core.settings import SettingsTree
from aptui.core.state.chains import CHAINS_END
from aptui.core.state.working_set import UNSETTLED, Unsettled, WorkingSet

# `components` yields the strongly connected components of any graph, which contain its cycles.
#
# The dependency graph searches for cycles of jobs, and the catalog searches for cycles of products that preload each other.

Node = TypeVar("Node", bound=Hashable)


def components(roots: Iterable[Node], next_of: Callable[[Node], Iterable[Node]]) -> Iterator[list[Node]]:
    """Yield the strongly connected components of all nodes reachable from `roots`, dependencies first (Tarjan 1972).

    Without recursion: a chain of dependencies may be longer than Python's stack. `next_of` is called once for each node, and
    its result is read step by step, so that a caller may leave out nodes that it has seen.
    """
    order: dict[Node, int] = {}
    for root in roots:
        if root not in order:
            yield from _components_from(root, next_of, order)


def _components_from(root: Node, next_of: Callable[[Node], Iterable[Node]], order: dict[Node, int]) -> Iterator[list[Node]]:
    lowest = {root: len(order)}
    order[root] = len(order)
    stack, on_stack = [root], {root}
    trail = [(root, iter(next_of(root)))]
    while trail:
        at, ways = trail[-1]
        other = next(ways, None)
        if other is None:
            trail.pop()
            if trail:
                above = trail[-1][0]
                lowest[above] = min(lowest[above], lowest[at])
            if lowest[at] == order[at]:
                yield _pop_component(stack, on_stack, at)
        elif other not in order:
            order[other] = lowest[other] = len(order)
            stack.append(other)
            on_stack.add(other)
            trail.append((other, iter(next_of(other))))
        elif other in on_stack:
            lowest[at] = min(lowest[at], order[other])


def _pop_component(stack: list[Node], on_stack: set[Node], last: Node) -> list[Node]:
    component = []
    while True:
        at = stack.pop()
        on_stack.discard(at)
        component.append(at)
        if at == last:
            return component


# `find_cycles` describes the cycles of products that load each other. The description does not depend on the product from which
# the search began.

Edges = Mapping[int, Sequence[int]]
CYCLE_PROBLEM = "these products cannot be loaded, because each must be loaded before the other: "
"""Beginning of the sentence that reports a cycle; the names of its products follow, separated by `JOIN`."""
JOIN = " -> "


def find_cycles(edges: Edges, names: Mapping[int, str], wanted: Iterable[int]) -> list[tuple[str, ...]]:
    """Return one cycle for each strongly connected component with a node in `wanted`.

    It is a shortest cycle through the node whose name is the first of the component in sort order.

    Args:
        edges: {node: the nodes that it needs}.
        names: {node: its name} for every node in `edges`.
        wanted: components without any of these are left out.

    Returns:
        Chains of names, sorted; each begins and ends with the same name.
    """
    asked = set(wanted)
    found = []
    for component in components(edges, lambda thing: edges.get(thing, ())):
        if asked.isdisjoint(component) or (len(component) == 1 and component[0] not in edges.get(component[0], ())):
            continue
        found.append(_describe_cycle(edges, names, set(component)))
    return sorted(found)


def _describe_cycle(edges: Edges, names: Mapping[int, str], component: set[int]) -> tuple[str, ...]:
    first = min(component, key=names.__getitem__)
    came_from: dict[int, int] = {}
    todo = deque([first])
    while todo:
        at = todo.popleft()
        for other in sorted(component.intersection(edges.get(at, ())), key=names.__getitem__):
            if other not in came_from:
                came_from[other] = at
                todo.append(other)
    chain, at = [names[first]], came_from[first]
    while at != first:
        chain.append(names[at])
        at = came_from[at]
    return (names[first], *reversed(chain))


_MOST_KNOWN_PATHS = 65_536
_HIDES = "\nhides"
"""Text that `Graph._places` adds to an entry if the entry's scan folder comes before the source's scan folder.

Files of the earlier folder hide files with equal paths in the later folder.
"""
Identity = tuple[PathKey, bytes, str, str]
Cycle = tuple[frozenset[Identity], tuple[str, ...]]
"""(The jobs of a cycle, the sorted names of these jobs); both parts are empty for a job that is not in a cycle."""


class Assembly(Struct):
    """The manifest of a job, or the inputs that it still lacks.

    `waits` are the keys for which the job waits; `unread` are the files among them with bytes that have not been read yet.
    `blockers` are the unsettled jobs among the job dependencies. `has_drafts`: at least one job in the manifest has made only its
    draft, not its final products. `finals` are the names of the other jobs in the manifest whose builders support
    drafts: they have made their final products, or they failed or were cancelled.
    """

    manifest: Manifest
    waits: set[PathKey]
    unread: dict[PathKey, FileFact]
    blockers: list[Job]
    misses_dependency: bool = False
    cycle: tuple[str, ...] = ()
    has_drafts: bool = False
    finals: set[str] = field(default_factory=set)
    waits_for_chains: bool = True
    """Whether the job waits for missing files until no chain of jobs can make them any more; False for an analysis."""


class Graph:
    """Computes the inputs of jobs from the working set."""

    def __init__(self, project: Project, memory: WorkingSet, settings: SettingsTree) -> None:
        self._project = project
        self._memory = memory
        self._settings = settings
        self._builders = {builder.uuid: builder for builder in project.builders}
        self._platforms = {platform.id: platform for platform in project.platforms}
        self._roots = [(folder.path + "/", folder.recursive) for folder in project.scan_folders]
        self._paths = {folder.id: folder.path + "/" for folder in project.scan_folders}
        self._folder_names = {folder.id: folder.name for folder in project.scan_folders}
        self._ranks = {folder.id: rank for rank, folder in enumerate(project.scan_folders)}
        self._intermediates = next((folder.id for folder in project.scan_folders if folder.is_intermediate), None)
        self._cycles: dict[Identity, Cycle] = {}
        self._has_loose_ends = False
        self._rules: dict[tuple[bytes, str], tuple[Entry, Manifest]] = {}
        self._is_ignored = below_matcher(project.ignore_regex)
        self._ignored: dict[str, bool] = {}
        self.companions = Companions(project)

    # --------------------------------------------------------------------------------------------------------------- rules

    def rule(self, builder: Builder, platform: str) -> tuple[Entry, Manifest]:
        """Return one manifest entry for all settings of a builder on a platform, and the single entries that it combines."""
        found = self._rules.get((builder.uuid, platform))
        if found is None:
            entries = fingerprint.rule_entries(builder, self._platforms[platform], debug_output=self._project.debug_output)
            found = (("rule", builder.name, fingerprint.combine(entries)), entries)
            self._rules[builder.uuid, platform] = found
        return found

    # ------------------------------------------------------------------------------------------------------------ manifests

    def analysis(self, job: Job, platforms: Iterable[str]) -> Assembly:
        """Assemble the manifest of an analysis: builder, platforms, source, and the dependencies that it declared last."""
        assembly = Assembly((), set(), {}, [], waits_for_chains=False)
        closure = self._closure(job.source, (job,), assembly, needs_analyses=False)
        assembly.manifest = (*self.assemble_question(job, platforms), *closure, *self._places(job.source, "places", closure))
        return assembly

    def assemble_question(self, job: Job, platforms: Iterable[str]) -> Manifest:
        """Return the part of an analysis' manifest that its worker receives: builder, platforms, settings, source."""
        builder = self._builders[job.builder]
        settings = self._settings.adjustment(job.source.key, builder).entries
        rules = [each for platform in platforms for each in (self.rule(builder, platform)[0], *planning_entries(builder, platform))]
        return (*rules, *settings, *self._source_entries(job.source))

    def job(self, job: Job) -> Assembly:
        """Assemble the manifest of a job."""
        assert job.plan is not None
        source, builder = job.source, self._builders[job.builder]
        entries = [self.rule(builder, job.platform)[0]]
        entries += self._settings.adjustment(source.key, builder).platform_entries.get(job.platform, ())
        entries += fingerprint.plan_entries(job.plan)
        entries += self._source_entries(source)
        assembly = Assembly((), set(), {}, [])
        siblings = tuple(item for item in source.jobs.values() if item.builder == job.builder and item.is_analysis)
        if any(item.state not in SETTLED for item in siblings):
            assembly.waits.add(source.key)  # the new analysis may give this job another plan
        if siblings or self.companions:
            closure = self._closure(source, siblings, assembly, needs_analyses=True)
            entries += (*closure, *self._places(source, "places", closure))
        found = [("discovered", name, self._read_discovered(PathKey(name), digest, assembly)) for name, digest in job.discovered]
        entries += (*found, *self._places(source, "found places", found))
        if job.plan.job_dependencies:
            entries += self._job_dependencies(job, assembly)
        assembly.manifest = tuple(entries)
        return assembly

    def _source_entries(self, source: Source) -> list[Entry]:
        """Return a manifest entry for the bytes of a source; and one for its identity, if its path does not determine its UUID."""
        entries = [("source", str(source.rel), fingerprint.file_digest(source.fact.digest if source.fact else None))]
        is_intermediate = source.scan_folder == self._intermediates
        if source.identity is not None or source.is_duplicate or (is_intermediate and source.uuid != path_uuid(source.rel)):
            meta = source.identity.digest if source.identity else b""
            meta += duplicate_prefix(self._folder_names[source.scan_folder]).encode() if source.is_duplicate else b""
            entries.append(("identity", str(source.rel), fingerprint.short(source.uuid + meta)))
        return entries

    def _places(self, source: Source, word: str, entries: Iterable[Entry]) -> list[Entry]:
        """Return manifest entries for the locations of the files that `entries` name, one entry for each scan folder with files.

        The job must run again if a file moves to another scan folder, or if the case of its name changes: a builder that opens the
        file by its earlier path then finds no file, or another file. So both changes also change an entry. A file in the source's
        own scan folder is left out if its path is exactly the name in `entries`.

        An entry also shows whether its scan folder comes before the source's scan folder. Files of the earlier folder hide files
        with equal paths in the later folder.
        """
        found: dict[int, list[str]] = {}
        for _kind, name, _digest in entries:
            fact = self._memory.last_seen(PathKey(name)) if not name.startswith("/") else None
            folder, rel = (fact.scan_folder, str(fact.rel)) if fact is not None else (self._folder_at(name), name)
            if folder is not None and (folder != source.scan_folder or rel != name):
                found.setdefault(folder, []).append(rel)
        if not found:
            return []
        own = self._ranks.get(source.scan_folder, 0)
        texts = {folder: "\n".join(rels) + _HIDES * (self._ranks[folder] < own) for folder, rels in found.items()}
        named = {self._folder_names[folder]: fingerprint.short(text.encode()) for folder, text in texts.items()}
        return [(word, name, digest) for name, digest in sorted(named.items())]

    def _folder_at(self, path: str) -> int | None:
        """Return the id of the scan folder that contains an absolute path."""
        return next((folder for folder, root in self._paths.items() if path.startswith(root)), None)

    def with_discovered(self, source: Source, manifest: Manifest, discovered: Iterable[tuple[str, str]]) -> Manifest:
        """Return the manifest of a finished run: the planned manifest with the dependencies that this run discovered.

        They replace the discovered dependencies of the previous run.
        """
        others = [entry for entry in manifest if entry[0] not in FOUND]
        plain = [entry for entry in others if entry[0] not in ("job", "products", "ring")]
        rest = [entry for entry in others if entry[0] in ("job", "products", "ring")]
        found = [("discovered", name, digest[: len(fingerprint.short(b""))] or fingerprint.MISSING) for name, digest in discovered]
        return (*plain, *found, *self._places(source, "found places", found), *rest)

    def _read_discovered(self, key: PathKey, digest: str, assembly: Assembly) -> str:
        if key.startswith("/"):
            return self._digest_outside(key, digest)
        return self._digest(key, assembly) or fingerprint.MISSING

    def _digest_outside(self, key: PathKey, before: str = "") -> str:
        """Return the last known digest of a file that is outside all scan folders, or hidden in a scan folder.

        `before` is the digest in the rows of the job. It is returned if the engine does not know the file.
        """
        now = self._memory.outside.get(key)
        return (before[: len(fingerprint.short(b""))] if now is None else now.digest) or fingerprint.MISSING

    def _digest(self, key: PathKey, assembly: Assembly) -> str:
        """Return the digest of a file for a manifest. If the job has to wait for the file, add it to `assembly` and return ""."""
        fact = self._memory.file(key)
        if isinstance(fact, Unsettled):
            assembly.waits.add(key)
            return ""
        if fact is None and self._may_appear(assembly):
            return ""
        if fact is None or key in self._memory.unreadable:
            return fingerprint.MISSING
        if not fact.digest:
            assembly.waits.add(key)
            assembly.unread[key] = fact
            return ""
        return fingerprint.file_digest(fact.digest)

    def _may_appear(self, assembly: Assembly) -> bool:
        """Whether a job waits for missing files that a chain of jobs may still make. If so, record the wait in `assembly`."""
        if not assembly.waits_for_chains or self._memory.has_grown or not self._memory.may_grow:
            return False
        assembly.waits.add(CHAINS_END)
        return True

    def _closure(self, source: Source, jobs: Iterable[Job], assembly: Assembly, *, needs_analyses: bool) -> list[Entry]:
        """Return manifest entries for all direct and indirect source dependencies and their companions, sorted by name."""
        entries: dict[PathKey, Entry] = {}
        for companion in self.companions.find(source.rel):
            entries[companion] = ("companion", companion, self._digest(companion, assembly))
        todo = [edge for job in jobs for edge in job.edges]
        # The source itself is already in the manifest, so it counts as seen. This also ends the search if the
        # dependencies form a cycle.
        seen = {source.key}
        while todo:
            for key in self._resolve(todo.pop(), assembly, entries):
                if key in seen:
                    continue
                seen.add(key)
                if key.startswith("/"):
                    entries[key] = ("dependency", key, self._digest_outside(key))
                    continue
                entries[key] = ("dependency", key, self._digest(key, assembly))
                # While the bytes of this file are unknown, its own dependencies are not followed, because its next analysis may
                # change them. The job waits for the bytes and is assembled again when they are known.
                if key in assembly.waits:
                    continue
                for companion in self.companions.find(RelPath(key)):
                    entries.setdefault(companion, ("companion", companion, self._digest(companion, assembly)))
                other = self._memory.view(key)
                for job in other.jobs.values() if other else ():
                    if not job.is_analysis:
                        continue
                    # A job waits until all its indirect dependencies are known. An analysis does not wait for other analyses,
                    # because two sources that name each other would wait forever. When the results of the other analyses are
                    # known, `Jobs.seal` computes the fingerprint of the analysis from them.
                    if needs_analyses and job.state not in SETTLED:
                        assembly.waits.add(key)
                    todo.extend(job.edges)
        return [entries[key] for key in sorted(entries)]

    def _resolve(self, edge: SourceEdge, assembly: Assembly, entries: dict[PathKey, Entry]) -> list[PathKey]:
        """Return the keys of the sources that an edge names. If the job has to wait for a key, add the key to `assembly.waits`."""
        if edge.kind is EdgeKind.PATH:
            return [key_of(RelPath(edge.target))]
        if edge.kind is EdgeKind.DISCOVERED:
            return [PathKey(edge.target)]
        if edge.kind is EdgeKind.WILDCARD:
            keys = self._memory.matching(edge.target)
            if isinstance(keys, Unsettled):
                assembly.waits.add(SCAN_END)
                return []
            self._may_appear(assembly)
            return keys
        found = self._memory.key_of(SourceUuid(bytes.fromhex(edge.target)))
        if found is None and self._may_appear(assembly):
            return []
        if found is None:
            name = PathKey(edge.target)
            entries[name] = ("dependency", name, fingerprint.MISSING)
            return []
        return [found]

    # ---------------------------------------------------------------------------------------------------- job dependencies

    def _job_dependencies(self, job: Job, assembly: Assembly) -> list[Entry]:
        """Return manifest entries for the job dependencies of `job`. Add the keys for which the job has to wait to `assembly`."""
        assert job.plan is not None
        entries: list[Entry] = []
        for dependency in self._each_named(job, assembly):
            other = self.find_job(dependency)
            name = f"{dependency.source}@{dependency.platform}:{dependency.key}"
            if isinstance(other, Unsettled):
                assembly.waits.add(self.source_of(dependency) or SCAN_END)
            elif other is None and self._may_appear(assembly):
                assembly.misses_dependency = True
            elif other is None:
                assembly.misses_dependency = True
                if dependency.kind in (DependencyKind.FINGERPRINT, DependencyKind.ORDER):
                    entries.append(("job", name, fingerprint.MISSING))
            else:
                entries += self._job_dependency(job, dependency, other, name, assembly)
        return entries

    def _each_named(self, job: Job, assembly: Assembly | None = None) -> list[JobDependency]:
        """Return the job dependencies of `job`; each wildcard is replaced by the matching jobs of other sources."""
        found: dict[JobDependency, None] = {}
        for dependency in sorted(job.plan.job_dependencies) if job.plan else ():
            if not dependency.is_wildcard:
                found[dependency] = None
                continue
            keys = self._memory.matching(dependency.source)
            if isinstance(keys, Unsettled):
                if assembly is not None:
                    assembly.waits.add(SCAN_END)
                continue
            if assembly is not None:
                self._may_appear(assembly)
            for key in keys:
                named = replace(dependency, source=key)
                if key != job.source.key and self.find_job(named) is not None:
                    found[named] = None
        return list(found)

    def _job_dependency(self, job: Job, dependency: JobDependency, other: Job, name: str, assembly: Assembly) -> list[Entry]:
        """Return the manifest entries of `job` for its job dependency `other`.

        If `job` must wait for `other`, record the wait in `assembly`, and return no entry.
        """
        cycle = self._cycle_of(job, other)
        if cycle:
            assembly.cycle = cycle
            return [("ring", name, fingerprint.short(name.encode()))]
        is_settled = other.state in SETTLED and not _is_analysis_pending(other)
        if not is_settled and not (dependency.kind is DependencyKind.ORDER_ONCE and other.fingerprint):
            assembly.waits.add(other.source.key)
            assembly.blockers.append(other)
            return []
        builder = self._builders.get(other.builder)
        if builder is not None and builder.has_drafts and dependency.kind in (DependencyKind.FINGERPRINT, DependencyKind.ORDER):
            if other.is_draft and other.state is JobState.COMPLETED:
                assembly.has_drafts = True
            else:
                assembly.finals.add(name)
        if dependency.kind is DependencyKind.FINGERPRINT:
            return [("job", name, f"{(other.planned or other.fingerprint):032x}")]
        if dependency.kind is DependencyKind.ORDER:
            return [("products", name, fingerprint.digest_for_dependents(other, dependency.sub_ids))]
        return []

    def source_of(self, dependency: JobDependency) -> PathKey | None:
        """Return the key of the source that a job dependency names; None if it names a UUID that no source has."""
        if not dependency.is_uuid:
            return dependency.source
        return self._memory.key_of(SourceUuid(bytes.fromhex(dependency.source)))

    def find_job(self, dependency: JobDependency) -> Job | Unsettled | None:
        """Return the job that a dependency names; None if the job does not exist, UNSETTLED if its existence is not known yet."""
        key = self.source_of(dependency)
        if key is None:
            return None if self._memory.scan_is_done else UNSETTLED
        if isinstance(self._memory.file(key), Unsettled):
            return UNSETTLED
        source = self._memory.view(key)
        if source is None:
            return None
        if any(job.is_analysis and job.state not in SETTLED for job in source.jobs.values()):
            return UNSETTLED
        for job in source.jobs.values():
            if job.key == dependency.key and job.platform == dependency.platform and not job.is_analysis:
                return job
        return None

    def forget_cycles(self) -> None:
        """Forget the known cycles, because the dependencies of a job changed."""
        self._cycles.clear()
        self._has_loose_ends = False

    def forget_loose_ends(self) -> None:
        """Forget the known cycles if dependencies of some job were unknown when they were computed."""
        if self._has_loose_ends:
            self.forget_cycles()

    def _cycle_of(self, job: Job, other: Job) -> tuple[str, ...]:
        """Return the sorted names of the cycle that contains the edge from `job` to `other`, or ()."""
        cycle = self._cycles.get(_identity(job)) or self._find_cycles(job)
        return cycle[1] if _identity(other) in cycle[0] else ()

    def _find_cycles(self, root: Job) -> Cycle:
        """Find the cycles among all direct and indirect dependencies of `root`; return the cycle that contains `root`.

        Jobs are compared by their `_identity`, because one job may be two objects: in memory, and as a copy of its rows.
        """
        jobs = {_identity(root): root}
        found: dict[Identity, Cycle] = {}
        for members in components(jobs.copy(), lambda identity: self._next_unknown(jobs[identity], jobs)):
            cycle = self._as_cycle([jobs[identity] for identity in members])
            found.update(dict.fromkeys(members, cycle))
        self._cycles.update(found)
        return found[_identity(root)]

    def _next_unknown(self, job: Job, jobs: dict[Identity, Job]) -> Iterator[Identity]:
        """Yield the direct job dependencies of `job` that were not searched for cycles yet, and add them to `jobs`."""
        for other in self._next_jobs(job):
            if isinstance(other, Unsettled):
                self._has_loose_ends = True
            elif _identity(other) not in self._cycles:
                identity = _identity(other)
                jobs.setdefault(identity, other)
                yield identity

    def _next_jobs(self, job: Job) -> Iterator[Job | Unsettled]:
        """Yield the jobs that `job` names, UNSETTLED for each job whose existence is not known yet."""
        if job.plan and any(item.is_wildcard for item in job.plan.job_dependencies) and not self._memory.scan_is_done:
            yield UNSETTLED
        for dependency in self._each_named(job):
            other = self.find_job(dependency)
            if other is not None:
                yield other

    def _as_cycle(self, members: list[Job]) -> Cycle:
        """Return the cycle of these jobs of one strongly connected component; a single job is a cycle only if it names itself."""
        if len(members) == 1 and all(
            not isinstance(other, Job) or _identity(other) != _identity(members[0]) for other in self._next_jobs(members[0])
        ):
            return (frozenset(), ())
        return (frozenset(map(_identity, members)), tuple(sorted(job.label for job in members)))

    def relative(self, path: str) -> str | None:
        """Return `path` (absolute, or relative to its scan folder) as a relative path, None if it is outside all scan folders."""
        path = path.replace("\\", "/")
        if not path.startswith("/"):
            return normalize(path)
        path = "/" + normalize(path).lstrip("/")
        for root, is_recursive in self._roots:
            if path.startswith(root) and (is_recursive or "/" not in path[len(root) :]):
                return path[len(root) :]
        return None

    def counting(self, path: str) -> str | None:
        """Return `path` as a relative path (`relative`), None if the file cannot be a source, because it is ignored or hidden.

        A job that reads an ignored or hidden file depends on the file in the same way as on a file outside all scan folders.
        """
        rel = None if self.hider(path) is not None else self.relative(path)
        return None if rel is not None and path.startswith("/") and self.is_ignored(rel) else rel

    def is_ignored(self, rel: str) -> bool:
        """Whether the project ignores a relative path, or a folder above it."""
        found = self._ignored.get(rel)
        if found is None:
            if len(self._ignored) > _MOST_KNOWN_PATHS:
                self._ignored.clear()
            found = self._ignored[rel] = self._is_ignored(rel)
        return found

    def hider(self, path: str) -> FileFact | None:
        """Return the file of another scan folder that hides the file at `path`, None if no file does."""
        rel = self.relative(path) if path.startswith("/") else None
        fact = self._memory.last_seen(key_of(RelPath(rel))) if rel is not None else None
        return fact if fact is not None and not path.startswith(self._paths[fact.scan_folder]) else None


SCAN_END = PathKey("\x00scan")
"""Key for jobs that wait for the end of the scan."""


def is_named(dependency: JobDependency, names: Collection[str]) -> bool:
    """Whether a job dependency names a source; `names` are the key and the UUIDs of this source."""
    return dependency.source in names or (dependency.is_wildcard and any(is_like(dependency.source, name) for name in names))


def _is_analysis_pending(job: Job) -> bool:
    """Whether a pending analysis may change or remove `job`."""
    return any(item.is_analysis and item.builder == job.builder and item.state not in SETTLED for item in job.source.jobs.values())


def _identity(job: Job) -> Identity:
    return (job.source.key, job.builder, job.platform, job.key)

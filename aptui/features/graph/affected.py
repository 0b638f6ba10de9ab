"""`affected`: list the jobs that changes since a commit would run again, from git's list of files and the database.

Tests: `tests/test_linear_patterns.py`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from aptui.batch.options import load_config
from aptui.cli.read_access import OpenedProject, all_builders, open_for_reading
from aptui.config import trust
from aptui.config.configuration import Config
from aptui.config.dirs import builders_record
from aptui.core.identity import owner_of
from aptui.core.model import DependencyKind, EdgeKind, JobPlan, RelPath
from aptui.core.paths import as_text, from_text, parent, to_text
from aptui.core.patterns import PatternSet, ignore_matcher, wildcard
from aptui.core.planner import companion_key
from aptui.core.project import COMMON_PLATFORM, Builder, ScanFolder
from aptui.core.rows import unpack_analysis
from aptui.core.settings import is_settings
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.shared.files.git import run_git
from aptui.store.queries.assets import INTERMEDIATE_FLAG
from aptui.store.queries.dependencies import DeclaredEdge, SourceEdges
from aptui.store.queries.reader import Reader

# This part finds the jobs that run again because files changed. It follows source dependencies, intermediates and job dependencies
# in the same way as `core.state.graph`, and only reads the database.
#
# All jobs of a changed source run again. If another source declares the changed source, the jobs of the builder that made the
# declaration run again, too. Declarations of other sources are followed transitively, because a manifest has all transitive
# dependencies. A dependency that was found while a job ran belongs only to that run and is not followed further. When a job runs
# again, jobs that depend on its fingerprint or its products are affected; order-only dependencies affect no job.
#
# Before a job runs, it is unknown whether its new products will equal the old products. If the products are equal, jobs that depend
# only on products do not run. Without `through_products`, these jobs are left out, so that every job in the result certainly runs.

_JOBS_SQL = """SELECT j.JobID, s.SourceID, s.SourceName, j.Platform, j.JobKey, j.BuilderGuid FROM json_each(?) k
CROSS JOIN Sources s ON s.SourceID = k.value CROSS JOIN Jobs j ON j.SourcePK = s.SourceID
    ORDER BY s.SourceName, j.Platform, j.JobKey"""
_PRODUCTS_SQL = """SELECT p.ProductName FROM json_each(?) k CROSS JOIN Products p ON p.JobPK = k.value ORDER BY 1"""
_KEYS_SQL = "SELECT BuilderGuid, Platform, JobKey FROM Jobs WHERE SourcePK = ?"
_PLANS_SQL = """SELECT a.source_id, a.builder, a.plans FROM json_each(?) k CROSS JOIN aptui_analyses a ON a.source_id = k.value"""
_INTERMEDIATES_SQL = f"""SELECT p.ProductName, k.value, j.BuilderGuid, j.Platform, j.JobKey FROM json_each(?) k
CROSS JOIN Jobs j ON j.SourcePK = k.value
CROSS JOIN Products p ON p.JobPK = j.JobID WHERE p.Flags & {INTERMEDIATE_FLAG} ORDER BY 1"""


class AffectedJob(Struct, frozen=True):
    """A job that would run again if the given files changed."""

    job_id: int
    source_id: int
    source: str
    platform: str
    job_key: str
    builder: bytes


JobName = tuple[bytes, str, str]
"""A job of a source: UUID of the builder, platform and job key."""
Which = bytes | JobName
"""Selects jobs of a source: all jobs of one builder (the builder's UUID), or one job (its `JobName`)."""


class Affected(Struct):
    """Sources and jobs that would run: `sources` is {source id: reason}, `which` is {source id: its jobs, None = all jobs}."""

    sources: dict[int, str] = field(default_factory=dict)
    which: dict[int, set[Which] | None] = field(default_factory=dict)

    def touch(self, source: int, which: Which | None, why: str) -> None:
        """Record that jobs of a source would run: those that `which` selects, None = all jobs."""
        known = self.which.get(source, set())
        if known is not None and (which is None or which not in known):
            self.which[source] = None if which is None else known | {which}
            self.sources.setdefault(source, why)

    def covers(self, source: int, builder: bytes, platform: str, job_key: str) -> bool:
        """Whether a job of a source would run."""
        known = self.which.get(source, set())
        return known is None or builder in known or (builder, platform, job_key) in known


class Spreading:
    """Finds the sources and jobs that changes affect, using the dependencies in one database.

    Args:
        through_products: also follow dependencies on products, although a job that depends on products does not run if the products
            stay equal.
    """

    def __init__(self, reader: Reader, *, through_products: bool = True) -> None:
        self._ask = reader.ask
        self._kinds = (DependencyKind.FINGERPRINT, DependencyKind.ORDER)[: 1 + through_products]
        self._through_products = through_products
        self.edges = SourceEdges(reader)
        self.found = Affected()
        self._followed: dict[int, set[Which] | None] = {}
        self._seen: set[str] = set()

    def find_affected(self, changed: Mapping[str, str]) -> Affected:
        """Return the jobs that a change of these files runs again.

        Args:
            changed: {path in lower case: why it counts as changed}. The paths may be of any files, including deleted files.
        """
        todo = dict(changed)
        self._touch_paths(todo)
        while todo:
            self._touch_declared(todo)
            self._follow_jobs()
            todo = self._follow_intermediates()
        return self.found

    def touch_builders(self, builders: Iterable[bytes], why: str) -> None:
        """Record that all jobs of some builders would run, and follow the effects of these jobs."""
        marks = list(builders)
        sql = f"SELECT DISTINCT SourcePK, BuilderGuid FROM Jobs WHERE BuilderGuid IN ({', '.join('?' * len(marks))})"
        for number, builder in self._ask(sql, marks).fetchall():
            self.found.touch(number, builder, why)
        self._follow_jobs()
        self.find_affected(self._follow_intermediates())

    def touch_sources(self, sources: Mapping[str, str]) -> None:
        """Record that all jobs of sources ({path in lower case: reason}) would run, and follow the effects of these jobs.

        The bytes of these sources may be unchanged.
        """
        self._touch_paths(sources)
        self._follow_jobs()
        self.find_affected(self._follow_intermediates())

    # ---------------------------------------------------------------------------------------------------------------- steps

    def _touch_paths(self, paths: Mapping[str, str]) -> None:
        for path, ids in self.edges.by_path(paths).items():
            for number in ids:
                self.found.touch(number, None, paths[path])

    def _touch_declared(self, changed: Mapping[str, str]) -> None:
        """Record the sources that declare changed files, then the sources that declare these sources, and so on."""
        frontier = self._list_names(changed)
        while frontier:
            self._seen.update(frontier)
            ahead: dict[int, str] = {}
            for edge, path in self._dependencies_on(frontier):
                if edge.kind is EdgeKind.JOB:
                    continue
                self.found.touch(edge.source_id, edge.builder, _why(edge, path))
                if edge.kind is not EdgeKind.DISCOVERED:
                    ahead.setdefault(edge.source_id, "")
            frontier = {name: names[0] for names in self.edges.names_of(ahead).values() for name in names if name not in self._seen}

    def _list_names(self, changed: Mapping[str, str]) -> dict[str, str]:
        """Return {name: path} of the changed files, without names whose dependents were already searched.

        A file may have several names, and a dependency may use any of them.
        """
        ids = [number for found in self.edges.by_path(changed).values() for number in found]
        names = {name: names[0] for names in self.edges.names_of(ids).values() for name in names}
        names.update((path, path) for path in changed)
        return {name: path for name, path in names.items() if name not in self._seen}

    def _dependencies_on(self, frontier: Mapping[str, str]) -> list[tuple[DeclaredEdge, str]]:
        """Return pairs (declared dependency, path of the file that it names) for all files in `frontier` ({name: path})."""
        found = [(edge, frontier[edge.target]) for edge in self.edges.read_declared_on(frontier)]
        paths = dict.fromkeys(frontier.values())
        matching: dict[str, str | None] = {}
        for edge in self.edges.patterns():
            if edge.target not in matching:
                match = wildcard(edge.target).fullmatch
                matching[edge.target] = next((path for path in paths if match(path)), None)
            path = matching[edge.target]
            if path is not None:
                found.append((edge, path))
        return found

    def _follow_jobs(self) -> None:
        """Record the jobs that depend on newly recorded jobs, until no more jobs are found.

        A job is newly recorded if it was recorded after the previous call.
        """
        while fresh := [number for number, which in self.found.which.items() if self._followed.get(number, set()) != which]:
            self._followed = dict(self.found.which)
            ids = {name: number for number, names in self.edges.names_of(fresh).items() for name in names}
            waiting = [edge for edge in self.edges.read_declared_on(ids) if edge.kind is EdgeKind.JOB]
            plans = self._plans({edge.source_id for edge in waiting})
            for edge in waiting:
                for which in self._find_concerned(edge, ids[edge.target], plans.get((edge.source_id, edge.builder), ())):
                    self.found.touch(edge.source_id, which, f"a job of '{edge.target}' would run")

    def _plans(self, ids: Iterable[int]) -> dict[tuple[int, bytes], tuple[JobPlan, ...]]:
        """Return {(source id, builder): job plans of its analysis}; the result is empty if O3DE wrote the database."""
        if not self.edges.is_ours:
            return {}
        rows = self._ask(_PLANS_SQL, (json.dumps(list(ids)),))
        return {(source, builder): unpack_analysis(packed)[0] for source, builder, packed in rows}

    def _find_concerned(self, edge: DeclaredEdge, other: int, plans: Iterable[JobPlan]) -> Iterator[Which]:
        """Yield the jobs that depend on a recorded job of the source `other`; `edge` declares this dependency.

        Args:
            plans: all jobs of the source and builder that declared `edge`. If no plan names a job of `other`, it is unknown which
                jobs depend on `other`. Then, only with `through_products`, the builder's UUID is yielded, which means all its jobs.
        """
        is_known = False
        for plan in plans:
            for dependency in plan.job_dependencies:
                if dependency.source == edge.target:
                    is_known = True
                    if dependency.kind in self._kinds and self._runs(other, dependency.platform, dependency.key):
                        yield edge.builder, plan.platform, plan.key
        if not is_known and self._through_products:
            yield edge.builder

    def _runs(self, source: int, platform: str, job_key: str) -> bool:
        if self.found.which.get(source, set()) is None:
            return True
        rows = self._ask(_KEYS_SQL, (source,)).fetchall()
        return any(row[1:] == (platform, job_key) and self.found.covers(source, *row) for row in rows)

    def _follow_intermediates(self) -> dict[str, str]:
        """Record the intermediate sources that recorded jobs make.

        Return {path: reason} of the intermediate sources whose effects were not followed yet.
        """
        if not self._through_products:
            return {}
        made = self._ask(_INTERMEDIATES_SQL, (json.dumps(list(self.found.sources)),))
        names = [name for name, *job in made if self.found.covers(*job)]
        paths = [str(name)[len(COMMON_PLATFORM) + 1 :].lower() for name in names]
        reasons = {path: f"its source '{path}' is made by an affected job" for path in self.edges.by_path(paths)}
        self._touch_paths(reasons)
        return {path: why for path, why in reasons.items() if path not in self._seen}

    # -------------------------------------------------------------------------------------------------------------- answers

    def jobs(self) -> list[AffectedJob]:
        """Return the jobs that the recorded changes would run again, ordered by source."""
        rows = (AffectedJob(*row) for row in self._ask(_JOBS_SQL, (json.dumps(list(self.found.sources)),)))
        return [job for job in rows if self.found.covers(job.source_id, job.builder, job.platform, job.job_key)]

    def products(self, jobs: Iterable[AffectedJob]) -> list[str]:
        """Return the products that these jobs made in their last run."""
        return [name for (name,) in self._ask(_PRODUCTS_SQL, (json.dumps([job.job_id for job in jobs]),))]


def _why(edge: DeclaredEdge, path: str) -> str:
    words = {EdgeKind.WILDCARD: f"'{edge.target}' matches '{path}'", EdgeKind.DISCOVERED: f"its last run read '{path}'"}
    return words.get(edge.kind, f"it depends on '{path}'")


_GIT_LIMIT_S = 120
"""Timeout of one run of Git, in seconds."""


class _GitChanges(Struct):
    """The answers of Git: changed files (absolute paths), the queried repositories, and the scan folders outside any repository."""

    paths: list[str] = field(default_factory=list)
    repositories: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def affected_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `affected`."""
    parser.add_argument(
        "--since", metavar="COMMIT", required=True, help="compare the present files with this commit, such as HEAD~3"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = """\
New, deleted, renamed and untracked files count as changed if their bytes differ. Ignored files and file modes do not count.
The verb does not analyse sources, so the list is incomplete: it lacks dependencies and products of new and changed sources, and
the effects of a changed configuration or a new builder. Jobs that depend only on products are listed, although the products may
come out equal; they have `certain: false` in JSON. The verb uses the database of the last run."""


def affected(arguments: Namespace) -> int:
    """Print the sources and jobs that would run, and the products that they make."""
    with open_for_reading(arguments, load_config(arguments)) as project:
        scan = _find_changed_files(arguments.since, project.config)
        answer = _answer(scan, project)
    for folder in scan.unknown:
        printing.complain(
            f"aptui: '{printing.line(folder)}' is left out, because no git repository there has the commit "
            f"'{printing.line(arguments.since)}'",
            "yellow",
        )
    if answer["configuration"]:
        names = ", ".join(printing.line(name) for name in answer["configuration"])
        printing.complain(
            f"aptui: the configuration also changed ({names}); jobs that run again because of that are not listed", "yellow"
        )
    if arguments.json:
        printing.say_json({"since": arguments.since, "repositories": scan.repositories, "not_covered": scan.unknown, **answer})
    else:
        _print(answer)
    return 0


# --------------------------------------------------------------------------------------------------------------------- git


def _find_changed_files(since: str, config: Config) -> _GitChanges:
    """Ask Git in every repository that contains a scan folder or the project."""
    scan = _GitChanges()
    places = dict.fromkeys([*(folder.path for folder in _folders(config)), os.fspath(config.project_dir)])
    by_top: dict[str, list[str]] = {}
    runs_filters = trust.is_trusted(config)  # the configuration of the repository can name any program as a filter
    for place in places:
        top = _git(place, "rev-parse", "--show-toplevel")
        if top.text is not None:
            by_top.setdefault(top.text.removesuffix("\n"), []).append(place)
        elif place != os.fspath(config.project_dir):
            scan.unknown.append(place)
    if not by_top:
        raise UserError(f"'{config.project_dir}' is not in a git repository", hint=f"git reports:  {printing.line(top.complaint)}")
    for repository, inside in by_top.items():
        commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{since}^{{commit}}")
        if commit.text is None:
            scan.unknown += [place for place in inside if place != os.fspath(config.project_dir)]
            continue
        scan.repositories.append(repository)
        paths = [os.path.relpath(os.path.realpath(place), repository) for place in inside]
        scan.paths += _differing(repository, commit.text.strip(), paths, runs_filters=runs_filters)
        scan.paths += _list_untracked(repository, paths)
    if not scan.repositories:
        tops = ", ".join(f"'{top}'" for top in by_top)
        raise UserError(f"'{printing.line(since)}' is not a commit in {tops}", hint="give a commit, such as HEAD~1, main or a hash")
    return scan


def _folders(config: Config) -> list[ScanFolder]:
    cache = os.fspath(config.cache_dir)
    return [folder for folder in config.project.scan_folders if folder.path != cache and not folder.path.startswith(cache + "/")]


def _differing(top: str, commit: str, paths: Iterable[str], *, runs_filters: bool) -> Iterator[str]:
    """Yield the absolute paths of files whose bytes differ from those of a commit; a change of only the file mode is ignored.

    Without filters, a file with a filter (Git LFS) counts as changed if its size or time differs from Git's index.
    """
    options = ("--raw", "-z", "--no-abbrev", "--no-renames", "--no-ext-diff", "--no-textconv")
    output = _ask_git(top, ("diff", *options, commit, "--", *paths), runs_filters=runs_filters)
    for facts, path in zip(output, output, strict=True):
        _mode, _new_mode, digest, new_digest, _status = facts.split(" ")  # see git-diff(1), "Raw output format"
        if digest != new_digest:
            yield f"{top}/{path}"


def _list_untracked(top: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield the absolute paths of files that Git neither tracks nor ignores."""
    output = _ask_git(top, ("ls-files", "-z", "--others", "--exclude-standard", "--", *paths))
    return (f"{top}/{name}" for name in output if not name.endswith("/"))


def _ask_git(top: str, words: tuple[str, ...], *, runs_filters: bool = True) -> Iterator[str]:
    """Run Git and return the items of its NUL-separated output."""
    answer = _git(top, *words, runs_filters=runs_filters)
    if answer.text is None:
        raise HostError(
            f"'git {words[0]}' failed in '{top}': {printing.line(answer.complaint)}",
            hint="check the name of the commit, and run 'git status' in that folder",
        )
    return (item for item in answer.text.split("\0") if item)


class _GitAnswer(NamedTuple):
    """The result of running Git: its output as text, or None and Git's error text if Git failed."""

    text: str | None
    complaint: str = ""


def _git(folder: str, *words: str, runs_filters: bool = True) -> _GitAnswer:
    """Run Git so that it does not write its index. A running engine would mistake a write for a Git operation in progress."""
    try:
        answer = run_git(from_text(folder), "-c", "core.fileMode=false", *words, limit_s=_GIT_LIMIT_S, runs_filters=runs_filters)
    except FileNotFoundError:
        if not os.path.isdir(from_text(folder)):
            return _GitAnswer(None, f"'{folder}' is not a folder")
        raise UserError("git is not installed", hint="install git; 'aptui affected' needs it to find changed files") from None
    except subprocess.TimeoutExpired:
        raise HostError(
            f"git did not answer within {_GIT_LIMIT_S} s in '{folder}'", hint="run 'git status' in that folder to see why"
        ) from None
    except OSError as error:
        raise HostError(f"git cannot be run: {error.strerror}", hint="install git") from error
    output = to_text(answer.stderr).strip().splitlines()
    return _GitAnswer(to_text(answer.stdout)) if answer.returncode == 0 else _GitAnswer(None, output[0] if output else "nothing")


# ------------------------------------------------------------------------------------------------------------------- files


class _Changes(Struct):
    """Changed files, grouped by their effect on sources and jobs.

    Args:
        keys: {path in lower case: reason} of changed sources, and of sources whose companions changed.
        new: {new source: names of the builders that match it}.
        gone: paths (lower case) of deleted sources.
        settings: folders (lower case) whose settings changed.
        configuration: changed files of the configuration.
        builder_files: changed files in the project's folder `builders/`.
    """

    keys: dict[str, str] = field(default_factory=dict)
    new: dict[str, list[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    settings: list[str] = field(default_factory=list)
    adjusted: dict[str, str] = field(default_factory=dict)
    """{path in lower case: reason} of the sources whose bytes are equal but whose folder settings changed."""
    configuration: list[str] = field(default_factory=list)
    builder_files: list[str] = field(default_factory=list)


def _sort_changes(paths: Iterable[str], project: OpenedProject) -> _Changes:
    """Group changed files (absolute paths) by their effect."""
    config, changes = project.config, _Changes()
    folders, is_ignored = _folders(config), ignore_matcher(config.project.ignore_regex)
    real = [(os.path.realpath(from_text(folder.path)), folder) for folder in folders]
    configuration = {os.path.realpath(os.fsencode(file)) for file, _digest in config.layers}
    own_builders = os.path.realpath(os.fsencode(config.project_dir / "builders")) + b"/"
    by_key: dict[str, tuple[str, set[str]]] = {}
    for path in dict.fromkeys(paths):
        data = from_text(path)
        if data in configuration:
            changes.configuration.append(path)
        elif data.startswith(own_builders):
            changes.builder_files.append(path)
        for root, folder in real:
            if data.startswith(root + b"/"):
                rel = to_text(data[len(root) + 1 :])
                if not _is_left_out(rel, folder, is_ignored):
                    by_key.setdefault(rel.lower(), (rel, set()))[1].add(folder.path)
    builders = all_builders(config) if by_key else ()
    wanting = PatternSet([builder.patterns for builder in builders])
    for key, (rel, changed_in) in by_key.items():
        _classify(key, rel, changed_in, changes, project, [builders[index].name for index in wanting.builders_for(rel)])
    return changes


def _is_left_out(rel: str, folder: ScanFolder, is_ignored: Any) -> bool:
    """Whether a scan of the folder skips a file: it is in a subfolder that is not scanned, or it is ignored."""
    parts = rel.split("/")
    return (not folder.recursive and len(parts) > 1) or any(is_ignored("/".join(parts[: at + 1])) for at in range(len(parts)))


def _classify(key: str, rel: str, changed_in: set[str], changes: _Changes, project: OpenedProject, wanting: list[str]) -> None:
    """Add one changed path to its group in `changes`. Ignore a file if another scan folder has an overriding file."""
    if is_settings(RelPath(rel)):
        changes.settings.append(parent(key))
        return
    holders = (folder.path for folder in _folders(project.config) if folder.recursive or "/" not in rel)
    winner = next((root for root in holders if os.path.lexists(from_text(f"{root}/{rel}"))), "")
    stored = project.database.source(key)
    before = stored.root if stored is not None else ""
    if winner and winner not in changed_in and before in ("", winner):
        return
    if stored is None and winner and wanting:
        changes.new[rel] = wanting
    elif stored is not None and not winner:
        changes.gone.add(key)
    changes.keys[key] = "the file was deleted" if not winner else "the file is new" if stored is None else "the file changed"
    for owner in _owners(rel, project.config):
        changes.keys.setdefault(owner, f"its companion '{rel}' changed")


def _owners(rel: str, config: Config) -> list[str]:
    """Return the paths (lower case) of the sources to which this file may belong, as identity file or as a companion file."""
    key = rel.lower()
    owner = owner_of(key)  # type: ignore[arg-type]
    found: list[str] = [owner] if owner else []
    for companion in config.project.companions:
        suffix = "." + companion.suffix.lower()
        if key.endswith(suffix):
            stem = key[: -len(suffix)]
            names = [stem, *([f"{stem}.{companion.replaces.lower()}"] if companion.replaces else [])]
            regex = re.compile(companion.source.regex, re.IGNORECASE)
            found += [name for name in names if regex.fullmatch(name) and companion_key(companion, RelPath(name)) == key]
    return found


# ------------------------------------------------------------------------------------------------------------------ answer


def _answer(scan: _GitChanges, project: OpenedProject) -> dict[str, Any]:
    changes = _sort_changes(scan.paths, project)
    for folder in changes.settings:
        changes.adjusted.update((key, "the settings of its folder changed") for key in _below(folder, project.database))
    builders = [builder.uuid for builder in _builders_of(changes.builder_files, project)]
    spreading = _spread_changes(project, changes, builders, through_products=True)
    certain = {job.job_id for job in _spread_changes(project, changes, builders, through_products=False).jobs()}
    processed = {COMMON_PLATFORM, *(platform.id for platform in project.config.project.platforms)}
    jobs = [job for job in spreading.jobs() if job.platform in processed]
    names = spreading.edges.names_of(spreading.found.sources)
    rows = project.database.ask(
        "SELECT SourceID, SourceName FROM Sources WHERE SourceID IN (SELECT value FROM json_each(?))", (json.dumps(list(names)),)
    )
    sources = [
        {
            "source": name,
            "status": "deleted" if names[number][0] in changes.gone else "affected",
            "why": spreading.found.sources[number],
        }
        for number, name in rows
    ]
    sources += [
        {"source": rel, "status": "new", "why": "the file is new", "builders": wanting} for rel, wanting in changes.new.items()
    ]
    return {
        "configuration": changes.configuration,
        "files": sorted({*changes.keys, *changes.adjusted}),
        "sources": sorted(sources, key=lambda item: str(item["source"])),
        "jobs": [{**_job_json(job, project), "certain": job.job_id in certain} for job in jobs],
        "products": spreading.products(jobs),
    }


def _spread_changes(project: OpenedProject, changes: _Changes, builders: list[bytes], *, through_products: bool) -> Spreading:
    spreading = Spreading(project.database, through_products=through_products)
    spreading.find_affected(changes.keys)
    if builders:
        spreading.touch_builders(builders, "its builder changed")
    if changes.adjusted and through_products:  # these jobs are not certain to run, because a folder setting may not affect them
        spreading.touch_sources(changes.adjusted)
    return spreading


def _below(folder: str, database: Reader) -> list[str]:
    """Return the paths (lower case) of all sources below a folder, "" = all sources."""
    sql = "SELECT path_key FROM aptui_sources"
    if not folder:
        return [key for (key,) in database.ask(sql)]
    return [key for (key,) in database.ask(f"{sql} WHERE path_key >= ? AND path_key < ?", (f"{folder}/", f"{folder}0"))]


def _builders_of(files: list[str], project: OpenedProject) -> list[Builder]:
    """Return the project's builders whose code is in these files, or imports one of them from the same folder."""
    if not files:
        return []
    from aptui.engine.registry import code_files

    here = f"file:{as_text(os.path.realpath(project.config.project_dir))}/builders/"
    origins = [(builder, each.origin) for builder in all_builders(project.config) for each in builder.steps or (builder,)]
    changed = {os.path.realpath(from_text(path)) for path in files}
    code = code_files(builders_record(project.config.cache_dir))
    found = []
    for builder, origin in origins:
        if not origin.startswith(here):
            continue
        module = origin.removeprefix("file:").rpartition(":")[0]
        paths = code.get(module, [os.fsdecode(path) for path in changed])
        if any(os.path.realpath(os.fsencode(path)) in changed for path in paths):
            found.append(builder)
    return found


def _job_json(job: AffectedJob, project: OpenedProject) -> dict[str, Any]:
    return {
        "job_id": job.job_id, "source": job.source, "platform": job.platform, "job_key": job.job_key,
        "builder": project.builder_of(job.builder),
    }  # fmt: skip


def _print(answer: dict[str, Any]) -> None:
    sources = answer["sources"]
    if sources:
        counts: dict[str, int] = {}
        for job in answer["jobs"]:
            counts[job["source"]] = counts.get(job["source"], 0) + 1
        rows = ([item["source"], item["status"], str(counts.get(item["source"], "")), item["why"]] for item in sources)
        printing.table(("source", "status", "jobs", "why"), rows, right=(2,))
    for name in answer["products"]:
        printing.say(f"product  {printing.line(name)}")
    numbers = ", ".join(printing.count(len(answer[key]), key.removesuffix("s")) for key in ("sources", "jobs", "products"))
    printing.say(f"{numbers} would be processed again")
    if unsure := sum(not job["certain"] for job in answer["jobs"]):
        printing.say(f"{unsure} of these jobs run only if the products that they depend on change")
    if any(item["status"] == "new" for item in sources):
        printing.say("the dependencies of new sources are not known until the sources are processed")

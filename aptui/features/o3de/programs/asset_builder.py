"""`AssetBuilder`: analyse and process one source and print all output of its builders; cache and database are not changed.

In O3DE, the asset processor also starts this program as its worker. aptui has its own workers, so the switches of a worker are
refused.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from aptui.batch.alone import Workers
from aptui.config import folder
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database
from aptui.core.model import JobDependency, JobPlan, RelPath, Source, SourceUuid
from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import AnalyseOrder, AnalyseResult, CopyOrder, Outcome, ProcessOrder, RunResult
from aptui.core.paths import as_text, key_of, os_path, path_uuid
from aptui.core.planner import Planner
from aptui.core.project import Builder, Project, ScanFolder
from aptui.core.settings import SettingsTree
from aptui.features.o3de.programs import program_switches, run_request
from aptui.features.o3de.programs.phrases import BATCH, ProgramConsole
from aptui.features.o3de.project_facts import MARKER, is_project, unquote
from aptui.shared import printing
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.store import joblog
from aptui.store.queries.reader import Reader, open_reader

SWITCHES = {
    "debug": "analyse and process this source (an absolute path), and print all output of its builders",
    "debug_create": "analyse this source only",
    "debug_process": "the same as -debug: analyse and process this source",
    "task": "run debug, debug_create or debug_process for the source of -input",
    "input": "the source for -task (an absolute path)",
    "project-path": "the project's folder; by default the nearest project folder above the source",
    "gamename": "deprecated: the name of the project's folder, which is directly inside a folder above the source",
    "engine-path": "the engine's folder",
    "project-cache-path": "the folder of products and the asset database",
    "regset": "set a value of the settings registry: /json/pointer=value",
    "regremove": "remove a key of the settings registry",
    "help": "print this list",
}
IGNORED = {
    "port": "this program does the work itself, without an asset processor",
    "id": "only processes that an asset processor starts need an id",
    "project-name": "the name is read from the project's own file",
    "module": "builders are taken from the configuration",
    "output": "products are stored in a folder that is printed at the end",
    "register": "builders are taken from the configuration",
}
CHILDREN = ("resident", "register", "create", "process")
WHY_REFUSED = "is valid only if O3DE's asset processor starts this program; aptui has its own workers"
INSTEAD = "-debug=<absolute path> runs the builders of one source"
_DEBUGS = ("debug", "debug_create", "debug_process")
_FORWARDED = ("engine-path", "project-cache-path", "regset", "regremove")
_WORD = re.compile(r"--?(?P<name>[A-Za-z][A-Za-z_-]*)(?:=(?P<value>.*))?", re.DOTALL)


class BuilderSwitches(Struct, frozen=True):
    """The parsed command line.

    Args:
        source: absolute path of the source.
        project: folder of the project; "" = search for it.
        processes: whether the source is also processed; False = the source is only analysed.
    """

    source: str = ""
    project: str = ""
    processes: bool = True
    forwarded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    wants_help: bool = False


def parse(arguments: Sequence[str]) -> BuilderSwitches:
    """Parse the `arguments` (without the program's name).

    Raises:
        UserError: the source is missing, or a switch is only for a child of O3DE's asset processor.
    """
    given, notes = _parse_given(arguments)
    if "help" in given or "h" in given or not arguments:
        return BuilderSwitches(wants_help=True)
    task = given.get("task", [""])[-1].lower()
    if task in CHILDREN:
        raise UserError(f"-task={task} {WHY_REFUSED}", hint=INSTEAD)
    if task and task not in _DEBUGS:
        raise UserError(f"'{task}' is not a task", hint=f"the tasks are {', '.join(_DEBUGS)}")
    mode = task or next((name for name in _DEBUGS if name in given), "")
    if not mode:
        raise UserError("the source is missing", hint="write -debug=<absolute path>")
    source = given.get("input" if task else mode, [""])[-1]
    if not os.path.isabs(source):
        raise UserError(
            f"-{'input' if task else mode} expects an absolute path, not '{source}'", hint=f"write '{os.path.abspath(source)}'"
        )
    source = os.path.normpath(source)
    project = given.get("project-path", [""])[-1]
    forwarded = tuple(f"--{name}={value}" for name in _FORWARDED for value in given.get(name, ()))
    if not project and "gamename" in given:
        project = _find_project_name(given["gamename"][-1], source)
    return BuilderSwitches(source, os.path.abspath(project) if project else "", mode != "debug_create", forwarded, notes)


def help_lines() -> list[str]:
    """Return the list of switches that `--help` prints."""
    others = [f"\t-{name} : accepted, and ignored: {why}" for name, why in IGNORED.items()]
    others += [f"\t-task={task} : refused: it {WHY_REFUSED}" for task in CHILDREN]
    return ["AssetBuilder -debug=<absolute path>", *(f"\t-{name} : {text}" for name, text in SWITCHES.items()), *others]


def _parse_given(arguments: Sequence[str]) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    given: dict[str, list[str]] = {}
    notes = []
    waiting = ""
    for word in map(unquote, arguments):
        match = _WORD.fullmatch(word)
        if match is None:
            if not waiting:
                raise UserError(
                    f"'{word}' is neither a switch nor the value of a switch", hint="run 'AssetBuilder --help' to list the switches"
                )
            given[waiting].append(word)
            waiting = ""
            continue
        name = match["name"].lower()
        given.setdefault(name, [])
        if match["value"] is not None:
            given[name].append(unquote(match["value"]))
        waiting = name if match["value"] is None else ""
        if name in IGNORED:
            notes.append(f"-{match['name']} is accepted and ignored: {IGNORED[name]}.")
        elif name not in SWITCHES and name != "h":
            notes.append(f"-{match['name']} is not a switch of the asset builder, and is ignored.")
    return {name: values or [""] for name, values in given.items()}, tuple(notes)


def _find_project_name(name: str, source: str) -> str:
    """Return the nearest project folder that is named `name`; "" = not found.

    Candidates are each folder above the source, and the folders directly inside it.
    """
    for above in Path(source).parents:
        for path in ([above] if above.name == name else []) + [above / name]:
            if (path / MARKER).is_file():
                return str(path)
    return ""


# `AssetBuilder` needs the UUID of its source, the settings of the source's folders, and the state of the jobs that the source
# depends on. It reads the asset database if the database exists, and never writes to the database.

_NO_JOB = "not processed yet"


def find_source(path: str, config: Config, folders: tuple[ScanFolder, ...]) -> tuple[ScanFolder, Source]:
    """Return the scan folder of a file, and the file as a source. Its UUID is from the asset database, if the database has it.

    Raises:
        UserError: the file does not exist, or no scan folder contains it.
    """
    if not os.path.isfile(path):
        raise UserError(f"'{path}' is not a file", hint="write -debug=<absolute path of a source>")
    scan_folder = find_folder(path, folders)
    if scan_folder is None:
        raise UserError(f"'{path}' is not in a scan folder of the project", hint="run 'aptui config' to list the scan folders")
    rel = RelPath(as_text(path[len(scan_folder.path) + 1 :]))
    return scan_folder, Source(key_of(rel), rel, scan_folder.id, _uuid(rel, scan_folder.path, config) or path_uuid(rel))


def find_folder(path: str, folders: Iterable[ScanFolder]) -> ScanFolder | None:
    """Return the innermost scan folder of a file, None if no scan folder contains it."""
    holding = (
        each for each in folders if path.startswith(f"{each.path}/") and (each.recursive or "/" not in path[len(each.path) + 1 :])
    )
    return max(holding, key=lambda each: len(each.path), default=None)


def _uuid(rel: RelPath, root: str, config: Config) -> SourceUuid | None:
    if not asset_database(config.cache_dir).is_file():
        return None
    with closing(open_reader(asset_database(config.cache_dir))) as database:
        row = database.source(rel)
    return SourceUuid(row.uuid) if row is not None and row.root == root else None


def settings_above(rel: RelPath, project: Project) -> tuple[SettingsTree, tuple[str, ...]]:
    """Return the folder settings (`.aptui.yaml`) that apply to a source, and the paths of these files.

    Raises:
        UserError: a settings file is not valid.
    """
    files = list(folder.files_above(rel, project))
    texts: dict[str, str] = {key_of(above): folder.read(os_path(path), file) for above, file, path in files}
    tree = SettingsTree(project, texts)
    if problem := tree.problem(key_of(rel)):
        raise UserError(problem)
    return tree, tuple(path for _above, _file, path in files)


def states(dependencies: tuple[JobDependency, ...], config: Config) -> Iterator[tuple[str, bool]]:
    """Yield (description, whether its products exist) of each job that a job depends on."""
    with ExitStack() as stack:
        database = None
        if asset_database(config.cache_dir).is_file():
            database = stack.enter_context(closing(open_reader(asset_database(config.cache_dir))))
        for each in dependencies:
            if each.is_wildcard:
                yield f"needs job '{each.key}' for {each.platform} of every source that matches '{each.source}'", True
                continue
            status = _status(each, config, database) if database is not None else _NO_JOB
            yield f"needs job '{each.key}' of '{each.source}' for {each.platform}; this job is {status}", status == "completed"


def _status(dependency: JobDependency, config: Config, database: Reader) -> str:
    path: str = dependency.source
    if dependency.is_uuid:
        row = database.ask("SELECT SourceName FROM Sources WHERE SourceGuid = ?", (bytes.fromhex(path),)).fetchone()
        path = row[0] if row else ""
    for folder_path in (each.path for each in config.project.scan_folders):
        path = path.removeprefix(f"{folder_path.lower()}/")
    source = database.source(path) if path else None
    jobs = database.jobs_of(source.source_id) if source is not None else []
    wanted = dependency.key.lower(), dependency.platform
    return next((job.status for job in jobs if (job.job_key.lower(), job.platform) == wanted), _NO_JOB)


WINDOW = "AssetBuilder"
FAILED = 1
_PREFIXES = {LogLevel.WARNING: "W: ", LogLevel.ERROR: "E: "}
"""Prefix of a printed line of a builder's log, by level."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `AssetBuilder` and return its exit code: 0 if the analysis and all jobs succeeded, else 1."""
    printing.prepare()
    console = ProgramConsole(sys.stdout, window=WINDOW)
    try:
        given = parse(sys.argv[1:] if arguments is None else arguments)
        if given.wants_help:
            console.say_all(help_lines(), WINDOW)
            return 0
        console.say_all(given.notes, WINDOW)
        config = _find_config(given, console)
        return _Session(config, given, console).run()
    except KnownError as error:
        console.complain_fatal(error)
        return FAILED
    finally:
        console.close()


def _find_config(given: BuilderSwitches, console: ProgramConsole) -> Config:
    """Return the configuration of the named project, or of the project above the source.

    The project above the source is used if no project is named, or if the named project cannot be loaded or does not contain the
    source. For example, a script may name the project by a relative path that leads to another project with the same folder name.

    Raises:
        KnownError: no project contains the source.
    """
    above = next((folder for folder in map(str, Path(given.source).parents) if is_project(folder)), "")
    named = given.project or above
    if not named:
        raise UserError(f"no project is found above '{given.source}'", hint="name the folder of the project: --project-path=DIR")
    try:
        config = _config(named, given)
    except UserError:
        if above in ("", named):
            raise
    else:
        if above in ("", named) or find_folder(given.source, config.project.scan_folders) is not None:
            return config
    console.warn(f"'{given.source}' is not in project '{named}'; project '{above}', which contains it, is used instead")
    return _config(above, given)


def _config(project: str, given: BuilderSwitches) -> Config:
    words = [f"--project-path={project}", *given.forwarded]
    config = run_request.load(program_switches.parse(words), BATCH)
    return replace(config, project=replace(config.project, debug_output=True))


_Work = tuple[Builder, JobPlan]


class _Session:
    """One run of the program for one source."""

    def __init__(self, config: Config, given: BuilderSwitches, console: ProgramConsole) -> None:
        self._config, self._given, self._console = config, given, console
        folders = tuple(replace(each, id=at) for at, each in enumerate(config.project.scan_folders, 1))
        self._project: Project = replace(config.project, builders=_complete_builders(config), scan_folders=folders)
        self._folder, self._source = find_source(given.source, config, folders)
        self._settings, self._adjusted_by = settings_above(self._source.rel, self._project)
        self._logs = 0

    def run(self) -> int:
        """Analyse, process and report; return the exit code."""
        self._print(f"Source = {self._source.rel}")
        for path in self._adjusted_by:
            self._print(f"Settings = {path}")
        planner = Planner(self._project, self._settings)
        wanted = planner.builders_for(self._source.rel, self._folder.id)
        if not wanted:
            raise UserError(
                f"no builder matches '{self._source.rel}'", hint="run 'aptui builders' to list the builders and their patterns"
            )
        platforms = dict.fromkeys(each for builder in wanted for each in planner.platforms_of(builder, self._source))
        self._print(f"Platforms = {', '.join(platforms)}")
        settings_folder = _make_settings_folder() if self._given.processes else ""
        with Workers(self._config, wanted, 1, writes=[settings_folder] if settings_folder else []) as workers:
            work, is_well = self._analyse(workers, planner, wanted, settings_folder)
            if settings_folder:
                is_well &= self._process(workers, work, settings_folder)
        return 0 if is_well else FAILED

    def _analyse(
        self, workers: Workers, planner: Planner, wanted: Iterable[Builder], settings_folder: str
    ) -> tuple[list[_Work], bool]:
        work: list[_Work] = []
        is_well = True
        for builder in wanted:
            if not builder.needs_analysis:
                work += [(builder, plan) for plan in planner.inline_plans(builder, self._source)]
                continue
            self._print(f"Analysis by builder '{builder.name}'")
            platforms = planner.platforms_of(builder, self._source)
            order = AnalyseOrder(
                1, builder.name, self._folder.path, self._source.rel, self._source.uuid, platforms, builder.analyse_limit_s,
                self._settings.adjustment(self._source.key, builder).order,
            )  # fmt: skip
            answer = workers.analyse([order])[1]
            is_well &= self._report(answer, "CreateJobs", settings_folder)
            for edge in answer.edges:
                self._print(f"Source dependency = {edge.target}")
            work += [(builder, plan) for plan in answer.plans]
        for builder, plan in work:
            self._print(f"Job '{plan.key}' for {plan.platform} by builder '{builder.name}'")
            for sentence, is_there in states(plan.job_dependencies, self._config):
                self._print(f"{'' if is_there else 'W: '}Job '{plan.key}' {sentence}")
        return work, is_well

    def _process(self, workers: Workers, work: Sequence[_Work], settings_folder: str) -> bool:
        is_well = True
        for at, (builder, plan) in enumerate(work, 1):
            staging = os.path.join(settings_folder, str(at))
            self._print(f"Processing '{plan.key}' for {plan.platform}")
            result = workers.run([self._order(builder, plan, at, staging)])[at]
            is_well &= self._report(result, "ProcessJob", settings_folder)
            for product in result.products:
                name = product.name or os.path.basename(product.staged)
                self._print(f"Product = {name}, sub id {product.sub_id}, {product.size} bytes")
        self._print(f"The products are stored in {settings_folder}")
        return is_well

    def _order(self, builder: Builder, plan: JobPlan, key: int, staging: str) -> ProcessOrder | CopyOrder:
        path = self._given.source
        Path(staging).mkdir()
        if builder.is_plain_copy:
            copy = os.path.join(staging, os.path.basename(path))
            return CopyOrder(key, as_text(path), as_text(copy), takes_pointers=builder.takes_pointers)
        facts = os.stat(path)
        return ProcessOrder(
            key, builder.name, self._folder.path, self._source.rel, self._source.uuid, plan.platform, plan.key, plan.params,
            plan.additional_fingerprint, plan.priority, plan.is_critical,
            (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino), b"", staging,
            builder.process_limit_s, builder.memory_limit_bytes, debug_output=True, keeps_temp=True,
            settings=self._settings.adjustment(self._source.key, builder).order,
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------------------------- output

    def _print(self, text: str) -> None:
        self._console.say(text, WINDOW)

    def _report(self, result: AnalyseResult | RunResult, step: str, settings_folder: str) -> bool:
        """Print the messages and the result of a job, and store its log beside the products; return whether the job succeeded."""
        counts = {LogLevel.WARNING: 0, LogLevel.ERROR: 0}
        for record in result.log:
            level = LogLevel(record.level)
            if level in counts:
                counts[level] += 1
            self._console.say_all(_record_lines(record), WINDOW)
        is_well = result.outcome == Outcome.SUCCEEDED
        if not is_well and not counts[LogLevel.ERROR]:
            counts[LogLevel.ERROR] = 1
            self._print(f"E: {result.error}")
        self._print(f"S: {counts[LogLevel.ERROR]} errors, {counts[LogLevel.WARNING]} warnings")
        if settings_folder:
            self._logs += 1
            log = Path(settings_folder, f"{step}-{self._logs}.log")
            if joblog.write(log, result.log, counts[LogLevel.WARNING], counts[LogLevel.ERROR]):
                self._print(f"Log = {log}")
        ending = "succeeded" if is_well else f"failed: {result.error}"
        self._print(f'{step} of "{self._given.source}" {ending} ({result.duration_ms} ms)')
        return is_well


def _record_lines(record: LogRecord) -> Iterator[str]:
    for key, value in record.context:
        yield from (f"C: [{key}] = {text}" for text in value.splitlines())
    prefix = _PREFIXES.get(LogLevel(record.level), "")
    for text in record.text.splitlines() or [""]:
        yield f"{prefix}{record.window}: {text}" if prefix else text


def _complete_builders(config: Config) -> tuple[Builder, ...]:
    """Return the configured builders with all fields that the engine computes; the cache is not changed."""
    from aptui.engine import registry

    with tempfile.TemporaryDirectory(prefix="asset-builder-") as folder:
        return registry.complete(config, Path(folder, "builders"))


def _make_settings_folder() -> str:
    """Create a folder outside the cache, because only the engine may write into the cache."""
    try:
        return tempfile.mkdtemp(prefix="asset-builder-")
    except OSError as error:
        raise HostError(
            f"no folder can be created in '{tempfile.gettempdir()}': {error.strerror}",
            hint="free space there, or set TMPDIR to another folder",
        ) from error

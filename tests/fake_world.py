"""A whole engine without IO: the real pipeline with a fake loop, scanner, pool, writer, cache and clock.

A crash can happen before any action (`fuse`). With `rng`, the outside world answers in a random possible order.

A source of the `script` builder lists the work of its builder, line by line:

    include x / glob a/*  / uuid <hex>       source dependencies
    job k [platform]      another job besides `main`; `jobs-from x` makes a job for each line of x, and includes x
    after x:k             job dependency of kind Order on job k of x. `k@platform` is a job of another platform.
    after x:k#1,2         the same dependency, but only on the products with sub ids 1 and 2.
    print, once, only     like `after`, for job dependencies of the kinds Fingerprint, OrderOnce and OrderOnly.
    read x                the run finds that it depends on x; `reprocess x` requests that the jobs of x run again
    scribble x            its jobs write another line into x
    extra n               one more product, with sub id n; `make name` makes a product of that name
    stage name=line;line  a job `chain` on platform common makes this intermediate with these lines; `stage+` adds a line
                          `info DIGEST`, and DIGEST changes with every input of the job
    critical, priority n, info text, FAIL, FAIL ANALYSIS, WARN, INTERMEDIATE

A file `.aptui.yaml` is JSON: {builder: {"params": {...}, "platforms": {...}}}. Products contain the parameters of `script`. Its
parameter `job` is the key of an additional job.
"""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from fakes import MADE, FakeArchive, FakeDisk, FakeScanner, Setup, scripter, sha
from msgspec.structs import replace

from aptui.config.packing import sign_project
from aptui.core.messages import (
    Command,
    CommitProducts,
    CompareFiles,
    DeleteProducts,
    DescribeBuilder,
    DiscardStaging,
    DropLogs,
    Event,
    FilesHashed,
    FilesSeen,
    FolderSeen,
    FoldersUnchanged,
    HashFiles,
    JobCommit,
    KillRuns,
    ProductsCommitted,
    ProductsLost,
    RecheckFiles,
    RequestReceived,
    RowsSaved,
    RunsFinished,
    SaveRows,
    ScanFinished,
    ScanStarted,
    SlotsFree,
    StartRuns,
    WriteLog,
)
from aptui.core.model import (
    SHOWN,
    DependencyKind,
    Digest,
    EdgeKind,
    FileFact,
    Job,
    JobDependency,
    JobPlan,
    PathKey,
    Product,
    RelPath,
    SourceEdge,
)
from aptui.core.notices import LogLevel, LogRecord, Notice
from aptui.core.orders import AnalyseOrder, AnalyseResult, CopyOrder, Outcome, ProcessOrder, RunResult, StagedProduct
from aptui.core.paths import has_own_identity, key_of, parent
from aptui.core.patterns import wildcard
from aptui.core.pipeline.pipeline import Pipeline
from aptui.core.project import COMMON_PLATFORM, Builder, BuilderKind, Project
from aptui.core.retry import FailureKind
from aptui.core.rows import PlainCopy
from aptui.core.run_report import TICK_NS, Stamp, Used, UsedFile, code_digest
from aptui.core.settings import merge_params
from aptui.engine.scan.up_to_date import signature

_COMMON = f"{COMMON_PLATFORM}/"
Order = AnalyseOrder | ProcessOrder | CopyOrder
Result = AnalyseResult | RunResult

_KINDS = {
    "after": DependencyKind.ORDER,
    "print": DependencyKind.FINGERPRINT,
    "once": DependencyKind.ORDER_ONCE,
    "only": DependencyKind.ORDER_ONLY,
}
BY_UUID = "uuid="
"""Prefix of a source that is named by 32 hex digits."""
CHAIN = "chain"
"""Key of the job that makes intermediates."""
SECOND = scripter("twin").uuid
ALIKE = "alike"
"""Name of a script builder whose analysis has the same answer for all sources."""


class Crash(Exception):
    """Raised at the moment at which the engine dies."""


@dataclass
class Intent:
    """The intent of a commit: the products that the commit is about to place."""

    run_key: int
    job_id: int
    names: tuple[str, ...]


@dataclass
class Script:
    """A parsed source of the script builder."""

    text: str
    includes: list[str] = field(default_factory=list)
    globs: list[str] = field(default_factory=list)
    uuids: list[str] = field(default_factory=list)
    jobs: list[tuple[str, str]] = field(default_factory=list)
    jobs_from: list[str] = field(default_factory=list)
    reprocesses: list[str] = field(default_factory=list)
    scribbles: list[str] = field(default_factory=list)
    stages: list[tuple[str, str, bool]] = field(default_factory=list)
    """(name of an intermediate, its text, whether the text ends with a digest of the source's inputs)."""
    reads: list[str] = field(default_factory=list)
    makes: list[str] = field(default_factory=list)
    extras: list[int] = field(default_factory=list)
    dependencies: list[tuple[DependencyKind, str, str, str, tuple[int, ...]]] = field(default_factory=list)
    priority: int = 0
    info: str = ""

    @classmethod
    def parse(cls, text: str) -> Script:
        """Read a script."""
        script = cls(text)
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word in ("include", "glob", "uuid", "read", "make", "reprocess", "scribble"):
                getattr(script, word + ("es" if word == "reprocess" else "s")).append(rest)
            elif word in ("stage", "stage+"):
                name, _, lines = rest.partition("=")
                script.stages.append((name, lines.replace(";", "\n"), word == "stage+"))
            elif word == "jobs-from":
                script.jobs_from.append(rest)
            elif word == "job":
                key, _, platform = rest.partition(" ")
                script.jobs.append((key, platform))
            elif word == "extra":
                script.extras.append(int(rest))
            elif word in _KINDS:
                rest, _, sub_ids = rest.partition("#")
                path, _, key = rest.rpartition(":")
                key, _, platform = key.partition("@")
                script.dependencies.append((_KINDS[word], path, key, platform, tuple(map(int, filter(None, sub_ids.split(","))))))
            elif word == "priority":
                script.priority = int(rest)
            elif word == "info":
                script.info = rest
        return script


Kind = TypeVar("Kind")


def settled(world: World, files: Mapping[str, str] = MappingProxyType({}), /, **named: str) -> World:
    """Write files, and let the engine process them. Then restart the counts of runs, commands and notices.

    In the names of `named`, "_" stands for ".": `a_s` is the file a.s.
    """
    world.apply({**files, **{name.replace("_", "."): text for name, text in named.items()}}).forget_runs()
    return world


class World:
    """A simulated engine; see the docstring of the module.

    Args:
        setup: the configuration.
        rng: makes the order of all actions random; None = always the same order, one action after the other.
    """

    def __init__(self, setup: Setup | None = None, *, rng: random.Random | None = None) -> None:
        self.setup = setup or Setup()
        self.disk = FakeDisk()
        self.archive = FakeArchive()
        self.cache: dict[str, Digest] = {}
        self._texts: dict[Digest, str] = {}
        self.rng = rng
        self.slots = 4
        self.duration_ms = 1
        self.fuse: int | None = None
        self.intents: list[Intent] = []
        self.deletes: dict[str, int] = {}
        """{product to be deleted: the ticket of the rows that have to be saved first}."""
        self.logs: dict[str, tuple[LogRecord, ...]] = {}
        self.notices: list[Notice] = []
        self.commands: list[Command] = []
        self.rows_committed: Counter[str] = Counter()
        """{operation: number of rows saved by commits}."""
        self.runs: Counter[str] = Counter()
        self.analyses: Counter[str] = Counter()
        self.order: list[str] = []
        self.stored: dict[tuple[str, int], dict[str, Digest]] = {}
        """{(job, fingerprint): products} of the committed runs, as in a store of results."""
        self.contradictions: list[str] = []
        """Jobs that made different products with the same fingerprint."""
        self.fates: dict[str, list[Outcome | str]] = {}
        """{job: results of its next runs}: each an outcome, or the cause of a failure (`core.retry`)."""
        self.commit_fates: dict[str, list[int]] = {}
        self.held: set[str] = set()
        self.unreadable: dict[str, str] = {}
        self.observes = True
        """Whether the worker observes which files a run opens; a worker cannot observe the files that C libraries open."""
        self.shy: Counter[str] = Counter()
        self.reports_every_step = False
        self.copies_on_reading: bool | None = False
        """Whether the hasher also stages copies while it reads; None = at random. Applies from the next boot on."""
        self.code = "1"
        """The code of the script builder on the disk; an engine uses the code that was there when the engine started."""
        self.tool = ""
        """Version of the tool that each job starts, "" = no tool. An engine uses the version that exists when the engine starts."""
        self.blind = ""
        """Kind of change ("code" or "tool") that runs do not report. Tests set it; then only a later check can find the change."""
        self._folder_ids: dict[str, int] = {}
        self._seq = 0
        self._now_ms = 1_000
        self.pipeline: Pipeline = None  # type: ignore[assignment]  # set by `boot`
        self.boot()

    # ---------------------------------------------------------------------------------------------------- actions of users

    def write(self, rel: str, text: str = "", folder: str = "game") -> None:
        """Write a file."""
        self.disk.write(folder, rel, text)

    def delete(self, rel: str, folder: str = "game") -> None:
        """Delete a file."""
        self.disk.delete(folder, rel)

    def edit(self, files: Mapping[str, str | None]) -> None:
        """Write files; delete those whose text is None."""
        for rel, text in files.items():
            self.delete(rel) if text is None else self.write(rel, text)

    def save_twice(self, rel: str, text: str, folder: str = "game") -> None:
        """Write a file in two steps, while the engine considers the file as being written.

        The engine uses the previous state until `_is_at_rest` releases the file.
        """
        key = key_of(RelPath(rel))
        pending = self.pipeline.jobs.memory.folders.get(parent(key))
        self._scanner.unfinished[key] = pending.winners.get(key) if pending is not None else None
        self.write(rel, text[: len(text) // 2], folder)
        self.write(rel, text, folder)

    def save_alone(self, rel: str, text: str, folder: str = "game") -> bool:
        """Write a known file and check only that file, as `loop.single_files` does; return whether that was sufficient."""
        self.write(rel, text, folder)
        key, memory = key_of(RelPath(rel)), self.pipeline.jobs.memory
        if self._scan is not None or self.inbox or parent(key) in memory.folders or key.endswith((".meta", ".aptui.yaml")):
            return False
        known = [
            (part, fact.rel)
            for part, (_digest, facts) in self.archive.folder_parts(parent(key)).items()
            for fact in facts
            if key_of(fact.rel) == key
        ]
        part = next((item.id for item in self.project.scan_folders if item.name == folder), 0)
        others = [name for name, files in self.disk.files.items() if name != folder and any(key_of(each) == key for each in files)]
        if known != [(part, rel)] or others or has_own_identity(key, self.project.metadata_types):
            return False
        self._post(FilesSeen(self._next(), (self.disk.files[folder][rel].fact(part, rel),)))
        return True

    def delete_product(self, name: str) -> None:
        """Delete a product by hand, while the engine watches the cache."""
        self.lose(name)
        self.missed[name] = None

    def touch(self, rel: str, folder: str = "game") -> None:
        """Write a file again with the same text, so that only its stamp changes."""
        self.write(rel, self.disk.files[folder][rel].text, folder)

    def configure(self, **changes: object) -> None:
        """Change the configuration; it applies from the next start on."""
        self.setup = replace(self.setup, **changes)  # type: ignore[arg-type]

    def reconfigure(self, **changes: object) -> World:
        """Change the configuration, restart, and settle."""
        self.configure(**changes)
        return self.settle(restart=True)

    def post_request(self, verb: str, *, keys: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> None:
        """Put a request into the inbox."""
        ids = tuple(job.id for name, job in self.live_jobs().items() if name in names)
        self._post(RequestReceived(self._next(), verb, tuple(PathKey(key) for key in keys), ids))

    def ask(self, verb: str, *, keys: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> None:
        """Send a request, and let the simulated engine act until it is idle."""
        self.post_request(verb, keys=keys, names=names)
        self.run()

    # ------------------------------------------------------------------------------------------------------ start, stop, settle

    def boot(self, **attributes: object) -> World:
        """Set `attributes` of this object, and then start an engine on the stored state.

        Like `engine.cache`, it first recovers from interrupted commits. Then it makes a pipeline.
        """
        for name, value in attributes.items():
            setattr(self, name, value)
        self.staging: dict[str, Digest] = {}
        self.inbox: deque[Event] = deque()
        self.saves: deque[SaveRows] = deque()
        self._answers: list[Event] = []
        """Answers to the commits of the current event."""
        self.running: dict[int, tuple[Order, str | None]] = {}
        self.killed: dict[int, tuple[Order, str | None]] = {}
        self.dead: set[int] = set()
        self.read: dict[int, Result] = {}
        """Runs that have read all their inputs and have not ended."""
        self.loaded: dict[int, tuple[str, str, int]] = {}
        """{run key: (code in the worker, version of the tool, and the disk's clock) at the start of the run}."""
        self.hashes: list[tuple[FileFact, tuple[int, ...], bytes]] = []
        """(file to be read, keys of the copy runs that need its bytes, its previous digest)."""
        self.again: dict[PathKey, None] = {}
        self.deleted: set[str] = set()
        """Products that the engine itself deleted and has not made again: they are not reported as missing."""
        self.missed: dict[str, None] = {}
        """Products deleted by hand that the engine has not noticed yet."""
        self.reported = self.saved = self.ordered = 0
        """Tickets of `SaveRows` commands: the last one whose save was reported, the last one saved, the last one received."""
        self._keys_copied: set[int] = set()
        self._keys_seen = {row[7] for row in self.archive.tables.jobs.values()} | {key for _job, key in self.archive.tables.runs}
        self._scan: Iterator[list[Event]] | None = None
        for name in self.setup.all_folders:
            self._folder_ids.setdefault(name, len(self._folder_ids) + 1)
        ids = {name: self._folder_ids[name] for name in self.setup.all_folders}
        self.archive = self.archive.reopen()
        self.archive.scan_folders = set(self._folder_ids.values())
        self._recover()
        self.project = self._described(self.setup.project(ids))
        self.archive.ranks = {ids[name]: rank for rank, name in enumerate(self.setup.all_folders)}
        self.archive.metadata_types = self.setup.metadata_types
        self._dropped = [part for name, part in self._folder_ids.items() if name not in ids]
        self.pipeline = Pipeline(self.project, self.archive, _log_name, "/staging")
        self.pipeline.jobs.reports.reports_every_step = self.reports_every_step
        self.pipeline.jobs.copies_on_reading = self.copies_on_reading is not False
        self._scanner = FakeScanner(self.disk, self.project, self.archive)
        return self

    def _described(self, project: Project) -> Project:
        self._planned_code, self._planned_tool = self.code, self.tool
        files = _code_files(self.code, self.tool)
        code = code_digest(files)
        builders = [
            replace(item, code_digest=code, code_files=files) if item.kind is BuilderKind.PYTHON and not item.code_digest else item
            for item in project.builders
        ]
        return replace(project, builders=tuple(builders))

    def _recover(self) -> None:
        recorded = {row[2]: row[7] for row in self.archive.tables.products.values()}
        for intent in self.intents:
            for name in intent.names:
                if name not in recorded:
                    self.lose(name)
                elif self.cache.get(name) != recorded[name]:
                    self.archive.save({"doubt_job": [(intent.job_id,)]})
        self.intents = []
        for name in self.deletes:  # a starting engine checks the folders of pending deletions
            if name not in recorded:
                self.lose(name)
        self.deletes = {}

    def crash(self) -> World:
        """Lose everything that is not stored, then start again."""
        return self.boot(fuse=None)

    def crash_after(self, steps: int) -> None:
        """Scan and work until a crash after this number of steps, or until no work is left; then start again."""
        self.fuse = steps
        with suppress(Crash):
            self.process()
        self.crash()

    def restart(self) -> None:
        """Stop the engine normally and start it again."""
        self._handle(RequestReceived(self._next(), "stop"))
        while self.saves:
            self._save_some(len(self.saves))
        self.boot()

    def settle(self, *, restart: bool = False, is_full: bool = False, retries: bool = True) -> World:
        """Check all files and work until no work is pending; return `self`. After a crash, start again and repeat this."""
        while True:
            try:
                if restart:
                    self.restart()
                self.scan(is_full=is_full, retries=retries)
                self.run()
                if self.pipeline.jobs.is_outdated:
                    restart = True
                    continue
            except Crash:
                self.crash()
                restart = False
            else:
                return self

    def apply(self, files: Mapping[str, str | None], *, restart: bool = False, is_full: bool = False) -> World:
        """Edit files, and settle."""
        self.edit(files)
        return self.settle(restart=restart, is_full=is_full)

    def scan(self, *, is_full: bool = False, retries: bool = True) -> None:
        """Begin a scan of all files."""
        reassess = self.archive.state("signature") != self._signature()
        self._post(ScanStarted(self._next(), retries=retries))
        lost = sorted({row[2] for row in self.archive.tables.products.values()} - self.cache.keys())  # type: ignore[type-var]
        if lost:
            self._post(ProductsLost(self._next(), tuple(lost)))  # type: ignore[arg-type]
        self._scan = self._scan_steps(reassess=reassess, is_full=is_full)

    def _signature(self) -> str:
        return signature(sign_project(self.project), self.project.builders)

    def _scan_steps(self, *, reassess: bool, is_full: bool) -> Iterator[list[Event]]:
        for folder in self._scanner.folders():
            event = self._scanner.compare(folder, self._next(), reassess=reassess, is_full=is_full)
            yield [event or FoldersUnchanged(self._next(), (folder,))]
        yield [ScanFinished(self._next())]

    def run(self) -> None:
        """Let the engine and its simulated environment act until no action is possible. Runs in `held` do not end."""
        for _step in range(10_000 + 20 * sum(map(len, self.disk.files.values()))):
            moves = self._moves()
            if not moves:
                break
            (self.rng.choice(moves) if self.rng else moves[0])()
        else:
            raise AssertionError("the engine does not become idle")
        if self.is_idle():
            self._rest()

    def process(self, *, retries: bool = True) -> None:
        """Scan; then let the engine and its environment act until no action is possible."""
        self.scan(retries=retries)
        self.run()

    def release(self) -> None:
        """Let all held runs end."""
        self.held.clear()
        self.run()

    def run_until(self, condition: Callable[[], object]) -> None:
        """Perform actions until a condition is true."""
        while not condition():
            self._moves()[0]()

    def run_scan_only(self) -> None:
        """Let the scan continue while all answers are delayed."""
        while self._scan is not None or self.inbox:
            if self.inbox:
                self._handle(self.inbox.popleft())
            else:
                self._scan_step()

    def is_idle(self) -> bool:
        """Whether no work is pending."""
        return not self._moves() and not self.running and self.pipeline.jobs.is_idle

    def _rest(self) -> None:
        assert not self.pipeline.jobs.stuck(), [job.source.rel for job in self.pipeline.jobs.stuck()]
        for part in self._dropped:
            for source_id in [row[0] for row in self.archive.tables.sources.values() if row[1] == part]:
                self.archive.save({"drop_source": [(source_id,)]})
            for folder, owner in list(self.archive.tables.folders):
                if owner == part:
                    self.archive.save({"drop_folder": [(part, folder)]})
        self._dropped = []
        learned = self.pipeline.jobs.memory.newer.list_digest_rows(self.archive.folder_parts)
        self.archive.save({"put_folder": [*learned], "put_state": [("signature", self._signature())]})
        self.pipeline.jobs.memory.newer.forget_digest_rows()

    def _moves(self) -> list[Callable[[], None]]:
        """Return the possible next actions of the engine and its environment. Without `rng` the first one is performed."""
        moves: list[Callable[[], None]] = []
        if self.inbox:
            moves.append(lambda: self._handle(self.inbox.popleft()))
        if self.saves:
            moves.append(self._save)
        if self.reported < self.saved:
            moves.append(self._report_saved)
        if self._ready():
            moves.append(self._finish_runs)
        if self.hashes:
            moves.append(self._hash)
        if len(self.running) < self.slots and self.pipeline.jobs.ready.peek() is not None and not self.pipeline.jobs.is_outdated:
            moves.append(lambda: self._handle(SlotsFree(self._next(), self.slots - len(self.running))))
        if self.killed and self.pipeline.jobs.resources is not None:
            moves.append(self._end_killed)
        if self._scan is not None:
            moves.append(self._scan_step)
        if self.again and not self.inbox:
            moves.append(self._check_again)
        if self._scanner.unfinished and not self.inbox and self._scan is None:
            moves.append(self._let_go_of_unfinished)
        if self.missed:
            moves.append(self._receive_products)
        return moves

    # ------------------------------------------------------------------------------------------------------------ the loop

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _post(self, event: Event) -> None:
        self.inbox.append(event)

    def _tick(self) -> None:
        """Count an action before it is performed; crash when the fuse reaches zero."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Crash

    def _handle(self, event: Event) -> None:
        self._now_ms += 1
        commands, notices = self.pipeline.handle(event)
        self.notices += notices
        self.commands += commands
        assert not any(isinstance(command, CommitProducts) for command in commands[:-1]), (
            "a commit must be the last command that the pipeline returns for an event"
        )
        for command in commands:
            self._tick()
            self._perform(command)
        answers, self._answers = self._answers, []
        for answer in answers:  # handled after all commands, because rows are saved in the order of their tickets
            self._handle(answer)
        if any(name.startswith(_COMMON) for name in self.deletes):
            self._save_some(len(self.saves))
        self._delete_saved()

    def _perform(self, command: Command) -> None:
        match command:
            case StartRuns():
                jobs = (self.pipeline.jobs.running.get(order.run_key) for order in command.orders)
                if self.deletes and any(job and job.plan and job.plan.job_dependencies for job in jobs):
                    self._save_some(len(self.saves))
                    self._delete_saved()
                for order in command.orders:
                    self._start(order)
            case CommitProducts():
                committed, failed = self._commit(command)
                self._answers.append(ProductsCommitted(self._next(), committed, failed, self._now_ms))
            case SaveRows():
                assert command.ticket > self.ordered, "tickets of `SaveRows` commands must increase"
                self.ordered = command.ticket
                self.saves.append(command)
            case HashFiles():
                count = len(command.files)
                copies, known = command.copies or ((),) * count, command.known or (b"",) * count
                self.hashes += zip(command.files, copies, known, strict=True)
            case KillRuns():
                for key in command.run_keys:
                    assert key in self._keys_seen or key in self._keys_copied
                    self.dead.add(key)
                    self.read.pop(key, None)
                    if key in self.running:  # a run that is not running has already posted its result
                        self.killed[key] = self.running.pop(key)
            case DeleteProducts():
                self.deletes |= dict.fromkeys(command.names, command.ticket)
            case DiscardStaging():
                for key in command.run_keys:
                    self._discard(key)
            case WriteLog():
                self.logs[command.file] = command.records
            case DropLogs():
                for file in command.files:
                    self.logs.pop(file, None)
            case RecheckFiles():
                self.again.update(dict.fromkeys(command.keys))
            case CompareFiles():
                self.again.update(dict.fromkeys(fact.key for fact in command.facts if self._is_other(fact)))
            case DescribeBuilder():
                pass  # `settle` restarts the engine, which then describes the builders again

    def _discard(self, run_key: int) -> None:
        for path in [path for path in self.staging if path == f"/staging/{run_key}" or path.startswith(f"/staging/{run_key}/")]:
            del self.staging[path]

    def _scan_step(self) -> None:
        assert self._scan is not None
        events = next(self._scan, None)
        if events is None:
            self._scan = None
        else:
            self.inbox.extend(events)

    def _check_again(self) -> None:
        keys, self.again = frozenset(self.again), {}
        for folder in sorted({parent(key) for key in keys}):
            event = self._scanner.compare(folder, self._next(), again=keys)
            assert isinstance(event, FolderSeen)
            self._post(event)

    def _is_other(self, fact: FileFact) -> bool:
        folder = next(name for name, part in self._folder_ids.items() if part == fact.scan_folder)
        file = self.disk.files.get(folder, {}).get(fact.rel)
        return file is None or file.fact(fact.scan_folder, fact.rel).inode != fact.inode

    def _let_go_of_unfinished(self) -> None:
        self.again.update(dict.fromkeys(self._scanner.unfinished))
        self._scanner.unfinished = {}

    def _receive_products(self) -> None:
        names, self.missed = self.missed.keys() - self.deleted - self.cache.keys(), {}
        if names:
            self._post(ProductsLost(self._next(), tuple(sorted(names))))

    def _hash(self) -> None:
        count = self.rng.randint(1, len(self.hashes)) if self.rng else len(self.hashes)
        asked, self.hashes = self.hashes[:count], self.hashes[count:]
        names = {part: name for name, part in self._folder_ids.items()}
        read: list[FileFact] = []
        unreadable: list[tuple[PathKey, str]] = []
        unstable: list[PathKey] = []
        copies: list[tuple[PathKey, tuple[int, ...], int]] = []
        for fact, run_keys, known in asked:
            file = self.disk.files.get(names[fact.scan_folder], {}).get(fact.rel)
            if fact.rel in self.unreadable:
                unreadable.append((fact.key, self.unreadable[fact.rel]))
            elif file is None or self.shy[fact.rel] > 0:
                self.shy[fact.rel] -= 1
                unstable.append(fact.key)
            else:
                read.append(replace(file.fact(fact.scan_folder, fact.rel, is_read=True), is_duplicate=fact.is_duplicate))
                if run_keys and sha(file.text) != known and self._copies_now(fact):
                    self.staging.update((f"/staging/{key}", sha(file.text)) for key in run_keys)
                    self._keys_copied.update(run_keys)
                    copies.append((fact.key, run_keys, self.duration_ms))
        has_more = bool(self.hashes) and self.rng is not None and self.rng.random() < 0.5
        read_now = tuple(read), tuple(unreadable), tuple(unstable), tuple(copies)
        self._post(FilesHashed(self._next(), *read_now, self._now_ms, has_more))

    def _copies_now(self, fact: FileFact) -> bool:
        """Whether the process that reads a file also stages the requested copies; some processes cannot do both."""
        if not self.slots or any(name.startswith(f"{fact.rel}@") for name in (*self.fates, *self.held)):
            return False
        if self.copies_on_reading is None and self.rng:
            return self.rng.random() < 0.7
        return bool(self.copies_on_reading)

    # ---------------------------------------------------------------------------------------------------------- the writer

    def _save(self) -> None:
        self._save_some(self.rng.randint(1, len(self.saves)) if self.rng else len(self.saves))

    def _save_some(self, count: int) -> None:
        for _save in range(count):
            self._tick()
            save = self.saves.popleft()
            self.archive.save(save.rows)
            self.saved = save.ticket

    def _report_saved(self) -> None:
        self.reported = self.saved
        self._post(RowsSaved(self._next(), self.reported))
        self._delete_saved()

    def _delete_saved(self) -> None:
        """Delete the products that do not wait for rows to be saved."""
        for name, ticket in list(self.deletes.items()):
            if not any(save.ticket >= ticket for save in self.saves):
                self._delete(name)
                del self.deletes[name]

    # ----------------------------------------------------------------------------------------------------------- the cache

    def _commit(self, order: CommitProducts) -> tuple[tuple[int, ...], tuple[tuple[int, str, int], ...]]:
        assert all(commit.run_key not in self.dead and commit.run_key not in self.running for commit in order.commits)
        for commit in order.commits:
            if commit.run_key not in self._keys_seen:  # the copy was staged while the hasher read its source
                self._keys_seen.add(commit.run_key)
                self.runs[self._name_of_commit(commit.run_key)] += 1
        self._save_some(len(self.saves))
        self._delete_saved()
        self.intents += [
            Intent(commit.run_key, commit.job_id, (*(item.name for _staged, item in commit.products), *commit.stale))
            for commit in order.commits
        ]
        failed: list[tuple[int, str, int]] = []
        for commit in order.commits:
            error, placed = self._place(commit)
            if error:
                failed.append((commit.run_key, error, placed))
        lost = {run_key for run_key, _error, _placed in failed}
        done = [commit for commit in order.commits if commit.run_key not in lost]
        for commit in done:
            self._keep(commit.run_key)
        rows: dict[str, list[tuple[object, ...]]] = {}
        for commit in done:
            for operation, row in self.pipeline.commit_rows(commit.run_key):
                rows.setdefault(operation, []).append(row)
                self.rows_committed[operation] += 1
        self._tick()
        self.archive.save(rows)
        for commit in done:
            for name in commit.stale:
                self._delete(name)
        half_placed = {run_key for run_key, _error, placed in failed if placed}
        self.intents = [intent for intent in self.intents if intent.run_key in half_placed]
        for commit in order.commits:
            self._discard(commit.run_key)
        return tuple(commit.run_key for commit in done), tuple(failed)

    def _keep(self, run_key: int) -> None:
        """Store the products of a run and check that the same fingerprint always has the same products.

        Jobs that use products of other jobs are not checked: a failed job keeps its earlier products, so these can be old.
        """
        commit = self.pipeline.jobs.committing[run_key]
        if isinstance(commit, PlainCopy):
            self._keep_made(self._name_of_commit(run_key), commit.number, (commit.product,))
            return
        job = commit.job
        if job.plan is None or job.plan.job_dependencies or self._is_misled(job):
            return
        self._keep_made(name_of(job), commit.fingerprint, commit.products)

    def _keep_made(self, name: str, fingerprint: int, products: Iterable[Product]) -> None:
        made = {product.name: product.digest for product in products}
        if self.stored.setdefault((name, fingerprint), made) != made:
            self.contradictions.append(f"{name} is {made}, and was {self.stored[name, fingerprint]}")

    def _name_of_commit(self, run_key: int) -> str:
        commit = self.pipeline.jobs.committing[run_key]
        if isinstance(commit, PlainCopy):
            return f"{commit.fact.rel}@{commit.rule.plan.platform}:{commit.rule.plan.key}"
        return name_of(commit.job)

    def _place(self, commit: JobCommit) -> tuple[str, int]:
        name = self._name_of_commit(commit.run_key) if self.commit_fates else ""
        fates = self.commit_fates.get(name)
        may_place = fates.pop(0) if fates else len(commit.products)
        for staged, product in commit.products[:may_place]:
            self._tick()
            assert self.staging.pop(staged) == product.digest, f"{product.name} differs from the reported digest"
            self._put(product.name, product.digest)
        if may_place >= len(commit.products):
            return "", len(commit.products)
        return f"product '{commit.products[may_place][1].name}' cannot be placed", may_place

    def _put(self, name: str, digest: Digest) -> None:
        self.cache[name] = digest
        self.deleted.discard(name)
        if name.startswith(_COMMON):
            self.disk.write(MADE, name.removeprefix(_COMMON), self._texts[digest])

    def _delete(self, name: str) -> None:
        self._tick()
        self.deleted.add(name)
        self.lose(name)

    def lose(self, name: str) -> None:
        """Delete a product from the cache, while no engine watches it."""
        if self.cache.pop(name, None) is not None and name.startswith(_COMMON):
            self.disk.delete(MADE, name.removeprefix(_COMMON))

    # ------------------------------------------------------------------------------------------------------------ the pool

    def _start(self, order: Order) -> None:
        assert order.run_key not in self._keys_seen, "a run key was used twice"
        self._keys_seen.add(order.run_key)
        name = self.pipeline_name(order.run_key)
        self.order.append(name)
        if isinstance(order, AnalyseOrder):
            self.analyses[order.rel] += 1
        else:
            self.runs[name] += 1
        self.running[order.run_key] = order, self._text_of(order)
        self._check_resources()
        self.loaded[order.run_key] = self.code, self.tool, self.disk.clock

    def _check_resources(self) -> None:
        """Assert that no resource exceeds its limit; killed runs hold their resources until they have ended."""
        held: Counter[str] = Counter()
        for order, _text in (*self.running.values(), *self.killed.values()):
            if isinstance(order, ProcessOrder):
                held.update(self._builder_of(order).resources)
        assert all(held[name] <= limit for name, limit in self.setup.resources), held

    def _end_killed(self) -> None:
        """Report that the killed runs have ended."""
        results = [
            (AnalyseResult if isinstance(order, AnalyseOrder) else RunResult)(key, Outcome.CANCELLED, "cancelled")
            for key, (order, _text) in self.killed.items()
        ]
        self.killed.clear()
        self._post(RunsFinished(self._next(), tuple(results), self._now_ms))

    def pipeline_name(self, run_key: int) -> str:
        """Return the name of the job that a run belongs to."""
        return name_of(self.pipeline.jobs.running[run_key])

    def _ready(self) -> list[int]:
        return [key for key in self.running if self.pipeline_name(key) not in self.held]

    def _finish_runs(self) -> None:
        keys = self._ready()
        if self.rng:
            keys = self.rng.sample(keys, self.rng.randint(1, len(keys)))
        results = []
        for key in keys:
            name = self.pipeline_name(key)
            order, text = self.running[key]
            if key not in self.read:
                self.read[key] = self._outcome(order, text, name)
                if self.rng and self.rng.random() < 0.5:
                    continue  # the run has read its inputs; a later call of this method ends the run
            del self.running[key]
            results.append(self._over(self.read.pop(key)))
        if self.rng and self.killed and self.rng.random() < 0.5:
            key, (order, text) = self.killed.popitem()
            results.append(self._perform_run(order, text))
        if not results:
            return
        self._post(RunsFinished(self._next(), tuple(results), self._now_ms))

    def deliver_killed(self) -> None:
        """Let every killed run report its result, although it was killed, and let the simulated engine act until it is idle."""
        results = [self._perform_run(order, text) for order, text in self.killed.values()]
        self._post(RunsFinished(self._next(), tuple(results), self._now_ms))
        self.run()

    def _over(self, result: Result) -> Result:
        """Return the result of a run at its end, after the engine has checked the files of its job."""
        used, job = result.used, self.pipeline.jobs.running[result.run_key]
        if result.outcome not in (Outcome.SUCCEEDED, Outcome.FAILED):
            return result
        changed = tuple(file.path for file in used.files if self._stamp(file.path) != file.stamp)
        if changed:
            return replace(result, outcome=Outcome.STALE, used=replace(used, changed=changed))
        known = job.ties.known if job.ties is not None else {}
        now = tuple(UsedFile(path, self._stamp(path)) for path in known)
        return replace(result, used=replace(used, files=(*used.files, *now)))

    def _used(self, order: Order, reported: Iterable[str] = (), found: Iterable[str] = ()) -> Used:
        code, tool, began = self.loaded[order.run_key]
        tool = tool if tool == self.tool else "changed while it was used"
        code, tool = self._planned_code if self.blind == "code" else code, self._planned_tool if self.blind == "tool" else tool
        assert not isinstance(order, CopyOrder)
        files, named = (tuple(UsedFile(path, self._stamp(path)) for path in paths) for paths in (reported, found))
        return Used(code_digest(_code_files(code, tool)), began + 1 + TICK_NS, files, named)

    def _path_of(self, root: str, rel: str) -> str:
        found = self.disk.winner(self.setup.all_folders, rel)
        return f"/disk/{found[0]}/{found[1]}" if found else f"{root}/{rel}"

    def _stamp(self, path: str) -> Stamp:
        folder, _, rel = path.removeprefix("/disk/").partition("/")
        file = self.disk.files.get(folder, {}).get(rel)
        return (len(file.text), file.version, file.version, file.version) if file else ()

    def _outcome(self, order: Order, text: str | None, name: str) -> Result:
        fates = self.fates.get(name)
        fate = fates.pop(0) if fates else Outcome.SUCCEEDED
        if fate is Outcome.SUCCEEDED:
            return self._perform_run(order, text)
        kind = AnalyseResult if isinstance(order, AnalyseOrder) else RunResult
        if isinstance(fate, Outcome):
            return kind(order.run_key, fate, f"it was {fate.name}")
        outcome = Outcome.LOST if fate == FailureKind.CRASH else Outcome.FAILED
        return kind(order.run_key, outcome, f"it was {fate}", kind=fate)

    def _text_of(self, order: Order) -> str | None:
        folder, rel = _place_of(order)
        file = self.disk.files.get(folder, {}).get(rel)
        return file.text if file else None

    def _perform_run(self, order: Order, before: str | None) -> Result:
        folder, rel = _place_of(order)
        file = self.disk.files.get(folder, {}).get(rel)
        if isinstance(order, AnalyseOrder):
            if file is None or file.text != before:
                return AnalyseResult(order.run_key, Outcome.STALE, "source: it changed")
            return self._analyse(order, file.text)
        if file is None:
            return RunResult(order.run_key, Outcome.STALE, "source: it is gone")
        if isinstance(order, CopyOrder):
            return self._copy(order, file.text)
        if file.fact(0, rel).inode != order.expected[3]:
            return RunResult(order.run_key, Outcome.STALE, "source: it changed")
        return self._process(order, file.text)

    def _copy(self, order: CopyOrder, text: str) -> RunResult:
        digest = sha(text)
        is_there = digest == order.present_digest
        if not is_there:
            self.staging[order.staged] = digest
        product = StagedProduct("" if is_there else order.staged, "", 0, b"", 1, digest, 7, len(text))
        return RunResult(order.run_key, Outcome.SUCCEEDED, products=(product,), source_digest=digest, duration_ms=self.duration_ms)

    def _analyse(self, order: AnalyseOrder, text: str) -> AnalyseResult:
        script = Script.parse(text)
        used = self._used(order, [self._path_of(order.root, rel) for rel in script.jobs_from])
        if "FAIL ANALYSIS" in text.splitlines():
            return AnalyseResult(order.run_key, Outcome.FAILED, "it cannot be analysed", used=used)
        params, _platforms = merge_params(self._builder_of(order), order.settings)
        if order.builder == ALIKE:
            plans = tuple(JobPlan("main", platform, params=json.dumps(params)) for platform in order.platforms)
            return AnalyseResult(order.run_key, Outcome.SUCCEEDED, plans=plans, used=used, is_for_all_sources=True)
        jobs = [("main", ""), *script.jobs, *([(str(params["job"]), "")] if "job" in params else [])]
        for rel in script.jobs_from:
            jobs += [(f"from-{line}", "") for line in (self.text(rel) or "").split()]
        plans = [
            JobPlan(
                key,
                platform,
                script.priority,
                "critical" in text.splitlines(),
                script.info,
                "{}",
                tuple(
                    JobDependency(
                        PathKey(path.removeprefix(BY_UUID)), other, on or platform, kind, sub_ids, path.startswith(BY_UUID)
                    )
                    for kind, path, other, on, sub_ids in script.dependencies
                ),
            )
            for key, wanted in jobs
            for platform in ((wanted,) if wanted else order.platforms)
        ]
        if script.stages:
            plans.append(JobPlan(CHAIN, COMMON_PLATFORM, script.priority, False, script.info, "{}"))
        edges = [SourceEdge(EdgeKind.PATH, path) for path in (*script.includes, *script.jobs_from)]
        edges += [SourceEdge(EdgeKind.WILDCARD, pattern) for pattern in script.globs]
        edges += [SourceEdge(EdgeKind.UUID, digits) for digits in script.uuids]
        return AnalyseResult(
            order.run_key, Outcome.SUCCEEDED, plans=tuple(plans), edges=tuple(edges), duration_ms=self.duration_ms, used=used
        )

    def _process(self, order: ProcessOrder, text: str) -> RunResult:
        script = Script.parse(text)
        lines = text.splitlines()
        digest = sha(text)
        for other in script.scribbles:
            self.write(other, f"{self.text(other) or ''}\ninfo {self.disk.clock}")
        found = tuple((self._path_of(order.root, rel), _hex(self.text(rel))) for rel in script.reads)
        reported = [
            self._path_of(order.root, rel) for rel, _text in self._closure(order.rel, script, text) if rel != key_of(order.rel)
        ]
        used = self._used(order, reported if self.observes else (), [path for path, _digest in found])
        if "FAIL" in lines or f"FAIL {order.job_key}" in lines:
            return RunResult(
                order.run_key,
                Outcome.FAILED,
                "it says FAIL",
                source_digest=digest,
                discovered=found,
                duration_ms=self.duration_ms,
                used=used,
            )
        builder = self._builder_of(order)
        params, platforms = merge_params(builder, order.settings)
        content = repr(
            (
                self.loaded[order.run_key][0] + self.tool,
                order.platform,
                order.job_key,
                builder.version,
                order.additional_fingerprint,
                order.source_uuid.hex(),
            )
            + (("draft",) if order.quality == "draft" else ())
            + (self._closure(order.rel, script, text),)
            + (tuple((rel, self.text(rel)) for rel in script.reads),)
            + (self._products_before(order, script),)
            + (sorted({**params, **platforms.get(order.platform, {})}.items()),)
        )
        stem = product_stem(order.rel, order.job_key)
        names = [(f"{stem}.out", 0, content), *((f"{stem}.{n}", n, f"{content}{n}") for n in script.extras)]
        names += [(name, 100 + n, content) for n, name in enumerate(script.makes)]
        if order.job_key == CHAIN:
            info_line = f"\ninfo {sha(content).hex()[:8]}"
            stages = {name: stage + info_line * is_reported for name, stage, is_reported in script.stages}
            names = [(name, n, stage) for n, (name, stage) in enumerate(stages.items())]
        products = []
        for name, sub_id, data in names:
            staged = f"{order.staging}/{name}"
            self.staging[staged] = sha(data)
            self._texts[sha(data)] = data
            flags = 2 if "INTERMEDIATE" in lines or order.job_key == CHAIN else 1
            products.append(StagedProduct(staged, name, sub_id, b"", flags, sha(data), 7, len(data)))
        log = (LogRecord(LogLevel.WARNING, order.builder, "it says WARN", self._now_ms),) if "WARN" in lines else ()
        return RunResult(
            order.run_key, Outcome.SUCCEEDED, "", tuple(products), digest, found, log, warnings=len(log),
            duration_ms=self.duration_ms,
            reprocess=tuple(script.reprocesses), used=used,
        )  # fmt: skip

    def _builder_of(self, order: AnalyseOrder | ProcessOrder) -> Builder:
        return next(item for item in self.project.builders if item.name == order.builder)

    def text(self, rel: str) -> str | None:
        """Return the text of the file that wins a path."""
        found = self.disk.winner(self.setup.all_folders, rel)
        return found[2].text if found else None

    def _closure(self, rel: str, script: Script, own: str | None = None) -> list[tuple[str, str | None]]:
        """Return the inputs of a source: its text (`own` if given) and the texts of all files that it includes, at any depth."""
        texts: dict[str, str | None] = {}
        todo = [rel]
        while todo:
            name = key_of(RelPath(todo.pop()))
            if name in texts:
                continue
            texts[name] = own if own is not None and not texts else self.text(name)
            if name.endswith(".s") and "FAIL ANALYSIS" not in (texts[name] or "").splitlines():
                todo += self.needs(Script.parse(texts[name] or ""))
            todo += [
                name.removesuffix(companion.replaces) + companion.suffix if companion.replaces else f"{name}.{companion.suffix}"
                for companion in self.setup.companions
                if wildcard(companion.source.text).fullmatch(name) and name.endswith(companion.replaces)
            ]
        return sorted((name, text) for name, text in texts.items() if text is not None or name in script.includes)

    def needs(self, script: Script) -> list[str]:
        """Return the keys of the files that a script includes."""
        keys = self.disk.keys(self.setup.all_folders) if script.globs else []
        matched = [
            key for pattern in script.globs for key in keys if wildcard(pattern).fullmatch(key) and self.text(key) is not None
        ]
        return [*script.includes, *script.jobs_from, *matched]

    def misled_jobs(self) -> set[str]:
        """Return the jobs that depend on a source with broken settings (a `.aptui.yaml` file that applies to the source).

        The dependencies of that source itself are unknown.
        """
        if not self.pipeline.jobs.settings.problems:
            return set()
        return {name for name, job in self.live_jobs().items() if self._is_misled(job)}

    def _is_misled(self, job: Job) -> bool:
        if not self.pipeline.jobs.settings.problems:
            return False
        rel = job.source.rel
        closure = self._closure(rel, Script.parse(self.text(rel) or ""))
        return any(self.pipeline.jobs.settings.problem(key_of(RelPath(each))) for each, _text in closure)

    def _products_before(self, order: ProcessOrder, script: Script) -> list[tuple[str, Digest | None]]:
        found: list[tuple[str, Digest | None]] = []
        for kind, path, key, on, sub_ids in script.dependencies:
            if path.startswith(BY_UUID):
                continue
            if kind is DependencyKind.ORDER and key_of(RelPath(path)) != key_of(RelPath(order.rel)):
                stem = f"{on or order.platform}/{product_stem(path, key)}"
                names = [f"{stem}.{'out' if n == 0 else n}" for n in sub_ids or (0,)]
                found += [(name, self.cache.get(name)) for name in names]
        return found

    # --------------------------------------------------------------------------------------------------------- observed state

    def live_jobs(self) -> dict[str, Job]:
        """Return all jobs by name: the jobs in memory replace the stored ones."""
        keys = [row[4] for row in self.archive.tables.sources.values()]
        sources = self.archive.reopen().sources(keys)  # type: ignore[arg-type]
        sources.update(self.pipeline.jobs.memory.sources)
        return {name_of(job): job for source in sources.values() for job in source.jobs.values()}

    def job(self, name: str) -> Job:
        """Return a job by its name."""
        return self.live_jobs()[name]

    def commands_of(self, kind: type[Kind]) -> list[Kind]:
        """Return the commands of one kind."""
        return [command for command in self.commands if isinstance(command, kind)]

    def statuses(self) -> dict[str, str]:
        """Return {job: the status that users see}, without analyses unless they failed."""
        found = {name: SHOWN[job.state] for name, job in self.live_jobs().items() if job.state is not None}
        return {name: status for name, status in found.items() if not (":analyse" in name and status == "completed")}

    def ran(self) -> list[str]:
        """Return the jobs that ran since the last call, sorted, analyses left out."""
        found = sorted(self.runs.elements())
        self.forget_runs()
        return found

    def forget_runs(self) -> None:
        """Restart counting."""
        self.runs.clear()
        self.analyses.clear()
        self.order.clear()
        self.commands.clear()
        self.notices.clear()

    def log_text(self, name: str) -> str:
        """Return the last log of a job."""
        return "\n".join(record.text for record in self.logs.get(self.job(name).log_file, ()))

    def clean(self, **changes: object) -> World:
        """Return a new `World` that has built the same files from scratch; `changes` are changed fields of its `Setup`."""
        other = World(replace(self.setup, **changes))  # type: ignore[arg-type]
        other._folder_ids = dict(self._folder_ids)  # names of duplicates' products contain them
        other.disk, other.code, other.tool = self.disk.copy(), self.code, self.tool
        other.boot()
        other.unreadable = self.unreadable
        other.settle()
        return other


def name_of(job: Job) -> str:
    """Return the name of a job, for example `a.s@linux:main`. The name of an analysis is, for example, `a.s:analyse`.

    The path of a duplicate source ends in `~` and the id of its scan folder. The names of jobs of builder `twin` end in `!twin`.
    """
    rel = f"{job.source.rel}~{job.source.scan_folder}" if job.source.is_duplicate else job.source.rel
    name = f"{rel}:analyse" if job.is_analysis else f"{rel}@{job.platform}:{job.key}"
    return f"{name}!twin" if job.builder == SECOND else name


def product_stem(rel: str, key: str) -> str:
    """Return the name of a script's product without its extension."""
    stem = key_of(RelPath(rel)).removesuffix(".s")
    return stem if key == "main" else f"{stem}.{key}"


def _place_of(order: Order) -> tuple[str, str]:
    if isinstance(order, CopyOrder):
        folder, _, rel = order.path.removeprefix("/disk/").partition("/")
        return folder, rel
    return order.root.removeprefix("/disk/"), order.rel


def _hex(text: str | None) -> str:
    return "" if text is None else sha(text).hex()


def _log_name(job: Job, builder: str) -> str:
    return f"{builder}/{name_of(job)}-{job.run_key if not job.is_analysis else 'analysis'}.log"


def _code_files(code: str, tool: str) -> tuple[tuple[str, str], ...]:
    return (("script.py", sha(code).hex()), *([("tool", sha(tool).hex())] if tool else []))

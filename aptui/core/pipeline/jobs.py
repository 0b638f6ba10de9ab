"""Moves jobs through the job machine, saves them and drops them. Also has the queues of jobs that are evaluated again.

`pipeline.plans` decides whether a job needs a run; `pipeline.files` and `pipeline.run_results` handle files and results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import count

from msgspec import Struct

from aptui.core import fingerprint, rows
from aptui.core.asset_checks import CheckedProduct, find_block
from aptui.core.identity import names_of
from aptui.core.machine import Effect, Trigger, feed
from aptui.core.messages import DeleteProducts, DiscardStaging, DropLogs, HashFiles, KillRuns, RecheckFiles
from aptui.core.model import SETTLED, DependencyKind, FileFact, Job, JobDependency, JobState, PathKey, Product, RunKey, Source
from aptui.core.notices import ProductsChanged
from aptui.core.orders import StagedProduct
from aptui.core.paths import parent
from aptui.core.pipeline.reports import LogName, Reports
from aptui.core.planner import Planner
from aptui.core.priority import LanedQueue, ReadyQueue, Resources, ResourceUse
from aptui.core.project import COMMON_PLATFORM, Project
from aptui.core.rows import Archive, PlainCopy
from aptui.core.run_report import NOTHING_USED, Ties
from aptui.core.settings import SettingsTree
from aptui.core.state.chains import CHAINS_END, Chains
from aptui.core.state.commits import Commit, Commits
from aptui.core.state.conflicts import Conflicts
from aptui.core.state.graph import SCAN_END, Graph, is_named
from aptui.core.state.ledger import Ledger
from aptui.core.state.stale_results import StaleResultCheck
from aptui.core.state.working_set import WorkingSet, may_add_sources, targets_of

# Three queues hold the jobs and sources that must be evaluated again: at once (`Todo`), when a key is known (`Waiters`), or at
# the next scan (`Retries`). The queues make no decisions.


class Todo:
    """Jobs to be evaluated, as (job, whether it is retried if it failed); jobs that may add sources come first."""

    def __init__(self) -> None:
        self._adders: deque[tuple[Job, bool]] = deque()
        self._others: deque[tuple[Job, bool]] = deque()

    def __bool__(self) -> bool:
        return bool(self._adders or self._others)

    def append(self, item: tuple[Job, bool]) -> None:
        """Add a job to be evaluated: (job, whether it runs again if its last run failed)."""
        job = item[0]
        (self._adders if job.is_analysis or job.platform == COMMON_PLATFORM else self._others).append(item)

    def extend(self, items: Iterable[tuple[Job, bool]]) -> None:
        """Add several jobs, each as in `append`."""
        for item in items:
            self.append(item)

    def popleft(self) -> tuple[Job, bool]:
        """Remove and return the next pair (job, whether it runs again if its last run failed)."""
        return (self._adders or self._others).popleft()


_FEW_KEYS = 8
"""A job that waits for at most this number of sources is evaluated again whenever one of them becomes known."""


class _Countdown(Struct):
    """Counts for a job that waits for many sources.

    `left`: number of sources that must still become known before the job is evaluated again; `known`: number of sources that
    became known.
    """

    left: int
    known: int = 0


class Waiters:
    """Jobs by the key they wait for: the key of a source, `SCAN_END` or `CHAINS_END`. One job may wait for many keys.

    An evaluation of a job with hundreds of dependencies takes milliseconds. If each key that becomes known caused an evaluation,
    the time of a build would grow with the square of the number of keys. So a job is evaluated when half of its keys are known,
    then when half of the rest are known, and so on.
    """

    def __init__(self) -> None:
        self._by_key: dict[PathKey, dict[Job, None]] = {}
        self._by_folder: dict[str, dict[PathKey, None]] = {}
        """{relative folder: awaited keys of sources directly in it}."""
        self._countdowns: dict[Job, _Countdown] = {}

    def __contains__(self, key: PathKey) -> bool:
        return key in self._by_key

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def __iter__(self) -> Iterator[Job]:
        return (job for jobs in self._by_key.values() for job in jobs)

    def add(self, key: PathKey, job: Job) -> None:
        """Make `job` wait for `key`."""
        jobs = self._by_key.get(key)
        if jobs is None:
            jobs = self._by_key[key] = {}
            self._by_folder.setdefault(parent(key), {})[key] = None
        jobs[job] = None
        self._countdowns.pop(job, None)

    def add_all(self, keys: Collection[PathKey], job: Job) -> None:
        """Make `job` wait for each of `keys`."""
        for key in keys:
            self.add(key, job)
        if len(keys) > _FEW_KEYS:
            self._countdowns[job] = _Countdown(len(keys) // 2)

    def of(self, key: PathKey) -> Collection[Job]:
        """Return the jobs that wait for `key`, in the order in which they were added."""
        return self._by_key.get(key, {})

    def pop(self, key: PathKey) -> list[Job]:
        """Stop waiting for `key`, and return the jobs to evaluate now.

        A job that waits for many keys is left out until enough of its keys are known.
        """
        if key in self._by_key:
            keys = self._by_folder[parent(key)]
            del keys[key]
            if not keys:
                del self._by_folder[parent(key)]
        return [job for job in self._by_key.pop(key, {}) if key in (SCAN_END, CHAINS_END) or self._is_due(job)]

    def _is_due(self, job: Job) -> bool:
        countdown = self._countdowns.get(job)
        if countdown is None:
            return True
        countdown.left -= 1
        countdown.known += 1
        if countdown.left <= 0:
            del self._countdowns[job]
        return countdown.left <= 0

    def pop_deferred(self) -> list[Job]:
        """Return the jobs that `pop` left out because only some of their awaited sources are known; return each job once.

        When no other work is pending, the caller must evaluate these jobs. A job may no longer need the sources that are still
        unknown.
        """
        found = [job for job, countdown in self._countdowns.items() if countdown.known]
        for job in found:
            del self._countdowns[job]
        return found

    def list_awaited(self) -> list[PathKey]:
        """Return the keys of all sources that jobs wait for, with `SCAN_END` or `CHAINS_END` if jobs wait for these."""
        return list(self._by_key)

    def keys_in(self, folders: Iterable[str]) -> list[PathKey]:
        """Return those awaited keys whose source is directly in one of these folders."""
        return [key for folder in folders for key in self._by_folder.get(folder, ())]


class Retries:
    """Sources that are planned again when the scan reaches their folders."""

    def __init__(self) -> None:
        self._due: dict[PathKey, bool] = {}
        """{source: whether its failed jobs are retried}"""
        self._by_folder: dict[str, set[PathKey]] = {}
        self.after_analysis: set[tuple[PathKey, bytes]] = set()
        """(source, builder) whose failed jobs are retried when their analysis has succeeded."""

    def clear(self) -> None:
        """Cancel all scheduled retries."""
        self._due.clear()
        self._by_folder.clear()

    def schedule(self, keys: Iterable[PathKey], *, is_retry: bool = True) -> None:
        """Schedule these sources to be planned when the scan reaches their folders. `is_retry`: their failed jobs are retried."""
        for key in keys:
            self._due[key] = is_retry or self._due.get(key, False)
            self._by_folder.setdefault(parent(key).lower(), set()).add(key)

    def pop(self, key: PathKey) -> bool:
        """Return whether the failed jobs of this source are scheduled to be retried, and unschedule the source."""
        return self._due.pop(key, False)

    def pop_analysis(self, analysis: Job) -> bool:
        """Return whether the failed jobs of an analysis are due for a retry, and unschedule the retry."""
        index = (analysis.source.key, analysis.builder)
        is_due = index in self.after_analysis
        self.after_analysis.discard(index)
        return is_due

    def folders(self) -> list[str]:
        """Return the folders of the sources that are scheduled to be planned again."""
        return list(self._by_folder)

    def pop_folder(self, folder: str, but: Collection[PathKey] = ()) -> list[PathKey]:
        """Return the scheduled sources of `folder`, sorted, without those in `but`, which are planned when their bytes are read."""
        return sorted(self._by_folder.pop(folder, set()).intersection(self._due).difference(but))


UNKNOWN = 0
"""Planned fingerprint of a job that was cancelled before its manifest was known, and stays cancelled until its source changes."""
_COVERING = (DependencyKind.FINGERPRINT, DependencyKind.ORDER)


class Jobs:
    """The jobs in flight, and the effects of their transitions; all classes of the pipeline share one instance."""

    def __init__(self, project: Project, archive: Archive, log_name: LogName) -> None:
        self.project = project
        ranks = {folder.id: rank for rank, folder in enumerate(project.scan_folders)}
        self.memory = WorkingSet(archive, ranks, project.resting_platforms)
        # Files of metadata types may have duplicate paths, and then the path alone does not determine the identity of a file.
        self.memory.has_identities |= bool(project.metadata_types)
        source_id, job_id, product_id, run_key = archive.next_ids()
        self.ledger = Ledger(count(source_id), count(job_id), count(product_id), run_key)
        self.settings = SettingsTree(project, archive.settings())
        self.graph = Graph(project, self.memory, self.settings)
        self.planner = Planner(project, self.settings)
        self.chains = Chains(project, self.memory, self.ledger)
        self.conflicts = Conflicts(self.memory, self.ledger, self.planner, self.chains)
        self.commits = Commits(project, self.ledger, self.conflicts, log_name)
        self.reports = Reports(project, self.ledger, log_name)
        self.builders = {builder.uuid: builder for builder in project.builders}
        self.resources = Resources(project.resources, project.builders) if project.resources else None
        """Record of the runs that hold limited resources; None if the project has no limited resources."""
        self.ready = LanedQueue(project.host_platform, self.resources) if self.resources else ReadyQueue(project.host_platform)
        self.running: dict[int, Job] = {}
        """{run key: the job that runs}"""
        self.committing: dict[int, Commit | PlainCopy] = {}
        """{run key: the new state of its job} of the runs in the present commit. Until it ends, no other event is handled."""
        self.todo = Todo()
        self.waiters = Waiters()
        self.stale_results = StaleResultCheck(project, self.graph, self.memory)
        self.is_outdated = False
        """Whether the code of builders has changed, so that no run may start before they are described again."""
        self.code_problem = ""
        """Why builders could not be described again, "" = no problem; if set, runs with other code fail."""
        self.failing_count = 0
        """Number of failed jobs and analyses, minus their number when the engine opened."""
        self._platform_ids = {platform.id for platform in project.platforms}
        self._edges_due: dict[tuple[Source, bytes], None] = {}
        self.copies_on_reading = True
        """Whether a worker that reads a file may also stage a copy of the file."""
        self.copies: dict[PathKey, list[int]] = {}
        """{key of a file: run keys}, valid only for the present event.

        The worker that read the file has also staged copies of the file, one under each of these run keys.
        """
        self.copied: dict[Job, RunKey] = {}
        """{job: run key}: jobs whose product is a copy from `copies`. They start, without a worker, after the event is handled."""
        self._planned: list[Job] = []
        self._planned_before: list[Job] = []
        """Unsaved jobs planned during the present event (`_planned`), and those planned during the previous event."""

    def is_configured(self, job: Job) -> bool:
        """Whether this configuration has the job's builder, and its platform."""
        return job.builder in self.builders and (job.is_analysis or job.platform in self._platform_ids)

    def find_block(self, job: Job, products: Iterable[Product | StagedProduct]) -> str:
        """Return the error of the check that blocks these products of a job, "" if no check does."""
        if not self.project.checks:
            return ""
        checked = (CheckedProduct(product.name, product.size, product.facts) for product in products)
        return find_block(self.project.checks, job.source.rel, checked)

    def is_at_rest(self, job: Job) -> bool:
        """Whether the job stays unchanged, because its platform is not processed now."""
        return job.platform in self.project.resting_platforms

    def hash(self, files: Collection[tuple[PathKey, FileFact]], *, may_copy: bool = False) -> None:
        """Order each of these files to be read, unless it is being read already.

        With `may_copy`, copies of a file are staged while it is read, if all its jobs are copies. While a client follows every step
        of every job, no copies are staged, because the jobs would skip steps.
        """
        unordered = [(key, fact) for key, fact in files if key not in self.memory.hashing]
        self.memory.hashing.update(files)
        copies: list[tuple[int, ...]] = []
        if may_copy and self.copies_on_reading and not self.reports.reports_every_step:
            for _key, fact in unordered:
                copies.append(self.ledger.next_run_keys(self.planner.copy_count(fact)))
        known = self._list_known_digests([key for key, _fact in unordered]) if any(copies) else []
        if unordered:
            facts = tuple(fact for _key, fact in unordered)
            self.ledger.order(HashFiles(self.ledger.cause, facts, tuple(copies) if known else (), tuple(known)))

    def _list_known_digests(self, keys: list[PathKey]) -> list[bytes]:
        """Return the last known digest of each file, b"" = unknown. A file that still has this digest is not copied."""
        facts = {key: source.fact for key in keys if (source := self.memory.sources.get(key)) is not None}
        facts |= {key: fact for key in keys if key not in facts and (fact := self.memory.newer.facts.get(key)) is not None}
        facts |= self.memory.archive.files([key for key in keys if key not in facts])
        return [fact.digest if (fact := facts.get(key)) is not None else b"" for key in keys]

    def use_copy(self, job: Job) -> bool:
        """Whether a copy for `job` was staged while its source was read; then it needs no worker."""
        if job in self.copied:
            return True
        run_keys = self.copies.get(job.source.key) if self.copies else None
        if not run_keys or not self.builders[job.builder].is_plain_copy or self.is_outdated or self.reports.reports_every_step:
            return False
        self.copied[job] = RunKey(run_keys.pop())
        return True

    def start(self, job: Job, run_key: RunKey | None = None) -> None:
        """Start `job` as the run with this key; if `run_key` is None, the run gets a new key."""
        self.feed(job, Trigger.START, run_key)
        self.stale_results.begin(job)
        self.reports.report(job)

    def save(self, job: Job) -> None:
        """Save the row of a job."""
        self.ledger.touched[job.source] = None
        if job.is_unsaved:
            self.memory.unsaved.end(job)
        self.ledger.put(*rows.job_row(job))

    def save_plan(self, job: Job) -> None:
        """Save the row of a job that is about to be queued.

        If the job is unsaved, the commit of its run saves the row. If the engine ends before this commit, the row of the
        source's folder is not saved either, so the next engine checks the source again.
        """
        if not job.is_unsaved:
            self.save(job)
            return
        self.ledger.touched[job.source] = None
        if self.reports.reports_every_step or self.reports.is_followed:
            self._planned.append(job)

    def save_idle_plans(self) -> None:
        """Save the rows of jobs that the previous event planned and that have not started yet, so that clients can read them."""
        for job in self._planned_before:
            if job.is_unsaved and job.state not in (JobState.RUNNING, JobState.COMMITTING):
                self.save(job)
        self._planned_before, self._planned = self._planned, []

    def save_unsaved(self, *, but_committing: bool = False) -> None:
        """Save every job without a row.

        With `but_committing`, leave out jobs that are being committed, because the commit saves their rows.
        """
        for job in [job for jobs in self.memory.unsaved.jobs.values() for job in jobs]:
            if not (but_committing and job.state is JobState.COMMITTING):
                self.save(job)

    def save_source(self, source: Source) -> None:
        """Save the row of a source."""
        self.ledger.put("put_source", rows.source_row(source))
        self.ledger.touched[source] = None

    def move_source(self, source: Source, fact: FileFact) -> None:
        """Set the file of a source. If its name or scan folder differs from the previous file, report the jobs of the source."""
        is_moved = (source.scan_folder, source.rel) != (fact.scan_folder, fact.rel)
        if is_moved:
            self.reports.report_old_names(source)
        source.fact, source.scan_folder, source.rel = fact, fact.scan_folder, fact.rel
        if is_moved:
            self.reports.report_new_names(source)

    def schedule_edges(self, source: Source, builder: bytes) -> None:
        """Schedule the edges of (source, builder) to be saved at the end of this event."""
        self._edges_due[source, builder] = None

    def put_edges(self) -> None:
        """Replace the stored edges of each (source, builder) whose edges changed in this event."""
        for source, builder in self._edges_due:
            if self.memory.sources.get(source.key) is source:
                self.ledger.put("drop_edges", (source.uuid, builder))
                self.ledger.put_all("put_edge", rows.edge_rows(source, builder))
        self._edges_due.clear()

    def feed(self, job: Job, trigger: Trigger, run_key: RunKey | None = None) -> None:
        """Move a job to its next state, and execute the effects of this transition (`core.machine.TABLE`).

        A queued job leaves the queue. A run that starts gets `run_key`, or a new key if `run_key` is None.
        """
        if trigger is Trigger.PLAN and job.state in SETTLED and self.memory.edges.has_any:
            self.todo.extend((other, False) for other in self._movers_after(job))
        before, may_add = job.state, job.platform == COMMON_PLATFORM or job.is_analysis
        self.memory.moving -= may_add and may_add_sources(job)
        effect = feed(job, trigger)
        self.memory.moving += may_add and may_add_sources(job)
        self.failing_count += (job.state is JobState.FAILED) - (before is JobState.FAILED)
        if before is JobState.QUEUED:
            self.ready.discard(job)
        if effect is Effect.START:
            job.run_key = run_key or RunKey(self.ledger.next_run_keys(1)[0])
            self.running[job.run_key] = job
            if self.resources is not None:
                self.resources.acquire(job)
        elif effect is not Effect.NONE:
            self._end(job, effect)

    def _end(self, job: Job, effect: Effect) -> None:
        if effect & Effect.KILL:
            self.running.pop(job.run_key, None)
            self.ledger.order(KillRuns(self.ledger.cause, (job.run_key,)))
            self.ledger.order(DiscardStaging(self.ledger.cause, (job.run_key,)))
        if effect & Effect.DELETE:
            self._delete(job)

    def drop(self, job: Job) -> None:
        """Remove a job."""
        if job.is_unsaved:
            self.memory.unsaved.end(job)
        if job.state is None:  # the job was created only to be named in an order, and was never planned
            job.source.jobs.pop((job.builder, job.platform, job.key), None)
        else:
            self.feed(job, Trigger.DROP)

    def _delete(self, job: Job) -> None:
        """Delete a job with its products, and re-evaluate its dependents."""
        before = targets_of(job.source) if self.memory.edges.has_any else set()
        job.source.jobs.pop((job.builder, job.platform, job.key), None)
        if self.memory.edges.has_any:
            self.memory.edges.renew(job.source, before)
            self.graph.forget_cycles()
            self.schedule_edges(job.source, job.builder)
        self.ledger.touched[job.source] = None
        if job.is_analysis:
            self.ledger.drop("drop_analysis", (job.source.id, job.builder))
            self.reports.report(job, is_settled=bool(job.error), is_run=False)
            return
        freed = self.conflicts.release(job)
        if job.products or job.lost:
            self.delete_products(job)
        if job.log_file:
            self.ledger.order(DropLogs(self.ledger.cause, (job.log_file,)))
        self.ledger.drop("drop_job", (job.id,))
        self.todo.extend((other, True) for other in freed)
        self.reports.report(job, is_settled=bool(job.error), is_run=False)
        self.note_settled(job, is_changed=True)

    def delete_products(self, job: Job) -> None:
        """Delete the products of a job, except those that another job has taken over."""
        products, job.products = job.products, ()
        self._delete_files(job, (*products, *job.lost))

    def delete_lost(self, job: Job) -> None:
        """Delete the remaining files of `job.lost`, because `job` failed and does not make these products again.

        A product counts as lost if its file was missing, or was changed by another program.
        """
        if job.lost:
            self._delete_files(job, job.lost)

    def _delete_files(self, job: Job, products: Iterable[Product]) -> None:
        names = self.conflicts.deletable(job, products)
        job.lost = ()
        if names:
            self.ledger.order(DeleteProducts(self.ledger.cause, names, self.ledger.ticket))
            self.ledger.notices.append(ProductsChanged(self.ledger.cause, tuple((name, "") for name in names)))
            self.chains.recheck(names)

    def hold_back(self, job: Job) -> None:
        """Before a settled job runs again, re-evaluate the queued jobs that depend on it, so that they wait for it."""
        if job.state in SETTLED:
            self.todo.extend((other, False) for other in self.dependents_of(job) if other.state is JobState.QUEUED)

    def note_settled(self, job: Job, *, is_changed: bool) -> None:
        """Re-evaluate the jobs that waited for a settled job; if the settled job changed, re-evaluate all its dependents, too."""
        key = job.source.key
        if key in self.waiters:
            self.wake(key)
        if is_changed:
            self.todo.extend((other, False) for other in self.dependents_of(job))

    def wake(self, key: PathKey) -> None:
        """Re-evaluate the jobs that wait for `key`, which is now known to exist or to be missing."""
        self._evaluate_later(self.waiters.pop(key))

    def wake_deferred(self) -> None:
        """Re-evaluate the jobs that wait for many keys if some of their keys are known."""
        self._evaluate_later(self.waiters.pop_deferred())

    def _evaluate_later(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.is_analysis and job.state is JobState.COMPLETED and not job.fingerprint:
                if job.source.jobs.get((job.builder, job.platform, job.key)) is job:
                    self.seal(job)
            elif job.state is JobState.WAITING or job.state is None:
                self.todo.append((job, False))

    def seal(self, job: Job) -> None:
        """Record the analysis fingerprint over the declared inputs of the analysis, as soon as all of them are known."""
        builder = self.builders[job.builder]
        assembly = self.graph.analysis(job, self.planner.platforms_of(builder, job.source))
        if assembly.waits:
            job.fingerprint = 0
            self.waiters.add_all(assembly.waits, job)
            self.hash(assembly.unread.items())
        elif late := self.chains.find_changed(job.run_key, job.edges):
            job.fingerprint, job.is_forced, job.reason = 0, True, f"'{late}' appeared or changed during the analysis"
            self.todo.append((job, True))
        elif changed := self.stale_results.find_unsealed(job, assembly.manifest):
            job.fingerprint = 0
            self.recheck_first(job, changed)
        else:
            job.fingerprint = job.planned = fingerprint.number(assembly.manifest)
            job.inputs = assembly.manifest
            job.stale_count = 0
            if job.ties is not None:
                job.ties.report = NOTHING_USED
        self.save(job)

    def recheck_first(self, job: Job, paths: Iterable[str] = ()) -> None:
        """Check the files that changed during the run of `job` (no `paths`: its source), then plan the job."""
        keys = self.stale_results.keys(paths) if paths else [job.source.key]
        self.feed(job, Trigger.PLAN)
        job.planned = None
        job.stale_count += 1
        if paths:
            job.ties = job.ties or Ties()
            job.ties.changed = ", ".join(f"'{path}'" for path in sorted(paths)[:3])
        elif job.ties is not None:
            job.ties.changed = ""
        for key in keys:
            self.memory.unstable.add(key)
            self.waiters.add(key, job)
        if keys:
            self.ledger.order(RecheckFiles(self.ledger.cause, tuple(keys)))
        else:
            self.todo.append((job, True))

    def _movers_after(self, job: Job) -> list[Job]:
        """Return the queued and running jobs that depend on `job`. When they were queued, `job` was settled; now it needs a run."""
        names = names_of(job.source)
        sources = dict.fromkeys(source for name in names for source in self.memory.moving_dependents(PathKey(name)))
        movers = (
            other
            for other, item in _naming(sources, names)
            if other.state is JobState.QUEUED or (other.state is JobState.RUNNING and item.kind in _COVERING)
        )
        return list(dict.fromkeys(movers))

    def dependents_of(self, job: Job) -> list[Job]:
        """Return the jobs that name `job`, or another job of its source, in a job dependency."""
        if not self.memory.edges.has_any or job.is_analysis:
            return []
        names = names_of(job.source)
        return list(dict.fromkeys(other for other, _ in _naming(self.memory.load(sorted(self.memory.dependents(names))), names)))

    def doubt(self, job: Job) -> None:
        """Store `job` as pending, because an input changes now and the job is evaluated later, perhaps by the next engine."""
        if job.state not in SETTLED or job.is_doubted or not self.is_configured(job):
            return
        job.is_doubted = True
        self.ledger.touched[job.source] = None
        self.ledger.put(*rows.job_row(job, JobState.WAITING))

    def resource_uses(self) -> tuple[ResourceUse, ...]:
        """Return how each resource of the project is used."""
        if self.resources is None or not isinstance(self.ready, LanedQueue):
            return ()
        limits = self.resources.limits.items()
        return tuple(ResourceUse(name, limit, self.resources.holders(name), self.ready.waiting_for(name)) for name, limit in limits)

    @property
    def is_idle(self) -> bool:
        """Whether no work is pending: no job runs or may still run, and no file is being read."""
        is_moving = self.running or self.memory.hashing or self.memory.awaited or self.committing or len(self.ready)
        return not is_moving and self.memory.scan_is_done

    @property
    def backlog(self) -> int:
        """Number of pending jobs and files; the scan pauses while this number is large."""
        return len(self.ready) + len(self.running) + len(self.memory.hashing)

    def stuck(self) -> list[Job]:
        """Return the jobs that would wait forever, because no other job is in flight; the result is [] unless there is a bug."""
        return [job for job in self.waiters if job.state is JobState.WAITING]


def _naming(sources: Iterable[Source], names: Collection[str]) -> Iterator[tuple[Job, JobDependency]]:
    """Yield the pair (job, dependency) for each job dependency of the jobs of `sources` that `names` match (`is_named`)."""
    for source in sources:
        for job in source.jobs.values():
            for dependency in job.plan.job_dependencies if job.plan else ():
                if is_named(dependency, names):
                    yield job, dependency


class PipelinePart:
    """Base class of the pipeline's classes. It gives short names to the objects that they share."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._project, self._builders, self._settings = jobs.project, jobs.builders, jobs.settings
        self._memory, self._ledger, self._graph, self._planner = jobs.memory, jobs.ledger, jobs.graph, jobs.planner
        self._chains, self._commits, self._reports = jobs.chains, jobs.commits, jobs.reports
        self._ready, self._running, self._committing = jobs.ready, jobs.running, jobs.committing
        self._todo, self._waiters = jobs.todo, jobs.waiters

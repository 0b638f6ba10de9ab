"""The shared cache between the engine's loop and its workers: uses stored results in place of runs, and stores new results.

Lookups run in threads, and workers never wait for lookups. If a lookup is slow, its job runs here as well, and the first result
wins. Errors count as misses and are reported once. Only the loop calls these methods; threads return results through `_done`.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.config.configuration import SharedCacheSettings
from aptui.config.dirs import own_folder
from aptui.core.messages import CommitProducts
from aptui.core.model import FileFact, Job, PathKey
from aptui.core.orders import Outcome, ProcessOrder, RunResult
from aptui.core.paths import cache_path, os_path
from aptui.core.project import Builder, BuilderKind, ScanFolder
from aptui.core.quality import Quality, as_final
from aptui.engine.loop.dispatch import EndedLookups, Order
from aptui.features.sharing import job_results as results
from aptui.features.sharing import totals
from aptui.features.sharing.stores.breaker import DeadlineExecutor
from aptui.shared import printing
from aptui.shared.errors import KnownError

if TYPE_CHECKING:
    from aptui.core.pipeline.pipeline import Pipeline
    from aptui.core.state.commits import Commit
    from aptui.engine.loop.context import EngineContext
    from aptui.features.sharing.record import JobFacts
    from aptui.features.sharing.service import CacheHit, Service
    from aptui.shared.result_store import Account, SharingSum


class SharingRules:
    """The configured rules: which results are stored on this machine, and which are shared with the team.

    A builder's own setting has priority. Otherwise, if patterns are configured, a result is shared if an enabled pattern matches
    its source or has the name of its builder, as with O3DE's `ACS` recognizers. Without patterns, all results are shared.
    """

    def __init__(self, sharing: SharedCacheSettings) -> None:
        self._by_builder = dict(sharing.builders)
        enabled = [rule for rule in sharing.patterns if rule.is_enabled]
        self._has_patterns = bool(sharing.patterns)
        self._names = frozenset(rule.name for rule in enabled)
        self._matchers = [re.compile(rule.pattern.regex, re.IGNORECASE) for rule in enabled]

    def keeps(self, builder: str) -> bool:
        """Whether results of a builder are stored at all."""
        return self._by_builder.get(builder, True)

    def shares(self, builder: str, rel: str) -> bool:
        """Whether the result of a builder for a source is shared with the team."""
        if builder in self._by_builder:
            return self._by_builder[builder]
        return not self._has_patterns or builder in self._names or any(regex.fullmatch(rel) for regex in self._matchers)


_LOOKUP_THREADS = 8
_AHEAD = 128
"""Maximum number of simultaneous lookups for jobs that this machine has not started."""
_LEAST_TIMEOUT_S = 0.2
"""Minimum time (seconds) that a job waits for its lookup before the job runs on this machine as well."""
_GRACE_S = 1.0
"""Timeout (seconds) for storing the last results when the engine is stopped."""
_LONGEST_S = 3600.0
"""Timeout (seconds) for storing and uploading the last results when the engine has finished its work."""
_FILES = frozenset({"source", "dependency", "companion", "discovered"})


class _Group(Struct):
    """Orders that a worker receives in one message. `misses` are the orders without a stored result, which must run.

    `open_count` is the number of lookups for which the group waits. A lookup that misses its deadline no longer counts; its order
    is sent alone. When `open_count` is 0, the worker receives all `misses` together.
    """

    open_count: int = 0
    misses: list[Order] = field(default_factory=list)


class _Lookup(Struct):
    """A lookup of a stored result. `is_running`: the job runs here as well; `is_over`: the result is no longer needed."""

    order: ProcessOrder
    facts: JobFacts
    is_shared: bool
    folder: str
    group: _Group
    due_s: float
    is_running: bool = False
    is_over: bool = False
    hit: CacheHit | None = None


def open_shared_cache(context: EngineContext, *, is_patient: bool) -> SharedCache:
    """Return the shared cache of an engine; this function implements the extension point `results`.

    If the team's store cannot be used, for example because its key is missing, only this machine's store is used.

    Args:
        is_patient: wait for lookups of any duration instead of running the jobs.

    Raises:
        KnownError: no configured store is usable.
    """
    from aptui.features.sharing.namespaces import without_team
    from aptui.features.sharing.service import Service  # imported on demand: tests replace the service

    config, notify = context.config, context.news.from_threads.append
    try:
        service = Service(config.sharing, notify)
    except KnownError as error:
        if not config.sharing.local_store:
            raise
        notify(f"the shared cache is not used: {error}")
        service = Service(without_team(config.sharing), notify)
    return SharedCache(
        config.sharing, service, context.project.builders, context.project.scan_folders, config.cache_dir,
        context.wake, notify, is_patient=is_patient,
    )  # fmt: skip


class SharedCache:
    """Stored and shared results of one engine.

    Args:
        folders: the scan folders in order of priority.
        wake, notify: functions that wake the loop and that report a message to users; any thread may call them.
    """

    def __init__(
        self,
        sharing: SharedCacheSettings,
        service: Service,
        builders: Iterable[Builder],
        folders: Sequence[ScanFolder],
        cache_dir: Path,
        wake: Callable[[], None],
        notify: Callable[[str], None],
        *,
        is_patient: bool,
    ) -> None:
        self._sharing, self._service, self._wake, self._cache_dir = sharing, service, wake, cache_dir
        self._notify, self._is_patient = notify, is_patient
        self.has_found = False
        """Whether the last lookup found a result. If so, further jobs are looked up even before a worker is free for them."""
        self._rules = SharingRules(sharing)
        self._builders = {builder.uuid: builder for builder in builders}
        self._named = {folder.name: folder.path for folder in folders}
        self._root_of = {folder.id: folder.path for folder in folders}
        self._folder = str(own_folder(cache_dir) / "staging" / "shared")
        self._present = results.Present(self._named)
        self._counted: dict[str, SharingSum] = {}
        self._lookups: dict[int, _Lookup] = {}
        self._fetched: dict[int, str] = {}
        """{run key: folder} of fetched results that are not in the cache yet."""
        self._beaten: set[int] = set()
        """Run keys of jobs that still run here, although their stored result arrived first and is used."""
        self._made_here: set[int] = set()
        """Run keys of runs that ended here and whose results may be stored."""
        self._done: deque[tuple[_Lookup, RunResult | None]] = deque()
        self._ready: list[list[Order]] = []
        """Groups of orders without a stored result, returned by the next `take_ended`."""
        self._lookup_threads = DeadlineExecutor("aptui-shared-look", _LOOKUP_THREADS)

    @property
    def account(self) -> Account:
        """Numbers of hits and misses, and the time they saved."""
        return self._service.account

    # ------------------------------------------------------------------------------------------------------------- lookups

    def begin_lookups(self, orders: Sequence[Order], pipeline: Pipeline) -> list[Order]:
        """Start lookups for some of these orders; return the other orders, which must run."""
        group = _Group()
        for order in orders:
            job = pipeline.jobs.running.get(order.run_key)
            is_probed = job is not None and not job.is_forced and not (job.ties is not None and job.ties.runs_here)
            if job is None or not isinstance(order, ProcessOrder) or not is_probed or not self._takes_part(job):
                group.misses.append(order)
            else:
                group.open_count += 1
                self._look_up(order, job, group, (pipeline.jobs.reports.mean_ms(job) or 0.0) / 1000)
        return [] if group.open_count else group.misses

    def _takes_part(self, job: Job) -> bool:
        builder = self._builders[job.builder]
        return builder.kind is not BuilderKind.COPY and self._rules.keeps(builder.name)

    def _look_up(self, order: ProcessOrder, job: Job, group: _Group, mean_s: float) -> None:
        builder = self._builders[job.builder]
        facts = results.facts_of(job, builder, job.planned_inputs)
        timeout_s = math.inf if self._is_patient else min(self._sharing.deadline_s, max(_LEAST_TIMEOUT_S, mean_s))
        is_shared = self._rules.shares(builder.name, str(job.source.rel))
        lookup = _Lookup(order, facts, is_shared, f"{self._folder}/{order.run_key}", group, time.monotonic() + timeout_s)
        self._lookups[order.run_key] = lookup
        self._lookup_threads.submit(lambda: self._work(lookup))

    def _work(self, lookup: _Lookup) -> None:
        """Look one job up; runs in a thread."""
        result = None
        try:
            if not lookup.is_over:
                result = self._find_result(lookup)
        except Exception as error:  # noqa: BLE001  # an error here must not delay a job
            self._notify(f"the shared cache cannot be used for '{lookup.order.rel}': {type(error).__name__}: {error}")
        finally:
            self._done.append((lookup, result))
            self._wake()

    def _find_result(self, lookup: _Lookup) -> RunResult | None:
        began_s = time.monotonic()
        is_draft = lookup.order.quality == Quality.DRAFT
        finals = (replace(lookup.facts, manifest=as_final(lookup.facts.manifest)),) if is_draft else ()
        places = results.FilePlaces(lookup.order.root, self._named)
        for facts in (*finals, lookup.facts):  # first the result of final quality: if it exists, no draft is needed
            hit = self._service.find(facts, self._present.beside(places.own), lookup.folder, is_shared=lookup.is_shared)
            if hit is not None:
                lookup.hit = hit
                results.sync(hit.staged)
                result = results.as_result(hit, lookup.order, places, round(1000 * (time.monotonic() - began_s)))
                return replace(result, is_final=facts in finals)
        return None

    @property
    def free_count(self) -> int:
        """Number of additional lookups that may start now for jobs that wait for a worker."""
        return _AHEAD - sum(not lookup.is_running for lookup in self._lookups.values())

    @property
    def is_waiting(self) -> bool:
        """Whether at least one lookup has ended since the last call of `take_ended`, which returns its result."""
        return bool(self._done or self._ready)

    def next_due_s(self) -> float | None:
        """Return the next deadline (monotonic seconds) of a lookup whose job does not run yet, None = no lookup is waiting."""
        return min((lookup.due_s for lookup in self._lookups.values() if not lookup.is_running), default=None)

    def take_ended(self, now_s: float) -> EndedLookups:
        """Return the results and misses of the lookups that ended since the last call."""
        ended = EndedLookups()
        while self._done:
            self._settle(*self._done.popleft(), ended)
        for lookup in self._lookups.values():
            if not lookup.is_running and lookup.due_s <= now_s:
                lookup.is_running = True
                ended.misses.append([lookup.order])
                self._close(lookup.group)
        ended.misses += self._ready
        self._ready = []
        return ended

    def _settle(self, lookup: _Lookup, result: RunResult | None, ended: EndedLookups) -> None:
        run_key = lookup.order.run_key
        if lookup.is_over:
            shutil.rmtree(lookup.folder, ignore_errors=True)
            if lookup.hit is not None:
                self._service.note_unused(lookup.hit)
            return
        del self._lookups[run_key]
        self.has_found = result is not None
        if result is not None:
            ended.results.append(result)
            self._fetched[run_key] = lookup.folder
        elif not lookup.is_running:
            lookup.group.misses.append(lookup.order)
        if not lookup.is_running:
            self._close(lookup.group)
        elif result is not None:
            self._beaten.add(run_key)
            ended.beaten.append(run_key)

    def _close(self, group: _Group) -> None:
        """Note that a lookup of a group has ended; when it was the last one, queue the group's misses for the next turn."""
        group.open_count -= 1
        if not group.open_count and group.misses:
            self._ready.append(group.misses)

    def kill(self, run_keys: Iterable[int]) -> list[RunResult]:
        """Cancel the lookups of these runs; return the result "cancelled" for the jobs that do not run here."""
        answers = []
        for run_key in run_keys:
            lookup = self._lookups.pop(run_key, None)
            if lookup is None:
                continue
            lookup.is_over = True
            if not lookup.is_running:
                answers.append(RunResult(run_key, Outcome.CANCELLED, "cancelled"))
                self._close(lookup.group)
        return answers

    def note_ended(self, result: RunResult) -> bool:
        """Record that a run on this machine ended; return False if its job already received a stored result."""
        lookup = self._lookups.pop(result.run_key, None)
        if lookup is not None:
            lookup.is_over = True
        if result.run_key in self._beaten:
            self._beaten.discard(result.run_key)
            return False
        if result.outcome == Outcome.SUCCEEDED and not result.origin:
            self._made_here.add(result.run_key)
        return True

    # ----------------------------------------------------------------------------------------------------- storing results

    def note_committed(self, commits: CommitProducts, done: Iterable[int], pipeline: Pipeline) -> None:
        """Store the results of these runs, whose products are in the cache now."""
        self._remove_fetched(commit.run_key for commit in commits.commits)
        for run_key in done:
            made = pipeline.committing(run_key) if run_key in self._made_here else None
            self._made_here.discard(run_key)
            if made is None or not self._takes_part(made.job):
                continue
            try:
                self._keep(made, pipeline)
            except Exception as error:  # noqa: BLE001  # a result that is not stored is only made again
                self._notify(f"the result of '{made.job.source.rel}' cannot be stored: {type(error).__name__}: {error}")

    def note_discarded(self, run_keys: Iterable[int]) -> None:
        """Forget these runs, because the engine discards their products."""
        keys = set(run_keys)
        self._made_here -= keys
        self._remove_fetched(keys)

    def _remove_fetched(self, run_keys: Iterable[int]) -> None:
        for run_key in run_keys:
            if folder := self._fetched.pop(run_key, ""):
                shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, commit: Commit, pipeline: Pipeline) -> None:
        job, result = commit.job, commit.result
        builder = self._builders[job.builder]
        if result.is_private:
            return
        facts = results.facts_of(job, builder, commit.inputs)
        try:
            record = results.record_of(
                facts,
                result,
                builder,
                results.FilePlaces(self._root_of[job.source.scan_folder], self._named),
                {name for kind, name, _digest in commit.inputs if kind == "discovered" and name.startswith("/")},
            )
        except results.NotShareable:
            return
        files = {product.digest.hex(): f"{self._cache_dir}/{os_path(cache_path(product.name))}" for product in commit.products}
        inputs = tuple(self._inputs(commit, pipeline))
        self._service.put(
            facts,
            record,
            files,
            is_shared=self._rules.shares(builder.name, str(job.source.rel)),
            is_current=lambda: all(results.is_untouched(path, fact) for path, fact in inputs),
        )

    def _inputs(self, commit: Commit, pipeline: Pipeline) -> Iterable[tuple[str, FileFact]]:
        memory = pipeline.jobs.memory
        for kind, name, _digest in commit.inputs:
            fact = commit.job.source.fact if kind == "source" else memory.file(PathKey(name)) if kind in _FILES else None
            if isinstance(fact, FileFact):
                yield f"{self._root_of[fact.scan_folder]}/{fact.rel}", fact

    def close(self, *, is_stopping: bool) -> None:
        """Wait for results that are being stored, within the configured time, then close."""
        for lookup in self._lookups.values():
            lookup.is_over = True
        self._lookup_threads.close()
        self._service.wait_until_stored(_GRACE_S if is_stopping else self._timeout_s())
        if waiting_count := self._service.waiting:
            self._notify(f"not stored or uploaded in time: {printing.count(waiting_count, 'result')}")
        self._service.close()
        self.note()

    def note(self) -> None:
        """Add the hits, misses and saved time since the last call to the project's totals."""
        totals.add(self._cache_dir, self._service.account, self._counted)

    def _timeout_s(self) -> float:
        """Return how long (seconds) a stopping engine waits for results that are being stored or uploaded."""
        if self._sharing.writes and not self._sharing.waits_for_uploads:
            return max(self._sharing.deadline_s, _GRACE_S)
        return _LONGEST_S

"""Intermediates: products on platform `common` that are sources of other builders. This module does not change the state of a job.

An intermediate is a source as soon as its product row exists. A file in the intermediate folder without a row is an orphan. A job
fails if one of its intermediates has the path of a source outside the intermediate folder, is an earlier stage of its own chain, or
makes its chain too long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from aptui.core.messages import RecheckFiles
from aptui.core.model import SETTLED, EdgeKind, FileFact, Job, JobState, PathKey, ProductFlag, RelPath, Source, SourceEdge
from aptui.core.paths import key_of, parent
from aptui.core.patterns import wildcard
from aptui.core.project import COMMON_PLATFORM, COMMON_PREFIX, Project
from aptui.core.run_report import TICK_NS, Used
from aptui.core.state.ledger import Ledger
from aptui.core.state.working_set import WorkingSet

CHAINS_END = PathKey("\x00chains")
"""Key in `Assembly.waits` for jobs that wait until no chain of intermediates can get another stage."""
MOST_STAGES = 200
"""Maximum number of stages of a chain. A builder that processes its own products under new names would never end."""


class Chains:
    """Finds the producers and stages of intermediates, and requests checks of the intermediate folder."""

    def __init__(self, project: Project, memory: WorkingSet, ledger: Ledger) -> None:
        self._memory = memory
        self._ledger = ledger
        self._folder = next((folder.id for folder in project.scan_folders if folder.is_intermediate), None)
        self._has_any = memory.archive.has_intermediates()
        self.changed: dict[PathKey, int] = {}
        """{intermediate: run key}: intermediates that were added, changed or removed while work was pending.

        Runs that started after the change have this run key or a higher one.
        """
        self._remade: dict[PathKey, list[Job]] = {}
        """{intermediate: jobs}: intermediates that another program overwrote, and the jobs that must make each of them again.

        Until these jobs have run again, their rows do not list the intermediate as a product.
        """

    def is_intermediate(self, file: FileFact | Source) -> bool:
        """Whether a file or source is in the intermediate folder."""
        return file.scan_folder == self._folder

    def recheck(self, names: Iterable[str]) -> None:
        """Request a check of the intermediates among these added, changed or removed products, because each is also a source."""
        keys = [PathKey(name[len(COMMON_PREFIX) :]) for name in names if name.startswith(COMMON_PREFIX)]
        if keys:
            self._has_any = True
            self.changed |= dict.fromkeys(keys, self._ledger.run_key)
            self._memory.awaited.update(keys)
            self._ledger.order(RecheckFiles(self._ledger.cause, tuple(keys)))

    def find_changed(self, run_key: int, edges: Iterable[SourceEdge]) -> PathKey | None:
        """Return an intermediate that one of `edges` names, and that changed after the run `run_key` began; None if none changed.

        The run may have read the earlier bytes of the intermediate.
        """
        for edge in edges if self.changed else ():
            if edge.kind is EdgeKind.WILDCARD:
                keys: Iterable[PathKey] = filter(wildcard(edge.target).fullmatch, self.changed)
            else:
                keys = (key_of(RelPath(edge.target)),)
            for key in keys:
                if self.changed.get(key, run_key) > run_key:
                    return key
        return None

    def note_seen(self, folder: str) -> None:
        """Record that a folder was checked; its intermediates no longer wait for a check."""
        if self._memory.awaited:
            self._memory.awaited -= {key for key in self._memory.awaited if parent(key) == folder}

    def orphans(self, facts: Iterable[FileFact]) -> set[PathKey]:
        """Return the keys of files in the intermediate folder that are not products of a job."""
        names = {
            COMMON_PREFIX + fact.key: fact.key
            for fact in facts
            if fact.scan_folder == self._folder and not self._is_remade(fact.key)
        }
        known = self._memory.archive.owners(list(names)) if names else {}
        return {key for name, key in names.items() if name not in known}

    def is_tampered(self, fact: FileFact) -> bool:
        """Whether a file that was read is an intermediate with other bytes than its job made: another program overwrote it.

        The result stays True until the job has run again. It is False if the job also reads the intermediate that it makes, because
        the job would wait for itself.
        """
        if not self.is_intermediate(fact) or not fact.digest:
            return False
        if self._is_remade(fact.key):
            return True
        name = COMMON_PREFIX + fact.key
        made = [(job, item) for job in self.producers((fact.key,)) for item in job.products if item.name == name]
        remaking = [
            job
            for job, item in made
            if job.state is JobState.COMPLETED and item.digest not in (b"", fact.digest) and not _has_input(job, fact.key)
        ]
        if remaking:
            self._remade[fact.key] = remaking
        return bool(remaking)

    def _is_remade(self, key: PathKey) -> bool:
        """Whether another program overwrote this intermediate, and its job has not made it again yet."""
        jobs = self._remade.get(key, ())
        if any(job.state not in SETTLED and job.source.jobs.get((job.builder, job.platform, job.key)) is job for job in jobs):
            return True
        self._remade.pop(key, None)
        return False

    def producers(self, keys: Iterable[PathKey]) -> list[Job]:
        """Return the jobs whose intermediates have these keys."""
        if not self._has_any:
            return []
        owners = self._memory.archive.owners([COMMON_PREFIX + key for key in keys])
        wanted = {job_id for job_id, _key in owners.values()}
        found = self._memory.load(sorted({key for _job_id, key in owners.values()}))
        return [job for source in found for job in source.jobs.values() if job.id in wanted and not job.is_analysis]

    def problem(self, job: Job, names: Iterable[str]) -> str:
        """Return the reason why a run of `job` must not make intermediates of these names, "" if it may make them."""
        if job.platform != COMMON_PLATFORM:
            return ""
        above = self._stages_above(job)
        for name in names:
            key = PathKey(name[len(COMMON_PREFIX) :])
            if len(above) > MOST_STAGES:
                stages = f"{above[-1]} -> {above[-2]} -> … -> {key}"
                return f"its chain of intermediate products has more than {MOST_STAGES} stages: {stages}"
            top = f" (made from '{above[-1]}')" if above[-1] not in (key, job.source.key) else ""
            if key in above:
                cycle = " -> ".join(reversed(above[: above.index(key) + 1]))
                return f"its intermediate product '{key}'{top} would be made from itself: {cycle} -> {key}"
            fact = self._memory.last_seen(key)
            if fact is not None and not self.is_intermediate(fact):
                return f"its intermediate product '{key}'{top} has the path of an existing source: '{fact.rel}'"
        return ""

    def is_ended(self, job: Job, making: Mapping[Job, Collection[str]]) -> bool:
        """Whether `job` must be deleted: no job still makes its source, or no job still makes an earlier intermediate of its chain.

        `making`: {job whose run has just ended: names of its new products}.
        """
        source, seen = job.source, {""}
        while source.scan_folder == self._folder and source.key not in seen:
            seen.add(source.key)
            name = COMMON_PREFIX + source.key
            makers = [*making, *(maker for maker in self.producers((source.key,)) if maker not in making)]
            maker = next(
                (
                    each
                    for each in makers
                    if name in (making[each] if each in making else {product.name for product in each.products})
                ),
                None,
            )
            if maker is None:
                return True
            source = maker.source
        return False

    def _stages_above(self, job: Job) -> list[PathKey]:
        """Return the keys of all stages from the source of `job` back to the start of its chain."""
        stages = [job.source.key]
        source: Source | None = job.source
        while source is not None and source.scan_folder == self._folder:
            owner = self._memory.archive.owners([COMMON_PREFIX + source.key]).get(COMMON_PREFIX + source.key)
            source = self._memory.view(owner[1]) if owner else None
            if source is None or source.key in stages:
                break
            stages.append(source.key)
        return stages

    def heads(self, keys: Iterable[PathKey]) -> list[FileFact]:
        """Return the first files of the chains of these intermediates: the files outside the intermediate folder."""
        heads: dict[PathKey, FileFact] = {}
        todo, seen = list(keys), set(keys)
        while todo:
            owners = self._memory.archive.owners([COMMON_PREFIX + key for key in todo])
            makers = dict.fromkeys(key for _job_id, key in owners.values() if key not in seen)
            seen.update(makers)
            facts = {key: fact for key in makers if (fact := self._memory.last_seen(key)) is not None}
            heads.update((key, fact) for key, fact in facts.items() if fact.scan_folder != self._folder)
            todo = [key for key in facts if key not in heads]
        return list(heads.values())

    def members(self, keys: Iterable[PathKey]) -> list[PathKey]:
        """Return `keys` and all stages of their chains, in both directions."""
        found: dict[PathKey, None] = dict.fromkeys(keys)
        todo = list(found) if self._has_any else []
        while todo:
            key = todo.pop()
            source = self._memory.view(key)
            nearby = intermediates(source.jobs.values()) if source else []
            nearby += [job.source.key for job in self.producers((key,))]
            todo += [other for other in nearby if other not in found]
            found.update(dict.fromkeys(nearby))
        return list(found)


def intermediates(jobs: Iterable[Job]) -> list[PathKey]:
    """Return the keys of the intermediates among the products of `jobs`."""
    made = (product.name for job in jobs for product in job.products if product.flags & ProductFlag.INTERMEDIATE)
    return [PathKey(name[len(COMMON_PREFIX) :]) for name in made]


def _has_input(job: Job, key: PathKey) -> bool:
    """Whether this file is an input of the last or next run of `job`."""
    return any(name == key for inputs in (job.inputs, job.planned_inputs) for _kind, name, _digest in inputs)


# `ChainFeedback` detects an endless chain: a later stage writes the source of an earlier stage, although each run is correct. (A
# job that writes its own source is detected at the end of its run, because the source has changed.) In an endless chain, each
# change of the source happens during a run of a later stage. The engine may notice the change while this run is still in progress.
# If the run has ended, the file's modification time is between the begin and the end of the run.
#
# `aptui batch` is not notified of changes. When no other work is left, it checks the first sources of the chains in which jobs ran.

_ENDED_MOST = 1000
_GAP_NS = 1_000_000_000
"""Maximum gap (ns) between two runs with the same source that are recorded as one time span.

They are usually runs for several platforms. If one of them changes a source of an earlier stage, the engine may notice the change
only after the last run.
"""


class _Span(Struct):
    """Time span of runs with the same source (ns since the epoch). `name` is the job of the last run, for messages."""

    began_ns: int
    ended_ns: int
    name: str


class ChainFeedback:
    """Counts, for each source, the consecutive changes that happened during runs of later stages of its chain.

    Args:
        builder_names: {builder UUID: its name}, for messages.
        running: {run key: job} that is shared with the pipeline.
    """

    def __init__(self, memory: WorkingSet, builder_names: Mapping[bytes, str], running: Mapping[int, Job]) -> None:
        self._memory, self._builder_names, self._running = memory, builder_names, running
        self._ended: dict[PathKey, _Span] = {}
        self._counts: dict[PathKey, tuple[int, str]] = {}
        self._ran: dict[PathKey, None] = {}

    def run_ended(self, job: Job, used: Used, now_ms: int) -> None:
        """Record the end of a run, successful or not, of a job with an intermediate as its source."""
        if not used.began_ns:
            return
        self._ran[job.source.key] = None
        key = job.source.key
        ended_ns = max((now_ms + 1) * 1_000_000, used.began_ns)  # `now_ms` is rounded down, the time of a file is not
        before = self._ended.pop(key, None)
        began_ns = used.began_ns
        if before is not None and began_ns <= before.ended_ns + _GAP_NS:
            began_ns = min(before.began_ns, began_ns)
        self._ended[key] = _Span(began_ns, ended_ns, self._name_of(job))
        if len(self._ended) > _ENDED_MOST:
            del self._ended[next(iter(self._ended))]

    def pop_ran(self) -> list[PathKey]:
        """Return the intermediates that were sources of runs since the last call."""
        ran, self._ran = list(self._ran), {}
        return ran

    def source_changed(self, source: Source, fact: FileFact) -> None:
        """Count a change of `source` if a later stage of its chain was running when `source` was written, else reset the count.

        `fact` is the present file of `source`.
        """
        writer = self._writer_of(source, fact)
        if writer:
            self._counts[source.key] = (self.count(source) + 1, writer)
        else:
            self._counts.pop(source.key, None)

    def count(self, source: Source) -> int:
        """Return the number of consecutive changes of a source that happened during runs of later stages of its chain."""
        return self._counts.get(source.key, (0, ""))[0]

    def writer(self, source: Source) -> str:
        """Return the name of the job that was running at the last change of `source`, for messages."""
        return self._counts.get(source.key, (0, ""))[1]

    def _writer_of(self, source: Source, fact: FileFact) -> str:
        """Return the name of a job that is running, or that ran while `source` was written; "" = none.

        Only jobs of later stages in the chain of `source` count.
        """
        stages = self._stages_below(source)
        if not stages:
            return ""
        running = next((job for job in self._running.values() if job.source.key in stages), None)
        if running is not None:
            return self._name_of(running)
        spans = [self._ended[key] for key in stages if key in self._ended]
        return next((span.name for span in spans if span.began_ns - TICK_NS <= fact.mtime_ns <= span.ended_ns), "")

    def _stages_below(self, source: Source) -> dict[PathKey, None]:
        found: dict[PathKey, None] = {}
        todo = intermediates(source.jobs.values())
        while todo:
            key = todo.pop()
            if key not in found:
                found[key] = None
                stage = self._memory.view(key)
                todo += intermediates(stage.jobs.values()) if stage is not None else []
        return found

    def _name_of(self, job: Job) -> str:
        return f"'{job.source.rel}' ({self._builder_names[job.builder]})"

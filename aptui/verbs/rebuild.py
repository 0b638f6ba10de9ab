"""`verify --rebuild`: jobs run twice more, in private; products that are not the same bytes each time name their builder."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from aptui.batch.alone import RerunOptions, Workers, order_for
from aptui.config.model import Config
from aptui.core.fingerprint import file_digest
from aptui.core.messages import CopyOrder, Outcome, ProcessOrder, RunResult, StagedProduct
from aptui.core.model import Builder, Digest, Job, Product
from aptui.core.paths import cache_path, key_of
from aptui.core.settings import SettingsTree
from aptui.core.state.commits import name_of
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.store.queries.reader import JobRow
from aptui.verbs.opening import DATABASE, OpenedProject, all_builders, os_path
from aptui.verbs.share import SharedCacheSetup

_AT_A_TIME = 64
"""Jobs whose products lie on the disk twice before they are compared."""
_HASH_SEEDS = ("1", "4294967295")
"""PYTHONHASHSEED of the two runs: the order of a Python set, and so what is written from it, differs between them."""
_BITE_BYTES = 1 << 16
DIFFERENT = 1


@dataclass(frozen=True, slots=True)
class RebuildDifference:
    """What a job made otherwise than before.

    `against` is "second run" or "recorded" (both runs agree, the database has something else). `kind`: "names" (other products),
    "size", "bytes" or "failed". `offset` is that of the first byte that differs, -1 = not known; `said` is a sentence.
    """

    builder: str
    source: str
    platform: str
    job_key: str
    product: str
    against: str
    kind: str
    offset: int
    said: str


@dataclass(frozen=True, slots=True)
class _Task:
    """One job of the sample; its two results are known by `number`."""

    number: int
    job: Job
    root: str
    builder: Builder
    scan_folder: str


# ------------------------------------------------------------------------------------------------------------------ sample


def sample(rows: Sequence[JobRow], wanted: SharedCacheSetup, seed: int) -> list[JobRow]:
    """Return a sample of jobs, the same for the same seed: of every builder one at least, the rest as they come."""
    dice = random.Random(seed)  # a sample that can be drawn again, no secret
    shuffled = sorted(rows, key=lambda row: (row.builder, row.source, row.platform, row.job_key))
    dice.shuffle(shuffled)
    first: dict[bytes, JobRow] = {}
    for row in shuffled:
        first.setdefault(row.builder, row)
    kept = {row.job_id for row in first.values()}
    chosen = [*first.values(), *(row for row in shuffled if row.job_id not in kept)][: max(len(first), wanted.of(len(rows)))]
    return sorted(chosen, key=lambda row: (row.source, row.platform, row.job_key))


# ----------------------------------------------------------------------------------------------------------------- rebuild


def rebuild(config: Config, project: OpenedProject, wanted: SharedCacheSetup, seed: int | None, *, as_json: bool) -> int:
    """Run a sample of the completed jobs twice, say what differs; exit 1 when something does."""
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    builders = {builder.uuid: builder for builder in all_builders(config)}
    rows = [row for row in project.database.jobs(statuses=["completed"]) if row.job_id and row.builder in builders]
    if not rows:
        raise UserError("there is no completed job to run again", hint="'aptui batch' processes the project")
    chosen = sample(rows, wanted, seed)
    counts = Counter(builders[row.builder].name for row in chosen)
    left_out: list[str] = []
    tasks, texts = _tasks(config, project, chosen, builders, left_out)
    differences = list(_differences(config, tasks, texts))
    if as_json:
        printing.say_json(
            {
                "seed": seed,
                "jobs": len(rows),
                "rebuilt": len(tasks),
                "builders": dict(sorted(counts.items())),
                "left_out": left_out,
                "differences": [asdict(difference) for difference in differences],
            }
        )
    else:
        _tell(differences, left_out, len(tasks), len(rows), seed, counts)
    return DIFFERENT if differences else 0


def _tasks(
    config: Config, project: OpenedProject, rows: Sequence[JobRow], builders: Mapping[bytes, Builder], left_out: list[str]
) -> tuple[list[_Task], dict[str, str]]:
    """Return the jobs to run, and the settings of folders; sources that are not those that were processed are left out."""
    from aptui.store.db.archive import DatabaseArchive

    archive = DatabaseArchive(config.cache_dir / DATABASE, {})
    names = {folder.path: folder.name for folder in config.project.scan_folders}
    tasks: list[_Task] = []
    try:
        sources = archive.sources(list(dict.fromkeys(key_of(row.source) for row in rows)))
        texts = archive.settings()
    finally:
        archive.close()
    for row in rows:
        source, stored = sources.get(key_of(row.source)), project.database.source(row.source)
        job = source.jobs.get((row.builder, row.platform, row.job_key)) if source else None
        if job is None or stored is None or not _is_unchanged(job, stored.root):
            left_out.append(row.source)
        else:
            tasks.append(_Task(len(tasks) + 1, job, stored.root, builders[row.builder], names.get(stored.root, "")))
    return tasks, texts


def _is_unchanged(job: Job, root: str) -> bool:
    from aptui.worker.files import FileChanged, hash_file

    try:
        (digest, _, _), _ = hash_file(os_path(f"{root}/{job.source.rel}"))
    except (FileChanged, OSError):
        return False
    return file_digest(Digest(digest)) in (recorded for kind, _name, recorded in job.inputs if kind == "source")


def _differences(config: Config, tasks: Sequence[_Task], texts: Mapping[str, str]) -> Iterator[RebuildDifference]:
    builders = tuple({task.builder.uuid: task.builder for task in tasks}.values())
    settings = SettingsTree(replace(config.project, builders=builders), dict(texts))
    folder = _folder(config)
    try:
        with (
            Workers(config, builders, config.workers, {"PYTHONHASHSEED": _HASH_SEEDS[0]}) as one,
            Workers(config, builders, config.workers, {"PYTHONHASHSEED": _HASH_SEEDS[1]}) as other,
        ):
            for start in range(0, len(tasks), _AT_A_TIME):
                part = tasks[start : start + _AT_A_TIME]
                # The second time in the other order: what a builder remembers from one job must not show in the next.
                first = one.run([_order(config, task, settings, f"{folder}/{task.number}-1") for task in part])
                second = other.run([_order(config, task, settings, f"{folder}/{task.number}-2") for task in reversed(part)])
                for task in part:
                    yield from _compared(config, task, first[task.number], second[task.number])
                shutil.rmtree(folder, ignore_errors=True)
                os.mkdir(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder(config: Config) -> str:
    try:
        config.temp_dir.mkdir(parents=True, exist_ok=True)
        return tempfile.mkdtemp(prefix="verify-", dir=config.temp_dir)
    except OSError as error:
        raise HostError(
            f"no folder can be made in '{config.temp_dir}': {error.strerror}",
            hint="look at its permissions, and at the room on its disk",
        ) from error


def _order(config: Config, task: _Task, settings: SettingsTree, staging: str) -> ProcessOrder | CopyOrder:
    adjusted = settings.adjustment(task.job.source.key, task.builder).order
    manner = RerunOptions(adjusted, debug_output=config.project.debug_output)
    return order_for(task.job, task.root, task.builder, staging, task.number, manner)


# ----------------------------------------------------------------------------------------------------------------- compare


def _compared(config: Config, task: _Task, first: RunResult, second: RunResult) -> Iterator[RebuildDifference]:
    for which, result in (("first", first), ("second", second)):
        if result.outcome != Outcome.SUCCEEDED:
            said = f"the {which} run failed: {result.error}, though the job is completed"
            yield _difference(task, "", "recorded", "failed", -1, said)
    if first.outcome != Outcome.SUCCEEDED or second.outcome != Outcome.SUCCEEDED:
        return
    ones = {name_of(task.job, product, task.scan_folder): product for product in first.products}
    others = {name_of(task.job, product, task.scan_folder): product for product in second.products}
    recorded = {product.name: product for product in task.job.products}
    if ones.keys() != others.keys():
        yield _difference(task, *_other_names(ones, others, "second run", "the first run", "the second"))
    elif ones.keys() != recorded.keys():
        yield _difference(task, *_other_names(ones, recorded, "recorded", "both runs", "the recorded one"))
    for name in sorted(ones.keys() & others.keys()):
        one, other = ones[name], others[name]
        if one.digest != other.digest:
            kind, offset, said = _told(one, other.size, other.staged, "two runs differ")
            yield _difference(task, name, "second run", kind, offset, said)
        elif name in recorded and recorded[name].digest and one.digest != recorded[name].digest:
            kept = str(Path(config.cache_dir, os_path(cache_path(name))))
            kind, offset, said = _told(one, recorded[name].size, kept, "both runs differ from what is recorded")
            yield _difference(task, name, "recorded", kind, offset, said)


def _difference(task: _Task, product: str, against: str, kind: str, offset: int, said: str) -> RebuildDifference:
    job = task.job
    return RebuildDifference(task.builder.name, job.source.rel, job.platform, job.key, product, against, kind, offset, said)


def _other_names(
    ones: Mapping[str, StagedProduct], others: Mapping[str, StagedProduct | Product], against: str, one: str, other: str
) -> tuple[str, str, str, int, str]:
    more, less = sorted(ones.keys() - others.keys()), sorted(others.keys() - ones.keys())
    parts = [f"{who} made '{', '.join(names)}'" for who, names in ((one, more), (other, less)) if names]
    return (more or less)[0], against, "names", -1, "other products: " + ", ".join(parts)


def _told(one: StagedProduct, size: int, path: str, what: str) -> tuple[str, int, str]:
    """Return (kind, offset, sentence) of how the file of `one` differs from the file at `path`, which should have `size` bytes."""
    offset = _first_difference(os_path(one.staged), os_path(path))
    at = f" from byte {offset:,} on" if offset >= 0 else ""
    if size not in (one.size, -1):
        return "size", offset, f"{what} in size, {one.size:,} and {size:,} bytes{at and ', and' + at}"
    return "bytes", offset, f"{what}{at}, of {one.size:,} bytes"


def _first_difference(one: str, other: str) -> int:
    """Return the offset of the first byte that differs, -1 when there is none, or a file cannot be read."""
    try:
        with open(one, "rb") as left, open(other, "rb") as right:
            offset = 0
            while True:
                here, there = left.read(_BITE_BYTES), right.read(_BITE_BYTES)
                if here != there:
                    return offset + next(
                        (at for at, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]),
                        min(len(here), len(there)),
                    )
                if not here:
                    return -1
                offset += len(here)
    except OSError:
        return -1


# -------------------------------------------------------------------------------------------------------------------- tell


def _tell(
    differences: Sequence[RebuildDifference],
    left_out: Sequence[str],
    rebuilt: int,
    total: int,
    seed: int,
    counts: Mapping[str, int],
) -> None:
    for item in differences:
        job = printing.line(f"{item.source}@{item.platform}:{item.job_key}")
        product = f" {printing.line(item.product)}:" if item.product else ""
        printing.say(f"{job}:{product} {printing.line(item.said)}", "red")
    for source in left_out:
        printing.say(f"left out: '{printing.line(source)}' is not as it was processed; 'aptui batch' first", "yellow")
    run = f"{printing.count(rebuilt, 'job')} of {total:,}, of {printing.count(len(counts), 'builder')}, run twice; seed {seed}"
    if not differences:
        printing.say(f"{run}: every product as recorded", "green")
        return
    printing.say(run)
    guilty = Counter(name for name, _job in {(item.builder, (item.source, item.platform, item.job_key)) for item in differences})
    for name, count in sorted(guilty.items()):
        printing.say(
            f"builder '{printing.line(name)}': {count:,} of {printing.count(counts[name], 'job')} made something else", "red"
        )

"""`verify`: compare every product's bytes with the digest in the database; `--repair` makes wrong products again.

With `--rebuild`, run jobs again and compare their products (`rebuild`).

Tests: `tests/features/shipping/test_verbs.py`.
"""

from __future__ import annotations

import math
import os
import random
import re
import secrets
import shutil
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from aptui.batch.alone import RerunOptions, Workers, new_folder, order_for, scan_paths
from aptui.batch.options import RunOptions, load_config, load_to_run, refuse_ignored
from aptui.batch.run import INTERRUPTED, run
from aptui.cli.read_access import OpenedProject, all_builders, open_for_reading
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database
from aptui.core.fingerprint import MISSING, combine, file_digest, rule_entries
from aptui.core.model import Digest, Job
from aptui.core.orders import CopyOrder, Outcome, ProcessOrder, RunResult, StagedProduct
from aptui.core.paths import cache_path, key_of, os_path
from aptui.core.project import Builder
from aptui.core.settings import SettingsTree
from aptui.core.state.commits import name_of
from aptui.engine.loop.opening import with_intermediates
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.shared.files.replacing import open_regular
from aptui.store.queries.checks import Finding, OrphanFile, examine_products, orphans, still_orphans
from aptui.store.queries.reader import JobRow, Reader
from aptui.worker.file_access import FileChanged, hash_file

# `verify --rebuild` runs jobs twice in private folders, and names the builders whose products differ in bytes.


class SampleSize(Struct, frozen=True):
    """The size of a sample of jobs: `percent` of all jobs, or `count` jobs if `count` is not 0."""

    percent: float = 0.0
    count: int = 0

    def of(self, total: int) -> int:
        """Return the number of jobs in a sample of `total` jobs, at least 1."""
        return min(total, self.count or max(1, math.ceil(total * self.percent / 100)))


def share(text: str) -> SampleSize:
    """Parse a sample size from the command line: "5%" or "12"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%|(\d+)", text.strip())
    if match is None or (match[1] and not 0 < float(match[1]) <= 100) or (match[2] and int(match[2]) == 0):
        raise ArgumentTypeError(f"'{text}' is neither a percentage like 5% nor a number of jobs")
    return SampleSize(percent=float(match[1])) if match[1] else SampleSize(count=int(match[2]))


_AT_A_TIME = 64
"""Number of jobs that run twice before they are compared. All their products stay on the disk until the comparison has ended."""
_HASH_SEEDS = ("1", "4294967295")
"""PYTHONHASHSEED of the two runs. The orders of Python sets differ between the runs, and so do products that depend on them."""
_CHUNK_BYTES = 1 << 16
"""Number of bytes that are read and compared at a time."""
DIFFERENT = 1
"""Exit code if results of a job differ."""


class RebuildDifference(Struct, frozen=True):
    """A difference between two results of a job.

    `against` is "second run" if the two new runs differ. If they agree, or if one of them failed, it is the earlier result:
    "recorded" (in the database) or "kept" (in this machine's store).
    `kind`: "names" (other products), "size", "bytes" or "failed". `offset` is the first byte that differs, -1 = not known;
    `message` is a sentence.
    """

    builder: str
    source: str
    platform: str
    job_key: str
    product: str
    against: str
    kind: str
    offset: int
    message: str = field(name="said")


class ExpectedProduct(Struct, frozen=True):
    """A product of the last run: `digest` b"" = not known; `path` is its file, which may be deleted."""

    digest: bytes
    size: int
    path: str


class RebuildTask(Struct, frozen=True):
    """One job of the sample; `number` identifies the job in the results of the two new runs.

    `expected` is {name: product} of the job's earlier result. That result is in the database if `compared_with` is "recorded", or
    in this machine's store if it is "kept".
    """

    number: int
    row: JobRow
    job: Job
    root: str
    builder: Builder
    scan_folder: str
    expected: Mapping[str, ExpectedProduct]
    compared_with: str = "recorded"


class RebuildSample(Struct, frozen=True):
    """The jobs to run, the settings of their folders, and the sources that are left out because an input changed."""

    tasks: list[RebuildTask]
    settings: Mapping[str, str]
    left_out: list[str]


class Rebuilt(Struct, frozen=True):
    """The result of `--rebuild`.

    Args:
        seed: number that selected the sample.
        total: number of jobs from which the sample was selected.
        counts: {builder: number of its jobs in the sample}.
    """

    seed: int
    total: int
    counts: Counter[str]
    chosen: RebuildSample
    differences: list[RebuildDifference]

    @property
    def facts(self) -> dict[str, object]:
        """The object that `--json` prints."""
        return {
            "seed": self.seed,
            "jobs": self.total,
            "rebuilt": len(self.chosen.tasks),
            "builders": dict(sorted(self.counts.items())),
            "left_out": self.chosen.left_out,
            "differences": [to_builtins(difference) for difference in self.differences],
        }

    def report(self, verdict: str) -> None:
        """Print the text output; if nothing differs, print `verdict`."""
        for item in self.differences:
            job = printing.line(f"{item.source}@{item.platform}:{item.job_key}")
            product = f" {printing.line(item.product)}:" if item.product else ""
            printing.say(f"{job}:{product} {printing.line(item.message)}", "red")
        for source in self.chosen.left_out:
            printing.say(f"left out: '{printing.line(source)}' changed since it was processed; run 'aptui batch' first", "yellow")
        count = printing.count(len(self.chosen.tasks), "job")
        run = f"{count} of {self.total:,}, of {printing.count(len(self.counts), 'builder')}, run twice; seed {self.seed}"
        if not self.differences:
            printing.say(f"{run}: {verdict}", "green")
            return
        printing.say(run)
        jobs = {(item.builder, (item.source, item.platform, item.job_key)) for item in self.differences}
        for name, count_of in sorted(Counter(name for name, _job in jobs).items()):
            all_jobs = printing.count(self.counts[name], "job")
            printing.say(f"builder '{printing.line(name)}': {count_of:,} of {all_jobs} made different products", "red")


# ------------------------------------------------------------------------------------------------------------------ sample


def sample(rows: Sequence[JobRow], wanted: SampleSize, seed: int) -> list[JobRow]:
    """Return a sample of jobs, the same for equal seeds: at least one job of every builder, and further jobs at random."""
    dice = random.Random(seed)  # `Random` is enough: the sample must be repeatable, not secret
    shuffled = sorted(rows, key=lambda row: (row.builder, row.source, row.platform, row.job_key))
    dice.shuffle(shuffled)
    first: dict[bytes, JobRow] = {}
    for row in shuffled:
        first.setdefault(row.builder, row)
    job_ids = {row.job_id for row in first.values()}
    chosen = [*first.values(), *(row for row in shuffled if row.job_id not in job_ids)][: max(len(first), wanted.of(len(rows)))]
    return sorted(chosen, key=lambda row: (row.source, row.platform, row.job_key))


# ----------------------------------------------------------------------------------------------------------------- rebuild


def rebuild(config: Config, project: OpenedProject, wanted: SampleSize, seed: int | None, *, as_json: bool) -> int:
    """Run a sample of the completed jobs twice and print the differences; return 1 if there are differences."""
    seed = any_seed() if seed is None else seed
    builders = {builder.uuid: builder for builder in all_builders(config)}
    rows = list_completed(project, builders)
    chosen = sample_of(config, project, sample(rows, wanted, seed), builders)
    differences = list(differences_of(config, chosen.tasks, chosen.settings))
    rebuilt = Rebuilt(seed, len(rows), counts_of(chosen.tasks), chosen, differences)
    if as_json:
        printing.say_json(rebuilt.facts)
    else:
        rebuilt.report("all products are equal to the recorded products")
    return DIFFERENT if differences else 0


def any_seed() -> int:
    """Return a random seed that is short enough for the user to type."""
    return secrets.randbelow(1_000_000)


def list_completed(project: OpenedProject, builders: Mapping[bytes, Builder]) -> list[JobRow]:
    """Return the completed jobs of these builders on the platforms that are processed.

    Raises:
        UserError: none of the jobs is completed.
    """
    left_out = project.config.project.resting_platforms
    rows = [
        row
        for row in project.database.jobs(statuses=["completed"])
        # a restored job is left out: its products come from an earlier run and may differ from those of a new run
        if row.job_id and row.builder in builders and not row.is_restored and row.platform not in left_out
    ]
    if not rows:
        raise UserError("there is no completed job to run again", hint="run 'aptui batch' first")
    return rows


def counts_of(tasks: Iterable[RebuildTask]) -> Counter[str]:
    """Return {builder name: number of its jobs}."""
    return Counter(task.builder.name for task in tasks)


def sample_of(config: Config, project: OpenedProject, rows: Sequence[JobRow], builders: Mapping[bytes, Builder]) -> RebuildSample:
    """Return the tasks for these jobs; the expected products come from the database. Jobs with changed inputs are left out."""
    from aptui.store.db.archive import DatabaseArchive

    archive = DatabaseArchive(asset_database(config.cache_dir), {})
    names = {folder.path: folder.name for folder in config.project.scan_folders}
    inputs = UnchangedInputs(config, project.database)
    chosen = RebuildSample([], {}, [])
    try:
        sources = archive.sources(list(dict.fromkeys(key_of(row.source) for row in rows)))
        chosen = replace(chosen, settings=archive.settings())
    finally:
        archive.close()
    for row in rows:
        source, stored = sources.get(key_of(row.source)), project.database.source(row.source)
        job = source.jobs.get((row.builder, row.platform, row.job_key)) if source else None
        builder = builders[row.builder]
        if job is None or stored is None or not inputs.are_those_of(job, builder, stored.root):
            chosen.left_out.append(row.source)
        else:
            expected = {
                item.name: ExpectedProduct(item.digest, item.size, str(Path(config.cache_dir, os_path(cache_path(item.name)))))
                for item in job.products
            }
            folder = names.get(stored.root, "")
            chosen.tasks.append(RebuildTask(len(chosen.tasks) + 1, row, job, stored.root, builder, folder, expected))
    return chosen


def differences_of(config: Config, tasks: Sequence[RebuildTask], texts: Mapping[str, str]) -> Iterator[RebuildDifference]:
    """Run all jobs twice in private folders and yield the differences."""
    builders = tuple({task.builder.uuid: task.builder for task in tasks}.values())
    settings = SettingsTree(replace(config.project, builders=builders), dict(texts))
    folder = new_folder(config, "verify-")
    try:
        with (
            Workers(config, builders, config.workers, {"PYTHONHASHSEED": _HASH_SEEDS[0]}) as one,
            Workers(config, builders, config.workers, {"PYTHONHASHSEED": _HASH_SEEDS[1]}) as other,
        ):
            for start in range(0, len(tasks), _AT_A_TIME):
                part = tasks[start : start + _AT_A_TIME]
                # The second run is in reverse order. So if a builder keeps state from one job to the next, the products of the
                # two runs differ.
                first = one.run([_order(config, task, settings, f"{folder}/{task.number}-1") for task in part])
                second = other.run([_order(config, task, settings, f"{folder}/{task.number}-2") for task in reversed(part)])
                for task in part:
                    yield from _compare_runs(task, first[task.number], second[task.number])
                shutil.rmtree(folder, ignore_errors=True)
                os.mkdir(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _order(config: Config, task: RebuildTask, settings: SettingsTree, staging: str) -> ProcessOrder | CopyOrder:
    adjusted = settings.adjustment(task.job.source.key, task.builder).order
    manner = RerunOptions(adjusted, debug_output=config.project.debug_output)
    return order_for(task.job, task.root, scan_paths(config), task.builder, staging, task.number, manner)


# ----------------------------------------------------------------------------------------------------------------- compare


def _compare_runs(task: RebuildTask, first: RunResult, second: RunResult) -> Iterator[RebuildDifference]:
    for which, result in (("first", first), ("second", second)):
        if result.outcome != Outcome.SUCCEEDED:
            message = f"the {which} run failed, although the job had completed: {result.error}"
            yield _difference(task, "", task.compared_with, "failed", -1, message)
    if first.outcome != Outcome.SUCCEEDED or second.outcome != Outcome.SUCCEEDED:
        return
    ones = {name_of(task.job, product, task.scan_folder): product for product in first.products}
    others = {name_of(task.job, product, task.scan_folder): product for product in second.products}
    expected = task.expected
    if ones.keys() != others.keys():
        yield _difference(task, *_other_names(ones, others, "second run", "the first run", "the second"))
    elif ones.keys() != expected.keys():
        yield _difference(task, *_other_names(ones, expected, task.compared_with, "both runs", f"the {task.compared_with} run"))
    for name in sorted(ones.keys() & others.keys()):
        one, other = ones[name], others[name]
        if one.digest != other.digest:
            kind, offset, message = _describe_difference(one, other.size, os_path(other.staged), "two runs differ")
            yield _difference(task, name, "second run", kind, offset, message)
        elif name in expected and expected[name].digest and one.digest != expected[name].digest:
            what = f"both runs differ from the {task.compared_with} result"
            kind, offset, message = _describe_difference(one, expected[name].size, expected[name].path, what)
            yield _difference(task, name, task.compared_with, kind, offset, message)


def _difference(task: RebuildTask, product: str, against: str, kind: str, offset: int, message: str) -> RebuildDifference:
    job = task.job
    return RebuildDifference(task.builder.name, job.source.rel, job.platform, job.key, product, against, kind, offset, message)


def _other_names(
    ones: Mapping[str, StagedProduct], others: Mapping[str, object], against: str, one: str, other: str
) -> tuple[str, str, str, int, str]:
    more, less = sorted(ones.keys() - others.keys()), sorted(others.keys() - ones.keys())
    parts = [f"{who} made '{', '.join(names)}'" for who, names in ((one, more), (other, less)) if names]
    return (more or less)[0], against, "names", -1, "other products: " + ", ".join(parts)


def _describe_difference(one: StagedProduct, size: int, path: str, what: str) -> tuple[str, int, str]:
    """Compare the file of `one` with the file at `path`, which should have `size` bytes; return (kind, offset, sentence)."""
    offset = _first_difference(os_path(one.staged), path)
    at = f" from byte {offset:,}" if offset >= 0 else ""
    if size not in (one.size, -1):
        return "size", offset, f"{what} in size: {one.size:,} and {size:,} bytes{at and '; the bytes differ' + at}"
    return "bytes", offset, f"{what}{at}, of {one.size:,} bytes"


def _first_difference(one: str, other: str) -> int:
    """Return the offset of the first byte that differs, -1 if the files are equal or cannot be read."""
    try:
        with open_regular(one) as left, open_regular(other) as right:
            offset = 0
            while True:
                here, there = left.read(_CHUNK_BYTES), right.read(_CHUNK_BYTES)
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


# `UnchangedInputs` checks whether a job has the same inputs as in its last run: the settings of its builder and the bytes of
# files. If the job needs products of other jobs, these products are assumed to be unchanged.

_FILES = frozenset({"source", "dependency", "companion", "discovered"})


class UnchangedInputs:
    """Compares the inputs of the jobs of one database; each file is read once."""

    def __init__(self, config: Config, database: Reader) -> None:
        self._project, self._database = with_intermediates(config.project, str(config.cache_dir)), database
        self._platforms = {platform.id: platform for platform in self._project.platforms}
        self._roots = database.folder_paths()
        self._digests: dict[str, str] = {}

    def are_those_of(self, job: Job, builder: Builder, root: str) -> bool:
        """Whether builder, source (in the scan folder at `root`) and files of a job are the same as in its last run."""
        platform = self._platforms.get(job.platform)
        if platform is None:
            return False
        rule = "rule", builder.name, combine(rule_entries(builder, platform, debug_output=self._project.debug_output))
        files = [
            (f"{root}/{job.source.rel}" if kind == "source" else self._path(name), digest)
            for kind, name, digest in job.inputs
            if kind in _FILES and "*" not in name
        ]
        return rule in job.inputs and bool(files) and all(self._digest(path) == digest for path, digest in files)

    def _path(self, name: str) -> str:
        fact = None if name.startswith("/") else self._database.file(name)
        return f"{self._roots[fact.scan_folder]}/{fact.rel}" if fact is not None else name if name.startswith("/") else ""

    def _digest(self, path: str) -> str:
        if path not in self._digests:
            self._digests[path] = _digest_of(path)
        return self._digests[path]


def _digest_of(path: str) -> str:
    try:
        return file_digest(Digest(hash_file(os_path(path), sees_through=True)[0][0])) if path else MISSING
    except (FileChanged, OSError):
        return MISSING


DAMAGED = 1
"""Exit code if products differ from the database and were not repaired."""
_MOST_NAMED = 3
"""Maximum number of sources in the advice how to repair products."""


def verify_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `verify`."""
    parser.add_argument("--repair", action="store_true", help="run the jobs of damaged or missing products again")
    parser.add_argument(
        "--rebuild",
        type=share,
        metavar="SHARE",
        help="run a share (5%%) or a number of the completed jobs twice outside the cache, and compare their products",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="NUMBER",
        help="with --rebuild: seed of the random choice of jobs; the same number chooses the same jobs",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def verify(arguments: Namespace) -> int:
    """Compare all products; return 1 if some products are wrong and were not repaired."""
    if not arguments.rebuild:
        refuse_ignored(arguments, ["seed"], "has no effect without '--rebuild'", "add for example '--rebuild 5%', or remove it")
    config = load_to_run(arguments) if arguments.rebuild or arguments.repair else load_config(arguments)
    if arguments.rebuild:
        if arguments.repair:
            raise UserError(
                "'--repair' cannot be used with '--rebuild'", hint="if products of two runs differ, correct their builder"
            )
        with open_for_reading(arguments, config) as project:
            return rebuild(config, project, arguments.rebuild, arguments.seed, as_json=arguments.json)
    checked, unknown, findings, leftovers = _check(arguments, config)
    code, left = DAMAGED if findings else 0, None
    if findings and arguments.repair:
        code, left = _repair(arguments, config, findings)
    if arguments.json:
        printing.say_json(
            {
                "products": checked,
                "without_digest": unknown,
                "repaired": left == [],
                "findings": [to_builtins(finding) for finding in findings],
                "unknown_files": [leftover.name for leftover in leftovers],
            }
        )
        return code
    for finding in findings:
        printing.say(f"{finding.problem}: {printing.line(finding.product)}, made from {printing.line(finding.source)}", "red")
    for leftover in leftovers:
        fate = (
            "the next scan deletes it" if leftover.is_watched else "aptui does not delete it, because aptui did not make its folder"
        )
        printing.say(f"unknown file: {printing.line(leftover.name)} does not belong to a product; {fate}", "yellow")
    printing.say(_verdict(checked, unknown, findings, left))
    return code


def _check(arguments: Namespace, config: Config) -> tuple[int, int, list[Finding], list[OrphanFile]]:
    """Return (number of products, number without a digest, wrong products, files in the cache that are not products)."""
    checked = unknown = 0
    findings = []
    with open_for_reading(arguments, config) as project:
        for product, finding in examine_products(project.database, config.cache_dir):
            checked += 1
            unknown += not product.digest
            findings += [finding] if finding else []
        platforms = [platform.id for platform in config.project.platforms]
        unknown_files = [file for _folder, files in orphans(project.database, config.cache_dir, platforms) for file in files]
        leftovers = still_orphans(unknown_files, project.database, config.cache_dir)
    return checked, unknown, sorted(findings, key=lambda finding: finding.product), leftovers


def _repair(arguments: Namespace, config: Config, findings: list[Finding]) -> tuple[int, list[Finding] | None]:
    """Run the jobs of these products again; return (exit code, the products that are wrong afterwards; None = interrupted).

    If a job fails, a product whose file is missing no longer has a row, so the state of its job is checked, too.
    """
    summary = run(config, RunOptions(sources=tuple(sorted({key_of(finding.source) for finding in findings}))))
    if summary.is_interrupted:
        return INTERRUPTED, None
    left = {finding.product: finding for finding in _check(arguments, config)[2]}
    with open_for_reading(arguments, config) as project:
        for finding in findings:
            if (row := project.database.job(finding.job_id)) is not None and row.status == "failed":
                left.setdefault(finding.product, finding)
    return (DAMAGED if left else 0), list(left.values())


def _verdict(checked: int, unknown: int, findings: list[Finding], left: list[Finding] | None) -> str:
    without = f", and {unknown:,} have no recorded digest" if unknown else ""
    if not findings:
        return f"checked {printing.count(checked, 'product')}: no product is missing or changed{without}"
    if left == []:
        return f"made again: {len(findings):,} of {printing.count(checked, 'product')}"
    if left is not None:
        names = "; 'aptui jobs --status failed' lists failed jobs"
        return f"still missing or changed: {len(left):,} of {printing.count(checked, 'product')}{names}"
    sources = list(_first_sources(findings))
    return (
        f"missing or changed: {len(findings):,} of {printing.count(checked, 'product')}{without}; to make these products again, "
        f"run 'aptui verify --repair' or 'aptui reprocess {' '.join(sources)}'"
    )


def _first_sources(findings: list[Finding]) -> Iterator[str]:
    """Yield the sources of the findings as words for a shell; after `_MOST_NAMED` sources, yield an ellipsis."""
    from shlex import quote

    sources = list(dict.fromkeys(finding.source for finding in findings))
    yield from (quote(printing.line(source)) for source in sources[:_MOST_NAMED])
    if len(sources) > _MOST_NAMED:
        yield "…"

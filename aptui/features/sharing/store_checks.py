"""Checks of stored results.

`cache ready` checks whether the store has all results of a commit. `cache verify` checks whether a rebuild makes equal results.

A lookup plans all jobs as a real run does, but a job without a stored result fails. Jobs that depend on the products of a failed
job are not planned. Tools and scan folders outside the repository are used in their current state, not in the state of the commit.

A rebuild runs the jobs of a sample twice, in a temporary cache, and compares the results. A stored result that differs from both
new results is removed, and is made again when needed. Results of other projects or of earlier inputs are not checked, because their
inputs do not exist here. `cli.verify_verb` runs the jobs.

Tests: `tests/features/sharing/test_verbs.py`, `tests/features/sharing/test_store_rebuild.py`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from aptui.cli.read_access import OpenedProject, all_builders
from aptui.cli.verify_verb import (
    DIFFERENT,
    ExpectedProduct,
    RebuildDifference,
    RebuildSample,
    RebuildTask,
    Rebuilt,
    SampleSize,
    any_seed,
    counts_of,
    differences_of,
    list_completed,
    sample,
    sample_of,
)
from aptui.config import load, trust
from aptui.config.configuration import Config
from aptui.config.dirs import FILE_NAME, asset_database
from aptui.config.own_files import own_paths
from aptui.core.notices import EngineMessage
from aptui.core.project import BuilderKind
from aptui.core.state.commits import name_of
from aptui.engine.loop.opening import with_intermediates
from aptui.features.sharing.job_results import Present, facts_of
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.shared.files.git import read_git, run_git
from aptui.store.queries.reader import JobRow, open_reader

if TYPE_CHECKING:
    from aptui.features.sharing.service import FoundResult, Service


_FAILED = ("failed",)
_TROUBLE = "shared cache"
"""Text that every message about the shared cache contains; it identifies these messages (`namespaces.TroubleReporter`)."""


class CommitReadiness(Struct, frozen=True):
    """Which results of a commit are stored.

    `found` is the number of stored results, `missing` are jobs without a stored result.
    `doubts` are messages about jobs that could not be checked.
    """

    found: int
    missing: tuple[str, ...]
    doubts: tuple[str, ...] = ()


def look_up(config: Config) -> CommitReadiness:
    """Look up the results of all jobs of a project; found results stay in this machine's store.

    Raises:
        UserError: no store is configured.
    """
    from aptui.engine.loop.engine import Engine
    from aptui.engine.loop.opening import PreparedSession

    sharing = config.sharing
    if not (sharing.local_store or sharing.is_remote):
        raise UserError("this project stores and shares no results", hint="set 'local_store' or 'shared_cache' in aptui.yaml")
    with _private(sharing.local_store) as folder:
        dry = replace(config, cache_dir=folder / "Cache", log_dir=folder / "logs", temp_dir=folder / "temp")
        opening = PreparedSession(dry, own_paths=own_paths(config))
        opening.acquire()
        builders = {builder.uuid: builder.name for builder in opening.builders}
        troubles: dict[str, None] = {}

        def note_trouble(notice: object) -> None:
            """Remember messages about the shared cache: an unreachable store must not look like an empty store."""
            if isinstance(notice, EngineMessage) and _TROUBLE in notice.text:
                troubles[notice.text] = None

        engine = Engine(dry, [note_trouble], opening=opening, runs_builders=False)
        engine.open()
        try:
            engine.start_scan()
            engine.run_until_idle()
        finally:
            engine.close()
        found = engine.runs.account.total().hits if engine.runs.account else 0
        answer = _answer(dry, found, builders)
        return replace(answer, doubts=(*answer.doubts, *troubles))


def look_up_commit(config: Config, commit: str, platforms: str | None, *, trusts_code: bool) -> CommitReadiness:
    """Look up the results of all jobs of a commit in the shared cache, or in this machine's store if no shared cache is configured.

    Args:
        platforms: ids of platforms, separated by commas; None = all enabled platforms.
        trusts_code: run the commit's builders and the version commands of its tools even if they differ from this checkout; they
            determine the jobs.

    Raises:
        UserError: the repository or the commit does not exist, or the commit has builder code that is not trusted.
    """
    top = read_git(config.project_dir, "rev-parse", "--show-toplevel")
    if top is None:
        raise UserError(
            f"git finds no repository of '{config.project_dir}'", hint="install git, and run 'git status' in the project"
        )
    if read_git(config.project_dir, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
        raise UserError(f"'{commit}' is not a commit", where=str(config.project_dir))
    repository = Path(os.fsdecode(top).strip())
    inside = os.path.relpath(os.path.realpath(config.project_dir), os.path.realpath(repository))
    with _private(config.sharing.local_store) as folder:
        checkout = folder / config.project_dir.name if inside == "." else folder / "checkout"
        checkout.mkdir()
        _extract(repository, commit, checkout, is_trusted=trust.is_trusted(config))
        wanted = [name.strip() for name in platforms.split(",") if name.strip()] if platforms else None
        there = load.load(checkout / inside, platforms=wanted, workers=config.workers)
        if not trusts_code:
            _refuse_new_code(config, there, commit)
        # Teammates cannot use results that only this machine has.
        sharing = replace(config.sharing, local_store="") if config.sharing.is_remote else config.sharing
        return look_up(replace(there, sharing=sharing))


def _refuse_new_code(config: Config, there: Config, commit: str) -> None:
    """Refuse a commit with code that differs from this checkout, because the lookup would run that code here.

    The code consists of builders, which analyse sources, and of the version commands of tools.
    """
    name, top = os.path.join("builders", ""), there.project_dir
    new = [
        path.relative_to(top)
        for path in sorted((top / "builders").rglob("*"))
        if _differs(path, config.project_dir / path.relative_to(top))
    ]
    if config.foreign:
        name, new = "scripts", new or [Path("project.json")]
    elif not new:
        name, new = "version command of a tool", _find_new_versions(config, there)
    if new:
        raise UserError(
            f"'{commit}' contains code that would run on this machine: the commit's {name} differs from this checkout ('{new[0]}')",
            hint="read the code, then add --trust-code; in CI, do so only for branches whose authors may run programs in CI",
        )


def _find_new_versions(config: Config, there: Config) -> list[Path]:
    """Return the files that differ between the commit (`there`) and this checkout, and that a tool's version command names.

    If the text of a command differs, return only the configuration file.
    """
    commands = {tool.version for tool in there.tools if tool.version}
    if not commands <= {tool.version for tool in config.tools}:
        return [Path(FILE_NAME)]
    words = {word.strip("'\"") for command in commands for word in command.split()}
    files = [Path(word) for word in sorted(words) if not os.path.isabs(word) and (there.project_dir / word).is_file()]
    return [file for file in files if _differs(there.project_dir / file, config.project_dir / file)]


def _differs(one: Path, other: Path) -> bool:
    """Whether the existing file `one` differs from `other`; a link always counts as different."""
    if one.is_dir() and not one.is_symlink():
        return False
    if one.is_symlink() or other.is_symlink() or not one.is_file() or not other.is_file():
        return True
    return one.read_bytes() != other.read_bytes()


def _answer(dry: Config, found: int, builders: dict[bytes, str]) -> CommitReadiness:
    from aptui.engine.loop.dispatch import NOT_SHARED
    from aptui.features.sharing.shared_cache import SharingRules

    rules = SharingRules(dry.sharing)
    missing: list[str] = []
    doubts: dict[str, None] = {}
    with closing(open_reader(asset_database(dry.cache_dir))) as database:
        for row in database.jobs(statuses=_FAILED):
            builder = builders.get(row.builder, "")
            if row.error != NOT_SHARED:
                doubts[f"{_job_label(row)}: {row.error}"] = None
            elif rules.keeps(builder):
                missing.append(_job_label(row))
            else:
                doubts[f"results of '{builder}' are not stored"] = None
    return CommitReadiness(found, tuple(sorted(missing)), tuple(doubts))


def _job_label(row: JobRow) -> str:
    return f"{row.source}@{row.platform}:{row.job_key}"


@contextmanager
def _private(store: str) -> Iterator[Path]:
    """Make a temporary folder, inside this machine's store if there is one, so that results can be linked."""
    if store:
        os.makedirs(store, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aptui-look-", dir=store or None, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


_FETCHES = {"GIT_NO_LAZY_FETCH": "0", "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
"""Environment variables that let git fetch the missing files of a partial clone. They allow git's default protocols."""


def _extract(top: Path, commit: str, target: Path, *, is_trusted: bool) -> None:
    """Write the files of a commit into `target` as a checkout does.

    `git archive` would leave out files with the attribute `export-ignore`, and change files with `export-subst`. Files of Git LFS
    stay pointers: a pointer has the digest of its file, so that results are found without a download.

    Args:
        is_trusted: whether the project is trusted, so that git may run filters and fetch missing files.
    """
    with tempfile.TemporaryDirectory(prefix="aptui-index-") as folder:
        environment = {
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_INDEX_FILE": os.path.join(folder, "index"),
            **(_FETCHES if is_trusted else {}),
        }
        for words in (["read-tree", commit], ["checkout-index", "--all", "--quiet", f"--prefix={target}/"]):
            done = run_git(top, *words, limit_s=None, runs_filters=is_trusted, environment=environment)
            if done.returncode:
                why = printing.line(os.fsdecode(done.stderr).strip().partition("\n")[0])
                raise HostError(f"the files of '{commit}' cannot be written: git reports: {why}", where=str(target))


STORED = "kept"
"""Value of `RebuildDifference.against` for differences from a stored result."""


def rebuild_store(config: Config, project: OpenedProject, wanted: SampleSize, seed: int | None, *, as_json: bool) -> int:
    """Compare a sample of the stored results with two new runs of their jobs.

    Results that differ from both runs are removed. The exit code is 1 if any result differs.
    """
    from aptui.features.sharing.service import Service

    seed = any_seed() if seed is None else seed
    builders = {builder.uuid: builder for builder in all_builders(config) if builder.kind is not BuilderKind.COPY}
    rows = list_completed(project, builders)
    everything = sample_of(config, project, rows, builders)
    with closing(Service(config.sharing, printing.complain)) as service:
        stored = _find_stored(config, service, everything.tasks)
        stored_rows = {task.row.job_id: number for number, (task, _found) in stored.items()}
        numbers = [stored_rows[row.job_id] for row in sample([task.row for task, _found in stored.values()], wanted, seed)]
        tasks = [stored[number][0] for number in numbers]
        differences = list(differences_of(config, tasks, everything.settings)) if tasks else []
        removed = _remove(stored, differences)
    chosen = RebuildSample(tasks, everything.settings, everything.left_out)
    rebuilt = Rebuilt(seed, len(rows), counts_of(tasks), chosen, differences)
    if as_json:
        printing.say_json({"store": config.sharing.local_store, "kept": len(stored), "removed": removed, **rebuilt.facts})
        return DIFFERENT if differences else 0
    printing.say(
        f"{len(stored):,} of {printing.count(len(rows), 'job')} have a result in '{printing.line(config.sharing.local_store)}'"
    )
    if tasks or everything.left_out:
        rebuilt.report("every result matches the stored one")
    if removed:
        printing.say(f"{printing.count(removed, 'result')} removed; removed results are built again when needed", "yellow")
        printing.say("run 'aptui verify --rebuild 100%' to find wrong products that this project's cache received from the store")
    return DIFFERENT if differences else 0


def _find_stored(config: Config, service: Service, tasks: Iterable[RebuildTask]) -> dict[int, tuple[RebuildTask, FoundResult]]:
    """Return {task number: (task, its stored result)} for the tasks with a stored result."""
    project = with_intermediates(config.project, str(config.cache_dir))
    present = Present({folder.name: folder.path for folder in project.scan_folders})
    found = {}
    for task in tasks:
        result = service.look_up(facts_of(task.job, task.builder, task.job.inputs), present.beside(task.root), is_shared=False)
        if result is not None:
            found[task.number] = replace(task, expected=_products(task, result), compared_with=STORED), result
    return found


def _products(task: RebuildTask, found: FoundResult) -> dict[str, ExpectedProduct]:
    local = found.namespace.local
    return {
        name_of(task.job, item, task.scan_folder): ExpectedProduct(
            item.digest, item.size, local.blob_path(item.digest.hex()) if local is not None else ""
        )
        for item in found.result.record.products
    }


def _remove(stored: Mapping[int, tuple[RebuildTask, FoundResult]], differences: Iterable[RebuildDifference]) -> int:
    """Remove the stored records whose products differ from the products of both new runs, and return the number of records.

    If the two new runs differ from each other, the builder is not deterministic, and the stored record stays.
    """
    differing = (item for item in differences if item.against == STORED and item.kind != "failed")
    wrong = {(item.builder, item.source, item.platform, item.job_key) for item in differing}
    removed = 0
    for task, found in stored.values():
        job = task.job
        if (task.builder.name, job.source.rel, job.platform, job.key) in wrong and found.namespace.local is not None:
            found.namespace.local.drop_record(found.result.key)
            removed += 1
    return removed

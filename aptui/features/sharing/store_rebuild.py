"""`cache verify --rebuild`: results that this machine keeps for a project are made twice more, in private, and compared.

What both runs contradict is removed from the store: whoever needs it makes it again. Results of other projects, and of what this
project was at other times, are not looked at: what they were made of is not here. How jobs are run again is in `rebuild`.

Tests: `tests/features/sharing/test_store_rebuild.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui.cli.opening import OpenedProject, all_builders
from aptui.cli.rebuild import (
    DIFFERENT,
    ExpectedProduct,
    RebuildDifference,
    RebuildSample,
    RebuildTask,
    Rebuilt,
    SharedCacheSetup,
    any_seed,
    counts_of,
    differences_of,
    list_completed,
    sample,
    sample_of,
)
from aptui.config.model import Config
from aptui.core.project import BuilderKind
from aptui.core.state.commits import name_of
from aptui.engine.loop.opening import with_intermediates
from aptui.features.sharing.job_results import Present, facts_of
from aptui.shared import printing

if TYPE_CHECKING:
    from aptui.features.sharing.service import FoundResult, Service


STORED = "kept"


def rebuild_store(config: Config, project: OpenedProject, wanted: SharedCacheSetup, seed: int | None, *, as_json: bool) -> int:
    """Compare a sample of what is kept for the project with two more runs; remove what both contradict; exit 1 when any differs."""
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
        rebuilt.report("every result as kept")
    if removed:
        printing.say(f"{printing.count(removed, 'result')} removed; it is made again when needed", "yellow")
        printing.say("'aptui verify --rebuild 100%' tells what came into this project's cache from there")
    return DIFFERENT if differences else 0


def _find_stored(config: Config, service: Service, tasks: Iterable[RebuildTask]) -> dict[int, tuple[RebuildTask, FoundResult]]:
    """Return {number: (task, what is kept of it)} of those of which anything is."""
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
        for item in found.record.products
    }


def _remove(stored: Mapping[int, tuple[RebuildTask, FoundResult]], differences: Iterable[RebuildDifference]) -> int:
    """Remove the records that two runs contradict; return how many. Those of builders that throw dice are as good as any."""
    wrong = {_name(item) for item in differences if item.against == STORED and item.kind != "failed"}
    for task, found in stored.values():
        job = task.job
        if (task.builder.name, job.source.rel, job.platform, job.key) in wrong and found.namespace.local is not None:
            found.namespace.local.drop_record(found.result.key)
    return len(wrong)


def _name(item: RebuildDifference) -> tuple[str, str, str, str]:
    return item.builder, item.source, item.platform, item.job_key

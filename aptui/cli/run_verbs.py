"""`reprocess`, `rerun`, `interest`: run jobs of sources again, run one job in the foreground, run some jobs before others."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui.batch.options import engine_arguments, load_last_config, load_to_run, options_of, report_arguments
from aptui.batch.run import JOBS_FAILED, run_and_report
from aptui.cli.engine_verbs import engine_of
from aptui.cli.log_verb import LEVEL_FORMS
from aptui.cli.naming import find_job, meanings, path_matcher, refuse_failed_analysis, suggest_sources
from aptui.cli.read_access import all_builders, open_for_reading
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database
from aptui.core.model import Job, PathKey
from aptui.core.orders import Outcome, RunResult
from aptui.core.paths import is_below, key_of, os_path
from aptui.core.project import Builder
from aptui.core.settings import SettingsTree
from aptui.link.port import MOST_INTERESTING, NoteInterest
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.reader import JobRow, Reader

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

# --------------------------------------------------------------------------------------------------------------- reprocess


def reprocess_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `reprocess`."""
    engine_arguments(parser)
    report_arguments(parser)
    parser.add_argument(
        "patterns", nargs="+", metavar="PATTERN", help="a source, a folder, or a glob that matches source paths ('*.png')"
    )


def reprocess(arguments: Namespace) -> int:
    """Run all jobs of the named sources again; pending jobs of other sources run too."""
    config = load_to_run(arguments)
    wanted = _read_named_sources(arguments, config)
    _, code = run_and_report(arguments, config, options_of(arguments, sources=wanted))
    return code


def _read_named_sources(arguments: Namespace, config: Config) -> tuple[PathKey, ...]:
    """Return the keys of the sources that the patterns on the command line name, each key once."""
    with open_for_reading(arguments, config) as project:
        keys = [key for pattern in arguments.patterns for key in sources_of(pattern, config, project.database)]
    return tuple(dict.fromkeys(keys))


def sources_of(pattern: str, config: Config, database: Reader) -> list[PathKey]:
    """Return the keys of the sources that a path, a folder or a glob names.

    Raises:
        UserError: no source matches, or the pattern is empty.
    """
    if not pattern:
        raise UserError("the pattern is empty", hint="use '*' for all sources")
    matchers = [(named.root, _matcher(named.rel)) for named in meanings(pattern, config)]
    found = [
        key_of(row.source)
        for row in database.sources()
        if any(row.root == root and matches(row.source.lower()) for root, matches in matchers)
    ]
    if not found:
        raise UserError(f"no source matches '{printing.line(pattern)}'", hint=suggest_sources(pattern, database))
    return found


def _matcher(rel: str) -> Callable[[str], bool]:
    """Return a function that reports whether a source path in lower case is `rel`, is below `rel`, or matches `rel` as a glob."""
    key = rel.lower()
    if "*" in key or "?" in key:
        return path_matcher(key)
    return lambda path: path == key or is_below(path, key)


# ---------------------------------------------------------------------------------------------------------------- interest


def interest_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `interest`."""
    parser.add_argument(
        "patterns", nargs="+", metavar="PATH", help="a source, a folder, or a glob that matches source paths ('*.png')"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = (
        "For 90 seconds, the jobs of these sources, and the jobs that they depend on, start before other jobs. Critical jobs, and "
        "jobs for which a client waits, still start first."
    )


def interest(arguments: Namespace) -> int:
    """Report to the running engine which sources the user is viewing."""
    config = load_last_config(arguments)
    keys = _read_named_sources(arguments, config)
    if len(keys) > MOST_INTERESTING:
        raise UserError(f"{len(keys):,} sources are too many for one request", hint=f"give at most {MOST_INTERESTING:,} sources")
    with engine_of(arguments, config) as engine:
        answer = engine.ask(NoteInterest(keys))
    text = f"{printing.count(len(keys), 'source')} {'comes' if len(keys) == 1 else 'come'} first for 90 seconds"
    return printing.say_answer(arguments.json, answer, text)


# ------------------------------------------------------------------------------------------------------------------- rerun


def rerun_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `rerun`."""
    parser.add_argument("job", metavar="JOB", help="#<number>, or PATH[@PLATFORM][:JOB KEY]")
    parser.epilog = "The verb prints the folder that has the products. It does not change the cache or the database."


def rerun(arguments: Namespace) -> int:
    """Run one job in a worker of its own, print all its output, and leave its products in a temporary folder."""
    from aptui.batch import alone  # imported here, because other verbs use this module without running jobs

    config = load_to_run(arguments)
    with open_for_reading(arguments, config) as project:
        row = find_job(arguments.job, config, project.database)
        source = project.database.source(row.source)
    refuse_failed_analysis(row, "run", "'aptui log' shows why")
    assert source is not None
    builder = next((item for item in all_builders(config) if item.uuid == row.builder), None)
    if builder is None:
        raise UserError("the builder of this job is no longer in the configuration", hint="'aptui builders' lists the builders")
    if not os.path.isfile(os_path(f"{source.root}/{source.source}")):  # a command would never end at a pipe
        raise UserError(f"the source '{printing.line(source.source)}' is not a file now", hint="restore the file first")
    folder = alone.new_folder(config, "rerun-")
    printing.say(f"job      {printing.line(f'{row.source}@{row.platform}:{row.job_key}')}  #{row.job_id}", "bold")
    printing.say(f"builder  {printing.line(builder.name)}, {builder.kind.value}{_origin(builder)}")
    sys.stdout.flush()
    return _print(_result(config, source.root, row, builder, folder), folder)


def _origin(builder: Builder) -> str:
    return f" ({printing.line(builder.origin)})" if builder.origin else ""


def _result(config: Config, root: str, row: JobRow, builder: Builder, folder: str) -> RunResult:
    """Run the job in a worker, as the engine does: with the engine's limits, and with captured output of limited size."""
    from aptui.batch import alone

    job, texts = _read_stored(config, row)
    adjusted = SettingsTree(replace(config.project, builders=all_builders(config)), texts).adjustment(key_of(row.source), builder)
    staging = f"{folder}/{os.path.basename(row.source)}" if builder.is_plain_copy else folder
    manner = alone.RerunOptions(adjusted.order, debug_output=True, keeps_temp=True)
    with alone.Workers(config, (builder,), 1) as workers:
        return workers.run([alone.order_for(job, root, alone.scan_paths(config), builder, staging, row.run_key, manner)])[
            row.run_key
        ]


def _read_stored(config: Config, row: JobRow) -> tuple[Job, dict[str, str]]:
    """Return the pair (job, texts of the folder settings). The job has its plan; `Reader` loads neither plans nor settings."""
    from aptui.store.db.archive import DatabaseArchive

    key = key_of(row.source)
    with closing(DatabaseArchive(asset_database(config.cache_dir), {})) as archive:
        source, texts = archive.sources([key])[key], archive.settings()
    return source.jobs[row.builder, row.platform, row.job_key], texts


def _print(result: RunResult, folder: str) -> int:
    if result.command_line:
        printing.say(f"command  {printing.line(result.command_line)}")
    for record in result.log:
        prefix, colour = LEVEL_FORMS.get(record.level, ("", ""))
        for text in record.text.splitlines() or [""]:
            printing.say(f"  {prefix}{printing.line(text)}", colour)
        for key, value in record.context:
            for text in value.splitlines():
                printing.say(f"      {printing.line(key)}: {printing.line(text)}", "dim")
    is_done = result.outcome == Outcome.SUCCEEDED
    for product in result.products:
        printing.say(
            f"product  {printing.line(product.name or os.path.basename(product.staged))}, sub id {product.sub_id}, "
            f"{printing.size(product.size)}"
        )
    ending = "succeeded" if is_done else f"failed: {printing.line(result.error)}"
    printing.say(f"{ending}; {printing.duration(result.duration_ms / 1000)}", "green" if is_done else "red")
    printing.say(f"kept     {printing.line(folder)}")
    return 0 if is_done else JOBS_FAILED

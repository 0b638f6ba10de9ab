"""`aptui restore`: yesterday's product back, out of this machine's store.

Tests: `tests/features/sharing/test_restore_verb.py`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from aptui.batch.options import engine_arguments, load_to_run, options_of
from aptui.batch.run import run
from aptui.cli.naming import find_job
from aptui.cli.opening import open_for_reading
from aptui.features.sharing.restoring import find_stored_run
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.reader import JobRow, RunRow

NOT_RESTORED = 1


def restore_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `restore`."""
    parser.add_argument("job", metavar="JOB", help="#<number>, or PATH[@PLATFORM][:JOB KEY]")
    parser.add_argument("--run", type=int, required=True, metavar="N", help="1 is the last run, 2 the one before; see below")
    engine_arguments(parser)
    parser.epilog = """\
'aptui log JOB --history' lists the runs. What is restored stays until what the job
is made of changes (its source, its builder), or somebody asks for it ('aptui
reprocess'); restarts and full scans leave it, and 'aptui jobs' shows it as restored."""


def restore(arguments: Namespace) -> int:
    """Put the products of a run back, and say which."""
    config = load_to_run(arguments)
    with open_for_reading(arguments, config) as project:
        row = find_job(arguments.job, config, project.database)
        chosen = _run_of(row, project.database.runs_of(row.job_id) if row.job_id else [], arguments.run)
    stored = find_stored_run(config, row.job_id, chosen.run_key)
    options = options_of(arguments)
    options.restores = ((row.job_id, chosen.run_key),)
    run(config, options)
    with open_for_reading(arguments, config) as project:
        now = project.database.job(row.job_id)
    is_done = now is not None and now.status == "completed" and now.origin == stored.origin
    name = f"{row.source}@{row.platform}:{row.job_key}"
    if arguments.json:
        products = [{"name": product.row.name, "digest": product.digest} for product in stored.products]
        printing.say_json({"job": name, "job_id": row.job_id, "restored": is_done, "origin": stored.origin, "products": products})
    elif is_done:
        printing.say(f"{printing.line(name)}: its result is {stored.origin}", "green")
        for product in stored.products:
            printing.say(f"  {printing.line(product.row.name)}")
    else:
        why = printing.line(now.error) if now is not None and now.error else "it was made anew meanwhile"
        printing.say(f"{printing.line(name)} was not restored: {why}", "red")
    return 0 if is_done else NOT_RESTORED


def _run_of(row: JobRow, runs: list[RunRow], number: int) -> RunRow:
    if not row.job_id:
        failed = f"'{printing.line(row.source)}' failed at its analysis: there is no job to restore"
        raise UserError(failed, hint="fix what its log says: 'aptui log' shows it")
    if not 1 <= number <= len(runs):
        known = f"there are {len(runs)}" if runs else "none is recorded"
        raise UserError(f"there is no run {number} of this job", hint=f"{known}; 1 is the last one")
    return runs[number - 1]

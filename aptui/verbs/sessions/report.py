"""`aptui report`: what is not well, by folder, owner, builder or platform, and which jobs failed there."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import Any

from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.history.sizes import folder_of
from aptui.store.queries.problems.report import Group, ReportRow
from aptui.store.queries.problems.report import report as make_report
from aptui.verbs.opening import OpenedProject, open_for_reading

_LISTED = 40
_FAILURES = 5
_DEEPEST = 64


def report_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `report`."""
    parser.add_argument("--by", choices=("folder", "owner", "builder", "platform"), default="folder", help="what stands together")
    parser.add_argument(
        "--depth", type=int, default=1, metavar="N", help="by folder: so many folders of a source's path; 1 by default"
    )
    parser.add_argument("--all", action="store_true", help="also what is well")
    parser.add_argument("--json", action="store_true", help="print a JSON list, with all jobs that failed")
    parser.epilog = """\
  aptui report                       what is not well, by the first folder of a source
  aptui report --by owner            by whom CODEOWNERS names, with what failed
  aptui report --by builder --all    all builders, also those that are well"""


def report(arguments: Namespace) -> int:
    """Say what is not well."""
    if not 1 <= arguments.depth <= _DEEPEST:
        raise UserError(f"--depth: {arguments.depth} is not between 1 and {_DEEPEST}", hint="take a number between them")
    with open_for_reading(arguments) as project:
        rows = make_report(project.database, _group(project, arguments))
    shown = rows if arguments.all else [row for row in rows if not row.is_well]
    if arguments.json:
        printing.say_json_list(_json(row, project) for row in shown)
    else:
        _print(rows, shown, arguments.by)
    return 0


def _group(project: OpenedProject, arguments: Namespace) -> Group:
    match arguments.by:
        case "folder":
            return lambda source, _folder, _builder, _platform: folder_of(source, arguments.depth)
        case "builder":
            return lambda _source, _folder, builder, _platform: project.builder_of(builder)
        case "platform":
            return lambda _source, _folder, _builder, platform: platform
    from aptui.verbs.sessions.owners import NO_OWNER, owners_of

    owners = owners_of(project.config.project_dir)
    roots = {folder.name: folder.path for folder in project.config.project.scan_folders if not folder.is_intermediate}
    return lambda source, folder, _builder, _platform: (
        owners.of(os.path.join(roots[folder], source)) if folder in roots else NO_OWNER
    )


def _json(row: ReportRow, project: OpenedProject) -> dict[str, Any]:
    return {
        "name": row.name, "jobs": row.jobs, "failed": row.failed, "waiting": row.waiting, "cancelled": row.cancelled,
        "warnings": row.warnings, "errors": row.errors,
        "failures": [
            {
                "source": job.source, "platform": job.platform, "job_key": job.job_key, "builder": project.builder_of(job.builder),
                "error": job.error, "job_id": job.job_id, "completed": printing.iso(job.completed_ms),
            }
            for job in row.failures
        ],
    }  # fmt: skip


def _print(rows: list[ReportRow], shown: list[ReportRow], by: str) -> None:
    well = [row for row in rows if row.is_well]
    if shown:
        header = (by, "jobs", "failed", "waiting", "cancelled", "warnings", "errors")
        printing.table(header, (_cells(row) for row in shown[:_LISTED]), right=(1, 2, 3, 4, 5, 6), spare=(4, 6, 1))
    if len(shown) > _LISTED:
        printing.say(f"and {len(shown) - _LISTED:,} more: --json has all")
    if well and len(shown) < len(rows):
        printing.say(f"well: {len(well):,} of {len(rows):,}, with {printing.count(sum(row.jobs for row in well), 'job')}", "green")
    for row in shown[:_LISTED]:
        if row.failures:
            printing.say(f"failed, {printing.line(row.name)}:", "bold")
        for job in row.failures[:_FAILURES]:
            name = printing.line(f"{job.source}@{job.platform}:{job.job_key}")
            printing.say(f"  {name}  {printing.line(job.error)}".rstrip())
        if len(row.failures) > _FAILURES:
            printing.say(f"  and {len(row.failures) - _FAILURES:,} more: --json has all")


def _cells(row: ReportRow) -> list[str]:
    figures = (row.failed, row.waiting, row.cancelled, row.warnings, row.errors)
    return [row.name, f"{row.jobs:,}", *(f"{figure:,}" if figure else "" for figure in figures)]

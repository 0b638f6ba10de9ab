"""`log --history` and `log --compare`: the runs of an asset's jobs, their inputs and products, and how two of them differ."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from msgspec import Struct

from aptui.batch.summary import log_path
from aptui.core.fingerprint import MISSING, Entry
from aptui.core.orders import Outcome
from aptui.core.records.history import Made, RunStep, moments
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.reader import JobRow, RunRow
from aptui.verbs.naming import find_job, jobs_named, unknown
from aptui.verbs.opening import OpenedProject, open_for_reading

_SHORT = 12
_OUTCOMES = {Outcome.SUCCEEDED: "completed", Outcome.FAILED: "failed", Outcome.CANCELLED: "cancelled"}


class _HistoryRun(Struct, frozen=True):
    """A run with its number (1 is the last one), what it was made of and what it made."""

    number: int
    row: RunRow
    moment: RunStep

    @property
    def outcome(self) -> str:
        return _OUTCOMES.get(Outcome(self.row.outcome), "lost")


def history(arguments: Namespace) -> int:
    """Show the runs of all jobs that a path names."""
    with open_for_reading(arguments) as project:
        rows = [row for row in _jobs(arguments.job, project) if row.job_id]
        found = [(row, _runs(row, project)) for row in rows]
        if arguments.json:
            printing.say_json_list(_history_json(row, runs, project) for row, runs in found)
            return 0
        for row, runs in found:
            printing.say(_title(row), "bold")
            _print_runs(row, runs, project)
    if not found:
        printing.complain("aptui: it has no jobs")
    return 0


def _jobs(word: str, project: OpenedProject) -> list[JobRow]:
    if word.startswith("#"):
        return [find_job(word, project.config, project.database)]
    rows = jobs_named(word, project.config, project.database)
    if rows is None:
        raise unknown(word, project.database)
    return rows


def _runs(row: JobRow, project: OpenedProject) -> list[_HistoryRun]:
    """Return the runs that are kept, the last first."""
    database = project.database
    made = tuple((product.name, product.digest.hex()[:32], product.size) for product in database.products_of(row.job_id))
    rows = database.runs_of(row.job_id)
    states = moments(RunStep(database.inputs_of(row.job_id), made), ((run.outcome == Outcome.SUCCEEDED, run.step) for run in rows))
    return [_HistoryRun(number, run, state) for number, (run, state) in enumerate(zip(rows, states, strict=True), 1)]


def _title(row: JobRow) -> str:
    return printing.line(f"{row.source}@{row.platform}:{row.job_key}") + f"  #{row.job_id}"


def _print_runs(row: JobRow, runs: list[_HistoryRun], project: OpenedProject) -> None:
    builder = project.builder_of(row.builder)
    cells = (
        [
            str(run.number), printing.when(run.row.completed_ms), run.outcome, printing.duration(run.row.duration_ms / 1000),
            f"{builder} {run.row.version}".strip(), run.row.products.hex()[:_SHORT], run.row.error or run.row.reason,
        ]
        for run in runs
    )  # fmt: skip
    header = ("run", "ended", "outcome", "duration", "builder", "products", "reason")
    printing.table(header, cells, right=(0, 3), spare=(4, 5, 3))


def _history_json(row: JobRow, runs: list[_HistoryRun], project: OpenedProject) -> dict[str, Any]:
    names = {"source": row.source, "platform": row.platform, "job_key": row.job_key, "job_id": row.job_id}
    return {**names, "builder": project.builder_of(row.builder), "runs": [_run_json(run, project) for run in runs]}


def _run_json(run: _HistoryRun, project: OpenedProject) -> dict[str, Any]:
    row = run.row
    return {
        "run": run.number,
        "completed": printing.iso(row.completed_ms),
        "outcome": run.outcome,
        "reason": row.reason,
        "error": row.error,
        "duration_s": row.duration_ms / 1000,
        "builder_version": row.version,
        "fingerprint": f"{row.fingerprint:016x}" if row.fingerprint else "",
        "products_digest": row.products.hex(),
        "products": [{"name": name, "digest": digest, "size": size} for name, digest, size in sorted(run.moment.products)],
        "inputs": [{"kind": kind, "name": name, "digest": digest} for kind, name, digest in run.moment.inputs],
        "log": log_path(row.log_file, project.config.log_dir),
    }


# ----------------------------------------------------------------------------------------------------------------- compare


def compare(arguments: Namespace) -> int:
    """Show what two runs of a job differ in."""
    with open_for_reading(arguments) as project:
        row = find_job(arguments.job, project.config, project.database)
        runs = {run.number: run for run in _runs(row, project)}
        old, new = (_choose_run(number, runs) for number in arguments.compare)
        answer = _difference(old, new)
        if arguments.json:
            both = {"old": _run_json(old, project), "new": _run_json(new, project)}
            printing.say_json({"source": row.source, "platform": row.platform, "job_key": row.job_key, **both, **answer})
            return 0
    printing.say(_title(row), "bold")
    for run in (old, new):
        printing.say(
            f"run {run.number}: {printing.when(run.row.completed_ms)}, {run.outcome}, "
            f"{printing.duration(run.row.duration_ms / 1000)}, "
            f"builder version {printing.line(run.row.version) or 'unknown'}: {printing.line(run.row.reason)}"
        )
    _print_part("inputs", answer["inputs"])
    if old.outcome == new.outcome == "completed":
        _print_part("products", answer["products"])
    else:
        printing.say("a run that did not complete made no products")
    return 0


def _choose_run(number: int, runs: dict[int, _HistoryRun]) -> _HistoryRun:
    if number not in runs:
        known = f"there are {len(runs)}" if runs else "none is recorded"
        raise UserError(f"there is no run {number} of this job", hint=f"{known}; 1 is the last one")
    return runs[number]


def _difference(old: _HistoryRun, new: _HistoryRun) -> dict[str, Any]:
    return {
        "duration_s": (new.row.duration_ms - old.row.duration_ms) / 1000,
        "inputs": _changes(_name_inputs(old.moment.inputs), _name_inputs(new.moment.inputs)),
        "products": _changes(_name_products(old.moment.products), _name_products(new.moment.products)),
    }


def _name_inputs(entries: tuple[Entry, ...]) -> dict[str, str]:
    return {f"{kind} {name}": digest for kind, name, digest in entries}


def _name_products(products: tuple[Made, ...]) -> dict[str, str]:
    return {name: f"{digest[:_SHORT]}, {printing.size(size)}" for name, digest, size in products}


def _changes(old: dict[str, str], new: dict[str, str]) -> list[dict[str, str]]:
    found = []
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name, ""), new.get(name, "")
        if was != now:
            found.append(
                {"change": "changed" if was and now else "added" if now else "removed", "name": name, "old": was, "new": now}
            )
    return found


def _print_part(title: str, changes: list[dict[str, str]]) -> None:
    if not changes:
        printing.say(f"the same {title}")
        return
    printing.say(f"{title}:")
    for change in changes:
        values = " -> ".join(_value(change[key]) for key in ("old", "new") if change[key])
        printing.say(f"  {change['change']}  {printing.line(change['name'])}  {values}")


def _value(text: str) -> str:
    return text if text == MISSING or "," in text else text[:_SHORT]

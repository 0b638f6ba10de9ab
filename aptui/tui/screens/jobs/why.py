"""The sheet that says why a job is as it is: the reason, what it was made of, what it waits for, its earlier runs.

Read in a thread.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from aptui.core.fingerprint import MISSING
from aptui.core.model import describe_key
from aptui.shared.sanitize import sanitize
from aptui.store.queries.reader import JobRow, Reader, RunRow, open_reader
from aptui.store.queries.reasons import edge_type, makers, sentence
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.frame.line import Part, Parts, width_of
from aptui.tui.screens.jobs.details import find_job
from aptui.tui.screens.jobs.texts import moment
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import wrap
from aptui.tui.words import duration_text

_KIND_CELLS, _LABEL_CELLS = 22, 14
_MOST = 200


def why_lines(database: Path, info: JobRowInfo, width: int = 200) -> list[Parts]:
    """Return the sheet of a job; what is too long for a line goes on in the next.

    Raises:
        KnownError: the database cannot be read.
    """
    with closing(open_reader(database)) as reader, reader.snapshot():
        row = find_job(reader, info)
        if row is None:
            return [(Part(" the job is gone", "muted"),)]
        return [line for text in _explain(row, info, reader) for line in _break_line(text, width)]


def _break_line(line: Parts, width: int) -> Iterator[Parts]:
    """Yield a line; what of its last part has no room goes below where that begins."""
    lead, last, at = line[:-1], line[-1:], width_of(line[:-1])
    if not last or width_of(line) <= width or at > width * 2 // 3:
        yield line
        return
    rows = [last[0].text[start:end] for start, end in wrap(last[0].text, width - at)]
    yield (*lead, Part(rows[0], last[0].role))
    yield from ((Part(" " * at), Part(row.lstrip(), last[0].role)) for row in rows[1:])


def _explain(row: JobRow, info: JobRowInfo, reader: Reader) -> Iterator[Parts]:
    runs = reader.runs_of(row.job_id) if row.job_id else []
    edges = [edge for edge in reader.edges_of(row.source_id) if edge.builder == row.builder]
    title = f"{row.platform} · {describe_key(row.job_key, info.builder)}" + (f"  #{row.job_id}" if row.job_id else "")
    yield ()
    yield (
        Part(f" {sanitize(row.source)}", "title"),
        Part(f"  {sanitize(title)}", "muted"),
    )
    yield (Part(f" {glyph(row.status)} {row.status}", row.status), Part(f": {sanitize(sentence(row, runs, edges, reader))}"))
    yield ()
    if row.error:
        yield from _pairs("Error", row.error.splitlines()[:_MOST], "error")
    if row.completed_ms:
        took = f"{moment(row.completed_ms)}, after {duration_text(int(row.duration_s * 1000))}"
        yield from _pairs(
            "Last run", [f"{took}, builder {info.builder}" + (f", run {row.run_key}" if row.run_key else "")], "value"
        )
    if runs and runs[0].fingerprint:
        yield from _pairs("Fingerprint", [f"{runs[0].fingerprint:016x}"], "value")
    stages = makers(reader.source(row.source), reader)
    yield from _pairs("Made by", [f"{job.source}, {job.platform}: {job.job_key}: {reason}" for job, reason in stages], "path")
    products = [product.name for product in reader.products_of(row.job_id)] if row.job_id else []
    yield from _pairs("Products" if row.status == "completed" else "Last products", products[:_MOST], "path")
    yield from _pairs("Depends on", [f"{edge.target}  ({edge_type(edge)})" for edge in edges[:_MOST]], "value")
    yield from _pairs("Needed by", [path for path in reader.dependents_of(row.source) if path != row.source][:_MOST], "path")
    yield from _inputs(reader.inputs_of(row.job_id) if row.job_id else ())
    yield from _earlier(runs)


def _pairs(label: str, values: Iterable[str], role: str) -> Iterator[Parts]:
    for at, value in enumerate(values):
        yield (Part(f" {label if not at else '':<{_LABEL_CELLS}}", "key"), Part(sanitize(value), role))


def _inputs(inputs: Sequence[tuple[str, str, str]]) -> Iterator[Parts]:
    if inputs:
        yield ()
        yield (Part(" Made of, when it was last committed", "header"),)
    for kind, name, digest in inputs[:_MOST]:
        shown = digest if digest == MISSING else digest[:12]
        yield (Part(f"   {sanitize(kind):<{_KIND_CELLS}}", "muted"), Part(f"{sanitize(name)}  "), Part(sanitize(shown), "muted"))
    if len(inputs) > _MOST:
        yield (Part(f"   and {len(inputs) - _MOST:,} more", "muted"),)


def _earlier(runs: Sequence[RunRow]) -> Iterator[Parts]:
    if len(runs) > 1:
        yield ()
        yield (Part(" Earlier runs", "header"),)
    for run in runs[1:]:
        role = "completed" if run.outcome == 0 else "failed"
        error = f": {run.error.partition(chr(10))[0]}" if run.error else ""
        yield (
            Part(f"   {glyph(role)} ", role), Part(f"{moment(run.completed_ms)}  run {run.run_key:<8} ", "muted"),
            Part(sanitize(f"{run.reason}{error}")),
        )  # fmt: skip

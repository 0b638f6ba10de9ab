"""Why the jobs of a source ran, wait or failed, as lines for the preview; read from the database, in a thread.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from aptui.core.fingerprint import MISSING
from aptui.core.model import describe_key
from aptui.store.queries import assets
from aptui.store.queries.problems.reasons import sentence
from aptui.store.queries.reader import JobRow, Reader, RunRow
from aptui.tui.screens.assets.panel import moment
from aptui.tui.terminal.safety import glyph, make_safe
from aptui.tui.widgets.textview import Piece, TextPreview
from aptui.tui.words import duration_text

_INPUTS_SHOWN = 40
_RULE = "rule"
Line = tuple[Piece, ...]


def read_why(reader: Reader, source: str) -> TextPreview:
    """Return what is known of every job of a source: the reason of its last run, its inputs, the runs before."""
    row = reader.source(source)
    jobs = reader.jobs_of(row.source_id) if row else []
    lines: list[Line] = []
    for job in jobs:
        lines += [*([()] if lines else []), *_job_lines(reader, job)]
    if row is not None:
        needed_by = assets.source_details(reader, row.source_id)
        names = [edge.text for edge in needed_by.incoming] if needed_by else []
        if names:
            lines += [(), (("needed by", "key"),), *(_entry(name) for name in names[:_INPUTS_SHOWN]), *_more(len(names))]
    sentence = "" if lines else "it has no jobs: its analysis said there is nothing to do, or has not run"
    return TextPreview(sentence, tuple(lines), is_numbered=False)


def _job_lines(reader: Reader, job: JobRow) -> Iterator[Line]:
    yield (
        (f"{glyph(job.status)} {job.status}  ", job.status),
        (make_safe(f"{job.platform}  {describe_key(job.job_key)}"), "title"),
    )
    runs = reader.runs_of(job.job_id) if job.job_id else []
    edges = [edge for edge in reader.edges_of(job.source_id) if edge.builder == job.builder]
    yield (("  why       ", "key"), (make_safe(sentence(job, runs, edges, reader)), ""))
    if job.status == "failed":
        yield (("  error     ", "key"), (make_safe(job.error or "no reason given"), "error"))
    if job.completed_ms:
        took = duration_text(round(job.duration_s * 1000))
        yield (("  last run  ", "key"), (f"{moment(job.completed_ms / 1000)}, {took}", "value"))
    inputs = [entry for entry in (reader.inputs_of(job.job_id) if job.job_id else ()) if entry[0] != _RULE]
    if inputs:
        yield (("  made of", "key"),)
    width = max((len(kind) for kind, _, _ in inputs[:_INPUTS_SHOWN]), default=0)
    for kind, name, digest in inputs[:_INPUTS_SHOWN]:
        is_missing = digest == MISSING
        yield (
            (f"    {kind:<{width}}  ", "muted"),
            (make_safe(name), "path"),
            (f"  {digest if is_missing else digest[:12]}", "warning" if is_missing else "muted"),
        )
    yield from _more(len(inputs))
    yield from map(_run_line, runs[1:])


def _run_line(run: RunRow) -> Line:
    is_failed = run.outcome != 0
    return (
        (f"  before    {moment(run.completed_ms / 1000)}  ", "muted"),
        (make_safe(run.reason), "muted"),
        (f"  {glyph('failed')} failed" if is_failed else "", "failed"),
    )


def _entry(name: str) -> Line:
    return (("    ", ""), (make_safe(name), "path"))


def _more(count: int) -> list[Line]:
    return [((f"    and {count - _INPUTS_SHOWN:,} more", "muted"),)] if count > _INPUTS_SHOWN else []

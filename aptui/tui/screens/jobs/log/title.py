"""The line above a job's log: whose it is, which run, and at the right what is searched for, which levels show and how many lines.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from rich.cells import cell_len

from aptui.shared.sanitize import sanitize
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.frame.line import Part, width_of
from aptui.tui.screens.common.bar import FRAME_CELLS
from aptui.tui.screens.jobs.details import JobDetails
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import fit


class TitledLog(Struct, frozen=True):
    """What the line is about: `info` is the job under the cursor, `job_details` what is shown, which may still be another's."""

    info: JobRowInfo | None
    job_details: JobDetails | None
    is_reading: bool
    has_focus: bool
    line_count: int
    modes: str
    search: Sequence[Part]


def title(log: TitledLog, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
    """Return both ends of the line."""
    info, job_details = log.info, log.job_details
    if log.is_reading and job_details is not None:
        info = job_details.info  # whose lines still stand below
    role = "title" if log.has_focus else "header"
    if info is None:
        return (Part("Event log", role),), ()
    is_read = job_details is not None and job_details.info.key == info.key
    right = [*log.search, *(Part(f"{word}  ", "accent") for word in log.modes.split("  ") if word)]
    count = log.line_count
    right += [Part(f"{count:,} line{'' if count == 1 else 's'}" if is_read else "reading", "muted")] if width >= 60 else []
    head, tail = [Part("Event log", role), Part(" · ", "muted")], _run_parts(log.info, job_details if is_read else None)
    job = [Part(sanitize(f" · {info.platform} · {info.job_key}"), "muted")]
    free_width = width - FRAME_CELLS - width_of(head + tail + right)
    job = job if free_width - width_of(job) >= cell_len(sanitize(info.source)) else []
    path = fit(info.source, max(1, free_width - width_of(job))).text.rstrip()
    return [*head, Part(path, "path"), *job, *tail], right


def _run_parts(info: JobRowInfo | None, job_details: JobDetails | None) -> list[Part]:
    parts = []
    if job_details is not None and job_details.running_key:
        parts.append(Part(f" · run {job_details.running_key}", "muted"))
    elif job_details is not None and job_details.run is not None:
        # Counted as `log --history` and `restore` do: 1 is the last run.
        number = f" · run {job_details.at + 1} of {len(job_details.runs)}"
        parts.append(Part(number, "muted" if job_details.is_newest else "warning"))
    if info is not None and info.status == "processing":
        parts.append(Part(f" {glyph('processing')} running", "processing"))
    return parts
